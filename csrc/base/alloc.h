/* Memory, by way of a ds_allocator.
 *
 * An object that allocates takes ds_allocator_current() when it is made, stores it, and passes it to every
 * later call, so that ds_set_allocator() concerns new objects only; what it is itself goes through a copy.
 *
 * All memory is aligned to DS_ALIGNMENT. Zero bytes are allowed: they give NULL and DS_OK. Sizes
 * are checked for overflow. On failure (DS_NO_MEMORY) `*pointer` is left as it was. An `allocator`
 * of NULL means the C library's. All functions may be called from any thread.
 *
 * `pointer` is written as bytes, so `(void **)&floats` is well defined for any pointer to objects. */
#pragma once
#include "base/status.h"

/* A cache line, a vector register of AVX-512, a row of a tile. */
#define DS_ALIGNMENT 64

/* Sizes that stay SIZE_MAX where they would not fit: more than any allocation gives. */
static inline size_t ds_saturated_sum(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* Rounded up to whole lines. */
static inline size_t ds_aligned(size_t n_bytes)
{
    return ds_saturated_sum(n_bytes, DS_ALIGNMENT - 1) / DS_ALIGNMENT * DS_ALIGNMENT;
}

static inline size_t ds_saturated_product(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static inline size_t ds_greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns a copy of the process-wide allocator (ds_set_allocator). */
ds_allocator ds_allocator_current(void);
/* Returns view, valid for ever: the C library's allocator, whatever has been set. */
const ds_allocator *ds_default_allocator(void);

/* Fills `*pointer` with `n_bytes` of memory, not initialised. */
ds_status ds_allocate(const ds_allocator *allocator, void **pointer, size_t n_bytes);
/* The same, all bytes zero. */
ds_status ds_allocate_zeroed(const ds_allocator *allocator, void **pointer, size_t n_bytes);
/* Fills `*n_bytes` with the size of `count` items of `item_bytes` each. Errors: DS_NO_MEMORY where
 * there is no such number. */
static inline ds_status ds_array_bytes(size_t *n_bytes, size_t count, size_t item_bytes)
{
    DS_CHECK(!__builtin_mul_overflow(count, item_bytes, n_bytes), DS_NO_MEMORY,
             "out of memory: %zu items of %zu bytes were asked for", count, item_bytes);
    return DS_OK;
}
/* Makes room for n items at least, and for twice as many as before where there is too little; the first `kept` stay.
 * Errors: DS_NO_MEMORY; the items are as they were. DS_RESERVE: of an array `items` of a struct that has room_items. */
ds_status ds_array_reserve(const ds_allocator *allocator, void **items, size_t *room, size_t kept,
                           size_t n, size_t item_bytes);
#define DS_RESERVE(allocator, of, items, kept, n)                                          \
    ds_array_reserve((allocator), (void **)&(of)->items, &(of)->room_##items, (kept), (n), \
                     sizeof *(of)->items)
/* Takes `pointer` back: it came from the same allocator, with the same `n_bytes` (for arrays: their
 * product). NULL is allowed. */
void ds_release(const ds_allocator *allocator, void *pointer, size_t n_bytes);
