/* Engine.step: dicts of arrays by id, from the caller's to the result in one go. Stream: one id, by hand.
 *
 * The caller's dict is copied at once; its copy becomes the result: arrays that came in are replaced by
 * those that go out. */
#include "python/stepper.h"
#include "structmember.h"

/* ---------------------------------------------------------------- rows */
static bool is_plain(PyObject *rows)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    bool is_plain = PyDict_CheckExact(rows);
    while (is_plain && PyDict_Next(rows, &at, &key, &value))
        is_plain = PyUnicode_CheckExact(key);
    return is_plain;
}

/* The caller's chunks in a dict of our own, by plain ids (new reference). */
static PyObject *copy_rows(ds_stepper *s, PyObject *chunks)
{
    if (!chunks || chunks == Py_None)
        return PyDict_New();
    if (is_plain(chunks))
        return PyDict_Copy(chunks);
    PyObject *rows = PyObject_CallMethod((PyObject *)s, "_rows_of", "O", chunks);
    if (rows && !is_plain(rows)) {
        PyErr_SetString(PyExc_TypeError, "_rows_of: expected a dict by plain ids");
        Py_CLEAR(rows);
    }
    return rows;
}

/* Adds ids as rows without chunks; returns them, NULL where there are none or with an exception. */
static PyObject *add_ids(ds_module *m, PyObject *rows, PyObject *given)
{
    if (!given || (PyTuple_CheckExact(given) && PyTuple_GET_SIZE(given) == 0))
        return NULL;
    PyObject *ids = ds_plain_ids(m, given);
    for (Py_ssize_t i = 0; ids && i < PyList_GET_SIZE(ids); i++)
        if (!PyDict_SetDefault(rows, PyList_GET_ITEM(ids, i), Py_None))
            Py_CLEAR(ids);
    return ids;
}

/* ---------------------------------------------------------------- chunks */
typedef struct dict_step {
    ds_call call;
    ds_stepper *stepper;
    PyObject **arrays;  /* [row][input] borrowed: arrays, or None */
    PyObject *kept;     /* list: what was made of other things than arrays */
    PyObject **outputs; /* [row][output] owned */
} dict_step;

/* Takes the row's arrays where they are ready: an array alone, or a plain dict of them by name. */
static bool take_arrays(const dict_step *d, PyObject *given, PyObject **arrays)
{
    const ds_engine_object *e = d->call.e;
    const Py_ssize_t n_inputs = (Py_ssize_t)d->call.n_inputs;
    if (given == Py_None || (n_inputs == 1 && ds_frames_take(e, 0, given))) {
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
        if (!ds_frames_take(e, (size_t)k, arrays[k]) || PyList_Append(d->kept, arrays[k]) < 0)
            return false;
    }
    return n_found == PyDict_GET_SIZE(given) && !PyErr_Occurred();
}

/* Asks Python for the row's arrays, and keeps them. */
static int keep_arrays(dict_step *d, PyObject *id, PyObject *given, PyObject **arrays)
{
    if (PyErr_Occurred())
        return -1;
    DS_OWNED PyObject *made =
        PyObject_CallMethod((PyObject *)d->stepper, "_arrays_of", "OO", id, given);
    DS_OWNED PyObject *items = made ? PySequence_Tuple(made) : NULL;
    bool right = items && PyTuple_GET_SIZE(items) == (Py_ssize_t)d->call.n_inputs &&
                 PyList_Append(d->kept, items) == 0;
    for (Py_ssize_t k = 0; right && k < PyTuple_GET_SIZE(items); k++) {
        arrays[k] = PyTuple_GET_ITEM(items, k);
        right = ds_frames_take(d->call.e, (size_t)k, arrays[k]);
    }
    if (!right && !PyErr_Occurred())
        ds_engine_error(d->call.m, ds_fail(DS_DTYPE, "expected a NumPy array per input"), id);
    return right ? 0 : -1;
}

