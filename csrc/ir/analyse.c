#include "ir/analyse.h"

#include <string.h>

#include "base/alloc.h"

enum { MAX_PERIOD = 1 << 24, MAX_STEPS = 1 << 26, MAX_COMBINATIONS = 1 << 24, MAX_FIELDS = 4096 };
static const int64_t MAX_WORK = (int64_t)1 << 33; /* looks at a node or an edge: a minute */

__extension__ typedef __int128 wide; /* frames times ticks go beyond 64 bits */

/* What the enumeration holds while it walks. */
typedef struct walk {
    const ds_graph *graph;
    const ds_clock *clock;
    ds_analysis *a;
    ds_pair *pairs;      /* [n_edges] at the current point */
    ds_pair *before;     /* [n_edges] at the previous point of the diagonal */
    int64_t *first;      /* [n_edges] scratch of the field's backward pass */
    int64_t *need;       /* [n_nodes][DS_MAX_INPUTS] at the current point */
    int64_t *seen_known; /* [n_outputs] output frames whose delay is settled */
    int64_t *n_fields;   /* [n_outputs] output frames whose field was looked at */
    int64_t *early, *late; /* [n_edges] most kept in the first and in the second period */
    bool *changed;       /* [n_edges] since the previous point */
    int64_t frames[DS_MAX_INPUTS];
    int64_t n_steps;
    int64_t work;
    bool fresh; /* no point visited yet */
} walk;

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Multiplies the period so that `frames` frames at rate r are a whole number of frames of input 0. */
static ds_status extend_period(ds_analysis *a, ds_rate base, ds_rate r, int64_t frames)
{
    if (r.num == 0)
        return DS_OK;
    ds_rate q = {base.num, base.den};
    DS_CHECK(ds_rate_scale(&q, frames, 1) && ds_rate_scale(&q, r.den, r.num), DS_LIMIT,
             "the model's period is too long to analyse");
    int64_t factor = q.num / gcd(q.num, a->period);
    DS_CHECK(factor <= MAX_PERIOD / a->period, DS_LIMIT,
             "the model's period is longer than %d input frames", MAX_PERIOD);
    a->period *= factor;
    return DS_OK;
}

static ds_status find_period(walk *w)
{
    const ds_graph *g = w->graph;
    ds_analysis *a = w->a;
    ds_rate base = g->edges[g->inputs[0]].signature.rate;
    a->period = 1;
    int64_t reach = 0;
    for (size_t i = 1; i < g->n_inputs; i++)
        DS_TRY(extend_period(a, base, g->edges[g->inputs[i]].signature.rate, 1));
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_op *op = g->nodes[j].op;
        ds_rate r = g->edges[g->nodes[j].inputs[0]].signature.rate;
        if (r.num == 0)
            continue;
        DS_TRY(extend_period(a, base, r, op->period));
        ds_rate q = {base.num, base.den};
        DS_CHECK(ds_rate_scale(&q, r.den, r.num) && op->reach < (int64_t)1 << 40, DS_LIMIT,
                 "%s: its field is too wide to analyse", op->def->name);
        wide frames = ((wide)op->reach * q.num + q.den - 1) / q.den;
        DS_CHECK(frames < MAX_STEPS, DS_LIMIT, "%s: its field is too wide to analyse",
                 op->def->name);
        reach += (int64_t)frames + 1;
    }
    reach += w->clock->limit / w->clock->tick[0] + 2;
    DS_CHECK(reach < MAX_STEPS, DS_LIMIT, "the model's field is too wide to analyse");
    a->transient = reach;
    return DS_OK;
}

/* Counts one pass over the graph. */
static ds_status spend(walk *w)
{
    w->work += (int64_t)(w->graph->n_nodes + w->graph->n_edges);
    DS_CHECK(w->work <= MAX_WORK, DS_LIMIT,
             "the model is too large, for how long its period and field are, to analyse");
    return DS_OK;
}

/* What is combined frame by frame must have the same frames: with its syncs a graph ensures that, and a
 * graph that came from elsewhere may lack them. Here all counts are seen that there can be. */
static ds_status check_lockstep(const walk *w, const ds_op *op, const ds_pair *in)
{
    int n = op->def->flags & DS_OP_LOCKSTEP ? ds_op_n_values(op) : 1;
    for (int i = 1; i < n; i++)
        DS_CHECK(in[i].known == in[0].known && in[i].total == in[0].total, DS_MISMATCH,
                 "%s: its inputs differ at %lld frames of the first: expected a sync between them",
                 op->def->name, (long long)w->frames[0]);
    return DS_OK;
}

