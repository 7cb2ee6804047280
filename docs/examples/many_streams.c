/*
 * many_streams.c - 32 streams on two threads, which half way move to another process.
 *
 *     cc -pthread many_streams.c -o many_streams $(python -m dreamstream.config --cflags --libs)
 *     ./many_streams MODEL.dsm SNAPSHOTS [SEED]
 *
 * The model has one input, of float32. Each thread steps its half of the streams as batches, every
 * stream with a chunk of another, random length. Half way the streams are written to the file
 * SNAPSHOTS, this process drops them, and a second one (this program again) takes them up and ends
 * them. It prints a line per stream and output: the number of frames, and a checksum of their bytes.
 * The lines are the same whatever SEED, which chooses the chunks, because chunks, batches, threads and
 * the move change nothing.
 *
 * The halves alone: ./many_streams --begin MODEL SNAPSHOTS, on one machine, and ./many_streams --resume
 * MODEL SNAPSHOTS, later or elsewhere.
 */
#define _POSIX_C_SOURCE 200809L
#include <dreamstream.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_STREAMS = 32, N_THREADS = 2, N_EACH = N_STREAMS / N_THREADS, MOST_FRAMES = 50 };

/* Says what went wrong, and is what a function that can't go on returns. */
static bool fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "many_streams: %s: %s\n", what, why);
    return false;
}

/* ---- what goes in, what comes out ----------------------------------------------------------- */

/* Spreads the bits of a number (the same for the same number). */
static uint64_t scatter(uint64_t z)
{
    z *= UINT64_C(0x9E3779B97F4A7C15);
    z ^= z >> 32;
    z *= UINT64_C(0xD6E8FEB86659FD93);
    return z ^ z >> 32;
}

/* Value `i` of stream `s`: noise between -1 and 1. A real program would read it from somewhere. */
static float sample(size_t s, uint64_t i)
{
    const uint64_t z = scatter(((uint64_t)s + 1) << 40 | i);
    return (float)(z & 0xFFFF) / 32768.0f - 1.0f;
}

static int64_t length_of(size_t s)
{
    return 400 + 37 * (int64_t)s;
}

/* What has come out of one output of one stream so far. */
typedef struct tally {
    int64_t n_frames;
    uint64_t checksum; /* FNV-1a of the bytes */
} tally;

static void count(tally *t, const void *data, size_t n_frames, size_t frame_bytes)
{
    const unsigned char *bytes = data;
    t->n_frames += (int64_t)n_frames;
    for (size_t i = 0; i < n_frames * frame_bytes; i++) {
        t->checksum = (t->checksum ^ bytes[i]) * UINT64_C(0x100000001B3);
    }
}

/* ---- all streams ---------------------------------------------------------------------------- */

typedef struct service {
    ds_model *model;
    size_t n_outputs, frame_values;   /* values of one input frame */
    size_t *frame_bytes;              /* [n_outputs] */
    ds_stream *streams[N_STREAMS];
    tally *tallies;                   /* [N_STREAMS][n_outputs] */
    bool to_the_end;                  /* else half way */
} service;

static ds_status ask_model(service *s)
{
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info port = {.struct_size = sizeof port};
    DS_TRY(ds_model_query(s->model, &info));
    DS_TRY(ds_model_input(s->model, 0, &port));
    s->n_outputs = info.n_outputs;
    s->frame_values = info.n_inputs == 1 && port.dtype == DS_F32 ? port.frame_bytes / sizeof(float) : 0;
    return DS_OK;
}

static ds_status open_streams(service *s)
{
    for (size_t k = 0; k < s->n_outputs; k++) {
        ds_port_info port = {.struct_size = sizeof port};
        DS_TRY(ds_model_output(s->model, k, &port));
        s->frame_bytes[k] = port.frame_bytes;
    }
    for (size_t i = 0; i < N_STREAMS; i++) {
        DS_TRY(ds_stream_open(&s->streams[i], s->model));
    }
    return DS_OK;
}

static bool open_service(service *s, const char *path)
{
    if (ds_model_load(&s->model, path, NULL) != DS_OK || ask_model(s) != DS_OK) {
        return fail("the model", ds_last_error());
    }
    if (s->frame_values == 0) {
        return fail(path, "expected a model with one input, of float32");
    }
    s->frame_bytes = calloc(s->n_outputs, sizeof *s->frame_bytes);
    s->tallies = calloc(N_STREAMS * s->n_outputs, sizeof *s->tallies);
    if (s->frame_bytes == NULL || s->tallies == NULL) {
        return fail(path, "no memory");
    }
    for (size_t i = 0; i < N_STREAMS * s->n_outputs; i++) {
        s->tallies[i].checksum = UINT64_C(0xCBF29CE484222325);
    }
    return open_streams(s) == DS_OK || fail("the streams", ds_last_error());
}

