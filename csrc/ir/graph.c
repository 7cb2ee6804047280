#include "ir/graph.h"

#include <string.h>

#include "base/alloc.h"

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

static void release_weights(const ds_allocator *a, ds_weight *weights, int n)
{
    for (int i = 0; weights && i < n; i++)
        ds_release(a, weights[i].data, weights[i].n_bytes);
    ds_release(a, weights, (size_t)n * sizeof *weights);
}

void ds_graph_destroy(ds_graph *graph)
{
    if (!graph)
        return;
    ds_allocator a = graph->allocator;
    for (size_t i = 0; i < graph->n_nodes && !graph->shared; i++) {
        ds_node *node = &graph->nodes[i];
        release_weights(&a, node->weights, node->op->n_weights);
        ds_op_destroy(node->op);
    }
    ds_release(&a, graph->nodes, graph->nodes_capacity * sizeof *graph->nodes);
    ds_release(&a, graph->edges, graph->edges_capacity * sizeof *graph->edges);
    ds_release(&a, graph->outputs, graph->outputs_capacity * sizeof *graph->outputs);
    ds_release(&a, graph, sizeof *graph);
}

static ds_status add_edge(ds_graph *graph, const ds_signature *signature, int node, int output)
{
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

static ds_status copy_weights(ds_graph *graph, ds_weight **weights, const ds_signature *signatures,
                              const void *const *data, size_t n)
{
    const ds_allocator *a = &graph->allocator;
    void *p;
    DS_TRY(ds_allocate_zeroed(a, &p, n * sizeof(ds_weight)));
    *weights = p;
    for (size_t i = 0; i < n; i++) {
        if (!data[i])
            continue;
        size_t n_bytes = ds_signature_bytes(&signatures[i]);
        ds_status status = ds_allocate(a, &(*weights)[i].data, n_bytes);
        if (status != DS_OK) {
            release_weights(a, *weights, (int)n);
            return status;
        }
        (*weights)[i].n_bytes = n_bytes;
        if (n_bytes)
            memcpy((*weights)[i].data, data[i], n_bytes);
    }
    return DS_OK;
}

ds_status ds_graph_node(ds_graph *graph, int *outputs, const ds_op_def *def, const ds_attr *attrs,
                        size_t n_attrs, const int *inputs, size_t n_inputs,
                        const ds_signature *weights, const void *const *data, size_t n_weights)
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
    ds_weight *copies = NULL;
    size_t n_edges = graph->n_edges;
    void *nodes = graph->nodes;
    ds_status status = copy_weights(graph, &copies, weights, data, n_weights);
    if (status != DS_OK)
        goto no_weights;
    status = grow(&graph->allocator, &nodes, graph->n_nodes, &graph->nodes_capacity,
                  sizeof *graph->nodes);
    graph->nodes = nodes;
    for (int o = 0; status == DS_OK && o < op->n_outputs; o++)
        status = add_edge(graph, &op->out[o], (int)graph->n_nodes, o);
    if (status != DS_OK)
        goto no_node;
    ds_node *node = &graph->nodes[graph->n_nodes];
    *node = (ds_node){.op = op, .first_output = (int)n_edges, .weights = copies,
                      .id = (int)graph->n_nodes};
    memcpy(node->inputs, inputs, n_inputs * sizeof *inputs);
    for (int o = 0; o < op->n_outputs; o++)
        outputs[o] = node->first_output + o;
    graph->n_nodes++;
    return DS_OK;
no_node:
    graph->n_edges = n_edges;
    release_weights(&graph->allocator, copies, (int)n_weights);
no_weights:
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

/* ---------------------------------------------------------------- fingerprint */
static void mix(uint64_t h[2], uint64_t word)
{
    h[0] = (h[0] ^ word) * 0x9E3779B97F4A7C15u;
    h[0] ^= h[0] >> 29;
    h[1] = (h[1] + word) * 0xC2B2AE3D27D4EB4Fu;
    h[1] ^= (h[1] >> 31) ^ h[0];
}

static void mix_bytes(uint64_t h[2], const void *data, size_t n_bytes)
{
    const unsigned char *p = data;
    mix(h, n_bytes);
    while (n_bytes) {
        uint64_t word = 0;
        for (unsigned i = 0; i < 8 && n_bytes; i++, n_bytes--)
            word |= (uint64_t)*p++ << (8 * i);
        mix(h, word);
    }
}

static void mix_real(uint64_t h[2], double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    mix(h, bits);
}

static void mix_signature(uint64_t h[2], const ds_signature *s)
{
    mix(h, (uint64_t)s->dtype);
    mix(h, (uint64_t)s->rank);
    for (int i = 0; i < s->rank; i++)
        mix(h, (uint64_t)s->shape[i]);
    mix(h, (uint64_t)s->rate.num);
    mix(h, (uint64_t)s->rate.den);
}

static void mix_node(uint64_t h[2], const ds_node *node)
{
    const ds_op *op = node->op;
    mix_bytes(h, op->def->name, strlen(op->def->name));
    for (int i = 0; op->def->attrs && op->def->attrs[i].name; i++) {
        const ds_attr_value *v = &op->attr[i];
        mix(h, (uint64_t)v->i);
        mix_real(h, v->x);
        mix(h, (uint64_t)v->n_ints);
        for (int k = 0; k < v->n_ints; k++)
            mix(h, (uint64_t)v->ints[k]);
    }
    for (int i = 0; i < op->n_inputs; i++)
        mix(h, (uint64_t)node->inputs[i]);
    for (int i = 0; i < op->n_weights; i++) {
        mix_signature(h, &op->weight[i]);
        mix_bytes(h, node->weights[i].data, node->weights[i].n_bytes);
    }
}

void ds_graph_fingerprint(const ds_graph *graph, uint64_t fingerprint[2])
{
    fingerprint[0] = 0x6473666770u;
    fingerprint[1] = 1;
    for (size_t i = 0; i < graph->n_inputs; i++)
        mix_signature(fingerprint, &graph->edges[graph->inputs[i]].signature);
    for (size_t j = 0; j < graph->n_nodes; j++)
        mix_node(fingerprint, &graph->nodes[j]);
    for (size_t i = 0; i < graph->n_outputs; i++)
        mix(fingerprint, (uint64_t)graph->outputs[i]);
}
