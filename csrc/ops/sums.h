/* ops/sums.h: sums of frames in double, for operators that average or overlap.
 *
 * Whoever adds frames in a fixed order, and rounds once, gives the same bits however the stream was cut. */
#ifndef DS_OPS_SUMS_H
#define DS_OPS_SUMS_H
#include "ops/op.h"

/* sum[i] = x[i], x of type float or double. */
void ds_sums_set(double *sum, const void *x, size_t n, ds_dtype dtype);
/* sum[i] += x[i] */
void ds_sums_add(double *sum, const void *x, size_t n, ds_dtype dtype);
/* y[i] = sum[i] / divisor, rounded to y's type. */
void ds_sums_write(void *y, const double *sum, size_t n, double divisor, ds_dtype dtype);

#endif
