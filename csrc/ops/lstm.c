/* ops/lstm.c: long short-term memory along the stream, stacked in layers, in one direction or both.
 *
 *     i, f, g, o = x W_ih^T + b_ih + h W_hh^T + b_hh     (four times H values, in this order)
 *     c' = sigmoid(f) c + sigmoid(i) tanh(g);   h' = sigmoid(o) tanh(c')
 *
 * in [I]. Weights per layer, and within it per direction (forward, then reverse): weight_ih [4H][I,
 * or D * H above the first layer], weight_hh [4H][H] and, where bias is 1, bias_ih and bias_hh [4H];
 * at the very end h0? and c0? [layers * D][H], the state before the first frame (zero without them).
 * D: 1, or 2 where bidirectional.
 *
 * Outputs: y [D * H], frame in, frame out; h_n and c_n [layers * D][H], one frame at the end. Carried:
 * h and c [layers][H]. Bidirectional needs the whole stream and carries nothing.
 *
 * A layer takes all new frames of all streams through one product with W_ih; then, frame after frame,
 * all streams that have one through one product with W_hh. No row of a product depends on another,
 * so neither chunks nor neighbours show in the results.
 *
 * Source: torch.nn.LSTM (without proj_size). */
#include <stdio.h>
#include <string.h>

#include "ops/packed.h"

enum { LAYERS, WITH_BIAS, BIDIRECTIONAL };
enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH }; /* within one cell */
enum { Y, H_N, C_N };
enum { CARRIED_H, CARRIED_C };

static const ds_attr_def attrs[] = {
    {.name = "layers", .kind = DS_ATTR_INT, .i = 1, .doc = "number of stacked layers"},
    {.name = "bias", .kind = DS_ATTR_INT, .i = 1, .doc = "1: bias_ih and bias_hh are given"},
    {.name = "bidirectional",
     .kind = DS_ATTR_INT,
     .doc = "1: both directions; needs the whole stream"},
    {.name = NULL},
};

/* One layer in one direction is a cell; cells are numbered layer * directions + direction. */
typedef struct sizes {
    size_t layers, directions, cells, per_cell; /* weights of a cell */
    size_t in, hidden, element;
} sizes;

static sizes sizes_of(const ds_op *op)
{
    sizes s = {.layers = (size_t)op->attr[LAYERS].i,
               .directions = op->attr[BIDIRECTIONAL].i ? 2 : 1,
               .per_cell = op->attr[WITH_BIAS].i ? 4 : 2,
               .in = (size_t)op->in[0].shape[0],
               .hidden = (size_t)op->weight[WEIGHT_HH].shape[1],
               .element = ds_op_element(op)};
    s.cells = s.layers * s.directions;
    return s;
}

/* Inputs of a layer's cells. */
static size_t layer_inputs(const sizes *s, size_t layer)
{
    return layer == 0 ? s->in : s->directions * s->hidden;
}

static int weight_index(const sizes *s, size_t cell, int which)
{
    return (int)(cell * s->per_cell) + which;
}

/* ---------------------------------------------------------------- infer */

static ds_status check_attrs(const ds_op *op)
{
    DS_CHECK(op->attr[LAYERS].i >= 1 && op->attr[LAYERS].i <= DS_MAX_WEIGHTS, DS_ARGUMENT,
             "lstm: layers must be 1 to %d, got %lld", DS_MAX_WEIGHTS,
             (long long)op->attr[LAYERS].i);
    for (int i = WITH_BIAS; i <= BIDIRECTIONAL; i++) {
        DS_CHECK(op->attr[i].i == 0 || op->attr[i].i == 1, DS_ARGUMENT,
                 "lstm: %s must be 0 or 1, got %lld", attrs[i].name, (long long)op->attr[i].i);
    }
    return DS_OK;
}

static ds_status check_cell(const ds_op *op, const sizes *s, size_t cell)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const size_t layer = cell / s->directions;
    const char *suffix = cell % s->directions ? "_reverse" : "";
    for (int which = 0; which < (int)s->per_cell; which++) {
        char name[48];
        (void)snprintf(name, sizeof name, "%s_l%zu%s", names[which], layer, suffix);
        const int64_t columns =
            which == WEIGHT_IH ? (int64_t)layer_inputs(s, layer) : (int64_t)s->hidden;
        const int64_t shape[] = {4 * (int64_t)s->hidden, columns};
        DS_TRY(ds_op_require_weight(op, weight_index(s, cell, which), name,
                                    which >= BIAS_IH ? 1 : 2, shape));
    }
    return DS_OK;
}

