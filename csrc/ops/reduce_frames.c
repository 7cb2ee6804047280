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

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND };
enum { SUM, MEAN, MAX, MIN, PROD, LOGSUMEXP, ARGMAX, ARGMIN };
enum { BESIDE = 64 /* features whose extremes are taken at a time */, FEW = 16 };

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
    if (kind != SUM && kind != MEAN)
        op->reads = DS_READS_X | DS_READS_CARRIED;
    op->back_scratch.per_in = sizeof(double);
    op->back_scratch.per_out = sizeof(double);
    if (kind == LOGSUMEXP) {
        carry(op, 1, "weights", DS_F64);
        op->scratch.per_call =
            ds_sums_weigh_block((size_t)ds_signature_elements(&op->in[0])) * DS_SUMS_WEIGH_BYTES;
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
    const int64_t most = (int64_t)(ds_sums_weigh_block(n) / n);
    for (int64_t many; t < end; t += many, x += (size_t)many * n * run->k->element) {
        many = end - t < most ? end - t : most;
        ds_sums_weigh(run->k, largest, weights, x, n, (size_t)many, run->scratch);
    }
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

/* ---------------------------------------------------------------- slopes
 *
 * Feature by feature, over the frames [t0, t0 + n) of a call. Both operators are one: a fold gives what it holds at some
 * frames, at each (cumulative) or at the stream's last. Behind a frame the slopes of all that it goes into add up. */

/* One feature of one row's frames. */
typedef struct folded {
    int64_t kind, t0, n;  /* t0: the frames folded before */
    bool each, last;      /* each: gives at every frame; last: of equals */
    const void *x;        /* NULL: not read */
    void *dx;             /* NULL: not wanted */
    const void *g;        /* of every frame, or of the end; NULL: it gives nothing */
    size_t step, element; /* step: elements from frame to frame */
    const double *in; /* what was carried in, one for each carried array; NULL where it starts */
    double *slope;    /* of what is carried: out, then in */
    double *room;     /* [n]: of what is folded */
} folded;

/* The slope of what a frame's fold gives; its number among all is t + 1. */
DS_FOR_ELEMENT double given_slope(const folded *f, int64_t t, size_t e)
{
    if (!f->g || (!f->each && t + 1 < f->n))
        return 0;
    const double g = ds_sums_real(f->g, e, f->each ? (size_t)t * f->step : 0);
    return f->kind == MEAN ? g / (double)(f->t0 + t + 1) : g;
}

DS_FOR_ELEMENT double frame_of(const folded *f, int64_t t, size_t e)
{
    return ds_sums_real(f->x, e, (size_t)t * f->step);
}

DS_FOR_ELEMENT void add_frame(const folded *f, int64_t t, double slope, size_t e)
{
    if (f->dx)
        ds_back_add_real(f->dx, e, (size_t)t * f->step, slope);
}

/* The extreme so far is some frame's, or was carried in (-1). */
DS_FOR_ELEMENT void extreme_back(folded *f, size_t e)
{
    double most = f->in ? f->in[0] : 0, slope = 0;
    int64_t place = -1;
    if (f->n == 0)
        return;
    for (int64_t t = 0; t < f->n; t++) {
        const double v = frame_of(f, t, e);
        const bool greater = f->kind == MAX ? v > most : v < most, none = f->t0 + t == 0;
        if (none || (v != v ? f->last || most == most
                            : most == most && (greater || (f->last && v == most)))) {
            most = v;
            place = t;
        }
        const double g = given_slope(f, t, e) + (t + 1 == f->n ? f->slope[0] : 0);
        if (place < 0)
            slope += g;
        else
            add_frame(f, place, g, e);
    }
    f->slope[0] = slope;
}

/* Of the last product alone, where one of the frames, or of those to come, is 0: by those of all before each frame, and
 * of all behind. */
DS_FOR_ELEMENT void product_back_by_others(folded *f, size_t e)
{
    for (int64_t t = f->n; t-- > 0; f->slope[0] *= frame_of(f, t, e)) {
        f->slope[0] += given_slope(f, t, e);
        add_frame(f, t, f->slope[0] * f->room[t], e);
    }
}

/* As torch has it, which shows in infinities and NaN: `reached` are slopes of products times these, of all that a frame
 * goes into; its own is that, over the frame. Behind a 0 products start again, and only the first 0 has a slope. */
DS_FOR_ELEMENT void product_back(folded *f, size_t e)
{
    const double in = f->in ? f->in[0] : 1;
    double before = in == 0 && f->each ? 1 : in, behind = f->slope[0];
    int64_t zero = in == 0 ? -1 : f->n; /* the first */
    for (int64_t t = 0; t < f->n; t++) {
        const double x = frame_of(f, t, e);
        f->room[t] = before;
        zero = x == 0 && t < zero ? t : zero;
        before = x == 0 && f->each ? 1 : before * x;
    }
    if (!f->each && (zero < f->n || (!f->g && behind == 0))) {
        product_back_by_others(f, e);
        return;
    }
    double reached = behind == 0 ? 0 : behind * before;
    for (int64_t t = f->n; t-- > 0;) {
        const double x = frame_of(f, t, e), g = given_slope(f, t, e), y = f->room[t] * x;
        if (x == 0) {
            add_frame(f, t, t == zero ? (reached + g) * f->room[t] : 0, e);
            reached = behind = 0;
            continue;
        }
        if (f->g && (f->each || t + 1 == f->n))
            reached += g * (e == sizeof(float) ? (double)(float)y : y);
        behind = (behind + g) * x;
        add_frame(f, t, t < zero ? reached / x : 0, e);
    }
    f->slope[0] = f->each && in == in && reached != reached ? reached : behind;
}

/* Of log(sum of exp): `behind` are slopes times what a frame's share of y has of them. */
DS_FOR_ELEMENT void logarithm_back(folded *f, size_t e)
{
    double top = f->in ? f->in[0] : -(double)INFINITY, weights = f->in ? f->in[1] : 0;
    double y = weights > 0 ? top + log(weights) : -(double)INFINITY;
    const double first = y, first_weights = weights;
    for (int64_t t = 0; t < f->n; t++) {
        const double v = frame_of(f, t, e), now = v > top || v != v ? v : top;
        weights = (top == now ? weights : weights * exp(top - now)) +
                  (isinf(now) ? v == now : exp(v - now));
        top = now;
        y = isinf(top) ? top : top + log(weights);
        f->room[t] = y;
    }
    double behind = f->slope[1] * weights;
    for (int64_t t = f->n; t-- > 0;) {
        const double before = t > 0 ? f->room[t - 1] : first;
        behind += given_slope(f, t, e);
        if (behind != 0) {
            add_frame(f, t, exp(frame_of(f, t, e) - f->room[t]) * behind, e);
            behind *= before == f->room[t] ? 1 : exp(before - f->room[t]); /* infinite ones */
        }
    }
    f->slope[0] = 0; /* nothing depends on the greatest */
    f->slope[1] = first_weights > 0 ? behind / first_weights : 0;
}

DS_FOR_ELEMENT int feature_back(folded *f, size_t e)
{
    switch (f->kind) {
    case SUM:
    case MEAN:
        for (int64_t t = f->n; t-- > 0;) {
            f->slope[0] += given_slope(f, t, e);
            add_frame(f, t, f->slope[0], e);
        }
        break;
    case PROD:
        product_back(f, e);
        break;
    case LOGSUMEXP:
        logarithm_back(f, e);
        break;
    default:
        extreme_back(f, e);
    }
    return 0;
}

static void fold_backward(const ds_op *op, const ds_back *b)
{
    const ds_run *run = b->run;
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), element = ds_op_element(op);
    const bool each = op->at_end == 0;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_counts *count = &run->count[r];
        const ds_target *out = &run->out[r];
        const int64_t t0 = each ? out->m0 : count->before.known,
                      end = each ? out->m1 : count->now.known;
        const char *const x =
            run->in[r].data && t0 < end ? ds_at(&run->in[r], t0, n * element) : NULL;
        char *const dx = t0 < end ? ds_slope_at(&b->dx[r], t0, n * element) : NULL;
        const bool given = out->m0 < out->m1;
        for (size_t i = 0; i < n; i++) {
            double in[2] = {0}, slope[2] = {0};
            folded f = {.kind = op->attr[KIND].i,
                        .t0 = t0,
                        .n = end - t0,
                        .each = each,
                        .last = each,
                        .x = x ? x + i * element : NULL,
                        .dx = dx ? dx + i * element : NULL,
                        .g = given ? (const char *)b->dy[r] + i * element : NULL,
                        .step = n,
                        .element = element,
                        .in = t0 > 0 ? in : NULL,
                        .slope = slope,
                        .room = b->scratch};
            double *carried[2];
            for (int c = 0; c < op->n_carried; c++) {
                carried[c] = (double *)ds_back_carried(op, b, r, c) + i;
                slope[c] = *carried[c];
                in[c] = ((const double *)ds_run_carried(op, run, r, c))[i];
            }
            if (end == t0 && given && !each) { /* what was folded before leaves */
                const double g = ds_sums_real(f.g, element, 0);
                const int of = f.kind == LOGSUMEXP;
                slope[of] += f.kind == MEAN ? g / (double)end : f.kind == LOGSUMEXP ? g / in[1] : g;
            }
            (void)DS_BY_ELEMENT(feature_back, element, &f);
            for (int c = 0; c < op->n_carried; c++)
                *carried[c] = t0 > 0 ? slope[c] : 0;
        }
    }
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
    .flags = DS_OP_AT_END, .attrs = reduce_frames_attrs, .backward = fold_backward};

