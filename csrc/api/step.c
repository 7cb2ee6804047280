/* Steps: chunks in, frames out.
 *
 * Everything that can fail comes first: the streams, the integers, room for the outputs, the inputs'
 * values. What streams hold from their last step stays until then. */
#include "api/object.h"

/* One call; its arrays are in the arena of its ds_step. */
typedef struct call {
    ds_model *model;
    ds_stream *const *streams;
    ds_output *outputs;
    const ds_input *inputs;
    const uint32_t *flags;
    size_t n, n_inputs, n_outputs;
    ds_step *step;
    ds_kept_output *more; /* [n][n_outputs]: larger room, where that is needed */
} call;

/* Where outputs of no frames point. */
static const _Alignas(DS_ALIGNMENT) char nothing[DS_ALIGNMENT];

/* ---------------------------------------------------------------- inputs */
/* What the caller's elements are; 0 where the input does not take them. */
static ds_element element_of(const ds_signature *signature, int32_t dtype)
{
    const ds_element element = dtype == 0 ? (ds_element)signature->dtype : (ds_element)dtype;
    const bool known = dtype >= 0 && dtype <= DS_I16;
    const bool widened = signature->dtype == DS_I64 && element != DS_ELEMENT_I64;
    return known && !widened && ds_layout_fits(signature, element) ? element : 0;
}

static ds_status check_flags(const call *s, size_t i)
{
    const ds_stream *stream = s->streams[i];
    const uint32_t flags = s->flags ? s->flags[i] : 0;
    DS_CHECK((flags & ~(DS_START | DS_END)) == 0, DS_ARGUMENT,
             "stream %zu: flags are %u, expected DS_START and DS_END only", i, flags);
    DS_CHECK(!(flags & DS_START) || !stream->begun || stream->ended, DS_STREAM_ID,
             "stream %zu: DS_START, but it is on its way (ds_stream_reset lets it begin anew)", i);
    DS_CHECK((flags & DS_START) || !stream->ended, DS_STREAM_ID,
             "stream %zu has ended (DS_START or ds_stream_reset lets it begin anew)", i);
    return DS_OK;
}

static ds_status check_chunks(call *s, size_t i)
{
    for (size_t j = 0; j < s->n_inputs; j++) {
        const ds_input *in = &s->inputs[i * s->n_inputs + j];
        const ds_signature *signature = ds_step_input(s->step->plan, j);
        DS_CHECK(in->data || in->n_frames == 0, DS_ARGUMENT,
                 "stream %zu, input %zu: %zu frames, but data is NULL", i, j, in->n_frames);
        DS_CHECK(element_of(signature, in->dtype), DS_DTYPE,
                 "stream %zu, input %zu: expected %s, got the element type %d", i, j,
                 ds_dtype_name(signature->dtype), (int)in->dtype);
        DS_CHECK(in->n_frames <= INT64_MAX, DS_ARGUMENT,
                 "stream %zu, input %zu: %zu frames are no sensible number", i, j, in->n_frames);
        s->step->n_frames[j * s->n + i] = (int64_t)in->n_frames;
    }
    return DS_OK;
}

/* What concerns one stream alone; marks those that are wrong, tells the first. */
static ds_status check_rows(call *s)
{
    ds_first_fault first = {DS_OK, ""};
    for (size_t i = 0; i < s->n; i++) {
        ds_status status = check_flags(s, i);
        if (status == DS_OK)
            status = check_chunks(s, i);
        s->step->bad[i] = false;
        ds_first_fault_note(&first, status, &s->step->bad[i]);
        s->step->slots[i] = s->streams[i]->slot;
        s->step->ended[i] = s->flags && (s->flags[i] & DS_END);
    }
    return ds_first_fault_end(&first);
}

/* ---------------------------------------------------------------- outputs */
/* Larger rooms aside, where a stream's are too small for what comes. */
static ds_status make_room(call *s)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->n_outputs; k++) {
            const ds_kept_output *kept = &s->streams[i]->outputs[k];
            ds_kept_output *more = &s->more[i * s->n_outputs + k];
            int64_t start;
            size_t n_bytes;
            const int64_t frames = ds_step_frames(s->step, k, i, &start);
            const ds_signature *signature = ds_step_output(s->step->plan, k);
            DS_CHECK(
                !__builtin_mul_overflow((size_t)frames, ds_signature_bytes(signature), &n_bytes),
                DS_NO_MEMORY, "output %zu: %lld frames do not fit into memory", k,
                (long long)frames);
            if (n_bytes <= kept->n_bytes)
                continue;
            const size_t twice = kept->n_bytes <= SIZE_MAX / 2 ? 2 * kept->n_bytes : n_bytes;
            const size_t room = n_bytes > twice ? n_bytes : twice;
            DS_TRY(ds_allocate(&s->model->allocator, &more->data, room));
            more->n_bytes = room;
        }
    return DS_OK;
}

