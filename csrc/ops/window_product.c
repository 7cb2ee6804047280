/* ops/window_product.c: collects windows, by pointer or copied, and hands them to the kernels.
 *
 * Copies go to a slab of a few hundred KiB, so scratch stays small however long the input is. */
#include "ops/window_product.h"

#include <string.h>

#include "ops/fused.h"
#include "ops/packed.h"

/* Room for copies: as many windows as these bytes hold, within bounds. */
enum { COPY_BYTES = 256 * 1024, LEAST_COPIES = 8, MOST_COPIES = 64 };

static bool window_depthwise(const ds_window_shape *s)
{
    return s->groups > 1 && s->groups == s->n_in;
}

static size_t window_all_taps(const ds_window_shape *s)
{
    return s->n_taps * s->n_inner;
}

/* Positions from each tap to the next, all taps in their order; 0 where that differs. */
static int64_t window_distance(const ds_window_shape *s)
{
    const int64_t along = s->step * (int64_t)s->width;
    if (s->n_inner == 1)
        return along;
    return s->n_taps == 1 || along == s->inner_step * (int64_t)s->n_inner ? s->inner_step : 0;
}

/* Whether a window that touches no padding is passed by pointer. */
static bool window_direct(const ds_window_shape *s)
{
    if (window_all_taps(s) == 1)
        return !window_depthwise(s) || s->n_out == s->n_in;
    return window_depthwise(s) ? s->n_out == s->n_in && window_distance(s) > 0
                               : s->groups == 1 && window_distance(s) == 1;
}

/* Elements of a copied tap. */
static size_t window_tap_elements(const ds_window_shape *s)
{
    return window_depthwise(s) ? s->n_out : s->n_in;
}

static size_t window_copy_elements(const ds_window_shape *s)
{
    return window_all_taps(s) * window_tap_elements(s);
}

static size_t window_max_copies(const ds_window_shape *s)
{
    const size_t n = COPY_BYTES / (window_copy_elements(s) * s->element + 1);
    return n < LEAST_COPIES ? LEAST_COPIES : n > MOST_COPIES ? MOST_COPIES : n;
}

size_t ds_window_prepared_bytes(const ds_window_shape *s, const ds_real_kernels *k)
{
    if (window_depthwise(s))
        return ds_taps_bytes(s->n_out, window_all_taps(s), s->element);
    return s->groups *
           ds_packed_bytes(k, s->n_out / s->groups, window_all_taps(s) * (s->n_in / s->groups));
}

size_t ds_window_copy_bytes(const ds_window_shape *s, bool padded)
{
    if (window_direct(s) && !padded)
        return 0;
    return ds_packed_align(window_max_copies(s) * window_copy_elements(s) * s->element);
}

unsigned ds_window_finishes(const ds_window_shape *s)
{
    return window_depthwise(s) ? DS_FINISHES_STEPS
           : s->groups == 1    ? DS_FINISHES_STEPS | DS_FINISHES_GLU
                               : 0;
}

ds_status ds_window_check(const ds_window_shape *s, size_t *most)
{
    size_t n = s->n_in > s->n_out ? s->n_in : s->n_out, n_taps;
    DS_TRY(ds_size_mul(&n_taps, s->n_taps, s->n_inner));
    DS_TRY(ds_size_mul(&n, n, n_taps));
    DS_TRY(ds_size_mul(&n, n, s->element * MOST_COPIES));
    *most = 0;
    DS_TRY(ds_size_mul(&n, n_taps, s->n_in / s->groups));
    DS_TRY(ds_packed_check(most, s->n_out / s->groups, n, s->element));
    return ds_size_mul(most, *most, s->groups); /* more than depthwise windows take, too */
}

void *ds_window_prepare(const ds_window_shape *s, void *prepared, const void *weight,
                        const ds_window_weight *w, const void *bias, const ds_real_kernels *k)
{
    const size_t n_out = s->n_out / s->groups;
    ds_weight_layout layout = {.n_taps = s->n_taps,
                               .n_inner = s->n_inner,
                               .n_channels = s->n_in / s->groups,
                               .col = w->col,
                               .tap = w->tap,
                               .inner = w->inner,
                               .channel = w->channel,
                               .n_sub = w->n_sub,
                               .sub = w->sub};
    const char *from = (const char *)weight + w->start * s->element;
    if (window_depthwise(s)) {
        layout.n_sub = n_out;
        layout.sub = w->col;
        layout.col = (ptrdiff_t)w->group;
        ds_taps_pack(prepared, from, s->element, s->n_out, &layout, bias);
        return ds_packed_next(prepared);
    }
    for (size_t g = 0; g < s->groups; g++, from += w->group * s->element) {
        ds_pack(k, prepared, from, n_out, &layout,
                bias ? (const char *)bias + g * n_out * s->element : NULL);
        prepared = ds_packed_next(prepared);
    }
    return prepared;
}

void ds_window_begin(ds_window_product *p, const ds_window_shape *s, const ds_run *run,
                     const void *prepared, void *scratch, size_t copy_bytes, size_t n_windows)
{
    void *const y = (char *)scratch + copy_bytes;
    void *const x = (char *)y + n_windows * sizeof(void *);
    *p = (ds_window_product){.shape = *s,
                             .run = run,
                             .prepared = prepared,
                             .y = y,
                             .x = x,
                             .copies = scratch,
                             .max_copies = window_max_copies(s)};
}

