/* What is known, kept and waited for in a graph, by plain loops over the frames of its inputs: the reference
 * for ir/analyse.c, which works it out from functions that repeat. */
#pragma once
#include "graph_cases.h"

enum { MOST_FRAMES = 220 };

typedef struct facts {
    int64_t kept[MAX_GRAPH_EDGES];    /* most frames kept at all */
    int64_t early[MAX_GRAPH_EDGES];   /* in one period after the transient */
    int64_t late[MAX_GRAPH_EDGES];    /* in the next */
    int64_t known[MAX_GRAPH_EDGES];   /* as all inputs advance together: so far, */
    int64_t burst[MAX_GRAPH_EDGES];   /* and the most more that n may bring */
    int64_t delay[MAX_GRAPH_OUTPUTS]; /* DS_NEVER: no frame was known */
    int64_t known_at[MAX_GRAPH_OUTPUTS][2 * MOST_FRAMES]; /* least n with known > m; 0: never */
} facts;

/* The counts of all edges of a stream that goes on; before its first frame nothing is known. */
static void count_edges(const ds_graph *g, const int64_t *frames, ds_pair *pairs)
{
    bool begun = false;
    for (size_t i = 0; i < g->n_inputs; i++) {
        pairs[g->inputs[i]] = (ds_pair){frames[i], frames[i]};
        begun |= frames[i] > 0;
    }
    ds_graph_counts(g, false, pairs);
    for (size_t e = 0; e < g->n_edges && !begun; e++)
        pairs[e].known = 0;
}

static void look(const ds_graph *g, const int64_t *frames, facts *f, int64_t *most)
{
    ds_pair pairs[MAX_GRAPH_EDGES] = {{0, 0}};
    int64_t first[MAX_GRAPH_EDGES];
    count_edges(g, frames, pairs);
    ds_graph_needs(g, pairs, first);
    for (size_t e = 0; e < g->n_edges; e++) {
        const int64_t kept = first[e] < pairs[e].known ? pairs[e].known - first[e] : 0;
        f->kept[e] = kept > f->kept[e] ? kept : f->kept[e];
        if (most != NULL)
            most[e] = kept > most[e] ? kept : most[e];
    }
}

/* When each output frame becomes known, as all inputs advance together. */
static void follow_outputs(const ds_graph *g, const ds_clock *clock, int64_t n, facts *f)
{
    ds_pair pairs[MAX_GRAPH_EDGES] = {{0, 0}};
    const ds_rate base = g->edges[g->inputs[0]].signature.rate;
    int64_t frames[DS_MAX_INPUTS];
    for (size_t i = 0; i < g->n_inputs; i++)
        frames[i] = n * clock->tick[0] / clock->tick[i];
    count_edges(g, frames, pairs);
    for (size_t e = 0; e < g->n_edges; e++) {
        const int64_t more = pairs[e].total - f->known[e];
        f->burst[e] = more > f->burst[e] ? more : f->burst[e];
        f->known[e] = pairs[e].known;
    }
    for (size_t o = 0; o < g->n_outputs; o++) {
        const int e = g->outputs[o];
        ds_rate per = base; /* input frames per output frame */
        const ds_rate rate = g->edges[e].signature.rate;
        if (rate.num == 0 || !ds_rate_scale(&per, rate.den, rate.num))
            continue;
        for (int64_t m = 0; m < pairs[e].known && m < 2 * MOST_FRAMES; m++) {
            if (f->known_at[o][m] == 0) {
                f->known_at[o][m] = n;
                const int64_t delay = n - 1 - m * per.num / per.den;
                f->delay[o] = f->delay[o] == DS_NEVER || delay > f->delay[o] ? delay : f->delay[o];
            }
        }
    }
}

static void loop_inputs(const ds_graph *g, const ds_clock *clock, int64_t *frames, size_t input,
                        facts *f, int64_t *most)
{
    if (input == g->n_inputs) {
        if (ds_clock_together(clock, frames))
            look(g, frames, f, most);
        return;
    }
    const int64_t near = frames[0] * clock->tick[0] / clock->tick[input];
    const int64_t spread = clock->limit / clock->tick[input] + 2;
    for (int64_t n = near - spread < 0 ? 0 : near - spread; n <= near + spread; n++) {
        frames[input] = n;
        loop_inputs(g, clock, frames, input + 1, f, most);
    }
}

