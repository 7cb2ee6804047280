/* _core.Op: one operator for given attributes, inputs and weights; what eager and offline calls run. */
#include "python/op.h"

/* ---------------------------------------------------------------- making one */
static PyObject *op_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "attributes", "inputs", "weights", NULL};
    ds_module *m = ds_module_of(type);
    PyObject *name, *attributes, *inputs, *weights = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|O:Op", names, &name, &attributes, &inputs,
                                     &weights))
        return NULL;
    ds_attr attrs[DS_MAX_ATTRS + 1];
    ds_signature in[DS_MAX_INPUTS], weight[DS_MAX_WEIGHTS];
    size_t n_attrs, n_in, n_weights = 0;
    const ds_op_def *def = ds_parse_def(m, name);
    if (!def || ds_parse_attrs(m, def, attributes, attrs, &n_attrs) < 0 ||
        ds_parse_signatures(m, inputs, 1, in, DS_MAX_INPUTS, &n_in) < 0 ||
        (weights && ds_parse_signatures(m, weights, 0, weight, DS_MAX_WEIGHTS, &n_weights) < 0))
        return NULL;
    ds_op_object *self = (ds_op_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    ds_allocator allocator = ds_allocator_current();
    const ds_status status =
        ds_op_create(&self->op, &allocator, def, attrs, n_attrs, in, n_in, weight, n_weights);
    return ds_unless_failed(m, status, (PyObject *)self);
}

static void op_dealloc(PyObject *self)
{
    ds_op_destroy(((ds_op_object *)self)->op);
    Py_XDECREF(((ds_op_object *)self)->state_names);
    ds_free_object(self);
}

/* ---------------------------------------------------------------- counts */
int ds_parse_counts(ds_module *m, const ds_op *op, PyObject *sequence, int n,
                    const ds_counts **counts, Py_ssize_t *n_rows)
{
    DS_EXPECT(PyList_Check(sequence) || PyTuple_Check(sequence), PyExc_TypeError,
              "%s: counts must be a list or tuple of arrays", op->def->name);
    DS_EXPECT(PySequence_Fast_GET_SIZE(sequence) == n, m->errors[DS_ARGUMENT],
              "%s: expected counts of %d edges, got %zd", op->def->name, n,
              PySequence_Fast_GET_SIZE(sequence));
    for (int i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
        const npy_intp shape[] = {*n_rows, 4};
        DS_EXPECT(ds_array_is(item, NPY_INT64, 2, shape, false), m->errors[DS_ARGUMENT],
                  "%s: counts must be (rows, 4) int64 arrays", op->def->name);
        *n_rows = PyArray_DIM((PyArrayObject *)item, 0);
        counts[i] = ds_data(item);
    }
    return 0;
}

const bool *ds_parse_ended(ds_module *m, PyObject *ended, Py_ssize_t n_rows)
{
    if (ds_array_is(ended, NPY_BOOL, 1, &n_rows, false))
        return ds_data(ended);
    PyErr_Format(m->errors[DS_ARGUMENT], "ended must be a bool array of %zd rows", n_rows);
    return NULL;
}

/* Fills one row of all outputs; marks it bad where a check fails. */
static ds_status count_row(const ds_op *op, const ds_counts *const *in, ds_counts *const *out,
                           Py_ssize_t r, bool ended)
{
    ds_pair before[DS_MAX_INPUTS], now[DS_MAX_INPUTS], b[DS_MAX_OUTPUTS], n[DS_MAX_OUTPUTS];
    for (int i = 0; i < op->n_inputs; i++) {
        before[i] = in[i][r].before;
        now[i] = in[i][r].now;
    }
    ds_op_counts(op, before, false, b);
    ds_op_counts(op, now, ended, n);
    for (int o = 0; o < op->n_outputs; o++) {
        DS_ASSERT(n[o].known >= b[o].known);
        out[o][r] = (ds_counts){b[o], n[o]};
    }
    return ds_op_check(op, now, ended);
}

/* The ids of the rows that are marked bad; new reference. */
static PyObject *bad_ids(PyObject *ids, const bool *bad, Py_ssize_t n_rows)
{
    PyObject *list = PyList_New(0);
    Py_ssize_t n_ids = PySequence_Size(ids);
    if (n_ids < 0)
        PyErr_Clear();
    for (Py_ssize_t r = 0; list && r < n_rows && r < n_ids; r++)
        if (bad[r])
            ds_append(&list, PySequence_GetItem(ids, r));
    return list;
}

