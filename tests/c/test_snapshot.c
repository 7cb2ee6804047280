/* exec: what snapshots hold follows from the graph as captured; a restore checks all before it writes. */
#include "exec_driver.h"
#include "main.h"
#include "snapshot_tools.h"

/* ---------------------------------------------------------------- what there is */

/* Arrays of a snapshot by the node and the array that they are keyed by; at: where its position stands. */
static bool has_array(const ds_plan *p, const char *state, int64_t node, int64_t array, size_t *at)
{
    *at = SNAPSHOT_FRAMES_AT + 8 * p->graph->n_inputs;
    const uint64_t n = word_at(state, *at);
    *at += 8;
    for (uint64_t k = 0; k < n; k++) {
        if ((int64_t)word_at(state, *at) == node && (int64_t)word_at(state, *at + 8) == array) {
            *at += 16;
            return true;
        }
        *at += 32 + (size_t)(word_at(state, *at + 24) + 7) / 8 * 8;
    }
    return false;
}

/* Advances the streams of `rows` by n frames. */
static ds_status advance(runner *r, fed *row, int64_t n)
{
    const int64_t n_frames[MAX_GRAPH_INPUTS] = {n, n, n};
    const bool ended = false;
    bool bad;
    return call(r, &row, n_frames, &ended, &bad, 1);
}

/* A stream restored goes on to the end as the one it was taken from. */
static void check_goes_on(runner *r, fed *s, const char *state, size_t n)
{
    ds_slot *other;
    CHECK(ds_session_open(r->session, &other, 0) == DS_OK);
    CHECK(ds_slot_restore(r->plan, other, state, n) == DS_OK);
    check_state(r, other, state, n);
    ds_session_close(r->session, s->slot);
    s->slot = other;
    feed_all(r, s, 1);
}

/* A node on whose values nothing depends remembers nothing, whether rewrites drop it or not; what it would keep
 * of its input is not kept. */
TEST(silent)
{
    random_state = 3;
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1);
    (void)add_lstm(&c, add_padded_conv(&c, x, 3, 9, 1, 1, 0, 0, "zeros"), 3,
                   false); /* unused: nodes 0, 1 */
    const int whole =
        add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "circular"); /* counted only: node 2 */
    const int lstm = add_lstm(&c, x, 2, false);               /* counted only: node 3 */
    (void)whole;
    const int inputs[] = {x, lstm};
    add_output(&c, add_padded_conv(&c, add_node(&c, ds_op_find("cut"), NULL, 0, inputs, 2, NULL, 0),
                                   2, 3, 1, 1, 1, 1, "zeros"));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    CHECK(r.plan->model->nodes[0].silent && r.plan->model->nodes[1].silent &&
          r.plan->model->nodes[2].silent);
    CHECK(r.plan->model->nodes[3].silent && !r.plan->model->nodes[4].silent);
    CHECK(r.plan->n_tails == 0 && r.plan->block_bytes <= 64 + 64 + 64);
    fed s = open_fed(&r, 60);
    CHECK(advance(&r, &s, 37) == DS_OK);
    char *state;
    size_t at;
    const size_t n = copy_state(&r, s.slot, &state);
    CHECK(word_at(state, SNAPSHOT_FRAMES_AT + 8) == 1 && has_array(r.plan, state, 4, 0, &at));
    CHECK(word_at(state, at) == 35); /* two frames of the cut edge */
    check_goes_on(&r, &s, state, n);
    free(state);
    free_fed(&r, &s);
    close_runner(&r);
}

