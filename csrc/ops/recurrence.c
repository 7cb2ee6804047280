/* ops/recurrence.c: recurrent cells, along the stream (layers, in one direction or both) and on single frames.
 *
 * A cell makes gates * H values of two products, a = x W_ih^T + b_ih and b = h W_hh^T + b_hh, and from them the
 * next h, an LSTM the next c too:
 *
 *     lstm  i, f, g, o = a + b;   c' = sigmoid(f) c + sigmoid(i) tanh(g);   h' = sigmoid(o) tanh(c')
 *     gru   r = sigmoid(a_r + b_r);   z = sigmoid(a_z + b_z);   n = tanh(a_n + r b_n);   h' = n + z (h - n)
 *     rnn   h' = tanh(a + b), or its positive part (relu)
 *
 * With a projection h' W_hr^T takes the place of an lstm's h'.
 *
 * Along the stream: in [I]. P: features of h, which are H, or where attribute `projection` is not 0 that many.
 * D: 1, or 2 where bidirectional. Weights per layer, and within it per direction (forward, then reverse):
 * weight_ih [gates * H][I, or D * P above the first layer], weight_hh [gates * H][P], where bias is 1 bias_ih and
 * bias_hh [gates * H], and where there is a projection weight_hr [P][H]; at the very end h0? [layers * D][P] and, of
 * an lstm, c0? [layers * D][H], the state before the first frame (zero without them). In place of these weights it
 * may be given as inputs behind x, of which frame 0 is read, h0 [layers * D * P] and c0. Outputs: y [D * P], frame in,
 * frame out; h_n [layers * D][P] and c_n [layers * D][H], one frame at the end. Carried: h [layers][P] and
 * c [layers][H]. Bidirectional needs the whole stream and carries nothing.
 *
 * On frames by themselves (lstm_cell, ...), every vector a stream of one: in x [..., I], then h and c [..., H], or x
 * alone, with zeros for the others; weight_ih, weight_hh, bias_ih?, bias_hh?; out h, then c; frame in, frame out.
 *
 * A layer takes all new frames of all streams through one product with W_ih; then, frame after frame, all streams
 * that have one through one product with W_hh. No row of a product depends on another, so neither chunks nor
 * neighbours show in the results.
 *
 * Source: torch.nn.LSTM, GRU, RNN, LSTMCell, GRUCell, RNNCell. */
#include <stdio.h>
#include <string.h>

#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/registry.h"

/* Members of the family; the cells' own operators are that many further on. */
enum { LSTM, GRU, RNN, SINGLE };
enum { LAYERS, WITH_BIAS, BIDIRECTIONAL, OWN /* projection, nonlinearity */ };
enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH, WEIGHT_HR }; /* of one layer in one direction */
enum { X, H };                                              /* inputs; a state's parts begin at H */
enum { Y, H_N };

/* One layer in one direction is a cell; cells are numbered layer * directions + direction. */
typedef struct sizes {
    int kind;                         /* LSTM, GRU, RNN */
    bool single, bias, relu;          /* single: frames by themselves */
    size_t layers, directions, cells; /* 1 each of a single one */
    size_t vectors;                   /* in a frame */
    size_t in, hidden, gates;         /* gates: of all, hidden of each */
    size_t projection;                /* 0: none */
    size_t out;                       /* features of h */
    int n_states;                     /* 1: h; 2: h and c */
    size_t element;
} sizes;

static size_t gates_of(const ds_op *op)
{
    static const size_t gates[] = {[LSTM] = 4, [GRU] = 3, [RNN] = 1};
    return gates[op->def->member % SINGLE];
}

