/* ops/top_k.c: the greatest elements along the last feature axis, and elements by their places.
 *
 *     topk    values, indices of the k greatest of x[..., n], the greatest first
 *     gather  y[..., i] = x[..., index[..., i]]
 *
 * topk: in [..., n], out values [..., k] and indices int64 [..., k]; the first of equals comes first, NaN before all.
 * With `smallest` the least, NaN behind all. gather: in x [..., n] and index int64 [..., k], whose leading axes are
 * equal; out [..., k]; NaN for an index that is out of range. Frame in, frame out.
 *
 * Source: torch.topk, torch.gather. */
#include <math.h>

#include "ops/framewise.h"
#include "ops/registry.h"

enum { K, SMALLEST };

static const ds_attr_def topk_attrs[] = {
    {"k", DS_ATTR_INT, .required = true, .doc = "how many", .range = DS_FROM_1},
    {"smallest", DS_ATTR_INT, .doc = "1: the least, ascending", .range = DS_0_OR_1},
    {0}};

static double element_of(const void *x, size_t i, ds_dtype dtype)
{
    return dtype == DS_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static void put_element(void *y, size_t i, ds_dtype dtype, double v)
{
    if (dtype == DS_F32)
        ((float *)y)[i] = (float)v;
    else
        ((double *)y)[i] = v;
}

/* ---------------------------------------------------------------- topk */

static ds_status topk_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    DS_TRY(ds_require_features(op));
    const int64_t k = op->attr[K].i, n = in->shape[in->rank - 1];
    DS_CHECK(k <= n, DS_ARGUMENT, "topk: expected k from 1 to %lld, got %lld", (long long)n,
             (long long)k);
    op->out[0].shape[in->rank - 1] = k;
    op->out[1] = op->out[0];
    op->out[1].dtype = DS_I64;
    return DS_OK;
}

/* Whether a goes before b, which came first. */
static bool topk_before(double a, double b, bool smallest)
{
    if (smallest)
        return a < b || (isnan(b) && !isnan(a));
    return a > b || (isnan(a) && !isnan(b));
}

/* One row: an insertion into those found so far. */
static void topk_row(const ds_op *op, void *values, int64_t *indices, const void *x, size_t n)
{
    const size_t k = (size_t)op->attr[K].i;
    const ds_dtype dtype = op->in[0].dtype;
    const bool smallest = op->attr[SMALLEST].i == 1;
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const double v = element_of(x, i, dtype);
        size_t at = found;
        while (at > 0 && topk_before(v, element_of(values, at - 1, dtype), smallest))
            at--;
        if (at == k)
            continue;
        found = found < k ? found + 1 : k;
        for (size_t j = found - 1; j > at; j--) {
            put_element(values, j, dtype, element_of(values, j - 1, dtype));
            indices[j] = indices[j - 1];
        }
        put_element(values, at, dtype, v);
        indices[at] = (int64_t)i;
    }
}

static void topk_forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0];
    const size_t n = (size_t)in->shape[in->rank - 1], k = (size_t)op->attr[K].i;
    const size_t n_bytes = ds_signature_bytes(in), element = ds_op_element(op);
    const size_t per_frame = n_bytes / element / n;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 >= out->m1)
            continue;
        const char *x = ds_at(&run->in[r], out->m0, n_bytes);
        char *values = out->data;
        int64_t *indices = run->out[run->n_rows + r].data;
        for (size_t i = 0; i < (size_t)(out->m1 - out->m0) * per_frame; i++)
            topk_row(op, values + i * k * element, indices + i * k, x + i * n * element, n);
    }
}

/* ---------------------------------------------------------------- gather */

static ds_status gather_infer(ds_op *op)
{
    const ds_signature *in = op->in;
    char text[128], other[128];
    DS_CHECK(ds_is_real(in[0].dtype) && in[1].dtype == DS_I64, DS_DTYPE,
             "gather: expected floats and an index of int64, got %s and %s",
             ds_dtype_name(in[0].dtype), ds_dtype_name(in[1].dtype));
    bool fits = in[0].rank >= 1 && in[1].rank == in[0].rank;
    for (int i = 0; fits && i + 1 < in[0].rank; i++)
        fits = in[1].shape[i] == in[0].shape[i];
    DS_CHECK(fits, DS_SHAPE, "gather: an index of shape %s doesn't fit an input of shape %s",
             ds_signature_text(&in[1], text, sizeof text),
             ds_signature_text(&in[0], other, sizeof other));
    op->out[0].shape[in[0].rank - 1] = in[1].shape[in[1].rank - 1];
    return DS_OK;
}

static void gather_forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = op->in;
    const size_t n = (size_t)in[0].shape[in[0].rank - 1], k = (size_t)in[1].shape[in[1].rank - 1];
    const size_t x_bytes = ds_signature_bytes(&in[0]), index_bytes = ds_signature_bytes(&in[1]);
    const ds_dtype dtype = in[0].dtype;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 >= out->m1)
            continue;
        const char *x = ds_at(&run->in[r], out->m0, x_bytes);
        const int64_t *index = ds_at(&run->in[run->n_rows + r], out->m0, index_bytes);
        const size_t n_found = (size_t)(out->m1 - out->m0) * index_bytes / sizeof *index;
        for (size_t i = 0; i < n_found; i++) {
            const bool there = index[i] >= 0 && index[i] < (int64_t)n;
            put_element(out->data, i, dtype,
                        there ? element_of(x, i / k * n + (size_t)index[i], dtype) : (double)NAN);
        }
    }
}

const ds_op_def ds_op_topk = {
    DS_OPERATOR_OF(topk, "The k greatest elements of the last feature axis, and their places.", 1,
                   2, 1),
    .attrs = topk_attrs, .flags = DS_OP_REAL, .infer = topk_infer, .forward = topk_forward};

const ds_op_def ds_op_gather = {
    DS_OPERATOR_OF(gather, "Elements of the last feature axis by their places.", 2, 1, 2),
    .flags = DS_OP_LOCKSTEP, .infer = gather_infer, .forward = gather_forward};
