/* kernels/blas.c: products by OpenBLAS. The symbols of the scipy-openblas32 wheel begin with scipy_, a
 * distribution's with nothing: the build says which (DS_BLAS_PREFIX).
 *
 * The packed weight is [n_cols][depth]. Rows come by pointer, so runs of rows at equal distances in x
 * and in y become one gemm each. BLAS wants rows at least `depth` apart: where windows overlap (a
 * distance of s < depth), the run is taken as q = ceil(depth / s) interleaved runs, i, i + q, i + 2q,
 * ..., whose rows are q s apart: q calls, no copy. One row or two are gemvs. The bias is added afterwards.
 *
 * Sums are in OpenBLAS's order, which depends on the number of rows. Sizes are below 2^31. */
#include "kernels/kernels.h"
#include "kernels/variants.h"

#if DSK_OPENBLAS
#include <limits.h>
#include <string.h>

/* From cblas.h and openblas's own declarations; enumerations are int. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };
#define BLAS_JOIN(prefix, name) prefix##name
#define BLAS_NAMED(prefix, name) BLAS_JOIN(prefix, name)
#define BLAS(name) BLAS_NAMED(DS_BLAS_PREFIX, name)
void BLAS(cblas_sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                       float *c, int ldc);
void BLAS(cblas_dgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                       double alpha, const double *a, int lda, const double *b, int ldb,
                       double beta, double *c, int ldc);
void BLAS(cblas_sgemv)(int order, int transpose, int m, int n, float alpha, const float *a, int lda,
                       const float *x, int step_x, float beta, float *y, int step_y);
void BLAS(cblas_dgemv)(int order, int transpose, int m, int n, double alpha, const double *a,
                       int lda, const double *x, int step_x, double beta, double *y, int step_y);
void BLAS(openblas_set_num_threads)(int n_threads);
char *BLAS(openblas_get_config)(void);

/* The distance from p to q in elements of n_bytes, 0 where it is none or no int. */
static size_t distance(const void *p, const void *q, size_t n_bytes)
{
    const uintptr_t from = (uintptr_t)p;
    const uintptr_t to = (uintptr_t)q;
    if (to <= from || (to - from) % n_bytes != 0 || (to - from) / n_bytes > INT_MAX)
        return 0;
    return (size_t)(to - from) / n_bytes;
}

/* A run of rows at equal distances, in elements; with one row these are 0. */
typedef struct run {
    size_t n_rows, x_step, y_step;
} run;

/* The longest run at the start of n_rows > 0 rows that gemm can take. Two rows are always at equal
 * distances, even where they lie in separate blocks of memory: only of three and more is it no accident.
 * So the order of sums, which the length of a run decides, is the same wherever the blocks lie. */
static run first_run(void *const *y, const void *const *x, size_t n_rows, size_t n_bytes,
                     size_t n_cols)
{
    const run single = {1, 0, 0};
    if (n_rows < 3)
        return single;
    run found = {0, distance(x[0], x[1], n_bytes), distance(y[0], y[1], n_bytes)};
    if (found.x_step == 0 || found.y_step < n_cols)
        return single;
    size_t n = 2;
    while (n < n_rows && n < INT_MAX && distance(x[n - 1], x[n], n_bytes) == found.x_step &&
           distance(y[n - 1], y[n], n_bytes) == found.y_step) {
        n++;
    }
    found.n_rows = n;
    return n < 3 ? single : found;
}

/* Rows 0, step, 2 step, ... of a run. */
static void run_rows(const ds_packed *weight, void *y, const void *x, run rows, size_t step)
{
    const int m = (int)((rows.n_rows + step - 1) / step);
    const int n = (int)weight->n_cols, k = (int)weight->depth;
    const int x_step = (int)(step * rows.x_step), y_step = (int)(step * rows.y_step);
    const void *const w = weight->data;
    const bool wide = weight->element == DS_F64;
    if (m == 1 && wide)
        BLAS(cblas_dgemv)(ROW_MAJOR, NO_TRANSPOSE, n, k, 1, w, k, x, 1, 0, y, 1);
    else if (m == 1)
        BLAS(cblas_sgemv)(ROW_MAJOR, NO_TRANSPOSE, n, k, 1, w, k, x, 1, 0, y, 1);
    else if (wide)
        BLAS(cblas_dgemm)(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, x, x_step, w, k, 0, y,
                          y_step);
    else
        BLAS(cblas_sgemm)(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, x, x_step, w, k, 0, y,
                          y_step);
}

#define FINISH_ROWS(REAL)                                                     \
    for (size_t m = 0; m < p->n_rows; m++) {                                  \
        REAL *const out = p->y[m];                                            \
        const REAL *const bias = p->weight->bias;                             \
        for (size_t n = 0; n < n_cols; n++)                                   \
            out[n] = (depth > 0 ? out[n] : 0) + (bias != NULL ? bias[n] : 0); \
    }

void dsk_product__openblas(const ds_product *p, size_t begin, size_t end)
{
    const size_t n_rows = p->n_rows, n_cols = p->weight->n_cols, depth = p->weight->depth;
    const size_t element = p->weight->element == DS_F64 ? sizeof(double) : sizeof(float);
    (void)begin;
    (void)end;
    for (size_t m = 0; m < n_rows && n_cols > 0 && depth > 0;) {
        run rows = first_run(p->y + m, p->x + m, n_rows - m, element, n_cols);
        size_t step = rows.n_rows == 1 ? 1 : (depth + rows.x_step - 1) / rows.x_step;
        step = step < rows.n_rows ? step : rows.n_rows;
        if (step * (rows.x_step > rows.y_step ? rows.x_step : rows.y_step) > INT_MAX) {
            rows = (run){1, 0, 0};
            step = 1;
        }
        for (size_t i = 0; i < step; i++)
            run_rows(p->weight, p->y[m + i], p->x[m + i],
                     (run){rows.n_rows - i, rows.x_step, rows.y_step}, step);
        m += rows.n_rows;
    }
    if (element == sizeof(float))
        FINISH_ROWS(float)
    else
        FINISH_ROWS(double)
}

void ds_blas_set_threads(int n_threads)
{
    BLAS(openblas_set_num_threads)(n_threads);
}

const char *ds_blas_description(void)
{
    return BLAS(openblas_get_config)();
}

#else

void ds_blas_set_threads(int n_threads)
{
    (void)n_threads;
}

const char *ds_blas_description(void)
{
    return NULL;
}

#endif
