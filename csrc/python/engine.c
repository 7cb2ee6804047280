/* _core.Engine: a planned graph, made, copied and closed. Its streams: streams.c. */
#include "python/engine.h"

#include <string.h>

#include "base/alloc.h"
#include "python/graph.h"

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
        PyObject *fast = item ? PySequence_Tuple(item) : NULL;
        Py_XDECREF(item);
        if (!fast)
            return -1;
        int rank = graph->edges[edges[i]].signature.rank + 1;
        unsigned seen = 0;
        for (int k = 0; k < rank && PyTuple_GET_SIZE(fast) == rank; k++) {
            long axis = PyLong_AsLong(PyTuple_GET_ITEM(fast, k));
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

/* From the caller's axis -> canonical axis to the other way. */
static void invert_axes(ds_axes *axes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const ds_axes given = axes[i];
        for (int k = 0; k < given.rank; k++)
            axes[i].axis[given.axis[k]] = k;
    }
}

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
    Py_XDECREF(e->table);
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
    e->table = PyDict_New();
    if (!e->table) {
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
    e->plan = e->engine->plan;
    e->session = e->engine->session;
    const ds_graph *g = e->plan->graph;
    if (parse_axes(m, input_axes, g->inputs, g->n_inputs, g, &e->inputs) < 0 ||
        parse_axes(m, output_axes, g->outputs, g->n_outputs, g, &e->outputs) < 0) {
        Py_DECREF(e);
        return NULL;
    }
    invert_axes(e->outputs, g->n_outputs);
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

PyObject *ds_engine_object_copy(DS_METHOD_ARGUMENTS)
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
    e->table = PyDict_New();
    e->original = Py_NewRef(from->original ? from->original : self);
    const ds_engine_options options = {.n_threads = from->engine->n_threads,
                                       .max_streams = (size_t)max_streams};
    ds_status status = e->table ? ds_engine_copy(&e->engine, from->engine, &options) : DS_OK;
    if (!e->table || status != DS_OK) {
        Py_DECREF(e);
        return status == DS_OK ? NULL : ds_raise(m, status, NULL);
    }
    e->plan = e->engine->plan;
    e->session = e->engine->session;
    const ds_graph *g = e->plan->graph;
    if (copy_axes(m, &e->plan->allocator, &e->inputs, from->inputs, g->n_inputs) < 0 ||
        copy_axes(m, &e->plan->allocator, &e->outputs, from->outputs, g->n_outputs) < 0) {
        Py_DECREF(e);
        return NULL;
    }
    return (PyObject *)e;
}

PyObject *ds_engine_object_close(DS_METHOD_ARGUMENTS)
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

static PyType_Slot engine_slots[] = {
    {Py_tp_new, engine_new},         {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, ds_stream_methods}, {Py_tp_getset, ds_engine_getset},
    {Py_tp_doc, "A planned graph with its streams."},
    {0, NULL},
};

PyType_Spec ds_engine_spec = {"dreamstream._core.Engine", sizeof(ds_engine_object), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, engine_slots};
