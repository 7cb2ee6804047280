/* The public API: what streams remember. Reset, fork, snapshots moved between models and backends, damaged
 * ones, the limit of streams, idle ones, the n-th allocation of every call. */
#define _POSIX_C_SOURCE 200809L
#include "api_driver.h"

#include <time.h>

enum { LENGTH = 60, MIDDLE = 23, MANY = 600 };

static ds_buffer file; /* of the tagger */
static float x[MANY * 3];

/* ---------------------------------------------------------------- going back, going apart */

static void test_reset(void)
{
    ds_model *model = load(&file, NULL);
    taken want = whole_of(model, x, 3, LENGTH);
    ds_stream *s = open_stream(model);
    for (size_t n = 0; n < 12; n++) {
        taken got = {{NULL}, {0}}, lost = got;
        feed(model, s, &lost, x, 3, 0, n, n % 2 == 0 ? 0 : DS_END);
        CHECK(ds_stream_reset(s) == DS_OK);
        feed(model, s, &got, x, 3, 0, LENGTH, DS_END);
        CHECK(same_taken(model, &got, &want));
        CHECK(ds_stream_reset(s) == DS_OK);
        free_taken(&got);
        free_taken(&lost);
    }
    free_taken(&want);
    CHECK(ds_model_close(model) == DS_OK);
}

static void copy_taken(ds_model *model, taken *to, const taken *from)
{
    *to = *from;
    for (size_t o = 0; o < info_of(model).n_outputs; o++) {
        const size_t n = from->n[o] * output_of(model, o).frame_bytes;
        to->data[o] = fresh_memory(n);
        if (n > 0)
            memcpy(to->data[o], from->data[o], n);
    }
}

static void test_fork(const ds_buffer *of, size_t width)
{
    ds_model *model = load_counted(of);
    float y[LENGTH * 3];
    memcpy(y, x, sizeof y);
    for (size_t i = MIDDLE * width; i < LENGTH * width; i++)
        y[i] = -x[i];
    taken want_x = whole_of(model, x, width, LENGTH), want_y = whole_of(model, y, width, LENGTH);
    taken got_x = {{NULL}, {0}}, got_y;
    ds_stream *s = open_stream(model), *fork = NULL, *never = NULL;
    feed(model, s, &got_x, x, width, 0, MIDDLE, 0);
    CHECK(failed(ds_stream_fork(NULL, s), DS_ARGUMENT, "NULL"));
    CHECK(ds_stream_fork(&fork, s) == DS_OK && stream_info_of(fork).begun == 1);
    CHECK(stream_info_of(fork).model == model);
    copy_taken(model, &got_y, &got_x);
    feed(model, s, &got_x, x, width, MIDDLE, LENGTH,
         DS_END); /* the one ends before the other goes on */
    feed(model, fork, &got_y, y, width, MIDDLE, LENGTH, DS_END);
    CHECK(same_taken(model, &got_x, &want_x) && same_taken(model, &got_y, &want_y));
    CHECK(ds_stream_fork(&never, s) == DS_OK && stream_info_of(never).ended == 1);
    ds_output out[MAX_GRAPH_OUTPUTS];
    CHECK(failed(ds_stream_finish(never, out), DS_STREAM_ID, "has ended"));
    free_taken(&want_x);
    free_taken(&want_y);
    free_taken(&got_x);
    free_taken(&got_y);
    CHECK(ds_model_close(model) == DS_OK);
}

/* ---------------------------------------------------------------- snapshots */

