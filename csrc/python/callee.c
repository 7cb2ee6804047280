/* python/callee.c: what is called in a callee's place, where a tracer found it before (dreamstream/tracing/callees.py). */
#include "python/support.h"

/* What is kept of a function, a tuple: what is called, or None for itself; its code, defaults and keywords' defaults; a
 * reference. */
enum { COPY, CODE, DEFAULTS, KEYWORDS, REFERENCE, N_KEPT };

static bool is_same(PyObject *kept, PyObject *now)
{
    return kept == (now ? now : Py_None);
}

/* What is called in the place of a function of Python; NULL where that isn't known, with or without an exception. */
static PyObject *of_function(PyObject *known, PyObject *converted, PyObject *f)
{
    PyObject *id = PyLong_FromVoidPtr(f);
    PyObject *kept = id ? PyDict_GetItemWithError(known, id) : NULL;
    Py_XDECREF(id);
    if (!kept || !PyTuple_CheckExact(kept) || PyTuple_GET_SIZE(kept) != N_KEPT ||
        PyTuple_GET_ITEM(kept, CODE) != PyFunction_GET_CODE(f) ||
        !is_same(PyTuple_GET_ITEM(kept, DEFAULTS), PyFunction_GET_DEFAULTS(f)) ||
        !is_same(PyTuple_GET_ITEM(kept, KEYWORDS), PyFunction_GET_KW_DEFAULTS(f)))
        return NULL;
    PyObject *copy = PyTuple_GET_ITEM(kept, COPY);
    if ((PyObject *)Py_TYPE(copy) == converted) /* it is made for each call */
        return NULL;
    return Py_NewRef(copy == Py_None ? f : copy);
}

/* What is called in the place of an object whose class's `__call__` is among those that are given. */
static PyObject *of_object(PyObject *stand_ins, PyObject *direct, PyObject *f)
{
    PyObject *id = PyLong_FromVoidPtr(f), *out = NULL;
    const int stands = id ? PyDict_Contains(stand_ins, id) : -1;
    Py_XDECREF(id);
    PyObject *call = stands ? NULL : PyObject_GetAttrString((PyObject *)Py_TYPE(f), "__call__");
    PyObject *find = call && PyFunction_Check(call) ? PyDict_GetItemWithError(direct, call) : NULL;
    if (find)
        out = PyObject_CallOneArg(find, f);
    Py_XDECREF(call);
    if (out == Py_None)
        Py_CLEAR(out);
    return out;
}

/* callee(known, converted, stand_ins, direct, otherwise, f): what is called in the place of f, `otherwise(f)` where that
 * isn't known. */
PyObject *ds_callee(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n_args)
{
    enum { KNOWN, CONVERTED, STAND_INS, DIRECT, OTHERWISE, CALLEE, N_ARGUMENTS };
    if (n_args != N_ARGUMENTS || !PyDict_Check(args[KNOWN]) || !PyDict_Check(args[STAND_INS]) ||
        !PyDict_Check(args[DIRECT]))
        return PyErr_Format(PyExc_TypeError,
                            "callee(known, converted, stand_ins, direct, otherwise, f)");
    PyObject *f = args[CALLEE], *out = NULL;
    if (PyFunction_Check(f))
        out = of_function(args[KNOWN], args[CONVERTED], f);
    else if (!PyMethod_Check(f) && !PyCFunction_Check(f) && !PyType_Check(f))
        out = of_object(args[STAND_INS], args[DIRECT], f);
    if (!out && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear(); /* it is no callable, which `otherwise` says */
    return out || PyErr_Occurred() ? out : PyObject_CallOneArg(args[OTHERWISE], f);
}
