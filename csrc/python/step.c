/* Engine.step: dicts of arrays by id, from the caller's to the result in one go. Stream: one id, by hand.
 *
 * The caller's dict is copied at once; its copy becomes the result: arrays that came in are replaced by
 * those that go out. */
#include "python/stepper.h"

#include <string.h>

#include "structmember.h"

/* ---------------------------------------------------------------- rows */
/* A dict with plain ids as keys; takes `rows`. */
static PyObject *with_plain_ids(ds_module *m, PyObject *rows)
{
    PyObject *key, *value, *plain = NULL, *twice = NULL;
    Py_ssize_t at = 0;
    bool is_plain = true;
    while (is_plain && PyDict_Next(rows, &at, &key, &value))
        is_plain = PyUnicode_CheckExact(key);
    if (is_plain)
        return rows;
    plain = PyDict_New();
    twice = PyList_New(0);
    at = 0;
    while (plain && twice && PyDict_Next(rows, &at, &key, &value)) {
        PyObject *id = ds_plain_id(m, key);
        const int known = id ? PyDict_Contains(plain, id) : -1;
        if (known < 0 || (known ? PyList_Append(twice, id) : PyDict_SetItem(plain, id, value)) < 0)
            Py_CLEAR(plain);
        Py_XDECREF(id);
    }
    if (plain && twice && PyList_GET_SIZE(twice) > 0) {
        ds_raise(m, ds_fail(DS_STREAM_ID, "ids must be unique within a batch"), twice);
        Py_CLEAR(plain);
    }
    Py_XDECREF(twice);
    Py_DECREF(rows);
    return plain;
}

/* Copies any other mapping. */
static PyObject *copy_mapping(PyObject *chunks)
{
    PyObject *abc = PyImport_ImportModule("collections.abc");
    PyObject *mapping = abc ? PyObject_GetAttrString(abc, "Mapping") : NULL;
    const int is_mapping = mapping ? PyObject_IsInstance(chunks, mapping) : -1;
    Py_XDECREF(abc);
    Py_XDECREF(mapping);
    if (is_mapping <= 0) {
        const char *dot = strrchr(Py_TYPE(chunks)->tp_name, '.');
        if (is_mapping == 0)
            PyErr_Format(PyExc_TypeError, "step takes a dict of arrays by id, got %s",
                         dot ? dot + 1 : Py_TYPE(chunks)->tp_name);
        return NULL;
    }
    PyObject *keys = PySequence_List(chunks), *rows = keys ? PyDict_New() : NULL;
    for (Py_ssize_t i = 0; rows && i < PyList_GET_SIZE(keys); i++) {
        PyObject *key = PyList_GET_ITEM(keys, i), *value = PyObject_GetItem(chunks, key);
        if (!value || PyDict_SetItem(rows, key, value) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(value);
    }
    Py_XDECREF(keys);
    return rows;
}

/* A list of plain ids of a str or a collection of them; NULL where there are none, or with an exception. */
static PyObject *list_ids(ds_module *m, PyObject *given)
{
    if (!given || (PyTuple_CheckExact(given) && PyTuple_GET_SIZE(given) == 0))
        return NULL;
    PyObject *list;
    if (PyUnicode_Check(given)) {
        list = PyList_New(1);
        if (list)
            PyList_SET_ITEM(list, 0, Py_NewRef(given));
    } else {
        list = PySequence_List(given);
    }
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *id = ds_plain_id(m, PyList_GET_ITEM(list, i));
        if (!id || PyList_SetItem(list, i, id) < 0)
            Py_CLEAR(list);
    }
    if (list && PyList_GET_SIZE(list) == 0)
        Py_CLEAR(list);
    return list;
}

