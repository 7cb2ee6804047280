#include "exec/plan.h"

#include <string.h>

#include "base/alloc.h"
#include "exec/weights.h"

static size_t aligned(size_t n_bytes)
{
    return (n_bytes + DS_ALIGNMENT - 1) / DS_ALIGNMENT * DS_ALIGNMENT;
}

static ds_status check_dtypes(const ds_graph *g)
{
    for (size_t e = 0; e < g->n_edges; e++)
        DS_CHECK(g->edges[e].signature.dtype != DS_F64, DS_DTYPE,
                 "%s: the engine computes in float32; float64 runs in eager mode only",
                 g->edges[e].node < 0 ? "input" : g->nodes[g->edges[e].node].op->def->name);
    return DS_OK;
}

static void find_last_uses(ds_plan *p)
{
    const ds_graph *g = p->graph;
    for (size_t e = 0; e < g->n_edges; e++)
        p->edges[e].last_use = g->edges[e].node;
    for (size_t j = 0; j < g->n_nodes; j++)
        for (int i = 0; i < ds_op_n_values(g->nodes[j].op); i++)
            p->edges[g->nodes[j].inputs[i]].last_use = (int)j;
    for (size_t o = 0; o < g->n_outputs; o++)
        p->edges[g->outputs[o]].last_use = (int)g->n_nodes;
}

static bool can_overwrite(const ds_plan *p, size_t j)
{
    const ds_node *node = &p->graph->nodes[j];
    if (!(node->op->def->flags & DS_OP_INPLACE) || !node->op->same_counts || ds_op_n_values(node->op) < 1)
        return false;
    const ds_edge_plan *in = &p->edges[node->inputs[0]], *out = &p->edges[node->first_output];
    return in->last_use == (int)j && in->capacity == 0 && out->capacity == 0 && in->tail < 0 &&
           out->tail < 0 && in->buffer >= 0 && in->frame_bytes == out->frame_bytes;
}

/* Gives every edge that is produced a buffer that nothing alive lies in. free_buffers: [n_edges]. */
static void assign_buffers(ds_plan *p, int *free_buffers)
{
    const ds_graph *g = p->graph;
    int n_free = 0;
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
                p->edges[node->inputs[0]].last_use = -2; /* its buffer lives on as the output's */
            } else {
                out->buffer = n_free ? free_buffers[--n_free] : p->n_buffers++;
            }
        }
        for (size_t e = 0; e < g->n_edges; e++)
            if (p->edges[e].last_use == (int)j && p->edges[e].buffer >= 0)
                free_buffers[n_free++] = p->edges[e].buffer;
    }
    for (size_t e = 0; e < g->n_edges; e++)
        if (p->edges[e].last_use == -2)
            p->edges[e].last_use = -1; /* nothing to store: it keeps nothing */
}

/* Lists the edges that keep frames in the order in which their frames may go. */
static ds_status order_stores(ds_plan *p)
{
    const ds_graph *g = p->graph;
    void *memory;
    DS_TRY(ds_allocate_zeroed(&p->allocator, &memory, (g->n_nodes + 2 + g->n_edges) * sizeof(int)));
    p->first_store = memory;
    p->stores = p->first_store + g->n_nodes + 2;
    int n = 0;
    for (int j = 0; j <= (int)g->n_nodes; j++) {
        p->first_store[j] = n;
        for (size_t e = 0; e < g->n_edges; e++)
            if (p->edges[e].last_use == j && (p->edges[e].capacity > 0 || p->edges[e].tail >= 0))
                p->stores[n++] = (int)e;
    }
    p->first_store[g->n_nodes + 1] = n;
    return DS_OK;
}

/* Adds `count` items of `item` bytes, aligned, to a block of n_bytes. */
static ds_status add_part(size_t *n_bytes, size_t count, size_t item)
{
    size_t part;
    DS_CHECK(!__builtin_mul_overflow(count, item, &part) && part < (size_t)PTRDIFF_MAX / 2 - *n_bytes,
             DS_NO_MEMORY, "a stream's state does not fit into memory: %zu frames of %zu bytes",
             count, item);
    *n_bytes += aligned(part);
    return DS_OK;
}

