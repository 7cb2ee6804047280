/* Engine.step_batch: rows of padded arrays.
 *
 * The ids of a server's batch are mostly those of the batch before, the same objects: then what stands behind
 * them is remembered, and taken where it is still live. */
#include <string.h>

#include "python/stepper.h"

/* Fills in lengths that were not given; refuses the rows whose length is not within the array's. */
static int check_lengths(ds_call *c, size_t input, int64_t most)
{
    int64_t *n_frames = c->step->n_frames + input * (size_t)c->n;
    bool any = false;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        n_frames[r] = n_frames[r] < 0 ? most : n_frames[r];
        c->step->bad[r] = n_frames[r] > most;
        any |= c->step->bad[r];
    }
    return any ? ds_call_refuse(c, ds_fail(DS_SHAPE, "lengths must be from 0 to the array's %lld",
                                           (long long)most))
               : 0;
}

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
} batch_step;

/* Arrays of this machine's byte order, one per input; new reference. */
static PyObject *read_arrays(ds_stepper *s, ds_module *m, size_t n_inputs, PyObject *const *args,
                             Py_ssize_t n_args)
{
    PyObject *arrays = (size_t)n_args == n_inputs ? PyTuple_New(n_args) : NULL;
    if (!arrays && !PyErr_Occurred())
        PyErr_Format(m->errors[DS_SHAPE],
                     "step_batch: expected %zu arrays, in the order of the inputs", n_inputs);
    for (Py_ssize_t k = 0; arrays && k < n_args; k++) {
        PyObject *item = args[k] == Py_None || PyArray_Check(args[k])
                             ? Py_NewRef(args[k])
                             : PyObject_CallMethod((PyObject *)s, "_array_of", "nO", k, args[k]);
        if (item && item != Py_None && !PyArray_Check(item)) {
            PyErr_SetString(m->errors[DS_DTYPE], "step_batch: expected arrays");
            Py_CLEAR(item);
        }
        PyObject *native =
            !item || item == Py_None ? Py_XNewRef(item) : ds_native_array((PyArrayObject *)item);
        Py_XDECREF(item);
        if (native)
            PyTuple_SET_ITEM(arrays, k, native);
        else
            Py_CLEAR(arrays);
    }
    return arrays;
}

/* Whether a padded array has the rows and features; frames: its axis L, 1 without one. */
static bool fits_padded(PyArrayObject *a, const ds_padded *p, const ds_signature *signature,
                        Py_ssize_t n_rows, int64_t *frames)
{
    bool fits = PyArray_NDIM(a) == p->rank && p->batch >= 0 && PyArray_DIM(a, p->batch) == n_rows;
    for (int d = 0; fits && d < signature->rank; d++)
        fits = PyArray_DIM(a, p->axis[d + 1]) == signature->shape[d];
    *frames = fits && p->axis[0] >= 0 ? PyArray_DIM(a, p->axis[0]) : 1;
    return fits;
}

static int refuse_padded(const ds_call *c, ds_status status, const char *what, size_t k,
                         PyArrayObject *a)
{
    PyObject *shape = PyObject_GetAttrString((PyObject *)a, "shape");
    if (shape)
        PyErr_Format(c->m->errors[status],
                     "%s %zu: an array of shape %R and type %R does not fit %zd rows", what, k,
                     shape, PyArray_DESCR(a), c->n);
    Py_XDECREF(shape);
    return -1;
}

/* Reads the rows' lengths of all inputs; may run Python code. */
static int read_all_lengths(const batch_step *b, PyObject *lengths)
{
    for (size_t k = 0; k < b->call.n_inputs; k++) {
        PyObject *of = of_input(b->stepper, lengths, (Py_ssize_t)k, b->call.n_inputs);
        const int status = PyErr_Occurred() ? -1 : ds_rows_lengths(&b->call, k, of);
        Py_XDECREF(of);
        if (status < 0)
            return -1;
    }
    return 0;
}

static int measure_arrays(batch_step *b)
{
    ds_call *c = &b->call;
    for (size_t k = 0; k < c->n_inputs; k++) {
        PyArrayObject *a = (PyArrayObject *)PyTuple_GET_ITEM(b->arrays, (Py_ssize_t)k);
        int64_t most = 0;
        if ((PyObject *)a != Py_None) {
            const ds_signature *signature = ds_step_input(c->e->plan, k);
            const ds_element element = ds_element_of(a);
            if (!element || !ds_layout_fits(signature, element))
                return refuse_padded(c, DS_DTYPE, "input", k, a);
            if (!fits_padded(a, &b->stepper->inputs[k], signature, c->n, &most))
                return refuse_padded(c, DS_SHAPE, "input", k, a);
        }
        if (check_lengths(c, k, most) < 0)
            return -1;
    }
    return 0;
}

