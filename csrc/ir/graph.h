/* ir/graph.h: a model as data: nodes in topological order, edges with signatures, inputs, outputs.
 *
 * Built front to back: a node's inputs exist before it, so a graph has no cycles by construction.
 * Weights that lie in a file that the graph borrows from are used there, those that are lent where they are, until a
 * plan is made of the graph (exec/weights.h); others are copied in, once. What is stored narrow is not rounded before. */
#pragma once
#include "base/arena.h"
#include "codec/mapped.h"
#include "ops/op.h"

/* Where the numbers of a weight lie that is stored narrow. */
typedef struct ds_narrow_data {
    const void *data; /* NULL: nowhere */
    ds_stored stored;
    const float *scales; /* in int8: [n_runs][n_scales] */
    size_t n_runs, n_scales;
} ds_narrow_data;

typedef struct ds_weight {
    void *data;      /* NULL where absent; never written to */
    size_t replaced; /* 1 + its place among what a plan has packed and given back; or 0 */
    size_t n_bytes;
    char *name;    /* NULL where it has none */
    bool borrowed; /* the data are the file's, or an earlier weight's */
    bool lent;     /* they are the caller's, until a plan is made */
    /* They are not yet the numbers that the operator stores: ds_weight_make rounds them, or widens those of `narrow`. */
    bool unmade;
    ds_narrow_data narrow;
    const ds_signature *signature;
    const struct ds_weight *next; /* of those with names, in its chain */
} ds_weight;

/* What a node and its weights are called, and how these are stored. */
typedef struct ds_node_names {
    const char *path;           /* of its module, "encoder.conv"; "" for the outermost */
    const char *const *weights; /* one per weight, NULL where it has none; or NULL */
    ds_narrowing how;           /* as far as the operator takes it (ds_op_store) */
    /* One per weight, or NULL: what the numbers are that the graph's file has as its data, where these are narrow. */
    const ds_narrow_data *narrow;
    bool lent; /* the caller keeps the data until a plan is made of the graph, or it is destroyed */
} ds_node_names;

typedef struct ds_node {
    ds_op *op;                 /* owned */
    int inputs[DS_MAX_INPUTS]; /* edges */
    int first_output;          /* its outputs are edges first_output, first_output + 1, ... */
    ds_weight *weights;        /* [op->n_weights] */
    int id;                    /* position before any rewrite; names state in snapshots */
    char *path;                /* of its module */
    bool made;                 /* by a rewrite (ir/rewrite.h): this graph's own, shared or not */
    bool silent; /* no output's value depends on it: counted, never run (ir/rewrite.h) */
} ds_node;

typedef struct ds_edge {
    ds_signature signature;
    int node;   /* producer; -1 for a graph input */
    int output; /* which output of it, or which graph input */
    bool given; /* follows from inputs alone that are given once, with the stream's start */
} ds_edge;

enum { DS_NAME_CHAINS = 4096 };

typedef struct ds_graph {
    ds_allocator allocator;
    ds_arena arena; /* of all but operators and the weights' data */
    ds_node *nodes;
    size_t n_nodes, nodes_capacity;
    ds_edge *edges;
    size_t n_edges, edges_capacity;
    int inputs[DS_MAX_INPUTS];
    size_t n_inputs;
    int *outputs;
    size_t n_outputs, outputs_capacity;
    /* [n_edges], of a graph that was rewritten: in which edge an edge's frames lie, itself unless its sync has gone;
     * NULL of others */
    const int *renamed;
    const ds_weight **named; /* [DS_NAME_CHAINS] by a hash of the name; NULL before the first */
    bool shared;             /* operators, weights and names are borrowed from another graph */
    ds_mapped *file;         /* that weights are borrowed from, or NULL */
    uint64_t fingerprint[2];
    bool has_fingerprint; /* remembered, of the graph as it is */
    uint64_t
        origin[2]; /* of the graph whose weights were stored otherwise to make this one; or 0, 0 */
} ds_graph;

ds_status ds_graph_create(ds_graph **graph, const ds_allocator *allocator);
void ds_graph_destroy(ds_graph *graph);
/* Adds an input; fills its edge. */
ds_status ds_graph_input(ds_graph *graph, int *edge, const ds_signature *signature);
/* Says that an input, not the first, is a memory: all its frames are given once, with the stream's start. Called
 * before the first node. */
