/* ir/analyse, ir/rewrite: capacity and delay of small random graphs against plain loops over the integers;
 * what rewrites remove; what is refused. */
#include "base/counted.h"
#include "enumerate.h"

#include "base/now.h"
#include "main.h"

#include <math.h>

static ds_clock clock_of(const ds_graph *g, int64_t skew)
{
    ds_clock clock;
    ds_rate rates[DS_MAX_INPUTS];
    for (size_t i = 0; i < g->n_inputs; i++)
        rates[i] = g->edges[g->inputs[i]].signature.rate;
    CHECK(ds_clock_init(&clock, rates, g->n_inputs, skew) == DS_OK);
    return clock;
}

/* ---------------------------------------------------------------- random graphs */

/* What runs: the analysis is handed on to it, and from the transient on all its integers repeat. */
static void check_rewritten(graph_case *c, const ds_clock *clock)
{
    ds_analysis a;
    ds_graph *g;
    ds_find_silent(c->graph);
    CHECK(ds_analyse(&a, c->graph, clock) == DS_OK && ds_graph_share(&g, c->graph) == DS_OK);
    CHECK(ds_rewrite(g, &a) == DS_OK);
    if (!repeats(g, clock, &a)) {
        print_graph(g);
        CHECK(!"it repeats");
    }
    facts *f = loop(g, clock, &a, a.transient + 3 * a.period + 40);
    for (size_t e = 0; e < g->n_edges; e++) {
        CHECK(a.edges[e].unbounded ? f->late[e] - f->early[e] == a.edges[e].growth
                                   : a.edges[e].capacity == f->kept[e]);
    }
    free(f);
    ds_analysis_free(&a);
    ds_graph_destroy(g);
}

static void check_case(graph_case *c, int64_t skew)
{
    const ds_graph *g = c->graph;
    const ds_clock clock = clock_of(g, skew);
    ds_analysis a;
    CHECK(ds_analyse(&a, g, &clock) == DS_OK);
    const int64_t end = a.transient + 2 * a.period;
    if (end > MOST_FRAMES) {
        ds_analysis_free(&a);
        return;
    }
    facts *f = loop(g, &clock, &a, end + 2 * a.period + 40);
    for (size_t e = 0; e < g->n_edges; e++) {
        const ds_edge_facts *edge = &a.edges[e];
        CHECK(edge->unbounded == (f->late[e] > f->early[e]));
        CHECK(edge->growth == f->late[e] - f->early[e]);
        CHECK(edge->unbounded || edge->capacity == f->kept[e]);
        CHECK(edge->unbounded || edge->waits || edge->burst == f->burst[e]);
    }
    for (size_t o = 0; o < g->n_outputs; o++) {
        const ds_edge_facts *edge = &a.edges[g->outputs[o]];
        if (a.delay[o] != f->delay[o] && !edge->waits) {
            fprintf(stderr, "output %zu: delay %d, expected %d\n", o, (int)a.delay[o],
                    (int)f->delay[o]);
            print_graph(g);
        }
        CHECK(a.delay[o] == (edge->waits ? DS_NEVER : f->delay[o]));
        CHECK(a.field[o] == DS_NEVER || !edge->remembers);
    }
    free(f);
    ds_analysis_free(&a);
    check_rewritten(c, &clock);
}

TEST(random)
{
    for (int trial = 0; trial < SOME_OF(250); trial++) {
        graph_case c = random_case(5, trial % 4 == 0);
        check_case(&c, c.graph->n_inputs > 1 ? random_below(3) : 0);
        ds_graph_destroy(c.graph);
    }
}

/* Several inputs with rates of their own. */
TEST(rates)
{
    for (int trial = 0; trial < 60; trial++) {
        graph_case c = new_case();
        const int64_t a = random_in(1, 4), b = random_in(1, 4);
        const int x = add_input(&c, 2, a == b ? 1 : a, 1), y = add_input(&c, 2, a == b ? 1 : b, 1);
        const int u = add_conv(&c, x, 2, random_in(1, 4), a == b ? 1 : a);
        const int v = add_padded_conv(&c, y, 2, 3, a == b ? 1 : b, 1, random_in(0, 2),
                                      random_in(0, 2), "zeros");
        add_output(&c, add_combined(&c, "mul", u, v));
        add_output(&c, u);
        CHECK(c.status == DS_OK);
        if (ds_signature_elements(signature_of(&c, u)) != 2)
            abort();
        check_case(&c, random_below(4));
        ds_graph_destroy(c.graph);
    }
}

