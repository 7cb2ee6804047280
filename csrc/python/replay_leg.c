/* python/replay_leg.c: runs an operator of a place again.
 *
 * One that sees single frames runs here where its inputs have equal counts; one that sees windows of one input does
 * again what it did in a call in which these stood alike. All others are run by the call itself. */
#include "python/replay.h"

/* Inputs and weights of an operator that runs here; what has more runs by the call itself. */
enum { MOST_OPERANDS = 32 };
/* Whether arrays of counts hold the same; says how many frames there are. */
static bool same_counts(PyObject *counts, int64_t *n_frames)
{
    const Py_ssize_t n = PyList_GET_SIZE(counts);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArray_Check(PyList_GET_ITEM(counts, i)))
            return false;
    PyArrayObject *first = (PyArrayObject *)PyList_GET_ITEM(counts, 0);
    const size_t n_bytes = (size_t)PyArray_NBYTES(first);
    const int64_t *data = PyArray_DATA(first);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyArrayObject *other = (PyArrayObject *)PyList_GET_ITEM(counts, i);
        if (!PyArray_IS_C_CONTIGUOUS(other) || (size_t)PyArray_NBYTES(other) != n_bytes ||
            memcmp(PyArray_DATA(other), data, n_bytes) != 0)
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
    if (edge && !(set(r, edge, N_entry, entry) && set(r, edge, N_line, line) &&
                  set(r, edge, N_counts, counts) && set(r, edge, N_handle, Py_None) &&
                  set(r, edge, N_made, Py_None)))
        Py_CLEAR(edge);
    return edge;
}

/* What an operator works on: of the first n of its inputs; new references in a list. */
static PyObject *picked(PyObject *all, PyObject *at, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        const Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(at, i));
        PyList_SET_ITEM(list, i, Py_NewRef(PyList_GET_ITEM(all, place)));
    }
    return list;
}

/* Goes one step along the call's script. */
static bool follow(const replay_object *r, PyObject *entry, PyObject *key)
{
    PyObject *done = get(r, entry, N_n_done), *script = get(r, entry, N_script);
    const Py_ssize_t n = done ? PyLong_AsSsize_t(done) : -1;
    bool plain = n >= 0 && script && PyList_Check(script) && n < PyList_GET_SIZE(script) &&
                 PyList_GET_ITEM(script, n) == key && is(r, entry, N_over, Py_False) == 1 &&
                 is(r, entry, N_fail_at, Py_None) == 1;
    Py_XDECREF(done);
    Py_XDECREF(script);
    if (PyErr_Occurred())
        return false;
    PyObject *next = plain ? PyLong_FromSsize_t(n + 1)
                           : PyObject_CallMethodOneArg(entry, r->names[N__follow], key);
    const bool followed = next && (!plain || set(r, entry, N_n_done, next));
    Py_XDECREF(next);
    return followed;
}

/* The exception that is under way outlives another function of the call's. */
static void step_back(const replay_object *r, PyObject *entry)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (PyErr_GivenExceptionMatches(type, PyExc_Exception)) {
        Py_XDECREF(PyObject_CallMethodNoArgs(entry, r->names[N__step_back]));
        PyErr_Clear();
    }
    PyErr_Restore(type, error, traceback);
}

/* What an operator works on, and where its results go. */
typedef struct work {
    const replay_object *r;
    PyObject *entry, *leg, *weights;
    PyObject *own, *given,
        *counts;              /* lists: its edges, values of the first of them, and their counts */
    PyObject *edges, *values; /* lists of all */
} work;

static PyObject *part(const work *w, int which)
{
    return PyTuple_GET_ITEM(w->leg, which);
}

/* Appends a result. */
static bool append(const work *w, Py_ssize_t o, PyObject *value, PyObject *counts)
{
    PyObject *line = PyList_GET_ITEM(part(w, LEG_LINES), o);
    return put(w->edges, new_edge(w->r, w->entry, line, counts)) == DONE &&
           put(w->values, Py_NewRef(value)) == DONE;
}

