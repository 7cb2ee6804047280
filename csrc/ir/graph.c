/* ir/graph.c: builds graphs, node by node, and owns what they hold; finds weights that are there already by a
 * table of names; counts and needs of all edges by one walk. */
#include "ir/graph.h"

#include <string.h>

#include "base/alloc.h"
#include "ir/rewrite.h"

/* Makes room for one more item of a growing array. */
static ds_status grow(const ds_allocator *a, void **items, size_t n, size_t *capacity, size_t item)
{
    if (n < *capacity)
        return DS_OK;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    void *larger;
    DS_TRY(ds_allocate_array(a, &larger, wanted, item));
    if (n)
        memcpy(larger, *items, n * item);
    ds_release(a, *items, *capacity * item);
    *items = larger;
    *capacity = wanted;
    return DS_OK;
}

ds_status ds_graph_create(ds_graph **graph, const ds_allocator *allocator)
{
    void *p;
    DS_TRY(ds_allocate_zeroed(allocator, &p, sizeof(ds_graph)));
    *graph = p;
    (*graph)->allocator = *allocator;
    return DS_OK;
}

static void release_text(const ds_allocator *a, char *text)
{
    if (text)
        ds_release(a, text, strlen(text) + 1);
}

static void release_weights(const ds_allocator *a, ds_weight *weights, int n)
{
    for (int i = 0; weights && i < n; i++) {
        if (!weights[i].borrowed)
            ds_release(a, weights[i].data, weights[i].n_bytes);
        release_text(a, weights[i].name);
    }
    ds_release(a, weights, (size_t)n * sizeof *weights);
}

void ds_graph_destroy(ds_graph *graph)
{
    if (!graph)
        return;
    ds_allocator a = graph->allocator;
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].made)
            ds_fuse_release(&a, &graph->nodes[i]);
    for (size_t i = 0; i < graph->n_nodes && !graph->shared; i++) {
        ds_node *node = &graph->nodes[i];
        release_weights(&a, node->weights, node->op->n_weights);
        release_text(&a, node->path);
        ds_op_destroy(node->op);
    }
    ds_release(&a, graph->nodes, graph->nodes_capacity * sizeof *graph->nodes);
    ds_release(&a, graph->edges, graph->edges_capacity * sizeof *graph->edges);
    ds_release(&a, graph->outputs, graph->outputs_capacity * sizeof *graph->outputs);
    ds_release(&a, graph->named, graph->named_capacity * sizeof *graph->named);
    ds_mapped_release(graph->file);
    ds_release(&a, graph, sizeof *graph);
}

void ds_graph_borrow(ds_graph *graph, ds_mapped *file)
{
    graph->file = ds_mapped_share(file);
}

static ds_status add_edge(ds_graph *graph, const ds_signature *signature, int node, int output)
{
    graph->has_fingerprint = false;
    void *edges = graph->edges;
    DS_TRY(grow(&graph->allocator, &edges, graph->n_edges, &graph->edges_capacity,
                sizeof *graph->edges));
    graph->edges = edges;
    graph->edges[graph->n_edges++] =
        (ds_edge){.signature = *signature, .node = node, .output = output};
    return DS_OK;
}

/* What operators check of their own inputs: an input may have none. */
static ds_status check_input(const ds_signature *s, size_t i)
{
    ds_rate lowest = {1, 1};
    DS_CHECK(s->rate.num > 0 && s->rate.den > 0, DS_ARGUMENT, "input %zu: the rate must be positive", i);
    DS_CHECK(ds_rate_scale(&lowest, s->rate.num, s->rate.den) && ds_rate_equal(lowest, s->rate),
             DS_ARGUMENT, "input %zu: the rate %lld/%lld is no fraction in lowest terms", i,
             (long long)s->rate.num, (long long)s->rate.den);
    DS_CHECK(ds_dtype_bytes(s->dtype) != 0, DS_DTYPE, "input %zu has no element type", i);
    DS_CHECK(s->rank >= 0 && s->rank <= DS_MAX_RANK, DS_SHAPE,
             "input %zu has %d feature dimensions, at most %d are supported", i, s->rank, DS_MAX_RANK);
    for (int d = 0; d < s->rank; d++)
        DS_CHECK(s->shape[d] >= 1, DS_SHAPE, "input %zu has size %lld in feature dimension %d", i,
                 (long long)s->shape[d], d);
    DS_CHECK(ds_signature_elements(s) < (int64_t)1 << 40, DS_SHAPE,
             "input %zu has 2^40 elements or more per frame", i);
    return DS_OK;
}

