/* The process-wide allocator, and allocation through any.
 *
 * A cell of zeros stands for the C library's allocator, so that no initialisation is needed.
 *
 * The system is asked for pages of 2 MiB under large blocks: reading weights takes fewer look-ups of pages
 * then, and processors fetch ahead within a page only. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#include "base/cell.h"
#include "base/system.h"

#define LARGE_PAGE ((size_t)2 << 20)

static void *allocate_large(size_t n_bytes)
{
    const size_t whole = n_bytes / LARGE_PAGE * LARGE_PAGE; /* the rest would take one for itself */
    void *const memory = aligned_alloc(LARGE_PAGE, whole + (n_bytes > whole ? LARGE_PAGE : 0));
    if (memory != NULL)
        ds_system_large_pages(memory, whole);
    return memory;
}

static void *system_allocate(void *context, size_t n_bytes, size_t alignment)
{
    (void)context;
    if (n_bytes > PTRDIFF_MAX - alignment)
        return NULL;
    if (n_bytes >= LARGE_PAGE)
        return allocate_large(n_bytes);
    /* C11 wants a multiple of the alignment */
    return aligned_alloc(alignment, (n_bytes + alignment - 1) / alignment * alignment);
}

static void system_release(void *context, void *pointer, size_t n_bytes)
{
    (void)context;
    (void)n_bytes;
    free(pointer);
}

static const ds_allocator system_allocator = {NULL, system_allocate, system_release};
static ds_cell current_allocator;

const ds_allocator *ds_default_allocator(void)
{
    return &system_allocator;
}

ds_allocator ds_allocator_current(void)
{
    uintptr_t words[DS_CELL_WORDS];
    ds_cell_read(&current_allocator, words);
    if (words[1] == 0)
        return system_allocator;
    return (ds_allocator){(void *)words[0], (void *(*)(void *, size_t, size_t))words[1],
                          (void (*)(void *, void *, size_t))words[2]};
}

ds_status ds_set_allocator(const ds_allocator *allocator)
{
    uintptr_t words[DS_CELL_WORDS] = {0, 0, 0};
    if (allocator != NULL) {
        DS_CHECK(allocator->allocate != NULL && allocator->release != NULL, DS_ARGUMENT,
                 "ds_set_allocator: the allocator needs both functions, allocate and release");
        words[0] = (uintptr_t)allocator->context;
        words[1] = (uintptr_t)allocator->allocate;
        words[2] = (uintptr_t)allocator->release;
    }
    ds_cell_write(&current_allocator, words);
    return DS_OK;
}

ds_status ds_allocate(const ds_allocator *allocator, void **pointer, size_t n_bytes)
{
    const ds_allocator *from = allocator != NULL ? allocator : &system_allocator;
    void *memory = NULL;
    if (n_bytes > 0) {
        /* no object is larger than a difference of pointers can tell */
        if (n_bytes <= PTRDIFF_MAX)
            memory = from->allocate(from->context, n_bytes, DS_ALIGNMENT);
        DS_CHECK(memory != NULL, DS_NO_MEMORY, "out of memory: %zu bytes were asked for", n_bytes);
        if ((uintptr_t)memory % DS_ALIGNMENT != 0) {
            from->release(from->context, memory, n_bytes);
            return ds_fail(DS_ARGUMENT, "the allocator gave memory that is not aligned to %d bytes",
                           DS_ALIGNMENT);
        }
    }
    memcpy(pointer, &memory, sizeof memory); /* as bytes: it may be a pointer of another type */
    return DS_OK;
}

ds_status ds_allocate_zeroed(const ds_allocator *allocator, void **pointer, size_t n_bytes)
{
    DS_TRY(ds_allocate(allocator, pointer, n_bytes));
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    if (n_bytes > 0)
        memset(memory, 0, n_bytes);
    return DS_OK;
}

void ds_release(const ds_allocator *allocator, void *pointer, size_t n_bytes)
{
    const ds_allocator *to = allocator != NULL ? allocator : &system_allocator;
    if (pointer != NULL)
        to->release(to->context, pointer, n_bytes);
}

ds_status ds_array_reserve(const ds_allocator *allocator, void **items, size_t *room, size_t kept,
                           size_t n, size_t item_bytes)
{
    if (n <= *room)
        return DS_OK;
    const size_t twice = *room ? 2 * *room : 16, more = twice > n ? twice : n;
    size_t n_bytes;
    void *larger = NULL;
    DS_TRY(ds_array_bytes(&n_bytes, more, item_bytes));
    DS_TRY(ds_allocate(allocator, &larger, n_bytes));
    if (kept)
        memcpy(larger, *items, kept * item_bytes);
    ds_release(allocator, *items, *room * item_bytes);
    *items = larger;
    *room = more;
    return DS_OK;
}
