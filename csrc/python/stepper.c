/* _core.Stepper(core, names, structure, inputs, outputs, casts): what Engine.step knows of arrays and names. */
#include "python/stepper.h"
#include "structmember.h"

#define OFFSET(field) offsetof(ds_stepper, field)

ds_engine_object *ds_stepper_engine(const ds_stepper *s)
{
    if (!s->core)
        PyErr_SetString(PyExc_TypeError, "the engine's __init__ was not called");
    return (ds_engine_object *)s->core;
}

/* ---------------------------------------------------------------- arguments */
int ds_parse_arguments(const char *function, const char *const *known, PyObject **values,
                       PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Py_ssize_t n_known = 0;
    for (; known[n_known]; n_known++)
        values[n_known] = n_known < n_args ? args[n_known] : NULL;
    DS_EXPECT(n_args <= n_known, PyExc_TypeError, "%s() takes at most %zd arguments (%zd given)",
              function, n_known, n_args);
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        Py_ssize_t k = 0;
        while (k < n_known && PyUnicode_CompareWithASCIIString(name, known[k]) != 0)
            k++;
        DS_EXPECT(k < n_known, PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
                  function, name);
        DS_EXPECT(!values[k], PyExc_TypeError, "%s() got multiple values for argument '%U'",
                  function, name);
        values[k] = args[n_args + i];
    }
    return 0;
}

/* ---------------------------------------------------------------- what forward returns */
static PyObject *build_items(PyObject *structure, PyObject *const *items)
{
    const bool is_list = PyList_Check(structure);
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(structure);
    PyObject *out = is_list ? PyList_New(n) : PyTuple_New(n);
    for (Py_ssize_t i = 0; out && i < n; i++)
        ds_set_item(&out, i, ds_stepper_build(PySequence_Fast_GET_ITEM(structure, i), items));
    if (!out || PyList_CheckExact(structure) || PyTuple_CheckExact(structure))
        return out;
    /* Of a class of its own: a named tuple as its _make would, others as their class is called. */
    PyObject *made;
    if (!is_list && PyObject_HasAttrString(structure, "_fields")) {
        DS_OWNED PyObject *arguments = PyTuple_Pack(1, out);
        made = arguments ? PyTuple_Type.tp_new(Py_TYPE(structure), arguments, NULL) : NULL;
    } else {
        made = PyObject_CallOneArg((PyObject *)Py_TYPE(structure), out);
    }
    Py_DECREF(out);
    return made;
}

PyObject *ds_stepper_build(PyObject *structure, PyObject *const *items)
{
    if (PyLong_Check(structure))
        return Py_NewRef(items[PyLong_AsSsize_t(structure)]);
    if (!PyDict_Check(structure))
        return build_items(structure, items);
    PyObject *out = PyDict_New(), *key, *value;
    Py_ssize_t at = 0;
    while (out && PyDict_Next(structure, &at, &key, &value))
        ds_set_named(&out, key, ds_stepper_build(value, items));
    return out;
}

PyObject *ds_stepper_given(PyObject *stepper, const char *method, PyObject *made)
{
    return made && ((ds_stepper *)stepper)->casts
               ? PyObject_CallMethod(stepper, method, "(N)", made)
               : made;
}

/* Whether a structure names nothing but some of n outputs. */
static bool check_structure(PyObject *structure, size_t n)
{
    if (PyLong_Check(structure)) {
        const Py_ssize_t k = PyLong_AsSsize_t(structure);
        return k >= 0 && (size_t)k < n;
    }
    DS_OWNED PyObject *values = PyDict_Check(structure) ? PyDict_Values(structure)
                                : PyList_Check(structure) || PyTuple_Check(structure)
                                    ? PySequence_List(structure)
                                    : NULL;
    bool right = values != NULL;
    for (Py_ssize_t i = 0; right && i < PyList_GET_SIZE(values); i++)
        right = check_structure(PyList_GET_ITEM(values, i), n);
    return right;
}

/* ---------------------------------------------------------------- the type */
/* Reads what each axis of an array is: -1 rows, 0 frames, 1 and on those of the features; each once. An output
 * without frames has an axis of 0 or 1 of them first where an array is one row's; an input has none. */
