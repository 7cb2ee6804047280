/* ir/graph.c: builds graphs, node by node, and owns what they hold; finds weights that are there already by a
 * table of names; counts and needs of all edges by one walk. */
#include "ir/graph.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "kernels/narrow.h"
#include "ops/fused.h"

ds_status ds_graph_create(ds_graph **graph, const ds_allocator *allocator)
{
    DS_TRY(ds_allocate_zeroed(allocator, (void **)graph, sizeof **graph));
    (*graph)->allocator = *allocator;
    ds_arena_init(&(*graph)->arena, allocator);
    return DS_OK;
}

static void release_weights(const ds_allocator *a, const ds_weight *weights, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!weights[i].borrowed && !weights[i].lent)
            ds_release(a, weights[i].data, weights[i].n_bytes);
}

void ds_graph_destroy(ds_graph *graph)
{
    if (!graph)
        return;
    ds_allocator a = graph->allocator;
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].made)
            ds_fused_destroy((ds_fused *)(void *)graph->nodes[i].op);
    for (size_t i = 0; i < graph->n_nodes && !graph->shared; i++) {
        ds_node *node = &graph->nodes[i];
        release_weights(&a, node->weights, (size_t)node->op->n_weights);
        ds_op_destroy(node->op);
    }
    ds_arena_free(&graph->arena);
    ds_mapped_release(graph->file);
    ds_release(&a, graph, sizeof *graph);
}

void ds_graph_borrow(ds_graph *graph, ds_mapped *file)
{
    graph->file = ds_mapped_share(file);
}

static ds_status add_edge(ds_graph *graph, const ds_signature *signature, int node, int output,
                          bool given)
{
    graph->has_fingerprint = false;
    DS_GROW(&graph->arena, graph->edges, graph->n_edges, graph->edges_capacity);
    graph->edges[graph->n_edges++] =
        (ds_edge){.signature = *signature, .node = node, .output = output, .given = given};
    return DS_OK;
}

/* What operators check of their own inputs: an input may have none. */
static ds_status check_input(const ds_signature *s, size_t i)
{
    ds_rate lowest = {1, 1};
    DS_CHECK((s->rate.num > 0 || (s->rate.num == 0 && i > 0)) && s->rate.den > 0, DS_ARGUMENT,
             i > 0 ? "input %zu: the rate must be positive, or 0 where it is given once"
                   : "input %zu: the rate must be positive",
             i);
    DS_CHECK(ds_rate_scale(&lowest, s->rate.num, s->rate.den) && ds_rate_equal(lowest, s->rate),
             DS_ARGUMENT, "input %zu: the rate %lld/%lld is no fraction in lowest terms", i,
             (long long)s->rate.num, (long long)s->rate.den);
    DS_CHECK(ds_dtype_bytes(s->dtype) != 0, DS_DTYPE, "input %zu has no element type", i);
    DS_CHECK(s->rank >= 0 && s->rank <= DS_MAX_RANK, DS_SHAPE,
             "input %zu has %d feature dimensions, at most %d are supported", i, s->rank,
             DS_MAX_RANK);
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
    DS_TRY(add_edge(graph, signature, -1, (int)graph->n_inputs, signature->rate.num == 0));
    *edge = (int)graph->n_edges - 1;
    graph->inputs[graph->n_inputs++] = *edge;
    return DS_OK;
}