/* Adds ids as rows without chunks; returns them as a set, NULL where there are none or with an exception. */
static PyObject *add_ids(ds_module *m, PyObject *rows, PyObject *given)
{
    PyObject *list = list_ids(m, given), *set = list ? PySet_New(list) : NULL;
    for (Py_ssize_t i = 0; set && i < PyList_GET_SIZE(list); i++)
        if (!PyDict_SetDefault(rows, PyList_GET_ITEM(list, i), Py_None))
            Py_CLEAR(set);
    Py_XDECREF(list);
    return set;
}

/* ---------------------------------------------------------------- chunks */
typedef struct dict_step {
    ds_call call;
    ds_stepper *stepper;
    PyObject **arrays;  /* [row][input] borrowed: arrays, or None */
    PyObject *kept;     /* list: what was made of other things than arrays */
    PyObject **outputs; /* [output][row] owned */
} dict_step;

static bool is_chunk(PyObject *given)
{
    return given == Py_None ||
           (PyArray_Check(given) && PyArray_ISNOTSWAPPED((PyArrayObject *)given));
}

/* Takes the row's arrays where they are ready: an array alone, or a plain dict of them by name. */
static bool take_arrays(const dict_step *d, PyObject *given, PyObject **arrays)
{
    const Py_ssize_t n_inputs = (Py_ssize_t)d->call.n_inputs;
    if (given == Py_None || (n_inputs == 1 && is_chunk(given))) {
        arrays[0] = given;
        for (Py_ssize_t k = 1; k < n_inputs; k++)
            arrays[k] = Py_None;
        return true;
    }
    if (!PyDict_CheckExact(given))
        return false;
    Py_ssize_t n_found = 0;
    for (Py_ssize_t k = 0; k < n_inputs; k++) {
        PyObject *item = PyDict_GetItemWithError(given, PyTuple_GET_ITEM(d->stepper->names, k));
        n_found += item != NULL;
        arrays[k] = item ? item : Py_None;
        if (!is_chunk(arrays[k]) || PyList_Append(d->kept, arrays[k]) < 0)
            return false;
    }
    return n_found == PyDict_GET_SIZE(given) && !PyErr_Occurred();
}

/* Asks Python for the row's arrays, and keeps them. */
static int keep_arrays(dict_step *d, PyObject *id, PyObject *given, PyObject **arrays)
{
    if (PyErr_Occurred())
        return -1;
    PyObject *list = PyObject_CallMethod((PyObject *)d->stepper, "_arrays_of", "OO", id, given);
    PyObject *items = list ? PySequence_Tuple(list) : NULL;
    Py_XDECREF(list);
    if (!items)
        return -1;
    int status = PyTuple_GET_SIZE(items) == (Py_ssize_t)d->call.n_inputs ? 0 : -1;
    if (status < 0)
        PyErr_SetString(PyExc_TypeError, "_arrays_of: expected one array per input");
    for (Py_ssize_t k = 0; status == 0 && k < PyTuple_GET_SIZE(items); k++) {
        PyObject *item = PyTuple_GET_ITEM(items, k), *native = NULL;
        if (item == Py_None) {
            arrays[k] = item;
            continue;
        }
        if (!PyArray_Check(item))
            ds_engine_error(d->call.m, DS_DTYPE, "expected a NumPy array", id);
        else
            native = ds_native_array((PyArrayObject *)item);
        arrays[k] = native;
        status = native ? PyList_Append(d->kept, native) : -1;
        Py_XDECREF(native);
    }
    Py_DECREF(items);
    return status;
}

/* Fills the call's ids and flags, and the rows' arrays. May run Python code. */
static int read_rows(dict_step *d, PyObject *rows, PyObject *starting, PyObject *ending)
{
    ds_call *c = &d->call;
    PyObject *id, *given;
    Py_ssize_t at = 0;
    for (Py_ssize_t r = 0; PyDict_Next(rows, &at, &id, &given); r++) {
        c->ids[r] = id;
        c->sos[r] = starting && PySet_Contains(starting, id) > 0;
        c->step->ended[r] = ending && PySet_Contains(ending, id) > 0;
        PyObject **arrays = &d->arrays[r * (Py_ssize_t)c->n_inputs];
        if (!take_arrays(d, given, arrays) && keep_arrays(d, id, given, arrays) < 0)
            return -1;
    }
    return 0;
}

