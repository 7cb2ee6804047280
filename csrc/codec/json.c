/* JSON: reading the tree, and paths to its values for messages. */
#include "codec/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/decimal.h"
#include "codec/json_tree.h"

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
static const char *show(char shown[DS_UTF8_SHOWN_BYTES], const ds_json *json,
                        const ds_json_node *node)
{
    return ds_utf8_show(shown, DS_UTF8_SHOWN_BYTES, ds_json_text(json, node),
                        node->as.string.n_bytes);
}

/* Fills `path` with the keys and indices that lead to `value`, from the root down; from the first
 * that has no room on, "..." takes the place of the rest. */
static void find_path(char path[PATH_BYTES], ds_json_value value)
{
    static const char cut[] = "...";
    const ds_json_node *nodes = ds_json_nodes(value.json);
    size_t used = 1;
    (void)snprintf(path, PATH_BYTES, "$");
    for (uint32_t at = 0; at != value.node;) {
        const bool object = nodes[at].kind == DS_JSON_OBJECT;
        uint32_t part = at + 1;
        size_t index = 0, n = 0;
        for (uint32_t end; (end = ds_json_end(nodes, part + object)) <= value.node; index++)
            part = end;
        char shown[DS_UTF8_SHOWN_BYTES], piece[DS_UTF8_SHOWN_BYTES + 32];
        if (object)
            n = (size_t)snprintf(piece, sizeof piece, ".%s", show(shown, value.json, nodes + part));
        else
            n = (size_t)snprintf(piece, sizeof piece, "[%zu]", index);
        if (used + n + sizeof cut > PATH_BYTES) {
            memcpy(path + used, cut, sizeof cut);
            return;
        }
        memcpy(path + used, piece, n + 1);
        used += n;
        at = part == value.node ? part : part + object; /* a key has its value's path */
    }
}

ds_status ds_json_refuse(ds_json_value value, const char *words, ...)
{
    char path[PATH_BYTES], message[DS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, words);
    ds_text_format(message, words, arguments);
    va_end(arguments);
    find_path(path, value);
    return ds_fail(DS_FORMAT, "%s: %s (byte %zu)", path, message,
                   value.json->first_byte + node_of(value)->at);
}

ds_status ds_json_refuse_text(ds_json_value string, const char *expected)
{
    char shown[DS_UTF8_SHOWN_BYTES];
    return ds_json_refuse(string, "expected %s, got \"%s\"", expected,
                          show(shown, string.json, node_of(string)));
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
ds_status ds_json_enter(ds_json_cursor *cursor, ds_json_value value, ds_json_kind kind)
{
    if (node_of(value)->kind != kind)
        return refuse_kind(value, kind == DS_JSON_ARRAY ? "an array" : "an object");
    *cursor = (ds_json_cursor){value.json, value.node + 1, end_of(value)};
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
    ds_json_cursor at;
    ds_json_value name, found;
    if (node_of(object)->kind != DS_JSON_OBJECT ||
        ds_json_enter(&at, object, DS_JSON_OBJECT) != DS_OK)
        return false;
    while (ds_json_next_member(&at, &name, &found)) {
        if (has_text(name, key)) {
            *value = found;
            return true;
        }
    }
    return false;
}

ds_status ds_json_only(ds_json_value object, const char *const *keys, size_t n_keys)
{
    ds_json_cursor at;
    ds_json_value name, value;
    DS_TRY(ds_json_enter(&at, object, DS_JSON_OBJECT));
    while (ds_json_next_member(&at, &name, &value)) {
        bool known = false;
        for (size_t i = 0; i < n_keys && !known; i++)
            known = has_text(name, keys[i]);
        if (!known)
            return ds_json_refuse_text(name, "no key but known ones");
    }
    return DS_OK;
}

/* ---- members that have to be there ----------------------------------------------------------- */
ds_status ds_json_member(ds_json_value *value, ds_json_value object, const char *key)
{
    ds_json_cursor at;
    DS_TRY(ds_json_enter(&at, object, DS_JSON_OBJECT));
    return ds_json_find(value, object, key)
               ? DS_OK
               : ds_json_refuse(object, "expected the key \"%s\", got none of that name", key);
}

ds_status ds_json_get_string(const char **text, ds_json_value object, const char *key)
{
    ds_json_value value;
    DS_TRY(ds_json_member(&value, object, key));
    return ds_json_string(text, NULL, value);
}

ds_status ds_json_get_boolean(bool *out, ds_json_value object, const char *key)
{
    ds_json_value value;
    DS_TRY(ds_json_member(&value, object, key));
    return ds_json_boolean(out, value);
}

ds_status ds_json_get_integer(int64_t *out, ds_json_value object, const char *key, int64_t low,
                              int64_t high)
{
    ds_json_value value;
    DS_TRY(ds_json_member(&value, object, key));
    return ds_json_integer(out, value, low, high);
}

ds_status ds_json_get_list(ds_json_cursor *cursor, ds_json_value object, const char *key,
                           size_t least, size_t most, const char *what)
{
    ds_json_value list;
    DS_TRY(ds_json_member(&list, object, key));
    DS_TRY(ds_json_enter(cursor, list, DS_JSON_ARRAY));
    const size_t n = ds_json_count(list);
    if (n > most && least == 0)
        return ds_json_refuse(list, "expected at most %zu %s, got %zu", most, what, n);
    return n >= least && n <= most
               ? DS_OK
               : ds_json_refuse(list, "expected %zu to %zu %s, got %zu", least, most, what, n);
}

ds_status ds_json_get_integers(int64_t *numbers, int *n, ds_json_value object, const char *key,
                               size_t least, size_t most, int64_t low)
{
    ds_json_value list;
    DS_TRY(ds_json_member(&list, object, key));
    return ds_json_integers(numbers, n, list, least, most, low);
}

ds_status ds_json_integers(int64_t *numbers, int *n, ds_json_value list, size_t least, size_t most,
                           int64_t low)
{
    ds_json_value value;
    ds_json_cursor at = {0};
    DS_TRY(ds_json_enter(&at, list, DS_JSON_ARRAY));
    const size_t count = ds_json_count(list);
    if (count < least || count > most)
        return ds_json_refuse(list, "expected %zu to %zu integers, got %zu", least, most, count);
    for (*n = 0; ds_json_next(&at, &value); ++*n)
        DS_TRY(ds_json_integer(&numbers[*n], value, low, INT64_MAX));
    return DS_OK;
}
