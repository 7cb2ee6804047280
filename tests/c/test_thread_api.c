/* The public API from several threads: models that come and go; streams of one model opened, stepped, saved,
 * restored, forked, closed side by side; two threads that want one stream; closing what is in use. */
#define _POSIX_C_SOURCE 200809L
#include "api_driver.h"

#include <time.h>

#ifdef __SANITIZE_THREAD__ /* twenty times as slow, and it sees what could have met, not only what met */
enum { VISITS = 2, WALKS = 3, BLOWS = 150, CLOSINGS = 15, REOPENINGS = 2000 };
#else
enum {
    VISITS = SOME_OF(6),
    WALKS = SOME_OF(8),
    BLOWS = SOME_OF(400),
    CLOSINGS = SOME_OF(40),
    REOPENINGS = SOME_OF(30000)
};
#endif
enum { N_THREADS = 4, LENGTH = 60 };

static ds_buffer file;
static float x[LENGTH * 3];

/* ---------------------------------------------------------------- models that come and go */

typedef struct visitor {
    uint64_t seed;
    ds_model *model; /* shared */
    const taken *want;
} visitor;

static void *come_and_go(void *context)
{
    visitor *v = context;
    for (int round = 0; round < VISITS; round++) {
        ds_model *model = load_with(&file, round % 2 == 0 ? "ref" : NULL,
                                    (uint32_t)(1 + next_below(&v->seed, 2)));
        taken got = whole_of(model, x, 3, LENGTH);
        CHECK(same_taken(model, &got, v->want));
        free_taken(&got);
        (void)open_stream(model); /* is closed with the model */
        CHECK(ds_model_close(model) == DS_OK);
    }
    return NULL;
}

/* ---------------------------------------------------------------- streams of one model */

/* One stream from its beginning to its end, by detours. */
static void walk(visitor *v)
{
    ds_stream *s = open_stream(v->model), *fork = NULL;
    taken got = {{NULL}, {0}};
    ds_output out[MAX_GRAPH_OUTPUTS], lost[MAX_GRAPH_OUTPUTS];
    for (size_t at = 0; at < LENGTH;) {
        size_t n = (size_t)next_below(&v->seed, 9), n_state = 0, n_idle = 0;
        n = n < LENGTH - at ? n : LENGTH - at;
        char *state = snapshot_of(s, &n_state);
        if (next_below(&v->seed, 3) == 0) { /* ahead, and back again */
            CHECK(step_floats(s, lost, x, 3, 0, 5, next_below(&v->seed, 2) == 0 ? DS_END : 0) ==
                  DS_OK);
            CHECK(ds_stream_restore(s, state, n_state) == DS_OK);
        }
        free(state);
        if (next_below(&v->seed, 3) == 0) { /* on with a copy */
            CHECK(ds_stream_fork(&fork, s) == DS_OK && ds_stream_close(s) == DS_OK);
            s = fork;
        }
        CHECK(step_floats(s, out, x, 3, at, n, 0) == DS_OK);
        take(&got, v->model, out);
        at += n;
        CHECK(ds_model_idle(v->model, 0, NULL, 0, &n_idle) == DS_OK);
        CHECK(info_of(v->model).n_streams >= 1 && memory_of(v->model).bytes > 0);
        CHECK(stream_info_of(s).idle_seconds >= 0 && stream_info_of(s).begun == 1);
    }
    CHECK(ds_stream_finish(s, out) == DS_OK);
    take(&got, v->model, out);
    CHECK(same_taken(v->model, &got, v->want));
    free_taken(&got);
    CHECK(ds_stream_reset(s) == DS_OK && ds_stream_close(s) == DS_OK);
}

static void *walk_along(void *context)
{
    for (int round = 0; round < WALKS; round++)
        walk(context);
    return NULL;
}

TEST(side_by_side)
{
    visitor visitors[N_THREADS];
    ds_model *ref = load_with(&file, "ref", 1);
    taken want = whole_of(ref, x, 3, LENGTH);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        ds_model *model = load_with(&file, NULL, threads);
        for (int t = 0; t < N_THREADS; t++)
            visitors[t] = (visitor){(uint64_t)t + 1, model, &want};
        in_parallel(N_THREADS, walk_along, walk_along, visitors, sizeof *visitors);
        CHECK(info_of(model).n_streams == 0 && ds_model_close(model) == DS_OK);
    }
    in_parallel(N_THREADS, come_and_go, come_and_go, visitors, sizeof *visitors);
    free_taken(&want);
    CHECK(ds_model_close(ref) == DS_OK);
}

