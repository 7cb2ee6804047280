/* ops/recurrence.c: layers, directions, streams and states; what a cell computes is not known here. */
#include "ops/recurrence.h"

#include <stdio.h>
#include <string.h>

#include "ops/packed.h"

enum { LAYERS = DS_RECURRENCE_LAYERS, WITH_BIAS, BIDIRECTIONAL, PROJECTION };
enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH, WEIGHT_HR }; /* of one layer in one direction */
enum { Y, H_N };

/* One layer in one direction is a cell; cells are numbered layer * directions + direction. */
typedef struct sizes {
    size_t layers, directions, cells;
    size_t in, hidden, gates; /* gates: of all, hidden of each */
    size_t projection;        /* 0: none */
    size_t out;               /* features of h */
    size_t n_states, element;
    bool bias;
} sizes;

static sizes recurrence_sizes_of(const ds_op *op, const ds_cell *cell)
{
    const int64_t *hh = op->weight[WEIGHT_HH].shape;
    sizes s = {.layers = (size_t)op->attr[LAYERS].i,
               .directions = op->attr[BIDIRECTIONAL].i ? 2 : 1,
               .in = (size_t)op->in[0].shape[0],
               .projection = cell->projects ? (size_t)op->attr[PROJECTION].i : 0,
               .n_states = (size_t)cell->n_states,
               .element = ds_op_element(op),
               .bias = op->attr[WITH_BIAS].i != 0};
    s.cells = s.layers * s.directions;
    s.hidden = s.projection ? (size_t)hh[0] / cell->gates : (size_t)hh[1];
    s.gates = cell->gates * s.hidden;
    s.out = s.projection ? s.projection : s.hidden;
    return s;
}

/* Inputs of a layer's cells. */
static size_t recurrence_layer_inputs(const sizes *s, size_t layer)
{
    return layer == 0 ? s->in : s->directions * s->out;
}

/* Elements of one cell's h (0) or c (1). */
static size_t recurrence_state_elements(const sizes *s, int state)
{
    return state == 0 ? s->out : s->hidden;
}

/* Weights of one cell. */
static size_t recurrence_per_cell(const sizes *s)
{
    const size_t biases = s->bias ? 2 : 0, projections = s->projection ? 1 : 0;
    return 2 + biases + projections;
}

/* The place of a cell's weight among all; -1 where cells have none of its kind. */
static int recurrence_weight_index(const sizes *s, size_t cell, int which)
{
    const bool is_bias = which == BIAS_IH || which == BIAS_HH;
    if ((is_bias && !s->bias) || (which == WEIGHT_HR && !s->projection))
        return -1;
    const int place = which == WEIGHT_HR ? (int)recurrence_per_cell(s) - 1 : which;
    return (int)(cell * recurrence_per_cell(s)) + place;
}

/* ---------------------------------------------------------------- infer */

static ds_status recurrence_check_attrs(const ds_op *op, const ds_cell *cell)
{
    const char *name = op->def->name;
    DS_CHECK(op->attr[LAYERS].i >= 1 && op->attr[LAYERS].i <= DS_MAX_WEIGHTS, DS_ARGUMENT,
             "%s: layers must be 1 to %d, got %lld", name, DS_MAX_WEIGHTS,
             (long long)op->attr[LAYERS].i);
    for (int i = WITH_BIAS; i <= BIDIRECTIONAL; i++) {
        DS_CHECK(op->attr[i].i == 0 || op->attr[i].i == 1, DS_ARGUMENT,
                 "%s: %s must be 0 or 1, got %lld", name, op->def->attrs[i].name,
                 (long long)op->attr[i].i);
    }
    return cell->projects ? ds_op_require_least(op, PROJECTION, 0) : DS_OK;
}

static ds_status recurrence_check_cell(const ds_op *op, const sizes *s, size_t cell)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh",
                                        "weight_hr"};
    const size_t layer = cell / s->directions;
    const char *suffix = cell % s->directions ? "_reverse" : "";
    const int64_t gates = (int64_t)s->gates, out = (int64_t)s->out;
    const int64_t shapes[][2] = {[WEIGHT_IH] = {gates, (int64_t)recurrence_layer_inputs(s, layer)},
                                 [WEIGHT_HH] = {gates, out},
                                 [BIAS_IH] = {gates},
                                 [BIAS_HH] = {gates},
                                 [WEIGHT_HR] = {out, (int64_t)s->hidden}};
    for (int which = WEIGHT_IH; which <= WEIGHT_HR; which++) {
        const int at = recurrence_weight_index(s, cell, which);
        if (at >= 0) {
            const int rank = which == BIAS_IH || which == BIAS_HH ? 1 : 2;
            char name[48];
            (void)snprintf(name, sizeof name, "%s_l%zu%s", names[which], layer, suffix);
            DS_TRY(ds_op_require_weight(op, at, name, rank, shapes[which]));
        }
    }
    return DS_OK;
}

