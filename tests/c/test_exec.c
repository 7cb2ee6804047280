/* exec/plan, exec/step, exec/session: random graphs in random pieces against whole streams; buffers
 * that nothing alive shares; sizes; limits; refusals; no allocation once warm. */
#include "exec_driver.h"
#include "main.h"

/* ---------------------------------------------------------------- buffers */

/* Node after which an edge's new frames are needed no more; n_nodes: by the caller. */
static size_t last_reader(const ds_graph *g, int edge)
{
    size_t last = g->edges[edge].node < 0 ? 0 : (size_t)g->edges[edge].node;
    for (size_t j = 0; j < g->n_nodes; j++)
        for (int i = 0; i < ds_op_n_values(g->nodes[j].op); i++)
            last = g->nodes[j].inputs[i] == edge && j > last ? j : last;
    for (size_t o = 0; o < g->n_outputs; o++)
        last = g->outputs[o] == edge ? g->n_nodes : last;
    return last;
}

static bool is_input(const ds_graph *g, int edge)
{
    for (size_t i = 0; i < g->n_inputs; i++)
        if (g->inputs[i] == edge)
            return true;
    return false;
}

/* An edge may be written over by its only last reader, frame for frame. */
static bool taken_over(const ds_plan *p, int first, int second)
{
    const ds_graph *g = p->graph;
    const int j = g->edges[second].node;
    return j >= 0 && g->nodes[j].inputs[0] == first && g->nodes[j].first_output == second &&
           last_reader(g, first) == (size_t)j &&
           (g->nodes[j].op->def->flags & DS_OP_INPLACE) != 0 && p->edges[first].capacity == 0 &&
           p->edges[second].capacity == 0;
}

static void check_buffers(const ds_plan *p)
{
    const ds_graph *g = p->graph;
    for (int a = 0; a < (int)g->n_edges; a++) {
        const bool produced = g->edges[a].node >= 0 || is_input(g, a);
        CHECK(p->edges[a].buffer < p->n_buffers);
        CHECK((p->edges[a].buffer >= 0) == (produced && p->edges[a].tail < 0));
        for (int b = a + 1; b < (int)g->n_edges && p->edges[a].buffer >= 0; b++) {
            if (p->edges[b].buffer != p->edges[a].buffer)
                continue;
            /* edges are numbered as they are produced; inputs are there from the start */
            CHECK(!is_input(g, b));
            const size_t made = (size_t)g->edges[b].node, read = last_reader(g, a);
            CHECK(read < made || taken_over(p, a, b));
        }
    }
}

TEST(in_place)
{
    graph_case c = new_case();
    int x = add_input(&c, 3, 1, 1);
    for (int i = 0; i < 6; i++)
        x = add_unary(&c, i % 2 ? "tanh" : "neg", x);
    add_output(&c, x);
    ds_plan *p = plan_case(&c, best_kernels(), 0);
    CHECK(p->n_buffers == 1 && p->block_bytes == 64);
    ds_plan_destroy(p);

    c = new_case(); /* a chain of layers takes two */
    x = add_input(&c, 3, 1, 1);
    for (int i = 0; i < 6; i++)
        x = add_linear(&c, x, 3);
    add_output(&c, x);
    p = plan_case(&c, best_kernels(), 0);
    CHECK(p->n_buffers == 2);
    ds_plan_destroy(p);

    c = new_case(); /* an output is not written over, nor a kept edge, nor what another reads later */
    x = add_input(&c, 3, 1, 1);
    const int y = add_unary(&c, "neg", x), z = add_unary(&c, "tanh", y),
              w = add_unary(&c, "silu", z);
    add_output(&c, y);
    add_output(&c, add_conv(&c, z, 2, 3, 1));
    add_output(&c, add_combined(&c, "add", w, add_unary(&c, "sigmoid", w)));
    p = plan_case(&c, best_kernels(), 0);
    CHECK(p->edges[y].buffer == p->edges[x].buffer);
    CHECK(p->edges[z].buffer != p->edges[y].buffer && p->edges[w].buffer != p->edges[z].buffer);
    check_buffers(p);
    ds_plan_destroy(p);
}

/* ---------------------------------------------------------------- random graphs */

static const ds_kernels *random_kernels(void)
{
    const ds_kernels *all[8];
    const size_t n = ds_kernels_list(all, 8);
    for (;;) {
        const ds_kernels *k = all[random_below((int64_t)(n < 8 ? n : 8))];
        if (k->isa <= ds_cpu_best())
            return k;
    }
}

