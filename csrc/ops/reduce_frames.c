/* ops/reduce_frames.c: sums, products, extremes of frames, per feature; NaN wins.
 *
 *     reduce_frames  y = sum_t x[t],  sum_t x[t] / T,  max_t x[t],  log(sum_t exp(x[t])), ...   torch.sum, ... over L
 *                    known  0      total  1      need  never: each call reads its new frames only
 *     cumulative     y[t] = the same of x[0] .. x[t]                                 torch.cumsum, torch.cummax, ...
 *                    frame in, frame out
 *     cumulative_within   the same along one feature axis of every frame
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

#include "ops/fold.h"
#include "ops/move.h"
#include "ops/registry.h"

enum { BESIDE = 64 /* features whose extremes are taken at a time */ };

#define KIND_ATTR                                                         \
    {"kind", DS_ATTR_CHOICE, .required = true, .doc = "what is computed", \
     .choices = "sum|mean|max|min|prod|logsumexp|argmax|argmin"}

static const ds_attr_def reduce_frames_attrs[] = {KIND_ATTR, {0}};

/* Its types. */
static ds_status fold_infer(ds_op *op)
{
    const int64_t kind = op->attr[DS_FOLD_KIND].i;
    if (op->in[0].dtype != DS_I64 || kind == DS_FOLD_MEAN || kind == DS_FOLD_LOGSUMEXP)
        DS_TRY(ds_op_require_real(op));
    if (kind >= DS_FOLD_ARGMAX)
        op->out[0].dtype = DS_I64;
    op->reads = kind == DS_FOLD_SUM || kind == DS_FOLD_MEAN ? 0 : DS_READS_X | DS_READS_CARRIED;
    return DS_OK;
}

static void carry(ds_op *op, int i, const char *name, ds_dtype dtype)
{
    op->carried[i] = (ds_carried){.name = name, .array = op->in[0]};
    op->carried[i].array.dtype = dtype;
    op->n_carried = i + 1;
}

/* What of n features is weighed at a time, in bytes of scratch. */
static size_t weighing_bytes(const ds_op *op, size_t n)
{
    return op->attr[DS_FOLD_KIND].i == DS_FOLD_LOGSUMEXP
               ? ds_sums_weigh_block(n) * DS_SUMS_WEIGH_BYTES
               : 0;
}

/* Frames are folded into one array of this name, and perhaps another. */
static ds_status fold_frames_infer(ds_op *op, const char *name)
{
    const int64_t kind = op->attr[DS_FOLD_KIND].i;
    DS_TRY(fold_infer(op));
    op->needs_frames =
        op->at_end != 0 && (kind == DS_FOLD_MAX || kind == DS_FOLD_MIN || kind >= DS_FOLD_ARGMAX);
    carry(op, 0, name, ds_is_real(op->in[0].dtype) ? DS_F64 : DS_I64);
    if (kind >= DS_FOLD_ARGMAX)
        carry(op, 1, "place", DS_I64);
    if (kind == DS_FOLD_LOGSUMEXP)
        carry(op, 1, "weights", DS_F64);
    op->back_scratch.per_in = sizeof(double);
    op->back_scratch.per_out = sizeof(double);
    op->scratch.per_call = weighing_bytes(op, ds_elements(&op->in[0]));
    return DS_OK;
}

/* ---------------------------------------------------------------- folding */

/* What frames of n features are folded into. */
typedef struct fold {
    int64_t kind;
    ds_dtype dtype; /* of the frames */
    bool last;      /* of equals */
    size_t n;
    void *so_far, *more; /* more: NULL, places, or weights */
    const ds_real_kernels *k;
    void *scratch;
} fold;

static size_t out_bytes(const fold *f)
{
    return f->kind >= DS_FOLD_ARGMAX || f->dtype != DS_F32 ? 8 : 4;
}

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

/* next_TYPE: what comes of a value and what there is so far, of kinds that a register holds.
 *
 * chains_TYPE: so many chains, `apart` elements from one to the next, each of `count` values that are `step` apart: what
 * comes of all so far at each, or with y NULL at the end; y may be x. A chain waits for itself, so four go on together. */
