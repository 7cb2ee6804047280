/* exec/eager.c: a group of rows (exec/rows.h) whose one node, counts and states are given. */
#include "exec/eager.h"

#include <string.h>

#include "cpu/float_env.h"
#include "exec/rows.h"

int64_t ds_eager_kept_from(const ds_op *op, int input, ds_pair in, ds_pair out)
{
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    return first[input] < in.known ? first[input] : in.known;
}

ds_status ds_eager_state_bytes(const ds_op *op, const ds_pair *in, ds_pair out, size_t *n_bytes)
{
    *n_bytes = op->carried_bytes;
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    for (int i = 0; i < ds_op_n_values(op); i++) {
        size_t kept = first[i] < in[i].known ? (size_t)(in[i].known - first[i]) : 0, bytes;
        DS_CHECK(!__builtin_mul_overflow(kept, ds_signature_bytes(&op->in[i]), &bytes) &&
                     !__builtin_add_overflow(*n_bytes, bytes, n_bytes),
                 DS_NO_MEMORY, "%s: %zu kept frames do not fit into memory", op->def->name, kept);
    }
    return DS_OK;
}

typedef struct work {
    const ds_eager *call;
    ds_node node;
    ds_graph graph;
    ds_node_plan node_plan;
    ds_plan plan;
    ds_group group;
    size_t n_edges; /* value inputs, counted ones, outputs */
} work;

/* The operator as a graph of one node: each edge whose values count has a buffer of its own. */
static ds_status make_plan(work *w, ds_arena *arena)
{
    const ds_eager *call = w->call;
    const ds_op *op = call->op;
    const int n_in = op->n_inputs, n_values = ds_op_n_values(op);
    ds_edge_plan *edges;
    w->n_edges = (size_t)(n_in + op->n_outputs);
    DS_PUSH(arena, edges, w->n_edges);
    w->node = (ds_node){.op = (ds_op *)(uintptr_t)op, .first_output = n_in};
    for (int e = 0; e < (int)w->n_edges; e++) {
        const ds_signature *s = e < n_in ? &op->in[e] : &op->out[e - n_in];
        edges[e] = (ds_edge_plan){.frame_bytes = ds_signature_bytes(s),
                                  .mark = -1,
                                  .tail = -1,
                                  .buffer = e < n_values || e >= n_in ? e : -1};
        if (e < n_in)
            w->node.inputs[e] = e;
    }
    w->graph = (ds_graph){.nodes = &w->node, .n_nodes = 1, .n_edges = w->n_edges};
    w->node_plan = (ds_node_plan){.weights = (const void **)(uintptr_t)call->weights,
                                  .framewise = ds_op_framewise(op)};
    w->plan = (ds_plan){.graph = &w->graph,
                        .kernels = call->kernels,
                        .edges = edges,
                        .nodes = &w->node_plan,
                        .n_buffers = (int)w->n_edges};
    return DS_OK;
}

/* Where one row stands, as the caller says; edges: [2][n_edges]. */
static ds_row make_row(const work *w, size_t r, ds_edge_counts *edges)
{
    const ds_eager *call = w->call;
    const ds_op *op = call->op;
    ds_edge_counts *before = edges, *now = edges + w->n_edges;
    for (int e = 0; e < (int)w->n_edges; e++) {
        const bool is_input = e < op->n_inputs;
        const ds_counts *c = is_input ? &call->in[e][r] : &call->out[e - op->n_inputs][r];
        before[e] = (ds_edge_counts){c->before.known, c->before.total, c->before.known};
        now[e] = (ds_edge_counts){c->now.known, c->now.total, c->now.known};
        if (e >= ds_op_n_values(op))
            continue;
        if (call->states[r])
            before[e].from = ds_eager_kept_from(op, e, c->before, call->out[0][r].before);
        now[e].from = ds_eager_kept_from(op, e, c->now, call->out[0][r].now);
    }
    return (ds_row){{before, 0, false}, {now, 0, false}};
}

/* The group: rows, windows' places, all that a run fills. */
static ds_status make_group(work *w, ds_arena *arena)
{
    const ds_eager *call = w->call;
    const size_t n = call->n_rows, e = w->n_edges;
    ds_group *g = &w->group;
    ds_edge_counts *counts;
    size_t *offsets;
    *g = (ds_group){.n_rows = n, .ended = call->ended, .n_stretches = n};
    DS_PUSH(arena, g->rows, n);
    DS_PUSH(arena, g->stretches, n);
    DS_PUSH(arena, g->buffers, e);
    DS_PUSH(arena, g->frames, e);
    DS_PUSH(arena, g->flat, e);
    DS_PUSH(arena, g->bytes, 2 * e + 1);
    DS_PUSH(arena, g->in, n * (size_t)call->op->n_inputs);
    DS_PUSH(arena, g->count, n * (size_t)call->op->n_inputs);
    DS_PUSH(arena, g->out, n * (size_t)call->op->n_outputs);
    DS_PUSH(arena, g->carried, n);
    DS_PUSH(arena, counts, n * 2 * e);
    DS_PUSH(arena, offsets, n * e);
    ds_group_clear(&w->plan, g);
    for (size_t r = 0; r < n; r++) {
        g->rows[r] = make_row(w, r, counts + r * 2 * e);
        g->stretches[r] = (ds_stretch){r, 1, &g->rows[r], offsets + r * e};
        DS_TRY(ds_group_place(&w->plan, g, &g->stretches[r], NULL));
    }
    return DS_OK;
}

