/* _core.Engine: a planned graph, made, copied and closed. Its streams: streams.c. */
#include "python/engine.h"

/* ---------------------------------------------------------------- making and closing */
static void close_engine(ds_engine_object *e)
{
    PyObject *id, *live;
    for (Py_ssize_t at = 0; e->table && PyDict_Next(e->table, &at, &id, &live);)
        ((ds_live *)live)->slot = NULL;
    if (e->table)
        PyDict_Clear(e->table);
    Py_CLEAR(e->last_ids);
    Py_CLEAR(e->last_live);
    if (e->engine)
        ds_engine_close(e->engine);
}

static void engine_dealloc(PyObject *self)
{
    ds_engine_object *e = (ds_engine_object *)self;
    close_engine(e);
    ds_engine_destroy(e->engine);
    Py_XDECREF(e->original);
    Py_XDECREF(e->table);
    Py_XDECREF(e->watch);
    ds_free_object(self);
}

static ds_engine_object *new_object(PyTypeObject *type, bool blas)
{
    ds_engine_object *e = (ds_engine_object *)type->tp_alloc(type, 0);
    if (!e)
        return NULL;
    e->blas = blas;
    e->table = PyDict_New();
    if (!e->table)
        Py_CLEAR(e);
    return e;
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
    if (blas && !m->blas_kernels)
        PyErr_SetString(m->errors[DS_MODE], "blas=True, but OpenBLAS is not built in or kept out");
    return blas ? m->blas_kernels : m->kernels;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"graph", "threads", "blas",      "max_streams",
                            "skew",  "backend", "max_bytes", NULL};
    ds_module *m = ds_module_of(type);
    PyObject *graph;
    long long threads = 1, max_streams = 0, skew = 0, max_bytes = 0;
    int blas = 0;
    const char *backend = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|LpLLzL:Engine", names, m->graph_type, &graph,
                                     &threads, &blas, &max_streams, &skew, &backend, &max_bytes))
        return NULL;
    ds_graph_object *source = (ds_graph_object *)graph;
    if (!source->graph)
        return PyErr_Format(m->errors[DS_CLOSED], "an engine has taken this graph");
    if (threads < 1 || threads > 1024 || max_streams < 0 || skew < 0 || max_bytes < 0)
        return PyErr_Format(
            PyExc_ValueError,
            "threads must be 1 to 1024, max_streams, skew and max_bytes not negative");
    const ds_kernels *kernels = choose_kernels(m, backend, blas != 0);
    if (!kernels)
        return NULL;
    ds_engine_object *e = new_object(type, !ds_backend_bitwise(kernels));
    if (!e)
        return NULL;
    ds_graph *taken = source->graph;
    source->graph = NULL;
    const ds_engine_options options = {kernels, (size_t)threads, (size_t)max_streams, skew,
                                       (size_t)max_bytes};
    ds_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ds_engine_create(&e->engine, taken, &options);
    Py_END_ALLOW_THREADS;
    Py_CLEAR(source->lenders);
    return ds_unless_failed(m, status, (PyObject *)e);
}

PyObject *ds_engine_object_copy(PyObject *self, PyObject *n)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_engine_object *from = (ds_engine_object *)self;
    const size_t max_streams = PyLong_AsSize_t(n);
    if (PyErr_Occurred() || ds_engine_check_open(m, from) < 0)
        return NULL;
    ds_engine_object *e = new_object(Py_TYPE(self), from->blas);
    if (!e)
        return NULL;
    e->original = Py_NewRef(from->original ? from->original : self);
    const ds_engine_options options = {.n_threads = from->engine->n_threads,
                                       .max_streams = max_streams};
    ds_status status = ds_engine_copy(&e->engine, from->engine, &options);
    return ds_unless_failed(m, status, (PyObject *)e);
}

PyObject *ds_engine_object_close(PyObject *self, PyObject *Py_UNUSED(unused))
{
    ds_engine_object *e = (ds_engine_object *)self;
    if (e->n_running)
        return PyErr_Format(ds_module_of(Py_TYPE(self))->errors[DS_BUSY],
                            "the engine cannot be closed while a call is under way");
    close_engine(e);
    Py_RETURN_NONE;
}

DS_SPEC(engine, "Engine", ds_engine_object, 0, "A planned graph with its streams.",
        {Py_tp_new, engine_new}, {Py_tp_dealloc, engine_dealloc},
        {Py_tp_methods, ds_stream_methods}, {Py_tp_getset, ds_engine_getset});
