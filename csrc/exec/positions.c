/* exec/positions.c: a table of integers by position, with open addressing. */
#include "exec/positions.h"

#include <string.h>

#include "base/utf8.h"

/* Room for entries: as many as these bytes hold, within bounds. */
enum { TABLE_BYTES = 1 << 20, LEAST_ENTRIES = 16, MOST_ENTRIES = 4096 };

/* Frames of what is given once, of any length, when growth is measured: something comes of them. */
enum { LONG_MEMORY = 1 << 20 };

/* What an entry is found by; the edges' integers follow. */
typedef struct entry {
    uint64_t hash;
    int64_t ended, frames[];
} entry;

/* ---------------------------------------------------------------- evaluation */
/* The integers of all edges, from the start. Edges without producer stay empty. */
static void count(const ds_graph *g, const int64_t *frames, bool ended, ds_pair *pairs,
                  int64_t *first, ds_edge_counts *edges)
{
    bool begun = ended; /* with its first frame, or its end */
    memset(pairs, 0, g->n_edges * sizeof *pairs);
    for (size_t i = 0; i < g->n_inputs; i++) {
        pairs[g->inputs[i]] = (ds_pair){frames[i], frames[i]};
        begun = begun || frames[i] > 0;
    }
    ds_graph_counts(g, ended, pairs);
    ds_graph_needs(g, pairs, first);
    for (size_t e = 0; e < g->n_edges; e++) {
        const int64_t known = begun ? pairs[e].known : 0;
        edges[e] = (ds_edge_counts){known, pairs[e].total, first[e] < known ? first[e] : known};
    }
}

ds_status ds_positions_count(const ds_graph *graph, const int64_t *frames, ds_arena *arena,
                             ds_edge_counts **edges)
{
    ds_pair *pairs;
    int64_t *first;
    DS_PUSH(arena, pairs, graph->n_edges);
    DS_PUSH(arena, first, graph->n_edges);
    DS_PUSH(arena, *edges, graph->n_edges);
    count(graph, frames, false, pairs, first, *edges);
    return DS_OK;
}

/* What follows from what is given once, of whatever length: combined frame by frame, it must have the same frames. */
static ds_status check_given(const ds_graph *g, const ds_edge_counts *edges)
{
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        const bool combines = node->op->def->flags & DS_OP_LOCKSTEP && ds_graph_once(g, node);
        for (int i = 1; combines && i < ds_op_n_values(node->op); i++)
            DS_CHECK(edges[node->inputs[i]].known == edges[node->inputs[0]].known, DS_MISMATCH,
                     "%s: what is given once has %lld and %lld frames", node->op->def->name,
                     (long long)edges[node->inputs[0]].known,
                     (long long)edges[node->inputs[i]].known);
    }
    return DS_OK;
}

/* Refuses the count of edge e near its limit, or of what is given once where only 1 can be. */
static ds_status check_count(const ds_plan *p, size_t e, const ds_edge_counts *c, int64_t n_frames)
{
    DS_CHECK(c->total <= 2 * DS_MOST_FRAMES, DS_ARGUMENT,
             "%lld frames of input 0 are more than this model can count: edge %zu would hold "
             "more than 2^61",
             (long long)n_frames, e);
    DS_CHECK(!p->graph->edges[e].given || p->edges[e].tail >= 0 ||
                 c->known - c->from <= p->edges[e].capacity,
             DS_MISMATCH, "what is given once has %lld frames where 1 is expected",
             (long long)c->known);
    return DS_OK;
}

/* An edge keeps more than the analysis says: where nothing comes of what is given once, ever more of others. */
static ds_status refuse_kept(const ds_graph *g, const ds_edge_counts *edges)
{
    for (size_t e = 0; e < g->n_edges; e++)
        DS_CHECK(!g->edges[e].given || edges[e].known > 0, DS_MISMATCH,
                 "what is given once has too few frames: nothing comes of them");
    DS_ASSERT(false);
    return DS_OK;
}

