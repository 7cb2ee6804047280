/* ops/recurrence.c: recurrent cells, along the stream (stacked in layers, in one direction or both), within each frame,
 * and on frames by themselves: what they are, and their weights. How they run: ops/recurrence_run.c.
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
 * Along the stream: in [I], or [lanes][I], where every lane goes its own way with the same weights. P: features of h,
 * which are H, or where attribute `projection` is not 0 that many.
 * D: 1, or 2 where bidirectional. Weights per layer, and within it per direction (forward, then reverse):
 * weight_ih [gates * H][I, or D * P above the first layer], weight_hh [gates * H][P], where bias is 1 bias_ih and
 * bias_hh [gates * H], and where there is a projection weight_hr [P][H]; at the very end h0? [layers * D][P] and, of
 * an lstm, c0? [layers * D][H], the state before the first frame of every lane (zero without them). In place of these
 * weights it may be given as inputs behind x, of which frame 0 is read, h0 [lanes][layers * D * P] and c0. Outputs: y
 * [lanes][D * P], frame in, frame out; h_n [lanes][layers * D][P] and c_n [lanes][layers * D][H], one frame at the
 * end. Carried: h [lanes][layers][P] and c [lanes][layers][H]. Without lanes all of these lack that axis.
 * Bidirectional needs the whole stream and carries nothing.
 *
 * Within each frame (lstm_within, ...): in [steps][I], or [lanes][steps][I]: every frame, and every lane of it, is a
 * sequence of its own, begun from h0 and c0, which as inputs are of the same frame, [lanes][1][layers * D * P]. Weights and outputs as along the stream, but y [lanes][steps][D * P], and
 * h_n and c_n a frame for each frame; in either direction frame in, frame out.
 *
 * On frames by themselves (lstm_cell, ...): in x [..., I], then h [..., H], then c [..., H], or x alone, with zeros
 * for the others; weight_ih, weight_hh, bias_ih?, bias_hh?; out h [..., H], then c [..., H]; frame in, frame out.
 * Every vector is a stream of one frame.
 *
 * Source: torch.nn.LSTM, GRU, RNN, LSTMCell, GRUCell, RNNCell. */
#include <stdio.h>

#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/recurrence.h"
#include "ops/registry.h"

enum { LAYERS, WITH_BIAS, BIDIRECTIONAL, OWN /* projection, nonlinearity */ };

static size_t gates_of(const ds_op *op)
{
    static const size_t gates[] = {[DS_LSTM] = 4, [DS_GRU] = 3, [DS_RNN] = 1};
    return gates[op->def->member % DS_SINGLE];
}

ds_recurrence ds_recurrence_of(const ds_op *op)
{
    const ds_signature *x = &op->in[DS_RECURRENCE_X];
    const int64_t *hh = op->weight[DS_WEIGHT_HH].shape;
    ds_recurrence s = {.kind = op->def->member % DS_SINGLE,
                       .single = op->def->member / DS_SINGLE == 1,
                       .within = op->def->member / DS_SINGLE == 2,
                       .layers = 1,
                       .directions = 1,
                       .in = ds_last_size(x),
                       .element = ds_op_element(op)};
    if (!s.single) {
        s.layers = (size_t)op->attr[LAYERS].i;
        s.directions = op->attr[BIDIRECTIONAL].i ? 2 : 1;
        s.bias = op->attr[WITH_BIAS].i != 0;
        s.projection = s.kind == DS_LSTM ? (size_t)op->attr[OWN].i : 0;
    }
    s.relu = op->attr[s.single ? 0 : OWN].i == 1;
    s.n_states = s.kind == DS_LSTM ? 2 : 1;
    s.vectors = ds_elements(x) / s.in;
    s.steps = s.within ? (size_t)x->shape[x->rank - 2] : 1;
    s.lanes = s.vectors / s.steps;
    s.cells = s.layers * s.directions;
    s.hidden = s.projection ? (size_t)hh[0] / gates_of(op) : (size_t)hh[1];
    s.gates = gates_of(op) * s.hidden;
    s.out = s.projection ? s.projection : s.hidden;
    return s;
}

