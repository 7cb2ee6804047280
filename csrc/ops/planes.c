/* ops/planes.c: checks of frames that are planes of positions; collects windows over them, by pointer or copied,
 * and hands them to the kernels.
 *
 * Copies go to a slab of a few hundred KiB, so scratch stays small however long the input is. */
#include "ops/planes.h"

#include <string.h>

#include "ops/fused.h"
#include "ops/packed.h"

/* Room for copies: as many windows as these bytes hold, within bounds. */
enum { COPY_BYTES = 256 * 1024, LEAST_COPIES = 8, MOST_COPIES = 64 };

int64_t ds_planes_number(const ds_op *op, int attr, int i, int64_t usual)
{
    const ds_attr_value *value = ds_planes_attr(op, attr);
    if (ds_planes_vectors(op))
        return i == 0 ? value->i : usual;
    return value->n_ints == 0 ? usual : value->ints[i];
}

int64_t ds_planes_kernel(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[DS_PLANES_WEIGHT];
    if (weight->rank == 3)
        return (i == 0) == ds_planes_vectors(op) ? weight->shape[2] : 1;
    return weight->shape[op->attr[DS_PLANES_AXIS].i == i ? 2 : 3];
}

int64_t ds_planes_tap(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[DS_PLANES_WEIGHT];
    return weight->rank == 4 && op->attr[DS_PLANES_AXIS].i == i ? weight->shape[3] : 1;
}

ds_status ds_planes_check(const ds_op *op, int n_padding)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[DS_PLANES_WEIGHT];
    const char *name = op->def->name;
    const int least = ds_planes_vectors(op) ? 1 : 2;
    bool sized = in->rank == least || in->rank == least + 1;
    for (int d = 0; sized && d < in->rank; d++)
        sized = in->shape[d] >= 1 && (in->rank == 1 || in->shape[d] <= DS_PADDING_LIMIT);
    DS_CHECK(sized, DS_SHAPE, "%s: expected an input of shape %s, got %s", name,
             least == 1 ? "(channels,) or (lanes, channels)"
                        : "(positions, channels) or (rows, positions, channels)",
             DS_SHAPE_TEXT(in));
    if (least == 1)
        return DS_OK;
    DS_CHECK(weight->rank <= 4, DS_SHAPE,
             "%s: its weight 'weight' must have four dimensions, of which the last two are the "
             "kernel's, or three for windows within a frame, got %s",
             name, DS_SHAPE_TEXT(weight));
    for (int i = 0; op->def->attrs[i].name != NULL; i++) {
        const ds_attr_def *attr = &op->def->attrs[i];
        const int n = strcmp(attr->name, "padding") == 0 ? n_padding : 2,
                  given = op->attr[i].n_ints;
        DS_CHECK(attr->kind != DS_ATTR_INTS || given == 0 || given == n, DS_ARGUMENT,
                 "%s: %s must be %d numbers, got %d", name, attr->name, n, given);
    }
    return DS_OK;
}

int64_t ds_planes_count(const ds_op *op, const ds_run *run, size_t row)
{
    return ds_planes_images(op) ? run->out[row].m1 - run->out[row].m0 : 1;
}

ds_plane ds_planes_at(const ds_op *op, const ds_run *run, size_t row, int64_t i, const ds_slope *dx)
{
    const ds_window *in = &run->in[row];
    const ds_target *out = &run->out[row];
    const int64_t m = out->m0 + i, height = op->in[0].shape[0];
    ds_plane plane = {.in = *in, .out = *out, .dx = dx ? *dx : (ds_slope){NULL, 0, 0}, .row = row};
    if (!ds_planes_images(op)) {
        plane.total = run->ended[row] ? run->count[row].now.total : DS_PADDING_OPEN;
        return plane;
    }
    plane.in =
        (ds_window){in->data ? ds_at(in, m, ds_signature_bytes(&op->in[0])) : NULL, 0, height};
    plane.out = (ds_target){ds_to(out, m, ds_signature_bytes(&op->out[0])), 0, op->out[0].shape[0]};
    plane.dx.data = dx ? ds_slope_at(dx, m, ds_signature_bytes(&op->in[0])) : NULL;
    plane.dx.at = 0;
    plane.total = height;
    return plane;
}

/* ---------------------------------------------------------------- shapes and weights */