/* ---------------------------------------------------------------- cumulative */

static ds_status cumulative_infer(ds_op *op)
{
    return fold_infer(op, "sum");
}

/* Sums or products of few reals, each in a register through all frames; y may be x. */
DS_FOR_ELEMENT int so_far(double *total, void *y, const void *x, size_t n, size_t n_frames,
                          bool product, size_t e)
{
    for (size_t i = 0; i < n; i++) {
        double v = total[i];
        for (size_t f = i; f < n * n_frames; f += n) {
            v = product ? v * ds_sums_real(x, e, f) : v + ds_sums_real(x, e, f);
            ds_sums_set_real(y, e, f, v);
        }
        total[i] = v;
    }
    return 0;
}

static void cumulative_forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->out[0]);
    const size_t n = (size_t)ds_signature_elements(&op->in[0]);
    const bool product = op->attr[KIND].i == PROD;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (n < FEW && ds_is_real(op->in[0].dtype) && (product || op->attr[KIND].i == SUM) &&
            out->m0 < out->m1) {
            double *const total = ds_run_carried(op, run, r, 0);
            const void *const x = ds_at(&run->in[r], out->m0, n_bytes);
            for (size_t i = 0; i < n && out->m0 == 0; i++)
                total[i] = product ? 1.0 : -0.0; /* with which a first number is itself */
            (void)DS_BY_ELEMENT(so_far, ds_op_element(op), total, out->data, x, n,
                                (size_t)(out->m1 - out->m0), product);
            continue;
        }
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
    .flags = DS_OP_INPLACE, .attrs = reduce_frames_attrs, .backward = fold_backward};

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
DS_FOR_ELEMENT int var_frames_move(double *mean, double *squares, const void *x, size_t n, double t,
                                   size_t e)
{
    for (size_t i = 0; i < n; i++) {
        const double v = ds_sums_real(x, e, i), off = v - mean[i];
        mean[i] += off / t;
        squares[i] += off * (v - mean[i]);
    }
    return 0;
}