static void window_copy_element(char *to, const char *from, size_t element)
{
    if (element == sizeof(float))
        memcpy(to, from, sizeof(float));
    else
        memcpy(to, from, sizeof(double));
}

/* Copies one position's channels to a tap of a row: [taps][C], [G][taps][C/G], or with repeats. */
static void window_copy_tap(const ds_window_shape *s, char *row, size_t tap, const char *position)
{
    const size_t e = s->element;
    if (window_depthwise(s)) {
        const size_t repeats = s->n_out / s->n_in;
        char *to = row + tap * s->n_out * e;
        for (size_t c = 0; c < s->n_in; c++)
            for (size_t i = 0; i < repeats; i++, to += e)
                window_copy_element(to, position + c * e, e);
        return;
    }
    const size_t n_bytes = s->n_in / s->groups * e;
    for (size_t g = 0; g < s->groups; g++)
        memcpy(row + (g * window_all_taps(s) + tap) * n_bytes, position + g * n_bytes, n_bytes);
}

static void window_zero_tap(const ds_window_shape *s, char *row, size_t tap)
{
    if (window_depthwise(s)) {
        memset(row + tap * s->n_out * s->element, 0, s->n_out * s->element);
        return;
    }
    const size_t n_bytes = s->n_in / s->groups * s->element;
    for (size_t g = 0; g < s->groups; g++)
        memset(row + (g * window_all_taps(s) + tap) * n_bytes, 0, n_bytes);
}

/* The inner taps on one frame (NULL: of padding), from tap `tap` of a row on. */
static void window_copy_inner(const ds_window_shape *s, char *row, size_t tap, const char *frame,
                              ds_window_place inner)
{
    const size_t n_bytes = s->n_in * s->element;
    const int64_t last = inner.first + ((int64_t)s->n_inner - 1) * s->inner_step;
    if (frame && s->groups == 1 && s->inner_step == 1 && inner.first >= 0 && last < inner.total) {
        memcpy(row + tap * n_bytes, frame + (size_t)inner.first * n_bytes, s->n_inner * n_bytes);
        return;
    }
    for (size_t i = 0; i < s->n_inner; i++) {
        const int64_t position = inner.first + (int64_t)i * s->inner_step;
        const int64_t from = ds_padding_source(inner.mode, position, inner.total);
        if (!frame || from < 0)
            window_zero_tap(s, row, tap + i);
        else
            window_copy_tap(s, row, tap + i, frame + (size_t)from * n_bytes);
    }
}

static const void *window_copy_window(ds_window_product *p, const ds_window *in,
                                      ds_window_place along, ds_window_place inner)
{
    const ds_window_shape *s = &p->shape;
    char *row = p->copies + p->n_copies++ * window_copy_elements(s) * s->element;
    for (size_t t = 0; t < s->n_taps; t++) {
        const int64_t position = along.first + (int64_t)t * s->step;
        const int64_t frame = ds_padding_source(along.mode, position, along.total);
        window_copy_inner(s, row, t * s->n_inner,
                          frame < 0 ? NULL : ds_at(in, frame, s->width * s->n_in * s->element),
                          inner);
    }
    return row;
}

/* Whether all of n taps are values, not padding. */
static bool window_inside(ds_window_place place, size_t n, int64_t step)
{
    return place.first >= 0 && place.first + ((int64_t)n - 1) * step < place.total;
}

void ds_window_add_at(ds_window_product *p, void *y, const ds_window *in, ds_window_place along,
                      ds_window_place inner)
{
    const ds_window_shape *s = &p->shape;
    const bool by_pointer = window_direct(s) && window_inside(along, s->n_taps, s->step) &&
                            window_inside(inner, s->n_inner, s->inner_step);
    if (!by_pointer && p->n_copies == p->max_copies)
        ds_window_flush(p);
    if (window_depthwise(s)) {
        const size_t tap_stride =
            (by_pointer ? (size_t)window_distance(s) : 1) * window_tap_elements(s);
        if (p->n > 0 && p->tap_stride != tap_stride)
            ds_window_flush(p);
        p->tap_stride = tap_stride;
    }
    const size_t position = s->n_in * s->element;
    p->y[p->n] = y;
    p->x[p->n++] = by_pointer ? (const char *)ds_at(in, along.first, s->width * position) +
                                    (size_t)inner.first * position
                              : window_copy_window(p, in, along, inner);
}

/* The products of all groups, each over its own part of every row. */
static void window_products(ds_window_product *p, ds_product *product)
{
    const ds_window_shape *s = &p->shape;
    for (size_t g = 0; g < s->groups; g++, product->weight = ds_packed_next(product->weight)) {
        ds_run_product(p->run, product, 0);
        for (size_t i = 0; i < p->n && g + 1 < s->groups; i++) {
            p->y[i] = (char *)p->y[i] + product->weight->n_cols * s->element;
            p->x[i] = (const char *)p->x[i] + product->weight->depth * s->element;
        }
    }
}

void ds_window_flush(ds_window_product *p)
{
    ds_product product = {.weight = p->prepared, .y = p->y, .x = p->x, .n_rows = p->n};
    if (p->n > 0 && window_depthwise(&p->shape))
        ds_run_product(p->run, &product, p->tap_stride);
    else if (p->n > 0)
        window_products(p, &product);
    p->n = 0;
    p->n_copies = 0;
}
