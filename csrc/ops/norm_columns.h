/* ops/norm_columns.h: what every channel is moved and scaled by, for norms whose channels stand last.
 *
 *     y = ((x - mean) - rest) * scale + shift        per channel (kernels.h, column_scale)
 *
 * Four arrays of n channels of the operator's real type, one behind the other. Factors are computed in
 * double and rounded once. */
#ifndef DS_OPS_NORM_COLUMNS_H
#define DS_OPS_NORM_COLUMNS_H
#include "ops/op.h"

enum { DS_NORM_COLUMNS = 4 }; /* arrays */

/* Element i of an array of reals; `absent` where the array is NULL. */
double ds_norm_get(const void *array, size_t element, size_t i, double absent);

/* Channel i of n has this mean and deviation and, where they are given, weight and bias. */
void ds_norm_columns_set(void *columns, size_t n, size_t element, size_t i, double mean,
                         double deviation, const void *weight, const void *bias);

/* Applies them to rows of n channels; y may be x. */
void ds_norm_columns_apply(const void *columns, size_t n, const ds_real_kernels *k, void *y,
                           const void *x, size_t n_rows);

#endif
