/* exec/budget.c: adds up what a model takes with one stream, and what calls do. */
#include "exec/budget.h"

#include <unistd.h>

/* Of the node whose output the edge is; an input is named after the first that reads it. */
static const ds_node *node_of(const ds_graph *g, size_t e)
{
    for (size_t j = 0; j < g->n_nodes && g->edges[e].node < 0; j++)
        for (int i = 0; i < g->nodes[j].op->n_inputs; i++)
            if (g->nodes[j].inputs[i] == (int)e)
                return &g->nodes[j];
    return g->edges[e].node < 0 ? NULL : &g->nodes[g->edges[e].node];
}

static const char *path_of(const ds_node *node)
{
    return node && node->path && *node->path ? node->path : "the forward";
}

static ds_status add(ds_plan *p, const ds_node *node, size_t n_bytes)
{
    ds_budget *b = &p->budget;
    b->n_bytes = ds_saturated_sum(b->n_bytes, n_bytes);
    if (n_bytes > b->most) {
        b->most = n_bytes;
        b->node = node;
    }
    DS_CHECK(b->n_bytes <= b->max_bytes, DS_LIMIT,
             "%s (%s) takes %zu bytes, of %zu and more that the model takes with one stream of one "
             "frame; "
             "at most %zu are allowed, unless max_bytes says otherwise",
             path_of(b->node), b->node ? b->node->op->def->name : "input", b->most, b->n_bytes,
             b->max_bytes);
    return DS_OK;
}

/* The same of what shares its place with others, of which `held` bytes are counted. */
static ds_status add_more(ds_plan *p, const ds_node *node, size_t n_bytes, size_t *held)
{
    if (n_bytes <= *held)
        return DS_OK;
    const size_t more = n_bytes - *held;
    *held = n_bytes;
    return add(p, node, more);
}

ds_status ds_budget_add(ds_plan *plan, size_t j, size_t n_bytes)
{
    return add(plan, &plan->graph->nodes[j], n_bytes);
}

static size_t memory_of_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? ds_saturated_product((size_t)pages, (size_t)page) : SIZE_MAX;
}

/* Of weights as they were given: each once, or the file that they lie in. */
static size_t given_bytes(const ds_graph *g)
{
    size_t n_bytes = g->file ? ds_mapped_size(g->file) : 0;
    for (size_t j = 0; j < g->n_nodes; j++)
        for (int i = 0; i < g->nodes[j].op->n_weights; i++)
            if (!g->nodes[j].weights[i].borrowed)
                n_bytes = ds_saturated_sum(n_bytes, g->nodes[j].weights[i].n_bytes);
    return n_bytes;
}

/* What nodes are themselves, in the model and in the graphs that it is rewritten to, which share the operators. */
static ds_status add_nodes(ds_plan *p)
{
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        DS_TRY(ds_budget_add(p, j, sizeof(ds_op) + 3 * (sizeof(ds_node) + sizeof(ds_edge))));
    return DS_OK;
}

/* What a stream remembers. */
static ds_status add_state(ds_plan *p)
{
    const ds_graph *g = p->graph;
    for (size_t e = 0; e < g->n_edges; e++)
        if (p->edges[e].room > 0)
            DS_TRY(add(p, node_of(g, e), (size_t)p->edges[e].room * p->edges[e].frame_bytes));
    for (size_t j = 0; j < g->n_nodes; j++)
        if (!g->nodes[j].silent)
            DS_TRY(ds_budget_add(p, j, g->nodes[j].op->carried_bytes));
    return DS_OK;
}

/* New frames of an edge, when one more of input 0 comes. */
static size_t fresh_bytes(const ds_plan *p, size_t e)
{
    return ds_saturated_product((size_t)p->analysis.edges[e].burst, p->edges[e].frame_bytes);
}

/* Windows outside of the stream's block: of the edges that share a buffer the largest counts. */
static ds_status add_windows(ds_plan *p, ds_arena *scratch)
{
    size_t *held;
    DS_PUSH_ZEROED(scratch, held, (size_t)p->n_buffers);
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_edge_plan *edge = &p->edges[e];
        const size_t slack = edge->mark < 0 ? 0 : (size_t)(edge->room - edge->capacity);
        const size_t fresh = fresh_bytes(p, e), kept = (size_t)edge->capacity * edge->frame_bytes;
        size_t tail = 0;
        if ((edge->buffer < 0 && edge->tail < 0) ||
            (edge->mark >= 0 && (size_t)p->analysis.edges[e].burst <= slack))
            continue;
        DS_TRY(add_more(p, node_of(p->graph, e), ds_aligned(ds_saturated_sum(kept, fresh)),
                        edge->tail < 0 ? &held[edge->buffer] : &tail));
    }
    return DS_OK;
}

/* What a call takes. */
static ds_status add_call(ds_plan *p, ds_arena *scratch)
{
    const ds_graph *g = p->graph;
    size_t call = 0, row = 0;
    DS_TRY(add_windows(p, scratch));
    for (size_t o = 0; o < g->n_outputs; o++) { /* the caller has a copy */
        const size_t e = (size_t)g->outputs[o];
        DS_TRY(add(p, node_of(g, e), fresh_bytes(p, e)));
    }
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        const ds_op *op = node->op;
        const size_t in = (size_t)p->analysis.edges[node->inputs[0]].burst;
        const size_t out = (size_t)p->analysis.edges[node->first_output].burst;
        const size_t frames = ds_saturated_sum(ds_saturated_product(op->scratch.per_in, in),
                                               ds_saturated_product(op->scratch.per_out, out));
        DS_TRY(add_more(p, node, ds_aligned(op->scratch.per_call), &call));
        DS_TRY(add_more(p, node, ds_aligned(ds_saturated_sum(op->scratch.per_row, frames)), &row));
    }
    return DS_OK;
}

ds_status ds_budget_start(ds_plan *plan, ds_arena *scratch, size_t max_bytes)
{
    ds_budget *b = &plan->budget;
    const size_t given = ds_saturated_product(given_bytes(plan->model), DS_DEFAULT_TIMES_WEIGHTS);
    b->max_bytes = max_bytes ? max_bytes : ds_saturated_sum(DS_DEFAULT_BYTES, given);
    b->chosen = max_bytes > 0;
    b->max_call_bytes = max_bytes ? max_bytes : memory_of_machine();
    DS_TRY(add_nodes(plan));
    DS_TRY(add_state(plan));
    return add_call(plan, scratch);
}

ds_status ds_budget_refuse_call(const ds_plan *plan, size_t n_bytes, size_t e, size_t most)
{
    const ds_budget *b = &plan->budget;
    const ds_node *node = node_of(plan->graph, e);
    return ds_fail(
        b->chosen ? DS_LIMIT : DS_NO_MEMORY,
        "these chunks take %zu bytes or more, %zu of one stream for what %s (%s) gives; %s "
        "%zu: shorter chunks take less",
        n_bytes, most, path_of(node), node ? node->op->def->name : "input",
        b->chosen ? "max_bytes is" : "the memory of this machine is", b->max_call_bytes);
}
