/* python/replay_ask.c: reads what a call of a function asks for, and makes its key.
 *
 * The key is equal where the same is asked for. Streams are known by their lines, dimensions and names; numbers, texts,
 * lists, slices and sizes by what they are; weights by identity, other tensors by type and shape. */
#include "python/replay.h"

/* Takes an item, which may be NULL. */
static int add_item(asked *a, PyObject *item)
{
    if (!item)
        return FAILED;
    if (a->n_items == MOST_OF_KEY) {
        Py_DECREF(item);
        return UNKNOWN;
    }
    a->items[a->n_items++] = item;
    return DONE;
}

static int add(asked *a, PyObject *x);

static int add_stream(asked *a, PyObject *inner)
{
    const replay_object *r = a->r;
    DS_OWNED PyObject *edge = own(r, inner, N_edge);
    if (!edge && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return FAILED;
    PyErr_Clear();
    /* what has no value computes it where it is used */
    if (!edge || !is_of(r, edge, EDGE) || slot(r, edge, S_EDGE_entry) != a->entry)
        return UNKNOWN;
    READ(add_item(a, get_slot(r, edge, S_EDGE_line)));
    READ(add_item(a, own(r, inner, N_dims)));
    READ(add_item(a, own(r, inner, N__names)));
    return put(a->streams, Py_NewRef(inner));
}

static int add_all(asked *a, PyObject *items)
{
    READ(add_item(a, PyLong_FromSsize_t(PySequence_Fast_GET_SIZE(items))));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++)
        READ(add(a, PySequence_Fast_GET_ITEM(items, i)));
    return DONE;
}

/* What was drawn at random is no part of a key: the forward refuses it where it meets a stream. */
static int is_none_drawn(const asked *a, PyObject *x)
{
    if (a->drawn == Py_None)
        return DONE;
    DS_OWNED PyObject *held = PyObject_CallMethodOneArg(a->drawn, a->r->names[N_holds], x);
    const int is_drawn = held ? PyObject_IsTrue(held) : FAILED;
    return is_drawn < 0 ? FAILED : is_drawn ? UNKNOWN : DONE;
}

/* An edge of this call, or a stream that has one; UNKNOWN where it is another call's. */
static int add_within(asked *a, PyObject *x)
{
    const bool is_stream = is_of(a->r, x, STREAM);
    DS_OWNED PyObject *edge = is_stream ? own(a->r, x, N_edge) : Py_NewRef(x);
    const bool is = edge && is_of(a->r, edge, EDGE) && slot(a->r, edge, S_EDGE_entry) == a->entry;
    PyErr_Clear();
    PyObject **list = is_stream ? &a->streams : &a->edges;
    return !is ? UNKNOWN : need(list) ? put(*list, Py_NewRef(x)) : FAILED;
}

/* A length, by the sum that it is: a number, and how often frames of edges, or what was made of a length. */
static int add_length(asked *a, PyObject *x)
{
    enum { TIMES, ATOM, MADE_OF = 0, BY, N_MADE = 3 };
    const replay_object *r = a->r;
    PyObject *terms = is_of(r, x, LENGTH) ? slot(r, x, S_LENGTH_terms) : NULL;
    READ(terms ? add_item(a, get_slot(r, x, S_LENGTH_plus)) : UNKNOWN);
    READ(add_item(a, PyLong_FromSsize_t(PyTuple_GET_SIZE(terms))));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(terms); i++) {
        PyObject *term = PyTuple_GET_ITEM(terms, i), *atom = PyTuple_GET_ITEM(term, ATOM);
        READ(add_item(a, Py_NewRef(PyTuple_GET_ITEM(term, TIMES))));
        if (PyTuple_Check(atom) && PyTuple_GET_SIZE(atom) == N_MADE) {
            for (Py_ssize_t k = BY; k < N_MADE; k++)
                READ(add_item(a, Py_NewRef(PyTuple_GET_ITEM(atom, k))));
            READ(add_length(a, PyTuple_GET_ITEM(atom, MADE_OF)));
        } else {
            READ(add_within(a, atom));
            READ(add_item(a, get_slot(r, atom, S_EDGE_line)));
        }
    }
    return DONE;
}

/* A number of streams, a length, or both joined. */
static int add_size(asked *a, PyObject *x)
{
    const replay_object *r = a->r;
    const bool is_rows = is_of(r, x, ROWS), is_joined = is_of(r, x, JOINED);
    READ(need(&a->tokens) ? put(a->tokens, Py_NewRef(x)) : FAILED);
    READ(add_item(a, Py_NewRef(Py_TYPE(x))));
    if (is_rows || is_joined)
        READ(add_item(a, get_slot(r, x, is_joined ? S_JOINED_times : S_ROWS_times)));
    return is_rows ? add_within(a, slot(r, x, S_ROWS_edge))
                   : add_length(a, is_joined ? slot(r, x, S_JOINED_length) : x);
}

