/* The public API: versions and numbers, models from memory and from files, options, queries, backends,
 * saving, closing. */
#define _POSIX_C_SOURCE 200809L
#include "api/object.h"
#include "api_driver.h"

#include <unistd.h>

static ds_buffer file; /* of the tagger */

/* ---------------------------------------------------------------- numbers that are pinned */

#define PINNED(name, number) _Static_assert((name) == (number), #name)
PINNED(DS_OK, 0);
PINNED(DS_SHAPE, 1);
PINNED(DS_DTYPE, 2);
PINNED(DS_FORMAT, 3);
PINNED(DS_STREAM_ID, 4);
PINNED(DS_MISMATCH, 5);
PINNED(DS_NOT_STREAMABLE, 6);
PINNED(DS_BUSY, 7);
PINNED(DS_LIMIT, 8);
PINNED(DS_MODE, 9);
PINNED(DS_CLOSED, 10);
PINNED(DS_NO_MEMORY, 11);
PINNED(DS_CAPTURE, 12);
PINNED(DS_INTERNAL, 13);
PINNED(DS_ARGUMENT, 14);
PINNED(DS_INDEX, 15);
PINNED(DS_F32, 1);
PINNED(DS_F64, 2);
PINNED(DS_I64, 3);
PINNED(DS_BOOL, 4);
PINNED(DS_I16, 5);
PINNED(DS_LOG_DEBUG, 1);
PINNED(DS_LOG_INFO, 2);
PINNED(DS_LOG_WARNING, 3);
PINNED(DS_START, 1);
PINNED(DS_END, 2);
PINNED(DS_ABI_VERSION, 1);

TEST(names)
{
    static const char *const names[] = {
        "DS_OK",       "DS_SHAPE",          "DS_DTYPE",   "DS_FORMAT",   "DS_STREAM_ID",
        "DS_MISMATCH", "DS_NOT_STREAMABLE", "DS_BUSY",    "DS_LIMIT",    "DS_MODE",
        "DS_CLOSED",   "DS_NO_MEMORY",      "DS_CAPTURE", "DS_INTERNAL", "DS_ARGUMENT",
        "DS_INDEX",    "DS_UNKNOWN"};
    for (int i = 0; i < 17; i++)
        CHECK(strcmp(ds_status_name((ds_status)i), names[i]) == 0);
    CHECK(strcmp(ds_status_name((ds_status)-1), "DS_UNKNOWN") == 0);
    CHECK(ds_abi_version() == DS_ABI_VERSION && strcmp(ds_version(), DS_VERSION_STRING) == 0);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", DS_VERSION_MAJOR, DS_VERSION_MINOR,
             DS_VERSION_PATCH);
    CHECK(strcmp(version, DS_VERSION_STRING) == 0);
    CHECK(strcmp(ds_last_error(), "") == 0); /* nothing has failed yet */
}

/* ---------------------------------------------------------------- structs that grow */

typedef ds_status query(ds_model *model, void *info);

static ds_status query_model(ds_model *model, void *info)
{
    return ds_model_query(model, info);
}

static ds_status query_memory(ds_model *model, void *info)
{
    return ds_model_memory(model, info);
}

static ds_status query_input(ds_model *model, void *info)
{
    return ds_model_input(model, 0, info);
}

static ds_status query_output(ds_model *model, void *info)
{
    return ds_model_output(model, 2, info);
}

static ds_status query_backend(ds_model *model, void *info)
{
    (void)model;
    return ds_backend_at(info, 0);
}

static ds_stream *queried;

static ds_status query_stream(ds_model *model, void *info)
{
    (void)model;
    return ds_stream_query(queried, info);
}

