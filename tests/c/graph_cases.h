/*
 * Graphs for tests: built by hand in one line per node, or at random; and what they compute on a whole
 * stream, node by node, each value in memory of its own.
 *
 *     graph_case c = new_case();
 *     int x = add_input(&c, 3, 1, 1);
 *     int y = add_conv(&c, x, 4, 3, 2);
 *     add_output(&c, y);
 *     ... ds_plan_create(&plan, c.graph, kernels, 0, 0) ...       // takes the graph
 *
 * All memory comes from `fault`, which counts it, dirties it, and fails on demand. After a failure
 * (`c.status`) the add_ functions do nothing more.
 */
#pragma once

#include "op_driver.h"
#include "step_rows.h"

enum { MAX_GRAPH_INPUTS = 3, MAX_GRAPH_EDGES = 64, MAX_GRAPH_OUTPUTS = 8 };

static inline const ds_kernels *best_kernels(void)
{
    return ds_kernels_for(ds_cpu_best());
}

/* ---------------------------------------------------------------- building */

typedef struct graph_case {
    ds_graph *graph;
    ds_status status; /* the first failure */
} graph_case;

static inline graph_case new_case(void)
{
    graph_case c = {.graph = NULL};
    c.status = ds_graph_create(&c.graph, &hooks);
    return c;
}

static inline ds_signature frames_of(int64_t width, int64_t num, int64_t den)
{
    return (ds_signature){.dtype = DS_F32, .rank = 1, .shape = {width}, .rate = {num, den}};
}

static inline int add_input(graph_case *c, int64_t width, int64_t num, int64_t den)
{
    int edge = -1;
    const ds_signature s = frames_of(width, num, den);
    if (c->status == DS_OK)
        c->status = ds_graph_input(c->graph, &edge, &s);
    return edge;
}

static inline void add_output(graph_case *c, int edge)
{
    if (c->status == DS_OK)
        c->status = ds_graph_output(c->graph, edge);
}

static inline const ds_signature *signature_of(const graph_case *c, int edge)
{
    return &c->graph->edges[edge].signature;
}

static inline int64_t width_of(const graph_case *c, int edge)
{
    return edge < 0 || c->status != DS_OK ? 1 : signature_of(c, edge)->shape[0];
}

/* Adds a node with weights of these shapes (ended by rank -1), filled at random. */
static inline int add_node(graph_case *c, const ds_op_def *def, const ds_attr *attrs,
                           size_t n_attrs, const int *inputs, size_t n_inputs,
                           const ds_signature *weights, size_t n_weights)
{
    if (c->status != DS_OK)
        return -1;
    float *data[8] = {NULL};
    int outputs[DS_MAX_OUTPUTS] = {-1};
    for (size_t i = 0; i < n_weights; i++) {
        const size_t n = (size_t)ds_signature_elements(&weights[i]);
        data[i] = fresh_memory(n * sizeof(float));
        fill_random(data[i], n);
    }
    c->status = ds_graph_node(c->graph, outputs, def, attrs, n_attrs, inputs, n_inputs, weights,
                              (const void *const *)data, n_weights, NULL);
    for (size_t i = 0; i < n_weights; i++)
        free(data[i]);
    return c->status == DS_OK ? outputs[0] : -1;
}

static inline ds_attr int_attr(const char *name, int64_t i)
{
    return (ds_attr){.name = name, .kind = DS_ATTR_INT, .value.i = i};
}

static inline ds_attr text_attr(const char *name, const char *text)
{
    return (ds_attr){.name = name, .kind = DS_ATTR_CHOICE, .text = text};
}

static inline int add_unary(graph_case *c, const char *name, int x)
{
    const ds_op_def *def = ds_op_find(name);
    CHECK(def != NULL);
    return add_node(c, def, NULL, 0, &x, 1, NULL, 0);
}

