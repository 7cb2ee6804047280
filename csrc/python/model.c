/* Model files (model/model.h) from Python: a graph and its interface's text, and back. */
#include "exec/weights.h"
#include "model/model.h"

#include "python/engine.h"
#include "python/files.h"
#include "python/graph.h"

/* ---------------------------------------------------------------- reading */
typedef struct model {
    ds_graph *graph;
    ds_interface *interface;
} model;

/* Of the file at `path`, or, where that is NULL, of the bytes. */
static ds_status read_model(model *out, const ds_allocator *a, const char *path, const Py_buffer *view,
                            bool changed)
{
    ds_mapped *file = NULL;
    DS_TRY(path ? ds_mapped_open(&file, a, path)
                : ds_mapped_copy(&file, a, view->buf, (size_t)view->len));
    ds_status status = ds_model_read(&out->graph, &out->interface, a, file, changed);
    ds_mapped_release(file);
    return status;
}

static PyObject *build_signatures(const ds_graph *graph, const int *edges, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *signature = ds_build_signature(&graph->edges[edges[i]].signature);
        if (!signature)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, signature);
    }
    return list;
}

/* (Graph, text, inputs, outputs); takes the graph. */
static PyObject *build_model(ds_module *m, model *read)
{
    ds_graph_object *graph = (ds_graph_object *)m->graph_type->tp_alloc(m->graph_type, 0);
    if (!graph)
        return NULL;
    graph->graph = read->graph;
    read->graph = NULL;
    ds_buffer text;
    ds_buffer_init(&text, &graph->graph->allocator);
    ds_status status = ds_interface_text(&text, read->interface);
    PyObject *result = NULL;
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
    } else {
        const ds_graph *g = graph->graph;
        PyObject *inputs = build_signatures(g, g->inputs, g->n_inputs);
        PyObject *outputs = inputs ? build_signatures(g, g->outputs, g->n_outputs) : NULL;
        if (outputs)
            result = Py_BuildValue("Os#OO", graph, (const char *)text.bytes, (Py_ssize_t)text.n_bytes,
                                   inputs, outputs);
        Py_XDECREF(inputs);
        Py_XDECREF(outputs);
    }
    ds_buffer_free(&text);
    Py_DECREF(graph);
    return result;
}

/* read_model(source, is_path, changed=False): the file of a path is mapped, bytes are copied; `changed`: on
 * purpose, so that its fingerprint is not looked at. */
PyObject *ds_read_model(PyObject *module, PyObject *args)
{
    ds_module *m = PyModule_GetState(module);
    PyObject *source, *path = NULL;
    int is_path, changed = 0;
    Py_buffer view = {0};
    if (!PyArg_ParseTuple(args, "Op|p:read_model", &source, &is_path, &changed) ||
        (is_path ? !PyUnicode_FSConverter(source, &path)
                 : PyObject_GetBuffer(source, &view, PyBUF_SIMPLE) < 0))
        return NULL;
    const ds_allocator a = ds_module_allocator(m);
    model read = {0};
    ds_status status;
    Py_BEGIN_ALLOW_THREADS
    status = read_model(&read, &a, path ? PyBytes_AS_STRING(path) : NULL, &view, changed);
    Py_END_ALLOW_THREADS
    PyObject *result = status == DS_OK ? build_model(m, &read) : ds_raise(m, status, NULL);
    ds_interface_free(read.interface);
    ds_graph_destroy(read.graph);
    if (view.obj)
        PyBuffer_Release(&view);
    Py_XDECREF(path);
    return result;
}

/* ---------------------------------------------------------------- writing */
/* write_model(engine, text, write): the file of the engine's graph, as it was captured. */
PyObject *ds_write_model(PyObject *module, PyObject *args)
{
    ds_module *m = PyModule_GetState(module);
    PyObject *engine, *write;
    const char *text;
    Py_ssize_t n_bytes;
    if (!PyArg_ParseTuple(args, "O!s#O:write_model", m->engine_type, &engine, &text, &n_bytes, &write))
        return NULL;
    if (ds_engine_check_open(m, (ds_engine_object *)engine) < 0)
        return NULL;
    const ds_plan *plan = ((ds_engine_object *)engine)->plan;
    const ds_graph *graph = plan->model;
    const ds_allocator a = ds_module_allocator(m);
    ds_interface *interface = NULL;
    ds_status status = ds_interface_parse(&interface, &a, text, (size_t)n_bytes, graph);
    if (status != DS_OK)
        return ds_raise(m, status, NULL);
    PyObject *result = NULL;
    ds_python_sink sink;
    if (ds_python_sink_begin(&sink, write) == 0) {
        const ds_sink to = ds_python_sink_of(&sink);
        ds_restored whole;
        status = ds_weights_restore(&whole, plan, graph);
        if (status == DS_OK) {
            status = ds_model_write(&to, whole.graph, interface);
            ds_weights_free(&whole);
        }
        result = ds_python_sink_end(m, &sink, status);
    }
    ds_interface_free(interface);
    return result;
}
