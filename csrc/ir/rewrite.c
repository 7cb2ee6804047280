#include "ir/rewrite.h"

#include <string.h>

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

static void replace_edge(ds_graph *graph, int old, int new)
{
    for (size_t j = 0; j < graph->n_nodes; j++)
        for (int i = 0; i < graph->nodes[j].op->n_inputs; i++)
            if (graph->nodes[j].inputs[i] == old)
                graph->nodes[j].inputs[i] = new;
    for (size_t o = 0; o < graph->n_outputs; o++)
        if (graph->outputs[o] == old)
            graph->outputs[o] = new;
}

static bool is_used(const ds_graph *graph, const ds_node *node)
{
    int low = node->first_output, high = low + node->op->n_outputs;
    for (size_t o = 0; o < graph->n_outputs; o++)
        if (graph->outputs[o] >= low && graph->outputs[o] < high)
            return true;
    for (size_t j = 0; j < graph->n_nodes; j++)
        for (int i = 0; i < graph->nodes[j].op->n_inputs; i++)
            if (graph->nodes[j].inputs[i] >= low && graph->nodes[j].inputs[i] < high)
                return true;
    return false;
}

/* Takes node j out; producers are kept right. */
static void drop_node(ds_graph *graph, size_t j)
{
    for (size_t e = 0; e < graph->n_edges; e++) {
        if (graph->edges[e].node == (int)j)
            graph->edges[e].node = -1;
        else if (graph->edges[e].node > (int)j)
            graph->edges[e].node--;
    }
    memmove(&graph->nodes[j], &graph->nodes[j + 1], (graph->n_nodes - j - 1) * sizeof *graph->nodes);
    graph->n_nodes--;
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

void ds_rewrite(ds_graph *graph, const ds_analysis *analysis)
{
    for (size_t j = graph->n_nodes; j-- > 0;) {
        const ds_node *node = &graph->nodes[j];
        if (is_removable_sync(node, analysis)) {
            replace_edge(graph, node->first_output, node->inputs[0]);
            drop_node(graph, j);
        } else if (!is_used(graph, node) && !checks(node->op)) {
            drop_node(graph, j);
        }
    }
}
