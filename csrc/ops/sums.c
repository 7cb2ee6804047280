/* ops/sums.c: sums of frames in double. */
#include "ops/sums.h"

#include <math.h>

/* `statement` for all i < n, with elements of x of the type REAL. */
#define FOR_ALL(statement)             \
    if (dtype == DS_F32) {             \
        typedef float REAL;            \
        for (size_t i = 0; i < n; i++) \
            statement;                 \
    } else {                           \
        typedef double REAL;           \
        for (size_t i = 0; i < n; i++) \
            statement;                 \
    }

void ds_sums_set(double *sum, const void *x, size_t n, ds_dtype dtype)
{
    FOR_ALL(sum[i] = (double)((const REAL *)x)[i])
}

void ds_sums_add(double *sum, const void *x, size_t n, ds_dtype dtype)
{
    FOR_ALL(sum[i] += (double)((const REAL *)x)[i])
}

void ds_sums_write(void *y, const double *sum, size_t n, double divisor, ds_dtype dtype)
{
    FOR_ALL(((REAL *)y)[i] = (REAL)(sum[i] / divisor))
}

void ds_sums_weigh(const ds_real_kernels *k, double *largest, double *sums, const void *scores,
                   size_t n, double *scratch)
{
    const size_t element = k->element;
    double *const weight = scratch, *const scale = weight + n;
    void *const reals = scale + n;
    for (size_t i = 0; i < n; i++) {
        const double a = ds_sums_real(scores, element, i), before = largest[i];
        if (!(a <= before) && before == before) /* NaN stays */
            largest[i] = a;
        ds_sums_set_real(reals, element, i, a == -(double)INFINITY ? a : a - largest[i]);
        scale[i] = before == largest[i] ? 0 : before - largest[i];
    }
    k->unary(DS_UNARY_EXP, reals, reals, n, NULL);
    for (size_t i = 0; i < n; i++) {
        weight[i] = ds_sums_real(reals, element, i);
        ds_sums_set_real(reals, element, i, scale[i]);
    }
    k->unary(DS_UNARY_EXP, reals, reals, n, NULL);
    for (size_t i = 0; i < n; i++) {
        scale[i] = ds_sums_real(reals, element, i);
        sums[i] = sums[i] * scale[i] + weight[i];
    }
}
