/*
 * The safetensors container: writing, to a sink. The same input gives the same bytes.
 *
 * Arrays stand in the order given, each at a multiple of DS_ALIGNMENT in the file, with filler
 * arrays between them where that leaves a gap (safetensors.h); the header ends in spaces.
 */
#ifndef DS_CODEC_SAFETENSORS_WRITE_H
#define DS_CODEC_SAFETENSORS_WRITE_H

#include "codec/buffer.h"
#include "codec/safetensors.h"

/* An array to be written. */
typedef struct ds_tensor_source {
    const char *name; /* UTF-8; neither "__metadata__" nor with DS_SAFETENSORS_FILLER in front */
    ds_tensor_type type;
    size_t rank;
    const int64_t *shape; /* [rank], none negative */
    const void *data;     /* the bytes as they stand in the file */
} ds_tensor_source;

/* A text of the metadata, UTF-8. */
typedef struct ds_metadata_source {
    const char *key;
    const char *text;
    size_t n_bytes;
} ds_metadata_source;

/*
 * Writes a container to `sink`; "__metadata__" is missing if `n_texts` is 0. `allocator` (NULL: the
 * C library's) gives memory for the header. Errors: DS_ARGUMENT (names or keys given twice or not
 * allowed, a negative extent, text that is not UTF-8, a header above DS_SAFETENSORS_MAX_HEADER),
 * before anything is written; DS_NO_MEMORY, likewise; what the sink returns. Thread: any.
 */
ds_status ds_safetensors_write(const ds_sink *sink, const ds_allocator *allocator,
                               const ds_tensor_source *tensors, size_t n_tensors,
                               const ds_metadata_source *texts, size_t n_texts);

#endif /* DS_CODEC_SAFETENSORS_WRITE_H */
