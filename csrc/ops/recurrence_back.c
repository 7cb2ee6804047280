/* ops/recurrence_back.c: recurrent cells read backwards (ops/recurrence.c has what they are).
 *
 * Layer after layer from the last, step after step from the last. With h' and c' the slopes of h and c of a step, what
 * follows of the steps behind it and of the outputs:
 *
 *     lstm   c' += h' o (1 - tanh(c)^2)
 *            i' = c' g i (1 - i)   f' = c' c_before f (1 - f)   g' = c' i (1 - g^2)   o' = h' tanh(c) o (1 - o)
 *            c' of the step before: c' f
 *     gru    n' = h' (1 - z) (1 - n^2)   r' = n' b_n r (1 - r)   z' = h' (h_before - n) z (1 - z)
 *            h' of the step before has h' z, too; the slope of b_n is n' r
 *     rnn    h' (1 - h^2), or h' where h > 0
 *
 * These are slopes of the products with W_ih and W_hh; the latter's give h' of the step before. Slopes of weights and
 * of the layer's inputs follow when all steps are through, as products over all vectors of the call. */
#include <string.h>

#include "ops/back.h"
#include "ops/recurrence.h"
#include "ops/sums.h"

typedef struct lane {
    size_t row, l;   /* which of the row's */
    size_t first, n; /* its first vector among those of the call, and how many */
    size_t of_row;   /* the row's first vector */
    bool starts;     /* from what is given, or zeros */
} lane;

typedef struct work {
    const ds_op *op;
    const ds_back *b;
    const ds_run *run;
    ds_recurrence s;
    size_t n_vectors, n_lanes, apart; /* apart: vectors from one of a lane to the next */
    lane *lanes;
    char *dh, *dc;      /* [lanes][P], [lanes][H] */
    char *full, *gates; /* of a step: [lanes][H], slopes of h before a projection; [5 H] */
    char *da, *db;      /* [vectors][gates]: slopes of both products; the same but for a gru */
    char *above,
        *next; /* [vectors][D * P]: slopes of a layer's outputs, and of those of the layer below */
    char *joined; /* [vectors][D * P]: outputs of the layer below */
    char *made,
        *dmade; /* [vectors][H], [vectors][P]: of a projection, h before it, and slopes behind it */
    const void **g, **x; /* [vectors] */
    void **dx;           /* [vectors] */
    char *zeros;         /* for states that begin with none */
    ds_packed *packed;
    ds_room room;
} work;

void ds_recurrence_set_back_sizes(ds_op *op, const ds_recurrence *s)
{
    const size_t e = s->element, in = ds_greater(s->in, s->directions * s->out);
    const bool as_out = s->single || s->within || s->directions == 2;
    size_t room =
        ds_greater(ds_back_outer_bytes(s->gates, in, e), ds_back_outer_bytes(s->gates, s->out, e));
    room = ds_greater(room, ds_back_outer_bytes(s->out, s->hidden, e));
    room = ds_greater(room, ds_back_rows_bytes(ds_greater(in, s->hidden), e));
    room = ds_saturated_sum(room, ds_greater(ds_back_packed_bytes(in, s->gates, e),
                                             ds_back_packed_bytes(s->hidden, s->gates, e)));
    op->back_scratch.per_call = ds_saturated_sum(
        room, 32 * (size_t)DS_ALIGNMENT + 6 * (s->hidden + s->gates + s->out) * sizeof(double));
    const size_t between = s->layers > 1 ? 3 * s->directions * s->out : 0;
    const size_t per_vector =
                     (2 * s->gates + between + s->out + s->hidden) * e + 3 * sizeof(void *),
                 per_lane = sizeof(lane) + (s->out + 2 * s->hidden) * e + 3 * sizeof(void *);
    const bool along = !s->single && !s->within;
    *(as_out ? &op->back_scratch.per_out : &op->back_scratch.per_in) =
        s->vectors * per_vector + (along ? 0 : s->lanes * per_lane);
    op->back_scratch.per_row = along ? s->lanes * per_lane : 0;
    op->saved[0] = (ds_saved){as_out ? DS_PER_OUT : DS_PER_IN,
                              s->vectors * s->cells * ds_recurrence_left_bytes(s)};
    op->n_saved = 1;
}

