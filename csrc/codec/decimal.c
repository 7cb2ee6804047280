/*
 * Doubles as decimal text.
 *
 * Reading: text = D * 10^e with an integer D. It is brought to a quotient of integers
 *
 *     D * 10^e = (N / M) * 2^x,   N = D * 5^e, M = 1, x = e   if e >= 0
 *                                 N = D, M = 5^-e, x = e      else
 *
 * whose first 64 bits come out of a long division; they and whether anything was left over decide the
 * rounding. Of D, MOST_DIGITS digits are looked at; if any other digit behind them is not zero, one
 * more, a 1, stands for all of these. That rounds alike: only the sides of doubles and of the middles
 * between two matter, and none of those has as many digits (768 at most).
 *
 * Writing: printf's digits, as many as it takes until they read back.
 */
#include "codec/decimal.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MOST_DIGITS 780
#define LIMBS 128 /* 4096 bits: 5^1130 and 10^781 need fewer than 2660, their shifts a few more */

/* Where the decimal point may be, counted from the first digit, before all is infinite or zero. */
#define HIGHEST_POINT 310
#define LOWEST_POINT (-330)

/* A natural number: limbs[0] is the lowest, limbs[n - 1] is not 0. */
typedef struct big {
    size_t n;
    uint32_t limbs[LIMBS];
} big;

/* number = number * factor + term */
static void big_multiply(big *number, uint32_t factor, uint32_t term)
{
    uint64_t carry = term;
    for (size_t i = 0; i < number->n; i++) {
        carry += (uint64_t)number->limbs[i] * factor;
        number->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry > 0 && number->n < LIMBS)
        number->limbs[number->n++] = (uint32_t)carry;
}

static void big_multiply_power_of_5(big *number, uint32_t exponent)
{
    for (; exponent >= 13; exponent -= 13) {
        big_multiply(number, 1220703125, 0); /* 5^13, the last below 2^32 */
    }
    for (; exponent > 0; exponent--)
        big_multiply(number, 5, 0);
}

static int big_bits(const big *number)
{
    if (number->n == 0)
        return 0;
    int bits = (int)(number->n - 1) * 32;
    for (uint32_t top = number->limbs[number->n - 1]; top > 0; top >>= 1)
        bits++;
    return bits;
}

static void big_shift_left(big *number, int n_bits)
{
    const size_t n_limbs = (size_t)n_bits / 32;
    big_multiply(number, UINT32_C(1) << (n_bits % 32), 0);
    if (n_limbs > 0 && number->n > 0 && number->n + n_limbs <= LIMBS) {
        memmove(number->limbs + n_limbs, number->limbs, number->n * sizeof number->limbs[0]);
        memset(number->limbs, 0, n_limbs * sizeof number->limbs[0]);
        number->n += n_limbs;
    }
}

static bool big_at_least(const big *a, const big *b)
{
    if (a->n != b->n)
        return a->n > b->n;
    for (size_t i = a->n; i-- > 0;) {
        if (a->limbs[i] != b->limbs[i])
            return a->limbs[i] > b->limbs[i];
    }
    return true;
}

/* a -= b, where a >= b */
static void big_subtract(big *a, const big *b)
{
    uint32_t borrow = 0;
    for (size_t i = 0; i < a->n; i++) {
        const uint64_t taken = (uint64_t)(i < b->n ? b->limbs[i] : 0) + borrow;
        borrow = a->limbs[i] < taken;
        a->limbs[i] = (uint32_t)(a->limbs[i] - taken);
    }
    while (a->n > 0 && a->limbs[a->n - 1] == 0)
        a->n--;
}

/* What the text says: digits * 10^exponent. */
typedef struct parts {
    bool negative;
    big digits;    /* of none: the number is zero */
    int64_t point; /* the point stands behind that many digits */
    int64_t exponent;
} parts;

/* Takes the text apart; the size of its exponent is limited to what no text could make good. */
static void take_apart(parts *out, const char *text, size_t n_bytes)
{
    size_t at = 0;
    out->negative = n_bytes > 0 && text[0] == '-';
    at += out->negative;
    out->digits.n = 0;
    int64_t n_digits = 0; /* from the first that is not zero */
    int64_t n_used = 0;
    int64_t n_integer = 0; /* of n_digits, before the point; leading zeros behind it count down */
    bool fraction = false, more = false;
    for (; at < n_bytes && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.') {
            fraction = true;
            continue;
        }
        const uint32_t digit = (uint32_t)(text[at] - '0');
        if (n_digits == 0 && digit == 0) {
            n_integer -= fraction;
            continue;
        }
        n_digits++;
        n_integer += !fraction;
        if (n_used == MOST_DIGITS) {
            more = more || digit != 0;
        } else {
            if (out->digits.n == 0) {
                out->digits.n = 1;
                out->digits.limbs[0] = digit;
            } else {
                big_multiply(&out->digits, 10, digit);
            }
            n_used++;
        }
    }
    if (more) {
        big_multiply(&out->digits, 10, 1);
        n_used++;
    }
    int64_t written = 0;
    bool minus = false;
    for (at++; at < n_bytes; at++) {
        if (text[at] == '-' || text[at] == '+')
            minus = text[at] == '-';
        else if (written < INT64_C(1) << 58)
            written = written * 10 + (text[at] - '0');
    }
    out->point = n_integer + (minus ? -written : written);
    out->exponent = out->point - n_used;
}

/*
 * Fills `*bits` with the first 64 bits of n / m (the highest is 1), `*rest` with whether anything is
 * left; returns the exponent of 2 that they are multiplied by.
 */
