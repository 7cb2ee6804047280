/* _core.Engine.graph: the planned graph as data, for those who run it by other means. */
#include <string.h>

#include "exec/weights.h"
#include "python/engine.h"

static PyObject *build_ints(const int *values, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = PyLong_FromLong(values[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* Per edge (signature, most frames kept between calls): None where that grows with the stream. */
static PyObject *build_edges(const ds_plan *p)
{
    PyObject *list = PyList_New((Py_ssize_t)p->graph->n_edges);
    for (size_t e = 0; list && e < p->graph->n_edges; e++) {
        PyObject *signature = ds_build_signature(&p->graph->edges[e].signature);
        PyObject *capacity =
            p->edges[e].tail >= 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(p->edges[e].capacity);
        PyObject *item = signature && capacity ? PyTuple_Pack(2, signature, capacity) : NULL;
        Py_XDECREF(signature);
        Py_XDECREF(capacity);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)e, item);
    }
    return list;
}

/* (name or None, a copy of the values), or None where it is absent. */
static PyObject *build_weight(const ds_node *node, int i)
{
    const ds_signature *s = &node->op->weight[i];
    const ds_weight *weight = &node->weights[i];
    if (!weight->data)
        Py_RETURN_NONE;
    npy_intp shape[DS_MAX_RANK];
    for (int d = 0; d < s->rank; d++)
        shape[d] = (npy_intp)s->shape[d];
    PyObject *array = PyArray_SimpleNew(s->rank, shape, ds_numpy_type(s->dtype));
    if (!array)
        return NULL;
    memcpy(PyArray_DATA((PyArrayObject *)array), weight->data, weight->n_bytes);
    return Py_BuildValue("zN", weight->name, array);
}

static PyObject *build_node(const ds_node *node)
{
    const ds_op *op = node->op;
    PyObject *attributes = ds_build_attributes(op);
    PyObject *inputs = attributes ? build_ints(node->inputs, (size_t)op->n_inputs) : NULL;
    PyObject *weights = inputs ? PyList_New(op->n_weights) : NULL;
    for (int i = 0; weights && i < op->n_weights; i++) {
        PyObject *weight = build_weight(node, i);
        if (!weight)
            Py_CLEAR(weights);
        else
            PyList_SET_ITEM(weights, i, weight);
    }
    if (!weights) {
        Py_XDECREF(attributes);
        Py_XDECREF(inputs);
        return NULL;
    }
    return Py_BuildValue("{s:s,s:s,s:N,s:N,s:i,s:N,s:O}", "name", op->def->name, "path",
                         node->path ? node->path : "", "attributes", attributes, "inputs", inputs,
                         "first_output", node->first_output, "weights", weights, "silent",
                         node->silent ? Py_True : Py_False);
}

static PyObject *build_graph(const ds_plan *p, const ds_graph *g)
{
    PyObject *nodes = PyList_New((Py_ssize_t)g->n_nodes);
    for (size_t j = 0; nodes && j < g->n_nodes; j++) {
        PyObject *node = build_node(&g->nodes[j]);
        if (!node)
            Py_CLEAR(nodes);
        else
            PyList_SET_ITEM(nodes, (Py_ssize_t)j, node);
    }
    PyObject *edges = nodes ? build_edges(p) : NULL;
    PyObject *inputs = edges ? build_ints(g->inputs, g->n_inputs) : NULL;
    PyObject *outputs = inputs ? build_ints(g->outputs, g->n_outputs) : NULL;
    if (!outputs) {
        Py_XDECREF(nodes);
        Py_XDECREF(edges);
        Py_XDECREF(inputs);
        return NULL;
    }
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:L,s:L}", "nodes", nodes, "edges", edges, "inputs",
                         inputs, "outputs", outputs, "period", (long long)p->analysis.period,
                         "transient", (long long)p->analysis.transient);
}

PyObject *ds_engine_graph(DS_METHOD_ARGUMENTS)
{
    const ds_plan *p = ((ds_engine_object *)self)->plan;
    (void)args;
    if (n_args || names) {
        PyErr_SetString(PyExc_TypeError, "graph()");
        return NULL;
    }
    ds_restored whole;
    const ds_status status = ds_weights_restore(&whole, p, p->plain);
    if (status != DS_OK)
        return ds_raise(PyType_GetModuleState(cls), status, NULL);
    PyObject *graph = build_graph(p, whole.graph);
    ds_weights_free(&whole);
    return graph;
}