static bool close_service(service *s)
{
    free(s->frame_bytes);
    free(s->tallies);
    return s->model == NULL || ds_model_close(s->model) == DS_OK || fail("closing", ds_last_error());
}

/* ---- one thread ----------------------------------------------------------------------------- */

typedef struct worker {
    pthread_t thread;
    service *service;
    size_t first;            /* its streams: first, ..., first + N_EACH - 1 */
    uint64_t random;
    float *chunks;           /* [N_EACH][MOST_FRAMES][frame_values] */
    ds_output *outputs;      /* [N_EACH][n_outputs] */
    ds_status status;
    char message[512];       /* ds_last_error, which only this thread can ask for */
} worker;

/* Makes the next chunk of stream i, from where it is; `*more`: whether it still has somewhere to go. */
static ds_status next_chunk(worker *w, size_t i, float *chunk, ds_input *input, uint32_t *flags,
                            bool *more)
{
    const service *s = w->service;
    const int64_t goal = s->to_the_end ? length_of(i) : length_of(i) / 2;
    ds_stream_info info = {.struct_size = sizeof info};
    int64_t at;
    DS_TRY(ds_stream_query(s->streams[i], &info));
    DS_TRY(ds_stream_frames(s->streams[i], 0, &at));
    *more = !info.ended && (s->to_the_end || at < goal);
    if (!*more) {
        return DS_OK;
    }
    w->random = scatter(w->random + 1);
    int64_t n_frames = (int64_t)(w->random % (MOST_FRAMES + 1)); /* none at all, sometimes */
    n_frames = n_frames < goal - at ? n_frames : goal - at;
    for (size_t k = 0; k < (size_t)n_frames * s->frame_values; k++) {
        chunk[k] = sample(i, (uint64_t)at * s->frame_values + k);
    }
    *input = (ds_input){chunk, (size_t)n_frames, DS_F32};
    *flags = s->to_the_end && at + n_frames == goal ? DS_END : 0;
    return DS_OK;
}

/* Steps this thread's streams, all that are not there yet in one call, until none is left. */
static ds_status advance(worker *w)
{
    service *s = w->service;
    for (;;) {
        ds_stream *streams[N_EACH];
        ds_input inputs[N_EACH];
        uint32_t flags[N_EACH];
        size_t which[N_EACH], n = 0;
        for (size_t i = w->first; i < w->first + N_EACH; i++) {
            bool more;
            float *chunk = w->chunks + n * MOST_FRAMES * s->frame_values;
            DS_TRY(next_chunk(w, i, chunk, &inputs[n], &flags[n], &more));
            if (more) {
                which[n] = i;
                streams[n++] = s->streams[i];
            }
        }
        if (n == 0) {
            return DS_OK;
        }
        DS_TRY(ds_model_step(s->model, streams, w->outputs, inputs, flags, n));
        for (size_t i = 0; i < n * s->n_outputs; i++) {
            const size_t k = i % s->n_outputs;
            tally *t = &s->tallies[which[i / s->n_outputs] * s->n_outputs + k];
            count(t, w->outputs[i].data, w->outputs[i].n_frames, s->frame_bytes[k]);
        }
    }
}

static void *work(void *argument)
{
    worker *w = argument;
    w->status = advance(w);
    if (w->status != DS_OK) {
        (void)snprintf(w->message, sizeof w->message, "%s", ds_last_error());
    }
    return NULL;
}

/* Starts the threads and waits for them. */
static bool run_threads(service *s, uint64_t seed)
{
    worker workers[N_THREADS] = {0};
    size_t n_started = 0;
    bool good = true;
    while (good && n_started < N_THREADS) {
        worker *w = &workers[n_started];
        w->service = s;
        w->first = n_started * N_EACH;
        w->random = scatter(seed + n_started);
        w->chunks = calloc(N_EACH * MOST_FRAMES * s->frame_values, sizeof *w->chunks);
        w->outputs = calloc(N_EACH * s->n_outputs, sizeof *w->outputs);
        n_started++;
        if (w->chunks == NULL || w->outputs == NULL) {
            good = fail("a thread", "no memory");
        } else if (pthread_create(&w->thread, NULL, work, w) != 0) {
            good = fail("a thread", "it can't be started");
        }
    }
    for (size_t i = 0; i < n_started; i++) {
        const bool runs = good || i + 1 < n_started; /* the last of those may have failed to start */
        if (runs && (pthread_join(workers[i].thread, NULL) != 0 || workers[i].status != DS_OK)) {
            good = fail("a thread", workers[i].message);
        }
        free(workers[i].chunks);
        free(workers[i].outputs);
    }
    return good;
}

/* ---- moving --------------------------------------------------------------------------------- */

