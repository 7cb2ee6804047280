/* ops/planes_back.c: windows over planes read backwards, in slabs; see planes.h. */
#include <string.h>

#include "ops/planes.h"
#include "ops/sums.h"

/* Windows of a slab: as many as these bytes hold, within bounds. */
enum { SLAB_BYTES = 1 << 20, LEAST_WINDOWS = 64 };

typedef struct ds_window_seen {
    ds_plane plane;
    ds_window_place along, inner;
} ds_window_seen;

static size_t slab(const ds_windows *s)
{
    const size_t n = SLAB_BYTES / (s->n_bytes + 1);
    return n < LEAST_WINDOWS ? LEAST_WINDOWS : n > DS_BACK_ROWS ? DS_BACK_ROWS : n;
}

/* Bytes of the matrices of all taps, or of one packed weight. */
static size_t matrix_bytes(const ds_windows *s)
{
    return s->depthwise
               ? ds_back_packed_bytes(s->n_out, s->all_taps, s->element)
               : ds_back_packed_bytes(s->n_in / s->groups, s->n_out / s->groups, s->element);
}

static size_t n_matrices(const ds_windows *s)
{
    return s->depthwise ? 1 : s->groups * s->all_taps;
}

void ds_windows_set_back_sizes(ds_op *op, const ds_windows *s)
{
    const size_t n_in = s->n_in / s->groups, n_out = s->n_out / s->groups, windows = slab(s);
    const size_t rows = ds_back_rows_bytes(n_in, s->element),
                 outer = ds_back_outer_bytes(n_out, ds_saturated_product(n_in, s->all_taps),
                                             s->element),
                 elements = ds_saturated_product(s->n_out, s->all_taps * sizeof(double));
    size_t n = rows > outer ? rows : outer;
    n = ds_saturated_sum(n, ds_saturated_product(n_matrices(s), matrix_bytes(s)));
    n = ds_saturated_sum(n, ds_saturated_product(windows, s->n_bytes));
    n = ds_saturated_sum(n, s->depthwise ? elements : 0);
    n = ds_saturated_sum(n, windows * (sizeof(ds_window_seen) + 3 * sizeof(void *)));
    n = ds_saturated_sum(n, 3 * s->n_out * sizeof(double));
    op->back_scratch.per_call = ds_saturated_sum(n, 16 * (size_t)DS_ALIGNMENT);
    op->back_scratch.per_row = sizeof(ds_target);
}

ds_run ds_windows_turned(const ds_back *b, ds_room *room)
{
    ds_run run = *b->run;
    ds_target *out = ds_room_take(room, run.n_rows * sizeof *out);
    for (size_t r = 0; r < run.n_rows; r++) {
        out[r] = run.out[r];
        out[r].data = (void *)(uintptr_t)b->dy[r];
    }
    run.out = out;
    return run;
}