#define DEFINE_CHAINS(TYPE, WIDE, AS)                                                              \
    DS_FOR_ELEMENT WIDE next_##TYPE(const int64_t kind, WIDE v, WIDE x)                            \
    {                                                                                              \
        if (kind == DS_FOLD_SUM || kind == DS_FOLD_PROD)                                           \
            return kind == DS_FOLD_SUM ? AS(v, +, x) : AS(v, *, x);                                \
        const bool beyond = kind == DS_FOLD_MAX ? x > v : x < v;                                   \
        return v == v && (beyond || x != x) ? x : v;                                               \
    }                                                                                              \
    DS_FOR_ELEMENT void some_chains_##TYPE(const size_t some, WIDE *so_far, TYPE *y,               \
                                           const TYPE *x, size_t apart, size_t step, size_t count, \
                                           const int64_t kind)                                     \
    {                                                                                              \
        WIDE v[4];                                                                                 \
        for (size_t j = 0; j < some; j++)                                                          \
            v[j] = so_far[j];                                                                      \
        for (size_t f = 0; f < count * step; f += step)                                            \
            for (size_t j = 0; j < some; j++) {                                                    \
                v[j] = next_##TYPE(kind, v[j], (WIDE)x[f + j * apart]);                            \
                if (y != NULL)                                                                     \
                    y[f + j * apart] = (TYPE)v[j];                                                 \
            }                                                                                      \
        for (size_t j = 0; j < some; j++)                                                          \
            so_far[j] = v[j];                                                                      \
    }                                                                                              \
    DS_FOR_ELEMENT void chains_##TYPE(WIDE *so_far, TYPE *y, const TYPE *x, size_t n,              \
                                      size_t apart, size_t step, size_t count, const int64_t kind) \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 4 <= n; i += 4)                                                                 \
            some_chains_##TYPE(4, so_far + i, y != NULL ? y + i * apart : y, x + i * apart, apart, \
                               step, count, kind);                                                 \
        for (; i < n; i++)                                                                         \
            some_chains_##TYPE(1, so_far + i, y != NULL ? y + i * apart : y, x + i * apart, apart, \
                               step, count, kind);                                                 \
    }
DEFINE_CHAINS(float, double, REAL)
DEFINE_CHAINS(double, double, REAL)
DEFINE_CHAINS(int64_t, int64_t, WRAPPED)

static bool in_registers(const fold *f)
{
    return f->kind <= DS_FOLD_PROD && f->kind != DS_FOLD_MEAN;
}

/* The chains of f's features; from the first value on, or going on. */
static void fold_chains(const fold *f, void *y, const void *x, size_t apart, size_t step,
                        size_t count, bool goes_on)
{
    static const struct {
        double real;
        int64_t whole;
    } first[] = {[DS_FOLD_SUM] = {-0.0 /* with which a number is itself */, 0},
                 [DS_FOLD_MAX] = {-(double)INFINITY, INT64_MIN},
                 [DS_FOLD_MIN] = {(double)INFINITY, INT64_MAX},
                 [DS_FOLD_PROD] = {1, 1}};
    for (size_t i = 0; i < f->n && !goes_on; i++)
        if (f->dtype == DS_I64)
            ((int64_t *)f->so_far)[i] = first[f->kind].whole;
        else
            ((double *)f->so_far)[i] = first[f->kind].real;
#define CHAINS(kind)                                                         \
    case kind:                                                               \
        if (f->dtype == DS_I64)                                              \
            chains_int64_t(f->so_far, y, x, f->n, apart, step, count, kind); \
        else if (f->dtype == DS_F32)                                         \
            chains_float(f->so_far, y, x, f->n, apart, step, count, kind);   \
        else                                                                 \
            chains_double(f->so_far, y, x, f->n, apart, step, count, kind);  \
        break;
    switch (f->kind) {
        CHAINS(DS_FOLD_SUM)
        CHAINS(DS_FOLD_MAX)
        CHAINS(DS_FOLD_MIN)
        CHAINS(DS_FOLD_PROD)
    }
}

/* Frames number t to end - 1 of n features, one by one: the extreme so far, and where it is; `last`: of equals. */
#define DEFINE_PLACES(TYPE, WIDE)                                                                \
    static void places_##TYPE(bool greatest, bool last, WIDE *so_far, int64_t *place,            \
                              const TYPE *x, size_t n, int64_t t, int64_t end)                   \
    {                                                                                            \
        for (; t < end; t++, x += n)                                                             \
            for (size_t i = 0; i < n; i++) {                                                     \
                const WIDE v = (WIDE)x[i], w = so_far[i];                                        \
                const bool beyond = greatest ? v > w : v < w,                                    \
                           next =                                                                \
                               v != v ? last || w == w : w == w && (beyond || (last && v == w)); \
                so_far[i] = t == 0 || next ? v : w;                                              \
                place[i] = t == 0 || next ? t : place[i];                                        \
            }                                                                                    \
    }