/* A struct of n_bytes that had `first` in version 1, from a caller that has less of it, as much, or more. */
static void check_growing(ds_model *model, query *ask, size_t first, size_t n_bytes)
{
    enum { ROOM = 8192 };
    unsigned char *info = fresh_memory(ROOM);
    const size_t sizes[] = {0,           1,       sizeof(size_t), first - 1, first, first + 1,
                            n_bytes - 1, n_bytes, n_bytes + 1,    4096,      4097,  SIZE_MAX};
    CHECK(failed(ask(model, NULL), DS_ARGUMENT, "is NULL"));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(info, 0xab, ROOM);
        memcpy(info, &sizes[i], sizeof sizes[i]);
        if (sizes[i] < first || sizes[i] > 4096) {
            CHECK(failed(ask(model, info), DS_ARGUMENT, "struct_size"));
            for (size_t k = sizeof(size_t); k < ROOM; k++)
                CHECK(info[k] == 0xab);
            continue;
        }
        CHECK(ask(model, info) == DS_OK);
        CHECK(memcmp(info, &sizes[i], sizeof sizes[i]) == 0);
        for (size_t k = sizes[i] < n_bytes ? sizes[i] : n_bytes; k < ROOM; k++)
            CHECK(info[k] == 0xab);
    }
    free(info);
}

TEST(growing)
{
    ds_model *model = load(&file, NULL);
    queried = open_stream(model);
    check_growing(model, query_model, DS_MODEL_INFO_1, sizeof(ds_model_info));
    check_growing(model, query_memory, DS_MEMORY_INFO_1, sizeof(ds_memory_info));
    check_growing(model, query_input, DS_PORT_INFO_1, sizeof(ds_port_info));
    check_growing(model, query_output, DS_PORT_INFO_1, sizeof(ds_port_info));
    check_growing(model, query_backend, DS_BACKEND_INFO_1, sizeof(ds_backend_info));
    check_growing(model, query_stream, DS_STREAM_INFO_1, sizeof(ds_stream_info));
    CHECK(ds_model_close(model) == DS_OK);
}

/* ---------------------------------------------------------------- loading */

static ds_status try_options(const ds_model_options *options)
{
    ds_model *const never = (ds_model *)(void *)&file;
    ds_model *model = never;
    const ds_status status = ds_model_load_memory(&model, file.bytes, file.n_bytes, options);
    CHECK((status == DS_OK) == (model != never));
    if (status == DS_OK)
        CHECK(ds_model_close(model) == DS_OK);
    return status;
}

