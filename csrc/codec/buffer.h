/* Bytes on their way out: a sink, which takes them one piece after the other, and a growing buffer,
 * which belongs to one thread at a time. */
#pragma once
#include "base/alloc.h"

/* Takes `n_bytes` (may be 0) at `bytes`, borrowed. A failure ends what was being written. */
typedef struct ds_sink {
    void *context; /* handed to `write` */
    ds_status (*write)(void *context, const void *bytes, size_t n_bytes);
} ds_sink;

/* `bytes` and `n_bytes` may be read and, within what was reserved, written; the rest is private. */
typedef struct ds_buffer {
    ds_allocator allocator;
    unsigned char *bytes; /* NULL while nothing was ever reserved */
    size_t n_bytes;
    size_t n_reserved;
} ds_buffer;

/* Makes an empty buffer, which holds no memory; `allocator` is copied, NULL the C library's. */
void ds_buffer_init(ds_buffer *buffer, const ds_allocator *allocator);
/* Makes room for `n_more` bytes behind those there are; moves them, growing to at least twice the
 * size. Errors: DS_NO_MEMORY, upon which the buffer is as it was. */
ds_status ds_buffer_reserve(ds_buffer *buffer, size_t n_more);
/* Appends `n_bytes`. Errors: DS_NO_MEMORY, upon which the buffer is as it was. */
ds_status ds_buffer_append(ds_buffer *buffer, const void *bytes, size_t n_bytes);
/* Returns the memory to the allocator; the buffer is as after ds_buffer_init. */
void ds_buffer_free(ds_buffer *buffer);
