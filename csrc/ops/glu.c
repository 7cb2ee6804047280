/* ops/glu.c: gated linear unit over the last feature axis (torch.nn.functional.glu).
 *
 *     in [..., 2 n], out [..., n]:  y = x[..., :n] sigmoid(x[..., n:])
 *
 * All counts are those of the input. */
#include "ops/registry.h"

static ds_status infer(ds_op *op)
{
    ds_signature *out = &op->out[0];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(out->rank >= 1 && out->shape[out->rank - 1] % 2 == 0, DS_SHAPE,
             "glu: its last feature dimension must be even");
    out->shape[out->rank - 1] /= 2;
    return DS_OK;
}

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)op->out[0].shape[op->out[0].rank - 1];
    const size_t n_bytes = n * ds_op_element(op);
    const size_t per_frame = ds_signature_bytes(&op->out[0]) / n_bytes;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m1 <= out->m0) {
            continue;
        }
        const char *x = ds_at(&run->in[r], out->m0, 2 * per_frame * n_bytes);
        char *y = out->data;
        for (size_t i = 0; i < (size_t)(out->m1 - out->m0) * per_frame; i++) {
            run->k->unary(DS_UNARY_SIGMOID, y, x + n_bytes, n, NULL);
            run->k->binary(DS_BINARY_MUL, y, x, y, n, 1, 1);
            x += 2 * n_bytes;
            y += n_bytes;
        }
    }
}

const ds_op_def ds_op_glu = {.name = "glu",
                             .doc = "Half of the last feature dimension, gated by the other half.",
                             .n_inputs = 1,
                             .n_outputs = 1,
                             .n_values = 1,
                             .infer = infer,
                             .forward = forward};
