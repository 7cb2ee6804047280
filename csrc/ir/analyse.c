/* ir/analyse.c: what the integers of a graph amount to.
 *
 * Known and total of every edge are functions of the frames of input 0 that repeat sooner or later
 * (ir/stairs.h). They are made edge by edge, by each operator's own programs: an operator that leaves counts as
 * they are hands its input's functions on, so a graph is analysed in time by its number of nodes, and a stretch
 * in which nothing changes costs nothing, however long. What an edge keeps is the difference of two such
 * functions, and its most a maximum over their steps: exact, for all n.
 *
 * Where inputs may be apart, one walk is made for each way in which they can be: input i at floor(n * its
 * frames per frame of input 0) + its offset. Positions that the clock does not admit are masked. */
#include "ir/analyse.h"

#include <string.h>

#include "ir/integers.h"

enum { MAX_COMBINATIONS = 1 << 17 };
/* Looks at a step: some tenths of a second, and for each node as much as thousands of steps take. */
static const int64_t MAX_WORK = (int64_t)1 << 23, MAX_NODE_WORK = (int64_t)1 << 15;

typedef struct walk {
    const ds_graph *graph;
    const ds_clock *clock;
    ds_analysis *a;
    ds_arena arrays, functions;       /* what follows here; of this walk's edges */
    ds_stairs_maker maker;            /* of a node */
    const ds_stairs **known, **total; /* [n_edges] */
    const ds_stairs **reach;          /* [n_edges] scratch of the field's backward pass */
    int64_t *growth_period; /* [n_edges]: frames of input 0 that its growth takes, so far */
    bool *dead;             /* [n_nodes]: no output follows from it, no stream is refused by it */
    int64_t offsets[DS_MAX_INPUTS];
    const ds_stairs *begun; /* positive once the stream has: nothing is known before */
    const ds_stairs *mask;  /* 1 where the clock admits it, else 0; NULL: everywhere */
    bool diagonal;          /* all inputs as far as whole frames of input 0's time allow */
} walk;

/* ---------------------------------------------------------------- functions */
/* The first frames of a node's inputs that output frames from m on read; NULL where none is. */
static ds_status needs(walk *w, const ds_node *node, const ds_stairs *m, const ds_stairs **first)
{
    const ds_program *p = &node->op->need;
    DS_TRY(ds_stairs_program(&w->maker, p, NULL, NULL, m, first));
    for (int i = 0; i < p->n_roots; i++)
        if (first[i]->n_steps == 1 && first[i]->steps[0].value >= DS_NEVER)
            first[i] = NULL;
        else if (first[i] != m)
            DS_TRY(ds_stairs_apply_k(&w->maker, &first[i], DS_EXPR_MAX, first[i], 0));
    return DS_OK;
}

/* Period and transient cover the function. */
static ds_status include(walk *w, const ds_stairs *f)
{
    const ds_flight *last = ds_stairs_last(f);
    if (last->start > w->a->transient)
        w->a->transient = last->start;
    return ds_extend_period(&w->a->period, last->period);
}

/* f - g, where the clock admits it. */
static ds_status summarise(walk *w, const ds_stairs *f, const ds_stairs *g, ds_stairs_summary *sum,
                           ds_flight *last)
{
    DS_TRY(ds_stairs_apply(&w->maker, &f, DS_EXPR_SUB, f, g, NULL));
    DS_TRY(ds_stairs_mask(&w->maker, &f, f, w->mask));
    *last = *ds_stairs_last(f);
    return ds_stairs_summarise(&w->maker, f, sum);
}

/* The most that f is above g by, where the clock admits it; by how much that grows in the long run. */
static ds_status measure_apart(walk *w, const ds_stairs *f, const ds_stairs *g, int64_t *most,
                               int64_t *gain, int64_t *period)
{
    if (!w->mask && ds_stairs_ascends(f) && ds_stairs_ascends(g))
        return ds_stairs_apart(&w->maker, f, g, most, gain, period);
    ds_stairs_summary sum;
    ds_flight last;
    DS_TRY(summarise(w, f, g, &sum, &last));
    *most = sum.most;
    *gain = last.gain;
    *period = last.period;
    return DS_OK;
}

