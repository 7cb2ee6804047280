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
 * A difference ("DSDELTA1") leaves out the frames that were kept at an earlier snapshot, whose frames of the
 * inputs follow its own; a fifth word of each array says how many bytes it gives, the last ones.
 *
 * The reader trusts nothing: it recomputes what must be there, looks at all of it, and only then writes. */
#include <string.h>

#include "exec/positions.h"
#include "exec/session.h"

static const char magic[8] = {'D', 'S', 'S', 'T', 'A', 'T', 'E', '1'};
static const char magic_of_difference[8] = {'D', 'S', 'D', 'E', 'L', 'T', 'A', '1'};

enum { VERSION_AT = 7, WORD = 8 };

/* One array of a stream's state. */
typedef struct entry {
    int64_t node, array, at;
    size_t n_bytes;
    size_t n_known; /* of these, at the front, a difference leaves out */
    int input;      /* graph input whose frames these are; -1: of none */
    int place;      /* edge of the rewritten graph among whose kept frames they lie; -1: carried */
    size_t offset;  /* behind the first of those; in the block */
} entry;

/* What a slot must hold, recomputed from its frames. */
typedef struct state {
    ds_arena arena;
    ds_edge_counts *captured, *counts; /* [n_edges]: of the model, and of it rewritten */
    const int64_t *since;   /* frames of the inputs at an earlier snapshot; NULL: there is none */
    ds_edge_counts *before; /* [n_edges]: of the model, then */
    entry *entries;
    size_t n_entries, n_bytes; /* of the whole snapshot */
} state;

static void free_state(state *s)
{
    ds_arena_free(&s->arena);
}

/* In which edge of the rewritten graph an edge's frames lie; -1: its producer has gone, and nobody reads it. */
static void find_places(const ds_plan *p, int *place)
{
    for (size_t e = 0; e < p->model->n_edges; e++) {
        const int at = p->graph->renamed[e];
        place[e] = p->model->edges[at].node >= 0 && p->graph->edges[at].node < 0 ? -1 : at;
    }
}

/* Zeros that follow n bytes. */
static size_t filler(size_t n_bytes)
{
    return (WORD - n_bytes % WORD) % WORD;
}

static void add_entry(state *s, entry e)
{
    s->entries[s->n_entries++] = e;
    const size_t n_given = e.n_bytes - e.n_known;
    s->n_bytes += (s->since ? 5u : 4u) * WORD + n_given + filler(n_given);
}

static ds_status count_state(state *s, const ds_plan *p, const int64_t *frames)
{
    DS_TRY(ds_positions_count(p->model, frames, &s->arena, &s->captured));
    return ds_positions_count(p->graph, frames, &s->arena, &s->counts);
}

/* Lists all arrays in the order of the graph as captured, whose edges and the rewritten one's are counted. */
static ds_status list_state(state *s, const ds_plan *p)
{
    const size_t n_edges = p->graph->n_edges;
    size_t n_carried = 0;
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        n_carried += (size_t)p->graph->nodes[j].op->n_carried;
    int *place;
    DS_PUSH(&s->arena, place, n_edges);
    DS_PUSH(&s->arena, s->entries, n_edges + n_carried);
    find_places(p, place);
    s->n_bytes = (7 + (s->since ? 2u : 1u) * p->graph->n_inputs) * WORD;
    for (size_t e = 0; e < n_edges; e++) {
        const ds_edge *edge = &p->model->edges[e];
        const size_t frame_bytes = ds_signature_bytes(&edge->signature);
        const int64_t from = s->captured[e].from, kept = s->captured[e].known - from;
        const bool is_input = edge->node < 0;
        if (!kept || place[e] < 0)
            continue;
        DS_ASSERT(from >= s->counts[place[e]].from);
        const int64_t known = s->since ? s->before[e].known - from : 0;
        add_entry(s, (entry){.node = is_input ? -1 - edge->output : edge->node,
                             .array = is_input ? 0 : edge->output,
                             .at = from,
                             .n_bytes = (size_t)kept * frame_bytes,
                             .n_known = known > 0 ? (size_t)known * frame_bytes : 0,
                             .input = is_input ? (int)e : -1,
                             .place = place[e],
                             .offset = (size_t)(from - s->counts[place[e]].from) * frame_bytes});
    }
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_node *node = &p->graph->nodes[j];
        for (int k = 0; k < node->op->n_carried && !node->silent; k++) {
            const ds_carried *carried = &node->op->carried[k];
            add_entry(s, (entry){.node = node->id,
                                 .array = -1 - k,
                                 .n_bytes = ds_signature_bytes(&carried->array),
                                 .input = -1,
                                 .place = -1,
                                 .offset = p->nodes[j].carried_offset + carried->offset});
        }
    }
    return DS_OK;
}

