/* _core.Replay: repeats what a function of torch did in the call before, at the same place of a forward.
 *
 * What is asked for is a key: the function, the lines and dimensions of streams, numbers, sizes, lists, weights by
 * identity, other tensors by type and shape. Under it the call's courses hold a place, a tuple (see PLACE_*): the
 * operators that ran, each a tuple (see LEG_*), and how the result is seen. An operator of single frames whose inputs
 * have equal counts runs here, all others by the call's own `again`. `dreamstream.torch.forward.places` makes places.
 *
 * Invariants: attributes are read and set as Python would, nothing of a call is kept from one to the next, and where
 * an operator fails the call has stepped back behind it. */
#include "python/support.h"

/* What a Replay is made with: classes, and functions of torch and of the front end. */
enum { SHELL, STREAM, EDGE, PLACE, ATOMS, TENSORS, BLANK, GUARD, RECORDS, SIZE, N_GIVEN };

/* A place: operators; what makes weights of given tensors, or None; the result; the tensors of its key, which stay
 * alive. A result is a tuple (SEEN_*) for a stream, a list for a tuple of results, else a function of all edges, their
 * values, the streams and the sizes that were asked about. */
enum { PLACE_LEGS, PLACE_WEIGHTS, PLACE_RESULT };

/* A stream: which edge it is, its dimensions, their names, and what notes that it shares memory, or None. */
enum { SEEN_AT, SEEN_DIMS, SEEN_NAMES, SEEN_SHARE, N_SEEN };

/* An operator: the call's own record of it, its key in the script, where its inputs are among all edges, how many of
 * them have values, weights, what runs on frames and with what, its outputs' lines, what gives their counts where they
 * are not the inputs', what gives columns, and by how many frames its output lies behind the input that it is. Where
 * an operator has neither what runs on frames nor columns, and where these don't serve, the call's `again` runs it. */
enum {
    LEG,
    LEG_KEY,
    LEG_AT,
    LEG_VALUES,
    LEG_WEIGHTS,
    LEG_RUN,
    LEG_STEP,
    LEG_LINES,
    LEG_COUNTS,
    LEG_COLUMNS,
    LEG_SHIFT
};

#define NAMES(X)                                                                                \
    X(_inner)                                                                                   \
    X(edge)                                                                                     \
    X(entry)                                                                                    \
    X(line)                                                                                     \
    X(dims) X(_names) X(alike) X(value) X(counts) X(dtype) X(shape) X(requires_grad)            \
        X(requires_grad_) X(start) X(stop) X(step) X(n_done) X(script) X(over) X(fail_at)       \
            X(_follow) X(again) X(_step_back) X(keeps_tape) X(training) X(courses) X(recording) \
                X(guard) X(drawn) X(gradients) X(running) X(_parameters) X(handle) X(made)      \
                    X(_meta) X(_starts) X(_rate) X(rate) X(ended) X(ids) X(__enter__) X(__exit__)
#define NAME_NUMBER(name) N_##name,
enum { NAMES(NAME_NUMBER) N_NAMES };

typedef struct replay_object {
    PyObject_HEAD PyObject *given; /* owned: the tuple of what it is made with */
    PyObject *names[N_NAMES];      /* owned: interned */
} replay_object;

/* What a call asks for, while it is read; all but the first three are new lists. */
typedef struct asked {
    const replay_object *r;
    PyObject *entry, *known;
    PyObject *key, *streams, *edges, *held, *made, *tokens;
} asked;

/* Reading: an error, something that no key can have, done. */
enum { FAILED = -1, UNKNOWN, DONE };

/* Inputs and weights of an operator that runs here; what has more runs by the call itself. */
enum { MOST_OPERANDS = 32 };

static PyObject *of(const replay_object *r, int which)
{
    return PyTuple_GET_ITEM(r->given, which);
}

static PyObject *get(const replay_object *r, PyObject *x, int name)
{
    return PyObject_GetAttr(x, r->names[name]);
}

static bool set(const replay_object *r, PyObject *x, int name, PyObject *value)
{
    return PyObject_SetAttr(x, r->names[name], value) == 0;
}

