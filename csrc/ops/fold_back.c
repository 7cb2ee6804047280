/* ops/fold_back.c: slopes of what frames are folded into.
 *
 * Feature by feature, over the frames [t0, t0 + n) of a call. All operators are one: a fold gives what it holds at some
 * frames, at each (cumulative) or at the stream's last. Behind a frame the slopes of all that it goes into add up.
 * Within a frame its values stand for frames. */
#include <math.h>

#include "ops/fold.h"

/* One feature of one row's frames. */
typedef struct folded {
    int64_t kind, t0, n;  /* t0: the frames folded before */
    bool each, last;      /* each: gives at every frame; last: of equals */
    const void *x;        /* NULL: not read */
    void *dx;             /* NULL: not wanted */
    const void *g;        /* of every frame, or of the end; NULL: it gives nothing */
    size_t step, element; /* step: elements from frame to frame */
    const double *in; /* what was carried in, one for each carried array; NULL where it starts */
    double *slope;    /* of what is carried: out, then in */
    double *room;     /* [n]: of what is folded */
} folded;

/* The slope of what a frame's fold gives; its number among all is t + 1. */
DS_FOR_ELEMENT double given_slope(const folded *f, int64_t t, size_t e)
{
    if (!f->g || (!f->each && t + 1 < f->n))
        return 0;
    const double g = ds_sums_real(f->g, e, f->each ? (size_t)t * f->step : 0);
    return f->kind == DS_FOLD_MEAN ? g / (double)(f->t0 + t + 1) : g;
}

DS_FOR_ELEMENT double frame_of(const folded *f, int64_t t, size_t e)
{
    return ds_sums_real(f->x, e, (size_t)t * f->step);
}

DS_FOR_ELEMENT void add_frame(const folded *f, int64_t t, double slope, size_t e)
{
    if (f->dx)
        ds_back_add_real(f->dx, e, (size_t)t * f->step, slope);
}

/* The extreme so far is some frame's, or was carried in (-1). */
DS_FOR_ELEMENT void extreme_back(folded *f, size_t e)
{
    double most = f->in ? f->in[0] : 0, slope = 0;
    int64_t place = -1;
    if (f->n == 0)
        return;
    for (int64_t t = 0; t < f->n; t++) {
        const double v = frame_of(f, t, e);
        const bool greater = f->kind == DS_FOLD_MAX ? v > most : v < most, none = f->t0 + t == 0;
        if (none || (v != v ? f->last || most == most
                            : most == most && (greater || (f->last && v == most)))) {
            most = v;
            place = t;
        }
        const double g = given_slope(f, t, e) + (t + 1 == f->n ? f->slope[0] : 0);
        if (place < 0)
            slope += g;
        else
            add_frame(f, place, g, e);
    }
    f->slope[0] = slope;
}

/* Of the last product alone, where one of the frames, or of those to come, is 0: by those of all before each frame, and
 * of all behind. */
DS_FOR_ELEMENT void product_back_by_others(folded *f, size_t e)
{
    for (int64_t t = f->n; t-- > 0; f->slope[0] *= frame_of(f, t, e)) {
        f->slope[0] += given_slope(f, t, e);
        add_frame(f, t, f->slope[0] * f->room[t], e);
    }
}

/* As torch has it, which shows in infinities and NaN: `reached` are slopes of products times these, of all that a frame
 * goes into; its own is that, over the frame. Behind a 0 products start again, and only the first 0 has a slope.
 * `reached` is what cumulative hands to the call before: where that has met a 0, it is the slope of what starts again. */
DS_FOR_ELEMENT void product_back(folded *f, size_t e)
{
    const double in = f->in ? f->in[0] : 1;
    const bool met = f->each && ds_fold_met_zero(in);
    double before = met ? 1 : in, behind = f->slope[0];
    int64_t zero = in == 0 || met ? -1 : f->n; /* the first */
    for (int64_t t = 0; t < f->n; t++) {
        const double x = frame_of(f, t, e);
        f->room[t] = before;
        zero = x == 0 && t < zero ? t : zero;
        before = x == 0 && f->each ? 1 : before * x;
    }
    if (!f->each && (zero < f->n || (!f->g && behind == 0))) {
        product_back_by_others(f, e);
        return;
    }
    double reached = f->each && zero == f->n ? behind : behind == 0 ? 0 : behind * before;
    for (int64_t t = f->n; t-- > 0;) {
        const double x = frame_of(f, t, e), g = given_slope(f, t, e), y = f->room[t] * x;
        if (x == 0) {
            add_frame(f, t, t == zero ? (reached + g) * f->room[t] : 0, e);
            reached =
                t == zero ? 0 : 0 * f->room[t]; /* what is behind a 0 counts nothing; NaN stays */
            behind = 0;
            continue;
        }
        if (f->g && (f->each || t + 1 == f->n))
            reached += g * (e == sizeof(float) ? (double)(float)y : y);
        behind = (behind + g) * x;
        add_frame(f, t, t < zero ? reached / x : 0, e);
    }
    f->slope[0] = f->each ? reached : behind;
}

