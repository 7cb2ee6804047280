/* Steps of arrays that hold all rows: padded ones (Engine.step_batch), or the rows' frames end to end, as
 * stream tensors hold them (_core.Engine.step).
 *
 * The ids of a server's batch are mostly those of the batch before, the same objects: then what stands behind
 * them is remembered, and taken where it is still live. */
#include "python/stepper.h"

/* What callers give besides ids and arrays; NULL where absent. */
enum { LENGTHS, SOS, EOS, OUT, N_OPTIONS };

typedef struct batch_step {
    ds_call call;
    ds_stepper *stepper; /* of padded arrays; NULL: the rows lie end to end */
    PyObject *arrays;    /* tuple: per input an array, or None */
    PyObject **outputs;  /* [output] owned */
    int64_t *most;       /* [output] frames of the longest row */
} batch_step;

/* What `given` says of input k: an item of a tuple or list, or of a dict by name (new reference); NULL where
 * that is nothing, or with an exception. */
static PyObject *of_input(const ds_stepper *s, PyObject *given, Py_ssize_t k, size_t n_inputs)
{
    if (!given || given == Py_None)
        return NULL;
    if (s && PyDict_Check(given))
        return Py_XNewRef(PyDict_GetItemWithError(given, PyTuple_GET_ITEM(s->names, k)));
    if (s && n_inputs == 1)
        return Py_NewRef(given);
    if ((PyTuple_Check(given) || PyList_Check(given)) && (size_t)PySequence_Size(given) == n_inputs)
        return PySequence_GetItem(given, k);
    PyErr_SetString(PyExc_TypeError,
                    "lengths: expected one sequence per input, or a dict of them by name");
    return NULL;
}

/* ---------------------------------------------------------------- ids */
/* Remembers what stands behind the ids of a step that was made; forgets everything where memory is short. */
static void remember(const ds_call *c, PyObject *ids, PyObject *known)
{
    ds_engine_object *e = c->e;
    if (known && !c->any_sos && known == e->last_live)
        return;
    PyObject *live = PyTuple_New(c->n);
    for (Py_ssize_t r = 0; live && r < c->n; r++) {
        ds_live *now = c->fresh[r] ? c->fresh[r] : c->step->ended[r] ? NULL : c->live[r];
        ds_set_item(&live, r, Py_XNewRef((PyObject *)now));
    }
    if (!live)
        PyErr_Clear();
    Py_XSETREF(e->last_ids, live ? Py_NewRef(ids) : NULL);
    Py_XSETREF(e->last_live, live);
}

/* ---------------------------------------------------------------- inputs */
static int check_number(ds_module *m, const ds_engine_object *e, Py_ssize_t n)
{
    const size_t n_inputs = e->engine->plan->graph->n_inputs;
    DS_EXPECT((size_t)n == n_inputs, m->errors[DS_SHAPE],
              "step_batch: expected %zu arrays, in the order of the inputs", n_inputs);
    return 0;
}

/* Puts arrays that the engine can read, or None, into the places of all else in a tuple of our own. Runs Python
 * code. stepper: NULL where there must be none. */
static int read_arrays(ds_module *m, const ds_engine_object *e, ds_stepper *stepper,
                       PyObject *arrays, PyObject *ids)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(arrays); k++) {
        PyObject *item = PyTuple_GET_ITEM(arrays, k);
        if (ds_frames_take(e, (size_t)k, item))
            continue;
        PyObject *made = stepper ? PyObject_CallMethod((PyObject *)stepper, "_array_of", "nON", k,
                                                       item, PyList_AsTuple(ids))
                                 : NULL;
        if (made) {
            PyTuple_SET_ITEM(arrays, k, made);
            Py_DECREF(item);
        }
        DS_EXPECT(PyErr_Occurred() || (made && ds_frames_take(e, (size_t)k, made)),
                  m->errors[DS_DTYPE], "input %zd: expected an array that it takes", k);
        if (!made)
            return -1;
    }
    return 0;
}

static ds_rows rows_of(const ds_axes *p, PyObject **arrays, const ds_signature *signature)
{
    static const int in_order[DS_MAX_RANK + 1] = {0, 1, 2, 3, 4, 5, 6};
    return p ? ds_rows_in(arrays, 0, p) : (ds_rows){arrays, 0, signature->rank + 1, -1, in_order};
}

