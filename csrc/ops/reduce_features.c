/* ops/reduce_features.c: one value of all elements along feature axes, in every frame.
 *
 *     sum, mean, prod, amax, amin, argmax, argmin, any, all of x
 *     var  = sum of (x - mean)^2 / max(n - correction, 0),  std = sqrt(var)
 *     norm = (sum of |x|^p)^(1/p); greatest or least |x| for p = inf, -inf; nonzero elements for p = 0
 *     logsumexp = log(sum of exp(x))
 *
 * in [features], out without the `axes` (or with 1 in their place); frame in, frame out. Reals are taken
 * in double and rounded once; their sums have four lanes, of every fourth element, added in pairs. Sums and products of integers and bools are int64; positions are
 * int64 and count the elements along the axes, the last axis fastest, the first of equals. NaN is the
 * greatest and the least.
 *
 * Source: torch's functions of these names. */
#include <math.h>

#include "ops/packed.h"

enum { KIND, AXES, KEEPDIM, CORRECTION, P };
enum { SUM, MEAN, PROD, MAX, MIN, VAR, STD, NORM, LOGSUMEXP, ANY, ALL, ARGMAX, ARGMIN };

static const ds_attr_def attrs[] = {
    {.name = "kind",
     .kind = DS_ATTR_CHOICE,
     .required = true,
     .choices = "sum|mean|prod|amax|amin|var|std|norm|logsumexp|any|all|argmax|argmin",
     .doc = "what is computed"},
    {.name = "axes", .kind = DS_ATTR_INTS, .doc = "the feature axes; all if left out"},
    {.name = "keepdim", .kind = DS_ATTR_INT, .doc = "1: the axes stay, with size 1"},
    {.name = "correction",
     .kind = DS_ATTR_REAL,
     .x = 1.0,
     .doc = "of var and std: they divide by n - correction"},
    {.name = "p", .kind = DS_ATTR_REAL, .x = 2.0, .doc = "of norm"},
    {.name = NULL},
};

static bool is_real(ds_dtype dtype)
{
    return dtype == DS_F32 || dtype == DS_F64;
}

static bool reduced(const ds_op *op, int axis)
{
    const ds_attr_value *axes = &op->attr[AXES];
    bool found = axes->n_ints == 0;
    for (int i = 0; i < axes->n_ints; i++) {
        found = found || axes->ints[i] == axis;
    }
    return found;
}

static size_t reduced_elements(const ds_op *op)
{
    size_t n = 1;
    for (int i = 0; i < op->in[0].rank; i++) {
        n *= reduced(op, i) ? (size_t)op->in[0].shape[i] : 1;
    }
    return n;
}

static ds_status check_axes(const ds_op *op)
{
    const ds_attr_value *axes = &op->attr[AXES];
    const int rank = op->in[0].rank;
    char text[128];
    DS_CHECK(rank >= 1, DS_SHAPE, "reduce_features: its input needs a feature dimension");
    for (int i = 0; i < axes->n_ints; i++) {
        DS_CHECK(axes->ints[i] >= 0 && axes->ints[i] < rank, DS_ARGUMENT,
                 "reduce_features: axes must be below the rank of the features %s, got %lld",
                 ds_signature_text(&op->in[0], text, sizeof text), (long long)axes->ints[i]);
        for (int j = 0; j < i; j++) {
            DS_CHECK(axes->ints[i] != axes->ints[j], DS_ARGUMENT,
                     "reduce_features: axis %lld is given twice", (long long)axes->ints[i]);
        }
    }
    return DS_OK;
}

static ds_status infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t kind = op->attr[KIND].i;
    DS_TRY(check_axes(op));
    DS_CHECK(op->attr[KEEPDIM].i == 0 || op->attr[KEEPDIM].i == 1, DS_ARGUMENT,
             "reduce_features: keepdim must be 0 or 1, got %lld", (long long)op->attr[KEEPDIM].i);
    if (kind == MEAN || (kind >= VAR && kind <= LOGSUMEXP)) {
        DS_TRY(ds_op_require_real(op));
    }
    ds_signature *out = &op->out[0];
    out->rank = 0;
    for (int i = 0; i < in->rank; i++) {
        if (!reduced(op, i)) {
            out->shape[out->rank++] = in->shape[i];
        } else if (op->attr[KEEPDIM].i == 1) {
            out->shape[out->rank++] = 1;
        }
    }
    if (kind == ANY || kind == ALL) {
        out->dtype = DS_BOOL;
    } else if (kind == ARGMAX || kind == ARGMIN ||
               ((kind == SUM || kind == PROD) && !is_real(in->dtype))) {
        out->dtype = DS_I64;
    }
    /* where each result's elements begin, where they lie from there; the elements, and exp of them */
    const size_t n = (size_t)ds_signature_elements(in);
    return ds_size_mul(&op->scratch.per_call, n, 2 * sizeof(size_t) + 2 * sizeof(double));
}

