/* ops/reduce_frames.c: sums, products, extremes of frames, per feature; NaN wins.
 *
 *     reduce_frames  y = sum_t x[t],  sum_t x[t] / T,  max_t x[t],  log(sum_t exp(x[t])), ...   torch.sum, ... over L
 *                    known  0      total  1      need  never: each call reads its new frames only
 *     cumulative     y[t] = the same of x[0] .. x[t]                                 torch.cumsum, torch.cummax, ...
 *                    frame in, frame out
 *     var_frames     y = sum_t (x[t] - mean)^2 / max(T - correction, 0)                torch.var over L
 *                    counts as reduce_frames'
 *
 * Rate 0 of reduce_frames: the vector leaves when the stream ends; a stream of no frames has none. Frames are folded
 * one by one, in order, so that chunks don't matter, into what is carried: sums, products and extremes in double, so that
 * nothing drifts, or int64, whose sums and products wrap; of logsumexp the largest so far and the sum of
 * exp(x - largest), by the kernels' exp; of argmax and argmin the extreme and its position: the first of equals, in
 * cumulative the last, as in torch; of var_frames the mean so far and the squares about it, which each frame moves
 * (Welford 1962). */
#include <math.h>
#include <string.h>

#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND };
enum { SUM, MEAN, MAX, MIN, PROD, LOGSUMEXP, ARGMAX, ARGMIN };
enum { BESIDE = 64 /* features whose extremes are taken at a time */ };

static const ds_attr_def reduce_frames_attrs[] = {
    {"kind", DS_ATTR_CHOICE, .required = true, .doc = "what is computed",
     .choices = "sum|mean|max|min|prod|logsumexp|argmax|argmin"},
    {0}};

static void carry(ds_op *op, int i, const char *name, ds_dtype dtype)
{
    op->carried[i] = (ds_carried){.name = name, .array = op->in[0]};
    op->carried[i].array.dtype = dtype;
    op->n_carried = i + 1;
}

/* What is folded into one array of this name, and perhaps another. */
static ds_status fold_infer(ds_op *op, const char *name)
{
    const int64_t kind = op->attr[KIND].i;
    const bool real = ds_is_real(op->in[0].dtype);
    op->needs_frames =
        op->at_end != 0 && (kind == MAX || kind == MIN || kind == ARGMAX || kind == ARGMIN);
    if (!real && op->in[0].dtype == DS_I64 && kind != MEAN && kind != LOGSUMEXP)
        carry(op, 0, name, DS_I64);
    else
        DS_TRY(ds_op_require_real(op));
    if (real)
        carry(op, 0, name, DS_F64);
    if (kind == ARGMAX || kind == ARGMIN) {
        carry(op, 1, "place", DS_I64);
        op->out[0].dtype = DS_I64;
    }
    if (kind == LOGSUMEXP) {
        carry(op, 1, "weights", DS_F64);
        op->scratch.per_call = (size_t)ds_signature_elements(&op->in[0]) * DS_SUMS_WEIGH_BYTES;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- folding */

/* so_far[i] = the extreme of itself and of feature i of n_frames frames. */
static void fold_extreme(const ds_real_kernels *k, bool greatest, double *so_far, const char *x,
                         size_t n, size_t n_frames)
{
    double v[BESIDE];
    for (size_t at = 0, wide; at < n; at += wide) {
        wide = n - at < BESIDE ? n - at : BESIDE;
        k->reduce(greatest ? DS_REDUCE_GREATEST : DS_REDUCE_LEAST, v, x + at * k->element, wide, 1,
                  n_frames, n, NULL);
        for (size_t i = 0; i < wide; i++)
            if (v[i] != v[i] || (greatest ? v[i] > so_far[at + i] : v[i] < so_far[at + i]))
                so_far[at + i] = v[i];
    }
}

#define REAL(a, operation, b) ((a)operation(b))
#define WRAPPED(a, operation, b) ((int64_t)((uint64_t)(a)operation(uint64_t)(b)))

/* Frames number t to end - 1 of n features, one by one; place: of extremes, or NULL; `last`: of equals. */
#define DEFINE_FOLD(TYPE, WIDE, AS)                                                               \
    static void fold_##TYPE(int64_t kind, bool last, WIDE *so_far, int64_t *place, const TYPE *x, \
                            size_t n, int64_t t, int64_t end)                                     \
    {                                                                                             \
        const bool greatest = kind == MAX || kind == ARGMAX;                                      \
        for (; t < end; t++, x += n)                                                              \
            for (size_t i = 0; i < n; i++) {                                                      \
                const WIDE v = (WIDE)x[i], w = so_far[i];                                         \
                if (t == 0) {                                                                     \
                    so_far[i] = v;                                                                \
                } else if (kind == SUM || kind == MEAN) {                                         \
                    so_far[i] = AS(w, +, v);                                                      \
                } else if (kind == PROD) {                                                        \
                    so_far[i] = AS(w, *, v);                                                      \
                } else if (v != v ? last || w == w                                                \
                                  : w == w && (greatest ? v > w || (last && v == w)               \
                                                        : v < w || (last && v == w))) {           \
                    so_far[i] = v;                                                                \
                    if (place)                                                                    \
                        place[i] = t;                                                             \
                }                                                                                 \
            }                                                                                     \
    }
DEFINE_FOLD(float, double, REAL)
DEFINE_FOLD(double, double, REAL)
DEFINE_FOLD(int64_t, int64_t, WRAPPED)

static void fold_weights(const ds_run *run, double *largest, double *weights, const char *x,
                         size_t n, int64_t t, int64_t end)
{
    for (size_t i = 0; i < n && t == 0; i++)
        largest[i] = -(double)INFINITY;
    for (; t < end; t++, x += n * run->k->element)
        ds_sums_weigh(run->k, largest, weights, x, n, run->scratch);
}

static void *carried_of(const ds_op *op, const ds_run *run, size_t r, int i)
{
    return i < op->n_carried ? ds_run_carried(op, run, r, i) : NULL;
}

/* Row r's frames number t to end - 1; `last`: of equals. */
static void fold(const ds_op *op, const ds_run *run, size_t r, int64_t t, int64_t end, bool last)
{
    const ds_signature *in = &op->in[0];
    const size_t n = (size_t)ds_signature_elements(in), n_bytes = ds_signature_bytes(in);
    const int64_t kind = op->attr[KIND].i;
    void *const so_far = carried_of(op, run, r, 0), *const more = carried_of(op, run, r, 1);
    if (t >= end)
        return;
    const char *x = ds_at(&run->in[r], t, n_bytes);
    if (kind == LOGSUMEXP) {
        fold_weights(run, so_far, more, x, n, t, end);
    } else if (in->dtype == DS_I64) {
        fold_int64_t(kind, last, so_far, more, (const void *)x, n, t, end);
    } else if (kind > MIN) {
        if (in->dtype == DS_F32)
            fold_float(kind, last, so_far, more, (const void *)x, n, t, end);
        else
            fold_double(kind, last, so_far, more, (const void *)x, n, t, end);
    } else {
        if (t == 0) { /* the stream's first frame replaces what is there */
            ds_sums_set(so_far, x, n, in->dtype);
            x += n_bytes;
            t = 1;
        }
        if (t < end && (kind == SUM || kind == MEAN))
            run->k->column_sums(so_far, x, (size_t)(end - t), n, NULL);
        else if (t < end)
            fold_extreme(run->k, kind == MAX, so_far, x, n, (size_t)(end - t));
    }
}

/* log(weights) + largest, by way of scratch. */
static void fold_write_log(const ds_run *run, void *y, const double *largest, const double *weights,
                           size_t n, ds_dtype dtype)
{
    void *const logs = run->scratch;
    double *const sums = (double *)run->scratch + n;
    ds_sums_write(logs, weights, n, 1.0, dtype);
    run->k->unary(DS_UNARY_LOG, logs, logs, n, NULL);
    ds_sums_set(sums, logs, n, dtype);
    for (size_t i = 0; i < n; i++)
        sums[i] = isinf(largest[i]) ? largest[i] : largest[i] + sums[i];
    ds_sums_write(y, sums, n, 1.0, dtype);
}

/* What comes of the n_frames folded so far. */
static void fold_write(const ds_op *op, const ds_run *run, size_t r, void *y, int64_t n_frames)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]);
    const int64_t kind = op->attr[KIND].i;
    const ds_dtype dtype = op->in[0].dtype;
    void *const so_far = carried_of(op, run, r, 0);
    const void *const more = carried_of(op, run, r, 1);
    if (n_frames == 0 && kind == PROD) { /* of no frames: 1; sums are 0, their logarithms -inf */
        for (size_t i = 0; i < n; i++)
            if (dtype == DS_I64)
                ((int64_t *)so_far)[i] = 1;
            else
                ((double *)so_far)[i] = 1;
    }
    if (op->out[0].dtype == DS_I64)
        memcpy(y, more ? more : so_far, n * sizeof(int64_t));
    else if (kind == LOGSUMEXP)
        fold_write_log(run, y, so_far, more, n, dtype);
    else
        ds_sums_write(y, so_far, n, kind == MEAN ? (double)n_frames : 1.0, dtype);
}

