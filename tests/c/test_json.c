/* codec/json: what is accepted, refused, read, written; failures of memory; locales. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "json_copy.h"
#include "main.h"

/* A copy of its own size on the heap, so that sanitizers see the first byte beyond. */
static ds_status parse_exact(ds_json **json, const ds_allocator *allocator, const char *text,
                             size_t n)
{
    char *copy = malloc(n > 0 ? n : 1);
    CHECK(copy != NULL);
    memcpy(copy, text, n);
    const ds_status status = ds_json_parse(json, allocator, copy, n, 0);
    free(copy);
    return status;
}

static bool same_text(const ds_buffer *buffer, const char *text)
{
    return buffer->n_bytes == strlen(text) && memcmp(buffer->bytes, text, buffer->n_bytes) == 0;
}

/* ---- accepted ------------------------------------------------------------------------------- */

/* text, and what the writer makes of it */
static const char *const accepted[][2] = {
    {"null", "null"},
    {" \t\r\n true \n", "true"},
    {"false", "false"},
    {"0", "0"},
    {"-0", "0"},
    {"-0.0", "-0.0"},
    {"-0e-5", "-0.0"},
    {"9223372036854775807", "9223372036854775807"},
    {"-9223372036854775808", "-9223372036854775808"},
    {"9223372036854775808", "9.223372036854776e+18"},
    {"-9223372036854775809", "-9.223372036854776e+18"},
    {"18446744073709551616", "1.8446744073709552e+19"},
    {"1.0", "1.0"},
    {"1e0", "1.0"},
    {"1E+2", "100.0"},
    {"12.5e-1", "1.25"},
    {"0.1", "0.1"},
    {"1e15", "1000000000000000.0"},
    {"1e16", "1e+16"},
    {"0.0001", "0.0001"},
    {"0.00001", "1e-05"},
    {"1.7976931348623157e308", "1.7976931348623157e+308"},
    {"1.7976931348623158e308", "1.7976931348623157e+308"},
    {"17976931348623157e292", "1.7976931348623157e+308"},
    {"5e-324", "5e-324"},
    {"2.4703282292062328e-324", "5e-324"},
    {"2.4703282292062327e-324", "0.0"},
    {"1e-400", "0.0"},
    {"-1e-999999999999999999999", "-0.0"},
    {"0e999999999999999999999", "0.0"},
    {"2.2250738585072011e-308", "2.225073858507201e-308"}, /* the largest subnormal's neighbour */
    {"9007199254740993.0", "9007199254740992.0"},          /* in the middle: to the even one */
    {"9007199254740993.00000000000000000000000000000000001", "9007199254740994.0"},
    {"9007199254740995.0", "9007199254740996.0"},
    {"\"\"", "\"\""},
    {"\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"a\\\"\\\\/\\b\\f\\n\\r\\t\""},
    {"\"\\u0041\\u00e9\\u20AC\\ud83d\\uDE00\"", "\"A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\""},
    {"\"\\u0000\\u001f\x7F\"", "\"\\u0000\\u001f\x7F\""},
    {"\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\"",
     "\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\""},
    {"[]", "[]"},
    {"[ ]", "[]"},
    {"{}", "{}"},
    {"{ }", "{}"},
    {"[1 , [ 2,[ ]] ,{ }]", "[1,[2,[]],{}]"},
    {"{ \"a\" : 1 , \"b\" : { \"a\" : [ ] } , \"\" : null }",
     "{\"a\":1,\"b\":{\"a\":[]},\"\":null}"},
    {"{\"b\":1,\"a\":2,\"ab\":3,\"\\u0000\":4}", "{\"b\":1,\"a\":2,\"ab\":3,\"\\u0000\":4}"},
};

