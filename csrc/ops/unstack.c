/* ops/unstack.c: the first feature axis laid out along the stream (a view of (L, k F) as (L k, F)).
 *
 *     in [k][f...], out [f...]:  y[p k + i] = x[p][i]
 *
 *     known  k known      total  k total      need  floor(m / k) */
#include "ops/frames.h"
#include "ops/registry.h"

static ds_status infer(ds_op *op)
{
    ds_signature *out = &op->out[0];
    DS_CHECK(out->rank >= 1, DS_SHAPE, "unstack: its input needs a feature dimension");
    out->rank--;
    for (int d = 0; d < out->rank; d++) {
        out->shape[d] = op->in[0].shape[d + 1];
    }
    DS_CHECK(ds_rate_scale(&out->rate, op->in[0].shape[0], 1), DS_ARGUMENT,
             "unstack: its rate overflows");
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_known(p, 0), op->in[0].shape[0]));
    ds_root(p, ds_mul_k(p, ds_total(p, 0), op->in[0].shape[0]));
}

static void need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_floordiv_k(p, ds_m(p), op->in[0].shape[0]));
}

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->out[0]);
    const int64_t k = op->in[0].shape[0];
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 < out->m1) {
            const char *in = ds_at(&run->in[r], out->m0 / k, (size_t)k * n_bytes);
            ds_frames_copy(out->data, in + (size_t)(out->m0 % k) * n_bytes,
                           (size_t)(out->m1 - out->m0) * n_bytes);
        }
    }
}

const ds_op_def ds_op_unstack = {
    .name = "unstack",
    .doc = "Lays the first feature dimension out along the stream: k frames for each.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .infer = infer,
    .counts = counts,
    .need = need,
    .forward = forward};
