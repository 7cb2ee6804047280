/* ops/recurrence_run.c: how recurrent cells run (ops/recurrence.c has what they are).
 *
 * A layer takes all new vectors of all streams through one product with W_ih; then, step after step, all lanes that
 * have one through one product with W_hh. A lane is what goes from step to step: along the stream each lane of a row,
 * within frames each lane of a frame, of single cells each vector, with one step. No row of a product depends on
 * another, so neither chunks nor neighbours show in the results. */
#include <string.h>

#include "ops/packed.h"
#include "ops/recurrence.h"
#include "ops/sums.h"

/* What lies in scratch, in this order. Per vector of the call (v), per lane (l):
 *   pointers    y, x of the input product [v] each, of the recurrent ones [l] each; lanes [l]
 *   from_x      [directions][v][gates]
 *   between     [v][directions * P], outputs of a layer below the last
 *   from_h      [l][gates]
 *   full        [l][H], what is projected
 *   state       [l], h and c one after the other, where they are neither carried nor outputs */
typedef struct work {
    const ds_op *op;
    const ds_run *run;
    ds_recurrence s;
    size_t n_vectors;              /* of the call, over all rows */
    const ds_packed *ih, *hh, *hr; /* of the cell at hand */
    void **y_in, **y_step;
    const void **x_in, **x_step;
    ds_lane *lanes;
    char *from_x, *between, *from_h, *full, *state;
} work;

static void *recurrence_take(char **scratch, size_t n_bytes)
{
    void *const taken = *scratch;
    *scratch += n_bytes;
    return taken;
}

static work recurrence_begin(const ds_op *op, const ds_run *run)
{
    work w = {.op = op, .run = run, .s = ds_recurrence_of(op)};
    size_t lanes = 0;
    for (size_t row = 0; row < run->n_rows; row++) {
        int64_t first;
        const size_t n_frames = ds_recurrence_frames(op, &w.s, run, row, &first);
        w.n_vectors += n_frames * w.s.vectors;
        lanes += ds_recurrence_lanes(&w.s, n_frames);
    }
    const size_t element = w.s.element;
    char *scratch = run->scratch;
    w.y_in = recurrence_take(&scratch, w.n_vectors * sizeof(void *));
    w.x_in = recurrence_take(&scratch, w.n_vectors * sizeof(void *));
    w.y_step = recurrence_take(&scratch, lanes * sizeof(void *));
    w.x_step = recurrence_take(&scratch, lanes * sizeof(void *));
    w.lanes = recurrence_take(&scratch, lanes * sizeof(ds_lane));
    w.from_x = recurrence_take(&scratch, w.s.directions * w.n_vectors * w.s.gates * element);
    if (run->ahead)
        w.from_x = run->ahead;
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
                               const void *const *x, size_t n, bool backwards)
{
    const ds_product p = {.weight = weight, .y = y, .x = x, .n_rows = n, .backwards = backwards};
    ds_product_run(w->run->k, &p, w->run->pool);
}

/* x W_ih^T + b_ih for all vectors of the call. */
static void recurrence_input_product(work *w, size_t cell)
{
    const ds_recurrence *s = &w->s;
    const size_t layer = cell / s->directions, gates_bytes = s->gates * s->element,
                 in_bytes = ds_recurrence_inputs(s, layer) * s->element;
    char *to = w->from_x + cell % s->directions * w->n_vectors * gates_bytes;
    size_t n = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t end = n + ds_recurrence_frames(w->op, &w->s, w->run, row, &first) * s->vectors;
        const char *from = layer > 0 ? w->between + n * in_bytes
                           : n < end ? ds_at(&w->run->in[row], first, s->vectors * in_bytes)
                                     : NULL;
        for (; n < end; n++, from += in_bytes) {
            w->y_in[n] = to + n * gates_bytes;
            w->x_in[n] = from;
        }
    }
    recurrence_product(w, w->ih, w->y_in, w->x_in, n, false);
}

/* Where h (0) or c (1) of a cell lies for a lane of a row, number `place` of the call. Those of single cells are the
 * outputs. */
static void *recurrence_state_of(const work *w, size_t row, size_t l, size_t place, size_t cell,
                                 int state)
{
    const size_t n_bytes = ds_recurrence_state_bytes(&w->s, state);
    if (w->s.single)
        return (char *)w->run->out[(size_t)state * w->run->n_rows + row].data + l * n_bytes;
    if (!ds_recurrence_aside(&w->s))
        return (char *)ds_run_carried(w->op, w->run, row, state) +
               (l * w->s.cells + cell) * n_bytes;
    const size_t h_bytes = ds_recurrence_state_bytes(&w->s, 0);
    return w->state + place * (h_bytes + ds_recurrence_state_bytes(&w->s, 1)) +
           (state == 0 ? 0 : h_bytes);
}