/* left and right: padding; mode: of ds_op_conv1d. */
static inline int add_padded_conv(graph_case *c, int x, int64_t n_out, int64_t kernel,
                                  int64_t stride, int64_t dilation, int64_t left, int64_t right,
                                  const char *mode)
{
    const ds_attr attrs[] = {int_attr("stride", stride), int_attr("dilation", dilation),
                             int_attr("left", left), int_attr("right", right),
                             text_attr("mode", mode)};
    const ds_signature weights[] = {
        {.dtype = DS_F32, .rank = 3, .shape = {n_out, width_of(c, x), kernel}, .rate = {0, 1}},
        {.dtype = DS_F32, .rank = 1, .shape = {n_out}, .rate = {0, 1}}};
    return add_node(c, &ds_op_conv1d, attrs, 5, &x, 1, weights, 2);
}

static inline int add_conv(graph_case *c, int x, int64_t n_out, int64_t kernel, int64_t stride)
{
    return add_padded_conv(c, x, n_out, kernel, stride, 1, 0, 0, "zeros");
}

static inline int add_transposed(graph_case *c, int x, int64_t n_out, int64_t kernel,
                                 int64_t stride)
{
    const ds_attr attrs[] = {int_attr("stride", stride)};
    const ds_signature weight = {
        .dtype = DS_F32, .rank = 3, .shape = {width_of(c, x), n_out, kernel}, .rate = {0, 1}};
    return add_node(c, &ds_op_conv_transpose1d, attrs, 1, &x, 1, &weight, 1);
}

static inline int add_linear(graph_case *c, int x, int64_t n_out)
{
    const ds_signature weight = {
        .dtype = DS_F32, .rank = 2, .shape = {n_out, width_of(c, x)}, .rate = {0, 1}};
    return add_node(c, &ds_op_linear, NULL, 0, &x, 1, &weight, 1);
}

/* Edge of y; those of h_n and c_n follow it. */
static inline int add_lstm(graph_case *c, int x, int64_t hidden, bool bidirectional)
{
    const ds_attr attrs[] = {int_attr("bias", 0), int_attr("bidirectional", bidirectional ? 1 : 0)};
    ds_signature weights[4];
    for (int i = 0; i < 4; i++) {
        weights[i] = (ds_signature){.dtype = DS_F32,
                                    .rank = 2,
                                    .shape = {4 * hidden, i % 2 == 0 ? width_of(c, x) : hidden},
                                    .rate = {0, 1}};
    }
    return add_node(c, &ds_op_lstm, attrs, 2, &x, 1, weights, bidirectional ? 4 : 2);
}

/* name: an operator with integer attributes only. */
static inline int add_shift(graph_case *c, const char *name, int x, const char *first, int64_t a,
                            const char *second, int64_t b)
{
    const ds_attr attrs[] = {int_attr(first, a), int_attr(second == NULL ? "" : second, b)};
    const ds_op_def *def = ds_op_find(name);
    CHECK(def != NULL);
    return add_node(c, def, attrs, second == NULL ? 1 : 2, &x, 1, NULL, 0);
}

static inline int add_sync(graph_case *c, int x, int y)
{
    const int inputs[] = {x, y};
    return add_node(c, &ds_op_sync, NULL, 0, inputs, 2, NULL, 0);
}

/* Combines two edges, brought together first. */
static inline int add_combined(graph_case *c, const char *name, int x, int y)
{
    const int inputs[] = {add_sync(c, x, y), add_sync(c, y, x)};
    const ds_attr axis = int_attr("axis", 0);
    const ds_op_def *def = ds_op_find(name);
    CHECK(def != NULL);
    return add_node(c, def, &axis, def == &ds_op_cat ? 1 : 0, inputs, 2, NULL, 0);
}

static inline int add_reduction(graph_case *c, int x, const char *kind)
{
    const ds_attr attr = text_attr("kind", kind);
    return add_node(c, &ds_op_reduce_frames, &attr, 1, &x, 1, NULL, 0);
}

static inline void print_graph(const ds_graph *g)
{
    for (size_t i = 0; i < g->n_inputs; i++)
        fprintf(stderr, "  edge %d: input\n", g->inputs[i]);
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_op *op = g->nodes[j].op;
        fprintf(stderr, "  edge %d: %s(", g->nodes[j].first_output, op->def->name);
        for (int i = 0; i < op->n_inputs; i++)
            fprintf(stderr, "%s%d", i > 0 ? ", " : "", g->nodes[j].inputs[i]);
        for (int k = 0; op->def->attrs != NULL && op->def->attrs[k].name != NULL; k++)
            fprintf(stderr, ", %s=%d", op->def->attrs[k].name, (int)op->attr[k].i);
        fprintf(stderr, ") of %d features\n", (int)ds_signature_elements(&op->out[0]));
    }
    for (size_t o = 0; o < g->n_outputs; o++)
        fprintf(stderr, "  output %zu: edge %d\n", o, g->outputs[o]);
}

