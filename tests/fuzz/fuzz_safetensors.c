/*
 * The safetensors container: what is read lies within the file and covers it; what is read can be
 * written, and what is written is read as the same.
 */
#include "buffer_sink.h"
#include "container_copy.h"
#include "fuzz.h"

/* Looks at everything; returns how many bytes the arrays have. */
static size_t look(const ds_safetensors *file, const uint8_t *data, size_t n_bytes)
{
    size_t total = 0;
    unsigned sum = 0;
    for (size_t i = 0; i < ds_safetensors_count(file); i++) {
        const ds_tensor_view *view = ds_safetensors_at(file, i);
        FUZZ_CHECK(ds_safetensors_find(file, view->name) == view);
        FUZZ_CHECK(view->offset <= n_bytes && view->n_bytes <= n_bytes - view->offset);
        FUZZ_CHECK(view->data == data + view->offset);
        size_t n_items = 1;
        for (size_t d = 0; d < view->rank; d++) {
            FUZZ_CHECK(view->shape[d] >= 0);
            n_items *= (size_t)view->shape[d];
        }
        FUZZ_CHECK(n_items == view->n_items);
        FUZZ_CHECK(n_items * ds_tensor_type_bytes(view->type) == view->n_bytes);
        for (size_t k = 0; k < view->n_bytes; k++)
            sum += ((const uint8_t *)view->data)[k];
        total += view->n_bytes;
    }
    FUZZ_CHECK(sum <= 255 * total);
    return total;
}

static void check_same(const ds_safetensors *file, const ds_safetensors *copy)
{
    for (size_t i = 0; i < ds_safetensors_count(file); i++) {
        const ds_tensor_view *one = ds_safetensors_at(file, i);
        if (ds_tensor_is_filler(one))
            continue;
        const ds_tensor_view *other = ds_safetensors_find(copy, one->name);
        FUZZ_CHECK(other != NULL && other->type == one->type && other->rank == one->rank);
        FUZZ_CHECK(memcmp(other->shape, one->shape, one->rank * sizeof one->shape[0]) == 0);
        FUZZ_CHECK(memcmp(other->data, one->data, one->n_bytes) == 0);
        FUZZ_CHECK(other->n_bytes == 0 || other->offset % DS_ALIGNMENT == 0);
    }
}

static void run(const uint8_t *data, size_t n_bytes)
{
    ds_safetensors *file = NULL, *copy = NULL;
    const ds_status status = ds_safetensors_open(&file, NULL, data, n_bytes);
    if (status != DS_OK) {
        fuzz_check_refusal(status);
        return;
    }
    uint64_t n_header = 0;
    memcpy(&n_header, data, 8);
    FUZZ_CHECK(8 + n_header + look(file, data, n_bytes) == n_bytes);
    ds_buffer first, second;
    ds_buffer_init(&first, NULL);
    ds_buffer_init(&second, NULL);
    const ds_sink to_first = buffer_sink(&first), to_second = buffer_sink(&second);
    const ds_status written = copy_container(&to_first, file);
    if (written == DS_OK) {
        FUZZ_CHECK(ds_safetensors_open(&copy, NULL, first.bytes, first.n_bytes) == DS_OK);
        check_same(file, copy);
        FUZZ_CHECK(copy_container(&to_second, copy) == DS_OK);
        FUZZ_CHECK(first.n_bytes == second.n_bytes);
        FUZZ_CHECK(memcmp(first.bytes, second.bytes, first.n_bytes) == 0);
        ds_safetensors_close(copy);
    } else { /* a name that looks like a filler's, a key with a zero in it */
        FUZZ_CHECK(written == DS_ARGUMENT || written == DS_FORMAT);
    }
    ds_buffer_free(&first);
    ds_buffer_free(&second);
    ds_safetensors_close(file);
}

/* Once as it is; once as [how many bytes of data][header], so that its length is right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes);
    if (n_bytes > 0) {
        const uint64_t n_header = n_bytes - 1;
        const size_t n_data = data[0];
        uint8_t *whole = malloc(8 + n_bytes - 1 + n_data);
        FUZZ_CHECK(whole != NULL);
        memcpy(whole, &n_header, 8);
        memcpy(whole + 8, data + 1, n_bytes - 1);
        memset(whole + 8 + n_bytes - 1, 7, n_data);
        run(whole, 8 + n_bytes - 1 + n_data);
        free(whole);
    }
    return 0;
}
