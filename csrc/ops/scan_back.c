/* ops/scan_back.c: a loop over frames read backwards, from the last frame of a call to its first.
 *
 * Forward leaves what is carried before each frame. So the body runs again for many frames at once, all its values are
 * kept, and its nodes are read backwards, last first, those of steps step by step: a value's slope is final when all
 * that read it have been. */
#include <string.h>

#include "ops/scan.h"

enum { BACK_BLOCK = 1 << 18 /* bytes of frames beyond one for each row, about */, BACK_MORE = 512 };

typedef struct turned {
    ds_scan_work w;
    const ds_back *b;
    char **slopes;                /* of the values; of those that are not real nothing is written */
    char *(*saved)[DS_MAX_SAVED]; /* of all nodes of a body */
} turned;

void ds_scan_set_back_sizes(ds_op *op)
{
    ds_scan *s = op->own;
    size_t values = 0, saved = 0, n_values = 0, call = 0, row = 0;
    for (size_t b = 0; b < s->n_bodies; b++) {
        const ds_scan_body *body = &s->bodies[b];
        size_t n_bytes = 0, n_saved = 0;
        for (size_t v = 0; v < body->n_values; v++)
            n_bytes = ds_saturated_sum(n_bytes, ds_signature_bytes(&body->values[v]));
        for (size_t j = 0; j < body->n_nodes; j++) {
            const ds_op *node = body->nodes[j].op;
            const ds_scratch *back = &node->back_scratch;
            for (int i = 0; i < node->n_saved; i++)
                n_saved = ds_saturated_sum(n_saved, node->saved[i].n_bytes);
            call = ds_greater(call, ds_saturated_sum(back->per_call, back->per_row));
            row = ds_greater(row, ds_saturated_sum(back->per_in, back->per_out));
        }
        call = ds_greater(call, body->scratch_per_call);
        row = ds_greater(row, body->scratch_per_slot);
        values = ds_greater(values, n_bytes);
        saved = ds_greater(saved, n_saved);
        n_values = ds_greater(n_values, body->n_values);
    }
    const size_t slot =
        ds_saturated_sum(ds_saturated_sum(2 * values, saved),
                         ds_saturated_sum(row, sizeof(ds_scan_slot) + sizeof(size_t)));
    s->more_back_slots = BACK_BLOCK / slot < BACK_MORE ? BACK_BLOCK / slot : BACK_MORE;
    const size_t own = ds_scan_own_bytes(s, 2 * n_values, s->more_back_slots) +
                       s->n_nodes * DS_MAX_SAVED * (sizeof(char *) + DS_ALIGNMENT);
    op->back_scratch.per_row = slot;
    op->back_scratch.per_call =
        ds_saturated_sum(ds_saturated_sum(own, call), s->more_back_slots * slot);
    op->saved[0].per = DS_PER_OUT;
    op->saved[0].n_bytes = 0;
    for (int c = 0; c < op->n_carried;
         c++) /* offsets are not known yet: what lay_out_carried will say */
        op->saved[0].n_bytes += ds_aligned(ds_signature_bytes(&op->carried[c].array));
    op->n_saved = 1;
}

/* Adds n elements of one type where they are real. */
static void add(const turned *t, const ds_signature *s, void *to, const void *slopes)
{
    if (to && ds_is_real(s->dtype))
        ds_back_add(t->w.run->k, to, slopes, ds_elements(s));
}

/* Slope of slot k of a value. */
static char *slope_of(const turned *t, int value, size_t k)
{
    return t->slopes[value] + k * ds_signature_bytes(&t->w.body->values[value]);
}

/* ---------------------------------------------------------------- nodes */
/* What a node saved for the slots from `first` on. */
static void saved_from(const turned *t, const ds_scan_node *node, size_t first, void **saved)
{
    for (int i = 0; i < node->op->n_saved; i++)
        saved[i] = t->saved[node - t->w.body->nodes][i] + first * node->op->saved[i].n_bytes;
}