/* The most frames that one more frame of input 0 brings to edge e, if the stream ends with it. */
static ds_status measure_burst(walk *w, int e)
{
    const ds_stairs *then;
    int64_t most, gain, period;
    DS_TRY(ds_stairs_next(&w->maker, &then, w->total[e]));
    DS_TRY(measure_apart(w, then, w->known[e], &most, &gain, &period));
    const int64_t empty = ds_stairs_at(w->total[e], 0);
    w->a->edges[e].burst = empty > most ? empty : most;
    return DS_OK;
}

/* The first n that the clock admits at which f and g differ; -1: none. Most that do differ soon. */
static ds_status find_difference(walk *w, const ds_stairs *f, const ds_stairs *g, int64_t *n)
{
    enum { SOON = 64 };
    ds_stairs_summary sum = {.nonzero = -1};
    ds_flight last;
    for (*n = 0; *n < SOON && f != g; ++*n)
        if (ds_stairs_at(f, *n) != ds_stairs_at(g, *n) &&
            (!w->mask || ds_stairs_at(w->mask, *n) > 0))
            return DS_OK;
    if (f != g)
        DS_TRY(summarise(w, f, g, &sum, &last));
    *n = sum.nonzero;
    return DS_OK;
}

/* The same for the counts of two edges: where what is known differs, or else the number of frames in all. */
static ds_status find_other_counts(walk *w, int a, int b, int64_t *n)
{
    const ds_stairs *all_of_a = w->total[a], *all_of_b = w->total[b];
    DS_TRY(find_difference(w, w->known[a], w->known[b], n));
    if (*n >= 0 || all_of_a == all_of_b)
        return DS_OK;
    DS_TRY(ds_stairs_apply_k(&w->maker, &all_of_a, DS_EXPR_MAX, all_of_a, 0));
    DS_TRY(ds_stairs_apply_k(&w->maker, &all_of_b, DS_EXPR_MAX, all_of_b, 0));
    return find_difference(w, all_of_a, all_of_b, n);
}

