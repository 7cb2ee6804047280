/* benchmarks/overhead.c: times of steps with all operators' forwards, and with none; overhead.py builds it,
 * runs it and makes the table.
 *
 *     overhead MODEL STREAMS FRAMES SECONDS
 *
 * Loads MODEL twice. In one of the two every operator of the plan gets a copy of its definition whose forward
 * does nothing: the step is ds_model_step with all its integers, checks, windows and kept frames, but nothing
 * computes. Both step STREAMS streams by FRAMES frames of zeros, with one thread, and take turns. Prints, one a
 * line: the number of operators that run, the bytes that memcpy and memmove moved in one step that computes
 * nothing, the bytes of the chunks and of the outputs, and two lines of samples, nanoseconds of the thread's CPU
 * time per step: with forwards, and without.
 *
 * Linked with --wrap, so that copies are counted; the compiler does copies of few, constant bytes in place, and
 * these are not. Forwards copy too (a slice is nothing else), but there are none when they are counted. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/object.h"

enum { TURN = 3, MAX_SAMPLES = 100000 };

void *__real_memcpy(void *to, const void *from, size_t n_bytes);
void *__real_memmove(void *to, const void *from, size_t n_bytes);
void *__wrap_memcpy(void *to, const void *from, size_t n_bytes);
void *__wrap_memmove(void *to, const void *from, size_t n_bytes);

static size_t n_moved, n_skipped;

void *__wrap_memcpy(void *to, const void *from, size_t n_bytes)
{
    n_moved += n_bytes;
    return __real_memcpy(to, from, n_bytes);
}

void *__wrap_memmove(void *to, const void *from, size_t n_bytes)
{
    n_moved += n_bytes;
    return __real_memmove(to, from, n_bytes);
}

static void skip_forward(const ds_op *op, const ds_run *run)
{
    (void)op;
    (void)run;
    n_skipped++;
}

static void die(const char *what)
{
    (void)fprintf(stderr, "overhead: %s\n", what);
    exit(1);
}

static void check(ds_status status)
{
    if (status != DS_OK)
        die(ds_last_error());
}

static void *zeros(size_t n, size_t size)
{
    void *const p = calloc(n ? n : 1, size);
    if (p == NULL)
        die("out of memory");
    return p;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

typedef struct side {
    ds_model *model;
    ds_stream **streams;
    ds_output *outputs;
} side;

static side open_side(const char *path, size_t n, size_t n_outputs)
{
    side s = {NULL, zeros(n, sizeof *s.streams), zeros(n * n_outputs, sizeof *s.outputs)};
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.threads = 1;
    check(ds_model_load(&s.model, path, &options));
    for (size_t i = 0; i < n; i++)
        check(ds_stream_open(&s.streams[i], s.model));
    return s;
}

/* Takes the forwards out; the definitions are the plan's own copies from then on. */
static void skip_forwards(const ds_model *model)
{
    const ds_graph *const graph = ds_model_plan(model)->graph;
    for (size_t j = 0; j < graph->n_nodes; j++) {
        ds_op_def *const def = zeros(1, sizeof *def);
        *def = *graph->nodes[j].op->def;
        def->forward = skip_forward;
        graph->nodes[j].op->def = def;
    }
}

static double step(const side *s, const ds_input *inputs, size_t n)
{
    const double begin = now();
    check(ds_model_step(s->model, s->streams, s->outputs, inputs, NULL, n));
    return now() - begin;
}

static void print_samples(const double *samples, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)printf("%.0f ", samples[i]);
    (void)printf("\n");
}

int main(int argc, char **argv)
{
    static double samples[2][MAX_SAMPLES];
    if (argc != 5)
        die("usage: overhead MODEL STREAMS FRAMES SECONDS");
    const size_t n = strtoul(argv[2], NULL, 10), n_frames = strtoul(argv[3], NULL, 10);
    const double seconds = strtod(argv[4], NULL);
    ds_model *asked = NULL;
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info port = {.struct_size = sizeof port};
    check(ds_model_load(&asked, argv[1], NULL));
    check(ds_model_query(asked, &info));
    check(ds_model_input(asked, 0, &port));
    if (info.n_inputs != 1 || n == 0)
        die("expected a model with one input, and a stream");
    const side sides[2] = {open_side(argv[1], n, info.n_outputs),
                           open_side(argv[1], n, info.n_outputs)};
    skip_forwards(sides[1].model);

    ds_input *const inputs = zeros(n, sizeof *inputs);
    void *const chunk = zeros(n_frames, port.frame_bytes);
    for (size_t i = 0; i < n; i++)
        inputs[i] = (ds_input){chunk, n_frames, 0};
    const double begin = now();
    /* until all that is kept is there, all room is made */
    for (int i = 0; i < 300 && now() - begin < 4e9; i++)
        for (int k = 0; k < 2; k++)
            (void)step(&sides[k], inputs, n);

    enum { STEPS = 16 }; /* what is moved now and then counts by its share */
    n_skipped = n_moved = 0;
    for (int i = 0; i < STEPS; i++)
        (void)step(&sides[1], inputs, n);
    size_t out_bytes = 0;
    for (size_t k = 0; k < n * info.n_outputs; k++) {
        check(ds_model_output(asked, k % info.n_outputs, &port));
        out_bytes += sides[1].outputs[k].n_frames * port.frame_bytes;
    }
    check(ds_model_input(asked, 0, &port));
    if (n_skipped == 0)
        die("no forward was left out: the executor no longer calls op->def->forward");
    (void)printf("%.2f\n%.1f\n%zu\n%zu\n", (double)n_skipped / STEPS, (double)n_moved / STEPS,
                 n * n_frames * port.frame_bytes, out_bytes);

    size_t n_samples = 0;
    double spent = 0;
    while ((spent < seconds * 1e9 || n_samples == 0) && n_samples + TURN <= MAX_SAMPLES) {
        for (int s = 0; s < 2; s++) {
            (void)step(&sides[s], inputs, n); /* what the other left in the caches */
            for (size_t i = 0; i < TURN; i++)
                spent += samples[s][n_samples + i] = step(&sides[s], inputs, n);
        }
        n_samples += TURN;
    }
    print_samples(samples[0], n_samples);
    print_samples(samples[1], n_samples);
    return 0; /* the models' definitions are gone with the process */
}
