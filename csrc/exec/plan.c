/* exec/plan.c: analyses and rewrites a graph, then lays out buffers, a stream's block, and what calls look up. */
#include "exec/plan.h"

#include <string.h>

#include "exec/budget.h"
#include "exec/positions.h"
#include "exec/weights.h"

static ds_status check_dtypes(const ds_graph *g)
{
    bool wide = false;
    for (size_t i = 0; i < g->n_inputs && !wide; i++)
        wide = g->edges[g->inputs[i]].signature.dtype == DS_F64;
    DS_CHECK(!wide, DS_DTYPE,
             "input: the engine computes in float32; float64 runs in eager mode only");
    for (size_t e = 0; e < g->n_edges; e++) /* those of nodes that nobody reads are gone */
        DS_CHECK(g->edges[e].node < 0 || g->edges[e].signature.dtype != DS_F64, DS_DTYPE,
                 "%s: the engine computes in float32; float64 runs in eager mode only",
                 g->nodes[g->edges[e].node].op->def->name);
    return DS_OK;
}

/* Finds what is the last to look at each edge, and lists the edges by it. */
static ds_status order_edges(ds_plan *p)
{
    const ds_graph *g = p->graph;
    for (size_t e = 0; e < g->n_edges; e++)
        p->edges[e].last_use = g->edges[e].node;
    for (size_t j = 0; j < g->n_nodes; j++)
        for (int i = 0; i < ds_op_n_values(g->nodes[j].op); i++)
            p->edges[g->nodes[j].inputs[i]].last_use = (int)j;
    for (size_t o = 0; o < g->n_outputs; o++)
        p->edges[g->outputs[o]].last_use = (int)g->n_nodes;
    DS_PUSH_ZEROED(&p->arena, p->first_leaving, g->n_nodes + 2);
    DS_PUSH(&p->arena, p->leaving, g->n_edges);
    for (size_t e = 0; e < g->n_edges; e++)
        if (p->edges[e].last_use >= 0)
            p->first_leaving[p->edges[e].last_use]++;
    for (size_t j = 0; j <= g->n_nodes; j++) /* where those of each node end */
        p->first_leaving[j + 1] += p->first_leaving[j];
    for (size_t e = g->n_edges; e-- > 0;)
        if (p->edges[e].last_use >= 0)
            p->leaving[--p->first_leaving[p->edges[e].last_use]] = (int)e;
    return DS_OK;
}

static bool can_overwrite(const ds_plan *p, size_t j)
{
    const ds_node *node = &p->graph->nodes[j];
    if (!(node->op->def->flags & DS_OP_INPLACE) || !node->op->same_counts ||
        ds_op_n_values(node->op) < 1)
        return false;
    const ds_edge_plan *in = &p->edges[node->inputs[0]], *out = &p->edges[node->first_output];
    return in->last_use == (int)j && in->capacity == 0 && out->capacity == 0 && in->tail < 0 &&
           out->tail < 0 && in->buffer >= 0 && in->frame_bytes == out->frame_bytes;
}

/* Gives every edge that is produced a buffer that nothing alive lies in. */
static ds_status assign_buffers(ds_plan *p, ds_arena *scratch)
{
    const ds_graph *g = p->graph;
    int *free_buffers, n_free = 0;
    DS_PUSH(scratch, free_buffers, g->n_edges);
    for (size_t e = 0; e < g->n_edges; e++)
        p->edges[e].buffer = -1;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (p->edges[g->inputs[i]].tail < 0)
            p->edges[g->inputs[i]].buffer = p->n_buffers++;
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        for (int o = 0; o < node->op->n_outputs; o++) {
            ds_edge_plan *out = &p->edges[node->first_output + o];
            if (out->tail >= 0)
                continue;
            if (o == 0 && can_overwrite(p, j)) {
                out->buffer = p->edges[node->inputs[0]].buffer;
                p->edges[node->inputs[0]].last_use = -1; /* its buffer lives on as the output's */
            } else {
                out->buffer = n_free ? free_buffers[--n_free] : p->n_buffers++;
            }
        }
        for (int k = p->first_leaving[j]; k < p->first_leaving[j + 1]; k++) {
            const ds_edge_plan *edge = &p->edges[p->leaving[k]];
            if (edge->last_use >= 0 && edge->buffer >= 0)
                free_buffers[n_free++] = edge->buffer;
        }
    }
    return DS_OK;
}

