/* python/replay_operation.c: runs an operator of a place again.
 *
 * One that sees single frames runs here where its inputs have equal counts; one that sees windows of one input does
 * again what it did in a call in which these stood alike. All others are run by the call itself. */
#include "python/op.h"
#include "python/replay.h"

/* Inputs and weights of an operator that runs here; what has more runs by the call itself. */
enum { MOST_OPERANDS = 32 };
/* What an operator works on, and where its results go. */
typedef struct work {
    const replay_object *r;
    PyObject *entry, *ran, *weights;
    PyObject *edges, *values;     /* lists of all */
    PyObject *counts;             /* owned: a list of its inputs', or NULL */
    Py_ssize_t n_inputs, n_given; /* of which the first have values */
} work;

static PyObject *part(const work *w, int which)
{
    return PyTuple_GET_ITEM(w->ran, which);
}

/* Of all edges or values, that of an input. */
static PyObject *operand(const work *w, PyObject *all, Py_ssize_t i)
{
    return PyList_GET_ITEM(all, PyLong_AsSsize_t(PyTuple_GET_ITEM(part(w, RAN_AT), i)));
}

/* An input's counts; NULL where it has none in an array. */
static PyArrayObject *counts_of(const work *w, Py_ssize_t i)
{
    PyObject *edge = operand(w, w->edges, i);
    PyObject *counts = is_of(w->r, edge, EDGE) ? slot(w->r, edge, S_EDGE_counts) : NULL;
    return counts && PyArray_Check(counts) ? (PyArrayObject *)counts : NULL;
}

/* The first n of its inputs among all, a list of new references. */
static PyObject *picked(const work *w, PyObject *all, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(operand(w, all, i)));
    return list;
}

/* Sees to it that there is a list of the inputs' counts. */
static bool need_counts(work *w)
{
    if (w->counts || !(w->counts = PyList_New(w->n_inputs)))
        return w->counts != NULL;
    for (Py_ssize_t i = 0; i < w->n_inputs; i++) {
        PyObject *counts = Py_XNewRef((PyObject *)counts_of(w, i));
        PyList_SET_ITEM(w->counts, i, counts);
        if (!counts)
            PyErr_SetString(PyExc_TypeError, "an edge without counts");
    }
    return !PyErr_Occurred();
}

/* Whether all inputs' counts are the same; says how many frames there are. */
static bool same_counts(const work *w, int64_t *n_frames)
{
    PyArrayObject *first = counts_of(w, 0);
    if (!first || !PyArray_IS_C_CONTIGUOUS(first))
        return false;
    const size_t n_bytes = (size_t)PyArray_NBYTES(first);
    const int64_t *data = PyArray_DATA(first);
    for (Py_ssize_t i = 1; i < w->n_inputs; i++) {
        PyArrayObject *other = counts_of(w, i);
        if (!other || (other != first && (!PyArray_IS_C_CONTIGUOUS(other) ||
                                          (size_t)PyArray_NBYTES(other) != n_bytes ||
                                          memcmp(PyArray_DATA(other), data, n_bytes) != 0)))
            return false;
    }
    for (npy_intp row = 0; row < PyArray_DIM(first, 0); row++)
        *n_frames += data[4 * row + 2] - data[4 * row];
    return true;
}

static PyObject *new_edge(const replay_object *r, PyObject *entry, PyObject *line, PyObject *counts)
{
    PyTypeObject *type = (PyTypeObject *)of(r, EDGE);
    PyObject *edge = type->tp_alloc(type, 0);
    if (edge) {
        set_slot(r, edge, S_EDGE_entry, Py_NewRef(entry));
        set_slot(r, edge, S_EDGE_line, Py_NewRef(line));
        set_slot(r, edge, S_EDGE_counts, Py_NewRef(counts));
        set_slot(r, edge, S_EDGE_handle, Py_NewRef(Py_None));
        set_slot(r, edge, S_EDGE_made, Py_NewRef(Py_None));
    }
    return edge;
}