static void check_round_trip(const char *text, const char *expected)
{
    ds_json *json = NULL;
    CHECK(parse_exact(&json, NULL, text, strlen(text)) == DS_OK);
    ds_buffer first, second;
    ds_buffer_init(&first, NULL);
    ds_buffer_init(&second, NULL);
    CHECK(json_to_text(&first, json) == DS_OK);
    ds_json_free(json);
    CHECK(expected == NULL || same_text(&first, expected));
    CHECK(parse_exact(&json, NULL, (const char *)first.bytes, first.n_bytes) == DS_OK);
    CHECK(json_to_text(&second, json) == DS_OK);
    ds_json_free(json);
    CHECK(first.n_bytes == second.n_bytes && memcmp(first.bytes, second.bytes, first.n_bytes) == 0);
    ds_buffer_free(&first);
    ds_buffer_free(&second);
}

TEST(accepted)
{
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++)
        check_round_trip(accepted[i][0], accepted[i][1]);
}

/* ---- refused -------------------------------------------------------------------------------- */

/* text, and a part of the message */
static const char *const refused[][2] = {
    {"", "byte 0: expected a value, got the end of the text"},
    {"  ", "byte 2: expected a value, got the end"},
    {"nul", "byte 3: expected null, true or false, got the end"},
    {"nulL", "byte 3: expected null, true or false, got 'L'"},
    {"True", "byte 0: expected a value, got 'T'"},
    {"NaN", "expected a value"},
    {"Infinity", "expected a value"},
    {"-Infinity", "byte 1: expected a digit, got 'I'"},
    {"1 2", "byte 2: expected nothing behind the outermost value, got '2'"},
    {"{}x", "byte 2: expected nothing"},
    {"01", "byte 1: expected nothing"},
    {"-", "byte 1: expected a digit, got the end"},
    {"+1", "byte 0: expected a value, got '+'"},
    {".5", "expected a value"},
    {"1.", "byte 2: expected a digit behind the point"},
    {"1.e5", "byte 2: expected a digit behind the point, got 'e'"},
    {"1e", "byte 2: expected a digit of the exponent"},
    {"1e+", "byte 3: expected a digit of the exponent"},
    {"0x10", "byte 1: expected nothing"},
    {"[1e309]", "byte 1: expected a number that a double can hold"},
    {"1.7976931348623159e308", "a double can hold"},
    {"1e99999999999999999999999999", "a double can hold"},
    {"[", "byte 1: expected a value, got the end"},
    {"[1", "byte 2: expected ',' or ']', got the end"},
    {"[1,]", "byte 3: expected a value, got ']'"},
    {"[,1]", "byte 1: expected a value, got ','"},
    {"[1 2]", "byte 3: expected ',' or ']', got '2'"},
    {"[1}", "byte 2: expected ',' or ']', got '}'"},
    {"]", "expected a value"},
    {"{", "byte 1: expected '}' or a key in quotation marks, got the end"},
    {"{a:1}", "byte 1: expected '}' or a key"},
    {"{1:1}", "byte 1: expected '}' or a key"},
    {"{\"a\"}", "byte 4: expected ':' behind a key, got '}'"},
    {"{\"a\":}", "byte 5: expected a value, got '}'"},
    {"{\"a\":1,}", "byte 7: expected a key in quotation marks, got '}'"},
    {"{\"a\":1 \"b\":2}", "byte 7: expected ',' or '}'"},
    {"{\"a\":1]", "byte 6: expected ',' or '}', got ']'"},
    {"{\"a\":1,\"b\":2,\"a\":3}", "byte 13: expected keys that differ, got \"a\" again"},
    {"{\"x\":{\"a\":1,\"\\u0061\":2}}", "byte 12: expected keys that differ, got \"a\" again"},
    {"[1] // x", "byte 4: expected nothing"},
    {"/* */ 1", "byte 0: expected a value, got '/'"},
    {"'a'", "byte 0: expected a value"},
    {"\"a", "byte 2: expected the quotation mark"},
    {"\"a\nb\"", "got the byte 0x0A"},
    {"\"\\", "one of \"\\/bfnrtu behind a backslash, got the end"},
    {"\"\\x\"", "got 'x'"},
    {"\"\\u12g4\"", "byte 5: expected four hexadecimal digits, got 'g'"},
    {"\"\\u12", "byte 5: expected four hexadecimal digits, got the end"},
    {"\"\\ud83d\"", "byte 7: expected a low surrogate"},
    {"\"\\ud83d\\n\"", "byte 7: expected a low surrogate"},
    {"\"\\ud83d\\u0041\"", "byte 9: expected a low surrogate"},
    {"\"\\ude00\"", "byte 3: expected a high surrogate"},
    {"\"\x80\"", "byte 1: expected valid UTF-8, got the byte 0x80"},
    {"\"\xC0\xAF\"", "byte 1: expected valid UTF-8"},         /* overlong */
    {"\"\xE0\x9F\xBF\"", "byte 1: expected valid UTF-8"},     /* overlong */
    {"\"\xF0\x8F\xBF\xBF\"", "byte 1: expected valid UTF-8"}, /* overlong */
    {"\"\xED\xA0\x80\"", "byte 1: expected valid UTF-8"},     /* a surrogate */
    {"\"\xF4\x90\x80\x80\"", "byte 1: expected valid UTF-8"}, /* beyond */
    {"\"\xF8\x88\x80\x80\x80\"", "byte 1: expected valid UTF-8"},
    {"\"\xE2\x82\"", "byte 1: expected valid UTF-8"},
    {"\"\xE2\x82", "byte 1: expected valid UTF-8"},
    {"\xEF\xBB\xBF{}", "byte 0: expected a value"}, /* a byte order mark */
    {"\x0C{}", "byte 0: expected a value, got the byte 0x0C"},
};

