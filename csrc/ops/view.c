/* ops/view.c: the elements of a frame in another order or shape, or repeated (torch.permute, reshape, expand).
 *
 * Each output frame is a view of its input frame, given by strides:
 *
 *     y[i, j, ...] = x[i s_0 + j s_1 + ...]
 *
 * All counts are those of the input. */
#include "ops/move.h"
#include "ops/registry.h"

/* Every frame by the strides of its dimensions. */
static void view_frames(const ds_op *op, const ds_move *move, const int64_t *stride)
{
    const ds_signature *out = &op->out[0];
    ds_piece p = {
        .m1 = DS_NEVER, .step = ds_signature_elements(&op->in[0]), .hold = 1, .rank = out->rank};
    for (int d = 0; d < out->rank; d++) {
        p.axis[d].size = out->shape[d];
        p.axis[d].to = ds_signature_stride(out, d);
        p.axis[d].from = stride[d];
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

static void permute_pieces(const ds_op *op, const ds_move *move)
{
    int64_t stride[DS_MAX_RANK];
    for (int d = 0; d < op->out[0].rank; d++)
        stride[d] = ds_signature_stride(&op->in[0], (int)op->attr[0].ints[d]);
    view_frames(op, move, stride);
}
DS_MOVE_FORWARD(permute, permute_pieces, 0)

const ds_op_def ds_op_permute = {
    DS_OPERATOR(permute, "Puts the feature dimensions into another order."),
    .attrs = permute_attrs};

/* ---------------------------------------------------------------- expand */

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

static ds_status shape_fail(const ds_op *op, const char *relation)
{
    char from[160], to[160];
    return ds_fail(DS_SHAPE, "%s: shape %s does not %s %s", op->def->name,
                   ds_signature_text(&op->in[0], from, sizeof from), relation,
                   ds_signature_text(&op->out[0], to, sizeof to));
}

static ds_status expand_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0], *out = &op->out[0];
    DS_TRY(shape_take(op));
    const int more = out->rank - in->rank;
    bool fits = more >= 0;
    for (int d = 0; fits && d < in->rank; d++)
        fits = in->shape[d] == 1 || in->shape[d] == out->shape[d + more];
    return fits ? DS_OK : shape_fail(op, "expand to");
}

static void expand_pieces(const ds_op *op, const ds_move *move)
{
    const ds_signature *in = &op->in[0], *out = &op->out[0];
    int64_t stride[DS_MAX_RANK];
    for (int d = 0; d < out->rank; d++) {
        const int own = d - (out->rank - in->rank);
        stride[d] = own < 0 || in->shape[own] == 1 ? 0 : ds_signature_stride(in, own);
    }
    view_frames(op, move, stride);
}
DS_MOVE_FORWARD(expand, expand_pieces, 0)

const ds_op_def ds_op_expand = {DS_OPERATOR(expand, "Repeats feature dimensions of size 1."),
                                .attrs = shape_attrs};

/* ---------------------------------------------------------------- reshape */

static ds_status reshape_infer(ds_op *op)
{
    DS_TRY(shape_take(op));
    if (ds_signature_elements(&op->in[0]) != ds_signature_elements(&op->out[0]))
        return shape_fail(op, "have as many elements as");
    return DS_OK;
}

static void reshape_pieces(const ds_op *op, const ds_move *move)
{
    (void)op;
    ds_move_frames(move, 0, DS_NEVER, 0, 1);
}
DS_MOVE_FORWARD(reshape, reshape_pieces, 0)

const ds_op_def ds_op_reshape = {
    DS_OPERATOR(reshape, "The same elements in a feature shape of another form."),
    .flags = DS_OP_INPLACE, .attrs = shape_attrs};