/* Where a sync that rewrites remove is kept from, its frames are found in its input's. */
TEST(removed_edges)
{
    random_state = 4;
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1), y = add_input(&c, 2, 1, 1);
    const int one = add_sync(&c, add_unary(&c, "tanh", x), x); /* nodes 0, 1: never holds back */
    const int two = add_sync(&c, one, x);                      /* node 2: neither */
    add_output(&c, add_padded_conv(&c, two, 2, 5, 1, 1, 0, 0, "zeros"));
    add_output(&c, add_padded_conv(&c, one, 2, 9, 1, 1, 0, 0, "zeros"));
    add_output(&c, add_combined(&c, "add", y, x));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    CHECK(r.plan->graph->n_nodes < r.plan->model->n_nodes);
    fed s = open_fed(&r, 60);
    CHECK(advance(&r, &s, 37) == DS_OK);
    char *state;
    size_t at;
    const size_t n = copy_state(&r, s.slot, &state);
    CHECK(has_array(r.plan, state, 1, 0, &at) && word_at(state, at) == 29);
    CHECK(has_array(r.plan, state, 2, 0, &at) && word_at(state, at) == 33);
    CHECK(!has_array(r.plan, state, 0, 0, &at));
    check_goes_on(&r, &s, state, n);
    free(state);
    free_fed(&r, &s);
    close_runner(&r);
}

/* ---------------------------------------------------------------- what is refused */

/* Refused with these words, into a new stream and into one that is open, which stays as it was. */
static void check_refused(const runner *r, const ds_slot *origin, const char *data, size_t n_bytes,
                          const char *words)
{
    ds_slot *slot;
    char *before;
    for (int k = 0; k < 2; k++) {
        CHECK(ds_session_open(r->session, &slot, 0) == DS_OK);
        if (k == 1)
            CHECK(ds_slot_copy(r->plan, slot, origin) == DS_OK);
        const size_t n_before = copy_state(r, slot, &before);
        const ds_status status = ds_slot_restore(r->plan, slot, data, n_bytes);
        if (status != DS_FORMAT || strstr(ds_last_error(), words) == NULL) {
            fprintf(stderr, "expected '%s', got '%s'\n", words,
                    status == DS_OK ? "no error" : ds_last_error());
        }
        CHECK(failed(status, DS_FORMAT, words));
        check_state(r, slot, before, n_before);
        free(before);
        ds_session_close(r->session, slot);
    }
}

TEST(refusals)
{
    random_state = 5;
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1), y = add_input(&c, 2, 1, 1);
    add_output(&c, add_lstm(&c, add_conv(&c, x, 3, 4, 2), 2, false)); /* nodes 0 and 1 */
    add_output(&c, add_padded_conv(&c, y, 1, 3, 1, 1, 1, 1, "circular"));
    add_output(&c, add_combined(&c, "cat", x, y));
    runner r = make_runner(&c, best_kernels(), 2, 1, 0);
    fed s = open_fed(&r, 100);
    CHECK(advance(&r, &s, 23) == DS_OK);
    char *state, *bad;
    const size_t n = copy_state(&r, s.slot, &state);
    bad = fresh_memory(n + 64);
    size_t at, frames = SNAPSHOT_FRAMES_AT;
