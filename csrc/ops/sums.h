/* ops/sums.h: sums of frames in double, for operators that average, overlap or weigh.
 *
 * Whoever adds frames in a fixed order, and rounds once, gives the same bits however the stream was cut. */
#pragma once
#include "ops/op.h"

/* sum[i] = x[i], x of type float or double. */
void ds_sums_set(double *sum, const void *x, size_t n, ds_dtype dtype);
/* sum[i] += x[i] */
void ds_sums_add(double *sum, const void *x, size_t n, ds_dtype dtype);
/* y[i] = sum[i] / divisor, rounded to y's type. */
void ds_sums_write(void *y, const double *sum, size_t n, double divisor, ds_dtype dtype);

/* Element i of reals of so many bytes. */
static inline double ds_sums_real(const void *x, size_t element, size_t i)
{
    return element == sizeof(float) ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static inline void ds_sums_set_real(void *x, size_t element, size_t i, double value)
{
    if (element == sizeof(float))
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

/* Scores that are weighed at a time, of frames of n. */
static inline size_t ds_sums_weigh_block(size_t n)
{
    enum { BESIDE = 256 };
    return n < BESIDE ? BESIDE / n * n : n;
}
enum { DS_SUMS_WEIGH_BYTES = 4 * sizeof(double) /* scratch, per score of a block */ };

/* So many more frames of n scores, of the kernels' type, at most a block: the largest so far, and sums of
 * exp(score - largest), which a larger one scales. Scratch begins with the block's weights of all these scores, and
 * behind a block what the sums before each were scaled by. */
void ds_sums_weigh(const ds_real_kernels *k, double *largest, double *sums, const void *scores,
                   size_t n, size_t n_frames, double *scratch);

/* How many neighbours reduce_features adds to each sum of reals; 0: it does something else, or another operator does. */
size_t ds_op_row_sums(const ds_op *op);