static ds_status lay_out_block(ds_plan *p)
{
    const ds_graph *g = p->graph;
    size_t n_bytes = aligned(sizeof(ds_block) + g->n_inputs * sizeof(int64_t)), grown;
    for (size_t e = 0; e < g->n_edges; e++) {
        ds_edge_plan *edge = &p->edges[e];
        const ds_edge_facts *facts = &p->analysis.edges[e];
        edge->frame_bytes = ds_signature_bytes(&g->edges[e].signature);
        edge->tail = facts->unbounded ? p->n_tails++ : -1;
        edge->capacity = facts->unbounded ? 0 : facts->capacity;
        edge->state_offset = n_bytes;
        DS_TRY(add_part(&n_bytes, (size_t)edge->capacity, edge->frame_bytes));
        DS_CHECK(!__builtin_mul_overflow((size_t)facts->growth, edge->frame_bytes, &grown) &&
                     !__builtin_add_overflow(p->grown_bytes, grown, &p->grown_bytes),
                 DS_NO_MEMORY, "a stream's state does not fit into memory");
    }
    for (size_t j = 0; j < g->n_nodes; j++) {
        p->nodes[j].carried_offset = n_bytes;
        DS_TRY(add_part(&n_bytes, 1, g->nodes[j].silent ? 0 : g->nodes[j].op->carried_bytes));
        if (g->nodes[j].op->n_inputs > p->max_inputs)
            p->max_inputs = g->nodes[j].op->n_inputs;
        if (g->nodes[j].op->n_outputs > p->max_outputs)
            p->max_outputs = g->nodes[j].op->n_outputs;
    }
    p->block_bytes = n_bytes;
    return DS_OK;
}

/* Analyses the model, rewrites a copy of it and analyses that. */
static ds_status rewrite(ds_plan *p, int64_t skew)
{
    ds_rate rates[DS_MAX_INPUTS];
    for (size_t i = 0; i < p->model->n_inputs; i++)
        rates[i] = p->model->edges[p->model->inputs[i]].signature.rate;
    DS_TRY(ds_clock_init(&p->clock, rates, p->model->n_inputs, skew));
    ds_find_silent(p->model);
    DS_TRY(ds_analyse(&p->analysis, p->model, &p->clock));
    DS_TRY(ds_graph_share(&p->graph, p->model));
    ds_rewrite(p->graph, &p->analysis);
    DS_TRY(ds_graph_share(&p->plain, p->graph));
    if (p->kernels->real[0].format != DS_FORMAT_ROWS)
        DS_TRY(ds_fuse(p->graph));
    ds_analysis_free(&p->analysis);
    return ds_analyse(&p->analysis, p->graph, &p->clock);
}

static ds_status make(ds_plan *p, int64_t skew)
{
    DS_CHECK(p->model->n_inputs > 0 && p->model->n_outputs > 0, DS_ARGUMENT,
             "a graph needs an input and an output");
    DS_TRY(check_dtypes(p->model));
    DS_TRY(rewrite(p, skew));
    void *edges, *nodes, *free_buffers;
    DS_TRY(ds_allocate_zeroed(&p->allocator, &edges, p->graph->n_edges * sizeof *p->edges));
    p->edges = edges;
    DS_TRY(ds_allocate_zeroed(&p->allocator, &nodes, p->graph->n_nodes * sizeof *p->nodes));
    p->nodes = nodes;
    DS_TRY(lay_out_block(p));
    find_last_uses(p);
    size_t n_bytes = 2 * p->graph->n_edges * sizeof(int);
    DS_TRY(ds_allocate(&p->allocator, &free_buffers, n_bytes));
    assign_buffers(p, free_buffers);
    ds_release(&p->allocator, free_buffers, n_bytes);
    DS_TRY(order_stores(p));
    ds_graph_fingerprint(p->model, p->fingerprint);
    return ds_weights_prepare(p);
}

ds_status ds_plan_create(ds_plan **plan, ds_graph *takes_graph, const ds_kernels *kernels,
                         int64_t skew)
{
    void *memory;
    ds_status status = ds_allocate_zeroed(&takes_graph->allocator, &memory, sizeof(ds_plan));
    if (status != DS_OK) {
        ds_graph_destroy(takes_graph);
        return status;
    }
    ds_plan *p = memory;
    p->allocator = takes_graph->allocator;
    p->model = takes_graph;
    p->kernels = kernels;
    status = make(p, skew);
    if (status != DS_OK) {
        ds_plan_destroy(p);
        return status;
    }
    *plan = p;
    return DS_OK;
}

void ds_plan_destroy(ds_plan *plan)
{
    if (!plan)
        return;
    ds_allocator a = plan->allocator;
    ds_weights_release(plan);
    if (plan->graph) {
        ds_release(&a, plan->first_store,
                   (plan->graph->n_nodes + 2 + plan->graph->n_edges) * sizeof(int));
        ds_release(&a, plan->nodes, plan->graph->n_nodes * sizeof *plan->nodes);
        ds_release(&a, plan->edges, plan->graph->n_edges * sizeof *plan->edges);
    }
    ds_analysis_free(&plan->analysis);
    ds_graph_destroy(plan->graph);
    ds_graph_destroy(plan->plain);
    ds_graph_destroy(plan->model);
    ds_release(&a, plan, sizeof *plan);
}