/* Up to n = end, which is to lie well behind the transient and some periods. */
static facts *loop(const ds_graph *g, const ds_clock *clock, const ds_analysis *a, int64_t end)
{
    facts *f = calloc(1, sizeof *f);
    CHECK(f != NULL);
    for (size_t o = 0; o < MAX_GRAPH_OUTPUTS; o++)
        f->delay[o] = DS_NEVER;
    for (int64_t n = 0; n <= end; n++) {
        const int64_t steady = a->transient;
        int64_t frames[DS_MAX_INPUTS] = {n};
        int64_t *most = n > steady && n <= steady + a->period                   ? f->early
                        : n > steady + a->period && n <= steady + 2 * a->period ? f->late
                                                                                : NULL;
        loop_inputs(g, clock, frames, 1, f, most);
        follow_outputs(g, clock, n, f);
    }
    return f;
}

/* ---------------------------------------------------------------- that all repeats */

/* Positions of all edges: known, total, first frame needed; -1 where nothing is. */
static void positions_at(const ds_graph *g, const int64_t *frames, int64_t at[][3])
{
    ds_pair pairs[MAX_GRAPH_EDGES] = {{0, 0}};
    int64_t first[MAX_GRAPH_EDGES];
    count_edges(g, frames, pairs);
    ds_graph_needs(g, pairs, first);
    for (size_t e = 0; e < g->n_edges; e++) {
        at[e][0] = pairs[e].known;
        at[e][1] = pairs[e].total;
        at[e][2] = first[e] == DS_NEVER ? -1 : first[e];
    }
}

/* All positions gain k times what they gain in the first period, after k periods. */
static bool gains(const ds_graph *g, const ds_clock *clock, const int64_t *frames, int64_t period,
                  int64_t k, int64_t gain[][3], bool fill)
{
    int64_t before[MAX_GRAPH_EDGES][3], after[MAX_GRAPH_EDGES][3], moved[DS_MAX_INPUTS];
    for (size_t i = 0; i < g->n_inputs; i++)
        moved[i] = frames[i] + k * (period * clock->tick[0] / clock->tick[i]);
    positions_at(g, frames, before);
    positions_at(g, moved, after);
    bool same = true;
    for (size_t e = 0; e < g->n_edges; e++) {
        for (int what = 0; what < 3; what++) {
            if (fill)
                gain[e][what] = after[e][what] - before[e][what];
            same &= after[e][what] - before[e][what] == k * gain[e][what];
        }
    }
    return same;
}

/* From the transient on, for every way in which the inputs may be apart. */
static bool repeat_inputs(const ds_graph *g, const ds_clock *clock, const ds_analysis *a,
                          int64_t *frames, size_t input, int64_t gain[][3], bool *fill)
{
    if (input == g->n_inputs) {
        if (!ds_clock_together(clock, frames))
            return true;
        const int64_t far = (random_below(1 << 20) << random_below(21)) / a->period;
        const bool same = gains(g, clock, frames, a->period, 1, gain, *fill);
        *fill = false;
        return same && gains(g, clock, frames, a->period, far, gain, false);
    }
    const int64_t near = frames[0] * clock->tick[0] / clock->tick[input];
    const int64_t spread = clock->limit / clock->tick[input] + 2;
    for (int64_t n = near - spread < 0 ? 0 : near - spread; n <= near + spread; n++) {
        frames[input] = n;
        if (!repeat_inputs(g, clock, a, frames, input + 1, gain, fill))
            return false;
    }
    return true;
}

static bool repeats(const ds_graph *g, const ds_clock *clock, const ds_analysis *a)
{
    int64_t gain[MAX_GRAPH_EDGES][3];
    bool fill = true;
    for (int64_t n = a->transient; n <= a->transient + 2 * a->period + 9; n++) {
        int64_t frames[DS_MAX_INPUTS] = {n};
        if (!repeat_inputs(g, clock, a, frames, 1, gain, &fill))
            return false;
    }
    return true;
}
