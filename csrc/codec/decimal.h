/* Doubles as decimal text, whatever the locale and the thread's rounding: read with correct
 * rounding, written with as few correctly rounded digits as read back as the same double. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Room that ds_decimal_write needs. */
#define DS_DECIMAL_BYTES 32

/* Fills `*value` with the double nearest to `text`, ties to the even one. `text` is a number as
 * JSON spells it, of any length: -?digits[.digits][(e|E)[+|-]digits]. What is too small gives a
 * zero with its sign. Returns false, `*value` untouched, if what is nearest would be infinite. */
bool ds_decimal_read(double *value, const char *text, size_t n_bytes);
/* Fills `text` with the finite `value`, ended by a zero; returns the bytes without it. It always
 * has a point or an exponent: "1.0", "-0.0", "0.0001", "1e-05", "1e+16". */
size_t ds_decimal_write(char text[DS_DECIMAL_BYTES], double value);