/* Evaluates the nodes whose inputs changed; keeps `need` up to date. */
static ds_status visit(walk *w)
{
    const ds_graph *g = w->graph;
    DS_TRY(spend(w));
    for (size_t i = 0; i < g->n_inputs; i++) {
        ds_pair now = {w->frames[i], w->frames[i]};
        ds_pair *pair = &w->pairs[g->inputs[i]];
        w->changed[g->inputs[i]] = w->fresh || pair->known != now.known;
        *pair = now;
    }
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        bool any = w->fresh;
        ds_pair in[DS_MAX_INPUTS], out[DS_MAX_OUTPUTS];
        for (int i = 0; i < node->op->n_inputs; i++) {
            in[i] = w->pairs[node->inputs[i]];
            any |= w->changed[node->inputs[i]];
        }
        if (any) {
            DS_TRY(check_lockstep(w, node->op, in));
            ds_op_counts(node->op, in, false, out);
            w->a->identity[j] &= out[0].known == in[0].known && out[0].total == in[0].total;
            ds_op_need(node->op, out[0].known, &w->need[j * DS_MAX_INPUTS]);
        }
        for (int o = 0; o < node->op->n_outputs; o++) {
            ds_pair *pair = &w->pairs[node->first_output + o];
            bool differs = any && (w->fresh || pair->known != out[o].known ||
                                   pair->total != out[o].total);
            w->changed[node->first_output + o] = differs;
            if (differs)
                *pair = out[o];
        }
    }
    w->fresh = false;
    return DS_OK;
}

static void measure_kept(walk *w, int64_t *most)
{
    const ds_graph *g = w->graph;
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_node *node = &g->nodes[j];
        for (int i = 0; i < ds_op_n_values(node->op) && !node->silent; i++) {
            int e = node->inputs[i];
            int64_t need = w->need[j * DS_MAX_INPUTS + (size_t)i];
            if (need >= w->pairs[e].known)
                continue;
            int64_t kept = w->pairs[e].known - need;
            if (kept > w->a->edges[e].capacity)
                w->a->edges[e].capacity = kept;
            if (most && kept > most[e])
                most[e] = kept;
        }
    }
}

/* First frame of input 0 that output frame m of edge e depends on. */
static ds_status first_read(walk *w, int e, int64_t m, int64_t *frame)
{
    const ds_graph *g = w->graph;
    DS_TRY(spend(w));
    for (size_t i = 0; i < g->n_edges; i++)
        w->first[i] = DS_NEVER;
    w->first[e] = m;
    for (size_t j = g->n_nodes; j-- > 0;) {
        const ds_node *node = &g->nodes[j];
        int64_t need[DS_MAX_INPUTS], least = DS_NEVER;
        for (int o = 0; o < node->op->n_outputs; o++)
            if (w->first[node->first_output + o] < least)
                least = w->first[node->first_output + o];
        if (least == DS_NEVER)
            continue;
        ds_op_need(node->op, least, need);
        for (int i = 0; i < ds_op_n_values(node->op); i++)
            if (need[i] < w->first[node->inputs[i]])
                w->first[node->inputs[i]] = need[i];
    }
    *frame = w->first[g->inputs[0]];
    return DS_OK;
}

/* On the diagonal (all inputs as far as whole frames of input 0's time allow): delay and field of the
 * output frames that have just become known. */
static ds_status measure_delay(walk *w, bool steady)
{
    const ds_graph *g = w->graph;
    int64_t n = w->frames[0];
    for (size_t o = 0; o < g->n_outputs; o++) {
        int e = g->outputs[o];
        ds_rate rate = g->edges[e].signature.rate, base = g->edges[g->inputs[0]].signature.rate;
        int64_t known = w->pairs[e].known, m = w->seen_known[o];
        if (rate.num == 0 || known <= m)
            continue;
        ds_rate q = {base.num, base.den};
        if (!ds_rate_scale(&q, rate.den, rate.num))
            continue;
        /* The earliest of the new frames waited longest. */
        int64_t delay = n - 1 - (int64_t)((wide)m * q.num / q.den);
        if (w->a->delay[o] == DS_NEVER || delay > w->a->delay[o])
            w->a->delay[o] = delay;
        if (steady && w->n_fields[o] < MAX_FIELDS) {
            w->n_fields[o]++;
            int64_t read;
            DS_TRY(first_read(w, e, m, &read));
            int64_t field = read >= n ? 0 : n - read;
            if (w->a->field[o] == DS_NEVER || field > w->a->field[o])
                w->a->field[o] = field;
        }
        w->seen_known[o] = known;
    }
    return DS_OK;
}

static ds_status check_laws(walk *w)
{
    const ds_graph *g = w->graph;
    for (size_t e = 0; e < g->n_edges; e++) {
        const ds_pair *b = &w->before[e], *p = &w->pairs[e];
        const char *name = g->edges[e].node < 0 ? "input" : g->nodes[g->edges[e].node].op->def->name;
        DS_CHECK(p->known >= b->known && p->total >= b->known && p->known <= p->total, DS_INTERNAL,
                 "%s: its counts break the laws at %lld input frames", name,
                 (long long)w->frames[0]);
        w->before[e] = *p;
    }
    return DS_OK;
}

static int64_t clamped(wide frames)
{
    return frames > DS_NEVER ? DS_NEVER : (int64_t)frames;
}