static sizes recurrence_sizes_of(const ds_op *op)
{
    const ds_signature *x = &op->in[X];
    const int64_t *hh = op->weight[WEIGHT_HH].shape;
    sizes s = {.kind = op->def->member % SINGLE,
               .single = op->def->member >= SINGLE,
               .layers = 1,
               .directions = 1,
               .in = (size_t)x->shape[x->rank - 1],
               .element = ds_op_element(op)};
    if (!s.single) {
        s.layers = (size_t)op->attr[LAYERS].i;
        s.directions = op->attr[BIDIRECTIONAL].i ? 2 : 1;
        s.bias = op->attr[WITH_BIAS].i != 0;
        s.projection = s.kind == LSTM ? (size_t)op->attr[OWN].i : 0;
    }
    s.relu = op->attr[s.single ? 0 : OWN].i == 1;
    s.n_states = s.kind == LSTM ? 2 : 1;
    s.vectors = (size_t)ds_signature_elements(x) / s.in;
    s.cells = s.layers * s.directions;
    s.hidden = s.projection ? (size_t)hh[0] / gates_of(op) : (size_t)hh[1];
    s.gates = gates_of(op) * s.hidden;
    s.out = s.projection ? s.projection : s.hidden;
    return s;
}

/* Inputs of a layer's cells. */
static size_t recurrence_layer_inputs(const sizes *s, size_t layer)
{
    return layer == 0 ? s->in : s->directions * s->out;
}

/* Bytes of one cell's h (0) or c (1). */
static size_t recurrence_state_bytes(const sizes *s, int state)
{
    return (state == 0 ? s->out : s->hidden) * s->element;
}

/* Weights of one cell. */
static int recurrence_per_cell(const sizes *s)
{
    return 2 + (s->bias || s->single ? 2 : 0) + (s->projection ? 1 : 0);
}

/* The place of a cell's weight among all; -1 where it has none of this kind. */
static int recurrence_weight_index(const ds_op *op, const sizes *s, size_t cell, int which)
{
    const bool is_bias = which == BIAS_IH || which == BIAS_HH;
    if ((is_bias && !(s->single ? ds_op_has_weight(op, which) : s->bias)) ||
        (which == WEIGHT_HR && !s->projection))
        return -1;
    const int per_cell = recurrence_per_cell(s);
    return (int)cell * per_cell + (which == WEIGHT_HR ? per_cell - 1 : which);
}

/* ---------------------------------------------------------------- infer */

static ds_status recurrence_check_cell(const ds_op *op, const sizes *s, size_t cell)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh",
                                        "weight_hr"};
    const size_t layer = cell / s->directions;
    const int64_t gates = (int64_t)s->gates, out = (int64_t)s->out;
    const int64_t shapes[][2] = {[WEIGHT_IH] = {gates, (int64_t)recurrence_layer_inputs(s, layer)},
                                 [WEIGHT_HH] = {gates, out},
                                 [BIAS_IH] = {gates},
                                 [BIAS_HH] = {gates},
                                 [WEIGHT_HR] = {out, (int64_t)s->hidden}};
    for (int which = WEIGHT_IH; which <= WEIGHT_HR; which++) {
        const int at = recurrence_weight_index(op, s, cell, which);
        const int rank = which == BIAS_IH || which == BIAS_HH ? 1 : 2;
        char name[48];
        (void)snprintf(name, sizeof name, s->single ? "%s" : "%s_l%zu%s", names[which], layer,
                       cell % s->directions ? "_reverse" : "");
        if (at >= 0)
            DS_TRY(ds_op_require_weight(op, at, name, rank, shapes[which]));
    }
    return DS_OK;
}

static ds_status recurrence_check_weights(const ds_op *op, const sizes *s)
{
    const size_t n = s->cells * (size_t)recurrence_per_cell(s), n_given = (size_t)op->n_weights;
    const size_t most = n + (op->n_inputs > 1 ? 0 : (size_t)s->n_states);
    const ds_signature *const in = &op->in[X], *const ih = &op->weight[WEIGHT_IH];
    char text[160];
    DS_CHECK(!ds_op_has_weight(op, WEIGHT_IH) || ih->rank != 2 ||
                 ih->shape[1] == in->shape[in->rank - 1],
             DS_SHAPE,
             "%s: expected an input of %lld features, as its weight '%s' of shape %s has, got %lld",
             op->def->name, (long long)ih->shape[1], s->single ? "weight_ih" : "weight_ih_l0",
             ds_signature_text(ih, text, sizeof text), (long long)in->shape[in->rank - 1]);
    DS_CHECK(most <= DS_MAX_WEIGHTS, DS_LIMIT,
             "%s: %zu weights are needed, at most %d are supported", op->def->name, most,
             DS_MAX_WEIGHTS);
    DS_CHECK(s->single || (n_given >= n && n_given <= most), DS_SHAPE,
             "%s: expected %zu weights, then perhaps h0%s, got %zu", op->def->name, n,
             s->n_states == 2 ? " and c0" : "", n_given);
    for (size_t cell = 0; cell < s->cells; cell++)
        DS_TRY(recurrence_check_cell(op, s, cell));
    for (int i = 0; i < s->n_states && !s->single; i++) {
        const int64_t state[] = {(int64_t)s->cells,
                                 (int64_t)(recurrence_state_bytes(s, i) / s->element)};
        if (ds_op_has_weight(op, (int)n + i))
            DS_TRY(ds_op_require_weight(op, (int)n + i, i == 0 ? "h0" : "c0", 2, state));
    }
    return DS_OK;
}