/* Whether an attribute is this very object; -1 with an exception. */
static int is(const replay_object *r, PyObject *x, int name, const PyObject *other)
{
    PyObject *found = get(r, x, name);
    Py_XDECREF(found);
    return found ? found == other : -1;
}

/* Appends a new reference, which may be NULL. */
static int put(PyObject *list, PyObject *item)
{
    const int failed = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return failed < 0 ? FAILED : DONE;
}

static int put_attribute(const asked *a, PyObject *x, int name)
{
    return put(a->key, get(a->r, x, name));
}

static int add(const asked *a, PyObject *x);

static int add_stream(const asked *a, PyObject *inner)
{
    const replay_object *r = a->r;
    PyObject *edge = get(r, inner, N_edge);
    if (!edge || edge == Py_None) {
        Py_XDECREF(edge);
        return edge ? UNKNOWN : FAILED;
    }
    int done = is(r, edge, N_entry, a->entry);
    PyObject *alike = done == 1 ? get(r, inner, N_alike) : NULL;
    if (done == 1)
        done = !alike ? FAILED : PyTuple_Check(alike) && PyTuple_GET_ITEM(alike, 0) == Py_None;
    if (done == 1)
        done = put_attribute(a, edge, N_line);
    if (done == 1)
        done = put_attribute(a, inner, N_dims);
    if (done == 1)
        done = put_attribute(a, inner, N__names);
    if (done == 1)
        done = put(a->streams, Py_NewRef(inner));
    Py_XDECREF(alike);
    Py_DECREF(edge);
    return done;
}

static int add_all(const asked *a, PyObject *items)
{
    int done = put(a->key, PyLong_FromSsize_t(PySequence_Fast_GET_SIZE(items)));
    for (Py_ssize_t i = 0; done == DONE && i < PySequence_Fast_GET_SIZE(items); i++)
        done = add(a, PySequence_Fast_GET_ITEM(items, i));
    return done;
}

/* A weight, by identity, or another tensor, by type and shape; a size or what is computed of sizes. */
static int add_other(const asked *a, PyObject *x)
{
    PyObject *id = PyLong_FromVoidPtr(x);
    const int is_known = id ? PyDict_Contains(a->known, id) : -1;
    int done = is_known;
    if (is_known == 1)
        done = put(a->key, Py_NewRef(id)) == DONE ? put(a->held, Py_NewRef(x)) : FAILED;
    Py_XDECREF(id);
    if (is_known)
        return done;
    const int is_tensor = PySet_Contains(of(a->r, TENSORS), (PyObject *)Py_TYPE(x));
    if (is_tensor == 1) {
        const int names[] = {N_dtype, N_shape, N_requires_grad};
        for (int i = 0; i < 3; i++)
            if (put_attribute(a, x, names[i]) != DONE)
                return FAILED;
        return put(a->made, Py_NewRef(x));
    }
    const int is_atom =
        is_tensor < 0 ? -1 : PySet_Contains(of(a->r, ATOMS), (PyObject *)Py_TYPE(x));
    if (is_atom)
        return is_atom < 0 ? FAILED : put(a->key, Py_NewRef(x));
    PyObject *parts =
        PyObject_CallFunctionObjArgs(of(a->r, SIZE), x, a->entry, a->edges, a->tokens, NULL);
    done = !parts ? FAILED : parts == Py_None ? UNKNOWN : put(a->key, Py_NewRef(parts));
    Py_XDECREF(parts);
    return done;
}

