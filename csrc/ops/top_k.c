/* ops/top_k.c: the greatest elements along the last feature axis, and elements by their places.
 *
 *     topk    values, indices of the k greatest of x[..., n], the greatest first, without the `first` of them
 *     gather  y[..., i] = x[..., index[..., i]]
 *
 * topk: in [..., n], out values and indices int64 [..., k - first]; the first of equals comes first, NaN before all.
 * With `smallest` the least, NaN behind all. gather: in x [..., n] and index int64 [..., k], whose leading axes are
 * equal; out [..., k]; NaN, or -1 of int64, for an index that is out of range. Frame in, frame out.
 *
 * Source: torch.topk, torch.gather. */

#include <string.h>

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/order.h"
#include "ops/packed.h"
#include "ops/registry.h"

enum { K, SMALLEST, FIRST };
enum { FEW = 8 };

static const ds_attr_def topk_attrs[] = {
    {"k", DS_ATTR_INT, .required = true, .doc = "how many", .range = DS_FROM_1},
    {"smallest", DS_ATTR_INT, .doc = "1: the least, ascending", .range = DS_0_OR_1},
    {"first", DS_ATTR_INT, .doc = "how many of the k are left out, from the greatest on",
     .range = DS_FROM_0},
    {0}};

/* ---------------------------------------------------------------- topk */

static ds_status topk_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t k = op->attr[K].i, n = in->shape[in->rank - 1];
    DS_CHECK(k <= n, DS_ARGUMENT, "topk: expected k from 1 to %lld, got %lld", (long long)n,
             (long long)k);
    DS_CHECK(op->attr[FIRST].i < k, DS_ARGUMENT, "topk: expected first from 0 to %lld, got %lld",
             (long long)(k - 1), (long long)op->attr[FIRST].i);
    op->out[0].shape[in->rank - 1] = k - op->attr[FIRST].i;
    op->out[1] = op->out[0];
    op->out[1].dtype = DS_I64;
    return ds_size_mul(&op->scratch.per_call, (size_t)n, sizeof(ds_order_pair));
}

/* Puts those elements where they are in order that come to [from, to): the others are parted at pivots, and of a few
 * those that no longer count are lost. */
#define DEFINE_ORDER(TYPE, LESS)                                                                \
    static void order_##TYPE(TYPE *x, size_t n, size_t from, size_t to)                         \
    {                                                                                           \
        while (n > 2 * FEW && from < to && to > FEW) {                                          \
            const TYPE a = x[0], b = x[n / 2], c = x[n - 1];                                    \
            const size_t middle = LESS(a, b) == LESS(b, c)   ? n / 2                            \
                                  : LESS(b, a) == LESS(a, c) ? 0                                \
                                                             : n - 1;                           \
            const TYPE pivot = x[middle];                                                       \
            size_t less = 0;                                                                    \
            x[middle] = x[n - 1];                                                               \
            for (size_t i = 0; i + 1 < n; i++) {                                                \
                const TYPE v = x[i];                                                            \
                x[i] = x[less];                                                                 \
                x[less] = v;                                                                    \
                less += LESS(v, pivot);                                                         \
            }                                                                                   \
            x[n - 1] = x[less];                                                                 \
            x[less] = pivot;                                                                    \
            const size_t past = less + 1, low = to < less ? to : less;                          \
            const size_t after = from > past ? from - past : 0, up = to > past ? to - past : 0; \
            if (less < n / 2) { /* the shorter part first, so that calls are never deep */      \
                order_##TYPE(x, less, from, low);                                               \
                x += past, n -= past, from = after, to = up;                                    \
            } else {                                                                            \
                order_##TYPE(x + past, n - past, after, up);                                    \
                n = less, to = low;                                                             \
            }                                                                                   \
        }                                                                                       \
        for (size_t i = 1; i < n && from < to; i++) {                                           \
            const TYPE v = x[i];                                                                \
            size_t at = i < to ? i : to - 1;                                                    \
            if (i >= to && !LESS(v, x[at]))                                                     \
                continue;                                                                       \
            for (; at > 0 && LESS(v, x[at - 1]); at--)                                          \
                x[at] = x[at - 1];                                                              \
            x[at] = v;                                                                          \
        }                                                                                       \
    }
#define LESS_NUMBER(a, b) ((a) < (b))
DEFINE_ORDER(uint64_t, LESS_NUMBER)
DEFINE_ORDER(ds_order_pair, ds_order_less)

