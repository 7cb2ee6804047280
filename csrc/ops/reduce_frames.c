/* ops/reduce_frames.c: sums, means and extremes of frames, per feature; NaN wins.
 *
 *     reduce_frames  y = sum_t x[t],  sum_t x[t] / T,  max_t x[t],  min_t x[t]      torch.sum, ... over L
 *                    known  0      total  1      need  never: each call reads its new frames only
 *     var_frames     y = sum_t (x[t] - mean)^2 / max(T - correction, 0)                torch.var over L
 *                    counts as reduce_frames'
 *     cumulative     y[t] = sum of x[0] .. x[t],  for the mean divided by t + 1     torch.cumsum
 *                    frame in, frame out
 *
 * Rate 0 of reduce_frames: the vector leaves when the stream ends; a stream of no frames has none. Carried: double
 * sums (or the extremes), added frame by frame in order, so that nothing drifts and chunks don't matter; of var_frames
 * the mean so far and the squares about it, which each frame moves (Welford 1962). */
#include <math.h>

#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND };
enum { SUM, MEAN, MAX, MIN };
enum { BESIDE = 64 /* features whose extremes are taken at a time */ };

static const ds_attr_def reduce_frames_attrs[] = {{"kind", DS_ATTR_CHOICE, .required = true,
                                                   .choices = "sum|mean|max|min",
                                                   .doc = "what is computed"},
                                                  {0}};
static const ds_attr_def cumulative_attrs[] = {
    {"kind", DS_ATTR_CHOICE, .required = true, .choices = "sum|mean", .doc = "what is computed"},
    {0}};

static void sums_carry(ds_op *op, const char *name)
{
    op->n_carried = 1;
    op->carried[0] = (ds_carried){.name = name, .array = op->in[0]};
    op->carried[0].array.dtype = DS_F64;
}

static ds_status reduce_frames_infer(ds_op *op)
{
    sums_carry(op, "accumulator");
    op->out[0].rate = (ds_rate){0, 1};
    return DS_OK;
}

/* sum[i] = the extreme of itself and of feature i of n_frames frames. */
static void reduce_frames_extreme(const ds_real_kernels *k, bool greatest, double *sum,
                                  const char *x, size_t n, size_t n_frames)
{
    double v[BESIDE];
    for (size_t at = 0, wide; at < n; at += wide) {
        wide = n - at < BESIDE ? n - at : BESIDE;
        k->reduce(greatest ? DS_REDUCE_GREATEST : DS_REDUCE_LEAST, v, x + at * k->element, wide, 1,
                  n_frames, n, NULL);
        for (size_t i = 0; i < wide; i++)
            if (v[i] != v[i] || (greatest ? v[i] > sum[at + i] : v[i] < sum[at + i]))
                sum[at + i] = v[i];
    }
}

static void reduce_frames_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    const int64_t kind = op->attr[KIND].i;
    for (size_t r = 0; r < run->n_rows; r++) {
        double *sum = (double *)((char *)run->carried[r] + op->carried[0].offset);
        const int64_t from = run->count[r].before.known, end = run->count[r].now.known;
        if (from == 0 && end > 0) /* the stream's first frame replaces what is there */
            ds_sums_set(sum, ds_at(&run->in[r], 0, n_bytes), n, op->in[0].dtype);
        const int64_t t = from > 0 ? from : 1;
        if (t < end) {
            const void *const x = ds_at(&run->in[r], t, n_bytes);
            if (kind == SUM || kind == MEAN)
                run->k->column_sums(sum, x, (size_t)(end - t), n, NULL);
            else
                reduce_frames_extreme(run->k, kind == MAX, sum, x, n, (size_t)(end - t));
        }
        if (run->out[r].m0 < run->out[r].m1)
            ds_sums_write(run->out[r].data, sum, n, kind == MEAN ? (double)end : 1.0,
                          op->in[0].dtype);
    }
}

const ds_op_def ds_op_reduce_frames = {
    DS_OPERATOR(reduce_frames,
                "Sum, mean, maximum or minimum over all frames, at the end of the stream."),
    .flags = DS_OP_REAL, .attrs = reduce_frames_attrs, DS_AT_END};

/* ---------------------------------------------------------------- var_frames */

enum { CORRECTION };

static const ds_attr_def var_frames_attrs[] = {
    {"correction", DS_ATTR_REAL, .x = 1.0, .doc = "squares are divided by T - correction"}, {0}};

static ds_status var_frames_infer(ds_op *op)
{
    DS_TRY(reduce_frames_infer(op));
    op->carried[0].name = "mean";
    op->carried[1] = op->carried[0];
    op->carried[1].name = "squares";
    op->n_carried = 2;
    return DS_OK;
}

/* Frame number t, from 1 on, moves the mean of n features and their squares about it. */
#define DEFINE_MOVE(REAL)                                                                 \
    static void var_frames_##REAL(double *mean, double *squares, const REAL *x, size_t n, \
                                  double t)                                               \
    {                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                  \
            const double off = (double)x[i] - mean[i];                                    \
            mean[i] += off / t;                                                           \
            squares[i] += off * ((double)x[i] - mean[i]);                                 \
        }                                                                                 \
    }
DEFINE_MOVE(float)
DEFINE_MOVE(double)

static void var_frames_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        double *const mean = (double *)((char *)run->carried[r] + op->carried[0].offset);
        double *const squares = (double *)((char *)run->carried[r] + op->carried[1].offset);
        const int64_t end = run->count[r].now.known;
        for (int64_t t = run->count[r].before.known; t < end;) {
            const void *const x = ds_at(&run->in[r], t++, n_bytes);
            if (op->in[0].dtype == DS_F32)
                var_frames_float(mean, squares, x, n, (double)t);
            else
                var_frames_double(mean, squares, x, n, (double)t);
        }
        if (run->out[r].m0 < run->out[r].m1)
            ds_sums_write(run->out[r].data, squares, n,
                          fmax((double)end - op->attr[CORRECTION].x, 0), op->in[0].dtype);
    }
}

const ds_op_def ds_op_var_frames = {
    DS_OPERATOR(var_frames, "Variance over all frames, at the end of the stream."),
    .flags = DS_OP_REAL, .attrs = var_frames_attrs, DS_AT_END};

/* ---------------------------------------------------------------- cumulative */

static ds_status cumulative_infer(ds_op *op)
{
    sums_carry(op, "sum");
    return DS_OK;
}

static void cumulative_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        double *sum = (double *)((char *)run->carried[r] + op->carried[0].offset);
        for (int64_t t = out->m0; t < out->m1; t++) {
            ds_sums_add(sum, ds_at(&run->in[r], t, n_bytes), n, op->in[0].dtype);
            ds_sums_write(ds_to(out, t, n_bytes), sum, n,
                          op->attr[KIND].i == MEAN ? (double)(t + 1) : 1.0, op->in[0].dtype);
        }
    }
}

const ds_op_def ds_op_cumulative = {DS_OPERATOR(cumulative, "Sum or mean of all frames so far."),
                                    .flags = DS_OP_INPLACE | DS_OP_REAL, .attrs = cumulative_attrs};
