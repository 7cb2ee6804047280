/* JSON: what is read can be written, and what is written is read as the same. */
#include "fuzz.h"
#include "json_copy.h"

/*
 * Every way of reading a value: each gives it, or a message. For the first of them only: a path is found
 * by a walk from the root.
 */
static void look(ds_json_value value, int *n_left)
{
    if ((*n_left)-- <= 0)
        return;
    bool boolean = false;
    int64_t integer = 0;
    double number = 0;
    const char *text = NULL;
    size_t n_bytes = 0;
    ds_json_value part = value, key = value;
    ds_json_cursor at = {0};
    const ds_json_kind kind = ds_json_kind_of(value);
    FUZZ_CHECK((ds_json_boolean(&boolean, value) == DS_OK) == (kind == DS_JSON_BOOLEAN));
    FUZZ_CHECK((ds_json_integer(&integer, value, INT64_MIN, INT64_MAX) == DS_OK) ==
               (kind == DS_JSON_INTEGER));
    FUZZ_CHECK((ds_json_double(&number, value) == DS_OK) ==
               (kind == DS_JSON_INTEGER || kind == DS_JSON_DOUBLE));
    FUZZ_CHECK((ds_json_string(&text, &n_bytes, value) == DS_OK) == (kind == DS_JSON_STRING));
    size_t n_parts = 0;
    if (ds_json_enter(&at, value, DS_JSON_ARRAY) == DS_OK) {
        FUZZ_CHECK(kind == DS_JSON_ARRAY);
        for (; ds_json_next(&at, &part); n_parts++)
            look(part, n_left);
    } else if (ds_json_enter(&at, value, DS_JSON_OBJECT) == DS_OK) {
        FUZZ_CHECK(kind == DS_JSON_OBJECT);
        for (; ds_json_next_member(&at, &key, &part); n_parts++) {
            look(part, n_left);
            if (*n_left > 0 && ds_json_string(&text, NULL, key) == DS_OK)
                FUZZ_CHECK(ds_json_find(&key, value, text) && key.node == part.node);
        }
    } else {
        fuzz_check_refusal(DS_FORMAT);
    }
    FUZZ_CHECK(n_parts == ds_json_count(value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    ds_json *json = NULL;
    const ds_status status = ds_json_parse(&json, NULL, (const char *)data, n_bytes, 0);
    if (status != DS_OK) {
        fuzz_check_refusal(status);
        return 0;
    }
    ds_buffer first, second;
    ds_buffer_init(&first, NULL);
    ds_buffer_init(&second, NULL);
    int n_left = 100;
    look(ds_json_root(json), &n_left);
    FUZZ_CHECK(json_to_text(&first, json) == DS_OK);
    ds_json_free(json);
    FUZZ_CHECK(ds_json_parse(&json, NULL, (const char *)first.bytes, first.n_bytes, 0) == DS_OK);
    FUZZ_CHECK(json_to_text(&second, json) == DS_OK);
    ds_json_free(json);
    FUZZ_CHECK(first.n_bytes == second.n_bytes &&
               memcmp(first.bytes, second.bytes, first.n_bytes) == 0);
    ds_buffer_free(&first);
    ds_buffer_free(&second);
    return 0;
}