TEST(refused)
{
    int something;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        ds_json *json = (ds_json *)&something;
        CHECK(parse_exact(&json, NULL, refused[i][0], strlen(refused[i][0])) == DS_FORMAT);
        CHECK(json == (ds_json *)&something);
        if (strstr(ds_last_error(), refused[i][1]) == NULL) {
            fprintf(stderr, "%s\n  gave %s\n  not %s\n", refused[i][0], ds_last_error(),
                    refused[i][1]);
        }
        CHECK(strstr(ds_last_error(), refused[i][1]) != NULL);
    }
    ds_json *json = NULL;
    CHECK(parse_exact(&json, NULL, "\"a\0b\"", 5) == DS_FORMAT);
    CHECK(ds_json_parse(&json, NULL, "[1}", 3, 1000) == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "byte 1002") != NULL);
    CHECK(ds_json_parse(&json, NULL, NULL, 0, 0) == DS_FORMAT);
}

TEST(limits)
{
    char text[4 * DS_JSON_MAX_DEPTH + 8];
    ds_json *json = NULL;
    for (size_t depth = DS_JSON_MAX_DEPTH; depth <= DS_JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        const ds_status status = parse_exact(&json, NULL, text, 2 * depth);
        CHECK(status == (depth > DS_JSON_MAX_DEPTH ? DS_FORMAT : DS_OK));
        if (status == DS_OK) {
            text[2 * depth] = '\0';
            check_round_trip(text, text);
            ds_json_free(json);
        } else {
            CHECK(strstr(ds_last_error(), "byte 64: expected at most 64 arrays") != NULL);
        }
    }
    const size_t n = (size_t)DS_JSON_MAX_BYTES + 1; /* refused without a look at it */
    CHECK(ds_json_parse(&json, NULL, "[]", n, 0) == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "at most 100000000 bytes") != NULL);
}

static const char sample[] =
    "{\"name\":\"t\\u00e4g\\ud83d\\ude00ger\",\"nodes\":[{\"op\":\"conv1d\",\"stride\":2,"
    "\"pad\":[1,-2.5e-3,[]]},{\"op\":\"x\",\"on\":true,\"off\":false,\"no\":null}],\"n\":1e5}";

