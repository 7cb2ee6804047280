/* ops/pool.c: windows that are reduced to their largest or mean element, along the stream and along an
 * inner axis.
 *
 * A frame is seen as [F][C]: F is its first feature axis (the inner axis), C all others. Output (m, g)
 * is made, channel by channel, of the elements at taps of the stream and of the inner axis:
 *
 *     max_pool, avg_pool   x[m stride - left + t dilation][g inner_stride - inner_padding + u inner_dilation],
 *                          t < kernel, u < inner_kernel, without what lies in padding
 *     adaptive_pool        of an axis that is divided into n parts, those of part i,
 *                          floor(i size / n) .. ceil((i + 1) size / n) - 1; with n = 0 the axis stays as it is
 *
 * The largest is -inf where there are none, and the first of equals; NaN wins. A mean's sum runs in double, frame by
 * frame and in ascending order; in avg_pool it is divided by
 *
 *     divisor                     where that is given
 *     frames * elements           of the window, padding included, what hangs over it not
 *     frames * elements           without padding, where count_include_pad is 0
 *
 * and a window in which nothing lies is 0. in [F][C], or any shape where the window is along the stream only;
 * out [F'][C]; rate / stride. The counts are those of ops/padding.h, but that with `ceil` a window may hang
 * over the end, if it starts before the right padding:
 *
 *     total'  = n + 1 where n stride < total + left, else n;   n = ceil((total + left + right - span) / stride)
 *
 * A window that lies within what is known is there in any case, so ceil holds nothing back. Parts of the
 * stream depend on its length: known 0, total `frames`, need 0.
 *
 * Windows that overlap and are long (pool_slides) cost the same whatever their length: from what 1, 2, 4, ... taps
 * give at every position follow twice as many by one operation. So sums are those of halves there, which begin with the
 * window's first tap and get shorter: of 13 taps of 8, 4 and 1, each half of it by half. First along the inner axis, of
 * each frame, then along the stream.
 *
 * Source: torch.nn.functional.max_pool1d, max_pool2d, avg_pool1d, avg_pool2d (there left = right);
 * adaptive_avg_pool2d, adaptive_max_pool2d. */
#include <math.h>
#include <string.h>

#include "ops/back.h"
#include "ops/move.h"
#include "ops/padding.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KERNEL, STRIDE, LEFT, RIGHT, CEIL, INNER_KERNEL, INNER_STRIDE, INNER_PADDING };
enum { DILATION = INNER_PADDING + 1, INNER_DILATION };   /* max_pool's own */
enum { COUNT_INCLUDE_PAD = INNER_PADDING + 1, DIVISOR }; /* avg_pool's */
enum { KIND, FRAMES, INNER };                            /* adaptive_pool's */
enum { AVG, MAX };

#define WINDOWS                                                                              \
    {"kernel", DS_ATTR_INT, .i = 1, .doc = "frames in a window"},                            \
        {"stride", DS_ATTR_INT, .i = 1, .doc = "frames from window to window"},              \
        {"left", DS_ATTR_INT, .doc = "frames of padding before the first"},                  \
        {"right", DS_ATTR_INT, .doc = "frames of padding after the last"},                   \
        {"ceil", DS_ATTR_INT, .doc = "1: a last window may hang over the end, on both axes", \
         .range = DS_0_OR_1},                                                                \
        {"inner_kernel", DS_ATTR_INT, .i = 1,                                                \
         .doc = "elements of the first feature axis in a window"},                           \
        {"inner_stride", DS_ATTR_INT, .i = 1, .doc = "elements from window to window"},      \
        {"inner_padding", DS_ATTR_INT, .doc = "elements of padding at both ends"}

static const ds_attr_def max_pool_attrs[] = {
    WINDOWS,
    {"dilation", DS_ATTR_INT, .i = 1, .doc = "frames from tap to tap"},
    {"inner_dilation", DS_ATTR_INT, .i = 1, .doc = "elements from tap to tap"},
    {0},
};