/* A row: where keys take 32 bits, as of floats and most integers, a key and its place are one number. */
static void topk_row(const ds_op *op, void *room, char *values, int64_t *indices, const char *x,
                     size_t n)
{
    const size_t k = (size_t)op->attr[K].i, first = (size_t)op->attr[FIRST].i;
    const uint64_t turn = op->attr[SMALLEST].i == 1 ? 0 : UINT64_MAX;
    const ds_dtype dtype = op->in[0].dtype;
    const size_t element = ds_op_element(op);
    const uint64_t least = dtype == DS_I64 ? ((uint64_t)1 << 63) - ((uint64_t)1 << 31) : 0;
    const bool floats = dtype == DS_F32;
    bool one = dtype != DS_F64 && n < UINT32_MAX;
    uint64_t *const numbers = room;
    ds_order_pair *const pairs = room;
    for (size_t i = 0; i < n && one && floats; i++)
        numbers[i] =
            ((ds_order_key(x + i * sizeof(float), DS_F32) ^ turn) & ~(uint64_t)UINT32_MAX) | i;
    for (size_t i = 0; i < n && one && !floats; i++) {
        const uint64_t key = ds_order_key(x + i * element, dtype) - least;
        numbers[i] = ((key << 32 ^ turn) & ~(uint64_t)UINT32_MAX) | i;
        one = key >> 32 == 0;
    }
    for (size_t i = 0; i < n && !one; i++)
        pairs[i] = (ds_order_pair){ds_order_key(x + i * element, dtype) ^ turn, (int64_t)i};
    if (one)
        order_uint64_t(numbers, n, first, k);
    else
        order_ds_order_pair(pairs, n, first, k);
    for (size_t i = first; i < k; i++, indices++, values += element) {
        *indices = one ? (int64_t)(numbers[i] & UINT32_MAX) : pairs[i].at;
        memcpy(values, x + (size_t)*indices * element, element);
    }
}

static void topk_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const ds_signature *in = &op->in[0];
    const size_t n = ds_last_size(in);
    const size_t k = (size_t)(op->attr[K].i - op->attr[FIRST].i);
    const size_t element = ds_op_element(op);
    const size_t n_rows = f->n * ds_elements(in) / n;
    if (n == 1) {
        memcpy(f->y[0], f->x[0], n_rows * element);
        memset(f->y[1], 0, n_rows * sizeof(int64_t));
        return;
    }
    for (size_t i = 0; i < n_rows; i++)
        topk_row(op, run->scratch, (char *)f->y[0] + i * k * element, (int64_t *)f->y[1] + i * k,
                 (const char *)f->x[0] + i * n * element, n);
}
DS_FRAMEWISE_FORWARD(topk)

/* Adds k slopes of each row to those of the n elements that they were, by their places. */
static void add_by_place(const ds_real_kernels *real, void *dx, const void *g, const int64_t *index,
                         size_t n_rows, size_t n, size_t k)
{
    for (size_t i = 0; i < n_rows * k && dx; i++)
        if (index[i] >= 0 && index[i] < (int64_t)n)
            ds_back_add_real(dx, real->element, i / k * n + (size_t)index[i],
                             ds_sums_real(g, real->element, i));
}

static void topk_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const ds_signature *in = &op->in[0];
    const size_t n = ds_last_size(in);
    const size_t k = (size_t)(op->attr[K].i - op->attr[FIRST].i);
    add_by_place(b->run->k, f->dx[0], f->g[0], f->y[1], f->n * ds_elements(in) / n, n, k);
}
DS_FRAMEWISE_BACKWARD(topk)

/* ---------------------------------------------------------------- gather */

static ds_status gather_infer(ds_op *op)
{
    const ds_signature *in = op->in;
    op->out[0].shape[in[0].rank - 1] = in[1].shape[in[1].rank - 1];
    return DS_OK;
}

static void gather_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const ds_signature *in = op->in;
    const size_t n = ds_last_size(&in[0]), k = ds_last_size(&in[1]);
    const size_t element = ds_op_element(op);
    const size_t n_found = f->n * ds_elements(&in[1]);
    const int64_t *const index = f->x[1];
    char *y = f->y[0];
    (void)run;
    for (size_t i = 0; i < n_found; i++, y += element) {
        if (index[i] >= 0 && index[i] < (int64_t)n)
            memcpy(y, (const char *)f->x[0] + (i / k * n + (size_t)index[i]) * element, element);
        else if (in[0].dtype == DS_I64)
            memset(y, 0xff, element);
        else
            ds_fill_nan(y, 1, element);
    }
}
DS_FRAMEWISE_FORWARD(gather)

static void gather_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const ds_signature *in = op->in;
    const size_t n = ds_last_size(&in[0]), k = ds_last_size(&in[1]);
    add_by_place(b->run->k, f->dx[0], f->g[0], f->x[1], f->n * ds_elements(in) / n, n, k);
}
DS_FRAMEWISE_BACKWARD(gather)

const ds_op_def ds_op_topk = {
    DS_OPERATOR_OF(topk, "The k greatest elements of the last feature axis, and their places.", 1,
                   2, 1),
    .shapes = "[.., n]: float|int64|bool",
    .attrs = topk_attrs,
    .infer = topk_infer,
    .forward = topk_forward,
    .backward = topk_backward,
    .reads = DS_READS_Y};

const ds_op_def ds_op_gather = {
    DS_OPERATOR_OF(gather, "Elements of the last feature axis by their places.", 2, 1, 2),
    .flags = DS_OP_LOCKSTEP,
    .shapes = "[.., n]: float|int64; [.., found]: int64",
    .infer = gather_infer,
    .forward = gather_forward,
    .backward = gather_backward,
    .reads = DS_READS_X << 1};