TEST(truncated_and_mutated)
{
    const size_t n = strlen(sample);
    check_round_trip(sample, NULL);
    ds_json *json = NULL;
    for (size_t length = 0; length < n; length++)
        CHECK(parse_exact(&json, NULL, sample, length) == DS_FORMAT);
    char text[sizeof sample];
    for (size_t at = 0; at < n; at++) {
        memcpy(text, sample, n);
        for (int byte = 0; byte < 256; byte++) {
            text[at] = (char)byte;
            const ds_status status = parse_exact(&json, NULL, text, n);
            CHECK(status == DS_OK || status == DS_FORMAT);
            if (status == DS_OK)
                ds_json_free(json);
        }
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

TEST(accessors)
{
    ds_json *json = NULL;
    CHECK(ds_json_parse(&json, NULL, sample, strlen(sample), 100) == DS_OK);
    const ds_json_value root = ds_json_root(json);
    ds_json_value nodes, node, value, key;
    CHECK(ds_json_kind_of(root) == DS_JSON_OBJECT && ds_json_count(root) == 3);
    CHECK(ds_json_member(&nodes, root, "nodes") == DS_OK && ds_json_count(nodes) == 2);
    CHECK(ds_json_member(&value, root, "name") == DS_OK && ds_json_count(value) == 0);
    const char *text = NULL;
    size_t n_bytes = 0;
    CHECK(ds_json_string(&text, &n_bytes, value) == DS_OK && n_bytes == 11);
    CHECK(strcmp(text, "t\xC3\xA4g\xF0\x9F\x98\x80ger") == 0);
    CHECK(ds_json_string(&text, NULL, value) == DS_OK);
    double number = 0;
    CHECK(ds_json_member(&value, root, "n") == DS_OK && ds_json_kind_of(value) == DS_JSON_DOUBLE);
    CHECK(ds_json_double(&number, value) == DS_OK && number > 99999 && number < 100001);

    ds_json_cursor at;
    CHECK(ds_json_enter(&at, nodes, DS_JSON_ARRAY) == DS_OK);
    CHECK(ds_json_next(&at, &node));
    CHECK(ds_json_member(&value, node, "stride") == DS_OK);
    int64_t integer = 7;
    CHECK(ds_json_integer(&integer, value, 1, 2) == DS_OK && integer == 2);
    CHECK(ds_json_double(&number, value) == DS_OK && number > 1 && number < 3);
    CHECK(ds_json_integer(&integer, value, 3, 9) == DS_FORMAT && integer == 2);
    CHECK(strcmp(ds_last_error(),
                 "$.nodes[0].stride: expected an integer from 3 to 9, got 2 (byte 167)") == 0);
    bool boolean = true;
    CHECK(ds_json_boolean(&boolean, value) == DS_FORMAT && boolean);
    CHECK(strstr(ds_last_error(), "$.nodes[0].stride: expected true or false, got 2") != NULL);
    CHECK(ds_json_string(&text, &n_bytes, value) == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "expected a string, got 2") != NULL);
    CHECK(ds_json_enter(&at, value, DS_JSON_ARRAY) == DS_FORMAT);
    CHECK(ds_json_enter(&at, value, DS_JSON_OBJECT) == DS_FORMAT);
    CHECK(!ds_json_find(&key, value, "a") && ds_json_member(&key, value, "a") == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "expected an object, got 2") != NULL);
    CHECK(ds_json_member(&value, node, "pads") == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "$.nodes[0]: expected the key \"pads\"") != NULL);
    CHECK(ds_json_member(&value, node, "pad") == DS_OK);

    ds_json_cursor pads;
    CHECK(ds_json_enter(&pads, value, DS_JSON_ARRAY) == DS_OK);
    CHECK(ds_json_next(&pads, &value) && ds_json_next(&pads, &value));
    CHECK(ds_json_integer(&integer, value, INT64_MIN, INT64_MAX) == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "$.nodes[0].pad[1]: expected an integer") != NULL);
    CHECK(strstr(ds_last_error(), "got -0.0025 (byte") != NULL);
    CHECK(ds_json_next(&pads, &value) && !ds_json_next(&pads, &key));
    CHECK(ds_json_enter(&pads, value, DS_JSON_ARRAY) == DS_OK && !ds_json_next(&pads, &value));
    CHECK(ds_json_double(&number, value) == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "$.nodes[0].pad[2]: expected a number, got an array") != NULL);

    CHECK(ds_json_enter(&at, nodes, DS_JSON_ARRAY) == DS_OK && ds_json_next(&at, &node));
    CHECK(ds_json_next(&at, &node) && ds_json_enter(&at, node, DS_JSON_OBJECT) == DS_OK);
    static const char *const keys[] = {"op", "on", "off", "no"};
    for (size_t i = 0; i < 4; i++) {
        CHECK(ds_json_next_member(&at, &key, &value));
        CHECK(ds_json_string(&text, NULL, key) == DS_OK && strcmp(text, keys[i]) == 0);
    }
    CHECK(!ds_json_next_member(&at, &key, &value));
    CHECK(ds_json_kind_of(value) == DS_JSON_NULL);
    CHECK(ds_json_find(&value, node, "on") && ds_json_boolean(&boolean, value) == DS_OK && boolean);
    CHECK(ds_json_find(&value, node, "off") && ds_json_boolean(&boolean, value) == DS_OK &&
          !boolean);
    CHECK(ds_json_only(node, keys, 4) == DS_OK);
    CHECK(ds_json_only(node, keys, 3) == DS_FORMAT);
    CHECK(strstr(ds_last_error(), "$.nodes[1].no: expected no key but known ones, got \"no\"") !=
          NULL);
    CHECK(ds_json_only(nodes, keys, 3) == DS_FORMAT);
    CHECK(ds_json_refuse(root, "bad %s", "luck") == DS_FORMAT);
    CHECK(strcmp(ds_last_error(), "$: bad luck (byte 100)") == 0);
    ds_json_free(json);
    ds_json_free(NULL);
}

