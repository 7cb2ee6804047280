/* A growing buffer of bytes. */
#include "codec/buffer.h"

#include <string.h>

#define SMALLEST 256

void ds_buffer_init(ds_buffer *buffer, const ds_allocator *allocator)
{
    *buffer = (ds_buffer){.allocator = allocator != NULL ? *allocator : *ds_default_allocator()};
}

ds_status ds_buffer_reserve(ds_buffer *buffer, size_t n_more)
{
    if (n_more <= buffer->n_reserved - buffer->n_bytes)
        return DS_OK;
    DS_CHECK(n_more <= PTRDIFF_MAX - buffer->n_bytes, DS_NO_MEMORY,
             "out of memory: %zu bytes were asked for behind %zu", n_more, buffer->n_bytes);
    size_t n_wanted = buffer->n_bytes + n_more;
    if (n_wanted < SMALLEST)
        n_wanted = SMALLEST;
    if (n_wanted / 2 < buffer->n_reserved && buffer->n_reserved <= PTRDIFF_MAX / 2)
        n_wanted = 2 * buffer->n_reserved;
    void *memory = NULL;
    DS_TRY(ds_allocate(&buffer->allocator, &memory, n_wanted));
    if (buffer->n_bytes > 0)
        memcpy(memory, buffer->bytes, buffer->n_bytes);
    ds_release(&buffer->allocator, buffer->bytes, buffer->n_reserved);
    buffer->bytes = memory;
    buffer->n_reserved = n_wanted;
    return DS_OK;
}

ds_status ds_buffer_append(ds_buffer *buffer, const void *bytes, size_t n_bytes)
{
    DS_TRY(ds_buffer_reserve(buffer, n_bytes));
    if (n_bytes > 0) {
        memcpy(buffer->bytes + buffer->n_bytes, bytes, n_bytes);
        buffer->n_bytes += n_bytes;
    }
    return DS_OK;
}

void ds_buffer_free(ds_buffer *buffer)
{
    ds_release(&buffer->allocator, buffer->bytes, buffer->n_reserved);
    buffer->bytes = NULL;
    buffer->n_bytes = 0;
    buffer->n_reserved = 0;
}
