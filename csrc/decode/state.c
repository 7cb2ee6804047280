/* States of streams: room, copies, and letting go. */
#include <math.h>
#include <string.h>

#include "decode/ctc.h"

#define EACH_ARRAY(DO) DO(entries) DO(prefixes) DO(aligned) DO(past)

/* Fills an array of n items; its room is at least as large as the other's. */
static ds_status copy_items(const ds_allocator *allocator, void **to, size_t *to_room,
                            const void *from, size_t n, size_t room, size_t item_bytes)
{
    if (*to_room < n) {
        void *larger;
        DS_TRY(ds_allocate(allocator, &larger, room * item_bytes));
        ds_release(allocator, *to, *to_room * item_bytes);
        *to = larger;
        *to_room = room;
    }
    if (n)
        memcpy(*to, from, n * item_bytes);
    return DS_OK;
}

/* ---------------------------------------------------------------- a transducer's memories */
ds_status ds_memory_create(const ds_scorer *scorer, const ds_allocator *allocator,
                           ds_memory **memory)
{
    const size_t n_bytes = sizeof **memory + scorer->n_predicted * sizeof(float);
    DS_TRY(ds_allocate_zeroed(allocator, (void **)memory, n_bytes));
    (*memory)->n_holders = 1;
    return DS_OK;
}

void ds_memory_drop(const ds_scorer *scorer, const ds_allocator *allocator, ds_memory *memory)
{
    if (!memory || --memory->n_holders > 0)
        return;
    if (memory->state)
        scorer->forget(scorer->owner, memory->state);
    ds_release(allocator, memory, sizeof *memory + scorer->n_predicted * sizeof(float));
}

/* Lets go of the memories of all prefixes. */
static void drop_memories(const ds_allocator *allocator, ds_ctc_state *s)
{
    for (size_t i = 0; s->scorer && i < s->n_prefixes; i++) {
        ds_memory_drop(s->scorer, allocator, s->prefixes[i].memory);
        s->prefixes[i].memory = NULL;
    }
}