TEST(random)
{
    const int n_trials = 250;
    size_t n_refused = 0, n_tails = 0, n_kept = 0;
    for (int trial = 0; trial < n_trials; trial++) {
        graph_case c = random_case(9, trial % 3 == 0);
        const int64_t skew = c.graph->n_inputs > 1 ? random_below(3) : 0;
        runner r = make_runner(&c, random_kernels(), skew, (size_t)random_in(1, 3), 0);
        check_buffers(r.plan);
        n_tails += r.plan->n_tails > 0;
        n_kept += r.plan->block_bytes > 64;
        fed streams[MAX_FED];
        for (size_t k = 0; k < MAX_FED; k++)
            streams[k] = open_fed(&r, random_below(3) == 0 ? random_below(5) : random_below(60));
        feed_all(&r, streams, MAX_FED);
        for (size_t k = 0; k < MAX_FED; k++) {
            n_refused += streams[k].refused;
            free_fed(&r, &streams[k]);
        }
        CHECK(ds_session_n_open(r.session) == 0);
        close_runner(&r);
        CHECK(ds_fault_live_blocks(&fault) == 0);
    }
    CHECK(n_tails > 5 && n_kept > (size_t)n_trials / 3 && n_refused > 3);
}

/* A slot is used again as if it were new. */
TEST(slots_again)
{
    random_state = 77;
    graph_case c = random_case(9, true);
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    size_t live = 0;
    for (int round = 0; round < 30; round++) {
        fed streams[2] = {open_fed(&r, random_below(50)), open_fed(&r, random_below(50))};
        if (round % 3 == 0) { /* given up in the middle */
            streams[0].refused = true;
            fed *row = &streams[0];
            int64_t n_frames[MAX_GRAPH_INPUTS];
            bool ended = false, bad;
            choose_frames(&r, row, n_frames, 1);
            CHECK(call(&r, &row, n_frames, &ended, &bad, 1) == DS_OK);
        }
        feed_all(&r, streams, 2);
        free_fed(&r, &streams[0]);
        free_fed(&r, &streams[1]);
        if (round == 20)
            live = ds_fault_live_blocks(&fault);
        CHECK(round < 20 || ds_fault_live_blocks(&fault) == live);
    }
    close_runner(&r);
}

/* ---------------------------------------------------------------- what grows */

TEST(tails)
{
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "circular");
    add_output(&c, y);
    add_output(&c, x);                             /* an output whose frames are all kept as well */
    add_output(&c, add_combined(&c, "cat", x, y)); /* what waits keeps the rest waiting */
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    CHECK(r.plan->n_tails == 1 && r.plan->grown_bytes == 3 * sizeof(float));
    const size_t live = ds_fault_live_bytes(&fault);
    for (int64_t length = 0; length < 6000; length = length * 3 + 1) {
        fed s = open_fed(&r, length);
        feed_all(&r, &s, 1);
        CHECK(ds_fault_live_bytes(&fault) >= live + (size_t)length * 12);
        free_fed(&r, &s);
        /* the slot and the scratch stay, what grew with the stream does not */
        CHECK(ds_fault_live_blocks(&fault) > 0);
        fed empty = open_fed(&r, 0);
        CHECK(empty.slot->tails[0].data == NULL && empty.slot->tails[0].n_bytes == 0);
        free_fed(&r, &empty);
    }
    close_runner(&r);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

/* The stated size of a block is all that an ordinary stream takes. */
TEST(state_size)
{
    graph_case c = new_case();
    int x = add_padded_conv(&c, add_input(&c, 5, 1, 1), 4, 7, 2, 1, 3, 3, "zeros");
    x = add_combined(&c, "add", add_linear(&c, x, 4),
                     add_padded_conv(&c, x, 4, 3, 1, 1, 1, 1, "zeros"));
    add_output(&c, add_lstm(&c, x, 3, false));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    /* 6 frames of 5; 2 of 4, and 1 held back of 4; h and c of 3; a header: each on its own lines */
    CHECK(r.plan->block_bytes == 64 + 128 + 64 + 64 + 2 * 64);
    CHECK(r.plan->n_tails == 0 && r.plan->grown_bytes == 0);
    const size_t before = ds_fault_live_bytes(&fault);
    ds_slot *slots[2];
    CHECK(ds_session_open(r.session, &slots[0], 0) == DS_OK);
    const size_t one = ds_fault_live_bytes(&fault) - before;
    CHECK(ds_session_open(r.session, &slots[1], 0) == DS_OK);
    CHECK(ds_fault_live_bytes(&fault) - before == 2 * one);
    CHECK(one == r.plan->block_bytes + 64); /* and the slot, in a line of its own */
    ds_session_close(r.session, slots[0]);
    ds_session_close(r.session, slots[1]);
    close_runner(&r);
}

