/* ops/reduce_features.c: one value of all elements along feature axes, in every frame.
 *
 *     sum, mean, prod, amax, amin, argmax, argmin, any, all of x
 *     var  = sum of (x - mean)^2 / max(n - correction, 0),  std = sqrt(var)
 *     norm = (sum of |x|^p)^(1/p); greatest or least |x| for p = inf, -inf; nonzero elements for p = 0
 *     logsumexp = log(sum of exp(x))
 *
 * in [features], out without the `axes` (or with 1 in their place); frame in, frame out. Reals are taken in double
 * and rounded once; their sums have the order of the kernel `reduce`. Sums and products of integers and bools are
 * int64; positions are int64 and count the elements along the axes, the last axis fastest, the first of equals.
 * NaN is the greatest and the least.
 *
 * Where the axes are neighbours the elements of a result are equally far apart, and a kernel reduces many results
 * at once; for other axes and functions those of each are brought together first.
 *
 * Source: torch's functions of these names. */
#include <math.h>
#include <string.h>

#include "ops/back.h"
#include "ops/move.h"
#include "ops/packed.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND, AXES, KEEPDIM, CORRECTION, P };
enum { SUM, MEAN, PROD, MAX, MIN, VAR, STD, NORM, LOGSUMEXP, ANY, ALL, ARGMAX, ARGMIN };

static const ds_attr_def reduce_features_attrs[] = {
    {"kind", DS_ATTR_CHOICE, .required = true, .doc = "what is computed",
     .choices = "sum|mean|prod|amax|amin|var|std|norm|logsumexp|any|all|argmax|argmin"},
    {"axes", DS_ATTR_INTS, .doc = "the feature axes; all if left out"},
    {"keepdim", DS_ATTR_INT, .range = DS_0_OR_1, .doc = "1: the axes stay, with size 1"},
    {"correction", DS_ATTR_REAL, .x = 1.0, .doc = "of var and std: they divide by n - correction"},
    {"p", DS_ATTR_REAL, .x = 2.0, .doc = "of norm"},
    {0}};

static bool reduced(const ds_op *op, int axis)
{
    const ds_attr_value *axes = &op->attr[AXES];
    bool found = axes->n_ints == 0;
    for (int i = 0; i < axes->n_ints; i++)
        found = found || axes->ints[i] == axis;
    return found;
}

static size_t reduced_elements(const ds_op *op)
{
    size_t n = 1;
    for (int i = 0; i < op->in[0].rank; i++)
        n *= reduced(op, i) ? (size_t)op->in[0].shape[i] : 1;
    return n;
}

enum { BESIDE = 64 /* results at a time */, LOGSUMEXP_ROOM = 512 };

/* Doubles of scratch for several results of one function. */
static size_t beside_one(const ds_op *op)
{
    return op->attr[KIND].i == LOGSUMEXP ? LOGSUMEXP_ROOM : 0;
}

static ds_status reduce_features_axes(const ds_op *op)
{
    const ds_attr_value *axes = &op->attr[AXES];
    const int rank = op->in[0].rank;
    for (int i = 0; i < axes->n_ints; i++) {
        DS_CHECK(axes->ints[i] >= 0 && axes->ints[i] < rank, DS_ARGUMENT,
                 "reduce_features: axes must be below the rank of the features %s, got %lld",
                 DS_SHAPE_TEXT(&op->in[0]), (long long)axes->ints[i]);
        for (int j = 0; j < i; j++) {
            DS_CHECK(axes->ints[i] != axes->ints[j], DS_ARGUMENT,
                     "reduce_features: axis %lld is given twice", (long long)axes->ints[i]);
        }
    }
    return DS_OK;
}

