/* JSON: text to tree, in one pass. It recurses, DS_JSON_MAX_DEPTH deep at most. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/decimal.h"
#include "codec/json_tree.h"
#include "codec/sort.h"

typedef struct parser {
    ds_json *json;
    const char *text;
    size_t n_bytes, at;
    size_t depth;    /* arrays and objects that the text is within */
    ds_buffer order; /* scratch: key nodes of an object that was closed */
} parser;

/* ---- messages ------------------------------------------------------------------------------- */
/* Refuses what is at byte `at`. */
static ds_status refuse(const parser *p, size_t at, const char *expected)
{
    const size_t place = p->json->first_byte + at;
    if (at >= p->n_bytes) {
        return ds_fail(DS_FORMAT, "JSON, byte %zu: expected %s, got the end of the text", place,
                       expected);
    }
    const size_t length = ds_utf8_length(p->text + at, p->n_bytes - at);
    if (length == 0 || (unsigned char)p->text[at] < 0x20 || p->text[at] == 0x7F) {
        return ds_fail(DS_FORMAT, "JSON, byte %zu: expected %s, got the byte 0x%02X", place,
                       expected, (unsigned)(unsigned char)p->text[at]);
    }
    char shown[DS_UTF8_SHOWN_BYTES];
    return ds_fail(DS_FORMAT, "JSON, byte %zu: expected %s, got '%s'", place, expected,
                   ds_utf8_show(shown, sizeof shown, p->text + at, length));
}

/* ---- pieces --------------------------------------------------------------------------------- */
/* The byte at which the parser stands; 0 at the end. */
static char next(const parser *p)
{
    return p->at < p->n_bytes ? p->text[p->at] : '\0';
}

static bool next_is_digit(const parser *p)
{
    return next(p) >= '0' && next(p) <= '9';
}

static void skip_space(parser *p)
{
    while (next(p) == ' ' || next(p) == '\n' || next(p) == '\r' || next(p) == '\t')
        p->at++;
}

/* So far; no more than the text has bytes. */
static uint32_t n_nodes(const parser *p)
{
    return (uint32_t)(p->json->nodes.n_bytes / sizeof(ds_json_node));
}

/* Adds a node that begins at byte `at`. */
static ds_status add_node(parser *p, size_t at, ds_json_node node)
{
    node.at = (uint32_t)at;
    return ds_buffer_append(&p->json->nodes, &node, sizeof node);
}

static ds_status parse_word(parser *p, const char *word, ds_json_node node)
{
    const size_t length = strlen(word);
    for (size_t i = 0; i < length; i++) {
        if (p->at + i >= p->n_bytes || p->text[p->at + i] != word[i])
            return refuse(p, p->at + i, "null, true or false");
    }
    p->at += length;
    return add_node(p, p->at - length, node);
}

static ds_status skip_digits(parser *p, const char *expected)
{
    if (!next_is_digit(p))
        return refuse(p, p->at, expected);
    while (next_is_digit(p))
        p->at++;
    return DS_OK;
}

/* Fills `*value` with the integer text[0..n); returns false if it doesn't fit. */
static bool read_integer(int64_t *value, const char *text, size_t n_bytes)
{
    char copy[24] = ""; /* the longest that fit have 20 bytes */
    if (n_bytes >= sizeof copy)
        return false;
    memcpy(copy, text, n_bytes);
    errno = 0;
    *value = strtoll(copy, NULL, 10);
    return errno == 0;
}

static ds_status parse_number(parser *p)
{
    const size_t first = p->at;
    ds_json_node node = {.kind = DS_JSON_INTEGER};
    p->at += next(p) == '-';
    if (next(p) == '0')
        p->at++;
    else
        DS_TRY(skip_digits(p, "a digit"));
    if (next(p) == '.') {
        node.kind = DS_JSON_DOUBLE;
        p->at++;
        DS_TRY(skip_digits(p, "a digit behind the point"));
    }
    if (next(p) == 'e' || next(p) == 'E') {
        node.kind = DS_JSON_DOUBLE;
        p->at++;
        p->at += next(p) == '-' || next(p) == '+';
        DS_TRY(skip_digits(p, "a digit of the exponent"));
    }
    const char *text = p->text + first;
    const size_t length = p->at - first;
    if (node.kind == DS_JSON_DOUBLE || !read_integer(&node.as.integer, text, length)) {
        node.kind = DS_JSON_DOUBLE;
        if (!ds_decimal_read(&node.as.number, text, length)) {
            return ds_fail(DS_FORMAT,
                           "JSON, byte %zu: expected a number that a double can hold, got one "
                           "beyond",
                           p->json->first_byte + first);
        }
    }
    return add_node(p, first, node);
}

