/* Snapshots: what a stream remembers, as named canonical arrays.
 *
 * Little-endian, one after another:
 *   8 bytes   "DSSTATE1"
 *   u64 x 2   fingerprint of the model before rewrites
 *   u64       number of inputs; i64 each: frames so far
 *   u64       number of entries; for each: i64 node id (-1 - i: graph input i), i64 array (kept frames of
 *             output n: n; carried array c: -1 - c), i64 absolute position of the first frame (0 where
 *             carried), u64 bytes, the bytes
 *   u64       checksum of all before it
 * The reader trusts nothing: it recomputes from the frames what must be there. */
#include <string.h>

#include "base/alloc.h"
#include "exec/session.h"

static const char magic[8] = {'D', 'S', 'S', 'T', 'A', 'T', 'E', '1'};

/* One array of a stream's state. */
typedef struct entry {
    int64_t node, array, at;
    size_t n_bytes;
    void *data;
} entry;

/* Counts of a slot's edges, recomputed from its frames. */
typedef struct state_counts {
    ds_pair *pairs;
    int64_t *first;
    size_t n_bytes;
    void *memory;
} state_counts;

static ds_status count_state(const ds_plan *p, const int64_t *frames, state_counts *c)
{
    size_t e = p->graph->n_edges;
    c->n_bytes = e * (sizeof *c->pairs + sizeof *c->first);
    DS_TRY(ds_allocate_zeroed(&p->allocator, &c->memory, c->n_bytes));
    c->pairs = c->memory;
    c->first = (int64_t *)(void *)(c->pairs + e);
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        c->pairs[p->graph->inputs[i]] = (ds_pair){frames[i], frames[i]};
    ds_graph_counts(p->graph, false, c->pairs);
    ds_graph_needs(p->graph, c->pairs, c->first);
    return DS_OK;
}

static void free_counts(const ds_plan *p, state_counts *c)
{
    ds_release(&p->allocator, c->memory, c->n_bytes);
}

/* The kept frames of edge e; false where it keeps none. */
static bool kept_entry(const ds_plan *p, const ds_slot *slot, const state_counts *c, size_t e,
                       entry *out)
{
    const ds_edge_plan *edge = &p->edges[e];
    int64_t kept = c->first[e] < c->pairs[e].known ? c->pairs[e].known - c->first[e] : 0;
    if (!kept || !edge->frame_bytes)
        return false;
    int node = p->graph->edges[e].node;
    out->node = node < 0 ? -1 - p->graph->edges[e].output : p->graph->nodes[node].id;
    out->array = node < 0 ? 0 : p->graph->edges[e].output;
    out->at = c->first[e];
    out->n_bytes = (size_t)kept * edge->frame_bytes;
    out->data = edge->tail >= 0 ? slot->tails[edge->tail].data
                                : (char *)slot->block + edge->state_offset;
    return true;
}

static void carried_entry(const ds_plan *p, const ds_slot *slot, size_t j, int k, entry *out)
{
    const ds_op *op = p->graph->nodes[j].op;
    const ds_carried *carried = &op->carried[k];
    *out = (entry){.node = p->graph->nodes[j].id, .array = -1 - k,
                   .n_bytes = ds_signature_bytes(&carried->array),
                   .data = (char *)slot->block + p->nodes[j].carried_offset + carried->offset};
}

/* Calls visit for every array of the slot's state, in the graph's order. */
static ds_status each_entry(const ds_plan *p, const ds_slot *slot, const state_counts *c,
                            ds_status (*visit)(void *context, const entry *), void *context)
{
    entry one;
    for (size_t e = 0; e < p->graph->n_edges; e++)
        if (kept_entry(p, slot, c, e, &one))
            DS_TRY(visit(context, &one));
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        for (int k = 0; k < p->graph->nodes[j].op->n_carried; k++) {
            carried_entry(p, slot, j, k, &one);
            DS_TRY(visit(context, &one));
        }
    return DS_OK;
}

/* ---------------------------------------------------------------- writing */
typedef struct writer {
    unsigned char *data; /* NULL: only measure */
    size_t n, room;
    uint64_t n_entries;
} writer;

