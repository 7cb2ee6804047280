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
                   size_t n, size_t n_frames, double *scratch)
{
    const size_t element = k->element, all = n * n_frames, block = ds_sums_weigh_block(n);
    double *const weight = scratch, *const scale = weight + block;
    void *const reals = scale + block;
    for (size_t f = 0; f < all; f += n)
        for (size_t i = 0; i < n; i++) {
            const double a = ds_sums_real(scores, element, f + i), before = largest[i];
            if (!(a <= before) && before == before) /* NaN stays */
                largest[i] = a;
            ds_sums_set_real(reals, element, f + i, a == -(double)INFINITY ? a : a - largest[i]);
            ds_sums_set_real(reals, element, all + f + i,
                             before == largest[i] ? 0 : before - largest[i]);
        }
    k->unary(DS_UNARY_EXP, reals, reals, 2 * all, NULL);
    for (size_t f = 0; f < all; f += n)
        for (size_t i = 0; i < n; i++) {
            weight[f + i] = ds_sums_real(reals, element, f + i);
            scale[f + i] = ds_sums_real(reals, element, all + f + i);
            sums[i] = sums[i] * scale[f + i] + weight[f + i];
        }
}