DEFINE_PLACES(float, double)
DEFINE_PLACES(double, double)
DEFINE_PLACES(int64_t, int64_t)

static void fold_weights(const fold *f, const char *x, int64_t t, int64_t end)
{
    double *const largest = f->so_far;
    for (size_t i = 0; i < f->n && t == 0; i++) {
        largest[i] = -(double)INFINITY;
        ((double *)f->more)[i] = 0;
    }
    const int64_t most = (int64_t)(ds_sums_weigh_block(f->n) / f->n);
    for (int64_t many; t < end; t += many, x += (size_t)many * f->n * f->k->element) {
        many = end - t < most ? end - t : most;
        ds_sums_weigh(f->k, largest, f->more, x, f->n, (size_t)many, f->scratch);
    }
}

/* Frames number t to end - 1, from x on. */
static void fold_frames(const fold *f, const char *x, int64_t t, int64_t end)
{
    const int64_t kind = f->kind;
    const size_t n = f->n;
    if (t >= end)
        return;
    if (kind == DS_FOLD_LOGSUMEXP) {
        fold_weights(f, x, t, end);
    } else if (kind >= DS_FOLD_ARGMAX) {
        const bool greatest = kind == DS_FOLD_ARGMAX;
        if (f->dtype == DS_I64)
            places_int64_t(greatest, f->last, f->so_far, f->more, (const void *)x, n, t, end);
        else if (f->dtype == DS_F32)
            places_float(greatest, f->last, f->so_far, f->more, (const void *)x, n, t, end);
        else
            places_double(greatest, f->last, f->so_far, f->more, (const void *)x, n, t, end);
    } else if (f->dtype == DS_I64 || kind == DS_FOLD_PROD) {
        fold_chains(f, NULL, x, 1, n, (size_t)(end - t), t > 0);
    } else {
        if (t == 0) { /* the first frame replaces what is there */
            ds_sums_set(f->so_far, x, n, f->dtype);
            x += n * f->k->element;
            t = 1;
        }
        if (t < end && (kind == DS_FOLD_SUM || kind == DS_FOLD_MEAN))
            f->k->column_sums(f->so_far, x, (size_t)(end - t), n, NULL);
        else if (t < end)
            fold_extreme(f->k, kind == DS_FOLD_MAX, f->so_far, x, n, (size_t)(end - t));
    }
}

/* log(weights) + largest, by way of scratch. */
static void fold_write_log(const fold *f, void *y)
{
    void *const logs = f->scratch;
    const double *const largest = f->so_far;
    double *const sums = (double *)f->scratch + f->n;
    ds_sums_write(logs, f->more, f->n, 1.0, f->dtype);
    f->k->unary(DS_UNARY_LOG, logs, logs, f->n, NULL);
    ds_sums_set(sums, logs, f->n, f->dtype);
    for (size_t i = 0; i < f->n; i++)
        sums[i] = isinf(largest[i]) ? largest[i] : largest[i] + sums[i];
    ds_sums_write(y, sums, f->n, 1.0, f->dtype);
}

/* What comes of the n_frames folded so far. */
static void fold_write(const fold *f, void *y, int64_t n_frames)
{
    if (n_frames == 0 && f->kind == DS_FOLD_PROD) /* is 1; sums are 0, their logarithms -inf */
        fold_chains(f, NULL, f->so_far, 1, f->n, 0, false);
    if (f->kind >= DS_FOLD_ARGMAX || f->dtype == DS_I64)
        memcpy(y, f->more ? f->more : f->so_far, f->n * sizeof(int64_t));
    else if (f->kind == DS_FOLD_LOGSUMEXP)
        fold_write_log(f, y);
    else
        ds_sums_write(y, f->so_far, f->n, f->kind == DS_FOLD_MEAN ? (double)n_frames : 1.0,
                      f->dtype);
}

/* What comes of all so far at each of frames number t to end - 1, from x on, from y on; y may be x. */
static void fold_each(const fold *f, void *y, const void *x, int64_t t, int64_t end)
{
    const size_t n = f->n, n_bytes = n * (f->dtype == DS_F32 ? 4 : 8);
    if (in_registers(f)) {
        fold_chains(f, y, x, 1, n, (size_t)(end - t), t > 0);
        return;
    }
    for (; t < end; t++, x = (const char *)x + n_bytes, y = (char *)y + n * out_bytes(f)) {
        fold_frames(f, x, t, t + 1);
        fold_write(f, y, t + 1);
    }
}

/* ---------------------------------------------------------------- reduce_frames */

