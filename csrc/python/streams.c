/* The streams of an engine by id: what is live, taken out, saved, restored, forked. */
#include <string.h>

#include "base/now.h"
#include "python/engine.h"

PyObject *ds_engine_error(ds_module *m, ds_status status, const char *text, PyObject *id)
{
    PyObject *ids = id ? PyTuple_Pack(1, id) : PyTuple_New(0);
    if (ids) {
        (void)ds_fail(status, "%s", text);
        ds_raise(m, status, ids);
        Py_DECREF(ids);
    }
    return NULL;
}

int ds_engine_check_open(ds_module *m, const ds_engine_object *e)
{
    if (e->session)
        return 0;
    PyErr_SetString(m->errors[DS_CLOSED], "the engine is closed");
    return -1;
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

ds_live *ds_live_new(ds_module *m, ds_slot *slot)
{
    ds_live *live = PyObject_New(ds_live, m->live_type);
    if (live)
        live->slot = slot;
    return live;
}

static void live_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot live_slots[] = {{Py_tp_dealloc, live_dealloc}, {0, NULL}};

PyType_Spec ds_live_spec = {
    "dreamstream._core.Live", sizeof(ds_live), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, live_slots};

void ds_engine_forget(ds_engine_object *e, PyObject *id, ds_live *live)
{
    ds_slot *slot = live->slot;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    live->slot = NULL;
    if (PyDict_DelItem(e->table, id) < 0)
        PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    ds_slot_leave(slot);
    ds_session_close(e->session, slot);
}

/* ---------------------------------------------------------------- one stream */
/* Enters a live stream (borrowed); NULL with an exception where it is unknown or busy. */
static ds_live *enter(ds_module *m, ds_engine_object *e, PyObject *id)
{
    if (ds_engine_check_open(m, e) < 0)
        return NULL;
    ds_live *live = ds_engine_find(e, id);
    if (!live)
        return PyErr_Occurred()
                   ? NULL
                   : (void *)ds_engine_error(m, DS_STREAM_ID, "no such stream is live", id);
    if (!ds_slot_enter(live->slot))
        return (void *)ds_engine_error(m, DS_BUSY, "another thread is using the stream", id);
    return live;
}

/* Opens a stream, entered, under a new plain id (borrowed). */
static ds_live *open_as(ds_module *m, ds_engine_object *e, PyObject *id)
{
    if (ds_engine_check_open(m, e) < 0)
        return NULL;
    if (ds_engine_find(e, id))
        return (void *)ds_engine_error(m, DS_STREAM_ID, "the stream is live already", id);
    ds_slot *slot;
    ds_status status = ds_session_open(e->session, &slot, false);
    if (status != DS_OK) {
        char message[DS_MESSAGE_BYTES] = "";
        strncpy(message, ds_last_error(), sizeof message - 1);
        return (void *)ds_engine_error(m, status, message, id);
    }
    (void)ds_slot_enter(slot);
    ds_live *live = ds_live_new(m, slot);
    if (!live || PyDict_SetItem(e->table, id, (PyObject *)live) < 0) {
        Py_XDECREF(live);
        ds_slot_leave(slot);
        ds_session_close(e->session, slot);
        return NULL;
    }
    Py_DECREF(live);
    slot->last_used = ds_now();
    return live;
}

/* Lets a new stream go, or takes it out again where filling it failed; live NULL: an exception is set. */
static PyObject *finish_opening(ds_module *m, ds_engine_object *e, PyObject *id, ds_live *live,
                                ds_status status)
{
    if (!live)
        return NULL;
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
        ds_engine_forget(e, id, live);
        return NULL;
    }
    ds_slot_leave(live->slot);
    return Py_NewRef(id);
}

static int check_args(const char *usage, Py_ssize_t n_args, Py_ssize_t expected)
{
    if (n_args == expected)
        return 0;
    PyErr_SetString(PyExc_TypeError, usage);
    return -1;
}

/* Forgets all of these streams (keys of a dict), or none. */
static bool drop_all(ds_module *m, ds_engine_object *e, PyObject *ids)
{
    PyObject *id, *unused;
    Py_ssize_t at = 0, n = PyDict_GET_SIZE(ids), entered = 0;
    while (PyDict_Next(ids, &at, &id, &unused) && enter(m, e, id))
        entered++;
    at = 0;
    for (Py_ssize_t i = 0; i < entered && PyDict_Next(ids, &at, &id, &unused); i++) {
        ds_live *live = ds_engine_find(e, id);
        if (entered == n)
            ds_engine_forget(e, id, live);
        else
            ds_slot_leave(live->slot);
    }
    return entered == n;
}

