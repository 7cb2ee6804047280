/* ops/sums.c: sums of frames in double. */
#include "ops/sums.h"

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
