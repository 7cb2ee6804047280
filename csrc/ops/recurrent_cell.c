/* ops/recurrent_cell.c: cells on frames by themselves; the formulas are in lstm.c, gru.c and rnn.c.
 *
 * All vectors of all frames go through one product with W_ih and one with W_hh; a state that is not
 * given is a row of zeros, which goes through its product like any other. */
#include "ops/recurrent_cell.h"

#include <string.h>

#include "ops/packed.h"

enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH };
enum { X, H }; /* inputs; the state's parts begin at H */

typedef struct sizes {
    size_t vectors; /* in a frame */
    size_t in, hidden, gates, element;
} sizes;

static sizes cell_sizes_of(const ds_op *op, const ds_cell *cell)
{
    const ds_signature *x = &op->in[X];
    sizes s = {.vectors = 1,
               .in = (size_t)x->shape[x->rank - 1],
               .hidden = (size_t)op->weight[WEIGHT_HH].shape[1],
               .element = ds_op_element(op)};
    s.gates = cell->gates * s.hidden;
    for (int i = 0; i + 1 < x->rank; i++)
        s.vectors *= (size_t)x->shape[i];
    return s;
}

/* ---------------------------------------------------------------- infer */

static ds_status cell_check_weights(const ds_op *op, const sizes *s)
{
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const int64_t gates = (int64_t)s->gates;
    for (int i = WEIGHT_IH; i <= BIAS_HH; i++) {
        if (i <= WEIGHT_HH || ds_op_has_weight(op, i)) {
            const int64_t shape[] = {gates, (int64_t)(i == WEIGHT_IH ? s->in : s->hidden)};
            DS_TRY(ds_op_require_weight(op, i, names[i], i <= WEIGHT_HH ? 2 : 1, shape));
        }
    }
    return DS_OK;
}

static ds_status cell_set_sizes(ds_op *op, const sizes *s)
{
    const size_t vector = s->hidden * s->element;
    size_t most = 0;
    DS_TRY(ds_packed_check(&most, s->gates, s->in, s->element));
    DS_TRY(ds_packed_check(&most, s->gates, s->hidden, s->element));
    op->scratch.per_call = vector;
    return ds_size_mul(&op->scratch.per_out, s->vectors,
                       2 * sizeof(void *) + 2 * s->gates * s->element);
}

ds_status ds_cell_infer(ds_op *op, const ds_cell *cell)
{
    const ds_signature *x = &op->in[X], *weight = &op->weight[WEIGHT_HH];
    const char *name = op->def->name;
    char text[160], want[160];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(op->n_inputs == 1 || op->n_inputs == 1 + cell->n_states, DS_ARGUMENT,
             "%s: expected 1 input or %d, got %d", name, 1 + cell->n_states, op->n_inputs);
    DS_CHECK(x->rank >= 1, DS_SHAPE, "%s: expected an input of shape (..., features), got ()",
             name);
    DS_CHECK(ds_op_has_weight(op, WEIGHT_HH) && weight->rank == 2, DS_SHAPE,
             "%s: its weight 'weight_hh' must have shape (%zu * hidden, hidden), got %s", name,
             cell->gates, ds_signature_text(weight, text, sizeof text));
    const sizes s = cell_sizes_of(op, cell);
    DS_TRY(cell_check_weights(op, &s));
    DS_TRY(cell_set_sizes(op, &s));

    ds_signature state = *x;
    state.shape[x->rank - 1] = (int64_t)s.hidden;
    for (int i = H; i < op->n_inputs; i++) {
        DS_CHECK(ds_signature_same_shape(&op->in[i], &state), DS_SHAPE,
                 "%s: expected a state of shape %s, got %s", name,
                 ds_signature_text(&state, want, sizeof want),
                 ds_signature_text(&op->in[i], text, sizeof text));
    }
    for (int i = 0; i < op->n_outputs; i++)
        op->out[i] = state;
    return DS_OK;
}

size_t ds_cell_prepared_bytes(const ds_op *op, const ds_cell *cell, const ds_real_kernels *k)
{
    const sizes s = cell_sizes_of(op, cell);
    return ds_packed_bytes(k, s.gates, s.in) + ds_packed_bytes(k, s.gates, s.hidden);
}

