/* A growable arena for scratch: memory that lives from a push until the next reset.
 *
 * Memory comes in blocks; a push moves a mark through the newest block and adds a block where that
 * is full. Earlier pushes never move. If a round needed several blocks, the first push of the next
 * round replaces them by one that holds as much as all of them: so after a round or two a step that
 * is no larger than one seen before allocates nothing, and a reset can't fail.
 *
 * Built with AddressSanitizer, memory that is not pushed is poisoned, with a gap after each push,
 * so that an overrun is reported where it happens.
 *
 * An arena belongs to one thread at a time. */
#pragma once
#include "base/alloc.h"

/* Fields are private to arena.c; the type is complete so that it can be a member. */
typedef struct ds_arena {
    ds_allocator allocator;
    struct ds_arena_block *newest; /* the block that pushes go to; older ones hang on it */
    size_t n_held;                 /* bytes of all blocks, headers included */
    size_t used;                   /* bytes of `newest` that are taken, its header included */
} ds_arena;

/* Makes an empty arena, which holds no memory; `allocator` is copied, NULL the C library's. */
void ds_arena_init(ds_arena *arena, const ds_allocator *allocator);
/* Fills `*pointer` with `n_bytes` of memory, aligned to DS_ALIGNMENT, not initialised, valid until
 * the next reset. Zero bytes give NULL. Errors: DS_NO_MEMORY, upon which `*pointer` and what was
 * pushed before are left as they were. */
ds_status ds_arena_push(ds_arena *arena, void **pointer, size_t n_bytes);
/* The same for `count` items of `item_bytes` each. */
ds_status ds_arena_push_array(ds_arena *arena, void **pointer, size_t count, size_t item_bytes);
/* Makes room for one more item in an array of n that was pushed: where it is full, one of twice the size
 * takes its place. Begins with *items NULL, *capacity 0. Errors as above. */
ds_status ds_arena_grow(ds_arena *arena, void **items, size_t n, size_t *capacity,
                        size_t item_bytes);
/* The same, all bytes zero. */
ds_status ds_arena_push_zeroed(ds_arena *arena, void **pointer, size_t count, size_t item_bytes);
/* Fills `*copy` with a copy of n items. */
ds_status ds_arena_copy(ds_arena *arena, void **copy, const void *items, size_t n,
                        size_t item_bytes);
/* All push n items for the pointer `target`, and return from the function on failure. */
#define DS_PUSH(arena, target, n) \
    DS_TRY(ds_arena_push_array((arena), (void **)&(target), (n), sizeof *(target)))
#define DS_PUSH_ZEROED(arena, target, n) \
    DS_TRY(ds_arena_push_zeroed((arena), (void **)&(target), (n), sizeof *(target)))
#define DS_PUSH_COPY(arena, target, items, n) \
    DS_TRY(ds_arena_copy((arena), (void **)&(target), (items), (n), sizeof *(target)))
/* Room for one more item behind the n that `items` has. */
#define DS_GROW(arena, items, n, capacity) \
    DS_TRY(ds_arena_grow((arena), (void **)&(items), (n), &(capacity), sizeof *(items)))
/* Ends all pushes; the memory is kept for the next ones. Cannot fail. */
void ds_arena_reset(ds_arena *arena);
/* Returns all memory to the allocator; the arena is as after ds_arena_init. */
void ds_arena_free(ds_arena *arena);