/* ---------------------------------------------------------------- one result */

/* The sum of f(x[i]) in lanes. */
#define DEFINE_SUM(name, f)                                        \
    static double name(const double *x, size_t n, double centre)   \
    {                                                              \
        double lane[4] = {0};                                      \
        size_t i = 0;                                              \
        for (; i + 4 <= n; i += 4) {                               \
            for (size_t j = 0; j < 4; j++) {                       \
                lane[j] += f(x[i + j], centre);                    \
            }                                                      \
        }                                                          \
        for (size_t j = 0; i + j < n; j++) {                       \
            lane[j] += f(x[i + j], centre);                        \
        }                                                          \
        return (lane[0] + lane[1]) + (lane[2] + lane[3]);          \
    }

#define ITSELF(v, centre) ((void)(centre), v)
#define SQUARE(v, centre) (((v) - (centre)) * ((v) - (centre)))

DEFINE_SUM(sum_lanes, ITSELF)
DEFINE_SUM(sum_squares, SQUARE)

static double sum(const double *x, size_t n)
{
    return sum_lanes(x, n, 0);
}

static double variance(const double *x, size_t n, double correction)
{
    return sum_squares(x, n, sum(x, n) / (double)n) / fmax((double)n - correction, 0);
}

/* Where the greatest (or least) element is: NaN before all, else the first of equals. */
static size_t find(const double *x, size_t n, bool greatest)
{
    size_t best = 0;
    for (size_t i = 1; i < n && x[best] == x[best]; i++) {
        if (x[i] != x[i] || (greatest ? x[i] > x[best] : x[i] < x[best])) {
            best = i;
        }
    }
    return best;
}

static size_t find_whole(const int64_t *x, size_t n, bool greatest)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (greatest ? x[i] > x[best] : x[i] < x[best]) {
            best = i;
        }
    }
    return best;
}

/* x[i]^power, or without a power f(x[i]), by the kernels of the operator's real type. */
static void by_kernel(const ds_run *run, ds_unary function, const double *power, double *x, size_t n,
                      void *room)
{
    const double none[2] = {0};
    float *const narrow = room;
    const bool wide = run->k->element == sizeof(double);
    const float narrow_power = power != NULL ? (float)*power : 0;
    const void *const p = wide ? (const void *)power : &narrow_power;
    void *const v = wide ? (void *)x : narrow;
    for (size_t i = 0; !wide && i < n; i++) {
        narrow[i] = (float)x[i];
    }
    if (power != NULL) {
        run->k->binary(DS_BINARY_POW, v, v, p, n, 1, 0);
    } else {
        run->k->unary(function, v, v, n, none);
    }
    for (size_t i = 0; !wide && i < n; i++) {
        x[i] = (double)narrow[i];
    }
}

static double norm(const ds_run *run, double *x, size_t n, double p, void *room)
{
    if (p == 2) {
        return sqrt(sum_squares(x, n, 0));
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = p == 0 ? (double)(x[i] != 0) : fabs(x[i]);
    }
    if (p == 0 || p == 1) {
        return sum(x, n);
    }
    if (isinf(p)) {
        return x[find(x, n, p > 0)];
    }
    const double root = 1 / p;
    by_kernel(run, DS_UNARY_COUNT, &p, x, n, room);
    double total = sum(x, n);
    by_kernel(run, DS_UNARY_COUNT, &root, &total, 1, room);
    return total;
}

static double logsumexp(const ds_run *run, double *x, size_t n, void *room)
{
    const double top = x[find(x, n, true)];
    if (isinf(top) || top != top) {
        return top;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] -= top;
    }
    by_kernel(run, DS_UNARY_EXP, NULL, x, n, room);
    double total = sum(x, n);
    by_kernel(run, DS_UNARY_LOG, NULL, &total, 1, room);
    return top + total;
}

static double product(const double *x, size_t n)
{
    double total = 1;
    for (size_t i = 0; i < n; i++) {
        total *= x[i];
    }
    return total;
}

/* The result for reals that is real. */
static double real_result(const ds_op *op, const ds_run *run, double *x, size_t n, void *room)
{
    switch (op->attr[KIND].i) {
    case SUM: return sum(x, n);
    case MEAN: return sum(x, n) / (double)n;
    case PROD: return product(x, n);
    case MAX:
    case MIN: return x[find(x, n, op->attr[KIND].i == MAX)];
    case VAR: return variance(x, n, op->attr[CORRECTION].x);
    case STD: return sqrt(variance(x, n, op->attr[CORRECTION].x));
    case NORM: return norm(run, x, n, op->attr[P].x, room);
    default: return logsumexp(run, x, n, room);
    }
}

/* The result for whole numbers, whose sums wrap around, that is a whole number. */
static int64_t whole_result(int64_t kind, const int64_t *x, size_t n)
{
    uint64_t total = kind == PROD ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        total = kind == PROD ? total * (uint64_t)x[i] : total + (uint64_t)x[i];
    }
    return kind == MAX || kind == MIN ? x[find_whole(x, n, kind == MAX)] : (int64_t)total;
}

