/* codec/safetensors: what is accepted, refused, read, written; failures of memory. */
#include "buffer_sink.h"
#include "codec/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "main.h"

/* ---- files ---------------------------------------------------------------------------------- */

/* The file of a header and `n_data` bytes of data, in memory of its own size. */
static unsigned char *make_file(size_t *n_bytes, const char *header, size_t n_data)
{
    const uint64_t length = strlen(header);
    *n_bytes = 8 + (size_t)length + n_data;
    unsigned char *bytes = malloc(*n_bytes);
    CHECK(bytes != NULL);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, (size_t)length);
    for (size_t i = 0; i < n_data; i++)
        bytes[8 + length + i] = (unsigned char)i;
    return bytes;
}

static ds_status open_header(ds_safetensors **file, const char *header, size_t n_data)
{
    static unsigned char *bytes; /* kept for the file: one at a time */
    free(bytes);
    size_t n_bytes = 0;
    bytes = make_file(&n_bytes, header, n_data);
    const ds_status status = ds_safetensors_open(file, NULL, bytes, n_bytes);
    if (status != DS_OK) {
        free(bytes);
        bytes = NULL;
    }
    return status;
}

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static const struct {
    const char *header;
    size_t n_data;
} accepted[] = {
    {"{}", 0},
    {"{}      ", 0},
    {"{ \"__metadata__\" : { } }", 0},
    {"{\"__metadata__\":{\"a\":\"b\",\"\":\"\\u0000\"}}", 0},
    {"{" ENTRY("a", "F32", "[2,3]", 0, 24) "}", 24},
    {"{" ENTRY("a", "F64", "[]", 0, 8) "}", 8},
    {"{" ENTRY("a", "BOOL", "[0,9223372036854775807]", 0, 0) "}", 0},
    {"{" ENTRY("b", "I8", "[3]", 4, 7) "," ENTRY("a", "BF16", "[2]", 0, 4) "}", 7},
    {"{" ENTRY("b", "U8", "[3]", 0, 3) "," ENTRY("a", "U8", "[0]", 0, 0) "," ENTRY("c", "U8", "[0]",
                                                                                   3, 3) "}",
     3},
    {"{\"a\":{\"data_offsets\":[0,2],\"shape\":[1],\"dtype\":\"F16\"}}", 2},
    {"{" ENTRY("", "U16", "[1]", 0, 2) "," ENTRY("__metadata", "U32", "[1]", 2, 6) "}", 6},
};

TEST(accepted)
{
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        ds_safetensors *file = NULL;
        CHECK(open_header(&file, accepted[i].header, accepted[i].n_data) == DS_OK);
        ds_safetensors_close(file);
    }
    ds_safetensors_close(NULL);
}

