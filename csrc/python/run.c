/* _core.Op.run: one operator for a ragged batch, its states as named arrays.
 *
 * A row's state is None or a dict: "kept.0", … are the frames that are kept of each input, as far as there are
 * any, then come the arrays that the operator carries, under their names. They lie one after another in one
 * bytes object. New states are new objects; the old ones are only read, so whoever still holds them can go
 * back. A state that has only grown is a pair (state before, what was added of each input): records of a growing
 * state share all that came before, so that they take as much memory as there are frames. */
#include <string.h>

#include "python/run.h"

/* Of all rows. */
int64_t ds_op_call_frames(const ds_op_call *c, const ds_counts *counts)
{
    int64_t n = 0;
    for (Py_ssize_t r = 0; r < c->n_rows; r++)
        n += ds_new_frames(&counts[r]);
    return n;
}

/* ---------------------------------------------------------------- arguments */
static int parse_values(ds_op_call *c, PyObject *values)
{
    const int n = ds_op_n_values(c->op);
    DS_EXPECT(PyTuple_GET_SIZE(values) >= n, PyExc_TypeError, "%s: expected %d values",
              c->op->def->name, n);
    for (int i = 0; i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(values, i);
        if (item == Py_None)
            continue;
        DS_EXPECT(ds_array_fits(item, &c->op->in[i], ds_op_call_frames(c, c->in[i]), false),
                  c->m->errors[DS_SHAPE], "%s: value %d does not fit its signature and counts",
                  c->op->def->name, i);
        c->values[i] = ds_data(item);
    }
    return 0;
}

/* Returns what keeps them (new reference). */
PyObject *ds_op_call_weights(ds_op_call *c, PyObject *weights)
{
    ds_signature signatures[DS_MAX_WEIGHTS];
    size_t n;
    PyObject *kept = ds_parse_weights(c->m, c->op->def, weights, signatures, c->weights, &n);
    bool same = kept && (int)n == c->op->n_weights;
    for (size_t i = 0; same && i < n; i++) {
        const ds_signature *w = &c->op->weight[i];
        same = signatures[i].dtype == w->dtype &&
               (!w->dtype || ds_signature_same_shape(&signatures[i], w));
    }
    if (kept && !same) {
        PyErr_Format(c->m->errors[DS_SHAPE], "%s: the weights are not those it was made for",
                     c->op->def->name);
        Py_CLEAR(kept);
    }
    return kept;
}

/* ---------------------------------------------------------------- states */
/* n_kept: of each value input the frames that are kept. */
int ds_op_call_state_bytes(const ds_op_call *c, Py_ssize_t r, bool now, int64_t *n_kept,
                           size_t *n_bytes)
{
    ds_pair in[DS_MAX_INPUTS];
    for (int i = 0; i < c->op->n_inputs; i++)
        in[i] = now ? c->in[i][r].now : c->in[i][r].before;
    const ds_status status = ds_eager_state_bytes(
        c->op, in, now ? c->out[0][r].now : c->out[0][r].before, n_kept, n_bytes);
    if (status != DS_OK)
        ds_raise(c->m, status, NULL);
    return status == DS_OK ? 0 : -1;
}

/* Whether the row only adds frames to what it keeps: then its state is a new segment on top of the old one. Where
 * it gives output, too, all of its state is read, so that a segment saves memory only if a record keeps that. */
static bool only_grows(const ds_op_call *c, Py_ssize_t r, PyObject *old, bool record)
{
    const ds_op *op = c->op;
    const int n_values = ds_op_n_values(op);
    const bool named = n_values == 1 || !PyDict_Check(old) || !PyDict_GetItemString(old, "");
    if (op->n_carried || !n_values || !named || (!record && ds_new_frames(&c->out[0][r])))
        return false;
    bool any = false;
    for (int i = 0; i < n_values; i++) {
        const ds_counts *in = &c->in[i][r];
        const int64_t from = ds_eager_kept_from(op, i, in->before, c->out[0][r].before);
        const int64_t from_now = ds_eager_kept_from(op, i, in->now, c->out[0][r].now);
        const bool keeps = from < in->before.known || from_now < in->now.known;
        if (keeps && from != from_now)
            return false;
        any |= keeps;
    }
    return any;
}

