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
enum { LAYER, RMS };

#define NORM_AXES {"axes", DS_ATTR_INT, .i = 1, .doc = "trailing feature axes, at least 1"}

static const ds_attr_def layer_norm_attrs[] = {
    NORM_AXES,
    {"eps", DS_ATTR_REAL, .x = 1e-5, .doc = "added to the variance", .range = DS_FROM_0},
    {0}};
static const ds_attr_def rms_norm_attrs[] = {
    NORM_AXES,
    {"eps", DS_ATTR_REAL, .required = true, .doc = "added to the mean square", .range = DS_FROM_0},
    {0}};

static ds_status layer_norm_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t axes = op->attr[AXES].i;
    DS_CHECK(axes >= 1 && axes <= in->rank, DS_ARGUMENT,
             "%s: axes must be 1 to the rank of the features %s, got %lld", op->def->name,
             DS_SHAPE_TEXT(in), (long long)axes);
    const int64_t *shape = in->shape + (in->rank - axes);
    DS_TRY(ds_require_optional(op, WEIGHT, "weight", (int)axes, shape));
    return ds_require_optional(op, BIAS, "bias", (int)axes, shape);
}

static void layer_norm_frames(const ds_op *op, const ds_run *run, void *y, const void *x,
                              size_t n_frames)
{
    const ds_signature *in = &op->in[0];
    const void *const weight = ds_run_weight(op, run, WEIGHT), *const bias =
                                                                   ds_run_weight(op, run, BIAS);
    size_t n = 1; /* elements of a vector that is normalised */
    for (int64_t d = in->rank - op->attr[AXES].i; d < in->rank; d++)
        n *= (size_t)in->shape[d];
    const size_t n_vectors = n_frames * (size_t)ds_signature_elements(in) / n;
    if (op->def->member == RMS)
        run->k->rms_norm(y, x, n_vectors, n, weight, op->attr[EPS].x);
    else
        run->k->layer_norm(y, x, n_vectors, n, weight, bias, op->attr[EPS].x);
}
DS_FRAMEWISE_FORWARD(layer_norm)

#define NORM(which)                                                                  \
    .member = which, .flags = DS_OP_INPLACE | DS_OP_REAL, .infer = layer_norm_infer, \
    .forward = layer_norm_forward

const ds_op_def ds_op_layer_norm = {
    DS_OPERATOR_OF(layer_norm, "normalisation over trailing feature axes", 1, 1, -1),
    .attrs = layer_norm_attrs, .weights = "weight? bias?", NORM(LAYER)};

const ds_op_def ds_op_rms_norm = {
    DS_OPERATOR_OF(rms_norm, "normalisation by the root mean square over trailing feature axes", 1,
                   1, -1),
    .attrs = rms_norm_attrs, .weights = "weight?", NORM(RMS)};