static const struct {
    const char *header;
    size_t n_data;
    const char *message;
} refused[] = {
    {"", 0, "byte 8: expected a header that begins with '{'"},
    {"[]", 0, "begins with '{'"},
    {" {}", 0, "begins with '{'"},
    {"{} x", 0, "byte 11: expected nothing behind"},
    {"{", 0, "byte 9: expected '}' or a key"},
    {"{}", 1, "byte 10: expected the end of the file behind the last array, got 1 more bytes"},
    {"{\"a\":1}", 0, "$.a: expected an object, got 1 (byte 13)"},
    {"{\"a\":{}}", 0, "$.a: expected the key \"dtype\""},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "$.a: expected the key \"shape\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "$.a: expected the key \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":0}}", 4,
     "$.a.x: expected no key but known ones"},
    {"{" ENTRY("a", "F31", "[]", 0, 4) "}", 4, "$.a.dtype: expected one of F64 F32"},
    {"{" ENTRY("a", "f32", "[]", 0, 4) "}", 4, "BOOL, got \"f32\""},
    {"{" ENTRY("a", "F32\\u0000", "[]", 0, 4) "}", 4,
     "$.a.dtype: expected a string without zero bytes"},
    {"{\"a\":{\"dtype\":5,\"shape\":[],\"data_offsets\":[0,4]}}", 4,
     "$.a.dtype: expected a string, got 5"},
    {"{" ENTRY("a", "F32", "1", 0, 4) "}", 4, "$.a.shape: expected an array, got 1"},
    {"{" ENTRY("a", "F32", "[-1]", 0, 4) "}", 4, "$.a.shape[0]: expected an integer from 0"},
    {"{" ENTRY("a", "F32", "[1.0]", 0, 4) "}", 4, "$.a.shape[0]: expected an integer from 0"},
    {"{" ENTRY("a", "F32", "[1e0]", 0, 4) "}", 4, "expected an integer from 0"},
    {"{" ENTRY("a", "F32", "[9223372036854775808]", 0, 4) "}", 4, "expected an integer from 0"},
    {"{" ENTRY("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0,
     "$.a.shape: expected a shape whose product"},
    {"{" ENTRY("a", "U8", "[4294967296,4294967296,0]", 0, 0) "}", 0, "whose product"},
    {"{" ENTRY("a", "F32", "[4611686018427387904]", 0, 0) "}", 0,
     "$.a.shape: expected a shape whose bytes"},
    {"{" ENTRY("a", "F32", "[4611686018427387905]", 0, 4) "}", 4, "whose bytes"},
    {"{" ENTRY("a", "F32", "[1]", 0, 3) "}", 3,
     "$.a.data_offsets: expected 4 bytes, as the shape and F32 say"},
    {"{" ENTRY("a", "F32", "[1]", 0, 5) "}", 5, "expected 4 bytes"},
    {"{" ENTRY("a", "F32", "[1]", 4, 0) "}", 4,
     "expected 4 bytes, as the shape and F32 say, got from 4 to 0"},
    {"{" ENTRY("a", "F32", "[1]", -1, 3) "}", 4,
     "$.a.data_offsets[0]: expected an integer from 0 to 9223372036854775807, got -1"},
    {"{" ENTRY("a", "F32", "[1]", 4, 8) "}", 4,
     "$.a.data_offsets: expected at most 4, the bytes behind the header, got 8: the file is cut "
     "short"},
    {"{" ENTRY("a", "F32", "[1]", 0, 18446744073709551615) "}", 4,
     "expected an integer from 0 to 9223372036854775807"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
     "expected [begin, end], got 1"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "got 3 elements"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}", 4, "expected an array"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 2, 6) "}", 6, "they overlap"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 0, 4) "}", 4, "they overlap"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[0]", 2, 2) "}", 4, "they overlap"},
    {"{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("b", "U8", "[2]", 3, 5) "}", 5, "there is a hole"},
    {"{" ENTRY("a", "U8", "[2]", 1, 3) "}", 3, "there is a hole"},
    {"{" ENTRY("a", "U8", "[2]", 0, 2) "}", 3, "got 1 more bytes"},
    {"{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("a", "U8", "[2]", 2, 4) "}", 4, "got \"a\" again"},
    {"{" ENTRY("a\\u0000", "U8", "[2]", 0, 2) "}", 2, "expected a string without zero bytes"},
    {"{\"__metadata__\":[]}", 0, "$.__metadata__: expected an object, got an array"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "$.__metadata__.a: expected a string, got 1"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "$.__metadata__.a: expected a string, got null"},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, "got \"a\" again"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "got \"__metadata__\" again"},
};

TEST(refused)
{
    int something;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        ds_safetensors *file = (ds_safetensors *)&something;
        const ds_status status = open_header(&file, refused[i].header, refused[i].n_data);
        if (status != DS_FORMAT || strstr(ds_last_error(), refused[i].message) == NULL) {
            fprintf(stderr, "%s\n  gave %s\n  not %s\n", refused[i].header, ds_last_error(),
                    refused[i].message);
        }
        CHECK(status == DS_FORMAT && file == (ds_safetensors *)&something);
        CHECK(strstr(ds_last_error(), refused[i].message) != NULL);
    }
}

/* What the first eight bytes claim is believed within the file only, and costs no memory. */
TEST(lengths)
{
    count_memory();
    static const uint64_t lengths[] = {
        3, 100, 99999999, 100000001, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    unsigned char bytes[10] = "........{}";
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memcpy(bytes, &lengths[i], 8);
        ds_safetensors *file = NULL;
        CHECK(ds_safetensors_open(&file, &hooks, bytes, sizeof bytes) == DS_FORMAT);
        const char *said =
            lengths[i] < 100000000 ? "expected a header" : "no model file begins with";
        CHECK(strncmp(ds_last_error(), "safetensors, byte 0: ", 21) == 0);
        CHECK(strstr(ds_last_error(), said) != NULL);
    }
    for (size_t n = 0; n < 8; n++) {
        ds_safetensors *file = NULL;
        CHECK(ds_safetensors_open(&file, &hooks, bytes, n) == DS_FORMAT);
        const char *said = n == 0 ? "an empty file" : "expected at least 8 bytes";
        CHECK(strstr(ds_last_error(), said) != NULL);
    }
    CHECK(ds_fault_peak_bytes(&fault) < 5000 && ds_fault_live_blocks(&fault) == 0);
}