static int add(const asked *a, PyObject *x)
{
    PyObject *kind = (PyObject *)Py_TYPE(x);
    if (kind == of(a->r, SHELL)) {
        PyObject *inner = get(a->r, x, N__inner);
        const bool is_stream = inner && (PyObject *)Py_TYPE(inner) == of(a->r, STREAM);
        const int done = is_stream ? add_stream(a, inner) : inner ? add_other(a, inner) : FAILED;
        Py_XDECREF(inner);
        return done;
    }
    if (PyUnicode_CheckExact(x) || x == Py_None)
        return put(a->key, Py_NewRef(x));
    const bool is_list = PyTuple_CheckExact(x) || PyList_CheckExact(x);
    if (PyLong_CheckExact(x) || PyBool_Check(x) || is_list || PySlice_Check(x))
        if (put(a->key, Py_NewRef(kind)) != DONE)
            return FAILED;
    if (PyLong_CheckExact(x) || PyBool_Check(x))
        return put(a->key, Py_NewRef(x));
    if (is_list)
        return add_all(a, x);
    if (PyFloat_CheckExact(x)) { /* bit by bit: -0.0 is not 0.0, and neither is 0 */
        const double number = PyFloat_AS_DOUBLE(x);
        return put(a->key, PyBytes_FromStringAndSize((const char *)&number, sizeof number));
    }
    if (!PySlice_Check(x))
        return add_other(a, x);
    const int names[] = {N_start, N_stop, N_step};
    int done = DONE;
    for (int i = 0; done == DONE && i < 3; i++) {
        PyObject *part = get(a->r, x, names[i]);
        done = part ? add(a, part) : FAILED;
        Py_XDECREF(part);
    }
    return done;
}

static int add_named(const asked *a, PyObject *kwargs)
{
    PyObject *name, *value;
    int done = DONE;
    for (Py_ssize_t at = 0; done == DONE && PyDict_Next(kwargs, &at, &name, &value);)
        done = put(a->key, Py_NewRef(name)) == DONE ? add(a, value) : FAILED;
    return done;
}

static void forget(asked *a)
{
    PyObject **const lists[] = {&a->known, &a->entry, &a->key,  &a->streams,
                                &a->edges, &a->held,  &a->made, &a->tokens};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        Py_CLEAR(*lists[i]);
}

/* Whether calls of this forward are repeated now: not within another recording, nor in a Function of the user. */
static int repeats(const asked *a, PyObject *forward)
{
    const int names[] = {N_recording, N_guard};
    int done = is(a->r, a->entry, N_courses, Py_None);
    done = done < 0 ? done : !done;
    for (int i = 0; done == DONE && i < 2; i++)
        done = is(a->r, a->entry, names[i], Py_None);
    if (done == DONE)
        done = is(a->r, forward, N_drawn, Py_None);
    PyObject *gradients = done == DONE ? get(a->r, forward, N_gradients) : NULL;
    if (done == DONE)
        done = !gradients             ? FAILED
               : gradients == Py_None ? DONE
                                      : is(a->r, gradients, N_running, Py_None);
    Py_XDECREF(gradients);
    return done;
}

/* Reads what is asked for. Only where it is DONE is there something to forget, and the key a tuple. */
static int ask(const replay_object *r, PyObject *const *args, asked *a)
{
    PyObject *forward = args[0];
    *a = (asked){.r = r, .entry = get(r, forward, N_entry)};
    int done = a->entry ? repeats(a, forward) : FAILED;
    if (done == DONE) {
        a->known = get(r, forward, N__parameters);
        PyObject **const lists[] = {&a->key,  &a->streams, &a->edges,
                                    &a->held, &a->made,    &a->tokens};
        for (size_t i = 0; done == DONE && i < sizeof lists / sizeof *lists; i++)
            done = (*lists[i] = PyList_New(0)) && a->known ? DONE : FAILED;
    }
    if (done == DONE)
        done = put(a->key, Py_NewRef(args[1]));
    if (done == DONE)
        done = add_all(a, args[2]);
    if (done == DONE)
        done = add_named(a, args[3]);
    if (done ==
        DONE) /* what was written into runs operators when it is looked at, as has happened by now */
        done = put_attribute(a, a->entry, N_n_done);
    if (done == DONE && !PyList_GET_SIZE(a->streams))
        done = UNKNOWN;
    if (done == DONE) {
        Py_SETREF(a->key, PyList_AsTuple(a->key));
        done = a->key ? DONE : FAILED;
    }
    if (done != DONE)
        forget(a);
    return done;
}

