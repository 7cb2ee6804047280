/* ops/frame.c: frames gathered into windows, taken apart, repeated, and windows laid over each other.
 *
 *     frame           y[m][i] = x[m step + i dilation],  i < size;   span = dilation (size - 1) + 1
 *                     known  floor((known - span) / step) + 1    total  floor((total - span) / step) + 1
 *                     need   m step
 *     unstack         in [k][f...], out [f...]:  y[p k + i] = x[p][i]
 *                     known  k known          total  k total      need  floor(m / k)
 *     repeat_frames   y[m] = x[floor(m / times)]; rate * times
 *                     known  times known      total  times total  need  floor(m / times)
 *     overlap_add     in [size][f...], out [f...]:  y[u] = sum over i of x[i][u - i step],
 *                     0 <= u - i step < size; rate * step
 *                     known  known step (no window to come touches these)
 *                     total  (total - 1) step + size               need  ceil((m - size + 1) / step)
 *
 * frame is torch.Tensor.unfold along L. With exact, size = step and dilation 1, a length that is no multiple of
 * size is an error at the end (a view of (L, F) as (L / size, size F)); without, what is left over is dropped.
 * unstack is a view of (L, k F) as (L k, F); repeat_frames is torch.repeat_interleave along L. overlap_add is the
 * inverse of frame, torch.nn.functional.fold with one row (torch.istft's synthesis): sums run in double over
 * ascending i, and are rounded once; where size < step, the samples between windows are 0. */
#include <string.h>

#include "ops/back.h"
#include "ops/move.h"
#include "ops/packed.h"
#include "ops/phases.h"
#include "ops/registry.h"
#include "ops/sums.h"

/* ---------------------------------------------------------------- frame */

enum { SIZE, STEP, DILATION, EXACT };

static const ds_attr_def frame_attrs[] = {
    {"size", DS_ATTR_INT, .required = true, .doc = "frames in a window", .range = DS_FROM_1},
    {"step", DS_ATTR_INT, .required = true, .doc = "frames from window to window",
     .range = DS_FROM_1},
    {"dilation", DS_ATTR_INT, .i = 1, .doc = "frames from one to the next within a window",
     .range = DS_FROM_1},
    {"exact", DS_ATTR_INT, .doc = "1: the length must be a multiple of size", .range = DS_0_OR_1},
    {0}};

static ds_status frame_infer(ds_op *op)
{
    const int64_t size = op->attr[SIZE].i, step = op->attr[STEP].i;
    DS_CHECK(op->attr[DILATION].i < ((int64_t)1 << 40) / size, DS_ARGUMENT,
             "frame: windows of %lld frames, %lld apart, are too long", (long long)size,
             (long long)op->attr[DILATION].i);
    DS_CHECK(op->attr[EXACT].i == 0 || (step == size && op->attr[DILATION].i == 1), DS_ARGUMENT,
             "frame: exact windows need step = size and dilation 1, got %lld, %lld and %lld",
             (long long)step, (long long)size, (long long)op->attr[DILATION].i);
    op->needs_frames = op->attr[EXACT].i == 0; /* a view has no frames of none */
    ds_signature *out = &op->out[0];
    DS_CHECK(out->rank < DS_MAX_RANK, DS_SHAPE,
             "frame: its input has %d feature dimensions, one more is not supported", out->rank);
    out->rank++;
    out->shape[0] = size;
    for (int d = 1; d < out->rank; d++)
        out->shape[d] = op->in[0].shape[d - 1];
    return ds_scale_rate(op, 1, step);
}

static ds_padding frame_windows(const ds_op *op)
{
    return (ds_padding){
        .kernel = op->attr[SIZE].i, .stride = op->attr[STEP].i, .dilation = op->attr[DILATION].i};
}

DS_COUNTS_OF(frame, ds_padding, frame_windows)

static void frame_check(const ds_op *op, ds_program *p)
{
    if (op->attr[EXACT].i == 1) {
        const int64_t size = op->attr[SIZE].i;
        const ds_expr whole = ds_mul_k(p, ds_floordiv_k(p, ds_total(p, 0), size), size);
        ds_root(p, ds_const(p, 1));
        ds_root(p, ds_sub(p, ds_total(p, 0), whole));
    }
}

static ds_status frame_fail_check(const ds_op *op, const ds_pair *in)
{
    return ds_fail(DS_SHAPE, "frame: length %lld is not a multiple of %lld", (long long)in[0].total,
                   (long long)op->attr[SIZE].i);
}

static void frame_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t n = ds_signature_elements(&op->in[0]);
    ds_move_piece(
        move, &(ds_piece){.m1 = DS_NEVER,
                          .step = op->attr[STEP].i * n,
                          .hold = 1,
                          .rank = 2,
                          .axis = {{op->attr[SIZE].i, n, op->attr[DILATION].i * n}, {n, 1, 1}}});
}

const ds_op_def ds_op_frame = {
    DS_OPERATOR_OF(frame,
                   "Windows of successive frames, each a frame with one more feature dimension.", 1,
                   1, 1),
    .infer = frame_infer,
    .attrs = frame_attrs,
    DS_MOVED(frame_pieces, 0),
    DS_COUNTED(frame),
    DS_CHECKED(frame)};

/* ---------------------------------------------------------------- unstack, repeat_frames */

enum { TIMES };

static const ds_attr_def repeat_frames_attrs[] = {{"times", DS_ATTR_INT, .required = true,
                                                   .doc = "output frames per input frame",
                                                   .range = DS_FROM_1, .most = DS_PADDING_LIMIT},
                                                  {0}};