static ds_status reduce_features_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t kind = op->attr[KIND].i;
    DS_TRY(reduce_features_axes(op));
    if (kind == MEAN || (kind >= VAR && kind <= LOGSUMEXP))
        DS_TRY(ds_op_require_real(op));
    ds_signature *out = &op->out[0];
    out->rank = 0;
    for (int i = 0; i < in->rank; i++) {
        if (!reduced(op, i))
            out->shape[out->rank++] = in->shape[i];
        else if (op->attr[KEEPDIM].i == 1)
            out->shape[out->rank++] = 1;
    }
    if (kind == ANY || kind == ALL) {
        out->dtype = DS_BOOL;
    } else if (kind == ARGMAX || kind == ARGMIN ||
               ((kind == SUM || kind == PROD) && !ds_is_real(in->dtype))) {
        out->dtype = DS_I64;
    }
    /* what is made of a result's elements, and they as int64; those of a frame, brought together */
    const size_t n = ds_elements(in);
    op->reads = kind == SUM || kind == MEAN ? 0 : DS_READS_X | DS_READS_Y;
    op->back_scratch.per_call = reduced_elements(op) * (2 * sizeof(double) + sizeof(size_t));
    return ds_size_mul(&op->scratch.per_call, n + beside_one(op), 3 * sizeof(double));
}

/* ---------------------------------------------------------------- results by the kernel */

/* Elements of a result are `step` apart, those of one result and the next `stride`; one of them is 1. */
typedef struct layout {
    size_t n, stride, step;
} layout;

static bool by_kernel(const ds_op *op)
{
    switch (op->attr[KIND].i) {
    case NORM:
        return op->attr[P].x == 2;
    case LOGSUMEXP:
    case ANY:
    case ALL:
        return false;
    default:
        return ds_is_real(op->in[0].dtype) || op->in[0].dtype == DS_I64;
    }
}

/* Where the first of n elements, `step` apart, is that equals their extreme, or is NaN as that is. */
DS_FOR_ELEMENT int64_t find(const void *x, size_t n, size_t step, double extreme, size_t e)
{
    size_t i = 0;
    for (double v = 0; i + 1 < n; i++) {
        v = ds_sums_real(x, e, i * step);
        if (v == extreme || v != v)
            break;
    }
    return (int64_t)i;
}

static int64_t find_whole(const int64_t *x, size_t n, size_t step, int64_t extreme)
{
    size_t i = 0;
    while (i + 1 < n && x[i * step] != extreme)
        i++;
    return (int64_t)i;
}

/* How many of n elements are not 0. */
DS_FOR_ELEMENT size_t count(const void *x, size_t n, size_t e)
{
    size_t n_true = 0;
    for (size_t i = 0; i < n; i++)
        n_true += ds_sums_real(x, e, i) != 0;
    return n_true;
}

static size_t count_whole(const int64_t *x, size_t n)
{
    size_t n_true = 0;
    for (size_t i = 0; i < n; i++)
        n_true += x[i] != 0;
    return n_true;
}

/* What the kernel is asked for first; of variances the mean is made of it. */
static ds_reduction reduction_of(int64_t kind)
{
    return kind == PROD                    ? DS_REDUCE_PRODUCT
           : kind == MAX || kind == ARGMAX ? DS_REDUCE_GREATEST
           : kind == MIN || kind == ARGMIN ? DS_REDUCE_LEAST
                                           : DS_REDUCE_SUM;
}

/* Results of int64. */
static void reduce_whole(const ds_op *op, const ds_run *run, int64_t *y, const int64_t *x,
                         size_t n_results, layout at)
{
    const int64_t kind = op->attr[KIND].i;
    run->k->whole->reduce(reduction_of(kind), y, x, n_results, at.stride, at.n, at.step);
    for (size_t r = 0; r < n_results && (kind == ARGMAX || kind == ARGMIN); r++)
        y[r] = find_whole(x + r * at.stride, at.n, at.step, y[r]);
}