/* ---------------------------------------------------------------- running */
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
    for (Py_ssize_t o = 0; right && o < PyList_GET_SIZE(lines); o++) {
        PyObject *counts = after ? PyList_GET_ITEM(after, o) : PyList_GET_ITEM(w->counts, 0);
        right = append(w, o, several ? PySequence_Fast_GET_ITEM(out, o) : out, counts);
    }
    Py_XDECREF(after);
    Py_XDECREF(tape);
    Py_XDECREF(out);
    return right;
}

/* One of the integers that `Op.columns` gives of input or output 0. */
static PyObject *column(PyObject *columns, int of_outputs, int which)
{
    return PyTuple_GET_ITEM(PyList_GET_ITEM(PyTuple_GET_ITEM(columns, of_outputs), 0), which);
}

/* Whether an operator that only moves frames hands its input on: all has come, and nothing is kept. If so, its result
 * is appended, after its step along the script. -1 with an exception. */
static int run_move(const work *w)
{
    enum { TAIL = 2, BEHIND = 2 };
    const replay_object *r = w->r;
    PyObject *after = counts_after(w), *ended = get(r, w->entry, N_ended);
    PyObject *columns = after && ended ? PyObject_CallFunctionObjArgs(part(w, LEG_COLUMNS),
                                                                      w->counts, after, ended, NULL)
                                       : NULL;
    int moves = columns ? 0 : -1;
    if (columns && PyLong_AsLongLong(column(columns, 0, TAIL)) == 0)
        moves = PyObject_RichCompareBool(part(w, LEG_SHIFT), column(columns, 1, BEHIND), Py_EQ);
    if (moves == 1 && !(follow(r, w->entry, part(w, LEG_KEY)) &&
                        append(w, 0, PyList_GET_ITEM(w->given, 0), PyList_GET_ITEM(after, 0))))
        moves = -1;
    Py_XDECREF(columns);
    Py_XDECREF(ended);
    Py_XDECREF(after);
    return moves;
}

