/* ir/rewrite.c: takes out of a graph what changes no bit of its outputs, in one walk from behind; finds chains
 * behind products, and puts a node of its own in the place of each. */
#include "ir/rewrite.h"

#include <string.h>

#include "ops/fused.h"

/* Closes up behind nodes that have gone, whose op is NULL. */
static void close_gaps(ds_graph *graph)
{
    size_t n = 0;
    for (size_t e = 0; e < graph->n_edges; e++)
        graph->edges[e].node = -1;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node node = graph->nodes[j];
        for (int o = 0; node.op && o < node.op->n_outputs; o++)
            graph->edges[node.first_output + o].node = (int)n;
        if (node.op)
            graph->nodes[n++] = node;
    }
    graph->n_nodes = n;
}

/* ---------------------------------------------------------------- what changes nothing */
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
        stays[j] = !sync && (is_used(node, readers) || ds_node_checks(graph, node));
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
    for (size_t e = 0; e < graph->n_edges; e++)
        names[e] = (int)e;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        ds_node *node = &graph->nodes[j];
        for (int i = 0; i < node->op->n_inputs; i++)
            node->inputs[i] = names[node->inputs[i]];
        if (!stays[j] && is_removable_sync(node, analysis)) {
            names[node->first_output] = node->inputs[0];
            pass_on(analysis, node->first_output, node->inputs[0]);
        }
        if (!stays[j])
            node->op = NULL;
    }
    for (size_t o = 0; o < graph->n_outputs; o++)
        graph->outputs[o] = names[graph->outputs[o]];
    close_gaps(graph);
}

ds_status ds_rewrite(ds_graph *graph, ds_analysis *analysis)
{
    int *readers, *names, *stays;
    DS_PUSH_ZEROED(&graph->arena, readers, graph->n_edges);
    DS_PUSH_ZEROED(&graph->arena, names, graph->n_edges);
    DS_PUSH_ZEROED(&graph->arena, stays, graph->n_nodes);
    choose(graph, analysis, readers, stays);
    take_out(graph, analysis, stays, names);
    graph->renamed = names;
    return DS_OK;
}

/* ---------------------------------------------------------------- epilogues */
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
    const ds_fused_step *last = &c->steps[c->n - 1];
    ds_fused *fused;
    DS_PUSH_ZEROED(&g->arena, made.weights, (size_t)(last->weight + last->op->n_weights));
    DS_TRY(ds_fused_create(&fused, main->op, c->steps, c->n,
                           c->stream >= 0 ? &g->edges[c->stream].signature : NULL));
    made.op = &fused->op;
    made.path = main->path;
    made.made = true;
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

ds_status ds_fuse(ds_graph *graph)
{
    reader *readers;
    DS_PUSH_ZEROED(&graph->arena, readers, graph->n_edges);
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
    close_gaps(graph);
    return status;
}