/* States given as inputs: of single cells as x is, else all cells' side by side. */
static ds_status recurrence_check_states(const ds_op *op, const sizes *s)
{
    char text[160], want[160];
    ds_signature state = op->in[X];
    for (int i = H; i < op->n_inputs; i++) {
        state.shape[state.rank - 1] =
            (int64_t)(s->cells * recurrence_state_bytes(s, i - H) / s->element);
        DS_CHECK(ds_signature_same_shape(&op->in[i], &state), DS_SHAPE,
                 "%s: expected a state of shape %s, got %s", op->def->name,
                 ds_signature_text(&state, want, sizeof want),
                 ds_signature_text(&op->in[i], text, sizeof text));
    }
    return DS_OK;
}

/* What forward lays out in scratch, in this order. Per vector of the call (v), per lane (l), which are rows, or the
 * vectors of single cells:
 *   pointers    y, x of the input product [v] each, of the recurrent ones [l] each; lanes [l]
 *   from_x      [directions][v][gates]
 *   between     [v][directions * P], outputs of a layer below the last
 *   from_h      [l][gates]
 *   full        [l][H], what is projected
 *   state       [l], h and c one after the other, bidirectional only */
typedef struct lane {
    void *h, *c;     /* [P] and [H]; c NULL where there is none */
    size_t first, n; /* its first vector among those of the call, and how many */
    char *y;         /* where its first frame of the last layer goes */
} lane;

static ds_status recurrence_set_sizes(ds_op *op, const sizes *s)
{
    size_t most = 0;
    for (size_t cell = 0; cell < s->cells; cell++) {
        DS_TRY(ds_packed_check(&most, s->gates, recurrence_layer_inputs(s, cell / s->directions),
                               s->element));
        DS_TRY(ds_packed_check(&most, s->gates, s->out, s->element));
        DS_TRY(ds_packed_check(&most, s->out, s->hidden, s->element));
    }
    const size_t per_vector = 2 * sizeof(void *) + s->directions * s->gates * s->element +
                              (s->layers > 1 ? s->directions * s->out * s->element : 0);
    const size_t per_lane =
        2 * sizeof(void *) + sizeof(lane) + s->gates * s->element +
        (s->projection ? s->hidden * s->element : 0) +
        (s->directions == 2 ? recurrence_state_bytes(s, 0) + recurrence_state_bytes(s, 1) : 0);
    if (s->single)
        return ds_size_mul(&op->scratch.per_out, s->vectors, per_vector + per_lane);
    *(s->directions == 2 ? &op->scratch.per_out : &op->scratch.per_in) = per_vector;
    op->scratch.per_row = per_lane;
    return DS_OK;
}