#define DOCTORED(where, value, words)               \
    do {                                            \
        memcpy(bad, state, n);                      \
        set_word(bad, (where), (uint64_t)(value));  \
        seal_snapshot(bad, n);                      \
        check_refused(&r, s.slot, bad, n, (words)); \
    } while (0)
    check_refused(&r, s.slot, "", 0, "begins with DSSTATE, got 0 other bytes");
    check_refused(&r, s.slot, "RIFF....WAVE", 12, "begins with DSSTATE, got 12 other bytes");
    memcpy(bad, state, n);
    bad[7] = '2';
    seal_snapshot(bad, n);
    check_refused(&r, s.slot, bad, n,
                  "expected a snapshot of version 1, got one of version '\\x32'");
    memcpy(bad, state, n);
    bad[n - 20] ^= 1;
    check_refused(&r, s.slot, bad, n, "damaged: expected the checksum");
    check_refused(&r, s.slot, state, n - 1, "cut short");
    check_refused(&r, s.slot, state, 7, "cut short");
    memcpy(bad, state, n);
    memset(bad + n, 0, 64);
    check_refused(&r, s.slot, bad, n + 3, "too many");
    seal_snapshot(bad, n + 64);
    check_refused(&r, s.slot, bad, n + 64, "expected its end, got 64 bytes more");
    DOCTORED(16, 7, "got 0000000000000007");
    DOCTORED(32, 3, "has 3 inputs, expected 2");
    DOCTORED(frames, -1, "position -1 of input 0 is impossible");
    DOCTORED(frames + 8, ((int64_t)1 << 60) + 1, "of input 1 is impossible: expected 0 to 2^60");
    DOCTORED(frames, 26, "further apart (26 and 23 frames) than the skew allows");
    DOCTORED(frames, 24, "expected 24 bytes from position 22, got 36 from 20");
    DOCTORED(frames + 16, 5, "holds 5 arrays, expected 4");
    CHECK(has_array(r.plan, state, -2, 0, &at));
    DOCTORED(at, 1, "expected 184 bytes from position 0, got 184 from 1");
    DOCTORED(at + 8, 192, "expected 184 bytes from position 0, got 192 from 0");
    DOCTORED(at - 16, 9, "expected array 0 of node -2, got 0 of 9");
    DOCTORED(at - 8, 9, "expected array 0 of node -2, got 9 of -2");
    CHECK(has_array(r.plan, state, -1, 0, &at) &&
          word_at(state, at + 8) == 3 * 3 * 4); /* four bytes to spare */
    DOCTORED(at + 16 + 32, (uint64_t)1 << 40, "expected a zero");
    /* a position that its frames belie: they would take more bytes than there are */
    memcpy(bad, state, n);
    set_word(bad, frames, (uint64_t)1 << 50);
    set_word(bad, frames + 8, (uint64_t)1 << 50);
    CHECK(has_array(r.plan, bad, -1, 0, &at));
    set_word(bad, at, ((uint64_t)1 << 50) - 2);
    set_word(bad, at + 8, 2 * 12);
    seal_snapshot(bad, n);
    check_refused(&r, s.slot, bad, n, "expected");
#undef DOCTORED
    free(bad);
    feed_all(&r, &s, 1);
    free(state);
    free_fed(&r, &s);
    close_runner(&r);
}

/* Kept indices are looked at as new ones are. */
TEST(indices)
{
    random_state = 6;
    graph_case c = new_case();
    const ds_signature index = {.dtype = DS_I64, .rank = 0, .rate = {1, 1}};
    const ds_signature rows = {.dtype = DS_F32, .rank = 2, .shape = {6, 2}, .rate = {0, 1}};
    int ids = -1;
    CHECK(ds_graph_input(c.graph, &ids, &index) == DS_OK);
    add_output(&c, add_node(&c, ds_op_find("embedding"), NULL, 0, &ids, 1, &rows, 1));
    add_output(&c, add_shift(&c, "delay", ids, "frames", 3, NULL, 0));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    ds_slot *slot;
    const int64_t n_frames = 8;
    const bool ended = false;
    bool bad;
    CHECK(ds_session_open(r.session, &slot, 0) == DS_OK);
    CHECK(begin_rows(r.batch, &slot, &n_frames, &ended, &bad, 1) == DS_OK);
    for (int64_t k = 0; k < n_frames; k++)
        ((int64_t *)ds_step_room(r.batch, 0, 0))[k] = k % 6;
    ds_step_run(r.batch);
    char *state;
    size_t at;
    const size_t n = copy_state(&r, slot, &state);
    CHECK(has_array(r.plan, state, -1, 0, &at) && word_at(state, at) == 5 &&
          word_at(state, at + 16 + 8) == 0);
    set_word(state, at + 16, 0);
    seal_snapshot(state, n);
    CHECK(ds_slot_restore(r.plan, slot, state, n) == DS_OK); /* another index, one that there is */
    check_state(&r, slot, state, n);
    char *doctored = fresh_memory(n + 1); /* at an odd address */
    const int64_t indices[] = {6, -1, INT64_MIN, INT64_MAX};
    for (size_t k = 0; k < 4; k++) {
        memcpy(doctored + 1, state, n);
        set_word(doctored + 1, at + 16 + 8, (uint64_t)indices[k]);
        seal_snapshot(doctored + 1, n);
        check_refused(&r, slot, doctored + 1, n, "is out of range, expected 0 to 5");
    }
    free(doctored);
    free(state);
    ds_session_close(r.session, slot);
    close_runner(&r);
}