/* Computes the values of one phase again, of slots [first, first + n). */
static void nodes_again(const turned *t, ds_scan_phase phase, size_t first, size_t n, void *scratch)
{
    for (size_t j = 0; j < t->w.body->n_nodes; j++) {
        const ds_scan_node *node = &t->w.body->nodes[j];
        void *saved[DS_MAX_SAVED];
        ds_scan_call call;
        if (node->phase != phase)
            continue;
        saved_from(t, node, first, saved);
        ds_scan_call_of(&t->w, node, first, n, scratch, &call);
        call.run.saved = node->op->n_saved ? saved : NULL;
        node->op->def->forward(node->op, &call.run);
    }
}

/* One node's slopes, from those of its outputs. */
static void node_back(const turned *t, const ds_scan_node *node, size_t first, size_t n,
                      void *scratch)
{
    const ds_op *op = node->op;
    ds_scan_call call;
    const void *dy[DS_MAX_OUTPUTS];
    ds_slope dx[DS_MAX_INPUTS];
    void *dweights[DS_MAX_WEIGHTS], *saved[DS_MAX_SAVED];
    if (node->ends_gradients || !ds_op_differentiable(op))
        return;
    saved_from(t, node, first, saved);
    ds_scan_call_of(&t->w, node, first, n, scratch, &call);
    call.run.prepared = NULL;
    call.run.saved = saved;
    for (int o = 0; o < op->n_outputs; o++)
        dy[o] = slope_of(t, node->first_output + o, first);
    for (int i = 0; i < op->n_inputs; i++) {
        char *const slopes = slope_of(t, node->inputs[i], first);
        dx[i] = (ds_slope){ds_is_real(op->in[i].dtype) ? slopes : NULL, 0, (int64_t)n};
    }
    for (int i = 0; i < op->n_weights; i++)
        dweights[i] = node->weights[i] < 0 ? NULL : t->b->dweights[node->weights[i]];
    const ds_back b = {
        .run = &call.run, .dy = dy, .dx = dx, .dweights = dweights, .scratch = scratch};
    op->def->backward(op, &b);
}

/* Those of one phase, last first. */
static void nodes_back(const turned *t, ds_scan_phase phase, size_t first, size_t n, void *scratch)
{
    for (size_t j = t->w.body->n_nodes; j-- > 0;)
        if (t->w.body->nodes[j].phase == phase)
            node_back(t, &t->w.body->nodes[j], first, n, scratch);
}

/* ---------------------------------------------------------------- slots */
/* Computes a body's values of all slots again, and clears their slopes; returns what is behind. */
static char *values_again(const turned *t)
{
    const ds_scan_work *w = &t->w;
    const ds_op *op = w->op;
    char *const slopes = ds_scan_lay_out(w, w->values, w->data, true);
    char *at = ds_scan_lay_out(w, t->slopes, slopes, true);
    memset(slopes, 0, (size_t)(at - slopes));
    ds_scan_load(w);
    for (size_t k = 0; k < w->n_slots; k++) {
        const char *const left = ds_scan_left(w, &w->slots[k]);
        for (int c = 0; c < op->n_carried; c++) {
            const size_t n_bytes = ds_signature_bytes(&op->carried[c].array);
            memcpy(w->values[op->n_inputs + c] + k * n_bytes, left + op->carried[c].offset,
                   n_bytes);
        }
    }
    for (size_t j = 0; j < w->body->n_nodes; j++)
        for (int i = 0; i < w->body->nodes[j].op->n_saved; i++) {
            t->saved[j][i] = at;
            at += ds_aligned(w->n_slots * w->body->nodes[j].op->saved[i].n_bytes);
        }
    nodes_again(t, DS_SCAN_BEFORE, 0, w->n_slots, at);
    for (size_t g = 0; g < w->n_groups; g++)
        nodes_again(t, DS_SCAN_STEP, w->groups[g], w->groups[g + 1] - w->groups[g], at);
    nodes_again(t, DS_SCAN_AFTER, 0, w->n_slots, at);
    return at;
}

