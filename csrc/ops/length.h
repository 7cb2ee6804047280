/* ops/length.h: functions of a stream's length, as attributes of operators.
 *
 * A function is a list of steps (+ c, * c, // c, max c), coded as ds_length_function says. It grows with the length:
 * * and // take constants of at least 1. */
#pragma once
#include "ops/framewise.h"

#define DS_LENGTH_ATTR(title) \
    {title, DS_ATTR_INTS,     \
     .doc = "the function, in pairs: 0 c adds, 1 c multiplies, 2 c divides, 5 c is at least c"}

/* Checks attribute `attr` as such a function f; *rate becomes that of f(x.size(L)) frames for an x of this rate. */
ds_status ds_length_rate(const ds_op *op, int attr, ds_rate *rate);
/* The same where input 0 is brought to f of input 1's length, what: "cut". DS_MISMATCH where the rates differ. */
ds_status ds_length_of_rate(const ds_op *op, int attr, const char *what);
/* Counts: as many frames as attribute 0 makes of input 0's total, all known as soon as that is. */
void ds_length_counts(const ds_op *op, ds_program *p);
/* f of an input's total. */
ds_expr ds_length_of(const ds_op *op, int attr, ds_program *p, int input);