/* Messages are one line, of bounded length, whatever the keys are. */
TEST(hostile_paths)
{
    char text[2000] = "";
    size_t n = 0;
    for (int i = 0; i < 8; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"\\n\\u2028\\u0000%0*d\":[0,", 90, i);
    n += (size_t)snprintf(text + n, sizeof text - n, "\"a\\u0000b\"");
    for (int i = 0; i < 8; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "]}");
    ds_json *json = NULL;
    CHECK(parse_exact(&json, NULL, text, n) == DS_OK);
    ds_json_value value = ds_json_root(json), key;
    for (int i = 0; i < 8; i++) {
        ds_json_cursor at;
        CHECK(ds_json_enter(&at, value, DS_JSON_OBJECT) == DS_OK &&
              ds_json_next_member(&at, &key, &value));
        CHECK(ds_json_enter(&at, value, DS_JSON_ARRAY) == DS_OK);
        CHECK(ds_json_next(&at, &value) && ds_json_next(&at, &value));
    }
    const char *string = NULL;
    size_t n_bytes = 0;
    CHECK(ds_json_string(&string, &n_bytes, value) == DS_OK && n_bytes == 3);
    CHECK(ds_json_string(&string, NULL, value) == DS_FORMAT);
    const char *message = ds_last_error();
    CHECK(strstr(message, "expected a string without zero bytes") != NULL);
    CHECK(strpbrk(message, "\n\r") == NULL && strstr(message, "\xE2\x80\xA8") == NULL);
    CHECK(strstr(message, "$.\\x0a\\u2028\\x00000") == message && strstr(message, "...") != NULL);
    ds_json_free(json);
}

/* Many keys: sorted in n log n, looked up, and refused if the last is the first again. */
TEST(many_keys)
{
    enum { N = 50000 };
    char *text = malloc((size_t)N * 16);
    CHECK(text != NULL);
    for (int twice = 0; twice < 2; twice++) {
        size_t n = 0;
        text[n++] = '{';
        for (int i = 0; i < N; i++) {
            const int number = i == N - 1 && twice ? 0 : i;
            n += (size_t)snprintf(text + n, 16, "%s\"%d\":%d", i > 0 ? "," : "", number * 7 % N, i);
        }
        text[n++] = '}';
        ds_json *json = NULL;
        const ds_status status = parse_exact(&json, NULL, text, n);
        CHECK(status == (twice ? DS_FORMAT : DS_OK));
        if (status == DS_OK) {
            ds_json_value value;
            int64_t integer = 0;
            CHECK(ds_json_count(ds_json_root(json)) == N);
            CHECK(ds_json_member(&value, ds_json_root(json), "49993") == DS_OK);
            CHECK(ds_json_integer(&integer, value, 0, N) == DS_OK && integer * 7 % N == 49993);
            ds_json_free(json);
        }
    }
    free(text);
}

