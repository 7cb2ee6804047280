/* python/replay_mode.c: how torch's functions, operators and stand-ins reach what _core.Replay repeats, with no Python
 * between.
 *
 * Whatever isn't repeated here, what fails included, is left to the Python function that is given for it, which runs it
 * anew. */
#include "python/replay.h"

/* Whether nothing has a say in what a forward records, and nobody watches its calls; -1 with an exception. */
static int is_quiet(const replay_object *r, PyObject *forward)
{
    PyObject *watching = slot(r, forward, S_FORWARD_watching);
    PyObject *gradients = slot(r, forward, S_FORWARD_gradients);
    if (!watching || watching != Py_None || !gradients)
        return 0;
    return gradients == Py_None ? 1 : is(r, gradients, N_quiet, Py_True);
}

/* A size of a stream of this edge; NULL where there is none so simple, with or without an exception. */
static PyObject *size_of(const replay_object *r, PyObject *edge, PyObject *dim)
{
    PyObject *line = slot(r, edge, S_EDGE_line), *features = slot(r, line, S_LINE_features);
    if (PyLong_Check(dim))
        return Py_XNewRef(PyTuple_GetItem(features, PyLong_AsSsize_t(dim)));
    const bool is_length = PyUnicode_CompareWithASCIIString(dim, "L") == 0;
    if (!is_length && PyUnicode_CompareWithASCIIString(dim, "B") != 0)
        return NULL;
    PyTypeObject *type = (PyTypeObject *)of(r, is_length ? LENGTH : ROWS);
    PyObject *size = type->tp_alloc(type, 0);
    bool right =
        size && set_slot(r, size, is_length ? S_LENGTH_edge : S_ROWS_edge, Py_NewRef(edge));
    if (right && is_length)
        right = set_slot(r, size, S_LENGTH_terms, Py_BuildValue("((iO))", 1, edge)) &&
                set_slot(r, size, S_LENGTH_plus, PyLong_FromLong(0));
    else if (right)
        right = set_slot(r, size, S_ROWS_times, PyLong_FromLong(1));
    if (!right)
        Py_CLEAR(size);
    return size;
}

/* The sizes of a stream whose frames are at hand, or how many dimensions it has, likewise. */
static PyObject *sizes_of(const replay_object *r, PyObject *inner, bool rank_alone)
{
    DS_OWNED PyObject *view = own(r, inner, N__view), *edge = own(r, inner, N_edge);
    DS_OWNED PyObject *dims = own(r, inner, N_dims);
    PyObject *sizes = NULL;
    const bool known = view && dims && edge && is_of(r, edge, EDGE) && PyTuple_Check(dims) &&
                       (view == Py_None || !PyObject_HasAttr(view, r->names[N_waits]));
    if (known)
        sizes = rank_alone ? PyLong_FromSsize_t(PyTuple_GET_SIZE(dims))
                           : PyTuple_New(PyTuple_GET_SIZE(dims));
    for (Py_ssize_t i = 0; sizes && !rank_alone && i < PyTuple_GET_SIZE(dims); i++)
        ds_set_item(&sizes, i, size_of(r, edge, PyTuple_GET_ITEM(dims, i)));
    return sizes;
}

static PyObject *dtype_of(const replay_object *r, PyObject *inner)
{
    DS_OWNED PyObject *value = own(r, inner, N_value);
    const bool is_plain = value && PySet_Contains(of(r, TENSORS), (PyObject *)Py_TYPE(value)) == 1;
    return is_plain ? get(r, value, N_dtype) : NULL;
}

/* The shape of a stream, its size at a dimension, how many it has, the type of its elements, or a tensor's device, where
 * a function asks for that; NULL where it doesn't, or that is left to Python, with or without an exception. */
