/* An allocator that counts what goes through it to another one, from several threads at once. */
#pragma once
#include <stdatomic.h>

#include "base/alloc.h"

/* What is counted may be read at any time. */
typedef struct ds_counted {
    ds_allocator inner;
    atomic_size_t bytes, peak_bytes, blocks; /* given out now, and the most there ever were */
    _Atomic(uint64_t) n_allocations;         /* that succeeded, ever */
} ds_counted;

/* `inner` is copied; all counts are zero. */
void ds_counted_init(ds_counted *counted, const ds_allocator *inner);
/* Returns hooks that go through `counted` (kept). */
ds_allocator ds_counted_hooks(ds_counted *counted);