static ds_status check_weights(const ds_op *op, const sizes *s)
{
    const size_t n = s->cells * s->per_cell, n_given = (size_t)op->n_weights;
    DS_CHECK(n + 2 <= DS_MAX_WEIGHTS, DS_LIMIT,
             "lstm: %zu weights are needed, at most %d are supported", n + 2, DS_MAX_WEIGHTS);
    DS_CHECK(n_given >= n && n_given <= n + 2, DS_SHAPE,
             "lstm: expected %zu weights, then perhaps h0 and c0, got %zu", n, n_given);
    for (size_t cell = 0; cell < s->cells; cell++) {
        DS_TRY(check_cell(op, s, cell));
    }
    const int64_t state[] = {(int64_t)s->cells, (int64_t)s->hidden};
    for (int i = 0; i < 2; i++) {
        if (ds_op_has_weight(op, (int)n + i)) {
            DS_TRY(ds_op_require_weight(op, (int)n + i, i == 0 ? "h0" : "c0", 2, state));
        }
    }
    return DS_OK;
}

/* Bytes of one cell's two packed weights. */
static size_t packed_ih_bytes(const sizes *s, size_t layer)
{
    return ds_packed_bytes(4 * s->hidden, layer_inputs(s, layer), s->element);
}

static size_t packed_hh_bytes(const sizes *s)
{
    return ds_packed_bytes(4 * s->hidden, s->hidden, s->element);
}

/* What forward lays out in scratch, in this order. Per frame of the call (f), per row (r):
 *   pointers    y, x of the input product [f] each, of the recurrent one [r] each; lanes [r]
 *   from_x      [directions][f][4H]
 *   between     [f][directions * H], outputs of a layer below the last
 *   from_h      [r][4H]
 *   state       [r][2][H], bidirectional only */
typedef struct lane {
    void *h, *c;     /* [H] each */
    size_t first, n; /* its first frame among those of the call, and how many */
    char *y;         /* where its first frame of the last layer goes */
} lane;

static ds_status set_sizes(ds_op *op, const sizes *s)
{
    const size_t vector = s->hidden * s->element; /* weight_hh holds 4H of them: multiples fit */
    size_t n_bytes = 0;
    for (size_t layer = 0; layer < s->layers; layer++) {
        DS_TRY(ds_packed_check(4 * s->hidden, layer_inputs(s, layer), s->element));
        DS_TRY(ds_packed_check(4 * s->hidden, s->hidden, s->element));
        DS_TRY(
            ds_size_mul(&n_bytes, s->directions, packed_ih_bytes(s, layer) + packed_hh_bytes(s)));
        DS_TRY(ds_size_add(&op->prepared_bytes, n_bytes));
    }
    const size_t per_frame = 2 * sizeof(void *) + 4 * s->directions * vector +
                             (s->layers > 1 ? s->directions * vector : 0);
    if (s->directions == 2) {
        op->scratch.per_out = per_frame;
    } else {
        op->scratch.per_in = per_frame;
    }
    op->scratch.per_row =
        2 * sizeof(void *) + sizeof(lane) + 4 * vector + (s->directions == 2 ? 2 * vector : 0);
    return DS_OK;
}

static ds_status infer(ds_op *op)
{
    char text[160];
    DS_TRY(check_attrs(op));
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(op->in[0].rank == 1, DS_SHAPE, "lstm: expected an input of shape (features,), got %s",
             ds_signature_text(&op->in[0], text, sizeof text));
    DS_CHECK(ds_op_has_weight(op, WEIGHT_HH) && op->weight[WEIGHT_HH].rank == 2, DS_SHAPE,
             "lstm: its weight 'weight_hh_l0' must have shape (4 * hidden, hidden), got %s",
             ds_signature_text(&op->weight[WEIGHT_HH], text, sizeof text));
    const sizes s = sizes_of(op);
    DS_TRY(check_weights(op, &s));
    DS_TRY(set_sizes(op, &s));

    ds_signature state = op->in[0];
    state.rank = 2;
    state.shape[0] = (int64_t)s.cells;
    state.shape[1] = (int64_t)s.hidden;
    state.rate = (ds_rate){0, 1};
    op->out[Y].shape[0] = (int64_t)(s.directions * s.hidden);
    op->out[H_N] = state;
    op->out[C_N] = state;
    op->whole = s.directions == 2;
    op->same_counts = !op->whole;
    if (!op->whole) {
        op->carried[CARRIED_H] = (ds_carried){.name = "h", .array = state, .gradient = true};
        op->carried[CARRIED_C] = (ds_carried){.name = "c", .array = state, .gradient = true};
        op->n_carried = 2;
    }
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    const ds_expr none = ds_const(p, 0), one = ds_const(p, 1);
    ds_root(p, op->whole ? none : ds_known(p, 0));
    ds_root(p, ds_total(p, 0));
    for (int i = H_N; i <= C_N; i++) {
        ds_root(p, none);
        ds_root(p, one);
    }
}