static PyObject *asked_of(const replay_object *r, PyObject *forward, PyObject *func, PyObject *args)
{
    const Py_ssize_t n = PyTuple_GET_SIZE(args);
    const int all[] = {SHAPE, DTYPE, DEVICE, TAKES_SIZE, RANK, TAKES_RANK};
    int which = -1;
    for (size_t i = 0; which < 0 && i < sizeof all / sizeof *all; i++)
        if (Py_TYPE(func) == Py_TYPE(of(r, all[i])) &&
            PyObject_RichCompareBool(func, of(r, all[i]), Py_EQ) == 1)
            which = all[i];
    if (which < 0 || !n || n > (which == TAKES_SIZE ? 2 : 1) ||
        !is_of(r, PyTuple_GET_ITEM(args, 0), SHELL))
        return NULL;
    if (which == DEVICE)
        return get(r, forward, N_device);
    DS_OWNED PyObject *inner = get(r, PyTuple_GET_ITEM(args, 0), N__inner);
    PyObject *out = NULL;
    const bool rank_alone = which == RANK || which == TAKES_RANK;
    if (inner && is_of(r, inner, STREAM))
        out = which == DTYPE ? dtype_of(r, inner) : sizes_of(r, inner, rank_alone);
    PyObject *at = n == 2 ? PyTuple_GET_ITEM(args, 1) : NULL;
    if (out && at)
        Py_SETREF(out,
                  PyLong_CheckExact(at) ? PySequence_GetItem(out, PyLong_AsSsize_t(at)) : NULL);
    else if (out && which != DTYPE && !rank_alone)
        Py_SETREF(out, PyObject_CallOneArg(of(r, SIZES), out));
    /* what fails does so anew, where it is known what that means */
    if (!out && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    return out;
}

/* What a function of torch did at this place, done again; NULL where that can't be, with an exception only if it is none
 * that Python code may handle. */
static PyObject *again(const replay_object *r, PyObject *forward, PyObject *func, PyObject *args,
                       PyObject *kwargs)
{
    PyObject *out = PyDict_GET_SIZE(kwargs) ? NULL : asked_of(r, forward, func, args);
    if (out || PyErr_Occurred())
        return out;
    DS_OWNED PyObject *entry = ds_replay_entry(r, forward);
    const bool is_call = entry && PyObject_TypeCheck(entry, (PyTypeObject *)of(r, CALL));
    DS_OWNED PyObject *done = is_call ? Py_XNewRef(slot(r, entry, S_CALL_n_done)) : NULL;
    if (done && is_quiet(r, forward) == 1) {
        PyObject *given[] = {forward, func, args, kwargs};
        out = ds_replay_again(r, given, NULL);
    }
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        if (done)
            set_slot(r, entry, S_CALL_n_done, Py_NewRef(done));
    }
    return out;
}

/* Whether an argument is a plain tensor, a number or the like, or a list of such; -1 with an exception. */
static int is_plain(const replay_object *r, PyObject *x)
{
    PyObject *kind = (PyObject *)Py_TYPE(x);
    if (PyLong_CheckExact(x) || PyFloat_CheckExact(x) || PyBool_Check(x))
        return 1;
    if (PyTuple_CheckExact(x) || PyList_CheckExact(x)) {
        int all = 1;
        for (Py_ssize_t i = 0; all == 1 && i < PySequence_Fast_GET_SIZE(x); i++)
            all = is_plain(r, PySequence_Fast_GET_ITEM(x, i));
        return all;
    }
    const int is_tensor = PySet_Contains(of(r, TENSORS), kind);
    return is_tensor ? is_tensor : PySet_Contains(of(r, ATOMS), kind);
}

/* What a function of torch that only computes gives of plain tensors, while nobody notes what is computed, as the body of a
 * loop does; NULL where it is not known as such, or with an exception. */
