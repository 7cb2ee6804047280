/* Snapshots: what a stream remembers, as named canonical arrays; docs/snapshot_format.md is the format.
 *
 * Little-endian words of 8 bytes, one after another:
 *   "DSSTATE1"; bytes of the whole; fingerprint (2 words)
 *   number of inputs; for each: its frames so far
 *   number of arrays; for each: node, array, position, bytes, then the bytes and zeros up to a whole word
 *   checksum of all before it
 *
 * An array is either kept frames (node: that of the producer, -1 - i for graph input i; array: which output;
 * position: of the first frame) or carried by an operator (array: -1 - c; position 0). Which there are, in
 * which order, and where kept frames begin follows from the frames so far and from the graph as captured,
 * before any rewrite: so a snapshot outlives rewrites, plans, kernels and thread counts. What no output's
 * value depends on (silent nodes) is not remembered at all. An edge that a rewrite has removed is a part of
 * another one, in which its frames lie.
 *
 * The reader trusts nothing: it recomputes what must be there, looks at all of it, and only then writes. */
#include <string.h>

#include "base/alloc.h"
#include "exec/session.h"

static const char magic[8] = {'D', 'S', 'S', 'T', 'A', 'T', 'E', '1'};

enum { VERSION_AT = 7, WORD = 8 };

/* One array of a stream's state. */
typedef struct entry {
    int64_t node, array, at;
    size_t n_bytes;
    void *data;
    int edge; /* of the graph as captured; -1 where carried */
} entry;

/* Counts of the edges of one graph, and the first frame kept of each. */
typedef struct edge_counts {
    ds_pair *pairs;
    int64_t *first;
} edge_counts;

/* What a slot must hold, recomputed from its frames. */
typedef struct state_counts {
    edge_counts model, run; /* of the graph as captured, of the rewritten one */
    int *
        place; /* [n_edges]: the rewritten graph's edge in which a captured one's frames lie; -1: in none */
    size_t n_bytes;
    void *memory;
} state_counts;

static void count_edges(const ds_graph *g, const int64_t *frames, edge_counts *c)
{
    for (size_t i = 0; i < g->n_inputs; i++)
        c->pairs[g->inputs[i]] = (ds_pair){frames[i], frames[i]};
    ds_graph_counts(g, false, c->pairs);
    ds_graph_needs(g, c->pairs, c->first);
}

/* Rewrites leave edges their numbers: one whose producer has gone is the sync's input, or of no use. */
static void find_places(const ds_plan *p, int *place)
{
    for (size_t e = 0; e < p->model->n_edges; e++) {
        const int node = p->model->edges[e].node;
        const bool gone = node >= 0 && p->graph->edges[e].node < 0;
        const bool is_sync = gone && strcmp(p->model->nodes[node].op->def->name, "sync") == 0;
        place[e] = !gone ? (int)e : is_sync ? place[p->model->nodes[node].inputs[0]] : -1;
    }
}

static ds_status count_state(const ds_plan *p, const int64_t *frames, state_counts *c)
{
    const size_t e = p->graph->n_edges;
    DS_ASSERT(p->model->n_edges == e);
    c->n_bytes = e * (2 * sizeof(ds_pair) + 2 * sizeof(int64_t) + sizeof(int));
    DS_TRY(ds_allocate_zeroed(&p->allocator, &c->memory, c->n_bytes));
    c->model.pairs = c->memory;
    c->run.pairs = c->model.pairs + e;
    c->model.first = (int64_t *)(void *)(c->run.pairs + e);
    c->run.first = c->model.first + e;
    c->place = (int *)(void *)(c->run.first + e);
    count_edges(p->model, frames, &c->model);
    count_edges(p->graph, frames, &c->run);
    find_places(p, c->place);
    return DS_OK;
}

static void free_counts(const ds_plan *p, state_counts *c)
{
    ds_release(&p->allocator, c->memory, c->n_bytes);
}

static int64_t kept_frames(const edge_counts *c, size_t e)
{
    return c->first[e] < c->pairs[e].known ? c->pairs[e].known - c->first[e] : 0;
}