static fold carried_fold(const ds_op *op, const ds_run *run, size_t r)
{
    return (fold){.kind = op->attr[DS_FOLD_KIND].i,
                  .dtype = op->in[0].dtype,
                  .last = op->at_end == 0,
                  .n = ds_elements(&op->in[0]),
                  .so_far = ds_run_carried(op, run, r, 0),
                  .more = op->n_carried > 1 ? ds_run_carried(op, run, r, 1) : NULL,
                  .k = run->k,
                  .scratch = run->scratch};
}

static ds_status reduce_frames_infer(ds_op *op)
{
    return fold_frames_infer(op, "accumulator");
}

static void reduce_frames_forward(const ds_op *op, const ds_run *run)
{
    for (size_t r = 0; r < run->n_rows; r++) {
        const fold f = carried_fold(op, run, r);
        const int64_t t = run->count[r].before.known, end = run->count[r].now.known;
        if (t < end)
            fold_frames(&f, ds_at(&run->in[r], t, ds_signature_bytes(&op->in[0])), t, end);
        if (run->out[r].m0 < run->out[r].m1)
            fold_write(&f, run->out[r].data, end);
    }
}

const ds_op_def ds_op_reduce_frames = {
    DS_OPERATOR(
        reduce_frames,
        "Sum, mean, product, extreme, where that is, or logarithm of a sum of powers of all "
        "frames, at the end of the stream."),
    .flags = DS_OP_AT_END, .attrs = reduce_frames_attrs, .backward = ds_fold_backward};

/* ---------------------------------------------------------------- cumulative */

static ds_status cumulative_infer(ds_op *op)
{
    DS_TRY(fold_frames_infer(op, "sum"));
    if (op->attr[DS_FOLD_KIND].i == DS_FOLD_PROD)
        op->scratch.per_call = ds_elements(&op->in[0]) * sizeof(bool);
    return DS_OK;
}

/* Which products have met a 0 once n_frames from x on are in them. */
DS_FOR_ELEMENT void see_zeros(bool *met, const double *product, const void *x, size_t n,
                              size_t n_frames, size_t e)
{
    for (size_t i = 0; i < n; i++)
        met[i] = ds_fold_met_zero(product[i]);
    for (size_t f = 0; f < n * n_frames; f += n)
        for (size_t i = 0; i < n; i++)
            met[i] |= ds_sums_real(x, e, f + i) == 0;
}

static void cumulative_forward(const ds_op *op, const ds_run *run)
{
    bool *const met = op->attr[DS_FOLD_KIND].i == DS_FOLD_PROD && ds_is_real(op->in[0].dtype)
                          ? run->scratch
                          : NULL;
    for (size_t r = 0; r < run->n_rows; r++) {
        const fold f = carried_fold(op, run, r);
        const ds_target *out = &run->out[r];
        const size_t n_frames = (size_t)(out->m1 - out->m0);
        if (n_frames == 0)
            continue;
        const void *const x = ds_at(&run->in[r], out->m0, ds_signature_bytes(&op->in[0]));
        double *const product = f.so_far;
        for (size_t i = 0; i < f.n && met && out->m0 == 0; i++)
            product[i] = 1;
        if (met)
            DS_BY_ELEMENT(see_zeros, run->k->element, met, product, x, f.n, n_frames);
        fold_each(&f, out->data, x, out->m0, out->m1);
        for (size_t i = 0; i < f.n && met; i++)
            if (product[i] != product[i])
                product[i] = copysign((double)NAN, met[i] ? -1 : 1);
    }
}

const ds_op_def ds_op_cumulative = {
    DS_OPERATOR(
        cumulative,
        "Sum, mean, product, extreme, where that is, or logarithm of a sum of powers of all "
        "frames so far."),
    .flags = DS_OP_INPLACE, .attrs = reduce_frames_attrs, .backward = ds_fold_backward};

/* ---------------------------------------------------------------- cumulative_within
 *
 * A frame is rows of n values, each of `inner` features. Few features of several rows are brought side by side, where
 * they are folded as more features are. */

enum { WITHIN_AXIS = 1, SIDE_BY_SIDE = 1 << 14 /* values, at most */ };

static const ds_attr_def cumulative_within_attrs[] = {
    KIND_ATTR,
    {"axis", DS_ATTR_INT, .required = true, .doc = "the feature dimension, from 0",
     .range = DS_AXIS},
    {0},
};

typedef struct within {
    size_t rows, n, inner; /* of one frame */
    size_t beside;         /* rows side by side */
} within;

