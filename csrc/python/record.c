/* _core.Record: one call of an operator, as its backward reads it.
 *
 *     outputs, states, record = op.run(…, record=True)
 *     inputs, weights, states = record.backward(slopes, inputs, weights, states, kept)
 *
 * It refers to arrays alone: of the call's values, outputs, weights and states to those that backward reads. It is
 * never changed, so it may be read more than once. */
#include <string.h>

#include "exec/back.h"
#include "python/run.h"

typedef struct record {
    PyObject_HEAD PyObject *op, *values, *in, *out, *ended, *weights, *states, *outputs, *saved,
        *drop;
    bool blas;
} record;

static void record_dealloc(PyObject *object)
{
    record *self = (record *)object;
    PyObject *const owned[] = {self->op,      self->values, self->in,      self->out,   self->ended,
                               self->weights, self->states, self->outputs, self->saved, self->drop};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        Py_XDECREF(owned[i]);
    ds_free_object(object);
}

/* ---------------------------------------------------------------- making one */
PyObject *ds_record_saved(ds_op_call *c)
{
    const ds_op *op = c->op;
    PyObject *tuple = PyTuple_New(op->n_saved);
    for (int i = 0; tuple && i < op->n_saved; i++) {
        const ds_saved *s = &op->saved[i];
        const int64_t n = s->per == DS_PER_ROW  ? (int64_t)c->n_rows
                          : s->per == DS_PER_IN ? ds_op_call_frames(c, c->in[0])
                                                : ds_op_call_frames(c, c->out[0]);
        npy_intp doubles =
            (npy_intp)(((size_t)n * s->n_bytes + sizeof(double) - 1) / sizeof(double));
        PyObject *array = PyArray_SimpleNew(1, &doubles, NPY_DOUBLE);
        c->saved[i] = array ? ds_data(array) : NULL;
        ds_set_item(&tuple, i, array);
    }
    c->eager.saved = tuple && op->n_saved ? c->saved : NULL;
    return tuple;
}

/* A tuple of items, None in place of those that are not read. */
static PyObject *those_read(PyObject *items, int n, unsigned reads)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++)
        PyTuple_SET_ITEM(tuple, i,
                         Py_NewRef(reads >> i & 1 ? PySequence_Fast_GET_ITEM(items, i) : Py_None));
    return tuple;
}

/* The states before the call: their bytes, or pairs of a state and what was added, which records share; where these
 * are not read whether there are any. */
static PyObject *states_read(const ds_op_call *c, PyObject *states)
{
    PyObject *tuple = PyTuple_New(c->n_rows);
    for (Py_ssize_t r = 0; tuple && r < c->n_rows; r++) {
        PyObject *flat = PyList_GET_ITEM(c->flat, r);
        const bool read = flat == Py_None || (c->op->reads & ~(unsigned)DS_READS_Y) != 0;
        if (read && PyBytes_Check(flat) && PyTuple_Check(PyList_GET_ITEM(states, r)))
            flat = PyList_GET_ITEM(states, r);
        PyTuple_SET_ITEM(tuple, r, Py_NewRef(read ? flat : Py_True));
    }
    return tuple;
}