/* ---------------------------------------------------------------- known answers */

static void check_answers(graph_case c, int64_t delay, int64_t field, int64_t period)
{
    ds_analysis a;
    const ds_clock clock = clock_of(c.graph, 0);
    CHECK(c.status == DS_OK && ds_analyse(&a, c.graph, &clock) == DS_OK);
    CHECK(a.delay[0] == delay && a.field[0] == field && a.period == period);
    ds_analysis_free(&a);
    ds_graph_destroy(c.graph);
}

TEST(known_answers)
{
    graph_case c = new_case();
    int x = add_input(&c, 1, 1, 1);
    add_output(&c, x);
    check_answers(c, 0, 1, 1);

    c = new_case(); /* 3 taps, then 3 taps at stride 2, then 5: field 3 + 2 + 4 * 2 */
    x = add_padded_conv(&c, add_input(&c, 1, 1, 1), 2, 3, 1, 1, 1, 1, "zeros");
    x = add_padded_conv(&c, x, 2, 3, 2, 1, 1, 1, "zeros");
    x = add_padded_conv(&c, x, 2, 5, 1, 1, 2, 2, "zeros");
    add_output(&c, x);
    check_answers(c, 1 + 1 + 2 * 2, 3 + 2 + 4 * 2, 2);

    c = new_case(); /* causal */
    add_output(&c, add_padded_conv(&c, add_input(&c, 1, 1, 1), 2, 9, 1, 1, 8, 0, "zeros"));
    check_answers(c, 0, 9, 1);

    c = new_case(); /* stride beyond the taps: period 7, one frame each */
    add_output(&c, add_conv(&c, add_input(&c, 1, 1, 1), 2, 3, 7));
    check_answers(c, 2, 3, 7);

    c = new_case(); /* the longer branch holds the shorter back */
    x = add_input(&c, 2, 1, 1);
    add_output(&c, add_combined(&c, "add", x, add_padded_conv(&c, x, 2, 7, 1, 1, 0, 6, "zeros")));
    check_answers(c, 6, 7, 1);

    c = new_case(); /* recurrence remembers all */
    add_output(&c, add_lstm(&c, add_input(&c, 1, 1, 1), 2, false));
    check_answers(c, 0, DS_NEVER, 1);

    c = new_case(); /* and this waits for the end */
    add_output(&c, add_lstm(&c, add_input(&c, 1, 1, 1), 2, true));
    check_answers(c, DS_NEVER, DS_NEVER, 1);

    c = new_case();
    add_output(&c, add_reduction(&c, add_input(&c, 1, 1, 1), "max"));
    check_answers(c, DS_NEVER, DS_NEVER, 1);

    c = new_case(); /* audio: windows of 400 samples every 160, then two frames of those */
    x = add_conv(&c, add_input(&c, 1, 16000, 1), 1, 400, 160);
    add_output(&c, add_conv(&c, x, 1, 4, 2));
    check_answers(c, 400 + 3 * 160 - 1, 400 + 3 * 160, 320);
}

/* Outputs at a low rate, among very many at a high one. */
TEST(field_of_each_output)
{
    graph_case c = new_case();
    const int x = add_input(&c, 1, 1, 1);
    for (int i = 0; i < 60; i++)
        add_output(&c, add_unary(&c, "tanh", x));
    add_output(&c, add_conv(&c, x, 1, 3, 500));
    ds_analysis a;
    const ds_clock clock = clock_of(c.graph, 0);
    CHECK(c.status == DS_OK && ds_analyse(&a, c.graph, &clock) == DS_OK);
    CHECK(a.field[0] == 1 && a.field[59] == 1 && a.field[60] == 3);
    ds_analysis_free(&a);
    ds_graph_destroy(c.graph);
}

