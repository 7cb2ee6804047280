/* ops/norm_back.h: slopes of what is normalised by its own mean and deviation, or by its root mean square.
 *
 * With h = (x - mean) / deviation and u the slopes of h, over the values of a group:
 *     slopes of x = (u - mean of u - h mean of (u h)) / deviation     without the mean of u where mean is 0 by definition */
#pragma once
#include "ops/back.h"

typedef struct ds_norm {
    size_t n_rows, n,
        groups;   /* rows of n channels that are normalised together, by groups of neighbours */
    bool by_root; /* the root mean square */
    double eps;
    const void *weight; /* [n]; NULL: 1 */
} ds_norm;

/* Adds to dx (NULL: not wanted), and to sums for the weight's and the bias's slopes (NULL), in double. */
void ds_norm_back(const ds_norm *norm, void *dx, double *dweight, double *dbias, const void *g,
                  const void *x, size_t element);

/* Sums of the slopes of weight 0 and of weight 1, n each, zero at first, in scratch, which has room for 2 n doubles; NULL
 * where they are not wanted. And what adds them to these slopes. */
void ds_norm_begin_sums(const ds_op *op, const ds_back *b, size_t n, double *sums_of[2]);
void ds_norm_add_sums(const ds_back *b, size_t n, double *const sums_of[2]);
