/* ops/resample.c: change of the sample rate by new / orig, with a kernel for every phase.
 *
 * Output m lies at frame m * orig / new of the input. With p = m mod new, its phase, and q =
 * floor(m / new)
 *
 *     y[m] = sum over taps j of x[q * orig - width + j] * kernel[p][0][j],  ascending in j,
 *
 * over those taps only that lie within `half` of it, counted in frames of rate orig * new:
 *
 *     frame i is used by output m  where  |i * new - m * orig| <= half
 *
 * The others are structural zeros, which a kernel has where it is written down for all phases in
 * equal length; outputs don't wait for them. Frames outside the stream count as zero. Every
 * feature is resampled by itself.
 *
 * in [f...], kernel [new][1][2 * width + orig], out [f...]; rate * new / orig.
 *
 *     known'  = floor((known * new - half - 1) / orig) + 1
 *     total'  = ceil(total * new / orig)
 *     need(m) = ceil((m * orig - half) / new)
 *
 * Source: torchaudio.functional.resample (there the kernel is a windowed sinc). */
#include <string.h>

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/registry.h"

enum { ORIG, NEW, WIDTH, HALF };
enum { ROWS = 32 /* outputs of one phase that are computed together */ };

/* Of rates: products with positions stay far below 2^63. */
enum { LIMIT = 1 << 20 };

static const ds_attr_def attrs[] = {
    {"orig", DS_ATTR_INT, .required = true, .doc = "input frames for `new` output frames",
     .range = DS_FROM_1, .most = LIMIT},
    {"new", DS_ATTR_INT, .required = true, .doc = "output frames for `orig` input frames",
     .range = DS_FROM_1, .most = LIMIT},
    {"width", DS_ATTR_INT, .required = true, .doc = "taps before a phase's block",
     .range = DS_FROM_0, .most = LIMIT},
    {"half", DS_ATTR_INT, .required = true,
     .doc = "how far a tap may lie from its output, in frames of rate orig * new",
     .range = DS_FROM_0},
    {0},
};

typedef struct geometry {
    int64_t orig, new, width, half;
    size_t taps;     /* of a prepared phase, the most that any has */
    size_t channels; /* all features */
} geometry;

static geometry resample_geometry_of(const ds_op *op)
{
    geometry g = {.orig = op->attr[ORIG].i,
                  .new = op->attr[NEW].i,
                  .width = op->attr[WIDTH].i,
                  .half = op->attr[HALF].i,
                  .channels = ds_elements(&op->in[0])};
    g.taps = (size_t)(2 * g.half / g.new + 1);
    return g;
}

/* The frames that phase p uses, relative to its block's first: [first, last], or none. */
static int64_t resample_first_tap(const geometry *g, int64_t p)
{
    return -ds_floor_div(g->half - p * g->orig, g->new);
}

static int64_t resample_last_tap(const geometry *g, int64_t p)
{
    return ds_floor_div(p * g->orig + g->half, g->new);
}

static ds_status resample_infer(ds_op *op)
{
    const int64_t orig = op->attr[ORIG].i, new = op->attr[NEW].i, width = op->attr[WIDTH].i;
    DS_CHECK(op->attr[HALF].i <= width * new, DS_ARGUMENT,
             "resample: half must be at most width * new, %lld, got %lld", (long long)(width * new),
             (long long)op->attr[HALF].i);
    const geometry g = resample_geometry_of(op);
    size_t n_bytes;
    DS_TRY(ds_size_mul(&n_bytes, ds_op_element(op), g.channels));
    DS_TRY(ds_size_mul(&n_bytes, n_bytes, g.taps));
    DS_TRY(ds_size_mul(&n_bytes, n_bytes, (size_t)new));
    op->back_scratch.per_call = ds_back_sums_bytes(op);
    return ds_scale_rate(op, new, orig);
}

/* floor((n * times + more) / by), or its ceiling, without a product that overflows: whole blocks of `by`
 * frames apart from the rest. */
static ds_expr resample_scaled(ds_program *p, ds_expr n, int64_t times, int64_t more, int64_t by,
                               bool up)
{
    const ds_expr blocks = ds_floordiv_k(p, n, by);
    const ds_expr rest = ds_sub(p, n, ds_mul_k(p, blocks, by));
    const ds_expr part = ds_add_k(p, ds_mul_k(p, rest, times), more);
    return ds_add(p, ds_mul_k(p, blocks, times),
                  up ? ds_ceildiv_k(p, part, by) : ds_floordiv_k(p, part, by));
}

static void resample_counts(const ds_op *op, ds_program *p)
{
    const geometry g = resample_geometry_of(op);
    ds_root(p,
            ds_add_k(p, resample_scaled(p, ds_known(p, 0), g.new, -g.half - 1, g.orig, false), 1));
    ds_root(p, resample_scaled(p, ds_total(p, 0), g.new, 0, g.orig, true));
}

static void resample_need(const ds_op *op, ds_program *p)
{
    const geometry g = resample_geometry_of(op);
    ds_root(p, resample_scaled(p, ds_m(p), g.orig, -g.half, g.new, true));
}

static size_t resample_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const geometry g = resample_geometry_of(op);
    return (size_t)g.new * g.taps * g.channels * k->element;
}

