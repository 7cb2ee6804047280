/*
 * A program of version 1 of the C API: compiled against tests/golden/dreamstream_1.h, a copy of its header that
 * never changes, it runs with every later library.
 *
 *     program_1 MODEL FRAMES OUT
 *
 * The model has one input; FRAMES holds a stream of it. All frames of its outputs go to OUT, one output after the
 * other, and what the library says of the model to standard output. Every function of the header is called.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dreamstream_1.h"

enum { MOST_OUTPUTS = 8, CHUNK = 7, MOST_BYTES = 1 << 20 };

/* What an output gave so far. */
typedef struct sum {
    char bytes[MOST_BYTES];
    size_t n_bytes, n_frames;
} sum;

typedef struct allocation {
    size_t n_calls, n_live;
} allocation;

static void *allocate(void *context, size_t n_bytes, size_t alignment)
{
    allocation *a = context;
    const size_t rounded = (n_bytes + alignment - 1) / alignment * alignment;
    a->n_calls++; /* one thread only */
    a->n_live++;
    return aligned_alloc(alignment, rounded);
}

static void release(void *context, void *pointer, size_t n_bytes)
{
    (void)n_bytes;
    ((allocation *)context)->n_live--;
    free(pointer);
}

static void hear(void *context, int level, const char *message)
{
    (void)level;
    *(size_t *)context += message[0] != 0;
}

static int take(void *context, const void *bytes, size_t n_bytes)
{
    sum *s = context;
    if (n_bytes > MOST_BYTES - s->n_bytes)
        return 1;
    if (n_bytes > 0)
        memcpy(s->bytes + s->n_bytes, bytes, n_bytes);
    s->n_bytes += n_bytes;
    return 0;
}

static size_t n_outputs, frame_bytes[MOST_OUTPUTS];

static int take_step(sum *sums, const ds_output *outputs)
{
    for (size_t k = 0; k < n_outputs; k++) {
        if ((size_t)outputs[k].start != sums[k].n_frames ||
            take(&sums[k], outputs[k].data, outputs[k].n_frames * frame_bytes[k]) != 0)
            return 1;
        sums[k].n_frames += outputs[k].n_frames;
    }
    return 0;
}

static ds_status describe(ds_model *model)
{
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info port = {.struct_size = sizeof port};
    ds_memory_info memory = {.struct_size = sizeof memory};
    DS_TRY(ds_model_query(model, &info));
    n_outputs = info.n_outputs;
    printf("%s: %d threads, delay %lld, field %lld, %zu layers, %zu bytes of weights, limit %zu, "
           "%zu open, %s\n",
           info.name, (int)info.threads, (long long)info.delay, (long long)info.receptive_field,
           info.n_layers, info.weights_size, info.max_streams, info.n_streams,
           info.state_size > 0 && info.state_bytes_per_frame == 0 && info.bitwise == 1 &&
                   (info.fingerprint[0] | info.fingerprint[1]) != 0 && info.backend[0] != 0
               ? "right"
               : "wrong");
    DS_TRY(ds_model_input(model, 0, &port));
    printf("input %s: type %d, rank %u, %zu bytes\n", port.name, (int)port.dtype, port.rank,
           port.frame_bytes);
    for (size_t k = 0; k < n_outputs && k < MOST_OUTPUTS; k++) {
        DS_TRY(ds_model_output(model, k, &port));
        printf("output %s: type %d, rank %u of %lld, %zu bytes, %lld/%lld, delay %lld\n", port.name,
               (int)port.dtype, port.rank, (long long)port.shape[0], port.frame_bytes,
               (long long)port.rate_num, (long long)port.rate_den, (long long)port.delay);
        frame_bytes[k] = port.frame_bytes;
    }
    DS_TRY(ds_model_memory(model, &memory));
    printf("memory: %s\n", memory.bytes > 0 && memory.peak_bytes >= memory.bytes &&
                                   memory.blocks > 0 && memory.n_allocations >= memory.blocks &&
                                   memory.mapped_bytes > 0
                               ? "right"
                               : "wrong");
    return DS_OK;
}

static ds_status list_backends(void)
{
    for (size_t i = 0; i < ds_backend_count(); i++) {
        ds_backend_info info = {.struct_size = sizeof info};
        DS_TRY(ds_backend_at(&info, i));
        if (i == 0)
            printf("backend %s: usable %d, bitwise %d\n", info.name, (int)info.usable,
                   (int)info.bitwise);
    }
    return DS_OK;
}

