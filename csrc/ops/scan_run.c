/* ops/scan_run.c: frames go through the body of a loop.
 *
 * What does not depend on what is carried runs for many frames at once, before the steps; so does what nothing that is
 * carried depends on, behind them. The steps of a body follow one another, of all rows that have a frame left together,
 * as frames of one row; or they are a chain (scan_chain.c). No row of an operator that looks at single frames depends on
 * another, so that neither chunks nor neighbours show in the results. */
#include <string.h>

#include "ops/scan.h"

enum { SCAN_BLOCK = 1 << 18 /* bytes of frames beyond one for each row, about */, SCAN_MORE = 512 };

/* ---------------------------------------------------------------- sizes */
size_t ds_scan_own_bytes(const ds_scan *s, size_t n_values, size_t more_slots)
{
    return ds_saturated_sum(n_values * (sizeof(char *) + DS_ALIGNMENT) +
                                s->n_nodes * sizeof(char *) + 8 * (size_t)DS_ALIGNMENT,
                            more_slots * (sizeof(ds_scan_slot) + sizeof(size_t)) +
                                2 * sizeof(size_t));
}

void ds_scan_set_sizes(ds_op *op)
{
    ds_scan *s = op->own;
    size_t values = 0, n_values = 0, node_call = 0, node_slot = 0, chain = 0;
    for (size_t b = 0; b < s->n_bodies; b++) {
        const ds_scan_body *body = &s->bodies[b];
        size_t n_bytes = 0;
        for (size_t v = 0; v < body->n_values; v++)
            if (!body->hidden[v])
                n_bytes = ds_saturated_sum(n_bytes, ds_signature_bytes(&body->values[v]));
        values = ds_greater(values, n_bytes);
        n_values = ds_greater(n_values, body->n_values);
        node_call = ds_greater(node_call, body->scratch_per_call);
        node_slot = ds_greater(node_slot, body->scratch_per_slot);
        chain = ds_greater(chain, ds_scan_chain_bytes(body));
    }
    const size_t slot = ds_saturated_sum(ds_saturated_sum(values, node_slot),
                                         sizeof(ds_scan_slot) + sizeof(size_t));
    s->more_slots = SCAN_BLOCK / slot < SCAN_MORE ? SCAN_BLOCK / slot : SCAN_MORE;
    op->scratch.per_row = slot;
    op->scratch.per_call =
        ds_saturated_sum(ds_scan_own_bytes(s, n_values, s->more_slots),
                         ds_saturated_sum(ds_greater(node_call, chain), s->more_slots * slot));
}

/* ---------------------------------------------------------------- slots */
/* Which of row r's frames are body b's: positions [*from, return value). */
static int64_t scan_range(const ds_scan_work *w, size_t b, size_t r, int64_t *from)
{
    const ds_target *out = &w->run->out[r];
    const bool last = b + 1 == w->s->n_bodies;
    *from = out->m0 > (int64_t)b ? out->m0 : (int64_t)b;
    return last || out->m1 < (int64_t)b + 1 ? out->m1 : (int64_t)b + 1;
}

char *ds_scan_lay_out(const ds_scan_work *w, char **places, char *at, bool hidden)
{
    for (size_t v = 0; v < w->body->n_values; v++) {
        places[v] = w->body->hidden[v] && !hidden ? NULL : at;
        if (places[v])
            at += ds_aligned(w->n_slots * ds_signature_bytes(&w->body->values[v]));
    }
    return at;
}

/* Where slot k's frame of an input is, or goes of an output. */
static char *input_at(const ds_scan_work *w, int i, size_t k)
{
    const ds_scan_slot *slot = &w->slots[k];
    const ds_window *x = &w->run->in[(size_t)i * w->run->n_rows + slot->row];
    return (char *)(uintptr_t)ds_at(x, slot->position, ds_signature_bytes(&w->op->in[i]));
}

static char *output_at(const ds_scan_work *w, int o, size_t k)
{
    const ds_scan_slot *slot = &w->slots[k];
    const ds_target *y = &w->run->out[(size_t)o * w->run->n_rows + slot->row];
    return ds_to(y, slot->position, ds_signature_bytes(&w->op->out[o]));
}

/* Whether all slots' frames lie one behind the other. */
static bool side_by_side(const ds_scan_work *w, char *(*at)(const ds_scan_work *, int, size_t),
                         int which, size_t n_bytes)
{
    char *const first = at(w, which, 0);
    for (size_t k = 1; k < w->n_slots; k++)
        if (at(w, which, k) != first + k * n_bytes)
            return false;
    return true;
}

