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
#include <string.h>

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { SCORES, VALUES };
enum { LARGEST, WEIGHTS, SUMS };

static ds_status softmax_sum_infer(ds_op *op)
{
    const ds_signature *a = &op->in[SCORES], *x = &op->in[VALUES];
    bool fits = a->rank <= x->rank;
    for (int d = 0; d < a->rank && fits; d++)
        fits = a->shape[d] == 1 || a->shape[d] == x->shape[x->rank - a->rank + d];
    DS_CHECK(fits, DS_SHAPE, "softmax_sum: scores %s don't broadcast to values %s",
             DS_SHAPE_TEXT(a), DS_SHAPE_TEXT(x));
    static const char *const names[] = {"largest", "weights", "sums"};
    op->n_carried = 3;
    for (int i = LARGEST; i <= SUMS; i++) {
        op->carried[i] = (ds_carried){.name = names[i], .array = i == SUMS ? *x : *a};
        op->carried[i].array.dtype = DS_F64;
    }
    op->out[0] = *x;
    /* weights of a frame, scales of the sums before it, both as reals; which of them each value meets */
    op->scratch.per_call =
        ds_sums_weigh_block(ds_elements(a)) * DS_SUMS_WEIGH_BYTES + ds_elements(x) * sizeof(size_t);
    op->back_scratch.per_call =
        ds_elements(a) * 2 * sizeof(double) + ds_elements(x) * sizeof(size_t);
    return DS_OK;
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

/* meets NULL: each value meets the score at its place. */
DS_FOR_ELEMENT void softmax_sum_frame(double *sums, const void *x, size_t n, const double *weight,
                                      const double *scale, const size_t *meets, size_t e)
{
    for (size_t i = 0; i < n && meets == NULL; i++)
        sums[i] = sums[i] * scale[i] + weight[i] * ds_sums_real(x, e, i);
    for (size_t i = 0; i < n && meets != NULL; i++)
        sums[i] = sums[i] * scale[meets[i]] + weight[meets[i]] * ds_sums_real(x, e, i);
}

static void softmax_sum_forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *a = &op->in[SCORES], *x = &op->in[VALUES];
    const size_t n = ds_elements(a), n_values = ds_elements(x), element = ds_op_element(op);
    const size_t block = ds_sums_weigh_block(n);
    const double *const weight = run->scratch, *const scale = weight + block;
    size_t *const meets = (size_t *)(void *)((double *)run->scratch + 4 * block);
    softmax_sum_meets(op, meets);
    for (size_t r = 0; r < run->n_rows; r++) {
        double *const largest = ds_run_carried(op, run, r, LARGEST);
        double *const weights = ds_run_carried(op, run, r, WEIGHTS);
        double *const sums = ds_run_carried(op, run, r, SUMS);
        const ds_target *const out = &run->out[r];
        const int64_t from = run->count[r].before.known, end = run->count[r].now.known;
        for (size_t i = 0; i < n && from == 0; i++)
            largest[i] = -(double)INFINITY;
        for (int64_t t = from, first = t, next = t; t < end; t++) {
            if (t == next) {
                first = t;
                next = end - t < (int64_t)(block / n) ? end : t + (int64_t)(block / n);
                ds_sums_weigh(run->k, largest, weights, ds_at(&run->in[r], t, n * element), n,
                              (size_t)(next - t), run->scratch);
            }
            const void *const frame = ds_at(&run->in[run->n_rows + r], t, n_values * element);
            const size_t at = (size_t)(t - first) * n;
            DS_BY_ELEMENT(softmax_sum_frame, element, sums, frame, n_values, weight + at,
                          scale + at, n == n_values ? NULL : meets);
        }
        for (size_t i = 0; i < n_values && out->m0 < out->m1; i++)
            ds_sums_set_real(out->data, element, i, end > 0 ? sums[i] / weights[meets[i]] : 0);
    }
}

/* With p = exp(a - largest) and slopes s of sums, w of weights, to which the output's slopes g add g / weights and
 * -g y / weights:  x has p s;  a has p (sum of x s + w), over what it meets;  what came before both times
 * exp(largest before - largest), the largest nothing: the result does not depend on it. */