/* What a state's arrays are called: those of the inputs, then those that are carried (new reference). */
static PyObject *state_names(const ds_op *op)
{
    const int n_values = ds_op_n_values(op);
    PyObject *names = PyTuple_New(n_values + op->n_carried);
    for (int i = 0; names && i < n_values + op->n_carried; i++)
        ds_set_item(&names, i,
                    i < n_values ? PyUnicode_FromFormat("kept.%d", i)
                                 : PyUnicode_FromString(op->carried[i - n_values].name));
    return names;
}

/* Adds to a state the array of this shape that lies in its bytes at `data`. */
static int add_array(PyObject *state, PyObject *name, const ds_signature *s, int rank,
                     npy_intp *shape, PyObject *bytes, char *data)
{
    const bool aligned = (uintptr_t)data % ds_dtype_bytes(s->dtype) == 0;
    DS_OWNED PyObject *array = PyArray_NewFromDescr(
        &PyArray_Type, PyArray_DescrFromType(ds_numpy_type(s->dtype)), rank, shape, NULL, data,
        NPY_ARRAY_C_CONTIGUOUS | (aligned ? NPY_ARRAY_ALIGNED : 0), NULL);
    return array && PyArray_SetBaseObject((PyArrayObject *)array, Py_NewRef(bytes)) == 0
               ? PyDict_SetItem(state, name, array)
               : -1;
}

/* A state of the arrays that lie in these bytes, which it takes over (NULL: none): n[i] frames of input i,
 * then what is carried. */
PyObject *ds_op_call_state(const ds_op_call *c, const int64_t *n, PyObject *bytes)
{
    const ds_op *op = c->op;
    const int n_values = ds_op_n_values(op);
    PyObject *state = bytes ? PyDict_New() : NULL;
    bool right = state != NULL;
    char *at = right ? PyBytes_AS_STRING(bytes) : NULL;
    for (int i = 0; right && i < n_values + op->n_carried; i++) {
        const bool kept = i < n_values;
        const ds_signature *s = kept ? &op->in[i] : &op->carried[i - n_values].array;
        npy_intp shape[DS_MAX_RANK + 1] = {kept ? (npy_intp)n[i] : 0};
        for (int d = 0; d < s->rank; d++)
            shape[d + kept] = s->shape[d];
        if (!kept || n[i])
            right = add_array(state, PyTuple_GET_ITEM(c->names, i), s, s->rank + kept, shape, bytes,
                              kept ? at : at + op->carried[i - n_values].offset) == 0;
        if (kept)
            at += (size_t)n[i] * ds_signature_bytes(s);
    }
    Py_XDECREF(bytes);
    if (!right)
        Py_CLEAR(state);
    return state;
}

/* The state after a call in which a row only kept new frames, which begin at fresh[i]: a segment on top of the old
 * state. n_kept: what it keeps now. */
static PyObject *grown_state(const ds_op_call *c, Py_ssize_t r, PyObject *old,
                             const char *const *fresh, const int64_t *n_kept)
{
    int64_t n[DS_MAX_INPUTS];
    size_t n_bytes[DS_MAX_INPUTS], sum = 0;
    for (int i = 0; i < ds_op_n_values(c->op); i++) {
        n[i] = n_kept[i] ? ds_new_frames(&c->in[i][r]) : 0;
        sum += n_bytes[i] = (size_t)n[i] * ds_signature_bytes(&c->op->in[i]);
    }
    PyObject *bytes = sum ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sum) : NULL;
    if (!bytes)
        return sum ? NULL : Py_NewRef(old);
    char *to = PyBytes_AS_STRING(bytes);
    for (int i = 0; i < ds_op_n_values(c->op); to += n_bytes[i++])
        if (n_bytes[i])
            memcpy(to, fresh[i], n_bytes[i]);
    PyObject *segment = ds_op_call_state(c, n, bytes);
    return segment && old != Py_None ? Py_BuildValue("ON", old, segment) : segment;
}

/* The bytes in which all arrays of a state lie (borrowed); NULL where they don't lie in one. */
static PyObject *bytes_of(PyObject *state)
{
    PyObject *name, *array, *bytes = NULL;
    for (Py_ssize_t at = 0; PyDict_Check(state) && PyDict_Next(state, &at, &name, &array);) {
        PyObject *base = PyArray_Check(array) ? PyArray_BASE((PyArrayObject *)array) : NULL;
        if (!base || !PyBytes_Check(base) || (bytes && base != bytes))
            return NULL;
        bytes = base;
    }
    return bytes;
}

