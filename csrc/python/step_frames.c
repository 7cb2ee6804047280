/* _core.Engine.step: the rows' frames end to end, as stream tensors hold them. */
#include "python/call.h"
#include "python/stepper.h"

static const ds_axes in_order = {DS_MAX_RANK + 1, {0, 1, 2, 3, 4, 5, 6}};

typedef struct frames_step {
    ds_call call;
    PyObject *values;   /* tuple: per input [frames of all rows][features...] */
    PyObject **outputs; /* [output] owned, likewise */
} frames_step;

static int measure_values(frames_step *f)
{
    ds_call *c = &f->call;
    for (size_t k = 0; k < c->n_inputs; k++) {
        PyArrayObject *value = (PyArrayObject *)PyTuple_GET_ITEM(f->values, (Py_ssize_t)k);
        const int64_t *n_frames = c->step->n_frames + k * (size_t)c->n;
        ds_axes axes = in_order;
        axes.rank = ds_step_input(c->e->plan, k)->rank + 1;
        const int64_t frames = ds_call_measure(c, k, &axes, value, c->n ? c->ids[0] : NULL);
        int64_t sum = 0;
        bool fits = PyArray_ISNOTSWAPPED(value);
        if (frames < 0)
            return -1;
        for (Py_ssize_t r = 0; r < c->n; r++)
            fits = fits && n_frames[r] >= 0 && !__builtin_add_overflow(sum, n_frames[r], &sum);
        if (!fits || sum != frames) {
            PyErr_Format(c->m->errors[DS_SHAPE], "input %zu: the frames are not those of the rows",
                         k);
            return -1;
        }
    }
    return 0;
}

/* Reads values and lengths; may run Python code. */
static int read_values(frames_step *f, PyObject *values, PyObject *lengths)
{
    f->values = PySequence_Tuple(values);
    PyObject *counts = f->values ? PySequence_Tuple(lengths) : NULL;
    const Py_ssize_t n = (Py_ssize_t)f->call.n_inputs;
    int status = counts ? 0 : -1;
    if (counts && (PyTuple_GET_SIZE(f->values) != n || PyTuple_GET_SIZE(counts) != n)) {
        PyErr_Format(PyExc_ValueError, "expected values and lengths of %zd inputs", n);
        status = -1;
    }
    for (Py_ssize_t k = 0; status == 0 && k < n; k++) {
        status = ds_rows_lengths(&f->call, (size_t)k, PyTuple_GET_ITEM(counts, k));
        if (status == 0 && !PyArray_Check(PyTuple_GET_ITEM(f->values, k))) {
            PyErr_Format(PyExc_TypeError, "input %zd: expected an array", k);
            status = -1;
        }
    }
    Py_XDECREF(counts);
    return status;
}

static void put_values(const frames_step *f)
{
    const ds_call *c = &f->call;
    for (size_t k = 0; k < c->n_inputs; k++) {
        PyArrayObject *a = (PyArrayObject *)PyTuple_GET_ITEM(f->values, (Py_ssize_t)k);
        const char *row = PyArray_BYTES(a);
        for (Py_ssize_t r = 0; r < c->n; r++) {
            ds_step_put(c->step, k, (size_t)r, row, PyArray_STRIDES(a), ds_element_of(a));
            row += c->step->n_frames[k * (size_t)c->n + (size_t)r] * PyArray_STRIDE(a, 0);
        }
    }
}

