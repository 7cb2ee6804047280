/* python/differing.c: which of many containers no longer hold the very objects that they held.
 *
 * Dictionaries and lists are compared here, by identity and in order; what they held is a copy, or None for
 * nothing. Containers of other kinds are left to the caller: they count as differing, unless they are empty and were.
 *
 * Until Python 3.12 a dictionary has a version, another after every change and never one that any dictionary had. Who
 * asks again and again keeps the versions at which dictionaries were found right: those aren't gone through again. */
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

/* A dictionary's version; 0, which none has, of all else, and where dictionaries have none. */
static uint64_t version_of(PyObject *x)
{
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    const bool is_plain = PyDict_Check(x) && !PyODict_Check(x);
    return is_plain ? ((PyDictObject *)x)->ma_version_tag : 0;
#pragma GCC diagnostic pop
#else
    (void)x;
    return 0;
#endif
}

/* The versions of n dictionaries at which they were right, in a bytearray, which may be empty at first; NULL, without
 * an exception, where none are kept, and with one. */
static uint64_t *versions_in(PyObject *kept, Py_ssize_t n)
{
    const Py_ssize_t size = n * (Py_ssize_t)sizeof(uint64_t);
    if (!kept)
        return NULL;
    if (PyByteArray_GET_SIZE(kept) != size) {
        if (PyByteArray_Resize(kept, size) < 0)
            return NULL;
        memset(PyByteArray_AS_STRING(kept), 0, (size_t)size);
    }
    return (uint64_t *)(void *)PyByteArray_AS_STRING(kept);
}

/* Whether a dictionary has the version that is kept of it. */
static bool is_known(const uint64_t *versions, Py_ssize_t i, PyObject *x)
{
    return versions && versions[i] && versions[i] == version_of(x);
}

/* differing(now, then[, versions]): of two lists of equal length, where they differ. */
PyObject *ds_differing(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *now, *then, *kept = NULL;
    if (!PyArg_ParseTuple(args, "O!O!|O!:differing", &PyList_Type, &now, &PyList_Type, &then,
                          &PyByteArray_Type, &kept))
        return NULL;
    if (PyList_GET_SIZE(now) != PyList_GET_SIZE(then))
        return PyErr_Format(PyExc_ValueError, "differing: lists of equal length are wanted");
    uint64_t *versions = versions_in(kept, PyList_GET_SIZE(now));
    PyObject *out = PyErr_Occurred() ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; out && i < PyList_GET_SIZE(now); i++) {
        PyObject *x = PyList_GET_ITEM(now, i);
        if (is_known(versions, i, x))
            continue;
        if (same(x, PyList_GET_ITEM(then, i))) {
            if (versions)
                versions[i] = version_of(x);
            continue;
        }
        ds_append(&out, PyLong_FromSsize_t(i));
    }
    return out;
}

/* finds(places, names, values, versions): whether dictionaries hold these very objects, each under a name; None for
 * nothing. */
PyObject *ds_finds(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *places, *names, *values, *kept;
    if (!PyArg_ParseTuple(args, "O!O!O!O!:finds", &PyList_Type, &places, &PyList_Type, &names,
                          &PyList_Type, &values, &PyByteArray_Type, &kept))
        return NULL;
    const Py_ssize_t n = PyList_GET_SIZE(places);
    if (PyList_GET_SIZE(names) != n || PyList_GET_SIZE(values) != n)
        return PyErr_Format(PyExc_ValueError, "finds: lists of equal length are wanted");
    uint64_t *versions = versions_in(kept, n);
    if (PyErr_Occurred())
        return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *place = PyList_GET_ITEM(places, i);
        if (is_known(versions, i, place))
            continue;
        if (!PyDict_Check(place))
            return PyErr_Format(PyExc_TypeError, "finds: expected dictionaries");
        PyObject *found = PyDict_GetItemWithError(place, PyList_GET_ITEM(names, i));
        if (!found && PyErr_Occurred())
            return NULL;
        if ((found ? found : Py_None) != PyList_GET_ITEM(values, i))
            return Py_NewRef(Py_False);
        versions[i] = version_of(place);
    }
    return Py_NewRef(Py_True);
}