/* Results of y, at most BESIDE. */
static void reduce_beside(const ds_op *op, const ds_run *run, void *y, const void *x,
                          size_t n_results, layout at)
{
    const int64_t kind = op->attr[KIND].i;
    const ds_dtype dtype = op->in[0].dtype;
    const ds_real_kernels *const k = run->k;
    double v[BESIDE], centre[BESIDE];
    if (!ds_is_real(dtype)) {
        reduce_whole(op, run, y, x, n_results, at);
        return;
    }
    if (kind != NORM)
        k->reduce(reduction_of(kind), v, x, n_results, at.stride, at.n, at.step, NULL);
    for (size_t r = 0; r < n_results && (kind == VAR || kind == STD); r++)
        centre[r] = v[r] / (double)at.n;
    if (kind == VAR || kind == STD || kind == NORM)
        k->reduce(DS_REDUCE_SQUARES, v, x, n_results, at.stride, at.n, at.step,
                  kind == NORM ? NULL : centre);
    if (kind == VAR || kind == STD)
        for (size_t r = 0; r < n_results; r++)
            v[r] /= fmax((double)at.n - op->attr[CORRECTION].x, 0);
    if (kind == STD || kind == NORM)
        for (size_t r = 0; r < n_results; r++)
            v[r] = sqrt(v[r]);
    if (kind != ARGMAX && kind != ARGMIN)
        ds_sums_write(y, v, n_results, kind == MEAN ? (double)at.n : 1, dtype);
    for (size_t r = 0; r < n_results && (kind == ARGMAX || kind == ARGMIN); r++)
        ((int64_t *)y)[r] = DS_BY_ELEMENT(
            find, k->element, (const char *)x + r * at.stride * k->element, at.n, at.step, v[r]);
}

/* ---------------------------------------------------------------- one result */

/* Room for a number as the operator's reals have it, for kernels. */
typedef union real {
    float f;
    double d;
} real;

static double reduced_by(const ds_run *run, ds_reduction kind, const void *x, size_t n)
{
    double y;
    run->k->reduce(kind, &y, x, 1, n, n, 1, NULL);
    return y;
}

/* The p-norm for any p but 2; room: for n reals. */
static double norm(const ds_run *run, const void *x, size_t n, double p, void *room)
{
    const ds_real_kernels *const k = run->k;
    if (p == 0)
        return (double)DS_BY_ELEMENT(count, k->element, x, n);
    k->unary(DS_UNARY_ABS, room, x, n, NULL);
    if (p == 1)
        return reduced_by(run, DS_REDUCE_SUM, room, n);
    if (isinf(p))
        return reduced_by(run, p > 0 ? DS_REDUCE_GREATEST : DS_REDUCE_LEAST, room, n);
    real power, total;
    ds_sums_set_real(&power, k->element, 0, p);
    k->binary(DS_BINARY_POW, room, room, &power, n, 1, 0);
    ds_sums_set_real(&power, k->element, 0, 1 / p);
    ds_sums_set_real(&total, k->element, 0, reduced_by(run, DS_REDUCE_SUM, room, n));
    k->binary(DS_BINARY_POW, &total, &total, &power, 1, 1, 0);
    return ds_sums_real(&total, k->element, 0);
}

/* Results of n neighbours each, as many as room holds at a time: it is for n reals, and for LOGSUMEXP_ROOM doubles. */
static void logsumexp(const ds_run *run, void *y, const void *x, size_t n_results, size_t n,
                      void *room)
{
    const ds_real_kernels *const k = run->k;
    const size_t fit = LOGSUMEXP_ROOM * sizeof(double) / (n * k->element);
    const size_t most = fit < 1 ? 1 : fit < BESIDE ? fit : BESIDE;
    for (size_t at = 0; at < n_results; at += most) {
        const size_t some = n_results - at < most ? n_results - at : most;
        const char *const from = (const char *)x + at * n * k->element;
        double top[BESIDE], sum[BESIDE];
        real total[BESIDE];
        k->reduce(DS_REDUCE_GREATEST, top, from, some, n, n, 1, NULL);
        for (size_t r = 0; r < some; r++)
            if (k->element == sizeof(float))
                for (size_t i = r * n; i < (r + 1) * n; i++)
                    ((float *)room)[i] = ((const float *)(const void *)from)[i] - (float)top[r];
            else
                for (size_t i = r * n; i < (r + 1) * n; i++)
                    ((double *)room)[i] = ((const double *)(const void *)from)[i] - top[r];
        k->unary(DS_UNARY_EXP, room, room, some * n, NULL);
        k->reduce(DS_REDUCE_SUM, sum, room, some, n, n, 1, NULL);
        for (size_t r = 0; r < some; r++)
            ds_sums_set_real(total, k->element, r, sum[r]);
        k->unary(DS_UNARY_LOG, total, total, some, NULL);
        for (size_t r = 0; r < some; r++)
            ds_sums_set_real(y, k->element, at + r,
                             isinf(top[r]) || top[r] != top[r]
                                 ? top[r]
                                 : top[r] + ds_sums_real(total, k->element, r));
    }
}

