/* _core.Engine: a planned graph with its streams by id. */
#include "python/engine.h"

#include <string.h>

#include "base/alloc.h"
#include "base/now.h"
#include "python/graph.h"

PyObject *ds_engine_error(ds_module *m, ds_status status, const char *text, PyObject *id)
{
    PyObject *ids = PyTuple_Pack(1, id);
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
    PyErr_Format(m->errors[DS_STREAM_ID], "a stream's id must be str, got %R", id);
    return NULL;
}

ds_slot *ds_engine_slot(ds_engine_object *e, PyObject *id)
{
    PyObject *address = PyDict_GetItemWithError(e->slots, id);
    return address ? PyLong_AsVoidPtr(address) : NULL;
}

/* ---------------------------------------------------------------- making and closing */
static int parse_axes(ds_module *m, PyObject *sequence, const int *edges, size_t n,
                      const ds_graph *graph, ds_axes **axes)
{
    void *memory;
    ds_status status = ds_allocate_zeroed(&graph->allocator, &memory, n * sizeof **axes);
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
        return -1;
    }
    *axes = memory;
    if (PySequence_Size(sequence) != (Py_ssize_t)n) {
        PyErr_Format(PyExc_ValueError, "expected axes of %zu edges", n);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(sequence, (Py_ssize_t)i);
        PyObject *fast = item ? PySequence_Fast(item, "axes must be sequences of int") : NULL;
        Py_XDECREF(item);
        if (!fast)
            return -1;
        int rank = graph->edges[edges[i]].signature.rank + 1;
        unsigned seen = 0;
        for (int k = 0; k < rank && PySequence_Fast_GET_SIZE(fast) == rank; k++) {
            long axis = PyLong_AsLong(PySequence_Fast_GET_ITEM(fast, k));
            if (axis >= 0 && axis < rank)
                seen |= 1u << axis;
            (*axes)[i].axis[k] = (int)axis;
        }
        (*axes)[i].rank = rank;
        Py_DECREF(fast);
        if (seen != (1u << rank) - 1) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "axes of edge %zu must be a permutation of %d", i,
                             rank);
            return -1;
        }
    }
    return 0;
}

static void close_engine(ds_engine_object *e)
{
    if (e->slots)
        PyDict_Clear(e->slots);
    if (e->engine)
        ds_engine_close(e->engine);
    e->session = NULL;
}

static void engine_dealloc(PyObject *self)
{
    ds_engine_object *e = (ds_engine_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    close_engine(e);
    if (e->engine) {
        const ds_allocator *a = &e->plan->allocator;
        ds_release(a, e->inputs, e->plan->graph->n_inputs * sizeof *e->inputs);
        ds_release(a, e->outputs, e->plan->graph->n_outputs * sizeof *e->outputs);
        ds_engine_destroy(e->engine);
    }
    Py_XDECREF(e->original);
    Py_XDECREF(e->slots);
    type->tp_free(self);
    Py_DECREF(type);
}

/* The backend of that name, or the module's own choice; NULL with an exception. */
static const ds_kernels *choose_kernels(ds_module *m, const char *backend, bool blas)
{
    const ds_kernels *named = NULL;
    if (backend) {
        const ds_status status = ds_backend_choose(&named, backend, blas);
        if (status == DS_ARGUMENT)
            PyErr_SetString(PyExc_ValueError, ds_last_error());
        else if (status != DS_OK)
            ds_raise(m, status, NULL);
        return status == DS_OK ? named : NULL;
    }
    if (!ds_have_kernels(m))
        return NULL;
    if (blas && !m->blas_kernels) {
        PyErr_SetString(m->errors[DS_MODE], "blas=True, but OpenBLAS is not built in or kept out");
        return NULL;
    }
    return blas ? m->blas_kernels : m->kernels;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"graph", "input_axes", "output_axes", "threads", "blas",
                            "max_streams", "skew", "backend", NULL};
    ds_module *m = ds_module_of(type);
    PyObject *graph, *input_axes, *output_axes;
    long long threads = 1, max_streams = 0, skew = 0;
    int blas = 0;
    const char *backend = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|LpLLz:Engine", names, m->graph_type, &graph,
                                     &input_axes, &output_axes, &threads, &blas, &max_streams, &skew,
                                     &backend))
        return NULL;
    ds_graph_object *source = (ds_graph_object *)graph;
    if (!source->graph) {
        PyErr_SetString(m->errors[DS_CLOSED], "an engine has taken this graph");
        return NULL;
    }
    if (threads < 1 || threads > 1024 || max_streams < 0 || skew < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "threads must be 1 to 1024, max_streams and skew not negative");
        return NULL;
    }
    const ds_kernels *kernels = choose_kernels(m, backend, blas != 0);
    if (!kernels)
        return NULL;
    ds_engine_object *e = (ds_engine_object *)type->tp_alloc(type, 0);
    if (!e)
        return NULL;
    e->blas = !ds_backend_bitwise(kernels);
    e->slots = PyDict_New();
    if (!e->slots) {
        Py_DECREF(e);
        return NULL;
    }
    ds_graph *taken = source->graph;
    source->graph = NULL;
    const ds_engine_options options = {kernels, (size_t)threads, (size_t)max_streams, skew};
    ds_status status;
    Py_BEGIN_ALLOW_THREADS
    status = ds_engine_create(&e->engine, taken, &options);
    Py_END_ALLOW_THREADS
    if (status != DS_OK) {
        Py_DECREF(e);
        return ds_raise(m, status, NULL);
    }
    e->plan = ds_engine_plan(e->engine);
    e->session = ds_engine_session(e->engine);
    const ds_graph *g = e->plan->graph;
    if (parse_axes(m, input_axes, g->inputs, g->n_inputs, g, &e->inputs) < 0 ||
        parse_axes(m, output_axes, g->outputs, g->n_outputs, g, &e->outputs) < 0) {
        Py_DECREF(e);
        return NULL;
    }
    return (PyObject *)e;
}