static void put(writer *w, const void *data, size_t n_bytes)
{
    if (w->data && n_bytes && w->n + n_bytes <= w->room)
        memcpy(w->data + w->n, data, n_bytes);
    w->n += n_bytes;
}

static void put_word(writer *w, uint64_t word)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(word >> (8 * i));
    put(w, bytes, sizeof bytes);
}

static ds_status put_entry(void *context, const entry *e)
{
    writer *w = context;
    w->n_entries++;
    put_word(w, (uint64_t)e->node);
    put_word(w, (uint64_t)e->array);
    put_word(w, (uint64_t)e->at);
    put_word(w, e->n_bytes);
    put(w, e->data, e->n_bytes);
    return DS_OK;
}

static uint64_t checksum(const unsigned char *data, size_t n_bytes)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n_bytes; i++)
        h = (h ^ data[i]) * 0x100000001B3u;
    return h;
}

/* Writes, or measures where data is NULL. */
static ds_status write_snapshot(const ds_plan *p, const ds_slot *slot, unsigned char *data,
                                size_t room, size_t *n_bytes)
{
    writer w = {.data = data, .room = room}, entries = {0};
    state_counts c;
    DS_TRY(count_state(p, slot->block->frames, &c));
    put(&w, magic, sizeof magic);
    put_word(&w, p->fingerprint[0]);
    put_word(&w, p->fingerprint[1]);
    put_word(&w, p->graph->n_inputs);
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        put_word(&w, (uint64_t)slot->block->frames[i]);
    ds_status status = each_entry(p, slot, &c, put_entry, &entries);
    put_word(&w, entries.n_entries);
    if (status == DS_OK)
        status = each_entry(p, slot, &c, put_entry, &w);
    free_counts(p, &c);
    DS_TRY(status);
    put_word(&w, data && w.n <= room ? checksum(data, w.n) : 0);
    DS_CHECK(!data || w.n == room, DS_ARGUMENT, "a snapshot of this stream takes %zu bytes, got %zu",
             w.n, room);
    *n_bytes = w.n;
    return DS_OK;
}

ds_status ds_slot_snapshot_bytes(const ds_plan *plan, const ds_slot *slot, size_t *n_bytes)
{
    return write_snapshot(plan, slot, NULL, 0, n_bytes);
}

ds_status ds_slot_snapshot(const ds_plan *plan, const ds_slot *slot, void *data, size_t n_bytes)
{
    return write_snapshot(plan, slot, data, n_bytes, &n_bytes);
}

/* ---------------------------------------------------------------- reading */
typedef struct reader {
    const unsigned char *data;
    size_t n, at;
} reader;

static ds_status get_word(reader *r, uint64_t *word)
{
    DS_CHECK(r->n - r->at >= 8, DS_FORMAT, "the snapshot ends at byte %zu, in the middle", r->n);
    *word = 0;
    for (unsigned i = 0; i < 8; i++)
        *word |= (uint64_t)r->data[r->at++] << (8 * i);
    return DS_OK;
}

static ds_status get_entry(void *context, const entry *e)
{
    reader *r = context;
    uint64_t node = 0, array = 0, at = 0, n_bytes = 0;
    DS_TRY(get_word(r, &node));
    DS_TRY(get_word(r, &array));
    DS_TRY(get_word(r, &at));
    DS_TRY(get_word(r, &n_bytes));
    DS_CHECK(node == (uint64_t)e->node && array == (uint64_t)e->array && at == (uint64_t)e->at &&
                 n_bytes == e->n_bytes && r->n - r->at >= n_bytes,
             DS_FORMAT, "the snapshot is damaged at byte %zu", r->at);
    memcpy(e->data, r->data + r->at, n_bytes);
    r->at += n_bytes;
    return DS_OK;
}

static ds_status count_entry(void *context, const entry *e)
{
    (void)e;
    ++*(uint64_t *)context;
    return DS_OK;
}

