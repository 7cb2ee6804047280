/* ops/softmax.c: what is computed over the last feature axis of every frame.
 *
 *     softmax      y[..., i] = exp(x[..., i]) / sum_j exp(x[..., j])
 *     log_softmax  its logarithm
 *     glu          in [..., 2 n], out [..., n]:  y = x[..., :n] sigmoid(x[..., n:])
 *
 * Source: torch.softmax, log_softmax, torch.nn.functional.glu. All counts are those of the input. */
#include "ops/framewise.h"
#include "ops/registry.h"

static size_t last_size(const ds_signature *signature)
{
    return (size_t)signature->shape[signature->rank - 1];
}

enum { SOFTMAX, LOG_SOFTMAX };

static void softmax_frames(const ds_op *op, const ds_run *run, void *y, const void *x,
                           size_t n_frames)
{
    const size_t n = last_size(&op->in[0]),
                 n_rows = n_frames * (size_t)ds_signature_elements(&op->in[0]) / n;
    run->k->softmax(y, x, n_rows, n, op->def->member == LOG_SOFTMAX);
}
DS_FRAMEWISE_FORWARD(softmax)

static ds_status glu_infer(ds_op *op)
{
    ds_signature *out = &op->out[0];
    DS_CHECK(out->rank >= 1 && out->shape[out->rank - 1] % 2 == 0, DS_SHAPE,
             "glu: its last feature dimension must be even");
    out->shape[out->rank - 1] /= 2;
    return DS_OK;
}

static void glu_frames(const ds_op *op, const ds_run *run, void *y, const void *x, size_t n_frames)
{
    const size_t n = last_size(&op->out[0]), n_bytes = n * ds_op_element(op);
    const size_t n_rows = n_frames * (size_t)ds_signature_elements(&op->out[0]) / n;
    for (size_t i = 0; i < n_rows; i++) {
        const char *const from = (const char *)x + 2 * i * n_bytes;
        char *const to = (char *)y + i * n_bytes;
        run->k->unary(DS_UNARY_SIGMOID, to, from + n_bytes, n, NULL);
        run->k->binary(DS_BINARY_MUL, to, from, to, n, 1, 1);
    }
}
DS_FRAMEWISE_FORWARD(glu)

#define SOFTMAXES(which)                                                   \
    .member = which, .flags = DS_OP_INPLACE | DS_OP_REAL | DS_OP_FEATURES, \
    .forward = softmax_forward

const ds_op_def ds_op_softmax = {
    DS_OPERATOR_OF(softmax, "Softmax over the last feature dimension.", 1, 1, 1),
    SOFTMAXES(SOFTMAX)};

const ds_op_def ds_op_log_softmax = {
    DS_OPERATOR_OF(log_softmax, "Logarithm of softmax over the last feature dimension.", 1, 1, 1),
    SOFTMAXES(LOG_SOFTMAX)};

const ds_op_def ds_op_glu = {
    DS_OPERATOR(glu, "Half of the last feature dimension, gated by the other half."),
    .flags = DS_OP_REAL};