/* A locale with a comma, where the system has one. */
TEST(locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (setlocale(LC_ALL, names[i]) != NULL) {
            check_round_trip("[1.5,-2.25e-7,1e300]", "[1.5,-2.25e-07,1e+300]");
            break;
        }
    }
    CHECK(setlocale(LC_ALL, "C") != NULL);
}

/* ---- writing -------------------------------------------------------------------------------- */

static void begin(ds_json_writer *w, ds_buffer *buffer)
{
    buffer->n_bytes = 0;
    ds_json_writer_init(w, buffer);
}

TEST(writer)
{
    ds_buffer buffer;
    ds_buffer_init(&buffer, NULL);
    ds_json_writer w;
    begin(&w, &buffer);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    ds_json_put_open(&w, "a", DS_JSON_ARRAY);
    ds_json_put_integer(&w, NULL, INT64_MIN);
    ds_json_put_double(&w, NULL, 0.1);
    ds_json_put_null(&w, NULL);
    ds_json_put_close(&w);
    ds_json_put_key_bytes(&w, "b\0", 2);
    ds_json_put_string(&w, NULL, "x\"\\\x01");
    ds_json_put_boolean(&w, "c", true);
    ds_json_put_close(&w);
    CHECK(ds_json_writer_finish(&w) == DS_OK);
    CHECK(same_text(&buffer,
                    "{\"a\":[-9223372036854775808,0.1,null],\"b\\u0000\":\"x\\\"\\\\\\u0001\","
                    "\"c\":true}"));

    begin(&w, &buffer);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT); /* nothing was written */
    begin(&w, &buffer);
    ds_json_put_open(&w, NULL, DS_JSON_ARRAY);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT); /* nor closed */
    begin(&w, &buffer);
    ds_json_put_null(&w, NULL);
    ds_json_put_null(&w, NULL);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT && same_text(&buffer, "null"));
    begin(&w, &buffer);
    ds_json_put_close(&w);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT);
    begin(&w, &buffer);
    ds_json_put_key_bytes(&w, "a", 1);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT && buffer.n_bytes == 0);
    begin(&w, &buffer);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    ds_json_put_null(&w, NULL);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT);
    begin(&w, &buffer);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    ds_json_put_key_bytes(&w, "a", 1);
    ds_json_put_key_bytes(&w, "b", 1);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT);
    begin(&w, &buffer);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    ds_json_put_key_bytes(&w, "a", 1);
    ds_json_put_close(&w);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT);
    begin(&w, &buffer);
    ds_json_put_string(&w, NULL, "\xC3");
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT && strstr(ds_last_error(), "UTF-8") != NULL);
    volatile double zero = 0;
    begin(&w, &buffer);
    ds_json_put_double(&w, NULL, 1 / zero);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT);
    begin(&w, &buffer);
    ds_json_put_double(&w, NULL, zero / zero);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT);
    begin(&w, &buffer);
    for (int i = 0; i <= DS_JSON_MAX_DEPTH; i++)
        ds_json_put_open(&w, NULL, DS_JSON_ARRAY);
    CHECK(ds_json_writer_finish(&w) == DS_ARGUMENT && buffer.n_bytes == DS_JSON_MAX_DEPTH);
    ds_buffer_free(&buffer);
}

/* ---- memory --------------------------------------------------------------------------------- */

TEST(no_memory)
{
    count_memory();
    for (size_t nth = 1;; nth++) {
        ds_fault_arm(&fault, nth, false);
        ds_json *json = NULL;
        ds_buffer buffer;
        ds_buffer_init(&buffer, &hooks);
        ds_status status = parse_exact(&json, &hooks, sample, strlen(sample));
        if (status == DS_OK)
            status = json_to_text(&buffer, json);
        ds_json_free(json);
        ds_buffer_free(&buffer);
        CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
        CHECK(status == (ds_fault_failures(&fault) >= nth ? DS_NO_MEMORY : DS_OK));
        if (status == DS_OK) {
            CHECK(nth > 4);
            break;
        }
    }
}