/* The irregular start is the longest of those along a path, and takes no time, however long it is. */
TEST(long_starts)
{
    graph_case c =
        new_case(); /* 40 convolutions over 31 frames each: none waits for another's start */
    int x = add_input(&c, 1, 1, 1);
    for (int i = 0; i < 20; i++)
        x = add_padded_conv(&c, x, 1, 31, 1, 1, 30, 0, "zeros");
    add_output(&c, x);
    ds_analysis a;
    ds_clock clock = clock_of(c.graph, 0);
    CHECK(c.status == DS_OK && ds_analyse(&a, c.graph, &clock) == DS_OK);
    CHECK(a.transient == 30 && a.period == 1 && a.field[0] == 601 && repeats(c.graph, &clock, &a));
    ds_analysis_free(&a);
    ds_graph_destroy(c.graph);

    c = new_case(); /* 140,000 windows of 1,280 samples are kept; 2^36 frames are dropped */
    x = add_conv(&c, add_input(&c, 1, 1, 1), 1, 1280, 1280);
    const int late = add_shift(&c, "delay", x, "frames", 140000, NULL, 0);
    add_output(&c, late);
    add_output(&c, add_shift(&c, "slice", x, "start", (int64_t)1 << 36, NULL, 0));
    clock = clock_of(c.graph, 0);
    CHECK(c.status == DS_OK && ds_analyse(&a, c.graph, &clock) == DS_OK);
    CHECK(a.edges[x].capacity == 140000 && !a.edges[x].unbounded && a.period == 1280);
    CHECK(a.field[0] == 140001 * (int64_t)1280 && a.field[1] == 1280);
    CHECK(a.transient == 1280 * (int64_t)1 << 36 ||
          a.transient == 1280 * (((int64_t)1 << 36) + 1) - 1);
    CHECK(repeats(c.graph, &clock, &a));
    ds_analysis_free(&a);
    ds_graph_destroy(c.graph);
}

/* Analyses with an allocator that counts; returns the most bytes that it took. */
static size_t analyse_counted(graph_case *c, int64_t *period, ds_status *status)
{
    ds_analysis a;
    ds_counted counted;
    const ds_allocator inner = c->graph->allocator;
    const ds_clock clock = clock_of(c->graph, 0);
    ds_counted_init(&counted, &inner);
    c->graph->allocator = ds_counted_hooks(&counted);
    *status = ds_analyse(&a, c->graph, &clock);
    *period = a.period;
    if (*status == DS_OK)
        ds_analysis_free(&a);
    c->graph->allocator = inner;
    CHECK(counted.bytes == 0);
    return counted.peak_bytes;
}

/* Steps that are far apart cost nothing, and of too many there is an end before memory is full. */
TEST(far_apart)
{
    static const int64_t strides[] = {100000, 1 << 23, (1 << 24) - 3};
    int64_t period;
    ds_status status;
    for (size_t i = 0; i < 3; i++) {
        for (int kind = 0; kind < 3; kind++) {
            const int64_t s = strides[i];
            graph_case c = new_case();
            int x = add_input(&c, 1, 1, 1);
            x = kind == 0   ? add_shift(&c, "slice", x, "start", 0, "step", s)
                : kind == 1 ? add_conv(&c, x, 1, 2, s)
                            : add_shift(&c, "slice", x, "start", 5 * s, "step", s);
            add_output(&c, x);
            CHECK(c.status == DS_OK && analyse_counted(&c, &period, &status) < 1 << 16);
            CHECK(status == DS_OK && period == s);
            ds_graph_destroy(c.graph);
        }
    }
    graph_case c = new_case(); /* 2^20 steps, each at its place */
    int x = add_transposed(&c, add_input(&c, 1, 1, 1), 1, 1, 1 << 20);
    add_output(&c, add_shift(&c, "slice", x, "start", 0, "step", (1 << 20) + 1));
    CHECK(c.status == DS_OK && analyse_counted(&c, &period, &status) < (size_t)80 << 20);
    CHECK(status == DS_LIMIT);
    ds_graph_destroy(c.graph);
}

/* ---------------------------------------------------------------- refusals */

static void refuse(graph_case c, ds_status want, const char *words, int64_t skew)
{
    ds_analysis a;
    const ds_clock clock = clock_of(c.graph, skew);
    CHECK(c.status == DS_OK);
    CHECK(failed(ds_analyse(&a, c.graph, &clock), want, words));
    CHECK(a.edges == NULL && a.delay == NULL);
    ds_graph_destroy(c.graph);
}

