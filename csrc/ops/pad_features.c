/* ops/pad_features.c: elements added at both ends of a feature axis (torch.nn.functional.pad
 * along an axis that is not the stream).
 *
 *     y[.., j, ..] = x[.., j - left, ..]                  where that is one of the n elements, else
 *                    value                                constant
 *                    x[0], x[n - 1]                       replicate
 *                    x[left - j], x[2(n - 1) - (j - left)] reflect; at most n - 1 at each end
 *                    x[(j - left) mod n]                  circular; at most n at each end
 *
 * All counts are those of the input. */
#include "ops/frames.h"
#include "ops/padding.h"
#include "ops/registry.h"

enum { AXIS, LEFT, RIGHT, MODE, VALUE };

static const ds_attr_def attrs[] = {
    {"axis", DS_ATTR_INT, .required = true, .doc = "the feature dimension, from 0"},
    {"left", DS_ATTR_INT, .doc = "elements before the first"},
    {"right", DS_ATTR_INT, .doc = "elements behind the last"},
    {"mode", DS_ATTR_CHOICE, .choices = "constant|replicate|reflect|circular",
     .doc = "what they hold"}, /* in the order of ds_padding_mode */
    {"value", DS_ATTR_REAL, .doc = "of every element, in mode constant"},
    {0}};

static ds_status infer(ds_op *op)
{
    char element[8];
    ds_signature *out = &op->out[0];
    const int64_t axis = op->attr[AXIS].i, left = op->attr[LEFT].i, right = op->attr[RIGHT].i;
    DS_CHECK(axis >= 0 && axis < out->rank, DS_SHAPE,
             "pad_features: there is no feature dimension %lld, the input has %d", (long long)axis,
             out->rank);
    const int64_t n = out->shape[axis], widest = left > right ? left : right;
    DS_CHECK(left >= 0 && right >= 0 && widest <= DS_PADDING_LIMIT, DS_ARGUMENT,
             "pad_features: left and right must be 0 to %lld, got %lld and %lld",
             (long long)DS_PADDING_LIMIT, (long long)left, (long long)right);
    const int64_t mode = op->attr[MODE].i;
    const int64_t most = mode == DS_PADDING_REFLECT    ? n - 1
                         : mode == DS_PADDING_CIRCULAR ? n
                                                       : widest;
    DS_CHECK(widest <= most, DS_SHAPE,
             "pad_features: a dimension of size %lld can be padded by %lld at most in this mode, "
             "got %lld",
             (long long)n, (long long)most, (long long)widest);
    DS_CHECK(ds_frames_encode(op->in[0].dtype, op->attr[VALUE].x, element), DS_ARGUMENT,
             "pad_features: %s has no value %g", ds_dtype_name(op->in[0].dtype), op->attr[VALUE].x);
    out->shape[axis] = n + left + right;
    return DS_OK;
}

/* One run of the axis: n elements of n_bytes become left + n + right. */
static void pad_run(const ds_op *op, char *to, const char *from, int64_t n, size_t n_bytes)
{
    const int64_t left = op->attr[LEFT].i, all = n + left + op->attr[RIGHT].i;
    const ds_padding_mode mode = (ds_padding_mode)op->attr[MODE].i;
    char element[8];
    ds_frames_encode(op->in[0].dtype, op->attr[VALUE].x, element);
    for (int64_t j = left > 0 ? 0 : n; j < all; j = j == left - 1 ? left + n : j + 1) {
        const int64_t source = ds_padding_source(mode, j - left, n);
        if (source < 0) {
            ds_frames_fill(to + (size_t)j * n_bytes, n_bytes, element, ds_op_element(op));
        } else {
            ds_frames_copy(to + (size_t)j * n_bytes, from + (size_t)source * n_bytes, n_bytes);
        }
    }
    ds_frames_copy(to + (size_t)left * n_bytes, from, (size_t)n * n_bytes);
}

static void forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0];
    const size_t frame_bytes = ds_signature_bytes(in);
    const int64_t axis = op->attr[AXIS].i, n = in->shape[axis];
    size_t n_runs = 1; /* of each frame */
    for (int64_t d = 0; d < axis; d++) {
        n_runs *= (size_t)in->shape[d];
    }
    const size_t n_bytes = frame_bytes / n_runs / (size_t)n;
    const size_t out_bytes = ds_signature_bytes(&op->out[0]) / n_runs;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 >= out->m1) {
            continue;
        }
        const char *from = ds_at(&run->in[r], out->m0, frame_bytes);
        char *to = out->data;
        for (size_t i = 0; i < (size_t)(out->m1 - out->m0) * n_runs; i++) {
            pad_run(op, to, from, n, n_bytes);
            from += (size_t)n * n_bytes;
            to += out_bytes;
        }
    }
}

const ds_op_def ds_op_pad_features = {.name = "pad_features",
                                      .doc = "Adds elements at both ends of a feature dimension.",
                                      .n_inputs = 1,
                                      .n_outputs = 1,
                                      .n_values = 1,
                                      .attrs = attrs,
                                      .infer = infer,
                                      .forward = forward};
