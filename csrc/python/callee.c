/* python/callee.c: what the copies of forwards ask a tracer for at every call and every test, answered with no Python
 * where that is plain: what is called in a callee's place (dreamstream/tracing/callees.py), and the truth of a value. */
#include "python/support.h"

enum { KNOWN, CONVERTED, STAND_INS, DIRECT, BUILTINS, AWAITED, OTHERWISE, CALLEE, N_ARGUMENTS };

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
    DS_OWNED PyObject *id = PyLong_FromVoidPtr(f);
    PyObject *kept = id ? PyDict_GetItemWithError(known, id) : NULL;
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

/* The same of a builtin function or a class, for which something may stand: by itself, or by a name in one of the modules
 * that are awaited. A builtin method of a class is looked for in the classes that it inherits from. */
static PyObject *of_builtin(PyObject *builtins, PyObject *awaited, PyObject *f)
{
    PyObject *self = PyCFunction_Check(f) ? PyCFunction_GET_SELF(f) : NULL;
    if (self && PyType_Check(self))
        return NULL;
    PyObject *found = PyDict_GetItemWithError(builtins, f);
    if (found || PyErr_Occurred())
        return Py_XNewRef(found);
    int is_awaited = 0;
    if (PySet_GET_SIZE(awaited)) {
        DS_OWNED PyObject *module = PyObject_GetAttrString(f, "__module__");
        is_awaited = module ? PySet_Contains(awaited, module) : -1;
    }
    return is_awaited ? NULL : Py_NewRef(f);
}

/* The same of a method, bound to its object: of a function, or of a partial of a builtin. */
static PyObject *of_method(PyObject *const *args, PyObject *f)
{
    PyObject *function = PyMethod_GET_FUNCTION(f);
    DS_OWNED PyObject *bare = NULL, *inner = NULL;
    if (PyFunction_Check(function))
        inner = of_function(args[KNOWN], args[CONVERTED], function);
    else if (strcmp(Py_TYPE(function)->tp_name, "functools.partial") == 0 &&
             (bare = PyObject_GetAttrString(function, "func")) && PyCFunction_Check(bare))
        inner = of_builtin(args[BUILTINS], args[AWAITED], bare);
    const bool same = inner && (inner == function || inner == bare);
    return same ? Py_NewRef(f) : !inner || bare ? NULL : PyMethod_New(inner, PyMethod_GET_SELF(f));
}

/* What is called in the place of an object whose class's `__call__` is among those that are given. */
static PyObject *of_object(PyObject *stand_ins, PyObject *direct, PyObject *f)
{
    DS_OWNED PyObject *id = PyLong_FromVoidPtr(f);
    const int stands = id ? PyDict_Contains(stand_ins, id) : -1;
    DS_OWNED PyObject *call =
        stands ? NULL : PyObject_GetAttrString((PyObject *)Py_TYPE(f), "__call__");
    PyObject *find = call && PyFunction_Check(call) ? PyDict_GetItemWithError(direct, call) : NULL;
    DS_OWNED PyObject *out = find ? PyObject_CallOneArg(find, f) : NULL;
    return out == Py_None ? NULL : ds_given_on(&out);
}

/* callee(known, converted, stand_ins, direct, builtins, awaited, otherwise, f): what is called in the place of f,
 * `otherwise(f)` where that isn't known. */
PyObject *ds_callee(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != N_ARGUMENTS || !PyDict_Check(args[KNOWN]) || !PyDict_Check(args[STAND_INS]) ||
        !PyDict_Check(args[DIRECT]) || !PyDict_Check(args[BUILTINS]) ||
        !PyAnySet_Check(args[AWAITED]))
        return PyErr_Format(PyExc_TypeError, "callee(known, converted, stand_ins, direct, "
                                             "builtins, awaited, otherwise, f)");
    PyObject *f = args[CALLEE], *out = NULL;
    if (PyFunction_Check(f))
        out = of_function(args[KNOWN], args[CONVERTED], f);
    else if (PyMethod_Check(f))
        out = of_method(args, f);
    else if (Py_IS_TYPE(f, &PyCFunction_Type) || Py_IS_TYPE(f, &PyType_Type))
        out = of_builtin(args[BUILTINS], args[AWAITED], f);
    else if (!PyCFunction_Check(f) && !PyType_Check(f))
        out = of_object(args[STAND_INS], args[DIRECT], f);
    if (!out && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear(); /* it is no callable, which `otherwise` says */
    return out || PyErr_Occurred() ? out : PyObject_CallOneArg(args[OTHERWISE], f);
}

/* truth(otherwise, x): x where it is True or False, None where it is a number, a text, a list or a dict of Python's, which
 * it may ask itself; `otherwise(x)` of all else. */
PyObject *ds_truth(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 2)
        return PyErr_Format(PyExc_TypeError, "truth(otherwise, x)");
    PyObject *x = args[1];
    if (PyBool_Check(x))
        return Py_NewRef(x);
    if (x == Py_None || PyLong_CheckExact(x) || PyFloat_CheckExact(x) || PyUnicode_CheckExact(x) ||
        PyList_CheckExact(x) || PyTuple_CheckExact(x) || PyDict_CheckExact(x))
        return Py_NewRef(Py_None);
    return PyObject_CallOneArg(args[0], x);
}