static const ds_attr_def avg_pool_attrs[] = {
    WINDOWS,
    {"count_include_pad", DS_ATTR_INT, .i = 1, .doc = "1: padding counts as elements of a window",
     .range = DS_0_OR_1},
    {"divisor", DS_ATTR_INT, .doc = "what sums are divided by; 0: by their elements"},
    {0},
};

static const ds_attr_def adaptive_pool_attrs[] = {
    {"kind", DS_ATTR_CHOICE, .required = true, .choices = "avg|max",
     .doc = "what a part is reduced to"},
    {"frames", DS_ATTR_INT, .doc = "parts of the stream; 0: it stays as it is", .range = DS_FROM_0,
     .most = DS_PADDING_LIMIT},
    {"inner", DS_ATTR_INT, .doc = "parts of the first feature axis; 0: it stays as it is",
     .range = DS_FROM_0, .most = DS_PADDING_LIMIT},
    {0},
};

/* What output positions see of one axis: windows, or so many parts where that is not 0. */
typedef struct axis {
    ds_padding window;
    int64_t parts;
} axis;

typedef struct pool {
    axis frames, inner;
    bool adaptive, max, ceil;
    int64_t n_in, n_out; /* along the inner axis */
    size_t n_channels;
} pool;

/* Whether every output is the input at its place. */
static bool pool_trivial(const axis *a)
{
    const ds_padding *w = &a->window;
    return a->parts == 0 && w->kernel == 1 && w->stride == 1 && w->left == 0;
}

static pool pool_of(const ds_op *op)
{
    const ds_attr_value *attr = op->attr;
    const bool max = op->def == &ds_op_max_pool;
    pool p = {.adaptive = op->def == &ds_op_adaptive_pool,
              .n_in = 1,
              .n_out = 1,
              .n_channels = ds_elements(&op->in[0])};
    if (p.adaptive) {
        p.max = attr[KIND].i == MAX;
        p.frames = (axis){DS_PADDING_NONE, attr[FRAMES].i};
        p.inner = (axis){DS_PADDING_NONE, attr[INNER].i};
    } else {
        p.max = max;
        p.ceil = attr[CEIL].i == 1;
        p.frames.window = (ds_padding){.kernel = attr[KERNEL].i,
                                       .stride = attr[STRIDE].i,
                                       .dilation = max ? attr[DILATION].i : 1,
                                       .left = attr[LEFT].i,
                                       .right = attr[RIGHT].i};
        p.inner.window = (ds_padding){.kernel = attr[INNER_KERNEL].i,
                                      .stride = attr[INNER_STRIDE].i,
                                      .dilation = max ? attr[INNER_DILATION].i : 1,
                                      .left = attr[INNER_PADDING].i,
                                      .right = attr[INNER_PADDING].i};
    }
    if (!pool_trivial(&p.inner) && op->in[0].rank > 0) { /* else the whole frame is channels */
        p.n_in = op->in[0].shape[0];
        p.n_out = op->out[0].shape[0];
        p.n_channels /= (size_t)p.n_in;
    }
    return p;
}

/* Outputs of an axis of `size` elements. */
static int64_t pool_outputs(const axis *a, int64_t size, bool ceil)
{
    const ds_padding *w = &a->window;
    const int64_t room =
        size + w->left + w->right - ds_padding_span(w) + (ceil ? w->stride - 1 : 0);
    if (a->parts > 0 || room < 0)
        return a->parts;
    const int64_t n = room / w->stride;
    return ceil && n * w->stride >= size + w->left ? n : n + 1;
}

/* ---------------------------------------------------------------- long windows */
enum {
    POOL_BESIDE = 4,
    POOL_VECTOR = 16,
    POOL_LONG = 8,
    POOL_NEAR = 1 << 16 /* bytes */,
    POOL_FAR = 1 << 13,
    POOL_FEW = 4
};

/* Whether windows slide: by the attributes alone, which say so how sums are ordered. */
static bool pool_slides(const pool *p)
{
    const ds_padding *const a = &p->frames.window, *const b = &p->inner.window;
    return !p->adaptive && ((a->kernel >= POOL_LONG && a->kernel > 2 * a->stride) ||
                            (b->kernel >= POOL_LONG && b->kernel > 2 * b->stride));
}

