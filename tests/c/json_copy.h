/*
 * Writing a tree of JSON back as text: for round trips. Include it in one file per program.
 */
#pragma once

#include "codec/json.h"

/* Returns whether the walk went as it should; the writer keeps its own failure. */
static bool copy_json(ds_json_writer *writer, ds_json_value value)
{
    ds_json_cursor at = {0};
    ds_json_value key = value, part = value;
    const char *text = NULL;
    size_t n_bytes = 0;
    bool boolean = false;
    int64_t integer = 0;
    double number = 0;
    switch (ds_json_kind_of(value)) {
    case DS_JSON_NULL:
        ds_json_put_null(writer, NULL);
        return true;
    case DS_JSON_BOOLEAN:
        if (ds_json_boolean(&boolean, value) != DS_OK)
            return false;
        ds_json_put_boolean(writer, NULL, boolean);
        return true;
    case DS_JSON_INTEGER:
        if (ds_json_integer(&integer, value, INT64_MIN, INT64_MAX) != DS_OK)
            return false;
        ds_json_put_integer(writer, NULL, integer);
        return true;
    case DS_JSON_DOUBLE:
        if (ds_json_double(&number, value) != DS_OK)
            return false;
        ds_json_put_double(writer, NULL, number);
        return true;
    case DS_JSON_STRING:
        if (ds_json_string(&text, &n_bytes, value) != DS_OK || text[n_bytes] != '\0')
            return false;
        ds_json_put_string_bytes(writer, NULL, text, n_bytes);
        return true;
    case DS_JSON_ARRAY:
        if (ds_json_enter(&at, value, DS_JSON_ARRAY) != DS_OK)
            return false;
        ds_json_put_open(writer, NULL, DS_JSON_ARRAY);
        while (ds_json_next(&at, &part))
            if (!copy_json(writer, part))
                return false;
        ds_json_put_close(writer);
        return true;
    case DS_JSON_OBJECT:
        if (ds_json_enter(&at, value, DS_JSON_OBJECT) != DS_OK)
            return false;
        ds_json_put_open(writer, NULL, DS_JSON_OBJECT);
        while (ds_json_next_member(&at, &key, &part)) {
            if (ds_json_string(&text, &n_bytes, key) != DS_OK)
                return false;
            ds_json_put_key_bytes(writer, text, n_bytes);
            if (!copy_json(writer, part))
                return false;
        }
        ds_json_put_close(writer);
        return true;
    }
    return false;
}

/* Appends the tree's text to `buffer`. */
static ds_status json_to_text(ds_buffer *buffer, const ds_json *json)
{
    ds_json_writer writer;
    ds_json_writer_init(&writer, buffer);
    if (!copy_json(&writer, ds_json_root(json)))
        return DS_INTERNAL;
    return ds_json_writer_finish(&writer);
}
