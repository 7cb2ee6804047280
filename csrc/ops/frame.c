/* ops/frame.c: frames gathered into windows, taken apart, repeated.
 *
 *     frame           y[m][i] = x[m step + i dilation],  i < size;   span = dilation (size - 1) + 1
 *                     known  floor((known - span) / step) + 1    total  floor((total - span) / step) + 1
 *                     need   m step
 *     unstack         in [k][f...], out [f...]:  y[p k + i] = x[p][i]
 *                     known  k known          total  k total      need  floor(m / k)
 *     repeat_frames   y[m] = x[floor(m / times)]; rate * times
 *                     known  times known      total  times total  need  floor(m / times)
 *
 * frame is torch.Tensor.unfold along L. With exact, size = step and dilation 1, a length that is no multiple of
 * size is an error at the end (a view of (L, F) as (L / size, size F)); without, what is left over is dropped.
 * unstack is a view of (L, k F) as (L k, F); repeat_frames is torch.repeat_interleave along L. */
#include <stdio.h>

#include "ops/move.h"
#include "ops/padding.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- frame */

enum { SIZE, STEP, DILATION, EXACT };

static const ds_attr_def frame_attrs[] = {
    {"size", DS_ATTR_INT, .required = true, .doc = "frames in a window"},
    {"step", DS_ATTR_INT, .required = true, .doc = "frames from window to window"},
    {"dilation", DS_ATTR_INT, .i = 1, .doc = "frames from one to the next within a window"},
    {"exact", DS_ATTR_INT, .doc = "1: the length must be a multiple of size"},
    {0}};

static int64_t frame_span(const ds_op *op)
{
    return op->attr[DILATION].i * (op->attr[SIZE].i - 1) + 1;
}

static ds_status frame_infer(ds_op *op)
{
    DS_TRY(ds_op_require_least(op, SIZE, 1));
    DS_TRY(ds_op_require_least(op, STEP, 1));
    DS_TRY(ds_op_require_least(op, DILATION, 1));
    DS_TRY(ds_op_require_least(op, EXACT, 0));
    const int64_t size = op->attr[SIZE].i, step = op->attr[STEP].i;
    DS_CHECK(op->attr[DILATION].i < ((int64_t)1 << 40) / size, DS_ARGUMENT,
             "frame: windows of %lld frames, %lld apart, are too long", (long long)size,
             (long long)op->attr[DILATION].i);
    DS_CHECK(op->attr[EXACT].i <= 1, DS_ARGUMENT, "frame: attribute 'exact' is 0 or 1");
    DS_CHECK(op->attr[EXACT].i == 0 || (step == size && op->attr[DILATION].i == 1), DS_ARGUMENT,
             "frame: exact windows need step = size and dilation 1, got %lld, %lld and %lld",
             (long long)step, (long long)size, (long long)op->attr[DILATION].i);
    ds_signature *out = &op->out[0];
    DS_CHECK(out->rank < DS_MAX_RANK, DS_SHAPE,
             "frame: its input has %d feature dimensions, one more is not supported", out->rank);
    out->rank++;
    out->shape[0] = size;
    for (int d = 1; d < out->rank; d++)
        out->shape[d] = op->in[0].shape[d - 1];
    DS_TRY(ds_scale_rate(op, 1, step));
    return DS_OK;
}

static void frame_counts(const ds_op *op, ds_program *p)
{
    const int64_t step = op->attr[STEP].i;
    const ds_expr known = ds_add_k(p, ds_known(p, 0), -frame_span(op));
    const ds_expr total = ds_add_k(p, ds_total(p, 0), -frame_span(op));
    ds_root(p, ds_add_k(p, ds_floordiv_k(p, known, step), 1));
    ds_root(p, ds_add_k(p, ds_floordiv_k(p, total, step), 1));
}

static void frame_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_m(p), op->attr[STEP].i));
}