PyObject *ds_record_make(const ds_op_call *c, PyObject *op, PyObject *const *args, PyObject *values,
                         PyObject *weights, PyObject *outputs, PyObject *saved, PyObject *drop)
{
    const unsigned reads = c->op->reads;
    record *self = (record *)c->m->record_type->tp_alloc(c->m->record_type, 0);
    if (!self)
        return NULL;
    self->op = Py_NewRef(op);
    self->values = those_read(values, ds_op_n_values(c->op), reads / DS_READS_X);
    self->in = PySequence_Tuple(args[1]);
    self->out = PySequence_Tuple(args[2]);
    self->ended = Py_NewRef(args[3]);
    self->weights = Py_NewRef(weights);
    self->states = states_read(c, args[4]);
    self->outputs = those_read(outputs, c->op->n_outputs, reads & DS_READS_Y ? ~0u : 0);
    self->saved = Py_NewRef(saved);
    self->drop = Py_NewRef(drop);
    self->blas = c->eager.kernels == c->m->blas_kernels;
    if (!self->values || !self->in || !self->out || !self->states || !self->outputs)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* ---------------------------------------------------------------- reading it */
typedef struct reading {
    ds_op_call c;
    ds_eager_back back;
    const void *slopes[DS_MAX_OUTPUTS];
    void *inputs[DS_MAX_INPUTS], *weights[DS_MAX_WEIGHTS];
    const void **after; /* [n_rows] */
    void **before;      /* [n_rows] */
    PyObject *flat;     /* keeps the slopes of states after in one piece */
} reading;

/* The list of arrays that n slopes are added to, those given and new ones. n_frames NULL: of weights. */
static PyObject *wanted(const reading *b, PyObject *given, const char *what, int n,
                        const ds_signature *signatures, const int64_t *n_frames, void **data)
{
    DS_OWNED PyObject *items = PySequence_Tuple(given);
    PyObject *list = items ? PyList_New(n) : NULL;
    if (list && PyTuple_GET_SIZE(items) != n) {
        PyErr_Format(b->c.m->errors[DS_ARGUMENT], "%s: expected %d %s, got %zd", b->c.op->def->name,
                     n, what, PyTuple_GET_SIZE(items));
        Py_CLEAR(list);
    }
    for (int i = 0; list && i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i), *array;
        const ds_signature *s = &signatures[i];
        const int64_t frames = n_frames ? n_frames[i] : -1;
        if (item == Py_None || item == Py_False || (int)s->dtype == 0 || !ds_is_real(s->dtype)) {
            PyList_SET_ITEM(list, i, Py_NewRef(Py_None));
            continue;
        }
        if (item == Py_True) {
            array = ds_build_array(s, frames, true);
        } else if (ds_array_fits(item, s, frames, true)) {
            array = Py_NewRef(item);
        } else {
            array = PyErr_Format(b->c.m->errors[DS_SHAPE],
                                 "%s: slope %d of its %s must be True, False, or an array that "
                                 "is shaped as they are",
                                 b->c.op->def->name, i, what);
        }
        data[i] = array ? ds_data(array) : NULL;
        ds_set_item(&list, i, array);
    }
    return list;
}

/* Slopes of outputs; returns what keeps them (new reference). */
static PyObject *read_slopes(reading *b, PyObject *given)
{
    const ds_op *op = b->c.op;
    PyObject *items = PySequence_Tuple(given);
    bool right = items && PyTuple_GET_SIZE(items) == op->n_outputs;
    for (int o = 0; right && o < op->n_outputs; o++) {
        PyObject *item = PyTuple_GET_ITEM(items, o);
        if (item == Py_None || !ds_is_real(op->out[o].dtype))
            continue;
        right = ds_array_fits(item, &op->out[o], ds_op_call_frames(&b->c, b->c.out[o]), false);
        b->slopes[o] = right ? ds_data(item) : NULL;
    }
    if (items && !right) {
        Py_CLEAR(items);
        PyErr_Format(b->c.m->errors[DS_SHAPE],
                     "%s: slopes of its outputs must be arrays like these, or None", op->def->name);
    }
    return items;
}

/* Slopes of row r's state after, in one piece. */
static int read_after(reading *b, Py_ssize_t r, PyObject *given)
{
    size_t n_bytes, n = 0;
    int64_t n_kept[DS_MAX_INPUTS];
    if (ds_op_call_state_bytes(&b->c, r, true, n_kept, &n_bytes) < 0)
        return -1;
    DS_EXPECT(PyDict_Check(given), PyExc_TypeError, "slopes of a state are a dict, or None");
    DS_OWNED PyObject *flat = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
    if (!flat)
        return -1;
    char *const to = PyBytes_AS_STRING(flat);
    memset(to, 0, n_bytes);
    const int n_values = ds_op_n_values(b->c.op);
    size_t at = 0;
    for (int i = 0; i < n_values + b->c.op->n_carried; i++) {
        const bool kept = i < n_values;
        const ds_carried *carried = kept ? NULL : &b->c.op->carried[i - n_values];
        const ds_signature *s = kept ? &b->c.op->in[i] : &carried->array;
        PyObject *name = PyTuple_GET_ITEM(b->c.names, i);
        PyObject *array = PyDict_GetItemWithError(given, name);
        const size_t bytes = (kept ? (size_t)n_kept[i] : 1) * ds_signature_bytes(s);
        DS_EXPECT(!array || ds_array_fits(array, s, kept ? n_kept[i] : -1, false),
                  b->c.m->errors[DS_SHAPE], "%s: row %zd: slope '%U' is not shaped as the state is",
                  b->c.op->def->name, r, name);
        if (array && ds_is_real(s->dtype))
            memcpy(to + at + (kept ? 0 : carried->offset), ds_data(array), bytes);
        n += array ? 1 : 0;
        at += kept ? bytes : 0;
    }
    if (PyErr_Occurred() || PyList_Append(b->flat, flat) < 0)
        return -1;
    b->after[r] = to;
    DS_EXPECT((Py_ssize_t)n == PyDict_GET_SIZE(given), b->c.m->errors[DS_SHAPE],
              "%s: row %zd: slopes of its state have other names than the state",
              b->c.op->def->name, r);
    return 0;
}

