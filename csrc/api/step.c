/* Steps: chunks in, frames out.
 *
 * Everything that can fail comes first: the streams, the integers, room for the outputs, the inputs'
 * values. What streams hold from their last step stays until then. */
#include <string.h>

#include "api/object.h"

/* One call, in the arena of a ds_call. */
typedef struct step {
    ds_model *model;
    ds_stream *const *streams;
    ds_output *outputs;
    const ds_input *inputs;
    const uint32_t *flags;
    size_t n, n_inputs, n_outputs;
    ds_batch *batch;
    ds_slot **slots;       /* [n] */
    int64_t *n_frames;     /* [n_inputs][n] */
    bool *ended, *bad;     /* [n] */
    ds_kept_output *more;  /* [n][n_outputs]: larger room, where that is needed */
} step;

/* Where outputs of no frames point. */
static const _Alignas(DS_ALIGNMENT) char nothing[DS_ALIGNMENT];

/* ---------------------------------------------------------------- scratch of calls */
static ds_status take_call(ds_model *m, ds_call **call)
{
    pthread_mutex_lock(&m->lock);
    ds_call *rested = m->resting;
    m->resting = rested ? rested->next : NULL;
    pthread_mutex_unlock(&m->lock);
    if (!rested) {
        void *memory;
        DS_TRY(ds_allocate_zeroed(&m->allocator, &memory, sizeof *rested));
        rested = memory;
        ds_arena_init(&rested->arena, &m->allocator);
    }
    ds_arena_reset(&rested->arena);
    *call = rested;
    return DS_OK;
}

static void give_call(ds_model *m, ds_call *call)
{
    pthread_mutex_lock(&m->lock);
    call->next = m->resting;
    m->resting = call;
    pthread_mutex_unlock(&m->lock);
}

static ds_status make_arrays(step *s, ds_arena *a)
{
    void *p = NULL;
    DS_TRY(ds_arena_push_array(a, &p, s->n, sizeof *s->slots));
    s->slots = p;
    DS_TRY(ds_arena_push_array(a, &p, s->n * s->n_inputs, sizeof *s->n_frames));
    s->n_frames = p;
    DS_TRY(ds_arena_push_array(a, &p, s->n, 2 * sizeof *s->ended));
    s->ended = p;
    s->bad = s->ended + s->n;
    DS_TRY(ds_arena_push_array(a, &p, s->n * s->n_outputs, sizeof *s->more));
    s->more = p;
    memset(s->ended, 0, 2 * s->n * sizeof *s->ended);
    memset(s->more, 0, s->n * s->n_outputs * sizeof *s->more);
    return DS_OK;
}

/* ---------------------------------------------------------------- inputs */
static const ds_signature *input_signature(const step *s, size_t j)
{
    const ds_graph *g = ds_model_plan(s->model)->graph;
    return &g->edges[g->inputs[j]].signature;
}

static bool takes(const ds_signature *signature, int32_t dtype)
{
    return dtype == 0 || dtype == (int32_t)signature->dtype ||
           (signature->dtype == DS_F32 &&
            (dtype == DS_F64 || (dtype == DS_I16 && signature->rank == 0)));
}

static ds_status check_flags(const step *s, size_t i)
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

static ds_status check_chunks(step *s, size_t i)
{
    for (size_t j = 0; j < s->n_inputs; j++) {
        const ds_input *in = &s->inputs[i * s->n_inputs + j];
        const ds_signature *signature = input_signature(s, j);
        DS_CHECK(in->data || in->n_frames == 0, DS_ARGUMENT,
                 "stream %zu, input %zu: %zu frames, but data is NULL", i, j, in->n_frames);
        DS_CHECK(takes(signature, in->dtype), DS_DTYPE,
                 "stream %zu, input %zu: expected %s, got the element type %d", i, j,
                 ds_dtype_name(signature->dtype), (int)in->dtype);
        DS_CHECK(in->n_frames <= INT64_MAX, DS_ARGUMENT,
                 "stream %zu, input %zu: %zu frames are no sensible number", i, j, in->n_frames);
        s->n_frames[j * s->n + i] = (int64_t)in->n_frames;
    }
    return DS_OK;
}

