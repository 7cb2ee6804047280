/* exec/session.h: the streams of one model: slots with their blocks, and scratch for calls.
 *
 * A slot owns one block (exec/plan.h) and the tails of edges whose kept frames grow with the stream.
 * Open takes a slot from the free list and clears it; close gives it back. A slot is used by one
 * thread at a time (ds_slot_enter); the session itself by any. */
#pragma once
#include <stdatomic.h>

#include "exec/plan.h"

/* Kept frames of an unbounded edge; grows by doubling. */
typedef struct ds_tail {
    void *data;
    size_t n_bytes; /* room */
    int64_t first;  /* frames in front of the first kept one */
} ds_tail;

typedef struct ds_slot {
    atomic_bool busy;
    bool spare;           /* not counted among the open streams */
    struct ds_slot *next; /* of a lot's first slot (session.c): the lot before, */
    size_t n_slots;       /* and how many there are */
    struct ds_slot *next_free;
    ds_block *block;
    double last_used; /* the caller's clock, for the caller's use */
    ds_tail tails[];  /* [plan->n_tails] */
} ds_slot;

/* Frames' room that is passed before the first one that a slot keeps of an edge; NULL where none ever is. */
static inline int64_t *ds_slot_passed(const ds_plan *plan, ds_slot *slot, const ds_edge_plan *edge)
{
    return edge->tail >= 0   ? &slot->tails[edge->tail].first
           : edge->mark >= 0 ? &ds_block_marks(plan, slot->block)[edge->mark]
                             : NULL;
}

/* Where the first frame that a slot keeps of an edge lies; NULL for a tail that has no room yet. */
static inline char *ds_slot_kept(const ds_plan *plan, ds_slot *slot, const ds_edge_plan *edge)
{
    const int64_t *passed = ds_slot_passed(plan, slot, edge);
    char *room =
        edge->tail >= 0 ? slot->tails[edge->tail].data : (char *)slot->block + edge->state_offset;
    return room && passed ? room + (size_t)*passed * edge->frame_bytes : room;
}

typedef struct ds_session ds_session;

/* max_streams 0: no limit. Keeps the plan (the caller outlives the session). */
ds_status ds_session_create(ds_session **session, const ds_plan *plan, size_t max_streams);
void ds_session_destroy(ds_session *session); /* all its slots too */
/* spare: not counted among the open streams yet, since it takes the place of one that the caller closes
 * if its call succeeds. Errors: DS_LIMIT at max_streams (not where spare), DS_NO_MEMORY. Thread: any. */
ds_status ds_session_open(ds_session *session, ds_slot **slot, bool spare);
/* Counts a spare one in. */
void ds_session_count(ds_session *session, ds_slot *slot);
void ds_session_close(ds_session *session, ds_slot *slot);
/* Puts an open stream at its beginning; what grew with it is released. */
void ds_session_clear(ds_session *session, ds_slot *slot);
size_t ds_session_n_open(ds_session *session);
/* False where another thread is in the slot. */
bool ds_slot_enter(ds_slot *slot);
void ds_slot_leave(ds_slot *slot);
/* Makes room for `fresh` frames behind the `kept` ones, which may move. */
ds_status ds_tail_reserve(const ds_allocator *allocator, ds_tail *tail, int64_t kept, int64_t fresh,
                          size_t frame_bytes);
/* Makes the room of a tail at least n_bytes; what it holds stays. */
ds_status ds_tail_grow(const ds_allocator *allocator, ds_tail *tail, size_t n_bytes);

/* ---------------------------------------------------------------- snapshots (exec/snapshot.c) */
/* Fills `data` with named canonical arrays keyed by the graph before rewrites (docs/snapshot_format.md), *n_bytes
 * as many as they take; NULL: fills that number. `since` [n_inputs]: leaves out the frames that the stream had kept
 * when so many had come; NULL: nothing. Errors: DS_ARGUMENT for another number, or later frames than have come. */
ds_status ds_slot_snapshot(const ds_plan *plan, const ds_slot *slot, const int64_t *since,
                           void *data, size_t *n_bytes);
/* Of the whole words of a snapshot before its checksum. */
uint64_t ds_snapshot_checksum(const void *data, size_t n_bytes);
/* Replaces the state of an open slot, new or not; where it fails, that is as it was. `data` may lie anywhere.
 * Errors: DS_FORMAT for what is no snapshot, damaged, of another version or model, or of no stream that there
 * can be; DS_NO_MEMORY. */
ds_status ds_slot_restore(const ds_plan *plan, ds_slot *slot, const void *data, size_t n_bytes);
/* Fills a freshly opened slot with another's state. */
ds_status ds_slot_copy(const ds_plan *plan, ds_slot *slot, const ds_slot *source);