/* ---- strings -------------------------------------------------------------------------------- */
/* Reads the four hexadecimal digits at `p->at`. */
static ds_status parse_hex(parser *p, uint32_t *code)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const char *digit = next(p) != '\0' ? strchr(digits, next(p)) : NULL;
        if (digit == NULL)
            return refuse(p, p->at, "four hexadecimal digits");
        const uint32_t value = (uint32_t)(digit - digits);
        *code = *code << 4 | (value < 16 ? value : value - 6);
        p->at++;
    }
    return DS_OK;
}

/* Reads what follows a backslash; `text` gets the character, `*length` its bytes. */
static ds_status parse_escape(parser *p, char text[4], size_t *length)
{
    static const char names[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char c = next(p);
    const char *name = c != '\0' ? strchr(names, c) : NULL;
    *length = 1;
    if (name != NULL) {
        text[0] = meanings[name - names];
        p->at++;
        return DS_OK;
    }
    if (c != 'u')
        return refuse(p, p->at, "one of \"\\/bfnrtu behind a backslash");
    p->at++;
    const size_t first = p->at;
    uint32_t code = 0;
    DS_TRY(parse_hex(p, &code));
    if (code >= 0xDC00 && code <= 0xDFFF)
        return refuse(p, first, "a high surrogate before a low one");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (next(p) != '\\' || p->at + 1 >= p->n_bytes || p->text[p->at + 1] != 'u')
            return refuse(p, p->at, "a low surrogate (\\uDC00 to \\uDFFF) behind a high one");
        p->at += 2;
        const size_t second = p->at;
        uint32_t low = 0;
        DS_TRY(parse_hex(p, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return refuse(p, second, "a low surrogate (DC00 to DFFF) behind a high one");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    *length = ds_utf8_encode(text, code);
    return DS_OK;
}

/* Reads a string, at its quotation mark, into a node of its own. */
static ds_status parse_string(parser *p)
{
    const size_t first = p->at;
    ds_buffer *pool = &p->json->pool;
    const size_t start = pool->n_bytes;
    for (p->at++; next(p) != '"';) {
        size_t end = p->at; /* a run of plain characters is copied as a whole */
        while (end < p->n_bytes && p->text[end] != '"' && p->text[end] != '\\' &&
               (unsigned char)p->text[end] >= 0x20) {
            const size_t length = ds_utf8_length(p->text + end, p->n_bytes - end);
            if (length == 0)
                return refuse(p, end, "valid UTF-8");
            end += length;
        }
        DS_TRY(ds_buffer_append(pool, p->text + p->at, end - p->at));
        p->at = end;
        if (next(p) == '\\') {
            p->at++;
            char text[4];
            size_t length = 0;
            DS_TRY(parse_escape(p, text, &length));
            DS_TRY(ds_buffer_append(pool, text, length));
        } else if (next(p) != '"') {
            return refuse(p, p->at,
                          "the quotation mark that ends a string (control characters as \\u)");
        }
    }
    p->at++;
    const ds_json_node node = {
        .kind = DS_JSON_STRING,
        .as.string = {(uint32_t)start, (uint32_t)(pool->n_bytes - start)},
    };
    DS_TRY(ds_buffer_append(pool, "", 1));
    return add_node(p, first, node);
}

/* ---- arrays and objects --------------------------------------------------------------------- */
/* In any order that brings equal ones together. */
static int compare_strings(const void *context, uint32_t a, uint32_t b)
{
    const ds_json *json = context;
    const ds_json_node *one = ds_json_nodes(json) + a, *other = ds_json_nodes(json) + b;
    if (one->as.string.n_bytes != other->as.string.n_bytes)
        return one->as.string.n_bytes < other->as.string.n_bytes ? -1 : 1;
    return memcmp(ds_json_text(json, one), ds_json_text(json, other), one->as.string.n_bytes);
}

/* Refuses the object `index`, whose members are complete, if a key stands in it twice. */
static ds_status check_keys(parser *p, uint32_t index)
{
    const ds_json_node *nodes = ds_json_nodes(p->json);
    const size_t n = nodes[index].as.parts.count;
    p->order.n_bytes = 0;
    DS_TRY(ds_buffer_reserve(&p->order, n * sizeof(uint32_t)));
    uint32_t *order = (uint32_t *)(void *)p->order.bytes;
    uint32_t key = index + 1;
    for (size_t i = 0; i < n; i++) {
        order[i] = key;
        key = ds_json_end(nodes, key + 1);
    }
    ds_sort_indices(order, n, compare_strings, p->json);
    for (size_t i = 1; i < n; i++) {
        if (compare_strings(p->json, order[i - 1], order[i]) == 0) {
            const ds_json_node *twice = nodes + order[i];
            char shown[DS_UTF8_SHOWN_BYTES];
            return ds_fail(DS_FORMAT, "JSON, byte %zu: expected keys that differ, got \"%s\" again",
                           p->json->first_byte + twice->at,
                           ds_utf8_show(shown, sizeof shown, ds_json_text(p->json, twice),
                                        twice->as.string.n_bytes));
        }
    }
    return DS_OK;
}

/* Reads a key and its colon. */
static ds_status parse_key(parser *p, const char *expected)
{
    skip_space(p);
    if (next(p) != '"')
        return refuse(p, p->at, expected);
    DS_TRY(parse_string(p));
    skip_space(p);
    if (next(p) != ':')
        return refuse(p, p->at, "':' behind a key");
    p->at++;
    return DS_OK;
}

static ds_status parse_value(parser *p);

/* Reads what stands between brackets, of an object or an array, and the closing one. */
static ds_status parse_parts(parser *p, bool object, uint32_t *count)
{
    const char closing = object ? '}' : ']';
    p->at++;
    skip_space(p);
    for (bool more = next(p) != closing; more; p->at += more) {
        if (object)
            DS_TRY(parse_key(p, *count == 0 ? "'}' or a key in quotation marks"
                                            : "a key in quotation marks"));
        DS_TRY(parse_value(p));
        ++*count;
        skip_space(p);
        more = next(p) == ',';
    }
    if (next(p) != closing)
        return refuse(p, p->at, object ? "',' or '}'" : "',' or ']'");
    p->at++;
    return DS_OK;
}

static ds_status parse_brackets(parser *p)
{
    const bool object = p->text[p->at] == '{';
    if (p->depth == DS_JSON_MAX_DEPTH) {
        return ds_fail(DS_FORMAT,
                       "JSON, byte %zu: expected at most %d arrays and objects within each other",
                       p->json->first_byte + p->at, DS_JSON_MAX_DEPTH);
    }
    const uint32_t index = n_nodes(p);
    uint32_t count = 0;
    DS_TRY(add_node(p, p->at, (ds_json_node){.kind = object ? DS_JSON_OBJECT : DS_JSON_ARRAY}));
    p->depth++;
    DS_TRY(parse_parts(p, object, &count));
    p->depth--;
    ds_json_node *node = ds_json_nodes(p->json) + index;
    node->as.parts.count = count;
    node->as.parts.end = n_nodes(p);
    return object ? check_keys(p, index) : DS_OK;
}

static ds_status parse_value(parser *p)
{
    skip_space(p);
    const char c = next(p);
    switch (c) {
    case '{':
    case '[':
        return parse_brackets(p);
    case '"':
        return parse_string(p);
    case 'n':
        return parse_word(p, "null", (ds_json_node){.kind = DS_JSON_NULL});
    case 't':
        return parse_word(p, "true", (ds_json_node){.kind = DS_JSON_BOOLEAN, .as.boolean = true});
    case 'f':
        return parse_word(p, "false", (ds_json_node){.kind = DS_JSON_BOOLEAN});
    default:
        return c == '-' || next_is_digit(p) ? parse_number(p) : refuse(p, p->at, "a value");
    }
}

static ds_status parse_text(parser *p)
{
    DS_CHECK(p->n_bytes <= DS_JSON_MAX_BYTES, DS_FORMAT,
             "JSON, byte %zu: expected at most %u bytes of text, got %zu", p->json->first_byte,
             DS_JSON_MAX_BYTES, p->n_bytes);
    DS_TRY(parse_value(p));
    skip_space(p);
    return p->at == p->n_bytes ? DS_OK : refuse(p, p->at, "nothing behind the outermost value");
}

ds_status ds_json_parse(ds_json **json, const ds_allocator *allocator, const char *text,
                        size_t n_bytes, size_t first_byte)
{
    ds_json *made;
    DS_TRY(ds_allocate(allocator, (void **)&made, sizeof *made));
    made->first_byte = first_byte;
    ds_buffer_init(&made->nodes, allocator);
    ds_buffer_init(&made->pool, allocator);
    parser p = {.json = made, .text = text, .n_bytes = n_bytes};
    ds_buffer_init(&p.order, allocator);
    const ds_status status = parse_text(&p);
    ds_buffer_free(&p.order);
    DS_TRY_ELSE(status, ds_json_free(made));
    *json = made;
    return DS_OK;
}

void ds_json_free(ds_json *json)
{
    if (json != NULL) {
        const ds_allocator hooks = json->nodes.allocator;
        ds_buffer_free(&json->nodes);
        ds_buffer_free(&json->pool);
        ds_release(&hooks, json, sizeof *json);
    }
}
