/* The rows of a batch as callers name them: ids in order, flags and lengths per row. */
#include <string.h>

#include "python/call.h"

/* ---------------------------------------------------------------- ids */
PyObject *ds_plain_ids(ds_module *m, PyObject *given)
{
    if (PyBool_Check(given)) {
        PyErr_Format(m->errors[DS_STREAM_ID],
                     "expected the ids of the streams that start or end, as in sos=\"anna\" or "
                     "sos=[\"anna\", \"bob\"], got %R",
                     given);
        return NULL;
    }
    PyObject *ids = PyUnicode_Check(given) ? Py_BuildValue("[O]", given) : PySequence_List(given);
    for (Py_ssize_t i = 0; ids && i < PyList_GET_SIZE(ids); i++) {
        PyObject *id = ds_plain_id(m, PyList_GET_ITEM(ids, i));
        if (!id || PyList_SetItem(ids, i, id) < 0)
            Py_CLEAR(ids);
    }
    return ids;
}

/* Whether these are the ids of the last step_batch: the same objects. */
static bool are_last(const ds_engine_object *e, PyObject *ids)
{
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(ids);
    return e->last_ids && PyList_GET_SIZE(e->last_ids) == n &&
           memcmp(PySequence_Fast_ITEMS(ids), PySequence_Fast_ITEMS(e->last_ids),
                  (size_t)n * sizeof ids) == 0;
}

PyObject *ds_rows_ids(ds_module *m, const ds_engine_object *e, PyObject *given, PyObject **known)
{
    const bool is_plain = PyList_CheckExact(given) || PyTuple_CheckExact(given);
    DS_OWNED PyObject *ids = is_plain ? Py_NewRef(given) : ds_plain_ids(m, given);
    if (ids && are_last(e, ids)) {
        *known = Py_NewRef(e->last_live);
        return Py_NewRef(e->last_ids);
    }
    if (is_plain)
        Py_SETREF(ids, ds_plain_ids(m, ids));
    DS_OWNED PyObject *once = ids ? PySet_New(ids) : NULL, *twice = NULL;
    if (once && PySet_GET_SIZE(once) < PyList_GET_SIZE(ids)) {
        twice = PyList_New(0);
        for (Py_ssize_t r = 0; twice && r < PyList_GET_SIZE(ids); r++)
            if (PySet_Discard(once, PyList_GET_ITEM(ids, r)) == 0)
                ds_append(&twice, Py_NewRef(PyList_GET_ITEM(ids, r)));
        if (twice)
            ds_raise(m, ds_fail(DS_STREAM_ID, "ids must be unique within a batch"), twice);
    }
    return PyErr_Occurred() ? NULL : ds_given_on(&ids);
}

/* ---------------------------------------------------------------- flags and lengths */
int ds_rows_mark(const ds_call *c, PyObject *ids, bool *flags)
{
    DS_OWNED PyObject *left = PySet_New(ids);
    for (Py_ssize_t r = 0; left && r < c->n && PySet_GET_SIZE(left) > 0; r++)
        flags[r] = PySet_Discard(left, c->ids[r]) > 0;
    if (left && PySet_GET_SIZE(left) > 0)
        ds_raise(c->m, ds_fail(DS_STREAM_ID, "sos or eos names no row of the batch"), left);
    return PyErr_Occurred() ? -1 : 0;
}

int ds_rows_flags(const ds_call *c, const char *name, PyObject *given, bool *flags)
{
    if (!given || given == Py_None)
        return 0;
    if (PyBool_Check(given)) {
        memset(flags, given == Py_True, (size_t)c->n);
        return 0;
    }
    PyArrayObject *a = (PyArrayObject *)given;
    if (PyArray_Check(given) && PyArray_TYPE(a) == NPY_BOOL && PyArray_NDIM(a) == 1 &&
        PyArray_DIM(a, 0) == c->n) {
        for (Py_ssize_t r = 0; r < c->n; r++)
            flags[r] = PyArray_BYTES(a)[r * PyArray_STRIDE(a, 0)] != 0;
        return 0;
    }
    DS_OWNED PyObject *items =
        PyUnicode_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    if (!items)
        return -1;
    const Py_ssize_t n = PyTuple_GET_SIZE(items);
    Py_ssize_t n_bools = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        n_bools += PyBool_Check(PyTuple_GET_ITEM(items, i)) ||
                   PyArray_IsScalar(PyTuple_GET_ITEM(items, i), Bool);
    if (!n_bools) {
        DS_OWNED PyObject *ids = ds_plain_ids(c->m, items);
        return ids ? ds_rows_mark(c, ids, flags) : -1;
    }
    DS_EXPECT(n_bools == n && n == c->n, c->m->errors[n_bools == n ? DS_SHAPE : DS_DTYPE],
              "%s: expected a bool, a bool for each of %zd rows, or ids", name, c->n);
    for (Py_ssize_t r = 0; r < n_bools && !PyErr_Occurred(); r++)
        flags[r] = PyObject_IsTrue(PyTuple_GET_ITEM(items, r)) > 0;
    return PyErr_Occurred() ? -1 : 0;
}

int ds_rows_lengths(const ds_call *c, size_t input, PyObject *given)
{
    int64_t *n_frames = c->step->n_frames + input * (size_t)c->n;
    if (!given || given == Py_None) {
        for (Py_ssize_t r = 0; r < c->n; r++)
            n_frames[r] = -1;
        return 0;
    }
    DS_OWNED PyObject *array = PyArray_FromAny(given, NULL, 0, 0, 0, NULL);
    if (!array)
        return -1;
    PyArrayObject *a = (PyArrayObject *)array;
    DS_EXPECT(PyTypeNum_ISINTEGER(PyArray_TYPE(a)) || PyArray_SIZE(a) == 0, c->m->errors[DS_DTYPE],
              "lengths must be integers");
    DS_EXPECT(PyArray_NDIM(a) == 1 && PyArray_DIM(a, 0) == c->n, c->m->errors[DS_SHAPE],
              "expected one length for each of %zd rows", c->n);
    DS_OWNED PyObject *integers =
        PyArray_FROM_OTF(array, NPY_INT64, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
    if (!integers)
        return -1;
    const int64_t *lengths = ds_data(integers);
    for (Py_ssize_t r = 0; r < c->n; r++)
        n_frames[r] = lengths[r] < 0 ? INT64_MAX : lengths[r];
    return 0;
}