/* The window of value input i of row r, and how much of it is kept and new. */
static char *find_window(const work *w, size_t r, int i, ds_span *span)
{
    const ds_stretch *s = &w->group.stretches[r];
    *span = ds_span_of(&w->plan, s, (size_t)i);
    return ds_window_data(&w->plan, &w->group, s, span, (size_t)i, 0);
}

/* Builds the windows of value input i: the new frames where they are if no row has kept any, else
 * [kept | new] in the arena. from: [n_rows], what is unread of the states before. */
static ds_status load_windows(work *w, int i, const char **from, ds_arena *arena)
{
    ds_group *g = &w->group;
    const char *values = w->call->values[i];
    g->buffers[i] = (char *)(uintptr_t)values;
    if (g->flat[i])
        return DS_OK;
    DS_PUSH(arena, g->buffers[i], g->bytes[i]);
    for (size_t r = 0; r < g->n_rows; r++) {
        ds_span span;
        char *window = find_window(w, r, i, &span);
        const size_t kept = (size_t)span.kept * span.frame_bytes;
        const size_t fresh = (size_t)span.fresh * span.frame_bytes;
        if (kept)
            memcpy(window, from[r], kept);
        if (fresh)
            memcpy(window + kept, values, fresh);
        from[r] = kept ? from[r] + kept : from[r];
        values = fresh ? values + fresh : values;
    }
    return DS_OK;
}

static ds_status load_carried(work *w, const char *const *from, ds_arena *arena)
{
    const size_t n_bytes = w->call->op->carried_bytes;
    for (size_t r = 0; r < w->group.n_rows; r++) {
        DS_TRY(ds_arena_push(arena, &w->group.carried[r], n_bytes));
        if (!n_bytes)
            continue;
        if (w->call->states[r])
            memcpy(w->group.carried[r], from[r], n_bytes);
        else
            memset(w->group.carried[r], 0, n_bytes);
    }
    return DS_OK;
}

static ds_status load_states(work *w, ds_arena *arena)
{
    const ds_op *op = w->call->op;
    const char **from;
    DS_PUSH(arena, from, w->group.n_rows);
    for (size_t r = 0; r < w->group.n_rows; r++)
        from[r] = w->call->states[r];
    for (int i = 0; i < ds_op_n_values(op); i++)
        DS_TRY(load_windows(w, i, from, arena));
    for (int o = 0; o < op->n_outputs; o++)
        w->group.buffers[op->n_inputs + o] = w->call->outputs[o];
    return load_carried(w, from, arena);
}

static void store_states(const work *w)
{
    const ds_op *op = w->call->op;
    for (size_t r = 0; r < w->group.n_rows; r++) {
        char *to = w->call->new_states[r];
        if (!to)
            continue;
        for (int i = 0; i < ds_op_n_values(op); i++) {
            ds_span span;
            const char *window = find_window(w, r, i, &span);
            const ds_edge_counts *now = &w->group.rows[r].now.edges[i];
            const int64_t left = now->known - now->from;
            if (left)
                memcpy(to, window + (size_t)(span.kept + span.fresh - left) * span.frame_bytes,
                       (size_t)left * span.frame_bytes);
            to += (size_t)left * span.frame_bytes;
        }
        if (op->n_carried)
            memcpy(to, w->group.carried[r], op->carried_bytes);
    }
}

/* Looks at the new values of all rows; the first fault is reported. */
static ds_status check_values(const ds_eager *call)
{
    if (!call->op->def->check_values)
        return DS_OK;
    const char *values = call->values[0];
    ds_first_fault first = {DS_OK, ""};
    for (size_t r = 0; r < call->n_rows; r++) {
        int64_t n = call->in[0][r].now.known - call->in[0][r].before.known;
        call->bad[r] = false;
        ds_first_fault_note(&first, ds_op_check_values(call->op, values, n), &call->bad[r]);
        values = n ? values + (size_t)n * ds_signature_bytes(&call->op->in[0]) : values;
    }
    return ds_first_fault_end(&first);
}

/* The weights as the kernels want them: the caller's, or made for this call. */
static ds_status prepare(work *w, ds_arena *arena)
{
    const ds_eager *call = w->call;
    const ds_real_kernels *k = &call->kernels->real[ds_op_real(call->op) == DS_F64];
    const size_t n_bytes = call->prepared ? 0 : ds_op_prepared_bytes(call->op, k);
    w->node_plan.prepared = (void *)(uintptr_t)call->prepared;
    if (!n_bytes)
        return DS_OK;
    DS_TRY(ds_arena_push(arena, &w->node_plan.prepared, n_bytes));
    call->op->def->prepare(call->op, w->node_plan.prepared, call->weights, k);
    return DS_OK;
}

static ds_status run(const ds_eager *eager, ds_arena *arena)
{
    const ds_op *op = eager->op;
    work w = {.call = eager};
    DS_TRY(check_values(eager));
    ds_arena_reset(arena);
    DS_TRY(make_plan(&w, arena));
    DS_TRY(make_group(&w, arena));
    DS_TRY(load_states(&w, arena));
    if (ds_group_has_work(&w.plan, &w.group, 0)) {
        DS_TRY(ds_arena_push(arena, &w.group.scratch,
                             ds_op_scratch_bytes(op, eager->n_rows, w.group.frames[0],
                                                 w.group.frames[op->n_inputs])));
        DS_TRY(prepare(&w, arena));
        ds_group_forward(&w.plan, &w.group, 0, NULL);
    }
    store_states(&w);
    return DS_OK;
}

ds_status ds_eager_run(const ds_eager *eager, ds_arena *arena)
{
    ds_float_env callers;
    ds_float_env_enter(&callers);
    const ds_status status = run(eager, arena);
    ds_float_env_leave(&callers);
    return status;
}