static ds_status recurrence_check_weights(const ds_op *op, const sizes *s)
{
    const size_t n = s->cells * recurrence_per_cell(s), most = n + s->n_states;
    const size_t n_given = (size_t)op->n_weights;
    DS_CHECK(most <= DS_MAX_WEIGHTS, DS_LIMIT,
             "%s: %zu weights are needed, at most %d are supported", op->def->name, most,
             DS_MAX_WEIGHTS);
    DS_CHECK(n_given >= n && n_given <= most, DS_SHAPE,
             "%s: expected %zu weights, then perhaps h0%s, got %zu", op->def->name, n,
             s->n_states == 2 ? " and c0" : "", n_given);
    for (size_t cell = 0; cell < s->cells; cell++)
        DS_TRY(recurrence_check_cell(op, s, cell));
    for (int i = 0; i < (int)s->n_states; i++) {
        const int64_t state[] = {(int64_t)s->cells, (int64_t)recurrence_state_elements(s, i)};
        if (ds_op_has_weight(op, (int)n + i))
            DS_TRY(ds_op_require_weight(op, (int)n + i, i == 0 ? "h0" : "c0", 2, state));
    }
    return DS_OK;
}

/* What forward lays out in scratch, in this order. Per frame of the call (f), per row (r):
 *   pointers    y, x of the input product [f] each, of the recurrent ones [r] each; lanes [r]
 *   from_x      [directions][f][gates]
 *   between     [f][directions * P], outputs of a layer below the last
 *   from_h      [r][gates]
 *   full        [r][H], what is projected
 *   state       [r], h and c one after the other, bidirectional only */
typedef struct lane {
    void *h, *c;     /* [P] and [H]; c NULL where there is none */
    size_t first, n; /* its first frame among those of the call, and how many */
    char *y;         /* where its first frame of the last layer goes */
} lane;

/* Bytes of one cell's h and c. */
static size_t recurrence_state_bytes(const sizes *s)
{
    return (s->out + (s->n_states == 2 ? s->hidden : 0)) * s->element;
}

static ds_status recurrence_set_sizes(ds_op *op, const sizes *s)
{
    size_t most = 0;
    for (size_t cell = 0; cell < s->cells; cell++) {
        DS_TRY(ds_packed_check(&most, s->gates, recurrence_layer_inputs(s, cell / s->directions),
                               s->element));
        DS_TRY(ds_packed_check(&most, s->gates, s->out, s->element));
        DS_TRY(ds_packed_check(&most, s->out, s->hidden, s->element));
    }
    const size_t per_frame = 2 * sizeof(void *) + s->directions * s->gates * s->element +
                             (s->layers > 1 ? s->directions * s->out * s->element : 0);
    if (s->directions == 2)
        op->scratch.per_out = per_frame;
    else
        op->scratch.per_in = per_frame;
    op->scratch.per_row = 2 * sizeof(void *) + sizeof(lane) + s->gates * s->element +
                          (s->projection ? s->hidden * s->element : 0) +
                          (s->directions == 2 ? recurrence_state_bytes(s) : 0);
    return DS_OK;
}

