/* audio/source.h: where a reader of recordings gets its bytes from, front to back, never all at
 * once.
 *
 * Sources that are made here borrow what they read from: it outlives them. */
#ifndef DS_AUDIO_SOURCE_H
#define DS_AUDIO_SOURCE_H
#include <stdio.h>

#include "base/status.h"

typedef struct ds_source {
    /* Fills the next n bytes; *n_read < n at the end only. On failure *n_read is not used. */
    ds_status (*read)(void *context, void *bytes, size_t n, size_t *n_read);
    void *context;
} ds_source;

/* Bytes that lie in memory; private to source.c but for its size. */
typedef struct ds_memory_source {
    const unsigned char *bytes;
    size_t n, at;
} ds_memory_source;

/* Thread: one at a time per source. */
ds_source ds_source_memory(ds_memory_source *memory, const void *bytes, size_t n);
/* From the file's position on; DS_FORMAT where the system can't read it (errno says why). */
ds_source ds_source_file(FILE *file);

#endif