static work begin(const ds_op *op, const ds_back *b)
{
    work w = {.op = op, .b = b, .run = b->run, .s = ds_recurrence_of(op), .room = {b->scratch}};
    const ds_recurrence *s = &w.s;
    const bool along = !s->single && !s->within;
    int64_t first;
    for (size_t row = 0; row < w.run->n_rows; row++)
        w.n_lanes += ds_recurrence_lanes(s, ds_recurrence_frames(op, s, w.run, row, &first));
    w.lanes = ds_room_take(&w.room, w.n_lanes * sizeof *w.lanes);
    w.n_lanes = 0;
    for (size_t row = 0; row < w.run->n_rows; row++) {
        const size_t n_frames = ds_recurrence_frames(op, s, w.run, row, &first);
        const size_t n = n_frames ? ds_recurrence_lanes(s, n_frames) : 0;
        for (size_t l = 0; l < n; l++)
            w.lanes[w.n_lanes++] = (lane){.row = row,
                                          .l = l,
                                          .first = w.n_vectors + l * s->steps,
                                          .n = along ? n_frames : s->steps,
                                          .of_row = w.n_vectors,
                                          .starts = first == 0 || !along};
        w.n_vectors += n_frames * s->vectors;
    }
    const size_t e = s->element, between = s->layers > 1 ? s->directions * s->out * e : 0;
    w.apart = along ? s->lanes : 1;
    w.dh = ds_room_take(&w.room, w.n_lanes * s->out * e);
    w.dc = ds_room_take(&w.room, w.n_lanes * s->hidden * e);
    w.full = ds_room_take(&w.room, w.n_lanes * s->hidden * e);
    w.gates = ds_room_take(&w.room, (s->gates + 2 * s->hidden) * e);
    w.da = ds_room_take(&w.room, w.n_vectors * s->gates * e);
    w.db = s->kind == DS_GRU ? ds_room_take(&w.room, w.n_vectors * s->gates * e) : w.da;
    w.above = ds_room_take(&w.room, w.n_vectors * between);
    w.next = ds_room_take(&w.room, w.n_vectors * between);
    w.joined = ds_room_take(&w.room, w.n_vectors * between);
    w.made = ds_room_take(&w.room, s->projection ? w.n_vectors * s->hidden * e : 0);
    w.dmade = ds_room_take(&w.room, s->projection ? w.n_vectors * s->out * e : 0);
    const size_t n = ds_greater(w.n_vectors, w.n_lanes);
    w.g = ds_room_take(&w.room, n * sizeof *w.g);
    w.x = ds_room_take(&w.room, n * sizeof *w.x);
    w.dx = ds_room_take(&w.room, n * sizeof *w.dx);
    w.zeros = ds_room_take(&w.room, (s->out + s->hidden) * e);
    memset(w.zeros, 0, (s->out + s->hidden) * e);
    w.packed = ds_room_take(
        &w.room,
        ds_greater(ds_back_packed_bytes(ds_greater(s->in, s->directions * s->out), s->gates, e),
                   ds_back_packed_bytes(s->hidden, s->gates, e)));
    return w;
}

/* What forward left of a vector. */
static const char *left_of(const work *w, size_t cell, size_t vector, int part)
{
    return (const char *)w->run->saved[0] +
           (cell * w->n_vectors + vector) * ds_recurrence_left_bytes(&w->s) +
           ds_recurrence_left(&w->s, part);
}

/* Vector of a lane's step t, as the direction has it. */
static size_t vector_of(const work *w, size_t cell, const lane *l, size_t t)
{
    const bool reverse = cell % w->s.directions;
    return l->first + (reverse ? l->n - 1 - t : t) * w->apart;
}

/* A state (0: h, 1: c) that a lane began with, or, `slopes`, where slopes of it go: NULL where it was zero, or they are
 * not wanted. */
