/* exec/plan.h: everything about running a graph that is known before its first stream.
 *
 * Where each edge's new frames lie (a buffer shared by edges whose lives don't overlap), what each edge
 * keeps between calls and where in a stream's block, where each operator's carried arrays lie, and the
 * weights as the chosen kernels want them. Immutable once made; shared by all threads. */
#ifndef DS_EXEC_PLAN_H
#define DS_EXEC_PLAN_H
#include "ir/rewrite.h"

/* Of an input of one stream; an edge may have twice as many. Counts are far from where they saturate. */
#define DS_MOST_FRAMES ((int64_t)1 << 60)

typedef struct ds_edge_plan {
    size_t frame_bytes;
    int64_t capacity;    /* frames kept in the block at most; 0 where none or unbounded */
    size_t state_offset; /* of the kept frames in the block */
    int tail;            /* unbounded: index of its tail in the slot; else -1 */
    int buffer;          /* scratch buffer; -1 for unbounded edges and edges that nothing produces */
    bool freed;          /* its buffer has gone to another edge */
    int last_use;        /* node after which the frames may go; n_nodes: when the call is over */
} ds_edge_plan;

typedef struct ds_node_plan {
    void *prepared; /* part of the plan's; NULL where the kernels read raw weights */
    size_t carried_offset;
    const void **weights; /* raw, borrowed from the graph; [n_weights] */
} ds_node_plan;

/* The head of a stream's block; the kept frames and carried arrays follow, 64-byte aligned. */
typedef struct ds_block {
    uint64_t fingerprint[2];
    uint32_t version, n_inputs;
    int64_t frames[]; /* per graph input: frames so far */
} ds_block;

typedef struct ds_plan {
    ds_allocator allocator;
    ds_graph *model; /* as captured; owned */
    ds_graph *graph; /* rewritten; owned */
    ds_clock clock;
    ds_analysis analysis; /* its edges: of the rewritten graph */
    const ds_kernels *kernels;
    ds_edge_plan *edges; /* [graph->n_edges] */
    ds_node_plan *nodes; /* [graph->n_nodes] */
    int *stores;         /* edges that keep frames, by their last use: after node j those from */
    int *first_store;    /* first_store[j] to first_store[j + 1] of them; [graph->n_nodes + 2] */
    int n_buffers, n_tails;
    int max_inputs, max_outputs; /* of any node */
    size_t block_bytes;          /* of one stream's fixed state: exact */
    size_t grown_bytes;          /* per `analysis.period` frames of input 0, where state grows */
    void *prepared;              /* owned: all nodes' */
    size_t prepared_bytes;
    size_t weight_bytes;         /* raw weights, each once, and prepared ones */
    uint64_t fingerprint[2];
} ds_plan;

/* Plans a graph; takes it also on failure. skew: frames by which inputs may be apart.
 * Errors: those of ds_analyse, DS_DTYPE for float64 (the engine computes in float32). */
ds_status ds_plan_create(ds_plan **plan, ds_graph *takes_graph, const ds_kernels *kernels,
                         int64_t skew);
void ds_plan_destroy(ds_plan *plan);

#endif