/* ---- reading -------------------------------------------------------------------------------- */

TEST(reading)
{
    ds_safetensors *file = NULL;
    CHECK(
        open_header(
            &file,
            "{" ENTRY("w", "I16", "[2,2]", 4, 12) "," ENTRY(
                "v", "F32", "[]", 0,
                4) ",\"__metadata__\":{\"k\":\"x\",\"l\":\"\\u0000y\"}," ENTRY("empty", "F64",
                                                                               "[3,0]", 12, 12) "}",
            12) == DS_OK);
    CHECK(ds_safetensors_count(file) == 3);
    static const char *const names[] = {"v", "w", "empty"};
    for (size_t i = 0; i < 3; i++) {
        const ds_tensor_view *view = ds_safetensors_at(file, i);
        CHECK(strcmp(view->name, names[i]) == 0 && ds_safetensors_find(file, names[i]) == view);
        CHECK(!ds_tensor_is_filler(view) && view->shape != NULL && view->data != NULL);
    }
    const ds_tensor_view *w = ds_safetensors_find(file, "w");
    CHECK(w->type == DS_TENSOR_I16 && w->rank == 2 && w->shape[0] == 2 && w->shape[1] == 2);
    CHECK(w->n_items == 4 && w->n_bytes == 8 && ((const unsigned char *)w->data)[7] == 11);
    const ds_tensor_view *v = ds_safetensors_find(file, "v");
    CHECK(v->rank == 0 && v->n_items == 1 && v->offset + 4 == w->offset);
    const ds_tensor_view *empty = ds_safetensors_find(file, "empty");
    CHECK(empty->rank == 2 && empty->shape[0] == 3 && empty->shape[1] == 0 && empty->n_bytes == 0);
    CHECK(ds_safetensors_find(file, "") == NULL && ds_safetensors_find(file, "x") == NULL);
    CHECK(ds_safetensors_find(file, "__metadata__") == NULL);
    size_t n = 9;
    CHECK(strcmp(ds_safetensors_text(file, "k", &n), "x") == 0 && n == 1);
    CHECK(memcmp(ds_safetensors_text(file, "l", &n), "\0y", 3) == 0 && n == 2);
    CHECK(ds_safetensors_text(file, "m", &n) == NULL && n == 2);
    ds_json_value metadata;
    CHECK(ds_safetensors_metadata(&metadata, file) && ds_json_count(metadata) == 2);
    ds_safetensors_close(file);
    CHECK(open_header(&file, "{}", 0) == DS_OK);
    CHECK(!ds_safetensors_metadata(&metadata, file) && ds_safetensors_text(file, "k", &n) == NULL);
    ds_safetensors_close(file);
    CHECK(open_header(&file, "[", 0) == DS_FORMAT);

    for (int i = 0; i < DS_TENSOR_N_TYPES; i++) {
        ds_tensor_type type = DS_TENSOR_N_TYPES;
        CHECK(ds_tensor_type_find(&type, ds_tensor_type_name((ds_tensor_type)i)) && (int)type == i);
        CHECK(ds_tensor_type_bytes((ds_tensor_type)i) > 0);
    }
    CHECK(strcmp(ds_tensor_type_name((ds_tensor_type)-1), "?") == 0);
    CHECK(ds_tensor_type_bytes(DS_TENSOR_N_TYPES) == 0);
}

/* ---- writing -------------------------------------------------------------------------------- */

static const float numbers[] = {1, 2, 3, 4, 5, 6};
static const int64_t two_by_three[] = {2, 3}, five[] = {5}, none[] = {4, 0};
static const ds_metadata_source texts[] = {{"format", "1", 1},
                                           {"graph", "{\"a\":\n\"\xC3\xA4\0\"}", 12}};

static const ds_tensor_source sources[] = {
    {"zwei.weight", DS_TENSOR_F32, 2, two_by_three, numbers, NULL, NULL},
    {"empty", DS_TENSOR_F64, 2, none, NULL, NULL, NULL},
    {"eins.bias", DS_TENSOR_U8, 1, five, "hello", NULL, NULL},
    {"scalar", DS_TENSOR_F32, 0, NULL, numbers + 2, NULL, NULL},
    {"also empty", DS_TENSOR_I8, 2, none, NULL, NULL, NULL},
};

#define N_SOURCES (sizeof sources / sizeof sources[0])

static ds_status write_sample(ds_buffer *buffer, const ds_allocator *allocator)
{
    const ds_sink sink = buffer_sink(buffer);
    return ds_safetensors_write(&sink, allocator, sources, N_SOURCES, texts, 2);
}

