/* _core.Engine.step: one call for a batch of streams by id.
 *
 * Ids, slots, integers, outputs and inputs come first and may fail: then everything is put back. The
 * values are computed without the GIL. What follows them (the copies out, the ids) cannot fail. */
#include "base/now.h"
#include "python/engine.h"

#include <stdio.h>
#include <string.h>

typedef struct step {
    ds_module *m;
    ds_engine_object *e;
    Py_ssize_t n_rows;
    PyObject *ids;         /* tuple of str (no subclass: its dict look-ups run no Python code) */
    bool restart;          /* sos may start a live stream anew */
    ds_slot **slots;       /* [n_rows], entered */
    ds_slot **replaced;    /* [n_rows]: the live stream that a restart replaces, entered; else NULL */
    PyObject **addresses;  /* [n_rows]: of fresh slots, as int */
    Py_ssize_t n_entered;
    size_t n_leaving; /* live streams that end, or are replaced, if the call succeeds: free places */
    int64_t *n_frames;     /* [n_inputs][n_rows] */
    bool *sos, *eos, *bad; /* [n_rows] */
    ds_batch *batch;
} step;

/* ---------------------------------------------------------------- ids */
static int parse_flags(PyObject *flags, bool *out, Py_ssize_t n)
{
    PyObject *fast = PySequence_Fast(flags, "sos and eos must be sequences of bool");
    if (!fast)
        return -1;
    int status = 0;
    if (PySequence_Fast_GET_SIZE(fast) != n) {
        PyErr_SetString(PyExc_ValueError, "sos and eos must have one entry per id");
        status = -1;
    }
    for (Py_ssize_t r = 0; status == 0 && r < n; r++) {
        int flag = PyObject_IsTrue(PySequence_Fast_GET_ITEM(fast, r));
        status = flag < 0 ? -1 : 0;
        out[r] = flag > 0;
    }
    Py_DECREF(fast);
    return status;
}

/* Raises StreamIdError for the rows marked bad, if any. */
static int refuse_bad(step *s, const char *text)
{
    bool any = false;
    for (Py_ssize_t r = 0; r < s->n_rows; r++)
        any |= s->bad[r];
    if (!any)
        return 0;
    PyObject *ids = ds_bad_ids(s->ids, s->bad, s->n_rows);
    (void)ds_fail(DS_STREAM_ID, "%s", text);
    if (ids)
        ds_raise(s->m, DS_STREAM_ID, ids);
    Py_XDECREF(ids);
    return -1;
}

/* A new tuple of plain strings. */
static PyObject *plain_ids(ds_module *m, PyObject *ids)
{
    PyObject *fast = PySequence_Fast(ids, "ids must be a sequence");
    PyObject *tuple = fast ? PyTuple_New(PySequence_Fast_GET_SIZE(fast)) : NULL;
    for (Py_ssize_t r = 0; tuple && r < PyTuple_GET_SIZE(tuple); r++) {
        PyObject *id = ds_plain_id(m, PySequence_Fast_GET_ITEM(fast, r));
        if (id)
            PyTuple_SET_ITEM(tuple, r, id);
        else
            Py_CLEAR(tuple);
    }
    Py_XDECREF(fast);
    return tuple;
}

static const char *const unknown_text =
    "no such streams are live, and these chunks do not start one (sos)";
static const char *const live_text =
    "sos, but these streams are live already (restart=True starts them anew)";

static int check_ids(step *s)
{
    PyObject *seen = PySet_New(NULL);
    for (Py_ssize_t r = 0; seen && r < s->n_rows; r++) {
        PyObject *id = PyTuple_GET_ITEM(s->ids, r);
        int twice = PySet_Contains(seen, id);
        if (twice < 0 || PySet_Add(seen, id) < 0) {
            Py_CLEAR(seen);
            break;
        }
        s->bad[r] = twice > 0;
    }
    if (!seen)
        return -1;
    Py_DECREF(seen);
    if (refuse_bad(s, "ids must be unique within a batch") < 0)
        return -1;
    for (Py_ssize_t r = 0; r < s->n_rows; r++) {
        s->bad[r] = !s->sos[r] && !ds_engine_slot(s->e, PyTuple_GET_ITEM(s->ids, r));
        if (PyErr_Occurred())
            return -1;
    }
    if (refuse_bad(s, unknown_text) < 0)
        return -1;
    for (Py_ssize_t r = 0; r < s->n_rows; r++)
        s->bad[r] = s->sos[r] && !s->restart &&
                    ds_engine_slot(s->e, PyTuple_GET_ITEM(s->ids, r));
    return refuse_bad(s, live_text);
}

