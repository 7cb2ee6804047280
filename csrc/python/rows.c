/* The rows of a batch as callers name them: ids in order, flags and lengths per row. */
#include "python/call.h"

#include <string.h>

/* ---------------------------------------------------------------- ids */
PyObject *ds_rows_ids(ds_module *m, const ds_engine_object *e, PyObject *given, PyObject **known)
{
    PyObject *ids = PyUnicode_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    if (!ids)
        return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(ids);
    Py_ssize_t same = 0;
    if (e->last_ids && PyTuple_GET_SIZE(e->last_ids) == n)
        while (same < n && PyTuple_GET_ITEM(ids, same) == PyTuple_GET_ITEM(e->last_ids, same))
            same++;
    if (e->last_ids && same == n && PyTuple_GET_SIZE(e->last_ids) == n) {
        Py_DECREF(ids);
        *known = Py_NewRef(e->last_live);
        return Py_NewRef(e->last_ids);
    }
    PyObject *plain = PyTuple_New(n), *seen = plain ? PySet_New(NULL) : NULL;
    PyObject *twice = seen ? PyList_New(0) : NULL;
    for (Py_ssize_t r = 0; twice && r < n; r++) {
        PyObject *id = ds_plain_id(m, PyTuple_GET_ITEM(ids, r));
        if (id)
            PyTuple_SET_ITEM(plain, r, id);
        const int again = id ? PySet_Contains(seen, id) : -1;
        if (again < 0 || (again ? PyList_Append(twice, id) : PySet_Add(seen, id)) < 0)
            Py_CLEAR(twice);
    }
    if (twice && PyList_GET_SIZE(twice) > 0) {
        ds_raise(m, ds_fail(DS_STREAM_ID, "ids must be unique within a batch"), twice);
        Py_CLEAR(twice);
    }
    if (!twice)
        Py_CLEAR(plain);
    Py_XDECREF(twice);
    Py_XDECREF(seen);
    Py_DECREF(ids);
    return plain;
}

/* ---------------------------------------------------------------- flags and lengths */
/* Marks the rows that ids name. */
static int mark_ids(const ds_call *c, PyObject *ids, bool *flags)
{
    PyObject *rows = PyDict_New();
    for (Py_ssize_t r = 0; rows && r < c->n; r++) {
        PyObject *row = PyLong_FromSsize_t(r);
        if (!row || PyDict_SetItem(rows, c->ids[r], row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    int status = rows ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(ids); i++) {
        PyObject *id = ds_plain_id(c->m, PyTuple_GET_ITEM(ids, i));
        PyObject *row = id ? PyDict_GetItemWithError(rows, id) : NULL;
        if (row)
            flags[PyLong_AsSsize_t(row)] = true;
        else if (id)
            ds_engine_error(c->m, DS_STREAM_ID, "sos or eos names no row of the batch", id);
        status = row ? 0 : -1;
        Py_XDECREF(id);
    }
    Py_XDECREF(rows);
    return status;
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
    PyObject *items = PyUnicode_Check(given) ? PyTuple_Pack(1, given) : PySequence_Tuple(given);
    if (!items)
        return -1;
    const Py_ssize_t n = PyTuple_GET_SIZE(items);
    Py_ssize_t n_bools = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        n_bools += PyBool_Check(PyTuple_GET_ITEM(items, i)) ||
                   PyArray_IsScalar(PyTuple_GET_ITEM(items, i), Bool);
    int status = 0;
    if (n && n_bools == n && n == c->n) {
        for (Py_ssize_t r = 0; r < n; r++)
            flags[r] = PyObject_IsTrue(PyTuple_GET_ITEM(items, r)) > 0;
    } else if (n_bools) {
        PyErr_Format(c->m->errors[n_bools == n ? DS_SHAPE : DS_DTYPE],
                     "%s: expected a bool, a bool for each of %zd rows, or ids", name, c->n);
        status = -1;
    }
    if (status == 0 && !n_bools && n)
        status = mark_ids(c, items, flags);
    Py_DECREF(items);
    return status;
}

int ds_rows_lengths(const ds_call *c, size_t input, PyObject *given)
{
    int64_t *n_frames = c->step->n_frames + input * (size_t)c->n;
    if (!given || given == Py_None) {
        for (Py_ssize_t r = 0; r < c->n; r++)
            n_frames[r] = -1;
        return 0;
    }
    PyObject *array = PyArray_FromAny(given, NULL, 0, 0, 0, NULL), *integers = NULL;
    if (!array)
        return -1;
    PyArrayObject *a = (PyArrayObject *)array;
    if (!PyTypeNum_ISINTEGER(PyArray_TYPE(a)) && PyArray_SIZE(a) > 0)
        PyErr_SetString(c->m->errors[DS_DTYPE], "lengths must be integers");
    else if (PyArray_NDIM(a) != 1 || PyArray_DIM(a, 0) != c->n)
        PyErr_Format(c->m->errors[DS_SHAPE], "expected one length for each of %zd rows", c->n);
    else
        integers = PyArray_FROM_OTF(array, NPY_INT64, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST);
    Py_DECREF(array);
    if (!integers)
        return -1;
    const int64_t *lengths = PyArray_DATA((PyArrayObject *)integers);
    for (Py_ssize_t r = 0; r < c->n; r++)
        n_frames[r] = lengths[r] < 0 ? INT64_MAX : lengths[r];
    Py_DECREF(integers);
    return 0;
}

void ds_rows_name(ds_call *c, PyObject *ids)
{
    for (Py_ssize_t r = 0; r < c->n; r++)
        c->ids[r] = PyTuple_GET_ITEM(ids, r);
}