static bool read_axes(ds_axes *all, ds_axes *one, PyObject *roles, const ds_signature *s,
                      bool is_output)
{
    int64_t role[DS_MAX_RANK + 2];
    const Py_ssize_t rank = ds_parse_ints(roles, role, DS_MAX_RANK + 2);
    const bool has_frames = s->rate.num != 0;
    const bool counted = has_frames || is_output;
    int at = !has_frames && is_output, n_features = 0;
    *all = (ds_axes){.rank = (int)rank, .batch = -1};
    *one = (ds_axes){.rank = s->rank + counted, .batch = -1};
    for (int d = 0; d <= s->rank; d++)
        all->axis[d] = -1;
    one->axis[0] = counted ? 0 : -1;
    if (rank < 0 || rank > s->rank + 2)
        return false;
    for (int k = 0; k < rank; k++) {
        if (role[k] < -1 || role[k] > s->rank)
            return false;
        int *place = role[k] < 0 ? &all->batch : &all->axis[role[k]];
        if (*place >= 0)
            return false;
        *place = k;
        n_features += role[k] > 0;
        if (role[k] >= 0)
            one->axis[role[k]] = at++;
    }
    return n_features == s->rank && has_frames == (all->axis[0] >= 0);
}

static int parse_axes(ds_axes **axes, PyObject *given, const ds_graph *g, const int *edges,
                      size_t n, bool is_output)
{
    DS_OWNED PyObject *items = PySequence_Tuple(given);
    PyMem_Free(*axes);
    *axes = PyMem_Calloc(2 * n + 1, sizeof **axes);
    bool right = items && *axes && (size_t)PyTuple_GET_SIZE(items) == n;
    for (size_t i = 0; right && i < n; i++)
        right = read_axes(&(*axes)[i], &(*axes)[n + i], PyTuple_GET_ITEM(items, (Py_ssize_t)i),
                          &g->edges[edges[i]].signature, is_output);
    if (!right && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "inputs and outputs: these are no axes of the arrays");
    return right ? 0 : -1;
}

static void stepper_dealloc(PyObject *self)
{
    ds_stepper *s = (ds_stepper *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(s->core);
    Py_XDECREF(s->names);
    Py_XDECREF(s->structure);
    PyMem_Free(s->inputs);
    PyMem_Free(s->outputs);
    ds_free_object(self);
}

static int stepper_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"core", "names", "structure", "inputs", "outputs", "casts", NULL};
    ds_stepper *s = (ds_stepper *)self;
    PyObject *core, *names, *structure, *inputs, *outputs;
    PyTypeObject *own = Py_TYPE(self);
    while (own->tp_dealloc != stepper_dealloc)
        own = own->tp_base;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!OOO|p:Stepper", keywords,
                                     ds_module_of(own)->engine_type, &core, &PyTuple_Type, &names,
                                     &structure, &inputs, &outputs, &s->casts))
        return -1;
    DS_EXPECT(!s->core, PyExc_TypeError, "it has its engine");
    ds_engine_object *e = (ds_engine_object *)core;
    const ds_graph *g = e->engine->plan->graph;
    bool right = (size_t)PyTuple_GET_SIZE(names) == g->n_inputs;
    for (Py_ssize_t i = 0; right && i < PyTuple_GET_SIZE(names); i++)
        right = PyUnicode_CheckExact(PyTuple_GET_ITEM(names, i));
    DS_EXPECT(right && check_structure(structure, g->n_outputs), PyExc_ValueError,
              "names or structure don't fit the engine");
    if (parse_axes(&s->inputs, inputs, g, g->inputs, g->n_inputs, false) < 0 ||
        parse_axes(&s->outputs, outputs, g, g->outputs, g->n_outputs, true) < 0)
        return -1;
    s->names = Py_NewRef(names);
    s->structure = Py_NewRef(structure);
    s->core = Py_NewRef(core);
    return 0;
}

