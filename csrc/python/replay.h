/* python/replay.h: what the files of _core.Replay share (see replay.c): what it is made with, what a call asks for. */
#pragma once
#include "python/support.h"

/* What a Replay is made with: classes, and functions of torch and of the front end. */
enum { SHELL, STREAM, EDGE, PLACE, ATOMS, TENSORS, BLANK, GUARD, RECORDS, SIZE, N_GIVEN };

/* An operator: the call's own record of it, its key in the script, where its inputs are among all edges, how many of
 * them have values, weights, what runs on frames and with what, its outputs' lines, what gives their counts where they
 * are not the inputs', what gives columns, and two dicts, in evaluation and for training, of what it did where columns
 * had the same key: what runs on windows, or None where it handed its input on. Where an operator has neither what runs on frames nor columns, and
 * where these don't serve, the call's `replay` runs it. */
enum { LEG, LEG_KEY, LEG_AT, LEG_VALUES, LEG_WEIGHTS, LEG_RUN, LEG_STEP, LEG_LINES, LEG_COUNTS };
enum { LEG_COLUMNS = LEG_COUNTS + 1, LEG_DONE };

/* clang-format off */
#define NAMES(X) \
    X(_inner) X(edge) X(entry) X(line) X(dims) X(_names) X(alike) X(value) X(counts) X(dtype) X(shape) \
    X(requires_grad) X(requires_grad_) X(start) X(stop) X(step) X(n_done) X(script) X(over) X(fail_at) \
    X(_follow) X(replay) X(_step_back) X(keeps_tape) X(keeps_frames) X(training) X(courses) X(recording) X(guard) X(drawn) \
    X(gradients) X(running) X(_parameters) X(handle) X(made) X(_rate) X(rate) X(ended) \
    X(ids) X(__enter__) X(__exit__) X(holds)
/* clang-format on */
#define NAME_NUMBER(name) N_##name,
enum { NAMES(NAME_NUMBER) N_NAMES };

typedef struct replay_object {
    PyObject_HEAD PyObject *given; /* owned: the tuple of what it is made with */
    PyObject *names[N_NAMES];      /* owned: interned */
} replay_object;

/* What a call asks for, while it is read: its lists are NULL where nothing is in them, but for `key` and `streams`;
 * `drawn` knows which tensors were drawn at random. */
typedef struct asked {
    const replay_object *r;
    PyObject *entry, *known, *drawn;
    PyObject *key, *streams, *edges, *held, *made, *tokens;
} asked;

/* Reading: an error, something that no key can have, done. */
enum { FAILED = -1, UNKNOWN, DONE };

/* Reads what a forward, a function, a tuple and a dict ask for. Only where it is DONE is there something to forget. */
int ds_replay_ask(const replay_object *r, PyObject *const *args, asked *a);
void ds_replay_forget(asked *a);
/* Runs an operator, and appends its results and their edges to lists of all. False with an exception. */
bool ds_replay_leg(const asked *a, PyObject *leg, PyObject *weights, PyObject *edges,
                   PyObject *values);

static inline PyObject *of(const replay_object *r, int which)
{
    return PyTuple_GET_ITEM(r->given, which);
}

static inline PyObject *get(const replay_object *r, PyObject *x, int name)
{
    return PyObject_GetAttr(x, r->names[name]);
}

/* The same of a native tensor, without asking its `__getattr__`, which would compute what a view has not. */
static inline PyObject *own(const replay_object *r, PyObject *x, int name)
{
    return PyObject_GenericGetAttr(x, r->names[name]);
}

static inline bool set(const replay_object *r, PyObject *x, int name, PyObject *value)
{
    return PyObject_SetAttr(x, r->names[name], value) == 0;
}

/* Whether an attribute is this very object; -1 with an exception. */
static inline int is(const replay_object *r, PyObject *x, int name, const PyObject *other)
{
    PyObject *found = get(r, x, name);
    Py_XDECREF(found);
    return found ? found == other : -1;
}

/* Appends a new reference, which may be NULL. */
static inline int put(PyObject *list, PyObject *item)
{
    const int failed = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return failed < 0 ? FAILED : DONE;
}

/* Sees to it that there is a list. */
static inline bool need(PyObject **list)
{
    return *list || (*list = PyList_New(0));
}
