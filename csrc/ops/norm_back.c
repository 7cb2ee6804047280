/* ops/norm_back.c: see norm_back.h; all sums are in double, row after row. */
#include "ops/norm_back.h"

#include <math.h>

#include "ops/sums.h"

DS_FOR_ELEMENT int one_group(const ds_norm *norm, size_t first, void *dx, double *dweight,
                             double *dbias, const void *g, const void *x, size_t element)
{
    const size_t n = norm->n / norm->groups;
    const double n_values = (double)norm->n_rows * (double)n;
    double mean = 0, squares = 0, slopes = 0, along = 0;
    for (size_t r = 0; r < norm->n_rows && !norm->by_root; r++)
        for (size_t i = r * norm->n + first; i < r * norm->n + first + n; i++)
            mean += ds_sums_real(x, element, i);
    mean /= n_values;
    for (size_t r = 0; r < norm->n_rows; r++)
        for (size_t i = r * norm->n + first; i < r * norm->n + first + n; i++) {
            const double off = ds_sums_real(x, element, i) - mean;
            squares += off * off;
        }
    const double scale = 1 / sqrt(squares / n_values + norm->eps);
    for (size_t r = 0; r < norm->n_rows; r++)
        for (size_t c = first, i = r * norm->n + first; c < first + n; c++, i++) {
            const double h = (ds_sums_real(x, element, i) - mean) * scale,
                         slope = ds_sums_real(g, element, i),
                         u = slope * (norm->weight ? ds_sums_real(norm->weight, element, c) : 1);
            slopes += u;
            along += u * h;
            if (dweight)
                dweight[c] += slope * h;
            if (dbias)
                dbias[c] += slope;
        }
    slopes = norm->by_root ? 0 : slopes / n_values;
    along /= n_values;
    for (size_t r = 0; r < norm->n_rows && dx; r++)
        for (size_t c = first, i = r * norm->n + first; c < first + n; c++, i++) {
            const double h = (ds_sums_real(x, element, i) - mean) * scale,
                         u = ds_sums_real(g, element, i) *
                             (norm->weight ? ds_sums_real(norm->weight, element, c) : 1);
            ds_back_add_real(dx, element, i, scale * (u - slopes - h * along));
        }
    return 0;
}

void ds_norm_back(const ds_norm *norm, void *dx, double *dweight, double *dbias, const void *g,
                  const void *x, size_t element)
{
    for (size_t first = 0; first < norm->n; first += norm->n / norm->groups)
        (void)DS_BY_ELEMENT(one_group, element, norm, first, dx, dweight, dbias, g, x);
}