/* What is deferred, by what is known of it (`facts_of` in dreamstream/array/facts.py): UNKNOWN where that has to be found
 * out, and where positions may have become streams, which the key then has too. */
static int add_deferred(asked *a, PyObject *x)
{
    const replay_object *r = a->r;
    DS_OWNED PyObject *known = own(r, x, N__facts), *records = NULL;
    PyObject *within = NULL;
    PyErr_Clear();
    bool right = known && PyTuple_Check(known) && PyTuple_GET_SIZE(known) == 3 &&
                 PyTuple_GET_ITEM(known, 0) != Py_None;
    if (right) {
        within = PyTuple_GET_ITEM(known, 1);
        records = PyObject_CallNoArgs(of(r, RECORDS));
        right = records == PyTuple_GET_ITEM(known, 2) && PyList_Check(within) &&
                is(r, a->entry, N_has_converted, Py_False) == 1;
    }
    READ(PyErr_Occurred() ? FAILED : right ? DONE : UNKNOWN);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(within); i++)
        READ(add_within(a, PyList_GET_ITEM(within, i)));
    READ(need(&a->tokens) ? put(a->tokens, Py_NewRef(x)) : FAILED);
    return add_item(a, PyTuple_Pack(1, PyTuple_GET_ITEM(known, 0)));
}

/* A weight, by identity, or another tensor, by type and shape; a size or what is computed of sizes. */
static int add_other(asked *a, PyObject *x)
{
    DS_OWNED PyObject *id = PyLong_FromVoidPtr(x);
    const int is_known = id ? PyDict_Contains(a->known, id) : -1;
    if (is_known == 1) {
        READ(is_none_drawn(a, x));
        READ(need(&a->held) ? put(a->held, Py_NewRef(x)) : FAILED);
        return add_item(a, ds_given_on(&id));
    }
    const int is_tensor =
        is_known < 0 ? -1 : PySet_Contains(of(a->r, TENSORS), (PyObject *)Py_TYPE(x));
    if (is_tensor == 1) {
        const int names[] = {N_dtype, N_shape, N_requires_grad};
        for (int i = 0; i < 3; i++)
            READ(add_item(a, get(a->r, x, names[i])));
        READ(is_none_drawn(a, x));
        return need(&a->made) ? put(a->made, Py_NewRef(x)) : FAILED;
    }
    const int is_atom =
        is_tensor < 0 ? -1 : PySet_Contains(of(a->r, ATOMS), (PyObject *)Py_TYPE(x));
    if (is_atom)
        return is_atom < 0 ? FAILED : add_item(a, Py_NewRef(x));
    const int done = add_deferred(a, x);
    if (done != UNKNOWN)
        return done;
    DS_OWNED PyObject *parts =
        need(&a->edges) && need(&a->tokens)
            ? PyObject_CallFunctionObjArgs(of(a->r, SIZE), x, a->entry, a->streams, a->edges,
                                           a->tokens, NULL)
            : NULL;
    return !parts ? FAILED : parts == Py_None ? UNKNOWN : add_item(a, ds_given_on(&parts));
}

static int add(asked *a, PyObject *x)
{
    PyObject *kind = (PyObject *)Py_TYPE(x);
    if (kind == of(a->r, SHELL)) {
        DS_OWNED PyObject *inner = get(a->r, x, N__inner);
        const bool is_stream = inner && (PyObject *)Py_TYPE(inner) == of(a->r, STREAM);
        const int done = is_stream ? add_stream(a, inner) : inner ? UNKNOWN : FAILED;
        /* what stands for a stream's last frames, or is none */
        return done == UNKNOWN ? add_other(a, inner) : done;
    }
    if (PyUnicode_CheckExact(x) || x == Py_None)
        return add_item(a, Py_NewRef(x));
    if (is_of(a->r, x, LENGTH) || is_of(a->r, x, ROWS) || is_of(a->r, x, JOINED))
        return add_size(a, x);
    const bool is_list = PyTuple_CheckExact(x) || PyList_CheckExact(x) || is_of(a->r, x, SIZES);
    if (PyLong_CheckExact(x) || PyBool_Check(x) || is_list || PySlice_Check(x))
        READ(add_item(a, Py_NewRef(kind)));
    if (PyLong_CheckExact(x) || PyBool_Check(x))
        return add_item(a, Py_NewRef(x));
    if (is_list)
        return add_all(a, x);
    if (PyFloat_CheckExact(x)) { /* bit by bit: -0.0 is not 0.0, and neither is 0 */
        const double number = PyFloat_AS_DOUBLE(x);
        return add_item(a, PyBytes_FromStringAndSize((const char *)&number, sizeof number));
    }
    if (!PySlice_Check(x))
        return add_other(a, x);
    const int names[] = {N_start, N_stop, N_step};
    for (int i = 0; i < 3; i++) {
        DS_OWNED PyObject *part = get(a->r, x, names[i]);
        READ(part ? add(a, part) : FAILED);
    }
    return DONE;
}