static void give_up(const call *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->streams[i]->refused = s->step->bad[i];
    for (size_t i = 0; i < s->n * s->n_outputs; i++)
        ds_release(&s->model->allocator, s->more[i].data, s->more[i].n_bytes);
}

static void copy_output(const call *s, size_t i, size_t k)
{
    ds_kept_output *kept = &s->streams[i]->outputs[k];
    const ds_kept_output *more = &s->more[i * s->n_outputs + k];
    if (more->data) {
        ds_release(&s->model->allocator, kept->data, kept->n_bytes);
        *kept = *more;
    }
    ds_output *out = &s->outputs[i * s->n_outputs + k];
    const int64_t frames = ds_step_frames(s->step, k, i, &out->start);
    const size_t n_bytes = (size_t)frames * ds_signature_bytes(ds_step_output(s->step->plan, k));
    if (n_bytes)
        ds_step_get(s->step, k, i, frames, kept->data, NULL);
    out->data = n_bytes ? kept->data : nothing;
    out->n_frames = (size_t)frames;
}

/* ---------------------------------------------------------------- the call */
/* All that can fail. */
static ds_status prepare(call *s)
{
    DS_TRY(check_rows(s));
    DS_TRY(ds_step_begin(s->step));
    DS_TRY(make_room(s));
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->n_inputs; j++) {
            const ds_input *in = &s->inputs[i * s->n_inputs + j];
            ds_step_put(s->step, j, i, in->data, NULL,
                        element_of(ds_step_input(s->step->plan, j), in->dtype));
        }
    return ds_step_check(s->step);
}

static void finish(const call *s)
{
    ds_step_run(s->step);
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < s->n_outputs; k++)
            copy_output(s, i, k);
        s->streams[i]->begun = true;
        s->streams[i]->ended = s->step->ended[i];
    }
    ds_model_touch(s->model, s->streams, s->n);
    for (size_t i = 0; i < s->n; i++)
        if (s->step->ended[i])
            ds_session_clear(s->model->engine->session, s->step->slots[i]);
}

/* What a call has of its step's arena. */
static ds_status push_arrays(call *s)
{
    DS_PUSH_ZEROED(&s->step->arena, s->more, s->n * s->n_outputs);
    DS_PUSH(&s->step->arena, s->step->input_names, s->n_inputs);
    for (size_t j = 0; j < s->n_inputs; j++)
        s->step->input_names[j] = s->model->interface->inputs[j].name;
    return DS_OK;
}

/* A step of streams that are entered. */
static ds_status step_entered(ds_model *model, ds_stream *const *streams, ds_output *outputs,
                              const ds_input *inputs, const uint32_t *flags, size_t n)
{
    const ds_graph *g = ds_model_plan(model)->graph;
    call s = {model, streams, outputs, inputs, flags, n, g->n_inputs, g->n_outputs, NULL, NULL};
    for (size_t i = 0; i < n; i++)
        streams[i]->refused = false;
    DS_TRY(ds_step_take(model->engine, &s.step, n));
    ds_status status = push_arrays(&s);
    if (status == DS_OK) {
        status = prepare(&s);
        if (status == DS_OK)
            finish(&s);
        else
            give_up(&s);
    }
    ds_step_give(model->engine, s.step);
    return status;
}

ds_status ds_model_step(ds_model *model, ds_stream *const *streams, ds_output *outputs,
                        const ds_input *inputs, const uint32_t *flags, size_t n_streams)
{
    DS_CHECK(n_streams == 0 || (model && streams && outputs && inputs), DS_ARGUMENT,
             "ds_model_step: model, streams, outputs or inputs is NULL");
    const void *const *addresses = (const void *const *)(const void *)streams;
    DS_TRY(ds_handle_enter_model(model)); /* a closed one is said to be, whatever its streams are */
    ds_status status = ds_handle_enter_children(DS_HANDLE_STREAM, model, addresses, n_streams);
    if (status == DS_OK && n_streams > 0)
        status = ds_handle_leave_children(
            addresses, n_streams, step_entered(model, streams, outputs, inputs, flags, n_streams));
    return ds_handle_leave_parent(model, status);
}

ds_status ds_stream_step(ds_stream *stream, ds_output *outputs, const ds_input *inputs,
                         uint32_t flags)
{
    DS_CHECK(stream && outputs && inputs, DS_ARGUMENT,
             "ds_stream_step: stream, outputs or inputs is NULL");
    DS_TRY(ds_handle_enter_stream(stream));
    return ds_handle_leave_stream(stream,
                                  step_entered(stream->model, &stream, outputs, inputs, &flags, 1));
}

ds_status ds_stream_finish(ds_stream *stream, ds_output *outputs)
{
    DS_CHECK(stream && outputs, DS_ARGUMENT, "ds_stream_finish: stream or outputs is NULL");
    const ds_input none[DS_MAX_INPUTS] = {{0}};
    return ds_stream_step(stream, outputs, none, DS_END);
}
