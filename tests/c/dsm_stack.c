/* Takes models through their lives in a thread whose stack is no larger than dreamstream.h says is enough:
 *
 *     dsm_stack BYTES FILE...
 *
 * with every backend of this machine, by one thread and by two. Exits with 1 where a call fails; a stack that is too
 * small ends in a signal. */
#include <dreamstream.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { FRAMES = 50 };

typedef struct work {
    char **files;
    int n_files;
    const char *fault;
} work;

static int keep(void *context, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    *(size_t *)context += n_bytes;
    return 0;
}

static ds_status live(ds_model *model)
{
    ds_model_info info = {.struct_size = sizeof info};
    ds_stream *stream, *fork;
    size_t n_bytes, n_saved = 0;
    DS_TRY(ds_model_query(model, &info));
    ds_input *const in = calloc(info.n_inputs, sizeof *in);
    ds_output *const out = calloc(info.n_outputs, sizeof *out);
    for (size_t i = 0; i < info.n_inputs; i++) {
        ds_port_info port = {.struct_size = sizeof port};
        DS_TRY(ds_model_input(model, i, &port));
        in[i] = (ds_input){calloc(FRAMES, port.frame_bytes), port.rate_num ? FRAMES : 1, 0};
    }
    DS_TRY(ds_stream_open(&stream, model));
    DS_TRY(ds_stream_step(stream, out, in, 0));
    DS_TRY(ds_stream_snapshot_size(stream, &n_bytes));
    void *const state = malloc(n_bytes);
    DS_TRY(ds_stream_snapshot(stream, state, n_bytes));
    DS_TRY(ds_stream_restore(stream, state, n_bytes));
    DS_TRY(ds_stream_fork(&fork, stream));
    DS_TRY(ds_stream_finish(fork, out));
    if (ds_stream_finish(fork, out) == DS_OK) /* it has ended: a message is written */
        return DS_INTERNAL;
    DS_TRY(ds_model_save(model, keep, &n_saved));
    for (size_t i = 0; i < info.n_inputs; i++)
        free((void *)(uintptr_t)in[i].data);
    free(in);
    free(out);
    free(state);
    return DS_OK;
}

static void *lives(void *context)
{
    work *const w = context;
    for (size_t b = 0; b < ds_backend_count(); b++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            for (int f = 0; f < w->n_files; f++) {
                ds_backend_info backend = {.struct_size = sizeof backend};
                ds_model_options options = DS_MODEL_OPTIONS_INIT;
                ds_model *model;
                if (ds_backend_at(&backend, b) != DS_OK || !backend.usable)
                    continue;
                options.backend = backend.name;
                options.threads = threads;
                if (ds_model_load(&model, w->files[f], &options) != DS_OK || live(model) != DS_OK ||
                    ds_model_close(model) != DS_OK) {
                    w->fault = w->files[f];
                    return NULL;
                }
            }
    return NULL;
}

int main(int n, char **arguments)
{
    work w = {arguments + 2, n - 2, NULL};
    pthread_attr_t attributes;
    pthread_t thread;
    if (n < 3 || pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, strtoul(arguments[1], NULL, 10)) != 0 ||
        pthread_create(&thread, &attributes, lives, &w) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    if (w.fault != NULL)
        (void)fprintf(stderr, "%s: a call failed\n", w.fault);
    return w.fault != NULL;
}
