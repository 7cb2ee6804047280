/* kernels/ctc.c: see ctc.h. Sums run in the order of s, in logarithms. */
#include "kernels/ctc.h"

#include <math.h>

#include "base/log_add.h"

static size_t class_at(const ds_ctc *c, size_t s)
{
    return (size_t)(s % 2 ? c->targets[s / 2] : c->blank);
}

/* Whether a path may go from label s - 2 to label s. */
static int skips(const ds_ctc *c, size_t s)
{
    return s % 2 && s >= 3 && c->targets[s / 2] != c->targets[s / 2 - 1];
}

double ds_ctc_loss(const ds_ctc *c, double *alpha)
{
    const size_t n = 2 * c->n_targets + 1;
    if (!c->n_frames)
        return c->n_targets ? INFINITY : 0;
    for (size_t t = 0; t < c->n_frames; t++) {
        const double *x = c->x + t * c->n_classes;
        double *now = alpha + t * n;
        const double *before = t ? now - n : NULL;
        for (size_t s = 0; s < n; s++) {
            double sum = s < 2 ? 0 : -INFINITY;
            if (before) {
                sum = before[s];
                if (s)
                    sum = ds_log_add(sum, before[s - 1]);
                if (skips(c, s))
                    sum = ds_log_add(sum, before[s - 2]);
            }
            now[s] = sum + x[class_at(c, s)];
        }
    }
    const double *last = alpha + (c->n_frames - 1) * n;
    return -(n > 1 ? ds_log_add(last[n - 1], last[n - 2]) : last[0]);
}

/* Fills beta[t] of that of the frame behind; NULL: there is none. */
static void beta_at(const ds_ctc *c, const double *x, const double *behind, double *now)
{
    const size_t n = 2 * c->n_targets + 1;
    for (size_t s = 0; s < n; s++) {
        double sum = s + 2 >= n ? 0 : -INFINITY;
        if (behind) {
            sum = behind[s];
            if (s + 1 < n)
                sum = ds_log_add(sum, behind[s + 1]);
            if (s + 2 < n && skips(c, s + 2))
                sum = ds_log_add(sum, behind[s + 2]);
        }
        now[s] = sum + x[class_at(c, s)];
    }
}

void ds_ctc_slope(const ds_ctc *c, const double *alpha, double loss, double scale, double *beta,
                  double *slope)
{
    const size_t n = 2 * c->n_targets + 1;
    const double *behind = NULL;
    for (size_t t = c->n_frames; t-- > 0;) {
        const double *x = c->x + t * c->n_classes, *own = alpha + t * n;
        double *now = beta + t % 2 * n, *g = slope + t * c->n_classes;
        beta_at(c, x, behind, now);
        for (size_t k = 0; k < c->n_classes; k++)
            g[k] = -INFINITY;
        for (size_t s = 0; s < n; s++)
            g[class_at(c, s)] = ds_log_add(g[class_at(c, s)], own[s] + now[s]);
        for (size_t k = 0; k < c->n_classes; k++)
            g[k] = (exp(x[k]) - exp(g[k] + loss - x[k])) * scale;
        behind = now;
    }
}