/* The kept frames of edge e as captured; false where it keeps none. */
static bool kept_entry(const ds_plan *p, const ds_slot *slot, const state_counts *c, size_t e,
                       entry *out)
{
    const int64_t kept = kept_frames(&c->model, e);
    const int place = c->place[e], node = p->model->edges[e].node,
              output = p->model->edges[e].output;
    if (!kept || place < 0)
        return false;
    const ds_edge_plan *edge = &p->edges[place];
    const size_t skip = (size_t)(c->model.first[e] - c->run.first[place]) * edge->frame_bytes;
    const size_t first =
        edge->frame_bytes * (size_t)(edge->tail >= 0   ? slot->tails[edge->tail].first
                                     : edge->mark >= 0 ? ds_block_marks(p, slot->block)[edge->mark]
                                                       : 0);
    char *from =
        edge->tail >= 0 ? slot->tails[edge->tail].data : (char *)slot->block + edge->state_offset;
    *out =
        (entry){.node = node < 0 ? -1 - output : node,
                .array = node < 0 ? 0 : output,
                .at = c->model.first[e],
                .n_bytes = (size_t)kept * edge->frame_bytes,
                .data = from ? from + first + skip : NULL, /* NULL: a tail that has no room yet */
                .edge = (int)e};
    return true;
}

static void carried_entry(const ds_plan *p, const ds_slot *slot, size_t j, int k, entry *out)
{
    const ds_node *node = &p->graph->nodes[j];
    const ds_carried *carried = &node->op->carried[k];
    *out = (entry){.node = node->id,
                   .array = -1 - k,
                   .n_bytes = ds_signature_bytes(&carried->array),
                   .data = (char *)slot->block + p->nodes[j].carried_offset + carried->offset,
                   .edge = -1};
}

/* Calls visit for every array of the slot's state, in the order of the graph as captured. */
static ds_status each_entry(const ds_plan *p, const ds_slot *slot, const state_counts *c,
                            ds_status (*visit)(void *context, const entry *), void *context)
{
    entry one;
    for (size_t e = 0; e < p->model->n_edges; e++)
        if (kept_entry(p, slot, c, e, &one))
            DS_TRY(visit(context, &one));
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_node *node = &p->graph->nodes[j];
        for (int k = 0; k < node->op->n_carried && !node->silent; k++) {
            carried_entry(p, slot, j, k, &one);
            DS_TRY(visit(context, &one));
        }
    }
    return DS_OK;
}

static ds_status count_entry(void *context, const entry *e)
{
    (void)e;
    ++*(uint64_t *)context;
    return DS_OK;
}

/* Zeros that follow n bytes. */
static size_t filler(size_t n_bytes)
{
    return (WORD - n_bytes % WORD) % WORD;
}

static uint64_t word_of(const unsigned char *data)
{
    uint64_t word = 0;
    for (unsigned i = 0; i < WORD; i++)
        word |= (uint64_t)data[i] << (8 * i);
    return word;
}

/* Over whole words; every step can be undone, so that a change in one word is always seen. */
static uint64_t checksum(const unsigned char *data, size_t n_bytes)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i + WORD <= n_bytes; i += WORD) {
        h = (h ^ word_of(data + i)) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return h;
}

/* ---------------------------------------------------------------- writing */
typedef struct writer {
    unsigned char *data; /* NULL: only measure */
    size_t n, room;
} writer;

static void put(writer *w, const void *data, size_t n_bytes)
{
    if (w->data && n_bytes && w->n + n_bytes <= w->room)
        memcpy(w->data + w->n, data, n_bytes);
    w->n += n_bytes;
}

static void put_word(writer *w, uint64_t word)
{
    unsigned char bytes[WORD];
    for (unsigned i = 0; i < WORD; i++)
        bytes[i] = (unsigned char)(word >> (8 * i));
    put(w, bytes, sizeof bytes);
}

static ds_status put_entry(void *context, const entry *e)
{
    static const unsigned char zeros[WORD];
    writer *w = context;
    put_word(w, (uint64_t)e->node);
    put_word(w, (uint64_t)e->array);
    put_word(w, (uint64_t)e->at);
    put_word(w, e->n_bytes);
    put(w, e->data, e->n_bytes);
    put(w, zeros, filler(e->n_bytes));
    return DS_OK;
}

