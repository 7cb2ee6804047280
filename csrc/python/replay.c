/* _core.Replay: repeats what a function of torch did in the call before, at the same place of a forward.
 *
 * What is asked for is a key: the function, the lines and dimensions of streams, numbers, sizes, lists, weights by
 * identity, other tensors by type and shape. Under it the call's places hold one, a tuple (see PLACE_*): the
 * operators that ran, each a tuple (see RAN_*), and how the result is seen. Which operators run here, and which by the
 * call's own `replay`, says replay_operation.c. `dreamstream.torch.forward.places` makes places.
 *
 * Invariants: attributes are read and set as Python would, slots where they lie, nothing of a call is kept from one to
 * the next, and where an operator fails the call has stepped back behind it. */
#include "python/replay.h"

#include <structmember.h>

/* A place: operators; what makes weights of given tensors, or None; the result; the tensors of its key, which stay
 * alive. A result is a tuple (SEEN_*) for a stream, a list for a tuple of results, else a function of all edges, their
 * values, the streams and the sizes that were asked about. */
enum { PLACE_OPERATIONS, PLACE_WEIGHTS, PLACE_RESULT };

/* A stream: which edge it is, its dimensions, their names, and what notes that it shares memory, or None. */
enum { SEEN_AT, SEEN_DIMS, SEEN_NAMES, SEEN_SHARE, N_SEEN };
/* ---------------------------------------------------------------- results */
static PyObject *shell_around(const replay_object *r, PyObject *inner)
{
    PyObject *out = PyObject_CallOneArg(of(r, BLANK), of(r, SHELL));
    DS_OWNED PyObject *records = out ? PyObject_CallNoArgs(of(r, RECORDS)) : NULL;
    if (records == Py_True) /* so that torch records Functions of the user */
        Py_XSETREF(records, PyObject_CallMethodNoArgs(out, r->names[N_requires_grad_]));
    if (!records || !set(r, out, N__inner, inner))
        Py_CLEAR(out);
    return out;
}

/* A native tensor of a running forward. */
static PyObject *stream_of(const replay_object *r, PyObject *value, PyObject *edge, PyObject *dims,
                           PyObject *names)
{
    PyObject *line = is_of(r, edge, EDGE) ? slot(r, edge, S_EDGE_line) : NULL;
    PyObject *rate = line && is_of(r, line, LINE) ? slot(r, line, S_LINE_rate) : NULL;
    if (!rate)
        return PyErr_Format(PyExc_TypeError, "expected an edge with a line");
    PyTypeObject *type = (PyTypeObject *)of(r, STREAM);
    PyObject *out = type->tp_alloc(type, 0);
    if (out &&
        !(set(r, out, N_value, value) && set(r, out, N_dims, dims) &&
          set(r, out, N__names, names) && set(r, out, N__rate, rate) && set(r, out, N_edge, edge)))
        Py_CLEAR(out);
    return out;
}

static PyObject *seen_result(const asked *a, PyObject *seen, PyObject *edges, PyObject *values)
{
    const Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(seen, SEEN_AT));
    PyObject *share = PyTuple_GET_ITEM(seen, SEEN_SHARE);
    DS_OWNED PyObject *inner =
        stream_of(a->r, PyList_GET_ITEM(values, at), PyList_GET_ITEM(edges, at),
                  PyTuple_GET_ITEM(seen, SEEN_DIMS), PyTuple_GET_ITEM(seen, SEEN_NAMES));
    DS_OWNED PyObject *shared =
        !inner             ? NULL
        : share == Py_None ? Py_NewRef(Py_None)
                           : PyObject_CallFunctionObjArgs(share, inner, a->streams,
                                                          a->tokens ? a->tokens : Py_None, NULL);
    return shared ? shell_around(a->r, inner) : NULL;
}

static PyObject *result_of(const asked *a, PyObject *form, PyObject *edges, PyObject *values)
{
    if (PyTuple_CheckExact(form) && PyTuple_GET_SIZE(form) == N_SEEN)
        return seen_result(a, form, edges, values);
    if (!PyList_CheckExact(form))
        return PyObject_CallFunctionObjArgs(form, edges, values, a->streams,
                                            a->tokens ? a->tokens : Py_None, NULL);
    PyObject *out = PyTuple_New(PyList_GET_SIZE(form));
    for (Py_ssize_t i = 0; out && i < PyList_GET_SIZE(form); i++)
        ds_set_item(&out, i, result_of(a, PyList_GET_ITEM(form, i), edges, values));
    return out;
}

