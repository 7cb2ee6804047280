/* The safetensors container: reading.
 *
 * Memory grows with the header's own bytes: an entry for each array that was read, a number for
 * each that stands in a shape. */
#include "codec/safetensors.h"

#include <string.h>

#include "base/arena.h"
#include "base/utf8.h"
#include "codec/sort.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model files hold numbers low byte first, and are used as they lie in memory"
#endif

#define LENGTH_BYTES 8 /* of the header's length */

struct ds_safetensors {
    ds_arena memory; /* of all but the header, itself included */
    ds_json *header;
    ds_json_value metadata; /* its `json` is NULL if there are none */
    size_t n_tensors;
    ds_tensor_view *tensors;      /* [n_tensors] in the order of the header */
    uint32_t *by_place, *by_name; /* [n_tensors] */
};

/* ---- element types -------------------------------------------------------------------------- */
static const struct {
    const char *name;
    size_t n_bytes;
} types[DS_TENSOR_N_TYPES] = {
    [DS_TENSOR_F64] = {"F64", 8},   [DS_TENSOR_F32] = {"F32", 4}, [DS_TENSOR_F16] = {"F16", 2},
    [DS_TENSOR_BF16] = {"BF16", 2}, [DS_TENSOR_I64] = {"I64", 8}, [DS_TENSOR_I32] = {"I32", 4},
    [DS_TENSOR_I16] = {"I16", 2},   [DS_TENSOR_I8] = {"I8", 1},   [DS_TENSOR_U64] = {"U64", 8},
    [DS_TENSOR_U32] = {"U32", 4},   [DS_TENSOR_U16] = {"U16", 2}, [DS_TENSOR_U8] = {"U8", 1},
    [DS_TENSOR_BOOL] = {"BOOL", 1},
};

const char *ds_tensor_type_name(ds_tensor_type type)
{
    return (unsigned)type < DS_TENSOR_N_TYPES ? types[type].name : "?";
}

size_t ds_tensor_type_bytes(ds_tensor_type type)
{
    return (unsigned)type < DS_TENSOR_N_TYPES ? types[type].n_bytes : 0;
}

bool ds_tensor_type_find(ds_tensor_type *type, const char *name)
{
    for (unsigned i = 0; i < DS_TENSOR_N_TYPES; i++) {
        if (strcmp(types[i].name, name) == 0) {
            *type = (ds_tensor_type)i;
            return true;
        }
    }
    return false;
}

static bool is_filler_name(const char *name)
{
    return strncmp(name, DS_SAFETENSORS_FILLER, strlen(DS_SAFETENSORS_FILLER)) == 0;
}

bool ds_tensor_is_filler(const ds_tensor_view *tensor)
{
    return tensor->type == DS_TENSOR_U8 && is_filler_name(tensor->name);
}

bool ds_tensor_name_is_reserved(const char *name)
{
    return strcmp(name, DS_SAFETENSORS_METADATA) == 0 || is_filler_name(name);
}

/* ---- one array ------------------------------------------------------------------------------ */
static ds_status read_type(ds_tensor_view *tensor, ds_json_value entry)
{
    ds_json_value value;
    const char *name = NULL;
    DS_TRY(ds_json_member(&value, entry, "dtype"));
    DS_TRY(ds_json_string(&name, NULL, value));
    return ds_tensor_type_find(&tensor->type, name)
               ? DS_OK
               : ds_json_refuse_text(value,
                                     "one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL");
}

static ds_status read_shape(ds_tensor_view *tensor, ds_arena *memory, ds_json_value entry)
{
    static const int64_t none;
    ds_json_value shape, extent;
    ds_json_cursor at;
    int64_t *extents;
    size_t n_items = 1;
    DS_TRY(ds_json_member(&shape, entry, "shape"));
    DS_TRY(ds_json_enter(&at, shape, DS_JSON_ARRAY));
    DS_PUSH(memory, extents, ds_json_count(shape));
    tensor->shape = extents != NULL ? extents : &none;
    while (ds_json_next(&at, &extent)) {
        int64_t n = 0;
        DS_TRY(ds_json_integer(&n, extent, 0, INT64_MAX));
        if ((uint64_t)n > SIZE_MAX || (n_items > 0 && (size_t)n > SIZE_MAX / n_items)) {
            return ds_json_refuse(
                shape, "expected a shape whose product can be counted, got a larger one");
        }
        n_items *= (size_t)n;
        extents[tensor->rank++] = n;
    }
    if (n_items > SIZE_MAX / ds_tensor_type_bytes(tensor->type)) {
        return ds_json_refuse(shape,
                              "expected a shape whose bytes can be counted, got a larger one");
    }
    tensor->n_items = n_items;
    tensor->n_bytes = n_items * ds_tensor_type_bytes(tensor->type);
    return DS_OK;
}