/* ---------------------------------------------------------------- slots */
static int enter_row(step *s, Py_ssize_t r)
{
    PyObject *id = PyTuple_GET_ITEM(s->ids, r);
    ds_slot *live = ds_engine_slot(s->e, id);
    /* Again: another thread may have ended or started it since check_ids. */
    if (s->sos[r] ? live && !s->restart : !live) {
        ds_engine_error(s->m, DS_STREAM_ID, live ? live_text : unknown_text, id);
        return -1;
    }
    if (live && !ds_slot_enter(live)) {
        ds_engine_error(s->m, DS_BUSY, "another thread is using the stream", id);
        return -1;
    }
    if (!s->sos[r]) {
        s->slots[r] = live;
        return 0;
    }
    ds_slot *slot;
    const bool takes_place = s->n_leaving > 0;
    ds_status status = ds_session_open(s->e->session, &slot, takes_place);
    s->n_leaving -= takes_place;
    if (status != DS_OK) {
        char message[DS_MESSAGE_BYTES] = "";
        strncpy(message, ds_last_error(), sizeof message - 1);
        ds_engine_error(s->m, status, message, id);
    } else {
        (void)ds_slot_enter(slot);
        s->addresses[r] = PyLong_FromVoidPtr(slot);
        /* A new id is taken at once, so that no other thread can start it meanwhile. */
        if (s->addresses[r] && (live || PyDict_SetItem(s->e->slots, id, s->addresses[r]) == 0)) {
            s->slots[r] = slot;
            s->replaced[r] = live;
            return 0;
        }
        Py_CLEAR(s->addresses[r]);
        ds_slot_leave(slot);
        ds_session_close(s->e->session, slot);
    }
    if (live)
        ds_slot_leave(live);
    return -1;
}

/* Puts everything back as it was. */
static void roll_back(step *s)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t r = 0; r < s->n_entered; r++) {
        ds_slot_leave(s->slots[r]);
        if (!s->sos[r])
            continue;
        if (s->replaced[r])
            ds_slot_leave(s->replaced[r]);
        else if (PyDict_DelItem(s->e->slots, PyTuple_GET_ITEM(s->ids, r)) < 0)
            PyErr_Clear();
        ds_session_close(s->e->session, s->slots[r]);
    }
    PyErr_Restore(type, value, traceback);
}

/* Ends ended streams, and what restarts replace; the ids' table is right afterwards. */
static void commit(step *s)
{
    double now = ds_now();
    for (Py_ssize_t r = 0; r < s->n_rows; r++) {
        PyObject *id = PyTuple_GET_ITEM(s->ids, r);
        s->slots[r]->last_used = now;
        if (s->eos[r]) {
            if (PyDict_DelItem(s->e->slots, id) < 0)
                PyErr_Clear();
        } else {
            ds_session_count(s->e->session, s->slots[r]);
            if (s->replaced[r] && PyDict_SetItem(s->e->slots, id, s->addresses[r]) < 0)
                PyErr_Clear(); /* cannot be: the key is there */
        }
        ds_slot_leave(s->slots[r]);
        if (s->eos[r])
            ds_session_close(s->e->session, s->slots[r]);
        if (s->replaced[r]) {
            ds_slot_leave(s->replaced[r]);
            ds_session_close(s->e->session, s->replaced[r]);
        }
    }
}

/* ---------------------------------------------------------------- inputs */
static int refuse_array(step *s, ds_status status, size_t input, Py_ssize_t r, PyObject *array)
{
    PyObject *id = PyTuple_GET_ITEM(s->ids, r);
    const ds_signature *sig = &s->e->plan->graph->edges[s->e->plan->graph->inputs[input]].signature;
    char shape[128], text[DS_MESSAGE_BYTES];
    ds_signature_text(sig, shape, sizeof shape);
    if (PyArray_Check(array)) {
        PyArrayObject *a = (PyArrayObject *)array;
        size_t n = (size_t)snprintf(text, sizeof text, "input %zu: expected %s frames with features %s "
                                    "along the given axes, got an array of shape (", input,
                                    ds_dtype_name(sig->dtype), shape);
        for (int d = 0; d < PyArray_NDIM(a) && n < sizeof text; d++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", d ? ", " : "",
                                  (long long)PyArray_DIM(a, d));
        if (n < sizeof text)
            snprintf(text + n, sizeof text - n, ") and dtype kind '%c%d'",
                     PyArray_DESCR(a)->kind, (int)PyArray_ITEMSIZE(a));
    } else {
        snprintf(text, sizeof text, "input %zu: expected a NumPy array", input);
    }
    ds_engine_error(s->m, status, text, id);
    return -1;
}