static void put_whole(void *y, ds_dtype dtype, size_t i, int64_t value)
{
    if (dtype == DS_I64)
        ((int64_t *)y)[i] = value;
    else if (dtype == DS_I16)
        ((int16_t *)y)[i] = (int16_t)value;
    else
        ((uint8_t *)y)[i] = (uint8_t)(value != 0);
}

/* n bools or int16 as int64. */
static const char *as_whole(ds_dtype dtype, const void *x, size_t n, int64_t *room)
{
    for (size_t i = 0; i < n; i++)
        room[i] = dtype == DS_I16 ? ((const int16_t *)x)[i] : ((const uint8_t *)x)[i] != 0;
    return (const char *)room;
}

/* Result i of y from n elements, one after the other, which are reals or int64; room: for as many. */
static void reduce_one(const ds_op *op, const ds_run *run, void *y, size_t i, const void *x,
                       size_t n, void *room)
{
    const int64_t kind = op->attr[KIND].i;
    const ds_dtype dtype = op->in[0].dtype;
    if (kind == ANY || kind == ALL) {
        const size_t n_true =
            ds_is_real(dtype) ? DS_BY_ELEMENT(count, run->k->element, x, n) : count_whole(x, n);
        ((uint8_t *)y)[i] = kind == ANY ? n_true > 0 : n_true == n;
    } else if (!ds_is_real(dtype)) {
        int64_t value;
        reduce_whole(op, run, &value, x, 1, (layout){n, n, 1});
        put_whole(y, op->out[0].dtype, i, value);
    } else {
        ds_sums_set_real(y, ds_op_element(op), i, norm(run, x, n, op->attr[P].x, room));
    }
}

/* ---------------------------------------------------------------- all of them */

/* Adds the axes that are reduced, or the others, to a box that brings them together; n_bytes: of all that is left. */
static int64_t add_axes(const ds_op *op, ds_box *box, bool are_reduced, int64_t n_bytes)
{
    const ds_signature *in = &op->in[0];
    for (int d = 0; d < in->rank; d++)
        if (reduced(op, d) == are_reduced) {
            n_bytes /= in->shape[d];
            ds_box_add(box, in->shape[d], n_bytes,
                       ds_signature_stride(in, d) * (int64_t)box->element);
        }
    return n_bytes;
}

/* Results of `rows` rows of [n][inner] elements, by the kernel. */
static void reduce_rows(const ds_op *op, const ds_run *run, void *y, const char *x, size_t rows,
                        size_t n, size_t inner)
{
    const int64_t kind = op->attr[KIND].i;
    const bool reals = ds_is_real(op->in[0].dtype);
    const size_t element = ds_dtype_bytes(op->in[0].dtype), beside = inner == 1 ? rows : inner;
    const size_t out = ds_dtype_bytes(op->out[0].dtype);
    /* results of one element each stand side by side */
    const layout at = inner > 1 ? (layout){n, 1, inner}
                      : n > 1   ? (layout){n, n, 1}
                                : (layout){1, 1, 2};
    if (n == 1 && kind == NORM) {
        run->k->unary(DS_UNARY_ABS, y, x, rows * inner, NULL);
        return;
    }
    if (n == 1 && reals && (kind == SUM || kind == MEAN)) { /* which have no sign of zero */
        run->k->binary(DS_BINARY_ADD, y, x, &(double){0}, rows * inner, 1, 0);
        return;
    }
    if (n == 1 && kind <= MIN) {
        memcpy(y, x, rows * inner * element);
        return;
    }
    for (size_t done = 0; done < rows * inner; done += beside, x += beside * n * element)
        for (size_t r = 0; r < beside; r += BESIDE)
            reduce_beside(op, run, (char *)y + (done + r) * out, x + r * at.stride * element,
                          beside - r < BESIDE ? beside - r : BESIDE, at);
}

