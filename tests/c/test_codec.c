/* codec: decimal numbers, UTF-8, sorting, the growing buffer. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "codec/buffer.h"
#include "codec/decimal.h"
#include "codec/sort.h"
#include "main.h"

/* ---- numbers -------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Against the C library, in the locale "C"; every double reads back as itself. */
TEST(random_numbers)
{
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        uint64_t pattern = next_random(&state);
        if (i % 8 == 0) /* a power of 2: doubles are nearer to it below than above */
            pattern &= UINT64_C(0xFFF) << 52;
        else if (i % 8 == 1) /* subnormal */
            pattern &= ~(UINT64_C(0x7FF) << 52);
        double value = 0, again = 0;
        memcpy(&value, &pattern, sizeof value);
        if (pattern << 1 >= UINT64_C(0x7FF) << 53)
            continue;
        char text[DS_DECIMAL_BYTES], longer[1200];
        const size_t n = ds_decimal_write(text, value);
        CHECK(n == strlen(text) && n < 26);
        CHECK(ds_decimal_read(&again, text, n) && memcmp(&again, &value, sizeof value) == 0);
        const double expected = strtod(text, NULL);
        CHECK(memcmp(&expected, &value, sizeof value) == 0);
        /* digits of any number, near doubles and near the middles between them */
        const int digits = (int)(next_random(&state) % (i % 50 == 0 ? 1000 : 25));
        const int length = snprintf(longer, sizeof longer, "%.*e", digits, value);
        const double nearest = strtod(longer, NULL);
        if (ds_decimal_read(&again, longer, (size_t)length))
            CHECK(memcmp(&again, &nearest, sizeof again) == 0);
        else
            CHECK(nearest > 1.7e308 || nearest < -1.7e308);
    }
}

/* The exact middle of two doubles, then the same with one digit far behind. */
TEST(middles)
{
    uint64_t state = 2463534242u;
    for (int i = 0; i < 2000; i++) {
        const uint64_t odd = (next_random(&state) >> 11 | UINT64_C(1) << 52) * 2 + 1;
        const int exponent = (int)(next_random(&state) % 100) - 150;
        double low = (double)(odd >> 1), high = low + 1;
        for (int k = 0; k > exponent; k--) {
            low /= 2;
            high /= 2;
        }
        /* odd * 2^(exponent - 1), in decimal: odd * 5^-(exponent - 1), as many places behind the point */
        char digits[800], text[1700];
        size_t n = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)odd);
        for (int k = 0; k < 1 - exponent; k++) {
            unsigned carry = 0;
            for (size_t d = n; d-- > 0;) {
                carry += (unsigned)(digits[d] - '0') * 5;
                digits[d] = (char)('0' + carry % 10);
                carry /= 10;
            }
            if (carry > 0) {
                memmove(digits + 1, digits, n + 1);
                digits[0] = (char)('0' + carry);
                n++;
            }
        }
        double value = 0;
        const bool low_is_even = (odd >> 1) % 2 == 0;
        size_t length = (size_t)snprintf(text, sizeof text, "%se%d", digits, exponent - 1);
        CHECK(ds_decimal_read(&value, text, length));
        CHECK(memcmp(&value, low_is_even ? &low : &high, sizeof value) == 0);
        length = (size_t)snprintf(text, sizeof text, "%s.%0*de%d", digits, 850, 1, exponent - 1);
        CHECK(ds_decimal_read(&value, text, length) && memcmp(&value, &high, sizeof value) == 0);
        length = (size_t)snprintf(text, sizeof text, "%s.%0*de%d", digits, 850, 0, exponent - 1);
        CHECK(ds_decimal_read(&value, text, length));
        CHECK(memcmp(&value, low_is_even ? &low : &high, sizeof value) == 0);
    }
}