/* ---------------------------------------------------------------- at random */

enum { LENGTHS_SEEN = 48 };

/* Whether two edges have the same length, whatever the length of the stream. */
static inline bool same_totals(const graph_case *c, int x, int y)
{
    ds_pair pairs[MAX_GRAPH_EDGES];
    for (int64_t n = 0; n < LENGTHS_SEEN; n++) {
        for (size_t i = 0; i < c->graph->n_inputs; i++)
            pairs[c->graph->inputs[i]] = (ds_pair){n, n};
        ds_graph_counts(c->graph, true, pairs);
        if (pairs[x].known != pairs[y].known)
            return false;
    }
    return true;
}

/* An edge with a stream axis and one feature axis. */
static inline int random_edge(const graph_case *c)
{
    for (;;) {
        /* the newest ones more often */
        const int64_t n = (int64_t)c->graph->n_edges, a = random_below(n), b = random_below(n);
        const int edge = (int)(a > b ? a : b);
        if (signature_of(c, edge)->rate.num > 0)
            return edge;
    }
}

static inline int random_conv(graph_case *c, int x)
{
    static const char *const modes[] = {"zeros", "zeros", "replicate", "reflect"};
    const int64_t kernel = random_in(1, 4), dilation = random_in(1, 2);
    const int64_t span = (kernel - 1) * dilation + 1;
    const bool same = random_below(2) == 0;
    const int64_t left = same ? (span - 1) / 2 : random_in(0, span - 1);
    const int64_t right = same ? span - 1 - left : random_in(0, span - 1);
    const char *mode = modes[random_below(4)];
    return add_padded_conv(c, x, random_in(1, 5), kernel, same ? 1 : random_in(1, 3), dilation,
                           left, right, mode);
}

/* Adds one node; `whole`: one that may wait for the end of the stream. */
static inline void add_random_node(graph_case *c, bool whole)
{
    static const char *const unary[] = {"tanh", "sigmoid", "neg", "silu", "softmax"};
    static const char *const binary[] = {"add", "sub", "mul", "cat"};
    const int x = random_edge(c);
    switch (random_below(12)) {
    case 0:
        add_unary(c, unary[random_below(5)], x);
        break;
    case 1:
        add_linear(c, x, random_in(1, 5));
        break;
    case 2:
        add_lstm(c, x, random_in(1, 3), false);
        break;
    case 3:
        add_shift(c, "pad", x, "left", random_in(0, 3), "right", random_in(0, 3));
        break;
    case 4:
        add_shift(c, "slice", x, "start", random_in(0, 3), "crop", random_in(0, 3));
        break;
    case 5:
        add_shift(c, "slice", x, "start", random_in(0, 2), "step", random_in(1, 3));
        break;
    case 6:
        add_shift(c, "delay", x, "frames", random_in(0, 3), NULL, 0);
        break;
    case 7:
        add_transposed(c, x, random_in(1, 3), random_in(1, 4), random_in(1, 3));
        break;
    case 8: {
        /* two edges of one rate and length: a residual */
        for (int tries = 0; tries < 20; tries++) {
            const int y = random_edge(c);
            if (ds_rate_equal(signature_of(c, x)->rate, signature_of(c, y)->rate) &&
                (same_totals(c, x, y) || random_below(16) == 0)) {
                const int64_t width = width_of(c, x);
                const int other = width_of(c, y) == width ? y : add_linear(c, y, width);
                add_combined(c, binary[random_below(4)], x, other);
                break;
            }
        }
        break;
    }
    case 9:
        if (whole) {
            add_padded_conv(c, x, 2, 3, 1, 1, 1, 1, "circular");
            break;
        }
        /* fall through */
    default:
        random_conv(c, x);
        break;
    }
}

