/* The safetensors container: writing. */
#include "codec/safetensors.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/json.h"
#include "codec/sort.h"

#define LENGTH_BYTES 8

/* What is being written. */
typedef struct job {
    const ds_tensor_source *tensors;
    size_t n_tensors;
    const ds_metadata_source *texts;
    size_t n_texts;
} job;

static ds_status measure(size_t *n_bytes, const ds_tensor_source *tensor)
{
    const char *shown = DS_SHOWN(tensor->name);
    DS_CHECK(!ds_tensor_name_is_reserved(tensor->name), DS_ARGUMENT,
             "safetensors: expected a name other than " DS_SAFETENSORS_METADATA
             " that does not begin with " DS_SAFETENSORS_FILLER ", got \"%s\"",
             shown);
    size_t total = ds_tensor_type_bytes(tensor->type);
    DS_CHECK(total > 0, DS_ARGUMENT,
             "safetensors: expected an element type for \"%s\", got number %d", shown,
             (int)tensor->type);
    for (size_t i = 0; i < tensor->rank; i++) {
        const int64_t extent = tensor->shape[i];
        DS_CHECK(extent >= 0, DS_ARGUMENT,
                 "safetensors: expected extents of at least 0 for \"%s\", got %lld", shown,
                 (long long)extent);
        DS_CHECK(
            total == 0 || (uint64_t)extent <= PTRDIFF_MAX / total, DS_ARGUMENT,
            "safetensors: expected a shape whose bytes can be counted for \"%s\", got a larger one",
            shown);
        total *= (size_t)extent;
    }
    *n_bytes = total;
    return DS_OK;
}

/* Arrays or texts: n structures whose first member is the name. */
typedef struct names {
    const void *first;
    size_t n, step;
} names;

static const char *name_at(const names *list, uint32_t index)
{
    return *(const char *const *)((const void *)((const char *)list->first + index * list->step));
}

static int compare_names(const void *list, uint32_t a, uint32_t b)
{
    return strcmp(name_at(list, a), name_at(list, b));
}

/* Refuses names that are equal. */
static ds_status check_differ(names list, const char *what, ds_buffer *scratch)
{
    DS_CHECK(list.n <= UINT32_MAX / 8, DS_ARGUMENT,
             "safetensors: expected at most %u names, got %zu", UINT32_MAX / 8, list.n);
    scratch->n_bytes = 0;
    DS_TRY(ds_buffer_reserve(scratch, list.n * sizeof(uint32_t)));
    uint32_t *order = (uint32_t *)(void *)scratch->bytes;
    for (size_t i = 0; i < list.n; i++)
        order[i] = (uint32_t)i;
    ds_sort_indices(order, list.n, compare_names, &list);
    for (size_t i = 1; i < list.n; i++) {
        const char *name = name_at(&list, order[i]);
        DS_CHECK(strcmp(name_at(&list, order[i - 1]), name) != 0, DS_ARGUMENT,
                 "safetensors: expected %s that differ, got \"%s\" twice", what, DS_SHOWN(name));
    }
    return DS_OK;
}

/* Bytes that fill the gap between `end` and where a tensor of `n_bytes` may begin. */
static size_t gap_before(size_t n_bytes, size_t end)
{
    return n_bytes == 0 ? 0 : (DS_ALIGNMENT - end % DS_ALIGNMENT) % DS_ALIGNMENT;
}

static void put_entry(ds_json_writer *w, const char *name, ds_tensor_type type,
                      const int64_t *shape, size_t rank, size_t begin, size_t end)
{
    const int64_t offsets[] = {(int64_t)begin, (int64_t)end};
    ds_json_put_open(w, name, DS_JSON_OBJECT);
    ds_json_put_string(w, "dtype", ds_tensor_type_name(type));
    ds_json_put_integers(w, "shape", shape, rank);
    ds_json_put_integers(w, "data_offsets", offsets, 2);
    ds_json_put_close(w);
}

