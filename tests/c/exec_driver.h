/*
 * Streams of a planned graph, fed in random pieces, each beside what the whole stream should give.
 *
 *     runner r = make_runner(&c, kernels, 0, n_threads, 0);   // takes the graph
 *     fed s = open_fed(&r, 100);                              // random frames, and the whole's outputs
 *     feed_all(&r, streams, n);                               // to their ends, then compared to the bit
 *     close_runner(&r);
 */
#pragma once

#include "exec/weights.h"
#include "graph_cases.h"

enum { MAX_FED = 8 };

typedef struct runner {
    ds_plan *plan;
    ds_session *session;
    ds_step *batch;
    ds_pool *pool;
    int64_t skew;
} runner;

typedef struct fed {
    float *x[MAX_GRAPH_INPUTS]; /* all frames of each input */
    int64_t at[MAX_GRAPH_INPUTS], length;
    whole_stream want;
    ds_slot *slot;
    char *y[MAX_GRAPH_OUTPUTS];
    int64_t n[MAX_GRAPH_OUTPUTS]; /* frames so far */
    bool ended, refused;
} fed;

static inline ds_plan *plan_within(graph_case *c, const ds_kernels *kernels, int64_t skew,
                                   size_t max_bytes)
{
    ds_plan *plan = NULL;
    CHECK(c->status == DS_OK);
    CHECK_OK(ds_plan_create(&plan, c->graph, kernels, skew, max_bytes));
    return plan;
}

static inline ds_plan *plan_case(graph_case *c, const ds_kernels *kernels, int64_t skew)
{
    return plan_within(c, kernels, skew, 0);
}

static inline runner make_runner(graph_case *c, const ds_kernels *kernels, int64_t skew,
                                 size_t n_threads, size_t max_streams)
{
    runner r = {.plan = plan_case(c, kernels, skew), .skew = skew};
    CHECK(ds_session_create(&r.session, r.plan, max_streams) == DS_OK);
    if (n_threads > 1)
        CHECK(ds_pool_create(&r.pool, &hooks, n_threads) == DS_OK);
    CHECK(ds_step_create(&r.batch, r.plan, r.pool) == DS_OK);
    return r;
}

static inline void close_runner(runner *r)
{
    ds_step_destroy(r->batch);
    ds_session_destroy(r->session);
    ds_pool_destroy(r->pool);
    ds_plan_destroy(r->plan);
}

/* A graph of the plan's whose weights are all there. */
typedef struct restored {
    ds_graph *graph;
    ds_arena arena; /* what was unpacked, and lists of weights */
} restored;

static inline restored restore(const ds_plan *plan, const ds_graph *graph)
{
    restored r;
    ds_arena_init(&r.arena, &plan->allocator);
    CHECK(ds_graph_share(&r.graph, graph) == DS_OK);
    for (size_t j = 0; j < graph->n_nodes; j++) {
        ds_node *node = &r.graph->nodes[j];
        const size_t n = (size_t)node->op->n_weights;
        ds_weight *own;
        CHECK(ds_arena_push_array(&r.arena, (void **)&own, n, sizeof *own) == DS_OK);
        for (size_t i = 0; i < n; i++) {
            own[i] = node->weights[i];
            if (!own[i].replaced)
                continue;
            CHECK(ds_arena_push(&r.arena, &own[i].data, own[i].n_bytes) == DS_OK);
            ds_weights_unpack(plan, own[i].replaced, own[i].data);
        }
        node->weights = own;
    }
    return r;
}

static inline void free_restored(restored *r)
{
    ds_graph_destroy(r->graph);
    ds_arena_free(&r->arena);
}

/* A stream that is not opened yet. */
static inline fed make_fed(const runner *r, int64_t length)
{
    const ds_graph *g = r->plan->model;
    fed s = {.length = length};
    for (size_t i = 0; i < g->n_inputs; i++) {
        const size_t n =
            (size_t)(length * ds_signature_elements(&g->edges[g->inputs[i]].signature));
        s.x[i] = fresh_memory(n * sizeof(float));
        fill_random(s.x[i], n);
    }
    restored whole = restore(r->plan, g);
    s.want =
        compute_whole(whole.graph, (const float *const *)s.x, length, ds_kernels_for(DS_ISA_REF));
    free_restored(&whole);
    for (size_t o = 0; o < g->n_outputs; o++) {
        const int e = g->outputs[o];
        s.y[o] = fresh_memory((size_t)s.want.counts[e].known *
                              ds_signature_bytes(&g->edges[e].signature));
    }
    return s;
}

