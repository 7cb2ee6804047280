/* What an engine's plan says: sizes, delays, the nodes. */
#include "python/engine.h"

static PyObject *build_bound(int64_t value)
{
    if (value == DS_NEVER)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static PyObject *build_bounds(const int64_t *values, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *item = build_bound(values[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *get_ids(PyObject *self, void *unused)
{
    (void)unused;
    return PyDict_Keys(((ds_engine_object *)self)->table);
}

static PyObject *get_delays(PyObject *self, void *unused)
{
    (void)unused;
    const ds_analysis *a = &((ds_engine_object *)self)->plan->analysis;
    return build_bounds(a->delay, a->n_outputs);
}

static PyObject *get_fields(PyObject *self, void *unused)
{
    (void)unused;
    const ds_analysis *a = &((ds_engine_object *)self)->plan->analysis;
    return build_bounds(a->field, a->n_outputs);
}

static PyObject *get_number(PyObject *self, void *which)
{
    const ds_engine_object *e = (ds_engine_object *)self;
    switch (*(const char *)which) {
    case 's': return PyLong_FromSize_t(e->plan->block_bytes);
    case 'm': return PyLong_FromSize_t(e->plan->kept_bytes);
    case 'g': return PyFloat_FromDouble((double)e->plan->grown_bytes /
                                        (double)e->plan->analysis.period);
    case 'w': return PyLong_FromSize_t(e->plan->weight_bytes);
    case 't': return PyLong_FromSize_t(e->engine->n_threads);
    case 'b': return PyBool_FromLong(e->blas);
    default: return PyBool_FromLong(e->session == NULL);
    }
}

static PyObject *get_text(PyObject *self, void *which)
{
    const ds_plan *p = ((ds_engine_object *)self)->plan;
    if (*(const char *)which == 'k')
        return PyUnicode_FromString(p->kernels->name);
    char text[33];
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++)
        text[i] = digits[(p->fingerprint[i / 16] >> (60 - 4 * (i % 16))) & 15];
    text[32] = 0;
    return PyUnicode_FromString(text);
}

/* One node of the plan: what it is, its outputs, what it keeps. */
static PyObject *build_node(const ds_plan *p, size_t j)
{
    const ds_node *node = &p->graph->nodes[j];
    const ds_op *op = node->op;
    size_t kept = 0;
    bool grows = false;
    PyObject *outputs = PyList_New(op->n_outputs);
    for (int o = 0; outputs && o < op->n_outputs; o++) {
        const ds_edge_plan *edge = &p->edges[node->first_output + o];
        kept += (size_t)edge->capacity * edge->frame_bytes;
        grows |= edge->tail >= 0;
        PyObject *s = ds_build_signature(&op->out[o]);
        if (!s)
            Py_CLEAR(outputs);
        else
            PyList_SET_ITEM(outputs, o, s);
    }
    if (!outputs)
        return NULL;
    return Py_BuildValue("{s:i,s:s,s:s,s:N,s:n,s:n,s:O,s:O}", "id", node->id, "name", op->def->name,
                         "path", node->path ? node->path : "",
                         "outputs", outputs, "kept_bytes", (Py_ssize_t)kept, "carried_bytes",
                         (Py_ssize_t)(node->silent ? 0 : op->carried_bytes), "grows",
                         grows ? Py_True : Py_False, "whole", op->whole ? Py_True : Py_False);
}

static PyObject *get_nodes(PyObject *self, void *unused)
{
    (void)unused;
    const ds_plan *p = ((ds_engine_object *)self)->plan;
    PyObject *list = PyList_New((Py_ssize_t)p->graph->n_nodes);
    for (size_t j = 0; list && j < p->graph->n_nodes; j++) {
        PyObject *node = build_node(p, j);
        if (!node)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)j, node);
    }
    return list;
}

/* Bytes that each graph input keeps in the block. */
static PyObject *get_input_bytes(PyObject *self, void *unused)
{
    (void)unused;
    const ds_plan *p = ((ds_engine_object *)self)->plan;
    PyObject *list = PyList_New((Py_ssize_t)p->graph->n_inputs);
    for (size_t i = 0; list && i < p->graph->n_inputs; i++) {
        const ds_edge_plan *edge = &p->edges[p->graph->inputs[i]];
        PyObject *n = PyLong_FromSize_t((size_t)edge->capacity * edge->frame_bytes);
        if (!n)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, n);
    }
    return list;
}

PyGetSetDef ds_engine_getset[] = {
    {"ids", get_ids, NULL, "Live streams.", NULL},
    {"delays", get_delays, NULL, "Per output, frames of input 0; None: infinite.", NULL},
    {"fields", get_fields, NULL, "Receptive field per output; None: infinite.", NULL},
    {"state_size", get_number, NULL, "Bytes of a stream's fixed block.", "s"},
    {"kept_bytes", get_number, NULL, "What of the block must be kept.", "m"},
    {"state_bytes_per_frame", get_number, NULL, "Growth per frame of input 0.", "g"},
    {"weights_size", get_number, NULL, "Bytes of weights, prepared ones included.", "w"},
    {"threads", get_number, NULL, "Threads per call.", "t"},
    {"blas", get_number, NULL, "Whether products go to OpenBLAS.", "b"},
    {"closed", get_number, NULL, "Whether close() was called.", "c"},
    {"kernels", get_text, NULL, "Name of the kernels.", "k"},
    {"fingerprint", get_text, NULL, "Of graph and weights.", "f"},
    {"input_bytes", get_input_bytes, NULL, "Bytes of kept frames per input.", NULL},
    {"nodes", get_nodes, NULL, "The plan, node by node.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