/* The same for a stream that there can be. */
static ds_status evaluate(const ds_plan *p, const int64_t *frames, bool ended, ds_pair *pairs,
                          int64_t *first, ds_edge_counts *edges)
{
    count(p->graph, frames, ended, pairs, first, edges);
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_edge_counts *c = &edges[e];
        DS_TRY(check_count(p, e, c, frames[0]));
        if (!ended && p->edges[e].tail < 0 && c->known - c->from > p->edges[e].capacity)
            return refuse_kept(p->graph, edges);
    }
    return check_given(p->graph, edges);
}

/* ---------------------------------------------------------------- planning */
/* From the integers at the start's end, a period later, and both at the stream's end. */
static ds_status measure_growth(ds_plan *p, ds_arena *arena)
{
    const size_t n = p->graph->n_edges;
    ds_edge_counts *counts;
    ds_pair *pairs;
    int64_t *first;
    DS_PUSH(arena, counts, 4 * n);
    DS_PUSH(arena, pairs, n);
    DS_PUSH(arena, first, n);
    for (size_t k = 0; k < 4; k++) {
        int64_t frames[DS_MAX_INPUTS];
        for (size_t i = 0; i < p->graph->n_inputs; i++) {
            const ds_edge *edge = &p->graph->edges[p->graph->inputs[i]];
            frames[i] = edge->given && edge->signature.rate.num > 0
                            ? LONG_MEMORY
                            : p->start[i] + (int64_t)(k % 2) * p->period[i];
        }
        DS_TRY(evaluate(p, frames, k >= 2, pairs, first, counts + k * n));
    }
    int64_t most = 1;
    for (size_t e = 0; e < n; e++) {
        const ds_edge_counts *at = &counts[e], *next = &counts[n + e];
        p->edges[e].growth = (ds_growth){.known = next->known - at->known,
                                         .total = next->total - at->total,
                                         .from = next->from - at->from,
                                         .end = counts[3 * n + e].known - counts[2 * n + e].known};
        const ds_growth *grows = &p->edges[e].growth;
        most = grows->total > most ? grows->total : most;
        most = grows->end > most ? grows->end : most;
        p->uneven |= grows->end != grows->known;
        DS_ASSERT(p->edges[e].tail >= 0 || grows->from == grows->known);
    }
    p->most_periods = DS_MOST_FRAMES / most;
    return DS_OK;
}

ds_status ds_positions_plan(ds_plan *plan, ds_arena *scratch)
{
    const int64_t *tick = plan->clock.tick;
    for (size_t i = 0; i < plan->graph->n_inputs; i++) {
        plan->start[i] = 1; /* and no period, of what is given once */
        if (tick[i] == 0)
            continue;
        plan->period[i] = (int64_t)((ds_wide)plan->analysis.period * tick[0] / tick[i]);
        plan->start[i] =
            (int64_t)(((ds_wide)plan->analysis.transient * tick[0] + tick[i] - 1) / tick[i]);
    }
    return measure_growth(plan, scratch);
}

/* ---------------------------------------------------------------- the table */
void ds_positions_init(ds_positions *positions, const ds_plan *plan)
{
    *positions = (ds_positions){.plan = plan};
    ds_arena_init(&positions->arena, &plan->allocator);
    positions->head_bytes = sizeof(entry) + plan->graph->n_inputs * sizeof(int64_t);
    positions->entry_bytes = positions->head_bytes + plan->graph->n_edges * sizeof(ds_edge_counts);
}

void ds_positions_free(ds_positions *positions)
{
    ds_arena_free(&positions->arena);
}

/* Replaces the table by an empty one with room for so many entries. */
static ds_status resize(ds_positions *t, size_t room)
{
    const size_t n_edges = t->plan->graph->n_edges;
    DS_CHECK(room < INT32_MAX / 4, DS_NO_MEMORY,
             "the integers of %zu positions do not fit into memory", room);
    t->n = t->room = 0;
    for (t->n_slots = 4; t->n_slots < 2 * room;)
        t->n_slots *= 2;
    ds_arena_reset(&t->arena);
    DS_TRY(ds_arena_push_array(&t->arena, (void **)&t->entries, room, t->entry_bytes));
    DS_PUSH(&t->arena, t->pairs, n_edges);
    DS_PUSH(&t->arena, t->first, n_edges);
    DS_PUSH_ZEROED(&t->arena, t->slots, t->n_slots);
    t->room = room;
    return DS_OK;
}

