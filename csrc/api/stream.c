/* Streams: opening, closing, forking, snapshots. */
#include "api/object.h"
#include "base/now.h"

/* ---------------------------------------------------------------- the model's list */
static void unlink_stream(ds_model *m, ds_stream *s)
{
    *(s->older ? &s->older->newer : &m->oldest) = s->newer;
    *(s->newer ? &s->newer->older : &m->newest) = s->older;
    s->older = s->newer = NULL;
}

static void append_stream(ds_model *m, ds_stream *s)
{
    s->older = m->newest;
    *(m->newest ? &m->newest->newer : &m->oldest) = s;
    m->newest = s;
}

void ds_model_touch(ds_model *model, ds_stream *const *streams, size_t n)
{
    DS_LOCKED(&model->lock);
    const double now = ds_now(); /* under the lock: the list is in its order */
    for (size_t i = 0; i < n; i++) {
        unlink_stream(model, streams[i]);
        append_stream(model, streams[i]);
        streams[i]->last_used = now;
    }
}

/* ---------------------------------------------------------------- opening and closing */
static size_t stream_bytes(const ds_model *m)
{
    return sizeof(ds_stream) + ds_model_plan(m)->graph->n_outputs * sizeof(ds_kept_output);
}

void ds_stream_release(ds_stream *stream)
{
    ds_model *m = stream->model;
    for (size_t o = 0; o < ds_model_plan(m)->graph->n_outputs; o++)
        ds_release(&m->allocator, stream->outputs[o].data, stream->outputs[o].n_bytes);
    if (stream->slot)
        ds_session_close(m->engine->session, stream->slot);
    ds_release(&m->allocator, stream, stream_bytes(m));
}

/* Opens a stream in the state of `source`, or at its beginning where that is NULL. */
static ds_status open_stream(ds_stream **stream, ds_model *m, const ds_stream *source)
{
    ds_stream *s;
    DS_TRY(ds_allocate_zeroed(&m->allocator, (void **)&s, stream_bytes(m)));
    s->handle = (ds_handle){.kind = DS_HANDLE_STREAM, .parent = &m->handle};
    s->model = m;
    ds_status status = ds_session_open(m->engine->session, &s->slot, false);
    if (status == DS_OK && source) {
        status = ds_slot_copy(ds_model_plan(m), s->slot, source->slot);
        s->begun = source->begun;
        s->ended = source->ended;
    }
    DS_TRY_ELSE(status, ds_stream_release(s));
    DS_LOCKED(&m->lock);
    s->last_used = ds_now();
    append_stream(m, s);
    /* Last: from here on a stale handle of this address finds the stream, and may close it. */
    ds_handle_add(&s->handle);
    *stream = s;
    return DS_OK;
}

ds_status ds_stream_open(ds_stream **stream, ds_model *model)
{
    DS_CHECK(stream, DS_ARGUMENT, "ds_stream_open: stream is NULL");
    DS_TRY(ds_handle_enter_model(model));
    return ds_handle_leave_parent(model, open_stream(stream, model, NULL));
}

ds_status ds_stream_fork(ds_stream **fork, ds_stream *stream)
{
    DS_CHECK(fork, DS_ARGUMENT, "ds_stream_fork: fork is NULL");
    DS_TRY(ds_handle_enter_stream(stream));
    return ds_handle_leave_stream(stream, open_stream(fork, stream->model, stream));
}

ds_status ds_stream_close(ds_stream *stream)
{
    DS_TRY(ds_handle_enter_stream(stream));
    ds_model *m = stream->model;
    pthread_mutex_lock(&m->lock);
    unlink_stream(m, stream);
    pthread_mutex_unlock(&m->lock);
    ds_handle_drop(&stream->handle); /* leaves the stream, not yet the model */
    ds_stream_release(stream);
    return ds_handle_leave_parent(m, DS_OK);
}

ds_status ds_stream_reset(ds_stream *stream)
{
    DS_TRY(ds_handle_enter_stream(stream));
    ds_session_clear(stream->model->engine->session, stream->slot);
    stream->begun = stream->ended = stream->refused = false;
    return ds_handle_leave_stream(stream, DS_OK);
}

/* ---------------------------------------------------------------- snapshots */
/* Enters a stream that has a state to be written. */
static ds_status enter_unended(ds_stream *stream)
{
    DS_TRY(ds_handle_enter_stream(stream));
    if (!stream->ended)
        return DS_OK;
    return ds_handle_leave_stream(
        stream,
        ds_fail(DS_STREAM_ID, "the stream has ended: there is nothing left to take a snapshot of"));
}

ds_status ds_stream_snapshot_size(ds_stream *stream, size_t *n_bytes)
{
    DS_CHECK(n_bytes, DS_ARGUMENT, "ds_stream_snapshot_size: n_bytes is NULL");
    DS_TRY(enter_unended(stream));
    return ds_handle_leave_stream(
        stream, ds_slot_snapshot(ds_model_plan(stream->model), stream->slot, NULL, NULL, n_bytes));
}

ds_status ds_stream_snapshot(ds_stream *stream, void *bytes, size_t n_bytes)
{
    DS_CHECK(bytes, DS_ARGUMENT, "ds_stream_snapshot: bytes is NULL");
    DS_TRY(enter_unended(stream));
    return ds_handle_leave_stream(stream, ds_slot_snapshot(ds_model_plan(stream->model),
                                                           stream->slot, NULL, bytes, &n_bytes));
}

static ds_status restore(ds_stream *s, const void *bytes, size_t n_bytes)
{
    const ds_plan *plan = ds_model_plan(s->model);
    DS_TRY(ds_slot_restore(plan, s->slot, bytes, n_bytes));
    s->begun = s->ended = s->refused = false;
    for (size_t i = 0; i < plan->graph->n_inputs; i++)
        s->begun |= s->slot->block->frames[i] > 0;
    return DS_OK;
}

ds_status ds_stream_restore(ds_stream *stream, const void *bytes, size_t n_bytes)
{
    DS_CHECK(bytes, DS_ARGUMENT, "ds_stream_restore: bytes is NULL");
    DS_TRY(ds_handle_enter_stream(stream));
    return ds_handle_leave_stream(stream, restore(stream, bytes, n_bytes));
}