/* What concerns one stream alone; marks those that are wrong, tells the first. */
static ds_status check_rows(step *s)
{
    ds_status first = DS_OK;
    char message[DS_MESSAGE_BYTES] = "";
    for (size_t i = 0; i < s->n; i++) {
        ds_status status = check_flags(s, i);
        if (status == DS_OK)
            status = check_chunks(s, i);
        s->bad[i] = status != DS_OK;
        if (status != DS_OK && first == DS_OK) {
            first = status;
            strncpy(message, ds_last_error(), sizeof message - 1);
        }
        s->slots[i] = s->streams[i]->slot;
        s->ended[i] = s->flags && (s->flags[i] & DS_END);
    }
    return first == DS_OK ? DS_OK : ds_fail(first, "%s", message);
}

static void copy_input(const step *s, size_t i, size_t j)
{
    const ds_input *in = &s->inputs[i * s->n_inputs + j];
    const ds_signature *signature = input_signature(s, j);
    const size_t n_bytes = in->n_frames * ds_signature_bytes(signature);
    if (n_bytes == 0)
        return;
    void *to = ds_batch_input(s->batch, j, i);
    if (in->dtype == 0 || in->dtype == (int32_t)signature->dtype) {
        memcpy(to, in->data, n_bytes);
        for (size_t k = 0; signature->dtype == DS_BOOL && k < n_bytes; k++)
            ((unsigned char *)to)[k] = ((unsigned char *)to)[k] != 0;
        return;
    }
    float *reals = to;
    const size_t n = n_bytes / sizeof *reals;
    for (size_t k = 0; k < n; k++) /* the caller's data may lie at any address */
        if (in->dtype == DS_I16) {
            int16_t sample;
            memcpy(&sample, (const char *)in->data + k * sizeof sample, sizeof sample);
            reals[k] = (float)sample * (1.0f / 32768.0f);
        } else {
            double real;
            memcpy(&real, (const char *)in->data + k * sizeof real, sizeof real);
            reals[k] = (float)real;
        }
}

/* ---------------------------------------------------------------- outputs */
static size_t output_frame_bytes(const step *s, size_t k)
{
    const ds_graph *g = ds_model_plan(s->model)->graph;
    return ds_signature_bytes(&g->edges[g->outputs[k]].signature);
}

/* Larger rooms aside, where a stream's are too small for what comes. */
static ds_status make_room(step *s)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->n_outputs; k++) {
            const ds_kept_output *kept = &s->streams[i]->outputs[k];
            ds_kept_output *more = &s->more[i * s->n_outputs + k];
            int64_t start;
            size_t n_bytes;
            const int64_t frames = ds_batch_output_frames(s->batch, k, i, &start);
            DS_CHECK(!__builtin_mul_overflow((size_t)frames, output_frame_bytes(s, k), &n_bytes),
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

static void drop_room(const step *s)
{
    for (size_t i = 0; i < s->n * s->n_outputs; i++)
        ds_release(&s->model->allocator, s->more[i].data, s->more[i].n_bytes);
}

static void copy_output(const step *s, size_t i, size_t k)
{
    ds_kept_output *kept = &s->streams[i]->outputs[k];
    const ds_kept_output *more = &s->more[i * s->n_outputs + k];
    if (more->data) {
        ds_release(&s->model->allocator, kept->data, kept->n_bytes);
        *kept = *more;
    }
    ds_output *out = &s->outputs[i * s->n_outputs + k];
    const int64_t frames = ds_batch_output_frames(s->batch, k, i, &out->start);
    const size_t n_bytes = (size_t)frames * output_frame_bytes(s, k);
    if (n_bytes)
        memcpy(kept->data, ds_batch_output(s->batch, k, i), n_bytes);
    out->data = n_bytes ? kept->data : nothing;
    out->n_frames = (size_t)frames;
}

/* ---------------------------------------------------------------- the call */
/* All that can fail. */
static ds_status prepare(step *s)
{
    DS_TRY(check_rows(s));
    DS_TRY(ds_engine_take_batch(s->model->engine, &s->batch));
    DS_TRY(ds_batch_begin(s->batch, s->slots, s->n_frames, s->ended, s->bad, s->n,
                          ds_engine_threads(s->model->engine)));
    DS_TRY(make_room(s));
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->n_inputs; j++)
            copy_input(s, i, j);
    return ds_batch_check(s->batch, s->bad);
}

static void finish(const step *s)
{
    ds_engine_run(s->model->engine, s->batch);
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < s->n_outputs; k++)
            copy_output(s, i, k);
        s->streams[i]->begun = true;
        s->streams[i]->ended = s->ended[i];
    }
    ds_model_touch(s->model, s->streams, s->n);
    for (size_t i = 0; i < s->n; i++)
        if (s->ended[i])
            ds_session_clear(ds_engine_session(s->model->engine), s->slots[i]);
}