ds_status ds_graph_memory(ds_graph *graph, int edge);
/* Lets the graph share `file` until it is destroyed: weights whose data lie within its bytes are used where they lie;
 * of one that is no mapping until a plan is made. Called before the first node, once. */
void ds_graph_borrow(ds_graph *graph, ds_mapped *file);
/* Adds a node: makes the operator, infers its outputs, copies its weights unless they are lent (data[i] NULL where
 * absent) and names (NULL: none). A weight that has the name, type, shape and bytes of an earlier one is
 * that one. What is stored narrow has those numbers already. Fills op->n_outputs edges. On failure the graph is
 * unchanged. */
ds_status ds_graph_node(ds_graph *graph, int *outputs, const ds_op_def *def, const ds_attr *attrs,
                        size_t n_attrs, const int *inputs, size_t n_inputs,
                        const ds_signature *weights, const void *const *data, size_t n_weights,
                        const ds_node_names *names);
/* Stores the weights of a graph that no plan has, and that are lent or a file's, in other ways: nodes[n_nodes]. Errors:
 * DS_DTYPE where one is beyond the range of its format, DS_NO_MEMORY; the graph is of no use then. */
ds_status ds_graph_store(ds_graph *graph, const ds_narrowing *nodes);
/* Fills for every node that is asked for ([n_nodes]) the error that its weights have where they are stored so: of the
 * elements that share a scale the norm of w - rounded w by that of w, the greatest of all; 0 for other nodes, and those
 * that store none; infinite where one is no number or beyond the range. Errors: DS_NO_MEMORY, DS_LIMIT. */
ds_status ds_graph_errors(const ds_graph *graph, ds_narrowing how, const char *asked,
                          double *errors);
/* Fills to [n_bytes] with the numbers that an operator stores of its weight i, which is there. Errors: DS_NO_MEMORY. */
ds_status ds_weight_make(const ds_allocator *allocator, const ds_weight *weight, const ds_op *op,
                         int i, void *to);
/* Bytes of the largest weight that is unmade. */
size_t ds_graph_most_unmade(const ds_graph *graph);
ds_status ds_graph_output(ds_graph *graph, int edge);
/* Makes a graph of the same nodes, to be rewritten: keeps the operators and weights of the original. */
ds_status ds_graph_share(ds_graph **copy, const ds_graph *graph);

/* Whether a node runs once, with the stream's start: all that it works on is given then. */
bool ds_graph_once(const ds_graph *graph, const ds_node *node);
/* Whether it may refuse a stream, so that it stays where nothing reads it. */
bool ds_node_checks(const ds_graph *graph, const ds_node *node);
/* Counts of every edge from those of the graph inputs. pairs: [n_edges], the inputs' filled by the
 * caller. What follows from what is given once has ended as soon as it is there. */
void ds_graph_counts(const ds_graph *graph, bool ended, ds_pair *pairs);
/* First frame of every edge that is still needed: the least need of its consumers at their known
 * counts, those left out that are silent, or run once; DS_NEVER where nothing is. */
void ds_graph_needs(const ds_graph *graph, const ds_pair *pairs, int64_t *first);
/* 128 bits over structure, attributes and weights, not names; independent of the machine. Remembered, where weights are
 * unmade. */
void ds_graph_fingerprint(const ds_graph *graph, uint64_t fingerprint[2]);
/* That of the graph as it was before its weights were stored otherwise: its snapshots go with this one. */
void ds_graph_origin(const ds_graph *graph, uint64_t origin[2]);
/* Computes it once, for as long as nothing is added: it reads all weights, and makes those that are unmade.
 * Errors: DS_NO_MEMORY. */
ds_status ds_graph_remember_fingerprint(ds_graph *graph);
/* Mixes more bytes into a fingerprint. */
void ds_fingerprint_bytes(uint64_t fingerprint[2], const void *data, size_t n_bytes);
/* For tables: quick where there are few bytes. */
uint64_t ds_hash_bytes(const void *data, size_t n_bytes);