static void reduce_features_forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0];
    const bool narrow = ds_dtype_bytes(in->dtype) < sizeof(float); /* they become int64 */
    const size_t element = narrow ? sizeof(int64_t) : ds_dtype_bytes(in->dtype);
    const size_t n = reduced_elements(op), elements = ds_elements(in), results = elements / n;
    const size_t in_bytes = ds_signature_bytes(in), out_bytes = ds_signature_bytes(&op->out[0]);
    ds_box own = {.element = element}, all = own;
    (void)add_axes(op, &own, true, (int64_t)(n * element));
    (void)add_axes(op, &all, true, add_axes(op, &all, false, (int64_t)(elements * element)));
    /* elements from one of a result to the next, if that is all */
    const size_t inner = own.rank > 0 ? (size_t)own.axis[0].from / element : 1;
    double *const room = run->scratch;
    double *const wide = room + n + beside_one(op);
    char *const together = (char *)(wide + elements);
    const bool regular = own.rank <= 1, kernel = by_kernel(op);
    const bool logsum = op->attr[KIND].i == LOGSUMEXP;
    ds_frames f;
    for (f.next = 0; ds_next_frames(op, run, &f);) {
        const char *x = f.x[0];
        char *y = f.y[0];
        if (kernel && regular) {
            reduce_rows(op, run, y, x, f.n * results / inner, n, inner);
            continue;
        }
        if (logsum && regular && inner == 1) {
            logsumexp(run, y, x, f.n * results, n, room);
            continue;
        }
        for (size_t m = 0; m < f.n; m++, x += in_bytes, y += out_bytes) {
            const char *from = x;
            if (narrow)
                from = as_whole(in->dtype, (const void *)x, elements, (void *)wide);
            if (!regular || inner > 1) {
                ds_box_copy(&all, together, from);
                from = together;
            }
            if (kernel)
                reduce_rows(op, run, y, from, results, n, 1);
            if (logsum)
                logsumexp(run, y, from, results, n, room);
            for (size_t i = 0; i < results && !kernel && !logsum; i++)
                reduce_one(op, run, y, i, from + i * n * element, n, room);
        }
    }
}

size_t ds_op_row_sums(const ds_op *op)
{
    size_t n = 1;
    if (op->def != &ds_op_reduce_features || op->attr[KIND].i != SUM ||
        !ds_is_real(op->in[0].dtype))
        return 0;
    for (int d = op->in[0].rank - 1; d >= 0; d--) {
        if (reduced(op, d) && d + 1 < op->in[0].rank && !reduced(op, d + 1))
            return 0;
        n *= reduced(op, d) ? (size_t)op->in[0].shape[d] : 1;
    }
    return n;
}

/* ---------------------------------------------------------------- slopes */

/* Of n elements of one result, brought together in v, which becomes their slopes: g times what the result makes of
 * each. Extremes that are equal divide theirs; where one is NaN, all slopes are, but those of norms are its own. */
