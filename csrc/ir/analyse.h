/* ir/analyse.h: what the integers of a graph say.
 *
 * From `transient` frames of input 0 on, everything repeats after `period` more: for every edge, known, total and
 * first frame needed (ds_graph_counts, ds_graph_needs) at positions moved by the period are those before, plus
 * a constant each. That holds for all positions of several inputs that the clock admits, when all are moved
 * together; nodes that no output follows from are left out of it. Time and memory go by the number of nodes, not of
 * frames. */
#pragma once
#include "ir/clock.h"
#include "ir/graph.h"

typedef struct ds_edge_facts {
    int64_t capacity; /* most frames kept between calls, where bounded */
    int64_t block; /* of what keeps frames: new ones that become known at a time, in the long run */
    int64_t burst; /* most frames that one more frame of input 0 brings, with the stream's end */
    bool unbounded; /* what is kept grows with the stream */
    int64_t growth; /* frames kept more per period, where unbounded */
    bool waits;     /* nothing leaves before the stream's end */
    bool remembers; /* an operator with carried state, or the whole stream, stands before it */
} ds_edge_facts;

typedef struct ds_analysis {
    ds_arena arena; /* of the arrays */
    size_t n_outputs;
    int64_t period;       /* frames of input 0 */
    int64_t transient;    /* frames of input 0 */
    ds_edge_facts *edges; /* [n_edges] */
    bool *identity;       /* [n_nodes]: the counts of output 0 are those of input 0, always */
    int64_t *delay;       /* [n_outputs], frames of input 0; DS_NEVER: infinite */
    int64_t *field;       /* [n_outputs], frames of input 0; DS_NEVER: infinite */
} ds_analysis;

/* Errors: DS_LIMIT where the period is longer than DS_MOST_PERIOD frames, inputs can be apart in too many ways, or
 * there are too many steps to look at; DS_MISMATCH where operators combine edges that progress differently;
 * DS_INTERNAL naming the operator whose counts break the laws (monotone, known <= total later); DS_NO_MEMORY. */
ds_status ds_analyse(ds_analysis *analysis, const ds_graph *graph, const ds_clock *clock);
void ds_analysis_free(ds_analysis *analysis);