static int measure_rows(dict_step *d)
{
    ds_call *c = &d->call;
    for (size_t k = 0; k < c->n_inputs; k++)
        for (Py_ssize_t r = 0; r < c->n; r++) {
            PyObject *array = d->arrays[(size_t)r * c->n_inputs + k];
            const int64_t frames =
                array == Py_None
                    ? 0
                    : ds_call_measure(c, k, &c->e->inputs[k], (PyArrayObject *)array, c->ids[r]);
            if (frames < 0)
                return -1;
            c->step->n_frames[k * (size_t)c->n + (size_t)r] = frames;
        }
    return 0;
}

static void put_rows(const dict_step *d)
{
    const ds_call *c = &d->call;
    for (size_t k = 0; k < c->n_inputs; k++)
        for (Py_ssize_t r = 0; r < c->n; r++) {
            PyArrayObject *array = (PyArrayObject *)d->arrays[(size_t)r * c->n_inputs + k];
            if ((PyObject *)array == Py_None)
                continue;
            const ds_axes *axes = &c->e->inputs[k];
            ptrdiff_t strides[DS_MAX_RANK + 1];
            for (int a = 0; a < axes->rank; a++)
                strides[a] = PyArray_STRIDE(array, axes->axis[a]);
            ds_step_put(c->step, k, (size_t)r, PyArray_DATA(array), strides, ds_element_of(array));
        }
}

/* ---------------------------------------------------------------- outputs */
static int make_outputs(dict_step *d)
{
    const ds_call *c = &d->call;
    for (size_t o = 0; o < c->n_outputs; o++) {
        const ds_signature *signature = ds_step_output(c->e->plan, o);
        const ds_axes *axes = &c->e->outputs[o];
        npy_intp shape[DS_MAX_RANK + 1];
        for (int a = 1; a < axes->rank; a++)
            shape[axes->axis[a]] = signature->shape[a - 1];
        for (Py_ssize_t r = 0; r < c->n; r++) {
            int64_t start;
            shape[axes->axis[0]] = ds_step_frames(c->step, o, (size_t)r, &start);
            PyObject *array = ds_new_array(signature, axes->rank, shape, false);
            if (!array)
                return -1;
            d->outputs[o * (size_t)c->n + (size_t)r] = array;
        }
    }
    return 0;
}

/* Puts the outputs into the places of the chunks. */
static int replace_chunks(const dict_step *d, PyObject *rows)
{
    const ds_call *c = &d->call;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        PyObject *made = NULL;
        if (!d->stepper->single)
            made = ds_stepper_build(d->stepper->structure, d->outputs + r, c->n);
        PyObject *item = d->stepper->single ? d->outputs[r] : made;
        const int status = item ? PyDict_SetItem(rows, c->ids[r], item) : -1;
        Py_XDECREF(made);
        if (status < 0)
            return -1;
    }
    return 0;
}

static void get_rows(const ds_call *c, void *context)
{
    const dict_step *d = context;
    for (size_t o = 0; o < c->n_outputs; o++) {
        const ds_axes *axes = &c->e->outputs[o];
        for (Py_ssize_t r = 0; r < c->n; r++) {
            PyArrayObject *array = (PyArrayObject *)d->outputs[o * (size_t)c->n + (size_t)r];
            ptrdiff_t strides[DS_MAX_RANK + 1];
            for (int a = 0; a < axes->rank; a++)
                strides[a] = PyArray_STRIDE(array, axes->axis[a]);
            int64_t start;
            const int64_t n = ds_step_frames(c->step, o, (size_t)r, &start);
            ds_step_get(c->step, o, (size_t)r, n, PyArray_DATA(array), strides);
        }
    }
}

