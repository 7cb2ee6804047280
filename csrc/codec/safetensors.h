/* The safetensors container: named arrays and a map of texts in one file.
 *
 *     bytes 0 .. 8        n, the length of the header, an unsigned 64-bit integer, low byte first
 *     bytes 8 .. 8 + n    the header, a JSON object:
 *                           "__metadata__": {key: text, ...}                        (may be missing)
 *                           name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}
 *     from 8 + n on       the data; offsets count from here
 *
 * The arrays' bytes, row after row, low byte first, cover the data without hole or overlap.
 *
 * The reader looks at all of that before it gives anything out, and refuses what doesn't hold. It
 * reads the header only and keeps the bytes: views point into them, at any address where others
 * wrote the file. The data's values are not looked at. An open container is immutable and may be
 * read by several threads at a time.
 *
 * The writer puts arrays in the order given, each at a multiple of DS_ALIGNMENT in the file, so that
 * it can be used where it is mapped. What lies between two arrays is an array too, of U8, whose name
 * begins with DS_SAFETENSORS_FILLER. The same input gives the same bytes. */
#pragma once
#include <stdbool.h>

#include "codec/json.h"

#define DS_SAFETENSORS_MAX_HEADER 100000000u /* bytes */
#define DS_SAFETENSORS_FILLER ".pad."
#define DS_SAFETENSORS_METADATA "__metadata__"

/* Element types of the container. */
typedef enum ds_tensor_type {
    DS_TENSOR_F64,
    DS_TENSOR_F32,
    DS_TENSOR_F16,
    DS_TENSOR_BF16,
    DS_TENSOR_I64,
    DS_TENSOR_I32,
    DS_TENSOR_I16,
    DS_TENSOR_I8,
    DS_TENSOR_U64,
    DS_TENSOR_U32,
    DS_TENSOR_U16,
    DS_TENSOR_U8,
    DS_TENSOR_BOOL, /* one byte */
    DS_TENSOR_N_TYPES
} ds_tensor_type;

/* The name in the header ("F32"), "?" for none; the bytes of one element, 0 for none. */
const char *ds_tensor_type_name(ds_tensor_type type);
size_t ds_tensor_type_bytes(ds_tensor_type type);
/* Fills `*type` with the type of that name; returns false if there is none. */
bool ds_tensor_type_find(ds_tensor_type *type, const char *name);
/* One array; what it points to is valid until the container is closed. */
typedef struct ds_tensor_view {
    const char *name; /* UTF-8, ended by a zero */
    ds_tensor_type type;
    size_t rank;
    const int64_t *shape; /* [rank], none negative */
    size_t n_items;       /* the product */
    const void *data;     /* at any address; never NULL */
    size_t n_bytes;
    size_t offset; /* where the data begins in the file */
    size_t index;  /* it is ds_safetensors_at(file, index) */
} ds_tensor_view;

typedef struct ds_safetensors ds_safetensors;
/* Fills `*file` (returns owned) with what the `n_bytes` at `bytes` (kept) hold. `allocator` is
 * copied, NULL is the C library's. Errors: DS_FORMAT, naming the byte; DS_NO_MEMORY. Thread: any. */
ds_status ds_safetensors_open(ds_safetensors **file, const ds_allocator *allocator,
                              const void *bytes, size_t n_bytes);
/* Releases it; the bytes stay with the caller. NULL is allowed. */
void ds_safetensors_close(ds_safetensors *file);
/* How many arrays there are, fillers included, and view of one, in the order of the data. */
size_t ds_safetensors_count(const ds_safetensors *file);
const ds_tensor_view *ds_safetensors_at(const ds_safetensors *file, size_t index);
/* Returns view of the array of that name, NULL if there is none. Takes logarithmic time. */
const ds_tensor_view *ds_safetensors_find(const ds_safetensors *file, const char *name);
/* Whether an array is there only to fill a gap: by its name and type. */
bool ds_tensor_is_filler(const ds_tensor_view *tensor);
/* Whether no array of a writer's may have that name: the metadata's, or that of one that fills a gap. */
bool ds_tensor_name_is_reserved(const char *name);
/* Fills `*metadata` with the object of texts (valid until the container is closed) and returns
 * true, or returns false if the file has none. */
bool ds_safetensors_metadata(ds_json_value *metadata, const ds_safetensors *file);
/* Returns the text that the metadata hold under `key` (view, valid until the container is closed;
 * UTF-8 with a zero behind it) and fills `*n_bytes` with its bytes, among which there may be zeros;
 * returns NULL if there is none. */
const char *ds_safetensors_text(const ds_safetensors *file, const char *key, size_t *n_bytes);

/* ---- writing -------------------------------------------------------------------------------- */
/* An array to be written. */
typedef struct ds_tensor_source {
    const char *name; /* UTF-8, not reserved */
    ds_tensor_type type;
    size_t rank;
    const int64_t *shape; /* [rank], none negative */
    const void *data;     /* the bytes as they stand in the file */
    /* Unless it is NULL, gives these bytes when it is their turn, valid until it is called again. */
    ds_status (*make)(void *context, const void **data);
    void *context;
} ds_tensor_source;

/* A text of the metadata, UTF-8. */
typedef struct ds_metadata_source {
    const char *key;
    const char *text;
    size_t n_bytes;
} ds_metadata_source;

/* Writes a container to `sink`; "__metadata__" is missing if `n_texts` is 0. `allocator` (NULL: the
 * C library's) gives memory for the header. Errors: DS_ARGUMENT (names or keys given twice or not
 * allowed, a negative extent, text that is not UTF-8, a header above DS_SAFETENSORS_MAX_HEADER),
 * before anything is written; DS_NO_MEMORY, likewise; what the sink and `make` return. Thread: any. */
ds_status ds_safetensors_write(const ds_sink *sink, const ds_allocator *allocator,
                               const ds_tensor_source *tensors, size_t n_tensors,
                               const ds_metadata_source *texts, size_t n_texts);
