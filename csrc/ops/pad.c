/* ops/pad.c: frames added before and behind the stream (pad: torch.nn.functional.pad along L), and as many
 * more behind it as make it a whole number of blocks (pad_to_multiple), or as long as another stream's length says
 * (pad_to, which takes frames away where there are more).
 *
 *     y[t] = x[t - left]                      where that frame exists, else
 *            value                            constant
 *            x[0], x[T - 1]                   replicate
 *            x[left - t], x[2(T - 1) - (t - left)]   reflect
 *
 *               known                          total                 pad_need(m)
 *     constant  known + left                   total + left + right  m - left
 *     replicate the same, 0 until known >= 1   the same              m - left - right
 *     reflect   the same, 0 until known > left 0 while total <= max(left, right) m - left - 2 right
 *
 * The conditions on known hold where left > 0; need's extra is what the right pad reads back.
 *
 * In pad_to_multiple right grows to right' = right + T' - T, where T' = max(least, multiple ceil(T / multiple)),
 * and total is left + T' + right; need counts on the longest right'. A reflection needs
 * max(left, right') + 1 frames: a stream that has fewer is continued with `value` up to there, mirrored, and
 * what lies more than right' frames behind its end is left out (the padding of SEANet's convolutions). In its
 * mode "before" the frames that are added, up to `least`, stand before the first one, so that none is known until
 * there are as many or the stream ends.
 *
 * In pad_to T' = f(total of the other) (ops/length.h), and known is at most total; need counts on `longest`. */
#include "ops/length.h"
#include "ops/move.h"
#include "ops/registry.h"

enum { LEFT, RIGHT, MODE, VALUE, MULTIPLE, LEAST };
enum { LENGTH = MULTIPLE, LONGEST };
enum { CONSTANT, REPLICATE, REFLECT, BEFORE };

#define PADS(modes)                                                                  \
    {"left", DS_ATTR_INT, .doc = "frames before the first", .range = DS_FROM_0},     \
        {"right", DS_ATTR_INT, .doc = "frames behind the last", .range = DS_FROM_0}, \
        {"mode", DS_ATTR_CHOICE, .choices = modes, .doc = "what they hold"},         \
        {"value", DS_ATTR_REAL, .doc = "of every element, in mode constant"}

static const ds_attr_def pad_attrs[] = {PADS("constant|replicate|reflect"), {0}};
static const ds_attr_def multiple_attrs[] = {
    PADS("constant|replicate|reflect|before"),
    {"multiple", DS_ATTR_INT, .i = 1,
     .doc = "of which the frames are made a multiple, behind the last", .range = DS_FROM_1},
    {"least", DS_ATTR_INT, .doc = "frames up to which more are added behind the last in any case",
     .range = DS_FROM_0},
    {0}};

static const ds_attr_def to_attrs[] = {
    PADS("constant|replicate"),
    DS_LENGTH_ATTR("length"),
    {"longest", DS_ATTR_INT,
     .doc = "more frames than are ever added behind the last, where they repeat it",
     .range = DS_FROM_0},
    {0}};

static bool pad_rounds(const ds_op *op)
{
    return op->def == &ds_op_pad_to_multiple;
}

static bool pad_follows(const ds_op *op)
{
    return op->def == &ds_op_pad_to;
}

/* The frames of a stream of `total` that is filled up to a multiple, and to the least. */
static int64_t pad_whole(const ds_op *op, int64_t total)
{
    if (!pad_rounds(op))
        return total;
    const int64_t multiple = op->attr[MULTIPLE].i, least = op->attr[LEAST].i;
    const int64_t whole = (total + multiple - 1) / multiple * multiple;
    return whole > least ? whole : least;
}

static ds_status pad_infer(ds_op *op)
{
    op->needs_frames =
        op->attr[MODE].i == REPLICATE || (op->attr[MODE].i == REFLECT && !pad_rounds(op));
    if (pad_follows(op))
        DS_TRY(ds_length_of_rate(op, LENGTH, "padded"));
    if (pad_rounds(op) && op->attr[MODE].i == BEFORE)
        DS_CHECK(op->attr[LEFT].i == 0 && op->attr[RIGHT].i == 0 && op->attr[MULTIPLE].i == 1,
                 DS_ARGUMENT, "pad_to_multiple: mode before has neither left, right nor multiple");
    return ds_move_require_value(op, VALUE);
}

static ds_status pad_infer_frames(ds_op *op)
{
    if (!ds_op_has_weight(op, 0))
        return pad_infer(op);
    DS_CHECK(op->attr[MODE].i == CONSTANT, DS_ARGUMENT,
             "pad: frames that are given stand in mode constant");
    return DS_OK;
}