/* ---------------------------------------------------------------- the call */
static int run_rows(dict_step *d, PyObject *rows, PyObject *starting, PyObject *ending)
{
    ds_call *c = &d->call;
    d->arrays = ds_call_room(c, (size_t)c->n * c->n_inputs, sizeof *d->arrays);
    d->outputs = ds_call_room(c, (size_t)c->n * c->n_outputs, sizeof *d->outputs);
    d->kept = PyList_New(0);
    if (!d->arrays || !d->outputs || !d->kept || read_rows(d, rows, starting, ending) < 0 ||
        ds_call_find(c, NULL) < 0 || measure_rows(d) < 0 || ds_call_enter(c) < 0)
        return -1;
    put_rows(d);
    Py_CLEAR(d->kept);
    if (make_outputs(d) < 0 || replace_chunks(d, rows) < 0 || ds_call_ready(c) < 0)
        return -1;
    ds_call_run(c, get_rows, d);
    return 0;
}

/* Steps rows (a dict of our own: id -> chunk), which become their outputs. begun: where not NULL, gets what
 * stands behind the only id if it starts. */
static int step_rows(ds_module *m, ds_stepper *stepper, PyObject *rows, PyObject *starting,
                     PyObject *ending, bool restart, ds_live **begun)
{
    ds_engine_object *e = ds_stepper_engine(stepper);
    dict_step d = {.stepper = stepper};
    int status = -1;
    if (e && ds_call_open(&d.call, m, e, PyDict_GET_SIZE(rows)) == 0) {
        d.call.restart = restart;
        status = run_rows(&d, rows, starting, ending);
        if (status == 0 && begun && d.call.fresh[0])
            *begun = (ds_live *)Py_NewRef((PyObject *)d.call.fresh[0]);
    }
    for (size_t i = 0; d.outputs && i < (size_t)d.call.n * d.call.n_outputs; i++)
        Py_XDECREF(d.outputs[i]);
    Py_XDECREF(d.kept);
    ds_call_close(&d.call);
    return status;
}

PyObject *ds_stepper_step(DS_METHOD_ARGUMENTS)
{
    static const char *const known[] = {"chunks", "sos", "eos", "restart", NULL};
    ds_module *m = ds_module_of(cls);
    PyObject *given[4];
    if (ds_parse_arguments("step", known, given, args, n_args, names) < 0)
        return NULL;
    const int restart = given[3] ? PyObject_IsTrue(given[3]) : 0;
    if (restart < 0)
        return NULL;
    PyObject *rows = !given[0] || given[0] == Py_None ? PyDict_New()
                     : PyDict_CheckExact(given[0])    ? PyDict_Copy(given[0])
                                                      : copy_mapping(given[0]);
    rows = rows ? with_plain_ids(m, rows) : NULL;
    if (!rows)
        return NULL;
    PyObject *starting = add_ids(m, rows, given[1]);
    PyObject *ending = PyErr_Occurred() ? NULL : add_ids(m, rows, given[2]);
    if (PyErr_Occurred() ||
        step_rows(m, (ds_stepper *)self, rows, starting, ending, restart > 0, NULL) < 0)
        Py_CLEAR(rows);
    Py_XDECREF(starting);
    Py_XDECREF(ending);
    return rows;
}

/* ---------------------------------------------------------------- one stream by hand */
typedef struct stream_object {
    PyObject_HEAD PyObject *engine, *id;
    ds_live *live; /* what its first step began; NULL before */
    bool finished;
} stream_object;

static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"engine", "id", NULL};
    ds_module *m = ds_module_of(type);
    PyObject *engine, *id;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Stream", keywords, m->stepper_type, &engine,
                                     &id))
        return NULL;
    stream_object *s = (stream_object *)type->tp_alloc(type, 0);
    if (!s)
        return NULL;
    s->engine = Py_NewRef(engine);
    s->id = Py_NewRef(id);
    return (PyObject *)s;
}

static int stream_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((stream_object *)self)->engine);
    Py_VISIT(((stream_object *)self)->id);
    return 0;
}