static ds_status read_offsets(ds_tensor_view *tensor, const char *data, size_t n_data,
                              ds_json_value entry)
{
    int64_t ends[2];
    ds_json_value offsets, value;
    ds_json_cursor at;
    DS_TRY(ds_json_member(&offsets, entry, "data_offsets"));
    DS_TRY(ds_json_enter(&at, offsets, DS_JSON_ARRAY));
    if (ds_json_count(offsets) != 2) {
        return ds_json_refuse(offsets, "expected [begin, end], got %zu elements",
                              ds_json_count(offsets));
    }
    for (int i = 0; ds_json_next(&at, &value); i++)
        DS_TRY(ds_json_integer(&ends[i], value, 0, INT64_MAX));
    if ((uint64_t)ends[1] > n_data) {
        return ds_json_refuse(offsets,
                              "expected at most %zu, the bytes behind the header, got %lld: the "
                              "file is cut short",
                              n_data, (long long)ends[1]);
    }
    if (ends[0] > ends[1] || (size_t)(ends[1] - ends[0]) != tensor->n_bytes) {
        return ds_json_refuse(offsets,
                              "expected %zu bytes, as the shape and %s say, got from %lld to %lld",
                              tensor->n_bytes, ds_tensor_type_name(tensor->type),
                              (long long)ends[0], (long long)ends[1]);
    }
    tensor->offset = (size_t)ends[0]; /* within the data, for the time being */
    tensor->data = data + ends[0];
    return DS_OK;
}

static ds_status check_metadata(ds_json_value metadata)
{
    ds_json_cursor at;
    ds_json_value key, value;
    const char *text;
    size_t n_bytes;
    DS_TRY(ds_json_enter(&at, metadata, DS_JSON_OBJECT));
    while (ds_json_next_member(&at, &key, &value))
        DS_TRY(ds_json_string(&text, &n_bytes, value));
    return DS_OK;
}

/* Reads a member of the header: the metadata, or an array. */
static ds_status read_entry(ds_safetensors *file, ds_json_value name, ds_json_value entry,
                            const char *data, size_t n_data)
{
    ds_tensor_view tensor = {0};
    DS_TRY(ds_json_string(&tensor.name, NULL, name));
    if (strcmp(tensor.name, DS_SAFETENSORS_METADATA) == 0) {
        file->metadata = entry;
        return check_metadata(entry);
    }
    DS_TRY(ds_json_only(entry, DS_JSON_KEYS("dtype", "shape", "data_offsets")));
    DS_TRY(read_type(&tensor, entry));
    DS_TRY(read_shape(&tensor, &file->memory, entry));
    DS_TRY(read_offsets(&tensor, data, n_data, entry));
    file->tensors[file->n_tensors++] = tensor;
    return DS_OK;
}

/* ---- all of them ---------------------------------------------------------------------------- */
static int compare_places(const void *context, uint32_t a, uint32_t b)
{
    const ds_tensor_view *one = (const ds_tensor_view *)context + a;
    const ds_tensor_view *other = (const ds_tensor_view *)context + b;
    if (one->offset != other->offset)
        return one->offset < other->offset ? -1 : 1;
    return (one->n_bytes > other->n_bytes) - (one->n_bytes < other->n_bytes);
}

static int compare_names(const void *context, uint32_t a, uint32_t b)
{
    const ds_tensor_view *tensors = context;
    return strcmp(tensors[a].name, tensors[b].name);
}

/* Checks that the arrays, in the order of the data, cover it without hole and overlap. */
static ds_status check_cover(const ds_safetensors *file, size_t first_byte, size_t n_data)
{
    size_t end = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const ds_tensor_view *tensor = ds_safetensors_at(file, i);
        DS_CHECK(tensor->offset == first_byte + end, DS_FORMAT,
                 "safetensors, byte %zu: expected the next array, got \"%s\" at byte %zu: %s",
                 first_byte + end, DS_SHOWN(tensor->name), tensor->offset,
                 tensor->offset < first_byte + end ? "they overlap" : "there is a hole");
        end += tensor->n_bytes; /* it lies within the data */
    }
    DS_CHECK(end == n_data, DS_FORMAT,
             "safetensors, byte %zu: expected the end of the file behind the last array, got %zu "
             "more bytes",
             first_byte + end, n_data - end);
    return DS_OK;
}