TEST(options)
{
    struct {
        ds_model_options options;
        char more[64];
    } newer = {.options = DS_MODEL_OPTIONS_INIT};
    ds_model_options *o = &newer.options;
    CHECK(try_options(NULL) == DS_OK && try_options(o) == DS_OK);
    o->struct_size = sizeof newer;
    CHECK(try_options(o) == DS_OK);
    newer.more[63] = 1;
    char where[32];
    snprintf(where, sizeof where, "byte %zu is set", sizeof newer - 1);
    CHECK(failed(try_options(o), DS_ARGUMENT, where));
    o->struct_size = 0;
    CHECK(failed(try_options(o), DS_ARGUMENT, "ds_model_options: struct_size is 0"));
    o->struct_size = DS_MODEL_OPTIONS_1 - 1;
    CHECK(failed(try_options(o), DS_ARGUMENT, "struct_size"));
    *o = (ds_model_options)DS_MODEL_OPTIONS_INIT;
    o->threads = 1025;
    CHECK(failed(try_options(o), DS_ARGUMENT, "threads is 1025, at most 1024"));
    o->threads = 2;
    o->copy = 2;
    CHECK(failed(try_options(o), DS_ARGUMENT, "copy is 2"));
    o->copy = 0;
    o->max_bytes = 100;
    CHECK(failed(try_options(o), DS_LIMIT, "at most 100 are allowed, unless max_bytes"));
    o->struct_size = DS_MODEL_OPTIONS_1; /* of a caller who has no such member */
    CHECK(try_options(o) == DS_OK);
    o->struct_size = sizeof *o;
    o->max_bytes = UINT64_MAX;
    CHECK(try_options(o) == DS_OK);
    o->backend = "x86_v9";
    CHECK(failed(try_options(o), DS_ARGUMENT, "backend \"x86_v9\" is not built in"));
    o->backend = NULL;
    ds_allocator half = hooks;
    half.release = NULL;
    o->allocator = &half;
    CHECK(failed(try_options(o), DS_ARGUMENT, "allocator"));
    CHECK(failed(ds_set_allocator(&half), DS_ARGUMENT, ""));
    half = hooks;
    half.allocate = NULL;
    CHECK(failed(try_options(o), DS_ARGUMENT, "allocator"));
    CHECK(failed(ds_set_allocator(&half), DS_ARGUMENT, ""));
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

TEST(environment)
{
    CHECK(setenv("DREAMSTREAM_THREADS", "3", 1) == 0);
    ds_model *model = load(&file, NULL);
    CHECK(info_of(model).threads == 3 && ds_model_close(model) == DS_OK);
    model = load_with(&file, NULL, 2);
    CHECK(info_of(model).threads == 2 && ds_model_close(model) == DS_OK);
    CHECK(setenv("DREAMSTREAM_THREADS", "many", 1) == 0);
    CHECK(failed(try_options(NULL), DS_ARGUMENT, "DREAMSTREAM_THREADS is \"many\""));
    CHECK(unsetenv("DREAMSTREAM_THREADS") == 0);
    CHECK(setenv("DREAMSTREAM_ISA", "ref", 1) == 0);
    model = load(&file, NULL);
    CHECK(strcmp(info_of(model).backend, "ref") == 0 && ds_model_close(model) == DS_OK);
    CHECK(setenv("DREAMSTREAM_ISA", "abacus", 1) == 0);
    CHECK(failed(try_options(NULL), DS_ARGUMENT, "DREAMSTREAM_ISA"));
    model = load_with(&file, "ref", 1); /* forced: the environment has no say */
    CHECK(ds_model_close(model) == DS_OK);
    CHECK(unsetenv("DREAMSTREAM_ISA") == 0);
}

TEST(load_errors)
{
    ds_model *model = NULL;
    CHECK(failed(ds_model_load(NULL, "x", NULL), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_load(&model, NULL, NULL), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_load_memory(NULL, file.bytes, file.n_bytes, NULL), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_load_memory(&model, NULL, 0, NULL), DS_ARGUMENT, "NULL"));
    CHECK(
        failed(ds_model_load(&model, "/no/such/model.dsm", NULL), DS_FORMAT, "/no/such/model.dsm"));
    CHECK(failed(ds_model_load(&model, "", NULL), DS_FORMAT, ""));
    CHECK(failed(ds_model_load(&model, "/", NULL), DS_FORMAT, ""));
    CHECK(failed(ds_model_load_memory(&model, file.bytes, file.n_bytes - 1, NULL), DS_FORMAT,
                 "expected"));
    CHECK(model == NULL);
}

/* The same file by every way gives the same bits. */
TEST(ways_to_load)
{
    char path[] = "/tmp/ds_test_api_XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, file.bytes, file.n_bytes) == (ssize_t)file.n_bytes &&
          close(fd) == 0);
    float x[20 * 3];
    fill_random(x, 60);
    ds_model *memory = load(&file, NULL), *mapped = NULL, *copied = NULL;
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.copy = 1;
    CHECK(ds_model_load(&mapped, path, NULL) == DS_OK);
    CHECK(ds_model_load(&copied, path, &options) == DS_OK);
    CHECK(memory_of(memory).mapped_bytes == 0 && memory_of(copied).mapped_bytes == 0);
    CHECK(memory_of(mapped).mapped_bytes == file.n_bytes);
    CHECK(memory_of(copied).bytes <= memory_of(mapped).bytes + file.n_bytes);
    CHECK(unlink(path) == 0); /* what is mapped stays */
    taken a = whole_of(memory, x, 3, 20), b = whole_of(mapped, x, 3, 20),
          c = whole_of(copied, x, 3, 20);
    CHECK(same_taken(memory, &a, &b) && same_taken(memory, &a, &c));
    free_taken(&a);
    free_taken(&b);
    free_taken(&c);
    CHECK(ds_model_close(memory) == DS_OK && ds_model_close(mapped) == DS_OK);
    CHECK(ds_model_close(copied) == DS_OK);
}

