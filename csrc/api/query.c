/* What models, streams, backends and the library say of themselves. */
#include "api/object.h"
#include "base/now.h"
#include "exec/backend.h"

uint32_t ds_abi_version(void)
{
    return DS_ABI_VERSION;
}

const char *ds_version(void)
{
    return DS_VERSION_STRING;
}

size_t ds_backend_count(void)
{
    return ds_backends();
}

ds_status ds_backend_at(ds_backend_info *info, size_t index)
{
    DS_TRY(ds_check_struct(info, DS_BACKEND_INFO_1, "ds_backend_info"));
    DS_CHECK(index < ds_backends(), DS_ARGUMENT, "there is no backend %zu, but %zu", index,
             ds_backends());
    const ds_kernels *kernels = ds_backend(index);
    const ds_backend_info filled = {0, kernels->name, ds_backend_usable(kernels),
                                    ds_backend_bitwise(kernels)};
    ds_give_struct(info, &filled, sizeof filled);
    return DS_OK;
}

/* ---------------------------------------------------------------- models */
/* Frames, or -1 for infinite. */
static int64_t bound(int64_t frames)
{
    return frames == DS_NEVER ? -1 : frames;
}

static int64_t largest(const int64_t *frames, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = frames[i] > most ? frames[i] : most; /* DS_NEVER is above all */
    return bound(most);
}

static ds_model_info describe(const ds_model *m)
{
    const ds_plan *p = ds_model_plan(m);
    return (ds_model_info){
        .name = m->interface->name,
        .backend = p->kernels->name,
        .bitwise = ds_backend_bitwise(p->kernels),
        .threads = (uint32_t)m->engine->n_threads,
        .n_inputs = p->graph->n_inputs,
        .n_outputs = p->graph->n_outputs,
        .delay = largest(p->analysis.delay, p->analysis.n_outputs),
        .receptive_field = largest(p->analysis.field, p->analysis.n_outputs),
        .state_size = p->block_bytes,
        .state_bytes_per_frame = (double)p->grown_bytes / (double)p->analysis.period,
        .n_layers = p->model->n_nodes,
        .weights_size = p->raw_bytes,
        .prepared_size = p->prepared_bytes + p->elements_bytes,
        .max_streams = m->max_streams,
        .n_streams = ds_session_n_open(m->engine->session),
        .fingerprint = {p->fingerprint[0], p->fingerprint[1]},
        .kept_bytes = p->kept_bytes,
    };
}

ds_status ds_model_query(ds_model *model, ds_model_info *info)
{
    DS_TRY(ds_check_struct(info, DS_MODEL_INFO_1, "ds_model_info"));
    DS_TRY(ds_handle_enter_model(model));
    const ds_model_info filled = describe(model);
    ds_give_struct(info, &filled, sizeof filled);
    return ds_handle_leave_parent(model, DS_OK);
}

static ds_status find_port(const ds_model *m, bool is_input, size_t index, ds_port_info *info)
{
    const ds_interface *face = m->interface;
    const size_t n = is_input ? face->n_inputs : face->n_outputs;
    DS_CHECK(index < n, DS_ARGUMENT, "%s %zu: the model has %zu", is_input ? "input" : "output",
             index, n);
    const ds_port *port = &(is_input ? face->inputs : face->outputs)[index];
    const ds_signature *signature = &port->signature;
    *info = (ds_port_info){
        .name = port->name,
        .dtype = signature->dtype,
        .rank = (uint32_t)signature->rank,
        .shape = signature->shape,
        .frame_bytes = ds_signature_bytes(signature),
        .rate_num = port->memory ? 0 : signature->rate.num,
        .rate_den = port->memory ? 0 : signature->rate.den,
        .delay = is_input ? 0 : bound(ds_model_plan(m)->analysis.delay[index]),
    };
    return DS_OK;
}

static ds_status query_port(ds_model *model, bool is_input, size_t index, ds_port_info *info)
{
    DS_TRY(ds_check_struct(info, DS_PORT_INFO_1, "ds_port_info"));
    DS_TRY(ds_handle_enter_model(model));
    ds_port_info filled;
    const ds_status status = find_port(model, is_input, index, &filled);
    if (status == DS_OK)
        ds_give_struct(info, &filled, sizeof filled);
    return ds_handle_leave_parent(model, status);
}

ds_status ds_model_input(ds_model *model, size_t index, ds_port_info *info)
{
    return query_port(model, true, index, info);
}

ds_status ds_model_output(ds_model *model, size_t index, ds_port_info *info)
{
    return query_port(model, false, index, info);
}

ds_status ds_model_memory(ds_model *model, ds_memory_info *info)
{
    DS_TRY(ds_check_struct(info, DS_MEMORY_INFO_1, "ds_memory_info"));
    DS_TRY(ds_handle_enter_model(model));
    ds_counted *c = &model->counted;
    const size_t own = sizeof *model; /* allocated before there was anything to count with */
    const ds_memory_info filled = {
        .bytes = atomic_load(&c->bytes) + own,
        .peak_bytes = atomic_load(&c->peak_bytes) + own,
        .blocks = atomic_load(&c->blocks) + 1,
        .n_allocations = atomic_load(&c->n_allocations) + 1,
        .mapped_bytes = model->mapped_bytes,
    };
    ds_give_struct(info, &filled, sizeof filled);
    return ds_handle_leave_parent(model, DS_OK);
}

/* ---------------------------------------------------------------- streams */
ds_status ds_stream_query(ds_stream *stream, ds_stream_info *info)
{
    DS_TRY(ds_check_struct(info, DS_STREAM_INFO_1, "ds_stream_info"));
    DS_TRY(ds_handle_enter_stream(stream));
    const ds_stream_info filled = {
        .model = stream->model,
        .begun = stream->begun,
        .ended = stream->ended,
        .refused = stream->refused,
        .idle_seconds = ds_now() - stream->last_used,
    };
    ds_give_struct(info, &filled, sizeof filled);
    return ds_handle_leave_stream(stream, DS_OK);
}

ds_status ds_stream_frames(ds_stream *stream, size_t index, int64_t *n_frames)
{
    DS_CHECK(n_frames, DS_ARGUMENT, "ds_stream_frames: n_frames is NULL");
    DS_TRY(ds_handle_enter_stream(stream));
    const size_t n = ds_model_plan(stream->model)->graph->n_inputs;
    if (index >= n)
        return ds_handle_leave_stream(
            stream, ds_fail(DS_ARGUMENT, "input %zu: the model has %zu", index, n));
    *n_frames = stream->slot->block->frames[index];
    return ds_handle_leave_stream(stream, DS_OK);
}

ds_status ds_model_idle(ds_model *model, double seconds, ds_stream **streams, size_t n_room,
                        size_t *n)
{
    DS_CHECK(n && (streams || n_room == 0), DS_ARGUMENT, "ds_model_idle: streams or n is NULL");
    DS_CHECK(seconds >= 0, DS_ARGUMENT, "ds_model_idle: seconds is %g, expected a time", seconds);
    DS_TRY(ds_handle_enter_model(model));
    size_t found = 0;
    pthread_mutex_lock(&model->lock);
    const double now = ds_now();
    for (ds_stream *s = model->oldest; s; s = s->newer) {
        if (ds_handle_in_use(&s->handle) || now - s->last_used < seconds)
            continue;
        if (found < n_room)
            streams[found] = s;
        found++;
    }
    pthread_mutex_unlock(&model->lock);
    *n = found;
    return ds_handle_leave_parent(model, DS_OK);
}
