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

/* Packs a weight [n_cols][depth] and its bias, NULL for none; returns where the next one goes. */
static inline void *ds_packed_rows(const ds_real_kernels *k, void *packed, const void *weight,
                                   size_t n_cols, size_t depth, const void *bias)
{
    const ds_weight_layout rows = {
        .n_taps = 1, .n_inner = 1, .n_channels = depth, .col = (ptrdiff_t)depth, .channel = 1};
    ds_pack(k, k->format, packed, weight, n_cols, &rows, bias);
    return ds_packed_next(packed);
}

/* A `narrows` of operators whose first weight is their matrix: of its rows, or (taps) of all behind the first axis. */
static inline size_t ds_narrows_rows(const ds_op *op, int i)
{
    return i == 0 ? (size_t)op->weight[0].shape[op->weight[0].rank - 1] : 0;
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