static int add_named(asked *a, PyObject *kwargs)
{
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, &value);) {
        READ(add_item(a, Py_NewRef(name)));
        READ(add(a, value));
    }
    return DONE;
}

void ds_replay_forget(asked *a)
{
    PyObject **const lists[] = {&a->known, &a->entry, &a->drawn, &a->key,   &a->streams,
                                &a->edges, &a->held,  &a->made,  &a->tokens};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        Py_CLEAR(*lists[i]);
    while (a->n_items)
        Py_DECREF(a->items[--a->n_items]);
}

/* Whether calls of this forward are repeated now: not within another recording, nor in a Function of the user. */
static int repeats(const asked *a, PyObject *forward)
{
    const replay_object *r = a->r;
    if (!PyObject_TypeCheck(a->entry, (PyTypeObject *)of(r, CALL)))
        return UNKNOWN;
    PyObject *places = slot(r, a->entry, S_CALL_places);
    if (!places || !PyDict_Check(places) || slot(r, a->entry, S_CALL_recording) != Py_None)
        return UNKNOWN;
    PyObject *gradients = slot(r, forward, S_FORWARD_gradients);
    return gradients == Py_None ? DONE : gradients ? is(r, gradients, N_running, Py_None) : UNKNOWN;
}

/* Within an if that some streams enter, which of them do: pads and crops depend on it. */
static int add_branch(asked *a)
{
    PyObject *branch = slot(a->r, a->entry, S_CALL_guard);
    if (branch == Py_None)
        return DONE;
    DS_OWNED PyObject *key =
        need(&a->edges) ? PyObject_CallMethodOneArg(branch, a->r->names[N_key], a->edges) : NULL;
    return !key ? FAILED : key == Py_None ? UNKNOWN : add_item(a, ds_given_on(&key));
}

/* The key of the items, which it takes. */
static bool make_key(asked *a)
{
    a->key = PyTuple_New(a->n_items);
    for (Py_ssize_t i = 0; a->key && i < a->n_items; i++)
        PyTuple_SET_ITEM(a->key, i, a->items[i]);
    if (a->key)
        a->n_items = 0;
    return a->key != NULL;
}

PyObject *ds_replay_entry(const replay_object *r, PyObject *forward)
{
    PyObject *entry = get_slot(r, forward, S_FORWARD_entry);
    const bool is_call = entry && PyObject_TypeCheck(entry, (PyTypeObject *)of(r, CALL));
    PyObject *body = is_call ? slot(r, entry, S_CALL_body) : NULL;
    if (body && body != Py_None)
        Py_SETREF(entry, Py_NewRef(body));
    return entry;
}

/* Fills items and lists. */
static int read_call(const replay_object *r, PyObject *const *args, asked *a)
{
    PyObject *forward = args[0];
    a->entry = ds_replay_entry(r, forward);
    READ(a->entry ? repeats(a, forward) : FAILED);
    a->known = get_slot(r, forward, S_FORWARD__parameters);
    a->drawn = get_slot(r, forward, S_FORWARD_drawn);
    READ(a->known && a->drawn && need(&a->streams) ? DONE : FAILED);
    READ(add_item(a, Py_NewRef(args[1])));
    READ(add_all(a, args[2]));
    READ(add_named(a, args[3]));
    /* what was written into runs operators when it is looked at, as has happened by now */
    READ(add_item(a, get_slot(r, a->entry, S_CALL_n_done)));
    if (!PyList_GET_SIZE(a->streams) && !(a->edges && PyList_GET_SIZE(a->edges)))
        return UNKNOWN;
    READ(add_branch(a));
    return make_key(a) ? DONE : FAILED;
}

/* Reads what is asked for. Only where it is DONE is there something to forget, and a key. */
int ds_replay_ask(const replay_object *r, PyObject *const *args, asked *a)
{
    a->r = r;
    a->entry = a->known = a->drawn = a->key = NULL;
    a->streams = a->edges = a->held = a->made = a->tokens = NULL;
    a->n_items = 0;
    const int done = read_call(r, args, a);
    if (done != DONE)
        ds_replay_forget(a);
    return done;
}