/* Runs a place's operators, and returns what its function did. */
static PyObject *replayed(asked *a, PyObject *place)
{
    PyObject *operations = PyTuple_GET_ITEM(place, PLACE_OPERATIONS);
    PyObject *making = PyTuple_GET_ITEM(place, PLACE_WEIGHTS);
    DS_OWNED PyObject *edges = PyList_New(0), *values = PyList_New(0), *made = NULL;
    bool right = edges && values;
    for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(a->streams); i++) {
        PyObject *x = PyList_GET_ITEM(a->streams, i);
        right =
            put(edges, own(a->r, x, N_edge)) == DONE && put(values, own(a->r, x, N_value)) == DONE;
    }
    for (Py_ssize_t i = 0; right && a->edges && i < PyList_GET_SIZE(a->edges); i++)
        right = put(edges, Py_NewRef(PyList_GET_ITEM(a->edges, i))) == DONE &&
                put(values, Py_NewRef(Py_None)) == DONE;
    if (right && making != Py_None)
        right =
            need(&a->made) && (made = PyObject_CallOneArg(making, a->made)) && PyList_Check(made);
    for (Py_ssize_t i = 0; right && i < PyTuple_GET_SIZE(operations); i++) {
        PyObject *ran = PyTuple_GET_ITEM(operations, i);
        PyObject *weights = made ? PyList_GET_ITEM(made, i) : PyTuple_GET_ITEM(ran, RAN_WEIGHTS);
        right = ds_replay_operation(a, ran, weights, edges, values);
    }
    return right ? result_of(a, PyTuple_GET_ITEM(place, PLACE_RESULT), edges, values) : NULL;
}

/* The same while torch asks no subclass and no mode: kernels see plain tensors only. */
static PyObject *replayed_within(asked *a, PyObject *place)
{
    PyObject *type, *error, *traceback;
    DS_OWNED PyObject *guard = PyObject_CallNoArgs(of(a->r, GUARD));
    DS_OWNED PyObject *entered =
        guard ? PyObject_CallMethodNoArgs(guard, a->r->names[N___enter__]) : NULL;
    PyObject *out = entered ? replayed(a, place) : NULL;
    PyErr_Fetch(&type, &error, &traceback);
    DS_OWNED PyObject *left = !entered
                                  ? NULL
                                  : PyObject_CallMethodObjArgs(guard, a->r->names[N___exit__],
                                                               Py_None, Py_None, Py_None, NULL);
    if (type)
        PyErr_Restore(type, error, traceback);
    else if (!left)
        Py_CLEAR(out);
    return out;
}

/* ---------------------------------------------------------------- the object */
static bool check_arguments(const replay_object *r, PyObject *const *args, Py_ssize_t n)
{
    const bool right = n == 4 && PyObject_TypeCheck(args[0], (PyTypeObject *)of(r, FORWARD)) &&
                       PyTuple_Check(args[2]) && PyDict_Check(args[3]);
    if (!right)
        PyErr_SetString(PyExc_TypeError, "expected a forward, a function, a tuple and a dict");
    return right;
}

PyObject *ds_replay_again(const replay_object *r, PyObject *const *args, PyObject **instead)
{
    asked a;
    if (ds_replay_ask(r, args, &a) != DONE)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(slot(r, a.entry, S_CALL_places), a.key), *out = NULL;
    DS_OWNED PyObject *place = Py_XNewRef(found);
    if (place && (PyObject *)Py_TYPE(place) == of(r, PLACE))
        out = replayed_within(&a, place);
    else if (instead)
        *instead = ds_given_on(&place);
    ds_replay_forget(&a);
    return out;
}

static PyObject *replay_call(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    const replay_object *r = (replay_object *)self;
    if (!check_arguments(r, args, n_args))
        return NULL;
    PyObject *instead = NULL, *out = ds_replay_again(r, args, &instead);
    if (out || PyErr_Occurred())
        return out;
    return instead ? instead : Py_NewRef(Py_NotImplemented);
}

static PyObject *replay_ask(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    const replay_object *r = (replay_object *)self;
    asked a;
    if (!check_arguments(r, args, n_args))
        return NULL;
    const int done = ds_replay_ask(r, args, &a);
    if (done != DONE)
        return done == FAILED ? NULL : Py_NewRef(Py_None);
    const bool right = need(&a.edges) && need(&a.held) && need(&a.made) && need(&a.tokens);
    PyObject *out =
        !right ? NULL : PyTuple_Pack(6, a.key, a.streams, a.edges, a.held, a.made, a.tokens);
    ds_replay_forget(&a);
    return out;
}

