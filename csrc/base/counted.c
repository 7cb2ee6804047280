/* Every block is asked for from the inner allocator as it is: counting adds no header. */
#include "base/counted.h"

static void *allocate(void *context, size_t n_bytes, size_t alignment)
{
    ds_counted *c = context;
    void *pointer = c->inner.allocate(c->inner.context, n_bytes, alignment);
    if (pointer == NULL)
        return NULL;
    const size_t now = atomic_fetch_add(&c->bytes, n_bytes) + n_bytes;
    size_t peak = atomic_load(&c->peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&c->peak_bytes, &peak, now)) {
    }
    atomic_fetch_add(&c->blocks, 1);
    atomic_fetch_add(&c->n_allocations, 1);
    return pointer;
}

static void release(void *context, void *pointer, size_t n_bytes)
{
    ds_counted *c = context;
    atomic_fetch_sub(&c->bytes, n_bytes);
    atomic_fetch_sub(&c->blocks, 1);
    c->inner.release(c->inner.context, pointer, n_bytes);
}

void ds_counted_init(ds_counted *counted, const ds_allocator *inner)
{
    *counted = (ds_counted){.inner = *inner};
}

ds_allocator ds_counted_hooks(ds_counted *counted)
{
    return (ds_allocator){counted, allocate, release};
}
