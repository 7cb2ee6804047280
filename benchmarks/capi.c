/* benchmarks/capi.c: times of steps by the C API; capi.py builds it, runs it and makes the table.
 *
 *     capi MODEL IN OUT STREAMS FRAMES WALL
 *
 * Steps STREAMS streams at once by chunks of FRAMES frames, always those of the file IN
 * ([streams][frames][frame...]); the model has one input. The first step's outputs are written to OUT, per
 * stream and output. Then, for each line of standard input, a number of steps, as many times are printed in
 * one line: nanoseconds of CPU time of the thread, or (WALL is 1) of the clock on the wall. */
#define _POSIX_C_SOURCE 200809L
#include <dreamstream.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void die(const char *what)
{
    (void)fprintf(stderr, "capi: %s\n", what);
    exit(1);
}

static void check(ds_status status)
{
    if (status != DS_OK) {
        die(ds_last_error());
    }
}

static void *zeros(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p == NULL) {
        die("out of memory");
    }
    return p;
}

static long long now(clockid_t id)
{
    struct timespec t;
    if (clock_gettime(id, &t) != 0) {
        die("there is no such clock");
    }
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void read_inputs(const char *path, void *data, size_t n_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(data, 1, n_bytes, file) != n_bytes || fclose(file) != 0) {
        die("the inputs can't be read");
    }
}

static void write_outputs(const char *path, ds_model *model, const ds_output *outputs, size_t n,
                          size_t n_outputs)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        die("the outputs can't be written");
    }
    for (size_t i = 0; i < n * n_outputs; i++) {
        ds_port_info port = {.struct_size = sizeof port};
        check(ds_model_output(model, i % n_outputs, &port));
        (void)fwrite(outputs[i].data, port.frame_bytes, outputs[i].n_frames, file);
    }
    if (ferror(file) || fclose(file) != 0) {
        die("the outputs can't be written");
    }
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        die("usage: capi MODEL IN OUT STREAMS FRAMES WALL");
    }
    const size_t n = strtoul(argv[4], NULL, 10), n_frames = strtoul(argv[5], NULL, 10);
    const clockid_t clock = argv[6][0] == '1' ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    ds_model *model = NULL;
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info port = {.struct_size = sizeof port};
    check(ds_model_load(&model, argv[1], NULL));
    check(ds_model_query(model, &info));
    check(ds_model_input(model, 0, &port));
    if (info.n_inputs != 1) {
        die("expected a model with one input");
    }
    ds_stream **streams = zeros(n, sizeof *streams);
    ds_input *inputs = zeros(n, sizeof *inputs);
    ds_output *outputs = zeros(n * info.n_outputs, sizeof *outputs);
    char *data = zeros(n * n_frames, port.frame_bytes);
    read_inputs(argv[2], data, n * n_frames * port.frame_bytes);
    for (size_t i = 0; i < n; i++) {
        check(ds_stream_open(&streams[i], model));
        inputs[i] = (ds_input){data + i * n_frames * port.frame_bytes, n_frames, 0};
    }
    check(ds_model_step(model, streams, outputs, inputs, NULL, n));
    write_outputs(argv[3], model, outputs, n, info.n_outputs);

    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL) {
        for (long left = strtol(line, NULL, 10); left > 0; left--) {
            const long long begin = now(clock);
            check(ds_model_step(model, streams, outputs, inputs, NULL, n));
            printf("%lld ", now(clock) - begin);
        }
        printf("\n");
        (void)fflush(stdout);
    }
    check(ds_model_close(model));
    free(streams);
    free(inputs);
    free(outputs);
    free(data);
    return 0;
}
