/* base/status, and the version: messages, macros, threads. */
#include "main.h"

static ds_status positive(int n)
{
    DS_CHECK(n > 0, DS_SHAPE, "n must be positive, got %d", n);
    return DS_OK;
}

static ds_status two(int a, int b)
{
    DS_TRY(positive(a));
    DS_TRY(positive(b));
    return DS_OK;
}

static ds_status never(int n)
{
    DS_ASSERT(n == 0);
    return DS_OK;
}

static void *fails_elsewhere(void *unused)
{
    (void)unused;
    CHECK(strcmp(ds_last_error(), "") == 0);
    CHECK(ds_fail(DS_BUSY, "elsewhere") == DS_BUSY);
    CHECK(strcmp(ds_last_error(), "elsewhere") == 0);
    return NULL;
}

TEST(names)
{
    static const char *const names[] = {
        "DS_OK",        "DS_SHAPE",    "DS_DTYPE",          "DS_FORMAT",
        "DS_STREAM_ID", "DS_MISMATCH", "DS_NOT_STREAMABLE", "DS_BUSY",
        "DS_LIMIT",     "DS_MODE",     "DS_CLOSED",         "DS_NO_MEMORY",
        "DS_CAPTURE",   "DS_INTERNAL", "DS_ARGUMENT",       "DS_INDEX"};
    for (int i = 0; i < 16; i++)
        CHECK(strcmp(ds_status_name((ds_status)i), names[i]) == 0);
    CHECK(strcmp(ds_status_name((ds_status)16), "DS_UNKNOWN") == 0);
    CHECK(strcmp(ds_version(), DS_VERSION_STRING) == 0);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", DS_VERSION_MAJOR, DS_VERSION_MINOR,
             DS_VERSION_PATCH);
    CHECK(strcmp(version, DS_VERSION_STRING) == 0);
}

TEST(macros)
{
    CHECK(two(1, 1) == DS_OK);
    CHECK(strcmp(ds_last_error(), "") == 0);
    CHECK(two(1, -3) == DS_SHAPE);
    CHECK(strcmp(ds_last_error(), "n must be positive, got -3") == 0);
    CHECK(two(1, 1) == DS_OK); /* success leaves the message alone */
    CHECK(strcmp(ds_last_error(), "n must be positive, got -3") == 0);
    CHECK(never(0) == DS_OK);
    CHECK(never(1) == DS_INTERNAL);
    CHECK(strstr(ds_last_error(), "test_status.c:") != NULL);
    CHECK(strstr(ds_last_error(), "n == 0") != NULL);
}

TEST(long_messages)
{
    /* a message may quote the former one, again and again */
    ds_fail(DS_SHAPE, "inner");
    CHECK(ds_fail(DS_SHAPE, "outer: %s", ds_last_error()) == DS_SHAPE);
    CHECK(strcmp(ds_last_error(), "outer: inner") == 0);
    for (int i = 0; i < 300; i++)
        ds_fail(DS_SHAPE, "%d %s", i % 10, ds_last_error());
    CHECK(strlen(ds_last_error()) == DS_MESSAGE_BYTES - 1);

    /* cut at every place within characters of 1 to 4 bytes, never in the middle of one; "..." says so */
    static const char *const characters[] = {"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x8E\xA4"};
    for (size_t width = 1; width <= 4; width++) {
        for (size_t shift = 0; shift < 8; shift++) {
            char text[700];
            size_t n = 0;
            while (n < shift)
                text[n++] = 'x';
            while (n + width < sizeof text) {
                memcpy(text + n, characters[width - 1], width);
                n += width;
            }
            text[n] = '\0';
            ds_fail(DS_FORMAT, "%s", text);
            const size_t length = strlen(ds_last_error());
            CHECK(length == shift + (DS_MESSAGE_BYTES - 4 - shift) / width * width + 3);
            CHECK(memcmp(ds_last_error(), text, length - 3) == 0);
            CHECK(strcmp(ds_last_error() + length - 3, "...") == 0);
        }
    }
    /* bytes that are no UTF-8 do no harm */
    char broken[700];
    memset(broken, 0x80, sizeof broken);
    broken[sizeof broken - 1] = '\0';
    ds_fail(DS_FORMAT, "%s", broken);
    CHECK(strlen(ds_last_error()) <= DS_MESSAGE_BYTES - 1);
    CHECK(strncmp(ds_last_error(), "\\x80\\x80", 8) == 0);
    /* what just fits is whole */
    ds_fail(DS_FORMAT, "%*s\xC3\xA9", DS_MESSAGE_BYTES - 3, "");
    CHECK(strlen(ds_last_error()) == DS_MESSAGE_BYTES - 1);
}

/* What a message quotes can't move a terminal's cursor, begin a line or turn the direction of writing. */
TEST(quoted_names)
{
    ds_fail(DS_FORMAT, "tensor \"%s\": no",
            "a\x1b[2J\nb\r\t\x7f\xC2\x9B\xE2\x80\xAE\xFF\xC3\xA9\\");
    CHECK(strcmp(ds_last_error(), "tensor \"a\\x1b[2J\\x0ab\\x0d\\x09\\x7f\\x9b\\u202e\\xff"
                                  "\xC3\xA9\\\": no") == 0);
    ds_fail(DS_FORMAT, "%s", ds_last_error()); /* once is enough */
    CHECK(strstr(ds_last_error(), "\"a\\x1b[2J\\x0ab") != NULL);
    char full[DS_MESSAGE_BYTES * 2]; /* escapes that don't fit are left out whole */
    for (size_t n = DS_MESSAGE_BYTES - 20; n < DS_MESSAGE_BYTES + 4; n++) {
        memset(full, 'x', n);
        strcpy(full + n, "\x1b\x1b\x1b\x1b");
        ds_fail(DS_FORMAT, "%s", full);
        const char *end = ds_last_error() + strspn(ds_last_error(), "x");
        while (strncmp(end, "\\x1b", 4) == 0)
            end += 4;
        CHECK(strlen(ds_last_error()) < DS_MESSAGE_BYTES);
        CHECK(strcmp(end, n < DS_MESSAGE_BYTES - 16 ? "" : "...") == 0);
    }
}

TEST(threads)
{
    ds_fail(DS_SHAPE, "here");
    in_parallel(4, fails_elsewhere, fails_elsewhere, NULL, 0);
    CHECK(strcmp(ds_last_error(), "here") == 0);
}

/* Rows 1 and 3 of four fail: both are marked, the first one's message stands. */
TEST(first_fault)
{
    ds_first_fault first = {.status = DS_OK};
    bool bad[4] = {true, false, false, false}; /* row 0 was bad before */
    CHECK(ds_fail(DS_LIMIT, "older") == DS_LIMIT);
    CHECK(!ds_first_fault_note(&first, DS_OK, &bad[0]) && ds_first_fault_end(&first) == DS_OK);
    CHECK(strcmp(ds_last_error(), "older") == 0);
    for (int r = 1; r < 4; r++) {
        const ds_status status =
            r == 2 ? DS_OK : ds_fail(r == 1 ? DS_SHAPE : DS_INDEX, "row %d", r);
        CHECK(ds_first_fault_note(&first, status, &bad[r]) == (r != 2));
    }
    CHECK(ds_first_fault_note(&first, DS_BUSY, NULL));
    CHECK(bad[0] && bad[1] && !bad[2] && bad[3]);
    CHECK(strcmp(ds_last_error(), "row 3") == 0);
    CHECK(ds_first_fault_end(&first) == DS_SHAPE && strcmp(ds_last_error(), "row 1") == 0);
}
