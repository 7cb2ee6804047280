/* ops/framewise.h: what operators share that see every frame by itself: a walk over rows, and checks for infer. */
#pragma once
#include <math.h>

#include "ops/sums.h"

/* What every definition says, and most: one input, whose values are read, and one output; functions by the
 * operator's name. */
#define DS_OPERATOR_OF(op, text, inputs, outputs, values) \
    .name = #op, .doc = text, .n_inputs = inputs, .n_outputs = outputs, .n_values = values
#define DS_OPERATOR(op, text) \
    DS_OPERATOR_OF(op, text, 1, 1, 1), .infer = op##_infer, .forward = op##_forward

/* Functions of one name that come together. */
#define DS_COUNTED(name) .counts = name##_counts, .need = name##_need
#define DS_CHECKED(name) .check = name##_check, .fail_check = name##_fail_check
#define DS_PREPARED(name) .prepared_bytes = name##_prepared_bytes, .prepare = name##_prepare

/* The forward `name_forward`: `name_frames(op, run, f)` for every row that has frames; y[0] may be x[0] where the
 * operator says so. */
#define DS_FRAMEWISE_FORWARD(name)                                 \
    static void name##_forward(const ds_op *op, const ds_run *run) \
    {                                                              \
        ds_frames f;                                               \
        for (f.next = 0; ds_next_frames(op, run, &f);)             \
            name##_frames(op, run, &f);                            \
    }

/* Weight i, where it is present, has exactly this shape. */
static inline ds_status ds_require_optional(const ds_op *op, int i, const char *name, int rank,
                                            const int64_t *shape)
{
    return ds_op_has_weight(op, i) ? ds_op_require_weight(op, i, name, rank, shape) : DS_OK;
}

/* Output 0 has as many frames as times / by of input 0's; DS_LIMIT where its rate overflows. */
static inline ds_status ds_scale_rate(ds_op *op, int64_t times, int64_t by)
{
    DS_CHECK(ds_rate_scale(&op->out[0].rate, times, by), DS_LIMIT, "%s: the rate overflows",
             op->def->name);
    return DS_OK;
}

/* n numbers of so many bytes: what follows of an index that is computed, and wrong. */
static inline void ds_fill_nan(void *y, size_t n, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        ds_sums_set_real(y, bytes, i, (double)NAN);
}

/* Output 0 lacks the first of the dimensions that the signature has. */
static inline void ds_drop_first(ds_op *op, const ds_signature *of)
{
    op->out[0].rank = of->rank - 1;
    for (int d = 1; d < of->rank; d++)
        op->out[0].shape[d - 1] = of->shape[d];
}

/* Elements from one index of feature dimension d to the next. */
static inline int64_t ds_signature_stride(const ds_signature *signature, int d)
{
    int64_t stride = 1;
    for (int e = d + 1; e < signature->rank; e++)
        stride *= signature->shape[e];
    return stride;
}

/* The same along dimension d of a shape of `rank` dimensions to which this one is broadcast, aligned at the right:
 * 0 where it is repeated. */
static inline int64_t ds_broadcast_stride(const ds_signature *signature, int rank, int d)
{
    const int own = d - (rank - signature->rank);
    return own < 0 || signature->shape[own] == 1 ? 0 : ds_signature_stride(signature, own);
}
