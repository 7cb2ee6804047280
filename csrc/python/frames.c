/* The frames of a call in its callers' arrays: counted, copied in, copied out. */
#include "python/call.h"

/* ---------------------------------------------------------------- what there is */
bool ds_frames_take(const ds_engine_object *e, size_t k, PyObject *given)
{
    if (given == Py_None)
        return true;
    PyArrayObject *a = (PyArrayObject *)given;
    const ds_element element = PyArray_CheckExact(given) ? ds_element_of(a) : 0;
    const ds_signature *signature = ds_step_input(e->engine->plan, k);
    const bool is_number = element == DS_ELEMENT_I16 && ds_is_real(signature->dtype) &&
                           signature->rate.num == 0; /* given once: no sample */
    return element && element != DS_ELEMENT_U64 && !is_number && PyArray_ISNOTSWAPPED(a) &&
           ds_layout_fits(signature, element);
}

static bool fits(const ds_call *c, const ds_rows *rows, const ds_signature *signature,
                 PyArrayObject *a)
{
    bool fits =
        PyArray_NDIM(a) == rows->rank && (rows->batch < 0 || PyArray_DIM(a, rows->batch) == c->n);
    for (int d = 0; fits && d < signature->rank; d++)
        fits = PyArray_DIM(a, rows->axis[d + 1]) == signature->shape[d];
    return fits;
}

/* Along the axis L; 1 without one. */
static int64_t frames_along(const ds_rows *rows, PyArrayObject *a)
{
    return rows->axis[0] >= 0 ? PyArray_DIM(a, rows->axis[0]) : 1;
}

/* Writes the shape of arrays with these rows, as (16, L). */
static void write_shape(const ds_call *c, const ds_rows *rows, const ds_signature *signature,
                        char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < rows->rank; i++) {
        const char *before = i ? ", " : "(", *after = i + 1 < rows->rank ? "" : i ? ")" : ",)";
        long long extent = c->n;
        for (int d = 0; d < signature->rank; d++)
            extent = rows->axis[d + 1] == i ? signature->shape[d] : extent;
        const int more = rows->axis[0] == i
                             ? snprintf(text + n, size - n, "%sL%s", before, after)
                             : snprintf(text + n, size - n, "%s%lld%s", before, extent, after);
        n += n + (size_t)more < size ? (size_t)more : 0;
    }
}

/* What helps with an array that is refused, or nothing. */
static const char *advice(ds_status status, const ds_rows *rows, const ds_signature *signature,
                          PyArrayObject *a)
{
    const bool flat = rows->rank == 2 && rows->batch < 0 && signature->rank == 1;
    if (status == DS_SHAPE && flat && PyArray_NDIM(a) == 2 &&
        PyArray_DIM(a, rows->axis[0]) == signature->shape[0])
        return "; its transpose fits, chunk.T";
    if (status == DS_SHAPE && rows->batch < 0 && PyArray_NDIM(a) == rows->rank + 1 &&
        PyArray_DIM(a, 0) == 1)
        return "; a chunk is of one stream, without the batch: chunk[0]";
    return "";
}

/* Always -1. what: the input or output (stolen; NULL with an exception). id: of the row whose array it is, or
 * NULL. */
static int refuse_array(const ds_call *c, ds_status status, PyObject *what, const ds_rows *rows,
                        const ds_signature *signature, PyArrayObject *a, PyObject *id)
{
    char expected[128];
    write_shape(c, rows, signature, expected, sizeof expected);
    DS_OWNED PyObject *shape =
        what ? PyArray_IntTupleFromIntp(PyArray_NDIM(a), PyArray_DIMS(a)) : NULL;
    DS_OWNED PyObject *text =
        shape
            ? PyUnicode_FromFormat("%U: expected an array of shape %s and type %s, got %S and %S%s",
                                   what, expected, ds_dtype_name(signature->dtype), shape,
                                   PyArray_DESCR(a), advice(status, rows, signature, a))
            : NULL;
    if (text)
        ds_engine_error(c->m, ds_fail(status, "%s", PyUnicode_AsUTF8(text)), id);
    Py_XDECREF(what);
    return -1;
}

static int refuse_input(const ds_call *c, ds_status status, size_t k, PyArrayObject *a,
                        PyObject *id)
{
    PyObject *what = c->names ? PyUnicode_FromFormat("input %U", PyTuple_GET_ITEM(c->names, k))
                              : PyUnicode_FromFormat("input %zu", k);
    return refuse_array(c, status, what, &c->in[k], ds_step_input(c->e->engine->plan, k), a, id);
}

static int refuse_output(const ds_call *c, ds_status status, size_t k, PyArrayObject *a)
{
    return refuse_array(c, status, PyUnicode_FromFormat("out: output %zu", k), &c->out[k],
                        ds_step_output(c->e->engine->plan, k), a, NULL);
}

/* The frames of an input's array; -1 with an exception. */
static int64_t count_frames(const ds_call *c, size_t k, PyObject *array, PyObject *id)
{
    const ds_signature *signature = ds_step_input(c->e->engine->plan, k);
    PyArrayObject *a = (PyArrayObject *)array;
    if (array == Py_None)
        return 0;
    if (!ds_frames_take(c->e, k, array)) /* Python code that ran meanwhile has changed its type */
        return refuse_input(c, DS_DTYPE, k, a, id);
    if (!fits(c, &c->in[k], signature, a))
        return refuse_input(c, DS_SHAPE, k, a, id);
    return frames_along(&c->in[k], a);
}

/* The rows of one array: as long as the caller said, or all as it; end to end they fill it. What is given once
 * comes with the start. */