static int divide(uint64_t *bits, bool *rest, big *n, big *m)
{
    int shift = big_bits(n) - big_bits(m);
    if (shift < 0)
        big_shift_left(n, -shift);
    else
        big_shift_left(m, shift);
    if (!big_at_least(n, m)) {
        big_shift_left(n, 1);
        shift--;
    }
    uint64_t quotient = 0;
    for (int i = 0; i < 64; i++) { /* here n < 2 m */
        const bool bit = big_at_least(n, m);
        if (bit)
            big_subtract(n, m);
        quotient = quotient << 1 | bit;
        big_shift_left(n, 1);
    }
    *bits = quotient;
    *rest = n->n > 0;
    return shift - 63;
}

/* Rounds bits * 2^exponent, and `rest` behind the bits, to a double's pattern without its sign. */
static uint64_t round_to_double(uint64_t bits, bool rest, int exponent)
{
    int dropped = 64 - 53;
    if (exponent + dropped < -1074) { /* subnormal: fewer bits are kept */
        dropped = -1074 - exponent;
    }
    if (dropped > 64) {
        return 0; /* less than half of the smallest */
    }
    uint64_t kept = dropped == 64 ? 0 : bits >> dropped;
    const uint64_t half = UINT64_C(1) << (dropped - 1);
    const uint64_t tail = bits & (half | (half - 1));
    if (tail > half || (tail == half && (rest || (kept & 1) != 0)))
        kept++;
    /* The exponent's field is added, not set: a carry out of the fraction moves it up as it should. */
    const uint64_t field = (uint64_t)(exponent + dropped + 1074);
    return kept + (field << 52);
}

bool ds_decimal_read(double *value, const char *text, size_t n_bytes)
{
    parts number;
    take_apart(&number, text, n_bytes);
    uint64_t pattern = 0;
    if (number.digits.n > 0 && number.point > LOWEST_POINT) {
        if (number.point > HIGHEST_POINT)
            return false;
        const int exponent = (int)number.exponent;
        big divisor = {1, {1}};
        big_multiply_power_of_5(exponent < 0 ? &divisor : &number.digits,
                                (uint32_t)(exponent < 0 ? -exponent : exponent));
        uint64_t bits = 0;
        bool rest = false;
        const int power = divide(&bits, &rest, &number.digits, &divisor) + exponent;
        if (power + 63 > 1023)
            return false;
        pattern = round_to_double(bits, rest, power);
        if (pattern >> 52 == 0x7FF)
            return false;
    }
    pattern |= (uint64_t)number.negative << 63;
    memcpy(value, &pattern, sizeof *value);
    return true;
}

/* Fills `digits` with the first `n` digits of |value| > 0; returns the exponent of 10 of the first. */
static int print_digits(char *digits, int n, double value)
{
    char text[DS_DECIMAL_BYTES * 2];
    (void)snprintf(text, sizeof text, "%.*e", n - 1, value);
    int n_found = 0, exponent = 0;
    const char *at = text;
    for (; *at != 'e' && *at != '\0'; at++) { /* between them a sign, and the locale's point */
        if (*at >= '0' && *at <= '9' && n_found < n)
            digits[n_found++] = *at;
    }
    const bool minus = at[0] == 'e' && at[1] == '-';
    for (; *at != '\0'; at++) {
        if (*at >= '0' && *at <= '9')
            exponent = exponent * 10 + (*at - '0');
    }
    return minus ? -exponent : exponent;
}

/* Fills `text` with the number digits[0].digits[1]... * 10^exponent; returns the bytes. */
static size_t put_together(char *text, bool negative, const char *digits, int n, int exponent)
{
    size_t used = 0;
    if (negative)
        text[used++] = '-';
    if (exponent < -4 || exponent >= 16) {
        const unsigned size = (unsigned)(exponent < 0 ? -exponent : exponent);
        text[used++] = digits[0];
        if (n > 1)
            text[used++] = '.';
        for (int i = 1; i < n; i++)
            text[used++] = digits[i];
        text[used++] = 'e';
        text[used++] = exponent < 0 ? '-' : '+';
        if (size >= 100)
            text[used++] = (char)('0' + size / 100);
        text[used++] = (char)('0' + size / 10 % 10);
        text[used++] = (char)('0' + size % 10);
    } else {
        /* digit i stands for 10^(exponent - i); one at least stands behind the point */
        const int last = n - 1 > exponent + 1 ? n - 1 : exponent + 1;
        for (int i = exponent < 0 ? exponent : 0; i <= last; i++) {
            text[used++] = i >= 0 && i < n ? digits[i] : '0';
            if (i == exponent)
                text[used++] = '.';
        }
    }
    text[used] = '\0';
    return used;
}

size_t ds_decimal_write(char text[DS_DECIMAL_BYTES], double value)
{
    uint64_t pattern = 0;
    memcpy(&pattern, &value, sizeof pattern);
    const bool negative = pattern >> 63 != 0;
    char digits[17] = "0";
    if (pattern << 1 == 0)
        return put_together(text, negative, digits, 1, 0);
    /* Numbers of up to 15 digits survive the way through a normal double: zeros behind them show. */
    size_t used = 0;
    for (int n = fabs(value) >= DBL_MIN ? 15 : 1; n <= 17; n++) {
        const int exponent = print_digits(digits, n, value);
        int n_kept = n;
        while (n_kept > 1 && digits[n_kept - 1] == '0')
            n_kept--;
        used = put_together(text, negative, digits, n_kept, exponent);
        double again = 0;
        uint64_t read = 0;
        if (ds_decimal_read(&again, text, used)) {
            memcpy(&read, &again, sizeof read);
            if (read == pattern)
                break;
        }
    }
    return used;
}