TEST(writing)
{
    ds_buffer first, second;
    ds_buffer_init(&first, NULL);
    ds_buffer_init(&second, NULL);
    CHECK(write_sample(&first, NULL) == DS_OK && write_sample(&second, NULL) == DS_OK);
    CHECK(first.n_bytes == second.n_bytes && memcmp(first.bytes, second.bytes, first.n_bytes) == 0);
    ds_safetensors *file = NULL;
    CHECK(ds_safetensors_open(&file, NULL, first.bytes, first.n_bytes) == DS_OK);
    CHECK(ds_safetensors_count(file) == N_SOURCES + 2);
    CHECK(first.n_bytes % DS_ALIGNMENT == sizeof(float)); /* no filler behind the last */
    for (size_t i = 0; i < N_SOURCES; i++) {
        const ds_tensor_view *view = ds_safetensors_find(file, sources[i].name);
        CHECK(view != NULL && view->type == sources[i].type && view->rank == sources[i].rank);
        CHECK(view->n_bytes == 0 || view->offset % DS_ALIGNMENT == 0);
        CHECK(view->n_bytes == 0 || first.bytes + view->offset == view->data);
        CHECK(!ds_tensor_is_filler(view));
        if (sources[i].data != NULL)
            CHECK(memcmp(view->data, sources[i].data, view->n_bytes) == 0);
        for (size_t d = 0; d < view->rank; d++)
            CHECK(view->shape[d] == sources[i].shape[d]);
    }
    CHECK(memcmp(ds_safetensors_find(file, "eins.bias")->data, "hello", 5) == 0);
    size_t n_fillers = 0;
    for (size_t i = 0; i < ds_safetensors_count(file); i++) {
        const ds_tensor_view *view = ds_safetensors_at(file, i);
        for (size_t k = 0; ds_tensor_is_filler(view) && k < view->n_bytes; k++)
            CHECK(((const unsigned char *)view->data)[k] == 0);
        n_fillers += ds_tensor_is_filler(view);
    }
    CHECK(n_fillers == 2);
    size_t n = 0;
    CHECK(memcmp(ds_safetensors_text(file, "graph", &n), texts[1].text, 13) == 0 && n == 12);
    ds_safetensors_close(file);

    first.n_bytes = 0;
    const ds_sink sink = buffer_sink(&first);
    CHECK(ds_safetensors_write(&sink, NULL, NULL, 0, NULL, 0) == DS_OK &&
          first.n_bytes == DS_ALIGNMENT);
    CHECK(memcmp(first.bytes, "\x38\0\0\0\0\0\0\0{}      ", 16) == 0);
    ds_buffer_free(&first);
    ds_buffer_free(&second);
}

static void check_not_written(ds_status status, const char *message,
                              const ds_tensor_source *tensors, size_t n_tensors,
                              const ds_metadata_source *metadata, size_t n_texts)
{
    ds_buffer buffer;
    ds_buffer_init(&buffer, NULL);
    const ds_sink sink = buffer_sink(&buffer);
    CHECK(ds_safetensors_write(&sink, NULL, tensors, n_tensors, metadata, n_texts) == status);
    if (strstr(ds_last_error(), message) == NULL)
        fprintf(stderr, "gave %s\n  not %s\n", ds_last_error(), message);
    CHECK(strstr(ds_last_error(), message) != NULL);
    CHECK(buffer.n_bytes == 0 || status != DS_ARGUMENT);
    ds_buffer_free(&buffer);
}