/* Reads flags and lengths, and where the rows lie; may run Python code. */
static int read_rows(batch_step *b, PyObject *const *options)
{
    ds_call *c = &b->call;
    const ds_stepper *s = b->stepper;
    if (ds_rows_flags(c, "sos", options[SOS], c->sos) < 0 ||
        ds_rows_flags(c, "eos", options[EOS], c->step->ended) < 0)
        return -1;
    for (size_t k = 0; k < c->n_inputs; k++) {
        DS_OWNED PyObject *of = of_input(s, options[LENGTHS], (Py_ssize_t)k, c->n_inputs);
        if (PyErr_Occurred() || ds_rows_lengths(c, k, of) < 0)
            return -1;
        c->in[k] = rows_of(s ? &s->inputs[k] : NULL, &PyTuple_GET_ITEM(b->arrays, (Py_ssize_t)k),
                           ds_step_input(c->e->engine->plan, k));
    }
    for (size_t o = 0; o < c->n_outputs; o++)
        c->out[o] = rows_of(s ? &s->outputs[o] : NULL, b->outputs + o,
                            ds_step_output(c->e->engine->plan, o));
    return 0;
}

/* ---------------------------------------------------------------- outputs */
/* Finds the arrays of a caller's `out`, which has the structure of what forward returns. */
static int find_out(const batch_step *b, PyObject *out)
{
    const Py_ssize_t n = (Py_ssize_t)b->call.n_outputs;
    if (n == 1 && PyLong_Check(b->stepper->structure)) {
        b->outputs[0] = Py_NewRef(out);
        return 0;
    }
    DS_OWNED PyObject *found = PyObject_CallMethod((PyObject *)b->stepper, "_out_of", "(O)", out);
    const bool right = found && PyTuple_Check(found) && PyTuple_GET_SIZE(found) == n;
    for (Py_ssize_t o = 0; right && o < n; o++)
        b->outputs[o] = Py_NewRef(PyTuple_GET_ITEM(found, o));
    DS_EXPECT(right || PyErr_Occurred(), PyExc_TypeError, "_out_of: expected a tuple of arrays");
    return right ? 0 : -1;
}

/* The lengths of an output, and where rows lie end to end the first frames' positions (new reference); makes
 * its array where the caller gave none. */
static PyObject *make_output(batch_step *b, size_t o, bool given)
{
    const ds_call *c = &b->call;
    const ds_rows *rows = &c->out[o];
    const bool is_padded = b->stepper != NULL;
    if (is_padded && rows->batch < 0)
        return PyErr_Format(c->m->errors[DS_SHAPE],
                            "step_batch: output %zu has no dimension B of its own", o);
    npy_intp shape[] = {2, c->n};
    PyObject *lengths = PyArray_SimpleNew(is_padded ? 1 : 2, shape + is_padded, NPY_INT64);
    if (!lengths)
        return NULL;
    int64_t *frames = ds_data(lengths);
    int64_t start, sum = 0, most = 0, least = INT64_MAX;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        int64_t *first = is_padded ? &start : &frames[c->n + r];
        frames[r] = ds_step_frames(c->step, o, (size_t)r, first);
        sum += frames[r];
        most = frames[r] > most ? frames[r] : most;
        least = frames[r] < least ? frames[r] : least;
    }
    b->most[o] = most;
    const bool is_filled = !is_padded || least >= (rows->axis[0] < 0 ? 1 : most);
    if (!given)
        b->outputs[o] = ds_frames_new(c, o, is_padded ? most : sum, !is_filled);
    if (!b->outputs[o])
        Py_CLEAR(lengths);
    return lengths;
}

static PyObject *output_item(const void *items, size_t o)
{
    return Py_NewRef(((PyObject *const *)items)[o]);
}

/* As forward returns them; end to end: a list. */
static PyObject *build(const batch_step *b, PyObject **items)
{
    if (b->stepper)
        return ds_stepper_build(b->stepper->structure, items);
    return ds_build_list(b->call.n_outputs, output_item, items);
}

/* (outputs, lengths) as the step will return them. */
static PyObject *make_result(batch_step *b, PyObject *out)
{
    const size_t n = b->call.n_outputs;
    PyObject *result = NULL, **lengths = ds_call_room(&b->call, n, sizeof *lengths);
    bool made = lengths && (!out || find_out(b, out) == 0);
    for (size_t o = 0; made && o < n; o++) {
        lengths[o] = make_output(b, o, out != NULL);
        made = lengths[o] != NULL;
    }
    DS_OWNED PyObject *values = !made ? NULL : out ? Py_NewRef(out) : build(b, b->outputs);
    DS_OWNED PyObject *counts = values ? build(b, lengths) : NULL;
    if (counts)
        result = PyTuple_Pack(2, values, counts);
    for (size_t o = 0; lengths && o < n; o++)
        Py_XDECREF(lengths[o]);
    return result;
}