ds_status ds_graph_memory(ds_graph *graph, int edge)
{
    DS_CHECK(edge > 0 && (size_t)edge < graph->n_inputs && graph->n_nodes == 0 &&
                 graph->edges[edge].signature.rate.num > 0,
             DS_ARGUMENT, "edge %d can't be a memory: expected an input with frames, not the first",
             edge);
    graph->edges[edge].given = true;
    graph->has_fingerprint = false;
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

static size_t chain_of(const char *name)
{
    return (size_t)ds_hash_bytes(name, strlen(name)) % DS_NAME_CHAINS;
}

/* The weight of that name, type, shape and bytes; NULL where there is none. */
static const ds_weight *find_weight(const ds_graph *graph, const ds_signature *signature,
                                    const char *name, const void *data)
{
    const ds_weight *w = name && graph->named ? graph->named[chain_of(name)] : NULL;
    while (w && (strcmp(w->name, name) != 0 || w->signature->dtype != signature->dtype ||
                 !ds_signature_same_shape(w->signature, signature) ||
                 (w->data != data && memcmp(w->data, data, w->n_bytes) != 0)))
        w = w->next;
    return w;
}

/* So that later nodes find the node's own weights: not those that they share already. */
static void add_names(ds_graph *graph, const ds_node *node)
{
    for (int i = 0; i < node->op->n_weights; i++) {
        ds_weight *w = &node->weights[i];
        w->signature = &node->op->weight[i];
        if (w->name && !w->borrowed) {
            const ds_weight **chain = &graph->named[chain_of(w->name)];
            w->next = *chain;
            *chain = w;
        }
    }
}

/* Fills `to`, unless it is NULL, with a weight's elements, each as the float next to it that can be stored so. */
static ds_status round_weight(const ds_allocator *allocator, void *to, const ds_op *op, int i,
                              const float *from, const char *name)
{
    const ds_signature shape = ds_op_scales(op, i);
    void *scales;
    DS_TRY(ds_allocate(allocator, &scales, ds_signature_bytes(&shape)));
    const size_t beyond = ds_op_narrowed(op, i, from, scales, NULL, to);
    ds_release(allocator, scales, ds_signature_bytes(&shape));
    DS_CHECK(beyond == ds_signature_bytes(&op->weight[i]) / sizeof(float), DS_DTYPE,
             "weight '%s': element %zu is %g, beyond the range of %s; keep it wider",
             name ? DS_SHOWN(name) : "?", beyond, (double)from[beyond],
             ds_stored_name(ds_op_stored(op, i)));
    return DS_OK;
}

static void widen(void *to, const ds_narrow_data *from, size_t n_bytes)
{
    ds_widen(from->stored, from->data, n_bytes / sizeof(float), from->scales, from->n_runs,
             from->n_scales, to);
}

ds_status ds_weight_make(const ds_allocator *allocator, const ds_weight *weight, const ds_op *op,
                         int i, void *to)
{
    const ds_stored stored = ds_op_stored(op, i);
    const float *from = weight->data;
    if (weight->narrow.data) {
        widen(to, &weight->narrow, weight->n_bytes);
        from = to;
    }
    if (weight->unmade && stored != DS_STORED_WIDE && stored != weight->narrow.stored)
        return round_weight(allocator, to, op, i, from, weight->name);
    if (from != to)
        memcpy(to, from, weight->n_bytes);
    return DS_OK;
}

/* Whether elements of the graph's file are those that the operator stores of its weight i. */
static bool stays_narrow(const ds_op *op, int i, const ds_narrow_data *narrow)
{
    if (!narrow->data || narrow->stored != ds_op_stored(op, i))
        return false;
    const ds_signature scales = ds_op_scales(op, i);
    const size_t n_runs = (size_t)scales.shape[0];
    return narrow->stored != DS_STORED_INT8 ||
           (narrow->n_runs == n_runs &&
            narrow->n_scales * n_runs == ds_signature_bytes(&scales) / sizeof(float));
}

static ds_status add_weight(ds_graph *graph, ds_weight *weight, const ds_op *op, int i,
                            const void *data, const ds_node_names *names)
{
    const ds_signature *signature = &op->weight[i];
    const char *const name = names && names->weights ? names->weights[i] : NULL;
    const ds_narrow_data *const narrow = names && names->narrow ? &names->narrow[i] : NULL;
    void *widened = NULL;
    weight->n_bytes = ds_signature_bytes(signature);
    if (name)
        DS_PUSH_COPY(&graph->arena, weight->name, name, strlen(name) + 1);
    if (narrow && stays_narrow(op, i, narrow)) {
        weight->narrow = *narrow;
        weight->unmade = true;
    } else if (narrow && narrow->data) {
        DS_TRY(ds_allocate(&graph->allocator, &widened, weight->n_bytes));
        widen(widened, narrow, weight->n_bytes);
        data = widened;
    }
    const bool inside = weight->unmade || in_file(graph, data, weight->n_bytes);
    const ds_weight *found = inside ? NULL : find_weight(graph, signature, name, data);
    weight->borrowed = inside || found;
    weight->lent = inside ? !ds_mapped_is_mapping(graph->file) : names && names->lent;
    weight->data = found ? found->data : (void *)(uintptr_t)data;
    if (widened && found)
        ds_release(&graph->allocator, widened, weight->n_bytes);
    if (weight->borrowed || weight->lent || widened)
        return DS_OK;
    weight->data = NULL;
    DS_TRY(ds_allocate(&graph->allocator, &weight->data, weight->n_bytes));
    memcpy(weight->data, data, weight->n_bytes);
    return DS_OK;
}

size_t ds_graph_most_unmade(const ds_graph *graph)
{
    size_t most = 0;
    for (size_t j = 0; j < graph->n_nodes; j++)
        for (int i = 0; i < graph->nodes[j].op->n_weights; i++) {
            const ds_weight *const weight = &graph->nodes[j].weights[i];
            most = weight->unmade && weight->n_bytes > most ? weight->n_bytes : most;
        }
    return most;
}

/* What a node has besides its operator, and room for it and its edges, which are added. */
static ds_status fill_node(ds_node *node, ds_graph *graph, const void *const *data,
                           const ds_node_names *names)
{
    const ds_op *op = node->op;
    const char *path = names ? names->path : "";
    bool given = true;
    for (int i = 0; i < op->n_inputs; i++)
        given &= graph->edges[node->inputs[i]].given;
    DS_PUSH_ZEROED(&graph->arena, node->weights, (size_t)op->n_weights);
    for (int i = 0; i < op->n_weights; i++)
        if (data[i])
            DS_TRY(add_weight(graph, &node->weights[i], op, i, data[i], names));
    DS_PUSH_COPY(&graph->arena, node->path, path, strlen(path) + 1);
    if (names && names->weights && !graph->named)
        DS_PUSH_ZEROED(&graph->arena, graph->named, DS_NAME_CHAINS);
    DS_GROW(&graph->arena, graph->nodes, graph->n_nodes, graph->nodes_capacity);
    for (int o = 0; o < op->n_outputs; o++)
        DS_TRY(add_edge(graph, &op->out[o], (int)graph->n_nodes, o, given));
    return DS_OK;
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
    ds_op *op;
    DS_TRY(ds_op_create(&op, &graph->allocator, def, attrs, n_attrs, signatures, n_inputs, weights,
                        n_weights));
    ds_node node = {.op = op, .first_output = (int)graph->n_edges, .id = (int)graph->n_nodes};
    memcpy(node.inputs, inputs, n_inputs * sizeof *inputs);
    ds_status status = names ? ds_op_store(op, names->how) : DS_OK;
    if (status == DS_OK)
        status = fill_node(&node, graph, data, names);
    if (status != DS_OK) {
        graph->n_edges = (size_t)node.first_output;
        release_weights(&graph->allocator, node.weights, node.weights ? n_weights : 0);
        ds_op_destroy(op);
        return status;
    }
    graph->nodes[graph->n_nodes++] = node;
    add_names(graph, &node);
    for (int o = 0; o < op->n_outputs; o++)
        outputs[o] = node.first_output + o;
    return DS_OK;
}

/* Has a weight made of its data as its operator stores it; refuses what is beyond the range of that. */
static ds_status store_weight(const ds_allocator *allocator, ds_weight *weight, const ds_op *op,
                              int i)
{
    const ds_stored stored = ds_op_stored(op, i);
    void *made;
    weight->unmade = weight->narrow.data || stored != DS_STORED_WIDE;
    if (stored == DS_STORED_WIDE || (weight->narrow.data && weight->narrow.stored == stored))
        return DS_OK;
    if (!weight->narrow.data)
        return round_weight(allocator, NULL, op, i, weight->data, weight->name);
    DS_TRY(ds_allocate(allocator, &made, weight->n_bytes));
    const ds_status status = ds_weight_make(allocator, weight, op, i, made);
    ds_release(allocator, made, weight->n_bytes);
    return status;
}

ds_status ds_graph_store(ds_graph *graph, const ds_narrowing *nodes)
{
    DS_TRY(ds_graph_remember_fingerprint(graph));
    ds_graph_origin(graph, graph->origin);
    graph->has_fingerprint = false;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        ds_status status = ds_op_store(node->op, nodes[j]);
        for (int i = 0; status == DS_OK && i < node->op->n_weights; i++)
            if (node->weights[i].data)
                status = store_weight(&graph->allocator, &node->weights[i], node->op, i);
        if (status != DS_OK && status != DS_NO_MEMORY)
            return ds_fail(status, "%s (%s): %s",
                           *node->path ? DS_SHOWN(node->path) : "the forward", node->op->def->name,
                           ds_last_error());
        DS_TRY(status);
    }
    return DS_OK;
}