static int measure_rows(ds_call *c, size_t k)
{
    const ds_rows *rows = &c->in[k];
    int64_t *n_frames = c->step->n_frames + k * (size_t)c->n, sum = 0;
    const int64_t most = count_frames(c, k, rows->arrays[0], NULL);
    const ds_plan *plan = c->e->engine->plan;
    const bool given = plan->graph->edges[plan->graph->inputs[k]].given;
    bool bad = false, whole = true;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        if (n_frames[r] < 0)
            n_frames[r] = !given || c->sos[r] ? most : 0;
        c->step->bad[r] = n_frames[r] > most;
        bad |= c->step->bad[r];
        whole = whole && !__builtin_add_overflow(sum, n_frames[r], &sum);
    }
    if (most < 0)
        return -1;
    if (bad)
        return ds_call_refuse(
            c, ds_fail(DS_SHAPE, "lengths must be from 0 to the array's %lld", (long long)most));
    DS_EXPECT(rows->batch >= 0 || (whole && sum == most), c->m->errors[DS_SHAPE],
              "input %zu: the frames are not those of the rows", k);
    return 0;
}

int ds_frames_measure(ds_call *c)
{
    for (size_t k = 0; k < c->n_inputs; k++) {
        const ds_rows *rows = &c->in[k];
        if (!rows->next && measure_rows(c, k) < 0)
            return -1;
        for (Py_ssize_t r = 0; rows->next && r < c->n; r++) {
            const int64_t frames =
                count_frames(c, k, rows->arrays[(size_t)r * rows->next], c->ids[r]);
            if (frames < 0 && !ds_call_collect(c, r))
                return -1;
            c->step->n_frames[k * (size_t)c->n + (size_t)r] = frames;
        }
    }
    return ds_call_collected(c);
}

/* ---------------------------------------------------------------- copies */
/* Copies the rows of an input into the step, or those of an output out of it. */
static void copy_rows(const ds_call *c, const ds_rows *rows, size_t k, bool out)
{
    const int rank =
        (out ? ds_step_output(c->e->engine->plan, k) : ds_step_input(c->e->engine->plan, k))->rank;
    ptrdiff_t strides[DS_MAX_RANK + 1];
    char *at = NULL;
    for (size_t r = 0; r < (size_t)c->n; r++) {
        PyArrayObject *a = (PyArrayObject *)rows->arrays[r * rows->next];
        if ((PyObject *)a == Py_None)
            continue;
        if (!at || rows->next) {
            at = PyArray_BYTES(a);
            for (int d = 0; d <= rank; d++)
                strides[d] = rows->axis[d] >= 0 ? PyArray_STRIDE(a, rows->axis[d]) : 0;
        }
        int64_t n, start;
        if (out) {
            n = ds_step_frames(c->step, k, r, &start);
            ds_step_get(c->step, k, r, n, at, strides);
        } else {
            n = c->step->n_frames[k * (size_t)c->n + r];
            ds_step_put(c->step, k, r, at, strides, ds_element_of(a));
        }
        at += rows->batch >= 0 ? PyArray_STRIDE(a, rows->batch) : n * strides[0];
    }
}

void ds_frames_put(const ds_call *c)
{
    for (size_t k = 0; k < c->n_inputs; k++)
        copy_rows(c, &c->in[k], k, false);
}

void ds_frames_get(const ds_call *c)
{
    for (size_t o = 0; o < c->n_outputs; o++)
        copy_rows(c, &c->out[o], o, true);
}

/* ---------------------------------------------------------------- outputs */
PyObject *ds_frames_new(const ds_call *c, size_t output, int64_t frames, bool zeroed)
{
    const ds_signature *signature = ds_step_output(c->e->engine->plan, output);
    const ds_rows *rows = &c->out[output];
    npy_intp shape[DS_MAX_RANK + 2];
    if (rows->batch >= 0)
        shape[rows->batch] = c->n;
    if (rows->axis[0] >= 0)
        shape[rows->axis[0]] = frames;
    for (int d = 0; d < signature->rank; d++)
        shape[rows->axis[d + 1]] = signature->shape[d];
    PyArray_Descr *type = PyArray_DescrFromType(ds_numpy_type(signature->dtype));
    return zeroed
               ? PyArray_Zeros(rows->rank, shape, type, 0)
               : PyArray_NewFromDescr(&PyArray_Type, type, rows->rank, shape, NULL, NULL, 0, NULL);
}

int ds_frames_check_out(const ds_call *c, size_t output, int64_t frames)
{
    const ds_signature *signature = ds_step_output(c->e->engine->plan, output);
    const ds_rows *rows = &c->out[output];
    PyArrayObject *a = (PyArrayObject *)rows->arrays[0];
    DS_EXPECT(PyArray_Check(a), c->m->errors[DS_DTYPE], "out: expected an array, got %.100s",
              Py_TYPE(a)->tp_name);
    if (PyArray_TYPE(a) != ds_numpy_type(signature->dtype) || !PyArray_ISNOTSWAPPED(a))
        return refuse_output(c, DS_DTYPE, output, a);
    DS_EXPECT(PyArray_ISWRITEABLE(a), PyExc_ValueError, "out: the array of output %zu is read-only",
              output);
    if (!fits(c, rows, signature, a))
        return refuse_output(c, DS_SHAPE, output, a);
    DS_EXPECT(frames_along(rows, a) >= frames, c->m->errors[DS_SHAPE],
              "out: output %zu needs room for %lld frames, got %lld", output, (long long)frames,
              (long long)frames_along(rows, a));
    return 0;
}