/* No stream can be beyond a table's end, or where it would have to keep more than its plan has room for. */
TEST(impossible_places)
{
    random_state = 7;
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const ds_signature rows = {.dtype = DS_F32, .rank = 2, .shape = {50, 3}, .rate = {0, 1}};
    add_output(&c, add_combined(&c, "add", x,
                                add_node(&c, ds_op_find("table"), NULL, 0, &x, 1, &rows, 1)));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    fed s = open_fed(&r, 50);
    CHECK(advance(&r, &s, 23) == DS_OK);
    char *state;
    const size_t n = copy_state(&r, s.slot, &state);
    CHECK(shift_snapshot(r.plan, state, n, 28));
    check_refused(&r, s.slot, state, n, "position 51 is beyond the table's 50 rows");
    CHECK(shift_snapshot(r.plan, state, n, -1));
    ds_slot *slot;
    CHECK(ds_session_open(r.session, &slot, 0) == DS_OK);
    CHECK(ds_slot_restore(r.plan, slot, state, n) == DS_OK);
    ds_session_close(r.session, slot);
    free(state);
    feed_all(&r, &s, 1);
    free_fed(&r, &s);
    close_runner(&r);

    c = new_case(); /* a million frames for one: the counts end long before 2^60 */
    const int y = add_input(&c, 1, 1, 1);
    add_output(&c, add_conv(&c, add_shift(&c, "repeat_frames", y, "times", 1 << 20, NULL, 0), 1, 1,
                            1 << 20));
    r = make_runner(&c, best_kernels(), 0, 1, 0);
    CHECK(ds_session_open(r.session, &slot, 0) == DS_OK);
    const size_t n_empty = copy_state(&r, slot, &state);
    set_word(state, SNAPSHOT_FRAMES_AT, (uint64_t)1 << 60);
    seal_snapshot(state, n_empty);
    check_refused(&r, slot, state, n_empty, "impossible: edge");
    free(state);
    ds_session_close(r.session, slot);
    close_runner(&r);
}

/* Every allocation of a restore into an open stream fails in turn. */
TEST(failing_restores)
{
    random_state = 8;
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1);
    add_output(&c, add_padded_conv(&c, x, 1, 3, 1, 1, 1, 1, "circular"));
    add_output(&c, add_padded_conv(&c, add_unary(&c, "tanh", x), 1, 3, 1, 1, 1, 1, "circular"));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    fed s = open_fed(&r, 4000), near = open_fed(&r, 4000);
    CHECK(advance(&r, &s, 3000) == DS_OK && advance(&r, &near, 700) == DS_OK);
    char *state, *before;
    const size_t n = copy_state(&r, s.slot, &state), n_before = copy_state(&r, near.slot, &before);
    size_t nth = 1;
    for (;; nth++) {
        ds_fault_arm(&fault, nth, false);
        const ds_status status = ds_slot_restore(r.plan, near.slot, state, n);
        ds_fault_disarm(&fault);
        if (status == DS_OK)
            break;
        CHECK(status == DS_NO_MEMORY);
        check_state(&r, near.slot, before, n_before);
    }
    CHECK(nth > 3);
    check_state(&r, near.slot, state, n);
    CHECK(ds_slot_restore(r.plan, near.slot, before, n_before) == DS_OK); /* and back */
    feed_all(&r, &near, 1);
    feed_all(&r, &s, 1);
    free(state);
    free(before);
    free_fed(&r, &near);
    free_fed(&r, &s);
    close_runner(&r);
}