/* Where an array lies in the slot. */
static char *find_data(const ds_plan *p, const ds_slot *of, const entry *e)
{
    ds_slot *slot = (ds_slot *)(uintptr_t)of;
    char *from = e->place < 0 ? (char *)slot->block : ds_slot_kept(p, slot, &p->edges[e->place]);
    return from ? from + e->offset : NULL;
}

static uint64_t word_of(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

/* Every step can be undone, so that a change in one word is always seen. */
uint64_t ds_snapshot_checksum(const void *bytes, size_t n_bytes)
{
    const unsigned char *data = bytes;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i + WORD <= n_bytes; i += WORD) {
        h = (h ^ word_of(data + i)) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return h;
}

/* ---------------------------------------------------------------- writing */
/* Returns where the next byte goes. */
static unsigned char *put(unsigned char *to, const void *data, size_t n_bytes)
{
    if (n_bytes)
        memcpy(to, data, n_bytes);
    return to + n_bytes;
}

static void write_state(const state *s, const ds_plan *p, const ds_slot *slot, unsigned char *data)
{
    static const unsigned char zeros[WORD];
    const uint64_t n_entries = s->n_entries;
    const uint64_t head[] = {s->n_bytes, p->origin[0], p->origin[1], p->graph->n_inputs};
    unsigned char *to = put(data, s->since ? magic_of_difference : magic, sizeof magic);
    to = put(to, head, sizeof head);
    to = put(to, slot->block->frames, p->graph->n_inputs * WORD);
    if (s->since)
        to = put(to, s->since, p->graph->n_inputs * WORD);
    to = put(to, &n_entries, WORD);
    for (const entry *e = s->entries; e < s->entries + s->n_entries; e++) {
        const size_t n_given = e->n_bytes - e->n_known;
        const int64_t words[] = {e->node, e->array, e->at, (int64_t)e->n_bytes, (int64_t)n_given};
        to = put(to, words, (s->since ? 5u : 4u) * WORD);
        if (n_given)
            to = put(to, find_data(p, slot, e) + e->n_known, n_given);
        to = put(to, zeros, filler(n_given));
    }
    const uint64_t sum = ds_snapshot_checksum(data, s->n_bytes - WORD);
    put(to, &sum, WORD);
}

/* Counts the edges of an earlier position of the stream. */
static ds_status count_before(state *s, const ds_plan *p, const int64_t *now)
{
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        DS_CHECK(s->since[i] >= 0 && s->since[i] <= now[i], DS_ARGUMENT,
                 "a snapshot since frame %lld of input %zu: expected one from 0 to %lld",
                 (long long)s->since[i], i, (long long)now[i]);
    return ds_positions_count(p->model, s->since, &s->arena, &s->before);
}

ds_status ds_slot_snapshot(const ds_plan *p, const ds_slot *slot, const int64_t *since, void *data,
                           size_t *n_bytes)
{
    DS_SCOPED(free_state) state s = {.since = since};
    ds_arena_init(&s.arena, &p->allocator);
    DS_TRY(count_state(&s, p, slot->block->frames));
    if (since)
        DS_TRY(count_before(&s, p, slot->block->frames));
    DS_TRY(list_state(&s, p));
    DS_CHECK(!data || s.n_bytes == *n_bytes, DS_ARGUMENT,
             "a snapshot of this stream takes %zu bytes, got room for %zu", s.n_bytes, *n_bytes);
    if (data)
        write_state(&s, p, slot, data);
    *n_bytes = s.n_bytes;
    return DS_OK;
}

/* ---------------------------------------------------------------- reading */
typedef struct reader {
    const ds_plan *plan;
    const unsigned char *data;
    size_t n, at; /* n: without the checksum */
} reader;

static ds_status get_words(reader *r, void *words, size_t n)
{
    DS_CHECK((r->n - r->at) / WORD >= n, DS_FORMAT,
             "the snapshot ends at byte %zu, where another word is expected", r->n);
    memcpy(words, r->data + r->at, n * WORD);
    r->at += n * WORD;
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
    const uint64_t got = word_of(bytes + n - WORD),
                   expected = ds_snapshot_checksum(bytes, n - WORD);
    DS_CHECK(got == expected, DS_FORMAT,
             "the snapshot is damaged: expected the checksum %016llx, got %016llx",
             (unsigned long long)expected, (unsigned long long)got);
    return DS_OK;
}

static ds_status check_model(const ds_plan *p, reader *r)
{
    uint64_t f[2], n_inputs = 0;
    DS_TRY(get_words(r, f, 2));
    DS_TRY(get_words(r, &n_inputs, 1));
    DS_CHECK(
        f[0] == p->origin[0] && f[1] == p->origin[1], DS_FORMAT,
        "the snapshot was taken from another model: expected the fingerprint %016llx%016llx, got "
        "%016llx%016llx",
        (unsigned long long)p->origin[0], (unsigned long long)p->origin[1],
        (unsigned long long)f[0], (unsigned long long)f[1]);
    DS_CHECK(n_inputs == p->graph->n_inputs, DS_FORMAT,
             "the snapshot's model has %llu inputs, expected %zu", (unsigned long long)n_inputs,
             p->graph->n_inputs);
    return DS_OK;
}

static ds_status read_frames(const ds_plan *p, reader *r, int64_t *frames)
{
    for (size_t i = 0; i < p->graph->n_inputs; i++) {
        DS_TRY(get_words(r, &frames[i], 1));
        DS_CHECK(frames[i] >= 0 && frames[i] <= DS_MOST_FRAMES, DS_FORMAT,
                 "the snapshot's position %lld of input %zu is impossible: expected 0 to 2^60",
                 (long long)frames[i], i);
    }
    int64_t most = 0;
    for (size_t i = 0; i < p->graph->n_inputs; i++)
        most = frames[i] > most ? frames[i] : most;
    for (size_t i = 0; i < p->graph->n_inputs; i++) {
        const bool memory = p->graph->edges[p->graph->inputs[i]].signature.rate.num > 0;
        const int64_t times = memory ? frames[i] > 0 : frames[i];
        DS_CHECK(p->clock.tick[i] != 0 || times == (most > 0), DS_FORMAT,
                 "the snapshot has input %zu, which is given once, %lld times", i,
                 (long long)times);
    }
    DS_CHECK(
        ds_clock_together(&p->clock, frames), DS_FORMAT,
        "the snapshot's inputs are further apart (%lld and %lld frames) than the skew allows that "
        "is expected here",
        (long long)frames[0], (long long)frames[p->graph->n_inputs - 1]);
    return DS_OK;
}

/* Whether a stream can be there at all: what it keeps has room, and nothing refuses its length. */
static ds_status check_counts(const ds_plan *p, const ds_edge_counts *counts)
{
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_edge_plan *edge = &p->edges[e];
        const int64_t kept = counts[e].known - counts[e].from;
        size_t n_bytes;
        const bool fits = edge->tail >= 0
                              ? !__builtin_mul_overflow((size_t)kept, edge->frame_bytes, &n_bytes)
                              : kept <= edge->capacity;
        DS_CHECK(counts[e].total <= 2 * DS_MOST_FRAMES, DS_FORMAT,
                 "the snapshot's position is impossible: edge %zu would hold %lld frames, expected "
                 "at most 2^61",
                 e, (long long)counts[e].total);
        DS_CHECK(fits, DS_FORMAT,
                 "the snapshot's position is impossible: edge %zu would keep %lld frames, expected "
                 "at most %lld",
                 e, (long long)kept, (long long)edge->capacity);
    }
    const ds_place at = {counts, 0, false};
    if (ds_positions_check(p, &at) != DS_OK)
        return ds_fail(DS_FORMAT,
                       "the snapshot's position is impossible, expected one within limits (%s)",
                       ds_last_error());
    return DS_OK;
}