/* ---------------------------------------------------------------- what models say of themselves */

static void check_port(const ds_port_info *p, const char *name, uint32_t rank, int64_t num,
                       int64_t den, int64_t delay)
{
    CHECK(strcmp(p->name, name) == 0 && p->dtype == DS_F32 && p->rank == rank && p->shape[0] == 3);
    CHECK(p->frame_bytes == 12 && p->rate_num == num && p->rate_den == den && p->delay == delay);
}

TEST(query)
{
    ds_model *model = load(&file, NULL);
    const ds_model_info info = info_of(model);
    CHECK(strcmp(info.name, "Tëst") == 0 && info.bitwise == 1 && info.threads == 1);
    CHECK(info.n_inputs == 1 && info.n_outputs == 3 && info.delay == -1 &&
          info.receptive_field == -1);
    CHECK(info.state_size > 0 && info.state_bytes_per_frame == 0.0 && info.n_layers >= 5);
    CHECK(info.weights_size > 0 && info.weights_size < file.n_bytes);
    CHECK(info.max_streams == 0 && info.n_streams == 0 &&
          (info.fingerprint[0] | info.fingerprint[1]) != 0);
    ds_port_info input = {.struct_size = sizeof input};
    CHECK(ds_model_input(model, 0, &input) == DS_OK);
    check_port(&input, "x0", 1, 1, 1, 0);
    const ds_port_info first = output_of(model, 0), second = output_of(model, 1),
                       mean = output_of(model, 2);
    check_port(&first, "y0", 1, 1, 2, 4); /* 2 of the residual, 2 of its window */
    check_port(&second, "y1", 1, 1, 1, 2);
    check_port(&mean, "y2", 1, 0, 1, -1);
    CHECK(failed(ds_model_input(model, 1, &input), DS_ARGUMENT, "input 1: the model has 1"));
    CHECK(failed(ds_model_output(model, 3, &input), DS_ARGUMENT, "output 3: the model has 3"));
    CHECK(failed(ds_model_output(model, SIZE_MAX, &input), DS_ARGUMENT, "the model has 3"));
    check_port(&input, "x0", 1, 1, 1, 0);
    ds_stream *a = open_stream(model), *b = open_stream(model);
    CHECK(info_of(model).n_streams == 2 && ds_stream_close(a) == DS_OK &&
          info_of(model).n_streams == 1);
    CHECK(ds_stream_close(b) == DS_OK && ds_model_close(model) == DS_OK);
}

/* Every usable backend, forced, gives the bits of "ref", unless it says that it doesn't. */
static void remember(void *context, int level, const char *message)
{
    char *log = context;
    const size_t n = strlen(log);
    snprintf(log + n, 1000 - n, "%d %s\n", level, message);
}

TEST(log)
{
    char log[1000] = "";
    CHECK(ds_set_log(remember, log) == DS_OK);
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.backend = "ref";
    options.threads = 2;
    CHECK(ds_model_close(load(&file, &options)) == DS_OK);
    CHECK(strncmp(log, "2 model ", 8) == 0 && strstr(log, "kernels ref, 2 threads") != NULL);
    CHECK(strchr(log, '\n') == log + strlen(log) - 1); /* one message */
    CHECK(ds_set_log(NULL, NULL) == DS_OK);
}