static void var_frames_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        double *const mean = ds_run_carried(op, run, r, 0);
        double *const squares = ds_run_carried(op, run, r, 1);
        const int64_t end = run->count[r].now.known;
        for (int64_t t = run->count[r].before.known; t < end;) {
            const void *const x = ds_at(&run->in[r], t++, n_bytes);
            (void)DS_BY_ELEMENT(var_frames_move, ds_op_element(op), mean, squares, x, n, (double)t);
        }
        if (run->out[r].m0 < run->out[r].m1)
            ds_sums_write(run->out[r].data, squares, n,
                          fmax((double)end - op->attr[CORRECTION].x, 0), op->in[0].dtype);
    }
}

/* With q the slope of squares, m that of the mean, of n frames, n0 of them before:
 *     x has 2 q (x - mean) + m / n;  squares before q;  their mean 2 q n0 (mean before - mean) + m n0 / n */
static void var_frames_backward(const ds_op *op, const ds_back *b)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), element = ds_op_element(op);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const int64_t t0 = b->run->count[r].before.known, end = b->run->count[r].now.known;
        double *const dmean = ds_back_carried(op, b, r, 0);
        double *const dsquares = ds_back_carried(op, b, r, 1);
        const double *const before = ds_run_carried(op, b->run, r, 0);
        const void *const x = t0 < end ? ds_at(&b->run->in[r], t0, n * element) : NULL;
        void *const dx = t0 < end ? ds_slope_at(&b->dx[r], t0, n * element) : NULL;
        const bool given = b->run->out[r].m0 < b->run->out[r].m1;
        for (size_t i = 0; i < n; i++) {
            double mean = t0 > 0 ? before[i] * (double)t0 : 0;
            for (int64_t t = 0; t < end - t0; t++)
                mean += ds_sums_real(x, element, (size_t)t * n + i);
            mean /= (double)end;
            if (given)
                dsquares[i] += ds_sums_real(b->dy[r], element, i) /
                               fmax((double)end - op->attr[CORRECTION].x, 0);
            for (int64_t t = 0; t < end - t0 && dx; t++)
                ds_back_add_real(dx, element, (size_t)t * n + i,
                                 2 * dsquares[i] *
                                         (ds_sums_real(x, element, (size_t)t * n + i) - mean) +
                                     dmean[i] / (double)end);
            dmean[i] = t0 > 0 ? (2 * dsquares[i] * (before[i] - mean) + dmean[i] / (double)end) *
                                    (double)t0
                              : 0;
            dsquares[i] = t0 > 0 ? dsquares[i] : 0;
        }
    }
}

const ds_op_def ds_op_var_frames = {
    DS_OPERATOR(var_frames, "Variance over all frames, at the end of the stream."),
    .flags = DS_OP_REAL | DS_OP_AT_END, .attrs = var_frames_attrs, .backward = var_frames_backward,
    .reads = DS_READS_X | DS_READS_CARRIED};