void ds_scan_load(const ds_scan_work *w)
{
    for (int i = 0; i < w->op->n_inputs; i++) {
        const size_t n_bytes = ds_signature_bytes(&w->op->in[i]);
        if (w->n_slots > 0 && side_by_side(w, input_at, i, n_bytes)) {
            w->values[i] = input_at(w, i, 0);
            continue;
        }
        for (size_t k = 0; k < w->n_slots; k++)
            memcpy(w->values[i] + k * n_bytes, input_at(w, i, k), n_bytes);
    }
}

/* Lets nodes write an output to where it goes, if its frames lie side by side there. */
static void write_in_place(const ds_scan_work *w)
{
    for (int o = 0; o < w->op->n_outputs; o++) {
        const int v = w->body->outputs[o];
        if (v >= w->op->n_inputs + w->op->n_carried &&
            side_by_side(w, output_at, o, ds_signature_bytes(&w->op->out[o])))
            w->values[v] = output_at(w, o, 0);
    }
}

char *ds_scan_left(const ds_scan_work *w, const ds_scan_slot *slot)
{
    int64_t frame = slot->position - w->run->out[slot->row].m0;
    for (size_t before = 0; before < slot->row; before++)
        frame += w->run->out[before].m1 - w->run->out[before].m0;
    return (char *)w->run->saved[0] + (size_t)frame * w->op->saved[0].n_bytes;
}

void ds_scan_begin(const ds_scan_work *w, size_t r)
{
    for (int c = 0; c < w->op->n_carried; c++) {
        void *to = ds_run_carried(w->op, w->run, r, c);
        const void *from = ds_run_weight(w->op, w->run, c);
        const size_t n_bytes = ds_signature_bytes(&w->op->carried[c].array);
        if (from != NULL)
            memcpy(to, from, n_bytes);
        else
            memset(to, 0, n_bytes);
    }
}

/* ---------------------------------------------------------------- nodes */
void ds_scan_call_of(const ds_scan_work *w, const ds_scan_node *node, size_t first, size_t n,
                     void *scratch, ds_scan_call *call)
{
    static const bool not_ended = false;
    const ds_op *op = node->op;
    const int64_t frames = (int64_t)n;
    for (int i = 0; i < op->n_inputs; i++) {
        const char *x = w->values[node->inputs[i]];
        call->in[i] = (ds_window){x + first * ds_signature_bytes(&op->in[i]), 0, frames};
        call->count[i] = (ds_counts){{0, 0}, {frames, frames}};
    }
    for (int o = 0; o < op->n_outputs; o++) {
        char *y = w->values[node->first_output + o];
        call->out[o] = (ds_target){y + first * ds_signature_bytes(&op->out[o]), 0, frames};
    }
    for (int i = 0; i < op->n_weights; i++)
        call->weights[i] = node->weights[i] < 0 ? NULL : w->run->weights[node->weights[i]];
    call->run =
        (ds_run){.n_rows = 1,
                 .in = call->in,
                 .out = call->out,
                 .count = call->count,
                 .ended = &not_ended,
                 .prepared = w->prepared[w->body->first_node + (size_t)(node - w->body->nodes)],
                 .weights = call->weights,
                 .k = w->run->k,
                 .pool = w->run->pool,
                 .scratch = scratch,
                 .frames_in = frames,
                 .frames_out = frames};
}

/* Runs the nodes of a phase. `ahead`: those of the steps make what is known before them, and nothing else. */
static void run_nodes(const ds_scan_work *w, ds_scan_phase phase, bool ahead, size_t first,
                      size_t n, void *scratch)
{
    for (size_t j = 0; j < w->body->n_nodes; j++) {
        const ds_scan_node *node = &w->body->nodes[j];
        ds_scan_call call;
        if (node->phase != phase || (ahead ? node->ahead < 0 : node->chained))
            continue;
        ds_scan_call_of(w, node, first, n, scratch, &call);
        call.run.only_ahead = ahead;
        if (node->ahead >= 0)
            call.run.ahead =
                w->values[node->ahead] + first * ds_signature_bytes(&w->body->values[node->ahead]);
        node->op->def->forward(node->op, &call.run);
    }
}

/* ---------------------------------------------------------------- steps */
/* Slots [first, first + n): one step of as many rows. */
static void run_step(const ds_scan_work *w, size_t first, size_t n, void *scratch)
{
    const ds_op *op = w->op;
    const ds_run *run = w->run;
    for (size_t k = first; k < first + n; k++) {
        const ds_scan_slot *slot = &w->slots[k];
        if (slot->position == 0)
            ds_scan_begin(w, slot->row);
        if (run->saved && op->n_carried > 0)
            memcpy(ds_scan_left(w, slot), run->carried[slot->row], op->saved[0].n_bytes);
        for (int c = 0; c < op->n_carried; c++) {
            const size_t n_bytes = ds_signature_bytes(&op->carried[c].array);
            memcpy(w->values[op->n_inputs + c] + k * n_bytes, ds_run_carried(op, run, slot->row, c),
                   n_bytes);
        }
    }
    run_nodes(w, DS_SCAN_STEP, false, first, n, scratch);
    for (size_t k = first; k < first + n; k++)
        for (int c = 0; c < op->n_carried; c++) {
            const size_t n_bytes = ds_signature_bytes(&op->carried[c].array);
            memcpy(ds_run_carried(op, run, w->slots[k].row, c),
                   w->values[w->body->carried[c]] + k * n_bytes, n_bytes);
        }
}