void ds_window_begin_back(ds_window_product *p, ds_window_turn *turn, const ds_windows *s,
                          const ds_back *b, const ds_run *run, const ds_weight_layout *layout,
                          size_t group, size_t start, ds_room room)
{
    char *const dw = b->dweights[DS_PLANES_WEIGHT];
    const char *const weight = (const char *)run->weights[DS_PLANES_WEIGHT] + start * s->element;
    *p = (ds_window_product){.shape = *s, .run = run, .turn = turn, .max_copies = slab(s)};
    *turn = (ds_window_turn){.b = b,
                             .weight = weight,
                             .dw = dw ? dw + start * s->element : NULL,
                             .group = group,
                             .layout = *layout};
    turn->layout.n_taps = (size_t)s->n_taps;
    turn->layout.n_inner = (size_t)s->n_inner;
    turn->layout.n_channels = s->n_in / s->groups;
    p->y = ds_room_take(&room, p->max_copies * sizeof *p->y);
    p->x = ds_room_take(&room, p->max_copies * sizeof *p->x);
    p->copies = ds_room_take(&room, p->max_copies * s->n_bytes);
    turn->seen = ds_room_take(&room, p->max_copies * sizeof *turn->seen);
    turn->dx = ds_room_take(&room, p->max_copies * sizeof *turn->dx);
    turn->packed = ds_room_take(&room, n_matrices(s) * matrix_bytes(s));
    if (s->depthwise) {
        turn->sums = ds_room_take(&room, s->n_out * s->all_taps * sizeof(double));
        memset(turn->sums, 0, s->n_out * s->all_taps * sizeof(double));
    }
    turn->room = room;
    for (size_t r = 0; r < run->n_rows; r++)
        turn->wanted |= b->dx[r].data != NULL;
    if (!turn->wanted)
        return;
    if (s->depthwise) {
        ds_weight_layout taps = turn->layout;
        taps.n_sub = s->n_out / s->groups;
        taps.sub = taps.col;
        taps.col = (ptrdiff_t)group;
        ds_pack(run->k, DS_FORMAT_TAPS, (ds_packed *)(void *)turn->packed, weight, s->n_out, &taps,
                NULL);
        return;
    }
    ds_weight_layout one = ds_layout_turned(s->n_out / s->groups, layout->col);
    one.col = layout->channel;
    for (size_t g = 0; g < s->groups; g++)
        for (size_t tap = 0; tap < s->all_taps; tap++) {
            const ptrdiff_t at = (ptrdiff_t)(g * group) +
                                 (ptrdiff_t)(tap / (size_t)s->n_inner) * layout->tap +
                                 (ptrdiff_t)(tap % (size_t)s->n_inner) * layout->inner;
            ds_pack(run->k, run->k->format,
                    (ds_packed *)(void *)(turn->packed + (g * s->all_taps + tap) * matrix_bytes(s)),
                    weight + at * (ptrdiff_t)s->element, s->n_in / s->groups, &one, NULL);
        }
}

void ds_window_see(ds_window_product *p, void *g, const ds_plane *plane, ds_window_place along,
                   ds_window_place inner)
{
    if (p->n == p->max_copies)
        ds_window_flush_back(p);
    char *const row = p->copies + p->n * p->shape.n_bytes;
    if (p->turn->dw)
        ds_window_copy(&p->shape, row, &plane->in, along, inner);
    p->turn->seen[p->n] = (ds_window_seen){*plane, along, inner};
    p->x[p->n] = row;
    p->y[p->n++] = g;
}

/* Where slopes of a window's tap go: channels of one position; NULL where it is padding, or they are not wanted. */
static char *tap_slopes(const ds_windows *s, const ds_window_seen *w, int64_t tap)
{
    const size_t position_bytes = s->n_in * s->element;
    const int64_t t = tap / s->n_inner, i = tap % s->n_inner;
    const int64_t frame =
        ds_padding_source(w->along.mode, w->along.first + t * s->step, w->along.total);
    const int64_t position =
        ds_padding_source(w->inner.mode, w->inner.first + i * s->inner_step, w->inner.total);
    char *const at = frame < 0 || position < 0
                         ? NULL
                         : ds_slope_at(&w->plane.dx, frame, (size_t)s->width * position_bytes);
    return at ? at + (size_t)position * position_bytes : NULL;
}

/* The slopes of group g. */
static void group_back(ds_window_product *p, size_t g)
{
    const ds_windows *s = &p->shape;
    const ds_window_turn *turn = p->turn;
    const size_t n_in = s->n_in / s->groups, n_out = s->n_out / s->groups;
    const void *const *slopes = (const void *const *)p->y;
    for (int64_t tap = 0; tap < (int64_t)s->all_taps && turn->wanted; tap++) {
        for (size_t i = 0; i < p->n; i++) {
            char *const to = tap_slopes(s, &turn->seen[i], tap);
            turn->dx[i] = to ? to + g * n_in * s->element : NULL;
        }
        const char *const packed = turn->packed + (g * s->all_taps + (size_t)tap) * matrix_bytes(s);
        ds_back_rows(p->run, (const ds_packed *)(const void *)packed, turn->dx, slopes, p->n,
                     turn->room);
    }
    if (turn->dw)
        ds_back_outer(p->run, turn->dw + g * turn->group * s->element, &turn->layout, slopes, n_out,
                      p->x, p->n, turn->room);
}