/* Adds `count` items of `item` bytes, aligned, to a block of n_bytes. */
static ds_status add_part(size_t *n_bytes, size_t count, size_t item)
{
    size_t part;
    DS_CHECK(!__builtin_mul_overflow(count, item, &part) &&
                 part < (size_t)PTRDIFF_MAX / 2 - *n_bytes,
             DS_NO_MEMORY, "a stream's state does not fit into memory: %zu frames of %zu bytes",
             count, item);
    *n_bytes += ds_aligned(part);
    return DS_OK;
}

/* Slack for 9 frames in 32, where that is a frame or more: a step of one frame then copies less than four
 * of those that stay. None where it holds less than two of the blocks in which frames come: each would move what is
 * kept. */
static void make_room(ds_edge_plan *edge, int64_t block)
{
    const size_t kept = (size_t)edge->capacity * edge->frame_bytes;
    const size_t roomy = (kept + kept / 32 * 9) / DS_ALIGNMENT * DS_ALIGNMENT;
    const size_t room = roomy > ds_aligned(kept) ? roomy : ds_aligned(kept);
    edge->room = edge->frame_bytes ? (int64_t)(room / edge->frame_bytes) : edge->capacity;
    if (block > 1 && edge->room - edge->capacity < 2 * block)
        edge->room = edge->capacity;
}

static ds_status lay_out_block(ds_plan *p)
{
    const ds_graph *g = p->graph;
    size_t grown;
    for (size_t e = 0; e < g->n_edges; e++) {
        ds_edge_plan *edge = &p->edges[e];
        const ds_edge_facts *facts = &p->analysis.edges[e];
        edge->frame_bytes = ds_signature_bytes(&g->edges[e].signature);
        edge->tail = facts->unbounded ? p->n_tails++ : -1;
        edge->capacity = facts->unbounded ? 0 : facts->capacity;
        size_t n_bytes = 0;
        DS_TRY(add_part(&n_bytes, (size_t)edge->capacity, edge->frame_bytes));
        make_room(edge, facts->block);
        const bool slack = edge->capacity > 0 && edge->room > edge->capacity;
        edge->mark = slack ? (int)p->n_marked++ : -1;
        DS_CHECK(!__builtin_mul_overflow((size_t)facts->growth, edge->frame_bytes, &grown) &&
                     !__builtin_add_overflow(p->grown_bytes, grown, &p->grown_bytes),
                 DS_NO_MEMORY, "a stream's state does not fit into memory");
    }
    size_t n_bytes = ds_aligned(sizeof(ds_block) + (g->n_inputs + p->n_marked) * sizeof(int64_t));
    p->kept_bytes = ds_aligned(sizeof(ds_block) + g->n_inputs * sizeof(int64_t));
    for (size_t e = 0; e < g->n_edges; e++) {
        ds_edge_plan *edge = &p->edges[e];
        edge->state_offset = n_bytes;
        DS_TRY(add_part(&n_bytes, (size_t)edge->room, edge->frame_bytes));
        DS_TRY(add_part(&p->kept_bytes, (size_t)edge->capacity, edge->frame_bytes));
    }
    for (size_t j = 0; j < g->n_nodes; j++) {
        const size_t carried = g->nodes[j].silent ? 0 : g->nodes[j].op->carried_bytes;
        p->nodes[j].carried_offset = n_bytes;
        DS_TRY(add_part(&n_bytes, 1, carried));
        DS_TRY(add_part(&p->kept_bytes, 1, carried));
    }
    p->block_bytes = n_bytes;
    return DS_OK;
}