/* Writes the number of bytes of the stream's snapshot, those, and its tallies. */
static bool write_stream(const service *s, size_t i, FILE *file)
{
    size_t n_bytes;
    if (ds_stream_snapshot_size(s->streams[i], &n_bytes) != DS_OK) {
        return fail("a snapshot", ds_last_error());
    }
    unsigned char *bytes = malloc(n_bytes);
    if (bytes == NULL) {
        return fail("a snapshot", "no memory");
    }
    bool good = true;
    if (ds_stream_snapshot(s->streams[i], bytes, n_bytes) != DS_OK) {
        good = fail("a snapshot", ds_last_error());
    } else if (fwrite(&n_bytes, sizeof n_bytes, 1, file) != 1 ||
               fwrite(bytes, 1, n_bytes, file) != n_bytes ||
               fwrite(&s->tallies[i * s->n_outputs], sizeof(tally), s->n_outputs, file) != s->n_outputs) {
        good = fail("the snapshots", "they can't be written");
    }
    free(bytes);
    return good;
}

static bool save_streams(const service *s, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return fail(path, "it can't be written");
    }
    bool good = true;
    for (size_t i = 0; good && i < N_STREAMS; i++) {
        good = write_stream(s, i, file);
    }
    return (fclose(file) == 0 || fail(path, "it can't be written")) && good;
}

static bool read_stream(const service *s, size_t i, FILE *file)
{
    size_t n_bytes;
    if (fread(&n_bytes, sizeof n_bytes, 1, file) != 1) {
        return fail("the snapshots", "there are too few");
    }
    unsigned char *bytes = malloc(n_bytes);
    if (bytes == NULL) {
        return fail("the snapshots", "no memory");
    }
    bool good = fread(bytes, 1, n_bytes, file) == n_bytes &&
                fread(&s->tallies[i * s->n_outputs], sizeof(tally), s->n_outputs, file) == s->n_outputs;
    if (!good) {
        (void)fail("the snapshots", "they end too early");
    } else if (ds_stream_restore(s->streams[i], bytes, n_bytes) != DS_OK) {
        good = fail("a snapshot", ds_last_error());
    }
    free(bytes);
    return good;
}

static bool load_streams(const service *s, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return fail(path, "it can't be opened");
    }
    bool good = true;
    for (size_t i = 0; good && i < N_STREAMS; i++) {
        good = read_stream(s, i, file);
    }
    (void)fclose(file);
    return good;
}

/* ---- the two halves ------------------------------------------------------------------------- */

static bool begin(const char *model, const char *snapshots, uint64_t seed)
{
    service s = {0};
    const bool good = open_service(&s, model) && run_threads(&s, seed) && save_streams(&s, snapshots);
    return close_service(&s) && good;
}

static bool print_tallies(const service *s)
{
    for (size_t i = 0; i < N_STREAMS; i++) {
        for (size_t k = 0; k < s->n_outputs; k++) {
            const tally *t = &s->tallies[i * s->n_outputs + k];
            printf("stream %zu output %zu: %" PRId64 " frames, checksum %016" PRIx64 "\n", i, k,
                   t->n_frames, t->checksum);
        }
    }
    return (fflush(stdout) == 0 && !ferror(stdout)) || fail("standard output", "it takes no more");
}

static bool resume(const char *model, const char *snapshots, uint64_t seed)
{
    service s = {.to_the_end = true};
    const bool good = open_service(&s, model) && load_streams(&s, snapshots) &&
                      run_threads(&s, seed) && print_tallies(&s);
    return close_service(&s) && good;
}

/* The second half in a process of its own, which has nothing from this one but the file. */
static bool resume_elsewhere(const char *program, const char *model, const char *snapshots)
{
    const pid_t child = fork();
    if (child == 0) {
        execlp(program, program, "--resume", model, snapshots, (char *)NULL);
        (void)fail(program, "it can't be run again");
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return fail("the second process", "it can't be started");
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    const char *program = argv[0];
    const bool only_begin = argc > 1 && strcmp(argv[1], "--begin") == 0;
    const bool only_resume = argc > 1 && strcmp(argv[1], "--resume") == 0;
    if (only_begin || only_resume) {
        argv++;
        argc--;
    }
    if (argc < 3 || argc > 4) {
        (void)fprintf(stderr, "usage: %s [--begin | --resume] MODEL.dsm SNAPSHOTS [SEED]\n", program);
        return 2;
    }
    const uint64_t seed = argc == 4 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
    if (only_resume) {
        return resume(argv[1], argv[2], seed) ? 0 : 1;
    }
    return begin(argv[1], argv[2], seed) &&
                   (only_begin || resume_elsewhere(program, argv[1], argv[2]))
               ? 0
               : 1;
}