/* The counts of the outputs, a list; new reference. */
static PyObject *counts_after(const work *w)
{
    PyObject *ended = get(w->r, w->entry, N_ended), *ids = get(w->r, w->entry, N_ids);
    PyObject *out = ended && ids ? PyObject_CallFunctionObjArgs(part(w, LEG_COUNTS), w->counts,
                                                                ended, ids, NULL)
                                 : NULL;
    Py_XDECREF(ended);
    Py_XDECREF(ids);
    return out;
}

/* Runs an operator of single frames, after its step along the script. */
static bool run_frames(const work *w)
{
    const replay_object *r = w->r;
    PyObject *step = part(w, LEG_STEP), *lines = part(w, LEG_LINES);
    PyObject *after = part(w, LEG_COUNTS) == Py_None ? NULL : counts_after(w);
    PyObject *tape = get(r, w->entry, N_keeps_tape), *out = NULL;
    PyObject *operands[1 + MOST_OPERANDS] = {step};
    const Py_ssize_t n = PyList_GET_SIZE(w->given),
                     n_weights = PySequence_Fast_GET_SIZE(w->weights);
    for (Py_ssize_t i = 0; i < n; i++)
        operands[1 + i] = PyList_GET_ITEM(w->given, i);
    for (Py_ssize_t i = 0; i < n_weights; i++)
        operands[1 + n + i] = PySequence_Fast_GET_ITEM(w->weights, i);
    if (!PyErr_Occurred() && tape && set(r, step, N_training, tape))
        out = PyObject_Vectorcall(part(w, LEG_RUN), operands, (size_t)(1 + n + n_weights), NULL);
    bool right = out != NULL;
    const bool several = right && (PyTuple_Check(out) || PyList_Check(out));
    if (right && (several ? PySequence_Fast_GET_SIZE(out) : 1) < PyList_GET_SIZE(lines)) {
        PyErr_SetString(PyExc_TypeError, "a kernel has given fewer values than it has outputs");
        right = false;
    }
    for (Py_ssize_t o = 0; right && o < PyList_GET_SIZE(lines); o++) {
        PyObject *counts = after ? PyList_GET_ITEM(after, o) : PyList_GET_ITEM(w->counts, 0);
        right = append(w, o, several ? PySequence_Fast_GET_ITEM(out, o) : out, counts);
    }
    Py_XDECREF(after);
    Py_XDECREF(tape);
    Py_XDECREF(out);
    return right;
}

/* What an operator did where the columns were the same (borrowed), or NULL, with or without an exception; `after` are
 * its outputs' counts, `taped` says whether for training. */
static PyObject *done_before(const work *w, PyObject *after, int taped)
{
    enum { KEY = 3 };
    PyObject *ended = get(w->r, w->entry, N_ended);
    PyObject *columns =
        ended ? PyObject_CallFunctionObjArgs(part(w, LEG_COLUMNS), w->counts, after, ended, NULL)
              : NULL;
    PyObject *done = PyTuple_GET_ITEM(part(w, LEG_DONE), taped);
    PyObject *found =
        columns ? PyDict_GetItemWithError(done, PyTuple_GET_ITEM(columns, KEY)) : NULL;
    Py_XDECREF(columns);
    Py_XDECREF(ended);
    return found;
}

/* Runs on windows what ran on such before. NULL with an exception. */
static PyObject *run_again(const work *w, PyObject *run)
{
    PyObject *operands[2 + MOST_OPERANDS] = {w->entry, PyList_GET_ITEM(w->given, 0)};
    const Py_ssize_t n_weights = PySequence_Fast_GET_SIZE(w->weights);
    for (Py_ssize_t i = 0; i < n_weights; i++)
        operands[2 + i] = PySequence_Fast_GET_ITEM(w->weights, i);
    return PyObject_Vectorcall(run, operands, (size_t)(2 + n_weights), NULL);
}