/* Makes room in the tails for what the counts say is kept. */
static ds_status reserve_tails(const ds_plan *p, ds_slot *slot, const state_counts *c, size_t limit)
{
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_edge_plan *edge = &p->edges[e];
        int64_t kept = c->first[e] < c->pairs[e].known ? c->pairs[e].known - c->first[e] : 0;
        if (edge->tail < 0) {
            DS_CHECK(kept <= edge->capacity, DS_FORMAT, "the snapshot's frames are impossible");
            continue;
        }
        size_t n_bytes;
        DS_CHECK(!__builtin_mul_overflow((size_t)kept, edge->frame_bytes, &n_bytes) &&
                     n_bytes <= limit,
                 DS_FORMAT, "the snapshot is too short for its frames");
        DS_TRY(ds_tail_reserve(&p->allocator, &slot->tails[edge->tail], 0, n_bytes));
    }
    return DS_OK;
}

static ds_status read_state(const ds_plan *p, ds_slot *slot, const state_counts *c, reader *r)
{
    uint64_t n_entries = 0, expected = 0;
    DS_TRY(get_word(r, &n_entries));
    DS_TRY(reserve_tails(p, slot, c, r->n));
    DS_TRY(each_entry(p, slot, c, count_entry, &expected));
    DS_CHECK(n_entries == expected, DS_FORMAT, "the snapshot holds %llu arrays, expected %llu",
             (unsigned long long)n_entries, (unsigned long long)expected);
    DS_TRY(each_entry(p, slot, c, get_entry, r));
    DS_CHECK(r->at == r->n, DS_FORMAT, "the snapshot has %zu bytes too many", r->n - r->at);
    return DS_OK;
}

ds_status ds_slot_restore(const ds_plan *plan, ds_slot *slot, const void *data, size_t n_bytes)
{
    const unsigned char *bytes = data;
    uint64_t word[3] = {0}, sum = 0;
    DS_CHECK(n_bytes >= 48 && memcmp(bytes, magic, sizeof magic) == 0, DS_FORMAT,
             "these bytes are not a snapshot");
    reader r = {bytes, n_bytes, n_bytes - 8};
    DS_TRY(get_word(&r, &sum));
    DS_CHECK(sum == checksum(bytes, n_bytes - 8), DS_FORMAT,
             "the snapshot is damaged: its checksum does not match");
    r.n = n_bytes - 8;
    r.at = sizeof magic;
    for (int i = 0; i < 3; i++)
        DS_TRY(get_word(&r, &word[i]));
    DS_CHECK(word[0] == plan->fingerprint[0] && word[1] == plan->fingerprint[1] &&
                 word[2] == plan->graph->n_inputs,
             DS_FORMAT, "the snapshot was taken from another model");
    int64_t frames[DS_MAX_INPUTS];
    for (size_t i = 0; i < plan->graph->n_inputs; i++) {
        DS_TRY(get_word(&r, &word[0]));
        frames[i] = (int64_t)word[0];
        DS_CHECK(frames[i] >= 0 && frames[i] <= (int64_t)1 << 60, DS_FORMAT,
                 "the snapshot's position %lld is impossible", (long long)frames[i]);
    }
    DS_CHECK(ds_clock_together(&plan->clock, frames), DS_FORMAT,
             "the snapshot's inputs are further apart than the skew allows");
    state_counts c;
    DS_TRY(count_state(plan, frames, &c));
    ds_status status = read_state(plan, slot, &c, &r);
    free_counts(plan, &c);
    DS_TRY(status);
    memcpy(slot->block->frames, frames, plan->graph->n_inputs * sizeof *frames);
    return DS_OK;
}

/* ---------------------------------------------------------------- forking */
ds_status ds_slot_copy(const ds_plan *plan, ds_slot *slot, const ds_slot *source)
{
    for (int t = 0; t < plan->n_tails; t++) {
        size_t n_bytes = source->tails[t].n_bytes;
        DS_TRY(ds_tail_reserve(&plan->allocator, &slot->tails[t], 0, n_bytes));
        if (n_bytes)
            memcpy(slot->tails[t].data, source->tails[t].data, n_bytes);
    }
    memcpy(slot->block, source->block, plan->block_bytes);
    return DS_OK;
}
