/* Models: loading, saving, closing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/object.h"
#include "base/log.h"
#include "base/utf8.h"
#include "exec/backend.h"

/* ---------------------------------------------------------------- structs that grow */
ds_status ds_check_struct(const void *caller, size_t size_1, const char *name)
{
    DS_CHECK(caller, DS_ARGUMENT, "the %s is NULL", name);
    size_t struct_size;
    memcpy(&struct_size, caller, sizeof struct_size);
    DS_CHECK(struct_size >= size_1 && struct_size <= 4096, DS_ARGUMENT,
             "%s: struct_size is %zu, expected sizeof(%s)", name, struct_size, name);
    return DS_OK;
}

void ds_give_struct(void *caller, const void *filled, size_t n_bytes)
{
    size_t struct_size;
    memcpy(&struct_size, caller, sizeof struct_size);
    const size_t head = sizeof struct_size;
    const size_t known = struct_size < n_bytes ? struct_size : n_bytes;
    memcpy((char *)caller + head, (const char *)filled + head, known - head);
}

/* Options as this library knows them: what an older caller does not have is zero, the default; what a newer
 * one has beyond must be zero. */
ds_status ds_take_struct(void *taken, size_t n_known, const void *caller, size_t size_1,
                         const char *name)
{
    DS_TRY(ds_check_struct(caller, size_1, name));
    size_t n_bytes;
    memcpy(&n_bytes, caller, sizeof n_bytes);
    for (size_t i = n_known; i < n_bytes; i++)
        DS_CHECK(((const char *)caller)[i] == 0, DS_ARGUMENT,
                 "%s: byte %zu is set, which this version of the library does not know", name, i);
    memcpy(taken, caller, n_bytes < n_known ? n_bytes : n_known);
    return DS_OK;
}

ds_status ds_check_allocator(const ds_allocator *allocator, const char *name)
{
    DS_CHECK(!allocator || (allocator->allocate && allocator->release), DS_ARGUMENT,
             "%s: the allocator has no functions", name);
    return DS_OK;
}

static ds_status read_options(ds_model_options *options, const ds_model_options *caller)
{
    *options = (ds_model_options)DS_MODEL_OPTIONS_INIT;
    if (!caller)
        return DS_OK;
    DS_TRY(
        ds_take_struct(options, sizeof *options, caller, DS_MODEL_OPTIONS_1, "ds_model_options"));
    DS_CHECK(options->threads <= DS_POOL_MAX_THREADS, DS_ARGUMENT,
             "ds_model_options: threads is %u, at most %d are supported", options->threads,
             DS_POOL_MAX_THREADS);
    DS_CHECK(options->copy == 0 || options->copy == 1, DS_ARGUMENT,
             "ds_model_options: copy is %d, expected 0 or 1", (int)options->copy);
    return ds_check_allocator(options->allocator, "ds_model_options");
}

/* The environment's number of threads where the options name none. */
static ds_status count_threads(size_t *n_threads, uint32_t wanted)
{
    const char *text = getenv("DREAMSTREAM_THREADS");
    *n_threads = wanted ? wanted : 1;
    if (wanted || !text || !*text)
        return DS_OK;
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    DS_CHECK(errno == 0 && *end == 0 && n >= 1 && n <= DS_POOL_MAX_THREADS, DS_ARGUMENT,
             "DREAMSTREAM_THREADS is \"%s\", expected a number from 1 to %d", DS_SHOWN(text),
             DS_POOL_MAX_THREADS);
    *n_threads = (size_t)n;
    return DS_OK;
}

/* ---------------------------------------------------------------- loading */
static ds_status new_model(ds_model **model, const ds_allocator *chosen)
{
    const ds_allocator inner = chosen ? *chosen : ds_allocator_current();
    ds_model *m;
    DS_TRY(ds_allocate(&inner, (void **)&m, sizeof(ds_model)));
    *m = (ds_model){.handle.kind = DS_HANDLE_MODEL, .lock = PTHREAD_MUTEX_INITIALIZER};
    ds_counted_init(&m->counted, &inner);
    m->allocator = ds_counted_hooks(&m->counted);
    *model = m;
    return DS_OK;
}

/* Everything but the table of handles. */
static void release_model(ds_model *m)
{
    for (ds_stream *s = m->oldest, *newer; s; s = newer) {
        newer = s->newer;
        ds_stream_release(s);
    }
    ds_engine_destroy(m->engine);
    ds_interface_free(m->interface);
    pthread_mutex_destroy(&m->lock);
    const ds_allocator inner = m->counted.inner;
    ds_release(&inner, m, sizeof *m);
}