static PyObject *computed(const replay_object *r, PyObject *forward, PyObject *func, PyObject *args,
                          PyObject *kwargs)
{
    PyObject *entry = slot(r, forward, S_FORWARD_entry);
    if (!entry || !PyObject_TypeCheck(entry, (PyTypeObject *)of(r, CALL)) ||
        slot(r, entry, S_CALL_recording) != Py_None || slot(r, entry, S_CALL_body) != Py_None ||
        slot(r, forward, S_FORWARD_gradients) != Py_None ||
        slot(r, forward, S_FORWARD_drawn) != Py_None || PyDict_Contains(kwargs, r->names[N_out]))
        return NULL;
    PyObject *name, *value;
    int plain = PySet_Contains(of(r, COMPUTES), func);
    if (plain == 1)
        plain = is_plain(r, args);
    for (Py_ssize_t at = 0; plain == 1 && PyDict_Next(kwargs, &at, &name, &value);)
        plain = is_plain(r, value);
    if (plain < 0) /* what has no hash is not known, either */
        PyErr_Clear();
    return plain == 1 ? PyObject_Call(func, args, kwargs) : NULL;
}

static bool is_forward(const replay_object *r, PyObject *x)
{
    return PyObject_TypeCheck(x, (PyTypeObject *)of(r, FORWARD));
}

PyObject *ds_replay_mode(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    const replay_object *r = (replay_object *)self;
    enum { MODE, FUNCTION, TYPES, ARGUMENTS, NAMED, N_ALL };
    if (!n_args || !is_forward(r, args[MODE]))
        return PyErr_Format(PyExc_TypeError, "mode(forward, function, types, args, kwargs)");
    PyObject *out = NULL;
    if (!names && (n_args == NAMED || n_args == N_ALL) && PyTuple_Check(args[TYPES]) &&
        PyTuple_Check(args[ARGUMENTS])) {
        PyObject *given = args[ARGUMENTS];
        const bool has_names = n_args == N_ALL && PyDict_Check(args[NAMED]);
        DS_OWNED PyObject *named = has_names ? Py_NewRef(args[NAMED]) : PyDict_New();
        bool has_streams = false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[TYPES]) && !has_streams; i++)
            has_streams = PyTuple_GET_ITEM(args[TYPES], i) == of(r, SHELL);
        if (named && has_streams)
            out = again(r, args[MODE], args[FUNCTION], given, named);
        else if (named && !has_streams)
            out = computed(r, args[MODE], args[FUNCTION], given, named);
    }
    if (out || PyErr_Occurred())
        return out;
    DS_OWNED PyObject *instead = get(r, args[MODE], N_asked);
    return instead ? PyObject_Vectorcall(instead, args + 1, (size_t)(n_args - 1), names) : NULL;
}

PyObject *ds_replay_function(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names)
{
    const replay_object *r = (replay_object *)self;
    enum { INSTEAD, FUNCTION, N_OWN }; /* then come the function's own */
    if (n_args < N_OWN)
        return PyErr_Format(PyExc_TypeError, "function(instead, function, ...)");
    DS_OWNED PyObject *forward = NULL;
    PyObject *out = NULL;
    if (PyContextVar_Get(of(r, RUNNING), Py_None, &forward) < 0)
        return NULL;
    if (n_args > N_OWN && is_of(r, args[N_OWN], SHELL) && is_forward(r, forward)) {
        DS_OWNED PyObject *modes = PyObject_CallNoArgs(of(r, MODES));
        PyObject *depth = slot(r, forward, S_FORWARD_depth);
        /* another mode that was entered since is asked first */
        const int alone = !modes || !depth ? -1 : PyObject_RichCompareBool(modes, depth, Py_EQ);
        DS_OWNED PyObject *given = alone == 1 ? PyTuple_New(n_args - N_OWN) : NULL;
        DS_OWNED PyObject *named = given ? PyDict_New() : NULL;
        for (Py_ssize_t i = N_OWN; given && i < n_args; i++)
            PyTuple_SET_ITEM(given, i - N_OWN, Py_NewRef(args[i]));
        for (Py_ssize_t i = 0; named && names && i < PyTuple_GET_SIZE(names); i++)
            ds_set_named(&named, PyTuple_GET_ITEM(names, i), Py_NewRef(args[n_args + i]));
        if (named)
            out = again(r, forward, args[FUNCTION], given, named);
    }
    return out || PyErr_Occurred()
               ? out
               : PyObject_Vectorcall(args[INSTEAD], args + 1, (size_t)(n_args - 1), names);
}
