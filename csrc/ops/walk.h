/* ops/walk.h: visits a contiguous result together with operands that are given by strides.
 *
 * A walk is a list of dimensions, outermost first, each with a stride per operand, in elements; 0
 * repeats an operand (broadcasting). Dimensions that continue each other are joined when they are
 * added, so that equal shapes come out as one run. The visitor gets the longest runs along which
 * all strides are constant. */
#ifndef DS_OPS_WALK_H
#define DS_OPS_WALK_H
#include "batch/value.h"

enum { DS_WALK_OPERANDS = 3, DS_WALK_RANK = DS_MAX_RANK + 1 /* frames */ };

typedef struct ds_walk {
    int n_operands, rank;
    int64_t shape[DS_WALK_RANK];
    int64_t stride[DS_WALK_RANK][DS_WALK_OPERANDS];
} ds_walk;

/* n elements from y on (contiguous); operand i has them at x[i], step[i] elements apart. */
typedef void (*ds_walk_visit)(const void *context, void *y, const void *const *x, size_t n,
                              const size_t *step);

/* Adds the next inner dimension; size >= 1. */
void ds_walk_add(ds_walk *walk, int64_t size, const int64_t *stride);

/* Visits all runs in order. y_bytes, x_bytes: sizes of elements. */
void ds_walk_run(const ds_walk *walk, void *y, size_t y_bytes, const void *const *x,
                 const size_t *x_bytes, ds_walk_visit visit, const void *context);

#endif
