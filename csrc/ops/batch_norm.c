/* ops/batch_norm.c: every channel moved and scaled by statistics that are known beforehand.
 *
 *     y = (x - running_mean) / sqrt(running_var + eps) * weight + bias        per channel
 *
 * in [..., C]: channels last; running_mean, running_var, weight? and bias? [C]; out as in; frame in,
 * frame out, in place where it can be. A channel's factor is computed in double and rounded once.
 *
 * Source: torch.nn.functional.batch_norm with training=False. */
#include <math.h>

#include "ops/norm_columns.h"
#include "ops/packed.h"

enum { EPS };
enum { MEAN, VARIANCE, WEIGHT, BIAS };

static const ds_attr_def attrs[] = {
    {.name = "eps", .kind = DS_ATTR_REAL, .x = 1e-5, .doc = "added to the variance"},
    {.name = NULL},
};

static size_t channels(const ds_op *op)
{
    return (size_t)op->in[0].shape[op->in[0].rank - 1];
}

static ds_status infer(ds_op *op)
{
    static const char *const names[] = {"running_mean", "running_var", "weight", "bias"};
    const ds_signature *in = &op->in[0];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(in->rank >= 1, DS_SHAPE, "batch_norm: expected an input of shape (..., channels), got ()");
    DS_CHECK(op->attr[EPS].x >= 0, DS_ARGUMENT, "batch_norm: eps must be at least 0, got %g",
             op->attr[EPS].x);
    for (int i = MEAN; i <= BIAS; i++) {
        if (i <= VARIANCE || ds_op_has_weight(op, i)) {
            DS_TRY(ds_op_require_weight(op, i, names[i], 1, &in->shape[in->rank - 1]));
        }
    }
    size_t n_bytes;
    return ds_size_mul(&n_bytes, channels(op), DS_NORM_COLUMNS * ds_op_element(op));
}

static size_t prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return channels(op) * DS_NORM_COLUMNS * k->element;
}

static void prepare(const ds_op *op, void *prepared, const void *const *weights,
                    const ds_real_kernels *k)
{
    const size_t n = channels(op), element = k->element;
    for (size_t i = 0; i < n; i++) {
        const double variance = ds_norm_get(weights[VARIANCE], element, i, 1);
        ds_norm_columns_set(prepared, n, element, i, ds_norm_get(weights[MEAN], element, i, 0),
                            sqrt(variance + op->attr[EPS].x),
                            ds_op_has_weight(op, WEIGHT) ? weights[WEIGHT] : NULL,
                            ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL);
    }
}

static void forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0];
    const size_t n = channels(op), per_frame = (size_t)ds_signature_elements(in) / n;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        if (out->m1 > out->m0) {
            ds_norm_columns_apply(run->prepared, n, run->k, out->data,
                                  ds_at(&run->in[row], out->m0, ds_signature_bytes(in)),
                                  (size_t)(out->m1 - out->m0) * per_frame);
        }
    }
}

const ds_op_def ds_op_batch_norm = {
    .name = "batch_norm",
    .doc = "every channel normalised by statistics that are constants",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_INPLACE,
    .attrs = attrs,
    .weights = "running_mean running_var weight? bias?",
    .infer = infer,
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .forward = forward,
};
