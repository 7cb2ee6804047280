/* exec/rows.h: what the two phases of a step share: rows, and where their frames lie.
 *
 * Consecutive rows that stand alike (the same places but for whole periods) are a stretch: what follows from
 * integers is found once for it. The rows of a group are run by one thread.
 *
 * The frames that an edge has in a call are, per row, one window [kept | new]. It lies
 *   in the room   that the stream's block has for the edge: new frames are written behind the kept ones, which stay
 *                 where they are; when the room's end is reached, they move to its front first;
 *   in the tail   of the stream, the same for edges that keep more and more;
 *   in a buffer   of the step, where an edge keeps nothing, few frames, or gets more than its room holds: the kept
 *                 frames are copied in, and out again behind the edge's last reader. */
#pragma once
#include "exec/step.h"

typedef struct ds_row {
    ds_place before, now;
    ds_slot *slot;
    const struct ds_stretch *stretch;
} ds_row;

typedef struct ds_stretch {
    const struct ds_group *group;
    ds_row *rows;
    size_t n;
    size_t *offset; /* [n_edges]: of the first row's window in the edge's buffer */
} ds_stretch;

typedef enum ds_where { DS_NOWHERE, DS_IN_BUFFER, DS_IN_ROOM, DS_IN_TAIL } ds_where;

/* What all rows of a group have of one edge. */
typedef struct ds_group_edge {
    int64_t frames; /* new ones */
    size_t n_bytes; /* of the windows in the edge's buffer */
    bool scattered; /* the new frames don't lie in the buffer one after another, or not alone */
} ds_group_edge;

/* Rows [first, first + n_rows) of a step. */
typedef struct ds_group {
    size_t first, n_rows;
    ds_row *rows;
    const bool *ended;
    const bool *whole; /* true for every row: of what is given once, all is there with the start */
    ds_stretch *stretches;
    size_t n_stretches;
    char **buffers;       /* [n_buffers] */
    ds_group_edge *edges; /* [n_edges] */
    ds_window *in;        /* of one node's run */
    ds_target *out;
    ds_counts *count;
    void **carried;
    void *scratch;        /* one after another, as many as threads may share a node's frames */
    size_t scratch_bytes; /* of each */
    ds_target *parts;     /* [threads][as out]; NULL where nodes are not shared */
    size_t n_moved;       /* bytes of kept frames that were copied */
    int fetched_room;     /* the edge of what products fetch in passing */
    ds_fetch fetch;
    const char **fetch_rows; /* [n_rows]; NULL where all that a step reads stays in the cache */
} ds_group;

/* What a stretch's rows have of one edge: the same for all of them but in tails. */
typedef struct ds_span {
    ds_where where;
    int64_t kept, fresh;
    size_t frame_bytes;
} ds_span;

static inline ds_span ds_span_of(const ds_plan *p, const ds_stretch *s, size_t e)
{
    const ds_edge_plan *edge = &p->edges[e];
    const int64_t kept = ds_kept_at(p, &s->rows->before, e);
    const int64_t fresh = ds_known_at(p, &s->rows->now, e) - ds_known_at(p, &s->rows->before, e);
    const ds_where where = edge->tail >= 0                                 ? DS_IN_TAIL
                           : edge->buffer < 0                              ? DS_NOWHERE
                           : edge->mark >= 0 && kept + fresh <= edge->room ? DS_IN_ROOM
                                                                           : DS_IN_BUFFER;
    return (ds_span){where, kept, fresh, edge->frame_bytes};
}

/* Where the window of a row begins. */
static inline char *ds_window_data(const ds_plan *p, const ds_row *row, const ds_span *span,
                                   size_t e)
{
    const ds_edge_plan *edge = &p->edges[e];
    const ds_stretch *s = row->stretch;
    if (span->where == DS_NOWHERE)
        return NULL;
    if (span->where != DS_IN_BUFFER)
        return ds_slot_kept(p, row->slot, edge);
    char *buffer = s->group->buffers[edge->buffer];
    const size_t n_bytes = (size_t)(span->kept + span->fresh) * span->frame_bytes;
    return buffer ? buffer + s->offset[e] + (size_t)(row - s->rows) * n_bytes : NULL;
}

/* Where its new frames begin. */
static inline char *ds_fresh_data(const ds_plan *p, const ds_row *row, const ds_span *span,
                                  size_t e)
{
    char *data = ds_window_data(p, row, span, e);
    const int64_t kept = span->where == DS_IN_TAIL ? ds_kept_at(p, &row->before, e) : span->kept;
    return data ? data + (size_t)kept * span->frame_bytes : NULL;
}

/* Moves kept frames to the front of rooms whose end the new ones would pass. */
void ds_group_make_way(const ds_plan *p, ds_group *g, size_t e);
/* Phase 2 of one group. */
void ds_group_run(const ds_step *step, ds_group *g, ds_pool *pool);