/* Runs any operator by the call itself. */
static bool run_any(const work *w)
{
    PyObject *results = PyObject_CallMethodObjArgs(w->entry, w->r->names[N_again], part(w, LEG),
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
    const int moved = part(w, LEG_COLUMNS) == Py_None ? 0 : run_move(w);
    return moved ? moved > 0 : run_any(w);
}

static bool run_leg(const asked *a, PyObject *leg, PyObject *weights, PyObject *edges,
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

/* ---------------------------------------------------------------- results */
static PyObject *shell_around(const replay_object *r, PyObject *inner)
{
    PyObject *out = PyObject_CallOneArg(of(r, BLANK), of(r, SHELL));
    PyObject *records = out ? PyObject_CallNoArgs(of(r, RECORDS)) : NULL;
    if (records == Py_True) /* so that torch records Functions of the user */
        Py_XSETREF(records, PyObject_CallMethodNoArgs(out, r->names[N_requires_grad_]));
    if (!records || !set(r, out, N__inner, inner))
        Py_CLEAR(out);
    Py_XDECREF(records);
    return out;
}

/* A native tensor of a running forward. */
static PyObject *stream_of(const replay_object *r, PyObject *value, PyObject *edge, PyObject *dims,
                           PyObject *names)
{
    PyObject *line = get(r, edge, N_line), *rate = line ? get(r, line, N_rate) : NULL;
    PyObject *none = rate ? PyTuple_New(0) : NULL;
    PyObject *out =
        none ? PyBaseObject_Type.tp_new((PyTypeObject *)of(r, STREAM), none, NULL) : NULL;
    if (out && !(set(r, out, N_value, value) && set(r, out, N_dims, dims) &&
                 set(r, out, N__names, names) && set(r, out, N__meta, Py_None) &&
                 set(r, out, N__starts, Py_None) && set(r, out, N__rate, rate) &&
                 set(r, out, N_edge, edge)))
        Py_CLEAR(out);
    Py_XDECREF(line);
    Py_XDECREF(rate);
    Py_XDECREF(none);
    return out;
}

static PyObject *seen_result(const asked *a, PyObject *seen, PyObject *edges, PyObject *values)
{
    const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(seen, SEEN_AT));
    PyObject *share = PyTuple_GET_ITEM(seen, SEEN_SHARE), *out = NULL;
    PyObject *inner =
        stream_of(a->r, PyList_GET_ITEM(values, at), PyList_GET_ITEM(edges, at),
                  PyTuple_GET_ITEM(seen, SEEN_DIMS), PyTuple_GET_ITEM(seen, SEEN_NAMES));
    PyObject *shared = !inner             ? NULL
                       : share == Py_None ? Py_NewRef(Py_None)
                                          : PyObject_CallFunctionObjArgs(share, inner, a->streams,
                                                                         a->tokens, NULL);
    if (shared)
        out = shell_around(a->r, inner);
    Py_XDECREF(shared);
    Py_XDECREF(inner);
    return out;
}

static PyObject *result_of(const asked *a, PyObject *form, PyObject *edges, PyObject *values)
{
    if (PyTuple_CheckExact(form) && PyTuple_GET_SIZE(form) == N_SEEN)
        return seen_result(a, form, edges, values);
    if (!PyList_CheckExact(form))
        return PyObject_CallFunctionObjArgs(form, edges, values, a->streams, a->tokens, NULL);
    PyObject *out = PyTuple_New(PyList_GET_SIZE(form));
    for (Py_ssize_t i = 0; out && i < PyList_GET_SIZE(form); i++) {
        PyObject *part = result_of(a, PyList_GET_ITEM(form, i), edges, values);
        if (part)
            PyTuple_SET_ITEM(out, i, part);
        else
            Py_CLEAR(out);
    }
    return out;
}

/* Runs a place's operators, and returns what its function did. */
static PyObject *replayed(const asked *a, PyObject *place)
{
    PyObject *legs = PyTuple_GET_ITEM(place, PLACE_LEGS), *edges = PyList_New(0),
             *values = PyList_New(0);
    PyObject *making = PyTuple_GET_ITEM(place, PLACE_WEIGHTS), *made = NULL, *out = NULL;
    bool right = edges && values;
    for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(a->streams); i++) {
        PyObject *x = PyList_GET_ITEM(a->streams, i);
        right =
            put(edges, get(a->r, x, N_edge)) == DONE && put(values, get(a->r, x, N_value)) == DONE;
    }
    for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(a->edges); i++)
        right = put(edges, Py_NewRef(PyList_GET_ITEM(a->edges, i))) == DONE &&
                put(values, Py_NewRef(Py_None)) == DONE;
    if (right && making != Py_None)
        right = (made = PyObject_CallOneArg(making, a->made)) && PyList_Check(made);
    for (Py_ssize_t i = 0; right && i < PyTuple_GET_SIZE(legs); i++) {
        PyObject *leg = PyTuple_GET_ITEM(legs, i);
        PyObject *weights = made ? PyList_GET_ITEM(made, i) : PyTuple_GET_ITEM(leg, LEG_WEIGHTS);
        right = run_leg(a, leg, weights, edges, values);
    }
    if (right)
        out = result_of(a, PyTuple_GET_ITEM(place, PLACE_RESULT), edges, values);
    Py_XDECREF(edges);
    Py_XDECREF(values);
    Py_XDECREF(made);
    return out;
}

/* The same while torch asks no subclass and no mode: kernels see plain tensors only. */
static PyObject *replayed_within(const asked *a, PyObject *place)
{
    PyObject *guard = PyObject_CallNoArgs(of(a->r, GUARD)), *type, *error, *traceback;
    PyObject *entered = guard ? PyObject_CallMethodNoArgs(guard, a->r->names[N___enter__]) : NULL;
    PyObject *out = entered ? replayed(a, place) : NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *left = !entered ? NULL
                              : PyObject_CallMethodObjArgs(guard, a->r->names[N___exit__], Py_None,
                                                           Py_None, Py_None, NULL);
    if (type)
        PyErr_Restore(type, error, traceback);
    else if (!left)
        Py_CLEAR(out);
    Py_XDECREF(left);
    Py_XDECREF(entered);
    Py_XDECREF(guard);
    return out;
}

/* ---------------------------------------------------------------- the object */
static bool check_arguments(PyObject *const *args, Py_ssize_t n)
{
    const bool right = n == 4 && PyTuple_Check(args[2]) && PyDict_Check(args[3]);
    if (!right)
        PyErr_SetString(PyExc_TypeError, "expected a forward, a function, a tuple and a dict");
    return right;
}

