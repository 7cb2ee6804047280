/*
 * inspect_model.c - what a model file takes and gives, what can run it, and what that costs.
 *
 *     cc inspect_model.c -o inspect_model $(python -m dreamstream.config --cflags --libs)
 *     ./inspect_model MODEL.dsm [BACKEND]
 *
 * All memory comes from an allocator of this program, which counts it; the library's messages are
 * printed. Ends with an error if a byte is not given back.
 */
#include <dreamstream.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static bool fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "inspect_model: %s: %s\n", what, why);
    return false;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Bytes in use. Both functions may be called from several threads at once. */
typedef struct budget {
    atomic_size_t used;
} budget;

static void *take(void *context, size_t n_bytes, size_t alignment)
{
    budget *b = context;
    const size_t rounded = (n_bytes + alignment - 1) / alignment * alignment; /* aligned_alloc's rule */
    void *memory = rounded < n_bytes ? NULL : aligned_alloc(alignment, rounded);
    if (memory != NULL) {
        atomic_fetch_add(&b->used, n_bytes);
    }
    return memory;
}

static void give(void *context, void *pointer, size_t n_bytes)
{
    budget *b = context;
    atomic_fetch_sub(&b->used, n_bytes);
    free(pointer);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void print_message(void *context, int level, const char *message)
{
    (void)context;
    (void)fprintf(stderr, "%s: %s\n", level >= DS_LOG_WARNING ? "warning" : "note", message);
}

/* ---- what there is -------------------------------------------------------------------------- */

static ds_status print_backends(void)
{
    for (size_t i = 0; i < ds_backend_count(); i++) {
        ds_backend_info b = {.struct_size = sizeof b};
        DS_TRY(ds_backend_at(&b, i));
        printf("backend %s: %s, %s\n", b.name, b.usable ? "usable" : "not on this machine",
               b.bitwise ? "the same bits always" : "bits depend on batch and chunks");
    }
    return DS_OK;
}

static const char *dtype_name(ds_dtype dtype)
{
    switch (dtype) {
    case DS_F32: return "float32";
    case DS_F64: return "float64";
    case DS_I64: return "int64";
    case DS_BOOL: return "bool";
    case DS_I16: return "int16";
    }
    return "unknown"; /* to this program: the library may be newer */
}

static void print_port(const char *what, const ds_port_info *port)
{
    printf("%s %s: %s[frames]", what, port->name, dtype_name(port->dtype));
    for (uint32_t axis = 0; axis < port->rank; axis++) {
        printf("[%" PRId64 "]", port->shape[axis]);
    }
    if (port->rate_num == 0) {
        printf(", one frame at the end\n");
    } else {
        printf(", %" PRId64 "/%" PRId64 " frames per second, %" PRId64 " frames of input 0 late\n",
               port->rate_num, port->rate_den, port->delay);
    }
}

static ds_status print_model(ds_model *model)
{
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info port = {.struct_size = sizeof port};
    DS_TRY(ds_model_query(model, &info));
    printf("model %s on %s, %u thread(s)\n", info.name, info.backend, (unsigned)info.threads);
    for (size_t i = 0; i < info.n_inputs; i++) {
        DS_TRY(ds_model_input(model, i, &port));
        print_port("input", &port);
    }
    for (size_t i = 0; i < info.n_outputs; i++) {
        DS_TRY(ds_model_output(model, i, &port));
        print_port("output", &port);
    }
    printf("weights: %zu bytes, and %zu as the kernels want them\n", info.weights_size,
           info.prepared_size);
    printf("a stream remembers %zu bytes\n", info.state_size);
    return DS_OK;
}

/* What a thousand streams cost. */
static ds_status print_memory(ds_model *model)
{
    ds_memory_info before = {.struct_size = sizeof before};
    ds_memory_info after = {.struct_size = sizeof after};
    DS_TRY(ds_model_memory(model, &before));
    for (int i = 0; i < 1000; i++) {
        ds_stream *stream; /* closed with the model */
        DS_TRY(ds_stream_open(&stream, model));
    }
    DS_TRY(ds_model_memory(model, &after));
    printf("memory: %zu bytes, %zu mapped; %zu more for 1000 streams\n", before.bytes,
           before.mapped_bytes, after.bytes - before.bytes);
    return DS_OK;
}

static ds_status inspect(ds_model **model, const char *path, const char *backend,
                         const ds_allocator *allocator)
{
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.backend = backend;
    options.allocator = allocator;
    DS_TRY(print_backends());
    DS_TRY(ds_model_load(model, path, &options));
    DS_TRY(print_model(*model));
    return print_memory(*model);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        (void)fprintf(stderr, "usage: %s MODEL.dsm [BACKEND]\n", argv[0]);
        return 2;
    }
    budget counted = {0};
    const ds_allocator allocator = {&counted, take, give};
    ds_model *model = NULL;
    ds_set_log(print_message, NULL);
    printf("library %s, header %s\n", ds_version(), DS_VERSION_STRING);

    const ds_status status = inspect(&model, argv[1], argc == 3 ? argv[2] : NULL, &allocator);
    bool good = status == DS_OK || fail(ds_status_name(status), ds_last_error());
    if (model != NULL && ds_model_close(model) != DS_OK) {
        good = fail("closing", ds_last_error());
    }
    if (atomic_load(&counted.used) != 0) {
        good = fail("memory", "not all was given back");
    }
    return good && fflush(stdout) == 0 ? 0 : 1;
}
