/* JSON: reading the tree, and paths to its values for messages. */
#include "codec/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/decimal.h"
#include "codec/json_tree.h"
#include "codec/utf8.h"

#define PATH_BYTES 240

static const ds_json_node *node_of(ds_json_value value)
{
    return ds_json_nodes(value.json) + value.node;
}

static uint32_t end_of(ds_json_value value)
{
    return ds_json_end(ds_json_nodes(value.json), value.node);
}

ds_json_value ds_json_root(const ds_json *json)
{
    return (ds_json_value){json, 0};
}

ds_json_kind ds_json_kind_of(ds_json_value value)
{
    return node_of(value)->kind;
}

size_t ds_json_count(ds_json_value value)
{
    const ds_json_node *node = node_of(value);
    return node->kind == DS_JSON_ARRAY || node->kind == DS_JSON_OBJECT ? node->as.parts.count : 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Appends to path[*used]; from the first piece that has no room on, "..." takes the place of the rest. */
static void extend(char path[PATH_BYTES], size_t *used, const char *piece)
{
    static const char cut[] = "...";
    const size_t n = strlen(piece);
    if (*used >= PATH_BYTES)
        return;
    if (*used + n + sizeof cut > PATH_BYTES) {
        memcpy(path + *used, cut, sizeof cut);
        *used = PATH_BYTES;
        return;
    }
    memcpy(path + *used, piece, n + 1);
    *used += n;
}

/* Fills `path` with the keys and indices that lead to `value`, from the root down. */
static void find_path(char path[PATH_BYTES], ds_json_value value)
{
    const ds_json_node *nodes = ds_json_nodes(value.json);
    size_t used = 0;
    uint32_t at = 0;
    extend(path, &used, "$");
    while (at != value.node) {
        const bool object = nodes[at].kind == DS_JSON_OBJECT;
        uint32_t part = at + 1;
        size_t index = 0;
        for (uint32_t end; (end = ds_json_end(nodes, part + object)) <= value.node; index++)
            part = end;
        char shown[DS_UTF8_SHOWN_BYTES], piece[DS_UTF8_SHOWN_BYTES + 32];
        if (object) {
            (void)snprintf(piece, sizeof piece, ".%s",
                           ds_utf8_show(shown, ds_json_text(value.json, nodes + part),
                                        nodes[part].as.string.n_bytes));
        } else {
            (void)snprintf(piece, sizeof piece, "[%zu]", index);
        }
        extend(path, &used, piece);
        at = part == value.node ? part : part + object; /* a key has its value's path */
    }
}

ds_status ds_json_refuse(ds_json_value value, const char *words, ...)
{
    char path[PATH_BYTES], message[DS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, words);
    ds_text_format(message, sizeof message, words, arguments);
    va_end(arguments);
    find_path(path, value);
    return ds_fail(DS_FORMAT, "%s: %s (byte %zu)", path, message,
                   value.json->first_byte + node_of(value)->at);
}

/* Fills `text` with what a value is. */
static const char *describe(char text[DS_UTF8_SHOWN_BYTES], ds_json_value value)
{
    static const char *const names[] = {"null",     "a boolean", "",         "",
                                        "a string", "an array",  "an object"};
    const ds_json_node *node = node_of(value);
    if (node->kind == DS_JSON_INTEGER)
        (void)snprintf(text, DS_UTF8_SHOWN_BYTES, "%" PRId64, node->as.integer);
    else if (node->kind == DS_JSON_DOUBLE)
        (void)ds_decimal_write(text, node->as.number);
    else
        (void)snprintf(text, DS_UTF8_SHOWN_BYTES, "%s", names[node->kind]);
    return text;
}

static ds_status refuse_kind(ds_json_value value, const char *expected)
{
    char text[DS_UTF8_SHOWN_BYTES];
    return ds_json_refuse(value, "expected %s, got %s", expected, describe(text, value));
}

/* ---- values --------------------------------------------------------------------------------- */

ds_status ds_json_boolean(bool *out, ds_json_value value)
{
    const ds_json_node *node = node_of(value);
    if (node->kind != DS_JSON_BOOLEAN)
        return refuse_kind(value, "true or false");
    *out = node->as.boolean;
    return DS_OK;
}

ds_status ds_json_integer(int64_t *out, ds_json_value value, int64_t low, int64_t high)
{
    const ds_json_node *node = node_of(value);
    if (node->kind != DS_JSON_INTEGER || node->as.integer < low || node->as.integer > high) {
        char expected[DS_UTF8_SHOWN_BYTES];
        (void)snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, low,
                       high);
        return refuse_kind(value, expected);
    }
    *out = node->as.integer;
    return DS_OK;
}