static inline fed open_fed(const runner *r, int64_t length)
{
    fed s = make_fed(r, length);
    CHECK(ds_session_open(r->session, &s.slot, 0) == DS_OK);
    return s;
}

static inline void free_fed(const runner *r, fed *s)
{
    if (s->slot != NULL)
        ds_session_close(r->session, s->slot);
    for (size_t i = 0; i < MAX_GRAPH_INPUTS; i++)
        free(s->x[i]);
    for (size_t o = 0; o < MAX_GRAPH_OUTPUTS; o++)
        free(s->y[o]);
    free_whole(&s->want);
}

/* Writes the new frames of all inputs; what follows them stays rubbish. */
static inline void write_inputs(const runner *r, fed *const *rows, const int64_t *n_frames,
                                size_t n_rows)
{
    const ds_graph *g = r->plan->graph;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const size_t bytes = ds_signature_bytes(&g->edges[g->inputs[i]].signature);
        for (size_t k = 0; k < n_rows; k++) {
            const size_t n = (size_t)n_frames[i * n_rows + k];
            void *to = ds_step_room(r->batch, i, k);
            if (n > 0)
                memcpy(to, (const char *)rows[k]->x[i] + (size_t)rows[k]->at[i] * bytes, n * bytes);
        }
    }
}

/* Takes the new frames of all outputs, and looks at their positions. */
static inline void read_outputs(const runner *r, fed *const *rows, size_t n_rows)
{
    const ds_graph *g = r->plan->graph;
    for (size_t o = 0; o < g->n_outputs; o++) {
        const int e = g->outputs[o];
        const size_t bytes = ds_signature_bytes(&g->edges[e].signature);
        for (size_t k = 0; k < n_rows; k++) {
            fed *s = rows[k];
            int64_t start;
            const int64_t n = ds_step_frames(r->batch, o, k, &start);
            CHECK(start == s->n[o] && n >= 0 && start + n <= s->want.counts[e].known);
            if (n > 0) {
                memcpy(s->y[o] + (size_t)start * bytes, ds_step_values(r->batch, o, k),
                       (size_t)n * bytes);
            }
            s->n[o] += n;
        }
    }
}

/* One call. n_frames: [n_inputs][n_rows]. On failure nothing has moved. */
static inline ds_status call(runner *r, fed *const *rows, const int64_t *n_frames,
                             const bool *ended, bool *bad, size_t n_rows)
{
    ds_slot *slots[MAX_FED];
    CHECK(n_rows <= MAX_FED);
    for (size_t k = 0; k < n_rows; k++)
        slots[k] = rows[k]->slot;
    DS_TRY(begin_rows(r->batch, slots, n_frames, ended, bad, n_rows));
    write_inputs(r, rows, n_frames, n_rows);
    ds_step_run(r->batch);
    read_outputs(r, rows, n_rows);
    for (size_t k = 0; k < n_rows; k++) {
        for (size_t i = 0; i < r->plan->graph->n_inputs; i++)
            rows[k]->at[i] += n_frames[i * n_rows + k];
        rows[k]->ended = ended[k];
    }
    return DS_OK;
}

/* Numbers of new frames for one stream: inputs stay within the skew; returns whether all came. */
static inline bool choose_frames(const runner *r, const fed *s, int64_t *n_frames, size_t step)
{
    const size_t n_inputs = r->plan->graph->n_inputs;
    int64_t least = s->length;
    for (size_t i = 0; i < n_inputs; i++)
        least = s->at[i] < least ? s->at[i] : least;
    int64_t to = least + (random_below(3) == 0 ? random_below(2) : random_below(12));
    to = to < s->length ? to : s->length;
    bool all = true;
    for (size_t i = 0; i < n_inputs; i++) {
        int64_t own = to + random_in(0, r->skew);
        own = own < s->at[i] ? s->at[i] : own > s->length ? s->length : own;
        n_frames[i * step] = own - s->at[i];
        all &= own == s->length;
    }
    return all;
}