static char *given(const work *w, const lane *l, size_t cell, int state, bool slopes)
{
    const ds_recurrence *s = &w->s;
    const ds_run *run = w->run;
    const size_t n_bytes = ds_recurrence_state_bytes(s, state);
    const size_t input = (size_t)(DS_RECURRENCE_H + state);
    char *all;
    if (!l->starts) {
        void *const *const carried = slopes ? w->b->dcarried : run->carried;
        all = (char *)carried[l->row] + w->op->carried[state].offset;
        return all + (l->l * s->cells + cell) * n_bytes;
    }
    if (input < (size_t)w->op->n_inputs) {
        const int64_t frame = s->single || s->within ? run->out[l->row].m0 : 0;
        const size_t at = input * run->n_rows + l->row, frame_bytes = s->lanes * s->cells * n_bytes;
        all = slopes ? ds_slope_at(&w->b->dx[at], frame, frame_bytes)
                     : (char *)(uintptr_t)ds_at(&run->in[at], frame, frame_bytes);
        return all ? all + (l->l * s->cells + cell) * n_bytes : NULL;
    }
    const int weight = (int)s->cells * ds_recurrence_per_cell(s) + state;
    if (s->single || !ds_op_has_weight(w->op, weight))
        return NULL;
    all = slopes ? w->b->dweights[weight] : (char *)(uintptr_t)run->weights[weight];
    return all ? all + cell * n_bytes : NULL;
}

/* h (0) or c (1) of the step before step t. */
static const char *before(const work *w, const lane *l, size_t cell, size_t t, int state)
{
    if (t > 0)
        return left_of(w, cell, vector_of(w, cell, l, t - 1), state == 0 ? DS_LEFT_H : DS_LEFT_C);
    const char *const at = given(w, l, cell, state, false);
    return at ? at : w->zeros;
}

/* ---------------------------------------------------------------- one step of a lane */

DS_FOR_ELEMENT void lstm_slopes(size_t n, const void *gates, const void *tanh_c,
                                const void *c_before, const void *dh, void *dc, void *da, size_t e)
{
    for (size_t j = 0; j < n; j++) {
        const double i = ds_sums_real(gates, e, j), f = ds_sums_real(gates, e, n + j),
                     g = ds_sums_real(gates, e, 2 * n + j), o = ds_sums_real(gates, e, 3 * n + j),
                     t = ds_sums_real(tanh_c, e, j), h = ds_sums_real(dh, e, j),
                     c = ds_sums_real(dc, e, j) + h * o * (1 - t * t);
        ds_sums_set_real(da, e, j, c * g * i * (1 - i));
        ds_sums_set_real(da, e, n + j, c * ds_sums_real(c_before, e, j) * f * (1 - f));
        ds_sums_set_real(da, e, 2 * n + j, c * i * (1 - g * g));
        ds_sums_set_real(da, e, 3 * n + j, h * t * o * (1 - o));
        ds_sums_set_real(dc, e, j, c * f);
    }
}

/* gates: r, z, n, and what r is multiplied by. dh becomes what goes to the step before by itself. */
DS_FOR_ELEMENT void gru_slopes(size_t n, const void *gates, const void *h_before, void *dh,
                               void *da, void *db, size_t e)
{
    for (size_t j = 0; j < n; j++) {
        const double r = ds_sums_real(gates, e, j), z = ds_sums_real(gates, e, n + j),
                     v = ds_sums_real(gates, e, 2 * n + j), own = ds_sums_real(gates, e, 3 * n + j),
                     h = ds_sums_real(dh, e, j), dn = h * (1 - z) * (1 - v * v),
                     dr = dn * own * r * (1 - r),
                     dz = h * (ds_sums_real(h_before, e, j) - v) * z * (1 - z);
        ds_sums_set_real(da, e, j, dr);
        ds_sums_set_real(db, e, j, dr);
        ds_sums_set_real(da, e, n + j, dz);
        ds_sums_set_real(db, e, n + j, dz);
        ds_sums_set_real(da, e, 2 * n + j, dn);
        ds_sums_set_real(db, e, 2 * n + j, dn * r);
        ds_sums_set_real(dh, e, j, h * z);
    }
}

DS_FOR_ELEMENT void rnn_slopes(size_t n, bool relu, const void *made, const void *dh, void *da,
                               size_t e)
{
    for (size_t j = 0; j < n; j++) {
        const double y = ds_sums_real(made, e, j), h = ds_sums_real(dh, e, j);
        ds_sums_set_real(da, e, j, relu ? (y <= 0 ? 0 : h) : h * (1 - y * y));
    }
}

