/* ops/norm_back.c: see norm_back.h; all sums are in double, row after row; those of a group in four lanes. */
#include "ops/norm_back.h"

#include <math.h>

#include "ops/sums.h"

enum { LANES = 4 };

/* What element i of a row adds to each lane, whole lanes first. */
#define BY_LANES(n, ...)                                             \
    for (size_t l = 0; l + LANES <= (n); l += LANES)                 \
        for (size_t j = 0; j < LANES; j++) {                         \
            const size_t i = l + j;                                  \
            __VA_ARGS__;                                             \
        }                                                            \
    for (size_t i = (n) / LANES * LANES, j = 0; i < (n); i++, j++) { \
        __VA_ARGS__;                                                 \
    }

static double folded(const double *lane)
{
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

DS_FOR_ELEMENT void one_group(const ds_norm *norm, size_t first, void *dx, double *dweight,
                              double *dbias, const void *g, const void *x, size_t element)
{
    const size_t n = norm->n / norm->groups;
    const double n_values = (double)norm->n_rows * (double)n;
    double means[LANES] = {0}, offs[LANES] = {0}, us[LANES] = {0}, alongs[LANES] = {0};
    for (size_t r = 0; r < norm->n_rows && !norm->by_root; r++) {
        const void *const row = (const char *)x + (r * norm->n + first) * element;
        BY_LANES(n, means[j] += ds_sums_real(row, element, i))
    }
    const double mean = folded(means) / n_values;
    for (size_t r = 0; r < norm->n_rows; r++) {
        const void *const row = (const char *)x + (r * norm->n + first) * element;
        BY_LANES(n, const double off = ds_sums_real(row, element, i) - mean; offs[j] += off * off)
    }
    const double scale = 1 / sqrt(folded(offs) / n_values + norm->eps);
    for (size_t r = 0; r < norm->n_rows; r++) {
        const size_t at = (r * norm->n + first) * element;
        const void *const row = (const char *)x + at, *const slopes_of = (const char *)g + at;
        const void *const weight =
            norm->weight ? (const char *)norm->weight + first * element : NULL;
        BY_LANES(n, const double h = (ds_sums_real(row, element, i) - mean) * scale,
                 u = ds_sums_real(slopes_of, element, i) *
                     (weight ? ds_sums_real(weight, element, i) : 1);
                 us[j] += u; alongs[j] += u * h)
        for (size_t i = 0; i < n && dweight; i++)
            dweight[first + i] += ds_sums_real(slopes_of, element, i) *
                                  ((ds_sums_real(row, element, i) - mean) * scale);
        for (size_t i = 0; i < n && dbias; i++)
            dbias[first + i] += ds_sums_real(slopes_of, element, i);
    }
    const double slopes = norm->by_root ? 0 : folded(us) / n_values;
    const double along = folded(alongs) / n_values;
    for (size_t r = 0; r < norm->n_rows && dx; r++)
        for (size_t c = first, i = r * norm->n + first; c < first + n; c++, i++) {
            const double h = (ds_sums_real(x, element, i) - mean) * scale,
                         u = ds_sums_real(g, element, i) *
                             (norm->weight ? ds_sums_real(norm->weight, element, c) : 1);
            ds_back_add_real(dx, element, i, scale * (u - slopes - h * along));
        }
}

void ds_norm_back(const ds_norm *norm, void *dx, double *dweight, double *dbias, const void *g,
                  const void *x, size_t element)
{
    for (size_t first = 0; first < norm->n; first += norm->n / norm->groups)
        DS_BY_ELEMENT(one_group, element, norm, first, dx, dweight, dbias, g, x);
}