TEST(refusals)
{
    graph_case c = new_case();
    int x = add_input(&c, 1, 1, 1);
    for (int i = 0; i < 4; i++)
        x = add_shift(&c, "slice", x, "start", 0, "step", 127);
    add_output(&c, x);
    refuse(c, DS_LIMIT, "period", 0);

    c = new_case(); /* all positions of many inputs */
    x = add_input(&c, 1, 1, 1);
    for (int i = 0; i < 5; i++)
        x = add_combined(&c, "add", x, add_input(&c, 1, 1, 1));
    add_output(&c, x);
    refuse(c, DS_LIMIT, "too many combinations", 60);

    c = new_case(); /* rates whose ticks go beyond 64 bits when multiplied */
    x = add_input(&c, 1, 1, (int64_t)1 << 40);
    add_input(&c, 1, 1, 1);
    add_output(&c, x);
    refuse(c, DS_LIMIT, "", 0);
}

/* An operator whose counts go back, or beyond its total. */
static ds_status no_infer(ds_op *op)
{
    (void)op;
    return DS_OK;
}

static void backward(const ds_op *op, ds_program *p)
{
    (void)op;
    const ds_expr known = ds_known(p, 0);
    ds_root(p, ds_select(p, ds_add_k(p, known, -3), ds_const(p, 1), known));
    ds_root(p, ds_total(p, 0));
}

static void forward_nothing(const ds_op *op, const ds_run *run)
{
    (void)op;
    (void)run;
}

TEST(broken_laws)
{
    static const ds_op_def liar = {.name = "liar",
                                   .n_inputs = 1,
                                   .n_outputs = 1,
                                   .n_values = 1,
                                   .infer = no_infer,
                                   .counts = backward,
                                   .forward = forward_nothing};
    graph_case c = new_case();
    const int x = add_input(&c, 1, 1, 1);
    add_output(&c, add_node(&c, &liar, NULL, 0, &x, 1, NULL, 0));
    refuse(c, DS_INTERNAL, "liar: its counts break the laws at 4 input frames", 0);
}

/* ---------------------------------------------------------------- rewrites */

static size_t count_nodes(const ds_graph *g, const char *name)
{
    size_t n = 0;
    for (size_t j = 0; j < g->n_nodes; j++)
        n += strcmp(g->nodes[j].op->def->name, name) == 0;
    return n;
}

static ds_plan *plan_of(graph_case *c, int64_t skew)
{
    ds_plan *plan = NULL;
    CHECK(c->status == DS_OK);
    CHECK_OK(ds_plan_create(&plan, c->graph, best_kernels(), skew, 0));
    return plan;
}

static void check_syncs(graph_case c, int64_t skew, size_t n_before, size_t n_after)
{
    ds_plan *plan = plan_of(&c, skew);
    CHECK(count_nodes(plan->model, "sync") == n_before);
    if (count_nodes(plan->graph, "sync") != n_after)
        print_graph(plan->graph);
    CHECK(count_nodes(plan->graph, "sync") == n_after);
    for (size_t j = 0; j < plan->graph->n_nodes;
         j++) { /* in order, and ids are the former places */
        const ds_node *node = &plan->graph->nodes[j];
        CHECK(node->made || node->op == plan->model->nodes[node->id].op);
        CHECK(plan->graph->edges[node->first_output].node == (int)j);
        for (int i = 0; i < node->op->n_inputs; i++) {
            const int producer = plan->graph->edges[node->inputs[i]].node;
            bool is_input = false;
            for (size_t k = 0; k < plan->graph->n_inputs; k++)
                is_input |= plan->graph->inputs[k] == node->inputs[i];
            CHECK(producer < (int)j && (producer >= 0 || is_input));
        }
    }
    ds_plan_destroy(plan);
}

