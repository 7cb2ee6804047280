/* exec: all or nothing at every failing allocation; snapshots: cut, flipped, of others, doctored. */
#include "exec_driver.h"
#include "main.h"
#include "snapshot_tools.h"

/* Two inputs, a residual, a stride, an LSTM, a part that waits for the end. */
static graph_case example(bool waits)
{
    random_state = 11;
    graph_case c = new_case();
    const int x = add_input(&c, 2, 1, 1), y = add_input(&c, 2, 1, 1);
    const int z = add_combined(&c, "add", x, add_padded_conv(&c, y, 2, 5, 1, 1, 2, 2, "zeros"));
    add_output(&c, add_lstm(&c, add_conv(&c, z, 3, 3, 2), 2, false));
    add_output(&c, add_unary(&c, "tanh", z));
    if (waits)
        add_output(&c, add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "circular"));
    return c;
}

/* Advances all streams by `n` frames. */
static ds_status advance(runner *r, fed *const *rows, size_t n_rows, int64_t n)
{
    int64_t n_frames[2 * MAX_FED];
    bool ended[MAX_FED] = {false}, bad[MAX_FED];
    for (size_t k = 0; k < 2 * MAX_FED; k++)
        n_frames[k] = n;
    return call(r, rows, n_frames, ended, bad, n_rows);
}

/* ---------------------------------------------------------------- failing allocations */

/* Every allocation of a call fails in turn, persistently or once; then the call goes on as if nothing had been.
 * Scratch is new each time, so that all of it is asked for. */
static void try_call(size_t n_threads)
{
    graph_case c = example(true);
    runner r = make_runner(&c, best_kernels(), 0, n_threads, 0);
    fed streams[3], *rows[3];
    for (size_t k = 0; k < 3; k++) {
        streams[k] = open_fed(&r, 3000);
        rows[k] = &streams[k];
    }
    size_t n_failed = 0;
    const int64_t sizes[] = {5, 700, 0, 1, 1300, 900}; /* so that tails move more than once */
    for (size_t step = 0; step < sizeof sizes / sizeof sizes[0]; step++) {
        char *state[3];
        size_t n_state[3];
        for (size_t k = 0; k < 3; k++)
            n_state[k] = copy_state(&r, rows[k]->slot, &state[k]);
        for (size_t n = 1;; n++) {
            ds_step_destroy(r.batch);
            CHECK(ds_step_create(&r.batch, r.plan, r.pool) == DS_OK);
            ds_fault_arm(&fault, n, n % 2 == 0);
            const ds_status status = advance(&r, rows, 3, sizes[step]);
            ds_fault_disarm(&fault);
            if (status == DS_OK)
                break;
            CHECK(failed(status, DS_NO_MEMORY, "out of memory"));
            n_failed++;
            for (size_t k = 0; k < 3; k++)
                check_state(&r, rows[k]->slot, state[k], n_state[k]);
        }
        for (size_t k = 0; k < 3; k++)
            free(state[k]);
    }
    CHECK(n_failed > 20);
    feed_all(&r, streams, 3);
    for (size_t k = 0; k < 3; k++)
        free_fed(&r, &streams[k]);
    close_runner(&r);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

TEST(call)
{
    try_call(1);
    try_call(2);
}

/* ---------------------------------------------------------------- snapshots of other kinds */

/* What was taken must be harmless, whatever it holds. */
static void use(const runner *r, ds_slot *slot)
{
    const int64_t n_frames[MAX_GRAPH_INPUTS] = {7, 7, 7};
    const bool ended = true;
    bool bad;
    const ds_status status = begin_rows(r->batch, &slot, n_frames, &ended, &bad, 1);
    CHECK(status == DS_OK || status == DS_ARGUMENT || status == DS_SHAPE);
    for (size_t i = 0; status == DS_OK && i < r->plan->graph->n_inputs; i++) {
        memset(ds_step_room(r->batch, i, 0), 0,
               7 * ds_signature_bytes(&r->plan->graph->edges[r->plan->graph->inputs[i]].signature));
    }
    if (status == DS_OK)
        ds_step_run(r->batch);
}
static ds_status try_restore(const runner *r, const char *data, size_t n_bytes)
{
    ds_slot *slot;
    CHECK(ds_session_open(r->session, &slot, 0) == DS_OK);
    char *exact = fresh_memory(n_bytes); /* so that the sanitizers see a read beyond it */
    if (n_bytes > 0)
        memcpy(exact, data, n_bytes);
    const ds_status status = ds_slot_restore(r->plan, slot, exact, n_bytes);
    free(exact);
    if (status == DS_OK)
        use(r, slot);
    ds_session_close(r->session, slot);
    return status;
}
TEST(damage)
{
    graph_case c = example(true);
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    fed s = open_fed(&r, 100), *row = &s;
    CHECK(advance(&r, &row, 1, 23) == DS_OK);
    char *state;
    const size_t n = copy_state(&r, s.slot, &state);
    CHECK(try_restore(&r, state, n) == DS_OK);
    char *bad = fresh_memory(n + 8);
    memcpy(bad, state, n);
    memset(bad + n, 0, 8);
    for (size_t k = 0; k < n;
         k++) { /* cut anywhere, with a length and a checksum that fit or without */
        CHECK(failed(try_restore(&r, state, k), DS_FORMAT, k == 0 ? "DSSTATE" : "cut short"));
        if (k >= 40 && k % 8 == 0) {
            memcpy(bad, state, n);
            seal_snapshot(bad, k);
            CHECK(try_restore(&r, bad, k) == DS_FORMAT);
        }
    }
    memcpy(bad, state, n);
    CHECK(failed(try_restore(&r, bad, n + 8), DS_FORMAT, "too many"));
    seal_snapshot(bad, n + 8);
    CHECK(failed(try_restore(&r, bad, n + 8), DS_FORMAT, "expected its end, got 8 bytes more"));
    size_t n_taken = 0;
    for (size_t k = 0; k < n; k++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, state, n);
            bad[k] = (char)(bad[k] ^ (1 << bit));
            CHECK(failed(try_restore(&r, bad, n), DS_FORMAT,
                         k < 7    ? "DSSTATE"
                         : k == 7 ? "version"
                         : k < 16 ? "expected"
                                  : "damaged"));
            if (k >= 16 && k < n - 8) { /* with a checksum that fits, only values may differ */
                seal_snapshot(bad, n);
                const ds_status status = try_restore(&r, bad, n);
                CHECK(status == DS_OK || failed(status, DS_FORMAT, "expected"));
                n_taken += status == DS_OK;
            }
        }
    }
    CHECK(
        n_taken > 8 * 200 &&
        n_taken <
            8 * (n -
                 100)); /* words replaced by extremes, among them positions, sizes and numbers of entries */
    const uint64_t extremes[] = {0,
                                 1,
                                 UINT64_MAX,
                                 INT64_MAX,
                                 (uint64_t)INT64_MIN,
                                 (uint64_t)1 << 60,
                                 ((uint64_t)1 << 60) + 1,
                                 (uint64_t)1 << 48,
                                 22,
                                 24};
    for (size_t at = 0; at + 16 <= n; at += 8) {
        for (size_t k = 0; k < sizeof extremes / sizeof extremes[0]; k++) {
            memcpy(bad, state, n);
            set_word(bad, at, extremes[k]);
            seal_snapshot(bad, n);
            const ds_status status = try_restore(&r, bad, n);
            CHECK(status == DS_OK || status == DS_FORMAT);
        }
    }
    check_state(&r, s.slot, state, n);
    free(bad);
    free(state);
    free_fed(&r, &s);
    close_runner(&r);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}