/* ---------------------------------------------------------------- prepare */

static void prepare(const ds_op *op, void *prepared, const void *const *weights,
                    const ds_real_kernels *k)
{
    const sizes s = sizes_of(op);
    char *to = prepared;
    for (size_t cell = 0; cell < s.cells; cell++) {
        const size_t layer = cell / s.directions, n_in = layer_inputs(&s, layer);
        k->pack(to, weights[weight_index(&s, cell, WEIGHT_IH)], 4 * s.hidden, 1, n_in,
                (ptrdiff_t)n_in, 0, 1);
        to += packed_ih_bytes(&s, layer);
        k->pack(to, weights[weight_index(&s, cell, WEIGHT_HH)], 4 * s.hidden, 1, s.hidden,
                (ptrdiff_t)s.hidden, 0, 1);
        to += packed_hh_bytes(&s);
    }
}

/* ---------------------------------------------------------------- forward */

typedef struct work {
    const ds_op *op;
    const ds_run *run;
    sizes s;
    size_t n_frames; /* of the call, over all rows */
    const char *packed;
    void **y_in, **y_step;
    const void **x_in, **x_step;
    lane *lanes;
    char *from_x, *between, *from_h, *state;
} work;

/* Frames [first, first + n) of a row's input are this call's. */
static size_t row_frames(const work *w, size_t row, int64_t *first)
{
    const ds_counts *count = &w->run->count[row];
    const bool whole = w->op->whole;
    *first = whole ? w->run->out[row].m0 : count->before.known;
    const int64_t end = whole ? w->run->out[row].m1 : count->now.known;
    return end > *first ? (size_t)(end - *first) : 0;
}

static void *take(char **scratch, size_t n_bytes)
{
    void *const taken = *scratch;
    *scratch += n_bytes;
    return taken;
}

static work begin(const ds_op *op, const ds_run *run)
{
    work w = {.op = op, .run = run, .s = sizes_of(op), .packed = run->prepared};
    const size_t vector = w.s.hidden * w.s.element, rows = run->n_rows;
    for (size_t row = 0; row < rows; row++) {
        int64_t first;
        w.n_frames += row_frames(&w, row, &first);
    }
    char *scratch = run->scratch;
    w.y_in = take(&scratch, w.n_frames * sizeof(void *));
    w.x_in = take(&scratch, w.n_frames * sizeof(void *));
    w.y_step = take(&scratch, rows * sizeof(void *));
    w.x_step = take(&scratch, rows * sizeof(void *));
    w.lanes = take(&scratch, rows * sizeof(lane));
    w.from_x = take(&scratch, w.s.directions * w.n_frames * 4 * vector);
    w.between = take(&scratch, w.s.layers > 1 ? w.n_frames * w.s.directions * vector : 0);
    w.from_h = take(&scratch, rows * 4 * vector);
    w.state = scratch;
    return w;
}

/* x W_ih^T + b_ih for all frames of the call. */
static void input_product(work *w, size_t cell)
{
    const sizes *s = &w->s;
    const size_t layer = cell / s->directions, n_in = layer_inputs(s, layer);
    char *to = w->from_x + cell % s->directions * w->n_frames * 4 * s->hidden * s->element;
    size_t n = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t n_frames = row_frames(w, row, &first);
        for (size_t i = 0; i < n_frames; i++, n++) {
            w->y_in[n] = to + n * 4 * s->hidden * s->element;
            w->x_in[n] = layer > 0 ? w->between + n * n_in * s->element
                                   : ds_at(&w->run->in[row], first + (int64_t)i, n_in * s->element);
        }
    }
    const void *bias = s->per_cell == 4 ? w->run->weights[weight_index(s, cell, BIAS_IH)] : NULL;
    w->run->k->product(w->y_in, w->x_in, n, w->packed, bias, 4 * s->hidden, n_in);
}

/* Sets a cell's state before the stream's first frame: a row of h0 or c0, or zero. */
static void set_initial(const work *w, size_t cell, int which, void *to)
{
    const size_t vector = w->s.hidden * w->s.element;
    const void *all = ds_run_weight(w->op, w->run, (int)(w->s.cells * w->s.per_cell) + which);
    if (all != NULL) {
        memcpy(to, (const char *)all + cell * vector, vector);
    } else {
        memset(to, 0, vector);
    }
}

