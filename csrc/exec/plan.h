/* exec/plan.h: everything about running a graph that is known before its first stream.
 *
 * Where each edge's new frames lie (a buffer shared by edges whose lives don't overlap), what each edge
 * keeps between calls and where in a stream's block, where each operator's carried arrays lie, and the
 * weights as the chosen kernels want them. Immutable once made; shared by all threads. */
#pragma once
#include "base/arena.h"
#include "ir/rewrite.h"

/* Of an input of one stream; an edge may have twice as many. Counts are far from where they saturate. */
#define DS_MOST_FRAMES ((int64_t)1 << 60)

/* Whole periods further on, by how much an edge's integers have grown for each (exec/positions.h). */
typedef struct ds_growth {
    int64_t known, total, from, end; /* end: known, where the stream has ended */
} ds_growth;

typedef struct ds_edge_plan {
    size_t frame_bytes;
    int64_t capacity; /* frames kept in the block at most; 0 where none or unbounded */
    int64_t room;     /* frames that have room in the block: slack lets kept ones stay in place */
    size_t state_offset; /* of the room in the block */
    int mark;     /* index in the block's marks; -1: no slack, kept frames go through buffers */
    int tail;     /* unbounded: index of its tail in the slot; else -1 */
    int buffer;   /* scratch buffer; -1 for unbounded edges and edges that nothing produces */
    int last_use; /* node after which the frames may go; n_nodes: when the call is over; -1: none */
    ds_growth growth;
} ds_edge_plan;

/* Weights that a core keeps in its own cache from step to step, so that each thread may read them all. */
#define DS_CACHED_BYTES ((size_t)1 << 19)

typedef struct ds_node_plan {
    void *prepared; /* part of the plan's; NULL where the kernels read raw weights */
    size_t carried_offset;
    const void **weights; /* raw, borrowed from the graph; [n_weights] */
    bool row_scratch;     /* whether scratch grows with rows or frames */
    bool framewise;       /* ds_op_framewise */
    double frame_work;    /* per frame of output 0: multiplications and elements, about */
    bool by_frames;       /* threads share its output frames, as far as there are enough */
    int next_room; /* the edge with slack whose kept frames a node behind it reads first; -1: none */
} ds_node_plan;

/* A node whose operator looks at lengths; always: not at the end only. */
typedef struct ds_checked {
    int node;
    bool always;
} ds_checked;

/* A raw weight that packed ones have replaced: those of the first operator that has it. */
typedef struct ds_replaced {
    int weight; /* which of its operator's */
    size_t n_bytes;
    ds_packed *packed;
    size_t packed_bytes;
} ds_replaced;

/* Bytes that are allowed, and what has been added up so far (exec/budget.h). */
typedef struct ds_budget {
    size_t max_bytes, max_call_bytes; /* of the model with one stream; of a call */
    bool chosen;                      /* by who made the plan */
    size_t n_bytes, most;             /* so far; the most of one node */
    const ds_node *node;
} ds_budget;

/* The head of a stream's block. What follows: per edge with slack, the place of the first kept frame in
 * its room (a mark); then, 64-byte aligned, the edges' rooms and the carried arrays. */
typedef struct ds_block {
    uint64_t fingerprint[2];
    uint32_t version, n_inputs;
    int64_t frames[]; /* per graph input: frames so far */
} ds_block;

typedef struct ds_plan {
    ds_allocator allocator;
    ds_arena arena;  /* the plan, and what it lists */
    ds_graph *model; /* as captured; owned */
    ds_graph *plain; /* rewritten, each operator by itself, for exports; owned */
    ds_graph *graph; /* rewritten and fused; owned. All number their edges alike */
    ds_clock clock;
    ds_analysis analysis;      /* its edges: of the rewritten graph */
    const ds_kernels *kernels; /* `apart` */
    ds_kernels apart;          /* a backend's; elements of packed weights lie apart */
    ds_edge_plan *edges;       /* [graph->n_edges] */
    ds_node_plan *nodes;       /* [graph->n_nodes] */
    int *leaving;              /* edges by their last use: after node j those from */
    int *first_leaving;        /* first_leaving[j] to first_leaving[j + 1]; [graph->n_nodes + 2] */
    int n_buffers, n_tails;
    size_t n_marked;
    ds_checked *checked; /* [n_checked] */
    size_t n_checked;
    bool checks_values;          /* whether any operator looks at the values of an input */
    int max_inputs, max_outputs; /* of any node, at least 1 */
    size_t call_scratch;         /* the most that any node needs whatever the rows */
    double frame_work;           /* per frame of input 0: multiplications and elements, about */
    double frame_bytes;          /* the same: bytes of the widest edge */
    double largest;              /* multiplications of a weight, for a frame of its node */
    size_t read_bytes;           /* of weights, in a call */
    double spread;               /* the greatest of its operators */
    bool recurrent;              /* whether weights are read frame by frame */
    int64_t start[DS_MAX_INPUTS],
        period[DS_MAX_INPUTS]; /* of the integers, in frames of each input */
    int64_t most_periods;      /* beyond the start, before counts come near their limit */
    bool uneven; /* whether an edge gets frames at the end that don't follow from its phase */
    size_t block_bytes; /* of one stream's fixed state: exact */
    size_t kept_bytes;  /* what of it must be kept: without slack */
    size_t grown_bytes; /* per `analysis.period` frames of input 0, where state grows */
    ds_budget budget;
    void *prepared; /* owned: all nodes', but for elements of packed weights */
    void *elements; /* owned: those, each once */
    size_t prepared_bytes, elements_bytes;
    ds_replaced *replaced; /* raw weights that were given back */
    size_t n_replaced;
    size_t raw_bytes;    /* of all raw weights as captured, each once */
    size_t weight_bytes; /* held: raw weights that are left, each once, and prepared ones */
    uint64_t fingerprint[2];
    uint64_t origin
        [2]; /* whose snapshots are this plan's: the fingerprint, unless weights are stored otherwise */
} ds_plan;

static inline int64_t *ds_block_marks(const ds_plan *plan, ds_block *block)
{
    return block->frames + plan->graph->n_inputs;
}

/* Plans a graph; takes it also on failure. skew: frames by which inputs may be apart; max_bytes as ds_budget_start has
 * it. Errors: those of ds_analyse and ds_budget_start, DS_DTYPE for float64 (the engine computes in float32). */
ds_status ds_plan_create(ds_plan **plan, ds_graph *takes_graph, const ds_kernels *kernels,
                         int64_t skew, size_t max_bytes);
void ds_plan_destroy(ds_plan *plan);