static inline void compare_fed(const runner *r, const fed *s)
{
    const ds_graph *g = r->plan->model;
    CHECK(s->ended && s->want.status == DS_OK);
    for (size_t o = 0; o < g->n_outputs; o++) {
        const int e = g->outputs[o];
        const size_t n_bytes =
            (size_t)s->want.counts[e].known * ds_signature_bytes(&g->edges[e].signature);
        if (s->n[o] != s->want.counts[e].known || memcmp(s->y[o], s->want.value[e], n_bytes) != 0) {
            fprintf(stderr, "output %zu: %d frames, expected %d\n", o, (int)s->n[o],
                    (int)s->want.counts[e].known);
            print_graph(g);
        }
        CHECK(s->n[o] == s->want.counts[e].known);
        CHECK(memcmp(s->y[o], s->want.value[e], n_bytes) == 0);
    }
}

/* A block and the tails' bytes of one stream, to see whether a call left them alone. */
static inline size_t copy_state(const runner *r, const ds_slot *slot, char **copy)
{
    size_t n_bytes = 0;
    CHECK(ds_slot_snapshot(r->plan, slot, NULL, NULL, &n_bytes) == DS_OK);
    *copy = fresh_memory(n_bytes);
    CHECK(ds_slot_snapshot(r->plan, slot, NULL, *copy, &n_bytes) == DS_OK);
    return n_bytes;
}

static inline void check_state(const runner *r, const ds_slot *slot, const char *was, size_t n_was)
{
    char *now;
    const size_t n_now = copy_state(r, slot, &now);
    CHECK(n_now == n_was && memcmp(now, was, n_was) == 0);
    free(now);
}

/* Feeds all streams to their ends, some in each call, and compares. Those whose lengths the graph
 * refuses are refused at their end only, and stay as they were. */
static inline void feed_all(runner *r, fed *streams, size_t n_streams)
{
    const size_t n_inputs = r->plan->graph->n_inputs;
    for (;;) {
        size_t n_left = 0;
        for (size_t k = 0; k < n_streams; k++)
            n_left += streams[k].ended || streams[k].refused ? 0 : 1;
        if (n_left == 0)
            break;
        fed *rows[MAX_FED];
        int64_t chosen[MAX_GRAPH_INPUTS * MAX_FED], n_frames[MAX_GRAPH_INPUTS * MAX_FED];
        bool ended[MAX_FED], bad[MAX_FED] = {false};
        size_t n_rows = 0, n_refused = 0;
        for (size_t k = 0; k < n_streams; k++) {
            fed *s = &streams[k];
            if (s->ended || s->refused || random_below(4) == 0)
                continue;
            const bool all = choose_frames(r, s, &chosen[n_rows], MAX_FED);
            ended[n_rows] = all && random_below(2) == 0;
            rows[n_rows++] = s;
        }
        for (size_t i = 0; i < n_inputs; i++)
            memcpy(&n_frames[i * n_rows], &chosen[i * MAX_FED], n_rows * sizeof *n_frames);
        char *state[MAX_FED];
        size_t n_state[MAX_FED];
        for (size_t k = 0; k < n_rows; k++)
            n_state[k] = copy_state(r, rows[k]->slot, &state[k]);
        const ds_status status = call(r, rows, n_frames, ended, bad, n_rows);
        for (size_t k = 0; k < n_rows; k++) {
            if (status == DS_OK) {
                CHECK(!bad[k] && (!ended[k] || rows[k]->want.status == DS_OK));
            } else {
                CHECK(status == DS_SHAPE && bad[k] == (ended[k] && rows[k]->want.status != DS_OK));
                check_state(r, rows[k]->slot, state[k], n_state[k]);
                rows[k]->refused = bad[k];
                n_refused += bad[k];
            }
            free(state[k]);
        }
        CHECK(status == DS_OK || n_refused > 0);
    }
    for (size_t k = 0; k < n_streams; k++)
        if (!streams[k].refused)
            compare_fed(r, &streams[k]);
}
