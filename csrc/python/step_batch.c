/* Engine.step_batch: rows of padded arrays.
 *
 * The ids of a server's batch are mostly those of the batch before, the same objects: then what stands behind
 * them is remembered, and taken where it is still live. */
#include "python/stepper.h"

/* What `given` says of input k: an item of a tuple or list, or of a dict by name (new reference); NULL where
 * that is nothing, or with an exception. */
static PyObject *of_input(const ds_stepper *s, PyObject *given, Py_ssize_t k, size_t n_inputs)
{
    if (!given || given == Py_None)
        return NULL;
    if (n_inputs == 1 && !PyDict_Check(given))
        return Py_NewRef(given);
    if (PyDict_Check(given))
        return Py_XNewRef(PyDict_GetItemWithError(given, PyTuple_GET_ITEM(s->names, k)));
    if ((PyTuple_Check(given) || PyList_Check(given)) && (size_t)PySequence_Size(given) == n_inputs)
        return PySequence_GetItem(given, k);
    PyErr_SetString(PyExc_TypeError,
                    "lengths: expected one sequence per input, or a dict of them by name");
    return NULL;
}

/* ---------------------------------------------------------------- ids */
/* Remembers what stands behind the ids of a step that was made; forgets everything where memory is short. */
static void remember(const ds_call *c, PyObject *ids, PyObject *known)
{
    ds_engine_object *e = c->e;
    if (known && !c->any_sos && known == e->last_live)
        return;
    PyObject *live = PyTuple_New(c->n);
    for (Py_ssize_t r = 0; live && r < c->n; r++) {
        ds_live *now = c->fresh[r] ? c->fresh[r] : c->step->ended[r] ? NULL : c->live[r];
        if (!now)
            Py_CLEAR(live);
        else
            PyTuple_SET_ITEM(live, r, Py_NewRef((PyObject *)now));
    }
    if (!live)
        PyErr_Clear();
    Py_XSETREF(e->last_ids, live ? Py_NewRef(ids) : NULL);
    Py_XSETREF(e->last_live, live);
}

/* ---------------------------------------------------------------- padded arrays */
typedef struct batch_step {
    ds_call call;
    ds_stepper *stepper;
    PyObject *arrays;   /* tuple: per input an array, or None */
    PyObject **outputs; /* [output] owned */
    int64_t *most;      /* [output] frames of the longest row */
} batch_step;

/* Arrays of this machine's byte order, one per input; new reference. */
static PyObject *read_arrays(ds_stepper *s, ds_module *m, size_t n_inputs, PyObject *const *args,
                             Py_ssize_t n_args)
{
    if ((size_t)n_args != n_inputs)
        return PyErr_Format(m->errors[DS_SHAPE],
                            "step_batch: expected %zu arrays, in the order of the inputs",
                            n_inputs);
    PyObject *arrays = PyTuple_New(n_args);
    for (Py_ssize_t k = 0; arrays && k < n_args; k++) {
        PyObject *item = ds_is_chunk(args[k])
                             ? Py_NewRef(args[k])
                             : PyObject_CallMethod((PyObject *)s, "_array_of", "nO", k, args[k]);
        if (item)
            PyTuple_SET_ITEM(arrays, k, item);
        if (item && !ds_is_chunk(item))
            PyErr_SetString(m->errors[DS_DTYPE], "step_batch: expected arrays");
        if (PyErr_Occurred())
            Py_CLEAR(arrays);
    }
    return arrays;
}

/* Reads flags and lengths, and where the rows lie; may run Python code. */
static int read_rows(batch_step *b, PyObject *const *options)
{
    ds_call *c = &b->call;
    const ds_stepper *s = b->stepper;
    if (ds_rows_flags(c, "sos", options[1], c->sos) < 0 ||
        ds_rows_flags(c, "eos", options[2], c->step->ended) < 0)
        return -1;
    for (size_t k = 0; k < c->n_inputs; k++) {
        PyObject *of = of_input(s, options[0], (Py_ssize_t)k, c->n_inputs);
        const int status = PyErr_Occurred() ? -1 : ds_rows_lengths(c, k, of);
        Py_XDECREF(of);
        if (status < 0)
            return -1;
        c->in[k] = (ds_rows){&PyTuple_GET_ITEM(b->arrays, (Py_ssize_t)k), 0, s->inputs[k].rank,
                             s->inputs[k].batch, s->inputs[k].axis};
    }
    for (size_t o = 0; o < c->n_outputs; o++)
        c->out[o] = (ds_rows){b->outputs + o, 0, s->outputs[o].rank, s->outputs[o].batch,
                              s->outputs[o].axis};
    return 0;
}

