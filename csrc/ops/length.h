/* ops/length.h: functions of a stream's length, as operators take them.
 *
 * A function is a list of steps (+ c, * c, // c), coded as ds_length_function says. It grows with
 * the length: * and // take constants of at least 1. */
#ifndef DS_OPS_LENGTH_H
#define DS_OPS_LENGTH_H
#include "ops/op.h"

typedef struct ds_length {
    int64_t mul, div; /* products of the constants of * and of //: the change of the rate */
} ds_length;

/* Checks attribute `attr` as such a function and fills what follows from it. DS_ARGUMENT. */
ds_status ds_length_read(const ds_op *op, int attr, ds_length *length);

/* The rate of f(x.size(L)) frames for an x of `rate`. DS_ARGUMENT where it overflows. */
ds_status ds_length_rate(const ds_op *op, const ds_length *length, ds_rate *rate);

#endif