/* Bytes that segments have of an array, copied to where `end` says that they end; those of the newest first. */
static size_t copy_segments(PyObject *state, PyObject *name, char *end)
{
    size_t n = 0;
    for (bool grown = true; grown;) {
        grown = PyTuple_Check(state);
        PyObject *segment = grown ? PyTuple_GET_ITEM(state, 1) : state;
        PyObject *array = PyDict_GetItemWithError(segment, name);
        if (!grown && !array) /* of a state that came as bytes: one array without a name */
            array = PyDict_GetItemString(segment, "");
        const size_t n_bytes = array ? (size_t)PyArray_NBYTES((PyArrayObject *)array) : 0;
        n += n_bytes;
        if (end && n_bytes)
            memcpy(end - n, ds_data(array), n_bytes);
        state = grown ? PyTuple_GET_ITEM(state, 0) : NULL;
    }
    return n;
}

PyObject *ds_op_call_flatten(const ds_op_call *c, PyObject *state)
{
    PyObject *whole = bytes_of(state), *segment = state;
    if (whole)
        return Py_NewRef(whole);
    size_t n[DS_MAX_INPUTS], sum = 0;
    while (PyTuple_Check(segment) && PyTuple_GET_SIZE(segment) == 2 &&
           bytes_of(PyTuple_GET_ITEM(segment, 1)))
        segment = PyTuple_GET_ITEM(segment, 0);
    if (!bytes_of(segment))
        return PyErr_Format(PyExc_TypeError,
                            "a state is a dict of arrays that lie in one bytes object");
    for (int i = 0; i < ds_op_n_values(c->op); i++)
        sum += n[i] = copy_segments(state, PyTuple_GET_ITEM(c->names, i), NULL);
    PyObject *flat = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sum);
    char *end = flat ? PyBytes_AS_STRING(flat) : NULL;
    for (int i = 0; flat && i < ds_op_n_values(c->op); i++)
        (void)copy_segments(state, PyTuple_GET_ITEM(c->names, i), end += n[i]);
    return flat;
}

/* Makes row r's state before readable in one piece; fails where its size is not what the counts say. */
static int read_state(ds_op_call *c, Py_ssize_t r, PyObject *old)
{
    size_t expected;
    int64_t n_kept[DS_MAX_INPUTS];
    DS_OWNED PyObject *flat = old == Py_None ? Py_NewRef(old) : ds_op_call_flatten(c, old);
    if (!flat || PyList_Append(c->flat, flat) < 0 || /* which keeps it */
        ds_op_call_state_bytes(c, r, false, n_kept, &expected) < 0)
        return -1;
    const size_t length = flat == Py_None ? 0 : (size_t)PyBytes_GET_SIZE(flat);
    const bool started = c->in[0][r].before.total >= 0;
    DS_EXPECT(length == expected || (length == 0 && !started), c->m->errors[DS_INTERNAL],
              "%s: row %zd has %zu bytes of state, not %zu", c->op->def->name, r, length, expected);
    c->states[r] = flat == Py_None ? NULL : PyBytes_AS_STRING(flat);
    return 0;
}

/* Reads every row's state before and makes room for the state after. A row that only grows needs no such room, and
 * where it gives nothing none of its state before. */
