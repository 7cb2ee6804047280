/* ops/softmax_sum.c: the mean of a stream's frames, weighted by a softmax over the stream.
 *
 *     y = sum_t exp(a[t]) x[t] / sum_t exp(a[t])       (a.softmax(L) * x).sum(L)
 *     known  0      total  1      need  never: each call reads its new frames only
 *
 * a broadcasts to x, aligned at the right; a feature of x in a frame where a is -inf has no weight. Rate 0: the vector
 * leaves when the stream ends. Carried, in double, per element of a: the largest so far, and the sum of
 * exp(a - largest); per element of x: the sum of exp(a - largest) x. A larger one scales both. Frame by frame in order,
 * so that chunks don't matter. exp is the kernels', of the operator's real type. */
#include <math.h>

#include "ops/framewise.h"
#include "ops/registry.h"

enum { SCORES, VALUES };
enum { LARGEST, WEIGHTS, SUMS };

static ds_status softmax_sum_infer(ds_op *op)
{
    const ds_signature *a = &op->in[SCORES], *x = &op->in[VALUES];
    bool fits = a->rank <= x->rank;
    for (int d = 0; d < a->rank && fits; d++)
        fits = a->shape[d] == 1 || a->shape[d] == x->shape[x->rank - a->rank + d];
    char scores[160], values[160];
    DS_CHECK(fits, DS_SHAPE, "softmax_sum: scores %s don't broadcast to values %s",
             ds_signature_text(a, scores, sizeof scores),
             ds_signature_text(x, values, sizeof values));
    static const char *const names[] = {"largest", "weights", "sums"};
    op->n_carried = 3;
    for (int i = LARGEST; i <= SUMS; i++) {
        op->carried[i] = (ds_carried){.name = names[i], .array = i == SUMS ? *x : *a};
        op->carried[i].array.dtype = DS_F64;
    }
    op->out[0] = *x;
    op->out[0].rate = (ds_rate){0, 1};
    /* weights of a frame, scales of the sums before it, both as reals; which of them each value meets */
    op->scratch.per_call = (size_t)ds_signature_elements(a) * 3 * sizeof(double) +
                           (size_t)ds_signature_elements(x) * sizeof(size_t);
    return DS_OK;
}

/* Element i of reals. */
static inline double softmax_sum_real(const void *x, size_t element, size_t i)
{
    return element == sizeof(float) ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static inline void softmax_sum_set(void *x, size_t element, size_t i, double value)
{
    if (element == sizeof(float))
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

/* The weights of a frame's n scores, and what those before it are scaled by: in scratch. */
static void softmax_sum_weigh(const ds_run *run, double *largest, double *sums, const void *scores,
                              size_t n)
{
    const ds_real_kernels *const k = run->k;
    const size_t element = k->element;
    double *const weight = run->scratch, *const scale = weight + n;
    void *const reals = scale + n;
    for (size_t i = 0; i < n; i++) {
        const double a = softmax_sum_real(scores, element, i), before = largest[i];
        if (!(a <= before))
            largest[i] = a;
        softmax_sum_set(reals, element, i, a == -(double)INFINITY ? a : a - largest[i]);
        scale[i] = before == largest[i] ? 0 : before - largest[i];
    }
    k->unary(DS_UNARY_EXP, reals, reals, n, NULL);
    for (size_t i = 0; i < n; i++) {
        weight[i] = softmax_sum_real(reals, element, i);
        softmax_sum_set(reals, element, i, scale[i]);
    }
    k->unary(DS_UNARY_EXP, reals, reals, n, NULL);
    for (size_t i = 0; i < n; i++) {
        scale[i] = softmax_sum_real(reals, element, i);
        sums[i] = sums[i] * scale[i] + weight[i];
    }
}

/* meets[i]: which element of a goes with element i of x. */
static void softmax_sum_meets(const ds_op *op, size_t *meets)
{
    const ds_signature *a = &op->in[SCORES], *x = &op->in[VALUES];
    size_t n = 1;
    meets[0] = 0;
    for (int d = x->rank - 1; d >= 0; n *= (size_t)x->shape[d--]) {
        const size_t stride = (size_t)ds_broadcast_stride(a, x->rank, d);
        for (size_t i = n; i < n * (size_t)x->shape[d]; i++)
            meets[i] = meets[i - n] + stride;
    }
}

static void softmax_sum_forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *a = &op->in[SCORES], *x = &op->in[VALUES];
    const size_t n = (size_t)ds_signature_elements(a), n_values = (size_t)ds_signature_elements(x),
                 element = ds_op_element(op);
    const double *const weight = run->scratch, *const scale = weight + n;
    size_t *const meets = (size_t *)(void *)((double *)run->scratch + 3 * n);
    softmax_sum_meets(op, meets);
    for (size_t r = 0; r < run->n_rows; r++) {
        double *carried[3];
        for (int i = LARGEST; i <= SUMS; i++)
            carried[i] = (double *)((char *)run->carried[r] + op->carried[i].offset);
        double *const largest = carried[LARGEST], *const sums = carried[SUMS];
        const ds_target *const out = &run->out[r];
        const int64_t from = run->count[r].before.known, end = run->count[r].now.known;
        for (size_t i = 0; i < n && from == 0; i++)
            largest[i] = -(double)INFINITY;
        for (int64_t t = from; t < end; t++) {
            const void *const frame = ds_at(&run->in[run->n_rows + r], t, n_values * element);
            softmax_sum_weigh(run, largest, carried[WEIGHTS], ds_at(&run->in[r], t, n * element),
                              n);
            for (size_t i = 0; i < n_values; i++)
                sums[i] = sums[i] * scale[meets[i]] +
                          weight[meets[i]] * softmax_sum_real(frame, element, i);
        }
        for (size_t i = 0; i < n_values && out->m0 < out->m1; i++)
            softmax_sum_set(out->data, element, i, sums[i] / carried[WEIGHTS][meets[i]]);
    }
}

const ds_op_def ds_op_softmax_sum = {
    DS_OPERATOR_OF(softmax_sum,
                   "The mean of all frames, weighted by a softmax over the stream, at its end.", 2,
                   1, 2),
    .flags = DS_OP_REAL | DS_OP_LOCKSTEP, .infer = softmax_sum_infer, DS_AT_END,
    .forward = softmax_sum_forward};
