/* ops/scan_back.c: a loop over frames read backwards, from the last frame of a call to its first.
 *
 * Forward leaves what is carried before each frame. A frame's body runs again, all its values are kept, and its nodes are
 * read backwards, last first: a value's slope is final when all that read it have been. */
#include <string.h>

#include "ops/back.h"
#include "ops/scan.h"

typedef struct turned {
    ds_scan_work w;
    const ds_back *b;
    char **slopes;                /* of the values; of those that are not real nothing is written */
    void *(*saved)[DS_MAX_SAVED]; /* of all nodes of a body */
} turned;

static size_t greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

void ds_scan_set_back_sizes(ds_op *op)
{
    const ds_scan *s = op->own;
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
            call = greater(call, ds_saturated_sum(back->per_call, back->per_row));
            row = greater(row, ds_saturated_sum(back->per_in, back->per_out));
        }
        call = greater(call, body->scratch_per_call);
        row = greater(row, body->scratch_per_row);
        values = greater(values, n_bytes);
        saved = greater(saved, n_saved);
        n_values = greater(n_values, body->n_values);
    }
    const size_t own =
        2 * n_values * (sizeof(char *) + DS_ALIGNMENT) +
        s->n_nodes * (DS_MAX_SAVED * (sizeof(char *) + DS_ALIGNMENT) + sizeof(char *)) +
        6 * (size_t)DS_ALIGNMENT;
    op->back_scratch.per_call = ds_saturated_sum(own, call);
    op->back_scratch.per_row = ds_saturated_sum(ds_saturated_sum(2 * values, saved),
                                                ds_saturated_sum(row, sizeof(size_t)));
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
        ds_back_add(t->w.run->k, to, slopes, (size_t)ds_signature_elements(s));
}

/* One node's slopes, from those of its outputs. */
static void node_back(const turned *t, const ds_scan_node *node, size_t n, void *scratch,
                      void *const *saved)
{
    const ds_op *op = node->op;
    ds_scan_call call;
    const void *dy[DS_MAX_OUTPUTS];
    ds_slope dx[DS_MAX_INPUTS];
    void *dweights[DS_MAX_WEIGHTS];
    if (!ds_op_differentiable(op))
        return;
    ds_scan_call_of(&t->w, node, n, scratch, NULL, &call);
    call.run.saved = saved;
    for (int o = 0; o < op->n_outputs; o++)
        dy[o] = t->slopes[node->first_output + o];
    for (int i = 0; i < op->n_inputs; i++)
        dx[i] = (ds_slope){ds_is_real(op->in[i].dtype) ? t->slopes[node->inputs[i]] : NULL, 0,
                           (int64_t)n};
    for (int i = 0; i < op->n_weights; i++)
        dweights[i] = node->weights[i] < 0 ? NULL : t->b->dweights[node->weights[i]];
    const ds_back b = {
        .run = &call.run, .dy = dy, .dx = dx, .dweights = dweights, .scratch = scratch};
    op->def->backward(op, &b);
}

/* Computes a body's values again for the n rows that are listed, and clears their slopes; returns what is behind. */
static char *values_again(const turned *t, const ds_scan_body *body, size_t n, int64_t step)
{
    const ds_scan_work *w = &t->w;
    const ds_op *op = w->op;
    char *const slopes = ds_scan_lay_out(body, w->values, w->data, n);
    char *at = ds_scan_lay_out(body, t->slopes, slopes, n);
    memset(slopes, 0, (size_t)(at - slopes));
    ds_scan_load(w, n, step);
    for (size_t k = 0; k < n; k++) {
        const char *const left = ds_scan_left(op, w->run, w->rows[k], step);
        for (int c = 0; c < op->n_carried; c++) {
            const size_t n_bytes = ds_signature_bytes(&op->carried[c].array);
            memcpy(w->values[op->n_inputs + c] + k * n_bytes, left + op->carried[c].offset,
                   n_bytes);
        }
    }
    for (size_t j = 0; j < body->n_nodes; j++)
        for (int i = 0; i < body->nodes[j].op->n_saved; i++) {
            t->saved[j][i] = at;
            at += ds_aligned(n * body->nodes[j].op->saved[i].n_bytes);
        }
    for (size_t j = 0; j < body->n_nodes; j++) {
        const ds_scan_node *node = &body->nodes[j];
        ds_scan_call call;
        ds_scan_call_of(w, node, n, at, w->prepared[body->first_node + j], &call);
        call.run.saved = node->op->n_saved ? t->saved[j] : NULL;
        node->op->def->forward(node->op, &call.run);
    }
    return at;
}