/* The gates of a step, from what forward left, and behind them tanh(c). */
static void open_gates(const work *w, size_t cell, size_t vector)
{
    const ds_recurrence *s = &w->s;
    const ds_real_kernels *k = w->run->k;
    const size_t n = s->hidden, n_bytes = n * s->element;
    const char *from = left_of(w, cell, vector, DS_LEFT_GATES);
    char *const to = w->gates;
    k->unary(DS_UNARY_SIGMOID, to, from, 2 * n, NULL);
    if (s->kind == DS_LSTM) {
        k->unary(DS_UNARY_TANH, to + 2 * n_bytes, from + 2 * n_bytes, n, NULL);
        k->unary(DS_UNARY_SIGMOID, to + 3 * n_bytes, from + 3 * n_bytes, n, NULL);
        k->unary(DS_UNARY_TANH, to + 4 * n_bytes, left_of(w, cell, vector, DS_LEFT_C), n, NULL);
        return;
    }
    memcpy(to + 3 * n_bytes, from + 3 * n_bytes, n_bytes);
    k->binary(DS_BINARY_MUL, to + 2 * n_bytes, to, to + 3 * n_bytes, n, 1, 1);
    k->binary(DS_BINARY_ADD, to + 2 * n_bytes, to + 2 * n_bytes, from + 2 * n_bytes, n, 1, 1);
    k->unary(DS_UNARY_TANH, to + 2 * n_bytes, to + 2 * n_bytes, n, NULL);
}

/* Slopes of both products of a lane's step, from those of its h, or of what is projected to it, and of its c. */
static void step_back(const work *w, size_t cell, size_t i, size_t t, char *dh)
{
    const ds_recurrence *s = &w->s;
    const lane *l = &w->lanes[i];
    const size_t vector = vector_of(w, cell, l, t), n = s->hidden, e = s->element;
    char *const da = w->da + vector * s->gates * e;
    if (s->kind == DS_RNN) {
        DS_BY_ELEMENT(rnn_slopes, e, n, s->relu, left_of(w, cell, vector, DS_LEFT_H), dh, da);
        memset(dh, 0, n * e);
        return;
    }
    open_gates(w, cell, vector);
    if (s->kind == DS_GRU) {
        DS_BY_ELEMENT(gru_slopes, e, n, w->gates, before(w, l, cell, t, 0), dh, da,
                      w->db + vector * s->gates * e);
        return;
    }
    const char *const tanh_c = w->gates + s->gates * e;
    DS_BY_ELEMENT(lstm_slopes, e, n, w->gates, tanh_c, before(w, l, cell, t, 1), dh,
                  w->dc + i * n * e, da);
    if (s->projection) /* what is projected is kept for its weight's slope */
        w->run->k->binary(DS_BINARY_MUL, w->made + vector * n * e, w->gates + 3 * n * e, tanh_c, n,
                          1, 1);
}

/* ---------------------------------------------------------------- a cell */

/* A matrix the other way round: rows [n_rows] to rows [n_cols]. */
static void pack(const work *w, size_t cell, int which, size_t n_rows, size_t n_cols)
{
    const ds_weight_layout turned = ds_layout_turned(n_rows, (ptrdiff_t)n_cols);
    ds_pack(w->run->k, w->run->k->format, w->packed,
            w->run->weights[ds_recurrence_weight(w->op, &w->s, cell, which)], n_cols, &turned,
            NULL);
}

/* The slopes of a vector's output of this cell. */
static const char *output_slopes(const work *w, size_t cell, size_t vector, const lane *l)
{
    const ds_recurrence *s = &w->s;
    const size_t n_bytes = s->directions * s->out * s->element,
                 at = cell % s->directions * s->out * s->element;
    if (cell / s->directions + 1 < s->layers)
        return w->above + vector * n_bytes + at;
    return (const char *)w->b->dy[l->row] + (vector - l->of_row) * n_bytes + at;
}

/* Slopes of h and c as they are after a lane's last step. */
static void begin_lane(const work *w, size_t cell, size_t i)
{
    const ds_recurrence *s = &w->s;
    const lane *l = &w->lanes[i];
    const ds_run *run = w->run;
    for (int state = 0; state < s->n_states; state++) {
        const size_t n_bytes = ds_recurrence_state_bytes(s, state);
        char *const to = (state == 0 ? w->dh : w->dc) + i * n_bytes;
        memset(to, 0, n_bytes);
        if (s->single) {
            if (state > 0)
                memcpy(to, (const char *)w->b->dy[run->n_rows + l->row] + l->l * n_bytes, n_bytes);
            continue;
        }
        const size_t at = (size_t)(DS_RECURRENCE_H_N + state) * run->n_rows + l->row;
        const size_t place = l->l * s->cells + cell;
        if (w->op->n_carried > 0) {
            char *const carried =
                (char *)ds_back_carried(w->op, w->b, l->row, state) + place * n_bytes;
            memcpy(to, carried, n_bytes);
            memset(carried, 0, n_bytes);
        }
        if (run->out[at].m0 < run->out[at].m1)
            ds_back_add(run->k, to, (const char *)w->b->dy[at] + place * n_bytes,
                        n_bytes / s->element);
    }
}