static PyObject *engine_drop(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    if (check_args("drop(ids)", n_args, 1) < 0 || ds_engine_check_open(m, e) < 0)
        return NULL;
    PyObject *ids = PyDict_New(), *list = ids ? PySequence_Tuple(args[0]) : NULL;
    for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(list); i++) {
        PyObject *id = ds_plain_id(m, PyTuple_GET_ITEM(list, i));
        if (!id || PyDict_SetItem(ids, id, Py_None) < 0)
            Py_CLEAR(list);
        Py_XDECREF(id);
    }
    bool done = false;
    if (list) {
        e->n_running++;
        done = drop_all(m, e, ids);
        e->n_running--;
    }
    Py_XDECREF(list);
    Py_XDECREF(ids);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *engine_snapshot(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    const ds_live *live = check_args("snapshot(id)", n_args, 1) < 0 ? NULL : enter(m, e, args[0]);
    if (!live)
        return NULL;
    ds_slot *slot = live->slot;
    size_t n_bytes = 0;
    PyObject *bytes = NULL;
    ds_status status = ds_slot_snapshot_bytes(e->plan, slot, &n_bytes);
    if (status == DS_OK) {
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
        if (bytes)
            status = ds_slot_snapshot(e->plan, slot, PyBytes_AS_STRING(bytes), n_bytes);
    }
    ds_slot_leave(slot);
    if (status != DS_OK) {
        Py_CLEAR(bytes);
        ds_raise(m, status, NULL);
    }
    return bytes;
}

static PyObject *engine_position(DS_METHOD_ARGUMENTS)
{
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    const ds_live *live =
        check_args("position(id)", n_args, 1) < 0 ? NULL : enter(ds_module_of(cls), e, args[0]);
    if (!live)
        return NULL;
    const Py_ssize_t n = (Py_ssize_t)e->plan->graph->n_inputs;
    PyObject *frames = PyTuple_New(n);
    for (Py_ssize_t i = 0; frames && i < n; i++) {
        PyObject *count = PyLong_FromLongLong(live->slot->block->frames[i]);
        if (count)
            PyTuple_SET_ITEM(frames, i, count);
        else
            Py_CLEAR(frames);
    }
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

static PyObject *engine_restore(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    Py_buffer data;
    if (check_args("restore(data, id)", n_args, 2) < 0)
        return NULL;
    PyObject *id = args[1] == Py_None ? free_id(e) : ds_plain_id(m, args[1]);
    if (!id || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(id);
        return NULL;
    }
    e->n_running++;
    ds_live *live = open_as(m, e, id);
    ds_status status =
        live ? ds_slot_restore(e->plan, live->slot, data.buf, (size_t)data.len) : DS_OK;
    PyObject *result = finish_opening(m, e, id, live, status);
    e->n_restored += result && args[1] == Py_None;
    e->n_running--;
    PyBuffer_Release(&data);
    Py_DECREF(id);
    return result;
}

static PyObject *engine_fork(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    PyObject *id = check_args("fork(id, new_id)", n_args, 2) < 0 ? NULL : ds_plain_id(m, args[1]);
    if (!id)
        return NULL;
    PyObject *result = NULL;
    e->n_running++;
    const ds_live *source = enter(m, e, args[0]);
    if (source) {
        ds_live *live = open_as(m, e, id);
        ds_status status = live ? ds_slot_copy(e->plan, live->slot, source->slot) : DS_OK;
        ds_slot_leave(source->slot);
        result = finish_opening(m, e, id, live, status);
    }
    e->n_running--;
    Py_DECREF(id);
    return result;
}

static PyObject *engine_idle(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    if (check_args("idle(seconds)", n_args, 1) < 0 || ds_engine_check_open(m, e) < 0)
        return NULL;
    double seconds = PyFloat_AsDouble(args[0]), now = ds_now();
    if (PyErr_Occurred())
        return NULL;
    if (!(seconds >= 0))
        return PyErr_Format(PyExc_ValueError, "idle: expected 0 or more seconds, got %R", args[0]);
    PyObject *list = PyList_New(0), *id, *live;
    Py_ssize_t at = 0;
    while (list && PyDict_Next(e->table, &at, &id, &live)) {
        const ds_slot *slot = ((ds_live *)live)->slot;
        if (now - slot->last_used < seconds)
            continue;
        PyObject *item = Py_BuildValue("(dnO)", slot->last_used, at, id);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    if (!list || PyList_Sort(list) < 0)
        Py_CLEAR(list);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        PyList_SET_ITEM(list, i, Py_NewRef(PyTuple_GET_ITEM(item, 2)));
        Py_DECREF(item);
    }
    return list;
}

PyMethodDef ds_stream_methods[] = {
    DS_METHOD("step", ds_engine_step,
              "step(ids, sos, eos, values, lengths, restart) -> values, lengths, starts"),
    DS_METHOD("drop", engine_drop, "drop(ids): forget live streams"),
    DS_METHOD("position", engine_position, "position(id) -> frames so far, per input"),
    DS_METHOD("snapshot", engine_snapshot, "snapshot(id) -> bytes"),
    DS_METHOD("restore", engine_restore, "restore(data, id) -> id, made up where it was None"),
    DS_METHOD("fork", engine_fork, "fork(id, new_id)"),
    DS_METHOD("idle", engine_idle,
              "idle(seconds) -> ids not stepped for that long, the longest first"),
    {"graph", ds_engine_graph, METH_NOARGS, "graph() -> the planned graph, weights included"},
    {"copy", ds_engine_object_copy, METH_O,
     "copy(max_streams): an engine of the same plan, without streams"},
    {"close", ds_engine_object_close, METH_NOARGS, "close(): release all streams"},
    {NULL, NULL, 0, NULL},
};