ds_windows ds_windows_make(const ds_op *op, int64_t groups, int64_t n_out, int64_t n_taps,
                           int64_t step, int64_t n_inner, int64_t inner_step)
{
    const ds_signature *in = &op->in[0];
    ds_windows s = {.n_in = ds_last_size(in),
                    .n_out = (size_t)n_out,
                    .groups = (size_t)groups,
                    .n_taps = n_taps,
                    .n_inner = n_inner,
                    .step = step,
                    .inner_step = inner_step,
                    .width = ds_planes_width(in),
                    .element = ds_op_element(op),
                    .all_taps = (size_t)n_taps * (size_t)n_inner};
    s.depthwise = s.groups > 1 && s.groups == s.n_in;
    s.n_bytes = s.all_taps * (s.depthwise ? s.n_out : s.n_in) * s.element;
    const int64_t along = step * s.width, apart = n_inner == 1 ? along
                                                  : n_taps == 1 || along == inner_step * n_inner
                                                      ? inner_step
                                                      : 0;
    s.direct = s.depthwise ? s.n_out == s.n_in /* whose kernel finds taps wherever they lie */
                           : s.all_taps == 1 || (s.groups == 1 && apart == 1);
    return s;
}

size_t ds_windows_prepared_bytes(const ds_windows *s, const ds_real_kernels *k)
{
    if (s->depthwise)
        return ds_packed_bytes(k, DS_FORMAT_TAPS, s->n_out, s->all_taps);
    return s->groups *
           ds_packed_bytes(k, k->format, s->n_out / s->groups, s->all_taps * (s->n_in / s->groups));
}

ds_status ds_windows_set_sizes(ds_op *op, const ds_windows *s, size_t n, bool padded)
{
    size_t most = 0, room, n_taps, n_windows = (size_t)ds_planes_width(&op->out[0]);
    DS_TRY(ds_size_mul(&n_taps, (size_t)s->n_taps, (size_t)s->n_inner));
    DS_TRY(ds_size_mul(&room, s->n_in > s->n_out ? s->n_in : s->n_out, n_taps));
    DS_TRY(ds_size_mul(&room, room, s->element * MOST_COPIES));
    DS_TRY(ds_size_mul(&n_taps, n_taps, s->n_in / s->groups));
    DS_TRY(ds_packed_check(&most, s->n_out / s->groups, n_taps, s->element));
    DS_TRY(ds_size_mul(&most, most, s->groups)); /* more than depthwise windows take, too */
    DS_TRY(ds_size_mul(&most, most, n));
    ds_windows_set_back_sizes(op, s);
    if (padded || !s->direct) { /* not less for longer windows */
        const size_t least = LEAST_COPIES * s->n_bytes;
        const size_t copies = least > COPY_BYTES ? least : COPY_BYTES;
        most = MOST_COPIES * s->n_bytes;
        op->scratch.per_call = ds_aligned(most < copies ? most : copies) + DS_ALIGNMENT;
    }
    if (ds_planes_images(op))
        DS_TRY(ds_size_mul(&n_windows, n_windows, (size_t)op->out[0].shape[0]));
    return ds_size_mul(&op->scratch.per_out, n_windows, 2 * sizeof(void *));
}

void ds_windows_prepare(const ds_windows *s, void *prepared, const void *const *weights,
                        size_t start, size_t group, ds_weight_layout *layout, const void *bias,
                        const ds_real_kernels *k)
{
    const size_t n_out = s->n_out / s->groups;
    layout->n_taps = (size_t)s->n_taps;
    layout->n_inner = (size_t)s->n_inner;
    layout->n_channels = s->n_in / s->groups;
    if (s->depthwise) {
        layout->n_sub = n_out;
        layout->sub = layout->col;
        layout->col = (ptrdiff_t)group;
        (void)ds_packed_weight(k, DS_FORMAT_TAPS, prepared, weights, DS_PLANES_WEIGHT,
                               start * s->element, s->n_out, layout, bias);
        return;
    }
    for (size_t g = 0; g < s->groups; g++)
        prepared = ds_packed_weight(k, k->format, prepared, weights, DS_PLANES_WEIGHT,
                                    (start + g * group) * s->element, n_out, layout,
                                    bias ? (const char *)bias + g * n_out * s->element : NULL);
}

/* ---------------------------------------------------------------- products */

void ds_window_begin(ds_window_product *p, const ds_windows *s, const ds_op *op, const ds_run *run,
                     const void *prepared, void *scratch)
{
    const ds_signature *out = &op->out[0];
    const int64_t per_frame = ds_planes_width(out) * (out->rank > 2 ? out->shape[0] : 1);
    const size_t pointers = (size_t)(run->frames_out * per_frame) * sizeof(void *);
    const size_t n = COPY_BYTES / (s->n_bytes + 1);
    *p = (ds_window_product){.shape = *s,
                             .run = run,
                             .prepared = prepared,
                             .y = scratch,
                             .x = (void *)((char *)scratch + pointers),
                             .operands = ds_run_operands(run),
                             .copies = (char *)scratch + ds_aligned(2 * pointers),
                             .max_copies = n < LEAST_COPIES  ? LEAST_COPIES
                                           : n > MOST_COPIES ? MOST_COPIES
                                                             : n};
}