/* Finds the arrays of a caller's `out`, which has the structure of what forward returns. */
static int find_out(PyObject *structure, PyObject *out, PyObject **outputs)
{
    if (PyLong_Check(structure)) {
        PyObject **output = &outputs[PyLong_AsSsize_t(structure)];
        Py_XSETREF(*output, Py_NewRef(out));
        return 0;
    }
    PyObject *keys = PyDict_Check(structure) ? PySequence_List(structure) : NULL;
    const Py_ssize_t n = PyErr_Occurred() ? -1 : PyObject_Size(structure);
    const Py_ssize_t n_out = n < 0 ? -1 : PyObject_Size(out);
    int status = n < 0 || n_out < 0 ? -1 : 0;
    if (status == 0 && n != n_out) {
        PyErr_SetString(PyExc_ValueError, "out: expected what forward returns");
        status = -1;
    }
    for (Py_ssize_t i = 0; status == 0 && i < n; i++) {
        PyObject *key = keys ? Py_NewRef(PyList_GET_ITEM(keys, i)) : PyLong_FromSsize_t(i);
        PyObject *part = key ? PyObject_GetItem(structure, key) : NULL;
        PyObject *item = part ? PyObject_GetItem(out, key) : NULL;
        status = item ? find_out(part, item, outputs) : -1;
        Py_XDECREF(key);
        Py_XDECREF(part);
        Py_XDECREF(item);
    }
    Py_XDECREF(keys);
    return status;
}

/* The lengths of an output (new reference), and its array where the caller gave none. */
static PyObject *make_output(batch_step *b, size_t o, bool given)
{
    const ds_call *c = &b->call;
    const ds_rows *rows = &c->out[o];
    if (rows->batch < 0)
        return PyErr_Format(c->m->errors[DS_SHAPE],
                            "step_batch: output %zu has no dimension B of its own", o);
    npy_intp n = c->n;
    PyObject *lengths = PyArray_SimpleNew(1, &n, NPY_INT64);
    if (!lengths)
        return NULL;
    int64_t *frames = PyArray_DATA((PyArrayObject *)lengths), start, most = 0, least = INT64_MAX;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        frames[r] = ds_step_frames(c->step, o, (size_t)r, &start);
        most = frames[r] > most ? frames[r] : most;
        least = frames[r] < least ? frames[r] : least;
    }
    b->most[o] = most;
    if (!given)
        b->outputs[o] = ds_frames_new(c, o, most, least < (rows->axis[0] < 0 ? 1 : most));
    else if (!b->outputs[o]) /* forward's result doesn't hold it */
        b->outputs[o] = Py_NewRef(Py_None);
    if (!b->outputs[o])
        Py_CLEAR(lengths);
    return lengths;
}

/* (outputs, lengths) as the step will return them. */
static PyObject *make_result(batch_step *b, PyObject *out)
{
    const size_t n = b->call.n_outputs;
    PyObject *structure = b->stepper->structure, *result = NULL;
    PyObject **lengths = ds_call_room(&b->call, n, sizeof *lengths);
    bool made = lengths && (!out || find_out(structure, out, b->outputs) == 0);
    for (size_t o = 0; made && o < n; o++)
        made = (lengths[o] = make_output(b, o, out != NULL)) != NULL;
    PyObject *values = !made ? NULL
                       : out ? Py_NewRef(out)
                             : ds_stepper_build(structure, b->outputs);
    PyObject *counts = values ? ds_stepper_build(structure, lengths) : NULL;
    if (counts)
        result = PyTuple_Pack(2, values, counts);
    Py_XDECREF(values);
    Py_XDECREF(counts);
    for (size_t o = 0; lengths && o < n; o++)
        Py_XDECREF(lengths[o]);
    return result;
}

static PyObject *run_batch(batch_step *b, PyObject *ids, PyObject *known, PyObject *const *options)
{
    ds_call *c = &b->call;
    PyObject *out = options[3] == Py_None ? NULL : options[3];
    ds_rows_name(c, ids);
    b->outputs = ds_call_room(c, c->n_outputs, sizeof *b->outputs);
    b->most = ds_call_room(c, c->n_outputs, sizeof *b->most);
    if (!b->outputs || !b->most || read_rows(b, options) < 0 || ds_call_begin(c, known) < 0)
        return NULL;
    PyObject *result = make_result(b, out);
    bool ready = result && ds_call_ready(c) == 0;
    for (size_t o = 0; ready && out && o < c->n_outputs; o++) /* after signals' handlers */
        ready = ds_frames_check_out(c, o, b->most[o]) == 0;
    if (ready) {
        ds_call_run(c);
        remember(c, ids, known);
    } else {
        Py_CLEAR(result);
    }
    return result;
}

PyObject *ds_stepper_step_batch(DS_METHOD_ARGUMENTS)
{
    static const char *const known_options[] = {"lengths", "sos", "eos", "out", NULL};
    ds_module *m = ds_module_of(cls);
    batch_step b = {.stepper = (ds_stepper *)self};
    ds_engine_object *e = ds_stepper_engine(b.stepper);
    PyObject *options[4], *known = NULL, *result = NULL;
    if (!e || ds_parse_arguments("step_batch", known_options, options, args + n_args, 0, names) < 0)
        return NULL;
    if (n_args == 0)
        return PyErr_Format(PyExc_TypeError, "step_batch() needs ids");
    b.arrays = read_arrays(b.stepper, m, e->plan->graph->n_inputs, args + 1, n_args - 1);
    PyObject *ids = b.arrays ? ds_rows_ids(m, e, args[0], &known) : NULL;
    if (ids && ds_call_open(&b.call, m, e, PyList_GET_SIZE(ids)) == 0)
        result = run_batch(&b, ids, known, options);
    for (size_t o = 0; b.outputs && o < b.call.n_outputs; o++)
        Py_XDECREF(b.outputs[o]);
    ds_call_close(&b.call);
    Py_XDECREF(known);
    Py_XDECREF(ids);
    Py_XDECREF(b.arrays);
    return result;
}
