/* ops/softmax.c: softmax over the last feature axis, and its logarithm (torch.softmax,
 * torch.log_softmax).
 *
 *     y[..., i] = exp(x[..., i]) / sum_j exp(x[..., j])
 *
 * All counts are those of the input. */
#include "ops/registry.h"

static ds_status infer(ds_op *op)
{
    DS_CHECK(op->in[0].rank >= 1, DS_SHAPE, "%s: its input needs a feature dimension",
             op->def->name);
    return ds_op_require_real(op);
}

static void run_softmax(const ds_op *op, const ds_run *run, int logarithm)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]);
    const size_t last = (size_t)op->in[0].shape[op->in[0].rank - 1];
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 < out->m1) {
            run->k->softmax(out->data, ds_at(&run->in[r], out->m0, n * ds_op_element(op)),
                            (size_t)(out->m1 - out->m0) * (n / last), last, logarithm);
        }
    }
}

static void forward_softmax(const ds_op *op, const ds_run *run)
{
    run_softmax(op, run, 0);
}

static void forward_log_softmax(const ds_op *op, const ds_run *run)
{
    run_softmax(op, run, 1);
}

const ds_op_def ds_op_softmax = {.name = "softmax",
                                 .doc = "Softmax over the last feature dimension.",
                                 .n_inputs = 1,
                                 .n_outputs = 1,
                                 .n_values = 1,
                                 .flags = DS_OP_INPLACE,
                                 .infer = infer,
                                 .forward = forward_softmax};

const ds_op_def ds_op_log_softmax = {.name = "log_softmax",
                                     .doc = "Logarithm of softmax over the last feature dimension.",
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .n_values = 1,
                                     .flags = DS_OP_INPLACE,
                                     .infer = infer,
                                     .forward = forward_log_softmax};
