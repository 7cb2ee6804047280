/* ops/sums.c: sums of frames in double. */
#include "ops/sums.h"

void ds_sums_set(double *sum, const void *x, size_t n, ds_dtype dtype)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = dtype == DS_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

void ds_sums_add(double *sum, const void *x, size_t n, ds_dtype dtype)
{
    if (dtype == DS_F32) {
        const float *const from = x;
        for (size_t i = 0; i < n; i++)
            sum[i] += (double)from[i];
    } else {
        const double *const from = x;
        for (size_t i = 0; i < n; i++)
            sum[i] += from[i];
    }
}

void ds_sums_write(void *y, const double *sum, size_t n, double divisor, ds_dtype dtype)
{
    if (dtype == DS_F32) {
        float *const to = y;
        for (size_t i = 0; i < n; i++)
            to[i] = (float)(sum[i] / divisor);
    } else {
        double *const to = y;
        for (size_t i = 0; i < n; i++)
            to[i] = sum[i] / divisor;
    }
}
