/* ops/packed.h: room for weights that pass once through `pack`, known before the kernels are.
 *
 * infer states prepared_bytes without knowing which variant of the kernels will run, so it takes the
 * largest layout that any variant may write: panels of up to 32 columns, the last one filled up. */
#ifndef DS_OPS_PACKED_H
#define DS_OPS_PACKED_H
#include "ops/op.h"

enum { DS_PANEL_COLUMNS = 32, DS_PACKED_ALIGNMENT = 64 };

/* n rounded up to the alignment; n must not be within 64 of SIZE_MAX (sizes that passed
 * ds_size_add and ds_size_mul are not). */
static inline size_t ds_packed_align(size_t n)
{
    return (n + (DS_PACKED_ALIGNMENT - 1)) / DS_PACKED_ALIGNMENT * DS_PACKED_ALIGNMENT;
}

/* Bytes of one packed weight, a multiple of 64; ds_packed_check must have accepted it. */
static inline size_t ds_packed_bytes(size_t n_cols, size_t depth, size_t element)
{
    const size_t panels = (n_cols + (DS_PANEL_COLUMNS - 1)) / DS_PANEL_COLUMNS;
    return ds_packed_align(panels * DS_PANEL_COLUMNS * depth * element);
}

/* Sizes in infer: *total += a, and *product = a * b. DS_LIMIT beyond SIZE_MAX / 4. */
ds_status ds_size_add(size_t *total, size_t a);
ds_status ds_size_mul(size_t *product, size_t a, size_t b);
/* DS_LIMIT where ds_packed_bytes would overflow. */
ds_status ds_packed_check(size_t n_cols, size_t depth, size_t element);

#endif