ds_status ds_ctc_copy(const ds_allocator *allocator, ds_ctc_state *to, const ds_ctc_state *from)
{
    drop_memories(allocator, to);
    to->n_prefixes = 0; /* until all is copied: what it has is no longer its own */
#define COPY(items)                                                                   \
    DS_TRY(copy_items(allocator, (void **)&to->items, &to->room_##items, from->items, \
                      from->n_##items, from->room_##items, sizeof *to->items));
    EACH_ARRAY(COPY)
#undef COPY
    const ds_ctc_state kept = *to;
    *to = *from;
#define KEEP(items) (to->items = kept.items, to->room_##items = kept.room_##items);
    EACH_ARRAY(KEEP)
#undef KEEP
    for (size_t i = 0; to->scorer && i < to->n_prefixes; i++)
        if (to->prefixes[i].memory)
            to->prefixes[i].memory->n_holders++;
    return DS_OK;
}

void ds_ctc_free(const ds_allocator *allocator, ds_ctc_state *state)
{
    drop_memories(allocator, state);
#define RELEASE(items) \
    ds_release(allocator, state->items, state->room_##items * sizeof *state->items);
    EACH_ARRAY(RELEASE)
#undef RELEASE
    *state = (ds_ctc_state){0};
}

/* ---------------------------------------------------------------- growing */
ds_status ds_ctc_add_prefix(const ds_allocator *allocator, ds_ctc_state *state, int32_t parent,
                            int32_t token, const ds_sense *sense, int32_t *number)
{
    DS_TRY(DS_RESERVE(allocator, state, prefixes, state->n_prefixes, state->n_prefixes + 1));
    *number = (int32_t)state->n_prefixes++;
    state->prefixes[*number] = (ds_prefix){.sense = *sense,
                                           .parent = parent,
                                           .token = token,
                                           .depth = state->prefixes[parent].depth + 1,
                                           .child = -1,
                                           .sibling = state->prefixes[parent].child,
                                           .entry = -1};
    state->prefixes[parent].child = *number;
    return DS_OK;
}

ds_status ds_ctc_add_sounded(const ds_allocator *allocator, ds_ctc_state *state,
                             const ds_path *path, int32_t *number)
{
    DS_TRY(DS_RESERVE(allocator, state, aligned, state->n_aligned, state->n_aligned + 1));
    *number = (int32_t)state->n_aligned++;
    state->aligned[*number] = (ds_sounded){path->before, path->probability, path->start, path->end};
    return DS_OK;
}

/* ---------------------------------------------------------------- letting go */
/* Memories stay with entries of the beam alone: what goes on from others comes from an entry's again. */
static void collect_memories(const ds_allocator *allocator, ds_ctc_state *s)
{
    for (size_t i = 0; s->scorer && i < s->n_prefixes; i++)
        if (s->prefixes[i].entry < 0) {
            ds_memory_drop(s->scorer, allocator, s->prefixes[i].memory);
            s->prefixes[i].memory = NULL;
        }
}

static void collect_prefixes(ds_ctc_state *s, int32_t *map)
{
    memset(map, 0, s->n_prefixes * sizeof *map);
    map[s->root] = 1;
    for (size_t i = 0; i < s->n_entries; i++)
        for (int32_t at = s->entries[i].prefix; !map[at]; at = s->prefixes[at].parent)
            map[at] = 1;
    size_t n = 0;
    for (size_t i = 0; i < s->n_prefixes; i++) {
        if (!map[i])
            continue;
        ds_prefix p = s->prefixes[i];
        p.parent = (int32_t)i == s->root ? -1 : map[p.parent];
        p.child = -1;
        p.sibling = -1;
        p.seen = 0;
        if (p.parent >= 0) {
            p.sibling = s->prefixes[p.parent].child;
            s->prefixes[p.parent].child = (int32_t)n;
        }
        s->prefixes[n] = p;
        map[i] = (int32_t)n++;
    }
    s->n_prefixes = n;
    s->seen = 0;
    s->root = 0;
    for (size_t i = 0; i < s->n_entries; i++)
        s->entries[i].prefix = map[s->entries[i].prefix];
}

static void collect_aligned(ds_ctc_state *s, int32_t *map)
{
    memset(map, 0, s->n_aligned * sizeof *map);
    for (size_t i = 0; i < s->n_entries; i++) {
        for (int32_t at = s->entries[i].after_blank.before; at >= 0 && !map[at];
             at = s->aligned[at].before)
            map[at] = 1;
        for (int32_t at = s->entries[i].after_token.before; at >= 0 && !map[at];
             at = s->aligned[at].before)
            map[at] = 1;
    }
    size_t n = 0;
    for (size_t i = 0; i < s->n_aligned; i++) {
        if (!map[i])
            continue;
        s->aligned[n] = s->aligned[i];
        if (s->aligned[n].before >= 0)
            s->aligned[n].before = map[s->aligned[n].before];
        map[i] = (int32_t)n++;
    }
    s->n_aligned = n;
    for (size_t i = 0; i < s->n_entries; i++) {
        ds_path *const paths[2] = {&s->entries[i].after_blank, &s->entries[i].after_token};
        for (int k = 0; k < 2; k++)
            if (paths[k]->before >= 0)
                paths[k]->before = map[paths[k]->before];
    }
}

void ds_ctc_collect(const ds_allocator *allocator, ds_ctc_state *state, int32_t *map)
{
    collect_memories(allocator, state);
    collect_prefixes(state, map);
    collect_aligned(state, map);
}

/* ---------------------------------------------------------------- beginning */
ds_status ds_ctc_begin(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state)
{
    const int64_t now = state->frame * ctc->options.max_symbols;
    const ds_path nowhere = {-INFINITY, 0, now, now, -1};
    ds_path here = nowhere;
    here.score = 0;
    drop_memories(allocator, state);
    state->scorer = ctc->scorer.owner ? &ctc->scorer : NULL;
    DS_TRY(DS_RESERVE(allocator, state, entries, 0, 1));
    DS_TRY(DS_RESERVE(allocator, state, prefixes, 0, 1));
    state->n_entries = state->n_prefixes = 1;
    state->n_aligned = 0;
    state->root = 0;
    state->seen = 0;
    state->utterance = state->frame;
    state->n_utterance = 0;
    state->entries[0] = (ds_entry){0, -INFINITY, 0, here, nowhere, 0};
    state->prefixes[0] = (ds_prefix){.sense = ds_language_start(&ctc->language),
                                     .parent = -1,
                                     .token = -1,
                                     .child = -1,
                                     .sibling = -1,
                                     .entry = -1};
    return DS_OK;
}

ds_status ds_ctc_restart(const ds_ctc *ctc, const ds_allocator *allocator, ds_ctc_state *state)
{
    state->frame = state->n_left = state->n_endpoints = 0;
    state->n_past = 0;
    state->settled_score = 0;
    return ds_ctc_begin(ctc, allocator, state);
}

ds_status ds_ctc_open(ds_ctc_stream *stream, const ds_ctc *ctc, const ds_allocator *allocator)
{
    *stream = (ds_ctc_stream){.allocator = *allocator};
    DS_TRY_ELSE(ds_ctc_restart(ctc, allocator, &stream->now), ds_ctc_close(stream));
    return DS_OK;
}

void ds_ctc_close(ds_ctc_stream *stream)
{
    ds_ctc_free(&stream->allocator, &stream->now);
    ds_ctc_free(&stream->allocator, &stream->next);
    ds_ctc_reading_free(stream);
}

void ds_ctc_commit(ds_ctc_stream *stream, bool end)
{
    const ds_ctc_state now = stream->now;
    stream->now = stream->next;
    stream->next = now;
    stream->reading.is_ranked = false;
    stream->begun = true;
    stream->ended = end;
}