/* ---------------------------------------------------------------- infer */

int ds_recurrence_weight(const ds_op *op, const ds_recurrence *s, size_t cell, int which)
{
    const bool is_bias = which == DS_BIAS_IH || which == DS_BIAS_HH;
    if ((is_bias && !(s->single ? ds_op_has_weight(op, which) : s->bias)) ||
        (which == DS_WEIGHT_HR && !s->projection))
        return -1;
    const int per_cell = ds_recurrence_per_cell(s);
    return (int)cell * per_cell + (which == DS_WEIGHT_HR ? per_cell - 1 : which);
}

static ds_status recurrence_check_cell(const ds_op *op, const ds_recurrence *s, size_t cell)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh",
                                        "weight_hr"};
    const size_t layer = cell / s->directions;
    const int64_t gates = (int64_t)s->gates, out = (int64_t)s->out;
    const int64_t shapes[][2] = {[DS_WEIGHT_IH] = {gates, (int64_t)ds_recurrence_inputs(s, layer)},
                                 [DS_WEIGHT_HH] = {gates, out},
                                 [DS_BIAS_IH] = {gates},
                                 [DS_BIAS_HH] = {gates},
                                 [DS_WEIGHT_HR] = {out, (int64_t)s->hidden}};
    for (int which = DS_WEIGHT_IH; which <= DS_WEIGHT_HR; which++) {
        const int at = ds_recurrence_weight(op, s, cell, which);
        if (at >= 0) {
            const int rank = which == DS_BIAS_IH || which == DS_BIAS_HH ? 1 : 2;
            char name[48];
            (void)snprintf(name, sizeof name, "%s_l%zu%s", names[which], layer,
                           cell % s->directions ? "_reverse" : "");
            DS_TRY(ds_op_require_weight(op, at, name, rank, shapes[which]));
        }
    }
    return DS_OK;
}

static ds_status recurrence_check_weights(const ds_op *op, const ds_recurrence *s)
{
    const size_t n = s->cells * (size_t)ds_recurrence_per_cell(s);
    const size_t n_given = (size_t)op->n_weights;
    const size_t most = n + (op->n_inputs > 1 ? 0 : (size_t)s->n_states);
    const ds_signature *const in = &op->in[DS_RECURRENCE_X], *const ih = &op->weight[DS_WEIGHT_IH];
    DS_CHECK(!ds_op_has_weight(op, DS_WEIGHT_IH) || ih->rank != 2 ||
                 ih->shape[1] == in->shape[in->rank - 1],
             DS_SHAPE,
             "%s: expected an input of %lld features, as its weight '%s' of shape %s has, got %lld",
             op->def->name, (long long)ih->shape[1], "weight_ih_l0", DS_SHAPE_TEXT(ih),
             (long long)in->shape[in->rank - 1]);
    DS_CHECK(most <= DS_MAX_WEIGHTS, DS_LIMIT,
             "%s: %zu weights are needed, at most %d are supported", op->def->name, most,
             DS_MAX_WEIGHTS);
    DS_CHECK(n_given >= n && n_given <= most, DS_SHAPE,
             "%s: expected %zu weights, then perhaps h0%s, got %zu", op->def->name, n,
             s->n_states == 2 ? " and c0" : "", n_given);
    for (size_t cell = 0; cell < s->cells; cell++)
        DS_TRY(recurrence_check_cell(op, s, cell));
    for (int i = 0; i < s->n_states; i++) {
        const int64_t state[] = {(int64_t)s->cells,
                                 (int64_t)(ds_recurrence_state_bytes(s, i) / s->element)};
        if (ds_op_has_weight(op, (int)n + i))
            DS_TRY(ds_op_require_weight(op, (int)n + i, i == 0 ? "h0" : "c0", 2, state));
    }
    return DS_OK;
}

