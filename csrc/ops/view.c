/* ops/view.c: the elements of a frame in another order or selection (torch.permute, reshape, narrow
 * with a step, expand).
 *
 * Each output frame is a view of its input frame, given by strides:
 *
 *     y[i, j, ...] = x[offset + i s_0 + j s_1 + ...]
 *
 * All counts are those of the input. */
#include <string.h>

#include "ops/frames.h"
#include "ops/registry.h"
#include "ops/walk.h"

/* ---------------------------------------------------------------- the common forward */

/* Elements from one index of feature dimension d to the next. */
static int64_t stride_of(const ds_signature *signature, int d)
{
    int64_t stride = 1;
    for (int e = d + 1; e < signature->rank; e++) {
        stride *= signature->shape[e];
    }
    return stride;
}

static void visit(const void *context, void *y, const void *const *x, size_t n, const size_t *step)
{
    const size_t element = *(const size_t *)context;
    ds_frames_gather(y, x[0], (int64_t)n, element, step[0] * element);
}

/* y[i][j] = x[i s_0 + j s_1], 4 bytes each, the longer loop inside. */
static void copy_plane(char *y, const char *x, const int64_t *shape, const int64_t *stride)
{
    const int in = shape[0] > shape[1] ? 0 : 1; /* the inner loop's dimension */
    const int64_t y_stride[] = {shape[1], 1};
    for (int64_t i = 0; i < shape[1 - in]; i++) {
        char *const to = y + i * y_stride[1 - in] * 4;
        const char *const from = x + i * stride[1 - in] * 4;
        for (int64_t j = 0; j < shape[in]; j++) {
            memcpy(to + j * y_stride[in] * 4, from + j * stride[in] * 4, 4);
        }
    }
}

/* Transposed planes have short runs, and a visit to each takes longer than its copy: this does a walk of
 * at most three dimensions of 4 bytes, and tells whether it did. */
static bool copy_planes(const ds_walk *walk, char *y, const char *x, size_t element)
{
    const int d = walk->rank - 2; /* the plane's first dimension */
    if (element != 4 || d < 0 || d > 1) {
        return false;
    }
    const int64_t shape[] = {walk->shape[d], walk->shape[d + 1]};
    const int64_t stride[] = {walk->stride[d][0], walk->stride[d + 1][0]};
    for (int64_t i = 0; i < (d == 1 ? walk->shape[0] : 1); i++) {
        copy_plane(y + i * shape[0] * shape[1] * 4, x + i * walk->stride[0][0] * 4, shape, stride);
    }
    return true;
}

static void run_view(const ds_op *op, const ds_run *run, int64_t offset, const int64_t *stride)
{
    const size_t element = ds_op_element(op), n_bytes = ds_signature_bytes(&op->in[0]);
    const int64_t frame = ds_signature_elements(&op->in[0]);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m1 <= out->m0) {
            continue;
        }
        ds_walk walk = {.n_operands = 1};
        ds_walk_add(&walk, out->m1 - out->m0, &frame);
        for (int d = 0; d < op->out[0].rank; d++) {
            ds_walk_add(&walk, op->out[0].shape[d], &stride[d]);
        }
        const void *x =
            (const char *)ds_at(&run->in[r], out->m0, n_bytes) + (size_t)offset * element;
        if (!copy_planes(&walk, out->data, x, element)) {
            ds_walk_run(&walk, out->data, element, &x, &element, visit, &element);
        }
    }
}

/* ---------------------------------------------------------------- permute */

static const ds_attr_def permute_attrs[] = {
    {"order", DS_ATTR_INTS, .required = true, .doc = "output dimension i is input's order[i]"},
    {0}};

static ds_status infer_permute(ds_op *op)
{
    const ds_attr_value *order = &op->attr[0];
    const ds_signature *in = &op->in[0];
    bool seen[DS_MAX_RANK] = {false};
    DS_CHECK(order->n_ints == in->rank, DS_SHAPE,
             "permute: attribute 'order' has %d entries for %d feature dimensions", order->n_ints,
             in->rank);
    for (int d = 0; d < in->rank; d++) {
        const int64_t from = order->ints[d];
        DS_CHECK(from >= 0 && from < in->rank && !seen[from], DS_SHAPE,
                 "permute: attribute 'order' must name each of the %d dimensions once", in->rank);
        seen[from] = true;
        op->out[0].shape[d] = in->shape[from];
    }
    return DS_OK;
}

static void forward_permute(const ds_op *op, const ds_run *run)
{
    int64_t stride[DS_MAX_RANK];
    for (int d = 0; d < op->out[0].rank; d++) {
        stride[d] = stride_of(&op->in[0], (int)op->attr[0].ints[d]);
    }
    run_view(op, run, 0, stride);
}

/* ---------------------------------------------------------------- narrow */

enum { AXIS, START, LENGTH, STEP };

static const ds_attr_def narrow_attrs[] = {
    {"axis", DS_ATTR_INT, .required = true, .doc = "the feature dimension, from 0"},
    {"start", DS_ATTR_INT, .doc = "its first index that is kept"},
    {"length", DS_ATTR_INT, .required = true, .doc = "indices from the first on"},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of these every step-th is kept"},
    {0}};