/* Sizes of what is computed at a time: so many channels of the frames of so many outputs; elements of what is met. */
typedef struct block {
    size_t channels, line; /* a line: of a frame, what its inner windows give */
    int64_t outputs, frames;
    int64_t inner; /* positions of the inner axis that windows see, padding included */
    size_t n_lines, n_inner, n_out;
} block;

static block pool_block(const ds_op *op, const pool *p)
{
    const ds_padding *const w = &p->frames.window, *const inner = &p->inner.window;
    const size_t met = p->max ? ds_op_element(op) : sizeof(double), n_out = (size_t)p->n_out;
    const size_t span = (size_t)ds_padding_span(w),
                 fit = POOL_NEAR / ds_saturated_product(met * n_out, 2 * span);
    block b = {.inner = (p->n_out - 1) * inner->stride + ds_padding_span(inner)};
    b.channels = fit > POOL_VECTOR ? fit : POOL_VECTOR;
    b.channels = b.channels < p->n_channels ? b.channels : p->n_channels;
    b.line = b.channels * n_out;
    const size_t least = span / (size_t)w->stride + 1;
    const size_t near = POOL_NEAR / ds_saturated_product(b.line * met, (size_t)w->stride);
    b.outputs = (int64_t)(near > least ? near : least);
    b.frames = (b.outputs - 1) * w->stride + ds_padding_span(w);
    b.n_lines = ds_saturated_product((size_t)b.frames, b.line);
    b.n_inner = ds_saturated_product((size_t)b.inner, b.channels);
    b.n_out = ds_saturated_product((size_t)b.outputs, b.line);
    return b;
}

static size_t pool_scratch(const ds_op *op)
{
    const pool p = pool_of(op);
    if (!pool_slides(&p))
        return p.max ? 0 : p.n_channels * sizeof(double);
    const block b = pool_block(op, &p);
    const size_t n = ds_saturated_sum(b.n_lines, b.n_inner);
    return ds_saturated_product(ds_saturated_sum(ds_saturated_product(n, 2), b.n_out),
                                sizeof(double));
}

static ds_status pool_infer(ds_op *op)
{
    const pool p = pool_of(op);
    DS_TRY(ds_padding_check(op, &p.frames.window));
    DS_TRY(ds_padding_check(op, &p.inner.window));
    if (!pool_trivial(&p.inner)) {
        DS_CHECK(op->in[0].rank > 0, DS_SHAPE, "%s: %s a feature axis, its input has none",
                 op->def->name, p.adaptive ? "inner parts need" : "an inner window needs");
        op->out[0].shape[0] = pool_outputs(&p.inner, p.n_in, p.ceil);
        DS_CHECK(op->out[0].shape[0] >= 1, DS_SHAPE,
                 "%s: the inner axis of %lld elements is shorter than a window of %lld",
                 op->def->name, (long long)p.n_in, (long long)ds_padding_span(&p.inner.window));
    }
    op->scratch.per_call = pool_scratch(op);
    op->whole = p.frames.parts > 0;
    op->reads = p.max ? DS_READS_X : 0;
    /* The mean of no frames, as one part, is NaN in torch. */
    op->needs_frames = !p.adaptive || p.max || p.frames.parts > 1;
    return ds_scale_rate(op, 1, p.frames.window.stride);
}

static void pool_counts(const ds_op *op, ds_program *p)
{
    const pool whole = pool_of(op);
    const ds_padding *const g = &whole.frames.window;
    const ds_expr total = ds_total(p, 0);
    ds_padding_counts(g, p);
    if (op->whole)
        p->roots[1] = ds_const(p, whole.frames.parts);
    if (whole.ceil) {
        const ds_expr room = ds_add_k(p, total, g->left + g->right - ds_padding_span(g));
        const ds_expr n = ds_ceildiv_k(p, room, g->stride);
        const ds_expr hangs = ds_sub(p, ds_add_k(p, total, g->left), ds_mul_k(p, n, g->stride));
        p->roots[1] = ds_select(p, hangs, ds_add_k(p, n, 1), n);
    }
}