/* Whether an operator of one input did the same before, or handed its input on, and does so again after its step along
 * the script; its result is appended. -1 with an exception. */
static int run_windows(const work *w)
{
    const replay_object *r = w->r;
    const int taped = is(r, w->entry, N_keeps_tape, Py_True);
    PyObject *after = taped < 0 ? NULL : counts_after(w);
    PyObject *run = after ? done_before(w, after, taped) : NULL;
    Py_XINCREF(run);
    int runs = PyErr_Occurred() ? -1 : run != NULL;
    if (runs == 1 && run != Py_None)
        runs = is(r, w->entry, N_keeps_frames, Py_True);
    if (runs == 1 && !follow(r, w->entry, part(w, LEG_KEY)))
        runs = -1;
    else if (runs == 1) {
        PyObject *value =
            run == Py_None ? Py_NewRef(PyList_GET_ITEM(w->given, 0)) : run_again(w, run);
        if (!value || !append(w, 0, value, PyList_GET_ITEM(after, 0)))
            runs = -1;
        if (runs < 0)
            step_back(r, w->entry);
        Py_XDECREF(value);
    }
    Py_XDECREF(run);
    Py_XDECREF(after);
    return runs;
}

/* Runs any operator by the call itself. */
static bool run_any(const work *w)
{
    PyObject *results = PyObject_CallMethodObjArgs(w->entry, w->r->names[N_replay], part(w, LEG),
                                                   w->own, w->given, w->weights, NULL);
    bool right = results && PyList_Check(results);
    for (Py_ssize_t o = 0; right && o < PyList_GET_SIZE(results); o++) {
        PyObject *pair = PyList_GET_ITEM(results, o);
        right = put(w->values, Py_NewRef(PyTuple_GET_ITEM(pair, 0))) == DONE &&
                put(w->edges, Py_NewRef(PyTuple_GET_ITEM(pair, 1))) == DONE;
    }
    Py_XDECREF(results);
    return right;
}

static bool run_work(const work *w)
{
    if (part(w, LEG_RUN) != Py_None &&
        PyList_GET_SIZE(w->own) + PySequence_Fast_GET_SIZE(w->weights) <= MOST_OPERANDS) {
        int64_t n_frames = 0;
        if (!same_counts(w->counts, &n_frames) || n_frames == 0)
            return run_any(w);
        if (!follow(w->r, w->entry, part(w, LEG_KEY)))
            return false;
        const bool right = run_frames(w);
        if (!right)
            step_back(w->r, w->entry);
        return right;
    }
    const bool has_columns =
        part(w, LEG_COLUMNS) != Py_None && PySequence_Fast_GET_SIZE(w->weights) <= MOST_OPERANDS;
    const int ran = has_columns ? run_windows(w) : 0;
    return ran ? ran > 0 : run_any(w);
}

bool ds_replay_leg(const asked *a, PyObject *leg, PyObject *weights, PyObject *edges,
                   PyObject *values)
{
    PyObject *at = PyTuple_GET_ITEM(leg, LEG_AT);
    const Py_ssize_t n = PyTuple_GET_SIZE(at);
    work w = {a->r, a->entry, leg, weights, .edges = edges, .values = values};
    w.own = picked(edges, at, n);
    w.given = picked(values, at, PyLong_AsSsize_t(PyTuple_GET_ITEM(leg, LEG_VALUES)));
    w.counts = PyList_New(n);
    bool right = w.own && w.given && w.counts;
    for (Py_ssize_t i = 0; right && i < n; i++) {
        PyObject *counts = get(a->r, PyList_GET_ITEM(w.own, i), N_counts);
        right = counts != NULL;
        PyList_SET_ITEM(w.counts, i, counts);
    }
    right = right && run_work(&w);
    Py_XDECREF(w.own);
    Py_XDECREF(w.given);
    Py_XDECREF(w.counts);
    return right;
}