/* Sets a state before the first step to what is given, or zero. */
static void recurrence_set_initial(const work *w, size_t row, size_t l, size_t cell, int state,
                                   void *to)
{
    const ds_recurrence *s = &w->s;
    const size_t n_bytes = ds_recurrence_state_bytes(s, state);
    const char *all = NULL;
    size_t place = s->single ? l : cell;
    if (DS_RECURRENCE_H + state < w->op->n_inputs) {
        all =
            ds_at(&w->run->in[(size_t)(DS_RECURRENCE_H + state) * w->run->n_rows + row],
                  s->single || s->within ? w->run->out[row].m0 : 0, s->lanes * s->cells * n_bytes);
        place = l * s->cells + cell;
    } else if (!s->single) {
        all = ds_run_weight(w->op, w->run, (int)s->cells * ds_recurrence_per_cell(s) + state);
    }
    if (all != NULL)
        memcpy(to, all + place * n_bytes, n_bytes);
    else
        memset(to, 0, n_bytes);
}

/* All lanes of the call that have a step; their number. */
static size_t recurrence_open_lanes(work *w, size_t cell)
{
    const ds_recurrence *s = &w->s;
    const bool along = !s->single && !s->within;
    const size_t y_bytes = s->directions * s->out * s->element;
    size_t n_lanes = 0, n_before = 0, place = 0;
    for (size_t row = 0; row < w->run->n_rows; row++) {
        int64_t first;
        const size_t n_frames = ds_recurrence_frames(w->op, &w->s, w->run, row, &first);
        const size_t n = ds_recurrence_lanes(&w->s, n_frames);
        char *const y = ds_to(&w->run->out[row], first, s->vectors * y_bytes);
        for (size_t l = 0; l < n && n_frames > 0; l++) {
            ds_lane *const new = &w->lanes[n_lanes++];
            *new = (ds_lane){.first = n_before + l * s->steps, .n = along ? n_frames : s->steps};
            new->y = y + l * s->steps * y_bytes;
            for (int state = 0; state < s->n_states; state++) {
                void *const at = recurrence_state_of(w, row, l, place + l, cell, state);
                if (first == 0 || !along)
                    recurrence_set_initial(w, row, l, cell, state, at);
                *(state == 0 ? &new->h : &new->c) = at;
            }
        }
        n_before += n_frames * s->vectors;
        place += n;
    }
    return n_lanes;
}

/* One frame: h and c, of the frame before, become those of this one; of an lstm what h was is not read. */
static void recurrence_step(const work *w, void *h, void *c, const void *from_x, const void *from_h)
{
    const ds_real_kernels *const k = w->run->k;
    if (w->s.kind == DS_LSTM)
        k->lstm_cell(h, c, from_x, from_h, w->s.hidden);
    else if (w->s.kind == DS_GRU)
        k->gru_cell(h, from_x, from_h, w->s.hidden);
    else
        k->rnn_cell(h, from_x, from_h, w->s.hidden, w->s.relu);
}

/* Writes what a cell's gates are functions of. */
static void leave_gates(const work *w, char *left, const void *from_x, const void *from_h)
{
    const ds_recurrence *s = &w->s;
    const size_t n = s->kind == DS_GRU ? 2 * s->hidden : s->gates, n_bytes = n * s->element;
    w->run->k->binary(DS_BINARY_ADD, left, from_x, from_h, n, 1, 1);
    if (s->kind == DS_GRU) {
        const size_t part = s->hidden * s->element;
        memcpy(left + n_bytes, (const char *)from_x + n_bytes, part);
        memcpy(left + n_bytes + part, (const char *)from_h + n_bytes, part);
    }
}

/* Runs one cell over the frames of all lanes, those that have ended dropping out: h W_hh^T + b_hh, the cell, and
 * perhaps the projection h W_hr^T. */
