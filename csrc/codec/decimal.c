/* Doubles as decimal text, by strtod and printf, which round correctly, in the thread's direction.
 *
 * Their point is the locale's, so neither is shown one, nor asked where it stands: what strtod
 * reads is an integer with an exponent. Of a number's digits it gets MOST_DIGITS; if any other
 * behind them is not zero, one more, a 1, stands for all of these. That rounds alike: only the
 * sides of doubles and of the middles between two matter, and none of those has as many digits (768
 * at most).
 *
 * The C locale of C's own isn't used: no printf of Linux takes a locale, uselocale needs newlocale,
 * which takes memory from elsewhere and may fail, Windows has neither; and a text is neither ended by
 * a zero nor of any length. */
#include "codec/decimal.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIGITS 780

/* Where the decimal point may be, counted from the first digit, before all is infinite or zero. */
#define HIGHEST_POINT 310
#define LOWEST_POINT (-330)

/* What the text says: 0.digits * 10^point. */
typedef struct parts {
    char digits[MOST_DIGITS + 32]; /* room for an exponent behind them */
    size_t n_digits;               /* the first is not 0; of none: the number is zero */
    int64_t point;
} parts;

/* The size of the exponent is limited to what no text could make good. */
static int64_t read_exponent(const char *text, size_t n_bytes)
{
    int64_t exponent = 0;
    bool minus = false;
    for (size_t at = 0; at < n_bytes; at++) {
        if (text[at] == '-' || text[at] == '+')
            minus = text[at] == '-';
        else if (exponent < INT64_C(1) << 58)
            exponent = exponent * 10 + (text[at] - '0');
    }
    return minus ? -exponent : exponent;
}

static void take_apart(parts *out, const char *text, size_t n_bytes)
{
    out->n_digits = 0;
    out->point = 0; /* zeros in front of the first digit, behind the point, count down */
    bool fraction = false, more = false;
    size_t at = n_bytes > 0 && text[0] == '-';
    for (; at < n_bytes && text[at] != 'e' && text[at] != 'E'; at++) {
        const bool is_zero = text[at] == '0';
        if (text[at] == '.') {
            fraction = true;
        } else if (out->n_digits == 0 && is_zero) {
            out->point -= fraction;
        } else {
            out->point += !fraction;
            if (out->n_digits < MOST_DIGITS)
                out->digits[out->n_digits++] = text[at];
            else
                more = more || !is_zero;
        }
    }
    if (more)
        out->digits[out->n_digits++] = '1';
    if (at < n_bytes)
        out->point += read_exponent(text + at + 1, n_bytes - at - 1);
}

/* The double nearest to digits * 10^exponent; there is room for the exponent behind the digits. */
static double nearest(char *digits, size_t n_digits, int exponent)
{
    (void)snprintf(digits + n_digits, 16, "e%d", exponent);
    const int callers = fegetround();
    (void)fesetround(FE_TONEAREST);
    const double value = strtod(digits, NULL);
    (void)fesetround(callers);
    return value;
}

bool ds_decimal_read(double *value, const char *text, size_t n_bytes)
{
    parts number;
    double size = 0;
    take_apart(&number, text, n_bytes);
    if (number.n_digits > 0 && number.point > LOWEST_POINT) {
        if (number.point > HIGHEST_POINT)
            return false;
        size = nearest(number.digits, number.n_digits, (int)number.point - (int)number.n_digits);
    }
    if (isinf(size))
        return false;
    *value = n_bytes > 0 && text[0] == '-' ? -size : size;
    return true;
}

/* Fills `digits` with the first `n` digits of value > 0; returns the first one's exponent of 10. */
static int print_digits(char *digits, int n, double value)
{
    char text[DS_DECIMAL_BYTES * 2];
    const int callers = fegetround();
    (void)fesetround(FE_TONEAREST);
    (void)snprintf(text, sizeof text, "%.*e", n - 1, value);
    (void)fesetround(callers);
    const char *exponent = strchr(text, 'e');
    int n_found = 0;
    for (const char *at = text; at < exponent && n_found < n; at++) {
        if (*at >= '0' && *at <= '9') /* else it is of the locale's point */
            digits[n_found++] = *at;
    }
    return atoi(exponent + 1);
}

/* Fills `text` with the number digits[0].digits[1]... * 10^exponent; returns the bytes. */
static size_t put_together(char *text, bool negative, const char *digits, int n, int exponent)
{
    const bool scientific = exponent < -4 || exponent >= 16;
    const int point = scientific ? 0 : exponent; /* behind the digit that stands for 10^exponent */
    size_t used = 0;
    if (negative)
        text[used++] = '-';
    /* behind the point one digit at least, but where an exponent follows */
    const int last = n - 1 > point + !scientific ? n - 1 : point + !scientific;
    for (int i = point < 0 ? point : 0; i <= last; i++) {
        text[used++] = i >= 0 && i < n ? digits[i] : '0';
        if (i == point && i < last)
            text[used++] = '.';
    }
    if (scientific)
        return used + (size_t)snprintf(text + used, 8, "e%+03d", exponent);
    text[used] = '\0';
    return used;
}

/* Compared as bits: the caller's environment may take small numbers for zero. */
static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

size_t ds_decimal_write(char text[DS_DECIMAL_BYTES], double value)
{
    char digits[DS_DECIMAL_BYTES * 2] = "0";
    const bool negative = signbit(value) != 0;
    const double size = fabs(value);
    if (same_double(size, 0))
        return put_together(text, negative, digits, 1, 0);
    /* Up to 15 digits survive the way through a normal double: zeros behind them show. */
    for (int n = size >= DBL_MIN ? 15 : 1;; n++) {
        const int exponent = print_digits(digits, n, size);
        int n_kept = n;
        while (n_kept > 1 && digits[n_kept - 1] == '0')
            n_kept--;
        if (n == 17 || same_double(nearest(digits, (size_t)n, exponent - n + 1), size))
            return put_together(text, negative, digits, n_kept, exponent);
    }
}
