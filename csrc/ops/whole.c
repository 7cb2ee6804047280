/* ops/whole.c: what gives frames once the whole stream has come.
 *
 *     spread  y[t] = x[0]               t < f(total of the other)      x.expand(..., f(y.size(L)))
 *     flip    y[t] = x[total - 1 - t]                                  torch.flip over L
 *             known  0 until the stream has ended      total  f(total of the other); the input's
 *
 * Of what a stream has at its end only (rate 0: a mean of all frames) the first frame is all there is: by spread it
 * meets the frames of the stream. */
#include "ops/length.h"
#include "ops/limit.h"
#include "ops/move.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- spread */

enum { SPREAD_LENGTH, SPREAD_LIMIT };

static const ds_attr_def spread_attrs[] = {
    DS_LENGTH_ATTR("length"),
    {"limit", DS_ATTR_INT, .i = -1, .doc = "the longest stream allowed; below 0: any"},
    {0}};

static ds_status spread_infer(ds_op *op)
{
    op->out[0].rate = op->in[1].rate;
    return ds_length_rate(op, SPREAD_LENGTH, &op->out[0].rate);
}

static void spread_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_select(p, ds_total(p, 0), ds_length_of(op, SPREAD_LENGTH, p, 1), ds_const(p, 0)));
}

static void spread_check(const ds_op *op, ds_program *p)
{
    const int64_t limit = op->attr[SPREAD_LIMIT].i;
    ds_root(p, ds_const(p, 0));
    ds_root(p, limit < 0 ? ds_const(p, 0) : ds_add_k(p, ds_total(p, 1), -limit));
}

static ds_status spread_fail_check(const ds_op *op, const ds_pair *in)
{
    return ds_limit_fail(op, in[1].total, op->attr[SPREAD_LIMIT].i);
}

const ds_op_def ds_op_spread = {
    DS_OPERATOR_OF(
        spread,
        "A stream's first frame, or what it has at its end, at every frame of another stream.", 2,
        1, 1),
    .flags = DS_OP_WHOLE,
    .attrs = spread_attrs,
    .infer = spread_infer,
    .counts = spread_counts,
    DS_CHECKED(spread),
    DS_MOVED(ds_first_pieces, 0)};

/* ---------------------------------------------------------------- flip */

static void flip_pieces(const ds_op *op, const ds_move *move)
{
    (void)op;
    ds_move_frames(move, 0, 0, DS_NEVER, move->total - 1, -1);
}

const ds_op_def ds_op_flip = {
    DS_OPERATOR_OF(flip, "The frames of a stream from its last to its first.", 1, 1, 1),
    .flags = DS_OP_WHOLE, DS_MOVED(flip_pieces, DS_MOVE_ENDS)};