static ds_status recurrence_set_sizes(ds_op *op, const ds_recurrence *s)
{
    size_t most = 0;
    for (size_t cell = 0; cell < s->cells; cell++) {
        DS_TRY(ds_packed_check(&most, s->gates, ds_recurrence_inputs(s, cell / s->directions),
                               s->element));
        DS_TRY(ds_packed_check(&most, s->gates, s->out, s->element));
        DS_TRY(ds_packed_check(&most, s->out, s->hidden, s->element));
    }
    const size_t per_vector = 2 * sizeof(void *) + s->directions * s->gates * s->element +
                              (s->layers > 1 ? s->directions * s->out * s->element : 0);
    const size_t per_lane =
        2 * sizeof(void *) + sizeof(ds_lane) + s->gates * s->element +
        (s->projection ? s->hidden * s->element : 0) +
        (ds_recurrence_aside(s) ? ds_recurrence_state_bytes(s, 0) + ds_recurrence_state_bytes(s, 1)
                                : 0);
    const bool along = !s->single && !s->within;
    size_t vectors;
    DS_TRY(ds_size_mul(&vectors, along ? s->vectors : s->steps, per_vector));
    if (!along)
        return ds_size_mul(&op->scratch.per_out, s->lanes, vectors + per_lane);
    *(s->directions == 2 ? &op->scratch.per_out : &op->scratch.per_in) = vectors;
    return ds_size_mul(&op->scratch.per_row, s->lanes, per_lane);
}

/* States given as inputs: of single cells as x is, else all cells' of a lane side by side, within frames at one step. */
static ds_status recurrence_check_states(const ds_op *op, const ds_recurrence *s)
{
    ds_signature state = op->in[DS_RECURRENCE_X];
    if (s->within)
        state.shape[state.rank - 2] = 1;
    for (int i = DS_RECURRENCE_H; i < op->n_inputs; i++) {
        const size_t bytes = ds_recurrence_state_bytes(s, i - DS_RECURRENCE_H);
        state.shape[state.rank - 1] = (int64_t)(s->cells * bytes / s->element);
        DS_CHECK(ds_signature_same_shape(&op->in[i], &state), DS_SHAPE,
                 "%s: expected a state of shape %s, got %s", op->def->name, DS_SHAPE_TEXT(&state),
                 DS_SHAPE_TEXT(&op->in[i]));
    }
    return DS_OK;
}

