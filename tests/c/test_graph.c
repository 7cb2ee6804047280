/* ir/graph, ir/clock: building with bad edges and failing allocations, fingerprints; exact spreads. */
#include "graph_cases.h"

#include "ir/clock.h"
#include "main.h"

/* ---------------------------------------------------------------- refusals */

TEST(inputs)
{
    ds_graph *g;
    int edge = 77;
    CHECK(ds_graph_create(&g, &hooks) == DS_OK);
    const ds_signature good = frames_of(3, 1, 1);
    ds_signature s = good;
    s.rate = (ds_rate){0, 1};
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_ARGUMENT, "rate must be positive"));
    s.rate = (ds_rate){-1, 2};
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_ARGUMENT, "rate must be positive"));
    s.rate = (ds_rate){1, 0};
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_ARGUMENT, "rate must be positive"));
    s.rate = (ds_rate){2, 4};
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_ARGUMENT, "lowest terms"));
    s = good;
    memset(&s.dtype, 0, sizeof s.dtype);
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_DTYPE, "no element type"));
    s = good;
    s.rank = DS_MAX_RANK + 1;
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_SHAPE, "7 feature dimensions"));
    s.rank = -1;
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_SHAPE, "-1 feature dimensions"));
    s = good;
    s.shape[0] = 0;
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_SHAPE, "size 0"));
    s.shape[0] = -3;
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_SHAPE, "size -3"));
    s.shape[0] = (int64_t)1 << 40;
    CHECK(failed(ds_graph_input(g, &edge, &s), DS_SHAPE, "2^40 elements"));
    CHECK(edge == 77 && g->n_edges == 0 && g->n_inputs == 0);
    for (int i = 0; i < DS_MAX_INPUTS; i++)
        CHECK(ds_graph_input(g, &edge, &good) == DS_OK && edge == i);
    CHECK(failed(ds_graph_input(g, &edge, &good), DS_ARGUMENT, "at most 16 inputs"));
    ds_graph_destroy(g);
}

TEST(bad_edges)
{
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_conv(&c, x, 4, 3, 1);
    CHECK(c.status == DS_OK);
    int out[DS_MAX_OUTPUTS] = {77, 77, 77, 77};
    const int far[] = {-1, 2, 1000000, -1000000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        const int inputs[] = {x, far[i]};
        CHECK(failed(
            ds_graph_node(c.graph, out, &ds_op_sync, NULL, 0, inputs, 2, NULL, NULL, 0, NULL),
            DS_ARGUMENT, "input 1 is not an edge"));
        CHECK(failed(ds_graph_output(c.graph, far[i]), DS_ARGUMENT, "not an edge"));
    }
    int many[DS_MAX_INPUTS + 1] = {0};
    CHECK(failed(ds_graph_node(c.graph, out, &ds_op_sync, NULL, 0, many, DS_MAX_INPUTS + 1, NULL,
                               NULL, 0, NULL),
                 DS_ARGUMENT, "at most 16 inputs"));
    CHECK(failed(ds_graph_node(c.graph, out, &ds_op_sync, NULL, 0, many, 1, NULL, NULL, 0, NULL),
                 DS_ARGUMENT, "at least 2"));
    const int two[] = {x, y};
    CHECK(failed(ds_graph_node(c.graph, out, &ds_op_tanh, NULL, 0, two, 2, NULL, NULL, 0, NULL),
                 DS_ARGUMENT, "expected 1 input"));
    CHECK(failed(ds_graph_node(c.graph, out, &ds_op_linear, NULL, 0, &x, 1, NULL, NULL, 0, NULL),
                 DS_SHAPE, "weight"));
    CHECK(c.graph->n_nodes == 1 && c.graph->n_edges == 2 && c.graph->n_outputs == 0);
    CHECK(out[0] == 77);
    ds_graph_destroy(c.graph);
}

static ds_status plan_of(graph_case c, int64_t skew)
{
    ds_plan *plan = NULL;
    const ds_status status = ds_plan_create(&plan, c.graph, best_kernels(), skew, 0);
    ds_plan_destroy(plan);
    return status;
}