static int prepare_states(ds_op_call *c, PyObject *states, bool record)
{
    const char *fresh[DS_MAX_INPUTS];
    DS_EXPECT(states == Py_None || (PyList_Check(states) && PyList_GET_SIZE(states) == c->n_rows),
              PyExc_TypeError, "%s: states must be a list, one per row", c->op->def->name);
    for (int i = 0; i < ds_op_n_values(c->op); i++)
        fresh[i] = c->values[i];
    for (Py_ssize_t r = 0; r < c->n_rows; r++) {
        PyObject *old = states == Py_None ? Py_None : PyList_GET_ITEM(states, r), *state;
        const bool ended = c->eager.ended[r], grows = !ended && only_grows(c, r, old, record);
        size_t now;
        int64_t n_kept[DS_MAX_INPUTS];
        if (ds_op_call_state_bytes(c, r, true, n_kept, &now) < 0 ||
            (grows && !ds_new_frames(&c->out[0][r])
                 ? PyList_Append(c->flat, old == Py_None ? old : Py_True)
                 : read_state(c, r, old)) < 0)
            return -1;
        if (ended || !now)
            state = Py_NewRef(Py_None);
        else if (grows)
            state = grown_state(c, r, old, fresh, n_kept);
        else {
            PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)now);
            c->new_states[r] = bytes ? PyBytes_AS_STRING(bytes) : NULL;
            state = ds_op_call_state(c, n_kept, bytes);
        }
        if (!state)
            return -1;
        PyList_SET_ITEM(c->news, r, state);
        for (int i = 0; i < ds_op_n_values(c->op); i++)
            if (ds_new_frames(&c->in[i][r]))
                fresh[i] += (size_t)ds_new_frames(&c->in[i][r]) * ds_signature_bytes(&c->op->in[i]);
    }
    return 0;
}

/* ---------------------------------------------------------------- the call */
static PyObject *make_outputs(ds_op_call *c)
{
    PyObject *list = PyList_New(c->op->n_outputs);
    for (int o = 0; list && o < c->op->n_outputs; o++) {
        PyObject *array = ds_build_array(&c->op->out[o], ds_op_call_frames(c, c->out[o]), false);
        c->outputs[o] = array ? ds_data(array) : NULL;
        ds_set_item(&list, o, array);
    }
    return list;
}

/* Work below which releasing the GIL costs more than it gives. */
enum { SMALL_WORK_BYTES = 1 << 16 };

/* kept: prepared weights, taken for this run; NULL: none are. */
static ds_status run_values(ds_op_call *c, PyObject *kept, ds_arena *arena)
{
    size_t n_bytes = 0;
    for (int o = 0; o < c->op->n_outputs; o++)
        n_bytes += (size_t)ds_op_call_frames(c, c->out[o]) * ds_signature_bytes(&c->op->out[o]);
    for (int i = 0; i < c->op->n_weights; i++)
        n_bytes += c->op->weight[i].dtype ? ds_signature_bytes(&c->op->weight[i]) : 0;
    PyThreadState *thread = n_bytes < SMALL_WORK_BYTES ? NULL : PyEval_SaveThread();
    if (kept)
        c->eager.prepared = ds_prepared_refresh(kept, c->eager.kernels, c->weights);
    const ds_status status = ds_eager_run(&c->eager, arena);
    if (thread)
        PyEval_RestoreThread(thread);
    return status;
}

/* What a run is given besides its arguments: kept weights or NULL, whether it is recorded. */
typedef struct extras {
    PyObject *self, *kept, *values, *weights, *drop;
    bool record;
} extras;

static PyObject *results(const ds_op_call *c, PyObject *const *args, const extras *x,
                         PyObject *outputs, PyObject *saved)
{
    if (!x->record)
        return PyTuple_Pack(2, outputs, c->news);
    PyObject *record =
        ds_op_differentiable(c->op)
            ? ds_record_make(c, x->self, args, x->values, x->weights, outputs, saved, x->drop)
            : Py_NewRef(Py_None);
    return record ? Py_BuildValue("OON", outputs, c->news, record) : NULL;
}

static PyObject *run_call(ds_op_call *c, PyObject *const *args, const extras *x, PyObject *ids)
{
    DS_OWNED PyObject *outputs = NULL, *saved = NULL, *flat = PyList_New(0);
    DS_OWNED PyObject *news = PyList_New(c->n_rows);
    DS_SCOPED(ds_memory_end)
    void *room = PyMem_Calloc((size_t)c->n_rows + 1, 2 * sizeof *c->states + sizeof(bool));
    if (!room || !flat || !news)
        return PyErr_NoMemory();
    c->states = room;
    c->new_states = (void **)room + c->n_rows;
    c->eager.bad = (bool *)(c->new_states + c->n_rows);
    c->eager.states = c->states;
    c->eager.new_states = c->new_states;
    c->flat = flat;
    c->news = news;
    if (prepare_states(c, args[4], x->record) < 0 || !(outputs = make_outputs(c)) ||
        (x->record && !(saved = ds_record_saved(c))))
        return NULL;
    ds_arena *const arena = ds_take_arena(c->m);
    if (!arena)
        return NULL;
    const ds_status status = run_values(c, x->kept, arena);
    ds_give_arena(c->m, arena);
    return status == DS_OK ? results(c, args, x, outputs, saved)
                           : ds_op_raise(c->m, status, ids, c->eager.bad, c->n_rows);
}

