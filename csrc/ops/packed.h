/* ops/packed.h: room for weights that pass once through `ds_pack`.
 *
 * How much a packed weight takes is the kernels' answer (ds_packed_bytes). infer, which comes before the
 * kernels are known, makes sure that no variant's answer overflows. */
#pragma once
#include "base/alloc.h"
#include "ops/op.h"

/* The weight that lies behind this one. */
static inline void *ds_packed_next(const void *packed)
{
    return (char *)(uintptr_t)packed + ((const ds_packed *)packed)->n_bytes;
}

/* Walks packed weights that lie one behind the other, all_bytes of them. */
#define DS_EACH_PACKED(w, first, all_bytes)                                           \
    for (ds_packed *w = (first); (size_t)((char *)w - (char *)(first)) < (all_bytes); \
         w = ds_packed_next(w))

/* Packs columns of the operator's weight i, the first of which begins `start` bytes into it, and notes whose they are;
 * returns where the next one goes. */
static inline void *ds_packed_weight(const ds_real_kernels *k, ds_format format, void *packed,
                                     const void *const *weights, int i, size_t start, size_t n_cols,
                                     const ds_weight_layout *layout, const void *bias)
{
    ds_packed *const to = packed;
    ds_pack(k, format, to, (const char *)weights[i] + start, n_cols, layout, bias);
    to->weight = i;
    to->start = start;
    return ds_packed_next(to);
}

/* The same of rows [n_cols][depth]; bias: NULL for none. */
static inline void *ds_packed_rows(const ds_real_kernels *k, void *packed,
                                   const void *const *weights, int i, size_t start, size_t n_cols,
                                   size_t depth, const void *bias)
{
    const ds_weight_layout rows = ds_layout_rows(depth);
    return ds_packed_weight(k, k->format, packed, weights, i, start, n_cols, &rows, bias);
}

/* A `narrows` of operators whose first weight is their matrix: of its rows, or (taps) of all behind the first axis. */
static inline size_t ds_narrows_rows(const ds_op *op, int i)
{
    return i == 0 ? ds_last_size(&op->weight[0]) : 0;
}

static inline size_t ds_narrows_taps(const ds_op *op, int i)
{
    return i == 0
               ? ds_signature_bytes(&op->weight[0]) / sizeof(float) / (size_t)op->weight[0].shape[0]
               : 0;
}

/* Sizes in infer: *product = a * b; DS_LIMIT beyond SIZE_MAX / 4. */
ds_status ds_size_mul(size_t *product, size_t a, size_t b);
/* Adds to *most the most bytes that any variant packs a weight into; DS_LIMIT beyond SIZE_MAX / 4. */
ds_status ds_packed_check(size_t *most, size_t n_cols, size_t depth, size_t element);