ds_status ds_graph_input(ds_graph *graph, int *edge, const ds_signature *signature)
{
    DS_CHECK(graph->n_inputs < DS_MAX_INPUTS, DS_ARGUMENT, "a graph has at most %d inputs",
             DS_MAX_INPUTS);
    DS_TRY(check_input(signature, graph->n_inputs));
    DS_TRY(add_edge(graph, signature, -1, (int)graph->n_inputs));
    *edge = (int)graph->n_edges - 1;
    graph->inputs[graph->n_inputs++] = *edge;
    return DS_OK;
}

static ds_status copy_text(const ds_allocator *a, char **copy, const char *text)
{
    void *p;
    size_t n_bytes = strlen(text) + 1;
    DS_TRY(ds_allocate(a, &p, n_bytes));
    *copy = memcpy(p, text, n_bytes);
    return DS_OK;
}

/* Whether the graph's file holds the bytes: compared as numbers, since they may lie anywhere. */
static bool in_file(const ds_graph *graph, const void *data, size_t n_bytes)
{
    if (!graph->file)
        return false;
    uintptr_t first = (uintptr_t)ds_mapped_bytes(graph->file), at = (uintptr_t)data;
    size_t size = ds_mapped_size(graph->file);
    return at >= first && at - first <= size && n_bytes <= size - (at - first);
}

static bool same_weight(const ds_weight *w, const ds_signature *has, const ds_signature *wanted,
                        const char *name, const void *data)
{
    return w->name && strcmp(w->name, name) == 0 && has->dtype == wanted->dtype &&
           ds_signature_same_shape(has, wanted) && memcmp(w->data, data, w->n_bytes) == 0;
}

