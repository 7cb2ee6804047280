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

#include "base/alloc.h"

enum { MAX_COMBINATIONS = 1 << 17, MAX_FIELDS = 4096 };
static const int64_t MAX_WORK = (int64_t)1 << 28; /* looks at a step: some seconds */

__extension__ typedef __int128 wide; /* frames times ticks go beyond 64 bits */

typedef struct walk {
    const ds_graph *graph;
    const ds_clock *clock;
    ds_analysis *a;
    ds_stairs_maker maker;
    ds_stairs **known, **total; /* [n_edges] */
    int64_t *first;             /* [n_edges] scratch of the field's backward pass */
    int64_t *
        growth_period; /* [n_edges]: frames of input 0 in which an edge grows by its growth, so far */
    bool *dead;        /* [n_nodes]: no output follows from it, no stream is refused by it */
    int64_t offsets[DS_MAX_INPUTS];
    ds_stairs *mask; /* 1 where the clock admits the walk's positions, else 0; NULL: everywhere */
    bool diagonal;   /* all inputs as far as whole frames of input 0's time allow */
} walk;

/* ---------------------------------------------------------------- functions */

/* Evaluates an operator's program on functions. inputs: edges; m may be NULL. Fills roots, all or none. */
static ds_status evaluate(walk *w, const ds_program *p, const int *inputs, ds_stairs *m,
                          ds_stairs **roots)
{
    ds_stairs *value[DS_PROGRAM_NODES];
    ds_status status = DS_OK;
    int n = 0;
    for (; n < p->n_nodes && status == DS_OK; n += status == DS_OK) {
        const ds_expr_node *node = &p->nodes[n];
        switch (node->code) {
        case DS_EXPR_CONST:
            status = ds_stairs_constant(&w->maker, &value[n], node->k);
            break;
        case DS_EXPR_KNOWN:
            value[n] = ds_stairs_share(w->known[inputs[node->a]]);
            break;
        case DS_EXPR_TOTAL:
            value[n] = ds_stairs_share(w->total[inputs[node->a]]);
            break;
        case DS_EXPR_M:
            value[n] = ds_stairs_share(m);
            break;
        default:
            status =
                ds_stairs_apply(&w->maker, &value[n], node->code, value[node->a], value[node->b],
                                node->code == DS_EXPR_SELECT ? value[node->c] : NULL);
        }
    }
    for (int i = 0; i < p->n_roots && status == DS_OK; i++)
        roots[i] = ds_stairs_share(value[p->roots[i]]);
    while (n-- > 0)
        ds_stairs_release(&w->maker, value[n]);
    return status;
}

/* Period and transient cover the function. */
static ds_status include(walk *w, const ds_stairs *f)
{
    const ds_flight *last = ds_stairs_last(f);
    if (last->start > w->a->transient)
        w->a->transient = last->start;
    return ds_extend_period(&w->a->period, last->period);
}

/* The first n that the clock admits at which f and g differ; -1: none. */
static ds_status find_difference(walk *w, const ds_stairs *f, const ds_stairs *g, int64_t *n)
{
    *n = -1;
    if (f == g)
        return DS_OK;
    ds_stairs *d;
    DS_TRY(ds_stairs_apply(&w->maker, &d, DS_EXPR_SUB, f, g, NULL));
    ds_status status = w->mask ? ds_stairs_mask(&w->maker, &d, w->mask) : DS_OK;
    if (status == DS_OK)
        status = ds_stairs_nonzero(&w->maker, d, n);
    ds_stairs_release(&w->maker, d);
    return status;
}