ds_status ds_recurrence_infer(ds_op *op, const ds_cell *cell)
{
    const ds_signature *hh = &op->weight[WEIGHT_HH];
    const char *name = op->def->name;
    char text[160];
    DS_TRY(recurrence_check_attrs(op, cell));
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(op->in[0].rank == 1, DS_SHAPE, "%s: expected an input of shape (features,), got %s",
             name, ds_signature_text(&op->in[0], text, sizeof text));
    DS_CHECK(
        ds_op_has_weight(op, WEIGHT_HH) && hh->rank == 2 && hh->shape[0] >= (int64_t)cell->gates,
        DS_SHAPE, "%s: its weight 'weight_hh_l0' must have shape (%zu * hidden, %s), got %s", name,
        cell->gates, cell->projects && op->attr[PROJECTION].i > 0 ? "projection" : "hidden",
        ds_signature_text(hh, text, sizeof text));
    const sizes s = recurrence_sizes_of(op, cell);
    DS_TRY(recurrence_check_weights(op, &s));
    DS_TRY(recurrence_set_sizes(op, &s));

    op->whole = s.directions == 2;
    op->out[Y].shape[0] = (int64_t)(s.directions * s.out);
    for (int i = 0; i < cell->n_states; i++) {
        ds_signature state = op->in[0];
        state.rank = 2;
        state.shape[0] = (int64_t)s.cells;
        state.shape[1] = (int64_t)recurrence_state_elements(&s, i);
        state.rate = (ds_rate){0, 1};
        op->out[H_N + i] = state;
        if (!op->whole) {
            op->carried[op->n_carried++] =
                (ds_carried){.name = i == 0 ? "h" : "c", .array = state, .gradient = true};
        }
    }
    return DS_OK;
}

void ds_recurrence_counts(const ds_op *op, ds_program *p)
{
    const ds_expr none = ds_const(p, 0), one = ds_const(p, 1);
    ds_root(p, op->whole ? none : ds_known(p, 0));
    ds_root(p, ds_total(p, 0));
    for (int i = H_N; i < op->n_outputs; i++) {
        ds_root(p, none);
        ds_root(p, one);
    }
}

/* ---------------------------------------------------------------- prepare */

size_t ds_recurrence_prepared_bytes(const ds_op *op, const ds_cell *kind, const ds_real_kernels *k)
{
    const sizes s = recurrence_sizes_of(op, kind);
    size_t n_bytes = 0;
    for (size_t layer = 0; layer < s.layers; layer++) {
        n_bytes += s.directions * (ds_packed_bytes(k, s.gates, recurrence_layer_inputs(&s, layer)) +
                                   ds_packed_bytes(k, s.gates, s.out) +
                                   (s.projection ? ds_packed_bytes(k, s.out, s.hidden) : 0));
    }
    return n_bytes;
}

/* A cell's weight of a kind, NULL where it has none. */
static const void *recurrence_weight_of(const sizes *s, const void *const *weights, size_t cell,
                                        int which)
{
    const int at = recurrence_weight_index(s, cell, which);
    return at < 0 ? NULL : weights[at];
}

void ds_recurrence_prepare(const ds_op *op, const ds_cell *kind, void *prepared,
                           const void *const *weights, const ds_real_kernels *k)
{
    const sizes s = recurrence_sizes_of(op, kind);
    for (size_t cell = 0; cell < s.cells; cell++) {
        prepared = ds_packed_rows(k, prepared, recurrence_weight_of(&s, weights, cell, WEIGHT_IH),
                                  s.gates, recurrence_layer_inputs(&s, cell / s.directions),
                                  recurrence_weight_of(&s, weights, cell, BIAS_IH));
        prepared = ds_packed_rows(k, prepared, recurrence_weight_of(&s, weights, cell, WEIGHT_HH),
                                  s.gates, s.out, recurrence_weight_of(&s, weights, cell, BIAS_HH));
        if (s.projection) {
            prepared =
                ds_packed_rows(k, prepared, recurrence_weight_of(&s, weights, cell, WEIGHT_HR),
                               s.out, s.hidden, NULL);
        }
    }
}

/* ---------------------------------------------------------------- forward */

typedef struct work {
    const ds_op *op;
    const ds_run *run;
    const ds_cell *kind;
    sizes s;
    size_t n_frames;               /* of the call, over all rows */
    const ds_packed *ih, *hh, *hr; /* of the cell at hand */
    void **y_in, **y_step;
    const void **x_in, **x_step;
    lane *lanes;
    char *from_x, *between, *from_h, *full, *state;
} work;

/* Frames [first, first + n) of a row's input are this call's. */
static size_t recurrence_row_frames(const work *w, size_t row, int64_t *first)
{
    const ds_counts *count = &w->run->count[row];
    const bool whole = w->op->whole;
    *first = whole ? w->run->out[row].m0 : count->before.known;
    const int64_t end = whole ? w->run->out[row].m1 : count->now.known;
    return end > *first ? (size_t)(end - *first) : 0;
}

static void *recurrence_take(char **scratch, size_t n_bytes)
{
    void *const taken = *scratch;
    *scratch += n_bytes;
    return taken;
}