/* ---------------------------------------------------------------- reduce_frames */

static ds_status reduce_frames_infer(ds_op *op)
{
    return fold_infer(op, "accumulator");
}

static void reduce_frames_forward(const ds_op *op, const ds_run *run)
{
    for (size_t r = 0; r < run->n_rows; r++) {
        const int64_t end = run->count[r].now.known;
        fold(op, run, r, run->count[r].before.known, end, false);
        if (run->out[r].m0 < run->out[r].m1)
            fold_write(op, run, r, run->out[r].data, end);
    }
}

const ds_op_def ds_op_reduce_frames = {
    DS_OPERATOR(
        reduce_frames,
        "Sum, mean, product, extreme, where that is, or logarithm of a sum of powers of all "
        "frames, at the end of the stream."),
    .flags = DS_OP_AT_END, .attrs = reduce_frames_attrs};

/* ---------------------------------------------------------------- cumulative */

static ds_status cumulative_infer(ds_op *op)
{
    return fold_infer(op, "sum");
}

static void cumulative_forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->out[0]);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t t = out->m0; t < out->m1; t++) {
            fold(op, run, r, t, t + 1, true);
            fold_write(op, run, r, ds_to(out, t, n_bytes), t + 1);
        }
    }
}

const ds_op_def ds_op_cumulative = {
    DS_OPERATOR(
        cumulative,
        "Sum, mean, product, extreme, where that is, or logarithm of a sum of powers of all "
        "frames so far."),
    .flags = DS_OP_INPLACE, .attrs = reduce_frames_attrs};

/* ---------------------------------------------------------------- var_frames */

enum { CORRECTION };

static const ds_attr_def var_frames_attrs[] = {
    {"correction", DS_ATTR_REAL, .x = 1.0, .doc = "squares are divided by T - correction"}, {0}};

static ds_status var_frames_infer(ds_op *op)
{
    carry(op, 0, "mean", DS_F64);
    carry(op, 1, "squares", DS_F64);
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
        double *const mean = ds_run_carried(op, run, r, 0);
        double *const squares = ds_run_carried(op, run, r, 1);
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
    .flags = DS_OP_REAL | DS_OP_AT_END, .attrs = var_frames_attrs};
