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
           k->packed_bytes(s->n_out / s->groups, window_all_taps(s) * (s->n_in / s->groups));
}

size_t ds_window_copy_bytes(const ds_window_shape *s, bool padded)
{
    if (window_direct(s) && !padded)
        return 0;
    const size_t row = window_copy_elements(s) * s->element, most = MOST_COPIES * row;
    const size_t n_bytes = LEAST_COPIES * row > COPY_BYTES ? LEAST_COPIES * row : COPY_BYTES;
    return ds_packed_align(most < n_bytes ? most : n_bytes) + DS_PACKED_ALIGNMENT;
}

unsigned ds_window_finishes(const ds_window_shape *s)
{
    return s->groups == 1 ? DS_FINISHES_STEPS | DS_FINISHES_GLU : DS_FINISHES_STEPS;
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

void ds_window_prepare(const ds_window_shape *s, void *prepared, const void *weight, size_t group,
                       ds_weight_layout *layout, const void *bias, const ds_real_kernels *k)
{
    const size_t n_out = s->n_out / s->groups;
    layout->n_taps = s->n_taps;
    layout->n_inner = s->n_inner;
    layout->n_channels = s->n_in / s->groups;
    if (window_depthwise(s)) {
        layout->n_sub = n_out;
        layout->sub = layout->col;
        layout->col = (ptrdiff_t)group;
        ds_taps_pack(prepared, weight, s->element, s->n_out, layout, bias);
        return;
    }
    for (size_t g = 0; g < s->groups; g++) {
        k->pack(prepared, (const char *)weight + g * group * s->element, n_out, layout,
                bias ? (const char *)bias + g * n_out * s->element : NULL);
        prepared = ds_packed_next(prepared);
    }
}

void ds_window_begin(ds_window_product *p, const ds_window_shape *s, const ds_run *run,
                     const void *prepared, void *scratch, size_t n_windows)
{
    const size_t pointers = n_windows * sizeof(void *);
    *p = (ds_window_product){.shape = *s,
                             .run = run,
                             .prepared = prepared,
                             .y = scratch,
                             .x = (void *)((char *)scratch + pointers),
                             .copies = (char *)scratch + ds_packed_align(2 * pointers),
                             .max_copies = window_max_copies(s),
                             .depthwise = window_depthwise(s),
                             .direct = window_direct(s)};
}

static void window_repeat(char *to, const char *from, size_t n, size_t repeats, size_t element)
{
    for (size_t c = 0; c < n; c++, from += element)
        for (size_t i = 0; i < repeats; i++, to += element) {
            if (element == sizeof(float))
                memcpy(to, from, sizeof(float));
            else
                memcpy(to, from, sizeof(double));
        }
}

/* Copies one position's channels (NULL: zeros) to a tap of a row: [taps][C], [G][taps][C/G], or with
 * repeats. */
static void window_copy_tap(const ds_window_product *p, char *row, size_t tap, const char *position)
{
    const ds_window_shape *s = &p->shape;
    const size_t n_parts = p->depthwise ? 1 : s->groups, e = s->element;
    const size_t n_bytes = window_tap_elements(s) / n_parts * e;
    for (size_t g = 0; g < n_parts; g++) {
        char *to = row + (g * window_all_taps(s) + tap) * n_bytes;
        if (!position)
            memset(to, 0, n_bytes);
        else if (p->depthwise && s->n_out != s->n_in)
            window_repeat(to, position, s->n_in, s->n_out / s->n_in, e);
        else
            memcpy(to, position + g * n_bytes, n_bytes);
    }
}

/* Whether all of n taps are values, not padding. */
static bool window_inside(ds_window_place place, size_t n, int64_t step)
{
    return place.first >= 0 && place.first + ((int64_t)n - 1) * step < place.total;
}

/* The inner taps on one frame (NULL: of padding), from tap `tap` of a row on. */
static void window_copy_inner(const ds_window_product *p, char *row, size_t tap, const char *frame,
                              ds_window_place inner)
{
    const ds_window_shape *s = &p->shape;
    const size_t n_bytes = s->n_in * s->element;
    if (frame && s->groups == 1 && s->inner_step == 1 && window_inside(inner, s->n_inner, 1)) {
        memcpy(row + tap * n_bytes, frame + (size_t)inner.first * n_bytes, s->n_inner * n_bytes);
        return;
    }
    for (size_t i = 0; i < s->n_inner; i++) {
        const int64_t position = inner.first + (int64_t)i * s->inner_step;
        const int64_t from = ds_padding_source(inner.mode, position, inner.total);
        const bool zero = !frame || from < 0;
        window_copy_tap(p, row, tap + i, zero ? NULL : frame + (size_t)from * n_bytes);
    }
}

static const void *window_copy(ds_window_product *p, const ds_window *in, ds_window_place along,
                               ds_window_place inner)
{
    const ds_window_shape *s = &p->shape;
    char *row = p->copies + p->n_copies++ * window_copy_elements(s) * s->element;
    for (size_t t = 0; t < s->n_taps; t++) {
        const int64_t position = along.first + (int64_t)t * s->step;
        const int64_t frame = ds_padding_source(along.mode, position, along.total);
        const size_t n_bytes = s->width * s->n_in * s->element;
        window_copy_inner(p, row, t * s->n_inner, frame < 0 ? NULL : ds_at(in, frame, n_bytes),
                          inner);
    }
    return row;
}

void ds_window_add(ds_window_product *p, void *y, const ds_window *in, ds_window_place along,
                   ds_window_place inner)
{
    const ds_window_shape *s = &p->shape;
    const bool by_pointer = p->direct && window_inside(along, s->n_taps, s->step) &&
                            window_inside(inner, s->n_inner, s->inner_step);
    if (!by_pointer && p->n_copies == p->max_copies)
        ds_window_flush(p);
    if (p->depthwise) {
        const size_t tap_stride =
            (by_pointer ? (size_t)window_distance(s) : 1) * window_tap_elements(s);
        if (p->n > 0 && p->tap_stride != tap_stride)
            ds_window_flush(p);
        p->tap_stride = tap_stride;
    }
    const size_t position = s->n_in * s->element;
    const size_t frame = (size_t)(along.first - in->at) * s->width;
    p->y[p->n] = y;
    p->x[p->n++] = by_pointer ? (const char *)in->data + (frame + (size_t)inner.first) * position
                              : window_copy(p, in, along, inner);
}

void ds_window_flush(ds_window_product *p)
{
    const ds_window_shape *s = &p->shape;
    ds_product product = {.weight = p->prepared, .y = p->y, .x = p->x, .n_rows = p->n};
    const size_t n_products = p->depthwise ? 1 : s->groups, width = s->n_out / s->groups;
    for (size_t g = 0; g < n_products && p->n > 0; g++) {
        ds_run_product(p->run, &product, p->depthwise ? p->tap_stride : 0, g * width);
        if (g + 1 == n_products)
            break;
        for (size_t i = 0; i < p->n; i++) { /* each over its own part of every row */
            p->y[i] = (char *)p->y[i] + width * s->element;
            p->x[i] = (const char *)p->x[i] + product.weight->depth * s->element;
        }
        product.weight = ds_packed_next(product.weight);
    }
    p->n = 0;
    p->n_copies = 0;
}