/* Byte strides of a row's frames; 0 along L where there is none. */
static void strides_of(ptrdiff_t *strides, PyArrayObject *a, const ds_padded *p, int rank)
{
    for (int d = 0; d <= rank; d++)
        strides[d] = p->axis[d] >= 0 ? PyArray_STRIDE(a, p->axis[d]) : 0;
}

static void put_arrays(const batch_step *b)
{
    const ds_call *c = &b->call;
    for (size_t k = 0; k < c->n_inputs; k++) {
        PyArrayObject *a = (PyArrayObject *)PyTuple_GET_ITEM(b->arrays, (Py_ssize_t)k);
        if ((PyObject *)a == Py_None)
            continue;
        const ds_padded *p = &b->stepper->inputs[k];
        const ds_element element = ds_element_of(a);
        ptrdiff_t strides[DS_MAX_RANK + 1];
        strides_of(strides, a, p, ds_step_input(c->e->plan, k)->rank);
        for (Py_ssize_t r = 0; r < c->n; r++)
            ds_step_put(c->step, k, (size_t)r, PyArray_BYTES(a) + r * PyArray_STRIDE(a, p->batch),
                        strides, element);
    }
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
    const Py_ssize_t n = keys               ? PyList_GET_SIZE(keys)
                         : PyErr_Occurred() ? -1
                                            : PySequence_Size(structure);
    const Py_ssize_t n_out = n < 0 ? -1 : PyObject_Size(out);
    int status = n < 0 || n_out < 0 ? -1 : 0;
    if (status == 0 && n != n_out) {
        PyErr_SetString(PyExc_ValueError, "out: expected what forward returns");
        status = -1;
    }
    for (Py_ssize_t i = 0; status == 0 && i < n; i++) {
        PyObject *part, *item;
        if (keys) {
            part = Py_XNewRef(PyDict_GetItemWithError(structure, PyList_GET_ITEM(keys, i)));
            item = PyObject_GetItem(out, PyList_GET_ITEM(keys, i));
        } else {
            part = PySequence_GetItem(structure, i);
            item = PySequence_GetItem(out, i);
        }
        status = part && item ? find_out(part, item, outputs) : -1;
        Py_XDECREF(part);
        Py_XDECREF(item);
    }
    Py_XDECREF(keys);
    return status;
}

static int check_out(const ds_call *c, size_t o, const ds_padded *p, PyObject *given, int64_t most)
{
    const ds_signature *signature = ds_step_output(c->e->plan, o);
    if (!PyArray_Check(given)) {
        PyErr_Format(c->m->errors[DS_DTYPE], "out: expected an array, got %.100s",
                     Py_TYPE(given)->tp_name);
        return -1;
    }
    PyArrayObject *a = (PyArrayObject *)given;
    int64_t frames;
    if (PyArray_TYPE(a) != ds_numpy_type(signature->dtype) || !PyArray_ISNOTSWAPPED(a))
        return refuse_padded(c, DS_DTYPE, "out: output", o, a);
    if (!PyArray_ISWRITEABLE(a)) {
        PyErr_Format(PyExc_ValueError, "out: the array of output %zu is read-only", o);
        return -1;
    }
    if (!fits_padded(a, p, signature, c->n, &frames))
        return refuse_padded(c, DS_SHAPE, "out: output", o, a);
    if (frames < most) {
        PyErr_Format(c->m->errors[DS_SHAPE], "out: output %zu needs room for %lld frames, got %lld",
                     o, (long long)most, (long long)frames);
        return -1;
    }
    return 0;
}

/* The lengths of an output (new reference), and its array where the caller gave none. */
static PyObject *make_output(batch_step *b, size_t o, bool given)
{
    const ds_call *c = &b->call;
    const ds_signature *signature = ds_step_output(c->e->plan, o);
    const ds_padded *p = &b->stepper->outputs[o];
    npy_intp n = c->n, shape[DS_MAX_RANK + 2];
    PyObject *lengths = PyArray_SimpleNew(1, &n, NPY_INT64);
    if (!lengths)
        return NULL;
    if (p->batch < 0) {
        PyErr_Format(c->m->errors[DS_SHAPE], "step_batch: output %zu has no dimension B of its own",
                     o);
        Py_CLEAR(lengths);
        return NULL;
    }
    int64_t *frames = PyArray_DATA((PyArrayObject *)lengths), start, most = 0, least = INT64_MAX;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        frames[r] = ds_step_frames(c->step, o, (size_t)r, &start);
        most = frames[r] > most ? frames[r] : most;
        least = frames[r] < least ? frames[r] : least;
    }
    int status = 0;
    if (given) {
        status = check_out(c, o, p, b->outputs[o], most);
    } else {
        shape[p->batch] = c->n;
        for (int d = 0; d <= signature->rank; d++)
            if (p->axis[d] >= 0)
                shape[p->axis[d]] = d ? signature->shape[d - 1] : most;
        const bool padded = least < (p->axis[0] < 0 ? 1 : most);
        b->outputs[o] = ds_new_array(signature, p->rank, shape, padded);
        status = b->outputs[o] ? 0 : -1;
    }
    if (status < 0)
        Py_CLEAR(lengths);
    return lengths;
}