/* Writes, or measures where data is NULL. */
static ds_status write_snapshot(const ds_plan *p, const ds_slot *slot, unsigned char *data,
                                size_t room, size_t *n_bytes)
{
    writer w = {.data = data, .room = room};
    state_counts c;
    uint64_t n_entries = 0;
    DS_TRY(count_state(p, slot->block->frames, &c));
    put(&w, magic, sizeof magic);
    put_word(&w, room);
    put_word(&w, p->fingerprint[0]);
    put_word(&w, p->fingerprint[1]);
    put_word(&w, p->graph->n_inputs);
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        put_word(&w, (uint64_t)slot->block->frames[i]);
    ds_status status = each_entry(p, slot, &c, count_entry, &n_entries);
    put_word(&w, n_entries);
    if (status == DS_OK)
        status = each_entry(p, slot, &c, put_entry, &w);
    free_counts(p, &c);
    DS_TRY(status);
    put_word(&w, data && w.n <= room ? checksum(data, w.n) : 0);
    DS_CHECK(!data || w.n == room, DS_ARGUMENT,
             "a snapshot of this stream takes %zu bytes, got %zu", w.n, room);
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
    const ds_plan *plan;
    const unsigned char *data;
    size_t n, at; /* n: without the checksum */
} reader;

static ds_status get_word(reader *r, uint64_t *word)
{
    DS_CHECK(r->n - r->at >= WORD, DS_FORMAT,
             "the snapshot ends at byte %zu, where another word is expected", r->n);
    *word = word_of(r->data + r->at);
    r->at += WORD;
    return DS_OK;
}

/* Whether these are all the bytes of a snapshot, unharmed. */
static ds_status check_frame(const unsigned char *bytes, size_t n)
{
    const size_t least = 5 * WORD;
    const bool begins = n > 0 && memcmp(bytes, magic, n < VERSION_AT ? n : VERSION_AT) == 0;
    DS_CHECK(begins, DS_FORMAT,
             "expected a snapshot, which begins with DSSTATE, got %zu other bytes", n);
    DS_CHECK(n <= VERSION_AT || bytes[VERSION_AT] == (unsigned char)magic[VERSION_AT], DS_FORMAT,
             "expected a snapshot of version %c, got one of version '\\x%02X'", magic[VERSION_AT],
             (unsigned)bytes[VERSION_AT]);
    DS_CHECK(n >= least, DS_FORMAT,
             "the snapshot is cut short: expected at least %zu bytes, got %zu", least, n);
    const uint64_t n_whole = word_of(bytes + WORD);
    DS_CHECK(n >= n_whole, DS_FORMAT, "the snapshot is cut short: expected %llu bytes, got %zu",
             (unsigned long long)n_whole, n);
    DS_CHECK(n == n_whole && n % WORD == 0, DS_FORMAT,
             "the snapshot has bytes too many: expected %llu, in words of 8, got %zu",
             (unsigned long long)n_whole, n);
    const uint64_t got = word_of(bytes + n - WORD), expected = checksum(bytes, n - WORD);
    DS_CHECK(got == expected, DS_FORMAT,
             "the snapshot is damaged: expected the checksum %016llx, got %016llx",
             (unsigned long long)expected, (unsigned long long)got);
    return DS_OK;
}

static ds_status check_model(const ds_plan *p, reader *r)
{
    uint64_t f[2] = {0}, n_inputs = 0;
    DS_TRY(get_word(r, &f[0]));
    DS_TRY(get_word(r, &f[1]));
    DS_TRY(get_word(r, &n_inputs));
    DS_CHECK(
        f[0] == p->fingerprint[0] && f[1] == p->fingerprint[1], DS_FORMAT,
        "the snapshot was taken from another model: expected the fingerprint %016llx%016llx, got "
        "%016llx%016llx",
        (unsigned long long)p->fingerprint[0], (unsigned long long)p->fingerprint[1],
        (unsigned long long)f[0], (unsigned long long)f[1]);
    DS_CHECK(n_inputs == p->graph->n_inputs, DS_FORMAT,
             "the snapshot's model has %llu inputs, expected %zu", (unsigned long long)n_inputs,
             p->graph->n_inputs);
    return DS_OK;
}

