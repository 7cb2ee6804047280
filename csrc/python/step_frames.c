/* _core.Engine.step: the rows' frames end to end, as stream tensors hold them. */
#include "python/call.h"

static const int in_order[DS_MAX_RANK + 1] = {0, 1, 2, 3, 4, 5, 6};

/* Reads flags, values and lengths; may run Python code. Returns what keeps the values. */
static PyObject *read_values(ds_call *c, PyObject *const *args)
{
    PyObject *values = NULL, *lengths = NULL;
    bool right = ds_rows_flags(c, "sos", args[1], c->sos) == 0 &&
                 ds_rows_flags(c, "eos", args[2], c->step->ended) == 0 &&
                 (values = PySequence_Tuple(args[3])) && (lengths = PySequence_Tuple(args[4]));
    if (right && ((size_t)PyTuple_GET_SIZE(values) != c->n_inputs ||
                  (size_t)PyTuple_GET_SIZE(lengths) != c->n_inputs)) {
        PyErr_Format(PyExc_ValueError, "expected values and lengths of %zu inputs", c->n_inputs);
        right = false;
    }
    for (size_t k = 0; right && k < c->n_inputs; k++) {
        right = ds_rows_lengths(c, k, PyTuple_GET_ITEM(lengths, (Py_ssize_t)k)) == 0;
        if (right && !PyArray_Check(PyTuple_GET_ITEM(values, (Py_ssize_t)k))) {
            PyErr_Format(PyExc_TypeError, "input %zu: expected an array", k);
            right = false;
        }
        c->in[k] = (ds_rows){.arrays = &PyTuple_GET_ITEM(values, (Py_ssize_t)k),
                             .rank = ds_step_input(c->e->plan, k)->rank + 1,
                             .batch = -1,
                             .axis = in_order};
    }
    Py_XDECREF(lengths);
    if (!right)
        Py_CLEAR(values);
    return values;
}

/* (values, counts): per output the frames of all rows, and each row's number of them and its first. */
static PyObject *make_values(ds_call *c, PyObject *values)
{
    npy_intp shape[] = {(npy_intp)c->n_outputs, 2, c->n};
    PyObject *counts = PyArray_SimpleNew(3, shape, NPY_INT64);
    for (size_t o = 0; counts && o < c->n_outputs; o++) {
        int64_t *n = PyArray_GETPTR1((PyArrayObject *)counts, (npy_intp)o), *start = n + c->n;
        int64_t sum = 0;
        for (Py_ssize_t r = 0; r < c->n; r++) {
            n[r] = ds_step_frames(c->step, o, (size_t)r, &start[r]);
            sum += n[r];
        }
        c->out[o] = (ds_rows){.arrays = &PyList_GET_ITEM(values, (Py_ssize_t)o),
                              .rank = ds_step_output(c->e->plan, o)->rank + 1,
                              .batch = -1,
                              .axis = in_order};
        PyObject *value = ds_frames_new(c, o, sum, false);
        if (!value)
            Py_CLEAR(counts);
        else
            PyList_SET_ITEM(values, (Py_ssize_t)o, value);
    }
    return counts ? Py_BuildValue("ON", values, counts) : NULL;
}

PyObject *ds_engine_step(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    if (n_args != 6 || names)
        return PyErr_Format(PyExc_TypeError, "step(ids, sos, eos, values, lengths, restart)");
    const int restart = PyObject_IsTrue(args[5]);
    ds_call c = {0};
    PyObject *known = NULL, *given = NULL, *made = NULL, *result = NULL;
    PyObject *ids = restart < 0 ? NULL : ds_rows_ids(m, e, args[0], &known);
    if (ids && ds_call_open(&c, m, e, PyList_GET_SIZE(ids)) == 0) {
        c.restart = restart > 0;
        ds_rows_name(&c, ids);
        given = read_values(&c, args);
    }
    if (given && ds_call_begin(&c, known) == 0) {
        made = PyList_New((Py_ssize_t)c.n_outputs);
        result = made ? make_values(&c, made) : NULL;
    }
    if (result && ds_call_ready(&c) < 0)
        Py_CLEAR(result);
    if (result)
        ds_call_run(&c);
    ds_call_close(&c);
    Py_XDECREF(made);
    Py_XDECREF(given);
    Py_XDECREF(known);
    Py_XDECREF(ids);
    return result;
}