static bool dtype_fits(const ds_signature *sig, const PyArrayObject *array)
{
    int type = PyArray_TYPE(array);
    switch (sig->dtype) {
    case DS_F32: return type == NPY_FLOAT32 || type == NPY_FLOAT64 ||
                        (type == NPY_INT16 && sig->rank == 0);
    case DS_BOOL: return type == NPY_BOOL;
    default: return PyTypeNum_ISINTEGER(type);
    }
}

static int measure_input(step *s, size_t input, Py_ssize_t r, PyObject *item)
{
    const ds_axes *axes = &s->e->inputs[input];
    const ds_signature *sig = &s->e->plan->graph->edges[s->e->plan->graph->inputs[input]].signature;
    s->n_frames[input * (size_t)s->n_rows + (size_t)r] = 0;
    if (item == Py_None)
        return 0;
    if (!PyArray_Check(item))
        return refuse_array(s, DS_DTYPE, input, r, item);
    PyArrayObject *array = (PyArrayObject *)item;
    if (!dtype_fits(sig, array))
        return refuse_array(s, DS_DTYPE, input, r, item);
    bool fits = PyArray_NDIM(array) == axes->rank;
    for (int d = 0; fits && d < sig->rank; d++)
        fits = PyArray_DIM(array, axes->axis[d + 1]) == sig->shape[d];
    if (!fits)
        return refuse_array(s, DS_SHAPE, input, r, item);
    s->n_frames[input * (size_t)s->n_rows + (size_t)r] = PyArray_DIM(array, axes->axis[0]);
    return 0;
}

/* Calls visit for every input and row. */
static int each_input(step *s, PyObject *arrays,
                      int (*visit)(step *, size_t input, Py_ssize_t r, PyObject *item))
{
    size_t n_inputs = s->e->plan->graph->n_inputs;
    if (PySequence_Size(arrays) != (Py_ssize_t)n_inputs) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "expected arrays for %zu inputs", n_inputs);
        return -1;
    }
    int status = 0;
    for (size_t i = 0; status == 0 && i < n_inputs; i++) {
        PyObject *rows = PySequence_GetItem(arrays, (Py_ssize_t)i);
        PyObject *fast = rows ? PySequence_Fast(rows, "expected a sequence of arrays") : NULL;
        Py_XDECREF(rows);
        if (!fast)
            return -1;
        if (PySequence_Fast_GET_SIZE(fast) != s->n_rows) {
            PyErr_Format(PyExc_ValueError, "input %zu: expected one array per id", i);
            status = -1;
        }
        for (Py_ssize_t r = 0; status == 0 && r < s->n_rows; r++)
            status = visit(s, i, r, PySequence_Fast_GET_ITEM(fast, r));
        Py_DECREF(fast);
    }
    return status;
}

/* Writes one row's new frames to where the batch wants them: any strides, converted. */
static int copy_input(step *s, size_t input, Py_ssize_t r, PyObject *item)
{
    const ds_axes *axes = &s->e->inputs[input];
    const ds_signature *sig = &s->e->plan->graph->edges[s->e->plan->graph->inputs[input]].signature;
    int64_t frames = s->n_frames[input * (size_t)s->n_rows + (size_t)r];
    if (frames == 0 || ds_signature_elements(sig) == 0)
        return 0;
    npy_intp shape[DS_MAX_RANK + 1], order[DS_MAX_RANK + 1];
    for (int d = 0; d < axes->rank; d++) {
        shape[d] = d == 0 ? frames : sig->shape[d - 1];
        order[d] = axes->axis[d];
    }
    void *data = ds_batch_input(s->batch, input, (size_t)r);
    PyObject *to = PyArray_SimpleNewFromData(axes->rank, shape, ds_numpy_type(sig->dtype), data);
    PyArray_Dims permutation = {order, axes->rank};
    PyObject *from = to ? PyArray_Transpose((PyArrayObject *)item, &permutation) : NULL;
    int status = from ? PyArray_CopyInto((PyArrayObject *)to, (PyArrayObject *)from) : -1;
    Py_XDECREF(from);
    Py_XDECREF(to);
    if (status == 0 && PyArray_TYPE((PyArrayObject *)item) == NPY_INT16 && sig->dtype == DS_F32) {
        float *samples = data;
        for (int64_t k = 0; k < frames; k++)
            samples[k] *= 1.0f / 32768.0f;
    }
    return status;
}

