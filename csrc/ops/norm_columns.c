#include "ops/norm_columns.h"

enum { MEAN, REST, SCALE, SHIFT };

double ds_norm_get(const void *array, size_t element, size_t i, double absent)
{
    if (array == NULL) {
        return absent;
    }
    return element == sizeof(float) ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

/* Writes an element as a real; returns what that leaves. */
static double put(void *array, size_t element, size_t i, double value)
{
    if (element == sizeof(float)) {
        ((float *)array)[i] = (float)value;
        return value - (double)((float *)array)[i];
    }
    ((double *)array)[i] = value;
    return 0;
}

void ds_norm_columns_set(void *columns, size_t n, size_t element, size_t i, double mean,
                         double deviation, const void *weight, const void *bias)
{
    const double rest = put(columns, element, MEAN * n + i, mean);
    put(columns, element, REST * n + i, rest);
    put(columns, element, SCALE * n + i, ds_norm_get(weight, element, i, 1) / deviation);
    put(columns, element, SHIFT * n + i, ds_norm_get(bias, element, i, 0));
}

void ds_norm_columns_apply(const void *columns, size_t n, const ds_real_kernels *k, void *y,
                           const void *x, size_t n_rows)
{
    const char *const at = columns;
    const size_t n_bytes = n * k->element;
    k->column_scale(y, x, n_rows, n, at + MEAN * n_bytes, at + REST * n_bytes, at + SCALE * n_bytes,
                    at + SHIFT * n_bytes);
}