static void stream_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    stream_object *s = (stream_object *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(s->engine);
    Py_XDECREF(s->id);
    Py_XDECREF(s->live);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Started and finished are known at once with the step's effect: no Python code comes between. */
static PyObject *advance(ds_module *m, stream_object *s, PyObject *chunk, bool end)
{
    if (s->finished)
        return ds_engine_error(m, DS_STREAM_ID, "the stream has ended", s->id);
    PyObject *id = ds_plain_id(m, s->id), *rows = id ? PyDict_New() : NULL, *out = NULL;
    PyObject *only = rows ? PySet_New(NULL) : NULL;
    if (only && PySet_Add(only, id) == 0 && PyDict_SetItem(rows, id, chunk) == 0 &&
        step_rows(m, (ds_stepper *)s->engine, rows, s->live ? NULL : only, end ? only : NULL, false,
                  s->live ? NULL : &s->live) == 0) {
        s->finished = end;
        out = Py_XNewRef(PyDict_GetItemWithError(rows, id));
    }
    Py_XDECREF(only);
    Py_XDECREF(rows);
    Py_XDECREF(id);
    return out;
}

static PyObject *stream_step(DS_METHOD_ARGUMENTS)
{
    static const char *const known[] = {"chunk", NULL};
    PyObject *chunk;
    if (ds_parse_arguments("step", known, &chunk, args, n_args, names) < 0)
        return NULL;
    if (!chunk)
        return PyErr_Format(PyExc_TypeError,
                            "step() missing 1 required positional argument: 'chunk'");
    return advance(ds_module_of(cls), (stream_object *)self, chunk, false);
}

static PyObject *stream_finish(DS_METHOD_ARGUMENTS)
{
    static const char *const known[] = {"chunk", NULL};
    PyObject *chunk;
    if (ds_parse_arguments("finish", known, &chunk, args, n_args, names) < 0)
        return NULL;
    return advance(ds_module_of(cls), (stream_object *)self, chunk ? chunk : Py_None, true);
}

static PyObject *stream_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* Drops the stream that it began, if that is still live: not another one that has its id by now. */
static PyObject *stream_exit(DS_METHOD_ARGUMENTS)
{
    stream_object *s = (stream_object *)self;
    (void)args;
    (void)n_args;
    (void)names;
    if (!s->live || !s->live->slot)
        Py_RETURN_NONE;
    ds_module *m = ds_module_of(cls);
    PyObject *id = ds_plain_id(m, s->id);
    if (!id)
        return NULL;
    const bool entered = ds_slot_enter(s->live->slot);
    if (entered)
        ds_engine_forget((ds_engine_object *)((ds_stepper *)s->engine)->core, id, s->live);
    else
        ds_engine_error(m, DS_BUSY, "another thread is using the stream", id);
    Py_DECREF(id);
    s->finished |= entered;
    return entered ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef stream_methods[] = {
    DS_METHOD("step", stream_step,
              "step($self, chunk)\n--\n\nAdvance by a chunk and return this call's output frames."),
    DS_METHOD("finish", stream_finish,
              "finish($self, chunk=None)\n--\n\nEnd the stream, with a last chunk or without, and "
              "return its "
              "last output frames."),
    {"__enter__", stream_enter, METH_NOARGS, "Return the stream."},
    DS_METHOD("__exit__", stream_exit, "Drop the stream where it was left unfinished."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stream_members[] = {
    {"engine", T_OBJECT, offsetof(stream_object, engine), READONLY, "The engine."},
    {"id", T_OBJECT, offsetof(stream_object, id), READONLY, "The stream's id."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_new, stream_new},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_traverse, stream_traverse},
    {Py_tp_methods, stream_methods},
    {Py_tp_members, stream_members},
    {Py_tp_doc,
     "One stream of an engine, stepped by hand; leaving the context unfinished drops it."},
    {0, NULL},
};

PyType_Spec ds_stream_spec = {"dreamstream._core.Stream", sizeof(stream_object), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
                              stream_slots};