/* Starts a walk: the inputs' functions and the mask. */
static ds_status start(walk *w)
{
    ds_stairs *frames[DS_MAX_INPUTS] = {NULL};
    DS_TRY(ds_clock_functions(w->clock, &w->maker, w->offsets, frames, &w->mask));
    for (size_t i = 0; i < w->graph->n_inputs; i++) {
        w->known[w->graph->inputs[i]] = frames[i];
        w->total[w->graph->inputs[i]] = ds_stairs_share(frames[i]);
    }
    for (size_t i = 0; i < w->graph->n_inputs; i++)
        DS_TRY(include(w, frames[i]));
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
        int64_t at, at_end;
        DS_TRY(find_difference(w, w->known[node->inputs[i]], w->known[node->inputs[0]], &at));
        DS_TRY(find_difference(w, w->total[node->inputs[i]], w->total[node->inputs[0]], &at_end));
        DS_CHECK(at < 0 && at_end < 0, DS_MISMATCH,
                 "%s: its inputs differ at %lld frames of the first: expected a sync between them",
                 op->def->name, (long long)(at < 0 ? at_end : at));
    }
    return DS_OK;
}

/* `before` at n must not be above `then` at n + 1. */
static ds_status check_grows(walk *w, const ds_op *op, const ds_stairs *before,
                             const ds_stairs *then)
{
    ds_stairs *f;
    int64_t most, n;
    DS_TRY(ds_stairs_next(&w->maker, &f, then));
    ds_status status = ds_stairs_change_k(&w->maker, &f, DS_EXPR_MUL, -1);
    if (status == DS_OK)
        status = ds_stairs_change(&w->maker, &f, DS_EXPR_ADD, before);
    if (status == DS_OK)
        status = ds_stairs_most(&w->maker, f, &most, &n);
    const bool breaks = status == DS_OK && (n >= 0 || ds_stairs_last(f)->gain > 0);
    ds_stairs_release(&w->maker, f);
    DS_TRY(status);
    DS_CHECK(!breaks, DS_INTERNAL, "%s: its counts break the laws at %lld input frames",
             op->def->name, (long long)n + 1);
    return DS_OK;
}

/* The driver's rules (ds_op_counts) on what an operator's program says of output o. */
static ds_status clamp_counts(walk *w, const ds_node *node, ds_stairs **known, ds_stairs **total)
{
    DS_TRY(ds_stairs_change_k(&w->maker, total, DS_EXPR_MAX, 0));
    for (int i = 0; i < node->op->n_inputs; i++)
        if (*total != w->total[node->inputs[i]])
            DS_TRY(ds_stairs_mask(&w->maker, total, w->total[node->inputs[i]]));
    DS_TRY(ds_stairs_change_k(&w->maker, known, DS_EXPR_MAX, 0));
    return ds_stairs_change(&w->maker, known, DS_EXPR_MIN, *total);
}

/* One function where there are two that are the same. */
static void unite(walk *w, ds_stairs **f, ds_stairs *same)
{
    if (*f == same || !ds_stairs_same(*f, same))
        return;
    ds_stairs_release(&w->maker, *f);
    *f = ds_stairs_share(same);
}

static ds_status count(walk *w, const ds_node *node)
{
    const ds_op *op = node->op;
    const int e = node->first_output, in = node->inputs[0];
    if (op->same_counts && op->n_outputs == 1) { /* most operators: no program needed */
        w->known[e] = ds_stairs_share(w->known[in]);
        w->total[e] = ds_stairs_share(w->total[in]);
        return DS_OK;
    }
    ds_stairs *roots[DS_PROGRAM_ROOTS];
    DS_TRY(evaluate(w, &op->counts, node->inputs, NULL, roots));
    for (int o = 0; o < op->n_outputs; o++) {
        w->known[e + o] = roots[2 * o];
        w->total[e + o] = roots[2 * o + 1];
    }
    for (int o = e; o < e + op->n_outputs; o++) {
        DS_TRY(clamp_counts(w, node, &w->known[o], &w->total[o]));
        if (w->diagonal) {
            DS_TRY(check_grows(w, op, w->known[o], w->known[o]));
            DS_TRY(check_grows(w, op, w->known[o], w->total[o]));
        }
        unite(w, &w->known[o], w->known[in]);
        unite(w, &w->total[o], w->total[in]);
    }
    return DS_OK;
}

