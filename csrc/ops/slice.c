/* ops/slice.c: streams that lack frames, come late, or are as long as another stream's length says.
 *
 *     slice   y[m] = x[start + m step]                  x[..., start : -crop : step]
 *             known  ceil((known - start) / step)          frames below known lie before the crop if at all
 *             total  ceil((total - crop - start) / step)
 *     cut     y'[m] = x[start + m step]                 x[..., start : f(y.size(L)) : step]
 *             known  ceil((min(known x, f(total y)) - start) / step)   f grows, so what is below it stays
 *             total  ceil((min(total x, f(total y)) - start) / step)   a stop below 0 counts from the end of x
 *             need   start + m step in both; of y only the length is read
 *     delay   y[m] = x[m - frames], zeros before; the last frames of x are never seen
 *             known  known + frames, at most total      total  total      need  m - frames
 *     table   y[m] = weight[m], m < f(total)            pe[: f(x.size(L))], weight [P][f...]
 *             known = total = f(total)     need  never: of x only the length is read
 *
 * Only a function that turns y's rate into x's is a cut: with any other, ever more of x would wait, or be
 * thrown away. Where the total of delay's input runs ahead of what is known of it (behind a convolution that
 * looks ahead), its frames are not waited for twice; it equals a causal convolution with one tap. A stream that
 * outgrows its table is an error, at once.
 *
 * f is a function of a length (ops/length.h). */
#include "ops/length.h"
#include "ops/move.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- slice, cut */

enum { SLICE_START, SLICE_CROP, SLICE_STEP };
enum { CUT_START = SLICE_START, CUT_STEP, CUT_LENGTH };
enum { SLICE, CUT };

static const ds_attr_def slice_attrs[] = {
    {"start", DS_ATTR_INT, .doc = "frames dropped at the start", .range = DS_FROM_0},
    {"crop", DS_ATTR_INT, .doc = "frames dropped at the end", .range = DS_FROM_0},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of these every step-th is kept", .range = DS_FROM_1},
    {0}};

static const ds_attr_def cut_attrs[] = {
    {"start", DS_ATTR_INT, .doc = "frames dropped at the start", .range = DS_FROM_0},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of the others every step-th is kept", .range = DS_FROM_1},
    DS_LENGTH_ATTR("length"),
    {0}};

static int64_t slice_step(const ds_op *op)
{
    return op->attr[op->def->member == CUT ? CUT_STEP : SLICE_STEP].i;
}

static ds_status slice_infer(ds_op *op)
{
    if (op->def->member == CUT)
        DS_TRY(ds_length_of_rate(op, CUT_LENGTH, "cut"));
    return ds_scale_rate(op, 1, slice_step(op));
}

static void slice_counts(const ds_op *op, ds_program *p)
{
    const int64_t start = op->attr[SLICE_START].i, step = slice_step(op);
    const ds_expr all = ds_total(p, 0);
    ds_expr known = ds_known(p, 0), end = all;
    if (op->def->member == CUT) {
        const ds_expr stop = ds_length_of(op, CUT_LENGTH, p, 1);
        const ds_expr from_end = ds_max(p, ds_add(p, all, stop), ds_const(p, 0));
        known = ds_min(p, known, ds_max(p, stop, ds_const(p, 0)));
        end = ds_select(p, ds_add_k(p, stop, 1), ds_min(p, all, stop), from_end);
    } else {
        end = ds_add_k(p, all, -op->attr[SLICE_CROP].i);
    }
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, known, -start), step));
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, end, -start), step));
}

static void slice_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_m(p), slice_step(op)), op->attr[SLICE_START].i));
}

static void slice_pieces(const ds_op *op, const ds_move *move)
{
    ds_move_frames(move, 0, 0, DS_NEVER, op->attr[SLICE_START].i, slice_step(op));
}

#define SLICES .infer = slice_infer, DS_COUNTED(slice), DS_MOVED(slice_pieces, 0)

const ds_op_def ds_op_slice = {
    DS_OPERATOR_OF(
        slice, "Drops frames at the start and at the end, and keeps every step-th of the others.",
        1, 1, 1),
    .member = SLICE, .attrs = slice_attrs, SLICES};

const ds_op_def ds_op_cut = {
    DS_OPERATOR_OF(cut, "Cuts a stream to a function of another stream's length.", 2, 1, 1),
    .member = CUT, .attrs = cut_attrs, SLICES};

/* ---------------------------------------------------------------- delay */

enum { DELAY_FRAMES };

static const ds_attr_def delay_attrs[] = {
    {"frames", DS_ATTR_INT, .required = true, .doc = "by how many frames", .range = DS_FROM_0},
    {0}};

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
    ds_move_frames(move, 0, late, DS_NEVER, -late, 1);
}

const ds_op_def ds_op_delay = {
    DS_OPERATOR_OF(delay, "Moves a stream by some frames, without changing its length.", 1, 1, 1),
    .attrs = delay_attrs, DS_COUNTED(delay), DS_MOVED(delay_pieces, 0)};

/* ---------------------------------------------------------------- table */

enum { TABLE_LENGTH };

static const ds_attr_def table_attrs[] = {DS_LENGTH_ATTR("length"), {0}};

static ds_status table_infer(ds_op *op)
{
    op->out[0].dtype = op->weight[0].dtype;
    ds_drop_first(op, &op->weight[0]);
    return ds_length_rate(op, TABLE_LENGTH, &op->out[0].rate);
}

static void table_check(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_add_k(p, ds_length_of(op, TABLE_LENGTH, p, 0), -op->weight[0].shape[0]));
}

static ds_status table_fail_check(const ds_op *op, const ds_pair *in)
{
    ds_pair out[DS_MAX_OUTPUTS];
    ds_op_counts(op, in, true, out);
    return ds_fail(DS_SHAPE, "table: position %lld is beyond the table's %lld rows",
                   (long long)out[0].total, (long long)op->weight[0].shape[0]);
}

static void table_pieces(const ds_op *op, const ds_move *move)
{
    (void)op;
    ds_move_frames(move, DS_MOVE_WEIGHT, 0, DS_NEVER, 0, 1);
}

const ds_op_def ds_op_table = {
    DS_OPERATOR_OF(table, "Rows of a constant, by absolute position in the stream.", 1, 1, 0),
    .attrs = table_attrs,
    .shapes = "weight [positions, ..]",
    .infer = table_infer,
    .counts = ds_length_counts,
    DS_CHECKED(table),
    DS_MOVED(table_pieces, 0)};
