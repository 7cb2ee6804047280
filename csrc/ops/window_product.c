/* ops/window_product.c: collects windows, by pointer or copied, and hands them to the kernels.
 *
 * Copies go to a slab of a few hundred KiB, so scratch stays small however long the input is. */
#include "ops/window_product.h"

#include <string.h>

#include "ops/packed.h"

/* Room for copies: as many windows as these bytes hold, within bounds. */
enum { COPY_BYTES = 256 * 1024, LEAST_COPIES = 8, MOST_COPIES = 64 };

static bool depthwise(const ds_window_shape *s)
{
    return s->groups > 1 && s->groups == s->n_in;
}

/* Whether a window that touches no padding is passed by pointer. */
static bool direct(const ds_window_shape *s)
{
    if (depthwise(s)) {
        return s->n_out == s->n_in;
    }
    return s->n_taps == 1 || (s->groups == 1 && s->step == 1);
}

/* Elements of a copied tap. */
static size_t tap_elements(const ds_window_shape *s)
{
    return depthwise(s) ? s->n_out : s->n_in;
}

static size_t copy_elements(const ds_window_shape *s)
{
    return s->n_taps * tap_elements(s);
}

static size_t max_copies(const ds_window_shape *s)
{
    const size_t n = COPY_BYTES / (copy_elements(s) * s->element + 1);
    return n < LEAST_COPIES ? LEAST_COPIES : n > MOST_COPIES ? MOST_COPIES : n;
}

/* Bytes of one group's packed weight. */
static size_t group_bytes(const ds_window_shape *s)
{
    return ds_packed_bytes(s->n_out / s->groups, s->n_taps * (s->n_in / s->groups), s->element);
}

size_t ds_window_prepared_bytes(const ds_window_shape *s)
{
    if (depthwise(s)) {
        return ds_packed_align(s->n_taps * s->n_out * s->element);
    }
    return s->groups * group_bytes(s);
}

size_t ds_window_copy_bytes(const ds_window_shape *s, bool padded)
{
    if (direct(s) && !padded) {
        return 0;
    }
    return ds_packed_align(max_copies(s) * copy_elements(s) * s->element);
}

ds_status ds_window_check(const ds_window_shape *s)
{
    size_t n = s->n_in > s->n_out ? s->n_in : s->n_out;
    DS_TRY(ds_size_mul(&n, n, s->n_taps));
    DS_TRY(ds_size_mul(&n, n, s->element * MOST_COPIES));
    size_t filling; /* of the last panel and up to the alignment, in every group */
    DS_TRY(ds_size_mul(&filling, s->groups, DS_PANEL_COLUMNS + DS_PACKED_ALIGNMENT));
    n = s->n_out;
    DS_TRY(ds_size_add(&n, filling));
    DS_TRY(ds_size_mul(&n, n, s->n_taps));
    DS_TRY(ds_size_mul(&n, n, s->n_in / s->groups));
    return ds_size_mul(&n, n, s->element);
}

static void copy_element(char *to, const char *from, size_t element)
{
    if (element == sizeof(float)) {
        memcpy(to, from, sizeof(float));
    } else {
        memcpy(to, from, sizeof(double));
    }
}

void ds_window_prepare(const ds_window_shape *s, void *prepared, const void *weight,
                       const ds_window_weight *layout, const ds_real_kernels *k)
{
    const size_t n_out = s->n_out / s->groups, n_in = s->n_in / s->groups;
    const char *from = (const char *)weight + layout->start * s->element;
    char *to = prepared;
    for (size_t g = 0; g < s->groups; g++, from += layout->group * s->element) {
        if (!depthwise(s)) {
            k->pack(to + g * group_bytes(s), from, n_out, s->n_taps, n_in, layout->col, layout->tap,
                    layout->channel);
            continue;
        }
        for (size_t t = 0; t < s->n_taps; t++) {
            for (size_t n = 0; n < n_out; n++) {
                const ptrdiff_t at = (ptrdiff_t)n * layout->col + (ptrdiff_t)t * layout->tap;
                copy_element(to + (t * s->n_out + g * n_out + n) * s->element,
                             from + at * (ptrdiff_t)s->element, s->element);
            }
        }
    }
}

