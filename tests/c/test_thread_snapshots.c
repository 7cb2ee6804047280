/* exec: several threads step, save, restore, copy and close the same streams at once, as servers do that move
 * them about. Who enters a slot has it alone; whatever the order, a stream is what its frames make it. */
#include "exec_driver.h"

enum { N_THREADS = 4, N_SLOTS = 3, N_ROUNDS = 400, MOST_FRAMES = 600 };

static runner shared;
static ds_slot *slots[N_SLOTS];

typedef struct worker {
    ds_step *batch; /* its own */
    uint64_t seed;
    size_t n_done[5], n_refused;
} worker;

/* Frame t is the same for all streams. */
static void write_frames(float *to, int64_t from, int64_t n)
{
    for (int64_t t = from; t < from + n; t++)
        for (int64_t k = 0; k < 3; k++)
            *to++ = (float)((t * 7 + k * 5) % 23) / 11.0f - 1.0f;
}

static void step(ds_step *batch, ds_slot *slot, int64_t n)
{
    const bool ended = false;
    bool bad;
    const int64_t at = slot->block->frames[0];
    CHECK(begin_rows(batch, &slot, &n, &ended, &bad, 1) == DS_OK);
    write_frames(ds_step_room(batch, 0, 0), at, n);
    ds_step_run(batch);
}

/* A new stream with another's state, looked at and closed. */
static void visit(const ds_slot *source, const char *state, size_t n)
{
    ds_slot *slot;
    CHECK(ds_session_open(shared.session, &slot, 0) == DS_OK);
    CHECK(ds_slot_enter(slot));
    if (source != NULL)
        CHECK(ds_slot_copy(shared.plan, slot, source) == DS_OK);
    else
        CHECK(ds_slot_restore(shared.plan, slot, state, n) == DS_OK);
    check_state(&shared, slot, state, n);
    ds_slot_leave(slot);
    ds_session_close(shared.session, slot);
}

static void *work(void *context)
{
    worker *w = context;
    char *kept = NULL; /* a state that this thread took, of whichever stream */
    size_t n_kept = 0;
    for (int round = 0; round < N_ROUNDS;) {
        ds_slot *slot = slots[next_below(&w->seed, N_SLOTS)];
        if (!ds_slot_enter(slot)) {
            w->n_refused++;
            continue;
        }
        const int64_t what = next_below(&w->seed, 5);
        if (what == 0 && slot->block->frames[0] < MOST_FRAMES) {
            step(w->batch, slot, next_below(&w->seed, 9));
        } else if (what == 1 || kept == NULL) {
            free(kept);
            n_kept = copy_state(&shared, slot, &kept);
        } else if (what == 2) {
            CHECK(ds_slot_restore(shared.plan, slot, kept, n_kept) == DS_OK);
        } else if (what == 3) {
            char *state;
            const size_t n = copy_state(&shared, slot, &state);
            visit(slot, state, n);
            free(state);
        } else {
            kept[n_kept / 2] ^= 1; /* refused, and the stream stays as it is */
            CHECK(ds_slot_restore(shared.plan, slot, kept, n_kept) == DS_FORMAT);
            kept[n_kept / 2] ^= 1;
            visit(NULL, kept, n_kept);
        }
        ds_slot_leave(slot);
        w->n_done[what]++;
        round++;
    }
    free(kept);
    return NULL;
}

static void test_shared_streams(size_t n_pool)
{
    random_state = 23;
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_combined(&c, "add", x, add_padded_conv(&c, x, 3, 5, 1, 1, 2, 2, "zeros"));
    add_output(&c, add_lstm(&c, add_conv(&c, y, 4, 3, 2), 3, false));
    add_output(
        &c, add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "circular")); /* keeps all: its memory moves */
    shared = make_runner(&c, best_kernels(), 0, n_pool, 0);
    worker workers[N_THREADS];
    for (size_t k = 0; k < N_SLOTS; k++)
        CHECK(ds_session_open(shared.session, &slots[k], 0) == DS_OK);
    for (size_t t = 0; t < N_THREADS; t++) {
        workers[t] = (worker){.seed = t + 1};
        CHECK(ds_step_create(&workers[t].batch, shared.plan, shared.pool) == DS_OK);
    }
    in_parallel(N_THREADS, work, work, workers, sizeof *workers);
    for (size_t t = 0; t < N_THREADS; t++) {
        for (size_t k = 0; k < 5; k++)
            CHECK(workers[t].n_done[k] > 0);
        ds_step_destroy(workers[t].batch);
    }
    for (size_t k = 0; k < N_SLOTS; k++) { /* as a stream that nobody moved */
        ds_slot *whole;
        char *state;
        CHECK(ds_session_open(shared.session, &whole, 0) == DS_OK);
        step(shared.batch, whole, slots[k]->block->frames[0]);
        const size_t n = copy_state(&shared, whole, &state);
        check_state(&shared, slots[k], state, n);
        free(state);
        ds_session_close(shared.session, whole);
        ds_session_close(shared.session, slots[k]);
    }
    CHECK(ds_session_n_open(shared.session) == 0);
    close_runner(&shared);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

int main(void)
{
    count_memory();
    test_shared_streams(1);
    test_shared_streams(3);
    return report_memory();
}