/* The stream in chunks: a fork goes on beside it, a snapshot is taken and restored, both give the same. */
static ds_status stream(ds_model *model, const char *frames, size_t n_frames, size_t n_bytes,
                        sum *sums)
{
    static sum forks[MOST_OUTPUTS];
    ds_stream *streams[2] = {NULL, NULL}, *idle[2];
    ds_stream_info info = {.struct_size = sizeof info};
    size_t size = 0, n_idle = 0;
    DS_TRY(ds_stream_open(&streams[0], model));
    for (size_t at = 0; at < n_frames; at += CHUNK) {
        ds_output out[2 * MOST_OUTPUTS];
        const size_t n = n_frames - at < CHUNK ? n_frames - at : CHUNK;
        const ds_input in[2] = {{frames + at * n_bytes, n, 0}, {frames + at * n_bytes, n, DS_F32}};
        const uint32_t flags[2] = {at == 0 ? DS_START : 0, 0};
        DS_TRY(ds_model_step(model, streams, out, in, flags, streams[1] != NULL ? 2 : 1));
        if (take_step(sums, out) != 0 ||
            (streams[1] != NULL && take_step(forks, out + n_outputs) != 0))
            return DS_INTERNAL;
        if (at == 0) {
            DS_TRY(ds_stream_fork(&streams[1], streams[0]));
            memcpy(forks, sums, sizeof forks);
        }
        DS_TRY(ds_stream_snapshot_size(streams[0], &size));
        void *kept = malloc(size);
        DS_TRY(ds_stream_snapshot(streams[0], kept, size));
        DS_TRY(ds_stream_reset(streams[0]));
        DS_TRY(ds_stream_restore(streams[0], kept, size));
        free(kept);
    }
    int64_t taken = 0;
    ds_output out[MOST_OUTPUTS];
    DS_TRY(ds_stream_frames(streams[0], 0, &taken));
    DS_TRY(ds_model_idle(model, 0, idle, 2, &n_idle));
    DS_TRY(ds_stream_finish(streams[0], out));
    if (take_step(sums, out) != 0)
        return DS_INTERNAL;
    const ds_input none = {NULL, 0, 0};
    DS_TRY(ds_stream_step(streams[1], out, &none, DS_END));
    if (take_step(forks, out) != 0)
        return DS_INTERNAL;
    for (size_t k = 0; k < n_outputs; k++)
        if (forks[k].n_bytes != sums[k].n_bytes ||
            memcmp(forks[k].bytes, sums[k].bytes, sums[k].n_bytes) != 0)
            return DS_INTERNAL;
    DS_TRY(ds_stream_query(streams[0], &info));
    printf("stream: %lld frames, %zu idle, begun %d, ended %d, refused %d, %s\n", (long long)taken,
           n_idle, (int)info.begun, (int)info.ended, (int)info.refused,
           info.model == model && info.idle_seconds >= 0 ? "right" : "wrong");
    DS_TRY(ds_stream_close(streams[1]));
    printf("closed: %s\n", ds_status_name(ds_stream_reset(streams[1])));
    return DS_OK;
}

#ifndef PADDING
#define PADDING 0x5a /* what padding holds */
#endif

/* The options have exactly the memory that they need. */
static ds_status load(ds_model **model, const char *path, const ds_allocator *hooks)
{
    const ds_model_options wanted = DS_MODEL_OPTIONS_INIT;
    ds_model_options *options = malloc(sizeof *options);
    memset(options, PADDING, sizeof *options);
    options->struct_size = wanted.struct_size;
    options->threads = 1;
    options->max_streams = 5;
    options->backend = wanted.backend;
    options->allocator = hooks;
    options->copy = 0;
    const ds_status status = ds_model_load(model, path, options);
    free(options);
    return status;
}

static ds_status run(const char *path, const char *frames, size_t n_bytes, sum *sums)
{
    static sum saved;
    static size_t n_heard;
    allocation counted = {0, 0};
    const ds_allocator hooks = {&counted, allocate, release};
    ds_model *model = NULL, *again = NULL;
    ds_port_info port = {.struct_size = sizeof port};
    DS_TRY(ds_set_log(hear, &n_heard));
    DS_TRY(ds_set_allocator(&hooks));
    DS_TRY(ds_set_allocator(NULL));
    DS_TRY(list_backends());
    DS_TRY(load(&model, path, &hooks));
    DS_TRY(describe(model));
    DS_TRY(ds_model_input(model, 0, &port));
    DS_TRY(stream(model, frames, n_bytes / port.frame_bytes, port.frame_bytes, sums));
    DS_TRY(ds_model_save(model, take, &saved));
    DS_TRY(ds_model_load_memory(&again, saved.bytes, saved.n_bytes, NULL));
    DS_TRY(ds_model_close(again));
    DS_TRY(ds_model_close(model));
    printf("wrong file: %s, %s\n", ds_status_name(ds_model_load_memory(&again, "x", 1, NULL)),
           ds_last_error()[0] != 0 ? "told" : "not told");
    printf("log: %s; memory: %s\n", n_heard > 0 ? "heard" : "not heard",
           counted.n_calls > 0 && counted.n_live == 0 ? "all given back" : "kept");
    return ds_set_log(NULL, NULL);
}

int main(int argc, char **argv)
{
    static char frames[MOST_BYTES];
    static sum sums[MOST_OUTPUTS];
    FILE *in = argc == 4 ? fopen(argv[2], "rb") : NULL,
         *out = argc == 4 ? fopen(argv[3], "wb") : NULL;
    if (in == NULL || out == NULL)
        return 2;
    const size_t n_bytes = fread(frames, 1, sizeof frames, in);
    fclose(in);
    printf("program of %s, binary interface %s\n", DS_VERSION_STRING,
           ds_abi_version() == DS_ABI_VERSION && ds_version()[0] != 0 ? "1" : "another");
    const ds_status status = run(argv[1], frames, n_bytes, sums);
    for (size_t k = 0; k < n_outputs; k++)
        fwrite(sums[k].bytes, 1, sums[k].n_bytes, out);
    if (fclose(out) != 0 || status != DS_OK) {
        printf("%s: %s\n", ds_status_name(status), ds_last_error());
        return 1;
    }
    return 0;
}