/* Whether operators can take these values of a graph input: as what a caller gives is looked at. */
static ds_status check_values(const reader *r, const entry *e, ds_arena *arena)
{
    const ds_graph *g = r->plan->model;
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_op *op = g->nodes[j].op;
        if (!op->def->indices || g->nodes[j].inputs[op->def->checked_input] != e->input)
            continue;
        const int64_t n_frames =
            (int64_t)(e->n_bytes / ds_signature_bytes(&op->in[op->def->checked_input]));
        void *values; /* aligned as the operator expects it */
        DS_TRY(ds_arena_push(arena, &values, e->n_bytes));
        memcpy(values, r->data + r->at, e->n_bytes);
        if (ds_op_check_values(op, values, n_frames) != DS_OK)
            return ds_fail(DS_FORMAT, "the snapshot's frames at byte %zu are impossible (%s)",
                           r->at, ds_last_error());
    }
    return DS_OK;
}

/* Whether the next array is this one; its bytes are not taken yet. */
static ds_status check_entry(reader *r, const entry *e, ds_arena *arena)
{
    const size_t begin = r->at;
    struct {
        int64_t node, array, at;
        uint64_t n_bytes;
    } got;
    DS_TRY(get_words(r, &got, 4));
    DS_CHECK(got.node == e->node && got.array == e->array, DS_FORMAT,
             "the snapshot at byte %zu: expected array %lld of node %lld, got %lld of %lld", begin,
             (long long)e->array, (long long)e->node, (long long)got.array, (long long)got.node);
    DS_CHECK(got.at == e->at && got.n_bytes == e->n_bytes, DS_FORMAT,
             "the snapshot at byte %zu: expected %zu bytes from position %lld, got %llu from %lld",
             begin, e->n_bytes, (long long)e->at, (unsigned long long)got.n_bytes,
             (long long)got.at);
    const size_t left = r->n - r->at, n_filler = filler(e->n_bytes);
    DS_CHECK(e->n_bytes <= left && n_filler <= left - e->n_bytes, DS_FORMAT,
             "the snapshot at byte %zu: expected %zu bytes, got %zu", r->at, e->n_bytes, left);
    if (e->input >= 0)
        DS_TRY(check_values(r, e, arena));
    r->at += e->n_bytes;
    for (size_t i = 0; i < n_filler; i++, r->at++)
        DS_CHECK(r->data[r->at] == 0, DS_FORMAT, "the snapshot at byte %zu: expected a zero",
                 r->at);
    return DS_OK;
}