PyObject *ds_op_raise(ds_module *m, ds_status status, PyObject *ids, const bool *bad,
                      Py_ssize_t n_rows)
{
    DS_OWNED PyObject *about = ids ? bad_ids(ids, bad, n_rows) : NULL;
    return PyErr_Occurred() ? NULL : ds_raise(m, status, about);
}

/* A list of n new arrays (n_rows, width), and where their integers lie. */
static PyObject *new_integers(int n, npy_intp n_rows, npy_intp width, int64_t **data)
{
    const npy_intp shape[2] = {n_rows, width};
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *array = PyArray_SimpleNew(2, shape, NPY_INT64);
        data[i] = array ? ds_data(array) : NULL;
        ds_set_item(&list, i, array);
    }
    return list;
}

static PyObject *op_counts(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    const ds_op *op = ((ds_op_object *)self)->op;
    const ds_counts *in[DS_MAX_INPUTS];
    ds_counts *out[DS_MAX_OUTPUTS];
    int64_t *data[DS_MAX_OUTPUTS];
    Py_ssize_t n_rows = -1;
    if (n_args < 2 || n_args > 3)
        return PyErr_Format(PyExc_TypeError, "counts(inputs, ended, ids=())");
    if (ds_parse_counts(m, op, args[0], op->n_inputs, in, &n_rows) < 0)
        return NULL;
    const bool *ended = ds_parse_ended(m, args[1], n_rows);
    if (!ended)
        return NULL;
    DS_SCOPED(ds_memory_end) void *marks = PyMem_Calloc((size_t)n_rows + 1, sizeof(bool));
    bool *const bad = marks;
    if (!bad)
        return PyErr_NoMemory();
    PyObject *list = new_integers(op->n_outputs, n_rows, 4, data);
    for (int o = 0; list && o < op->n_outputs; o++)
        out[o] = (ds_counts *)data[o];
    ds_first_fault first = {DS_OK, ""};
    for (Py_ssize_t r = 0; list && r < n_rows; r++)
        ds_first_fault_note(&first, count_row(op, in, out, r, ended[r]), &bad[r]);
    if (first.status != DS_OK) {
        Py_CLEAR(list);
        ds_op_raise(m, ds_first_fault_end(&first), n_args > 2 ? args[2] : NULL, bad, n_rows);
    }
    return list;
}

static PyObject *op_kept(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    const ds_op *op = ((ds_op_object *)self)->op;
    const ds_counts *in[DS_MAX_INPUTS], *out[DS_MAX_OUTPUTS];
    int64_t *data[DS_MAX_INPUTS];
    Py_ssize_t n_rows = -1;
    if (n_args != 2)
        return PyErr_Format(PyExc_TypeError, "kept(inputs, outputs)");
    if (ds_parse_counts(m, op, args[0], op->n_inputs, in, &n_rows) < 0 ||
        ds_parse_counts(m, op, args[1], op->n_outputs, out, &n_rows) < 0)
        return NULL;
    PyObject *list = new_integers(ds_op_n_values(op), n_rows, 2, data);
    for (int i = 0; list && i < ds_op_n_values(op); i++)
        for (Py_ssize_t r = 0; r < n_rows; r++) {
            data[i][2 * r] = ds_eager_kept_from(op, i, in[i][r].before, out[0][r].before);
            data[i][2 * r + 1] = ds_eager_kept_from(op, i, in[i][r].now, out[0][r].now);
        }
    return list;
}

/* ---------------------------------------------------------------- values */
static PyObject *op_check_values(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    const ds_op *op = ((ds_op_object *)self)->op;
    const ds_counts *in;
    Py_ssize_t n_rows = -1;
    if (n_args != 3 || op->def->indices == NULL)
        return PyErr_Format(PyExc_TypeError, "check_values(values, counts, ids)");
    PyArrayObject *values = (PyArrayObject *)args[0];
    DS_OWNED PyObject *counts = PyTuple_Pack(1, args[1]);
    if (!counts || ds_parse_counts(m, op, counts, 1, &in, &n_rows) < 0)
        return NULL;
    const size_t frame = ds_signature_bytes(&op->in[op->def->checked_input]);
    size_t n_bytes = 0;
    for (Py_ssize_t r = 0; r < n_rows; r++)
        n_bytes += (size_t)ds_new_frames(&in[r]) * frame;
    if (!PyArray_Check(args[0]) || PyArray_TYPE(values) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(values) || (size_t)PyArray_NBYTES(values) != n_bytes)
        return PyErr_Format(m->errors[DS_ARGUMENT], "%s: expected int64 values of all rows",
                            op->def->name);
    DS_SCOPED(ds_memory_end) void *bad = PyMem_Calloc((size_t)n_rows + 1, sizeof(bool));
    if (!bad)
        return PyErr_NoMemory();
    const ds_status status =
        ds_eager_check_values(op, PyArray_DATA(values), in, (size_t)n_rows, bad);
    return status == DS_OK ? Py_NewRef(Py_None) : ds_op_raise(m, status, args[2], bad, n_rows);
}