static void frame_check(const ds_op *op, ds_program *p)
{
    if (op->attr[EXACT].i == 1) {
        const int64_t size = op->attr[SIZE].i;
        const ds_expr whole = ds_mul_k(p, ds_floordiv_k(p, ds_total(p, 0), size), size);
        ds_root(p, ds_const(p, 1));
        ds_root(p, ds_sub(p, ds_total(p, 0), whole));
    }
}

static const char *frame_check_message(const ds_op *op, const ds_pair *in, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, "length %lld is not a multiple of %lld", (long long)in[0].total,
             (long long)op->attr[SIZE].i);
    return text;
}

static void frame_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t n = ds_signature_elements(&op->in[0]);
    ds_move_piece(move, &(ds_piece){.m1 = DS_NEVER, .step = op->attr[STEP].i * n, .hold = 1, .rank = 2,
                                    .axis = {{op->attr[SIZE].i, n, op->attr[DILATION].i * n}, {n, 1, 1}}});
}
DS_MOVE_FORWARD(frame, frame_pieces, 0)

const ds_op_def ds_op_frame = {
    DS_OPERATOR(frame, "Windows of successive frames, each a frame with one more feature dimension."),
    .attrs = frame_attrs, .counts = frame_counts, .need = frame_need, .check = frame_check,
    .check_message = frame_check_message};

/* ---------------------------------------------------------------- unstack */

static ds_status unstack_infer(ds_op *op)
{
    DS_TRY(ds_require_features(op));
    ds_drop_first(op, &op->in[0]);
    DS_TRY(ds_scale_rate(op, op->in[0].shape[0], 1));
    return DS_OK;
}

static void unstack_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_known(p, 0), op->in[0].shape[0]));
    ds_root(p, ds_mul_k(p, ds_total(p, 0), op->in[0].shape[0]));
}

static void unstack_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_floordiv_k(p, ds_m(p), op->in[0].shape[0]));
}

static void unstack_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t n = ds_signature_elements(&op->out[0]);
    ds_move_piece(move, &(ds_piece){.m1 = DS_NEVER, .step = n, .hold = 1, .rank = 1, .axis = {{n, 1, 1}}});
}
DS_MOVE_FORWARD(unstack, unstack_pieces, 0)

const ds_op_def ds_op_unstack = {
    DS_OPERATOR(unstack, "Lays the first feature dimension out along the stream: k frames for each."),
    .counts = unstack_counts, .need = unstack_need};

/* ---------------------------------------------------------------- repeat_frames */

enum { TIMES };

static const ds_attr_def repeat_frames_attrs[] = {
    {"times", DS_ATTR_INT, .required = true, .doc = "output frames per input frame"}, {0}};

static ds_status repeat_frames_infer(ds_op *op)
{
    DS_TRY(ds_op_require_least(op, TIMES, 1));
    DS_CHECK(op->attr[TIMES].i <= DS_PADDING_LIMIT, DS_ARGUMENT,
             "repeat_frames: times must be at most %lld, got %lld", (long long)DS_PADDING_LIMIT,
             (long long)op->attr[TIMES].i);
    DS_TRY(ds_scale_rate(op, op->attr[TIMES].i, 1));
    return DS_OK;
}

static void repeat_frames_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_known(p, 0), op->attr[TIMES].i));
    ds_root(p, ds_mul_k(p, ds_total(p, 0), op->attr[TIMES].i));
}

static void repeat_frames_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_floordiv_k(p, ds_m(p), op->attr[TIMES].i));
}

static void repeat_frames_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t n = ds_signature_elements(&op->in[0]);
    ds_move_piece(move, &(ds_piece){.m1 = DS_NEVER, .step = n, .hold = op->attr[TIMES].i, .rank = 1,
                                    .axis = {{n, 1, 1}}});
}
DS_MOVE_FORWARD(repeat_frames, repeat_frames_pieces, 0)

const ds_op_def ds_op_repeat_frames = {DS_OPERATOR(repeat_frames, "Every frame several times."),
    .attrs = repeat_frames_attrs, .counts = repeat_frames_counts, .need = repeat_frames_need};