TEST(other_models)
{
    graph_case c = example(false);
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    fed s = open_fed(&r, 100), *row = &s;
    CHECK(advance(&r, &row, 1, 23) == DS_OK);
    char *state;
    const size_t n = copy_state(&r, s.slot, &state);
    for (int which = 0; which < 3; which++) {
        graph_case d = example(which == 1);
        if (which == 2) /* one weight differs in one bit */
            *(char *)d.graph->nodes[0].weights[0].data ^= 1;
        runner other = make_runner(&d, ds_kernels_for(DS_ISA_REF), 0, 1, 0);
        if (which == 0) /* the same model, planned again, for other kernels */
            CHECK(try_restore(&other, state, n) == DS_OK);
        else
            CHECK(failed(try_restore(&other, state, n), DS_FORMAT, "another model"));
        close_runner(&other);
    }
    size_t room = n - 1;
    CHECK(failed(ds_slot_snapshot(r.plan, s.slot, NULL, state, &room), DS_ARGUMENT, "takes"));
    free(state);
    free_fed(&r, &s);
    close_runner(&r);
} /* ---------------------------------------------------------------- far positions */

/* At the end of all positions a call is refused, and nothing has moved. */
TEST(end_of_positions)
{
    graph_case c = new_case();
    const int x = add_input(&c, 1, 1, 1);
    add_output(&c, add_conv(&c, x, 1, 3, 1));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    fed s = open_fed(&r, 100), *row = &s;
    CHECK(advance(&r, &row, 1, 50) == DS_OK);
    char *state;
    const size_t n = copy_state(&r, s.slot, &state);
    CHECK(shift_snapshot(r.plan, state, n, ((int64_t)1 << 60) - 52));
    ds_slot *far;
    CHECK(ds_session_open(r.session, &far, 0) == DS_OK);
    CHECK(ds_slot_restore(r.plan, far, state, n) == DS_OK);
    int64_t n_frames = 3, start;
    bool ended = false, bad;
    CHECK(failed(begin_rows(r.batch, &far, &n_frames, &ended, &bad, 1), DS_ARGUMENT, "2^60"));
    CHECK(bad);
    check_state(&r, far, state, n);
    n_frames = 2;
    CHECK(begin_rows(r.batch, &far, &n_frames, &ended, &bad, 1) == DS_OK);
    CHECK(ds_step_frames(r.batch, 0, 0, &start) == 2 && start == ((int64_t)1 << 60) - 4);
    CHECK(shift_snapshot(r.plan, state, n, 3));
    CHECK(try_restore(&r, state, n) == DS_FORMAT);
    free(state);
    ds_session_close(r.session, far);
    free_fed(&r, &s);
    close_runner(&r);
}
