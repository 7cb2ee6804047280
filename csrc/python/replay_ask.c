/* python/replay_ask.c: reads what a call of a function asks for, and makes its key.
 *
 * The key is equal where the same is asked for. Streams are known by their lines, dimensions and names; numbers, texts,
 * lists, slices and sizes by what they are; weights by identity, other tensors by type and shape. */
#include "python/replay.h"

static int put_attribute(const asked *a, PyObject *x, int name)
{
    return put(a->key, get(a->r, x, name));
}

static int put_own(const asked *a, PyObject *x, int name)
{
    return put(a->key, own(a->r, x, name));
}

static int add(asked *a, PyObject *x);

static int add_stream(const asked *a, PyObject *inner)
{
    const replay_object *r = a->r;
    PyObject *edge = own(r, inner, N_edge);
    if (!edge || edge == Py_None) { /* what has no value computes it where it is used */
        const bool is_missing = edge || PyErr_ExceptionMatches(PyExc_AttributeError);
        if (!edge && is_missing)
            PyErr_Clear();
        Py_XDECREF(edge);
        return is_missing ? UNKNOWN : FAILED;
    }
    int done = is(r, edge, N_entry, a->entry);
    PyObject *alike = done == 1 ? own(r, inner, N_alike) : NULL;
    if (done == 1)
        done = !alike ? FAILED : PyTuple_Check(alike) && PyTuple_GET_ITEM(alike, 0) == Py_None;
    if (done == 1)
        done = put_attribute(a, edge, N_line);
    if (done == 1)
        done = put_own(a, inner, N_dims);
    if (done == 1)
        done = put_own(a, inner, N__names);
    if (done == 1)
        done = put(a->streams, Py_NewRef(inner));
    Py_XDECREF(alike);
    Py_DECREF(edge);
    return done;
}

static int add_all(asked *a, PyObject *items)
{
    int done = put(a->key, PyLong_FromSsize_t(PySequence_Fast_GET_SIZE(items)));
    for (Py_ssize_t i = 0; done == DONE && i < PySequence_Fast_GET_SIZE(items); i++)
        done = add(a, PySequence_Fast_GET_ITEM(items, i));
    return done;
}

/* What was drawn at random is no part of a key: the forward refuses it where it meets a stream. */
static int is_none_drawn(const asked *a, PyObject *x)
{
    if (a->drawn == Py_None)
        return DONE;
    PyObject *held = PyObject_CallMethodOneArg(a->drawn, a->r->names[N_holds], x);
    const int is_drawn = held ? PyObject_IsTrue(held) : FAILED;
    Py_XDECREF(held);
    return is_drawn < 0 ? FAILED : is_drawn ? UNKNOWN : DONE;
}

/* A weight, by identity, or another tensor, by type and shape; a size or what is computed of sizes. */
static int add_other(asked *a, PyObject *x)
{
    PyObject *id = PyLong_FromVoidPtr(x);
    const int is_known = id ? PyDict_Contains(a->known, id) : -1;
    int done = is_known;
    if (is_known == 1 && (done = is_none_drawn(a, x)) == DONE)
        done = need(&a->held) && put(a->key, Py_NewRef(id)) == DONE ? put(a->held, Py_NewRef(x))
                                                                    : FAILED;
    Py_XDECREF(id);
    if (is_known)
        return done;
    const int is_tensor = PySet_Contains(of(a->r, TENSORS), (PyObject *)Py_TYPE(x));
    if (is_tensor == 1) {
        const int names[] = {N_dtype, N_shape, N_requires_grad};
        for (int i = 0; i < 3; i++)
            if (put_attribute(a, x, names[i]) != DONE)
                return FAILED;
        done = is_none_drawn(a, x);
        return done != DONE ? done : need(&a->made) ? put(a->made, Py_NewRef(x)) : FAILED;
    }
    const int is_atom =
        is_tensor < 0 ? -1 : PySet_Contains(of(a->r, ATOMS), (PyObject *)Py_TYPE(x));
    if (is_atom)
        return is_atom < 0 ? FAILED : put(a->key, Py_NewRef(x));
    PyObject *parts = need(&a->edges) && need(&a->tokens)
                          ? PyObject_CallFunctionObjArgs(of(a->r, SIZE), x, a->entry, a->streams,
                                                         a->edges, a->tokens, NULL)
                          : NULL;
    done = !parts ? FAILED : parts == Py_None ? UNKNOWN : put(a->key, Py_NewRef(parts));
    Py_XDECREF(parts);
    return done;
}

static int add(asked *a, PyObject *x)
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

static int add_named(asked *a, PyObject *kwargs)
{
    PyObject *name, *value;
    int done = DONE;
    for (Py_ssize_t at = 0; done == DONE && PyDict_Next(kwargs, &at, &name, &value);)
        done = put(a->key, Py_NewRef(name)) == DONE ? add(a, value) : FAILED;
    return done;
}

void ds_replay_forget(asked *a)
{
    PyObject **const lists[] = {&a->known, &a->entry, &a->drawn, &a->key,   &a->streams,
                                &a->edges, &a->held,  &a->made,  &a->tokens};
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
    PyObject *gradients = done == DONE ? get(a->r, forward, N_gradients) : NULL;
    if (done == DONE)
        done = !gradients             ? FAILED
               : gradients == Py_None ? DONE
                                      : is(a->r, gradients, N_running, Py_None);
    Py_XDECREF(gradients);
    return done;
}

/* Reads what is asked for. Only where it is DONE is there something to forget, and the key a tuple. */
int ds_replay_ask(const replay_object *r, PyObject *const *args, asked *a)
{
    PyObject *forward = args[0];
    *a = (asked){.r = r, .entry = get(r, forward, N_entry)};
    int done = a->entry ? repeats(a, forward) : FAILED;
    if (done == DONE) {
        a->known = get(r, forward, N__parameters);
        a->drawn = get(r, forward, N_drawn);
        done = a->known && a->drawn && need(&a->key) && need(&a->streams) ? DONE : FAILED;
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
    if (done == DONE && !PyList_GET_SIZE(a->streams) && !(a->edges && PyList_GET_SIZE(a->edges)))
        done = UNKNOWN;
    if (done == DONE) {
        Py_SETREF(a->key, PyList_AsTuple(a->key));
        done = a->key ? DONE : FAILED;
    }
    if (done != DONE)
        ds_replay_forget(a);
    return done;
}