/* Adds to two sums the squares of what n numbers, `step` apart, lose by rounding, and those of the numbers. */
static inline void add_squares(double *sum, const float *whole, const float *rounded, size_t n,
                               size_t step)
{
    enum { BESIDE = 8 };
    double gaps[BESIDE] = {0}, squares[BESIDE] = {0};
    for (size_t i = 0; i < n / BESIDE * BESIDE; i += BESIDE)
        for (size_t k = 0; k < BESIDE; k++) {
            const double x = (double)whole[(i + k) * step];
            const double gap = x - (double)rounded[(i + k) * step];
            gaps[k] += gap * gap;
            squares[k] += x * x;
        }
    for (size_t i = n / BESIDE * BESIDE; i < n; i++) {
        const double x = (double)whole[i * step], gap = x - (double)rounded[i * step];
        gaps[0] += gap * gap;
        squares[0] += x * x;
    }
    for (size_t k = 0; k < BESIDE; k++) {
        sum[0] += gaps[k];
        sum[1] += squares[k];
    }
}

/* The greatest error of a channel; sums: two for each channel, 0. */
static double worst_error(const ds_op *op, int i, const float *whole, const float *rounded,
                          double *sums)
{
    const ds_signature shape = ds_op_scales(op, i);
    const size_t n_channels = ds_signature_bytes(&shape) / sizeof(float);
    const size_t n_runs = (size_t)shape.shape[0], places = n_channels / n_runs;
    const size_t run = ds_signature_bytes(&op->weight[i]) / sizeof(float) / n_runs;
    double worst = 0;
    for (size_t c = 0; c < n_channels; c++) {
        const size_t place = c % places, first = c / places * run + place;
        const size_t own = op->def->scale_of ? op->def->scale_of(op, place) : place;
        double *const sum = sums + 2 * (c - place + own);
        if (places == 1)
            add_squares(sum, whole + first, rounded + first, run, 1);
        else
            add_squares(sum, whole + first, rounded + first, run / places, places);
    }
    for (size_t c = 0; c < n_channels; c++) {
        const double error = sums[2 * c] == 0 ? 0 : sqrt(sums[2 * c] / sums[2 * c + 1]);
        worst = error <= worst ? worst : error < (double)INFINITY ? error : (double)INFINITY;
    }
    return worst;
}