static within within_of(const ds_op *op)
{
    const int axis = (int)op->attr[WITHIN_AXIS].i;
    const size_t n = (size_t)op->in[0].shape[axis],
                 inner = (size_t)ds_signature_stride(&op->in[0], axis),
                 rows = ds_elements(&op->in[0]) / n / inner;
    const size_t most = SIDE_BY_SIDE / n < BESIDE ? SIDE_BY_SIDE / n : BESIDE;
    return (within){rows, n, inner, most > inner ? most / inner : 1};
}

static ds_status cumulative_within_infer(ds_op *op)
{
    DS_TRY(fold_infer(op));
    op->reads &= DS_READS_ALL_X;
    const within w = within_of(op);
    const size_t side = w.beside * w.inner;
    /* what is so far, and more; values, and what comes of them */
    op->scratch.per_call = side * (2 + 2 * w.n) * sizeof(double) + weighing_bytes(op, side);
    op->back_scratch.per_call = w.n * sizeof(double);
    return DS_OK;
}

static void cumulative_within_frames(const ds_op *op, const ds_run *run, const ds_frames *frames)
{
    const within w = within_of(op);
    const size_t side = w.beside * w.inner, rows = frames->n * w.rows;
    double *const so_far = run->scratch, *const more = so_far + side, *const values = more + side,
                  *const found = values + side * w.n;
    fold f = {.kind = op->attr[DS_FOLD_KIND].i,
              .dtype = op->in[0].dtype,
              .last = true,
              .so_far = so_far,
              .more = op->attr[DS_FOLD_KIND].i >= DS_FOLD_LOGSUMEXP ? more : NULL,
              .k = run->k,
              .scratch = found + side * w.n};
    const int64_t in = f.dtype == DS_F32 ? 4 : 8, out = (int64_t)out_bytes(&f),
                  inner = (int64_t)w.inner, n = (int64_t)w.n;
    for (size_t r = 0, many; r < rows; r += many) {
        many = rows - r < w.beside ? rows - r : w.beside;
        const int64_t m = (int64_t)many;
        const void *const from = (const char *)frames->x[0] + r * w.n * w.inner * (size_t)in;
        void *const to = (char *)frames->y[0] + r * w.n * w.inner * (size_t)out;
        f.n = many * w.inner;
        if (inner == 1 && in_registers(&f)) {
            fold_chains(&f, to, from, w.n, 1, w.n, false);
        } else if (many == 1) {
            fold_each(&f, to, from, 0, n);
        } else {
            ds_box there = {.element = (size_t)in}, back = {.element = (size_t)out};
            ds_box_add(&there, n, m * inner * in, inner * in);
            ds_box_add(&there, m, inner * in, n * inner * in);
            ds_box_add(&there, inner, in, in);
            ds_box_add(&back, m, n * inner * out, inner * out);
            ds_box_add(&back, n, inner * out, m * inner * out);
            ds_box_add(&back, inner, out, out);
            ds_box_copy(&there, values, from);
            fold_each(&f, found, values, 0, n);
            ds_box_copy(&back, to, found);
        }
    }
}
DS_FRAMEWISE_FORWARD(cumulative_within)

static void cumulative_within_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const within w = within_of(op);
    ds_fold_within_slopes(op, b, f->dx[0], f->g[0], f->x[0], f->n * w.rows, w.n, w.inner);
}
DS_FRAMEWISE_BACKWARD(cumulative_within)

const ds_op_def ds_op_cumulative_within = {
    DS_OPERATOR(
        cumulative_within,
        "Sum, mean, product, extreme, where that is, or logarithm of a sum of powers of all "
        "so far along a feature dimension."),
    .flags = DS_OP_INPLACE, .attrs = cumulative_within_attrs,
    .backward = cumulative_within_backward};

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
DS_FOR_ELEMENT void var_frames_move(double *mean, double *squares, const void *x, size_t n,
                                    double t, size_t e)
{
    for (size_t i = 0; i < n; i++) {
        const double v = ds_sums_real(x, e, i), off = v - mean[i];
        mean[i] += off / t;
        squares[i] += off * (v - mean[i]);
    }
}

static void var_frames_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = ds_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        double *const mean = ds_run_carried(op, run, r, 0);
        double *const squares = ds_run_carried(op, run, r, 1);
        const int64_t end = run->count[r].now.known;
        for (int64_t t = run->count[r].before.known; t < end;) {
            const void *const x = ds_at(&run->in[r], t++, n_bytes);
            DS_BY_ELEMENT(var_frames_move, ds_op_element(op), mean, squares, x, n, (double)t);
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
    const size_t n = ds_elements(&op->in[0]), element = ds_op_element(op);
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