static ds_status recurrence_infer(ds_op *op)
{
    const ds_signature *hh = &op->weight[WEIGHT_HH];
    const char *name = op->def->name;
    const bool single = op->def->member >= SINGLE, lstm = op->def->member % SINGLE == LSTM;
    const int rank = op->in[X].rank, n_states = lstm ? 2 : 1;
    char text[160];
    DS_CHECK(single || (op->attr[LAYERS].i >= 1 && op->attr[LAYERS].i <= DS_MAX_WEIGHTS),
             DS_ARGUMENT, "%s: layers must be 1 to %d, got %lld", name, DS_MAX_WEIGHTS,
             (long long)op->attr[LAYERS].i);
    DS_CHECK(op->n_inputs == 1 || op->n_inputs == 1 + n_states, DS_ARGUMENT,
             "%s: expected 1 input or %d, got %d", name, 1 + n_states, op->n_inputs);
    DS_CHECK(single ? rank >= 1 : rank == 1, DS_SHAPE,
             "%s: expected an input of shape (%sfeatures%s), got %s", name, single ? "..., " : "",
             single ? "" : ",", ds_signature_text(&op->in[X], text, sizeof text));
    DS_CHECK(ds_op_has_weight(op, WEIGHT_HH) && hh->rank == 2 &&
                 (single || hh->shape[0] >= (int64_t)gates_of(op)),
             DS_SHAPE, "%s: its weight 'weight_hh%s' must have shape (%zu * hidden, %s), got %s",
             name, single ? "" : "_l0", gates_of(op),
             !single && lstm && op->attr[OWN].i > 0 ? "projection" : "hidden",
             ds_signature_text(hh, text, sizeof text));
    const sizes s = recurrence_sizes_of(op);
    DS_TRY(recurrence_check_weights(op, &s));
    DS_TRY(recurrence_set_sizes(op, &s));
    DS_TRY(recurrence_check_states(op, &s));
    for (int i = 0; i < op->n_outputs && single; i++)
        op->out[i].shape[rank - 1] = (int64_t)s.hidden;
    if (single)
        return DS_OK;
    op->whole = s.directions == 2;
    op->out[Y].shape[0] = (int64_t)(s.directions * s.out);
    for (int i = 0; i < n_states; i++) {
        ds_signature *const state = &op->out[H_N + i];
        state->rank = 2;
        state->shape[0] = (int64_t)s.cells;
        state->shape[1] = (int64_t)(recurrence_state_bytes(&s, i) / s.element);
        state->rate = (ds_rate){0, 1};
        if (!op->whole)
            op->carried[op->n_carried++] =
                (ds_carried){.name = i == 0 ? "h" : "c", .array = *state};
    }
    return DS_OK;
}

static void recurrence_counts(const ds_op *op, ds_program *p)
{
    for (int i = Y; i < op->n_outputs; i++) {
        ds_root(p, i == Y ? ds_known(p, 0) : ds_const(p, 0));
        ds_root(p, i == Y ? ds_total(p, 0) : ds_const(p, 1));
    }
}

/* ---------------------------------------------------------------- prepare */

static size_t recurrence_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const sizes s = recurrence_sizes_of(op);
    size_t n_bytes = 0;
    for (size_t layer = 0; layer < s.layers; layer++) {
        n_bytes += s.directions *
                   (ds_packed_bytes(k, k->format, s.gates, recurrence_layer_inputs(&s, layer)) +
                    ds_packed_bytes(k, k->format, s.gates, s.out) +
                    (s.projection ? ds_packed_bytes(k, k->format, s.out, s.hidden) : 0));
    }
    return n_bytes;
}

static void recurrence_prepare(const ds_op *op, void *prepared, const void *const *weights,
                               const ds_real_kernels *k)
{
    const sizes s = recurrence_sizes_of(op);
    for (size_t cell = 0; cell < s.cells; cell++) {
        const void *own[WEIGHT_HR + 1];
        for (int which = WEIGHT_IH; which <= WEIGHT_HR; which++) {
            const int at = recurrence_weight_index(op, &s, cell, which);
            own[which] = at < 0 ? NULL : weights[at];
        }
        prepared = ds_packed_rows(k, prepared, own[WEIGHT_IH], s.gates,
                                  recurrence_layer_inputs(&s, cell / s.directions), own[BIAS_IH]);
        prepared = ds_packed_rows(k, prepared, own[WEIGHT_HH], s.gates, s.out, own[BIAS_HH]);
        if (s.projection)
            prepared = ds_packed_rows(k, prepared, own[WEIGHT_HR], s.out, s.hidden, NULL);
    }
}

/* ---------------------------------------------------------------- forward */