static void slopes_of(const ds_op *op, double *v, size_t n, double g, double y, double *room)
{
    const int64_t kind = op->attr[KIND].i;
    const double p = op->attr[P].x, div = fmax((double)n - op->attr[CORRECTION].x, 0);
    double sum = 0;
    bool zero = false;
    switch (kind) {
    case SUM:
    case MEAN:
        for (size_t i = 0; i < n; i++)
            v[i] = kind == MEAN ? g / (double)n : g;
        return;
    case PROD: /* as torch's, which differ in infinities and NaN: y / v, but where one is 0 without a quotient */
        for (size_t i = 0; i < n; i++)
            zero = zero || v[i] == 0;
        for (size_t i = 0; i < n && !zero; i++)
            v[i] = g * (y / v[i]);
        if (!zero)
            return;
        sum = 1;
        for (size_t i = 0; i < n; sum *= v[i++])
            room[i] = sum;
        for (size_t i = n; i-- > 0;) {
            const double x = v[i];
            v[i] = g * room[i];
            g *= x;
        }
        return;
    case VAR:
    case STD:
        for (size_t i = 0; i < n; i++)
            sum += v[i];
        g = kind == VAR ? 2 * g / div : y == 0 ? 0 : g / (div * y);
        for (size_t i = 0; i < n; i++)
            v[i] = g * (v[i] - sum / (double)n);
        return;
    case LOGSUMEXP:
        for (size_t i = 0; i < n; i++)
            v[i] = g * exp(v[i] - y);
        return;
    default:
        break;
    }
    const bool extreme = kind != NORM || isinf(p);
    for (size_t i = 0; i < n && extreme; i++)
        sum += kind == NORM ? fabs(v[i]) == y || (v[i] != v[i] && y != y) : v[i] == y;
    for (size_t i = 0; i < n; i++) {
        const double sign = kind != NORM ? 1 : (v[i] > 0) - (v[i] < 0), x = fabs(v[i]);
        if (extreme)
            v[i] = kind == NORM ? (x == y || (x != x && y != y) ? g * sign / sum : 0)
                                : g * (v[i] == y) / sum;
        else if (p == 0 || (y == 0 && p != 1))
            v[i] = 0;
        else if (x == 0 && p < 1)
            v[i] = 0 * g * pow(y, 1 - p); /* NaN where y is none, or infinite */
        else
            v[i] = p == 1 ? g * sign : p == 2 ? g * (v[i] / y) : g * sign * pow(x / y, p - 1);
    }
}

/* Elements from a frame's first to element i along the axes that are reduced, or along the others. */
static size_t place_of(const ds_op *op, size_t i, bool are_reduced)
{
    const ds_signature *in = &op->in[0];
    size_t place = 0;
    for (int d = in->rank - 1; d >= 0; d--)
        if (reduced(op, d) == are_reduced) {
            place += i % (size_t)in->shape[d] * (size_t)ds_signature_stride(in, d);
            i /= (size_t)in->shape[d];
        }
    return place;
}

static void reduce_features_backward(const ds_op *op, const ds_back *b)
{
    const size_t n = reduced_elements(op), element = ds_op_element(op),
                 all = ds_elements(&op->in[0]), results = all / n;
    double *const v = b->scratch, *const room = v + n;
    size_t *const places = (size_t *)(void *)(room + n);
    for (size_t i = 0; i < n; i++)
        places[i] = place_of(op, i, true);
    ds_frames f;
    for (f.next = 0; ds_back_next_frames(op, b, &f);)
        for (size_t j = 0; j < f.n * results && f.dx[0]; j++) {
            const size_t at = j / results * all + place_of(op, j % results, false);
            for (size_t i = 0; i < n && f.x[0]; i++)
                v[i] = ds_sums_real(f.x[0], element, at + places[i]);
            slopes_of(op, v, n, ds_sums_real(f.g[0], element, j),
                      f.y[0] ? ds_sums_real(f.y[0], element, j) : 0, room);
            for (size_t i = 0; i < n; i++)
                ds_back_add_real(f.dx[0], element, at + places[i], v[i]);
        }
}

const ds_op_def ds_op_reduce_features = {
    DS_OPERATOR(reduce_features, "Sum, mean, extreme, norm, ... along feature axes."),
    .shapes = "[.., n]", .attrs = reduce_features_attrs, .backward = reduce_features_backward};