/* ---------------------------------------------------------------- all of them */

/* Offsets of elements within a frame: of the first of each result, and of a result's own from there. */
static void lay_out(const ds_op *op, size_t *first, size_t *own)
{
    size_t n_first = 1, n_own = 1, stride = 1;
    first[0] = own[0] = 0;
    for (int i = op->in[0].rank - 1; i >= 0; i--) { /* an outer axis repeats what the inner ones have */
        size_t *const list = reduced(op, i) ? own : first;
        size_t *const n = reduced(op, i) ? &n_own : &n_first;
        const size_t size = (size_t)op->in[0].shape[i], before = *n;
        for (size_t k = before; k < size * before; k++) {
            list[k] = list[k - before] + stride;
        }
        *n = size * before;
        stride *= size;
    }
}

#define GATHER(type, expression)                   \
    do {                                           \
        const type *from = x;                      \
        for (size_t i = 0; i < n; i++) {           \
            const type v = from[first + own[i]];   \
            to[i] = (expression);                  \
        }                                          \
    } while (0)

static void gather_real(double *to, ds_dtype dtype, const void *x, size_t first, const size_t *own,
                        size_t n)
{
    if (dtype == DS_F32) {
        GATHER(float, (double)v);
    } else {
        GATHER(double, v);
    }
}

static void gather_whole(int64_t *to, ds_dtype dtype, const void *x, size_t first,
                         const size_t *own, size_t n)
{
    switch (dtype) {
    case DS_I64: GATHER(int64_t, v); break;
    case DS_I16: GATHER(int16_t, (int64_t)v); break;
    default: GATHER(uint8_t, (int64_t)(v != 0)); break;
    }
}

static void put_whole(void *y, ds_dtype dtype, size_t i, int64_t value)
{
    switch (dtype) {
    case DS_I64: ((int64_t *)y)[i] = value; break;
    case DS_I16: ((int16_t *)y)[i] = (int16_t)value; break;
    default: ((uint8_t *)y)[i] = (uint8_t)(value != 0); break;
    }
}

static void reduce_reals(const ds_op *op, const ds_run *run, void *y, size_t i, double *x, size_t n)
{
    const int64_t kind = op->attr[KIND].i;
    if (kind == ARGMAX || kind == ARGMIN) {
        ((int64_t *)y)[i] = (int64_t)find(x, n, kind == ARGMAX);
    } else if (kind == ANY || kind == ALL) {
        size_t n_true = 0;
        for (size_t j = 0; j < n; j++) {
            n_true += x[j] != 0;
        }
        ((uint8_t *)y)[i] = kind == ANY ? n_true > 0 : n_true == n;
    } else if (op->out[0].dtype == DS_F32) {
        ((float *)y)[i] = (float)real_result(op, run, x, n, x + n);
    } else {
        ((double *)y)[i] = real_result(op, run, x, n, x + n);
    }
}

static void reduce_wholes(const ds_op *op, void *y, size_t i, const int64_t *x, size_t n)
{
    const int64_t kind = op->attr[KIND].i;
    if (kind == ARGMAX || kind == ARGMIN) {
        ((int64_t *)y)[i] = (int64_t)find_whole(x, n, kind == ARGMAX);
    } else if (kind == ANY || kind == ALL) {
        size_t n_true = 0;
        for (size_t j = 0; j < n; j++) {
            n_true += x[j] != 0;
        }
        ((uint8_t *)y)[i] = kind == ANY ? n_true > 0 : n_true == n;
    } else {
        put_whole(y, op->out[0].dtype, i, whole_result(kind, x, n));
    }
}

static void forward(const ds_op *op, const ds_run *run)
{
    const ds_dtype dtype = op->in[0].dtype;
    const size_t n = reduced_elements(op), per_frame = (size_t)ds_signature_elements(&op->in[0]);
    size_t *const own = run->scratch, *const first = own + per_frame;
    void *const elements = first + per_frame;
    lay_out(op, first, own);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        for (int64_t m = out->m0; m < out->m1; m++) {
            const void *x = ds_at(&run->in[row], m, ds_signature_bytes(&op->in[0]));
            void *y = ds_to(out, m, ds_signature_bytes(&op->out[0]));
            for (size_t i = 0; i < per_frame / n; i++) {
                if (is_real(dtype)) {
                    gather_real(elements, dtype, x, first[i], own, n);
                    reduce_reals(op, run, y, i, elements, n);
                } else {
                    gather_whole(elements, dtype, x, first[i], own, n);
                    reduce_wholes(op, y, i, elements, n);
                }
            }
        }
    }
}

const ds_op_def ds_op_reduce_features = {
    .name = "reduce_features",
    .doc = "Sum, mean, extreme, norm, ... along feature axes.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .attrs = attrs,
    .infer = infer,
    .forward = forward,
};
