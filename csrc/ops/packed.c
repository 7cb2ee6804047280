/* ops/packed.c: sizes of prepared weights, checked. */
#include "ops/packed.h"

#define SIZE_LIMIT (SIZE_MAX / 4)

static ds_status packed_add(size_t *total, size_t a)
{
    DS_CHECK(a <= SIZE_LIMIT && *total <= SIZE_LIMIT - a, DS_LIMIT,
             "sizes beyond the address space");
    *total += a;
    return DS_OK;
}

ds_status ds_size_mul(size_t *product, size_t a, size_t b)
{
    DS_CHECK(a == 0 || b <= SIZE_LIMIT / a, DS_LIMIT,
             "%zu times %zu bytes are beyond the address space", a, b);
    *product = a * b;
    return DS_OK;
}

ds_status ds_packed_check(size_t *most, size_t n_cols, size_t depth, size_t element)
{
    size_t n = n_cols;
    DS_TRY(packed_add(&n, DS_PANEL_COLUMNS)); /* the last panel is filled up */
    DS_TRY(ds_size_mul(&n, n, depth));
    DS_TRY(ds_size_mul(&n, n, element));
    DS_TRY(packed_add(&n, sizeof(ds_packed) + 2 * (size_t)DS_ALIGNMENT));
    return packed_add(most, n);
}