/* Taken in one model, restored in another load of it, with another backend, after every number of frames. */
static void test_moving(const ds_buffer *of, size_t width, size_t length)
{
    ds_model *models[] = {load_with(of, "ref", 1), load_with(of, NULL, 2)};
    taken want = whole_of(models[0], x, width, length);
    for (size_t at = 0; at <= length; at++) {
        taken got = {{NULL}, {0}};
        ds_stream *from = open_stream(models[at % 2]), *to = open_stream(models[1 - at % 2]);
        feed(models[0], from, &got, x, width, 0, at, 0);
        if (at % 3 == 0) { /* whatever was there is gone */
            taken lost = {{NULL}, {0}};
            feed(models[0], to, &lost, x, width, 0, length < 7 ? length : 7,
                 at % 2 == 0 ? 0 : DS_END);
            free_taken(&lost);
        }
        size_t n = 0;
        char *state = snapshot_of(from, &n);
        CHECK(ds_stream_restore(to, state, n) == DS_OK);
        CHECK(same_state(to, state, n) && stream_info_of(to).begun == (at > 0));
        int64_t frames = -1;
        CHECK(ds_stream_frames(to, 0, &frames) == DS_OK && frames == (int64_t)at);
        free(state);
        CHECK(ds_stream_close(from) == DS_OK);
        feed(models[0], to, &got, x, width, at, length, DS_END);
        CHECK(same_taken(models[0], &got, &want));
        CHECK(ds_stream_close(to) == DS_OK);
        free_taken(&got);
    }
    free_taken(&want);
    CHECK(ds_model_close(models[0]) == DS_OK && ds_model_close(models[1]) == DS_OK);
}

static void test_snapshot_arguments(void)
{
    ds_model *model = load(&file, NULL);
    ds_stream *s = open_stream(model);
    ds_output out[3];
    size_t n = 0;
    CHECK(step_floats(s, out, x, 3, 0, 11, 0) == DS_OK);
    char *state = snapshot_of(s, &n), *more = fresh_memory(n + 1);
    CHECK(failed(ds_stream_snapshot_size(s, NULL), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_stream_snapshot(s, NULL, n), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_stream_restore(s, NULL, 0), DS_ARGUMENT, "NULL"));
    char words[64];
    snprintf(words, sizeof words, "takes %zu bytes", n);
    memset(more, 0x55, n + 1);
    CHECK(failed(ds_stream_snapshot(s, more, n + 1), DS_ARGUMENT, words));
    CHECK(failed(ds_stream_snapshot(s, more, n - 1), DS_ARGUMENT, words));
    CHECK(failed(ds_stream_snapshot(s, more, 0), DS_ARGUMENT, words));
    for (size_t i = 0; i <= n; i++)
        CHECK(more[i] == 0x55);
    CHECK(ds_stream_finish(s, out) == DS_OK);
    CHECK(failed(ds_stream_snapshot_size(s, &n), DS_STREAM_ID, "has ended"));
    CHECK(failed(ds_stream_snapshot(s, state, n), DS_STREAM_ID, "has ended"));
    CHECK(ds_stream_restore(s, state, n) == DS_OK &&
          stream_info_of(s).ended == 0); /* back from the end */
    CHECK(same_state(s, state, n));
    free(state);
    free(more);
    CHECK(ds_model_close(model) == DS_OK);
}

/* Bytes that are no snapshot of this model leave the stream as it was. */
static void test_damaged(void)
{
    ds_model *model = load_counted(&file);
    ds_stream *s = open_stream(model), *later = open_stream(model);
    ds_output out[3];
    CHECK(step_floats(s, out, x, 3, 0, 9, 0) == DS_OK &&
          step_floats(later, out, x, 3, 0, 30, 0) == DS_OK);
    size_t n_was = 0, n = 0;
    char *was = snapshot_of(s, &n_was), *state = snapshot_of(later, &n);
    const size_t n_live = ds_fault_live_blocks(&fault);
    for (size_t i = 0; i < n; i++) {
        const char byte = state[i];
        CHECK(failed(ds_stream_restore(s, state, i), DS_FORMAT, "snapshot")); /* cut short */
        state[i] = (char)(byte ^ (1 << random_below(8)));
        CHECK(failed(ds_stream_restore(s, state, n), DS_FORMAT, "snapshot"));
        CHECK(same_state(s, was, n_was) && stream_info_of(s).begun == 1);
        state[i] = byte;
    }
    CHECK(ds_fault_live_blocks(&fault) == n_live);
    CHECK(ds_stream_restore(s, state, n) == DS_OK && same_state(s, state, n));
    free(was);
    free(state);
    CHECK(ds_model_close(model) == DS_OK);
}