/* Of 1 to `most` nodes, with 1 to 3 outputs, the last edge among them. */
static inline graph_case random_case(int64_t most, bool whole)
{
    graph_case c = new_case();
    CHECK(c.status == DS_OK);
    add_input(&c, random_in(1, 4), 1, 1);
    if (random_below(4) == 0)
        add_input(&c, random_in(1, 3), 1, 1);
    const int64_t n = random_in(1, most);
    while ((int64_t)c.graph->n_nodes < n && c.graph->n_edges < MAX_GRAPH_EDGES - 6 &&
           c.status == DS_OK) {
        add_random_node(&c, whole);
        /* what is refused (a reflection that is too wide) is left out */
        c.status = c.status == DS_SHAPE || c.status == DS_ARGUMENT ? DS_OK : c.status;
    }
    add_output(&c, (int)c.graph->n_edges - 1);
    for (int64_t o = random_in(0, 2); o > 0; o--)
        add_output(&c, random_edge(&c));
    if (random_below(5) == 0)
        add_output(&c, add_reduction(&c, random_edge(&c), "mean"));
    CHECK(c.status == DS_OK);
    return c;
}

/* ---------------------------------------------------------------- on whole streams */

typedef struct whole_stream {
    int64_t length;
    ds_pair counts[MAX_GRAPH_EDGES];
    char *value[MAX_GRAPH_EDGES]; /* [total][features]; NULL: refused before it was computed */
    ds_status status;             /* of the checks at the end */
} whole_stream;

static inline void free_whole(whole_stream *w)
{
    for (int e = 0; e < MAX_GRAPH_EDGES; e++) {
        free(w->value[e]);
        w->value[e] = NULL;
    }
}

static inline void compute_node(const ds_node *node, whole_stream *w, const ds_kernels *kernels)
{
    const ds_op *op = node->op;
    const void *weights[DS_MAX_WEIGHTS];
    char *in[DS_MAX_INPUTS];
    int64_t lengths[DS_MAX_INPUTS];
    for (int i = 0; i < op->n_inputs; i++) {
        if (w->counts[node->inputs[i]].total <
            0) { /* what follows from a missing edge is missing */
            for (int o = 0; o < op->n_outputs; o++)
                w->value[node->first_output + o] = fresh_memory(0);
            return;
        }
        in[i] = w->value[node->inputs[i]];
        lengths[i] = w->counts[node->inputs[i]].known;
    }
    for (int i = 0; i < op->n_weights; i++)
        weights[i] = node->weights[i].data;
    driven d = drive(op, &kernels->real[0], weights);
    op_stream s = open_op_stream(&d, in, lengths, false);
    feed_op_whole(&d, &s);
    for (int o = 0; o < op->n_outputs; o++)
        w->value[node->first_output + o] = s.y[o] != NULL ? s.y[o] : fresh_memory(0);
    free(s.carried);
    drive_no_more(&d);
}

/* Every edge of the graph on the whole stream; inputs: [n_inputs] frames, `length` of each. */
static inline whole_stream compute_whole(const ds_graph *g, const float *const *inputs,
                                         int64_t length, const ds_kernels *kernels)
{
    whole_stream w = {.length = length};
    CHECK(g->n_edges <= MAX_GRAPH_EDGES);
    for (size_t i = 0; i < g->n_inputs; i++) {
        const size_t e = (size_t)g->inputs[i],
                     n_bytes = (size_t)length * ds_signature_bytes(&g->edges[e].signature);
        w.counts[e] = (ds_pair){length, length};
        w.value[e] = fresh_memory(n_bytes);
        memcpy(w.value[e], inputs[i], n_bytes);
    }
    ds_graph_counts(g, true, w.counts);
    for (size_t j = 0; j < g->n_nodes && w.status == DS_OK; j++) {
        ds_pair in[DS_MAX_INPUTS];
        for (int i = 0; i < g->nodes[j].op->n_inputs; i++)
            in[i] = w.counts[g->nodes[j].inputs[i]];
        w.status = ds_op_check(g->nodes[j].op, in, true);
        if (w.status == DS_OK)
            compute_node(&g->nodes[j], &w, kernels);
    }
    return w;
}