TEST(long_numbers)
{
    enum { N = 100000 };
    char *text = malloc(N + 64);
    CHECK(text != NULL);
    double value = 0;
    text[0] = '0';
    text[1] = '.';
    memset(text + 2, '0', N);
    size_t n = 2 + N + (size_t)snprintf(text + 2 + N, 32, "15e%d", N);
    CHECK(ds_decimal_read(&value, text, n) && value > 0.1499 && value < 0.1501);
    memset(text, '9', N);
    n = N + (size_t)snprintf(text + N, 32, "e-%d", N);
    CHECK(ds_decimal_read(&value, text, n) && value > 0.9999999999999999);
    CHECK(!ds_decimal_read(&value, text, N));
    free(text);
}

/* ---- the others ------------------------------------------------------------------------------ */

TEST(shown_text)
{
    char shown[DS_UTF8_SHOWN_BYTES];
    CHECK(strcmp(ds_utf8_show(shown, sizeof shown, "", 0), "") == 0);
    CHECK(strcmp(ds_utf8_show(shown, sizeof shown, "a\n\0\x7F\xC2\x85\xFF\xC3\xA4\xF3\xA0\x80\x81",
                              13),
                 "a\\x0a\\x00\\x7f\\x85\\xff\xC3\xA4\\U000e0001") == 0);
    char text[200];
    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'x', n);
        ds_utf8_show(shown, sizeof shown, text, n);
        CHECK(strlen(shown) == (n < DS_UTF8_SHOWN_BYTES ? n : DS_UTF8_SHOWN_BYTES - 1));
    }
    for (uint32_t code = 0; code <= 0x110000; code += code < 0x3000 ? 1 : 97) {
        char bytes[4];
        const size_t n = ds_utf8_encode(bytes, code);
        const bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
        CHECK(ds_utf8_length(bytes, n) == (valid ? n : 0));
        CHECK(n == 1 || ds_utf8_length(bytes, n - 1) == 0);
    }
}

static int compare_numbers(const void *context, uint32_t a, uint32_t b)
{
    const int *numbers = context;
    return (numbers[a] > numbers[b]) - (numbers[a] < numbers[b]);
}

TEST(sort)
{
    uint64_t state = 17;
    for (size_t n = 0; n < 200; n++) {
        int numbers[200] = {0};
        uint32_t order[200] = {0};
        for (size_t i = 0; i < n; i++) {
            numbers[i] = (int)(next_random(&state) % (n < 100 ? 10 : 1000));
            order[i] = (uint32_t)(n - 1 - i);
        }
        ds_sort_indices(order, n, compare_numbers, numbers);
        for (size_t i = 1; i < n; i++) {
            const int one = numbers[order[i - 1]], next = numbers[order[i]];
            CHECK(one < next || (one == next && order[i - 1] < order[i]));
        }
    }
}

TEST(buffer)
{
    count_memory();
    ds_buffer buffer;
    ds_buffer_init(&buffer, &hooks);
    CHECK(ds_buffer_append(&buffer, NULL, 0) == DS_OK && ds_fault_calls(&fault) == 0);
    for (unsigned i = 0; i < 5000; i++) {
        const unsigned char byte = (unsigned char)(i * 7);
        CHECK(ds_buffer_append(&buffer, &byte, 1) == DS_OK);
    }
    CHECK(buffer.n_bytes == 5000 && ds_fault_calls(&fault) < 10);
    volatile size_t huge = SIZE_MAX;
    CHECK(ds_buffer_reserve(&buffer, huge) == DS_NO_MEMORY);
    CHECK(ds_buffer_reserve(&buffer, huge / 2 - 4999) == DS_NO_MEMORY);
    ds_fault_arm(&fault, 1, false);
    CHECK(ds_buffer_reserve(&buffer, 100000) == DS_NO_MEMORY && buffer.n_bytes == 5000);
    for (unsigned i = 0; i < 5000; i++)
        CHECK(buffer.bytes[i] == (unsigned char)(i * 7));
    ds_buffer_free(&buffer);
    CHECK(ds_fault_live_blocks(&fault) == 0 && buffer.n_bytes == 0);
}