/* ---------------------------------------------------------------- how many, and how long idle */

static void test_limit(void)
{
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.max_streams = 2;
    ds_model *model = load(&file, &options);
    ds_stream *a = open_stream(model), *b = open_stream(model), *c = NULL;
    ds_output out[3];
    CHECK(info_of(model).max_streams == 2);
    CHECK(failed(ds_stream_open(NULL, model), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_stream_open(&c, model), DS_LIMIT, "2 streams are open"));
    CHECK(failed(ds_stream_fork(&c, a), DS_LIMIT, "2 streams are open"));
    CHECK(c == NULL && info_of(model).n_streams == 2);
    size_t n = 0;
    CHECK(step_floats(a, out, x, 3, 0, 11, 0) == DS_OK);
    char *state = snapshot_of(a, &n);
    CHECK(ds_stream_restore(b, state, n) == DS_OK); /* takes no place of its own */
    free(state);
    CHECK(ds_stream_finish(a, out) == DS_OK);
    CHECK(failed(ds_stream_open(&c, model), DS_LIMIT, "")); /* ended is not closed */
    CHECK(ds_stream_close(a) == DS_OK && ds_stream_open(&c, model) == DS_OK);
    CHECK(ds_model_close(model) == DS_OK);
}

static void test_idle(void)
{
    ds_model *model = load(&file, NULL);
    ds_stream *s[4], *found[6] = {NULL};
    ds_output out[6];
    size_t n = 99;
    CHECK(ds_model_idle(model, 0, found, 6, &n) == DS_OK && n == 0);
    for (int i = 0; i < 4; i++)
        s[i] = open_stream(model);
    CHECK(failed(ds_model_idle(model, 0, found, 6, NULL), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_idle(model, 0, NULL, 1, &n), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_idle(model, -1, found, 6, &n), DS_ARGUMENT, "seconds is -1"));
    CHECK(failed(ds_model_idle(model, 0.0 / (double)(n == 99 ? 0 : n), found, 6, &n), DS_ARGUMENT,
                 "nan"));
    CHECK(n == 0);
    CHECK(step_floats(s[1], out, x, 3, 0, 2, 0) == DS_OK);
    ds_stream *both[] = {s[3], s[0]};
    const ds_input in[] = {{x, 1, 0}, {x, 1, 0}};
    CHECK(ds_model_step(model, both, out, in, NULL, 2) == DS_OK);
    CHECK(ds_model_idle(model, 0, found, 6, &n) == DS_OK && n == 4);
    CHECK(found[0] == s[2] && found[1] == s[1] && found[2] == s[3] && found[3] == s[0]);
    found[2] = NULL;
    CHECK(ds_model_idle(model, 0, found, 2, &n) == DS_OK && n == 4 && found[2] == NULL);
    CHECK(ds_model_idle(model, 0, NULL, 0, &n) == DS_OK && n == 4);
    CHECK(ds_model_idle(model, 1e300, found, 6, &n) == DS_OK && n == 0);
    const struct timespec while_ago = {0, 30 * 1000 * 1000};
    CHECK(nanosleep(&while_ago, NULL) == 0);
    CHECK(stream_info_of(s[2]).idle_seconds >= 0.03);
    do { /* until nothing held us up */
        CHECK(step_floats(s[2], out, x, 3, 0, 2, 0) == DS_OK);
        CHECK(failed(step_floats(s[1], out, x, 3, 0, 2, 8), DS_ARGUMENT, "")); /* was no step */
        CHECK(ds_model_idle(model, 0.03, found, 6, &n) == DS_OK);
    } while (stream_info_of(s[2]).idle_seconds >= 0.03);
    CHECK(n == 3 && found[0] == s[1]);
    CHECK(ds_stream_close(s[1]) == DS_OK);
    CHECK(ds_model_idle(model, 0.03, found, 6, &n) == DS_OK && n >= 2 && found[0] == s[3] &&
          found[1] == s[0]);
    CHECK(ds_model_close(model) == DS_OK);
}