static void pool_need(const ds_op *op, ds_program *p)
{
    const pool whole = pool_of(op);
    ds_padding_need(&whole.frames.window, p);
}

/* Positions first, first + step, ..., n of them. */
typedef struct taps {
    int64_t first, step, n;
} taps;

/* What output i sees of an axis of `size` elements. */
static taps pool_taps(const axis *a, int64_t i, int64_t size)
{
    if (a->parts > 0) {
        const int64_t first = i * size / a->parts;
        return (taps){first, 1, ((i + 1) * size + a->parts - 1) / a->parts - first};
    }
    const ds_padding *w = &a->window;
    const int64_t d = w->dilation, first = i * w->stride - w->left;
    const int64_t skipped = first < 0 ? (d - 1 - first) / d : 0;
    const int64_t before_end = first < size ? (size - first + d - 1) / d : 0;
    const int64_t end = before_end < w->kernel ? before_end : w->kernel;
    return (taps){first + skipped * d, d, end > skipped ? end - skipped : 0};
}

/* Elements of them that avg_pool counts. */
static int64_t pool_counted(const ds_op *op, const axis *a, int64_t i, int64_t size, taps seen)
{
    if (op->def != &ds_op_avg_pool || op->attr[COUNT_INCLUDE_PAD].i == 0)
        return seen.n;
    const int64_t room = size + a->window.right - (i * a->window.stride - a->window.left);
    return room < a->window.kernel ? room : a->window.kernel;
}

/* What the sum of output (m, i) is divided by. */
static double pool_divisor(const ds_op *op, const pool *p, int64_t m, int64_t known, taps frames,
                           int64_t i, taps inner)
{
    const int64_t given = op->def == &ds_op_avg_pool ? op->attr[DIVISOR].i : 0;
    const int64_t n = given != 0 ? given
                                 : pool_counted(op, &p->frames, m, known, frames) *
                                       pool_counted(op, &p->inner, i, p->n_in, inner);
    return n != 0 || p->frames.parts > 0 ? (double)n : 1.0;
}

/* met[0..n) and so many taps of n elements, `step` elements apart, of doubles if wide. k: of the largest; NULL: sums. */
static void pool_take(const ds_real_kernels *k, bool wide, void *met, const void *x, size_t n_taps,
                      size_t step, size_t n)
{
    const size_t bytes = step * (wide ? sizeof(double) : sizeof(float));
    for (size_t t = 0; t < n_taps; t++) {
        const char *const tap = (const char *)x + t * bytes;
        if (k != NULL)
            k->binary(DS_BINARY_MAXIMUM, met, tap, met, n, 1, 1);
        else
            ds_sums_add(met, tap, n, wide ? DS_F64 : DS_F32);
    }
}

/* n elements of what nothing has been met of. */
static void pool_none(const pool *p, bool wide, void *met, size_t n)
{
    char none[8];
    const size_t element = wide ? sizeof(double) : sizeof(float);
    ds_move_encode(wide ? DS_F64 : DS_F32, p->max ? -INFINITY : 0, none);
    ds_move_repeat(met, n * element, none, element);
}

/* y[C] = the largest of x over both taps, or the sum / divisor. */
static void pool_reduce(const ds_op *op, const ds_run *run, const pool *p, const ds_window *x,
                        taps frames, taps inner, double divisor, void *y)
{
    const ds_real_kernels *const k = p->max ? run->k : NULL;
    const size_t n_bytes = ds_signature_bytes(&op->in[0]), n = p->n_channels,
                 element = ds_op_element(op);
    const bool wide = element == sizeof(double);
    if (p->n_in == 1 && inner.n == 1 && frames.n > 0 && (p->max || divisor != 0)) {
        run->k->pool(p->max ? 0 : divisor, false, y, ds_at(x, frames.first, n_bytes), 1, n,
                     (size_t)frames.n, (size_t)frames.step * n, n);
        return;
    }
    void *const met = p->max ? y : run->scratch;
    pool_none(p, wide || !p->max, met, n);
    for (int64_t t = 0; t < frames.n; t++) {
        const char *const frame = ds_at(x, frames.first + t * frames.step, n_bytes);
        pool_take(k, wide, met, frame + (size_t)inner.first * n * element, (size_t)inner.n,
                  (size_t)inner.step * n, n);
    }
    if (!p->max)
        ds_sums_write(y, met, n, divisor, op->in[0].dtype);
}