/* One lane for every row that has frames; their number. */
static size_t open_lanes(work *w, size_t cell)
{
    const sizes *s = &w->s;
    const ds_op *op = w->op;
    const size_t vector = s->hidden * s->element;
    size_t n_lanes = 0, n_before = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t n = row_frames(w, row, &first);
        if (n == 0) {
            continue;
        }
        lane *l = &w->lanes[n_lanes++];
        *l = (lane){.first = n_before, .n = n};
        l->y = ds_to(&w->run->out[row], first, s->directions * vector);
        if (op->whole) {
            l->h = w->state + row * 2 * vector;
            l->c = (char *)l->h + vector;
        } else {
            l->h = (char *)w->run->carried[row] + op->carried[CARRIED_H].offset + cell * vector;
            l->c = (char *)w->run->carried[row] + op->carried[CARRIED_C].offset + cell * vector;
        }
        if (first == 0) {
            set_initial(w, cell, 0, l->h);
            set_initial(w, cell, 1, l->c);
        }
        n_before += n;
    }
    return n_lanes;
}

/* One frame of a lane: frame `at` of those it has in this call. */
static void step(const work *w, size_t cell, const lane *l, size_t at, const void *from_h)
{
    const sizes *s = &w->s;
    const size_t vector = s->hidden * s->element, direction = cell % s->directions;
    const bool last = cell / s->directions + 1 == s->layers;
    const size_t frame = l->first + at;
    w->run->k->lstm_cell(l->h, l->c, w->from_x + (direction * w->n_frames + frame) * 4 * vector,
                         from_h, s->hidden);
    char *to =
        last ? l->y + at * s->directions * vector : w->between + frame * s->directions * vector;
    memcpy(to + direction * vector, l->h, vector);
}

/* Runs one cell over the frames of all lanes, those that have ended dropping out. */
static void recur(work *w, size_t cell, size_t n_lanes)
{
    const sizes *s = &w->s;
    const size_t gates = 4 * s->hidden * s->element;
    const bool reverse = cell % s->directions != 0;
    const void *packed = w->packed + packed_ih_bytes(s, cell / s->directions);
    const void *bias = s->per_cell == 4 ? w->run->weights[weight_index(s, cell, BIAS_HH)] : NULL;
    for (size_t t = 0; n_lanes > 0; t++) {
        for (size_t i = 0; i < n_lanes; i++) {
            w->y_step[i] = w->from_h + i * gates;
            w->x_step[i] = w->lanes[i].h;
        }
        w->run->k->product(w->y_step, w->x_step, n_lanes, packed, bias, 4 * s->hidden, s->hidden);
        size_t n_left = 0;
        for (size_t i = 0; i < n_lanes; i++) {
            const lane l = w->lanes[i];
            step(w, cell, &l, reverse ? l.n - 1 - t : t, w->y_step[i]);
            if (l.n > t + 1) {
                w->lanes[n_left++] = l;
            }
        }
        n_lanes = n_left;
    }
}

/* h_n and c_n of the streams that end. */
static void emit_state(const work *w, size_t cell)
{
    const ds_run *run = w->run;
    const size_t vector = w->s.hidden * w->s.element;
    for (size_t row = 0; row < run->n_rows; row++) {
        for (int i = 0; i < 2; i++) {
            const ds_target *out = &run->out[(size_t)(H_N + i) * run->n_rows + row];
            if (out->m1 <= out->m0) {
                continue;
            }
            const char *from = w->op->whole
                                   ? w->state + (row * 2 + (size_t)i) * vector
                                   : (const char *)run->carried[row] +
                                         w->op->carried[CARRIED_H + i].offset + cell * vector;
            memcpy((char *)out->data + cell * vector, from, vector);
        }
    }
}

static void forward(const ds_op *op, const ds_run *run)
{
    work w = begin(op, run);
    const sizes *s = &w.s;
    for (size_t layer = 0; layer < s->layers; layer++) {
        const size_t cell = layer * s->directions;
        const size_t cell_bytes = packed_ih_bytes(s, layer) + packed_hh_bytes(s);
        const char *packed = w.packed;
        /* All directions read what lies between the layers before one of them overwrites it. */
        for (size_t d = 0; d < s->directions && w.n_frames > 0; d++) {
            w.packed = packed + d * cell_bytes;
            input_product(&w, cell + d);
        }
        for (size_t d = 0; d < s->directions; d++) {
            w.packed = packed + d * cell_bytes;
            recur(&w, cell + d, open_lanes(&w, cell + d));
            emit_state(&w, cell + d);
        }
        w.packed = packed + s->directions * cell_bytes;
    }
}

const ds_op_def ds_op_lstm = {
    .name = "lstm",
    .doc = "long short-term memory along the stream",
    .n_inputs = 1,
    .n_outputs = 3,
    .n_values = -1,
    .attrs = attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* h0? c0?",
    .infer = infer,
    .counts = counts,
    .prepare = prepare,
    .forward = forward,
};
