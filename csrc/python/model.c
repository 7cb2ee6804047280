/* Model files (model/model.h) from Python: a graph and its interface's text, and back. */
#include "model/model.h"

#include "codec/safetensors.h"
#include "python/engine.h"

/* ---------------------------------------------------------------- reading */
/* check_container(bytes): whether they are a safetensors file, of which all holds then that is said of one. */
PyObject *ds_check_container(PyObject *module, PyObject *content)
{
    ds_module *m = PyModule_GetState(module);
    Py_buffer view;
    if (PyObject_GetBuffer(content, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const ds_allocator a = ds_allocator_current();
    ds_safetensors *file = NULL;
    const ds_status status = ds_safetensors_open(&file, &a, view.buf, (size_t)view.len);
    ds_safetensors_close(file);
    PyBuffer_Release(&view);
    return ds_unless_failed(m, status, Py_NewRef(Py_None));
}

/* What a file holds. */
typedef struct model {
    ds_graph *graph;
    ds_interface *interface;
    ds_buffer text; /* of the interface */
} model;

/* Of the file at `path`, or, where that is NULL, of the bytes. */
static ds_status read_model(model *out, const ds_allocator *a, const char *path,
                            const Py_buffer *view, bool changed)
{
    ds_mapped *file = NULL;
    DS_TRY(path ? ds_mapped_open(&file, a, path)
                : ds_mapped_copy(&file, a, view->buf, (size_t)view->len));
    ds_status status = ds_model_read(&out->graph, &out->interface, a, file, changed);
    ds_mapped_release(file);
    return status == DS_OK ? ds_interface_text(&out->text, out->interface) : status;
}

static PyObject *build_port(const void *ports, size_t i)
{
    return ds_build_signature(&((const ds_port *)ports)[i].signature);
}

/* (Graph, text, inputs, outputs, types or None); takes the graph. */
static PyObject *build_model(ds_module *m, model *read)
{
    ds_graph_object *graph = (ds_graph_object *)m->graph_type->tp_alloc(m->graph_type, 0);
    if (!graph)
        return NULL;
    graph->graph = read->graph;
    read->graph = NULL;
    const ds_interface *interface = read->interface;
    return Py_BuildValue(
        "Ns#NNz", graph, (const char *)read->text.bytes, (Py_ssize_t)read->text.n_bytes,
        ds_build_list(interface->n_inputs, build_port, interface->inputs),
        ds_build_list(interface->n_outputs, build_port, interface->outputs), interface->types);
}

/* read_model(source, is_path, changed=False): the file of a path is mapped, bytes are copied; `changed`: on purpose, so
 * that its fingerprint is not looked at. */
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
    const ds_allocator a = ds_allocator_current();
    model read = {0};
    ds_buffer_init(&read.text, &a);
    ds_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = read_model(&read, &a, path ? PyBytes_AS_STRING(path) : NULL, &view, changed);
    Py_END_ALLOW_THREADS;
    PyObject *result = status == DS_OK ? build_model(m, &read) : ds_raise(m, status, NULL);
    ds_buffer_free(&read.text);
    ds_interface_free(read.interface);
    ds_graph_destroy(read.graph);
    if (view.obj)
        PyBuffer_Release(&view);
    Py_XDECREF(path);
    return result;
}

/* ---------------------------------------------------------------- writing */
/* To a Python callable, in pieces of at most this size: what it keeps is its own. */
enum { PIECE_BYTES = 1 << 20 };

static ds_status put(void *write, const void *bytes, size_t n_bytes)
{
    for (const char *from = bytes; n_bytes > 0;) {
        const size_t n = n_bytes < PIECE_BYTES ? n_bytes : PIECE_BYTES;
        DS_OWNED PyObject *done = PyObject_CallFunction(write, "y#", from, (Py_ssize_t)n);
        DS_CHECK(done, DS_FORMAT, "what takes the bytes raised an exception");
        from += n;
        n_bytes -= n;
    }
    return DS_OK;
}

/* write_model(engine, text, write, types): the file of the engine's graph, as it was captured. */
PyObject *ds_write_model(PyObject *module, PyObject *args)
{
    ds_module *m = PyModule_GetState(module);
    ds_engine_object *engine;
    PyObject *write;
    const char *text;
    char *types; /* of Python's string, which outlives the interface */
    Py_ssize_t n_bytes;
    if (!PyArg_ParseTuple(args, "O!s#Oz:write_model", m->engine_type, &engine, &text, &n_bytes,
                          &write, &types) ||
        ds_engine_check_open(m, engine) < 0)
        return NULL;
    const ds_allocator a = ds_allocator_current();
    ds_interface *interface = NULL;
    ds_status status =
        ds_interface_parse(&interface, &a, text, (size_t)n_bytes, engine->engine->plan->model);
    if (status == DS_OK) {
        interface->types = types;
        const ds_plan *const plan = engine->engine->plan;
        const ds_sink sink = {write, put};
        status = ds_model_write(&sink, plan->model, interface, plan);
    }
    ds_interface_free(interface);
    if (status != DS_OK && !PyErr_Occurred())
        /* What is no valid argument here is what a file can't hold. */
        ds_raise(m, status == DS_ARGUMENT ? DS_FORMAT : status, NULL);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