/* out[n_out][width] of windows over a[n][width], which is lost as is b; wide: of doubles. */
static void pool_slide(const pool *p, const ds_real_kernels *max, bool wide, const ds_padding *w,
                       char *out, char *a, char *b, size_t n, size_t n_out, size_t width)
{
    const size_t bytes = width * (wide ? sizeof(double) : sizeof(float)),
                 stride = (size_t)w->stride;
    const size_t kernel = (size_t)w->kernel, dilation = (size_t)w->dilation;
    const size_t n_runs = stride == 1 ? 1 : n_out, run = stride == 1 ? n_out * width : width;
    pool_none(p, wide, out, n_out * width);
    for (size_t many = 1;; many *= 2) {
        /* Sums are those of parts with so many taps; the largest is that of the first so many and of the last. */
        const bool part = p->max ? 2 * many > kernel : (kernel & many) != 0;
        const size_t last = (p->max ? kernel - many : kernel & ~(2 * many - 1)) * dilation * bytes;
        for (size_t i = 0; part && i < n_runs; i++) {
            const char *const from = a + i * stride * bytes;
            if (p->max && last > 0)
                pool_take(max, wide, out + i * bytes, from, 1, 0, run);
            pool_take(max, wide, out + i * bytes, from + last, 1, 0, run);
        }
        if (2 * many > kernel)
            return;
        n -= many * dilation;
        const char *const later = a + many * dilation * bytes;
        if (max != NULL)
            max->binary(DS_BINARY_MAXIMUM, b, later, a, n * width, 1, 1);
        else
            for (size_t i = 0; i < n * width; i++)
                ((double *)(void *)b)[i] =
                    ((const double *)(const void *)a)[i] + ((const double *)(const void *)later)[i];
        char *const done = a;
        a = b;
        b = done;
    }
}

/* to[channels] = x, or what nothing is where that is NULL. */
static void pool_put(const pool *p, bool wide, void *to, const char *x, size_t channels,
                     ds_dtype dtype)
{
    if (x == NULL)
        pool_none(p, wide, to, channels);
    else if (p->max)
        memcpy(to, x, channels * (wide ? sizeof(double) : sizeof(float)));
    else
        ds_sums_set(to, x, channels, dtype);
}

