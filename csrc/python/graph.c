/* _core.Graph: a model as data, built front to back; an Engine takes it. */
#include "python/graph.h"

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ds_module *m = ds_module_of(type);
    if (!PyArg_ParseTuple(args, ":Graph") || (kwargs && PyDict_GET_SIZE(kwargs)))
        return NULL;
    ds_graph_object *self = (ds_graph_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    ds_allocator allocator = ds_module_allocator(m);
    ds_status status = ds_graph_create(&self->graph, &allocator);
    if (status != DS_OK) {
        Py_DECREF(self);
        return ds_raise(m, status, NULL);
    }
    return (PyObject *)self;
}

static void graph_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ds_graph_destroy(((ds_graph_object *)self)->graph);
    type->tp_free(self);
    Py_DECREF(type);
}

/* The graph, or NULL with an exception where an engine has taken it. */
static ds_graph *graph_of(ds_module *m, PyObject *self)
{
    ds_graph *graph = ((ds_graph_object *)self)->graph;
    if (!graph)
        PyErr_SetString(m->errors[DS_CLOSED], "an engine has taken this graph");
    return graph;
}

static PyObject *graph_input(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_graph *graph = graph_of(m, self);
    ds_signature signature;
    int edge;
    (void)names;
    if (!graph || n_args != 1 || ds_parse_signature(m, args[0], 1, &signature) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "input(signature)");
        return NULL;
    }
    ds_status status = ds_graph_input(graph, &edge, &signature);
    return status == DS_OK ? PyLong_FromLong(edge) : ds_raise(m, status, NULL);
}

static int parse_edges(PyObject *sequence, int *edges, size_t *n)
{
    PyObject *fast = PySequence_Tuple(sequence);
    if (!fast)
        return -1;
    *n = (size_t)PyTuple_GET_SIZE(fast);
    for (size_t i = 0; i < *n && i < DS_MAX_INPUTS && !PyErr_Occurred(); i++)
        edges[i] = (int)PyLong_AsLong(PyTuple_GET_ITEM(fast, (Py_ssize_t)i));
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : 0;
}

/* Names of weights, str or None; views into the sequence. */
static int parse_names(PyObject *sequence, const char **names, size_t n)
{
    PyObject *fast = PySequence_Tuple(sequence);
    if (!fast)
        return -1;
    if ((size_t)PyTuple_GET_SIZE(fast) != n)
        PyErr_Format(PyExc_ValueError, "expected %zu names of weights", n);
    for (size_t i = 0; i < n && !PyErr_Occurred(); i++) {
        PyObject *item = PyTuple_GET_ITEM(fast, (Py_ssize_t)i);
        names[i] = item == Py_None ? NULL : PyUnicode_AsUTF8(item);
    }
    Py_DECREF(fast); /* the sequence keeps its items */
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *graph_node(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                            Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_graph *graph = graph_of(m, self);
    (void)names;
    if (!graph || n_args < 4 || n_args > 6 || (n_args == 6 && !PyTuple_Check(args[5]))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "node(name, attributes, inputs, weights, path, "
                                             "weight_names), the last a tuple");
        return NULL;
    }
    ds_attr attrs[DS_MAX_ATTRS + 1];
    ds_signature weights[DS_MAX_WEIGHTS];
    const void *data[DS_MAX_WEIGHTS];
    const char *weight_names[DS_MAX_WEIGHTS];
    int inputs[DS_MAX_INPUTS], outputs[DS_MAX_OUTPUTS];
    size_t n_attrs, n_inputs, n_weights;
    const ds_op_def *def = ds_parse_def(m, args[0]);
    if (!def || ds_parse_attrs(m, def, args[1], attrs, &n_attrs) < 0 ||
        parse_edges(args[2], inputs, &n_inputs) < 0)
        return NULL;
    PyObject *kept = ds_parse_weights(m, def, args[3], weights, data, &n_weights);
    const ds_node_names called = {n_args > 4 ? PyUnicode_AsUTF8(args[4]) : "",
                                  n_args > 5 ? weight_names : NULL};
    graph = kept ? graph_of(m, self) : NULL; /* again: the arguments may have run code */
    if (!graph || !called.path ||
        (n_args > 5 && parse_names(args[5], weight_names, n_weights) < 0)) {
        Py_XDECREF(kept);
        return NULL;
    }
    ds_status status = ds_graph_node(graph, outputs, def, attrs, n_attrs, inputs, n_inputs, weights,
                                     data, n_weights, &called);
    Py_DECREF(kept);
    if (status != DS_OK)
        return ds_raise(m, status, NULL);
    int n = graph->nodes[graph->n_nodes - 1].op->n_outputs;
    PyObject *list = PyList_New(n);
    for (int o = 0; list && o < n; o++) {
        PyObject *edge = PyLong_FromLong(outputs[o]);
        if (!edge)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, o, edge);
    }
    return list;
}

static PyObject *graph_output(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                              Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    ds_graph *graph = graph_of(m, self);
    (void)names;
    if (!graph || n_args != 1) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "output(edge)");
        return NULL;
    }
    long edge = PyLong_AsLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    ds_status status = ds_graph_output(graph, (int)edge);
    if (status != DS_OK)
        return ds_raise(m, status, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef graph_methods[] = {
    {"input", (PyCFunction)(void (*)(void))graph_input, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "input(signature) -> edge"},
    {"node", (PyCFunction)(void (*)(void))graph_node, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "node(name, attributes, inputs, weights, path='', weight_names=None) -> edges of its outputs"},
    {"output", (PyCFunction)(void (*)(void))graph_output,
     METH_METHOD | METH_FASTCALL | METH_KEYWORDS, "output(edge)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_new, graph_new},
    {Py_tp_dealloc, graph_dealloc},
    {Py_tp_methods, graph_methods},
    {Py_tp_doc, "A model as data, built front to back."},
    {0, NULL},
};

PyType_Spec ds_graph_spec = {"dreamstream._core.Graph", sizeof(ds_graph_object), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, graph_slots};