/* Starts a walk: the inputs' functions and the mask. */
static ds_status start(walk *w)
{
    const ds_stairs *frames[DS_MAX_INPUTS];
    ds_arena_reset(&w->functions);
    ds_arena_reset(&w->maker.arena);
    DS_TRY(ds_clock_functions(w->clock, &w->maker, w->offsets, frames, &w->mask));
    if (w->mask)
        DS_TRY(ds_stairs_keep(&w->functions, &w->mask));
    w->begun = frames[0];
    for (size_t i = 1; i < w->graph->n_inputs; i++)
        DS_TRY(ds_stairs_apply(&w->maker, &w->begun, DS_EXPR_MAX, w->begun, frames[i], NULL));
    DS_TRY(ds_stairs_keep(&w->functions, &w->begun));
    for (size_t i = 0; i < w->graph->n_inputs; i++) {
        const int e = w->graph->inputs[i];
        DS_TRY(ds_stairs_keep(&w->functions, &frames[i]));
        DS_TRY(include(w, frames[i]));
        w->known[e] = w->total[e] = frames[i];
        if (w->diagonal)
            DS_TRY(measure_burst(w, e));
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- nodes */
/* What is combined frame by frame must have the same frames: with its syncs a graph ensures that, and a
 * graph that came from elsewhere may lack them. */
static ds_status check_lockstep(walk *w, const ds_node *node)
{
    const ds_op *op = node->op;
    int n = op->def->flags & DS_OP_LOCKSTEP ? ds_op_n_values(op) : 1;
    for (int i = 1; i < n; i++) {
        int64_t at;
        DS_TRY(find_other_counts(w, node->inputs[i], node->inputs[0], &at));
        DS_CHECK(at < 0, DS_MISMATCH,
                 "%s: its inputs differ at %lld frames of the first: expected a sync between them",
                 op->def->name, (long long)at);
    }
    return DS_OK;
}

/* `before` at n must not be above `then` at n + 1, which counts as 0 below that. */
static ds_status check_grows(walk *w, const ds_op *op, const ds_stairs *before,
                             const ds_stairs *then)
{
    ds_stairs_summary sum;
    int64_t most, gain, period;
    DS_TRY(ds_stairs_apply_k(&w->maker, &then, DS_EXPR_MAX, then, 0));
    DS_TRY(ds_stairs_next(&w->maker, &then, then));
    DS_TRY(measure_apart(w, before, then, &most, &gain, &period));
    if (most <= 0 && gain <= 0)
        return DS_OK;
    DS_TRY(ds_stairs_apply(&w->maker, &then, DS_EXPR_SUB, before, then, NULL));
    DS_TRY(ds_stairs_summarise(&w->maker, then, &sum));
    return ds_fail(DS_INTERNAL, "%s: its counts break the laws at %lld input frames", op->def->name,
                   (long long)sum.positive + 1);
}

/* Notes an output's counts, what is known by the driver's rules (ds_op_counts); an input's function where it is
 * the same. */
static ds_status take_counts(walk *w, const ds_node *node, int o, const ds_stairs *known,
                             const ds_stairs *total)
{
    ds_stairs_maker *m = &w->maker;
    const int in = node->inputs[0];
    DS_TRY(ds_stairs_apply(m, &known, DS_EXPR_MIN, known, total, NULL));
    DS_TRY(ds_stairs_apply_k(m, &known, DS_EXPR_MAX, known, 0));
    DS_TRY(ds_stairs_mask(m, &known, known, w->begun));
    w->known[o] = ds_stairs_same(known, w->known[in]) ? w->known[in] : known;
    w->total[o] = ds_stairs_same(total, w->total[in]) ? w->total[in] : total;
    if (w->known[o] == known)
        DS_TRY(ds_stairs_keep(&w->functions, &w->known[o]));
    if (w->total[o] == total)
        DS_TRY(ds_stairs_keep(&w->functions, &w->total[o]));
    if (!w->diagonal)
        return DS_OK;
    DS_TRY(check_grows(w, node->op, w->known[o], w->known[o]));
    DS_TRY(check_grows(w, node->op, w->known[o], w->total[o]));
    return measure_burst(w, o);
}

static ds_status count(walk *w, const ds_node *node)
{
    const ds_op *op = node->op;
    const int e = node->first_output, in = node->inputs[0];
    bool alike = op->same_counts && op->n_outputs == 1 && !op->needs_frames;
    for (int i = 1; i < op->n_inputs; i++)
        alike = alike && w->total[node->inputs[i]] == w->total[in];
    if (alike) { /* most operators: no program needed */
        w->known[e] = w->known[in];
        w->total[e] = w->total[in];
        w->a->edges[e].burst = w->a->edges[in].burst;
        return DS_OK;
    }
    const ds_stairs *roots[DS_PROGRAM_ROOTS], *known[DS_MAX_INPUTS], *total[DS_MAX_INPUTS];
    for (int i = 0; i < op->n_inputs; i++) {
        known[i] = w->known[node->inputs[i]];
        total[i] = w->total[node->inputs[i]];
    }
    DS_TRY(ds_stairs_program(&w->maker, &op->counts, known, total, NULL, roots));
    for (int o = 0; o < op->n_outputs; o++) {
        DS_TRY(ds_stairs_total(&w->maker, op, total, &roots[2 * o + 1]));
        DS_TRY(take_counts(w, node, e + o, roots[2 * o], roots[2 * o + 1]));
    }
    return DS_OK;
}

/* By how much a function grows where it does, in the long run. */
static int64_t rise_of(const ds_stairs *f)
{
    const ds_flight *last = ds_stairs_last(f);
    const ds_stair *steps = &f->steps[last->first];
    int64_t rises = last->n > 0 && steps[0].value + last->gain > steps[last->n - 1].value;
    for (size_t i = 1; i < last->n; i++)
        rises += steps[i].value > steps[i - 1].value;
    return rises > 0 ? last->gain / rises : 0;
}

/* Edge e keeps what is known from `need` on. */
static ds_status measure_kept(walk *w, int e, const ds_stairs *need)
{
    ds_edge_facts *facts = &w->a->edges[e];
    int64_t most, gain, period;
    DS_TRY(include(w, need));
    if (need == w->known[e])
        return DS_OK;
    DS_TRY(measure_apart(w, w->known[e], need, &most, &gain, &period));
    facts->capacity = most > facts->capacity ? most : facts->capacity;
    facts->block = rise_of(w->known[e]);
    if (gain <= 0)
        return DS_OK;
    facts->unbounded = true;
    if ((ds_wide)gain * w->growth_period[e] > (ds_wide)facts->growth * period) {
        facts->growth = gain;
        w->growth_period[e] = period;
    }
    return DS_OK;
}

/* A node whose inputs are all given, with the stream's start: its outputs are there then, whole. However many frames
 * they are, they count as one here, and positions.c counts them. */
static void visit_given(walk *w, const ds_node *node)
{
    for (int o = node->first_output; o < node->first_output + node->op->n_outputs; o++) {
        w->known[o] = w->total[o] = w->known[node->inputs[0]];
        w->a->edges[o].burst = 1;
    }
}

static ds_status visit(walk *w, size_t j)
{
    const ds_node *node = &w->graph->nodes[j];
    const int out = node->first_output, in = node->inputs[0];
    const ds_stairs *first[DS_PROGRAM_ROOTS];
    if (ds_graph_once(w->graph, node)) {
        w->a->identity[j] &= node->op->same_counts;
        visit_given(w, node);
        return DS_OK;
    }
    ds_arena_reset(&w->maker.arena);
    DS_TRY(ds_stairs_spend(&w->maker, 1));
    DS_TRY(check_lockstep(w, node));
    DS_TRY(count(w, node));
    for (int o = out; o < out + node->op->n_outputs && !w->dead[j]; o++) {
        DS_TRY(include(w, w->known[o]));
        DS_TRY(include(w, w->total[o]));
    }
    if (w->a->identity[j]) {
        int64_t at;
        DS_TRY(find_other_counts(w, out, in, &at));
        w->a->identity[j] = at < 0;
    }
    if (node->silent)
        return DS_OK;
    DS_TRY(needs(w, node, w->known[out], first));
    for (int i = 0; i < node->op->need.n_roots; i++)
        if (first[i])
            DS_TRY(measure_kept(w, node->inputs[i], first[i]));
    for (int i = 1; i < node->op->n_inputs && node->op->def->flags & DS_OP_MEMORY; i++) {
        DS_CHECK(w->graph->edges[node->inputs[i]].given, DS_MISMATCH,
                 "%s: its input %d is not given once, with a stream's start", node->op->def->name,
                 i);
        w->a->edges[node->inputs[i]].unbounded = true;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- delay and field */
/* Frames of input 0 per frame of edge e; false where it has no rate. */
static bool frames_per(const walk *w, int e, ds_rate *per)
{
    const ds_rate rate = w->graph->edges[e].signature.rate;
    *per = w->graph->edges[w->graph->inputs[0]].signature.rate;
    return rate.num != 0 && ds_rate_scale(per, rate.den, rate.num);
}

/* The longest that a frame of output o waits for one of those from n = from to before `to`. */
static ds_status wait_between(walk *w, size_t o, ds_rate per, int64_t from, int64_t to)
{
    const ds_stairs *known = w->known[w->graph->outputs[o]];
    for (int64_t n = from; n < to; n = ds_stairs_after(known, n)) {
        DS_TRY(ds_stairs_spend(&w->maker, 1));
        const int64_t m = n > 0 ? ds_stairs_at(known, n - 1) : 0;
        if (ds_stairs_at(known, n) <= m)
            continue;
        /* The earliest of the new frames waited longest. */
        const int64_t delay = n - 1 - (int64_t)((ds_wide)m * per.num / per.den);
        if (w->a->delay[o] == DS_NEVER || delay > w->a->delay[o])
            w->a->delay[o] = delay;
    }
    return DS_OK;
}

/* In a stretch, the wait changes from period to period by a constant, where frames gained are whole ones of
 * input 0: so the first and the last period hold the longest. */
static ds_status measure_delay(walk *w, size_t o)
{
    const ds_stairs *known = w->known[w->graph->outputs[o]];
    ds_rate per;
    if (!frames_per(w, w->graph->outputs[o], &per))
        return DS_OK;
    for (size_t i = 0; i < known->n_stretches; i++) {
        const ds_flight *s = &known->stretches[i];
        const bool last = i + 1 == known->n_stretches;
        const int64_t end = last ? DS_NEVER : s[1].start;
        const int64_t part = (int64_t)((ds_wide)s->gain * per.num % per.den);
        const int64_t times = per.den / ds_greatest_divisor(part, per.den);
        const int64_t period =
            times > DS_MOST_PERIOD / s->period ? DS_MOST_PERIOD : s->period * times;
        const bool once = end - s->start <= period + 1;
        DS_TRY(wait_between(w, o, per, s->start, once ? end : s->start + period + 1));
        if (!once && !last)
            DS_TRY(wait_between(w, o, per, end - period, end));
    }
    return DS_OK;
}

/* *f becomes the least of both; NULL: never. */
static ds_status take_least(walk *w, const ds_stairs **f, const ds_stairs *g)
{
    if (!g || *f == g)
        return DS_OK;
    if (*f)
        return ds_stairs_apply(&w->maker, f, DS_EXPR_MIN, *f, g, NULL);
    *f = g;
    return DS_OK;
}

/* First frame of input 0 that frames of edge e read from the first unknown one on: an operator's need, of
 * what those after it need. NULL: none. */
static ds_status find_reach(walk *w, int e, const ds_stairs **reach)
{
    const ds_graph *g = w->graph;
    memset(w->reach, 0, g->n_edges * sizeof *w->reach);
    w->reach[e] = w->known[e];
    for (int j = g->edges[e].node; j >= 0; j--) {
        const ds_node *node = &g->nodes[j];
        const ds_stairs *first[DS_PROGRAM_ROOTS], *least = NULL;
        DS_TRY(ds_stairs_spend(&w->maker, 1));
        for (int o = 0; o < node->op->n_outputs; o++)
            DS_TRY(take_least(w, &least, w->reach[node->first_output + o]));
        if (!least)
            continue;
        DS_TRY(needs(w, node, least, first));
        for (int i = 0; i < node->op->need.n_roots; i++)
            DS_TRY(take_least(w, &w->reach[node->inputs[i]], first[i]));
    }
    *reach = w->reach[g->inputs[0]];
    return DS_OK;
}

/* What the output frames of one period read, far from the start. */
static ds_status measure_field(walk *w, size_t o)
{
    const int e = w->graph->outputs[o];
    const ds_stairs *known = w->known[e], *reach;
    const ds_flight *last = ds_stairs_last(known);
    ds_rate per;
    if (!frames_per(w, e, &per) || last->gain <= 0)
        return DS_OK;
    ds_arena_reset(&w->maker.arena);
    DS_TRY(find_reach(w, e, &reach));
    w->a->field[o] = 0;
    if (!reach)
        return DS_OK;
    const ds_flight *read = ds_stairs_last(reach);
    if (read->gain < read->period) { /* it grows for ever */
        w->a->field[o] = DS_NEVER;
        return DS_OK;
    }
    const int64_t start = read->start > last->start ? read->start : last->start;
    int64_t period = last->period;
    DS_TRY(ds_extend_period(&period, read->period));
    for (int64_t n = start; n <= start + period; n = ds_stairs_after(known, n)) {
        DS_TRY(ds_stairs_spend(&w->maker, 1));
        if (n == start || ds_stairs_at(known, n) <= ds_stairs_at(known, n - 1))
            continue;
        const int64_t field = n - ds_stairs_at(reach, n - 1);
        w->a->field[o] = field > w->a->field[o] ? field : w->a->field[o];
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- walks */
static ds_status walk_once(walk *w)
{
    ds_stairs_summary admitted = {.positive = 0};
    w->diagonal = true;
    for (size_t i = 0; i < w->graph->n_inputs; i++)
        w->diagonal &= w->offsets[i] == 0;
    DS_TRY(start(w));
    if (w->mask)
        DS_TRY(ds_stairs_summarise(&w->maker, w->mask, &admitted));
    for (size_t j = 0; j < w->graph->n_nodes && admitted.positive >= 0; j++)
        DS_TRY(visit(w, j));
    for (size_t o = 0; o < w->graph->n_outputs && w->diagonal; o++)
        DS_TRY(measure_delay(w, o));
    return DS_OK;
}

/* All ways in which the inputs after the first can be apart from it; the one without any comes last. */
static ds_status walk_all(walk *w, size_t input)
{
    const ds_clock *c = w->clock;
    if (input == c->n_inputs) {
        for (size_t i = 1; i < c->n_inputs; i++)
            if (w->offsets[i] != 0)
                return walk_once(w);
        return DS_OK;
    }
    int64_t low, high;
    ds_clock_offsets(c, input, &low, &high);
    for (int64_t d = low; d <= high; d++) {
        w->offsets[input] = d;
        DS_TRY(walk_all(w, input + 1));
    }
    w->offsets[input] = 0;
    return DS_OK;
}

static ds_status analyse(walk *w)
{
    ds_analysis *a = w->a;
    int64_t n = 1;
    for (size_t i = 1; i < w->clock->n_inputs; i++) {
        int64_t low, high;
        ds_clock_offsets(w->clock, i, &low, &high);
        DS_CHECK(high - low < MAX_COMBINATIONS / n, DS_LIMIT,
                 "the inputs' skew and rates allow too many combinations to analyse");
        n *= high - low + 1;
    }
    DS_TRY(walk_all(w, 1));
    DS_TRY(walk_once(w));
    for (size_t o = 0; o < w->graph->n_outputs; o++)
        DS_TRY(measure_field(w, o));
    for (size_t e = 0; e < w->graph->n_edges; e++)
        a->edges[e].growth *= a->period / w->growth_period[e];
    return DS_OK;
}

/* ---------------------------------------------------------------- along the graph */
/* What no output follows from, by value or by count: it is taken out (ir/rewrite.h), and decides on nothing. */
static void find_dead(bool *dead, const ds_graph *g)
{
    for (size_t j = 0; j < g->n_nodes; j++)
        dead[j] = !ds_node_checks(g, &g->nodes[j]);
    for (size_t o = 0; o < g->n_outputs; o++)
        if (g->edges[g->outputs[o]].node >= 0)
            dead[g->edges[g->outputs[o]].node] = false;
    for (size_t j = g->n_nodes; j-- > 0;)
        for (int i = 0; i < g->nodes[j].op->n_inputs && !dead[j]; i++)
            if (g->edges[g->nodes[j].inputs[i]].node >= 0)
                dead[g->edges[g->nodes[j].inputs[i]].node] = false;
}

/* Whether what is known of the outputs depends on what is known of this input, not on its length alone. */
static bool holds_back(const ds_op *op, int input)
{
    for (int k = 0; k < op->counts.n_nodes; k++)
        if (op->counts.nodes[k].code == DS_EXPR_KNOWN && op->counts.nodes[k].a == input)
            return true;
    return false;
}

/* What stands before each edge. */
static void propagate(ds_analysis *a, const ds_graph *g)
{
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        const bool given = ds_graph_once(g, node);
        bool waits = node->op->whole && !given,
             remembers = node->op->whole || node->op->n_carried > 0;
        for (int i = 0; i < node->op->n_inputs; i++) {
            const ds_edge_facts *before = &a->edges[node->inputs[i]];
            waits |= before->waits && holds_back(node->op, i);
            remembers |= before->remembers && i < ds_op_n_values(node->op);
        }
        for (int o = 0; o < node->op->n_outputs; o++) {
            ds_edge_facts *facts = &a->edges[node->first_output + o];
            facts->waits = waits || (node->op->out[o].rate.num == 0 && !given);
            facts->remembers = remembers;
        }
    }
    for (size_t o = 0; o < g->n_outputs; o++) {
        const ds_edge_facts *facts = &a->edges[g->outputs[o]];
        if (g->edges[g->outputs[o]].given)
            a->delay[o] = 0;
        if (facts->waits)
            a->delay[o] = DS_NEVER;
        if (facts->waits || facts->remembers)
            a->field[o] = DS_NEVER;
    }
}

/* Arrays over edges, nodes and outputs: those that the analysis hands out, and the walks' own. */
static ds_status take_arrays(walk *w)
{
    const ds_graph *g = w->graph;
    ds_analysis *a = w->a;
    DS_PUSH_ZEROED(&a->arena, a->edges, g->n_edges);
    DS_PUSH_ZEROED(&a->arena, a->identity, g->n_nodes);
    DS_PUSH_ZEROED(&a->arena, a->delay, g->n_outputs);
    DS_PUSH_ZEROED(&a->arena, a->field, g->n_outputs);
    DS_PUSH_ZEROED(&w->arrays, w->known, g->n_edges);
    DS_PUSH_ZEROED(&w->arrays, w->total, g->n_edges);
    DS_PUSH_ZEROED(&w->arrays, w->reach, g->n_edges);
    DS_PUSH_ZEROED(&w->arrays, w->growth_period, g->n_edges);
    DS_PUSH_ZEROED(&w->arrays, w->dead, g->n_nodes);
    for (size_t j = 0; j < g->n_nodes; j++)
        a->identity[j] = true;
    for (size_t e = 0; e < g->n_edges; e++)
        w->growth_period[e] = 1;
    for (size_t o = 0; o < g->n_outputs; o++)
        a->delay[o] = a->field[o] = DS_NEVER;
    return DS_OK;
}

static void free_walk(walk *w)
{
    ds_arena_free(&w->arrays);
    ds_arena_free(&w->functions);
    ds_arena_free(&w->maker.arena);
}

ds_status ds_analyse(ds_analysis *analysis, const ds_graph *graph, const ds_clock *clock)
{
    DS_SCOPED(free_walk)
    walk w = {.graph = graph,
              .clock = clock,
              .a = analysis,
              .maker = {.work = MAX_WORK + MAX_NODE_WORK * (int64_t)graph->n_nodes}};
    *analysis = (ds_analysis){.n_outputs = graph->n_outputs, .period = 1};
    ds_arena_init(&analysis->arena, &graph->allocator);
    ds_arena_init(&w.arrays, &graph->allocator);
    ds_arena_init(&w.functions, &graph->allocator);
    ds_arena_init(&w.maker.arena, &graph->allocator);
    DS_TRY_ELSE(take_arrays(&w), ds_analysis_free(analysis));
    find_dead(w.dead, graph);
    DS_TRY_ELSE(analyse(&w), ds_analysis_free(analysis));
    propagate(analysis, graph);
    return DS_OK;
}

void ds_analysis_free(ds_analysis *analysis)
{
    ds_arena_free(&analysis->arena);
    memset(analysis, 0, sizeof *analysis);
}
