/* JSON (RFC 8259), read strictly into a tree that is built and freed at once.
 *
 *     ds_json *json = NULL;
 *     DS_TRY(ds_json_parse(&json, &allocator, text, n_bytes, 0));
 *     ds_json_value node;
 *     ds_json_cursor at;
 *     DS_TRY(ds_json_get_list(&at, ds_json_root(json), "nodes", 0, 100, "nodes"));
 *     while (ds_json_next(&at, &node)) {
 *         int64_t stride;
 *         DS_TRY(ds_json_get_integer(&stride, node, "stride", 1, 1000));
 *     }
 *     ds_json_free(json);
 *
 * What strangers wrote is distrusted: invalid UTF-8, keys given twice, lone surrogates, numbers
 * that would be infinite, anything beside the grammar, depth and size above the limits below are
 * refused. The memory is at most a fixed multiple of the text's bytes.
 *
 * A number without point and exponent that fits int64_t is an integer, exactly ("-0" is 0); every
 * other one is the nearest double.
 *
 * Messages name the byte, and for a value that is not what it should be also the path of keys to
 * it: "$.nodes[3].stride: expected an integer from 1 to 1000, got a string (byte 217)".
 *
 * A tree is immutable and may be read by several threads at a time. A value belongs to its tree,
 * and is valid as long as that; it is handed around by value. */
#pragma once
#include <stdbool.h>

#include "codec/buffer.h"

#define DS_JSON_MAX_DEPTH 64         /* arrays and objects within each other */
#define DS_JSON_MAX_BYTES 100000000u /* of the text */

typedef enum ds_json_kind {
    DS_JSON_NULL,
    DS_JSON_BOOLEAN,
    DS_JSON_INTEGER, /* a number that is an int64_t */
    DS_JSON_DOUBLE,  /* any other number */
    DS_JSON_STRING,
    DS_JSON_ARRAY,
    DS_JSON_OBJECT
} ds_json_kind;

typedef struct ds_json ds_json;

typedef struct ds_json_value {
    const ds_json *json;
    uint32_t node;
} ds_json_value;

/* Where a walk through an array or object stands. */
typedef struct ds_json_cursor {
    const ds_json *json;
    uint32_t node, end;
} ds_json_cursor;

/* Fills `*json` (returns owned) with what `text` (borrowed) says. `first_byte`, the text's place in
 * its file, is added to the bytes that messages name. `allocator` is copied, NULL is the C
 * library's. Errors: DS_FORMAT, DS_NO_MEMORY. Thread: any. */
ds_status ds_json_parse(ds_json **json, const ds_allocator *allocator, const char *text,
                        size_t n_bytes, size_t first_byte);
/* Releases the tree; NULL is allowed. */
void ds_json_free(ds_json *json);
/* Returns the outermost value. */
ds_json_value ds_json_root(const ds_json *json);
/* Returns what `value` is. */
ds_json_kind ds_json_kind_of(ds_json_value value);

/* ---- values: errors are DS_FORMAT, upon which outputs are as they were ----------------------- */
ds_status ds_json_boolean(bool *out, ds_json_value value);
/* An integer from `low` to `high`. */
ds_status ds_json_integer(int64_t *out, ds_json_value value, int64_t low, int64_t high);
/* Any number; an integer becomes the nearest double. */
ds_status ds_json_double(double *out, ds_json_value value);
/* Fills `*text` (returns view, valid as long as the tree) with a string in UTF-8, with a zero
 * behind it, and `*n_bytes` with its bytes. Zeros may stand within it too; if `n_bytes` is NULL
 * they are refused. */
ds_status ds_json_string(const char **text, size_t *n_bytes, ds_json_value value);

/* ---- arrays and objects --------------------------------------------------------------------- */
/* Returns the elements of an array, or the members of an object; 0 for any other kind. */
size_t ds_json_count(ds_json_value value);
/* Begins a walk through a DS_JSON_ARRAY or DS_JSON_OBJECT, in the order of the text. Errors: DS_FORMAT
 * if the value is another kind. */
ds_status ds_json_enter(ds_json_cursor *cursor, ds_json_value value, ds_json_kind kind);
/* Fills `*element` with the next one and returns true, or returns false at the end. */
bool ds_json_next(ds_json_cursor *cursor, ds_json_value *element);
/* The same for members; the key is a string. */
bool ds_json_next_member(ds_json_cursor *cursor, ds_json_value *key, ds_json_value *value);
/* Fills `*value` with the member `key` of `object` and returns true; returns false if there is
 * none, or `object` is none. Takes time proportional to the number of members. */