static PyObject *replay_result(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 5 || !PyList_Check(args[1]) || !PyList_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected a result and four lists");
    asked a;
    a.r = (replay_object *)self;
    a.streams = args[3];
    a.tokens = args[4];
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

/* Finds where the instances of a class have a slot; -1 with an exception. */
static Py_ssize_t offset_of(PyObject *type, const char *name)
{
    DS_OWNED PyObject *found = PyObject_GetAttrString(type, name);
    DS_EXPECT(!found || Py_IS_TYPE(found, &PyMemberDescr_Type), PyExc_TypeError,
              "Replay: %s of %R is no slot", name, type);
    return found ? ((PyMemberDescrObject *)found)->d_member->offset : -1;
}

static bool check_given(PyObject *args)
{
    const int types[] = {SHELL, STREAM, EDGE, LINE, CALL, FORWARD, LENGTH, ROWS, JOINED, SIZES};
    bool right = PyTuple_GET_SIZE(args) == N_GIVEN;
    for (size_t i = 0; right && i < sizeof types / sizeof *types; i++)
        right = PyType_Check(PyTuple_GET_ITEM(args, types[i]));
    right = right && PyAnySet_Check(PyTuple_GET_ITEM(args, ATOMS)) &&
            PyAnySet_Check(PyTuple_GET_ITEM(args, TENSORS)) &&
            PyAnySet_Check(PyTuple_GET_ITEM(args, COMPUTES));
    if (!right)
        PyErr_Format(PyExc_TypeError, "Replay takes %d classes and functions", N_GIVEN);
    return right;
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
#define NAME_TEXT(name) #name,
#define SLOT_TEXT(of, name) {of, #name},
    static const char *const texts[] = {NAMES(NAME_TEXT)};
    static const struct {
        int of;
        const char *name;
    } slots[] = {SLOTS(SLOT_TEXT)};
    if (kwargs && PyDict_GET_SIZE(kwargs))
        return PyErr_Format(PyExc_TypeError, "Replay takes no keywords");
    replay_object *self = check_given(args) ? (replay_object *)type->tp_alloc(type, 0) : NULL;
    if (!self)
        return NULL;
    self->given = Py_NewRef(args);
    bool right = true;
    for (int i = 0; right && i < N_NAMES; i++)
        right = (self->names[i] = PyUnicode_InternFromString(texts[i])) != NULL;
    for (int i = 0; right && i < N_SLOTS; i++)
        right = (self->offsets[i] = offset_of(of(self, slots[i].of), slots[i].name)) >= 0;
    if (!right)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *replay_method(PyObject *Py_UNUSED(self), PyObject *function)
{
    return PyInstanceMethod_New(function);
}

static PyMethodDef replay_methods[] = {
    {"mode", (PyCFunction)(void (*)(void))ds_replay_mode, METH_FASTCALL | METH_KEYWORDS,
     "mode(forward, function, types, args, kwargs) -> what it did before, done again, else what "
     "the forward's `asked` gives"},
    {"function", (PyCFunction)(void (*)(void))ds_replay_function, METH_FASTCALL | METH_KEYWORDS,
     "function(instead, function, ...) -> the same of a function of torch, else "
     "instead(function, ...)"},
    {"method", replay_method, METH_O,
     "method(function) -> what is bound to instances as a function of Python is"},
    {"call", (PyCFunction)(void (*)(void))replay_call, METH_FASTCALL,
     "call(forward, function, args, kwargs) -> what it did before, done again; what stands in its "
     "place, or NotImplemented"},
    {"ask", (PyCFunction)(void (*)(void))replay_ask, METH_FASTCALL,
     "ask(forward, function, args, kwargs) -> (key, streams, edges, held, made, tokens), or None"},
    {"result", (PyCFunction)(void (*)(void))replay_result, METH_FASTCALL,
     "result(form, edges, values, streams, tokens) -> the result of a place, or a part of it"},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(replay, "Replay", replay_object, Py_TPFLAGS_HAVE_GC,
        "Repeats what functions of torch did in the call before.", {Py_tp_new, replay_new},
        {Py_tp_dealloc, replay_dealloc}, {Py_tp_traverse, replay_traverse},
        {Py_tp_methods, replay_methods});