static void recurrence_recur(work *w, size_t cell, size_t n_lanes)
{
    const ds_recurrence *s = &w->s;
    const size_t direction = cell % s->directions, out_bytes = s->out * s->element;
    const size_t gates_bytes = s->gates * s->element;
    const char *from_x = w->from_x + direction * w->n_vectors * gates_bytes;
    const bool last = cell / s->directions + 1 == s->layers;
    const size_t apart = s->single || s->within ? 1 : s->lanes; /* a lane's vectors */
    const size_t left_bytes = ds_recurrence_left_bytes(s);
    char *const left =
        w->run->saved ? (char *)w->run->saved[0] + cell * w->n_vectors * left_bytes : NULL;
    for (size_t t = 0; n_lanes > 0; t++) {
        for (size_t i = 0; i < n_lanes; i++) {
            w->y_step[i] = w->from_h + i * gates_bytes;
            w->x_step[i] = w->lanes[i].h;
        }
        /* Forth and back from step to step: what the caches still hold of the weight is read first. */
        recurrence_product(w, w->hh, w->y_step, w->x_step, n_lanes, t % 2 == 1);
        for (size_t i = 0; i < n_lanes; i++) {
            const ds_lane *l = &w->lanes[i];
            const size_t vector = l->first + (direction ? l->n - 1 - t : t) * apart;
            void *h = s->projection ? w->full + i * s->hidden * s->element : l->h;
            if (w->run->saved)
                leave_gates(w, left + vector * left_bytes, from_x + vector * gates_bytes,
                            w->y_step[i]);
            recurrence_step(w, h, l->c, from_x + vector * gates_bytes, w->y_step[i]);
            w->y_step[i] = l->h;
            w->x_step[i] = h;
        }
        if (s->projection)
            recurrence_product(w, w->hr, w->y_step, w->x_step, n_lanes, t % 2 == 1);
        size_t n_left = 0;
        for (size_t i = 0; i < n_lanes; i++) {
            const ds_lane l = w->lanes[i];
            const size_t at = (direction ? l.n - 1 - t : t) * apart;
            char *to = last ? l.y + at * s->directions * out_bytes
                            : w->between + (l.first + at) * s->directions * out_bytes;
            if (w->run->saved) {
                char *const vector = left + (l.first + at) * left_bytes;
                memcpy(vector + ds_recurrence_left(s, DS_LEFT_H), l.h, out_bytes);
                if (l.c)
                    memcpy(vector + ds_recurrence_left(s, DS_LEFT_C), l.c, s->hidden * s->element);
            }
            if (!s->single) /* its h lies there */
                memcpy(to + direction * out_bytes, l.h, out_bytes);
            if (l.n > t + 1)
                w->lanes[n_left++] = l;
        }
        n_lanes = n_left;
    }
}

/* h_n and c_n of the streams that end, or of every frame. */
static void recurrence_emit_state(const work *w, size_t cell)
{
    const ds_run *run = w->run;
    size_t place = 0;
    for (size_t row = 0; row < run->n_rows; row++) {
        int64_t first;
        for (int i = 0; i < w->s.n_states; i++) {
            const ds_target *out = &run->out[(size_t)(DS_RECURRENCE_H_N + i) * run->n_rows + row];
            const size_t n_bytes = ds_recurrence_state_bytes(&w->s, i);
            const size_t n = (size_t)(out->m1 - out->m0) * w->s.lanes;
            for (size_t l = 0; l < n; l++)
                memcpy((char *)out->data + (l * w->s.cells + cell) * n_bytes,
                       recurrence_state_of(w, row, l, place + l, cell, i), n_bytes);
        }
        place +=
            ds_recurrence_lanes(&w->s, ds_recurrence_frames(w->op, &w->s, w->run, row, &first));
    }
}

void ds_recurrence_drop(const ds_op *op, const ds_recurrence *s, const ds_run *run, size_t layer,
                        void *outputs)
{
    const size_t width = s->directions * s->out;
    size_t at = 0;
    for (size_t row = 0; row < run->n_rows && run->drop; row++) {
        int64_t first;
        const uint64_t key = ds_draw(run->drop->keys[row], layer);
        const size_t n = ds_recurrence_frames(op, s, run, row, &first) * s->vectors * width;
        for (size_t i = 0; i < n; i++, at++) {
            const uint64_t place = (uint64_t)first * s->vectors * width + i;
            const double factor = ds_drop_factor(run->drop, key, place);
            ds_sums_set_real(outputs, s->element, at,
                             ds_sums_real(outputs, s->element, at) * factor);
        }
    }
}

void ds_recurrence_forward(const ds_op *op, const ds_run *run)
{
    work w = recurrence_begin(op, run);
    const ds_recurrence *s = &w.s;
    const void *layer_packed = run->prepared;
    for (size_t layer = 0; layer < s->layers; layer++) {
        const size_t cell = layer * s->directions;
        const void *packed = layer_packed;
        /* All directions read what lies between the layers before one of them overwrites it. */
        for (size_t d = 0; d < s->directions && w.n_vectors > 0; d++) {
            packed = recurrence_take_cell(&w, packed);
            if (!run->ahead || run->only_ahead)
                recurrence_input_product(&w, cell + d);
        }
        if (run->only_ahead)
            return;
        packed = layer_packed;
        for (size_t d = 0; d < s->directions; d++) {
            packed = recurrence_take_cell(&w, packed);
            recurrence_recur(&w, cell + d, recurrence_open_lanes(&w, cell + d));
            if (!s->single)
                recurrence_emit_state(&w, cell + d);
        }
        if (layer + 1 < s->layers)
            ds_recurrence_drop(op, s, run, layer, w.between);
        layer_packed = packed;
    }
}