static void step_back(const turned *t, size_t first, size_t n, void *scratch)
{
    const ds_scan_work *w = &t->w;
    const ds_op *op = w->op;
    for (size_t k = first; k < first + n; k++)
        for (int c = 0; c < op->n_carried; c++) {
            const ds_signature *s = &op->carried[c].array;
            void *const slopes = ds_back_carried(op, t->b, w->slots[k].row, c);
            add(t, s, slope_of(t, w->body->carried[c], k), slopes);
            memset(slopes, 0, ds_signature_bytes(s));
        }
    nodes_back(t, DS_SCAN_STEP, first, n, scratch);
    for (size_t k = first; k < first + n; k++)
        for (int c = 0; c < op->n_carried; c++) {
            void *const begun = ds_op_has_weight(op, c) ? t->b->dweights[c] : NULL;
            add(t, &op->carried[c].array,
                w->slots[k].position == 0 ? begun : ds_back_carried(op, t->b, w->slots[k].row, c),
                slope_of(t, op->n_inputs + c, k));
        }
}

/* All slots that were gathered; then there are none. */
static void block_back(turned *t)
{
    ds_scan_work *const w = &t->w;
    const ds_op *op = w->op;
    const ds_run *run = w->run;
    if (w->n_slots == 0)
        return;
    w->groups[w->n_groups] = w->n_slots;
    char *const scratch = values_again(t);
    for (int o = 0; o < op->n_outputs; o++)
        for (size_t k = 0; k < w->n_slots; k++) {
            const ds_scan_slot *slot = &w->slots[k];
            const size_t frame = (size_t)(slot->position - run->out[slot->row].m0);
            const char *const dy = t->b->dy[(size_t)o * run->n_rows + slot->row];
            add(t, &op->out[o], slope_of(t, w->body->outputs[o], k),
                dy + frame * ds_signature_bytes(&op->out[o]));
        }
    nodes_back(t, DS_SCAN_AFTER, 0, w->n_slots, scratch);
    for (size_t g = 0; g < w->n_groups; g++)
        step_back(t, w->groups[g], w->groups[g + 1] - w->groups[g], scratch);
    nodes_back(t, DS_SCAN_BEFORE, 0, w->n_slots, scratch);
    for (int i = 0; i < op->n_inputs; i++)
        for (size_t k = 0; k < w->n_slots; k++) {
            const ds_slope *dx = &t->b->dx[(size_t)i * run->n_rows + w->slots[k].row];
            const size_t n_bytes = ds_signature_bytes(&op->in[i]);
            add(t, &op->in[i], ds_slope_at(dx, w->slots[k].position, n_bytes), slope_of(t, i, k));
        }
    w->n_slots = w->n_groups = 0;
}

/* Body b's frames, of all rows together, their last ones first. */
static void body_back(turned *t, size_t b)
{
    ds_scan_work *const w = &t->w;
    w->body = &w->s->bodies[b];
    for (int64_t step = 0; ds_scan_take_step(w, b, step, true); step++)
        if (w->n_slots + w->run->n_rows > w->most_slots)
            block_back(t);
    block_back(t);
}

void ds_scan_backward(const ds_op *op, const ds_back *b)
{
    const ds_scan *s = op->own;
    ds_room room = {b->scratch};
    turned t = {
        .w = {.op = op, .run = b->run, .s = s, .most_slots = b->run->n_rows + s->more_back_slots},
        .b = b};
    t.slopes = ds_room_take(&room, ds_scan_rooms(&t.w, &room) * sizeof *t.slopes);
    t.saved = ds_room_take(&room, s->n_nodes * sizeof *t.saved);
    t.w.data = room.at;
    for (size_t i = s->n_bodies; i-- > 0;)
        body_back(&t, i);
}