/* Output frames of one input frame. */
static int64_t repeat_frames_times(const ds_op *op)
{
    return op->def == &ds_op_unstack ? op->in[0].shape[0] : op->attr[TIMES].i;
}

static ds_status repeat_frames_infer(ds_op *op)
{
    if (op->def == &ds_op_unstack)
        ds_drop_first(op, &op->in[0]);
    return ds_scale_rate(op, repeat_frames_times(op), 1);
}

static void repeat_frames_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_known(p, 0), repeat_frames_times(op)));
    ds_root(p, ds_mul_k(p, ds_total(p, 0), repeat_frames_times(op)));
}

static void repeat_frames_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_floordiv_k(p, ds_m(p), repeat_frames_times(op)));
}

static void repeat_frames_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t n = move->n_out;
    ds_move_piece(
        move,
        &(ds_piece){
            .m1 = DS_NEVER, .step = n, .hold = op->attr[TIMES].i, .rank = 1, .axis = {{n, 1, 1}}});
}

const ds_op_def ds_op_unstack = {
    DS_OPERATOR_OF(unstack,
                   "Lays the first feature dimension out along the stream: k frames for each.", 1,
                   1, 1),
    .shapes = "[n, ..]", .infer = repeat_frames_infer, DS_COUNTED(repeat_frames),
    DS_MOVED(ds_same_pieces, 0)};

const ds_op_def ds_op_repeat_frames = {
    DS_OPERATOR_OF(repeat_frames, "Every frame several times.", 1, 1, 1),
    .infer = repeat_frames_infer, .attrs = repeat_frames_attrs, DS_MOVED(repeat_frames_pieces, 0),
    DS_COUNTED(repeat_frames)};

/* ---------------------------------------------------------------- overlap_add */

enum { BETWEEN };
enum { RUN = 256 }; /* samples that are summed at a time, at most */

static const ds_attr_def overlap_add_attrs[] = {{"step", DS_ATTR_INT, .required = true,
                                                 .doc = "samples from window to window",
                                                 .range = DS_FROM_1, .most = DS_PADDING_LIMIT},
                                                {0}};

static ds_status overlap_add_infer(ds_op *op)
{
    const int64_t step = op->attr[BETWEEN].i;
    ds_drop_first(op, &op->in[0]);
    DS_TRY(ds_scale_rate(op, step, 1));
    return ds_size_mul(&op->scratch.per_call, ds_elements(&op->out[0]), RUN * sizeof(double));
}

static ds_phases overlap_add_windows(const ds_op *op)
{
    return ds_phases_make(
        (ds_padding){.kernel = op->in[0].shape[0], .stride = op->attr[BETWEEN].i, .dilation = 1});
}

DS_COUNTS_OF(overlap_add, ds_phases, overlap_add_windows)

/* The samples from u on that the same windows, [first, last], touch. */
typedef struct stretch {
    int64_t first, last, end;
} stretch;

static stretch overlap_add_stretch_at(int64_t u, int64_t end, int64_t step, int64_t size,
                                      int64_t n_windows)
{
    stretch s = {.first = u < size ? 0 : (u - size) / step + 1, .last = u / step};
    s.end = (s.last + 1) * step;
    if (s.last >= n_windows)
        s.last = n_windows - 1;
    if (s.first <= s.last && s.first * step + size < s.end)
        s.end = s.first * step + size;
    s.end = s.end < end ? s.end : end;
    s.end = s.end < u + RUN ? s.end : u + RUN;
    return s;
}

static void overlap_add_forward(const ds_op *op, const ds_run *run)
{
    const int64_t step = op->attr[BETWEEN].i, size = op->in[0].shape[0];
    const size_t n = ds_elements(&op->out[0]), element = ds_op_element(op);
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    double *const sum = run->scratch;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t u = out->m0; u < out->m1;) {
            const stretch s =
                overlap_add_stretch_at(u, out->m1, step, size, run->count[r].now.known);
            const size_t n_here = (size_t)(s.end - u) * n;
            memset(sum, 0, n_here * sizeof *sum);
            for (int64_t i = s.first; i <= s.last; i++) {
                const char *window = ds_at(&run->in[r], i, n_bytes);
                ds_sums_add(sum, window + (size_t)(u - i * step) * n * element, n_here,
                            op->in[0].dtype);
            }
            ds_sums_write(ds_to(out, u, n * element), sum, n_here, 1.0, op->in[0].dtype);
            u = s.end;
        }
    }
}

static void overlap_add_backward(const ds_op *op, const ds_back *b)
{
    const int64_t step = op->attr[BETWEEN].i, size = op->in[0].shape[0];
    const size_t n = ds_elements(&op->out[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const ds_target *out = &b->run->out[r];
        const ds_slope *dx = &b->dx[r];
        for (int64_t i = dx->at; i < dx->at + dx->n && dx->data; i++) {
            const int64_t from = i * step > out->m0 ? i * step : out->m0;
            const int64_t to = i * step + size < out->m1 ? i * step + size : out->m1;
            if (from < to)
                ds_back_add(b->run->k,
                            (char *)dx->data +
                                (size_t)((i - dx->at) * size + from - i * step) * n_bytes,
                            (const char *)b->dy[r] + (size_t)(from - out->m0) * n_bytes,
                            (size_t)(to - from) * n);
        }
    }
}

const ds_op_def ds_op_overlap_add = {
    DS_OPERATOR(overlap_add, "Windows laid over each other, a step apart, and added."),
    .flags = DS_OP_REAL | DS_OP_NEEDS_FRAMES,
    .shapes = "[size, ..]",
    .attrs = overlap_add_attrs,
    DS_COUNTED(overlap_add),
    .backward = overlap_add_backward};