TEST(unfinished)
{
    graph_case c = new_case();
    CHECK(failed(plan_of(c, 0), DS_ARGUMENT, "needs an input and an output"));
    c = new_case();
    add_input(&c, 1, 1, 1);
    CHECK(failed(plan_of(c, 0), DS_ARGUMENT, "needs an input and an output"));
    c = new_case();
    add_output(&c, add_input(&c, 1, 1, 1)); /* no node: what goes in comes out */
    CHECK(plan_of(c, 0) == DS_OK);
    c = new_case();
    add_output(&c, add_input(&c, 1, 1, 1));
    CHECK(failed(plan_of(c, -1), DS_ARGUMENT, "skew"));
    c = new_case();
    const ds_signature wide = {.dtype = DS_F64, .rank = 0, .rate = {1, 1}};
    int edge;
    CHECK(ds_graph_input(c.graph, &edge, &wide) == DS_OK);
    add_output(&c, edge);
    CHECK(failed(plan_of(c, 0), DS_DTYPE, "float32"));
}

/* What combines frames without a sync before it would read beyond the shorter input. */
TEST(sync_missing)
{
    for (int kind = 0; kind < 3; kind++) {
        graph_case c = new_case();
        const int x = add_input(&c, 3, 1, 1), other = add_input(&c, 3, 1, 1);
        const int late = add_padded_conv(&c, x, 3, 3, 1, 1, 0, 2, "zeros"); /* as long, but later */
        const int shorter = add_conv(&c, x, 3, 3, 1);
        const int pairs[3][2] = {{x, late}, {x, shorter}, {x, other}};
        add_output(&c, add_node(&c, &ds_op_add, NULL, 0, pairs[kind], 2, NULL, 0));
        CHECK(c.status == DS_OK);
        CHECK(failed(plan_of(c, 1), DS_MISMATCH, "add: its inputs differ"));
    }
}

/* ---------------------------------------------------------------- failing allocations */

static graph_case build_example(void)
{
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_padded_conv(&c, x, 3, 3, 1, 1, 1, 1, "zeros");
    const int z = add_combined(&c, "add", x, y);
    int w = z;
    for (int i = 0; i < 20; i++) { /* so that the arrays grow */
        w = add_unary(&c, "tanh", w);
        add_output(&c, w);
    }
    add_output(&c, add_lstm(&c, w, 2, false));
    return c;
}

TEST(every_allocation)
{
    const size_t before = ds_fault_live_blocks(&fault);
    size_t n = 1;
    for (;; n++) {
        random_state = 5;
        ds_fault_arm(&fault, n, false);
        graph_case c = build_example();
        const bool whole = c.status == DS_OK;
        ds_fault_disarm(&fault);
        CHECK(whole || failed(c.status, DS_NO_MEMORY, "out of memory"));
        ds_graph_destroy(c.graph); /* NULL where it was the first that failed */
        CHECK(ds_fault_live_blocks(&fault) == before);
        if (whole)
            break;
    }
    CHECK(n > 30);
}

/* A node that fails leaves the graph as it was, and the next try succeeds. */
TEST(node_is_all_or_nothing)
{
    uint64_t mark[2], now[2];
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    for (int i = 0; i < 13; i++) /* 16 edges: a node of three outputs makes the array grow */
        add_unary(&c, "tanh", x);
    CHECK(c.status == DS_OK);
    ds_graph_fingerprint(c.graph, mark);
    const size_t n_nodes = c.graph->n_nodes, n_edges = c.graph->n_edges;
    const size_t live = ds_fault_live_blocks(&fault);
    for (size_t n = 1;; n++) {
        ds_fault_arm(&fault, n, false);
        const int y = add_lstm(&c, x, 2, false);
        ds_fault_disarm(&fault);
        if (c.status == DS_OK) {
            CHECK(y == (int)n_edges && n > 3);
            break;
        }
        CHECK(c.status == DS_NO_MEMORY);
        c.status = DS_OK;
        ds_graph_fingerprint(c.graph, now);
        CHECK(c.graph->n_nodes == n_nodes && c.graph->n_edges == n_edges);
        CHECK(memcmp(mark, now, sizeof mark) == 0);
        CHECK(ds_fault_live_blocks(&fault) <= live + 1); /* its arena may have grown */
    }
    ds_graph_destroy(c.graph);
}

