/* ir/rewrite.c: takes out of a graph what changes no bit of its outputs, in one walk from behind. */
#include "ir/rewrite.h"

#include <string.h>

#include "base/alloc.h"

static void hear(ds_graph *graph, int edge)
{
    const int node = graph->edges[edge].node;
    if (node >= 0)
        graph->nodes[node].silent = false;
}

void ds_find_silent(ds_graph *graph)
{
    for (size_t j = 0; j < graph->n_nodes; j++)
        graph->nodes[j].silent = true;
    for (size_t o = 0; o < graph->n_outputs; o++)
        hear(graph, graph->outputs[o]);
    for (size_t j = graph->n_nodes; j-- > 0;) /* whoever reads a node stands behind it */
        for (int i = 0; i < ds_op_n_values(graph->nodes[j].op) && !graph->nodes[j].silent; i++)
            hear(graph, graph->nodes[j].inputs[i]);
}

/* A sync that never holds its input back. Its check is not lost: where totals can differ, the sync of
 * the longer input cuts it, so that one is no identity and stays. */
static bool is_removable_sync(const ds_node *node, const ds_analysis *analysis)
{
    return strcmp(node->op->def->name, "sync") == 0 && analysis->identity[node->id];
}

/* What may refuse a stream must stay. */
static bool checks(const ds_op *op)
{
    return op->check.n_roots > 0 || op->def->check_values;
}

/* Whether some of its outputs is read by a node that stays, or leaves. */
static bool is_used(const ds_node *node, const int *readers)
{
    for (int o = 0; o < node->op->n_outputs; o++)
        if (readers[node->first_output + o] > 0)
            return true;
    return false;
}

/* Which nodes stay; from behind, so that all readers of a node have been decided on before it. */
static void choose(const ds_graph *graph, const ds_analysis *analysis, int *readers, int *stays)
{
    for (size_t o = 0; o < graph->n_outputs; o++)
        readers[graph->outputs[o]]++;
    for (size_t j = 0; j < graph->n_nodes; j++)
        for (int i = 0; i < graph->nodes[j].op->n_inputs; i++)
            readers[graph->nodes[j].inputs[i]]++;
    for (size_t j = graph->n_nodes; j-- > 0;) {
        const ds_node *node = &graph->nodes[j];
        const bool sync = is_removable_sync(node, analysis);
        stays[j] = !sync && (is_used(node, readers) || checks(node->op));
        for (int i = 0; i < node->op->n_inputs && !stays[j]; i++)
            readers[node->inputs[i]]--;
        if (sync)
            readers[node->inputs[0]] += readers[node->first_output];
    }
}

/* Its input takes a removed sync's place, so what the sync's readers keep is kept of that. */
static void pass_on(ds_analysis *analysis, int from, int to)
{
    ds_edge_facts *a = &analysis->edges[to], *b = &analysis->edges[from];
    a->capacity = b->capacity > a->capacity ? b->capacity : a->capacity;
    a->growth = b->growth > a->growth ? b->growth : a->growth;
    a->unbounded |= b->unbounded;
    b->capacity = b->growth = 0;
    b->unbounded = false;
}

/* names: [n_edges], what an edge is called now. */
static void take_out(ds_graph *graph, ds_analysis *analysis, const int *stays, int *names)
{
    size_t n = 0;
    for (size_t e = 0; e < graph->n_edges; e++)
        names[e] = (int)e;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        ds_node node = graph->nodes[j];
        for (int i = 0; i < node.op->n_inputs; i++)
            node.inputs[i] = names[node.inputs[i]];
        for (int o = 0; o < node.op->n_outputs; o++)
            graph->edges[node.first_output + o].node = stays[j] ? (int)n : -1;
        if (stays[j]) {
            graph->nodes[n++] = node;
        } else if (is_removable_sync(&node, analysis)) {
            names[node.first_output] = node.inputs[0];
            pass_on(analysis, node.first_output, node.inputs[0]);
        }
    }
    for (size_t o = 0; o < graph->n_outputs; o++)
        graph->outputs[o] = names[graph->outputs[o]];
    graph->n_nodes = n;
}

ds_status ds_rewrite(ds_graph *graph, ds_analysis *analysis)
{
    void *memory;
    const size_t n_bytes = (2 * graph->n_edges + graph->n_nodes) * sizeof(int);
    DS_TRY(ds_allocate_zeroed(&graph->allocator, &memory, n_bytes));
    int *readers = memory, *names = readers + graph->n_edges, *stays = names + graph->n_edges;
    choose(graph, analysis, readers, stays);
    take_out(graph, analysis, stays, names);
    ds_release(&graph->allocator, memory, n_bytes);
    return DS_OK;
}