bool ds_json_find(ds_json_value *value, ds_json_value object, const char *key);
/* Checks that `object` is an object and has no other keys than the `n_keys` named.
 * Errors: DS_FORMAT, naming the key. */
ds_status ds_json_only(ds_json_value object, const char *const *keys, size_t n_keys);
/* The two arguments for keys that are written out. */
#define DS_JSON_KEYS(...)               \
    (const char *const[]){__VA_ARGS__}, \
        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

/* ---- members that have to be there: errors are DS_FORMAT ------------------------------------- */
ds_status ds_json_member(ds_json_value *value, ds_json_value object, const char *key);
ds_status ds_json_get_string(const char **text, ds_json_value object, const char *key);
ds_status ds_json_get_boolean(bool *out, ds_json_value object, const char *key);
ds_status ds_json_get_integer(int64_t *out, ds_json_value object, const char *key, int64_t low,
                              int64_t high);
/* Begins a walk through an array of `least` to `most` elements; `what` names them. */
ds_status ds_json_get_list(ds_json_cursor *cursor, ds_json_value object, const char *key,
                           size_t least, size_t most, const char *what);
/* Fills `numbers` with an array of `least` to `most` integers from `low` on, `*n` with how many
 * there are; the same of the array itself. */
ds_status ds_json_integers(int64_t *numbers, int *n, ds_json_value list, size_t least, size_t most,
                           int64_t low);
ds_status ds_json_get_integers(int64_t *numbers, int *n, ds_json_value object, const char *key,
                               size_t least, size_t most, int64_t low);

/* ---- errors of those who read the tree ------------------------------------------------------- */
/* Writes the thread's message, "<path>: <your words> (byte <n>)", and returns DS_FORMAT. `words`
 * says what was expected and what came. */
ds_status ds_json_refuse(ds_json_value value, const char *words, ...) DS_PRINTF(2, 3);
/* The same for a string, which stands in the message: "<path>: expected <...>, got "<...>"
 * (byte <n>)". */
ds_status ds_json_refuse_text(ds_json_value string, const char *expected);

/* ---- writing -------------------------------------------------------------------------------- */
/* JSON is written to the end of a buffer: the same calls, the same bytes.
 *
 * A value in an object has a key, any other one NULL instead. The first failure is kept, everything
 * after it is skipped, and ds_json_writer_finish returns it; look at its message before anything
 * else fails in this thread.
 *
 * No space is written. Members stand in the order of the calls; that keys differ is the caller's
 * concern. Strings are UTF-8 and written as they are, but for ", \ and control characters. What is
 * written can be read by ds_json_parse: values where values belong, at most its depth. */

/* Fields are private; the type is complete so that it can stand on the stack. */
typedef struct ds_json_writer {
    ds_buffer *text;
    ds_status status;
    size_t depth;
    uint64_t objects; /* one bit per level: it is an object */
    bool after_key;   /* a value is due */
    bool after_value; /* a comma is due before what follows */
} ds_json_writer;

/* Begins a text at the end of `text` (kept). */
void ds_json_writer_init(ds_json_writer *writer, ds_buffer *text);
/* Returns DS_OK if one whole value was written, else what failed: DS_ARGUMENT (a string that is not
 * UTF-8, a double that is not finite, too deep, a call where it has no place), or DS_NO_MEMORY. */
ds_status ds_json_writer_finish(ds_json_writer *writer);
/* Begins a DS_JSON_OBJECT or a DS_JSON_ARRAY, and ends the innermost one. */
void ds_json_put_open(ds_json_writer *writer, const char *key, ds_json_kind kind);
void ds_json_put_close(ds_json_writer *writer);
/* A key of `n_bytes`, which may contain zeros; its value follows, with NULL for a key. */
void ds_json_put_key_bytes(ds_json_writer *writer, const char *key, size_t n_bytes);

void ds_json_put_string(ds_json_writer *writer, const char *key, const char *text);
/* The same for text of `n_bytes`, which may contain zeros. */
void ds_json_put_string_bytes(ds_json_writer *writer, const char *key, const char *text,
                              size_t n_bytes);

void ds_json_put_integer(ds_json_writer *writer, const char *key, int64_t value);
void ds_json_put_double(ds_json_writer *writer, const char *key, double value);
void ds_json_put_boolean(ds_json_writer *writer, const char *key, bool value);
void ds_json_put_null(ds_json_writer *writer, const char *key);
/* An array of integers. */
void ds_json_put_integers(ds_json_writer *writer, const char *key, const int64_t *values, size_t n);
/* A whole value, as a writer wrote it before; taken as it is. */
void ds_json_put_written(ds_json_writer *writer, const char *key, const void *text, size_t n_bytes);