static ds_status infer_narrow(ds_op *op)
{
    ds_signature *out = &op->out[0];
    const int64_t axis = op->attr[AXIS].i, start = op->attr[START].i, length = op->attr[LENGTH].i;
    DS_TRY(ds_op_require_least(op, START, 0));
    DS_TRY(ds_op_require_least(op, LENGTH, 1));
    DS_TRY(ds_op_require_least(op, STEP, 1));
    DS_CHECK(axis >= 0 && axis < out->rank, DS_SHAPE,
             "narrow: there is no feature dimension %lld, the input has %d", (long long)axis,
             out->rank);
    DS_CHECK(start + length <= out->shape[axis], DS_SHAPE,
             "narrow: [%lld, %lld) exceeds dimension %lld, of size %lld", (long long)start,
             (long long)(start + length), (long long)axis, (long long)out->shape[axis]);
    out->shape[axis] = (length - 1) / op->attr[STEP].i + 1;
    return DS_OK;
}

static void forward_narrow(const ds_op *op, const ds_run *run)
{
    int64_t stride[DS_MAX_RANK];
    for (int d = 0; d < op->out[0].rank; d++) {
        stride[d] = stride_of(&op->in[0], d) * (d == op->attr[AXIS].i ? op->attr[STEP].i : 1);
    }
    run_view(op, run, op->attr[START].i * stride_of(&op->in[0], (int)op->attr[AXIS].i), stride);
}

/* ---------------------------------------------------------------- expand */

static const ds_attr_def shape_attrs[] = {
    {"shape", DS_ATTR_INTS, .required = true, .doc = "of a frame's features"}, {0}};

/* Writes attribute 0 to output 0. */
static ds_status take_shape(ds_op *op)
{
    const ds_attr_value *shape = &op->attr[0];
    ds_signature *out = &op->out[0];
    DS_CHECK(shape->n_ints <= DS_MAX_RANK, DS_SHAPE,
             "%s: its shape has %d dimensions, at most %d are supported", op->def->name,
             shape->n_ints, DS_MAX_RANK);
    out->rank = shape->n_ints;
    for (int d = 0; d < out->rank; d++) {
        DS_CHECK(shape->ints[d] >= 1, DS_SHAPE, "%s: its shape has size %lld in dimension %d",
                 op->def->name, (long long)shape->ints[d], d);
        out->shape[d] = shape->ints[d];
    }
    return DS_OK;
}

static ds_status fail_shapes(const ds_op *op, const char *relation)
{
    char from[160], to[160];
    return ds_fail(DS_SHAPE, "%s: shape %s does not %s %s", op->def->name,
                   ds_signature_text(&op->in[0], from, sizeof from), relation,
                   ds_signature_text(&op->out[0], to, sizeof to));
}

static ds_status infer_expand(ds_op *op)
{
    const ds_signature *in = &op->in[0], *out = &op->out[0];
    DS_TRY(take_shape(op));
    const int more = out->rank - in->rank;
    bool fits = more >= 0;
    for (int d = 0; fits && d < in->rank; d++) {
        fits = in->shape[d] == 1 || in->shape[d] == out->shape[d + more];
    }
    return fits ? DS_OK : fail_shapes(op, "expand to");
}

static void forward_expand(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0], *out = &op->out[0];
    int64_t stride[DS_MAX_RANK];
    for (int d = 0; d < out->rank; d++) {
        const int own = d - (out->rank - in->rank);
        stride[d] = own < 0 || in->shape[own] == 1 ? 0 : stride_of(in, own);
    }
    run_view(op, run, 0, stride);
}

/* ---------------------------------------------------------------- reshape */

static ds_status infer_reshape(ds_op *op)
{
    DS_TRY(take_shape(op));
    if (ds_signature_elements(&op->in[0]) != ds_signature_elements(&op->out[0])) {
        return fail_shapes(op, "have as many elements as");
    }
    return DS_OK;
}

static void forward_reshape(const ds_op *op, const ds_run *run)
{
    ds_frames_take(op, run, 0, 1);
}

/* ---------------------------------------------------------------- definitions */

const ds_op_def ds_op_permute = {.name = "permute",
                                 .doc = "Puts the feature dimensions into another order.",
                                 .n_inputs = 1,
                                 .n_outputs = 1,
                                 .n_values = 1,
                                 .attrs = permute_attrs,
                                 .infer = infer_permute,
                                 .forward = forward_permute};

const ds_op_def ds_op_narrow = {.name = "narrow",
                                .doc = "Part of a feature dimension, or every step-th of it.",
                                .n_inputs = 1,
                                .n_outputs = 1,
                                .n_values = 1,
                                .attrs = narrow_attrs,
                                .infer = infer_narrow,
                                .forward = forward_narrow};

const ds_op_def ds_op_expand = {.name = "expand",
                                .doc = "Repeats feature dimensions of size 1.",
                                .n_inputs = 1,
                                .n_outputs = 1,
                                .n_values = 1,
                                .attrs = shape_attrs,
                                .infer = infer_expand,
                                .forward = forward_expand};

const ds_op_def ds_op_reshape = {.name = "reshape",
                                 .doc = "The same elements in a feature shape of another form.",
                                 .n_inputs = 1,
                                 .n_outputs = 1,
                                 .n_values = 1,
                                 .flags = DS_OP_INPLACE,
                                 .attrs = shape_attrs,
                                 .infer = infer_reshape,
                                 .forward = forward_reshape};
