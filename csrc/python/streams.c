/* The streams of an engine by id: what is live, taken out, saved, restored, forked. */
#include <string.h>

#include "base/now.h"
#include "python/call.h"

void *ds_engine_error(ds_module *m, ds_status status, PyObject *id)
{
    DS_OWNED PyObject *ids = id ? PyTuple_Pack(1, id) : PyTuple_New(0);
    return ids ? ds_raise(m, status, ids) : NULL;
}

int ds_engine_check_open(ds_module *m, const ds_engine_object *e)
{
    DS_EXPECT(e->engine->session, m->errors[DS_CLOSED], "the engine is closed");
    return 0;
}

PyObject *ds_plain_id(ds_module *m, PyObject *id)
{
    if (PyUnicode_Check(id))
        return PyUnicode_FromObject(id);
    PyErr_Format(m->errors[DS_STREAM_ID], "a stream's id must be str, got %.100R", id);
    return NULL;
}

ds_live *ds_engine_find(const ds_engine_object *e, PyObject *id)
{
    return (ds_live *)PyDict_GetItemWithError(e->table, id);
}

/* ---------------------------------------------------------------- what stands behind an id */
ds_live *ds_live_open(ds_module *m, ds_engine_object *e, PyObject *id, bool takes_place, bool named)
{
    ds_slot *slot;
    const ds_status status = ds_session_open(e->engine->session, &slot, takes_place);
    if (status != DS_OK)
        return ds_engine_error(m, status, id);
    (void)ds_slot_enter(slot);
    ds_live *live = PyObject_New(ds_live, m->live_type);
    if (live)
        live->slot = slot;
    if (live && (!named || PyDict_SetItem(e->table, id, (PyObject *)live) == 0))
        return live;
    Py_XDECREF(live);
    ds_slot_leave(slot);
    ds_session_close(e->engine->session, slot);
    return NULL;
}

bool ds_live_enter(ds_module *m, const ds_live *live, PyObject *id)
{
    if (ds_slot_enter(live->slot))
        return true;
    ds_engine_error(m, ds_fail(DS_BUSY, "another thread is using the stream"), id);
    return false;
}

void ds_live_end(ds_engine_object *e, ds_live *live)
{
    ds_slot *slot = live->slot;
    live->slot = NULL;
    ds_slot_leave(slot);
    ds_session_close(e->engine->session, slot);
}

void ds_engine_forget(ds_engine_object *e, PyObject *id, ds_live *live)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    ds_live_end(e, live);
    if (PyDict_DelItem(e->table, id) < 0)
        PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

DS_SPEC(live, "Live", ds_live, Py_TPFLAGS_DISALLOW_INSTANTIATION, "What stands behind an id.",
        {Py_tp_dealloc, ds_free_object});

/* ---------------------------------------------------------------- one stream */
/* Enters a live stream (borrowed); NULL with an exception where it is unknown or busy. */
static ds_live *enter(ds_module *m, ds_engine_object *e, PyObject *id)
{
    if (ds_engine_check_open(m, e) < 0)
        return NULL;
    ds_live *live = ds_engine_find(e, id);
    if (live)
        return ds_live_enter(m, live, id) ? live : NULL;
    return PyErr_Occurred()
               ? NULL
               : ds_engine_error(m, ds_fail(DS_STREAM_ID, "no such stream is live"), id);
}

/* Opens a stream, entered, under a new plain id (borrowed). */
static ds_live *open_as(ds_module *m, ds_engine_object *e, PyObject *id)
{
    if (ds_engine_check_open(m, e) < 0)
        return NULL;
    if (ds_engine_find(e, id))
        return ds_engine_error(m, ds_fail(DS_STREAM_ID, "the stream is live already"), id);
    ds_live *live = ds_live_open(m, e, id, false, true);
    if (!live)
        return NULL;
    live->slot->last_used = ds_now();
    Py_DECREF(live);
    return live;
}

/* Lets a new stream go, or takes it out again where filling it failed. */
static PyObject *finish_opening(ds_module *m, ds_engine_object *e, PyObject *id, ds_live *live,
                                ds_status status)
{
    if (status == DS_OK) {
        ds_slot_leave(live->slot);
        return Py_NewRef(id);
    }
    ds_raise(m, status, NULL);
    ds_engine_forget(e, id, live);
    return NULL;
}

/* Forgets all of these streams, or none. */
static bool drop_all(ds_module *m, ds_engine_object *e, PyObject *ids)
{
    const Py_ssize_t n = PyList_GET_SIZE(ids);
    Py_ssize_t entered = 0;
    while (entered < n && enter(m, e, PyList_GET_ITEM(ids, entered)))
        entered++;
    for (Py_ssize_t i = 0; i < entered; i++) {
        PyObject *id = PyList_GET_ITEM(ids, i);
        ds_live *live = ds_engine_find(e, id);
        if (entered == n)
            ds_engine_forget(e, id, live);
        else
            ds_slot_leave(live->slot);
    }
    return entered == n;
}