/* Work of a node for one frame of its output: multiplications with weights, elements read and written. */
static double work_of(const ds_op *op)
{
    double work = 0;
    for (int i = 0; i < op->n_weights; i++)
        work += ds_op_has_weight(op, i) ? (double)ds_signature_elements(&op->weight[i]) / op->spread
                                        : 0;
    for (int o = 0; o < op->n_outputs; o++)
        work += 4.0 * (double)ds_signature_elements(&op->out[o]);
    return work;
}

/* Whose kept frames may be fetched while a node runs. */
static void find_next_rooms(ds_plan *p)
{
    int next = -1;
    for (size_t j = p->graph->n_nodes; j-- > 0;) {
        const ds_node *node = &p->graph->nodes[j];
        p->nodes[j].next_room = next;
        for (int i = ds_op_n_values(node->op); i-- > 0;)
            next = p->edges[node->inputs[i]].mark >= 0 ? node->inputs[i] : next;
    }
}

/* Whether a check of an operator's counts can fail before the stream ends. */
static bool checks_always(const ds_op *op)
{
    bool always = false;
    for (int k = 0; k < op->check.n_roots; k += 2) {
        const ds_expr_node *when = &op->check.nodes[op->check.roots[k]];
        always |= when->code != DS_EXPR_CONST || when->k == 0;
    }
    return always;
}

/* Adds what a node reads of weights in a step; returns how many bytes that are. */
static size_t study_weights(ds_plan *p, const ds_node *node)
{
    const ds_op *op = node->op;
    size_t n_bytes = 0;
    for (int i = 0; i < op->n_weights && !node->silent; i++) {
        if (!ds_op_has_weight(op, i))
            continue;
        const double n = (double)ds_signature_elements(&op->weight[i]) / op->spread;
        p->largest = n > p->largest ? n : p->largest;
        n_bytes += ds_signature_bytes(&op->weight[i]);
    }
    p->read_bytes += n_bytes;
    p->spread = op->spread > p->spread ? op->spread : p->spread;
    p->recurrent |= op->n_carried > 0 && op->n_weights > 0;
    return n_bytes;
}

/* Adds what a node computes and writes for a frame of input 0, whose rate is the base. */
static void study_frames(ds_plan *p, const ds_node *node, double frame_work)
{
    const ds_rate base = p->graph->edges[p->graph->inputs[0]].signature.rate;
    const ds_rate rate = node->op->out[0].rate;
    if (node->silent || rate.num == 0 || ds_graph_once(p->graph, node))
        return;
    const double n_frames =
        (double)rate.num / (double)rate.den / ((double)base.num / (double)base.den);
    const double n_bytes = n_frames * (double)ds_signature_bytes(&node->op->out[0]);
    p->frame_work += n_frames * frame_work;
    p->frame_bytes = n_bytes > p->frame_bytes ? n_bytes : p->frame_bytes;
}

/* What running a node takes, found once. */
static ds_status study_nodes(ds_plan *p)
{
    const ds_graph *g = p->graph;
    DS_PUSH(&p->arena, p->checked, g->n_nodes);
    p->max_inputs = p->max_outputs = 1;
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_op *op = g->nodes[j].op;
        ds_node_plan *node = &p->nodes[j];
        p->max_inputs = op->n_inputs > p->max_inputs ? op->n_inputs : p->max_inputs;
        p->max_outputs = op->n_outputs > p->max_outputs ? op->n_outputs : p->max_outputs;
        p->checks_values |= op->def->indices != NULL;
        if (op->check.n_roots > 0)
            p->checked[p->n_checked++] = (ds_checked){(int)j, checks_always(op)};
        node->framewise = ds_op_framewise(op);
        node->row_scratch = op->scratch.per_row || op->scratch.per_in || op->scratch.per_out;
        if (op->scratch.per_call > p->call_scratch)
            p->call_scratch = op->scratch.per_call;
        const size_t read_bytes = study_weights(p, &g->nodes[j]);
        node->frame_work = work_of(op);
        node->by_frames = op->n_carried == 0 && !op->whole &&
                          (!op->shares || (op->finishes && read_bytes <= DS_CACHED_BYTES));
        study_frames(p, &g->nodes[j], node->frame_work);
    }
    return DS_OK;
}