/* ---------------------------------------------------------------- outputs */
/* New arrays for the outputs, per output and row, and the rows' starts; sizes are known. */
static int make_outputs(step *s, PyObject **arrays, PyObject **starts)
{
    const ds_graph *g = s->e->plan->graph;
    *arrays = PyList_New((Py_ssize_t)g->n_outputs);
    *starts = PyList_New((Py_ssize_t)g->n_outputs);
    for (size_t o = 0; *arrays && *starts && o < g->n_outputs; o++) {
        const ds_signature *sig = &g->edges[g->outputs[o]].signature;
        const ds_axes *axes = &s->e->outputs[o];
        PyObject *rows = PyList_New(s->n_rows), *row_starts = PyList_New(s->n_rows);
        if (rows)
            PyList_SET_ITEM(*arrays, (Py_ssize_t)o, rows);
        if (row_starts)
            PyList_SET_ITEM(*starts, (Py_ssize_t)o, row_starts);
        for (Py_ssize_t r = 0; rows && row_starts && r < s->n_rows; r++) {
            npy_intp shape[DS_MAX_RANK + 1];
            int64_t start, frames = ds_batch_output_frames(s->batch, o, (size_t)r, &start);
            for (int d = 0; d < axes->rank; d++)
                shape[d] = axes->axis[d] == 0 ? frames : sig->shape[axes->axis[d] - 1];
            PyObject *array = PyArray_SimpleNew(axes->rank, shape, ds_numpy_type(sig->dtype));
            PyObject *first = array ? PyLong_FromLongLong(start) : NULL;
            if (array)
                PyList_SET_ITEM(rows, r, array);
            if (!first)
                return -1;
            PyList_SET_ITEM(row_starts, r, first);
        }
        if (!rows || !row_starts)
            return -1;
    }
    return *arrays && *starts ? 0 : -1;
}

/* Copies frames [frames][features...] into an array whose axis d is canonical axis order[d]. */
static void copy_permuted(char *to, const char *from, const ds_axes *axes, const npy_intp *shape,
                          const size_t *strides, size_t element, int d)
{
    if (d == axes->rank) {
        memcpy(to, from, element);
        return;
    }
    size_t inner = element;
    for (int k = d + 1; k < axes->rank; k++)
        inner *= (size_t)shape[k];
    for (npy_intp i = 0; i < shape[d]; i++)
        copy_permuted(to + (size_t)i * inner, from + (size_t)i * strides[axes->axis[d]], axes, shape,
                      strides, element, d + 1);
}

/* The usual case of two axes swapped: [frames][features] to [features][frames]. */
static void copy_swapped(float *to, const float *from, size_t frames, size_t features)
{
    for (size_t f = 0; f < features; f++)
        for (size_t i = 0; i < frames; i++)
            to[f * frames + i] = from[i * features + f];
}

static void copy_output(const step *s, size_t o, Py_ssize_t r, PyArrayObject *array)
{
    const ds_graph *g = s->e->plan->graph;
    const ds_signature *sig = &g->edges[g->outputs[o]].signature;
    const ds_axes *axes = &s->e->outputs[o];
    const char *from = ds_batch_output(s->batch, o, (size_t)r);
    size_t element = ds_dtype_bytes(sig->dtype), strides[DS_MAX_RANK + 1];
    if (PyArray_SIZE(array) == 0)
        return;
    bool straight = true;
    size_t stride = element;
    for (int d = sig->rank; d >= 0; d--) {
        strides[d] = stride;
        stride *= d > 0 ? (size_t)sig->shape[d - 1] : 1;
        straight &= axes->axis[d] == d;
    }
    if (straight)
        memcpy(PyArray_DATA(array), from, (size_t)PyArray_NBYTES(array));
    else if (axes->rank == 2 && element == sizeof(float))
        copy_swapped(PyArray_DATA(array), (const float *)(const void *)from,
                     (size_t)PyArray_DIM(array, 1), (size_t)PyArray_DIM(array, 0));
    else
        copy_permuted(PyArray_DATA(array), from, axes, PyArray_DIMS(array), strides, element, 0);
}

/* ---------------------------------------------------------------- the call */
static int take_batch(step *s)
{
    ds_status status = ds_engine_take_batch(s->e->engine, &s->batch);
    if (status == DS_OK)
        return 0;
    ds_raise(s->m, status, NULL);
    return -1;
}