/* ---------------------------------------------------------------- one stream, many threads */

typedef struct fight {
    ds_model *model;
    ds_stream *stream, *second;
    atomic_size_t n_done, n_refused;
    atomic_bool over;
} fight;

static void count(fight *f, ds_status status)
{
    CHECK(status == DS_OK || failed(status, DS_BUSY, "using"));
    atomic_fetch_add(status == DS_OK ? &f->n_done : &f->n_refused, 1);
}

/* Whoever comes first is served, the others are told so. */
static void *fight_for_it(void *context)
{
    fight *f = context;
    ds_output out[MAX_GRAPH_OUTPUTS * 2];
    static _Thread_local char state[1 << 16];
    uint64_t seed = (uintptr_t)&out;
    size_t n = 0;
    for (int i = 0; i < BLOWS; i++) {
        const ds_input in[] = {{x, 4, 0}, {x, 4, 0}};
        ds_stream *both[] = {f->stream, f->second}, *found[2], *fork = NULL;
        ds_stream_info info = {.struct_size = sizeof info};
        switch (next_below(&seed, 8)) {
        case 0:
            count(f, ds_stream_step(f->stream, out, in, 0));
            break;
        case 1:
            count(f, ds_model_step(f->model, both, out, in, NULL, 2));
            break;
        case 2:
            count(f, ds_stream_query(f->stream, &info));
            break;
        case 3:
            count(f, ds_stream_reset(f->second));
            break;
        case 4: {
            ds_status status = ds_stream_snapshot_size(f->second, &n);
            count(f, status);
            if (status == DS_OK) { /* by now it may be another size */
                CHECK(n <= sizeof state);
                status = ds_stream_snapshot(f->second, state, n);
                CHECK(status == DS_OK || status == DS_BUSY || status == DS_ARGUMENT);
                if (status == DS_OK)
                    count(f, ds_stream_restore(f->stream, state, n));
            }
            break;
        }
        case 5: {
            const ds_status status = ds_stream_fork(&fork, f->stream);
            count(f, status);
            CHECK(status != DS_OK || ds_stream_close(fork) == DS_OK);
            break;
        }
        case 6:
            count(f, ds_model_idle(f->model, 0, found, 2, &n));
            break;
        default:
            count(f, ds_stream_query(f->second, &info));
            break;
        }
    }
    return NULL;
}

TEST(fight)
{
    fight f = {.model = load_with(&file, NULL, 2)};
    f.stream = open_stream(f.model);
    f.second = open_stream(f.model);
    in_parallel(N_THREADS, fight_for_it, fight_for_it, &f, 0);
    CHECK(atomic_load(&f.n_done) > 0);
    CHECK(info_of(f.model).n_streams == 2 && ds_model_close(f.model) == DS_OK);
}

/* ---------------------------------------------------------------- closing what is in use */

static void *close_it(void *context)
{
    fight *f = context;
    ds_status status;
    while ((status = ds_stream_close(f->stream)) == DS_BUSY)
        atomic_fetch_add(&f->n_refused, 1);
    CHECK(status == DS_OK || status == DS_CLOSED);
    atomic_fetch_add(&f->n_done, status == DS_OK);
    return NULL;
}

static void *use_it(void *context)
{
    fight *f = context;
    ds_output out[MAX_GRAPH_OUTPUTS];
    for (int i = 0; i < 200; i++) {
        const ds_input in = {x, LENGTH, 0};
        const ds_status status = ds_stream_step(f->stream, out, &in, 0);
        CHECK(status == DS_OK || status == DS_BUSY || status == DS_CLOSED);
        if (status == DS_CLOSED)
            break;
    }
    return NULL;
}