static PyObject *engine_drop(PyObject *self, PyObject *given)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_engine_object *e = (ds_engine_object *)self;
    DS_OWNED PyObject *ids = ds_engine_check_open(m, e) < 0 ? NULL : ds_plain_ids(m, given);
    e->n_running++;
    const bool done = ids && drop_all(m, e, ids);
    e->n_running--;
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *engine_snapshot(PyObject *self, PyObject *args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_engine_object *e = (ds_engine_object *)self;
    PyObject *id, *given = Py_None, *bytes = NULL;
    if (!PyArg_ParseTuple(args, "O|O:snapshot", &id, &given))
        return NULL;
    int64_t before[DS_MAX_INPUTS];
    const int64_t *since = given == Py_None ? NULL : before;
    const Py_ssize_t n_before = since ? ds_parse_ints(given, before, DS_MAX_INPUTS) : 0;
    const ds_live *live = n_before < 0 ? NULL : enter(m, e, id);
    if (!live)
        return NULL;
    size_t n_bytes = 0;
    ds_status status = DS_OK;
    if (since && (size_t)n_before != e->engine->plan->graph->n_inputs)
        status =
            ds_fail(DS_ARGUMENT, "a snapshot since %zd numbers: expected one per input", n_before);
    else
        status = ds_slot_snapshot(e->engine->plan, live->slot, since, NULL, &n_bytes);
    if (status == DS_OK)
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
    if (bytes)
        status = ds_slot_snapshot(e->engine->plan, live->slot, since, PyBytes_AS_STRING(bytes),
                                  &n_bytes);
    ds_slot_leave(live->slot);
    return ds_unless_failed(m, status, bytes);
}

static PyObject *engine_position(PyObject *self, PyObject *id)
{
    ds_engine_object *e = (ds_engine_object *)self;
    const ds_live *live = enter(ds_module_of(Py_TYPE(self)), e, id);
    if (!live)
        return NULL;
    PyObject *frames =
        ds_build_list(e->engine->plan->graph->n_inputs, ds_int64_item, live->slot->block->frames);
    ds_slot_leave(live->slot);
    return frames;
}

/* An id that no stream has: each of these names is tried once in the engine's life. */
static PyObject *free_id(ds_engine_object *e)
{
    for (;;) {
        PyObject *id = PyUnicode_FromFormat("restored-%lld", e->n_restored);
        if (!id || !ds_engine_find(e, id))
            return id;
        Py_DECREF(id);
        e->n_restored++;
    }
}

static PyObject *engine_restore(PyObject *self, PyObject *args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_engine_object *e = (ds_engine_object *)self;
    Py_buffer data;
    PyObject *given, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*O:restore", &data, &given))
        return NULL;
    DS_OWNED PyObject *id = given == Py_None ? free_id(e) : ds_plain_id(m, given);
    e->n_running++;
    ds_live *live = id ? open_as(m, e, id) : NULL;
    if (live)
        result = finish_opening(
            m, e, id, live,
            ds_slot_restore(e->engine->plan, live->slot, data.buf, (size_t)data.len));
    e->n_restored += result && given == Py_None;
    e->n_running--;
    PyBuffer_Release(&data);
    return result;
}

static PyObject *engine_fork(PyObject *self, PyObject *args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_engine_object *e = (ds_engine_object *)self;
    PyObject *from, *to, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO:fork", &from, &to))
        return NULL;
    DS_OWNED PyObject *id = ds_plain_id(m, to);
    e->n_running++;
    const ds_live *source = id ? enter(m, e, from) : NULL;
    if (source) {
        ds_live *live = open_as(m, e, id);
        if (live)
            result = finish_opening(m, e, id, live,
                                    ds_slot_copy(e->engine->plan, live->slot, source->slot));
        ds_slot_leave(source->slot);
    }
    e->n_running--;
    return result;
}

static PyObject *engine_ages(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const ds_engine_object *e = (ds_engine_object *)self;
    if (ds_engine_check_open(ds_module_of(Py_TYPE(self)), e) < 0)
        return NULL;
    const double now = ds_now();
    PyObject *ages = PyList_New(0), *id, *live;
    Py_ssize_t at = 0;
    while (ages && PyDict_Next(e->table, &at, &id, &live))
        ds_append(&ages, Py_BuildValue("(Od)", id, now - ((ds_live *)live)->slot->last_used));
    return ages;
}

PyMethodDef ds_stream_methods[] = {
    {"step", ds_engine_step, METH_VARARGS,
     "step(ids, sos, eos, values, lengths, restart) -> values, lengths and starts"},
    {"drop", engine_drop, METH_O, "drop(ids): forget live streams"},
    {"position", engine_position, METH_O, "position(id) -> frames so far, per input"},
    {"snapshot", engine_snapshot, METH_VARARGS,
     "snapshot(id, since=None) -> bytes; since: frames per input"},
    {"restore", engine_restore, METH_VARARGS, "restore(data, id) -> id, made up where it was None"},
    {"fork", engine_fork, METH_VARARGS, "fork(id, new_id)"},
    {"ages", engine_ages, METH_NOARGS, "ages() -> (id, seconds since it was stepped) of each"},
    {"graph", ds_engine_graph, METH_NOARGS, "graph() -> the planned graph, weights included"},
    {"watch", ds_engine_watch, METH_VARARGS,
     "watch(edges, seen, full) -> None: appends what edges hold"},
    {"copy", ds_engine_object_copy, METH_O,
     "copy(max_streams): an engine of the same plan, without streams"},
    {"close", ds_engine_object_close, METH_NOARGS, "close(): release all streams"},
    {NULL, NULL, 0, NULL},
};
