/* ops/view.c: the elements of a frame in another order or shape, or repeated (torch.permute, reshape, expand).
 *
 * Each output frame is a view of its input frame, given by strides:
 *
 *     y[i, j, ...] = x[i s_0 + j s_1 + ...]
 *
 * All counts are those of the input. */
#include "ops/move.h"
#include "ops/registry.h"

enum { PERMUTE, EXPAND, RESHAPE };

static void view_pieces(const ds_op *op, const ds_move *move)
{
    const ds_signature *in = &op->in[0], *out = &op->out[0];
    ds_piece p = {.m1 = DS_NEVER, .step = ds_signature_elements(in), .hold = 1, .rank = out->rank};
    for (int d = 0; d < out->rank; d++) {
        p.axis[d].size = out->shape[d];
        p.axis[d].to = ds_signature_stride(out, d);
        p.axis[d].from = op->def->member == PERMUTE
                             ? ds_signature_stride(in, (int)op->attr[0].ints[d])
                             : ds_broadcast_stride(in, out->rank, d);
    }
    ds_move_piece(move, &p);
}

/* ---------------------------------------------------------------- permute */

static const ds_attr_def permute_attrs[] = {
    {"order", DS_ATTR_INTS, .required = true, .doc = "output dimension i is input's order[i]"},
    {0}};

static ds_status permute_infer(ds_op *op)
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

const ds_op_def ds_op_permute = {
    DS_OPERATOR_OF(permute, "Puts the feature dimensions into another order.", 1, 1, 1),
    .member = PERMUTE, .attrs = permute_attrs, .infer = permute_infer, DS_MOVED(view_pieces, 0)};

/* ---------------------------------------------------------------- expand, reshape */

static const ds_attr_def shape_attrs[] = {
    {"shape", DS_ATTR_INTS, .required = true, .doc = "of a frame's features"}, {0}};

/* Writes attribute 0 to output 0. */
static ds_status shape_take(ds_op *op)
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

static ds_status view_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0], *out = &op->out[0];
    DS_TRY(shape_take(op));
    const bool expands = op->def->member == EXPAND;
    const int more = out->rank - in->rank;
    bool fits = expands ? more >= 0 : ds_signature_elements(in) == ds_signature_elements(out);
    for (int d = 0; expands && fits && d < in->rank; d++)
        fits = in->shape[d] == 1 || in->shape[d] == out->shape[d + more];
    DS_CHECK(fits, DS_SHAPE, "%s: shape %s does not %s %s", op->def->name, DS_SHAPE_TEXT(in),
             expands ? "expand to" : "have as many elements as", DS_SHAPE_TEXT(out));
    return DS_OK;
}

const ds_op_def ds_op_expand = {
    DS_OPERATOR_OF(expand, "Repeats feature dimensions of size 1.", 1, 1, 1), .member = EXPAND,
    .attrs = shape_attrs, .infer = view_infer, DS_MOVED(view_pieces, 0)};

const ds_op_def ds_op_reshape = {
    DS_OPERATOR_OF(reshape, "The same elements in a feature shape of another form.", 1, 1, 1),
    .member = RESHAPE,
    .flags = DS_OP_INPLACE,
    .attrs = shape_attrs,
    .infer = view_infer,
    DS_MOVED(ds_same_pieces, 0)};
