/* ops/nearest.c: a feature axis brought to another size, each element the nearest one below it.
 *
 *     y[.., i, ..] = x[.., min(floor(i step), n - 1), ..]
 *
 * step, in single precision, is 1 / scale, or n / size without a scale; i itself where size = n, and
 * floor(i / 2) where size = 2 n. All counts are those of the input.
 *
 * Source: torch.nn.functional.interpolate, mode "nearest", whose rounding of positions is kept. */
#include <math.h>
#include <string.h>

#include "ops/registry.h"

enum { AXIS, SIZE, SCALE };

static const ds_attr_def attrs[] = {
    {"axis", DS_ATTR_INT, .required = true, .doc = "the feature dimension, from 0"},
    {"size", DS_ATTR_INT, .required = true, .doc = "its new size"},
    {"scale", DS_ATTR_REAL, .doc = "new elements per old one, for their places; 0: by the sizes"},
    {0}};

static ds_status infer(ds_op *op)
{
    ds_signature *out = &op->out[0];
    const int64_t axis = op->attr[AXIS].i;
    DS_TRY(ds_op_require_least(op, SIZE, 1));
    DS_CHECK(axis >= 0 && axis < out->rank, DS_SHAPE,
             "nearest: there is no feature dimension %lld, the input has %d", (long long)axis,
             out->rank);
    DS_CHECK(op->attr[SCALE].x >= 0, DS_ARGUMENT, "nearest: scale must not be negative, got %g",
             op->attr[SCALE].x);
    out->shape[axis] = op->attr[SIZE].i;
    return DS_OK;
}

static int64_t source(const ds_op *op, int64_t i, int64_t n)
{
    const int64_t size = op->attr[SIZE].i;
    const double scale = op->attr[SCALE].x;
    if (size == n || size == 2 * n) {
        return i / (size / n);
    }
    const float step = scale > 0 ? (float)(1.0 / scale) : (float)n / (float)size;
    const float place = floorf((float)i * step);
    return place < (float)n && (int64_t)place < n ? (int64_t)place : n - 1;
}

static void forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0], *y_shape = &op->out[0];
    const int axis = (int)op->attr[AXIS].i;
    const int64_t n = in->shape[axis], size = op->attr[SIZE].i;
    const size_t n_in = ds_signature_bytes(in), n_out = ds_signature_bytes(y_shape);
    size_t n_bytes = ds_dtype_bytes(in->dtype), outer = 1;
    for (int d = 0; d < in->rank; d++) {
        *(d < axis ? &outer : &n_bytes) *= d == axis ? 1 : (size_t)in->shape[d];
    }
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t i = 0; i < size; i++) {
            const size_t from = (size_t)source(op, i, n) * n_bytes, to = (size_t)i * n_bytes;
            for (int64_t m = out->m0; m < out->m1; m++) {
                const char *x = ds_at(&run->in[r], m, n_in);
                char *y = ds_to(out, m, n_out);
                for (size_t o = 0; o < outer; o++) {
                    memcpy(y + o * (n_out / outer) + to, x + o * (n_in / outer) + from, n_bytes);
                }
            }
        }
    }
}

const ds_op_def ds_op_nearest = {
    .name = "nearest",
    .doc = "A feature dimension of another size, by the nearest elements.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .attrs = attrs,
    .infer = infer,
    .forward = forward};