TEST(backends)
{
    float x[40 * 3];
    fill_random(x, 120);
    ds_model *ref = load_with(&file, "ref", 1);
    taken want = whole_of(ref, x, 3, 40);
    size_t n_usable = 0;
    CHECK(ds_backend_count() > 0);
    for (size_t i = 0; i < ds_backend_count(); i++) {
        ds_backend_info info = {.struct_size = sizeof info};
        CHECK(ds_backend_at(&info, i) == DS_OK);
        CHECK(i > 0 || (strcmp(info.name, "ref") == 0 && info.usable == 1));
        CHECK((info.bitwise == 1) == (strchr(info.name, '+') == NULL));
        ds_model_options options = DS_MODEL_OPTIONS_INIT;
        options.backend = info.name;
        if (!info.usable) {
            CHECK(failed(try_options(&options), DS_MODE, info.name));
            continue;
        }
        n_usable++;
        ds_model *model = load(&file, &options);
        CHECK(strcmp(info_of(model).backend, info.name) == 0 &&
              info_of(model).bitwise == info.bitwise);
        CHECK(memcmp(info_of(model).fingerprint, info_of(ref).fingerprint, 16) == 0);
        taken got = whole_of(model, x, 3, 40);
        CHECK(!info.bitwise || same_taken(ref, &want, &got));
        free_taken(&got);
        CHECK(ds_model_close(model) == DS_OK);
    }
    ds_backend_info info = {.struct_size = sizeof info};
    CHECK(n_usable > 0);
    CHECK(failed(ds_backend_at(&info, ds_backend_count()), DS_ARGUMENT, "no backend"));
    free_taken(&want);
    CHECK(ds_model_close(ref) == DS_OK);
}

/* ---------------------------------------------------------------- saving */

typedef struct saved {
    ds_model *model;
    ds_buffer bytes;
    size_t n_calls, gives_up_at;
} saved;

static int save_to(void *context, const void *bytes, size_t n_bytes)
{
    saved *s = context;
    s->n_calls++;
    CHECK(failed(ds_model_close(s->model), DS_BUSY, "under way")); /* it is being saved */
    return s->n_calls == s->gives_up_at || ds_buffer_append(&s->bytes, bytes, n_bytes) != DS_OK;
}

TEST(save)
{
    ds_model *model = load_counted(&file);
    saved s = {.model = model};
    ds_buffer_init(&s.bytes, NULL);
    CHECK(failed(ds_model_save(model, NULL, &s), DS_ARGUMENT, "callback"));
    CHECK(failed(ds_model_save(NULL, save_to, &s), DS_ARGUMENT, "NULL"));
    CHECK(ds_model_save(model, save_to, &s) == DS_OK);
    CHECK(s.bytes.n_bytes == file.n_bytes && memcmp(s.bytes.bytes, file.bytes, file.n_bytes) == 0);
    const size_t n_calls = s.n_calls, n_live = ds_fault_live_blocks(&fault);
    for (s.gives_up_at = 1; s.gives_up_at <= n_calls; s.gives_up_at++) {
        s.n_calls = 0;
        CHECK(failed(ds_model_save(model, save_to, &s), DS_LIMIT, "gave up"));
        CHECK(s.n_calls == s.gives_up_at && ds_fault_live_blocks(&fault) == n_live);
    }
    ds_buffer_free(&s.bytes);
    CHECK(ds_model_close(model) == DS_OK);
    CHECK(failed(ds_model_save(model, save_to, &s), DS_CLOSED, "closed"));
}

/* ---------------------------------------------------------------- closed, or never there */

/* Every function of a model, for a pointer that is none. */
static void check_no_model(ds_model *m, ds_status want)
{
    ds_model_info info = {.struct_size = sizeof info};
    ds_memory_info memory = {.struct_size = sizeof memory};
    ds_port_info port = {.struct_size = sizeof port};
    ds_stream *s = NULL, *other = NULL;
    ds_output out[3];
    const ds_input in = {0};
    size_t n = 99;
    CHECK(failed(ds_model_query(m, &info), want, "model"));
    CHECK(failed(ds_model_memory(m, &memory), want, "model"));
    CHECK(failed(ds_model_input(m, 0, &port), want, "model"));
    CHECK(failed(ds_model_output(m, 0, &port), want, "model"));
    CHECK(failed(ds_stream_open(&s, m), want, "model"));
    CHECK(failed(ds_model_idle(m, 0, &other, 1, &n), want, "model"));
    CHECK(failed(ds_model_step(m, &s, out, &in, NULL, 0), want, "model"));
    CHECK(failed(ds_model_step(m, &s, out, &in, NULL, 1), want, "model"));
    CHECK(failed(ds_model_save(m, save_to, NULL), want, "model"));
    CHECK(failed(ds_model_close(m), want, "model"));
    CHECK(s == NULL && n == 99);
}