static ds_status node_error(ds_arena *memory, const ds_node *node, double *error)
{
    for (int i = 0; i < node->op->n_weights; i++) {
        const ds_weight *const weight = &node->weights[i];
        if (!weight->data || ds_op_stored(node->op, i) == DS_STORED_WIDE)
            continue;
        ds_arena_reset(memory);
        const ds_signature shape = ds_op_scales(node->op, i);
        const size_t n_channels = ds_signature_bytes(&shape) / sizeof(float);
        float *whole = weight->data, *rounded, *scales;
        double *sums;
        DS_PUSH(memory, scales, n_channels);
        DS_PUSH_ZEROED(memory, sums, 2 * n_channels);
        DS_PUSH(memory, rounded, weight->n_bytes / sizeof(float));
        if (weight->narrow.data) {
            DS_PUSH(memory, whole, weight->n_bytes / sizeof(float));
            widen(whole, &weight->narrow, weight->n_bytes);
        }
        const size_t n = ds_op_narrowed(node->op, i, whole, scales, NULL, rounded);
        const double own = n < weight->n_bytes / sizeof(float)
                               ? (double)INFINITY
                               : worst_error(node->op, i, whole, rounded, sums);
        *error = own > *error ? own : *error;
    }
    return DS_OK;
}

ds_status ds_graph_errors(const ds_graph *graph, ds_narrowing how, const char *asked,
                          double *errors)
{
    ds_status status = DS_OK;
    ds_arena memory;
    ds_arena_init(&memory, &graph->allocator);
    for (size_t j = 0; status == DS_OK && j < graph->n_nodes; j++) {
        errors[j] = 0;
        if (!asked[j])
            continue;
        ds_op *const op = graph->nodes[j].op;
        const ds_narrowing own = {op->stored, op->products};
        status = ds_op_store(op, how);
        status = status == DS_OK ? node_error(&memory, &graph->nodes[j], &errors[j]) : status;
        op->stored = own.stored;
        op->products = own.products;
    }
    ds_arena_free(&memory);
    return status;
}