static ds_status count_step(walk *w)
{
    DS_CHECK(++w->n_steps <= MAX_COMBINATIONS, DS_LIMIT,
             "the inputs' skew and rates allow too many combinations to analyse");
    return DS_OK;
}

/* All combinations of the inputs after the first that the clock admits. */
static ds_status visit_combinations(walk *w, size_t input, int64_t *most)
{
    const ds_clock *c = w->clock;
    if (input == c->n_inputs) {
        DS_TRY(count_step(w));
        if (!ds_clock_together(c, w->frames))
            return DS_OK;
        DS_TRY(visit(w));
        measure_kept(w, most);
        return DS_OK;
    }
    wide time = (wide)w->frames[0] * c->tick[0];
    int64_t low = time < c->limit ? 0 : clamped((time - c->limit) / c->tick[input]);
    int64_t high = clamped((time + c->limit) / c->tick[input] + 1);
    for (int64_t n = low; n <= high; n++) {
        w->frames[input] = n;
        DS_TRY(visit_combinations(w, input + 1, most));
    }
    return DS_OK;
}

static ds_status enumerate(walk *w)
{
    const ds_graph *g = w->graph;
    ds_analysis *a = w->a;
    int64_t steady = a->transient, end = steady + 2 * a->period;
    for (int64_t n = 0; n <= end; n++) {
        int64_t *most = n <= steady ? NULL : n <= steady + a->period ? w->early : w->late;
        w->frames[0] = n;
        if (g->n_inputs > 1)
            DS_TRY(visit_combinations(w, 1, most));
        for (size_t i = 1; i < g->n_inputs; i++)
            w->frames[i] = clamped((wide)n * w->clock->tick[0] / w->clock->tick[i]);
        DS_TRY(visit(w));
        measure_kept(w, most);
        DS_TRY(check_laws(w));
        DS_TRY(measure_delay(w, n > steady + a->period));
    }
    for (size_t e = 0; e < g->n_edges; e++) {
        a->edges[e].unbounded = w->late[e] > w->early[e];
        a->edges[e].growth = a->edges[e].unbounded ? w->late[e] - w->early[e] : 0;
    }
    return DS_OK;
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

static ds_status take(const ds_allocator *a, void **p, size_t count, size_t item)
{
    return ds_allocate_zeroed(a, p, count * item);
}

/* Fills the walk's arrays from one block; see the sizes in ds_analyse. */
static void carve(walk *w, char *block)
{
    size_t e = w->graph->n_edges, j = w->graph->n_nodes, o = w->graph->n_outputs;
    w->pairs = (ds_pair *)(void *)block;
    w->before = w->pairs + e;
    w->first = (int64_t *)(void *)(w->before + e);
    w->early = w->first + e;
    w->late = w->early + e;
    w->need = w->late + e;
    w->seen_known = w->need + j * DS_MAX_INPUTS;
    w->n_fields = w->seen_known + o;
    w->changed = (bool *)(void *)(w->n_fields + o);
}

ds_status ds_analyse(ds_analysis *analysis, const ds_graph *graph, const ds_clock *clock)
{
    memset(analysis, 0, sizeof *analysis);
    const ds_allocator *a = &graph->allocator;
    analysis->allocator = *a;
    analysis->n_nodes = graph->n_nodes;
    analysis->n_edges = graph->n_edges;
    analysis->n_outputs = graph->n_outputs;
    void *edges = NULL, *identity = NULL, *delay = NULL, *field = NULL, *block = NULL;
    size_t e = graph->n_edges, n_bytes = e * (2 * sizeof(ds_pair) + 3 * sizeof(int64_t)) +
                                         (graph->n_nodes * DS_MAX_INPUTS + 2 * graph->n_outputs) *
                                             sizeof(int64_t) + e * sizeof(bool);
    ds_status status = take(a, &edges, e, sizeof(ds_edge_facts));
    if (status == DS_OK)
        status = take(a, &identity, graph->n_nodes, sizeof(bool));
    if (status == DS_OK)
        status = take(a, &delay, graph->n_outputs, sizeof(int64_t));
    if (status == DS_OK)
        status = take(a, &field, graph->n_outputs, sizeof(int64_t));
    if (status == DS_OK)
        status = take(a, &block, n_bytes, 1);
    analysis->edges = edges;
    analysis->identity = identity;
    analysis->delay = delay;
    analysis->field = field;
    if (status == DS_OK) {
        for (size_t j = 0; j < graph->n_nodes; j++)
            analysis->identity[j] = true;
        for (size_t o = 0; o < graph->n_outputs; o++)
            analysis->delay[o] = analysis->field[o] = DS_NEVER;
        walk w = {.graph = graph, .clock = clock, .a = analysis, .fresh = true};
        carve(&w, block);
        status = find_period(&w);
        if (status == DS_OK)
            status = enumerate(&w);
        if (status == DS_OK)
            propagate(analysis, graph);
    }
    ds_release(a, block, n_bytes);
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
