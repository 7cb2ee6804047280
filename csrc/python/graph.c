/* _core.Graph: a model as data, built front to back; an Engine takes it. */
#include "python/engine.h"

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ds_module *m = ds_module_of(type);
    if (!PyArg_ParseTuple(args, ":Graph") || (kwargs && PyDict_GET_SIZE(kwargs)))
        return NULL;
    ds_graph_object *self = (ds_graph_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    const ds_allocator allocator = ds_allocator_current();
    self->lenders = PyList_New(0);
    if (!self->lenders) {
        Py_DECREF(self);
        return NULL;
    }
    return ds_unless_failed(m, ds_graph_create(&self->graph, &allocator), (PyObject *)self);
}

static void graph_dealloc(PyObject *self)
{
    ds_graph_destroy(((ds_graph_object *)self)->graph);
    Py_XDECREF(((ds_graph_object *)self)->lenders);
    ds_free_object(self);
}

/* The graph, or NULL with an exception where an engine has taken it. */
static ds_graph *graph_of(PyObject *self)
{
    ds_graph *graph = ((ds_graph_object *)self)->graph;
    if (!graph)
        PyErr_SetString(ds_module_of(Py_TYPE(self))->errors[DS_CLOSED],
                        "an engine has taken this graph");
    return graph;
}

static PyObject *graph_input(PyObject *self, PyObject *tuple)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_signature signature;
    int edge = 0;
    if (ds_parse_signature(m, tuple, 1, &signature) < 0)
        return NULL;
    ds_graph *graph = graph_of(self);
    if (!graph)
        return NULL;
    const ds_status status = ds_graph_input(graph, &edge, &signature);
    return ds_unless_failed(m, status, PyLong_FromLong(edge));
}

static PyObject *graph_memory(PyObject *self, PyObject *edge)
{
    const long e = PyLong_AsLong(edge);
    ds_graph *graph = e == -1 && PyErr_Occurred() ? NULL : graph_of(self);
    if (!graph)
        return NULL;
    return ds_unless_failed(ds_module_of(Py_TYPE(self)), ds_graph_memory(graph, (int)e),
                            Py_NewRef(Py_None));
}

