/* ops/slice.c: streams that lack frames or come late.
 *
 *     slice   y[m] = x[start + m step]                  x[..., start : -crop : step]
 *             known  ceil((known - start) / step)          frames below known lie before the crop if at all
 *             total  ceil((total - crop - start) / step)
 *     cut     y'[m] = x[start + m step]                 x[..., start : f(y.size(L)) : step]
 *             known  ceil((known x - start) / step), at most total    f grows, so what is below it stays
 *             total  ceil((min(total x, f(total y)) - start) / step)
 *             need   start + m step in both; of y only the length is read
 *     delay   y[m] = x[m - frames], zeros before; the last frames of x are never seen
 *             known  known + frames, at most total      total  total      need  m - frames
 *
 * Only a function that turns y's rate into x's is a cut: with any other, ever more of x would wait, or be
 * thrown away. Where the total of delay's input runs ahead of what is known of it (behind a convolution that
 * looks ahead), its frames are not waited for twice; it equals a causal convolution with one tap. */
#include "ops/length.h"
#include "ops/move.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- slice */

enum { SLICE_START, SLICE_CROP, SLICE_STEP };

static const ds_attr_def slice_attrs[] = {
    {"start", DS_ATTR_INT, .doc = "frames dropped at the start"},
    {"crop", DS_ATTR_INT, .doc = "frames dropped at the end"},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of these every step-th is kept"},
    {0}};

static ds_status slice_infer(ds_op *op)
{
    DS_TRY(ds_op_require_least(op, SLICE_START, 0));
    DS_TRY(ds_op_require_least(op, SLICE_CROP, 0));
    DS_TRY(ds_op_require_least(op, SLICE_STEP, 1));
    DS_TRY(ds_scale_rate(op, 1, op->attr[SLICE_STEP].i));
    return DS_OK;
}

static void slice_counts(const ds_op *op, ds_program *p)
{
    const int64_t start = op->attr[SLICE_START].i, step = op->attr[SLICE_STEP].i;
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_known(p, 0), -start), step));
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_total(p, 0), -start - op->attr[SLICE_CROP].i), step));
}

static void slice_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_m(p), op->attr[SLICE_STEP].i), op->attr[SLICE_START].i));
}

static void slice_pieces(const ds_op *op, const ds_move *move)
{
    ds_move_frames(move, 0, DS_NEVER, op->attr[SLICE_START].i, op->attr[SLICE_STEP].i);
}
DS_MOVE_FORWARD(slice, slice_pieces, 0)

const ds_op_def ds_op_slice = {
    DS_OPERATOR(slice,
                "Drops frames at the start and at the end, and keeps every step-th of the others."),
    .attrs = slice_attrs, .counts = slice_counts, .need = slice_need};

/* ---------------------------------------------------------------- cut */

enum { CUT_START, CUT_STEP, CUT_LENGTH };

static const ds_attr_def cut_attrs[] = {
    {"start", DS_ATTR_INT, .doc = "frames dropped at the start"},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of the others every step-th is kept"},
    {"length", DS_ATTR_INTS,
     .doc = "the function, in pairs: 0 c adds, 1 c multiplies, 2 c divides"},
    {0}};

static ds_status cut_infer(ds_op *op)
{
    ds_length length;
    DS_TRY(ds_op_require_least(op, CUT_START, 0));
    DS_TRY(ds_op_require_least(op, CUT_STEP, 1));
    DS_TRY(ds_length_read(op, CUT_LENGTH, &length));
    ds_rate rate = op->in[1].rate;
    DS_TRY(ds_length_rate(op, &length, &rate));
    DS_CHECK(ds_rate_equal(rate, op->in[0].rate), DS_MISMATCH,
             "cut: input 0 has rate %lld/%lld, but the length that it is cut to has rate %lld/%lld",
             (long long)op->in[0].rate.num, (long long)op->in[0].rate.den, (long long)rate.num,
             (long long)rate.den);
    DS_TRY(ds_scale_rate(op, 1, op->attr[CUT_STEP].i));
    return DS_OK;
}

static void cut_counts(const ds_op *op, ds_program *p)
{
    const int64_t start = op->attr[CUT_START].i, step = op->attr[CUT_STEP].i;
    const ds_attr_value *codes = &op->attr[CUT_LENGTH];
    const ds_expr end = ds_length_function(p, ds_total(p, 1), codes->ints, codes->n_ints);
    const ds_expr total = ds_min(p, ds_total(p, 0), end);
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_known(p, 0), -start), step));
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, total, -start), step));
}

static void cut_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_m(p), op->attr[CUT_STEP].i), op->attr[CUT_START].i));
}

static void cut_pieces(const ds_op *op, const ds_move *move)
{
    ds_move_frames(move, 0, DS_NEVER, op->attr[CUT_START].i, op->attr[CUT_STEP].i);
}
DS_MOVE_FORWARD(cut, cut_pieces, 0)

const ds_op_def ds_op_cut = {.name = "cut",
                             .doc = "Cuts a stream to a function of another stream's length.",
                             .n_inputs = 2,
                             .n_outputs = 1,
                             .n_values = 1,
                             .attrs = cut_attrs,
                             .infer = cut_infer,
                             .counts = cut_counts,
                             .need = cut_need,
                             .forward = cut_forward};

/* ---------------------------------------------------------------- delay */

enum { DELAY_FRAMES };

static const ds_attr_def delay_attrs[] = {
    {"frames", DS_ATTR_INT, .required = true, .doc = "by how many frames"}, {0}};

static ds_status delay_infer(ds_op *op)
{
    return ds_op_require_least(op, DELAY_FRAMES, 0);
}

static void delay_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_known(p, 0), op->attr[DELAY_FRAMES].i));
    ds_root(p, ds_total(p, 0));
}

static void delay_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_m(p), -op->attr[DELAY_FRAMES].i));
}

static void delay_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t late = op->attr[DELAY_FRAMES].i;
    ds_move_fill(move, 0, late, 0);
    ds_move_frames(move, late, DS_NEVER, -late, 1);
}
DS_MOVE_FORWARD(delay, delay_pieces, 0)

const ds_op_def ds_op_delay = {
    DS_OPERATOR(delay, "Moves a stream by some frames, without changing its length."),
    .attrs = delay_attrs, .counts = delay_counts, .need = delay_need};