TEST(syncs)
{
    graph_case c = new_case(); /* both branches keep counts: both syncs go */
    int x = add_input(&c, 2, 1, 1);
    add_output(&c, add_combined(&c, "add", add_unary(&c, "tanh", x), add_unary(&c, "neg", x)));
    check_syncs(c, 0, 2, 0);

    c = new_case(); /* equal delays by different ways */
    x = add_input(&c, 2, 1, 1);
    add_output(&c, add_combined(&c, "add", add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "zeros"),
                                add_padded_conv(&c, x, 2, 5, 1, 1, 3, 1, "zeros")));
    check_syncs(c, 0, 2, 0);

    c = new_case(); /* a convolution that looks ahead: only the other branch is held back */
    x = add_input(&c, 2, 1, 1);
    add_output(&c, add_combined(&c, "add", x, add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "zeros")));
    check_syncs(c, 0, 2, 1);

    for (int64_t skew = 0; skew < 2; skew++) { /* inputs that may be apart: both stay */
        c = new_case();
        x = add_input(&c, 2, 1, 1);
        add_output(&c, add_combined(&c, "add", x, add_input(&c, 2, 1, 1)));
        check_syncs(c, skew, 2, skew == 0 ? 0 : 2);
    }

    c = new_case(); /* a chain of residuals */
    x = add_input(&c, 2, 1, 1);
    for (int i = 0; i < 3; i++)
        x = add_combined(&c, "add", x, add_padded_conv(&c, x, 2, 3, 1, 1, 2, 0, "zeros"));
    add_output(&c, x);
    check_syncs(c, 0, 6, 0);
}

/* The sync that is left refuses lengths that differ, as both did. */
TEST(unequal_ends)
{
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1);
    add_output(&c, add_combined(&c, "add", x, add_conv(&c, x, 2, 3, 1)));
    ds_plan *plan = plan_of(&c, 0);
    CHECK(count_nodes(plan->graph, "sync") == 1);
    ds_session *session;
    ds_slot *slot;
    ds_step *batch;
    CHECK(ds_session_create(&session, plan, 0) == DS_OK &&
          ds_session_open(session, &slot, 0) == DS_OK);
    CHECK(ds_step_create(&batch, plan, NULL) == DS_OK);
    const int64_t n = 9;
    bool ended = true, bad = false;
    CHECK(failed(begin_rows(batch, &slot, &n, &ended, &bad, 1), DS_SHAPE, "differ at the end"));
    CHECK(bad);
    ended = false;
    CHECK(begin_rows(batch, &slot, &n, &ended, &bad, 1) == DS_OK && !bad);
    ds_step_destroy(batch);
    ds_session_destroy(session);
    ds_plan_destroy(plan);
}

TEST(dead_nodes)
{
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1);
    add_conv(&c, add_unary(&c, "tanh", add_conv(&c, x, 3, 9, 1)), 3, 9, 1); /* nobody wants it */
    add_shift(&c, "limit", x, "frames", 100, NULL, 0); /* nor this, but it refuses streams */
    add_output(&c, add_unary(&c, "neg", x));
    ds_plan *plan = plan_of(&c, 0);
    CHECK(plan->graph->n_nodes == 2 && count_nodes(plan->graph, "limit") == 1);
    CHECK(plan->block_bytes == 64); /* and keeps nothing */
    ds_plan_destroy(plan);
}

/* 32,768 nodes: what looks at all nodes per node takes minutes. */
TEST(many_nodes)
{
    graph_case c = new_case();
    int x = add_input(&c, 1, 1, 1);
    for (int i = 0; i < 32768; i++)
        x = add_unary(&c, "relu", x);
    add_output(&c, x);
    const double start = ds_now();
    ds_plan *plan = plan_of(&c, 0);
    CHECK(ds_now() - start < 10);
    CHECK(plan->n_buffers == 1 && plan->block_bytes == 64 && plan->analysis.period == 1);
    ds_plan_destroy(plan);
}

/* ---------------------------------------------------------------- failing allocations */

TEST(every_allocation)
{
    const size_t live = ds_fault_live_blocks(&fault);
    for (size_t n = 1;; n++) {
        random_state = 3;
        graph_case c = random_case(8, true);
        const ds_clock clock = clock_of(c.graph, 0);
        const size_t built = ds_fault_live_blocks(&fault);
        ds_analysis a;
        ds_fault_arm(&fault, n, false);
        const ds_status status = ds_analyse(&a, c.graph, &clock);
        ds_fault_disarm(&fault);
        if (status == DS_OK) {
            ds_analysis_free(&a);
            CHECK(n > 4);
        } else {
            CHECK(status == DS_NO_MEMORY);
        }
        CHECK(ds_fault_live_blocks(&fault) == built);
        ds_graph_destroy(c.graph);
        CHECK(ds_fault_live_blocks(&fault) == live);
        if (status == DS_OK)
            return;
    }
}