/* ---------------------------------------------------------------- facts */
/* Bytes of its weights as the kernels of calls without OpenBLAS want them. */
static PyObject *prepared_bytes(const ds_op_object *o)
{
    const ds_module *m = ds_module_of(Py_TYPE(o));
    if (!ds_have_kernels(m))
        return NULL;
    const ds_real_kernels *k = &m->kernels->real[ds_op_real(o->op) == DS_F64];
    return PyLong_FromSize_t(ds_op_prepared_bytes(o->op, k));
}

static PyObject *checked_input(const ds_op *op)
{
    return op->def->indices ? PyLong_FromLong(op->def->checked_input) : Py_NewRef(Py_None);
}

/* clang-format off */
#define FACTS(X) \
    X(name, "The operator's name.", PyUnicode_FromString(o->op->def->name)) \
    X(attributes, "All attributes, defaults included.", ds_build_attributes(o->op)) \
    X(outputs, "Signatures of the outputs.", ds_build_outputs(o->op)) \
    X(same_counts, "Whether outputs have the input's counts.", PyBool_FromLong(o->op->same_counts)) \
    X(checks, "Whether counts may be refused.", PyBool_FromLong(o->op->check.n_roots > 0)) \
    X(framewise, "Whether a frame is made of those in its place alone.", PyBool_FromLong(ds_op_framewise(o->op))) \
    X(lockstep, "Whether value inputs must progress equally.", PyBool_FromLong(o->op->def->flags & DS_OP_LOCKSTEP)) \
    X(needs_frames, "Whether a stream of no frames has no outputs, not even empty ones.", \
      PyBool_FromLong(o->op->needs_frames)) \
    X(whole, "Whether it needs the whole stream.", PyBool_FromLong(o->op->whole)) \
    X(carries, "Whether it carries arrays from call to call.", PyBool_FromLong(o->op->n_carried > 0)) \
    X(n_values, "Inputs whose values are read.", PyLong_FromLong(ds_op_n_values(o->op))) \
    X(differentiable, "Whether it has a backward, and outputs that have slopes.", \
      PyBool_FromLong(ds_op_differentiable(o->op))) \
    X(constant, "Whether calculus ends here.", PyBool_FromLong(ds_op_constant(o->op))) \
    X(checked_input, "Which input's values are checked, or None.", checked_input(o->op)) \
    X(prepared_bytes, "Bytes of its weights as kernels want them.", prepared_bytes(o))
/* clang-format on */
#define GETTER(name, doc, ...) DS_GETTER(name, ds_op_object, __VA_ARGS__)
FACTS(GETTER)
static PyGetSetDef op_getset[] = {FACTS(DS_GETTER_ROW){NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef op_methods[] = {
    {"counts", DS_FAST(op_counts), "counts(inputs, ended, ids=()) -> counts of every output"},
    {"kept", DS_FAST(op_kept),
     "kept(inputs, outputs) -> per value input the first frame kept before and now"},
    {"columns", DS_FAST(ds_op_object_columns),
     "columns(inputs, outputs, ended) -> per value input (first frame kept, frames kept before, "
     "now, new frames);\n"
     "per output (first frame, most new frames, frames behind input 0); whether windows are "
     "columns; bytes that are equal where a later call does the same"},
    {"check_values", DS_FAST(op_check_values), "check_values(values, counts, ids)"},
    {"run", DS_FAST(ds_op_object_run),
     "run(values, inputs, outputs, ended, states, weights, blas, ids=(), prepared=None, "
     "record=False)\n-> outputs, new states; and where asked for a record, or None of constants"},
    {"integers", ds_op_object_integers, METH_NOARGS,
     "integers() -> counts and need, each as what `declare` takes"},
    {"totals", ds_op_object_totals, METH_O,
     "totals(inputs) -> Count of every output's total, of those of the inputs"},
    {"declare", ds_op_object_declare, METH_CLASS | METH_VARARGS,
     "declare(inputs, outputs, counts, need): an operator whose integers are data"},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(op, "Op", ds_op_object, 0, "An operator of the engine.", {Py_tp_new, op_new},
        {Py_tp_dealloc, op_dealloc}, {Py_tp_getset, op_getset}, {Py_tp_methods, op_methods});