/* Slots behind the first 2 MiB come in lots of 4 MiB, every one with a block of its own. */
TEST(many_streams)
{
    enum { SLOTS = 80, FEATURES = 4096 };
    graph_case c = new_case();
    add_output(&c, add_conv(&c, add_input(&c, FEATURES, 1, 1), 2, 5, 1));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    const size_t each = r.plan->block_bytes + 64, n_single = ((2 << 20) + each - 1) / each;
    const size_t before = ds_fault_live_bytes(&fault);
    ds_slot *slots[SLOTS];
    CHECK(each > 4 * FEATURES * sizeof(float) && n_single < SLOTS / 2);
    for (size_t i = 0; i < SLOTS; i++) {
        CHECK(ds_session_open(r.session, &slots[i], 0) == DS_OK);
        CHECK((uintptr_t)slots[i]->block % 64 == 0 && slots[i]->block->version == 1);
        memset(slots[i]->block, (int)i, r.plan->block_bytes);
        const size_t n_lots = i < n_single ? 0 : (i - n_single) / ((4 << 20) / each) + 1;
        CHECK(ds_fault_live_bytes(&fault) - before ==
              (i < n_single ? i + 1 : n_single) * each + n_lots * (4 << 20));
    }
    for (size_t i = 0; i < SLOTS; i++) {
        const char *const block = (const char *)slots[i]->block;
        CHECK(block[0] == (char)i && block[r.plan->block_bytes - 1] == (char)i);
        ds_session_close(r.session, slots[i]);
    }
    close_runner(&r);
}

/* ---------------------------------------------------------------- limits and refusals */

TEST(max_streams)
{
    graph_case c = new_case();
    add_output(&c, add_conv(&c, add_input(&c, 2, 1, 1), 2, 3, 1));
    runner r = make_runner(&c, best_kernels(), 0, 1, 3);
    ds_slot *slots[4] = {NULL};
    for (int round = 0; round < 3; round++) {
        for (size_t k = 0; k < 3; k++)
            CHECK(ds_session_open(r.session, &slots[k], 0) == DS_OK);
        CHECK(failed(ds_session_open(r.session, &slots[3], 0), DS_LIMIT, "3 streams are open"));
        CHECK(slots[3] == NULL && ds_session_n_open(r.session) == 3);
        /* one that takes another's place */
        CHECK(ds_session_open(r.session, &slots[3], true) == DS_OK);
        CHECK(ds_session_n_open(r.session) == 3);
        ds_session_count(r.session, slots[3]);
        ds_session_close(r.session, slots[1]);
        slots[1] = slots[3];
        slots[3] = NULL;
        CHECK(failed(ds_session_open(r.session, &slots[3], 0), DS_LIMIT, "which is the limit"));
        for (size_t k = 0; k < 3; k++)
            ds_session_close(r.session, slots[k]);
        CHECK(ds_session_n_open(r.session) == 0);
        /* one that never came to count */
        CHECK(ds_session_open(r.session, &slots[0], true) == DS_OK);
        ds_session_close(r.session, slots[0]);
        CHECK(ds_session_n_open(r.session) == 0);
    }
    CHECK(ds_session_open(r.session, &slots[0], 0) == DS_OK); /* open ones go with the session */
    close_runner(&r);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

static void refuse_frames(runner *r, fed *const *rows, const int64_t *n_frames, ds_status want,
                          const char *words, bool first_bad, bool second_bad)
{
    const bool ended[2] = {false, false};
    bool bad[2] = {true, true};
    char *state[2];
    size_t n_state[2];
    for (size_t k = 0; k < 2; k++)
        n_state[k] = copy_state(r, rows[k]->slot, &state[k]);
    CHECK(failed(call(r, rows, n_frames, ended, bad, 2), want, words));
    CHECK(bad[0] == first_bad && bad[1] == second_bad);
    for (size_t k = 0; k < 2; k++) {
        check_state(r, rows[k]->slot, state[k], n_state[k]);
        free(state[k]);
    }
}

TEST(refusals)
{
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1), y = add_input(&c, 2, 1, 1);
    add_output(&c, add_conv(&c, add_combined(&c, "add", x, y), 2, 3, 1));
    runner r = make_runner(&c, best_kernels(), 1, 2, 0);
    fed a = open_fed(&r, 20), b = open_fed(&r, 20);
    fed *rows[2] = {&a, &b};
    const int64_t good[] = {4, 5, 5, 4};
    const bool ended[2] = {false, false};
    bool bad[2];
    CHECK(call(&r, rows, good, ended, bad, 2) == DS_OK);
    const int64_t absurd[][4] = {{-1, 2, 2, 2},
                                 {2, 2, INT64_MIN, 2},
                                 {(int64_t)1 << 48, 2, 2, 2},
                                 {INT64_MAX, 2, INT64_MAX, 2}};
    for (size_t i = 0; i < 4; i++)
        refuse_frames(&r, rows, absurd[i], DS_ARGUMENT, "new frames", true, false);
    const int64_t both[] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    refuse_frames(&r, rows, both, DS_ARGUMENT, "new frames", true, true);
    const int64_t apart[] = {3, 2, 0, 2}, second[] = {2, 2, 2, 6};
    refuse_frames(&r, rows, apart, DS_MISMATCH, "skew", true, false);
    refuse_frames(&r, rows, second, DS_MISMATCH, "skew", false, true);
    const int64_t huge[] = {(int64_t)1 << 47, 2, (int64_t)1 << 47,
                            2}; /* sensible, but not to be had */
    refuse_frames(&r, rows, huge, DS_NO_MEMORY, "shorter chunks", true, false);
    feed_all(&r, &a, 1);
    feed_all(&r, &b, 1);
    free_fed(&r, &a);
    free_fed(&r, &b);
    CHECK(begin_rows(r.batch, NULL, NULL, NULL, NULL, 0) == DS_OK); /* a call for nobody */
    ds_step_run(r.batch);
    close_runner(&r);
}