static void recur_back(const work *w, size_t cell)
{
    const ds_recurrence *s = &w->s;
    const size_t e = s->element, out_bytes = s->out * e, full_bytes = s->hidden * e;
    const ds_real_kernels *k = w->run->k;
    size_t longest = 0;
    for (size_t i = 0; i < w->n_lanes; i++) {
        begin_lane(w, cell, i);
        longest = ds_greater(longest, w->lanes[i].n);
    }
    for (size_t t = longest; t-- > 0;) {
        size_t n = 0;
        for (size_t i = 0; i < w->n_lanes; i++) {
            const lane *l = &w->lanes[i];
            if (l->n <= t)
                continue;
            const size_t vector = vector_of(w, cell, l, t);
            char *const dh = w->dh + i * out_bytes;
            ds_back_add(k, dh, output_slopes(w, cell, vector, l), s->out);
            if (!s->projection) {
                step_back(w, cell, i, t, dh);
                w->g[n] = w->db + vector * s->gates * e;
                memset(dh, 0, s->kind == DS_LSTM ? out_bytes : 0);
                w->dx[n++] = dh;
                continue;
            }
            memcpy(w->dmade + vector * out_bytes, dh, out_bytes);
            memset(w->full + i * full_bytes, 0, full_bytes);
            w->g[n] = dh;
            w->dx[n++] = w->full + i * full_bytes;
        }
        if (s->projection) {
            pack(w, cell, DS_WEIGHT_HR, s->out, s->hidden);
            ds_back_rows(w->run, w->packed, w->dx, w->g, n, w->room);
            n = 0;
            for (size_t i = 0; i < w->n_lanes; i++) {
                if (w->lanes[i].n <= t)
                    continue;
                step_back(w, cell, i, t, w->full + i * full_bytes);
                memset(w->dh + i * out_bytes, 0, out_bytes);
                w->g[n] = w->db + vector_of(w, cell, &w->lanes[i], t) * s->gates * e;
                w->dx[n++] = w->dh + i * out_bytes;
            }
        }
        if (s->projection || t + 1 == longest)
            pack(w, cell, DS_WEIGHT_HH, s->gates, s->out);
        ds_back_rows(w->run, w->packed, w->dx, w->g, n, w->room);
    }
    for (size_t i = 0; i < w->n_lanes; i++)
        for (int state = 0; state < s->n_states; state++) {
            const size_t n_bytes = ds_recurrence_state_bytes(s, state);
            char *const to = given(w, &w->lanes[i], cell, state, true);
            if (to)
                ds_back_add(k, to, (state == 0 ? w->dh : w->dc) + i * n_bytes, n_bytes / e);
        }
}

/* ---------------------------------------------------------------- weights and inputs */

static void weight_back(const work *w, size_t cell, int which, const char *slopes, size_t n_g,
                        size_t n_x, size_t apart)
{
    const int at = ds_recurrence_weight(w->op, &w->s, cell, which);
    const ds_weight_layout rows = ds_layout_rows(n_x);
    if (at < 0 || !w->b->dweights[at] || w->n_vectors == 0)
        return;
    for (size_t v = 0; v < w->n_vectors; v++)
        w->g[v] = slopes + v * apart;
    if (n_x > 0)
        ds_back_outer(w->run, w->b->dweights[at], &rows, w->g, n_g, w->x, w->n_vectors, w->room);
    else
        ds_back_column_sums(w->run, w->b->dweights[at], w->g, w->n_vectors, n_g, w->room);
}

