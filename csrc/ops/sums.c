/* ops/sums.c: sums of frames in double. */
#include "ops/sums.h"

#include <math.h>

#include "ops/back.h"

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
    FOR_ALL(sum[i] = (double)((const REAL *)x)[i]);
}

void ds_sums_add(double *sum, const void *x, size_t n, ds_dtype dtype)
{
    FOR_ALL(sum[i] += (double)((const REAL *)x)[i]);
}

void ds_sums_write(void *y, const double *sum, size_t n, double divisor, ds_dtype dtype)
{
    if (divisor == 1)
        FOR_ALL(((REAL *)y)[i] = (REAL)sum[i])
    else
        FOR_ALL(((REAL *)y)[i] = (REAL)(sum[i] / divisor))
}

/* The difference of score number i from the largest so far goes to reals[i], what that moved by to reals[all + i]. */
DS_FOR_ELEMENT double sums_differ(double before, void *reals, const void *scores, size_t i,
                                  size_t all, size_t e)
{
    const double a = ds_sums_real(scores, e, i);
    const double greater = a > before ? a : before, now = a != a ? a : greater; /* NaN stays */
    const double below = a - now, moved = before - now;
    ds_sums_set_real(reals, e, i, a == -(double)INFINITY ? a : below);
    ds_sums_set_real(reals, e, all + i, before == now ? 0 : moved);
    return now;
}

/* Of all scores, frame by frame; few of a frame one after the other, so that the largest stays in a register. */
DS_FOR_ELEMENT void sums_differ_all(double *largest, void *reals, const void *scores, size_t n,
                                    size_t all, size_t e)
{
    enum { FEW = 4 };
    for (size_t i = 0; i < n && n < FEW; i++) {
        double now = largest[i];
        for (size_t f = 0; f < all; f += n)
            now = sums_differ(now, reals, scores, f + i, all, e);
        largest[i] = now;
    }
    for (size_t f = 0; f < all && n >= FEW; f += n)
        for (size_t i = 0; i < n; i++)
            largest[i] = sums_differ(largest[i], reals, scores, f + i, all, e);
}

/* The same, raised, as weights and scales; sums so far. */
DS_FOR_ELEMENT void sums_scale(double *sums, double *weight, double *scale, const void *reals,
                               size_t n, size_t all, size_t e)
{
    for (size_t i = 0; i < all; i++) {
        weight[i] = ds_sums_real(reals, e, i);
        scale[i] = ds_sums_real(reals, e, all + i);
    }
    for (size_t f = 0; f < all; f += n)
        for (size_t i = 0; i < n; i++)
            sums[i] = sums[i] * scale[f + i] + weight[f + i];
}

void ds_sums_weigh(const ds_real_kernels *k, double *largest, double *sums, const void *scores,
                   size_t n, size_t n_frames, double *scratch)
{
    const size_t all = n * n_frames, block = ds_sums_weigh_block(n);
    double *const weight = scratch, *const scale = weight + block;
    void *const reals = scale + block;
    DS_BY_ELEMENT(sums_differ_all, k->element, largest, reals, scores, n, all);
    k->unary(DS_UNARY_EXP, reals, reals, 2 * all, NULL);
    DS_BY_ELEMENT(sums_scale, k->element, sums, weight, scale, reals, n, all);
}