static PyObject *replay_call(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    const replay_object *r = (replay_object *)self;
    asked a;
    if (!check_arguments(args, n_args))
        return NULL;
    const int done = ask(r, args, &a);
    if (done != DONE)
        return done == FAILED ? NULL : Py_NewRef(Py_NotImplemented);
    PyObject *courses = get(r, a.entry, N_courses), *out = NULL;
    PyObject *place =
        courses && PyDict_Check(courses) ? PyDict_GetItemWithError(courses, a.key) : NULL;
    Py_XINCREF(place);
    if (place && (PyObject *)Py_TYPE(place) == of(r, PLACE))
        out = replayed_within(&a, place);
    else if (courses && !PyErr_Occurred())
        out = Py_NewRef(Py_NotImplemented);
    Py_XDECREF(place);
    Py_XDECREF(courses);
    forget(&a);
    return out;
}

static PyObject *replay_ask(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    asked a;
    if (!check_arguments(args, n_args))
        return NULL;
    const int done = ask((replay_object *)self, args, &a);
    if (done != DONE)
        return done == FAILED ? NULL : Py_NewRef(Py_None);
    PyObject *out = PyTuple_Pack(6, a.key, a.streams, a.edges, a.held, a.made, a.tokens);
    forget(&a);
    return out;
}

static PyObject *replay_result(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 5 || !PyList_Check(args[1]) || !PyList_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected a result and four lists");
    const asked a = {.r = (replay_object *)self, .streams = args[3], .tokens = args[4]};
    return result_of(&a, args[0], args[1], args[2]);
}

static int replay_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((replay_object *)self)->given);
    return 0;
}

static void replay_dealloc(PyObject *self)
{
    replay_object *r = (replay_object *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(r->given);
    for (int i = 0; i < N_NAMES; i++)
        Py_XDECREF(r->names[i]);
    ds_free_object(self);
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
#define NAME_TEXT(name) #name,
    static const char *const texts[] = {NAMES(NAME_TEXT)};
    if (PyTuple_GET_SIZE(args) != N_GIVEN || (kwargs && PyDict_GET_SIZE(kwargs)) ||
        !PyType_Check(PyTuple_GET_ITEM(args, SHELL)) ||
        !PyType_Check(PyTuple_GET_ITEM(args, STREAM)) ||
        !PyType_Check(PyTuple_GET_ITEM(args, EDGE)) ||
        !PyAnySet_Check(PyTuple_GET_ITEM(args, ATOMS)) ||
        !PyAnySet_Check(PyTuple_GET_ITEM(args, TENSORS)))
        return PyErr_Format(PyExc_TypeError, "Replay takes %d classes and functions", N_GIVEN);
    replay_object *self = (replay_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->given = Py_NewRef(args);
    for (int i = 0; i < N_NAMES; i++)
        if (!(self->names[i] = PyUnicode_InternFromString(texts[i]))) {
            Py_DECREF(self);
            return NULL;
        }
    return (PyObject *)self;
}

static PyMethodDef replay_methods[] = {
    {"call", (PyCFunction)(void (*)(void))replay_call, METH_FASTCALL,
     "call(forward, function, args, kwargs) -> what it did before, done again, or NotImplemented"},
    {"ask", (PyCFunction)(void (*)(void))replay_ask, METH_FASTCALL,
     "ask(forward, function, args, kwargs) -> (key, streams, edges, held, made, tokens), or None"},
    {"result", (PyCFunction)(void (*)(void))replay_result, METH_FASTCALL,
     "result(form, edges, values, streams, tokens) -> the result of a place, or a part of it"},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(replay, "Replay", replay_object, Py_TPFLAGS_HAVE_GC,
        "Replay(shell, stream, edge, place, atoms, tensors, blank, guard, records, size)",
        {Py_tp_new, replay_new}, {Py_tp_dealloc, replay_dealloc}, {Py_tp_traverse, replay_traverse},
        {Py_tp_methods, replay_methods});
