/* _core.adam, _core.sgd, _core.squares: what optimizers do to a parameter, and the sum that norms are of. */
#include "python/support.h"

enum { MOST_ARRAYS = 5 };

/* Whether an array can be read, or written, as n numbers of a type, one after another. */
static bool is_run(PyObject *object, int type, npy_intp n, bool writable)
{
    PyArrayObject *a = (PyArrayObject *)object;
    return PyArray_Check(object) && PyArray_TYPE(a) == type && PyArray_SIZE(a) == n &&
           (writable ? PyArray_ISCARRAY(a) : PyArray_ISCARRAY_RO(a));
}

static const ds_real_kernels *kernels_of(PyObject *module, PyObject *array)
{
    const ds_module *m = PyModule_GetState(module);
    const int type = PyArray_Check(array) ? PyArray_TYPE((PyArrayObject *)array) : NPY_NOTYPE;
    if (type != NPY_FLOAT && type != NPY_DOUBLE) {
        PyErr_SetString(PyExc_TypeError, "expected an array of float32 or float64");
        return NULL;
    }
    return ds_have_kernels(m) ? &m->kernels->real[type == NPY_DOUBLE] : NULL;
}

/* Reads n_arrays arrays, the parameters, their gradients and what is remembered, then truths and numbers. */
static const ds_real_kernels *parse(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                                    int n_arrays, bool *const *truths, int n_truths,
                                    double *const *numbers, int n_numbers, ds_update *u)
{
    if (n_args != n_arrays + n_truths + n_numbers) {
        PyErr_SetString(PyExc_TypeError, "an update: wrong number of arguments");
        return NULL;
    }
    const ds_real_kernels *k = kernels_of(module, args[0]);
    void *data[MOST_ARRAYS] = {NULL};
    for (int i = 0; k && i < n_arrays; i++) {
        PyArrayObject *p = (PyArrayObject *)args[0];
        if (args[i] == Py_None && i > 1)
            continue;
        if (!is_run(args[i], PyArray_TYPE(p), PyArray_SIZE(p), i != 1)) {
            PyErr_SetString(PyExc_TypeError, "an update: arrays of one type and size, in C order");
            return NULL;
        }
        data[i] = ds_data(args[i]);
        u->n = (size_t)PyArray_SIZE(p);
    }
    for (int i = 0; k && i < n_truths; i++)
        *truths[i] = args[n_arrays + i] == Py_True;
    for (int i = 0; k && i < n_numbers; i++)
        *numbers[i] = PyFloat_AsDouble(args[n_arrays + n_truths + i]);
    u->p = data[0];
    u->g = data[1];
    u->mean = data[2];
    u->square = data[3];
    u->most = data[4];
    return PyErr_Occurred() ? NULL : k;
}

PyObject *ds_python_adam(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    ds_update u = {0};
    double *const numbers[] = {&u.decay, &u.shrink, &u.part, &u.keep,
                               &u.fresh, &u.root,   &u.eps,  &u.rate};
    const ds_real_kernels *k = parse(module, args, n_args, 5, NULL, 0, numbers, 8, &u);
    if (k && (!u.mean || !u.square))
        return PyErr_Format(PyExc_TypeError, "adam: there is no mean");
    if (!k)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    k->adam(&u);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *ds_python_sgd(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    ds_update u = {0};
    bool *const truths[] = {&u.first, &u.nesterov};
    double *const numbers[] = {&u.decay, &u.keep, &u.fresh, &u.rate};
    const ds_real_kernels *k = parse(module, args, n_args, 3, truths, 2, numbers, 4, &u);
    if (!k)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    k->sgd(&u);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *ds_python_squares(PyObject *module, PyObject *array)
{
    const ds_real_kernels *k = kernels_of(module, array);
    PyArrayObject *a = (PyArrayObject *)array;
    if (k && !PyArray_ISCARRAY_RO(a))
        return PyErr_Format(PyExc_TypeError, "squares: expected an array in C order");
    if (!k)
        return NULL;
    const size_t n = (size_t)PyArray_SIZE(a);
    const void *const x = PyArray_DATA(a);
    double sum = 0;
    Py_BEGIN_ALLOW_THREADS;
    if (n > 0)
        k->reduce(DS_REDUCE_SQUARES, &sum, x, 1, n, n, 1, NULL);
    Py_END_ALLOW_THREADS;
    return PyFloat_FromDouble(sum);
}
