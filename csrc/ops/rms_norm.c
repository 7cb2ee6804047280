/* ops/rms_norm.c: normalisation by the root mean square over the trailing feature axes of every frame.
 *
 *     y = x / sqrt(mean of x^2 + eps) * weight
 *
 * over the last `axes` feature axes. in [..., shape], weight? of that shape, out as in; frame in, frame
 * out, in place where it can be.
 *
 * Source: torch.nn.functional.rms_norm. */
#include "ops/op.h"

enum { AXES, EPS };
enum { WEIGHT };

static const ds_attr_def attrs[] = {
    {.name = "axes", .kind = DS_ATTR_INT, .i = 1, .doc = "trailing feature axes, at least 1"},
    {.name = "eps", .kind = DS_ATTR_REAL, .required = true, .doc = "added to the mean square"},
    {.name = NULL},
};

static ds_status infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t axes = op->attr[AXES].i;
    DS_TRY(ds_op_require_real(op));
    if (axes < 1 || axes > in->rank) {
        char text[160];
        return ds_fail(DS_ARGUMENT,
                       "rms_norm: axes must be 1 to the rank of the features %s, got %lld",
                       ds_signature_text(in, text, sizeof text), (long long)axes);
    }
    DS_CHECK(op->attr[EPS].x >= 0, DS_ARGUMENT, "rms_norm: eps must be at least 0, got %g",
             op->attr[EPS].x);
    if (ds_op_has_weight(op, WEIGHT)) {
        DS_TRY(ds_op_require_weight(op, WEIGHT, "weight", (int)axes, in->shape + (in->rank - axes)));
    }
    return DS_OK;
}

static void forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0];
    size_t n_vectors = 1, n = 1; /* per frame; elements of each */
    for (int i = 0; i < in->rank; i++) {
        *(i < in->rank - (int)op->attr[AXES].i ? &n_vectors : &n) *= (size_t)in->shape[i];
    }
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        if (out->m1 > out->m0) {
            run->k->rms_norm(out->data, ds_at(&run->in[row], out->m0, ds_signature_bytes(in)),
                             (size_t)(out->m1 - out->m0) * n_vectors, n,
                             ds_run_weight(op, run, WEIGHT), op->attr[EPS].x);
        }
    }
}

const ds_op_def ds_op_rms_norm = {
    .name = "rms_norm",
    .doc = "normalisation by the root mean square over trailing feature axes",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_INPLACE,
    .attrs = attrs,
    .weights = "weight?",
    .infer = infer,
    .forward = forward,
};
