/* ops/layer_norm.c: normalisation over the trailing feature axes of every frame, in place where it can be.
 *
 *     layer_norm  y = (x - mean) / sqrt(variance + eps) * weight + bias
 *     rms_norm    y = x / sqrt(mean of x^2 + eps) * weight
 *
 * over the last `axes` feature axes; the variance is the mean square about the mean. in [..., shape], weight? and
 * bias? of that shape, out as in; frame in, frame out.
 *
 * Source: torch.nn.functional.layer_norm, rms_norm. */
#include "ops/framewise.h"
#include "ops/registry.h"

enum { AXES, EPS };
enum { WEIGHT, BIAS };

#define NORM_AXES {"axes", DS_ATTR_INT, .i = 1, .doc = "trailing feature axes, at least 1"}

static const ds_attr_def layer_norm_attrs[] = {
    NORM_AXES, {"eps", DS_ATTR_REAL, .x = 1e-5, .doc = "added to the variance"}, {0}};
static const ds_attr_def rms_norm_attrs[] = {
    NORM_AXES, {"eps", DS_ATTR_REAL, .required = true, .doc = "added to the mean square"}, {0}};

static ds_status layer_norm_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t axes = op->attr[AXES].i;
    char text[160];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(axes >= 1 && axes <= in->rank, DS_ARGUMENT,
             "%s: axes must be 1 to the rank of the features %s, got %lld", op->def->name,
             ds_signature_text(in, text, sizeof text), (long long)axes);
    DS_TRY(ds_require_positive(op, EPS));
    const int64_t *shape = in->shape + (in->rank - axes);
    DS_TRY(ds_require_optional(op, WEIGHT, "weight", (int)axes, shape));
    return ds_require_optional(op, BIAS, "bias", (int)axes, shape);
}

/* Elements of a vector that is normalised. */
static size_t layer_norm_elements(const ds_op *op)
{
    const ds_signature *in = &op->in[0];
    return (size_t)(in->shape[in->rank - op->attr[AXES].i] *
                    ds_signature_stride(in, in->rank - (int)op->attr[AXES].i));
}

static void layer_norm_frames(const ds_op *op, const ds_run *run, void *y, const void *x,
                              size_t n_frames)
{
    const size_t n = layer_norm_elements(op),
                 n_vectors = (size_t)ds_signature_elements(&op->in[0]) / n;
    run->k->layer_norm(y, x, n_frames * n_vectors, n, ds_run_weight(op, run, WEIGHT),
                       ds_run_weight(op, run, BIAS), op->attr[EPS].x);
}
DS_FRAMEWISE_FORWARD(layer_norm)

static void rms_norm_frames(const ds_op *op, const ds_run *run, void *y, const void *x,
                            size_t n_frames)
{
    const size_t n = layer_norm_elements(op),
                 n_vectors = (size_t)ds_signature_elements(&op->in[0]) / n;
    run->k->rms_norm(y, x, n_frames * n_vectors, n, ds_run_weight(op, run, WEIGHT),
                     op->attr[EPS].x);
}
DS_FRAMEWISE_FORWARD(rms_norm)

const ds_op_def ds_op_layer_norm = {.name = "layer_norm",
                                    .doc = "normalisation over trailing feature axes",
                                    .n_inputs = 1,
                                    .n_outputs = 1,
                                    .n_values = -1,
                                    .flags = DS_OP_INPLACE,
                                    .attrs = layer_norm_attrs,
                                    .weights = "weight? bias?",
                                    .infer = layer_norm_infer,
                                    .forward = layer_norm_forward};

const ds_op_def ds_op_rms_norm = {
    .name = "rms_norm",
    .doc = "normalisation by the root mean square over trailing feature axes",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_INPLACE,
    .attrs = rms_norm_attrs,
    .weights = "weight?",
    .infer = layer_norm_infer,
    .forward = rms_norm_forward};