/* Makes room for the slopes of all states before; reads those of the states after. Returns the list of new ones. */
static PyObject *read_states(reading *b, const record *self, PyObject *given, bool kept)
{
    ds_op_call *c = &b->c;
    PyObject *list = PyList_New(c->n_rows);
    const bool none = given == Py_None;
    if (list && !none && (!PyList_Check(given) || PyList_GET_SIZE(given) != c->n_rows)) {
        PyErr_Format(PyExc_TypeError, "slopes of states must be a list, one per row, or None");
        Py_CLEAR(list);
    }
    for (Py_ssize_t r = 0; list && r < c->n_rows; r++) {
        PyObject *held = PyTuple_GET_ITEM(self->states, r), *state = NULL;
        PyObject *after = none ? Py_None : PyList_GET_ITEM(given, r);
        size_t n_bytes;
        int64_t n_kept[DS_MAX_INPUTS];
        DS_OWNED PyObject *flat =
            PyTuple_Check(held) ? ds_op_call_flatten(c, held) : Py_NewRef(held);
        const int failed = !flat || PyList_Append(b->flat, flat) < 0;
        if (!failed) /* the list keeps it */
            c->states[r] = flat == Py_None ? NULL : flat == Py_True ? "" : PyBytes_AS_STRING(flat);
        if (failed || ds_op_call_state_bytes(c, r, false, n_kept, &n_bytes) < 0 ||
            (after != Py_None && read_after(b, r, after) < 0)) {
            Py_CLEAR(list);
            break;
        }
        if (kept && held != Py_None && n_bytes) {
            PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
            b->before[r] = bytes ? PyBytes_AS_STRING(bytes) : NULL;
            state = ds_op_call_state(c, n_kept, bytes);
        } else {
            state = Py_NewRef(Py_None);
        }
        ds_set_item(&list, r, state);
    }
    return list;
}

static PyObject *read_back(reading *b, const record *self, PyObject *const *args)
{
    ds_op_call *c = &b->c;
    const ds_op *op = c->op;
    int64_t n_frames[DS_MAX_INPUTS];
    for (int i = 0; i < ds_op_n_values(op); i++)
        n_frames[i] = ds_op_call_frames(c, c->in[i]);
    for (int o = 0; o < op->n_outputs; o++) {
        PyObject *y = PyTuple_GET_ITEM(self->outputs, o);
        c->outputs[o] = y == Py_None ? NULL : ds_data(y);
    }
    for (int i = 0; i < op->n_saved; i++)
        c->saved[i] = ds_data(PyTuple_GET_ITEM(self->saved, i));
    c->eager.saved = c->saved;
    c->eager.states = c->states;
    b->back = (ds_eager_back){&c->eager, b->slopes, b->inputs, b->weights, b->after, b->before};
    DS_OWNED PyObject *slopes = read_slopes(b, args[0]);
    DS_OWNED PyObject *inputs =
        slopes ? wanted(b, args[1], "value inputs", ds_op_n_values(op), op->in, n_frames, b->inputs)
               : NULL;
    DS_OWNED PyObject *weights =
        inputs ? wanted(b, args[2], "weights", op->n_weights, op->weight, NULL, b->weights) : NULL;
    const int kept = weights ? PyObject_IsTrue(args[4]) : -1;
    DS_OWNED PyObject *states = kept < 0 ? NULL : read_states(b, self, args[3], kept);
    ds_arena *arena = states ? ds_take_arena(c->m) : NULL;
    if (!arena)
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const ds_status status = ds_eager_backward(&b->back, arena);
    PyEval_RestoreThread(thread);
    ds_give_arena(c->m, arena);
    return status == DS_OK ? PyTuple_Pack(3, inputs, weights, states)
                           : ds_raise(c->m, status, NULL);
}