void ds_window_begin(ds_window_product *p, const ds_window_shape *s, const ds_real_kernels *k,
                     const void *prepared, const void *bias, void *scratch, size_t copy_bytes,
                     size_t n_windows)
{
    void *const y = (char *)scratch + copy_bytes;
    void *const x = (char *)y + n_windows * sizeof(void *);
    *p = (ds_window_product){.shape = *s,
                             .k = k,
                             .prepared = prepared,
                             .bias = bias,
                             .y = y,
                             .x = x,
                             .copies = scratch,
                             .max_copies = max_copies(s)};
}

/* Copies one frame's channels to tap t of a row: [taps][C], [G][taps][C/G], or with repeats. */
static void copy_tap(const ds_window_shape *s, char *row, size_t t, const char *frame)
{
    const size_t e = s->element;
    if (depthwise(s)) {
        const size_t repeats = s->n_out / s->n_in;
        char *to = row + t * s->n_out * e;
        for (size_t c = 0; c < s->n_in; c++) {
            for (size_t i = 0; i < repeats; i++, to += e) {
                copy_element(to, frame + c * e, e);
            }
        }
        return;
    }
    const size_t n_bytes = s->n_in / s->groups * e;
    for (size_t g = 0; g < s->groups; g++) {
        memcpy(row + (g * s->n_taps + t) * n_bytes, frame + g * n_bytes, n_bytes);
    }
}

static void zero_tap(const ds_window_shape *s, char *row, size_t t)
{
    if (depthwise(s)) {
        memset(row + t * s->n_out * s->element, 0, s->n_out * s->element);
        return;
    }
    const size_t n_bytes = s->n_in / s->groups * s->element;
    for (size_t g = 0; g < s->groups; g++) {
        memset(row + (g * s->n_taps + t) * n_bytes, 0, n_bytes);
    }
}

static const void *copy_window(ds_window_product *p, const ds_window *in, int64_t first,
                               ds_padding_mode mode, int64_t total)
{
    const ds_window_shape *s = &p->shape;
    char *row = p->copies + p->n_copies++ * copy_elements(s) * s->element;
    for (size_t t = 0; t < s->n_taps; t++) {
        const int64_t frame = ds_padding_source(mode, first + (int64_t)t * s->step, total);
        if (frame < 0) {
            zero_tap(s, row, t);
        } else {
            copy_tap(s, row, t, ds_at(in, frame, s->n_in * s->element));
        }
    }
    return row;
}

void ds_window_add(ds_window_product *p, void *y, const ds_window *in, int64_t first,
                   ds_padding_mode mode, int64_t total)
{
    const ds_window_shape *s = &p->shape;
    const int64_t last = first + ((int64_t)s->n_taps - 1) * s->step;
    const bool by_pointer = direct(s) && first >= 0 && last < total;
    if (!by_pointer && p->n_copies == p->max_copies) {
        ds_window_flush(p);
    }
    if (depthwise(s)) {
        const size_t tap_stride = (by_pointer ? (size_t)s->step : 1) * tap_elements(s);
        if (p->n > 0 && p->tap_stride != tap_stride) {
            ds_window_flush(p);
        }
        p->tap_stride = tap_stride;
    }
    p->y[p->n] = y;
    p->x[p->n++] = by_pointer ? ds_at(in, first, s->n_in * s->element)
                              : copy_window(p, in, first, mode, total);
}

/* The products of all groups, each over its own part of every row. */
static void products(ds_window_product *p)
{
    const ds_window_shape *s = &p->shape;
    const size_t n_out = s->n_out / s->groups, depth = s->n_taps * (s->n_in / s->groups);
    for (size_t g = 0; g < s->groups; g++) {
        const char *bias = p->bias;
        p->k->product(p->y, p->x, p->n, (const char *)p->prepared + g * group_bytes(s),
                      bias ? bias + g * n_out * s->element : NULL, n_out, depth);
        if (g + 1 == s->groups) {
            break;
        }
        for (size_t i = 0; i < p->n; i++) {
            p->y[i] = (char *)p->y[i] + n_out * s->element;
            p->x[i] = (const char *)p->x[i] + depth * s->element;
        }
    }
}

void ds_window_flush(ds_window_product *p)
{
    const ds_window_shape *s = &p->shape;
    if (p->n == 0) {
        return;
    }
    if (depthwise(s)) {
        p->k->depthwise(p->y, p->x, p->n, p->tap_stride, p->prepared, p->bias, s->n_taps, s->n_out);
    } else {
        products(p);
    }
    p->n = 0;
    p->n_copies = 0;
}
