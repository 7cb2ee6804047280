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
#include "ops/norm_back.h"
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

/* Elements of a vector that is normalised. */
static size_t layer_norm_size(const ds_op *op)
{
    const ds_signature *in = &op->in[0];
    size_t n = 1;
    for (int64_t d = in->rank - op->attr[AXES].i; d < in->rank; d++)
        n *= (size_t)in->shape[d];
    return n;
}

static ds_status layer_norm_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t axes = op->attr[AXES].i;
    DS_CHECK(axes >= 1 && axes <= in->rank, DS_ARGUMENT,
             "%s: axes must be 1 to the rank of the features %s, got %lld", op->def->name,
             DS_SHAPE_TEXT(in), (long long)axes);
    const int64_t *shape = in->shape + (in->rank - axes);
    op->back_scratch.per_call = ds_back_sums_bytes(op);
    DS_TRY(ds_require_optional(op, WEIGHT, "weight", (int)axes, shape));
    return ds_require_optional(op, BIAS, "bias", (int)axes, shape);
}

static void layer_norm_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const ds_signature *in = &op->in[0];
    const void *const weight = ds_run_weight(op, run, WEIGHT), *const bias =
                                                                   ds_run_weight(op, run, BIAS);
    const size_t n = layer_norm_size(op);
    const size_t n_vectors = f->n * ds_elements(in) / n;
    if (op->def->member == RMS)
        run->k->rms_norm(f->y[0], f->x[0], n_vectors, n, weight, op->attr[EPS].x);
    else
        run->k->layer_norm(f->y[0], f->x[0], n_vectors, n, weight, bias, op->attr[EPS].x);
}
DS_FRAMEWISE_FORWARD(layer_norm)

static void layer_norm_backward(const ds_op *op, const ds_back *b)
{
    const size_t n = layer_norm_size(op), n_bytes = n * ds_op_element(op);
    const size_t per_frame = ds_elements(&op->in[0]) / n;
    const ds_norm norm = {
        1, n, 1, op->def->member == RMS, op->attr[EPS].x, ds_run_weight(op, b->run, WEIGHT)};
    ds_room room = {b->scratch};
    double *sums[DS_SUMMED];
    ds_back_sums_begin(op, b, sums, &room);
    ds_frames f;
    for (f.next = 0; ds_back_next_frames(op, b, &f);)
        for (size_t at = 0; at < f.n * per_frame * n_bytes; at += n_bytes)
            ds_norm_back(&norm, f.dx[0] ? (char *)f.dx[0] + at : NULL, sums[WEIGHT], sums[BIAS],
                         (const char *)f.g[0] + at, (const char *)f.x[0] + at, ds_op_element(op));
    ds_back_sums_end(op, b, sums);
}

#define NORM(which)                                                                  \
    .member = which, .flags = DS_OP_INPLACE | DS_OP_REAL, .infer = layer_norm_infer, \
    .forward = layer_norm_forward, .backward = layer_norm_backward, .reads = DS_READS_X

const ds_op_def ds_op_layer_norm = {
    DS_OPERATOR_OF(layer_norm, "normalisation over trailing feature axes", 1, 1, -1),
    .attrs = layer_norm_attrs, .shapes = "weight?; bias?", NORM(LAYER)};

const ds_op_def ds_op_rms_norm = {
    DS_OPERATOR_OF(rms_norm, "normalisation by the root mean square over trailing feature axes", 1,
                   1, -1),
    .attrs = rms_norm_attrs, .shapes = "weight?", NORM(RMS)};