/* Points x and dx at the inputs of a layer and at their slopes. */
static void point_at_inputs(const work *w, size_t cell)
{
    const ds_recurrence *s = &w->s;
    const size_t layer = cell / s->directions,
                 n_bytes = ds_recurrence_inputs(s, layer) * s->element;
    size_t n = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t end = n + ds_recurrence_frames(w->op, s, w->run, row, &first) * s->vectors;
        if (n == end)
            continue;
        const char *x = ds_at(&w->run->in[row], first, s->vectors * n_bytes);
        char *to = ds_slope_at(&w->b->dx[row], first, s->vectors * n_bytes);
        for (size_t v = 0; n < end; n++, v++) {
            w->x[n] = x + v * n_bytes;
            w->dx[n] = to ? to + v * n_bytes : NULL;
        }
    }
}

/* Slopes of a cell's weights and inputs. */
static void inputs_back(const work *w, size_t cell)
{
    const ds_recurrence *s = &w->s;
    const size_t e = s->element, layer = cell / s->directions, gates_bytes = s->gates * e,
                 in = ds_recurrence_inputs(s, layer);
    for (size_t i = 0; i < w->n_lanes; i++)
        for (size_t t = 0; t < w->lanes[i].n; t++)
            w->x[vector_of(w, cell, &w->lanes[i], t)] = before(w, &w->lanes[i], cell, t, 0);
    weight_back(w, cell, DS_WEIGHT_HH, w->db, s->gates, s->out, gates_bytes);
    weight_back(w, cell, DS_BIAS_IH, w->da, s->gates, 0, gates_bytes);
    weight_back(w, cell, DS_BIAS_HH, w->db, s->gates, 0, gates_bytes);
    if (s->projection) {
        for (size_t v = 0; v < w->n_vectors; v++)
            w->x[v] = w->made + v * s->hidden * e;
        weight_back(w, cell, DS_WEIGHT_HR, w->dmade, s->out, s->hidden, s->out * e);
    }
    if (layer == 0) {
        point_at_inputs(w, cell);
    } else {
        for (size_t v = 0; v < w->n_vectors; v++) {
            for (size_t d = 0; d < s->directions; d++)
                memcpy(w->joined + (v * s->directions + d) * s->out * e,
                       left_of(w, (layer - 1) * s->directions + d, v, DS_LEFT_H), s->out * e);
            w->x[v] = w->joined + v * in * e;
            w->dx[v] = w->next + v * in * e;
        }
        ds_recurrence_drop(w->op, s, w->run, layer - 1, w->joined);
    }
    weight_back(w, cell, DS_WEIGHT_IH, w->da, s->gates, in, gates_bytes);
    pack(w, cell, DS_WEIGHT_IH, s->gates, in);
    for (size_t v = 0; v < w->n_vectors; v++)
        w->g[v] = w->da + v * gates_bytes;
    ds_back_rows(w->run, w->packed, w->dx, w->g, w->n_vectors, w->room);
}

/* A stream that ends without new frames gives the states that it carried in. */
static void ends_back(const work *w, size_t row)
{
    int64_t first;
    if (ds_recurrence_frames(w->op, &w->s, w->run, row, &first) > 0)
        return;
    for (int state = 0; state < w->op->n_carried; state++) {
        const size_t at = (size_t)(DS_RECURRENCE_H_N + state) * w->run->n_rows + row;
        if (w->run->out[at].m0 < w->run->out[at].m1)
            ds_back_add(w->run->k, ds_back_carried(w->op, w->b, row, state), w->b->dy[at],
                        ds_elements(&w->op->carried[state].array));
    }
}

void ds_recurrence_backward(const ds_op *op, const ds_back *b)
{
    work w = begin(op, b);
    for (size_t row = 0; row < b->run->n_rows; row++)
        ends_back(&w, row);
    const ds_recurrence *s = &w.s;
    const size_t n_bytes = w.n_vectors * s->directions * s->out * s->element;
    for (size_t layer = s->layers; layer-- > 0;) {
        if (layer > 0 && n_bytes > 0)
            memset(w.next, 0, n_bytes);
        for (size_t d = 0; d < s->directions; d++) {
            recur_back(&w, layer * s->directions + d);
            if (w.n_vectors > 0)
                inputs_back(&w, layer * s->directions + d);
        }
        if (layer > 0 && n_bytes > 0)
            ds_recurrence_drop(op, s, b->run, layer - 1, w.next);
        char *const above = w.next;
        w.next = w.above;
        w.above = above;
    }
}