/* Outputs [m0, m1), no more than the block has, of channels from c on; y is that of m0. */
static void pool_block_forward(const ds_op *op, const ds_run *run, const pool *p, const block *b,
                               size_t row, int64_t m0, int64_t m1, size_t c, char *y)
{
    const ds_padding *const w = &p->frames.window, *const inner = &p->inner.window;
    const ds_real_kernels *const max = p->max ? run->k : NULL;
    const ds_dtype dtype = op->in[0].dtype;
    const bool wide = !p->max || dtype == DS_F64;
    const size_t element = ds_op_element(op), met = wide ? sizeof(double) : sizeof(float);
    const size_t n = b->channels < p->n_channels - c ? b->channels : p->n_channels - c;
    const size_t line = n * (size_t)p->n_out * met, n_bytes = ds_signature_bytes(&op->in[0]);
    const int64_t known = run->count[row].now.known;
    const int64_t first = m0 * w->stride - w->left,
                  n_frames = (m1 - 1 - m0) * w->stride + ds_padding_span(w);
    char *const lines = run->scratch, *const other = lines + b->n_lines * met;
    char *const out = other + b->n_lines * met, *const within = out + b->n_out * met;
    char *const beside = within + b->n_inner * met;
    for (int64_t t = 0; t < n_frames; t++) {
        const bool there = first + t >= 0 && first + t < known;
        const char *const x =
            there ? (const char *)ds_at(&run->in[row], first + t, n_bytes) + c * element : NULL;
        char *const to = lines + (size_t)t * line;
        if (!there || pool_trivial(&p->inner)) {
            pool_put(p, wide, to, x, line / met, dtype);
            continue;
        }
        for (int64_t u = 0; u < b->inner; u++) {
            const int64_t at = u - inner->left;
            const char *const from =
                at >= 0 && at < p->n_in ? x + (size_t)at * p->n_channels * element : NULL;
            pool_put(p, wide, within + (size_t)u * n * met, from, n, dtype);
        }
        pool_slide(p, max, wide, inner, to, within, beside, (size_t)b->inner, (size_t)p->n_out, n);
    }
    pool_slide(p, max, wide, w, out, lines, other, (size_t)n_frames, (size_t)(m1 - m0), line / met);
    const char *from = out;
    for (int64_t m = m0; m < m1; m++) {
        const taps frames = pool_taps(&p->frames, m, known);
        for (int64_t g = 0; g < p->n_out; g++, from += n * met, y += p->n_channels * element)
            if (p->max)
                memcpy(y + c * element, from, n * met);
            else
                ds_sums_write(
                    y + c * element, (const double *)(const void *)from, n,
                    pool_divisor(op, p, m, known, frames, g, pool_taps(&p->inner, g, p->n_in)),
                    dtype);
    }
}

/* ---------------------------------------------------------------- forward */
/* Outputs [m0, m1) whose windows, of the stream alone, lie within the frames that are known. */
static void pool_whole(const ds_op *op, const ds_run *run, const pool *p, const ds_window *x,
                       int64_t known, int64_t m0, int64_t m1, void *y)
{
    const ds_padding *const w = &p->frames.window;
    const taps seen = pool_taps(&p->frames, m0, known), one = {0, 1, 1};
    run->k->pool(p->max ? 0 : pool_divisor(op, p, m0, known, seen, 0, one),
                 !p->max && pool_slides(p), y, ds_at(x, seen.first, ds_signature_bytes(&op->in[0])),
                 (size_t)(m1 - m0), (size_t)w->stride * p->n_channels, (size_t)w->kernel,
                 (size_t)w->dilation * p->n_channels, p->n_channels);
}

/* Whether windows that slide are few enough to be met tap by tap: the bits are the same. */
static bool pool_by_taps(const pool *p, int64_t n_out)
{
    const int64_t kernel = p->frames.window.kernel;
    return p->max ? n_out <= POOL_FAR / kernel : n_out == 1 || (n_out <= POOL_FEW && kernel >= 64);
}

static void pool_forward(const ds_op *op, const ds_run *run)
{
    const pool p = pool_of(op);
    const ds_padding *const w = &p.frames.window;
    const bool slides = pool_slides(&p), flat = pool_trivial(&p.inner) && !p.adaptive;
    const block b = slides ? pool_block(op, &p) : (block){0};
    const size_t stride = p.n_channels * ds_op_element(op);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t known = run->count[row].now.known;
        /* Windows of outputs [begin, end) lie within the frames. */
        const int64_t room = known + w->left - ds_padding_span(w);
        const int64_t begin = flat ? (w->left + w->stride - 1) / w->stride : out->m1;
        const int64_t end = room < 0 ? begin : room / w->stride + 1;
        char *y = out->data;
        for (int64_t m = out->m0, to; m < out->m1;
             y += (size_t)(to - m) * (size_t)p.n_out * stride, m = to) {
            to = m < begin && begin < out->m1 ? begin : end > m && end < out->m1 ? end : out->m1;
            if (m >= begin && m < end && (!slides || pool_by_taps(&p, to - m))) {
                pool_whole(op, run, &p, &run->in[row], known, m, to, y);
                continue;
            }
            to = !slides ? m + 1 : to - m < b.outputs ? to : m + b.outputs;
            for (size_t c = 0; slides && c < p.n_channels; c += b.channels)
                pool_block_forward(op, run, &p, &b, row, m, to, c, y);
            const taps frames = pool_taps(&p.frames, m, known);
            for (int64_t g = 0; g < p.n_out && !slides; g++) {
                const taps inner = pool_taps(&p.inner, g, p.n_in);
                pool_reduce(op, run, &p, &run->in[row], frames, inner,
                            pool_divisor(op, &p, m, known, frames, g, inner),
                            y + (size_t)g * stride);
            }
        }
    }
}

