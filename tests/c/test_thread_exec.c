/* exec: several threads step streams of one plan, open, copy, save and close them; each stream gets what
 * it gets alone. */
#include "exec_driver.h"

enum { N_THREADS = 4, N_STREAMS = 6, LENGTH = 120 };

typedef struct worker {
    runner own; /* plan, session and pool are shared, the batch is its own */
    uint64_t seed;
    size_t n_calls;
} worker;

static graph_case example(void)
{
    random_state = 21;
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_combined(&c, "add", x, add_padded_conv(&c, x, 3, 5, 1, 1, 2, 2, "zeros"));
    add_output(&c, add_lstm(&c, add_conv(&c, y, 4, 3, 2), 3, false));
    add_output(&c, add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "circular"));
    return c;
}

/* The streams that all threads feed: their frames and what they should give. */
static fed given[N_STREAMS];

static void step(worker *w, fed *const *rows, size_t n_rows)
{
    int64_t n_frames[N_STREAMS];
    bool ended[N_STREAMS], bad[N_STREAMS];
    for (size_t k = 0; k < n_rows; k++) {
        const int64_t left = rows[k]->length - rows[k]->at[0], n = next_below(&w->seed, 25);
        n_frames[k] = n < left ? n : left;
        ended[k] = n_frames[k] == left && next_below(&w->seed, 2) == 0;
    }
    CHECK(call(&w->own, rows, n_frames, ended, bad, n_rows) == DS_OK);
    w->n_calls++;
}

/* Moves a stream to a slot of its own, by a copy or a snapshot, and closes the former one. */
static void move(worker *w, fed *s)
{
    ds_slot *other;
    CHECK(ds_session_open(w->own.session, &other, 0) == DS_OK);
    if (next_below(&w->seed, 2) == 0) {
        CHECK(ds_slot_copy(w->own.plan, other, s->slot) == DS_OK);
    } else {
        char *state;
        const size_t n = copy_state(&w->own, s->slot, &state);
        CHECK(ds_slot_restore(w->own.plan, other, state, n) == DS_OK);
        free(state);
    }
    ds_session_close(w->own.session, s->slot);
    s->slot = other;
}

static void *work(void *context)
{
    worker *w = context;
    for (int round = 0; round < 6; round++) {
        fed streams[N_STREAMS], *open[N_STREAMS];
        size_t n_open = 0;
        for (size_t k = 0; k < N_STREAMS; k++) {
            streams[k] = given[k]; /* frames and answers are shared, and only read */
            for (size_t o = 0; o < 2; o++) {
                const int e = w->own.plan->model->outputs[o];
                streams[k].y[o] =
                    fresh_memory((size_t)given[k].want.counts[e].total *
                                 ds_signature_bytes(&w->own.plan->model->edges[e].signature));
            }
            CHECK(ds_session_open(w->own.session, &streams[k].slot, 0) == DS_OK);
            open[n_open++] = &streams[k];
        }
        while (n_open > 0) {
            step(w, open, (size_t)next_below(&w->seed, (int64_t)n_open + 1));
            if (next_below(&w->seed, 3) == 0)
                move(w, open[next_below(&w->seed, (int64_t)n_open)]);
            for (size_t k = 0; k < n_open;) {
                if (open[k]->ended) {
                    compare_fed(&w->own, open[k]);
                    ds_session_close(w->own.session, open[k]->slot);
                    free(open[k]->y[0]);
                    free(open[k]->y[1]);
                    open[k] = open[--n_open];
                } else {
                    k++;
                }
            }
        }
    }
    return NULL;
}

/* Threads with batches of their own; with `n_pool` threads for each call, shared by all. */
static void test_streams(size_t n_pool)
{
    graph_case c = example();
    runner shared = make_runner(&c, best_kernels(), 0, n_pool, 0);
    worker workers[N_THREADS];
    for (size_t k = 0; k < N_STREAMS; k++)
        given[k] = make_fed(&shared, LENGTH - (int64_t)k * 17);
    for (size_t t = 0; t < N_THREADS; t++) {
        workers[t] = (worker){.own = shared, .seed = t + 1};
        CHECK(ds_step_create(&workers[t].own.batch, shared.plan, shared.pool) == DS_OK);
    }
    in_parallel(N_THREADS, work, work, workers, sizeof *workers);
    for (size_t t = 0; t < N_THREADS; t++) {
        CHECK(workers[t].n_calls > 20);
        ds_step_destroy(workers[t].own.batch);
    }
    for (size_t k = 0; k < N_STREAMS; k++)
        free_fed(&shared, &given[k]);
    CHECK(ds_session_n_open(shared.session) == 0);
    close_runner(&shared);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

/* max_streams holds however many threads open at once. */
static atomic_size_t n_opened;

static void *open_many(void *context)
{
    ds_session *session = context;
    for (int i = 0; i < 2000; i++) {
        ds_slot *slot;
        const ds_status status = ds_session_open(session, &slot, 0);
        CHECK(status == DS_OK || status == DS_LIMIT);
        CHECK(ds_session_n_open(session) <= 2);
        if (status == DS_OK) {
            atomic_fetch_add(&n_opened, 1);
            ds_session_close(session, slot);
        }
    }
    return NULL;
}

static void test_limit(void)
{
    graph_case g = example();
    runner r = make_runner(&g, best_kernels(), 0, 1, 2);
    in_parallel(N_THREADS, open_many, open_many, r.session, 0);
    CHECK(atomic_load(&n_opened) > 0);
    CHECK(ds_session_n_open(r.session) == 0);
    close_runner(&r);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

int main(void)
{
    count_memory();
    test_streams(1);
    test_streams(3);
    test_limit();
    return report_memory();
}