typedef struct work {
    const ds_op *op;
    const ds_run *run;
    sizes s;
    size_t n_vectors;              /* of the call, over all rows */
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
    const bool as_out = w->op->whole || w->s.single;
    *first = as_out ? w->run->out[row].m0 : count->before.known;
    const int64_t end = as_out ? w->run->out[row].m1 : count->now.known;
    return end > *first ? (size_t)(end - *first) : 0;
}

static void *recurrence_take(char **scratch, size_t n_bytes)
{
    void *const taken = *scratch;
    *scratch += n_bytes;
    return taken;
}

static work recurrence_begin(const ds_op *op, const ds_run *run)
{
    work w = {.op = op, .run = run, .s = recurrence_sizes_of(op)};
    for (size_t row = 0; row < run->n_rows; row++) {
        int64_t first;
        w.n_vectors += recurrence_row_frames(&w, row, &first) * w.s.vectors;
    }
    const size_t element = w.s.element, lanes = w.s.single ? w.n_vectors : run->n_rows;
    char *scratch = run->scratch;
    w.y_in = recurrence_take(&scratch, w.n_vectors * sizeof(void *));
    w.x_in = recurrence_take(&scratch, w.n_vectors * sizeof(void *));
    w.y_step = recurrence_take(&scratch, lanes * sizeof(void *));
    w.x_step = recurrence_take(&scratch, lanes * sizeof(void *));
    w.lanes = recurrence_take(&scratch, lanes * sizeof(lane));
    w.from_x = recurrence_take(&scratch, w.s.directions * w.n_vectors * w.s.gates * element);
    const size_t between = w.s.layers > 1 ? w.s.directions * w.s.out * element : 0;
    w.between = recurrence_take(&scratch, w.n_vectors * between);
    w.from_h = recurrence_take(&scratch, lanes * w.s.gates * element);
    w.full = recurrence_take(&scratch, w.s.projection ? lanes * w.s.hidden * element : 0);
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

static void recurrence_product(const work *w, const ds_packed *weight, void *const *y,
                               const void *const *x, size_t n)
{
    const ds_product p = {.weight = weight, .y = y, .x = x, .n_rows = n};
    ds_product_run(w->run->k, &p, w->run->pool);
}

/* x W_ih^T + b_ih for all vectors of the call. */
static void recurrence_input_product(work *w, size_t cell)
{
    const sizes *s = &w->s;
    const size_t layer = cell / s->directions, gates_bytes = s->gates * s->element,
                 in_bytes = recurrence_layer_inputs(s, layer) * s->element;
    char *to = w->from_x + cell % s->directions * w->n_vectors * gates_bytes;
    size_t n = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t end = n + recurrence_row_frames(w, row, &first) * s->vectors;
        const char *from = layer > 0 ? w->between + n * in_bytes
                           : n < end ? ds_at(&w->run->in[row], first, s->vectors * in_bytes)
                                     : NULL;
        for (; n < end; n++, from += in_bytes) {
            w->y_in[n] = to + n * gates_bytes;
            w->x_in[n] = from;
        }
    }
    recurrence_product(w, w->ih, w->y_in, w->x_in, n);
}

/* Where a row's h (0) or c (1) of a cell lies; those of single cells, which count vectors, are the outputs. */
static void *recurrence_state_of(const work *w, size_t row, size_t cell, int state)
{
    const size_t n_bytes = recurrence_state_bytes(&w->s, state);
    if (w->s.single)
        return (char *)w->run->out[(size_t)state * w->run->n_rows + row].data + cell * n_bytes;
    if (!w->op->whole)
        return (char *)w->run->carried[row] + w->op->carried[state].offset + cell * n_bytes;
    const size_t h_bytes = recurrence_state_bytes(&w->s, 0);
    return w->state + row * (h_bytes + recurrence_state_bytes(&w->s, 1)) +
           (state == 0 ? 0 : h_bytes);
}

