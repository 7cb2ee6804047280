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