static work recurrence_begin(const ds_op *op, const ds_cell *kind, const ds_run *run)
{
    work w = {.op = op, .run = run, .kind = kind, .s = recurrence_sizes_of(op, kind)};
    const size_t rows = run->n_rows, element = w.s.element;
    for (size_t row = 0; row < rows; row++) {
        int64_t first;
        w.n_frames += recurrence_row_frames(&w, row, &first);
    }
    char *scratch = run->scratch;
    w.y_in = recurrence_take(&scratch, w.n_frames * sizeof(void *));
    w.x_in = recurrence_take(&scratch, w.n_frames * sizeof(void *));
    w.y_step = recurrence_take(&scratch, rows * sizeof(void *));
    w.x_step = recurrence_take(&scratch, rows * sizeof(void *));
    w.lanes = recurrence_take(&scratch, rows * sizeof(lane));
    w.from_x = recurrence_take(&scratch, w.s.directions * w.n_frames * w.s.gates * element);
    const size_t between = w.s.layers > 1 ? w.s.directions * w.s.out * element : 0;
    w.between = recurrence_take(&scratch, w.n_frames * between);
    w.from_h = recurrence_take(&scratch, rows * w.s.gates * element);
    w.full = recurrence_take(&scratch, w.s.projection ? rows * w.s.hidden * element : 0);
    w.state = scratch;
    return w;
}

/* Takes the packed weights of one cell; returns where the next cell's lie. */
static const void *recurrence_take_cell(work *w, const void *packed)
{
    w->ih = packed;
    w->hh = ds_packed_next(w->ih);
    w->hr = ds_packed_next(w->hh);
    return w->s.projection ? ds_packed_next(w->hr) : w->hr;
}

/* x W_ih^T + b_ih for all frames of the call. */
static void recurrence_input_product(work *w, size_t cell)
{
    const sizes *s = &w->s;
    const size_t layer = cell / s->directions, n_in = recurrence_layer_inputs(s, layer);
    const size_t n_bytes = s->gates * s->element;
    char *to = w->from_x + cell % s->directions * w->n_frames * n_bytes;
    size_t n = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t n_frames = recurrence_row_frames(w, row, &first);
        for (size_t i = 0; i < n_frames; i++, n++) {
            w->y_in[n] = to + n * n_bytes;
            w->x_in[n] = layer > 0 ? w->between + n * n_in * s->element
                                   : ds_at(&w->run->in[row], first + (int64_t)i, n_in * s->element);
        }
    }
    const ds_product p = {.weight = w->ih, .y = w->y_in, .x = w->x_in, .n_rows = n};
    ds_product_run(w->run->k, &p, w->run->pool);
}

/* Where a row's h (0) or c (1) of a cell lies. */
static void *recurrence_state_of(const work *w, size_t row, size_t cell, int state)
{
    const sizes *s = &w->s;
    if (w->op->whole)
        return w->state + row * recurrence_state_bytes(s) + (state == 0 ? 0 : s->out * s->element);
    return (char *)w->run->carried[row] + w->op->carried[state].offset +
           cell * recurrence_state_elements(s, state) * s->element;
}

/* Sets a cell's state before the stream's first frame: a row of h0 or c0, or zero. */
static void recurrence_set_initial(const work *w, size_t cell, int state, void *to)
{
    const sizes *s = &w->s;
    const size_t n_bytes = recurrence_state_elements(s, state) * s->element;
    const void *all =
        ds_run_weight(w->op, w->run, (int)(s->cells * recurrence_per_cell(s)) + state);
    if (all != NULL)
        memcpy(to, (const char *)all + cell * n_bytes, n_bytes);
    else
        memset(to, 0, n_bytes);
}

/* One lane for every row that has frames; their number. */
static size_t recurrence_open_lanes(work *w, size_t cell)
{
    const sizes *s = &w->s;
    size_t n_lanes = 0, n_before = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t n = recurrence_row_frames(w, row, &first);
        if (n == 0)
            continue;
        lane *l = &w->lanes[n_lanes++];
        *l = (lane){.first = n_before, .n = n};
        l->y = ds_to(&w->run->out[row], first, s->directions * s->out * s->element);
        l->h = recurrence_state_of(w, row, cell, 0);
        l->c = s->n_states == 2 ? recurrence_state_of(w, row, cell, 1) : NULL;
        for (int i = 0; i < (int)s->n_states && first == 0; i++)
            recurrence_set_initial(w, cell, i, i == 0 ? l->h : l->c);
        n_before += n;
    }
    return n_lanes;
}