static void *close_model(void *context)
{
    fight *f = context;
    ds_status status;
    while ((status = ds_model_close(f->model)) == DS_BUSY) {
        const struct timespec moment = {0, 1000};
        CHECK(nanosleep(&moment, NULL) == 0);
    }
    CHECK(status == DS_OK || status == DS_CLOSED);
    atomic_fetch_add(&f->n_done, status == DS_OK);
    return NULL;
}

static void *use_model(void *context)
{
    fight *f = context;
    for (int i = 0; i < 200; i++) {
        ds_stream *s = NULL;
        ds_output out[MAX_GRAPH_OUTPUTS];
        ds_model_info info = {.struct_size = sizeof info};
        const ds_input in = {x, 4, 0};
        const ds_status asked = ds_model_query(f->model, &info),
                        opened = ds_stream_open(&s, f->model);
        CHECK(asked == DS_OK || asked == DS_CLOSED);
        CHECK(opened == DS_OK || opened == DS_CLOSED);
        if (opened != DS_OK)
            return NULL;
        const ds_status stepped = ds_stream_step(s, out, &in, 0);
        CHECK(stepped == DS_OK || stepped == DS_CLOSED); /* its model may be gone by now */
    }
    return NULL;
}

TEST(closing)
{
    ds_model *model = load(&file, NULL);
    for (int round = 0; round < CLOSINGS; round++) {
        fight f = {.model = model, .stream = open_stream(model)};
        in_parallel(N_THREADS, use_it, close_it, &f, 0);
        CHECK(atomic_load(&f.n_done) == 1);
    }
    CHECK(info_of(model).n_streams == 0 && ds_model_close(model) == DS_OK);
    for (int round = 0; round < CLOSINGS; round++) {
        fight f = {.model = load(&file, NULL)};
        in_parallel(N_THREADS, use_model, close_model, &f, 0);
        CHECK(atomic_load(&f.n_done) == 1);
    }
}

/* ---------------------------------------------------------------- handles that are used after their end */

/* Streams that come and go beside some that stay; whoever reads `latest` has the handle of one that may be
 * closed by now, or may be another stream at the same address. */
typedef struct stale {
    ds_model *model;
    _Atomic(ds_stream *) latest;
    atomic_bool over;
} stale;

/* Closes one's own stream, which a stale handle may have closed before. */
static void close_own(ds_stream *s)
{
    ds_status status;
    while ((status = ds_stream_close(s)) == DS_BUSY)
        ;
    CHECK(status == DS_OK || status == DS_CLOSED);
}

static void *open_and_close(void *context)
{
    stale *f = context;
    for (int i = 0; i < REOPENINGS; i++) {
        ds_stream *s = open_stream(f->model);
        atomic_store(&f->latest, s);
        close_own(s);
    }
    atomic_store(&f->over, true);
    return NULL;
}

/* Nothing but a status that says why comes of the handle, whatever is done with it. */
static void *use_stale(void *context)
{
    stale *f = context;
    uint64_t seed = (uintptr_t)&seed;
    static _Thread_local char state[1 << 12];
    while (!atomic_load(&f->over)) {
        ds_stream *s = atomic_load(&f->latest), *fork = NULL;
        ds_output out[MAX_GRAPH_OUTPUTS];
        ds_stream_info info = {.struct_size = sizeof info};
        const ds_input in = {x, 2, 0};
        int64_t n_frames;
        size_t n;
        ds_status status = DS_OK;
        switch (s ? next_below(&seed, 12) : -1) {
        case 0:
            status = ds_stream_step(s, out, &in, 0);
            break;
        case 1:
            status = ds_stream_query(s, &info);
            break;
        case 2:
            status = ds_stream_frames(s, 0, &n_frames);
            break;
        case 3:
            status = ds_stream_reset(s);
            break;
        case 4:
            status = ds_stream_snapshot_size(s, &n);
            break;
        case 5:
            status = ds_stream_restore(s, state, sizeof state);
            CHECK(status != DS_OK);
            status = DS_OK;
            break;
        case 6:
            status = ds_stream_fork(&fork, s);
            if (status == DS_OK)
                close_own(fork);
            break;
        case 7:
            status = ds_model_step(f->model, &s, out, &in, NULL, 1);
            break;
        case -1:
            break;
        default:
            status = ds_stream_close(s);
        }
        CHECK(status == DS_OK || status == DS_CLOSED || status == DS_BUSY);
    }
    return NULL;
}