static ds_status read_frames(const ds_plan *p, reader *r, int64_t *frames)
{
    for (size_t i = 0; i < p->graph->n_inputs; i++) {
        uint64_t word = 0;
        DS_TRY(get_word(r, &word));
        frames[i] = (int64_t)word;
        DS_CHECK(word <= (uint64_t)DS_MOST_FRAMES, DS_FORMAT,
                 "the snapshot's position %lld of input %zu is impossible: expected 0 to 2^60",
                 (long long)frames[i], i);
    }
    DS_CHECK(
        ds_clock_together(&p->clock, frames), DS_FORMAT,
        "the snapshot's inputs are further apart (%lld and %lld frames) than the skew allows that "
        "is expected here",
        (long long)frames[0], (long long)frames[p->graph->n_inputs - 1]);
    return DS_OK;
}

/* Whether a stream can be there at all: what it keeps has room, and nothing refuses its length. */
static ds_status check_counts(const ds_plan *p, const state_counts *c)
{
    const ds_graph *g = p->graph;
    for (size_t e = 0; e < g->n_edges; e++) {
        const ds_edge_plan *edge = &p->edges[e];
        const int64_t kept = kept_frames(&c->run, e);
        const int place = c->place[e];
        size_t n_bytes;
        const bool fits = edge->tail >= 0
                              ? !__builtin_mul_overflow((size_t)kept, edge->frame_bytes, &n_bytes)
                              : kept <= edge->capacity;
        DS_CHECK(c->run.pairs[e].total <= 2 * DS_MOST_FRAMES, DS_FORMAT,
                 "the snapshot's position is impossible: edge %zu would hold %lld frames, expected "
                 "at most 2^61",
                 e, (long long)c->run.pairs[e].total);
        DS_CHECK(fits, DS_FORMAT,
                 "the snapshot's position is impossible: edge %zu would keep %lld frames, expected "
                 "at most %lld",
                 e, (long long)kept, (long long)edge->capacity);
        DS_ASSERT(place < 0 || kept_frames(&c->model, e) <= kept_frames(&c->run, (size_t)place));
    }
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        ds_pair in[DS_MAX_INPUTS];
        for (int i = 0; i < node->op->n_inputs; i++)
            in[i] = c->run.pairs[node->inputs[i]];
        if (ds_op_check(node->op, in, false) != DS_OK) {
            char why[DS_MESSAGE_BYTES / 2] = "";
            strncpy(why, ds_last_error(), sizeof why - 1);
            return ds_fail(DS_FORMAT,
                           "the snapshot's position is impossible, expected one within limits (%s)",
                           why);
        }
    }
    return DS_OK;
}

/* Whether operators can take these values of a graph input: as what a caller gives is looked at. */
static ds_status check_values(const reader *r, const entry *e)
{
    const ds_graph *g = r->plan->model;
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_op *op = g->nodes[j].op;
        if (!op->def->check_values || g->nodes[j].inputs[0] != e->edge)
            continue;
        void *values; /* aligned as the operator expects it */
        DS_TRY(ds_allocate(&r->plan->allocator, &values, e->n_bytes));
        memcpy(values, r->data + r->at, e->n_bytes);
        const size_t frame_bytes = ds_signature_bytes(&op->in[0]);
        const ds_status status =
            ds_op_check_values(op, values, (int64_t)(e->n_bytes / frame_bytes));
        ds_release(&r->plan->allocator, values, e->n_bytes);
        if (status != DS_OK) {
            char why[DS_MESSAGE_BYTES / 2] = "";
            strncpy(why, ds_last_error(), sizeof why - 1);
            return ds_fail(DS_FORMAT, "the snapshot's frames at byte %zu are impossible (%s)",
                           r->at, why);
        }
    }
    return DS_OK;
}