/* h W_hh^T + b_hh of all lanes. */
static void recurrence_recurrent_product(work *w, size_t n_lanes)
{
    const sizes *s = &w->s;
    for (size_t i = 0; i < n_lanes; i++) {
        w->y_step[i] = w->from_h + i * s->gates * s->element;
        w->x_step[i] = w->lanes[i].h;
    }
    const ds_product p = {.weight = w->hh, .y = w->y_step, .x = w->x_step, .n_rows = n_lanes};
    ds_product_run(w->run->k, &p, w->run->pool);
}

/* h = full W_hr^T of all lanes. */
static void recurrence_projection(work *w, size_t n_lanes)
{
    const sizes *s = &w->s;
    for (size_t i = 0; i < n_lanes; i++) {
        w->y_step[i] = w->lanes[i].h;
        w->x_step[i] = w->full + i * s->hidden * s->element;
    }
    const ds_product p = {.weight = w->hr, .y = w->y_step, .x = w->x_step, .n_rows = n_lanes};
    ds_product_run(w->run->k, &p, w->run->pool);
}

/* Runs one cell over the frames of all lanes, those that have ended dropping out. */
static void recurrence_recur(work *w, size_t cell, size_t n_lanes)
{
    const sizes *s = &w->s;
    const size_t direction = cell % s->directions, out_bytes = s->out * s->element;
    const size_t gates_bytes = s->gates * s->element;
    const char *from_x = w->from_x + direction * w->n_frames * gates_bytes;
    const bool last = cell / s->directions + 1 == s->layers;
    for (size_t t = 0; n_lanes > 0; t++) {
        recurrence_recurrent_product(w, n_lanes);
        for (size_t i = 0; i < n_lanes; i++) {
            const lane *l = &w->lanes[i];
            const size_t frame = l->first + (direction ? l->n - 1 - t : t);
            void *h = s->projection ? w->full + i * s->hidden * s->element : l->h;
            w->kind->step(w->run->k, h, l->c, from_x + frame * gates_bytes, w->y_step[i],
                          s->hidden);
        }
        if (s->projection)
            recurrence_projection(w, n_lanes);
        size_t n_left = 0;
        for (size_t i = 0; i < n_lanes; i++) {
            const lane l = w->lanes[i];
            const size_t at = direction ? l.n - 1 - t : t;
            char *to = last ? l.y + at * s->directions * out_bytes
                            : w->between + (l.first + at) * s->directions * out_bytes;
            memcpy(to + direction * out_bytes, l.h, out_bytes);
            if (l.n > t + 1)
                w->lanes[n_left++] = l;
        }
        n_lanes = n_left;
    }
}

/* h_n and c_n of the streams that end. */
static void recurrence_emit_state(const work *w, size_t cell)
{
    const ds_run *run = w->run;
    for (size_t row = 0; row < run->n_rows; row++) {
        for (int i = 0; i < (int)w->s.n_states; i++) {
            const ds_target *out = &run->out[(size_t)(H_N + i) * run->n_rows + row];
            if (out->m1 > out->m0) {
                const size_t n_bytes = recurrence_state_elements(&w->s, i) * w->s.element;
                memcpy((char *)out->data + cell * n_bytes, recurrence_state_of(w, row, cell, i),
                       n_bytes);
            }
        }
    }
}

void ds_recurrence_forward(const ds_op *op, const ds_cell *kind, const ds_run *run)
{
    work w = recurrence_begin(op, kind, run);
    const sizes *s = &w.s;
    const void *layer_packed = run->prepared;
    for (size_t layer = 0; layer < s->layers; layer++) {
        const size_t cell = layer * s->directions;
        const void *packed = layer_packed;
        /* All directions read what lies between the layers before one of them overwrites it. */
        for (size_t d = 0; d < s->directions && w.n_frames > 0; d++) {
            packed = recurrence_take_cell(&w, packed);
            recurrence_input_product(&w, cell + d);
        }
        packed = layer_packed;
        for (size_t d = 0; d < s->directions; d++) {
            packed = recurrence_take_cell(&w, packed);
            recurrence_recur(&w, cell + d, recurrence_open_lanes(&w, cell + d));
            recurrence_emit_state(&w, cell + d);
        }
        layer_packed = packed;
    }
}