/* Edge e keeps what is known from `need` on. */
static ds_status measure_kept(walk *w, int e, const ds_stairs *need)
{
    ds_edge_facts *facts = &w->a->edges[e];
    ds_stairs *kept;
    int64_t most, n;
    if (need == w->known[e])
        return DS_OK;
    DS_TRY(ds_stairs_apply(&w->maker, &kept, DS_EXPR_SUB, w->known[e], need, NULL));
    ds_status status = w->mask ? ds_stairs_mask(&w->maker, &kept, w->mask) : DS_OK;
    if (status == DS_OK)
        status = ds_stairs_most(&w->maker, kept, &most, &n);
    const ds_flight last = *ds_stairs_last(kept);
    ds_stairs_release(&w->maker, kept);
    DS_TRY(status);
    facts->capacity = most > facts->capacity ? most : facts->capacity;
    if (last.gain <= 0)
        return DS_OK;
    facts->unbounded = true;
    if ((wide)last.gain * w->growth_period[e] > (wide)facts->growth * last.period) {
        facts->growth = last.gain;
        w->growth_period[e] = last.period;
    }
    return DS_OK;
}

static bool never(const ds_stairs *f)
{
    return f->n_steps == 1 && f->steps[0].value >= DS_NEVER;
}

static ds_status need(walk *w, const ds_node *node)
{
    ds_stairs *roots[DS_PROGRAM_ROOTS];
    if (node->silent)
        return DS_OK;
    DS_TRY(evaluate(w, &node->op->need, NULL, w->known[node->first_output], roots));
    ds_status status = DS_OK;
    for (int i = 0; i < node->op->need.n_roots; i++) {
        if (status == DS_OK && !never(roots[i])) {
            if (roots[i] != w->known[node->first_output])
                status = ds_stairs_change_k(&w->maker, &roots[i], DS_EXPR_MAX, 0);
            if (status == DS_OK)
                status = include(w, roots[i]);
            if (status == DS_OK)
                status = measure_kept(w, node->inputs[i], roots[i]);
        }
        ds_stairs_release(&w->maker, roots[i]);
    }
    return status;
}