static ds_status recurrence_infer(ds_op *op)
{
    const ds_signature *hh = &op->weight[DS_WEIGHT_HH];
    const char *name = op->def->name;
    const int family = op->def->member / DS_SINGLE, rank = op->in[DS_RECURRENCE_X].rank;
    const bool single = family == 1, lstm = op->def->member % DS_SINGLE == DS_LSTM;
    const int n_states = lstm ? 2 : 1, least = family == 2 ? 2 : 1;
    DS_CHECK(op->n_inputs == 1 || op->n_inputs == 1 + n_states, DS_ARGUMENT,
             "%s: expected 1 input or %d, got %d", name, 1 + n_states, op->n_inputs);
    DS_CHECK(single || rank == least || rank == least + 1, DS_SHAPE,
             "%s: expected an input of shape %s, got %s", name,
             least == 1 ? "(features,) or (lanes, features)"
                        : "(steps, features) or (lanes, steps, features)",
             DS_SHAPE_TEXT(&op->in[DS_RECURRENCE_X]));
    DS_CHECK(ds_op_has_weight(op, DS_WEIGHT_HH) && hh->rank == 2 &&
                 hh->shape[0] >= (int64_t)gates_of(op),
             DS_SHAPE, "%s: its weight 'weight_hh_l0' must have shape (%zu * hidden, %s), got %s",
             name, gates_of(op), !single && lstm && op->attr[OWN].i > 0 ? "projection" : "hidden",
             DS_SHAPE_TEXT(hh));
    const ds_recurrence s = ds_recurrence_of(op);
    if (!single)
        DS_TRY(recurrence_check_weights(op, &s));
    DS_TRY(recurrence_set_sizes(op, &s));
    DS_TRY(recurrence_check_states(op, &s));
    ds_recurrence_set_back_sizes(op, &s);
    for (int i = 0; i < op->n_outputs && single; i++)
        op->out[i].shape[rank - 1] = (int64_t)s.hidden;
    if (single)
        return DS_OK;
    op->whole = s.directions == 2 && !s.within;
    op->out[DS_RECURRENCE_Y].shape[rank - 1] = (int64_t)(s.directions * s.out);
    for (int i = 0; i < n_states; i++) {
        ds_signature *const state = &op->out[DS_RECURRENCE_H_N + i];
        state->rank = rank - least + 2; /* behind the lanes, if there are any */
        state->shape[state->rank - 2] = (int64_t)s.cells;
        state->shape[state->rank - 1] = (int64_t)(ds_recurrence_state_bytes(&s, i) / s.element);
        op->at_end |= s.within ? 0 : 1U << (DS_RECURRENCE_H_N + i);
        if (!op->whole && !s.within)
            op->carried[op->n_carried++] =
                (ds_carried){.name = i == 0 ? "h" : "c", .array = *state};
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- prepare */

static size_t recurrence_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_recurrence s = ds_recurrence_of(op);
    size_t n_bytes = 0;
    for (size_t layer = 0; layer < s.layers; layer++) {
        n_bytes += s.directions *
                   (ds_packed_bytes(k, k->format, s.gates, ds_recurrence_inputs(&s, layer)) +
                    ds_packed_bytes(k, k->format, s.gates, s.out) +
                    (s.projection ? ds_packed_bytes(k, k->format, s.out, s.hidden) : 0));
    }
    return n_bytes;
}

static void recurrence_prepare(const ds_op *op, void *prepared, const void *const *weights,
                               const ds_real_kernels *k)
{
    const ds_recurrence s = ds_recurrence_of(op);
    for (size_t cell = 0; cell < s.cells; cell++) {
        int at[DS_WEIGHT_HR + 1];
        for (int which = DS_WEIGHT_IH; which <= DS_WEIGHT_HR; which++)
            at[which] = ds_recurrence_weight(op, &s, cell, which);
        const int of_x = at[DS_BIAS_IH], of_h = at[DS_BIAS_HH];
        prepared = ds_packed_rows(k, prepared, weights, at[DS_WEIGHT_IH], 0, s.gates,
                                  ds_recurrence_inputs(&s, cell / s.directions),
                                  of_x < 0 ? NULL : weights[of_x]);
        prepared = ds_packed_rows(k, prepared, weights, at[DS_WEIGHT_HH], 0, s.gates, s.out,
                                  of_h < 0 ? NULL : weights[of_h]);
        if (s.projection)
            prepared =
                ds_packed_rows(k, prepared, weights, at[DS_WEIGHT_HR], 0, s.out, s.hidden, NULL);
    }
}

static size_t recurrence_narrows(const ds_op *op, int i)
{
    const ds_recurrence s = ds_recurrence_of(op);
    const bool of_cell = i < (int)s.cells * ds_recurrence_per_cell(&s);
    return of_cell && op->weight[i].rank == 2 ? (size_t)op->weight[i].shape[1] : 0;
}

/* The products with the input of a single cell. */
static size_t recurrence_ahead(const ds_op *op)
{
    return ds_recurrence_of(op).gates;
}

/* ---------------------------------------------------------------- operators */

#define STACKED                                                                            \
    {"layers",           DS_ATTR_INT,           .i = 1, .doc = "number of stacked layers", \
     .range = DS_FROM_1, .most = DS_MAX_WEIGHTS},                                          \
        {"bias", DS_ATTR_INT, .i = 1, .range = DS_0_OR_1,                                  \
         .doc = "1: bias_ih and bias_hh are given"},                                       \
        {"bidirectional", DS_ATTR_INT, .range = DS_0_OR_1,                                 \
         .doc = "1: both directions, which along the stream needs all of it"}
#define NONLINEARITY \
    {"nonlinearity", DS_ATTR_CHOICE, .choices = "tanh|relu", .doc = "what the sum goes through"}

static const ds_attr_def lstm_attrs[] = {
    STACKED,
    {"projection", DS_ATTR_INT, .range = DS_FROM_0,
     .doc = "features of h where weight_hr is given; 0: it is not"},
    {0}};
static const ds_attr_def gru_attrs[] = {STACKED, {0}};
static const ds_attr_def rnn_attrs[] = {STACKED, NONLINEARITY, {0}};
static const ds_attr_def rnn_cell_attrs[] = {NONLINEARITY, {0}};

#define RECURRENT(op, which, outputs, text, more)                                                 \
    DS_OPERATOR_OF(op, text, 1, outputs, -1), .member = which,                                    \
        .flags = DS_OP_PACKS | DS_OP_REAL | (more), .infer = recurrence_infer,                    \
        DS_PREPARED(recurrence), .narrows = recurrence_narrows, .forward = ds_recurrence_forward, \
        .backward = ds_recurrence_backward, .reads = DS_READS_ALL_X | DS_READS_CARRIED
#define STREAM(op, which, outputs, text)                    \
    RECURRENT(op, which, outputs, text " along the stream", \
              DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_NEEDS_FRAMES)
#define WITHIN(op, which, outputs, text)                                     \
    RECURRENT(op, 2 * DS_SINGLE + which, outputs, text " within each frame", \
              DS_OP_LOCKSTEP | DS_OP_VARIADIC)
#define CELL(op, which, outputs, states, gates, text)                                 \
    RECURRENT(op, DS_SINGLE + which, outputs, text, DS_OP_LOCKSTEP | DS_OP_VARIADIC), \
        .shapes = "[.., features]; " states "weight_ih [" gates "hidden, features]; " \
                  "weight_hh [" gates "hidden, hidden]; bias_ih? [" gates "hidden]; " \
                  "bias_hh? [" gates "hidden]",                                       \
        .ahead = recurrence_ahead
#define STACKED_LSTM                                                                            \
    .attrs = lstm_attrs, .shapes =                                                              \
                             "weight_ih*; weight_hh*; bias_ih?*; bias_hh?*; weight_hr?*; h0?; " \
                             "c0?"
#define STACKED_OTHER(own) \
    .attrs = own, .shapes = "weight_ih*; weight_hh*; bias_ih?*; bias_hh?*; h0?"

const ds_op_def ds_op_lstm = {STREAM(lstm, DS_LSTM, 3, "long short-term memory"), STACKED_LSTM};
const ds_op_def ds_op_gru = {STREAM(gru, DS_GRU, 2, "gated recurrent units"),
                             STACKED_OTHER(gru_attrs)};
const ds_op_def ds_op_rnn = {STREAM(rnn, DS_RNN, 2, "plain recurrent layers"),
                             STACKED_OTHER(rnn_attrs)};

const ds_op_def ds_op_lstm_within = {WITHIN(lstm_within, DS_LSTM, 3, "long short-term memory"),
                                     STACKED_LSTM};
const ds_op_def ds_op_gru_within = {WITHIN(gru_within, DS_GRU, 2, "gated recurrent units"),
                                    STACKED_OTHER(gru_attrs)};
const ds_op_def ds_op_rnn_within = {WITHIN(rnn_within, DS_RNN, 2, "plain recurrent layers"),
                                    STACKED_OTHER(rnn_attrs)};

const ds_op_def ds_op_lstm_cell = {
    CELL(lstm_cell, DS_LSTM, 2, "[.., hidden]; [.., hidden]; ", "4*",
         "one step of an LSTM for every frame by itself, from its own h and c, or from zeros")};

const ds_op_def ds_op_gru_cell = {
    CELL(gru_cell, DS_GRU, 1, "[.., hidden]; ", "3*",
         "one step of a GRU for every frame by itself, from its own h, or from zeros")};

const ds_op_def ds_op_rnn_cell = {
    CELL(rnn_cell, DS_RNN, 1, "[.., hidden]; ", "",
         "one step of a plain RNN for every frame by itself, from its own h, or from zeros"),
    .attrs = rnn_cell_attrs};