/* Sets a state before the first frame to what is given, or zero. */
static void recurrence_set_initial(const work *w, size_t row, size_t cell, int state, void *to)
{
    const sizes *s = &w->s;
    const size_t n_bytes = recurrence_state_bytes(s, state);
    const char *all = NULL;
    if (H + state < w->op->n_inputs)
        all = ds_at(&w->run->in[(size_t)(H + state) * w->run->n_rows + row],
                    s->single ? w->run->out[row].m0 : 0,
                    (s->single ? s->vectors : s->cells) * n_bytes);
    else if (!s->single)
        all = ds_run_weight(w->op, w->run, (int)s->cells * recurrence_per_cell(s) + state);
    if (all != NULL)
        memcpy(to, all + cell * n_bytes, n_bytes);
    else
        memset(to, 0, n_bytes);
}

/* One lane for every row that has frames, or for every vector of single cells; their number. */
static size_t recurrence_open_lanes(work *w, size_t cell)
{
    const sizes *s = &w->s;
    size_t n_lanes = 0, n_before = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t n = recurrence_row_frames(w, row, &first) * s->vectors;
        for (size_t i = 0; i < n; i += w->lanes[n_lanes++].n) {
            lane *const l = &w->lanes[n_lanes];
            *l = (lane){.first = n_before + i, .n = s->single ? 1 : n};
            l->y = ds_to(&w->run->out[row], first, s->directions * s->out * s->element);
            for (int state = 0; state < s->n_states; state++) {
                void *const at = recurrence_state_of(w, row, cell + i, state);
                if (first == 0 || s->single)
                    recurrence_set_initial(w, row, cell + i, state, at);
                *(state == 0 ? &l->h : &l->c) = at;
            }
        }
        n_before += n;
    }
    return n_lanes;
}

/* One frame: h and c, of the frame before, become those of this one; of an lstm what h was is not read. */
static void recurrence_step(const work *w, void *h, void *c, const void *from_x, const void *from_h)
{
    const ds_real_kernels *const k = w->run->k;
    if (w->s.kind == LSTM)
        k->lstm_cell(h, c, from_x, from_h, w->s.hidden);
    else if (w->s.kind == GRU)
        k->gru_cell(h, from_x, from_h, w->s.hidden);
    else
        k->rnn_cell(h, from_x, from_h, w->s.hidden, w->s.relu);
}

/* Runs one cell over the frames of all lanes, those that have ended dropping out: h W_hh^T + b_hh, the cell, and
 * perhaps the projection h W_hr^T. */