static int copy_axes(ds_module *m, const ds_allocator *a, ds_axes **copy, const ds_axes *axes, size_t n)
{
    void *memory;
    ds_status status = ds_allocate_array(a, &memory, n, sizeof *axes);
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
        return -1;
    }
    *copy = memcpy(memory, axes, n * sizeof *axes);
    return 0;
}

static PyObject *engine_copy(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *from = (ds_engine_object *)self;
    (void)names;
    Py_ssize_t max_streams = n_args == 1 ? PyLong_AsSsize_t(args[0]) : -1;
    if (max_streams < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "copy(max_streams)");
        return NULL;
    }
    if (ds_engine_check_open(m, from) < 0)
        return NULL;
    ds_engine_object *e = (ds_engine_object *)cls->tp_alloc(cls, 0);
    if (!e)
        return NULL;
    e->blas = from->blas;
    e->slots = PyDict_New();
    e->original = Py_NewRef(from->original ? from->original : self);
    const ds_engine_options options = {.n_threads = ds_engine_threads(from->engine),
                                       .max_streams = (size_t)max_streams};
    ds_status status = e->slots ? ds_engine_copy(&e->engine, from->engine, &options) : DS_OK;
    if (!e->slots || status != DS_OK) {
        Py_DECREF(e);
        return status == DS_OK ? NULL : ds_raise(m, status, NULL);
    }
    e->plan = ds_engine_plan(e->engine);
    e->session = ds_engine_session(e->engine);
    const ds_graph *g = e->plan->graph;
    if (copy_axes(m, &e->plan->allocator, &e->inputs, from->inputs, g->n_inputs) < 0 ||
        copy_axes(m, &e->plan->allocator, &e->outputs, from->outputs, g->n_outputs) < 0) {
        Py_DECREF(e);
        return NULL;
    }
    return (PyObject *)e;
}

static PyObject *engine_close(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)args;
    (void)names;
    (void)n_args;
    if (e->n_running) {
        PyErr_SetString(m->errors[DS_BUSY], "the engine cannot be closed while a call is under way");
        return NULL;
    }
    close_engine(e);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- streams */
/* Enters the slot of a live stream; NULL with an exception where it is unknown or busy. */
static ds_slot *enter(ds_module *m, ds_engine_object *e, PyObject *id)
{
    if (ds_engine_check_open(m, e) < 0)
        return NULL;
    ds_slot *slot = ds_engine_slot(e, id);
    if (!slot)
        return PyErr_Occurred() ? NULL
                                : (void *)ds_engine_error(m, DS_STREAM_ID, "no such stream is live", id);
    if (!ds_slot_enter(slot))
        return (void *)ds_engine_error(m, DS_BUSY, "another thread is using the stream", id);
    return slot;
}

/* Opens a slot, entered, under a new plain id. */
static ds_slot *open_as(ds_module *m, ds_engine_object *e, PyObject *id)
{
    if (ds_engine_check_open(m, e) < 0)
        return NULL;
    if (ds_engine_slot(e, id))
        return (void *)ds_engine_error(m, DS_STREAM_ID, "the stream is live already", id);
    ds_slot *slot;
    ds_status status = ds_session_open(e->session, &slot, false);
    if (status != DS_OK) {
        char message[DS_MESSAGE_BYTES] = "";
        strncpy(message, ds_last_error(), sizeof message - 1);
        return (void *)ds_engine_error(m, status, message, id);
    }
    (void)ds_slot_enter(slot);
    PyObject *address = PyLong_FromVoidPtr(slot);
    if (!address || PyDict_SetItem(e->slots, id, address) < 0) {
        Py_XDECREF(address);
        ds_slot_leave(slot);
        ds_session_close(e->session, slot);
        return NULL;
    }
    Py_DECREF(address);
    slot->last_used = ds_now();
    return slot;
}

