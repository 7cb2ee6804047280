/* audio/source.c: bytes from memory and from files. */
#include "audio/source.h"

#include <errno.h>
#include <string.h>

static ds_status read_memory(void *context, void *bytes, size_t n, size_t *n_read)
{
    ds_memory_source *memory = context;
    const size_t left = memory->n - memory->at;
    *n_read = n < left ? n : left;
    if (*n_read > 0) {
        memcpy(bytes, memory->bytes + memory->at, *n_read);
        memory->at += *n_read;
    }
    return DS_OK;
}

ds_source ds_source_memory(ds_memory_source *memory, const void *bytes, size_t n)
{
    *memory = (ds_memory_source){.bytes = bytes, .n = n};
    return (ds_source){.read = read_memory, .context = memory};
}

static ds_status read_file(void *context, void *bytes, size_t n, size_t *n_read)
{
    FILE *file = context;
    errno = 0;
    *n_read = fread(bytes, 1, n, file);
    DS_CHECK(*n_read == n || !ferror(file), DS_FORMAT, "the file cannot be read (error %d)", errno);
    return DS_OK;
}

ds_source ds_source_file(FILE *file)
{
    return (ds_source){.read = read_file, .context = file};
}
