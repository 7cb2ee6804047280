/* ops/fold.h: values folded one by one, per feature: of frames (reduce_frames.c), and within each frame; their slopes
 * (fold_back.c). */
#pragma once
#include <math.h>

#include "ops/back.h"
#include "ops/framewise.h"

enum { DS_FOLD_KIND /* the first attribute */ };
enum {
    DS_FOLD_SUM,
    DS_FOLD_MEAN,
    DS_FOLD_MAX,
    DS_FOLD_MIN,
    DS_FOLD_PROD,
    DS_FOLD_LOGSUMEXP,
    DS_FOLD_ARGMAX,
    DS_FOLD_ARGMIN
};

/* Whether a product so far has met a 0: cumulative gives a NaN that has a sign. */
static inline bool ds_fold_met_zero(double product)
{
    return product == 0 || (product != product && signbit(product));
}

/* The backward of reduce_frames and cumulative. */
void ds_fold_backward(const ds_op *op, const ds_back *b);
/* Slopes of running folds of n values, of `inner` features beside each other, in each of n_rows rows; dx NULL: not
 * wanted. Scratch: n doubles. */
void ds_fold_within_slopes(const ds_op *op, const ds_back *b, void *dx, const void *g,
                           const void *x, size_t n_rows, size_t n, size_t inner);