/* Goes one step along the call's script. */
static bool follow(const replay_object *r, PyObject *entry, PyObject *key)
{
    PyObject *done = slot(r, entry, S_CALL_n_done), *script = slot(r, entry, S_CALL_script);
    const Py_ssize_t n = done ? PyLong_AsSsize_t(done) : -1;
    const bool plain = n >= 0 && script && PyList_Check(script) && n < PyList_GET_SIZE(script) &&
                       PyList_GET_ITEM(script, n) == key &&
                       slot(r, entry, S_CALL_over) == Py_False &&
                       slot(r, entry, S_CALL_fail_at) == Py_None;
    if (PyErr_Occurred())
        return false;
    if (plain)
        return set_slot(r, entry, S_CALL_n_done, PyLong_FromSsize_t(n + 1));
    DS_OWNED PyObject *next = PyObject_CallMethodOneArg(entry, r->names[N__follow], key);
    return next != NULL;
}

static bool go_back(const replay_object *r, PyObject *entry)
{
    DS_OWNED PyObject *done = PyObject_CallMethodNoArgs(entry, r->names[N__step_back]);
    return done != NULL;
}

/* The exception that is under way outlives another function of the call's. */
static void step_back(const replay_object *r, PyObject *entry)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
        go_back(r, entry);
        PyErr_Clear();
    }
    PyErr_Restore(type, error, traceback);
}

/* Appends what a kernel has given: a value, or a tuple or list of one for each output, with the counts of each in a list,
 * or input 0's where that is NULL. */
static bool append_all(const work *w, PyObject *out, PyObject *after)
{
    PyObject *lines = part(w, RAN_LINES);
    const bool several = PyTuple_Check(out) || PyList_Check(out);
    if ((several ? PySequence_Fast_GET_SIZE(out) : 1) < PyList_GET_SIZE(lines)) {
        PyErr_SetString(PyExc_TypeError, "a kernel has given fewer values than it has outputs");
        return false;
    }
    bool right = true;
    for (Py_ssize_t o = 0; right && o < PyList_GET_SIZE(lines); o++) {
        PyObject *counts = after ? PyList_GET_ITEM(after, o) : (PyObject *)counts_of(w, 0);
        PyObject *value = several ? PySequence_Fast_GET_ITEM(out, o) : out;
        right =
            put(w->edges, new_edge(w->r, w->entry, PyList_GET_ITEM(lines, o), counts)) == DONE &&
            put(w->values, Py_NewRef(value)) == DONE;
    }
    return right;
}

/* The counts of the outputs, a list; new reference. */
static PyObject *counts_after(work *w)
{
    if (!need_counts(w))
        return NULL;
    DS_OWNED PyObject *ended = get_slot(w->r, w->entry, S_CALL_ended);
    DS_OWNED PyObject *ids = ended ? get_slot(w->r, w->entry, S_CALL_ids) : NULL;
    return ids ? PyObject_CallFunctionObjArgs(part(w, RAN_COUNTS), w->counts, ended, ids, NULL)
               : NULL;
}

/* Runs an operator of single frames, after its step along the script. */
static bool run_frames(work *w)
{
    const replay_object *r = w->r;
    PyObject *step = part(w, RAN_STEP);
    DS_OWNED PyObject *after = part(w, RAN_COUNTS) == Py_None ? NULL : counts_after(w);
    DS_OWNED PyObject *tape = get_slot(r, w->entry, S_CALL_keeps_tape), *out = NULL;
    PyObject *operands[1 + MOST_OPERANDS] = {step};
    const Py_ssize_t n = w->n_given, n_weights = PySequence_Fast_GET_SIZE(w->weights);
    for (Py_ssize_t i = 0; i < n; i++)
        operands[1 + i] = operand(w, w->values, i);
    for (Py_ssize_t i = 0; i < n_weights; i++)
        operands[1 + n + i] = PySequence_Fast_GET_ITEM(w->weights, i);
    if (!PyErr_Occurred() && tape && set(r, step, N_training, tape))
        out = PyObject_Vectorcall(part(w, RAN_RUN), operands, (size_t)(1 + n + n_weights), NULL);
    return out && append_all(w, out, after);
}

/* What an operator did where the columns were the same (borrowed), or NULL, with or without an exception; `after` are
 * its outputs' counts, `taped` says whether for training. */
static PyObject *done_before(const work *w, PyObject *after, int taped)
{
    DS_OWNED PyObject *ended = get_slot(w->r, w->entry, S_CALL_ended);
    DS_OWNED PyObject *key =
        ended ? ds_op_columns_key(part(w, RAN_COLUMNS), w->counts, after, ended) : NULL;
    return key ? PyDict_GetItemWithError(PyTuple_GET_ITEM(part(w, RAN_DONE), taped), key) : NULL;
}

