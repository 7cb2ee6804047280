/* _core.Op.run: one operator for a ragged batch, its states as immutable bytes.
 *
 * New states are new objects; the old ones are only read, so whoever still holds them can go back. */
#include <string.h>

#include "python/op.h"

/* What one run borrows and owns. */
typedef struct call {
    ds_module *m;
    const ds_op *op;
    ds_eager eager;
    const ds_counts *in[DS_MAX_INPUTS], *out[DS_MAX_OUTPUTS];
    const void *values[DS_MAX_INPUTS], *weights[DS_MAX_WEIGHTS];
    void *outputs[DS_MAX_OUTPUTS];
    const void **states;  /* [n_rows] */
    void **new_states;    /* [n_rows] */
    bool *bad;            /* [n_rows] */
    PyObject *kept;       /* prepared weights, taken for this run; NULL: none are kept */
    PyObject *flat;       /* list: keeps flattened states alive */
    PyObject *old, *news; /* list of states before (borrowed), of states after (owned) */
    Py_ssize_t n_rows;
} call;

/* Lays the segments of a growing state end to end; new reference. */
static PyObject *flatten(PyObject *state)
{
    if (PyBytes_Check(state))
        return Py_NewRef(state);
    Py_ssize_t n_bytes = 0;
    PyObject *s = state;
    for (; PyTuple_Check(s); s = PyTuple_GET_ITEM(s, 0))
        n_bytes += PyBytes_GET_SIZE(PyTuple_GET_ITEM(s, 1));
    n_bytes += PyBytes_Check(s) ? PyBytes_GET_SIZE(s) : 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, n_bytes);
    if (!bytes)
        return NULL;
    char *end = PyBytes_AS_STRING(bytes) + n_bytes;
    for (s = state; PyTuple_Check(s); s = PyTuple_GET_ITEM(s, 0)) {
        Py_ssize_t n = PyBytes_GET_SIZE(PyTuple_GET_ITEM(s, 1));
        memcpy(end -= n, PyBytes_AS_STRING(PyTuple_GET_ITEM(s, 1)), (size_t)n);
    }
    if (PyBytes_Check(s))
        memcpy(PyBytes_AS_STRING(bytes), PyBytes_AS_STRING(s), (size_t)PyBytes_GET_SIZE(s));
    return bytes;
}

static Py_ssize_t state_length(PyObject *state)
{
    Py_ssize_t n = 0;
    for (; PyTuple_Check(state); state = PyTuple_GET_ITEM(state, 0)) {
        if (PyTuple_GET_SIZE(state) != 2 || !PyBytes_Check(PyTuple_GET_ITEM(state, 1)))
            return -1;
        n += PyBytes_GET_SIZE(PyTuple_GET_ITEM(state, 1));
    }
    return state == Py_None ? n : PyBytes_Check(state) ? n + PyBytes_GET_SIZE(state) : -1;
}

static int parse_values(call *c, PyObject *values)
{
    int n = ds_op_n_values(c->op);
    if ((!PyList_Check(values) && !PyTuple_Check(values)) || PySequence_Fast_GET_SIZE(values) < n) {
        PyErr_Format(PyExc_TypeError, "%s: expected %d values", c->op->def->name, n);
        return -1;
    }
    for (int i = 0; i < n; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(values, i);
        PyArrayObject *array = (PyArrayObject *)item;
        const ds_signature *s = &c->op->in[i];
        int64_t frames = 0;
        for (Py_ssize_t r = 0; r < c->n_rows; r++)
            frames += c->in[i][r].now.known - c->in[i][r].before.known;
        bool fits = PyArray_Check(item) && PyArray_ISCARRAY_RO(array) &&
                    PyArray_TYPE(array) == ds_numpy_type(s->dtype) &&
                    PyArray_NDIM(array) == s->rank + 1 && PyArray_DIM(array, 0) == frames;
        for (int d = 0; fits && d < s->rank; d++)
            fits = PyArray_DIM(array, d + 1) == s->shape[d];
        if (!fits) {
            PyErr_Format(c->m->errors[DS_SHAPE],
                         "%s: value %d does not fit its signature and counts", c->op->def->name, i);
            return -1;
        }
        c->values[i] = PyArray_DATA(array);
    }
    return 0;
}

static int parse_weights(call *c, PyObject *weights)
{
    ds_signature signatures[DS_MAX_WEIGHTS];
    size_t n;
    PyObject *kept = ds_parse_weights(c->m, c->op->def, weights, signatures, c->weights, &n);
    if (!kept)
        return -1;
    Py_DECREF(kept); /* it is the caller's tuple */
    bool same = (int)n == c->op->n_weights;
    for (size_t i = 0; same && i < n; i++) {
        const ds_signature *w = &c->op->weight[i];
        same = signatures[i].dtype == w->dtype &&
               (!w->dtype || ds_signature_same_shape(&signatures[i], w));
    }
    if (!same)
        PyErr_Format(c->m->errors[DS_SHAPE], "%s: the weights are not those it was made for",
                     c->op->def->name);
    return same ? 0 : -1;
}

