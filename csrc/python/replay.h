/* python/replay.h: what the files of _core.Replay share (see replay.c): what it is made with, what a call asks for. */
#pragma once
#include "python/support.h"

/* What a Replay is made with: classes, and functions of torch and of the front end. */
/* clang-format off */
enum { SHELL, STREAM, EDGE, LINE, CALL, FORWARD, PLACE, ATOMS, TENSORS, BLANK, GUARD, RECORDS, SIZE, RUNNING,
       MODES, SHAPE, DTYPE, DEVICE, TAKES_SIZE, COMPUTES, LENGTH, ROWS, JOINED, SIZES, RANK, TAKES_RANK, N_GIVEN };
/* clang-format on */

/* An operator: the call's own record of it, its key in the script, where its inputs are among all edges, how many of
 * them have values, weights, what runs on frames and with what, its outputs' lines, what gives their counts where they
 * are not the inputs', the operator itself where it sees columns, and two dicts, in evaluation and for training, of what it
 * did where columns had the same key: what runs on windows, or None where it handed its input on. Where an operator has
 * neither what runs on frames nor columns, and where these don't serve, the call's `replay` runs it. */
enum { RAN, RAN_KEY, RAN_AT, RAN_VALUES, RAN_WEIGHTS, RAN_RUN, RAN_STEP, RAN_LINES, RAN_COUNTS };
enum { RAN_COLUMNS = RAN_COUNTS + 1, RAN_DONE };

/* clang-format off */
#define NAMES(X) \
    X(_inner) X(edge) X(dims) X(_names) X(value) X(dtype) X(shape) X(requires_grad) X(requires_grad_) \
    X(start) X(stop) X(step) X(_follow) X(replay) X(_step_back) X(keeps_frames) X(training) X(running) X(_rate) \
    X(__enter__) X(__exit__) X(holds) X(quiet) X(asked) X(out) \
    X(_facts) X(has_converted) X(_view) X(waits) X(device) X(key)
/* Slots of the classes that it is made with: by whose instances they are read and set where they lie. */
#define SLOTS(X) \
    X(FORWARD, entry) X(FORWARD, gradients) X(FORWARD, _parameters) X(FORWARD, drawn) \
    X(FORWARD, depth) X(FORWARD, watching) \
    X(CALL, places) X(CALL, recording) X(CALL, guard) X(CALL, n_done) X(CALL, script) X(CALL, over) X(CALL, fail_at) \
    X(CALL, keeps_tape) X(CALL, ended) X(CALL, ids) X(CALL, body) \
    X(EDGE, entry) X(EDGE, line) X(EDGE, counts) X(EDGE, handle) X(EDGE, made) X(LINE, rate) X(LINE, features) \
    X(LENGTH, edge) X(LENGTH, terms) X(LENGTH, plus) X(ROWS, edge) X(ROWS, times) X(JOINED, length) X(JOINED, times)
/* clang-format on */
#define NAME_NUMBER(name) N_##name,
#define SLOT_NUMBER(of, name) S_##of##_##name,
enum { NAMES(NAME_NUMBER) N_NAMES };
enum { SLOTS(SLOT_NUMBER) N_SLOTS };

typedef struct replay_object {
    PyObject_HEAD PyObject *given; /* owned: the tuple of what it is made with */
    PyObject *names[N_NAMES];      /* owned: interned */
    Py_ssize_t offsets[N_SLOTS];   /* of slots in instances */
} replay_object;

/* The most objects that a key may have. */
enum { MOST_OF_KEY = 256 };

/* What a call asks for, while it is read: its lists are NULL where nothing is in them, but for `streams`; `drawn` knows
 * which tensors were drawn at random. The key is a tuple of the items, once all are read. */
typedef struct asked {
    const replay_object *r;
    PyObject *entry, *known, *drawn;
    PyObject *key, *streams, *edges, *held, *made, *tokens;
    PyObject *items[MOST_OF_KEY];
    Py_ssize_t n_items;
} asked;

/* Reading: an error, something that no key can have, done. */
enum { FAILED = -1, UNKNOWN, DONE };
/* Returns what a reading comes to, unless that is DONE. */
#define READ(call)                \
    do {                          \
        const int read_ = (call); \
        if (read_ != DONE)        \
            return read_;         \
    } while (0)

/* What a forward's functions run in: its call, or, while there is one, the body of a loop over frames. New reference;
 * NULL with an exception. */
PyObject *ds_replay_entry(const replay_object *r, PyObject *forward);
/* Reads what a forward, a function, a tuple and a dict ask for. Only where it is DONE is there something to forget. */
int ds_replay_ask(const replay_object *r, PyObject *const *args, asked *a);
void ds_replay_forget(asked *a);
/* What a forward's function did at this place, done again; NULL where that isn't known, with or without an exception.
 * `instead`, where it isn't NULL, gets what else stands there, a new reference. */
PyObject *ds_replay_again(const replay_object *r, PyObject *const *args, PyObject **instead);
/* Methods of _core.Replay: see replay_mode.c. */
PyObject *ds_replay_mode(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names);
PyObject *ds_replay_function(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names);
/* Runs an operator, and appends its results and their edges to lists of all. False with an exception. */
bool ds_replay_operation(const asked *a, PyObject *ran, PyObject *weights, PyObject *edges,
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

/* Whether an object is of one of the given classes, and of none that derives from it. */
static inline bool is_of(const replay_object *r, PyObject *x, int which)
{
    return (PyObject *)Py_TYPE(x) == of(r, which);
}

/* What a slot holds (borrowed); NULL where it was never set. */
static inline PyObject *slot(const replay_object *r, PyObject *x, int which)
{
    return *(PyObject **)((char *)x + r->offsets[which]);
}

/* Takes the value, which may be NULL; false, with the exception that is set, where it is. */
static inline bool set_slot(const replay_object *r, PyObject *x, int which, PyObject *value)
{
    PyObject **place = (PyObject **)((char *)x + r->offsets[which]);
    if (value)
        Py_XSETREF(*place, value);
    return value != NULL;
}

/* A slot that is set, a new reference; NULL with an exception. */
static inline PyObject *get_slot(const replay_object *r, PyObject *x, int which)
{
    PyObject *found = slot(r, x, which);
    if (!found)
        PyErr_SetString(PyExc_AttributeError, "a slot that _core.Replay reads was never set");
    return Py_XNewRef(found);
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