DS_FOR_ELEMENT void window_repeat(char *to, const char *from, size_t n, size_t repeats,
                                  size_t element)
{
    for (size_t c = 0; c < n; c++, from += element)
        for (size_t i = 0; i < repeats; i++, to += element)
            memcpy(to, from, element);
}

/* Copies one position's channels (NULL: zeros) to a tap of a row: [taps][C], [G][taps][C/G], or with
 * repeats. */
static void window_copy_tap(const ds_windows *s, char *row, size_t tap, const char *position)
{
    const size_t n_parts = s->depthwise ? 1 : s->groups;
    const size_t n_bytes = s->n_bytes / s->all_taps / n_parts;
    for (size_t g = 0; g < n_parts; g++) {
        char *to = row + (g * s->all_taps + tap) * n_bytes;
        if (!position)
            memset(to, 0, n_bytes);
        else if (s->depthwise && s->n_out != s->n_in)
            DS_BY_ELEMENT(window_repeat, s->element, to, position, s->n_in, s->n_out / s->n_in);
        else
            memcpy(to, position + g * n_bytes, n_bytes);
    }
}

/* Whether all of n taps are values, not padding. */
static bool window_inside(ds_window_place place, int64_t n, int64_t step)
{
    return place.first >= 0 && place.first + (n - 1) * step < place.total;
}

/* The inner taps on one frame (NULL: of padding), from tap `tap` of a row on. */
static void window_copy_inner(const ds_windows *s, char *row, size_t tap, const char *frame,
                              ds_window_place inner)
{
    const size_t n_bytes = s->n_in * s->element;
    if (frame && s->groups == 1 && s->inner_step == 1 && window_inside(inner, s->n_inner, 1)) {
        memcpy(row + tap * n_bytes, frame + (size_t)inner.first * n_bytes,
               (size_t)s->n_inner * n_bytes);
        return;
    }
    for (int64_t i = 0; i < s->n_inner; i++) {
        const int64_t position = inner.first + i * s->inner_step;
        const int64_t from = ds_padding_source(inner.mode, position, inner.total);
        const bool zero = !frame || from < 0;
        window_copy_tap(s, row, tap + (size_t)i, zero ? NULL : frame + (size_t)from * n_bytes);
    }
}

void ds_window_copy(const ds_windows *s, char *row, const ds_window *in, ds_window_place along,
                    ds_window_place inner)
{
    const size_t n_bytes = (size_t)s->width * s->n_in * s->element;
    for (int64_t t = 0; t < s->n_taps; t++) {
        const int64_t position = along.first + t * s->step;
        const int64_t frame = ds_padding_source(along.mode, position, along.total);
        window_copy_inner(s, row, (size_t)(t * s->n_inner),
                          frame < 0 ? NULL : ds_at(in, frame, n_bytes), inner);
    }
}

static const void *window_copy(ds_window_product *p, const ds_window *in, ds_window_place along,
                               ds_window_place inner)
{
    char *const row = p->copies + p->n_copies++ * p->shape.n_bytes;
    ds_window_copy(&p->shape, row, in, along, inner);
    return row;
}

void ds_window_add(ds_window_product *p, void *y, const ds_plane *plane, ds_window_place along,
                   ds_window_place inner)
{
    const ds_windows *s = &p->shape;
    const ds_window *in = &plane->in;
    if (p->turn) {
        ds_window_see(p, y, plane, along, inner);
        return;
    }
    const bool by_pointer = s->direct && window_inside(along, s->n_taps, s->step) &&
                            window_inside(inner, s->n_inner, s->inner_step);
    if (!by_pointer && p->n_copies == p->max_copies)
        ds_window_flush(p);
    if (s->depthwise && p->n > 0 && p->in_place != by_pointer)
        ds_window_flush(p);
    p->in_place = by_pointer;
    if (p->operands)
        p->operands[p->n] = ds_run_operand(p->run, plane->row, y);
    p->y[p->n] = y;
    p->x[p->n++] = by_pointer ? (const char *)in->data +
                                    (size_t)((along.first - in->at) * s->width + inner.first) *
                                        s->n_in * s->element
                              : window_copy(p, in, along, inner);
}