/* Every function of a stream, likewise. */
static void check_no_stream(ds_stream *s, ds_status want)
{
    ds_stream_info info = {.struct_size = sizeof info};
    ds_stream *fork = NULL;
    ds_output out[3];
    const ds_input in = {0};
    char bytes[8] = {0};
    int64_t frames = 99;
    size_t n = 99;
    CHECK(failed(ds_stream_query(s, &info), want, "stream"));
    CHECK(failed(ds_stream_frames(s, 0, &frames), want, "stream"));
    CHECK(failed(ds_stream_step(s, out, &in, 0), want, "stream"));
    CHECK(failed(ds_stream_finish(s, out), want, "stream"));
    CHECK(failed(ds_stream_reset(s), want, "stream"));
    CHECK(failed(ds_stream_fork(&fork, s), want, "stream"));
    CHECK(failed(ds_stream_snapshot_size(s, &n), want, "stream"));
    CHECK(failed(ds_stream_snapshot(s, bytes, sizeof bytes), want, "stream"));
    CHECK(failed(ds_stream_restore(s, bytes, sizeof bytes), want, "stream"));
    CHECK(failed(ds_stream_close(s), want, "stream"));
    CHECK(fork == NULL && frames == 99 && n == 99);
}

TEST(closed)
{
    ds_model *model = load(&file, NULL), *other = load(&file, NULL);
    ds_stream *left = open_stream(model), *closed = open_stream(model), *alive = open_stream(other);
    int nothing = 0;
    check_no_model(NULL, DS_ARGUMENT);
    check_no_stream(NULL, DS_ARGUMENT);
    check_no_model((ds_model *)(void *)&nothing, DS_CLOSED);
    check_no_stream((ds_stream *)(void *)&nothing, DS_CLOSED);
    check_no_model((ds_model *)(void *)alive, DS_CLOSED); /* a stream is no model */
    check_no_stream((ds_stream *)(void *)model, DS_CLOSED);
    CHECK(ds_stream_close(closed) == DS_OK);
    check_no_stream(closed, DS_CLOSED);
    CHECK(ds_model_close(model) == DS_OK);
    check_no_model(model, DS_CLOSED);
    check_no_stream(left, DS_CLOSED); /* went with its model */
    check_no_stream(closed, DS_CLOSED);
    CHECK(ds_stream_close(alive) == DS_OK && ds_model_close(other) == DS_OK);
    check_no_model(other, DS_CLOSED);
}

/* Many objects, closed in any order. */
TEST(many)
{
    enum { MANY = 3000 };
    static ds_stream *streams[MANY];
    ds_model *models[3];
    for (int m = 0; m < 3; m++)
        models[m] = load_counted(&file);
    for (int i = 0; i < MANY; i++)
        streams[i] = open_stream(models[i % 3]);
    for (int n = MANY; n > MANY / 10; n--) {
        const int64_t i = random_below(n);
        CHECK(stream_info_of(streams[i]).begun == 0);
        CHECK(ds_stream_close(streams[i]) == DS_OK);
        CHECK(failed(ds_stream_close(streams[i]), DS_CLOSED, "closed"));
        streams[i] = streams[n - 1];
    }
    for (int i = 0; i < MANY / 10; i++)
        CHECK(ds_stream_reset(streams[i]) == DS_OK);
    for (int m = 0; m < 3; m++)
        CHECK(ds_model_close(models[m]) == DS_OK);
    for (int i = 0; i < MANY / 10; i++)
        CHECK(failed(ds_stream_reset(streams[i]), DS_CLOSED, "closed"));
}

int main(void)
{
    count_memory();
    file = tagger_file();
    run_tests();
    ds_buffer_free(&file);
    return report_memory();
}