/* Names of weights, str or None; views into the tuple. */
static int parse_names(PyObject *tuple, const char **names, size_t n)
{
    if ((size_t)PyTuple_GET_SIZE(tuple) != n)
        PyErr_Format(PyExc_ValueError, "expected %zu names of weights", n);
    for (size_t i = 0; i < n && !PyErr_Occurred(); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, (Py_ssize_t)i);
        names[i] = item == Py_None ? NULL : PyUnicode_AsUTF8(item);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *graph_node(PyObject *self, PyObject *args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    PyObject *name, *attributes, *edges, *arrays, *path = NULL, *called = NULL;
    if (!PyArg_ParseTuple(args, "OOOO|UO!:node", &name, &attributes, &edges, &arrays, &path,
                          &PyTuple_Type, &called))
        return NULL;
    ds_attr attrs[DS_MAX_ATTRS + 1];
    ds_signature weights[DS_MAX_WEIGHTS];
    const void *data[DS_MAX_WEIGHTS];
    const char *weight_names[DS_MAX_WEIGHTS];
    int64_t given[DS_MAX_INPUTS];
    int inputs[DS_MAX_INPUTS], outputs[DS_MAX_OUTPUTS];
    size_t n_attrs, n_weights;
    if (path && !PyUnicode_AsUTF8(path))
        return NULL;
    const ds_op_def *def = ds_parse_def(m, name);
    if (!def || ds_parse_attrs(m, def, attributes, attrs, &n_attrs) < 0)
        return NULL;
    const Py_ssize_t n_inputs = ds_parse_ints(edges, given, DS_MAX_INPUTS);
    if (n_inputs < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < n_inputs && i < DS_MAX_INPUTS; i++)
        inputs[i] = (int)given[i];
    DS_OWNED PyObject *kept = ds_parse_weights(m, def, arrays, weights, data, &n_weights);
    ds_graph *graph = kept ? graph_of(self) : NULL; /* only now: the arguments may have run code */
    if (!graph || (called && parse_names(called, weight_names, n_weights) < 0) ||
        PyList_Append(((ds_graph_object *)self)->lenders, kept) < 0)
        return NULL;
    const ds_node_names names = {.path = path ? PyUnicode_AsUTF8(path) : "",
                                 .weights = called ? weight_names : NULL,
                                 .lent = true};
    const ds_status status = ds_graph_node(graph, outputs, def, attrs, n_attrs, inputs,
                                           (size_t)n_inputs, weights, data, n_weights, &names);
    return status == DS_OK ? ds_build_list((size_t)graph->nodes[graph->n_nodes - 1].op->n_outputs,
                                           ds_int_item, outputs)
                           : ds_raise(m, status, NULL);
}

static PyObject *graph_output(PyObject *self, PyObject *edge)
{
    const int number = (int)PyLong_AsLong(edge);
    ds_graph *graph = PyErr_Occurred() ? NULL : graph_of(self);
    return graph ? ds_unless_failed(ds_module_of(Py_TYPE(self)), ds_graph_output(graph, number),
                                    Py_NewRef(Py_None))
                 : NULL;
}

/* (operator, path of its module, whether weights may be stored narrow, how they are, 4 more where rows are, too; its
 * first output). */
static PyObject *build_node(const void *nodes, size_t j)
{
    const ds_node *node = (const ds_node *)nodes + j;
    return Py_BuildValue("ssNii", node->op->def->name, node->path,
                         PyBool_FromLong(ds_op_narrows(node->op) > 0),
                         (int)node->op->stored + (node->op->products ? 4 : 0), node->first_output);
}

static PyObject *graph_nodes(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const ds_graph *graph = graph_of(self);
    return graph ? ds_build_list(graph->n_nodes, build_node, graph->nodes) : NULL;
}

static PyObject *graph_store(PyObject *self, PyObject *numbers)
{
    ds_graph *graph = graph_of(self);
    if (!graph)
        return NULL;
    if (!PyBytes_Check(numbers) || (size_t)PyBytes_GET_SIZE(numbers) != graph->n_nodes)
        return PyErr_Format(PyExc_ValueError, "store: expected bytes, one for each of %zu nodes",
                            graph->n_nodes);
    DS_SCOPED(ds_memory_end) void *room = PyMem_New(ds_narrowing, graph->n_nodes + 1);
    ds_narrowing *const nodes = room;
    if (!nodes)
        return PyErr_NoMemory();
    for (size_t i = 0; i < graph->n_nodes; i++)
        nodes[i] = ds_parse_narrowing(PyBytes_AS_STRING(numbers)[i]);
    const ds_status status = ds_graph_store(graph, nodes);
    return ds_unless_failed(ds_module_of(Py_TYPE(self)), status, Py_NewRef(Py_None));
}

static PyObject *build_error(const void *errors, size_t j)
{
    return PyFloat_FromDouble(((const double *)errors)[j]);
}

static PyObject *graph_errors(PyObject *self, PyObject *args)
{
    const ds_graph *graph = graph_of(self);
    int how;
    const char *asked;
    Py_ssize_t n;
    if (!graph || !PyArg_ParseTuple(args, "iy#:errors", &how, &asked, &n))
        return NULL;
    if ((size_t)n != graph->n_nodes)
        return PyErr_Format(PyExc_ValueError, "errors: expected bytes, one for each of %zu nodes",
                            graph->n_nodes);
    DS_SCOPED(ds_memory_end) void *errors = PyMem_New(double, graph->n_nodes + 1);
    if (!errors)
        return PyErr_NoMemory();
    ds_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = ds_graph_errors(graph, ds_parse_narrowing((char)how), asked, errors);
    Py_END_ALLOW_THREADS;
    return status == DS_OK ? ds_build_list(graph->n_nodes, build_error, errors)
                           : ds_raise(ds_module_of(Py_TYPE(self)), status, NULL);
}

static PyMethodDef graph_methods[] = {
    {"nodes", graph_nodes, METH_NOARGS,
     "nodes() -> [(operator, path, narrows, stored, first output)]"},
    {"input", graph_input, METH_O, "input(signature) -> edge"},
    {"memory", graph_memory, METH_O, "memory(edge): an input whose frames all come with the start"},
    {"node", graph_node, METH_VARARGS,
     "node(name, attributes, inputs, weights, path='', weight_names=None) -> edges of its outputs"},
    {"output", graph_output, METH_O, "output(edge)"},
    {"store", graph_store, METH_O,
     "store(numbers): for each node how its weights are stored from now on, 4 more where products "
     "are of rows stored so"},
    {"errors", graph_errors, METH_VARARGS,
     "errors(number, asked) -> [the error of a node's weights, stored so, in the worst channel; 0 "
     "of nodes whose byte in asked is 0]"},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(graph, "Graph", ds_graph_object, 0, "A model as data, built front to back.",
        {Py_tp_new, graph_new}, {Py_tp_dealloc, graph_dealloc}, {Py_tp_methods, graph_methods});
