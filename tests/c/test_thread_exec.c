/* exec: several threads step streams of one plan, open, copy, save and close them; each stream gets what
 * it gets alone. A slot lets one thread in. */
#include "exec_driver.h"

#include <pthread.h>

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

static int64_t below(worker *w, int64_t n)
{
    w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(w->seed >> 33) % n;
}

static void step(worker *w, fed *const *rows, size_t n_rows)
{
    int64_t n_frames[N_STREAMS];
    bool ended[N_STREAMS], bad[N_STREAMS];
    for (size_t k = 0; k < n_rows; k++) {
        const int64_t left = rows[k]->length - rows[k]->at[0], n = below(w, 25);
        n_frames[k] = n < left ? n : left;
        ended[k] = n_frames[k] == left && below(w, 2) == 0;
    }
    CHECK(call(&w->own, rows, n_frames, ended, bad, n_rows) == DS_OK);
    w->n_calls++;
}

/* Moves a stream to a slot of its own, by a copy or a snapshot, and closes the former one. */
static void move(worker *w, fed *s)
{
    ds_slot *other;
    CHECK(ds_session_open(w->own.session, &other, 0) == DS_OK);
    if (below(w, 2) == 0) {
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
            step(w, open, (size_t)below(w, (int64_t)n_open + 1));
            if (below(w, 3) == 0) {
                move(w, open[below(w, (int64_t)n_open)]);
            }
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
    pthread_t threads[N_THREADS];
    for (size_t k = 0; k < N_STREAMS; k++) {
        given[k] = make_fed(&shared, LENGTH - (int64_t)k * 17);
    }
    for (size_t t = 0; t < N_THREADS; t++) {
        workers[t] = (worker){.own = shared, .seed = t + 1};
        CHECK(ds_step_create(&workers[t].own.batch, shared.plan, shared.pool) == DS_OK);
        CHECK(pthread_create(&threads[t], NULL, work, &workers[t]) == 0);
    }
    for (size_t t = 0; t < N_THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
        CHECK(workers[t].n_calls > 20);
        ds_step_destroy(workers[t].own.batch);
    }
    for (size_t k = 0; k < N_STREAMS; k++) {
        free_fed(&shared, &given[k]);
    }
    CHECK(ds_session_n_open(shared.session) == 0);
    close_runner(&shared);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

/* ---------------------------------------------------------------- one slot, many threads */

typedef struct contest {
    ds_slot *slot;
    int64_t inside; /* guarded by the slot: the thread sanitizer sees it if it is not */
    atomic_size_t n_refused;
} contest;

static void *contend(void *context)
{
    contest *c = context;
    for (int entered = 0; entered < 2000;) {
        if (!ds_slot_enter(c->slot)) {
            atomic_fetch_add(&c->n_refused, 1);
            continue;
        }
        c->inside++;
        CHECK(c->inside == 1);
        c->slot->block->frames[0]++;
        c->inside--;
        ds_slot_leave(c->slot);
        entered++;
    }
    return NULL;
}

static void test_contest(void)
{
    graph_case g = example();
    runner r = make_runner(&g, best_kernels(), 0, 1, 0);
    contest c = {0};
    pthread_t threads[N_THREADS];
    CHECK(ds_session_open(r.session, &c.slot, 0) == DS_OK);
    for (size_t t = 0; t < N_THREADS; t++) {
        CHECK(pthread_create(&threads[t], NULL, contend, &c) == 0);
    }
    for (size_t t = 0; t < N_THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
    }
    CHECK(c.slot->block->frames[0] == 2000 * N_THREADS);
    ds_session_close(r.session, c.slot);
    close_runner(&r);
}

/* max_streams holds however many threads open at once. */
static void *open_many(void *context)
{
    ds_session *session = context;
    size_t n = 0;
    for (int i = 0; i < 2000; i++) {
        ds_slot *slot;
        const ds_status status = ds_session_open(session, &slot, 0);
        CHECK(status == DS_OK || status == DS_LIMIT);
        CHECK(ds_session_n_open(session) <= 2);
        if (status == DS_OK) {
            n++;
            ds_session_close(session, slot);
        }
    }
    return (void *)(uintptr_t)n; /* 0 where the others held all places whenever it came */
}

static void test_limit(void)
{
    graph_case g = example();
    runner r = make_runner(&g, best_kernels(), 0, 1, 2);
    pthread_t threads[N_THREADS];
    for (size_t t = 0; t < N_THREADS; t++) {
        CHECK(pthread_create(&threads[t], NULL, open_many, r.session) == 0);
    }
    uintptr_t opened = 0;
    for (size_t t = 0; t < N_THREADS; t++) {
        void *n;
        CHECK(pthread_join(threads[t], &n) == 0);
        opened += (uintptr_t)n;
    }
    CHECK(opened > 0);
    CHECK(ds_session_n_open(r.session) == 0);
    close_runner(&r);
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

int main(void)
{
    ds_fault_init(&fault);
    hooks = ds_fault_hooks(&fault);
    test_streams(1);
    test_streams(3);
    test_contest();
    test_limit();
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
    return check_report();
}