ds_status ds_json_double(double *out, ds_json_value value)
{
    const ds_json_node *node = node_of(value);
    if (node->kind == DS_JSON_INTEGER)
        *out = (double)node->as.integer;
    else if (node->kind == DS_JSON_DOUBLE)
        *out = node->as.number;
    else
        return refuse_kind(value, "a number");
    return DS_OK;
}

ds_status ds_json_string(const char **text, size_t *n_bytes, ds_json_value value)
{
    const ds_json_node *node = node_of(value);
    if (node->kind != DS_JSON_STRING)
        return refuse_kind(value, "a string");
    const char *found = ds_json_text(value.json, node);
    if (n_bytes == NULL && memchr(found, 0, node->as.string.n_bytes) != NULL)
        return ds_json_refuse(value, "expected a string without zero bytes, got one with");
    *text = found;
    if (n_bytes != NULL)
        *n_bytes = node->as.string.n_bytes;
    return DS_OK;
}

/* ---- arrays and objects --------------------------------------------------------------------- */

static ds_json_cursor parts_of(ds_json_value value)
{
    return (ds_json_cursor){value.json, value.node + 1, end_of(value)};
}

ds_status ds_json_enter_array(ds_json_cursor *cursor, ds_json_value array)
{
    if (node_of(array)->kind != DS_JSON_ARRAY)
        return refuse_kind(array, "an array");
    *cursor = parts_of(array);
    return DS_OK;
}

bool ds_json_next(ds_json_cursor *cursor, ds_json_value *element)
{
    if (cursor->node >= cursor->end)
        return false;
    *element = (ds_json_value){cursor->json, cursor->node};
    cursor->node = end_of(*element);
    return true;
}

ds_status ds_json_enter_object(ds_json_cursor *cursor, ds_json_value object)
{
    if (node_of(object)->kind != DS_JSON_OBJECT)
        return refuse_kind(object, "an object");
    *cursor = parts_of(object);
    return DS_OK;
}

bool ds_json_next_member(ds_json_cursor *cursor, ds_json_value *key, ds_json_value *value)
{
    return ds_json_next(cursor, key) && ds_json_next(cursor, value);
}

static bool has_text(ds_json_value string, const char *text)
{
    const ds_json_node *node = node_of(string);
    const size_t n = strlen(text);
    return node->as.string.n_bytes == n && memcmp(ds_json_text(string.json, node), text, n) == 0;
}

bool ds_json_find(ds_json_value *value, ds_json_value object, const char *key)
{
    if (node_of(object)->kind != DS_JSON_OBJECT)
        return false;
    ds_json_cursor at = parts_of(object);
    ds_json_value name, found;
    while (ds_json_next_member(&at, &name, &found)) {
        if (has_text(name, key)) {
            *value = found;
            return true;
        }
    }
    return false;
}

ds_status ds_json_member(ds_json_value *value, ds_json_value object, const char *key)
{
    if (node_of(object)->kind != DS_JSON_OBJECT)
        return refuse_kind(object, "an object");
    return ds_json_find(value, object, key)
               ? DS_OK
               : ds_json_refuse(object, "expected the key \"%s\", got none of that name", key);
}

ds_status ds_json_only(ds_json_value object, const char *const *keys, size_t n_keys)
{
    if (node_of(object)->kind != DS_JSON_OBJECT)
        return refuse_kind(object, "an object");
    ds_json_cursor at = parts_of(object);
    ds_json_value name, value;
    while (ds_json_next_member(&at, &name, &value)) {
        bool known = false;
        for (size_t i = 0; i < n_keys && !known; i++)
            known = has_text(name, keys[i]);
        if (!known) {
            const ds_json_node *node = node_of(name);
            char shown[DS_UTF8_SHOWN_BYTES];
            return ds_json_refuse(
                name, "expected no key but known ones, got \"%s\"",
                ds_utf8_show(shown, ds_json_text(name.json, node), node->as.string.n_bytes));
        }
    }
    return DS_OK;
}