/* Frames so wide that positions times bytes go beyond 64 bits. */
TEST(too_wide)
{
    graph_case c = new_case();
    const int x = add_input(&c, ((int64_t)1 << 40) - 1, 1, 1);
    add_output(&c, add_shift(&c, "slice", x, "start", 0, "crop", (int64_t)1 << 24));
    ds_plan *plan = NULL;
    CHECK(c.status == DS_OK);
    CHECK(
        failed(ds_plan_create(&plan, c.graph, best_kernels(), 0, 0), DS_NO_MEMORY, "does not fit"));
    CHECK(plan == NULL && ds_fault_live_blocks(&fault) == 0);

    c = new_case();
    add_output(&c, add_input(&c, ((int64_t)1 << 40) - 1, 1, 1));
    runner r = {.plan = plan_within(&c, best_kernels(), 0, SIZE_MAX)};
    CHECK(ds_session_create(&r.session, r.plan, 0) == DS_OK);
    CHECK(ds_step_create(&r.batch, r.plan, NULL) == DS_OK);
    ds_slot *slot;
    CHECK(ds_session_open(r.session, &slot, 0) == DS_OK);
    const int64_t n = (int64_t)1 << 40;
    const bool ended = false;
    bool bad;
    CHECK(failed(begin_rows(r.batch, &slot, &n, &ended, &bad, 1), DS_NO_MEMORY, ""));
    close_runner(&r);
}

/* ---------------------------------------------------------------- no allocation once warm */

/* Calls no larger than one seen, row by row, take no memory, however the rows fall to the threads. */
TEST(warm)
{
    for (size_t n_threads = 1; n_threads <= 4; n_threads++) {
        graph_case c = new_case();
        const int x = add_input(&c, 3, 1, 1);
        const int y = add_padded_conv(&c, x, 6, 5, 2, 1, 2, 2, "zeros");
        const int z = add_transposed(&c, add_lstm(&c, y, 4, false), 2, 4, 2);
        add_output(&c, add_combined(&c, "cat", add_unary(&c, "tanh", y), add_linear(&c, y, 1)));
        add_output(&c, z);
        runner r = make_runner(&c, best_kernels(), 0, n_threads, 0);
        fed streams[MAX_FED], *rows[MAX_FED];
        for (size_t k = 0; k < MAX_FED; k++) {
            streams[k] = open_fed(&r, 4000);
            rows[k] = &streams[k];
        }
        int64_t n_frames[MAX_FED];
        bool ended[MAX_FED] = {false}, bad[MAX_FED];
        size_t calls = 0;
        for (int step = 0; step < 60; step++) {
            const size_t n_rows = step < 3 ? MAX_FED : (size_t)random_in(0, MAX_FED);
            for (size_t k = 0; k < n_rows; k++)
                n_frames[k] = step < 3 ? 40 : random_below(3) == 0 ? 40 : random_in(0, 40);
            CHECK(call(&r, rows, n_frames, ended, bad, n_rows) == DS_OK);
            if (step == 2)
                calls = ds_fault_calls(&fault);
        }
        CHECK(ds_fault_calls(&fault) == calls);
        for (size_t k = 0; k < MAX_FED; k++)
            free_fed(&r, &streams[k]);
        for (int again = 0; again < 5; again++) { /* nor does opening, where one was closed */
            ds_slot *slot;
            CHECK(ds_session_open(r.session, &slot, 0) == DS_OK);
            ds_session_close(r.session, slot);
        }
        CHECK(ds_fault_calls(&fault) == calls);
        close_runner(&r);
    }
}