ds_status ds_positions_begin(ds_positions *positions, size_t n_rows)
{
    ds_positions *t = positions;
    size_t room = TABLE_BYTES / t->entry_bytes;
    room = room < LEAST_ENTRIES ? LEAST_ENTRIES : room > MOST_ENTRIES ? MOST_ENTRIES : room;
    room = room < 4 * n_rows ? 4 * n_rows : room;
    if (t->room < room)
        return resize(t, room);
    if (t->room - t->n < 2 * n_rows) {
        memset(t->slots, 0, t->n_slots * sizeof *t->slots);
        t->n = 0;
    }
    return DS_OK;
}

ds_status ds_positions_check(const ds_plan *plan, const ds_place *at)
{
    for (size_t k = 0; k < plan->n_checked; k++) {
        const ds_checked *checked = &plan->checked[k];
        const ds_node *node = &plan->graph->nodes[checked->node];
        const bool ended = at->ended || ds_graph_once(plan->graph, node);
        if (!ended && !checked->always)
            continue;
        ds_pair in[DS_MAX_INPUTS];
        for (int i = 0; i < node->op->n_inputs; i++)
            in[i] = ds_pair_at(plan, at, (size_t)node->inputs[i]);
        const ds_status status = ds_op_check(node->op, in, ended);
        if (status != DS_OK)
            return node->path[0] == 0
                       ? status
                       : ds_fail(status, "%s: %s", DS_SHOWN(node->path + strspn(node->path, " ")),
                                 ds_last_error());
    }
    return DS_OK;
}

/* Periods that are taken off to come to a position in the table; 0 where it is too far off for that. */
static int64_t periods_beyond(const ds_plan *p, const int64_t *frames)
{
    int64_t least = p->most_periods + 1;
    for (size_t i = 0; i < p->graph->n_inputs; i++) {
        const int64_t beyond = frames[i] - p->start[i];
        if (p->period[i] == 0)
            continue;
        const int64_t periods = beyond <= 0         ? 0
                                : p->period[i] == 1 ? beyond
                                                    : beyond / p->period[i];
        least = periods < least ? periods : least;
    }
    return least > p->most_periods ? 0 : least;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static bool is_at(const entry *e, uint64_t hash, const int64_t *frames, size_t n_inputs, bool ended)
{
    return e->hash == hash && e->ended == ended &&
           memcmp(e->frames, frames, n_inputs * sizeof *frames) == 0;
}

ds_status ds_positions_find(ds_positions *positions, const int64_t *frames, bool ended,
                            ds_place *place)
{
    const ds_plan *p = positions->plan;
    const size_t n_inputs = p->graph->n_inputs;
    const int64_t periods = periods_beyond(p, frames);
    int64_t near[DS_MAX_INPUTS];
    uint64_t hash = ended;
    for (size_t i = 0; i < n_inputs; i++) {
        near[i] = frames[i] - periods * p->period[i];
        hash = mix(hash, (uint64_t)near[i]);
    }
    size_t slot = hash & (positions->n_slots - 1);
    for (; positions->slots[slot]; slot = (slot + 1) & (positions->n_slots - 1)) {
        const size_t k = (size_t)positions->slots[slot] - 1;
        char *at = positions->entries + k * positions->entry_bytes;
        if (is_at((const entry *)(const void *)at, hash, near, n_inputs, ended)) {
            const void *edges = at + positions->head_bytes;
            *place = (ds_place){edges, periods, ended};
            return DS_OK;
        }
    }
    DS_ASSERT(positions->n < positions->room);
    char *at = positions->entries + positions->n * positions->entry_bytes;
    entry *made = (entry *)(void *)at;
    ds_edge_counts *edges = (ds_edge_counts *)(void *)(at + positions->head_bytes);
    DS_TRY(evaluate(p, near, ended, positions->pairs, positions->first, edges));
    made->hash = hash;
    made->ended = ended;
    memcpy(made->frames, near, n_inputs * sizeof *near);
    positions->slots[slot] = (int32_t)++positions->n;
    *place = (ds_place){edges, periods, ended};
    return DS_OK;
}