/* It follows what is added, whether it was remembered or not. */
TEST(remembered_fingerprint)
{
    uint64_t plain[2], remembered[2], before[2] = {0, 0};
    graph_case c[2] = {new_case(), new_case()};
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 2; i++) {
            if (step < 2)
                add_input(&c[i], 3, 1, 1);
            else if (step == 2)
                add_unary(&c[i], "tanh", 0);
            else
                add_output(&c[i], 2);
            CHECK(c[i].status == DS_OK);
        }
        ds_graph_fingerprint(c[0].graph, plain);
        ds_graph_remember_fingerprint(c[1].graph);
        ds_graph_fingerprint(c[1].graph, remembered);
        CHECK(memcmp(plain, remembered, sizeof plain) == 0 &&
              memcmp(plain, before, sizeof plain) != 0);
        memcpy(before, plain, sizeof plain);
    }
    ds_graph_destroy(c[0].graph);
    ds_graph_destroy(c[1].graph);
}

TEST(share)
{
    graph_case c = build_example();
    CHECK(c.status == DS_OK);
    const size_t live = ds_fault_live_blocks(&fault);
    ds_graph *copy = NULL;
    for (size_t n = 1; copy == NULL; n++) {
        ds_fault_arm(&fault, n, false);
        const ds_status status = ds_graph_share(&copy, c.graph);
        ds_fault_disarm(&fault);
        CHECK(status == (copy == NULL ? DS_NO_MEMORY : DS_OK));
        CHECK(copy != NULL || ds_fault_live_blocks(&fault) == live);
    }
    uint64_t a[2], b[2];
    ds_graph_fingerprint(c.graph, a);
    ds_graph_fingerprint(copy, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    ds_graph_destroy(copy);
    CHECK(ds_fault_live_blocks(&fault) == live);
    ds_graph_fingerprint(c.graph, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    ds_graph_destroy(c.graph);
}

/* ---------------------------------------------------------------- fingerprints */

/* Variant 0 is the model, the others differ from it in one thing each. */
static graph_case build_variant(int variant)
{
    random_state = 9;
    graph_case c = new_case();
    const int x = add_input(&c, variant == 1 ? 4 : 3, variant == 2 ? 2 : 1, 1);
    const int z = variant == 3 ? add_input(&c, 1, 1, 1) : x;
    random_state = 10;
    const int y = add_padded_conv(&c, x, 3, 3, variant == 4 ? 2 : 1, 1, 0, 0,
                                  variant == 5 ? "replicate" : "zeros");
    const int t = add_unary(&c, variant == 6 ? "sigmoid" : "tanh", variant == 7 ? x : y);
    const ds_attr attrs[] = {
        {.name = "eps", .kind = DS_ATTR_REAL, .value.x = variant == 8 ? 1e-6 : 1e-5}};
    const int n = add_node(&c, &ds_op_layer_norm, attrs, 1, &t, 1, NULL, 0);
    add_output(&c, variant == 9 ? t : n);
    if (variant == 10)
        add_output(&c, t);
    if (variant == 11)
        *(char *)c.graph->nodes[0].weights[0].data ^= 1;
    if (variant == 12) /* a node that nothing needs is part of the model too */
        add_unary(&c, "neg", z);
    CHECK(c.status == DS_OK);
    return c;
}

TEST(fingerprints)
{
    enum { N = 13 };
    uint64_t prints[N][2];
    for (int i = 0; i < N; i++) {
        for (int again = 0; again < 2; again++) {
            uint64_t print[2];
            graph_case c = build_variant(i);
            ds_graph_fingerprint(c.graph, print);
            CHECK(again == 0 || memcmp(print, prints[i], sizeof print) == 0);
            memcpy(prints[i], print, sizeof print);
            ds_graph_destroy(c.graph);
        }
        for (int j = 0; j < i; j++)
            CHECK(prints[i][0] != prints[j][0] && prints[i][1] != prints[j][1]);
    }
}

/* ---------------------------------------------------------------- the clock */

__extension__ typedef __int128 wide;

/* max n/r - min n/r < (skew + 1) / r_slowest, over a common denominator. */
static bool together(const ds_rate *rates, const int64_t *frames, size_t n, int64_t skew)
{
    wide least = 0, most = 0, slowest = 0, common = 1;
    for (size_t i = 0; i < n; i++)
        common *= rates[i].num;
    for (size_t i = 0; i < n; i++) {
        const wide tick = common / rates[i].num * rates[i].den, time = frames[i] * tick;
        least = i == 0 || time < least ? time : least;
        most = i == 0 || time > most ? time : most;
        slowest = tick > slowest ? tick : slowest;
    }
    return n < 2 || most - least < slowest * (skew + 1);
}

TEST(clock)
{
    int n_together = 0;
    for (int trial = 0; trial < 200000; trial++) {
        const size_t n = (size_t)random_in(1, 3);
        const int64_t skew = random_below(2) * random_below(5);
        const int shift = (int)random_below(60);
        ds_rate rates[3];
        int64_t frames[3];
        const int64_t seconds = random_below((int64_t)1 << 30) << (shift / 2);
        for (size_t i = 0; i < n; i++) {
            rates[i] = (ds_rate){1, 1};
            CHECK(ds_rate_scale(&rates[i], random_in(1, 50), random_in(1, 50)));
            /* about where the others are, and far beyond what a double can tell apart */
            const wide at = (wide)seconds * rates[i].num / rates[i].den + random_in(-6, 6);
            frames[i] = at<0 ? 0 : at>(wide) 1 << 60 ? (int64_t)1 << 60 : (int64_t)at;
        }
        ds_clock clock;
        CHECK(ds_clock_init(&clock, rates, n, skew) == DS_OK);
        const bool want = together(rates, frames, n, skew);
        CHECK(ds_clock_together(&clock, frames) == want);
        n_together += want;
    }
    CHECK(n_together > 20000 && n_together < 190000);
}

TEST(clock_edges)
{
    ds_clock clock;
    const ds_rate one[] = {{1, 1}, {1, 1}};
    CHECK(ds_clock_init(&clock, one, 2, 0) == DS_OK && clock.tick[0] == 1 && clock.limit == 1);
    const int64_t p = ((int64_t)1 << 53) + 1, far[] = {p, p + 1}, same[] = {p, p};
    CHECK(ds_clock_together(&clock, same) && !ds_clock_together(&clock, far));
    CHECK(ds_clock_init(&clock, one, 2, 1) == DS_OK && ds_clock_together(&clock, far));
    const ds_rate audio[] = {{16000, 1}, {100, 1}, {44100, 1}};
    CHECK(ds_clock_init(&clock, audio, 3, 0) == DS_OK);
    const int64_t hours[] = {16000LL * 360000000, 100LL * 360000000, 44100LL * 360000000};
    CHECK(ds_clock_together(&clock, hours));
    const int64_t late[] = {16000LL * 360000000 + 160, 100LL * 360000000, 44100LL * 360000000};
    CHECK(!ds_clock_together(&clock, late));
    const int64_t just[] = {16000LL * 360000000 + 159, 100LL * 360000000, 44100LL * 360000000};
    CHECK(ds_clock_together(&clock, just));
    /* refused, not overflowed */
    CHECK(failed(ds_clock_init(&clock, one, 2, -1), DS_ARGUMENT, "skew"));
    CHECK(failed(ds_clock_init(&clock, one, 2, (int64_t)1 << 31), DS_ARGUMENT, "skew"));
    const ds_rate absurd[][2] = {{{2147483647, 1}, {2147483629, 1}},
                                 {{1, INT64_MAX}, {1, 1}},
                                 {{INT64_MAX, 1}, {1, 1}},
                                 {{0, 1}, {1, 1}},
                                 {{1, 0}, {1, 1}},
                                 {{-1, 1}, {1, 1}},
                                 {{1, -1}, {1, 1}}};
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++)
        CHECK(failed(ds_clock_init(&clock, absurd[i], 2, 0), DS_ARGUMENT, "input"));
}
