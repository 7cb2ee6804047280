/*
 * Reads a model file, as a C program would:
 *
 *     model_tool copy IN.dsm OUT.dsm         writes what it holds again
 *     model_tool run IN.dsm FRAMES OUT       one stream in calls of 7 frames: FRAMES holds the only input's
 *                                            frames, OUT gets each output's frames, one output after the other
 *
 * Numbers in FRAMES and OUT are as in memory, frames with their features in the graph's order. Ends with 1 and
 * the message on standard output if something is refused.
 */
#include <stdio.h>
#include <string.h>

#include "buffer_sink.h"
#include "model/model.h"
#include "step_rows.h"

static ds_status save(const ds_buffer *out, const char *path)
{
    FILE *file = fopen(path, "wb");
    DS_CHECK(file != NULL && fwrite(out->bytes, 1, out->n_bytes, file) == out->n_bytes &&
                 fclose(file) == 0,
             DS_LIMIT, "can't write %s", path);
    return DS_OK;
}

static ds_status copy(const ds_graph *graph, const ds_interface *interface, const char *path)
{
    ds_buffer out;
    ds_buffer_init(&out, NULL);
    const ds_sink sink = buffer_sink(&out);
    ds_status status = ds_model_write(&sink, graph, interface, NULL);
    if (status == DS_OK)
        status = save(&out, path);
    ds_buffer_free(&out);
    return status;
}

/* Steps [first, first + n) of `frames` and appends what comes to outputs[o]. */
static ds_status step(ds_step *batch, ds_slot *slot, const ds_plan *plan, const char *frames,
                      int64_t n, bool ended, ds_buffer *outputs)
{
    const ds_graph *g = plan->graph;
    bool bad = false;
    DS_TRY(begin_rows(batch, &slot, &n, &ended, &bad, 1));
    if (n > 0) {
        const size_t n_bytes = ds_signature_bytes(&g->edges[g->inputs[0]].signature);
        memcpy(ds_step_room(batch, 0, 0), frames, (size_t)n * n_bytes);
    }
    DS_TRY(ds_step_check(batch));
    ds_step_run(batch);
    for (size_t o = 0; o < g->n_outputs; o++) {
        int64_t start;
        const int64_t m = ds_step_frames(batch, o, 0, &start);
        const size_t n_bytes = ds_signature_bytes(&g->edges[g->outputs[o]].signature);
        if (m > 0)
            DS_TRY(ds_buffer_append(&outputs[o], ds_step_values(batch, o, 0), (size_t)m * n_bytes));
    }
    return DS_OK;
}

static ds_status stream(const ds_plan *plan, const ds_mapped *frames, ds_buffer *outputs)
{
    ds_session *session = NULL;
    ds_step *batch = NULL;
    ds_slot *slot = NULL;
    const ds_graph *g = plan->graph;
    const size_t frame = ds_signature_bytes(&g->edges[g->inputs[0]].signature);
    const int64_t length = (int64_t)(ds_mapped_size(frames) / frame);
    ds_status status = ds_session_create(&session, plan, 0);
    status = status == DS_OK ? ds_step_create(&batch, plan, NULL) : status;
    status = status == DS_OK ? ds_session_open(session, &slot, 0) : status;
    for (int64_t at = 0; status == DS_OK && at <= length; at += 7) {
        const int64_t n = length - at < 7 ? length - at : 7;
        status = step(batch, slot, plan, (const char *)ds_mapped_bytes(frames) + (size_t)at * frame,
                      n, n < 7, outputs);
    }
    ds_step_destroy(batch);
    ds_session_destroy(session);
    return status;
}

/* Takes the graph. */
static ds_status run(ds_graph *graph, const ds_interface *interface, const char *frames,
                     const char *path)
{
    enum { MOST_OUTPUTS = 16 };
    ds_plan *plan = NULL;
    ds_mapped *mapped = NULL;
    ds_buffer outputs[MOST_OUTPUTS];
    const size_t n_outputs = graph->n_outputs;
    for (size_t o = 0; o < MOST_OUTPUTS; o++)
        ds_buffer_init(&outputs[o], NULL);
    ds_status status =
        ds_plan_create(&plan, graph, ds_kernels_for(ds_cpu_best()), interface->skew, 0);
    status = status == DS_OK ? ds_mapped_open(&mapped, NULL, frames) : status;
    if (status == DS_OK && (plan->graph->n_inputs != 1 || n_outputs > MOST_OUTPUTS)) {
        status = ds_fail(DS_ARGUMENT, "run takes models of one input and at most %d outputs",
                         MOST_OUTPUTS);
    }
    status = status == DS_OK ? stream(plan, mapped, outputs) : status;
    for (size_t o = 1; o < n_outputs && status == DS_OK; o++)
        status = ds_buffer_append(&outputs[0], outputs[o].bytes, outputs[o].n_bytes);
    status = status == DS_OK ? save(&outputs[0], path) : status;
    for (size_t o = 0; o < MOST_OUTPUTS; o++)
        ds_buffer_free(&outputs[o]);
    ds_mapped_release(mapped);
    ds_plan_destroy(plan);
    return status;
}

int main(int argc, char **argv)
{
    const bool runs = argc == 5 && strcmp(argv[1], "run") == 0;
    if (!runs && !(argc == 4 && strcmp(argv[1], "copy") == 0))
        return 2;
    ds_mapped *in = NULL;
    ds_graph *graph = NULL;
    ds_interface *interface = NULL;
    ds_status status = ds_mapped_open(&in, NULL, argv[2]);
    status = status == DS_OK ? ds_model_read(&graph, &interface, NULL, in, false) : status;
    if (status == DS_OK && runs) {
        status = run(graph, interface, argv[3], argv[4]);
    } else if (status == DS_OK) {
        status = copy(graph, interface, argv[3]);
        ds_graph_destroy(graph);
    }
    ds_interface_free(interface);
    ds_mapped_release(in);
    if (status != DS_OK)
        printf("%s: %s\n", ds_status_name(status), ds_last_error());
    return status == DS_OK ? 0 : 1;
}
