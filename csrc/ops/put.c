/* ops/put.c: frames of a stream replaced by those of another one.
 *
 *     put   y[m] = v[m - start]   where m = start + j step, m < total x - crop; x[m] elsewhere
 *           x[..., start : -crop : step] = v, with every frame of v `step` times
 *           known  that of x, up to the first such m of which v[m - start] is not known, or, with a crop, which may
 *                  yet turn out to lie in it
 *           total  total x
 *           need   m in x, m - start in v
 *
 * The streams are of one rate, and at the end v has `step` frames for each that is replaced: none for none. */
#include "ops/move.h"
#include "ops/registry.h"

enum { PUT_START, PUT_CROP, PUT_STEP };

static const ds_attr_def put_attrs[] = {
    {"start", DS_ATTR_INT, .doc = "the first frame that is replaced", .range = DS_FROM_0},
    {"crop", DS_ATTR_INT, .doc = "frames at the end that are not", .range = DS_FROM_0},
    {"step", DS_ATTR_INT, .i = 1, .doc = "from the first on every step-th is replaced",
     .range = DS_FROM_1},
    {0}};

/* n frames of v, or as many of x that may be replaced, up to a whole number of steps. */
static ds_expr put_whole(const ds_op *op, ds_program *p, ds_expr n)
{
    const int64_t step = op->attr[PUT_STEP].i;
    return ds_mul_k(p, ds_ceildiv_k(p, ds_max(p, n, ds_const(p, 0)), step), step);
}

static void put_counts(const ds_op *op, ds_program *p)
{
    const int64_t start = op->attr[PUT_START].i, crop = op->attr[PUT_CROP].i;
    const ds_expr known = ds_known(p, 0);
    ds_expr first = put_whole(op, p, ds_known(p, 1));
    if (crop > 0)
        first = ds_min(p, first, put_whole(op, p, ds_add_k(p, ds_total(p, 0), -crop - start)));
    ds_root(p, ds_min(p, known, ds_add_k(p, first, start)));
    ds_root(p, ds_total(p, 0));
}

static void put_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_m(p));
    ds_root(p, ds_add_k(p, ds_m(p), -op->attr[PUT_START].i));
}

static void put_check(const ds_op *op, ds_program *p)
{
    const int64_t outside = op->attr[PUT_START].i + op->attr[PUT_CROP].i;
    const ds_expr wanted = put_whole(op, p, ds_add_k(p, ds_total(p, 0), -outside));
    const ds_expr missing = ds_sub(p, wanted, ds_total(p, 1));
    const ds_expr wrong = ds_max(p, missing, ds_sub(p, ds_const(p, 0), missing));
    ds_root(p, ds_const(p, 1));
    ds_root(p, ds_select(p, ds_total(p, 0), wrong, ds_const(p, 0)));
}

static ds_status put_fail_check(const ds_op *op, const ds_pair *in)
{
    const int64_t step = op->attr[PUT_STEP].i;
    const int64_t left = in[0].total - op->attr[PUT_START].i - op->attr[PUT_CROP].i;
    return ds_fail(DS_SHAPE, "put: %lld frames are assigned to %lld at the end of the stream",
                   (long long)((in[1].total + step - 1) / step),
                   (long long)(left > 0 ? (left + step - 1) / step : 0));
}

/* Pieces for the frames of one row that lie in [start, end). */
static void put_steps(const ds_op *op, const ds_move *move, int64_t start, int64_t end)
{
    const ds_target *const out = &move->run->out[move->row];
    const int64_t step = op->attr[PUT_STEP].i;
    const int64_t m1 = out->m1 < end ? out->m1 : end;
    for (int64_t m = out->m0 > start ? out->m0 : start, next; m < m1; m = next) {
        const int64_t past = (m - start) % step;
        next = past == 0 ? m + 1 : m - past + step;
        ds_move_frames(move, past == 0, m, next < m1 ? next : m1, past == 0 ? -start : 0, 1);
    }
}

static void put_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t start = op->attr[PUT_START].i, step = op->attr[PUT_STEP].i, total = move->total;
    const int64_t last = total < DS_NEVER ? total - op->attr[PUT_CROP].i : DS_NEVER;
    const int64_t end = last > start ? last : start;
    ds_move_frames(move, 0, 0, start, 0, 1);
    ds_move_frames(move, 0, end, DS_NEVER, 0, 1);
    if (step == 1) {
        ds_move_frames(move, 1, start, end, -start, 1);
        return;
    }
    for (size_t r = move->row; r < move->row + move->n_rows; r++) { /* rows may be far apart */
        ds_move one = *move;
        one.row = r;
        one.n_rows = 1;
        put_steps(op, &one, start, end);
    }
}

const ds_op_def ds_op_put = {
    DS_OPERATOR_OF(put, "Replaces frames of a stream by those of another one.", 2, 1, 2),
    .attrs = put_attrs,
    .shapes = "[..]; [..]: same",
    DS_COUNTED(put),
    DS_CHECKED(put),
    DS_MOVED(put_pieces, DS_MOVE_ENDS)};
