/* Engine.step_batch: rows of padded arrays. _core.Engine.step: rows of frames that lie end to end.
 *
 * The ids of a server's batch are mostly those of the batch before, the same objects: then what stands behind
 * them is remembered, and taken where it is still live. */
#include <string.h>

#include "python/stepper.h"

/* ---------------------------------------------------------------- flags and lengths */
/* Marks the rows that ids name. */
static int mark_ids(const ds_call *c, PyObject *ids, bool *flags)
{
    PyObject *rows = PyDict_New();
    for (Py_ssize_t r = 0; rows && r < c->n; r++) {
        PyObject *row = PyLong_FromSsize_t(r);
        if (!row || PyDict_SetItem(rows, c->ids[r], row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    int status = rows ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(ids); i++) {
        PyObject *id = ds_plain_id(c->m, PyTuple_GET_ITEM(ids, i));
        PyObject *row = id ? PyDict_GetItemWithError(rows, id) : NULL;
        if (row)
            flags[PyLong_AsSsize_t(row)] = true;
        else if (id)
            ds_engine_error(c->m, DS_STREAM_ID, "sos or eos names no row of the batch", id);
        status = row ? 0 : -1;
        Py_XDECREF(id);
    }
    Py_XDECREF(rows);
    return status;
}

/* Whether rows start or end: of a bool, a bool per row, or ids. */
static int parse_flags(const ds_call *c, const char *name, PyObject *given, bool *flags)
{
    if (!given || given == Py_None)
        return 0;
    if (PyBool_Check(given)) {
        memset(flags, given == Py_True, (size_t)c->n);
        return 0;
    }
    PyArrayObject *a = (PyArrayObject *)given;
    if (PyArray_Check(given) && PyArray_TYPE(a) == NPY_BOOL && PyArray_NDIM(a) == 1 &&
        PyArray_DIM(a, 0) == c->n) {
        for (Py_ssize_t r = 0; r < c->n; r++)
            flags[r] = PyArray_BYTES(a)[r * PyArray_STRIDE(a, 0)] != 0;
        return 0;
    }
    PyObject *items = PyUnicode_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    if (!items)
        return -1;
    const Py_ssize_t n = PyTuple_GET_SIZE(items);
    Py_ssize_t n_bools = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        n_bools += PyBool_Check(PyTuple_GET_ITEM(items, i)) ||
                   PyArray_IsScalar(PyTuple_GET_ITEM(items, i), Bool);
    int status = 0;
    if (n && n_bools == n && n == c->n) {
        for (Py_ssize_t r = 0; r < n; r++)
            flags[r] = PyObject_IsTrue(PyTuple_GET_ITEM(items, r)) > 0;
    } else if (n_bools) {
        PyErr_Format(c->m->errors[n_bools == n ? DS_SHAPE : DS_DTYPE],
                     "%s: expected a bool, a bool for each of %zd rows, or ids", name, c->n);
        status = -1;
    }
    if (status == 0 && !n_bools && n)
        status = mark_ids(c, items, flags);
    Py_DECREF(items);
    return status;
}

/* Reads the frames of each row of an input; -1 where none are given. */
static int read_lengths(const ds_call *c, size_t input, PyObject *given)
{
    int64_t *n_frames = c->step->n_frames + input * (size_t)c->n;
    if (!given || given == Py_None) {
        for (Py_ssize_t r = 0; r < c->n; r++)
            n_frames[r] = -1;
        return 0;
    }
    PyObject *array = PyArray_FromAny(given, NULL, 0, 0, 0, NULL), *integers = NULL;
    if (!array)
        return -1;
    PyArrayObject *a = (PyArrayObject *)array;
    if (!PyTypeNum_ISINTEGER(PyArray_TYPE(a)) && PyArray_SIZE(a) > 0)
        PyErr_SetString(c->m->errors[DS_DTYPE], "lengths must be integers");
    else if (PyArray_NDIM(a) != 1 || PyArray_DIM(a, 0) != c->n)
        PyErr_Format(c->m->errors[DS_SHAPE], "expected one length for each of %zd rows", c->n);
    else
        integers = PyArray_FROM_OTF(array, NPY_INT64, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
    Py_DECREF(array);
    if (!integers)
        return -1;
    const int64_t *lengths = PyArray_DATA((PyArrayObject *)integers);
    for (Py_ssize_t r = 0; r < c->n; r++)
        n_frames[r] = lengths[r] < 0 ? INT64_MAX : lengths[r];
    Py_DECREF(integers);
    return 0;
}

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
    PyErr_SetString(PyExc_TypeError, "lengths: expected one sequence per input, or a dict of them by name");
    return NULL;
}

/* ---------------------------------------------------------------- ids */
/* The plain ids as a tuple (new reference), and in `known` what stood behind them, where it is remembered. */
static PyObject *read_ids(ds_module *m, const ds_engine_object *e, PyObject *given, PyObject **known)
{
    PyObject *ids = PyUnicode_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    if (!ids)
        return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(ids);
    Py_ssize_t same = 0;
    if (e->last_ids && PyTuple_GET_SIZE(e->last_ids) == n)
        while (same < n && PyTuple_GET_ITEM(ids, same) == PyTuple_GET_ITEM(e->last_ids, same))
            same++;
    if (e->last_ids && same == n && PyTuple_GET_SIZE(e->last_ids) == n) {
        Py_DECREF(ids);
        *known = Py_NewRef(e->last_live);
        return Py_NewRef(e->last_ids);
    }
    PyObject *plain = PyTuple_New(n), *seen = plain ? PySet_New(NULL) : NULL;
    PyObject *twice = seen ? PyList_New(0) : NULL;
    for (Py_ssize_t r = 0; twice && r < n; r++) {
        PyObject *id = ds_plain_id(m, PyTuple_GET_ITEM(ids, r));
        if (id)
            PyTuple_SET_ITEM(plain, r, id);
        const int again = id ? PySet_Contains(seen, id) : -1;
        if (again < 0 || (again ? PyList_Append(twice, id) : PySet_Add(seen, id)) < 0)
            Py_CLEAR(twice);
    }
    if (twice && PyList_GET_SIZE(twice) > 0) {
        ds_raise(m, ds_fail(DS_STREAM_ID, "ids must be unique within a batch"), twice);
        Py_CLEAR(twice);
    }
    if (!twice)
        Py_CLEAR(plain);
    Py_XDECREF(twice);
    Py_XDECREF(seen);
    Py_DECREF(ids);
    return plain;
}

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

static void set_ids(ds_call *c, PyObject *ids)
{
    for (Py_ssize_t r = 0; r < c->n; r++)
        c->ids[r] = PyTuple_GET_ITEM(ids, r);
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
        PyErr_Format(m->errors[DS_SHAPE], "step_batch: expected %zu arrays, in the order of the inputs",
                     n_inputs);
    for (Py_ssize_t k = 0; arrays && k < n_args; k++) {
        PyObject *item = args[k] == Py_None || PyArray_Check(args[k])
                             ? Py_NewRef(args[k])
                             : PyObject_CallMethod((PyObject *)s, "_array_of", "nO", k, args[k]);
        if (item && item != Py_None && !PyArray_Check(item)) {
            PyErr_SetString(m->errors[DS_DTYPE], "step_batch: expected arrays");
            Py_CLEAR(item);
        }
        PyObject *native = !item || item == Py_None ? Py_XNewRef(item)
                                                    : ds_native_array((PyArrayObject *)item);
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
        PyErr_Format(c->m->errors[status], "%s %zu: an array of shape %R and type %R does not fit %zd rows",
                     what, k, shape, PyArray_DESCR(a), c->n);
    Py_XDECREF(shape);
    return -1;
}

/* Reads the rows' lengths of all inputs; may run Python code. */
static int read_all_lengths(const batch_step *b, PyObject *lengths)
{
    for (size_t k = 0; k < b->call.n_inputs; k++) {
        PyObject *of = of_input(b->stepper, lengths, (Py_ssize_t)k, b->call.n_inputs);
        const int status = PyErr_Occurred() ? -1 : read_lengths(&b->call, k, of);
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
    const Py_ssize_t n = keys ? PyList_GET_SIZE(keys) : PyErr_Occurred() ? -1 : PySequence_Size(structure);
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
        PyErr_Format(c->m->errors[DS_DTYPE], "out: expected an array, got %.100s", Py_TYPE(given)->tp_name);
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
        PyErr_Format(c->m->errors[DS_SHAPE], "out: output %zu needs room for %lld frames, got %lld", o,
                     (long long)most, (long long)frames);
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
        PyErr_Format(c->m->errors[DS_SHAPE], "step_batch: output %zu has no dimension B of its own", o);
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
        for (Py_ssize_t r = 0; r < c->n; r++)
            ds_step_get(c->step, o, (size_t)r, PyArray_BYTES(a) + r * PyArray_STRIDE(a, p->batch), strides);
    }
}

static PyObject *run_batch(batch_step *b, PyObject *ids, PyObject *known, PyObject *const *options)
{
    ds_call *c = &b->call;
    set_ids(c, ids);
    b->outputs = ds_call_room(c, c->n_outputs, sizeof *b->outputs);
    if (!b->outputs || parse_flags(c, "sos", options[1], c->sos) < 0 ||
        parse_flags(c, "eos", options[2], c->step->ended) < 0 || read_all_lengths(b, options[0]) < 0 ||
        ds_call_find(c, known) < 0 || measure_arrays(b) < 0 || ds_call_enter(c) < 0)
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
    PyObject *ids = b.arrays ? read_ids(m, e, args[0], &known) : NULL;
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

/* ---------------------------------------------------------------- frames end to end */
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
            PyErr_Format(c->m->errors[DS_SHAPE], "input %zu: the frames are not those of the rows", k);
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
        status = read_lengths(&f->call, (size_t)k, PyTuple_GET_ITEM(counts, k));
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
    PyObject *values = PyList_New(n_outputs), *lengths = PyList_New(n_outputs), *starts = PyList_New(n_outputs);
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
            ds_step_get(c->step, o, (size_t)r, row, PyArray_STRIDES(a));
            row += ds_step_frames(c->step, o, (size_t)r, &start) * PyArray_STRIDE(a, 0);
        }
    }
}

static PyObject *run_values(frames_step *f, PyObject *ids, PyObject *const *args)
{
    ds_call *c = &f->call;
    PyObject *result = NULL;
    set_ids(c, ids);
    f->outputs = ds_call_room(c, c->n_outputs, sizeof *f->outputs);
    if (f->outputs && parse_flags(c, "sos", args[1], c->sos) == 0 &&
        parse_flags(c, "eos", args[2], c->step->ended) == 0 && read_values(f, args[3], args[4]) == 0 &&
        ds_call_find(c, NULL) == 0 && measure_values(f) == 0 && ds_call_enter(c) == 0) {
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
    PyObject *ids = restart < 0 ? NULL : read_ids(m, e, args[0], &known);
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