static ds_status run(step *s, ds_arena *arena)
{
    DS_TRY(make_arrays(s, arena));
    const ds_status status = prepare(s);
    if (status == DS_OK) {
        finish(s);
    } else {
        for (size_t i = 0; i < s->n; i++)
            s->streams[i]->refused = s->bad[i];
        drop_room(s);
    }
    ds_engine_give_batch(s->model->engine, s->batch);
    return status;
}

/* The streams are entered. */
static ds_status step_entered(step *s)
{
    const ds_graph *g = ds_model_plan(s->model)->graph;
    s->n_inputs = g->n_inputs;
    s->n_outputs = g->n_outputs;
    for (size_t i = 0; i < s->n; i++)
        s->streams[i]->refused = false;
    ds_call *call;
    DS_TRY(take_call(s->model, &call));
    const ds_status status = run(s, &call->arena);
    give_call(s->model, call);
    return status;
}

ds_status ds_model_step(ds_model *model, ds_stream *const *streams, ds_output *outputs,
                        const ds_input *inputs, const uint32_t *flags, size_t n_streams)
{
    if (n_streams == 0) {
        DS_TRY(ds_handle_enter_model(model));
        ds_handle_leave_model(&model->handle);
        return DS_OK;
    }
    DS_CHECK(model && streams && outputs && inputs, DS_ARGUMENT,
             "ds_model_step: model, streams, outputs or inputs is NULL");
    DS_TRY(ds_handle_enter_model(model)); /* a closed model is said to be, whatever its streams are */
    const void *const *addresses = (const void *const *)(const void *)streams;
    ds_status status = ds_handle_enter_streams(model, addresses, n_streams);
    if (status == DS_OK) {
        step s = {.model = model, .streams = streams, .outputs = outputs, .inputs = inputs,
                  .flags = flags, .n = n_streams};
        status = step_entered(&s);
        ds_handle_leave_streams(addresses, n_streams);
    }
    ds_handle_leave_model(&model->handle);
    return status;
}

ds_status ds_stream_step(ds_stream *stream, ds_output *outputs, const ds_input *inputs,
                         uint32_t flags)
{
    DS_CHECK(stream && outputs && inputs, DS_ARGUMENT,
             "ds_stream_step: stream, outputs or inputs is NULL");
    const void *one = stream;
    DS_TRY(ds_handle_enter_streams(NULL, &one, 1));
    step s = {.model = stream->model, .streams = &stream, .outputs = outputs, .inputs = inputs,
              .flags = &flags, .n = 1};
    const ds_status status = step_entered(&s);
    ds_handle_leave_streams(&one, 1);
    return status;
}

ds_status ds_stream_finish(ds_stream *stream, ds_output *outputs)
{
    DS_CHECK(stream && outputs, DS_ARGUMENT, "ds_stream_finish: stream or outputs is NULL");
    const ds_input none[DS_MAX_INPUTS] = {{0}};
    return ds_stream_step(stream, outputs, none, DS_END);
}