/* Adds the slopes g[C] of one output to the element of both taps that it is, channel by channel. */
DS_FOR_ELEMENT void pool_place(const ds_op *op, const pool *p, const ds_window *x,
                               const ds_slope *dx, taps frames, taps inner, const void *g,
                               size_t element)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]), n = p->n_channels;
    for (size_t c = 0; c < n; c++) {
        double most = -(double)INFINITY;
        int64_t place = -1, frame = 0;
        for (int64_t t = 0; t < frames.n; t++) {
            const void *from = ds_at(x, frames.first + t * frames.step, n_bytes);
            for (int64_t u = 0; u < inner.n; u++) {
                const int64_t at = inner.first + u * inner.step;
                const double v = ds_sums_real(from, element, (size_t)at * n + c);
                if (place < 0 || v > most || v != v) {
                    most = v;
                    place = at;
                    frame = frames.first + t * frames.step;
                }
            }
        }
        void *const to = place < 0 ? NULL : ds_slope_at(dx, frame, n_bytes);
        if (to)
            ds_back_add_real(to, element, (size_t)place * n + c, ds_sums_real(g, element, c));
    }
}

/* The same to all of them, divided. */
DS_FOR_ELEMENT void pool_spread(const ds_op *op, const pool *p, const ds_slope *dx, taps frames,
                                taps inner, double divisor, const void *g, size_t element)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]), n = p->n_channels;
    for (int64_t t = 0; t < frames.n; t++) {
        void *const to = ds_slope_at(dx, frames.first + t * frames.step, n_bytes);
        for (int64_t u = 0; u < inner.n && to; u++)
            for (size_t c = 0; c < n; c++)
                ds_back_add_real(to, element, (size_t)(inner.first + u * inner.step) * n + c,
                                 ds_sums_real(g, element, c) / divisor);
    }
}

static void pool_backward(const ds_op *op, const ds_back *b)
{
    const pool p = pool_of(op);
    const size_t element = ds_op_element(op);
    for (size_t row = 0; row < b->run->n_rows; row++) {
        const ds_target *out = &b->run->out[row];
        const int64_t known = b->run->count[row].now.known;
        const ds_slope *const dx = &b->dx[row];
        const char *g = b->dy[row];
        for (int64_t m = out->m0; m < out->m1 && dx->data; m++) {
            const taps frames = pool_taps(&p.frames, m, known);
            for (int64_t i = 0; i < p.n_out; i++, g += p.n_channels * element) {
                const taps inner = pool_taps(&p.inner, i, p.n_in);
                if (p.max)
                    DS_BY_ELEMENT(pool_place, element, op, &p, &b->run->in[row], dx, frames, inner,
                                  g);
                else
                    DS_BY_ELEMENT(pool_spread, element, op, &p, dx, frames, inner,
                                  pool_divisor(op, &p, m, known, frames, i, inner), g);
            }
        }
    }
}

#define POOL(op, text)                                                           \
    DS_OPERATOR_OF(op, text, 1, 1, 1), .flags = DS_OP_REAL, .attrs = op##_attrs, \
        .infer = pool_infer, DS_COUNTED(pool), .forward = pool_forward, .backward = pool_backward

const ds_op_def ds_op_max_pool = {
    POOL(max_pool, "the largest element of windows along the stream and the first feature axis")};

const ds_op_def ds_op_avg_pool = {
    POOL(avg_pool, "the mean of windows along the stream and the first feature axis")};

const ds_op_def ds_op_adaptive_pool = {
    POOL(adaptive_pool, "the mean or the largest element of a given number of parts")};
