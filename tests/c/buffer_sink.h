/*
 * A sink that appends to a buffer.
 */
#pragma once

#include "codec/buffer.h"

static inline ds_status append_to_buffer(void *buffer, const void *bytes, size_t n_bytes)
{
    return ds_buffer_append(buffer, bytes, n_bytes);
}

/* Keeps the buffer. */
static inline ds_sink buffer_sink(ds_buffer *buffer)
{
    return (ds_sink){buffer, append_to_buffer};
}