static ds_status visit(walk *w, size_t j)
{
    const ds_node *node = &w->graph->nodes[j];
    const int out = node->first_output, in = node->inputs[0];
    DS_TRY(ds_stairs_spend(&w->maker, 1));
    DS_TRY(check_lockstep(w, node));
    DS_TRY(count(w, node));
    for (int o = out; o < out + node->op->n_outputs && !w->dead[j]; o++) {
        DS_TRY(include(w, w->known[o]));
        DS_TRY(include(w, w->total[o]));
    }
    if (w->a->identity[j]) {
        int64_t known, total;
        DS_TRY(find_difference(w, w->known[out], w->known[in], &known));
        DS_TRY(find_difference(w, w->total[out], w->total[in], &total));
        w->a->identity[j] = known < 0 && total < 0;
    }
    return need(w, node);
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
        const int64_t delay = n - 1 - (int64_t)((wide)m * per.num / per.den);
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
        const int64_t part = (int64_t)((wide)s->gain * per.num % per.den);
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

/* First frame of input 0 that output frame m of edge e depends on. */
static ds_status first_read(walk *w, int e, int64_t m, int64_t *frame)
{
    const ds_graph *g = w->graph;
    const int producer = g->edges[e].node;
    DS_TRY(ds_stairs_spend(&w->maker, producer + 1));
    for (int i = 0; i <= e; i++)
        w->first[i] = DS_NEVER;
    w->first[e] = m;
    for (int j = producer; j >= 0; j--) {
        const ds_node *node = &g->nodes[j];
        int64_t first[DS_MAX_INPUTS], least = DS_NEVER;
        for (int o = node->first_output; o < node->first_output + node->op->n_outputs && o <= e;
             o++)
            if (w->first[o] < least)
                least = w->first[o];
        if (least == DS_NEVER)
            continue;
        ds_op_need(node->op, least, first);
        for (int i = 0; i < ds_op_n_values(node->op); i++)
            if (first[i] < w->first[node->inputs[i]])
                w->first[node->inputs[i]] = first[i];
    }
    *frame = g->inputs[0] <= e ? w->first[g->inputs[0]] : DS_NEVER;
    return DS_OK;
}

/* A whole number of periods, after which no field reaches the start and no position is near saturation. */
static int64_t far_away(const walk *w)
{
    int64_t steepest = 1;
    for (size_t e = 0; e < w->graph->n_edges; e++) {
        const ds_flight *last = ds_stairs_last(w->known[e]);
        const int64_t slope = last->gain / last->period + 1;
        steepest = slope > steepest ? slope : steepest;
    }
    return ((int64_t)1 << 54) / steepest / w->a->period * w->a->period;
}

/* What the output frames of one period read, far from the start. */
static ds_status measure_field(walk *w, size_t o, int64_t far)
{
    const int e = w->graph->outputs[o];
    const ds_stairs *known = w->known[e];
    const int64_t start = w->a->transient + w->a->period;
    ds_rate per;
    if (!frames_per(w, e, &per))
        return DS_OK;
    int n_fields = 0;
    for (int64_t n = start; n <= start + w->a->period && n_fields < MAX_FIELDS;
         n = ds_stairs_after(known, n)) {
        const int64_t m = ds_stairs_at(known, n + far - 1);
        int64_t read;
        if (n == start || ds_stairs_at(known, n + far) <= m)
            continue;
        n_fields++;
        DS_TRY(first_read(w, e, m, &read));
        if (read == 0) { /* even from here it reaches the start: it is infinite */
            w->a->field[o] = DS_NEVER;
            return DS_OK;
        }
        const int64_t field = read >= n + far ? 0 : n + far - read;
        if (w->a->field[o] == DS_NEVER || field > w->a->field[o])
            w->a->field[o] = field;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- walks */

static void forget(walk *w)
{
    for (size_t e = 0; e < w->graph->n_edges; e++) {
        ds_stairs_release(&w->maker, w->known[e]);
        ds_stairs_release(&w->maker, w->total[e]);
        w->known[e] = w->total[e] = NULL;
    }
    ds_stairs_release(&w->maker, w->mask);
    w->mask = NULL;
}

static ds_status walk_once(walk *w)
{
    int64_t admitted = 1, n;
    w->diagonal = true;
    for (size_t i = 0; i < w->graph->n_inputs; i++)
        w->diagonal &= w->offsets[i] == 0;
    ds_status status = start(w);
    if (status == DS_OK && w->mask)
        status = ds_stairs_most(&w->maker, w->mask, &admitted, &n);
    for (size_t j = 0; j < w->graph->n_nodes && status == DS_OK && admitted > 0; j++)
        status = visit(w, j);
    for (size_t o = 0; o < w->graph->n_outputs && status == DS_OK && w->diagonal; o++)
        status = measure_delay(w, o);
    return status;
}

/* All ways in which the inputs after the first can be apart from it; the one without any comes last. */
static ds_status walk_all(walk *w, size_t input)
{
    const ds_clock *c = w->clock;
    if (input == c->n_inputs) {
        for (size_t i = 1; i < c->n_inputs; i++)
            if (w->offsets[i] != 0) {
                const ds_status status = walk_once(w);
                forget(w);
                return status;
            }
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
    const int64_t far = far_away(w);
    for (size_t o = 0; o < w->graph->n_outputs; o++)
        DS_TRY(measure_field(w, o, far));
    for (size_t e = 0; e < w->graph->n_edges; e++)
        a->edges[e].growth *= a->period / w->growth_period[e];
    return DS_OK;
}

/* ---------------------------------------------------------------- along the graph */

/* What no output follows from, by value or by count: it is taken out (ir/rewrite.h), and decides on nothing. */
static void find_dead(bool *dead, const ds_graph *g)
{
    for (size_t j = 0; j < g->n_nodes; j++)
        dead[j] = g->nodes[j].op->check.n_roots == 0 && !g->nodes[j].op->def->check_values;
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
        bool waits = node->op->whole, remembers = node->op->whole || node->op->n_carried > 0;
        for (int i = 0; i < node->op->n_inputs; i++) {
            const ds_edge_facts *before = &a->edges[node->inputs[i]];
            waits |= before->waits && holds_back(node->op, i);
            remembers |= before->remembers && i < ds_op_n_values(node->op);
        }
        for (int o = 0; o < node->op->n_outputs; o++) {
            ds_edge_facts *facts = &a->edges[node->first_output + o];
            facts->waits = waits || node->op->out[o].rate.num == 0;
            facts->remembers = remembers;
        }
    }
    for (size_t o = 0; o < g->n_outputs; o++) {
        const ds_edge_facts *facts = &a->edges[g->outputs[o]];
        if (facts->waits)
            a->delay[o] = DS_NEVER;
        if (facts->waits || facts->remembers)
            a->field[o] = DS_NEVER;
    }
}

/* Arrays over edges, nodes and outputs that the analysis hands out. */
static ds_status take_results(ds_analysis *a, const ds_graph *g)
{
    void *edges, *identity, *delay, *field;
    DS_TRY(ds_allocate_zeroed(&a->allocator, &edges, g->n_edges * sizeof *a->edges));
    a->edges = edges;
    DS_TRY(ds_allocate_zeroed(&a->allocator, &identity, g->n_nodes * sizeof *a->identity));
    a->identity = identity;
    DS_TRY(ds_allocate_zeroed(&a->allocator, &delay, g->n_outputs * sizeof *a->delay));
    a->delay = delay;
    DS_TRY(ds_allocate_zeroed(&a->allocator, &field, g->n_outputs * sizeof *a->field));
    a->field = field;
    for (size_t j = 0; j < g->n_nodes; j++)
        a->identity[j] = true;
    for (size_t o = 0; o < g->n_outputs; o++)
        a->delay[o] = a->field[o] = DS_NEVER;
    return DS_OK;
}

ds_status ds_analyse(ds_analysis *analysis, const ds_graph *graph, const ds_clock *clock)
{
    *analysis = (ds_analysis){.allocator = graph->allocator,
                              .n_nodes = graph->n_nodes,
                              .n_edges = graph->n_edges,
                              .n_outputs = graph->n_outputs,
                              .period = 1};
    const size_t n_edges = graph->n_edges;
    const size_t n_bytes = n_edges * 2 * (sizeof(ds_stairs *) + sizeof(int64_t)) + graph->n_nodes;
    void *block = NULL;
    ds_status status = take_results(analysis, graph);
    if (status == DS_OK)
        status = ds_allocate_zeroed(&graph->allocator, &block, n_bytes);
    if (status == DS_OK) {
        walk w = {
            .graph = graph, .clock = clock, .a = analysis, .maker = {graph->allocator, MAX_WORK}};
        w.known = block;
        w.total = w.known + n_edges;
        w.first = (int64_t *)(void *)(w.total + n_edges);
        w.growth_period = w.first + n_edges;
        w.dead = (bool *)(w.growth_period + n_edges);
        for (size_t e = 0; e < n_edges; e++)
            w.growth_period[e] = 1;
        find_dead(w.dead, graph);
        status = analyse(&w);
        forget(&w);
    }
    if (status == DS_OK)
        propagate(analysis, graph);
    ds_release(&graph->allocator, block, n_bytes);
    if (status != DS_OK)
        ds_analysis_free(analysis);
    return status;
}

void ds_analysis_free(ds_analysis *analysis)
{
    const ds_allocator *a = &analysis->allocator;
    ds_release(a, analysis->edges, analysis->n_edges * sizeof *analysis->edges);
    ds_release(a, analysis->identity, analysis->n_nodes * sizeof *analysis->identity);
    ds_release(a, analysis->delay, analysis->n_outputs * sizeof *analysis->delay);
    ds_release(a, analysis->field, analysis->n_outputs * sizeof *analysis->field);
    memset(analysis, 0, sizeof *analysis);
}
