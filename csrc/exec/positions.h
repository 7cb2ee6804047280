/* exec/positions.h: the integers of a plan where a stream stands, remembered.
 *
 * A position is how many frames of each input have come. It decides, for every edge, what is known, its
 * total, and the first frame that is kept. Behind the irregular start these repeat: a period later each
 * has grown by a constant (ds_growth). So a position is looked up as one within the first period behind
 * the start, and periods since then; streams that stand alike share one entry, and what a call finds out
 * about where its streams get to is there when the next call asks where they come from.
 *
 * The table has bounded room; when it is full it starts afresh. It belongs to one thread at a time. */
#pragma once
#include "exec/plan.h"

typedef struct ds_edge_counts {
    int64_t known, total, from; /* from: first frame kept, at most known */
} ds_edge_counts;

/* Where one stream stands: an entry of the table, and periods beyond it. */
typedef struct ds_place {
    const ds_edge_counts *edges; /* [n_edges] */
    int64_t periods;
    bool ended;
} ds_place;

/* Fields are private. */
typedef struct ds_positions {
    const ds_plan *plan;
    ds_arena arena;
    size_t head_bytes, entry_bytes;
    size_t n, room; /* entries */
    size_t n_slots; /* a power of two, at least twice the room */
    char *entries;
    int32_t *slots; /* [n_slots]: 1 + entry, 0 where empty */
    ds_pair *pairs; /* [n_edges]: scratch */
    int64_t *first; /* [n_edges]: scratch */
} ds_positions;

/* Keeps the plan. */
void ds_positions_init(ds_positions *positions, const ds_plan *plan);
void ds_positions_free(ds_positions *positions);
/* Room for a call of n_rows streams, each of which asks for two places: those stay until the next call
 * of this function. */
ds_status ds_positions_begin(ds_positions *positions, size_t n_rows);
/* Fills the place of a stream after these frames of each input, which the clock admits; ended: those are
 * all. Errors: DS_ARGUMENT where an edge would hold more than 2^61 frames. */
ds_status ds_positions_find(ds_positions *positions, const int64_t *frames, bool ended,
                            ds_place *place);

/* What operators have to say about a stream's lengths. Errors: DS_SHAPE, or the operator's own. */
ds_status ds_positions_check(const ds_plan *plan, const ds_place *at);
/* The integers of a graph's edges (pushed: [n_edges]) after these frames, evaluated. */
ds_status ds_positions_count(const ds_graph *graph, const int64_t *frames, ds_arena *arena,
                             ds_edge_counts **edges);

/* Finds how edges grow (plan->edges[].growth), and from where on. Called once, when all else is planned. */
ds_status ds_positions_plan(ds_plan *plan, ds_arena *scratch);

static inline int64_t ds_known_at(const ds_plan *p, const ds_place *at, size_t e)
{
    const ds_growth *grows = &p->edges[e].growth;
    return at->edges[e].known + at->periods * (at->ended ? grows->end : grows->known);
}

static inline ds_pair ds_pair_at(const ds_plan *p, const ds_place *at, size_t e)
{
    return (ds_pair){ds_known_at(p, at, e),
                     at->edges[e].total + at->periods * p->edges[e].growth.total};
}

/* First frame that is kept; of a stream that has ended none is. */
static inline int64_t ds_kept_from(const ds_plan *p, const ds_place *at, size_t e)
{
    return at->ended ? ds_known_at(p, at, e)
                     : at->edges[e].from + at->periods * p->edges[e].growth.from;
}

/* Frames that are kept. */
static inline int64_t ds_kept_at(const ds_plan *p, const ds_place *at, size_t e)
{
    return ds_known_at(p, at, e) - ds_kept_from(p, at, e);
}
