/* ops/linear.c: y = x W^T + b over the last feature axis.
 *
 *     y[f][..., n] = sum over k of x[f][..., k] * weight[n][k]  (+ bias[n])
 *
 * in [..., K], weight [N][K], bias? [N], out [..., N]; frame in, frame out. One product over all
 * frames of all streams, each vector of K elements being one row by pointer.
 *
 * Source: torch.nn.functional.linear. */
#include "ops/fused.h"
#include "ops/packed.h"

enum { WEIGHT, BIAS };

/* Vectors of K elements in one frame. */
static size_t linear_vectors(const ds_op *op)
{
    size_t n = 1;
    for (int i = 0; i + 1 < op->in[0].rank; i++)
        n *= (size_t)op->in[0].shape[i];
    return n;
}

static ds_status linear_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    char text[128];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(in->rank >= 1, DS_SHAPE,
             "linear: expected an input of shape (..., in_features), got ()");
    DS_CHECK(weight->rank == 2 && weight->shape[0] >= 1 && weight->shape[1] >= 1, DS_SHAPE,
             "linear: its weight 'weight' must have shape (out_features, in_features), got %s",
             ds_signature_text(weight, text, sizeof text));
    const int64_t n_in = weight->shape[1], n_out = weight->shape[0];
    DS_CHECK(in->shape[in->rank - 1] == n_in, DS_SHAPE,
             "linear: expected an input of shape (..., %lld), got %s", (long long)n_in,
             ds_signature_text(in, text, sizeof text));
    if (ds_op_has_weight(op, BIAS))
        DS_TRY(ds_op_require_weight(op, BIAS, "bias", 1, &n_out));

    size_t most = 0, room = 1;
    DS_TRY(ds_packed_check(&most, (size_t)n_out, (size_t)n_in, ds_op_element(op)));
    for (int i = 0; i + 1 < in->rank; i++)
        DS_TRY(ds_size_mul(&room, room, (size_t)in->shape[i]));
    DS_TRY(ds_size_mul(&op->scratch.per_out, room, 2 * sizeof(void *)));
    op->out[0].shape[in->rank - 1] = n_out;
    op->finishes = DS_FINISHES_STEPS | DS_FINISHES_GLU;
    return DS_OK;
}

static size_t linear_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const int64_t *shape = op->weight[WEIGHT].shape;
    return ds_packed_bytes(k, (size_t)shape[0], (size_t)shape[1]);
}

static void linear_prepare(const ds_op *op, void *prepared, const void *const *weights,
                           const ds_real_kernels *k)
{
    const int64_t *shape = op->weight[WEIGHT].shape;
    ds_packed_rows(k, prepared, weights[WEIGHT], (size_t)shape[0], (size_t)shape[1],
                   ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL);
}

static void linear_forward(const ds_op *op, const ds_run *run)
{
    const size_t element = ds_op_element(op);
    const size_t n_out = (size_t)op->out[0].shape[op->out[0].rank - 1];
    const size_t n_in = (size_t)op->weight[WEIGHT].shape[1];
    const size_t per_frame = linear_vectors(op);
    void **y = run->scratch, *const behind_y = y + (size_t)run->frames_out * per_frame;
    const void **x = behind_y;
    size_t n = 0;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        if (out->m1 <= out->m0)
            continue;
        const char *from = ds_at(&run->in[row], out->m0, per_frame * n_in * element);
        char *to = out->data;
        const size_t n_vectors = (size_t)(out->m1 - out->m0) * per_frame;
        for (size_t i = 0; i < n_vectors; i++, n++) {
            y[n] = to + i * n_out * element;
            x[n] = from + i * n_in * element;
        }
    }
    if (n > 0) {
        ds_product p = {.weight = run->prepared, .y = y, .x = x, .n_rows = n};
        ds_run_product(run, &p, 0);
    }
}

const ds_op_def ds_op_linear = {
    .name = "linear",
    .doc = "y = x W^T + b over the last feature axis",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .weights = "weight bias?",
    .infer = linear_infer,
    .prepared_bytes = linear_prepared_bytes,
    .prepare = linear_prepare,
    .forward = linear_forward,
};