/* n pieces of a few bytes, each so far behind the one before; from NULL: zeros. */
static void copy_pieces(char *to, size_t to_step, const char *from, size_t from_step, size_t n,
                        size_t n_bytes)
{
#define PIECES_OF(constant)                                           \
    case constant:                                                    \
        for (size_t i = 0; i < n; i++)                                \
            memcpy(to + i * to_step, from + i * from_step, constant); \
        return;
    switch (from ? n_bytes : 0) {
        PIECES_OF(4)
        PIECES_OF(8)
        PIECES_OF(12)
        PIECES_OF(16)
        PIECES_OF(24)
        PIECES_OF(32)
        PIECES_OF(48)
        PIECES_OF(64)
        PIECES_OF(128)
    default:
        for (size_t i = 0; i < n && from; i++)
            memcpy(to + i * to_step, from + i * from_step, n_bytes);
        for (size_t i = 0; i < n && !from; i++)
            memset(to + i * to_step, 0, n_bytes);
    }
}

/* Copies n windows, `apart` positions from one to the next, whose inner taps touch no padding: tap by tap. */
static void window_copy_run(const ds_windows *s, char *to, size_t n, const ds_window *in,
                            ds_window_place along, int64_t first, size_t apart)
{
    const size_t position = s->n_in * s->element;
    const bool together = s->inner_step == 1; /* inner taps */
    const size_t pieces = together ? 1 : (size_t)s->n_inner;
    const size_t n_bytes = together ? (size_t)s->n_inner * position : position;
    for (int64_t t = 0; t < s->n_taps; t++) {
        const int64_t at = ds_padding_source(along.mode, along.first + t * s->step, along.total);
        const char *const frame = at < 0 ? NULL : ds_at(in, at, (size_t)s->width * position);
        for (size_t i = 0; i < pieces; i++, to += n_bytes)
            copy_pieces(to, s->n_bytes,
                        frame ? frame + (size_t)(first + (int64_t)i * s->inner_step) * position
                              : NULL,
                        apart * position, n, n_bytes);
    }
}

void ds_window_add_run(ds_window_product *p, char *y, size_t y_bytes, size_t n,
                       const ds_plane *plane, ds_window_place along, ds_window_place inner,
                       size_t apart)
{
    const ds_windows *s = &p->shape;
    const bool as_it_is = s->groups == 1 || (s->depthwise && s->n_out == s->n_in);
    if (n < 2 || p->turn || !as_it_is) {
        for (; n-- > 0; y += y_bytes, inner.first += (int64_t)apart)
            ds_window_add(p, y, plane, along, inner);
        return;
    }
    const bool by_pointer = s->direct && window_inside(along, s->n_taps, s->step);
    while (n > 0) { /* the first of them finds room */
        ds_window_add(p, y, plane, along, inner);
        const size_t room = by_pointer ? n : p->max_copies - p->n_copies + 1;
        const size_t more = (n < room ? n : room) - 1;
        const char *x = p->x[p->n - 1];
        const size_t step = by_pointer ? apart * s->n_in * s->element : s->n_bytes;
        if (!by_pointer) {
            window_copy_run(s, p->copies + p->n_copies * s->n_bytes, more, &plane->in, along,
                            inner.first + (int64_t)apart, apart);
            p->n_copies += more;
        }
        for (size_t i = 0; i < more; i++) {
            y += y_bytes;
            x += step;
            if (p->operands)
                p->operands[p->n] = ds_run_operand(p->run, plane->row, y);
            p->y[p->n] = y;
            p->x[p->n++] = x;
        }
        y += y_bytes;
        inner.first += (int64_t)((more + 1) * apart);
        n -= more + 1;
    }
}

void ds_window_flush(ds_window_product *p)
{
    const ds_windows *s = &p->shape;
    if (p->turn) {
        ds_window_flush_back(p);
        return;
    }
    ds_product product = {.weight = p->prepared, .y = p->y, .x = p->x, .n_rows = p->n};
    const size_t n_products = s->depthwise ? 1 : s->groups, width = s->n_out / n_products;
    ds_taps places = {.step = s->n_out, .inner = SIZE_MAX};
    if (p->in_place)
        places = (ds_taps){(size_t)s->inner_step * s->n_out, (size_t)s->n_inner,
                           (size_t)(s->step * s->width) * s->n_out};
    for (size_t g = 0; g < n_products && p->n > 0; g++) {
        if (g > 0) { /* each over its own part of every row */
            for (size_t i = 0; i < p->n; i++) {
                p->y[i] = (char *)p->y[i] + width * s->element;
                p->x[i] = (const char *)p->x[i] + product.weight->depth * s->element;
                if (p->operands)
                    p->operands[i] = (const char *)p->operands[i] + width * s->element;
            }
            product.weight = ds_packed_next(product.weight);
        }
        ds_run_product(p->run, &product, s->depthwise ? &places : NULL, g * width);
    }
    p->n = 0;
    p->n_copies = 0;
}
