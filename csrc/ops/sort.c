/* ops/sort.c: the frames of a stream in order, per feature.
 *
 *     sort    y[0] <= y[1] <= ... of all x[t][i], or >=, and the t of each                   torch.sort over L
 *             known  0 until the stream has ended      total  the input's
 *
 * out values [features] and positions int64 [features]. Equals stay in their order (stable); NaN is the greatest. Each
 * feature's frames become pairs of a key, an integer in the order of the values, and a position, which are merged.
 *
 * Source: torch.sort. */
#include <string.h>

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/order.h"
#include "ops/registry.h"

enum { DESCENDING };

static const ds_attr_def sort_attrs[] = {
    {"descending", DS_ATTR_INT, .doc = "1: the greatest first", .range = DS_0_OR_1}, {0}};

static ds_status sort_infer(ds_op *op)
{
    op->out[1] = op->out[0];
    op->out[1].dtype = DS_I64;
    op->scratch.per_out = 2 * sizeof(ds_order_pair);
    return DS_OK;
}

/* Puts n pairs in order, by way of as many others; returns where they are. */
static ds_order_pair *sort_pairs(ds_order_pair *from, ds_order_pair *to, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            const size_t middle = begin + width < n ? begin + width : n;
            const size_t end = middle + width < n ? middle + width : n;
            for (size_t a = begin, b = middle, i = begin; i < end; i++)
                to[i] =
                    b == end || (a < middle && from[a].key <= from[b].key) ? from[a++] : from[b++];
        }
        ds_order_pair *const sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

static void sort_forward(const ds_op *op, const ds_run *run)
{
    const size_t n_features = ds_elements(&op->in[0]), element = ds_op_element(op);
    const uint64_t turn = op->attr[DESCENDING].i ? UINT64_MAX : 0;
    for (size_t r = 0; r < run->n_rows; r++) {
        const size_t n = (size_t)(run->out[r].m1 - run->out[r].m0);
        ds_order_pair *const pairs = run->scratch;
        const char *const x = n ? ds_at(&run->in[r], 0, n_features * element) : NULL;
        char *const values = run->out[r].data;
        int64_t *const places = run->out[run->n_rows + r].data;
        for (size_t i = 0; n && i < n_features; i++) {
            for (size_t t = 0; t < n; t++)
                pairs[t] = (ds_order_pair){
                    ds_order_key(x + (t * n_features + i) * element, op->in[0].dtype) ^ turn,
                    (int64_t)t};
            const ds_order_pair *const sorted = sort_pairs(pairs, pairs + n, n);
            for (size_t t = 0; t < n; t++) {
                memcpy(values + (t * n_features + i) * element,
                       x + ((size_t)sorted[t].at * n_features + i) * element, element);
                places[t * n_features + i] = sorted[t].at;
            }
        }
    }
}

static void sort_backward(const ds_op *op, const ds_back *b)
{
    const size_t n_features = ds_elements(&op->in[0]), element = ds_op_element(op);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const ds_target *out = &b->run->out[r];
        const size_t n = (size_t)(out->m1 - out->m0) * n_features;
        const int64_t *const places = b->run->out[b->run->n_rows + r].data;
        const ds_slope *dx = &b->dx[r];
        for (size_t i = 0; i < n && dx->data; i++)
            if (places[i] >= dx->at)
                ds_back_add_real(dx->data, element,
                                 (size_t)(places[i] - dx->at) * n_features + i % n_features,
                                 ds_sums_real(b->dy[r], element, i));
    }
}

const ds_op_def ds_op_sort = {
    DS_OPERATOR_OF(sort, "The frames of a stream in order, per feature, and where they were.", 1, 2,
                   1),
    .flags = DS_OP_WHOLE,
    .attrs = sort_attrs,
    .shapes = "[..]: float|int64|bool",
    .infer = sort_infer,
    .forward = sort_forward,
    .backward = sort_backward,
    .reads = DS_READS_Y};
