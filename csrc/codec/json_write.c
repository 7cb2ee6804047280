/* JSON: writing. */
#include "codec/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/decimal.h"

_Static_assert(DS_JSON_MAX_DEPTH <= 64, "ds_json_writer.objects has a bit for each level");

void ds_json_writer_init(ds_json_writer *writer, ds_buffer *text)
{
    *writer = (ds_json_writer){.text = text, .status = DS_OK};
}

/* Keeps the first failure. */
static void fail(ds_json_writer *writer, const char *message)
{
    if (writer->status == DS_OK)
        writer->status = ds_fail(DS_ARGUMENT, "JSON writer: %s", message);
}

static void put(ds_json_writer *writer, const void *bytes, size_t n_bytes)
{
    if (writer->status == DS_OK)
        writer->status = ds_buffer_append(writer->text, bytes, n_bytes);
}

static bool in_object(const ds_json_writer *writer)
{
    return writer->depth > 0 && (writer->objects >> (writer->depth - 1) & 1u) != 0;
}

/* What comes before a value (or a key): a comma, or a complaint. Returns whether it may follow. */
static bool begin(ds_json_writer *writer, bool key)
{
    if (writer->status != DS_OK)
        return false;
    const bool key_is_due = in_object(writer) && !writer->after_key;
    if (key != key_is_due)
        fail(writer, key ? "expected a value, got a key" : "expected a key, got a value");
    else if (writer->depth == 0 && writer->after_value)
        fail(writer, "expected one outermost value, got another");
    else if (writer->after_value)
        put(writer, ",", 1);
    writer->after_key = key;
    writer->after_value = !key;
    return writer->status == DS_OK;
}

/* Writes a string with its quotation marks. */
static void put_quoted(ds_json_writer *writer, const char *text, size_t n_bytes)
{
    static const char special[] = "\b\f\n\r\t\"\\", names[] = "bfnrt\"\\";
    size_t done = 0, length;
    put(writer, "\"", 1);
    for (size_t at = 0; at < n_bytes; at += length) {
        const unsigned char c = (unsigned char)text[at];
        length = ds_utf8_length(text + at, n_bytes - at);
        if (length == 0) {
            fail(writer, "expected UTF-8, got something else");
            return;
        }
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put(writer, text + done, at - done);
        done = at + 1;
        const char *found = c != 0 ? strchr(special, c) : NULL;
        char escape[8];
        const int n = found != NULL
                          ? snprintf(escape, sizeof escape, "\\%c", names[found - special])
                          : snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
        put(writer, escape, (size_t)n);
    }
    put(writer, text + done, n_bytes - done);
    put(writer, "\"", 1);
}

void ds_json_put_key_bytes(ds_json_writer *writer, const char *key, size_t n_bytes)
{
    if (begin(writer, true)) {
        put_quoted(writer, key, n_bytes);
        put(writer, ":", 1);
    }
}

/* What comes before a value: its key, unless that is NULL, and what comes before that. */
static bool begin_value(ds_json_writer *writer, const char *key)
{
    if (key != NULL)
        ds_json_put_key_bytes(writer, key, strlen(key));
    return begin(writer, false);
}

void ds_json_put_open(ds_json_writer *writer, const char *key, ds_json_kind kind)
{
    if (!begin_value(writer, key))
        return;
    if (writer->depth == DS_JSON_MAX_DEPTH) {
        fail(writer, "too many arrays and objects within each other");
        return;
    }
    const bool object = kind == DS_JSON_OBJECT;
    const uint64_t bit = UINT64_C(1) << writer->depth;
    writer->objects = object ? writer->objects | bit : writer->objects & ~bit;
    writer->depth++;
    writer->after_value = false;
    put(writer, object ? "{" : "[", 1);
}

void ds_json_put_close(ds_json_writer *writer)
{
    if (writer->status != DS_OK)
        return;
    if (writer->depth == 0 || writer->after_key) {
        fail(writer,
             writer->depth == 0 ? "nothing is open" : "expected a value behind a key, got the end");
        return;
    }
    put(writer, in_object(writer) ? "}" : "]", 1);
    writer->depth--;
    writer->after_value = true;
}

/* ---- values --------------------------------------------------------------------------------- */
void ds_json_put_string_bytes(ds_json_writer *writer, const char *key, const char *text,
                              size_t n_bytes)
{
    if (begin_value(writer, key))
        put_quoted(writer, text, n_bytes);
}

void ds_json_put_string(ds_json_writer *writer, const char *key, const char *text)
{
    ds_json_put_string_bytes(writer, key, text, strlen(text));
}

void ds_json_put_written(ds_json_writer *writer, const char *key, const void *text, size_t n_bytes)
{
    if (begin_value(writer, key))
        put(writer, text, n_bytes);
}

static void put_word(ds_json_writer *writer, const char *key, const char *word)
{
    ds_json_put_written(writer, key, word, strlen(word));
}

void ds_json_put_integer(ds_json_writer *writer, const char *key, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    put_word(writer, key, text);
}

void ds_json_put_integers(ds_json_writer *writer, const char *key, const int64_t *values, size_t n)
{
    ds_json_put_open(writer, key, DS_JSON_ARRAY);
    for (size_t i = 0; i < n; i++)
        ds_json_put_integer(writer, NULL, values[i]);
    ds_json_put_close(writer);
}

void ds_json_put_double(ds_json_writer *writer, const char *key, double value)
{
    char text[DS_DECIMAL_BYTES];
    if (!isfinite(value)) {
        fail(writer, "expected a finite number, got one that JSON has no word for");
        return;
    }
    (void)ds_decimal_write(text, value);
    put_word(writer, key, text);
}

void ds_json_put_boolean(ds_json_writer *writer, const char *key, bool value)
{
    put_word(writer, key, value ? "true" : "false");
}

void ds_json_put_null(ds_json_writer *writer, const char *key)
{
    put_word(writer, key, "null");
}

ds_status ds_json_writer_finish(ds_json_writer *writer)
{
    if (writer->status == DS_OK && (writer->depth > 0 || !writer->after_value))
        fail(writer, "expected one whole value, got a part of one");
    return writer->status;
}
