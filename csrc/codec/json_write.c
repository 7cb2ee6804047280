/* JSON: writing. */
#include "codec/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/decimal.h"
#include "codec/utf8.h"

_Static_assert(DS_JSON_MAX_DEPTH <= 64, "ds_json_writer.objects has a bit for each level");

void ds_json_writer_init(ds_json_writer *writer, const ds_sink *sink)
{
    *writer = (ds_json_writer){.sink = *sink, .status = DS_OK};
}

/* Keeps the first failure. */
static void fail(ds_json_writer *writer, const char *message)
{
    if (writer->status == DS_OK)
        writer->status = ds_fail(DS_ARGUMENT, "JSON writer: %s", message);
}

static void put(ds_json_writer *writer, const char *bytes, size_t n_bytes)
{
    if (writer->status == DS_OK && n_bytes > 0)
        writer->status = writer->sink.write(writer->sink.context, bytes, n_bytes);
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

static void open_with(ds_json_writer *writer, const char *bracket, bool object)
{
    if (!begin(writer, false))
        return;
    if (writer->depth == DS_JSON_MAX_DEPTH) {
        fail(writer, "too many arrays and objects within each other");
        return;
    }
    const uint64_t bit = UINT64_C(1) << writer->depth;
    writer->objects = object ? writer->objects | bit : writer->objects & ~bit;
    writer->depth++;
    writer->after_value = false;
    put(writer, bracket, 1);
}

void ds_json_put_open_object(ds_json_writer *writer)
{
    open_with(writer, "{", true);
}

void ds_json_put_open_array(ds_json_writer *writer)
{
    open_with(writer, "[", false);
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

/* Writes a string with its quotation marks. */
static void put_quoted(ds_json_writer *writer, const char *text, size_t n_bytes)
{
    static const char short_names[] = "\b\f\n\r\t\"\\";
    static const char *const shorts[] = {"\\b", "\\f", "\\n", "\\r", "\\t", "\\\"", "\\\\"};
    if (ds_utf8_valid(text, n_bytes) != n_bytes) {
        fail(writer, "expected UTF-8, got something else");
        return;
    }
    put(writer, "\"", 1);
    size_t done = 0;
    for (size_t at = 0; at < n_bytes; at++) {
        const unsigned char c = (unsigned char)text[at];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        put(writer, text + done, at - done);
        done = at + 1;
        const char *name = c != 0 ? strchr(short_names, c) : NULL;
        if (name != NULL) {
            put(writer, shorts[name - short_names], 2);
        } else {
            char escape[8];
            (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
            put(writer, escape, 6);
        }
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

void ds_json_put_key(ds_json_writer *writer, const char *key)
{
    ds_json_put_key_bytes(writer, key, strlen(key));
}

void ds_json_put_string_bytes(ds_json_writer *writer, const char *text, size_t n_bytes)
{
    if (begin(writer, false))
        put_quoted(writer, text, n_bytes);
}

void ds_json_put_string(ds_json_writer *writer, const char *text)
{
    ds_json_put_string_bytes(writer, text, strlen(text));
}

void ds_json_put_written(ds_json_writer *writer, const char *text)
{
    if (begin(writer, false))
        put(writer, text, strlen(text));
}

void ds_json_put_integer(ds_json_writer *writer, int64_t value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    ds_json_put_written(writer, text);
}

void ds_json_put_double(ds_json_writer *writer, double value)
{
    if (!isfinite(value)) {
        fail(writer, "expected a finite number, got one that JSON has no word for");
        return;
    }
    char text[DS_DECIMAL_BYTES];
    (void)ds_decimal_write(text, value);
    ds_json_put_written(writer, text);
}

void ds_json_put_boolean(ds_json_writer *writer, bool value)
{
    ds_json_put_written(writer, value ? "true" : "false");
}

void ds_json_put_null(ds_json_writer *writer)
{
    ds_json_put_written(writer, "null");
}

ds_status ds_json_writer_finish(ds_json_writer *writer)
{
    if (writer->status == DS_OK && (writer->depth > 0 || !writer->after_value))
        fail(writer, "expected one whole value, got a part of one");
    return writer->status;
}