static PyObject *record_backward(PyObject *object, PyObject *const *args, Py_ssize_t n_args)
{
    record *self = (record *)object;
    ds_op_object *own = (ds_op_object *)self->op;
    reading b = {.c = {.m = ds_module_of(Py_TYPE(object)), .op = own->op, .n_rows = -1}};
    if (n_args != 5)
        return PyErr_Format(PyExc_TypeError, "backward(slopes, inputs, weights, states, kept)");
    PyObject *const run_args[] = {
        NULL, self->in, self->out, self->ended, NULL, NULL, self->blas ? Py_True : Py_False};
    DS_OWNED PyObject *kept = ds_op_call_weights(&b.c, self->weights), *flat = PyList_New(0);
    b.c.names = own->state_names;
    if (!kept || !flat || ds_op_call_parse(&b.c, run_args, self->values) < 0 ||
        ds_op_call_drop(&b.c, self->drop) < 0)
        return NULL;
    const size_t n = (size_t)b.c.n_rows;
    DS_SCOPED(ds_memory_end)
    void *room = PyMem_Calloc(n + 1, sizeof *b.c.states + sizeof *b.after + sizeof *b.before);
    if (!room)
        return PyErr_NoMemory();
    b.flat = flat;
    b.c.states = room;
    b.after = b.c.states + n;
    b.before = (void **)room + 2 * n;
    return read_back(&b, self, args);
}

/* ---------------------------------------------------------------- facts */
static PyObject *record_get(PyObject *object, void *which)
{
    const record *self = (const record *)object;
    if (*(const char *)which == 'o')
        return Py_NewRef(self->op);
    if (*(const char *)which == 'r')
        return PySequence_Concat(self->values, self->outputs);
    return Py_BuildValue("(OOOOOOOO)", self->values, self->outputs, self->states, self->saved,
                         self->in, self->out, self->weights, self->drop);
}

static PyGetSetDef record_getset[] = {
    {"op", record_get, NULL, "The operator that ran.", "o"},
    {"reads", record_get, NULL, "Values, then outputs; None for those that backward doesn't read.",
     "r"},
    {"held", record_get, NULL,
     "Values, outputs, states, saved arrays, counts, weights, keys that it refers to; None: not "
     "read.",
     "h"},
    {NULL, NULL, NULL, NULL, NULL},
};

/* frames(i): how many new frames each row has of input i. */
static PyObject *record_frames(PyObject *object, PyObject *index)
{
    const record *self = (const record *)object;
    const Py_ssize_t i = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    if (i < 0 || i >= PyTuple_GET_SIZE(self->in))
        return PyErr_Format(PyExc_IndexError, "there is no input %zd", i);
    PyArrayObject *array = (PyArrayObject *)PyTuple_GET_ITEM(self->in, i);
    npy_intp n_rows = PyArray_DIM(array, 0);
    const ds_counts *counts = PyArray_DATA(array);
    PyObject *frames = PyArray_SimpleNew(1, &n_rows, NPY_INT64);
    for (npy_intp r = 0; frames && r < n_rows; r++)
        ((int64_t *)ds_data(frames))[r] = ds_new_frames(&counts[r]);
    return frames;
}

static PyMethodDef record_methods[] = {
    {"frames", record_frames, METH_O, "frames(i) -> new frames of input i, per row"},
    {"backward", DS_FAST(record_backward),
     "backward(slopes, inputs, weights, states, kept) -> slopes of inputs, weights, states before"},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(record, "Record", record, Py_TPFLAGS_DISALLOW_INSTANTIATION,
        "One call of an operator, as its backward reads it.", {Py_tp_dealloc, record_dealloc},
        {Py_tp_getset, record_getset}, {Py_tp_methods, record_methods});