static int stepper_traverse(PyObject *self, visitproc visit, void *arg)
{
    const ds_stepper *s = (ds_stepper *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(s->core);
    Py_VISIT(s->names);
    Py_VISIT(s->structure);
    return 0;
}

static const char step_doc[] =
    "step($self, chunks=None, sos=(), eos=(), restart=False)\n--\n\n"
    "Advance streams by their chunks.\n\n"
    "Parameters\n----------\n"
    "chunks : dict of str to array\n"
    "    Per id an array with the spec's dimensions without ``\"B\"`` (several inputs: a dict of\n"
    "    them by name). float64 is converted; int16 samples are divided by 32768; lists are what\n"
    "    np.asarray makes of them.\n"
    "sos, eos : collection of str\n"
    "    Streams that start, and that end, with this call; an id only here counts as an empty\n"
    "    chunk.\n"
    "restart : bool\n"
    "    Let ``sos`` on a live stream start it anew.\n\n"
    "Returns\n-------\n"
    "dict of str to array\n"
    "    Per id this call's output frames, owned arrays; tuples or dicts of them as forward\n"
    "    returns.\n\n"
    "Raises\n------\n"
    "StreamIdError, StreamBusyError, StreamMismatchError, ShapeError, DTypeError\n"
    "    With the streams concerned as ``.ids``; then every stream is as it was.\n\n"
    "Notes\n-----\n"
    "Signals that wait are handled before the streams advance: an exception from a handler\n"
    "leaves them as they were. One that comes later, while values are computed, is handled by\n"
    "Python after the step: then its outputs are lost, and `position` tells that the streams\n"
    "have advanced.";

static const char step_batch_doc[] =
    "step_batch($self, ids, *arrays, lengths=None, sos=None, eos=None, out=None)\n--\n\n"
    "Advance streams by the rows of padded arrays: the cheapest way for a steady set of\n"
    "streams.\n\n"
    "Parameters\n----------\n"
    "ids : sequence of str\n"
    "    One per row. Where they are the same objects as in the call before, none is looked up.\n"
    "*arrays : array\n"
    "    Per input one with the spec's dimensions, ``\"B\"`` included, or a list of the rows'\n"
    "    chunks, all of one shape; None: no new frames.\n"
    "lengths : sequence of int, optional\n"
    "    Frames of each row; all of the array's by default. Several inputs: a tuple or list of\n"
    "    them (or of None), or a dict by name.\n"
    "sos, eos : bool, sequence of bool or collection of str, optional\n"
    "    Whether all rows, or which rows, or which ids start, and end, with this call.\n"
    "out : array, optional\n"
    "    Where the outputs go: of the output's dimensions and the type that it is computed in,\n"
    "    with room for the longest row's frames or more. What lies behind a row's frames is left\n"
    "    as it is. Several outputs: as forward returns them.\n\n"
    "Returns\n-------\n"
    "outputs : array\n"
    "    `out`, or a new array with zeros behind each row's frames; tuples or dicts of them as\n"
    "    forward returns. An output without ``\"L\"`` has forward's dimensions; its rows are\n"
    "    zero until they end.\n"
    "lengths : array of int64\n"
    "    Frames of each row, in the same structure; 0 or 1 of an output without ``\"L\"``.\n\n"
    "Raises\n------\n"
    "StreamIdError, StreamBusyError, StreamMismatchError, ShapeError, DTypeError\n"
    "    As `step` does; then every stream, and `out`, is as it was.\n\n"
    "Examples\n--------\n"
    ">>> import numpy as np, dreamstream as ds\n"
    ">>> engine = ds.compile(ds.nn.Conv1d(1, 2, 3), (\"B\", 1, \"L\"))\n"
    ">>> x, out = np.ones((2, 1, 5), np.float32), np.zeros((2, 2, 8), np.float32)\n"
    ">>> ids = [\"anna\", \"bob\"]\n"
    ">>> y, lengths = engine.step_batch(ids, x, lengths=[5, 4], sos=True, out=out)\n"
    ">>> y is out, lengths.tolist()\n"
    "(True, [3, 2])\n"
    ">>> [engine.position(i) for i in ids]\n"
    "[5, 4]";

static PyMethodDef stepper_methods[] = {
    DS_METHOD("step", ds_stepper_step, step_doc),
    DS_METHOD("step_batch", ds_stepper_step_batch, step_batch_doc),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stepper_members[] = {
    {"_core", T_OBJECT_EX, OFFSET(core), READONLY, "The C engine."},
    {NULL, 0, 0, 0, NULL},
};

DS_SPEC(stepper, "Stepper", ds_stepper, Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        "Steps from Python to Python; the base of dreamstream.Engine.", {Py_tp_init, stepper_init},
        {Py_tp_dealloc, stepper_dealloc}, {Py_tp_traverse, stepper_traverse},
        {Py_tp_methods, stepper_methods}, {Py_tp_members, stepper_members},
        {Py_tp_new, PyType_GenericNew});