/* (values, lengths, starts), per output. */
static PyObject *make_values(frames_step *f)
{
    const ds_call *c = &f->call;
    const Py_ssize_t n_outputs = (Py_ssize_t)c->n_outputs;
    PyObject *values = PyList_New(n_outputs), *lengths = PyList_New(n_outputs),
             *starts = PyList_New(n_outputs);
    bool made = values && lengths && starts;
    for (Py_ssize_t o = 0; made && o < n_outputs; o++) {
        const ds_signature *signature = ds_step_output(c->e->plan, (size_t)o);
        npy_intp shape[DS_MAX_RANK + 1] = {0};
        PyObject *counts = PyList_New(c->n), *firsts = PyList_New(c->n);
        made = counts && firsts;
        for (Py_ssize_t r = 0; made && r < c->n; r++) {
            int64_t start;
            const int64_t frames = ds_step_frames(c->step, (size_t)o, (size_t)r, &start);
            shape[0] += frames;
            PyObject *count = PyLong_FromLongLong(frames), *first = PyLong_FromLongLong(start);
            made = count && first;
            PyList_SET_ITEM(counts, r, count);
            PyList_SET_ITEM(firsts, r, first);
        }
        for (int d = 0; d < signature->rank; d++)
            shape[d + 1] = signature->shape[d];
        f->outputs[o] = made ? ds_new_array(signature, signature->rank + 1, shape, false) : NULL;
        made = f->outputs[o] != NULL;
        PyList_SET_ITEM(values, o, Py_XNewRef(f->outputs[o]));
        PyList_SET_ITEM(lengths, o, counts);
        PyList_SET_ITEM(starts, o, firsts);
    }
    PyObject *result = made ? PyTuple_Pack(3, values, lengths, starts) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(lengths);
    Py_XDECREF(starts);
    return result;
}

static void get_values(const ds_call *c, void *context)
{
    const frames_step *f = context;
    for (size_t o = 0; o < c->n_outputs; o++) {
        PyArrayObject *a = (PyArrayObject *)f->outputs[o];
        char *row = PyArray_BYTES(a);
        for (Py_ssize_t r = 0; r < c->n; r++) {
            int64_t start;
            const int64_t n = ds_step_frames(c->step, o, (size_t)r, &start);
            ds_step_get(c->step, o, (size_t)r, n, row, PyArray_STRIDES(a));
            row += n * PyArray_STRIDE(a, 0);
        }
    }
}

static PyObject *run_values(frames_step *f, PyObject *ids, PyObject *const *args)
{
    ds_call *c = &f->call;
    PyObject *result = NULL;
    ds_rows_name(c, ids);
    f->outputs = ds_call_room(c, c->n_outputs, sizeof *f->outputs);
    if (f->outputs && ds_rows_flags(c, "sos", args[1], c->sos) == 0 &&
        ds_rows_flags(c, "eos", args[2], c->step->ended) == 0 &&
        read_values(f, args[3], args[4]) == 0 && ds_call_find(c, NULL) == 0 &&
        measure_values(f) == 0 && ds_call_enter(c) == 0) {
        put_values(f);
        result = make_values(f);
    }
    if (result && ds_call_ready(c) < 0)
        Py_CLEAR(result);
    if (result)
        ds_call_run(c, get_values, f);
    return result;
}

PyObject *ds_engine_step(DS_METHOD_ARGUMENTS)
{
    ds_module *m = ds_module_of(cls);
    ds_engine_object *e = (ds_engine_object *)self;
    if (n_args != 6 || names)
        return PyErr_Format(PyExc_TypeError, "step(ids, sos, eos, values, lengths, restart)");
    const int restart = PyObject_IsTrue(args[5]);
    frames_step f = {0};
    PyObject *known = NULL, *result = NULL;
    PyObject *ids = restart < 0 ? NULL : ds_rows_ids(m, e, args[0], &known);
    if (ids && ds_call_open(&f.call, m, e, PyTuple_GET_SIZE(ids)) == 0) {
        f.call.restart = restart > 0;
        result = run_values(&f, ids, args);
    }
    for (size_t o = 0; f.outputs && o < f.call.n_outputs; o++)
        Py_XDECREF(f.outputs[o]);
    ds_call_close(&f.call);
    Py_XDECREF(f.values);
    Py_XDECREF(known);
    Py_XDECREF(ids);
    return result;
}
