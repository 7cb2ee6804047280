/* What an engine's plan says: sizes, delays, the nodes; and the planned graph as data, for those who run it
 * by other means. */
#include <string.h>

#include "exec/weights.h"
#include "kernels/narrow.h"
#include "python/engine.h"

/* ---------------------------------------------------------------- items of lists */
static PyObject *build_bound(const void *bounds, size_t i)
{
    const int64_t bound = ((const int64_t *)bounds)[i];
    return bound == DS_NEVER ? Py_NewRef(Py_None) : PyLong_FromLongLong(bound);
}

static size_t kept_bytes(const ds_edge_plan *edge)
{
    return (size_t)edge->capacity * edge->frame_bytes;
}

static PyObject *build_input_bytes(const void *plan, size_t i)
{
    const ds_plan *p = plan;
    return PyLong_FromSize_t(kept_bytes(&p->edges[p->graph->inputs[i]]));
}

/* None where it is absent, or has none. */
static PyObject *build_weight_name(const void *of, size_t i)
{
    return Py_BuildValue("z", ((const ds_node *)of)->weights[i].name);
}

/* One node of the plan: what it is, its weights, its outputs, what it keeps. */
static PyObject *build_plan_node(const void *plan, size_t j)
{
    const ds_plan *p = plan;
    const ds_node *node = &p->graph->nodes[j];
    const ds_op *op = node->op;
    size_t kept = 0;
    bool grows = false;
    for (int o = 0; o < op->n_outputs; o++) {
        kept += kept_bytes(&p->edges[node->first_output + o]);
        grows |= p->edges[node->first_output + o].tail >= 0;
    }
    return Py_BuildValue("{s:i,s:s,s:s,s:N,s:N,s:i,s:N,s:n,s:n,s:N,s:N,s:s,s:s}", "id", node->id,
                         "name", op->def->name, "path", node->path ? node->path : "", "inputs",
                         ds_build_list((size_t)op->n_inputs, ds_int_item, node->inputs), "weights",
                         ds_build_list((size_t)op->n_weights, build_weight_name, node),
                         "first_output", node->first_output, "outputs", ds_build_outputs(op),
                         "kept_bytes", (Py_ssize_t)kept, "carried_bytes",
                         (Py_ssize_t)(node->silent ? 0 : op->carried_bytes), "grows",
                         PyBool_FromLong(grows), "whole", PyBool_FromLong(op->whole), "stored",
                         ds_stored_name(op->stored), "products", ds_products_name(op));
}

/* ---------------------------------------------------------------- attributes */
static PyObject *fingerprint_of(const ds_plan *p)
{
    char text[33];
    (void)snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)p->fingerprint[0],
                   (unsigned long long)p->fingerprint[1]);
    return PyUnicode_FromString(text);
}

/* clang-format off */
#define PLAN o->engine->plan
#define FACTS(X) \
    X(ids, "Live streams.", PyDict_Keys(o->table)) \
    X(delays, "Per output, frames of input 0; None: infinite.", \
      ds_build_list(PLAN->analysis.n_outputs, build_bound, PLAN->analysis.delay)) \
    X(fields, "Receptive field per output; None: infinite.", \
      ds_build_list(PLAN->analysis.n_outputs, build_bound, PLAN->analysis.field)) \
    X(input_bytes, "Bytes of kept frames per input.", ds_build_list(PLAN->graph->n_inputs, build_input_bytes, PLAN)) \
    X(nodes, "The plan, node by node.", ds_build_list(PLAN->graph->n_nodes, build_plan_node, PLAN)) \
    X(state_size, "Bytes of a stream's fixed block.", PyLong_FromSize_t(PLAN->block_bytes)) \
    X(kept_bytes, "What of the block must be kept.", PyLong_FromSize_t(PLAN->kept_bytes)) \
    X(state_bytes_per_frame, "Growth per frame of input 0.", \
      PyFloat_FromDouble((double)PLAN->grown_bytes / (double)PLAN->analysis.period)) \
    X(weights_size, "Bytes of weights, prepared ones included.", PyLong_FromSize_t(PLAN->weight_bytes)) \
    X(threads, "Threads per call.", PyLong_FromSize_t(o->engine->n_threads)) \
    X(blas, "Whether products go to OpenBLAS.", PyBool_FromLong(o->blas)) \
    X(closed, "Whether close() was called.", PyBool_FromLong(o->engine->session == NULL)) \
    X(kernels, "Name of the kernels.", PyUnicode_FromString(PLAN->kernels->name)) \
    X(fingerprint, "Of graph and weights.", fingerprint_of(PLAN))
/* clang-format on */
#define GETTER(name, doc, ...) DS_GETTER(name, ds_engine_object, __VA_ARGS__)
FACTS(GETTER)
PyGetSetDef ds_engine_getset[] = {FACTS(DS_GETTER_ROW){NULL, NULL, NULL, NULL, NULL}};

/* ---------------------------------------------------------------- the graph as data */
/* (signature, most frames kept between calls): None where that grows with the stream. */
static PyObject *build_edge(const void *plan, size_t e)
{
    const ds_plan *p = plan;
    const ds_edge_plan *edge = &p->edges[e];
    return Py_BuildValue("NN", ds_build_signature(&p->graph->edges[e].signature),
                         edge->tail >= 0 ? Py_NewRef(Py_None)
                                         : PyLong_FromLongLong(edge->capacity));
}

typedef struct node_of {
    const ds_plan *plan;
    const ds_node *node;
} node_of;

/* (name or None, a copy of the values), or None where it is absent. */
static PyObject *build_weight(const void *of, size_t i)
{
    const node_of *const at = of;
    const ds_weight *weight = &at->node->weights[i];
    if (!weight->data && !weight->replaced)
        Py_RETURN_NONE;
    PyObject *array = ds_build_array(&at->node->op->weight[i], -1, false);
    if (array && weight->data)
        memcpy(ds_data(array), weight->data, weight->n_bytes);
    else if (array)
        ds_weights_unpack(at->plan, weight->replaced, ds_data(array));
    return Py_BuildValue("zN", weight->name, array);
}

static PyObject *build_node(const void *plan, size_t j)
{
    const node_of at = {plan, &((const ds_plan *)plan)->plain->nodes[j]};
    const ds_node *const node = at.node;
    const ds_op *op = node->op;
    return Py_BuildValue("{s:s,s:s,s:N,s:N,s:i,s:N,s:N}", "name", op->def->name, "path",
                         node->path ? node->path : "", "attributes", ds_build_attributes(op),
                         "inputs", ds_build_list((size_t)op->n_inputs, ds_int_item, node->inputs),
                         "first_output", node->first_output, "weights",
                         ds_build_list((size_t)op->n_weights, build_weight, &at), "silent",
                         PyBool_FromLong(node->silent));
}

PyObject *ds_engine_graph(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const ds_plan *p = ((ds_engine_object *)self)->engine->plan;
    const ds_graph *g = p->plain;
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:L,s:L}", "nodes", ds_build_list(g->n_nodes, build_node, p), "edges",
        ds_build_list(p->graph->n_edges, build_edge, p), "inputs",
        ds_build_list(g->n_inputs, ds_int_item, g->inputs), "outputs",
        ds_build_list(g->n_outputs, ds_int_item, g->outputs), "period",
        (long long)p->analysis.period, "transient", (long long)p->analysis.transient);
}