/* Fills the call's ids and flags, and the rows' arrays. May run Python code. */
static int read_rows(dict_step *d, PyObject *rows, PyObject *starting, PyObject *ending)
{
    ds_call *c = &d->call;
    PyObject *id, *given;
    Py_ssize_t at = 0;
    for (Py_ssize_t r = 0; PyDict_Next(rows, &at, &id, &given); r++) {
        c->ids[r] = id;
        PyObject **arrays = &d->arrays[r * (Py_ssize_t)c->n_inputs];
        if (!take_arrays(d, given, arrays) && keep_arrays(d, id, given, arrays) < 0 &&
            !ds_call_collect(c, r))
            return -1;
    }
    if (ds_call_collected(c) < 0)
        return -1;
    for (size_t k = 0; k < c->n_inputs; k++)
        c->in[k] = ds_rows_in(d->arrays + k, c->n_inputs, &d->stepper->inputs[c->n_inputs + k]);
    for (size_t o = 0; o < c->n_outputs; o++)
        c->out[o] =
            ds_rows_in(d->outputs + o, c->n_outputs, &d->stepper->outputs[c->n_outputs + o]);
    return (starting && ds_rows_mark(c, starting, c->sos) < 0) ||
                   (ending && ds_rows_mark(c, ending, c->step->ended) < 0)
               ? -1
               : 0;
}

/* ---------------------------------------------------------------- the call */
/* Makes the outputs, and puts them into the places of the chunks. */
static int replace_chunks(const dict_step *d, PyObject *rows)
{
    const ds_call *c = &d->call;
    PyObject *structure = d->stepper->structure;
    const bool is_single = PyLong_Check(structure);
    for (Py_ssize_t r = 0; r < c->n; r++) {
        PyObject **outputs = d->outputs + (size_t)r * c->n_outputs;
        for (size_t o = 0; o < c->n_outputs; o++) {
            int64_t start;
            const int64_t frames = ds_step_frames(c->step, o, (size_t)r, &start);
            outputs[o] = ds_frames_new(c, o, frames, false);
            if (!outputs[o])
                return -1;
        }
        DS_OWNED PyObject *item =
            is_single ? Py_NewRef(outputs[0]) : ds_stepper_build(structure, outputs);
        if (!item || PyDict_SetItem(rows, c->ids[r], item) < 0)
            return -1;
    }
    return 0;
}

/* Steps rows (a dict of our own: id -> chunk), which become their outputs. begun: where not NULL, gets what
 * stands behind the only id if it starts. */
static int step_rows(ds_module *m, ds_stepper *stepper, PyObject *rows, PyObject *starting,
                     PyObject *ending, bool restart, ds_live **begun)
{
    ds_engine_object *e = ds_stepper_engine(stepper);
    dict_step d = {.stepper = stepper};
    ds_call *c = &d.call;
    bool ran = false;
    if (e && ds_call_open(c, m, e, stepper->names, PyDict_GET_SIZE(rows)) == 0) {
        c->restart = restart;
        d.arrays = ds_call_room(c, (size_t)c->n * c->n_inputs, sizeof *d.arrays);
        d.outputs = ds_call_room(c, (size_t)c->n * c->n_outputs, sizeof *d.outputs);
        d.kept = PyList_New(0);
        ran = d.arrays && d.outputs && d.kept && read_rows(&d, rows, starting, ending) == 0 &&
              ds_call_begin(c, NULL) == 0 && replace_chunks(&d, rows) == 0 && ds_call_ready(c) == 0;
    }
    if (ran)
        ds_call_run(c);
    if (ran && begun && c->fresh[0])
        *begun = (ds_live *)Py_NewRef((PyObject *)c->fresh[0]);
    for (size_t i = 0; d.outputs && i < (size_t)c->n * c->n_outputs; i++)
        Py_XDECREF(d.outputs[i]);
    Py_XDECREF(d.kept);
    ds_call_close(c);
    return ran ? 0 : -1;
}