/* Whether the next array is this one; its bytes are not taken yet. */
static ds_status check_entry(void *context, const entry *e)
{
    reader *r = context;
    const size_t begin = r->at;
    uint64_t node = 0, array = 0, at = 0, n_bytes = 0;
    DS_TRY(get_word(r, &node));
    DS_TRY(get_word(r, &array));
    DS_TRY(get_word(r, &at));
    DS_TRY(get_word(r, &n_bytes));
    DS_CHECK(node == (uint64_t)e->node && array == (uint64_t)e->array, DS_FORMAT,
             "the snapshot at byte %zu: expected array %lld of node %lld, got %lld of %lld", begin,
             (long long)e->array, (long long)e->node, (long long)array, (long long)node);
    DS_CHECK(at == (uint64_t)e->at && n_bytes == e->n_bytes, DS_FORMAT,
             "the snapshot at byte %zu: expected %zu bytes from position %lld, got %llu from %lld",
             begin, e->n_bytes, (long long)e->at, (unsigned long long)n_bytes, (long long)at);
    const size_t left = r->n - r->at, n_filler = filler(e->n_bytes);
    DS_CHECK(e->n_bytes <= left && n_filler <= left - e->n_bytes, DS_FORMAT,
             "the snapshot at byte %zu: expected %zu bytes, got %zu", r->at, e->n_bytes, left);
    if (e->edge >= 0 && e->node < 0)
        DS_TRY(check_values(r, e));
    r->at += e->n_bytes;
    for (size_t i = 0; i < n_filler; i++, r->at++)
        DS_CHECK(r->data[r->at] == 0, DS_FORMAT, "the snapshot at byte %zu: expected a zero",
                 r->at);
    return DS_OK;
}

/* After check_entry has seen all: nothing can fail. */
static ds_status take_entry(void *context, const entry *e)
{
    reader *r = context;
    r->at += 4 * WORD;
    memcpy(e->data, r->data + r->at, e->n_bytes);
    r->at += e->n_bytes + filler(e->n_bytes);
    return DS_OK;
}

/* Makes room in the tails; what they hold stays. */
static ds_status reserve_tails(const ds_plan *p, ds_slot *slot, const state_counts *c)
{
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        if (p->edges[e].tail < 0)
            continue;
        ds_tail *tail = &slot->tails[p->edges[e].tail];
        const size_t n_bytes = (size_t)kept_frames(&c->run, e) * p->edges[e].frame_bytes;
        DS_TRY(ds_tail_grow(&p->allocator, tail, n_bytes));
    }
    return DS_OK;
}

/* Kept frames are going to stand at the front of their rooms and tails. */
static void clear_marks(const ds_plan *p, ds_slot *slot)
{
    for (size_t k = 0; k < p->n_marked; k++)
        ds_block_marks(p, slot->block)[k] = 0;
    for (int t = 0; t < p->n_tails; t++)
        slot->tails[t].first = 0;
}

static ds_status read_state(ds_slot *slot, const state_counts *c, reader *r)
{
    const ds_plan *p = r->plan;
    uint64_t n_entries = 0, expected = 0;
    DS_TRY(check_counts(p, c));
    DS_TRY(get_word(r, &n_entries));
    DS_TRY(each_entry(p, slot, c, count_entry, &expected));
    DS_CHECK(n_entries == expected, DS_FORMAT, "the snapshot holds %llu arrays, expected %llu",
             (unsigned long long)n_entries, (unsigned long long)expected);
    reader again = *r;
    DS_TRY(each_entry(p, slot, c, check_entry, r));
    DS_CHECK(r->at == r->n, DS_FORMAT,
             "the snapshot at byte %zu: expected its end, got %zu bytes more", r->at, r->n - r->at);
    DS_TRY(reserve_tails(p, slot, c));
    clear_marks(p, slot);
    return each_entry(p, slot, c, take_entry, &again);
}

ds_status ds_slot_restore(const ds_plan *plan, ds_slot *slot, const void *data, size_t n_bytes)
{
    DS_TRY(check_frame(data, n_bytes));
    reader r = {plan, data, n_bytes - WORD, 2 * WORD};
    int64_t frames[DS_MAX_INPUTS];
    DS_TRY(check_model(plan, &r));
    DS_TRY(read_frames(plan, &r, frames));
    state_counts c;
    DS_TRY(count_state(plan, frames, &c));
    const ds_status status = read_state(slot, &c, &r);
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
        DS_TRY(ds_tail_grow(&plan->allocator, &slot->tails[t], n_bytes));
        if (n_bytes)
            memcpy(slot->tails[t].data, source->tails[t].data, n_bytes);
        slot->tails[t].first = source->tails[t].first;
    }
    memcpy(slot->block, source->block, plan->block_bytes);
    return DS_OK;
}