TEST(stale_handles)
{
    enum { KEPT = 20 };
    stale f = {.model = load(&file, NULL)};
    ds_stream *kept[KEPT], *idle[KEPT];
    ds_output out[MAX_GRAPH_OUTPUTS];
    size_t n = 0;
    for (int i = 0; i < KEPT; i++)
        kept[i] = open_stream(f.model);
    in_parallel(N_THREADS, use_stale, open_and_close, &f, 0);
    CHECK(ds_model_idle(f.model, 0, idle, KEPT, &n) == DS_OK && n == KEPT);
    CHECK(memcmp(idle, kept, sizeof kept) == 0 && info_of(f.model).n_streams == KEPT);
    for (int i = 0; i < KEPT; i++) {
        CHECK(step_floats(kept[i], out, x, 3, 0, 5, DS_END) == DS_OK);
        CHECK(ds_stream_close(kept[i]) == DS_OK);
    }
    CHECK(ds_model_close(f.model) == DS_OK);
}

typedef struct stale_model {
    _Atomic(ds_model *) latest;
    atomic_bool over;
} stale_model;

static void *load_and_close(void *context)
{
    stale_model *f = context;
    for (int i = 0; i < 4 * CLOSINGS; i++) {
        ds_status status;
        ds_model *m = load(&file, NULL);
        atomic_store(&f->latest, m);
        while ((status = ds_model_close(m)) == DS_BUSY)
            ;
        CHECK(status == DS_OK || status == DS_CLOSED);
    }
    atomic_store(&f->over, true);
    return NULL;
}

static void *use_stale_model(void *context)
{
    stale_model *f = context;
    uint64_t seed = (uintptr_t)&seed;
    while (!atomic_load(&f->over)) {
        ds_model *m = atomic_load(&f->latest);
        ds_stream *s = NULL;
        ds_output out[MAX_GRAPH_OUTPUTS];
        ds_model_info info = {.struct_size = sizeof info};
        ds_memory_info memory = {.struct_size = sizeof memory};
        const ds_input in = {x, 4, 0};
        size_t n;
        ds_status status = DS_OK;
        switch (m ? next_below(&seed, 5) : -1) {
        case 0:
            status = ds_model_query(m, &info);
            break;
        case 1:
            status = ds_model_memory(m, &memory);
            break;
        case 2:
            status = ds_model_idle(m, 0, NULL, 0, &n);
            break;
        case 3:
            status = ds_model_close(m);
            break;
        case 4:
            status = ds_stream_open(&s, m);
            if (status == DS_OK)
                status = ds_model_step(m, &s, out, &in, NULL, 1);
            CHECK(status != DS_ARGUMENT || strstr(ds_last_error(), "another model"));
            status = status == DS_ARGUMENT ? DS_CLOSED : status; /* a new model at that address */
            break;
        default:
            break;
        }
        CHECK(status == DS_OK || status == DS_CLOSED || status == DS_BUSY);
    }
    return NULL;
}

TEST(stale_models)
{
    stale_model f = {.latest = NULL};
    in_parallel(N_THREADS, use_stale_model, load_and_close, &f, 0);
}

/* A model is not closed, nor a stream, from within a call that is in it. */
static int close_within(void *context, const void *bytes, size_t n_bytes)
{
    fight *f = context;
    (void)bytes;
    (void)n_bytes;
    CHECK(failed(ds_model_close(f->model), DS_BUSY, "under way"));
    CHECK(ds_stream_close(f->stream) == DS_OK ||
          ds_stream_close(f->stream) == DS_CLOSED); /* that may */
    return 0;
}

TEST(within)
{
    fight f = {.model = load(&file, NULL)};
    f.stream = open_stream(f.model);
    CHECK(ds_model_save(f.model, close_within, &f) == DS_OK);
    CHECK(ds_model_close(f.model) == DS_OK);
}

int main(void)
{
    count_memory();
    file = tagger_file();
    fill_random(x, LENGTH * 3);
    run_tests();
    ds_buffer_free(&file);
    return report_memory();
}