TEST(not_written)
{
    static const int64_t negative[] = {-1}, huge[] = {INT64_MAX / 2, 3}, large[] = {INT64_MAX / 2};
    ds_tensor_source one = sources[0], two[2] = {sources[0], sources[0]};
    check_not_written(DS_ARGUMENT, "names that differ, got \"zwei.weight\" twice", two, 2, NULL, 0);
    one.name = "__metadata__";
    check_not_written(DS_ARGUMENT, "other than __metadata__", &one, 1, NULL, 0);
    one.name = ".pad.7";
    check_not_written(DS_ARGUMENT, "got \".pad.7\"", &one, 1, NULL, 0);
    one.name = "\xFF";
    check_not_written(DS_ARGUMENT, "UTF-8", &one, 1, NULL, 0);
    one = sources[0];
    one.type = DS_TENSOR_N_TYPES;
    check_not_written(DS_ARGUMENT, "expected an element type", &one, 1, NULL, 0);
    one = sources[0];
    one.rank = 1;
    one.shape = negative;
    check_not_written(DS_ARGUMENT, "extents of at least 0 for \"zwei.weight\", got -1", &one, 1,
                      NULL, 0);
    one.rank = 2;
    one.shape = huge;
    check_not_written(DS_ARGUMENT, "whose bytes can be counted", &one, 1, NULL, 0);
    for (int i = 0; i < 2; i++) {
        two[i].name = i == 0 ? "one" : "other";
        two[i].type = DS_TENSOR_U8;
        two[i].rank = 1;
        two[i].shape = large;
    }
    check_not_written(DS_ARGUMENT, "data whose bytes can be counted", two, 2, NULL, 0);
    const ds_metadata_source twice[] = {{"k", "1", 1}, {"l", "2", 1}, {"k", "3", 1}};
    check_not_written(DS_ARGUMENT, "keys that differ, got \"k\" twice", NULL, 0, twice, 3);
    const ds_metadata_source bad = {"k", "\xC0", 1};
    check_not_written(DS_ARGUMENT, "UTF-8", NULL, 0, &bad, 1);
}

static ds_status write_few(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    (void)n_bytes;
    size_t *n_left = context;
    return (*n_left)-- > 0 ? DS_OK : ds_fail(DS_LIMIT, "the disk is full");
}

TEST(failing_sink)
{
    for (size_t n_writes = 0;; n_writes++) {
        size_t n_left = n_writes;
        const ds_sink sink = {&n_left, write_few};
        const ds_status status = ds_safetensors_write(&sink, NULL, sources, N_SOURCES, texts, 2);
        if (status == DS_OK) {
            CHECK(n_writes == 1 + 1 + 1 + 1 + 1 + 1);
            break;
        }
        CHECK(status == DS_LIMIT);
    }
}

/* ---- damage --------------------------------------------------------------------------------- */

/* Opens a copy of its own size, and looks at everything in it. */
static ds_status open_and_look(const void *bytes, size_t n_bytes)
{
    unsigned char *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    CHECK(copy != NULL);
    memcpy(copy, bytes, n_bytes);
    ds_safetensors *file = NULL;
    const ds_status status = ds_safetensors_open(&file, NULL, copy, n_bytes);
    unsigned sum = 0;
    for (size_t i = 0; status == DS_OK && i < ds_safetensors_count(file); i++) {
        const ds_tensor_view *view = ds_safetensors_at(file, i);
        CHECK(ds_safetensors_find(file, view->name) == view);
        for (size_t k = 0; k < view->n_bytes; k++)
            sum += ((const unsigned char *)view->data)[k];
    }
    CHECK(sum < 1u << 30);
    ds_safetensors_close(file);
    free(copy);
    return status;
}

TEST(damage)
{
    ds_buffer whole;
    ds_buffer_init(&whole, NULL);
    CHECK(write_sample(&whole, NULL) == DS_OK);
    CHECK(open_and_look(whole.bytes, whole.n_bytes) == DS_OK);
    for (size_t n = 0; n < whole.n_bytes; n++)
        CHECK(open_and_look(whole.bytes, n) == DS_FORMAT);
    const size_t n = whole.n_bytes;
    CHECK(ds_buffer_append(&whole, "", 1) == DS_OK);
    CHECK(open_and_look(whole.bytes, n + 1) == DS_FORMAT);
    for (size_t at = 0; at < n; at++) {
        const unsigned char right = whole.bytes[at];
        enum { APART = 256 / SOME_OF(255) };
        for (int byte = (int)(at % APART); byte < 256; byte += APART) {
            whole.bytes[at] = (unsigned char)byte;
            const ds_status status = open_and_look(whole.bytes, n);
            CHECK(status == DS_OK || status == DS_FORMAT);
        }
        whole.bytes[at] = right;
    }
    ds_buffer_free(&whole);
}

TEST(no_memory)
{
    count_memory();
    for (size_t nth = 1;; nth++) {
        ds_fault_arm(&fault, nth, false);
        ds_buffer buffer;
        ds_buffer_init(&buffer, &hooks);
        ds_safetensors *file = NULL;
        ds_status status = write_sample(&buffer, &hooks);
        if (status == DS_OK)
            status = ds_safetensors_open(&file, &hooks, buffer.bytes, buffer.n_bytes);
        ds_safetensors_close(file);
        ds_buffer_free(&buffer);
        CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
        CHECK(status == (ds_fault_failures(&fault) >= nth ? DS_NO_MEMORY : DS_OK));
        if (status == DS_OK) {
            CHECK(nth > 12);
            break;
        }
    }
}