static void recurrence_recur(work *w, size_t cell, size_t n_lanes)
{
    const sizes *s = &w->s;
    const size_t direction = cell % s->directions, out_bytes = s->out * s->element;
    const size_t gates_bytes = s->gates * s->element;
    const char *from_x = w->from_x + direction * w->n_vectors * gates_bytes;
    const bool last = cell / s->directions + 1 == s->layers;
    for (size_t t = 0; n_lanes > 0; t++) {
        for (size_t i = 0; i < n_lanes; i++) {
            w->y_step[i] = w->from_h + i * gates_bytes;
            w->x_step[i] = w->lanes[i].h;
        }
        recurrence_product(w, w->hh, w->y_step, w->x_step, n_lanes);
        for (size_t i = 0; i < n_lanes; i++) {
            const lane *l = &w->lanes[i];
            const size_t frame = l->first + (direction ? l->n - 1 - t : t);
            void *h = s->projection ? w->full + i * s->hidden * s->element : l->h;
            recurrence_step(w, h, l->c, from_x + frame * gates_bytes, w->y_step[i]);
            w->y_step[i] = l->h;
            w->x_step[i] = h;
        }
        if (s->projection)
            recurrence_product(w, w->hr, w->y_step, w->x_step, n_lanes);
        size_t n_left = 0;
        for (size_t i = 0; i < n_lanes; i++) {
            const lane l = w->lanes[i];
            const size_t at = direction ? l.n - 1 - t : t;
            char *to = last ? l.y + at * s->directions * out_bytes
                            : w->between + (l.first + at) * s->directions * out_bytes;
            if (!s->single) /* its h lies there */
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
        for (int i = 0; i < w->s.n_states; i++) {
            const ds_target *out = &run->out[(size_t)(H_N + i) * run->n_rows + row];
            const size_t n_bytes = recurrence_state_bytes(&w->s, i);
            if (out->m1 > out->m0)
                memcpy((char *)out->data + cell * n_bytes, recurrence_state_of(w, row, cell, i),
                       n_bytes);
        }
    }
}

static void recurrence_forward(const ds_op *op, const ds_run *run)
{
    work w = recurrence_begin(op, run);
    const sizes *s = &w.s;
    const void *layer_packed = run->prepared;
    for (size_t layer = 0; layer < s->layers; layer++) {
        const size_t cell = layer * s->directions;
        const void *packed = layer_packed;
        /* All directions read what lies between the layers before one of them overwrites it. */
        for (size_t d = 0; d < s->directions && w.n_vectors > 0; d++) {
            packed = recurrence_take_cell(&w, packed);
            recurrence_input_product(&w, cell + d);
        }
        packed = layer_packed;
        for (size_t d = 0; d < s->directions; d++) {
            packed = recurrence_take_cell(&w, packed);
            recurrence_recur(&w, cell + d, recurrence_open_lanes(&w, cell + d));
            if (!s->single)
                recurrence_emit_state(&w, cell + d);
        }
        layer_packed = packed;
    }
}

/* ---------------------------------------------------------------- operators */

#define ALONG_STREAM                                                    \
    {"layers", DS_ATTR_INT, .i = 1, .doc = "number of stacked layers"}, \
        {"bias", DS_ATTR_INT, .i = 1, .range = DS_0_OR_1,               \
         .doc = "1: bias_ih and bias_hh are given"},                    \
        {"bidirectional", DS_ATTR_INT, .range = DS_0_OR_1,              \
         .doc = "1: both directions; needs the whole stream"}
#define NONLINEARITY \
    {"nonlinearity", DS_ATTR_CHOICE, .choices = "tanh|relu", .doc = "what the sum goes through"}

static const ds_attr_def lstm_attrs[] = {
    ALONG_STREAM,
    {"projection", DS_ATTR_INT, .range = DS_FROM_0,
     .doc = "features of h where weight_hr is given; 0: it is not"},
    {0}};
static const ds_attr_def gru_attrs[] = {ALONG_STREAM, {0}};
static const ds_attr_def rnn_attrs[] = {ALONG_STREAM, NONLINEARITY, {0}};
static const ds_attr_def rnn_cell_attrs[] = {NONLINEARITY, {0}};

#define RECURRENT(op, which, outputs, text)                                  \
    DS_OPERATOR_OF(op, text, 1, outputs, -1), .member = which,               \
        .flags = DS_OP_PACKS | DS_OP_REAL | DS_OP_LOCKSTEP | DS_OP_VARIADIC, \
        .infer = recurrence_infer, DS_PREPARED(recurrence), .forward = recurrence_forward
#define CELL(op, which, outputs, text) \
    RECURRENT(op, SINGLE + which, outputs, text), .weights = cell_weights

static const char cell_weights[] = "weight_ih weight_hh bias_ih? bias_hh?";

const ds_op_def ds_op_lstm = {
    RECURRENT(lstm, LSTM, 3, "long short-term memory along the stream"), .attrs = lstm_attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* weight_hr?* h0? c0?",
    .counts = recurrence_counts};

const ds_op_def ds_op_gru = {
    RECURRENT(gru, GRU, 2, "gated recurrent units along the stream"), .attrs = gru_attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* h0?", .counts = recurrence_counts};

const ds_op_def ds_op_rnn = {
    RECURRENT(rnn, RNN, 2, "plain recurrent layers along the stream"), .attrs = rnn_attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* h0?", .counts = recurrence_counts};

const ds_op_def ds_op_lstm_cell = {
    CELL(lstm_cell, LSTM, 2,
         "one step of an LSTM for every frame by itself, from its own h and c, or from zeros")};

const ds_op_def ds_op_gru_cell = {
    CELL(gru_cell, GRU, 1,
         "one step of a GRU for every frame by itself, from its own h, or from zeros")};

const ds_op_def ds_op_rnn_cell = {
    CELL(rnn_cell, RNN, 1,
         "one step of a plain RNN for every frame by itself, from its own h, or from zeros"),
    .attrs = rnn_cell_attrs};
