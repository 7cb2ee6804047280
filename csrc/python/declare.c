/* An operator's integers as Python's data: _core.Op.declare takes them, _core.Op.integers gives them. */
#include "python/op.h"

/* Reads ([(code, a, b, c, k), ...], [root, ...]). */
static int parse_program(ds_module *m, PyObject *given, ds_program *p)
{
    PyObject *nodes, *roots;
    p->n_nodes = p->n_roots = 0;
    p->full = false;
    if (!PyArg_ParseTuple(given, "O!O!", &PyList_Type, &nodes, &PyList_Type, &roots))
        return -1;
    DS_EXPECT(
        PyList_GET_SIZE(nodes) <= DS_PROGRAM_NODES && PyList_GET_SIZE(roots) <= DS_PROGRAM_ROOTS,
        m->errors[DS_ARGUMENT], "an operator's integers take at most %d nodes", DS_PROGRAM_NODES);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(nodes); i++) {
        ds_expr_node *node = &p->nodes[p->n_nodes++];
        int code;
        long long k;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(nodes, i), "iiiiL", &code, &node->a, &node->b,
                              &node->c, &k))
            return -1;
        node->code = (ds_expr_code)code;
        node->k = k;
    }
    int64_t given_roots[DS_PROGRAM_ROOTS];
    if (ds_parse_ints(roots, given_roots, DS_PROGRAM_ROOTS) < 0)
        return -1;
    for (Py_ssize_t r = 0; r < PyList_GET_SIZE(roots); r++)
        p->roots[p->n_roots++] = (int)given_roots[r];
    return 0;
}

PyObject *ds_op_object_declare(PyObject *self, PyObject *args)
{
    PyTypeObject *type = (PyTypeObject *)self; /* a class method */
    ds_module *m = ds_module_of(type);
    PyObject *inputs, *outputs, *counted, *needed;
    ds_signature in[DS_MAX_INPUTS], out[DS_MAX_OUTPUTS];
    ds_program counts, need;
    size_t n_in, n_out;
    if (!PyArg_ParseTuple(args, "OOOO:declare", &inputs, &outputs, &counted, &needed) ||
        ds_parse_signatures(m, inputs, 1, in, DS_MAX_INPUTS, &n_in) < 0 ||
        ds_parse_signatures(m, outputs, 1, out, DS_MAX_OUTPUTS, &n_out) < 0 ||
        parse_program(m, counted, &counts) < 0 || parse_program(m, needed, &need) < 0)
        return NULL;
    ds_op_object *object = (ds_op_object *)type->tp_alloc(type, 0);
    if (!object)
        return NULL;
    const ds_allocator allocator = ds_allocator_current();
    const ds_status status =
        ds_op_declare(&object->op, &allocator, in, n_in, out, n_out, &counts, &need);
    return ds_unless_failed(m, status, (PyObject *)object);
}

static PyObject *build_node(const void *nodes, size_t i)
{
    const ds_expr_node *n = (const ds_expr_node *)nodes + i;
    return Py_BuildValue("iiiiL", (int)n->code, n->a, n->b, n->c, (long long)n->k);
}

static PyObject *build_program(const ds_program *p)
{
    return Py_BuildValue("NN", ds_build_list((size_t)p->n_nodes, build_node, p->nodes),
                         ds_build_list((size_t)p->n_roots, ds_int_item, p->roots));
}

PyObject *ds_op_object_integers(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const ds_op *op = ((ds_op_object *)self)->op;
    return Py_BuildValue("NN", build_program(&op->counts), build_program(&op->need));
}