static size_t hash_name(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

/* The weight of that name, type, shape and bytes; NULL where there is none. */
static void *find_weight(const ds_graph *graph, const ds_signature *signature, const char *name,
                         const void *data)
{
    if (!name || !graph->named)
        return NULL;
    const size_t mask = graph->named_capacity - 1;
    for (size_t i = hash_name(name) & mask; graph->named[i].weight; i = (i + 1) & mask) {
        const ds_weight *w = graph->named[i].weight;
        if (same_weight(w, graph->named[i].signature, signature, name, data))
            return w->data;
    }
    return NULL;
}

static void place_name(ds_named_weight *named, size_t capacity, ds_named_weight item)
{
    size_t i = hash_name(item.weight->name) & (capacity - 1);
    while (named[i].weight)
        i = (i + 1) & (capacity - 1);
    named[i] = item;
}

/* Room for the names of one more node: at most half of the places are taken. */
static ds_status make_room_for_names(ds_graph *graph)
{
    if (2 * (graph->n_named + DS_MAX_WEIGHTS) <= graph->named_capacity)
        return DS_OK;
    void *larger;
    const size_t capacity = graph->named_capacity ? 2 * graph->named_capacity : 4 * DS_MAX_WEIGHTS;
    DS_TRY(ds_allocate_zeroed(&graph->allocator, &larger, capacity * sizeof *graph->named));
    for (size_t i = 0; i < graph->named_capacity; i++)
        if (graph->named[i].weight)
            place_name(larger, capacity, graph->named[i]);
    ds_release(&graph->allocator, graph->named, graph->named_capacity * sizeof *graph->named);
    graph->named = larger;
    graph->named_capacity = capacity;
    return DS_OK;
}

/* So that later nodes find the node's own weights: not those that they share already. */
static void add_names(ds_graph *graph, const ds_node *node)
{
    for (int i = 0; i < node->op->n_weights; i++)
        if (node->weights[i].name && !node->weights[i].borrowed) {
            place_name(graph->named, graph->named_capacity,
                       (ds_named_weight){&node->weights[i], &node->op->weight[i]});
            graph->n_named++;
        }
}

static ds_status add_weight(const ds_graph *graph, ds_weight *weight, const ds_signature *signature,
                            const void *data, const char *name)
{
    const ds_allocator *a = &graph->allocator;
    size_t n_bytes = ds_signature_bytes(signature);
    if (name)
        DS_TRY(copy_text(a, &weight->name, name));
    void *found = in_file(graph, data, n_bytes) ? (void *)(uintptr_t)data
                                                : find_weight(graph, signature, name, data);
    weight->borrowed = found != NULL;
    weight->data = found;
    if (!found) {
        DS_TRY(ds_allocate(a, &weight->data, n_bytes));
        memcpy(weight->data, data, n_bytes);
    }
    weight->n_bytes = n_bytes;
    return DS_OK;
}

static ds_status copy_weights(const ds_graph *graph, ds_weight **weights,
                              const ds_signature *signatures, const void *const *data, size_t n,
                              const char *const *names)
{
    const ds_allocator *a = &graph->allocator;
    void *p;
    DS_TRY(ds_allocate_zeroed(a, &p, n * sizeof(ds_weight)));
    ds_weight *made = p;
    for (size_t i = 0; i < n; i++) {
        if (!data[i])
            continue;
        ds_status status =
            add_weight(graph, &made[i], &signatures[i], data[i], names ? names[i] : NULL);
        if (status != DS_OK) {
            release_weights(a, made, (int)n);
            return status;
        }
    }
    *weights = made;
    return DS_OK;
}

/* What a node owns besides its operator. */
static ds_status fill_node(ds_node *node, const ds_graph *graph, const ds_signature *weights,
                           const void *const *data, size_t n_weights, const ds_node_names *names)
{
    DS_TRY(copy_weights(graph, &node->weights, weights, data, n_weights,
                        names ? names->weights : NULL));
    ds_status status = copy_text(&graph->allocator, &node->path, names ? names->path : "");
    if (status != DS_OK)
        release_weights(&graph->allocator, node->weights, (int)n_weights);
    return status;
}

/* Room in the graph for the node and its edges; the edges are added. */
static ds_status make_room(ds_graph *graph, const ds_op *op)
{
    void *nodes = graph->nodes;
    size_t n_edges = graph->n_edges;
    DS_TRY(grow(&graph->allocator, &nodes, graph->n_nodes, &graph->nodes_capacity,
                sizeof *graph->nodes));
    graph->nodes = nodes;
    ds_status status = DS_OK;
    for (int o = 0; o < op->n_outputs && status == DS_OK; o++)
        status = add_edge(graph, &op->out[o], (int)graph->n_nodes, o);
    if (status == DS_OK && op->n_weights)
        status = make_room_for_names(graph);
    if (status != DS_OK)
        graph->n_edges = n_edges;
    return status;
}

ds_status ds_graph_node(ds_graph *graph, int *outputs, const ds_op_def *def, const ds_attr *attrs,
                        size_t n_attrs, const int *inputs, size_t n_inputs,
                        const ds_signature *weights, const void *const *data, size_t n_weights,
                        const ds_node_names *names)
{
    DS_CHECK(n_inputs <= DS_MAX_INPUTS, DS_ARGUMENT, "%s: at most %d inputs", def->name,
             DS_MAX_INPUTS);
    ds_signature signatures[DS_MAX_INPUTS];
    for (size_t i = 0; i < n_inputs; i++) {
        DS_CHECK(inputs[i] >= 0 && (size_t)inputs[i] < graph->n_edges, DS_ARGUMENT,
                 "%s: input %zu is not an edge of the graph", def->name, i);
        signatures[i] = graph->edges[inputs[i]].signature;
    }
    DS_CHECK(!def->check_values || n_inputs == 0 || graph->edges[inputs[0]].node < 0, DS_CAPTURE,
             "%s: its input must be one of the graph's own: the values of what is computed can't be "
             "checked before streams advance", def->name);
    ds_op *op;
    DS_TRY(ds_op_create(&op, &graph->allocator, def, attrs, n_attrs, signatures, n_inputs, weights,
                        n_weights));
    ds_node node = {.op = op, .first_output = (int)graph->n_edges, .id = (int)graph->n_nodes};
    memcpy(node.inputs, inputs, n_inputs * sizeof *inputs);
    ds_status status = fill_node(&node, graph, weights, data, n_weights, names);
    if (status == DS_OK) {
        status = make_room(graph, op);
        if (status == DS_OK) {
            graph->nodes[graph->n_nodes++] = node;
            add_names(graph, &node);
            for (int o = 0; o < op->n_outputs; o++)
                outputs[o] = node.first_output + o;
            return DS_OK;
        }
        release_weights(&graph->allocator, node.weights, op->n_weights);
        release_text(&graph->allocator, node.path);
    }
    ds_op_destroy(op);
    return status;
}

ds_status ds_graph_output(ds_graph *graph, int edge)
{
    DS_CHECK(edge >= 0 && (size_t)edge < graph->n_edges, DS_ARGUMENT,
             "output %zu is not an edge of the graph", graph->n_outputs);
    void *outputs = graph->outputs;
    DS_TRY(grow(&graph->allocator, &outputs, graph->n_outputs, &graph->outputs_capacity,
                sizeof *graph->outputs));
    graph->outputs = outputs;
    graph->outputs[graph->n_outputs++] = edge;
    graph->has_fingerprint = false;
    return DS_OK;
}

static ds_status copy_array(const ds_allocator *a, void **copy, size_t *capacity, const void *items,
                            size_t n, size_t item)
{
    DS_TRY(ds_allocate_array(a, copy, n, item));
    *capacity = n;
    if (n)
        memcpy(*copy, items, n * item);
    return DS_OK;
}

ds_status ds_graph_share(ds_graph **copy, const ds_graph *graph)
{
    const ds_allocator *a = &graph->allocator;
    ds_graph *g;
    DS_TRY(ds_graph_create(&g, a));
    g->shared = true;
    void *nodes = NULL, *edges = NULL, *outputs = NULL;
    ds_status status = copy_array(a, &nodes, &g->nodes_capacity, graph->nodes, graph->n_nodes,
                                  sizeof *graph->nodes);
    if (status == DS_OK)
        status = copy_array(a, &edges, &g->edges_capacity, graph->edges, graph->n_edges,
                            sizeof *graph->edges);
    if (status == DS_OK)
        status = copy_array(a, &outputs, &g->outputs_capacity, graph->outputs, graph->n_outputs,
                            sizeof *graph->outputs);
    g->nodes = nodes;
    g->edges = edges;
    g->outputs = outputs;
    if (status != DS_OK) {
        ds_graph_destroy(g);
        return status;
    }
    g->n_nodes = graph->n_nodes;
    g->n_edges = graph->n_edges;
    g->n_outputs = graph->n_outputs;
    g->n_inputs = graph->n_inputs;
    memcpy(g->inputs, graph->inputs, sizeof g->inputs);
    *copy = g;
    return DS_OK;
}

void ds_graph_counts(const ds_graph *graph, bool ended, ds_pair *pairs)
{
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        ds_pair in[DS_MAX_INPUTS];
        for (int i = 0; i < node->op->n_inputs; i++)
            in[i] = pairs[node->inputs[i]];
        ds_op_counts(node->op, in, ended, &pairs[node->first_output]);
    }
}

void ds_graph_needs(const ds_graph *graph, const ds_pair *pairs, int64_t *first)
{
    for (size_t e = 0; e < graph->n_edges; e++)
        first[e] = DS_NEVER;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        int64_t need[DS_MAX_INPUTS];
        if (node->silent)
            continue;
        ds_op_need(node->op, pairs[node->first_output].known, need);
        for (int i = 0; i < ds_op_n_values(node->op); i++)
            if (need[i] < first[node->inputs[i]])
                first[node->inputs[i]] = need[i];
    }
}