/* Makes room in the tails; what they hold stays. */
static ds_status reserve_tails(const ds_plan *p, ds_slot *slot, const ds_edge_counts *counts)
{
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_edge_plan *edge = &p->edges[e];
        const size_t n_bytes = (size_t)(counts[e].known - counts[e].from) * edge->frame_bytes;
        if (edge->tail >= 0)
            DS_TRY(ds_tail_grow(&p->allocator, &slot->tails[edge->tail], n_bytes));
    }
    return DS_OK;
}

/* After all has been looked at: nothing can fail. Kept frames come to the front of their rooms and tails. */
static void take_state(const state *s, ds_slot *slot, const reader *r)
{
    const ds_plan *p = r->plan;
    const unsigned char *from = r->data + r->at;
    for (size_t k = 0; k < p->n_marked; k++)
        ds_block_marks(p, slot->block)[k] = 0;
    for (int t = 0; t < p->n_tails; t++)
        slot->tails[t].first = 0;
    for (const entry *e = s->entries; e < s->entries + s->n_entries; e++) {
        from += 4 * WORD;
        if (e->n_bytes)
            memcpy(find_data(p, slot, e), from, e->n_bytes);
        from += e->n_bytes + filler(e->n_bytes);
    }
}

static ds_status read_state(ds_slot *slot, reader *r, const int64_t *frames)
{
    const ds_plan *p = r->plan;
    uint64_t n_entries = 0;
    DS_SCOPED(free_state) state s = {0};
    ds_arena_init(&s.arena, &p->allocator);
    DS_TRY(count_state(&s, p, frames));
    DS_TRY(check_counts(p, s.counts));
    DS_TRY(list_state(&s, p));
    DS_TRY(get_words(r, &n_entries, 1));
    DS_CHECK(n_entries == s.n_entries, DS_FORMAT, "the snapshot holds %llu arrays, expected %zu",
             (unsigned long long)n_entries, s.n_entries);
    const reader first = *r;
    for (size_t k = 0; k < s.n_entries; k++)
        DS_TRY(check_entry(r, &s.entries[k], &s.arena));
    DS_CHECK(r->at == r->n, DS_FORMAT,
             "the snapshot at byte %zu: expected its end, got %zu bytes more", r->at, r->n - r->at);
    DS_TRY(reserve_tails(p, slot, s.counts));
    take_state(&s, slot, &first);
    memcpy(slot->block->frames, frames, p->graph->n_inputs * sizeof *frames);
    return DS_OK;
}

ds_status ds_slot_restore(const ds_plan *plan, ds_slot *slot, const void *data, size_t n_bytes)
{
    DS_TRY(check_frame(data, n_bytes));
    reader r = {plan, data, n_bytes - WORD, 2 * WORD};
    int64_t frames[DS_MAX_INPUTS];
    DS_TRY(check_model(plan, &r));
    DS_TRY(read_frames(plan, &r, frames));
    return read_state(slot, &r, frames);
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