static void pad_counts(const ds_op *op, ds_program *p)
{
    const int64_t left = op->attr[LEFT].i, right = op->attr[RIGHT].i, mode = op->attr[MODE].i;
    ds_expr known = ds_add_k(p, ds_known(p, 0), left);
    ds_expr whole = ds_total(p, 0);
    if (pad_rounds(op)) {
        whole = ds_mul_k(p, ds_ceildiv_k(p, whole, op->attr[MULTIPLE].i), op->attr[MULTIPLE].i);
        whole = ds_max(p, whole, ds_const(p, op->attr[LEAST].i));
    }
    if (pad_follows(op))
        whole = ds_length_of(op, LENGTH, p, 1);
    ds_expr total = ds_add_k(p, whole, left + right);
    if (mode == BEFORE)
        known = ds_select(p, ds_add_k(p, known, 1 - op->attr[LEAST].i), known, ds_const(p, 0));
    if (mode != CONSTANT && left > 0) {
        const int64_t start = mode == REFLECT ? left : 0;
        known = ds_select(p, ds_add_k(p, ds_known(p, 0), -start), known, ds_const(p, 0));
    }
    if (!pad_rounds(op) && mode == REFLECT && (left > 0 || right > 0)) {
        const int64_t longest = left > right ? left : right;
        total = ds_select(p, ds_add_k(p, ds_total(p, 0), -longest), total, ds_const(p, 0));
    }
    ds_root(p, known);
    ds_root(p, total);
}

static void pad_need(const ds_op *op, ds_program *p)
{
    const int64_t more = pad_follows(op) ? op->attr[LONGEST].i : pad_whole(op, 1) - 1;
    const int64_t longest = op->attr[RIGHT].i + more; /* that right may be */
    const int64_t mode = op->attr[MODE].i;
    const int64_t back = mode == BEFORE ? 0 : mode * longest; /* 0, right, 2 right */
    ds_root(p, ds_add_k(p, ds_m(p), -op->attr[LEFT].i - back));
}

static void pad_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t mode = op->attr[MODE].i, total = move->total;
    const bool grows = mode == BEFORE && total < DS_NEVER;
    const int64_t left = grows ? pad_whole(op, total) - total : op->attr[LEFT].i;
    const double value = op->attr[VALUE].x;
    /* Until the end, nothing behind the last frame is asked for. */
    const int64_t behind = total < DS_NEVER ? left + total : DS_NEVER;
    ds_move_frames(move, 0, left, behind, -left, 1);
    if (ds_op_has_weight(op, 0)) {
        ds_move_frames(move, DS_MOVE_WEIGHT, 0, left, 0, 1);
        if (total < DS_NEVER)
            ds_move_frames(move, DS_MOVE_WEIGHT, behind, DS_NEVER, -total, 1);
    } else if (mode == CONSTANT || mode == BEFORE) {
        ds_move_fill(move, 0, left, value);
        ds_move_fill(move, behind, DS_NEVER, value);
    } else if (mode == REPLICATE) {
        ds_move_frames(move, 0, 0, left, 0, 0);
        ds_move_frames(move, 0, behind, DS_NEVER, total - 1, 0);
    } else {
        /* A stream of fewer frames than are mirrored goes on with the value up to there: about frame `end`,
         * where it would end; what the mirror shows of its own frames begins at `mirrored`. */
        const int64_t start = total <= left ? left - total + 1 : 0;
        ds_move_fill(move, 0, start, value);
        ds_move_frames(move, 0, start, left, left, -1);
        if (total < DS_NEVER) {
            const int64_t right = op->attr[RIGHT].i + pad_whole(op, total) - total;
            const int64_t longest = left > right ? left : right;
            const int64_t end = total > longest ? total : longest + 1;
            const int64_t mirrored = left + 2 * (end - 1) - total + 1;
            ds_move_fill(move, behind, mirrored, value);
            ds_move_frames(move, 0, mirrored > behind ? mirrored : behind, DS_NEVER,
                           left + 2 * (end - 1), -1);
        }
    }
}

const ds_op_def ds_op_pad = {
    DS_OPERATOR_OF(pad, "Adds frames at the start and at the end of the stream.", 1, 1, 1),
    .attrs = pad_attrs,
    .shapes = "[..]; frames? [left+right, ..]: same",
    .infer = pad_infer_frames,
    DS_COUNTED(pad),
    DS_MOVED(pad_pieces, DS_MOVE_ENDS)};

const ds_op_def ds_op_pad_to_multiple = {
    DS_OPERATOR_OF(pad_to_multiple,
                   "Adds frames at the start and at the end of the stream, there up to a whole "
                   "number of blocks.",
                   1, 1, 1),
    .attrs = multiple_attrs, .infer = pad_infer, DS_COUNTED(pad),
    DS_MOVED(pad_pieces, DS_MOVE_ENDS)};

/* The last frame is kept for no longer than `longest` says. */
static void pad_to_check(const ds_op *op, ds_program *p)
{
    const ds_expr behind = ds_sub(p, ds_length_of(op, LENGTH, p, 1), ds_total(p, 0));
    ds_root(p, ds_const(p, 1));
    const ds_expr over = ds_add_k(p, behind, op->attr[RIGHT].i - op->attr[LONGEST].i);
    ds_root(p, op->attr[MODE].i == CONSTANT ? ds_const(p, 0)
                                            : ds_select(p, ds_total(p, 0), over, ds_const(p, 0)));
}

static ds_status pad_to_fail_check(const ds_op *op, const ds_pair *in)
{
    (void)op;
    (void)in;
    return ds_fail(DS_SHAPE,
                   "pad_to: its last frame is repeated more often than attribute 'longest' says");
}

const ds_op_def ds_op_pad_to = {
    DS_OPERATOR_OF(pad_to,
                   "Adds frames at the start of the stream, and at its end until it is as long as "
                   "another stream's length says.",
                   2, 1, 1),
    .attrs = to_attrs,
    .infer = pad_infer,
    DS_COUNTED(pad),
    DS_CHECKED(pad_to),
    DS_MOVED(pad_pieces, DS_MOVE_ENDS)};