PyObject *ds_stepper_step(DS_METHOD_ARGUMENTS)
{
    static const char *const known[] = {"chunks", "sos", "eos", "restart", NULL};
    ds_module *m = ds_module_of(cls);
    PyObject *given[4];
    if (ds_parse_arguments("step", known, given, args, n_args, names) < 0)
        return NULL;
    const int restart = given[3] ? PyObject_IsTrue(given[3]) : 0;
    PyObject *rows = restart < 0 ? NULL : copy_rows((ds_stepper *)self, given[0]);
    DS_OWNED PyObject *starting = rows ? add_ids(m, rows, given[1]) : NULL;
    DS_OWNED PyObject *ending = PyErr_Occurred() ? NULL : add_ids(m, rows, given[2]);
    if (PyErr_Occurred() ||
        step_rows(m, (ds_stepper *)self, rows, starting, ending, restart > 0, NULL) < 0)
        Py_CLEAR(rows);
    return ds_stepper_given(self, "_given", rows);
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
    stream_object *s = (stream_object *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(s->engine);
    Py_XDECREF(s->id);
    Py_XDECREF(s->live);
    ds_free_object(self);
}

/* Started and finished are known at once with the step's effect: no Python code comes between. */
static PyObject *advance(PyObject *self, const char *name, bool end, PyObject *const *args,
                         Py_ssize_t n_args, PyObject *names)
{
    static const char *const known[] = {"chunk", NULL};
    ds_module *m = ds_module_of(Py_TYPE(self));
    stream_object *s = (stream_object *)self;
    PyObject *chunk, *out = NULL;
    if (ds_parse_arguments(name, known, &chunk, args, n_args, names) < 0)
        return NULL;
    if (!chunk && !end)
        return PyErr_Format(PyExc_TypeError,
                            "step() missing 1 required positional argument: 'chunk'");
    if (s->finished)
        return ds_engine_error(m, ds_fail(DS_STREAM_ID, "the stream has ended"), s->id);
    DS_OWNED PyObject *id = ds_plain_id(m, s->id), *ids = id ? Py_BuildValue("[O]", id) : NULL;
    DS_OWNED PyObject *rows = ids ? PyDict_New() : NULL;
    if (rows && PyDict_SetItem(rows, id, chunk ? chunk : Py_None) == 0 &&
        step_rows(m, (ds_stepper *)s->engine, rows, s->live ? NULL : ids, end ? ids : NULL, false,
                  s->live ? NULL : &s->live) == 0) {
        s->finished = end;
        out = Py_XNewRef(PyDict_GetItemWithError(rows, id));
    }
    return ds_stepper_given(s->engine, "_given", out);
}

static PyObject *stream_step(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names)
{
    return advance(self, "step", false, args, n_args, names);
}

static PyObject *stream_finish(PyObject *self, PyObject *const *args, Py_ssize_t n_args,
                               PyObject *names)
{
    return advance(self, "finish", true, args, n_args, names);
}

static PyObject *stream_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(self);
}

/* Drops the stream that it began, if that is still live: not another one that has its id by now. */
static PyObject *stream_exit(PyObject *self, PyObject *Py_UNUSED(unused))
{
    stream_object *s = (stream_object *)self;
    ds_module *m = ds_module_of(Py_TYPE(self));
    if (!s->live || !s->live->slot)
        Py_RETURN_NONE;
    DS_OWNED PyObject *id = ds_plain_id(m, s->id);
    if (!id || !ds_live_enter(m, s->live, id))
        return NULL;
    ds_engine_forget((ds_engine_object *)((ds_stepper *)s->engine)->core, id, s->live);
    s->finished = true;
    Py_RETURN_NONE;
}

#define WITH_NAMES(function) (PyCFunction)(void (*)(void)) function, METH_FASTCALL | METH_KEYWORDS

static PyMethodDef stream_methods[] = {
    {"step", WITH_NAMES(stream_step),
     "step($self, chunk)\n--\n\nAdvance by a chunk and return this call's output frames."},
    {"finish", WITH_NAMES(stream_finish),
     "finish($self, chunk=None)\n--\n\n"
     "End the stream, with a last chunk or without, and return its last output frames."},
    {"__enter__", stream_enter, METH_NOARGS, "Return the stream."},
    {"__exit__", stream_exit, METH_VARARGS, "Drop the stream where it was left unfinished."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef stream_members[] = {
    {"engine", T_OBJECT, offsetof(stream_object, engine), READONLY, "The engine."},
    {"id", T_OBJECT, offsetof(stream_object, id), READONLY, "The stream's id."},
    {NULL, 0, 0, 0, NULL},
};

DS_SPEC(stream, "Stream", stream_object, Py_TPFLAGS_HAVE_GC,
        "One stream of an engine, stepped by hand; leaving the context unfinished drops it.",
        {Py_tp_new, stream_new}, {Py_tp_dealloc, stream_dealloc}, {Py_tp_traverse, stream_traverse},
        {Py_tp_methods, stream_methods}, {Py_tp_members, stream_members});