/* Analyses the model and rewrites a copy of it. */
static ds_status rewrite(ds_plan *p, int64_t skew)
{
    ds_rate rates[DS_MAX_INPUTS];
    for (size_t i = 0; i < p->model->n_inputs; i++) {
        const ds_edge *edge = &p->model->edges[p->model->inputs[i]];
        rates[i] = edge->given ? (ds_rate){0, 1} : edge->signature.rate;
    }
    DS_TRY(ds_clock_init(&p->clock, rates, p->model->n_inputs, skew));
    ds_find_silent(p->model);
    DS_TRY(ds_analyse(&p->analysis, p->model, &p->clock));
    DS_TRY(ds_graph_share(&p->graph, p->model));
    DS_TRY(ds_rewrite(p->graph, &p->analysis));
    DS_TRY(ds_graph_share(&p->plain, p->graph));
    if (p->kernels->real[0].format != DS_FORMAT_ROWS)
        DS_TRY(ds_fuse(p->graph));
    return DS_OK;
}

static ds_status make(ds_plan *p, int64_t skew, size_t max_bytes, ds_arena *scratch)
{
    DS_CHECK(p->model->n_inputs > 0 && p->model->n_outputs > 0, DS_ARGUMENT,
             "a graph needs an input and an output");
    DS_TRY(rewrite(p, skew));
    DS_TRY(check_dtypes(p->graph)); /* without what nobody reads */
    DS_PUSH_ZEROED(&p->arena, p->edges, p->graph->n_edges);
    DS_PUSH_ZEROED(&p->arena, p->nodes, p->graph->n_nodes);
    DS_TRY(lay_out_block(p));
    DS_TRY(order_edges(p));
    DS_TRY(assign_buffers(p, scratch));
    DS_TRY(study_nodes(p));
    find_next_rooms(p);
    DS_TRY(ds_positions_plan(p, scratch));
    DS_TRY(ds_budget_start(p, scratch, max_bytes));
    DS_TRY(ds_graph_remember_fingerprint(p->model));
    ds_graph_fingerprint(p->model, p->fingerprint);
    ds_graph_origin(p->model, p->origin);
    return ds_weights_prepare(p, scratch);
}

ds_status ds_plan_create(ds_plan **plan, ds_graph *takes_graph, const ds_kernels *kernels,
                         int64_t skew, size_t max_bytes)
{
    ds_plan *p;
    ds_arena arena;
    DS_SCOPED(ds_arena_free) ds_arena scratch;
    ds_arena_init(&arena, &takes_graph->allocator);
    ds_arena_init(&scratch, &takes_graph->allocator);
    DS_TRY_ELSE(ds_arena_push_zeroed(&arena, (void **)&p, 1, sizeof *p),
                ds_graph_destroy(takes_graph));
    p->allocator = takes_graph->allocator;
    p->arena = arena;
    p->model = takes_graph;
    p->apart = *kernels;
    p->apart.real[0].apart = p->apart.real[1].apart = true;
    p->kernels = &p->apart;
    DS_TRY_ELSE(make(p, skew, max_bytes, &scratch), ds_plan_destroy(p));
    *plan = p;
    return DS_OK;
}

void ds_plan_destroy(ds_plan *plan)
{
    if (!plan)
        return;
    ds_arena arena = plan->arena;
    ds_release(&plan->allocator, plan->prepared, plan->prepared_bytes);
    ds_release(&plan->allocator, plan->elements, plan->elements_bytes);
    ds_analysis_free(&plan->analysis);
    ds_graph_destroy(plan->graph);
    ds_graph_destroy(plan->plain);
    ds_graph_destroy(plan->model);
    ds_arena_free(&arena);
}