void ds_cell_prepare(const ds_op *op, const ds_cell *cell, void *prepared,
                     const void *const *weights, const ds_real_kernels *k)
{
    const sizes s = cell_sizes_of(op, cell);
    prepared = ds_packed_rows(k, prepared, weights[WEIGHT_IH], s.gates, s.in,
                              ds_op_has_weight(op, BIAS_IH) ? weights[BIAS_IH] : NULL);
    ds_packed_rows(k, prepared, weights[WEIGHT_HH], s.gates, s.hidden,
                   ds_op_has_weight(op, BIAS_HH) ? weights[BIAS_HH] : NULL);
}

/* ---------------------------------------------------------------- forward */

/* Points at all vectors of an input, or at one row of zeros for each where it is absent. */
static void cell_point(const ds_op *op, const ds_run *run, const sizes *s, int input,
                       const void *zeros, const void **to)
{
    const size_t n_bytes = (input == X ? s->in : s->hidden) * s->element;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        if (out->m1 <= out->m0)
            continue;
        const size_t n = (size_t)(out->m1 - out->m0) * s->vectors;
        const char *from = zeros;
        if (input < op->n_inputs) {
            const ds_window *window = &run->in[(size_t)input * run->n_rows + row];
            from = ds_at(window, out->m0, s->vectors * n_bytes);
        }
        for (size_t i = 0; i < n; i++)
            *to++ = input < op->n_inputs ? from + i * n_bytes : from;
    }
}

/* Sets an output to the state before, as the cell wants it. */
static void cell_copy_state(const ds_op *op, const ds_run *run, const sizes *s, size_t row,
                            int state)
{
    const ds_target *out = &run->out[(size_t)state * run->n_rows + row];
    const size_t frame = s->vectors * s->hidden * s->element;
    const size_t n_bytes = (size_t)(out->m1 - out->m0) * frame;
    if (H + state < op->n_inputs) {
        const ds_window *window = &run->in[(size_t)(H + state) * run->n_rows + row];
        memcpy(out->data, ds_at(window, out->m0, frame), n_bytes);
    } else {
        memset(out->data, 0, n_bytes);
    }
}

void ds_cell_forward(const ds_op *op, const ds_cell *cell, const ds_run *run)
{
    const sizes s = cell_sizes_of(op, cell);
    const size_t n = (size_t)run->frames_out * s.vectors, n_bytes = s.gates * s.element;
    if (n == 0)
        return;
    char *scratch = run->scratch;
    void **y = (void *)scratch;
    const void **x = (void *)(scratch + n * sizeof(void *));
    char *from_x = scratch + 2 * n * sizeof(void *), *from_h = from_x + n * n_bytes;
    char *zeros = from_h + n * n_bytes;
    memset(zeros, 0, s.hidden * s.element);

    for (int input = X; input <= H; input++) {
        char *to = input == X ? from_x : from_h;
        for (size_t i = 0; i < n; i++)
            y[i] = to + i * n_bytes;
        cell_point(op, run, &s, input, zeros, x);
        const ds_product p = {.weight = input == X ? run->prepared : ds_packed_next(run->prepared),
                              .y = y,
                              .x = x,
                              .n_rows = n};
        ds_product_run(run->k, &p, run->pool);
    }

    size_t at = 0;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        if (out->m1 <= out->m0)
            continue;
        for (int state = 0; state < cell->n_states; state++)
            cell_copy_state(op, run, &s, row, state);
        char *h = out->data;
        char *c = cell->n_states == 2 ? run->out[run->n_rows + row].data : NULL;
        const size_t n_vectors = (size_t)(out->m1 - out->m0) * s.vectors;
        for (size_t i = 0; i < n_vectors; i++, at++) {
            const size_t offset = i * s.hidden * s.element;
            cell->step(run->k, h + offset, c == NULL ? NULL : c + offset, from_x + at * n_bytes,
                       from_h + at * n_bytes, s.hidden);
        }
    }
}