static int state_bytes(call *c, Py_ssize_t r, bool now, size_t *n_bytes)
{
    ds_pair in[DS_MAX_INPUTS];
    for (int i = 0; i < c->op->n_inputs; i++)
        in[i] = now ? c->in[i][r].now : c->in[i][r].before;
    ds_status status =
        ds_eager_state_bytes(c->op, in, now ? c->out[0][r].now : c->out[0][r].before, n_bytes);
    if (status == DS_OK)
        return 0;
    ds_raise(c->m, status, NULL);
    return -1;
}

/* Whether the row only adds frames to what it keeps: then its state is a new segment. */
static bool only_grows(const call *c, Py_ssize_t r)
{
    const ds_op *op = c->op;
    if (op->n_carried || ds_op_n_values(op) != 1 ||
        c->out[0][r].now.known != c->out[0][r].before.known)
        return false;
    const ds_counts *in = &c->in[0][r];
    int64_t from = ds_eager_kept_from(op, 0, in->before, c->out[0][r].before);
    return from == ds_eager_kept_from(op, 0, in->now, c->out[0][r].now);
}

/* The state after a call in which row r only kept more: a segment on top of the old state. */
static PyObject *grown_state(const call *c, Py_ssize_t r, PyObject *old, const char *fresh)
{
    size_t n_bytes = (size_t)(c->in[0][r].now.known - c->in[0][r].before.known) *
                     ds_signature_bytes(&c->op->in[0]);
    if (!n_bytes)
        return Py_NewRef(old);
    PyObject *segment = PyBytes_FromStringAndSize(fresh, (Py_ssize_t)n_bytes);
    if (!segment || old == Py_None)
        return segment;
    PyObject *state = PyTuple_Pack(2, old, segment);
    Py_DECREF(segment);
    return state;
}

/* Makes row r's state before readable in one piece; fails where its size is not what the counts say. */
static int read_state(call *c, Py_ssize_t r, PyObject *old)
{
    size_t expected;
    Py_ssize_t length = state_length(old);
    if (state_bytes(c, r, false, &expected) < 0)
        return -1;
    bool started = c->in[0][r].before.total != 0;
    if (length != (Py_ssize_t)expected && (length != 0 || started)) {
        PyErr_Format(c->m->errors[DS_INTERNAL], "%s: row %zd has %zd bytes of state, not %zu",
                     c->op->def->name, r, length, expected);
        return -1;
    }
    if (old == Py_None)
        return 0;
    PyObject *flat = flatten(old);
    int status = flat ? PyList_Append(c->flat, flat) : -1;
    c->states[r] = flat ? PyBytes_AS_STRING(flat) : NULL; /* kept alive by the list */
    Py_XDECREF(flat);
    return status;
}

/* Reads every row's state before and makes room for the state after. A row that only keeps its new
 * frames needs neither: they become a segment on top of the old state. */
static int prepare_states(call *c, const bool *ended)
{
    const char *fresh = c->values[0];
    for (Py_ssize_t r = 0; r < c->n_rows; r++) {
        PyObject *old = c->old ? PyList_GET_ITEM(c->old, r) : Py_None, *state;
        bool grows = ds_op_n_values(c->op) > 0 && !ended[r] && only_grows(c, r);
        size_t now;
        if (state_bytes(c, r, true, &now) < 0 || (!grows && read_state(c, r, old) < 0))
            return -1;
        if (ended[r] || !now)
            state = Py_NewRef(Py_None);
        else if (grows)
            state = grown_state(c, r, old, fresh);
        else
            state = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)now);
        if (!state)
            return -1;
        PyList_SET_ITEM(c->news, r, state);
        if (!grows && state != Py_None)
            c->new_states[r] = PyBytes_AS_STRING(state);
        if (fresh)
            fresh += (size_t)(c->in[0][r].now.known - c->in[0][r].before.known) *
                     ds_signature_bytes(&c->op->in[0]);
    }
    return 0;
}

static PyObject *make_outputs(call *c)
{
    PyObject *list = PyList_New(c->op->n_outputs);
    for (int o = 0; list && o < c->op->n_outputs; o++) {
        const ds_signature *s = &c->op->out[o];
        npy_intp shape[DS_MAX_RANK + 1] = {0};
        for (Py_ssize_t r = 0; r < c->n_rows; r++)
            shape[0] += c->out[o][r].now.known - c->out[o][r].before.known;
        for (int d = 0; d < s->rank; d++)
            shape[d + 1] = s->shape[d];
        PyObject *array = PyArray_SimpleNew(s->rank + 1, shape, ds_numpy_type(s->dtype));
        if (!array) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, o, array);
        c->outputs[o] = PyArray_DATA((PyArrayObject *)array);
    }
    return list;
}

/* Work below which releasing the GIL costs more than it gives. */
enum { SMALL_WORK_BYTES = 1 << 16 };

static ds_status run_values(call *c, ds_arena *arena)
{
    if (c->kept)
        c->eager.prepared = ds_prepared_refresh(c->kept, c->eager.kernels, c->weights);
    return ds_eager_run(&c->eager, arena);
}