/* What is wrong with a graph that was read is wrong with its file. */
static ds_status of_a_file(ds_status status)
{
    const bool of_the_machine =
        status == DS_NO_MEMORY || status == DS_LIMIT || status == DS_INTERNAL;
    return status == DS_OK || of_the_machine
               ? status
               : ds_fail(DS_FORMAT, "the model can't be planned: %s", ds_last_error());
}

static ds_status fill_model(ds_model *m, ds_mapped *file, const ds_model_options *options)
{
    ds_graph *graph = NULL;
    const uint64_t most = options->max_bytes < SIZE_MAX ? options->max_bytes : SIZE_MAX;
    ds_engine_options engine = {.max_streams = options->max_streams, .max_bytes = (size_t)most};
    DS_TRY(count_threads(&engine.n_threads, options->threads));
    DS_TRY(ds_model_read(&graph, &m->interface, &m->allocator, file, false));
    DS_TRY_ELSE(ds_backend_choose(&engine.kernels, options->backend, m->interface->blas),
                ds_graph_destroy(graph));
    engine.skew = m->interface->skew;
    m->max_streams = options->max_streams;
    DS_TRY(of_a_file(ds_engine_create(&m->engine, graph, &engine)));
    if (m->interface->blas && !options->backend && ds_backend_bitwise(engine.kernels))
        ds_log(DS_LOG_WARNING, "model %s was compiled for products by OpenBLAS, which is not here",
               DS_SHOWN(m->interface->name));
    const ds_plan *plan = ds_model_plan(m);
    ds_log(DS_LOG_INFO, "model %s: %zu operators, kernels %s, %zu threads, %zu bytes per stream",
           DS_SHOWN(m->interface->name), plan->graph->n_nodes, plan->kernels->name,
           engine.n_threads, plan->block_bytes);
    return DS_OK;
}

/* Loads the file at `path`, or, where that is NULL, what lies at `bytes`. */
static ds_status open_file(ds_model *m, ds_mapped **file, const char *path, const void *bytes,
                           size_t n_bytes, bool copy)
{
    if (!path)
        return ds_mapped_copy(file, &m->allocator, bytes, n_bytes);
    if (copy)
        return ds_mapped_read(file, &m->allocator, path);
    DS_TRY(ds_mapped_open(file, &m->allocator, path));
    m->mapped_bytes = ds_mapped_size(*file);
    return DS_OK;
}

static ds_status load(ds_model **model, const char *path, const void *bytes, size_t n_bytes,
                      const ds_model_options *caller)
{
    ds_model_options options;
    DS_TRY(read_options(&options, caller));
    ds_model *m = NULL;
    ds_mapped *file = NULL;
    DS_TRY(new_model(&m, options.allocator));
    ds_status status = open_file(m, &file, path, bytes, n_bytes, options.copy == 1);
    if (status == DS_OK)
        status = fill_model(m, file, &options);
    ds_mapped_release(file); /* the graph shares it */
    DS_TRY_ELSE(status, release_model(m));
    ds_handle_add(&m->handle);
    *model = m;
    return DS_OK;
}

ds_status ds_model_load(ds_model **model, const char *path, const ds_model_options *options)
{
    DS_CHECK(model && path, DS_ARGUMENT, "ds_model_load: model or path is NULL");
    return load(model, path, NULL, 0, options);
}

ds_status ds_model_load_memory(ds_model **model, const void *bytes, size_t n_bytes,
                               const ds_model_options *options)
{
    DS_CHECK(model && bytes, DS_ARGUMENT, "ds_model_load_memory: model or bytes is NULL");
    return load(model, NULL, bytes, n_bytes, options);
}

/* ---------------------------------------------------------------- saving, closing */
typedef struct target {
    ds_write_callback write;
    void *context;
} target;

static ds_status write_to(void *context, const void *bytes, size_t n_bytes)
{
    const target *to = context;
    DS_CHECK(to->write(to->context, bytes, n_bytes) == 0, DS_LIMIT,
             "the model's bytes could not be written: the callback gave up");
    return DS_OK;
}

ds_status ds_model_save(ds_model *model, ds_write_callback write, void *context)
{
    DS_CHECK(write, DS_ARGUMENT, "ds_model_save: the callback is NULL");
    DS_TRY(ds_handle_enter_model(model));
    target to = {write, context};
    const ds_sink sink = {&to, write_to};
    const ds_plan *plan = ds_model_plan(model);
    return ds_handle_leave_parent(model,
                                  ds_model_write(&sink, plan->model, model->interface, plan));
}

ds_status ds_model_close(ds_model *model)
{
    DS_TRY(ds_handle_close_parent(DS_HANDLE_MODEL, model));
    for (ds_stream *s = model->oldest; s; s = s->newer)
        ds_handle_drop(&s->handle);
    release_model(model);
    return DS_OK;
}