/* ---------------------------------------------------------------- the n-th allocation fails */

static int swallow(void *context, const void *bytes, size_t n_bytes)
{
    (void)context;
    (void)bytes;
    return n_bytes > SIZE_MAX / 2;
}

/* What a call may need memory for. */
typedef struct scene {
    const ds_buffer *file;
    ds_model *model;
    ds_stream *stream, *other;
    char *state; /* of another stream, of n_state bytes */
    size_t n_state;
    ds_output out[2 * MAX_GRAPH_OUTPUTS];
    ds_model *loaded;
    ds_stream *opened;
} scene;

static ds_status do_load(scene *s)
{
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.allocator = &hooks;
    options.threads = 2;
    return ds_model_load_memory(&s->loaded, s->file->bytes, s->file->n_bytes, &options);
}

static ds_status do_load_globally(scene *s)
{
    CHECK(ds_set_allocator(&hooks) == DS_OK);
    const ds_status status =
        ds_model_load_memory(&s->loaded, s->file->bytes, s->file->n_bytes, NULL);
    CHECK(ds_set_allocator(NULL) == DS_OK);
    return status;
}

static ds_status do_open(scene *s)
{
    return ds_stream_open(&s->opened, s->model);
}

static ds_status do_fork(scene *s)
{
    return ds_stream_fork(&s->opened, s->stream);
}

static ds_status do_step(scene *s)
{
    const ds_input in = {x, MANY, 0};
    return ds_stream_step(s->stream, s->out, &in, 0);
}

static ds_status do_batch(scene *s)
{
    ds_stream *both[] = {s->other, s->stream};
    const ds_input in[] = {{x, 3, 0}, {x, MANY, 0}};
    return ds_model_step(s->model, both, s->out, in, NULL, 2);
}

static ds_status do_finish(scene *s)
{
    return ds_stream_finish(s->stream, s->out);
}

static ds_status do_size(scene *s)
{
    size_t n = 0;
    return ds_stream_snapshot_size(s->stream, &n);
}

static ds_status do_snapshot(scene *s)
{
    size_t n = 0;
    ds_fault_allocator own = fault; /* asking for the size is no part of it */
    ds_fault_disarm(&fault);
    CHECK(ds_stream_snapshot_size(s->stream, &n) == DS_OK);
    ds_fault_arm(&fault, atomic_load(&own.countdown), atomic_load(&own.persistent));
    char *bytes = fresh_memory(n);
    const ds_status status = ds_stream_snapshot(s->stream, bytes, n);
    free(bytes);
    return status;
}

static ds_status do_restore(scene *s)
{
    return ds_stream_restore(s->stream, s->state, s->n_state);
}

static ds_status do_save(scene *s)
{
    return ds_model_save(s->model, swallow, NULL);
}

static ds_status do_rest(scene *s) /* takes no memory, so can't fail for it */
{
    (void)info_of(s->model);
    (void)memory_of(s->model);
    (void)output_of(s->model, 0);
    (void)stream_info_of(s->stream);
    size_t n;
    int64_t frames;
    CHECK(ds_model_idle(s->model, 0, NULL, 0, &n) == DS_OK);
    CHECK(ds_stream_frames(s->stream, 0, &frames) == DS_OK);
    CHECK(ds_stream_reset(s->other) == DS_OK);
    CHECK(ds_stream_close(s->other) == DS_OK);
    return DS_OK;
}