static ds_status run_eager(call *c, ds_arena *arena, PyObject *outputs)
{
    size_t n_bytes = 0;
    for (int o = 0; o < c->op->n_outputs; o++)
        n_bytes += (size_t)PyArray_NBYTES((PyArrayObject *)PyList_GET_ITEM(outputs, o));
    for (int i = 0; i < c->op->n_weights; i++)
        n_bytes += c->op->weight[i].dtype ? ds_signature_bytes(&c->op->weight[i]) : 0;
    if (n_bytes < SMALL_WORK_BYTES)
        return run_values(c, arena);
    ds_status status;
    char message[DS_MESSAGE_BYTES] = "";
    Py_BEGIN_ALLOW_THREADS status = run_values(c, arena);
    if (status != DS_OK)
        strncpy(message, ds_last_error(), sizeof message - 1);
    Py_END_ALLOW_THREADS return status == DS_OK ? DS_OK : ds_fail(status, "%s", message);
}

static PyObject *run_call(call *c, PyObject *const *args, const bool *ended, int blas,
                          PyObject *ids)
{
    PyObject *result = NULL, *outputs = NULL, *bad_ids = NULL;
    ds_arena *arena = NULL;
    if (parse_values(c, args[0]) < 0 || parse_weights(c, args[5]) < 0)
        return NULL;
    c->old = args[4] == Py_None ? NULL : args[4];
    if (c->old && (!PyList_Check(c->old) || PyList_GET_SIZE(c->old) != c->n_rows)) {
        PyErr_Format(PyExc_TypeError, "%s: states must be a list, one per row", c->op->def->name);
        return NULL;
    }
    size_t n = (size_t)c->n_rows + 1;
    c->states = PyMem_Calloc(n, sizeof *c->states);
    c->new_states = PyMem_Calloc(n, sizeof *c->new_states);
    c->bad = PyMem_Calloc(n, sizeof *c->bad);
    c->flat = PyList_New(0);
    c->news = PyList_New(c->n_rows);
    if (!c->states || !c->new_states || !c->bad || !c->flat || !c->news) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        goto done;
    }
    outputs = prepare_states(c, ended) < 0 ? NULL : make_outputs(c);
    arena = outputs ? ds_take_arena(c->m) : NULL;
    if (!arena)
        goto done;
    c->eager =
        (ds_eager){.op = c->op,
                   .n_rows = (size_t)c->n_rows,
                   .in = c->in,
                   .out = c->out,
                   .kernels = blas && c->m->blas_kernels ? c->m->blas_kernels : c->m->kernels,
                   .ended = ended,
                   .values = c->values,
                   .weights = c->weights,
                   .states = c->states,
                   .outputs = c->outputs,
                   .new_states = c->new_states,
                   .bad = c->bad};
    ds_status status = run_eager(c, arena, outputs);
    ds_give_arena(c->m, arena);
    if (status == DS_OK) {
        result = PyTuple_Pack(2, outputs, c->news);
    } else {
        bad_ids = ids ? ds_bad_ids(ids, c->bad, c->n_rows) : NULL;
        if (!PyErr_Occurred())
            ds_raise(c->m, status, bad_ids);
    }
done:
    Py_XDECREF(bad_ids);
    PyMem_Free(c->bad);
    PyMem_Free(c->states);
    PyMem_Free(c->new_states);
    Py_XDECREF(c->flat);
    Py_XDECREF(c->news);
    Py_XDECREF(outputs);
    return result;
}

PyObject *ds_op_object_run(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                           Py_ssize_t n_args, PyObject *names)
{
    call c = {.m = ds_module_of(cls), .op = ((ds_op_object *)self)->op, .n_rows = -1};
    if (n_args < 7 || n_args > 9 || names || !c.op->def->forward) {
        PyErr_SetString(PyExc_TypeError,
                        c.op->def->forward
                            ? "run(values, inputs, outputs, ended, states, weights, blas, "
                              "ids=(), prepared=None)"
                            : "a declared operator's values are not computed here");
        return NULL;
    }
    if (ds_parse_counts(c.m, c.op, args[1], c.op->n_inputs, c.in, &c.n_rows) < 0 ||
        ds_parse_counts(c.m, c.op, args[2], c.op->n_outputs, c.out, &c.n_rows) < 0)
        return NULL;
    const bool *ended = ds_parse_ended(c.m, args[3], c.n_rows);
    int blas = PyObject_IsTrue(args[6]);
    PyObject *ids = n_args > 7 ? args[7] : NULL;
    if (!ended || blas < 0 || !ds_have_kernels(c.m))
        return NULL;
    c.kept =
        n_args > 8 && c.op->def->prepare && ds_prepared_take(c.m, args[8], self) ? args[8] : NULL;
    /* Values and weights stay while they are used, whatever becomes of the caller's sequences. */
    PyObject *values = PySequence_Tuple(args[0]),
             *weights = values ? PySequence_Tuple(args[5]) : NULL;
    PyObject *const held[] = {values, args[1], args[2], args[3], args[4], weights};
    PyObject *result = weights ? run_call(&c, held, ended, blas, ids) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(weights);
    if (c.kept)
        ds_prepared_give(c.kept);
    return result;
}
