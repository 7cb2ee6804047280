/* python/differing.c: which of many containers no longer hold the very objects that they held.
 *
 * Dictionaries and lists are compared here, by identity and in order; what they held is a copy, or None for
 * nothing. Containers of other kinds are left to the caller: they count as differing, unless they are empty and were. */
#include <string.h>

#include "python/support.h"

static bool same_dict(PyObject *now, PyObject *then)
{
    PyObject *key, *value, *old_key, *old_value;
    Py_ssize_t at = 0, old_at = 0;
    if (!PyDict_CheckExact(then) || PyDict_GET_SIZE(now) != PyDict_GET_SIZE(then))
        return false;
    while (PyDict_Next(now, &at, &key, &value))
        if (!PyDict_Next(then, &old_at, &old_key, &old_value) || key != old_key ||
            value != old_value)
            return false;
    return true;
}

static bool same_list(PyObject *now, PyObject *then)
{
    const Py_ssize_t n = PyList_GET_SIZE(now);
    return PyList_CheckExact(then) && n == PyList_GET_SIZE(then) &&
           memcmp(((PyListObject *)now)->ob_item, ((PyListObject *)then)->ob_item,
                  (size_t)n * sizeof(PyObject *)) == 0;
}

static bool same(PyObject *now, PyObject *then)
{
    if (then == Py_None)
        return (PyDict_Check(now) && PyDict_GET_SIZE(now) == 0) ||
               (PyList_Check(now) && PyList_GET_SIZE(now) == 0) ||
               (PyAnySet_Check(now) && PySet_GET_SIZE(now) == 0);
    if (PyDict_Check(now)) /* an ordered one has an order of its own */
        return !PyODict_Check(now) && same_dict(now, then);
    return PyList_Check(now) && same_list(now, then);
}

/* differing(now, then): of two lists of equal length, where they differ. */
PyObject *ds_differing(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *now, *then;
    if (!PyArg_ParseTuple(args, "O!O!:differing", &PyList_Type, &now, &PyList_Type, &then))
        return NULL;
    if (PyList_GET_SIZE(now) != PyList_GET_SIZE(then))
        return PyErr_Format(PyExc_ValueError, "differing: lists of equal length are wanted");
    PyObject *out = PyList_New(0);
    for (Py_ssize_t i = 0; out && i < PyList_GET_SIZE(now); i++) {
        if (same(PyList_GET_ITEM(now, i), PyList_GET_ITEM(then, i)))
            continue;
        PyObject *at = PyLong_FromSsize_t(i);
        if (!at || PyList_Append(out, at) < 0)
            Py_CLEAR(out);
        Py_XDECREF(at);
    }
    return out;
}

/* finds(places, names, values): whether dictionaries hold these very objects, each under a name; None for nothing. */
PyObject *ds_finds(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *places, *names, *values;
    if (!PyArg_ParseTuple(args, "O!O!O!:finds", &PyList_Type, &places, &PyList_Type, &names,
                          &PyList_Type, &values))
        return NULL;
    const Py_ssize_t n = PyList_GET_SIZE(places);
    if (PyList_GET_SIZE(names) != n || PyList_GET_SIZE(values) != n)
        return PyErr_Format(PyExc_ValueError, "finds: lists of equal length are wanted");
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *place = PyList_GET_ITEM(places, i);
        if (!PyDict_Check(place))
            return PyErr_Format(PyExc_TypeError, "finds: expected dictionaries");
        PyObject *found = PyDict_GetItemWithError(place, PyList_GET_ITEM(names, i));
        if (!found && PyErr_Occurred())
            return NULL;
        if ((found ? found : Py_None) != PyList_GET_ITEM(values, i))
            return Py_NewRef(Py_False);
    }
    return Py_NewRef(Py_True);
}
