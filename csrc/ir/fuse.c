/* ir/fuse.c: finds chains behind products, and puts a node of its own in the place of each. */
#include "ir/fuse.h"

#include <string.h>

#include "base/alloc.h"
#include "ops/fused.h"

/* Of each edge: how often it is read, by which node last, at which of its inputs. An output counts as two. */
typedef struct reader {
    int n, node, input;
} reader;

typedef struct chain {
    ds_fused_step steps[DS_FUSED_STEPS];
    int nodes[DS_FUSED_STEPS];
    int n, stream; /* stream: the edge that is a step's operand; -1 */
} chain;

static void find_readers(const ds_graph *g, reader *readers)
{
    for (size_t j = 0; j < g->n_nodes; j++)
        for (int i = 0; i < g->nodes[j].op->n_inputs; i++) {
            reader *r = &readers[g->nodes[j].inputs[i]];
            *r = (reader){r->n + 1, (int)j, i};
        }
    for (size_t o = 0; o < g->n_outputs; o++)
        readers[g->outputs[o]].n += 2;
}

/* What can follow node j as steps. */
static void find_chain(const ds_graph *g, const reader *readers, size_t j, chain *c)
{
    const ds_op *main = g->nodes[j].op;
    int edge = g->nodes[j].first_output, operand;
    *c = (chain){.stream = -1};
    while (readers[edge].n == 1) {
        const reader *r = &readers[edge];
        const ds_node *next = &g->nodes[r->node];
        if (!next->op || next->silent ||
            !ds_fused_step_of(main, c->steps, c->n, next->op, r->input, &c->steps[c->n], &operand))
            return;
        if (operand >= 0)
            c->stream = next->inputs[operand];
        c->nodes[c->n++] = r->node;
        edge = next->first_output;
    }
}

/* Puts the product and its steps in the place of the last of them. */
static ds_status fuse_chain(ds_graph *g, size_t j, const chain *c)
{
    const ds_node *main = &g->nodes[j];
    ds_node made = g->nodes[c->nodes[c->n - 1]];
    ds_fused *fused;
    void *weights;
    DS_TRY(ds_fused_create(&fused, main->op, c->steps, c->n,
                           c->stream >= 0 ? &g->edges[c->stream].signature : NULL));
    const size_t n = (size_t)fused->op.n_weights;
    ds_status status = ds_allocate_zeroed(&g->allocator, &weights, n * sizeof(ds_weight));
    if (status != DS_OK) {
        ds_fused_destroy(fused);
        return status;
    }
    made.op = &fused->op;
    made.made = true;
    made.weights = weights;
    memcpy(made.weights, main->weights, (size_t)main->op->n_weights * sizeof(ds_weight));
    for (int i = 0; i < c->n; i++) {
        const ds_node *step = &g->nodes[c->nodes[i]];
        if (step->op->n_weights > 0)
            memcpy(made.weights + c->steps[i].weight, step->weights,
                   (size_t)step->op->n_weights * sizeof(ds_weight));
    }
    memcpy(made.inputs, main->inputs, (size_t)main->op->n_inputs * sizeof(int));
    if (fused->stream >= 0)
        made.inputs[fused->stream] = c->stream;
    g->nodes[c->nodes[c->n - 1]] = made;
    g->nodes[j].op = NULL; /* gone */
    for (int i = 0; i + 1 < c->n; i++)
        g->nodes[c->nodes[i]].op = NULL;
    return DS_OK;
}

/* Takes out the nodes that have gone; producers are kept right. */
static void close_gaps(ds_graph *g, int *place)
{
    size_t n = 0;
    for (size_t j = 0; j < g->n_nodes; j++) {
        place[j] = g->nodes[j].op ? (int)n : -1;
        if (g->nodes[j].op)
            g->nodes[n++] = g->nodes[j];
    }
    g->n_nodes = n;
    for (size_t e = 0; e < g->n_edges; e++)
        if (g->edges[e].node >= 0)
            g->edges[e].node = place[g->edges[e].node];
}

ds_status ds_fuse(ds_graph *graph)
{
    const ds_allocator *a = &graph->allocator;
    const size_t n_bytes = graph->n_edges * sizeof(reader) + graph->n_nodes * sizeof(int);
    void *memory;
    DS_TRY(ds_allocate_zeroed(a, &memory, n_bytes));
    reader *readers = memory;
    find_readers(graph, readers);
    ds_status status = DS_OK;
    chain c;
    for (size_t j = 0; j < graph->n_nodes && status == DS_OK; j++) {
        const ds_node *node = &graph->nodes[j];
        if (!node->op || node->made || node->silent || !node->op->finishes)
            continue;
        find_chain(graph, readers, j, &c);
        if (c.n > 0)
            status = fuse_chain(graph, j, &c);
    }
    close_gaps(graph, (int *)(void *)(readers + graph->n_edges));
    ds_release(a, memory, n_bytes);
    return status;
}

void ds_fuse_release(const ds_allocator *allocator, ds_node *node)
{
    ds_release(allocator, node->weights, (size_t)node->op->n_weights * sizeof(ds_weight));
    ds_fused_destroy((ds_fused *)(void *)node->op);
}