/* Each channel by itself. */
static void depthwise_back(ds_window_product *p)
{
    const ds_windows *s = &p->shape;
    const ds_real_kernels *k = p->run->k;
    const ds_window_turn *turn = p->turn;
    ds_room room = turn->room;
    const size_t n = s->n_out, each = n / s->n_in, n_bytes = n * s->element;
    void *const product = ds_room_take(&room, n_bytes);
    double *const sums = ds_room_take(&room, s->n_in * sizeof(double));
    const char *const weight =
        turn->wanted ? ((const ds_packed *)(const void *)turn->packed)->data : NULL;
    for (size_t i = 0; i < p->n; i++)
        for (size_t tap = 0; tap < s->all_taps; tap++) {
            char *const to = turn->wanted ? tap_slopes(s, &turn->seen[i], (int64_t)tap) : NULL;
            if (turn->dw) {
                k->binary(DS_BINARY_MUL, product, p->y[i], (const char *)p->x[i] + tap * n_bytes, n,
                          1, 1);
                ds_sums_add(turn->sums + tap * n, product, n,
                            s->element == sizeof(float) ? DS_F32 : DS_F64);
            }
            if (!to)
                continue;
            k->binary(DS_BINARY_MUL, product, p->y[i], weight + tap * n_bytes, n, 1, 1);
            if (each == 1) {
                ds_back_add(k, to, product, n);
                continue;
            }
            for (size_t c = 0; c < s->n_in; c++) {
                sums[c] = 0;
                for (size_t j = 0; j < each; j++)
                    sums[c] += ds_sums_real(product, s->element, c * each + j);
            }
            ds_back_add_sums(k, to, sums, s->n_in);
        }
}

void ds_window_flush_back(ds_window_product *p)
{
    const ds_windows *s = &p->shape;
    if (p->n > 0 && s->depthwise)
        depthwise_back(p);
    for (size_t g = 0; g < s->groups && p->n > 0 && !s->depthwise; g++) {
        group_back(p, g);
        for (size_t i = 0; i < p->n; i++) {
            p->y[i] = (char *)p->y[i] + s->n_out / s->groups * s->element;
            p->x[i] = (const char *)p->x[i] + s->n_bytes / s->groups;
        }
    }
    p->n = 0;
}

void ds_window_end_back(ds_window_product *p)
{
    const ds_windows *s = &p->shape;
    const ds_window_turn *turn = p->turn;
    const ds_weight_layout *l = &turn->layout;
    const ptrdiff_t element = (ptrdiff_t)s->element;
    ds_window_flush_back(p);
    for (size_t n = 0; s->depthwise && turn->dw && n < s->n_out; n++) {
        const size_t each = s->n_out / s->groups;
        for (size_t tap = 0; tap < s->all_taps; tap++) {
            const ptrdiff_t at = (ptrdiff_t)(n / each * turn->group) +
                                 (ptrdiff_t)(n % each) * l->col +
                                 (ptrdiff_t)(tap / (size_t)s->n_inner) * l->tap +
                                 (ptrdiff_t)(tap % (size_t)s->n_inner) * l->inner;
            ds_back_add_sums(p->run->k, turn->dw + at * element, &turn->sums[tap * s->n_out + n],
                             1);
        }
    }
}

void ds_windows_bias_back(const ds_op *op, const ds_back *b, ds_room room)
{
    const ds_signature *out = &op->out[0];
    const size_t n = ds_last_size(out), positions = ds_elements(out) / n;
    if (op->n_weights <= DS_PLANES_BIAS || !b->dweights[DS_PLANES_BIAS])
        return;
    double *const sums = ds_room_take(&room, n * sizeof *sums);
    memset(sums, 0, n * sizeof *sums);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const ds_target *to = &b->run->out[r];
        if (to->m0 < to->m1)
            b->run->k->column_sums(sums, b->dy[r], (size_t)(to->m1 - to->m0) * positions, n, NULL);
    }
    ds_back_add_sums(b->run->k, b->dweights[DS_PLANES_BIAS], sums, n);
}