/* Runs on windows what ran on such before: a value, or a tuple or list of them, or None where it can't; NULL with an
 * exception. */
static PyObject *run_again(const work *w, PyObject *run, PyObject *after)
{
    enum { N_OWN = 4 };
    PyObject *operands[N_OWN + MOST_OPERANDS] = {w->entry, operand(w, w->values, 0),
                                                 PyList_GET_ITEM(w->counts, 0),
                                                 PyList_GET_ITEM(after, 0)};
    const Py_ssize_t n_weights = PySequence_Fast_GET_SIZE(w->weights);
    for (Py_ssize_t i = 0; i < n_weights; i++)
        operands[N_OWN + i] = PySequence_Fast_GET_ITEM(w->weights, i);
    return PyObject_Vectorcall(run, operands, (size_t)(N_OWN + n_weights), NULL);
}

/* Whether an operator of one input did the same before, or handed its input on, and does so again after its step along
 * the script; its results are appended. -1 with an exception. */
static int run_windows(work *w)
{
    const replay_object *r = w->r;
    const int taped = slot(r, w->entry, S_CALL_keeps_tape) == Py_True;
    DS_OWNED PyObject *after = counts_after(w);
    DS_OWNED PyObject *run = after ? Py_XNewRef(done_before(w, after, taped)) : NULL;
    int runs = PyErr_Occurred() ? -1 : run != NULL;
    if (runs == 1 && run != Py_None)
        runs = is(r, w->entry, N_keeps_frames, Py_True);
    if (runs == 1 && !follow(r, w->entry, part(w, RAN_KEY)))
        runs = -1;
    else if (runs == 1) {
        DS_OWNED PyObject *out =
            run == Py_None ? Py_NewRef(operand(w, w->values, 0)) : run_again(w, run, after);
        runs = !out ? -1 : out == Py_None ? 0 : append_all(w, out, after) ? 1 : -1;
        if (runs == 0 && !go_back(r, w->entry))
            runs = -1;
        else if (runs < 0)
            step_back(r, w->entry);
    }
    return runs;
}

/* Runs any operator by the call itself. */
static bool run_any(const work *w)
{
    DS_OWNED PyObject *own = picked(w, w->edges, w->n_inputs);
    DS_OWNED PyObject *given = picked(w, w->values, w->n_given);
    DS_OWNED PyObject *results =
        own && given ? PyObject_CallMethodObjArgs(w->entry, w->r->names[N_replay], part(w, RAN),
                                                  own, given, w->weights, NULL)
                     : NULL;
    bool right = results && PyList_Check(results);
    for (Py_ssize_t o = 0; right && o < PyList_GET_SIZE(results); o++) {
        PyObject *pair = PyList_GET_ITEM(results, o);
        right = put(w->values, Py_NewRef(PyTuple_GET_ITEM(pair, 0))) == DONE &&
                put(w->edges, Py_NewRef(PyTuple_GET_ITEM(pair, 1))) == DONE;
    }
    return right;
}

static bool run_work(work *w)
{
    if (part(w, RAN_RUN) != Py_None &&
        w->n_inputs + PySequence_Fast_GET_SIZE(w->weights) <= MOST_OPERANDS) {
        int64_t n_frames = 0;
        if (!same_counts(w, &n_frames) || n_frames == 0)
            return run_any(w);
        if (!follow(w->r, w->entry, part(w, RAN_KEY)))
            return false;
        const bool right = run_frames(w);
        if (!right)
            step_back(w->r, w->entry);
        return right;
    }
    const bool has_columns =
        Py_IS_TYPE(part(w, RAN_COLUMNS), ds_module_of(Py_TYPE(w->r))->op_type) &&
        PySequence_Fast_GET_SIZE(w->weights) <= MOST_OPERANDS;
    const int ran = has_columns ? run_windows(w) : 0;
    return ran ? ran > 0 : run_any(w);
}

bool ds_replay_operation(const asked *a, PyObject *ran, PyObject *weights, PyObject *edges,
                         PyObject *values)
{
    work w = {a->r, a->entry, ran, weights, .edges = edges, .values = values};
    w.n_inputs = PyTuple_GET_SIZE(part(&w, RAN_AT));
    w.n_given = PyLong_AsSsize_t(part(&w, RAN_VALUES));
    const bool right = run_work(&w);
    Py_XDECREF(w.counts);
    return right;
}
