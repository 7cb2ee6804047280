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

/* What a function of torch did at this place, done again; NULL where that can't be, with an exception only if it is none
 * that Python code may handle. */
static PyObject *again(const replay_object *r, PyObject *forward, PyObject *func, PyObject *args,
                       PyObject *kwargs)
{
    PyObject *entry = ds_replay_entry(r, forward), *out = NULL;
    const bool is_call = entry && PyObject_TypeCheck(entry, (PyTypeObject *)of(r, CALL));
    PyObject *done = is_call ? Py_XNewRef(slot(r, entry, S_CALL_n_done)) : NULL;
    if (done && is_quiet(r, forward) == 1) {
        PyObject *given[] = {forward, func, args, kwargs};
        out = ds_replay_again(r, given);
    }
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        if (done)
            set_slot(r, entry, S_CALL_n_done, Py_NewRef(done));
    }
    Py_XDECREF(done);
    Py_XDECREF(entry);
    return out;
}

/* The shape of a stream, or the type of its elements, where a function is the attribute's; NULL where it isn't, with or
 * without an exception. */
static PyObject *attribute_of(const replay_object *r, PyObject *func, PyObject *x)
{
    if (!is_of(r, x, SHELL) || Py_TYPE(func) != Py_TYPE(of(r, SHAPE)))
        return NULL;
    const bool of_shape = PyObject_RichCompareBool(func, of(r, SHAPE), Py_EQ) == 1;
    if (!of_shape && PyObject_RichCompareBool(func, of(r, DTYPE), Py_EQ) != 1)
        return NULL;
    PyObject *inner = get(r, x, N__inner), *out = NULL;
    if (inner && is_of(r, inner, STREAM) && of_shape)
        out = get(r, inner, N_shape);
    else if (inner && is_of(r, inner, STREAM)) {
        PyObject *value = own(r, inner, N_value);
        if (value && PySet_Contains(of(r, TENSORS), (PyObject *)Py_TYPE(value)) == 1)
            out = get(r, value, N_dtype);
        Py_XDECREF(value);
    }
    /* what fails does so anew, where it is known what that means */
    if (!out && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    Py_XDECREF(inner);
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

/* The forward that is running, or None. */
static PyObject *running(const replay_object *r)
{
    PyObject *forward = NULL;
    if (PyContextVar_Get(of(r, RUNNING), Py_None, &forward) < 0)
        return NULL;
    return forward;
}

static PyObject *tuple_of(PyObject *const *items, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    return tuple;
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
        PyObject *named = has_names ? Py_NewRef(args[NAMED]) : PyDict_New();
        bool has_streams = false;
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[TYPES]) && !has_streams; i++)
            has_streams = PyTuple_GET_ITEM(args[TYPES], i) == of(r, SHELL);
        if (named && has_streams && PyTuple_GET_SIZE(given) == 1)
            out = attribute_of(r, args[FUNCTION], PyTuple_GET_ITEM(given, 0));
        if (named && has_streams && !out && !PyErr_Occurred())
            out = again(r, args[MODE], args[FUNCTION], given, named);
        else if (named && !has_streams)
            out = computed(r, args[MODE], args[FUNCTION], given, named);
        Py_XDECREF(named);
    }
    if (out || PyErr_Occurred())
        return out;
    PyObject *instead = get(r, args[MODE], N_asked);
    out = instead ? PyObject_Vectorcall(instead, args + 1, (size_t)(n_args - 1), names) : NULL;
    Py_XDECREF(instead);
    return out;
}

PyObject *ds_replay_function(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names)
{
    const replay_object *r = (replay_object *)self;
    enum { INSTEAD, FUNCTION, N_OWN }; /* then come the function's own */
    if (n_args < N_OWN)
        return PyErr_Format(PyExc_TypeError, "function(instead, function, ...)");
    PyObject *forward = running(r), *out = NULL;
    if (!forward)
        return NULL;
    if (n_args > N_OWN && is_of(r, args[N_OWN], SHELL) && is_forward(r, forward)) {
        PyObject *modes = PyObject_CallNoArgs(of(r, MODES));
        PyObject *depth = slot(r, forward, S_FORWARD_depth);
        /* another mode that was entered since is asked first */
        const int alone = !modes || !depth ? -1 : PyObject_RichCompareBool(modes, depth, Py_EQ);
        PyObject *given = alone == 1 ? tuple_of(args + N_OWN, n_args - N_OWN) : NULL;
        PyObject *named = given ? PyDict_New() : NULL;
        for (Py_ssize_t i = 0; named && names && i < PyTuple_GET_SIZE(names); i++)
            if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[n_args + i]) < 0)
                Py_CLEAR(named);
        if (named)
            out = again(r, forward, args[FUNCTION], given, named);
        Py_XDECREF(named);
        Py_XDECREF(given);
        Py_XDECREF(modes);
    }
    Py_DECREF(forward);
    if (!out && !PyErr_Occurred())
        out = PyObject_Vectorcall(args[INSTEAD], args + 1, (size_t)(n_args - 1), names);
    return out;
}