/* What is dropped of each row: None, or a probability and a key per row. */
int ds_op_call_drop(ds_op_call *c, PyObject *drop)
{
    if (drop == Py_None)
        return 0;
    PyObject *keys =
        PyTuple_Check(drop) && PyTuple_GET_SIZE(drop) == 2 ? PyTuple_GET_ITEM(drop, 1) : NULL;
    DS_EXPECT(keys && PyArray_Check(keys) && PyArray_TYPE((PyArrayObject *)keys) == NPY_UINT64 &&
                  PyArray_ISCARRAY_RO((PyArrayObject *)keys) &&
                  PyArray_SIZE((PyArrayObject *)keys) == c->n_rows,
              PyExc_TypeError, "what is dropped is a probability and a uint64 key per row");
    c->drop = (ds_drop){PyFloat_AsDouble(PyTuple_GET_ITEM(drop, 0)), ds_data(keys)};
    c->eager.drop = &c->drop;
    return c->drop.p == -1 && PyErr_Occurred() ? -1 : 0;
}

int ds_op_call_parse(ds_op_call *c, PyObject *const *args, PyObject *values)
{
    ds_module *m = c->m;
    const int blas = PyObject_IsTrue(args[6]);
    if (blas < 0 || !ds_have_kernels(m) ||
        ds_parse_counts(m, c->op, args[1], c->op->n_inputs, c->in, &c->n_rows) < 0 ||
        ds_parse_counts(m, c->op, args[2], c->op->n_outputs, c->out, &c->n_rows) < 0)
        return -1;
    c->eager = (ds_eager){.op = c->op,
                          .n_rows = (size_t)c->n_rows,
                          .in = c->in,
                          .out = c->out,
                          .kernels = blas && m->blas_kernels ? m->blas_kernels : m->kernels,
                          .ended = ds_parse_ended(m, args[3], c->n_rows),
                          .values = c->values,
                          .weights = c->weights,
                          .outputs = c->outputs};
    return c->eager.ended ? parse_values(c, values) : -1;
}

PyObject *ds_op_object_run(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    ds_op_object *own = (ds_op_object *)self;
    ds_op_call c = {.m = ds_module_of(Py_TYPE(self)), .op = own->op, .n_rows = -1};
    if (!c.op->def->forward)
        return PyErr_Format(PyExc_TypeError, "a declared operator's values are not computed here");
    if (n_args < 7 || n_args > 11)
        return PyErr_Format(PyExc_TypeError,
                            "run(values, inputs, outputs, ended, states, weights, blas, ids=(), "
                            "prepared=None, record=False, drop=None)");
    const int record = n_args > 9 ? PyObject_IsTrue(args[9]) : 0;
    if (record < 0)
        return NULL;
    if (record && !c.op->def->backward && !ds_op_constant(c.op))
        return PyErr_Format(c.m->errors[DS_MODE], "%s has no backward yet", c.op->def->name);
    if (!own->state_names && !(own->state_names = state_names(c.op)))
        return NULL;
    c.names = own->state_names;
    PyObject *kept = n_args > 8 && ds_prepared_take(c.m, args[8], self) ? args[8] : NULL;
    /* Values and weights stay while they are used, whatever becomes of the caller's sequences. */
    DS_OWNED PyObject *values = PySequence_Tuple(args[0]);
    DS_OWNED PyObject *weights = values ? ds_op_call_weights(&c, args[5]) : NULL;
    PyObject *result = NULL;
    const extras x = {self, kept, values, weights, n_args > 10 ? args[10] : Py_None, record};
    if (weights && ds_op_call_parse(&c, args, values) == 0 && ds_op_call_drop(&c, x.drop) == 0)
        result = run_call(&c, args, &x, n_args > 7 ? args[7] : NULL);
    if (kept)
        ds_prepared_give(kept);
    return result;
}