/* Of log(sum of exp): `behind` are slopes times what a frame's share of y has of them. */
DS_FOR_ELEMENT void logarithm_back(folded *f, size_t e)
{
    double top = f->in ? f->in[0] : -(double)INFINITY, weights = f->in ? f->in[1] : 0;
    double y = weights > 0 ? top + log(weights) : -(double)INFINITY;
    const double first = y, first_weights = weights;
    for (int64_t t = 0; t < f->n; t++) {
        const double v = frame_of(f, t, e), now = v > top || v != v ? v : top;
        weights = (top == now ? weights : weights * exp(top - now)) +
                  (isinf(now) ? v == now : exp(v - now));
        top = now;
        y = isinf(top) ? top : top + log(weights);
        f->room[t] = y;
    }
    double behind = f->slope[1] * weights;
    for (int64_t t = f->n; t-- > 0;) {
        const double before = t > 0 ? f->room[t - 1] : first;
        behind += given_slope(f, t, e);
        if (behind != 0) {
            add_frame(f, t, exp(frame_of(f, t, e) - f->room[t]) * behind, e);
            behind *= before == f->room[t] ? 1 : exp(before - f->room[t]); /* infinite ones */
        }
    }
    f->slope[0] = 0; /* nothing depends on the greatest */
    f->slope[1] = first_weights > 0 ? behind / first_weights : 0;
}

DS_FOR_ELEMENT int feature_back(folded *f, size_t e)
{
    switch (f->kind) {
    case DS_FOLD_SUM:
    case DS_FOLD_MEAN:
        for (int64_t t = f->n; t-- > 0;) {
            f->slope[0] += given_slope(f, t, e);
            add_frame(f, t, f->slope[0], e);
        }
        break;
    case DS_FOLD_PROD:
        product_back(f, e);
        break;
    case DS_FOLD_LOGSUMEXP:
        logarithm_back(f, e);
        break;
    default:
        extreme_back(f, e);
    }
    return 0;
}

void ds_fold_backward(const ds_op *op, const ds_back *b)
{
    const ds_run *run = b->run;
    const size_t n = ds_elements(&op->in[0]), element = ds_op_element(op);
    const bool each = op->at_end == 0;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_counts *count = &run->count[r];
        const ds_target *out = &run->out[r];
        const int64_t t0 = each ? out->m0 : count->before.known,
                      end = each ? out->m1 : count->now.known;
        const char *const x =
            run->in[r].data && t0 < end ? ds_at(&run->in[r], t0, n * element) : NULL;
        char *const dx = t0 < end ? ds_slope_at(&b->dx[r], t0, n * element) : NULL;
        const bool given = out->m0 < out->m1;
        for (size_t i = 0; i < n; i++) {
            double in[2] = {0}, slope[2] = {0};
            folded f = {.kind = op->attr[DS_FOLD_KIND].i,
                        .t0 = t0,
                        .n = end - t0,
                        .each = each,
                        .last = each,
                        .x = x ? x + i * element : NULL,
                        .dx = dx ? dx + i * element : NULL,
                        .g = given ? (const char *)b->dy[r] + i * element : NULL,
                        .step = n,
                        .element = element,
                        .in = t0 > 0 ? in : NULL,
                        .slope = slope,
                        .room = b->scratch};
            double *carried[2];
            for (int c = 0; c < op->n_carried; c++) {
                carried[c] = (double *)ds_back_carried(op, b, r, c) + i;
                slope[c] = *carried[c];
                in[c] = ((const double *)ds_run_carried(op, run, r, c))[i];
            }
            if (end == t0 && given && !each) { /* what was folded before leaves */
                const double g = ds_sums_real(f.g, element, 0);
                const int of = f.kind == DS_FOLD_LOGSUMEXP;
                slope[of] += f.kind == DS_FOLD_MEAN        ? g / (double)end
                             : f.kind == DS_FOLD_LOGSUMEXP ? g / in[1]
                                                           : g;
            }
            (void)DS_BY_ELEMENT(feature_back, element, &f);
            for (int c = 0; c < op->n_carried; c++)
                *carried[c] = t0 > 0 ? slope[c] : 0;
        }
    }
}

void ds_fold_within_slopes(const ds_op *op, const ds_back *b, void *dx, const void *g,
                           const void *x, size_t n_rows, size_t n, size_t inner)
{
    const size_t element = ds_op_element(op);
    for (size_t r = 0; r < n_rows && dx; r++)
        for (size_t i = 0; i < inner; i++) {
            const size_t at = (r * n * inner + i) * element;
            double slope[2] = {0};
            folded f = {.kind = op->attr[DS_FOLD_KIND].i,
                        .n = (int64_t)n,
                        .each = true,
                        .last = true,
                        .x = x ? (const char *)x + at : NULL,
                        .dx = (char *)dx + at,
                        .g = (const char *)g + at,
                        .step = inner,
                        .element = element,
                        .slope = slope,
                        .room = b->scratch};
            (void)DS_BY_ELEMENT(feature_back, element, &f);
        }
}
