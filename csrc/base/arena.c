/* A growable arena for scratch.
 *
 * A block is one allocation that begins with its header; blocks form a list, the newest first, and
 * pushes go to the newest. `used` counts within it, always a multiple of DS_ALIGNMENT. A reset with
 * several blocks only marks them (used = 0, which no block in use has); the next push replaces them.
 *
 * A block that is added is at least as large as all before it together, so that growing to n bytes
 * takes O(log n) allocations. */
#include "base/arena.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_POISON 1
#endif
#endif

#ifdef ARENA_POISON
#include <sanitizer/asan_interface.h>
#define POISON(address, n_bytes) __asan_poison_memory_region((address), (n_bytes))
#define UNPOISON(address, n_bytes) __asan_unpoison_memory_region((address), (n_bytes))
#define RED_ZONE DS_ALIGNMENT
#else
#define POISON(address, n_bytes) ((void)0)
#define UNPOISON(address, n_bytes) ((void)0)
#define RED_ZONE 0
#endif

typedef struct ds_arena_block {
    struct ds_arena_block *older;
    size_t n_bytes; /* of the whole block */
} block;

/* Where pushes begin in a block: the header, rounded up. */
#define HEADER_BYTES DS_ALIGNMENT
_Static_assert(sizeof(block) <= HEADER_BYTES, "the header must fit");

#define SMALLEST_BLOCK 4096

void ds_arena_init(ds_arena *arena, const ds_allocator *allocator)
{
    *arena = (ds_arena){.allocator = allocator != NULL ? *allocator : *ds_default_allocator()};
}

static void poison_block(block *item)
{
    (void)item;
    POISON((char *)item + HEADER_BYTES, item->n_bytes - HEADER_BYTES);
}

void ds_arena_free(ds_arena *arena)
{
    while (arena->newest != NULL) {
        block *item = arena->newest;
        arena->newest = item->older;
        UNPOISON(item, item->n_bytes);
        ds_release(&arena->allocator, item, item->n_bytes);
    }
    arena->n_held = arena->used = 0;
}

void ds_arena_reset(ds_arena *arena)
{
    if (arena->newest == NULL)
        return;
    for (block *item = arena->newest; item != NULL; item = item->older)
        poison_block(item);
    arena->used = arena->newest->older == NULL ? HEADER_BYTES : 0;
}

/* Adds a block, which becomes the newest, with room for `n_bytes` (a multiple of the alignment). */
static ds_status add_block(ds_arena *arena, size_t n_bytes)
{
    size_t wanted = HEADER_BYTES + n_bytes;
    if (wanted < SMALLEST_BLOCK)
        wanted = SMALLEST_BLOCK;
    if (wanted < arena->n_held)
        wanted = arena->n_held;
    if (arena->used <= HEADER_BYTES) /* nothing is pushed: so the peak is one block, not all */
        ds_arena_free(arena);
    block *item;
    DS_TRY(ds_allocate(&arena->allocator, (void **)&item, wanted));
    *item = (block){arena->newest, wanted};
    poison_block(item);
    arena->newest = item;
    arena->n_held += wanted;
    arena->used = HEADER_BYTES;
    return DS_OK;
}

ds_status ds_arena_push(ds_arena *arena, void **pointer, size_t n_bytes)
{
    void *memory = NULL;
    if (n_bytes > 0) {
        DS_CHECK(n_bytes <= PTRDIFF_MAX, DS_NO_MEMORY, "out of memory: %zu bytes were asked for",
                 n_bytes);
        const size_t n_taken = ds_aligned(n_bytes + RED_ZONE);
        if (arena->used == 0 || n_taken > arena->newest->n_bytes - arena->used)
            DS_TRY(add_block(arena, n_taken));
        memory = (char *)arena->newest + arena->used;
        arena->used += n_taken;
        UNPOISON(memory, n_bytes);
    }
    memcpy(pointer, &memory, sizeof memory); /* as bytes: it may be a pointer of another type */
    return DS_OK;
}

ds_status ds_arena_push_array(ds_arena *arena, void **pointer, size_t count, size_t item_bytes)
{
    size_t n_bytes;
    DS_TRY(ds_array_bytes(&n_bytes, count, item_bytes));
    return ds_arena_push(arena, pointer, n_bytes);
}

ds_status ds_arena_grow(ds_arena *arena, void **items, size_t n, size_t *capacity,
                        size_t item_bytes)
{
    const size_t wanted = n > 0 ? 2 * n : 4;
    void *old = NULL, *larger = NULL;
    if (n < *capacity)
        return DS_OK;
    DS_TRY(ds_arena_push_array(arena, &larger, wanted, item_bytes));
    memcpy(&old, items, sizeof old); /* as bytes, like a push */
    if (n > 0)
        memcpy(larger, old, n * item_bytes);
    memcpy(items, &larger, sizeof larger);
    *capacity = wanted;
    return DS_OK;
}

ds_status ds_arena_push_zeroed(ds_arena *arena, void **pointer, size_t count, size_t item_bytes)
{
    void *memory = NULL;
    DS_TRY(ds_arena_push_array(arena, &memory, count, item_bytes));
    if (memory != NULL)
        memset(memory, 0, count * item_bytes);
    memcpy(pointer, &memory, sizeof memory);
    return DS_OK;
}

ds_status ds_arena_copy(ds_arena *arena, void **copy, const void *items, size_t n,
                        size_t item_bytes)
{
    void *memory = NULL;
    DS_TRY(ds_arena_push_array(arena, &memory, n, item_bytes));
    if (memory != NULL)
        memcpy(memory, items, n * item_bytes);
    memcpy(copy, &memory, sizeof memory);
    return DS_OK;
}