/* Takes a stream out again, whose slot is entered. */
static void forget(ds_engine_object *e, PyObject *id, ds_slot *slot)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyDict_DelItem(e->slots, id) < 0)
        PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    ds_slot_leave(slot);
    ds_session_close(e->session, slot);
}

/* Lets a new stream go, or takes it out again where filling it failed; slot NULL: an exception is set. */
static PyObject *finish_opening(ds_module *m, ds_engine_object *e, PyObject *id, ds_slot *slot,
                                ds_status status)
{
    if (!slot)
        return NULL;
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
        forget(e, id, slot);
        return NULL;
    }
    ds_slot_leave(slot);
    Py_RETURN_NONE;
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
        if (entered == n)
            forget(e, id, ds_engine_slot(e, id));
        else
            ds_slot_leave(ds_engine_slot(e, id));
    }
    return entered == n;
}

static PyObject *engine_drop(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    if (check_args("drop(ids)", n_args, 1) < 0 || ds_engine_check_open(m, e) < 0)
        return NULL;
    /* Unique plain ids, and the slots as they are entered. */
    PyObject *ids = PyDict_New(), *fast = ids ? PySequence_Fast(args[0], "ids must be a sequence") : NULL;
    for (Py_ssize_t i = 0; fast && i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *id = ds_plain_id(m, PySequence_Fast_GET_ITEM(fast, i));
        if (!id || PyDict_SetItem(ids, id, Py_None) < 0)
            Py_CLEAR(fast);
        Py_XDECREF(id);
    }
    bool done = false;
    if (fast) {
        e->n_running++;
        done = drop_all(m, e, ids);
        e->n_running--;
    }
    Py_XDECREF(fast);
    Py_XDECREF(ids);
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *engine_snapshot(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    ds_slot *slot = check_args("snapshot(id)", n_args, 1) < 0 ? NULL : enter(m, e, args[0]);
    if (!slot)
        return NULL;
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

static PyObject *engine_restore(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    Py_buffer data;
    if (check_args("restore(data, id)", n_args, 2) < 0)
        return NULL;
    PyObject *id = ds_plain_id(m, args[1]);
    if (!id || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(id);
        return NULL;
    }
    e->n_running++;
    ds_slot *slot = open_as(m, e, id);
    ds_status status = slot ? ds_slot_restore(e->plan, slot, data.buf, (size_t)data.len) : DS_OK;
    PyObject *result = finish_opening(m, e, id, slot, status);
    e->n_running--;
    PyBuffer_Release(&data);
    Py_DECREF(id);
    return result;
}

static PyObject *engine_fork(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    (void)names;
    PyObject *id = check_args("fork(id, new_id)", n_args, 2) < 0 ? NULL : ds_plain_id(m, args[1]);
    if (!id)
        return NULL;
    PyObject *result = NULL;
    e->n_running++;
    ds_slot *source = enter(m, e, args[0]);
    if (source) {
        ds_slot *slot = open_as(m, e, id);
        ds_status status = slot ? ds_slot_copy(e->plan, slot, source) : DS_OK;
        ds_slot_leave(source);
        result = finish_opening(m, e, id, slot, status);
    }
    e->n_running--;
    Py_DECREF(id);
    return result;
}

static PyObject *engine_idle(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *names)
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
    PyObject *list = PyList_New(0), *id, *address;
    Py_ssize_t at = 0;
    while (list && PyDict_Next(e->slots, &at, &id, &address)) {
        const ds_slot *slot = PyLong_AsVoidPtr(address);
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

#define METHOD(name, function, doc)                                                        \
    {                                                                                      \
        name, (PyCFunction)(void (*)(void))function,                                       \
            METH_METHOD | METH_FASTCALL | METH_KEYWORDS, doc                               \
    }

static PyMethodDef engine_methods[] = {
    METHOD("step", ds_engine_step, "step(ids, sos, eos, arrays, restart) -> outputs, starts"),
    METHOD("drop", engine_drop, "drop(ids): forget live streams"),
    METHOD("snapshot", engine_snapshot, "snapshot(id) -> bytes"),
    METHOD("restore", engine_restore, "restore(data, id)"),
    METHOD("fork", engine_fork, "fork(id, new_id)"),
    METHOD("idle", engine_idle, "idle(seconds) -> ids not stepped for that long, the longest first"),
    METHOD("graph", ds_engine_graph, "graph() -> the planned graph, weights included"),
    METHOD("copy", engine_copy, "copy(max_streams): an engine of the same plan, without streams"),
    METHOD("close", engine_close, "close(): release all streams"),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot engine_slots[] = {
    {Py_tp_new, engine_new},         {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, engine_methods}, {Py_tp_getset, ds_engine_getset},
    {Py_tp_doc, "A planned graph with its streams."},
    {0, NULL},
};

PyType_Spec ds_engine_spec = {"dreamstream._core.Engine", sizeof(ds_engine_object), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, engine_slots};