/* All slots that were gathered; then there are none. */
static void run_block(ds_scan_work *w)
{
    const ds_op *op = w->op;
    if (w->n_slots == 0)
        return;
    w->groups[w->n_groups] = w->n_slots;
    char *const scratch = ds_scan_lay_out(w, w->values, w->data, false);
    ds_scan_load(w);
    write_in_place(w);
    run_nodes(w, DS_SCAN_BEFORE, false, 0, w->n_slots, scratch);
    run_nodes(w, DS_SCAN_STEP, true, 0, w->n_slots, scratch);
    if (w->body->chain)
        ds_scan_run_chain(w, scratch);
    for (size_t g = 0; g < w->n_groups && !w->body->chain; g++)
        run_step(w, w->groups[g], w->groups[g + 1] - w->groups[g], scratch);
    run_nodes(w, DS_SCAN_AFTER, false, 0, w->n_slots, scratch);
    for (int o = 0; o < op->n_outputs; o++) {
        const size_t n_bytes = ds_signature_bytes(&op->out[o]);
        const char *const y = w->values[w->body->outputs[o]];
        for (size_t k = 0; k < w->n_slots && y != output_at(w, o, 0); k++)
            memcpy(output_at(w, o, k), y + k * n_bytes, n_bytes);
    }
    w->n_slots = w->n_groups = 0;
}

bool ds_scan_take_step(ds_scan_work *w, size_t b, int64_t step, bool last_first)
{
    const size_t begin = w->n_slots;
    for (size_t r = 0; r < w->run->n_rows; r++) {
        int64_t from;
        const int64_t to = scan_range(w, b, r, &from);
        if (step < to - from)
            w->slots[w->n_slots++] = (ds_scan_slot){r, last_first ? to - 1 - step : from + step};
    }
    if (w->n_slots > begin)
        w->groups[w->n_groups++] = begin;
    return w->n_slots > begin;
}

/* Step by step, of all rows. */
static void run_rows_together(ds_scan_work *w, size_t b)
{
    for (int64_t step = 0; ds_scan_take_step(w, b, step, false); step++)
        if (w->n_slots + w->run->n_rows > w->most_slots)
            run_block(w);
    run_block(w);
}

/* Row by row, of each as many frames as there is room for. */
static void run_row_by_row(ds_scan_work *w, size_t b)
{
    for (size_t r = 0; r < w->run->n_rows; r++) {
        int64_t at;
        const int64_t to = scan_range(w, b, r, &at);
        while (at < to) {
            if (w->n_slots == w->most_slots)
                run_block(w);
            w->groups[w->n_groups++] = w->n_slots;
            while (at < to && w->n_slots < w->most_slots)
                w->slots[w->n_slots++] = (ds_scan_slot){r, at++};
        }
    }
    run_block(w);
}

size_t ds_scan_rooms(ds_scan_work *w, ds_room *room)
{
    size_t most = 0;
    for (size_t b = 0; b < w->s->n_bodies; b++)
        most = ds_greater(most, w->s->bodies[b].n_values);
    w->slots = ds_room_take(room, w->most_slots * sizeof *w->slots);
    w->groups = ds_room_take(room, (w->most_slots + 1) * sizeof *w->groups);
    w->values = ds_room_take(room, most * sizeof *w->values);
    w->prepared = ds_room_take(room, w->s->n_nodes * sizeof *w->prepared);
    ds_scan_places(w->op, w->run->k, w->run->prepared, w->prepared);
    return most;
}

void ds_scan_forward(const ds_op *op, const ds_run *run)
{
    const ds_scan *s = op->own;
    ds_scan_work w = {.op = op, .run = run, .s = s, .most_slots = run->n_rows + s->more_slots};
    ds_room room = {run->scratch};
    (void)ds_scan_rooms(&w, &room);
    w.data = room.at;
    for (size_t b = 0; b < s->n_bodies; b++) {
        w.body = &s->bodies[b];
        if (w.body->chain)
            run_row_by_row(&w, b);
        else
            run_rows_together(&w, b);
    }
}