ds_status ds_graph_output(ds_graph *graph, int edge)
{
    DS_CHECK(edge >= 0 && (size_t)edge < graph->n_edges, DS_ARGUMENT,
             "output %zu is not an edge of the graph", graph->n_outputs);
    DS_GROW(&graph->arena, graph->outputs, graph->n_outputs, graph->outputs_capacity);
    graph->outputs[graph->n_outputs++] = edge;
    graph->has_fingerprint = false;
    return DS_OK;
}

static ds_status share_arrays(ds_graph *g, const ds_graph *graph)
{
    g->nodes_capacity = g->n_nodes = graph->n_nodes;
    g->edges_capacity = g->n_edges = graph->n_edges;
    g->outputs_capacity = g->n_outputs = graph->n_outputs;
    g->n_inputs = graph->n_inputs;
    memcpy(g->inputs, graph->inputs, sizeof g->inputs);
    DS_PUSH_COPY(&g->arena, g->nodes, graph->nodes, g->n_nodes);
    DS_PUSH_COPY(&g->arena, g->edges, graph->edges, g->n_edges);
    DS_PUSH_COPY(&g->arena, g->outputs, graph->outputs, g->n_outputs);
    return DS_OK;
}

ds_status ds_graph_share(ds_graph **copy, const ds_graph *graph)
{
    ds_graph *g;
    DS_TRY(ds_graph_create(&g, &graph->allocator));
    g->shared = true;
    memcpy(g->origin, graph->origin, sizeof g->origin);
    const ds_status status = share_arrays(g, graph);
    if (status != DS_OK) {
        g->n_nodes = 0; /* which may not be there */
        ds_graph_destroy(g);
        return status;
    }
    *copy = g;
    return DS_OK;
}

bool ds_node_checks(const ds_graph *graph, const ds_node *node)
{
    const ds_op_def *const def = node->op->def;
    return node->op->check.n_roots > 0 ||
           (def->indices && graph->edges[node->inputs[def->checked_input]].node < 0);
}

bool ds_graph_once(const ds_graph *graph, const ds_node *node)
{
    return graph->edges[node->first_output].given;
}

void ds_graph_counts(const ds_graph *graph, bool ended, ds_pair *pairs)
{
    bool begun = false; /* what is given once is there */
    for (size_t i = 0; i < graph->n_inputs; i++)
        begun |= graph->edges[graph->inputs[i]].given && pairs[graph->inputs[i]].known > 0;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        ds_pair in[DS_MAX_INPUTS];
        for (int i = 0; i < node->op->n_inputs; i++)
            in[i] = pairs[node->inputs[i]];
        ds_op_counts(node->op, in, ended || (begun && ds_graph_once(graph, node)),
                     &pairs[node->first_output]);
    }
}

void ds_graph_needs(const ds_graph *graph, const ds_pair *pairs, int64_t *first)
{
    for (size_t e = 0; e < graph->n_edges; e++)
        first[e] = DS_NEVER;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        int64_t need[DS_MAX_INPUTS];
        if (node->silent || ds_graph_once(graph, node))
            continue;
        ds_op_need(node->op, pairs[node->first_output].known, need);
        for (int i = 0; i < ds_op_n_values(node->op); i++)
            if (need[i] < first[node->inputs[i]])
                first[node->inputs[i]] = need[i];
    }
}