/* (outputs, lengths) as the step will return them. */
static PyObject *make_result(batch_step *b, PyObject *out)
{
    const size_t n = b->call.n_outputs;
    const bool given = out && out != Py_None;
    PyObject *structure = b->stepper->structure, *result = NULL;
    PyObject **lengths = PyMem_Calloc(n + 1, sizeof *lengths);
    if (!lengths)
        return PyErr_NoMemory();
    bool made = !given || find_out(structure, out, b->outputs) == 0;
    for (size_t o = 0; made && o < n; o++) {
        if (given && !b->outputs[o]) /* an output that forward's result doesn't hold */
            b->outputs[o] = Py_NewRef(Py_None);
        lengths[o] = make_output(b, o, given);
        made = lengths[o] != NULL;
    }
    PyObject *values = made ? ds_stepper_build(structure, b->outputs, 1) : NULL;
    PyObject *counts = values ? ds_stepper_build(structure, lengths, 1) : NULL;
    if (counts)
        result = PyTuple_Pack(2, given ? out : values, counts);
    Py_XDECREF(values);
    Py_XDECREF(counts);
    for (size_t o = 0; o < n; o++)
        Py_XDECREF(lengths[o]);
    PyMem_Free(lengths);
    return result;
}

/* Whether the caller's arrays still fit: signal handlers may have run. */
static int check_again(const batch_step *b, PyObject *out)
{
    const ds_call *c = &b->call;
    int status = 0;
    for (size_t o = 0; status == 0 && out && out != Py_None && o < c->n_outputs; o++) {
        int64_t most = 0, start;
        for (Py_ssize_t r = 0; r < c->n; r++) {
            const int64_t frames = ds_step_frames(c->step, o, (size_t)r, &start);
            most = frames > most ? frames : most;
        }
        status = check_out(c, o, &b->stepper->outputs[o], b->outputs[o], most);
    }
    return status;
}

static void get_batch(const ds_call *c, void *context)
{
    const batch_step *b = context;
    for (size_t o = 0; o < c->n_outputs; o++) {
        PyArrayObject *a = (PyArrayObject *)b->outputs[o];
        const ds_padded *p = &b->stepper->outputs[o];
        ptrdiff_t strides[DS_MAX_RANK + 1];
        strides_of(strides, a, p, ds_step_output(c->e->plan, o)->rank);
        for (Py_ssize_t r = 0; r < c->n; r++) {
            int64_t start;
            const int64_t n = ds_step_frames(c->step, o, (size_t)r, &start);
            ds_step_get(c->step, o, (size_t)r, n,
                        PyArray_BYTES(a) + r * PyArray_STRIDE(a, p->batch), strides);
        }
    }
}

static PyObject *run_batch(batch_step *b, PyObject *ids, PyObject *known, PyObject *const *options)
{
    ds_call *c = &b->call;
    ds_rows_name(c, ids);
    b->outputs = ds_call_room(c, c->n_outputs, sizeof *b->outputs);
    if (!b->outputs || ds_rows_flags(c, "sos", options[1], c->sos) < 0 ||
        ds_rows_flags(c, "eos", options[2], c->step->ended) < 0 ||
        read_all_lengths(b, options[0]) < 0 || ds_call_find(c, known) < 0 ||
        measure_arrays(b) < 0 || ds_call_enter(c) < 0)
        return NULL;
    put_arrays(b);
    PyObject *result = make_result(b, options[3]);
    if (result && (ds_call_ready(c) < 0 || check_again(b, options[3]) < 0))
        Py_CLEAR(result);
    if (result) {
        ds_call_run(c, get_batch, b);
        remember(c, ids, known);
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
    if (ids && ds_call_open(&b.call, m, e, PyTuple_GET_SIZE(ids)) == 0)
        result = run_batch(&b, ids, known, options);
    for (size_t o = 0; b.outputs && o < b.call.n_outputs; o++)
        Py_XDECREF(b.outputs[o]);
    ds_call_close(&b.call);
    Py_XDECREF(known);
    Py_XDECREF(ids);
    Py_XDECREF(b.arrays);
    return result;
}