/* Every phase's taps without the structural zeros, once for each channel: [new][taps][channels]. */
static void resample_prepare(const ds_op *op, void *prepared, const void *const *weights,
                             const ds_real_kernels *k)
{
    const geometry g = resample_geometry_of(op);
    const size_t element = ds_op_element(op), row = (size_t)(2 * g.width + g.orig);
    memset(prepared, 0, resample_prepared_bytes(op, k));
    for (int64_t p = 0; p < g.new; p++) {
        const int64_t first = resample_first_tap(&g, p), last = resample_last_tap(&g, p);
        const char *from =
            (const char *)weights[0] + ((size_t)p * row + (size_t)(first + g.width)) * element;
        char *to = (char *)prepared + (size_t)p * g.taps * g.channels * element;
        for (int64_t i = first; i <= last; i++, from += element) {
            for (size_t c = 0; c < g.channels; c++, to += element)
                memcpy(to, from, element);
        }
    }
}

/* y = products of windows with n_taps taps, each channel by its own. */
static void resample_rows(const ds_run *run, const geometry *g, void *const *y,
                          const void *const *x, size_t n, const char *taps, size_t n_taps)
{
    const ds_packed weight = {
        .format = DS_FORMAT_TAPS, .n_cols = g->channels, .depth = n_taps, .data = taps};
    const ds_product p = {.weight = &weight, .y = y, .x = x, .n_rows = n};
    run->k->depthwise(&p, (ds_taps){.step = g->channels, .inner = SIZE_MAX});
}

/* Outputs m, m + new, ... of one row: one phase. A window that reaches beyond an end of the stream is a product of
 * its own, of the taps within. */
static void resample_forward_phase(const ds_run *run, const geometry *g, size_t row, int64_t m)
{
    const ds_window *in = &run->in[row];
    const ds_target *out = &run->out[row];
    const int64_t total = run->ended[row] ? run->count[row].now.total : INT64_MAX;
    const size_t frame_bytes = g->channels * run->k->element;
    const int64_t p = m % g->new, n_taps = resample_last_tap(g, p) - resample_first_tap(g, p) + 1;
    const char *taps = (const char *)run->prepared + (size_t)p * g->taps * frame_bytes;
    int64_t first = m / g->new * g->orig + resample_first_tap(g, p);
    void *y[ROWS];
    const void *x[ROWS];
    size_t n = 0;
    for (; m < out->m1; m += g->new, first += g->orig) {
        const int64_t begin = first < 0 ? 0 : first;
        const int64_t end = first + n_taps < total ? first + n_taps : total;
        const bool cut = end - begin < n_taps;
        if (n == ROWS || (n > 0 && cut)) {
            resample_rows(run, g, y, x, n, taps, (size_t)n_taps);
            n = 0;
        }
        y[n] = ds_to(out, m, frame_bytes);
        x[n++] = begin < end ? ds_at(in, begin, frame_bytes) : in->data;
        if (cut) {
            resample_rows(run, g, y, x, 1, taps + (size_t)(begin - first) * frame_bytes,
                          begin < end ? (size_t)(end - begin) : 0);
            n = 0;
        }
    }
    if (n > 0)
        resample_rows(run, g, y, x, n, taps, (size_t)n_taps);
}

static void resample_forward(const ds_op *op, const ds_run *run)
{
    const geometry g = resample_geometry_of(op);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t n = out->m1 - out->m0 < g.new ? out->m1 - out->m0 : g.new;
        for (int64_t i = 0; i < n; i++)
            resample_forward_phase(run, &g, row, out->m0 + i);
    }
}

/* One tap of one output: what of its slopes the tap's frame has, and what the tap has. */
DS_FOR_ELEMENT void resample_tap(const geometry *g, void *dx, double *dtap, const void *slopes,
                                 const void *x, double tap, size_t element)
{
    for (size_t c = 0; c < g->channels; c++) {
        const double slope = ds_sums_real(slopes, element, c);
        if (dx)
            ds_back_add_real(dx, element, c, tap * slope);
        if (dtap)
            *dtap += slope * ds_sums_real(x, element, c);
    }
}

static void resample_backward(const ds_op *op, const ds_back *b)
{
    const geometry g = resample_geometry_of(op);
    const ds_run *run = b->run;
    const size_t element = ds_op_element(op), frame_bytes = g.channels * element,
                 row = (size_t)(2 * g.width + g.orig);
    ds_room room = {b->scratch};
    double *sums[DS_SUMMED];
    ds_back_sums_begin(op, b, sums, &room);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        const int64_t total = run->ended[r] ? run->count[r].now.total : INT64_MAX;
        for (int64_t m = out->m0; m < out->m1; m++) {
            const int64_t p = m % g.new, block = m / g.new * g.orig;
            for (int64_t i = resample_first_tap(&g, p); i <= resample_last_tap(&g, p); i++) {
                const size_t tap = (size_t)p * row + (size_t)(i + g.width);
                const int64_t frame = block + i;
                if (frame < 0 || frame >= total)
                    continue;
                DS_BY_ELEMENT(resample_tap, element, &g, ds_slope_at(&b->dx[r], frame, frame_bytes),
                              sums[0] ? &sums[0][tap] : NULL,
                              (const char *)b->dy[r] + (size_t)(m - out->m0) * frame_bytes,
                              ds_at(&run->in[r], frame, frame_bytes),
                              ds_sums_real(run->weights[0], element, tap));
            }
        }
    }
    ds_back_sums_end(op, b, sums);
}

const ds_op_def ds_op_resample = {
    DS_OPERATOR(resample, "changes the stream's rate by a fraction, with a kernel for every phase"),
    .flags = DS_OP_REAL,
    .attrs = attrs,
    .shapes = "[..]; kernel [new, 1, 2*width+orig]",
    DS_COUNTED(resample),
    DS_PREPARED(resample),
    .backward = resample_backward,
    .reads = DS_READS_X};