static void softmax_sum_row(const ds_op *op, const ds_back *b, size_t r, const size_t *meets,
                            double *top, double *total)
{
    const ds_run *run = b->run;
    const size_t n = ds_elements(&op->in[SCORES]), n_values = ds_elements(&op->in[VALUES]),
                 element = ds_op_element(op);
    const int64_t from = run->count[r].before.known, end = run->count[r].now.known;
    const ds_target *out = &run->out[r];
    double *slopes[SUMS + 1];
    for (int i = LARGEST; i <= SUMS; i++)
        slopes[i] = ds_back_carried(op, b, r, i);
    const double *const largest = ds_run_carried(op, run, r, LARGEST);
    const double *const weights = ds_run_carried(op, run, r, WEIGHTS);
    for (size_t i = 0; i < n; i++) {
        top[i] = from > 0 ? largest[i] : -(double)INFINITY;
        for (int64_t t = from; t < end; t++)
            top[i] = fmax(top[i], ds_sums_real(ds_at(&run->in[r], t, n * element), element, i));
        total[i] = from > 0 ? weights[i] * exp(largest[i] - top[i]) : 0;
        for (int64_t t = from; t < end; t++)
            total[i] += exp(ds_sums_real(ds_at(&run->in[r], t, n * element), element, i) - top[i]);
    }
    for (size_t i = 0; i < n_values && out->m0 < out->m1 && end > 0; i++) {
        const double g = ds_sums_real(b->dy[r], element, i) / total[meets[i]];
        slopes[SUMS][i] += g;
        slopes[WEIGHTS][meets[i]] -= g * ds_sums_real(out->data, element, i);
    }
    for (int64_t t = from; t < end; t++) {
        const void *const a = ds_at(&run->in[r], t, n * element), *const x = ds_at(
                                                                      &run->in[run->n_rows + r], t,
                                                                      n_values * element);
        void *const da = ds_slope_at(&b->dx[r], t, n * element), *const dx = ds_slope_at(
                                                                     &b->dx[run->n_rows + r], t,
                                                                     n_values * element);
        for (size_t i = 0; i < n && da; i++)
            ds_back_add_real(da, element, i,
                             exp(ds_sums_real(a, element, i) - top[i]) * slopes[WEIGHTS][i]);
        for (size_t i = 0; i < n_values; i++) {
            const double p = exp(ds_sums_real(a, element, meets[i]) - top[meets[i]]);
            if (da)
                ds_back_add_real(da, element, meets[i],
                                 p * ds_sums_real(x, element, i) * slopes[SUMS][i]);
            if (dx)
                ds_back_add_real(dx, element, i, p * slopes[SUMS][i]);
        }
    }
    for (size_t i = 0; i < n_values; i++)
        slopes[SUMS][i] *= from > 0 ? exp(largest[meets[i]] - top[meets[i]]) : 0;
    for (size_t i = 0; i < n; i++)
        slopes[WEIGHTS][i] *= from > 0 ? exp(largest[i] - top[i]) : 0;
    memset(slopes[LARGEST], 0, n * sizeof(double));
}

static void softmax_sum_backward(const ds_op *op, const ds_back *b)
{
    const size_t n = ds_elements(&op->in[SCORES]);
    double *const top = b->scratch, *const total = top + n;
    size_t *const meets = (size_t *)(void *)(total + n);
    softmax_sum_meets(op, meets);
    for (size_t r = 0; r < b->run->n_rows; r++)
        softmax_sum_row(op, b, r, meets, top, total);
}

const ds_op_def ds_op_softmax_sum = {
    DS_OPERATOR_OF(softmax_sum,
                   "The mean of all frames, weighted by a softmax over the stream, at its end.", 2,
                   1, 2),
    .flags = DS_OP_REAL | DS_OP_LOCKSTEP | DS_OP_AT_END,
    .infer = softmax_sum_infer,
    .forward = softmax_sum_forward,
    .backward = softmax_sum_backward,
    .reads = DS_READS_ALL_X | DS_READS_Y | DS_READS_CARRIED};