/* Raises the engine's error with the ids of the bad rows; 0 where there is none. */
static int refuse(step *s, ds_status status)
{
    if (status == DS_OK)
        return 0;
    PyObject *ids = ds_bad_ids(s->ids, s->bad, s->n_rows);
    if (ids)
        ds_raise(s->m, status, ids);
    Py_XDECREF(ids);
    return -1;
}

static int begin(step *s)
{
    return refuse(s, ds_batch_begin(s->batch, s->slots, s->n_frames, s->eos, s->bad,
                                    (size_t)s->n_rows, ds_engine_threads(s->e->engine)));
}

/* Everything between entering the slots and committing. */
static PyObject *run(step *s, PyObject *arrays)
{
    PyObject *outputs = NULL, *starts = NULL, *result = NULL;
    if (take_batch(s) == 0 && begin(s) == 0 && make_outputs(s, &outputs, &starts) == 0 &&
        each_input(s, arrays, copy_input) == 0 && refuse(s, ds_batch_check(s->batch, s->bad)) == 0)
        result = PyTuple_Pack(2, outputs, starts);
    if (result) {
        Py_BEGIN_ALLOW_THREADS
        ds_engine_run(s->e->engine, s->batch);
        Py_END_ALLOW_THREADS
        for (Py_ssize_t o = 0; o < PyList_GET_SIZE(outputs); o++)
            for (Py_ssize_t r = 0; r < s->n_rows; r++)
                copy_output(s, (size_t)o, r,
                            (PyArrayObject *)PyList_GET_ITEM(PyList_GET_ITEM(outputs, o), r));
    }
    ds_engine_give_batch(s->e->engine, s->batch);
    Py_XDECREF(outputs);
    Py_XDECREF(starts);
    return result;
}

static PyObject *step_rows(step *s, PyObject *arrays)
{
    for (Py_ssize_t r = 0; r < s->n_rows; r++)
        s->n_leaving += (s->sos[r] || s->eos[r]) && ds_engine_slot(s->e, PyTuple_GET_ITEM(s->ids, r));
    for (; s->n_entered < s->n_rows; s->n_entered++)
        if (enter_row(s, s->n_entered) < 0) {
            roll_back(s);
            return NULL;
        }
    PyObject *result = run(s, arrays);
    if (result)
        commit(s);
    else
        roll_back(s);
    return result;
}

/* One block for all arrays of the step. */
static void *carve(step *s)
{
    size_t n = (size_t)s->n_rows, n_inputs = s->e->plan->graph->n_inputs;
    char *block = PyMem_Calloc(
        n + 1, 3 * sizeof(void *) + n_inputs * sizeof(int64_t) + 3 * sizeof(bool));
    if (!block)
        return PyErr_NoMemory();
    s->slots = (ds_slot **)(void *)block;
    s->replaced = s->slots + n;
    s->addresses = (PyObject **)(void *)(s->replaced + n);
    s->n_frames = (int64_t *)(void *)(s->addresses + n);
    s->sos = (bool *)(void *)(s->n_frames + n * n_inputs);
    s->eos = s->sos + n;
    s->bad = s->eos + n;
    return block;
}

PyObject *ds_engine_step(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                         Py_ssize_t n_args, PyObject *names)
{
    step s = {.m = ds_module_of(cls), .e = (ds_engine_object *)self};
    if (n_args != 5 || names) {
        PyErr_SetString(PyExc_TypeError, "step(ids, sos, eos, arrays, restart)");
        return NULL;
    }
    int restart = PyObject_IsTrue(args[4]);
    s.restart = restart > 0;
    s.ids = restart < 0 ? NULL : plain_ids(s.m, args[0]);
    if (!s.ids)
        return NULL;
    s.n_rows = PyTuple_GET_SIZE(s.ids);
    PyObject *result = NULL;
    void *block = carve(&s);
    s.e->n_running++; /* nobody closes the engine meanwhile: the slots stay where they are */
    if (block && ds_engine_check_open(s.m, s.e) == 0 && parse_flags(args[1], s.sos, s.n_rows) == 0 &&
        parse_flags(args[2], s.eos, s.n_rows) == 0 && check_ids(&s) == 0 &&
        each_input(&s, args[3], measure_input) == 0)
        result = step_rows(&s, args[3]);
    s.e->n_running--;
    for (Py_ssize_t r = 0; block && r < s.n_rows; r++)
        Py_XDECREF(s.addresses[r]);
    PyMem_Free(block);
    Py_DECREF(s.ids);
    return result;
}