/* Where slopes of what a row carries lie; before its first frame, where those of what it began with go. */
static void *carried_slopes(const turned *t, size_t r, int c)
{
    return (char *)t->b->dcarried[r] + t->w.op->carried[c].offset;
}

static void step_back(const turned *t, const ds_scan_body *body, size_t n, int64_t step)
{
    const ds_scan_work *w = &t->w;
    const ds_op *op = w->op;
    const ds_run *run = w->run;
    char *const scratch = values_again(t, body, n, step);
    for (size_t k = 0; k < n; k++) {
        const size_t r = w->rows[k];
        for (int c = 0; c < op->n_carried; c++) {
            const ds_signature *s = &op->carried[c].array;
            const size_t n_bytes = ds_signature_bytes(s);
            add(t, s, t->slopes[body->carried[c]] + k * n_bytes, carried_slopes(t, r, c));
            memset(carried_slopes(t, r, c), 0, n_bytes);
        }
        for (int o = 0; o < op->n_outputs; o++) {
            const size_t n_bytes = ds_signature_bytes(&op->out[o]);
            add(t, &op->out[o], t->slopes[body->outputs[o]] + k * n_bytes,
                (const char *)t->b->dy[(size_t)o * run->n_rows + r] + (size_t)step * n_bytes);
        }
    }
    for (size_t j = body->n_nodes; j-- > 0;)
        node_back(t, &body->nodes[j], n, scratch, t->saved[j]);
    for (size_t k = 0; k < n; k++) {
        const size_t r = w->rows[k];
        const int64_t position = run->out[r].m0 + step;
        for (int i = 0; i < op->n_inputs; i++) {
            const size_t n_bytes = ds_signature_bytes(&op->in[i]);
            add(t, &op->in[i],
                ds_slope_at(&t->b->dx[(size_t)i * run->n_rows + r], position, n_bytes),
                t->slopes[i] + k * n_bytes);
        }
        for (int c = 0; c < op->n_carried; c++) {
            const ds_signature *s = &op->carried[c].array;
            void *const first = ds_op_has_weight(op, c) ? t->b->dweights[c] : NULL;
            add(t, s, position == 0 ? first : carried_slopes(t, r, c),
                t->slopes[op->n_inputs + c] + k * ds_signature_bytes(s));
        }
    }
}

void ds_scan_backward(const ds_op *op, const ds_back *b)
{
    const ds_scan *s = op->own;
    ds_room room = {b->scratch};
    turned t = {.w = {.op = op, .run = b->run, .s = s}, .b = b};
    size_t most = 0;
    int64_t longest = 0;
    for (size_t i = 0; i < s->n_bodies; i++)
        most = greater(most, s->bodies[i].n_values);
    t.w.rows = ds_room_take(&room, b->run->n_rows * sizeof *t.w.rows);
    t.w.values = ds_room_take(&room, most * sizeof *t.w.values);
    t.slopes = ds_room_take(&room, most * sizeof *t.slopes);
    t.w.prepared = ds_room_take(&room, s->n_nodes * sizeof *t.w.prepared);
    t.saved = ds_room_take(&room, s->n_nodes * sizeof *t.saved);
    t.w.data = room.at;
    ds_scan_places(op, b->run->k, b->run->prepared, t.w.prepared);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const int64_t n = b->run->out[r].m1 - b->run->out[r].m0;
        longest = n > longest ? n : longest;
    }
    for (int64_t step = longest; step-- > 0;)
        for (size_t i = 0; i < s->n_bodies; i++) {
            const size_t n = ds_scan_rows(&t.w, i, step);
            if (n > 0)
                step_back(&t, &s->bodies[i], n, step);
        }
}