/* ---------------------------------------------------------------- the call */
static PyObject *run_batch(batch_step *b, PyObject *ids, PyObject *known, PyObject *const *options)
{
    ds_call *c = &b->call;
    PyObject *out = options[OUT] == Py_None ? NULL : options[OUT];
    for (Py_ssize_t r = 0; r < c->n; r++)
        c->ids[r] = PyList_GET_ITEM(ids, r);
    b->outputs = ds_call_room(c, c->n_outputs, sizeof *b->outputs);
    b->most = ds_call_room(c, c->n_outputs, sizeof *b->most);
    if (!b->outputs || !b->most || read_rows(b, options) < 0 || ds_call_begin(c, known) < 0)
        return NULL;
    PyObject *result = make_result(b, out);
    bool ready = result && ds_call_ready(c) == 0;
    for (size_t o = 0; ready && out && o < c->n_outputs; o++) /* after signals' handlers */
        ready = ds_frames_check_out(c, o, b->most[o]) == 0;
    if (ready) {
        ds_call_run(c);
        remember(c, ids, known);
    } else {
        Py_CLEAR(result);
    }
    return result;
}

/* arrays: a tuple of what came for each input, our own if there is a stepper, or NULL with an exception. */
static PyObject *step_arrays(ds_module *m, ds_engine_object *e, ds_stepper *stepper,
                             PyObject *given_ids, PyObject *arrays, PyObject *const *options,
                             bool restart)
{
    batch_step b = {.stepper = stepper, .arrays = arrays};
    DS_OWNED PyObject *known = NULL;
    PyObject *result = NULL;
    const bool right = arrays && check_number(m, e, PyTuple_GET_SIZE(arrays)) == 0;
    DS_OWNED PyObject *ids = right ? ds_rows_ids(m, e, given_ids, &known) : NULL;
    if (ids && read_arrays(m, e, stepper, arrays, ids) == 0 &&
        ds_call_open(&b.call, m, e, stepper ? stepper->names : NULL, PyList_GET_SIZE(ids)) == 0) {
        b.call.restart = restart;
        result = run_batch(&b, ids, known, options);
    }
    for (size_t o = 0; b.outputs && o < b.call.n_outputs; o++)
        Py_XDECREF(b.outputs[o]);
    ds_call_close(&b.call);
    return result;
}

PyObject *ds_stepper_step_batch(DS_METHOD_ARGUMENTS)
{
    static const char *const known[] = {"lengths", "sos", "eos", "out", NULL};
    ds_module *m = ds_module_of(cls);
    ds_stepper *s = (ds_stepper *)self;
    ds_engine_object *e = ds_stepper_engine(s);
    PyObject *options[N_OPTIONS];
    if (!e || ds_parse_arguments("step_batch", known, options, args + n_args, 0, names) < 0)
        return NULL;
    if (n_args == 0)
        return PyErr_Format(PyExc_TypeError, "step_batch() needs ids");
    DS_OWNED PyObject *arrays = PyTuple_New(n_args - 1);
    for (Py_ssize_t k = 0; arrays && k < n_args - 1; k++)
        PyTuple_SET_ITEM(arrays, k, Py_NewRef(args[k + 1]));
    PyObject *result = step_arrays(m, e, s, args[0], arrays, options, false);
    return options[OUT] && options[OUT] != Py_None ? result
                                                   : ds_stepper_given(self, "_given_batch", result);
}

PyObject *ds_engine_step(PyObject *self, PyObject *args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    ds_engine_object *e = (ds_engine_object *)self;
    PyObject *ids, *values, *options[N_OPTIONS] = {NULL};
    int restart;
    if (!PyArg_ParseTuple(args, "OOOOOp:step", &ids, &options[SOS], &options[EOS], &values,
                          &options[LENGTHS], &restart))
        return NULL;
    DS_OWNED PyObject *arrays = PySequence_Tuple(values);
    return step_arrays(m, e, NULL, ids, arrays, options, restart);
}