static scene make_scene(const ds_buffer *of, size_t width)
{
    scene s = {.file = of, .model = load_counted(of)};
    s.stream = open_stream(s.model);
    s.other = open_stream(s.model);
    ds_stream *third = open_stream(s.model);
    CHECK(step_floats(s.stream, s.out, x, width, 0, 4, 0) == DS_OK);
    CHECK(step_floats(third, s.out, x, width, 0, 7, 0) == DS_OK);
    s.state =
        snapshot_of(third, &s.n_state); /* stays open: a new stream has no block to take over */
    return s;
}

/* Lets the 1st, 2nd, ... allocation of the call fail, once or all that follow, until it needs no more: each
 * failure leaves everything as it was. */
static void check_nth(const ds_buffer *of, size_t width, ds_status (*call)(scene *), size_t least)
{
    for (int persistent = 0; persistent < 2; persistent++) {
        for (size_t nth = 1;; nth++) {
            scene s = make_scene(of, width);
            size_t n_was = 0;
            char *was = snapshot_of(s.stream, &n_was);
            const size_t n_live = ds_fault_live_blocks(&fault), n_open = info_of(s.model).n_streams;
            ds_fault_arm(&fault, nth, persistent == 1);
            const size_t n_failures = ds_fault_failures(&fault);
            const ds_status status = call(&s);
            const bool was_hit = ds_fault_failures(&fault) > n_failures;
            ds_fault_disarm(&fault);
            CHECK(status == (was_hit ? DS_NO_MEMORY : DS_OK));
            if (was_hit) {
                CHECK(s.loaded == NULL && s.opened == NULL && info_of(s.model).n_streams == n_open);
                CHECK(same_state(s.stream, was, n_was));
                CHECK(stream_info_of(s.stream).refused == 0 && stream_info_of(s.stream).ended == 0);
                CHECK(call == do_step || call == do_batch || call == do_finish ||
                      call == do_restore || call == do_fork ||
                      ds_fault_live_blocks(&fault) == n_live); /* those may keep room */
                CHECK(call(&s) == DS_OK);                      /* and now it works */
            }
            free(was);
            free(s.state);
            if (s.loaded != NULL)
                CHECK(ds_model_close(s.loaded) == DS_OK);
            CHECK(ds_model_close(s.model) == DS_OK);
            CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
            if (!was_hit) {
                CHECK(nth > least);
                break;
            }
        }
    }
}

static void test_failures(const ds_buffer *of, size_t width, size_t least_of_finish)
{
    check_nth(of, width, do_load, 20);
    check_nth(of, width, do_load_globally, 20);
    check_nth(of, width, do_open, 2);
    check_nth(of, width, do_fork, 2);
    check_nth(of, width, do_step, 1);
    check_nth(of, width, do_batch, 1);
    check_nth(of, width, do_finish, least_of_finish);
    check_nth(of, width, do_size, 1);
    check_nth(of, width, do_snapshot, 1);
    check_nth(of, width, do_restore, 1);
    check_nth(of, width, do_save, 5);
    check_nth(of, width, do_rest, 0);
}

int main(void)
{
    count_memory();
    fill_random(x, MANY * 3);
    file = tagger_file();
    ds_buffer samples = samples_file();
    graph_case c = new_case(); /* waits for the end: its state grows */
    add_output(&c, add_padded_conv(&c, add_input(&c, 2, 1, 1), 2, 3, 1, 1, 1, 1, "circular"));
    ds_buffer grows = take_graph(&c, 0);
    test_reset();
    test_fork(&file, 3);
    test_fork(&grows, 2);
    test_moving(&file, 3, LENGTH);
    test_moving(&samples, 1, LENGTH);
    test_moving(&grows, 2, LENGTH);
    test_snapshot_arguments();
    test_damaged();
    test_limit();
    test_idle();
    test_failures(&file, 3, 0);
    test_failures(&grows, 2, 1);
    ds_buffer_free(&file);
    ds_buffer_free(&samples);
    ds_buffer_free(&grows);
    return report_memory();
}