static void put_metadata(ds_json_writer *w, const job *the)
{
    if (the->n_texts == 0)
        return;
    ds_json_put_open(w, DS_SAFETENSORS_METADATA, DS_JSON_OBJECT);
    for (size_t i = 0; i < the->n_texts; i++)
        ds_json_put_string_bytes(w, the->texts[i].key, the->texts[i].text, the->texts[i].n_bytes);
    ds_json_put_close(w);
}

/* Fills `header` with the length and the header, so that the data begin at a multiple of the
 * alignment. */
static ds_status make_header(ds_buffer *header, const job *the)
{
    uint64_t length = 0;
    DS_TRY(ds_buffer_append(header, &length, LENGTH_BYTES));
    ds_json_writer w;
    ds_json_writer_init(&w, header);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    put_metadata(&w, the);
    size_t end = 0, n_fillers = 0;
    for (size_t i = 0; i < the->n_tensors; i++) {
        const ds_tensor_source *tensor = &the->tensors[i];
        size_t n_bytes = 0;
        DS_TRY(measure(&n_bytes, tensor));
        const size_t gap = gap_before(n_bytes, end);
        DS_CHECK(n_bytes <= (size_t)PTRDIFF_MAX - DS_ALIGNMENT - end, DS_ARGUMENT,
                 "safetensors: expected data whose bytes can be counted, got more");
        if (gap > 0) {
            char name[48];
            const int64_t extent = (int64_t)gap;
            (void)snprintf(name, sizeof name, DS_SAFETENSORS_FILLER "%zu", n_fillers++);
            put_entry(&w, name, DS_TENSOR_U8, &extent, 1, end, end + gap);
            end += gap;
        }
        put_entry(&w, tensor->name, tensor->type, tensor->shape, tensor->rank, end, end + n_bytes);
        end += n_bytes;
    }
    ds_json_put_close(&w);
    DS_TRY(ds_json_writer_finish(&w));
    while (header->n_bytes % DS_ALIGNMENT != 0)
        DS_TRY(ds_buffer_append(header, " ", 1));
    length = header->n_bytes - LENGTH_BYTES;
    DS_CHECK(length <= DS_SAFETENSORS_MAX_HEADER, DS_ARGUMENT,
             "safetensors: expected a header of at most %u bytes, got %zu",
             DS_SAFETENSORS_MAX_HEADER, (size_t)length);
    memcpy(header->bytes, &length, LENGTH_BYTES);
    return DS_OK;
}

static ds_status write_data(const ds_sink *sink, const job *the)
{
    static const unsigned char zeros[DS_ALIGNMENT];
    size_t end = 0, n_bytes = 0;
    for (size_t i = 0; i < the->n_tensors; i++) {
        DS_TRY(measure(&n_bytes, &the->tensors[i]));
        const size_t gap = gap_before(n_bytes, end);
        if (gap > 0)
            DS_TRY(sink->write(sink->context, zeros, gap));
        const ds_tensor_source *const t = &the->tensors[i];
        const void *data = t->data;
        if (n_bytes > 0 && t->make != NULL)
            DS_TRY(t->make(t->context, &data));
        if (n_bytes > 0)
            DS_TRY(sink->write(sink->context, data, n_bytes));
        end += gap + n_bytes;
    }
    return DS_OK;
}

ds_status ds_safetensors_write(const ds_sink *sink, const ds_allocator *allocator,
                               const ds_tensor_source *tensors, size_t n_tensors,
                               const ds_metadata_source *texts, size_t n_texts)
{
    const job the = {tensors, n_tensors, texts, n_texts};
    DS_SCOPED(ds_buffer_free) ds_buffer header;
    ds_buffer_init(&header, allocator);
    DS_TRY(check_differ((names){tensors, n_tensors, sizeof *tensors}, "names", &header));
    DS_TRY(check_differ((names){texts, n_texts, sizeof *texts}, "keys", &header));
    header.n_bytes = 0; /* it was scratch so far */
    DS_TRY(make_header(&header, &the));
    DS_TRY(sink->write(sink->context, header.bytes, header.n_bytes));
    return write_data(sink, &the);
}