/* Finds the arrays' orders. */
static ds_status arrange(ds_safetensors *file, size_t first_byte)
{
    ds_tensor_view *tensors = file->tensors;
    const size_t n = file->n_tensors;
    DS_PUSH(&file->memory, file->by_place, n);
    DS_PUSH(&file->memory, file->by_name, n);
    for (size_t i = 0; i < n; i++) {
        tensors[i].offset += first_byte;
        file->by_place[i] = file->by_name[i] = (uint32_t)i;
    }
    ds_sort_indices(file->by_place, n, compare_places, tensors);
    ds_sort_indices(file->by_name, n, compare_names, tensors);
    for (size_t i = 0; i < n; i++)
        tensors[file->by_place[i]].index = i;
    return DS_OK;
}

static ds_status fill(ds_safetensors *file, const char *bytes, size_t n_bytes)
{
    DS_CHECK(n_bytes > 0, DS_FORMAT, "safetensors: expected a header, got an empty file");
    DS_CHECK(n_bytes >= LENGTH_BYTES, DS_FORMAT,
             "safetensors: expected at least %d bytes, the header's length, got %zu", LENGTH_BYTES,
             n_bytes);
    uint64_t n_header = 0;
    memcpy(&n_header, bytes, LENGTH_BYTES);
    const unsigned char *first = (const unsigned char *)bytes;
    DS_CHECK(
        n_header <= DS_SAFETENSORS_MAX_HEADER, DS_FORMAT,
        "safetensors, byte 0: no model file begins with the bytes %02x %02x %02x %02x %02x %02x "
        "%02x %02x: expected the length of a header, at most %u",
        first[0], first[1], first[2], first[3], first[4], first[5], first[6], first[7],
        DS_SAFETENSORS_MAX_HEADER);
    DS_CHECK(
        n_header <= n_bytes - LENGTH_BYTES, DS_FORMAT,
        "safetensors, byte 0: expected a header within the file's %zu bytes, got a length of %llu: "
        "the file is cut short",
        n_bytes, (unsigned long long)n_header);
    const size_t first_byte = LENGTH_BYTES + (size_t)n_header;
    DS_CHECK(n_header > 0 && bytes[LENGTH_BYTES] == '{', DS_FORMAT,
             "safetensors, byte %d: expected a header that begins with '{'", LENGTH_BYTES);
    DS_TRY(ds_json_parse(&file->header, &file->memory.allocator, bytes + LENGTH_BYTES,
                         (size_t)n_header, LENGTH_BYTES));
    const ds_json_value root = ds_json_root(file->header);
    ds_json_cursor at;
    ds_json_value name, entry;
    DS_TRY(ds_json_enter(&at, root, DS_JSON_OBJECT));
    DS_PUSH(&file->memory, file->tensors, ds_json_count(root));
    while (ds_json_next_member(&at, &name, &entry))
        DS_TRY(read_entry(file, name, entry, bytes + first_byte, n_bytes - first_byte));
    DS_TRY(arrange(file, first_byte));
    return check_cover(file, first_byte, n_bytes - first_byte);
}

ds_status ds_safetensors_open(ds_safetensors **file, const ds_allocator *allocator,
                              const void *bytes, size_t n_bytes)
{
    ds_arena memory;
    ds_safetensors *made;
    ds_arena_init(&memory, allocator);
    DS_PUSH(&memory, made, 1);
    *made = (ds_safetensors){.memory = memory};
    DS_TRY_ELSE(fill(made, bytes, n_bytes), ds_safetensors_close(made));
    *file = made;
    return DS_OK;
}

void ds_safetensors_close(ds_safetensors *file)
{
    if (file == NULL)
        return;
    ds_arena memory = file->memory;
    ds_json_free(file->header);
    ds_arena_free(&memory);
}

/* ---- look-up -------------------------------------------------------------------------------- */
size_t ds_safetensors_count(const ds_safetensors *file)
{
    return file->n_tensors;
}

const ds_tensor_view *ds_safetensors_at(const ds_safetensors *file, size_t index)
{
    return &file->tensors[file->by_place[index]];
}

const ds_tensor_view *ds_safetensors_find(const ds_safetensors *file, const char *name)
{
    size_t low = 0, high = file->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ds_tensor_view *tensor = &file->tensors[file->by_name[middle]];
        const int order = strcmp(tensor->name, name);
        if (order == 0)
            return tensor;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool ds_safetensors_metadata(ds_json_value *metadata, const ds_safetensors *file)
{
    if (file->metadata.json == NULL)
        return false;
    *metadata = file->metadata;
    return true;
}

const char *ds_safetensors_text(const ds_safetensors *file, const char *key, size_t *n_bytes)
{
    ds_json_value value = {0};
    const char *text = NULL;
    const bool found = file->metadata.json != NULL && ds_json_find(&value, file->metadata, key) &&
                       ds_json_string(&text, n_bytes, value) == DS_OK;
    return found ? text : NULL;
}
