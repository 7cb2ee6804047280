/* _core.joined: arrays end to end in C order, however each lies in memory. */
#include "python/support.h"

/* What moves such elements as they are: 0 where NumPy does. */
static ds_element element_of(PyArrayObject *array)
{
    const ds_element element = ds_element_of(array);
    if (!PyArray_ISNOTSWAPPED(array) || PyArray_NDIM(array) > DS_MAX_RANK + 1)
        return 0;
    if (element == DS_ELEMENT_F64 || element == DS_ELEMENT_I64)
        return DS_ELEMENT_I64;
    return element == DS_ELEMENT_F32 ? element : 0;
}

static bool is_alike(PyArrayObject *a, PyArrayObject *b)
{
    bool alike = PyArray_TYPE(a) == PyArray_TYPE(b) && PyArray_NDIM(a) == PyArray_NDIM(b);
    for (int d = 1; alike && d < PyArray_NDIM(a); d++)
        alike = PyArray_DIM(a, d) == PyArray_DIM(b, d);
    return alike && element_of(b) != 0;
}

/* NumPy's own way, for all others. */
static PyObject *joined_by_numpy(PyObject *arrays)
{
    DS_OWNED PyObject *joined = PyArray_Concatenate(arrays, 0);
    return joined ? PyArray_FROM_OF(joined, NPY_ARRAY_C_CONTIGUOUS) : NULL;
}

PyObject *ds_joined(PyObject *self, PyObject *sequence)
{
    (void)self;
    DS_OWNED PyObject *arrays = PySequence_Tuple(sequence);
    if (!arrays)
        return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(arrays);
    PyArrayObject *first = n ? (PyArrayObject *)PyTuple_GET_ITEM(arrays, 0) : NULL;
    bool alike = n && PyArray_Check(first) && PyArray_NDIM(first) > 0;
    npy_intp shape[DS_MAX_RANK + 1] = {0};
    for (Py_ssize_t i = 0; alike && i < n; i++) {
        PyArrayObject *a = (PyArrayObject *)PyTuple_GET_ITEM(arrays, i);
        alike = PyArray_Check(a) && is_alike(first, a) &&
                !__builtin_add_overflow(shape[0], PyArray_DIM(a, 0), &shape[0]);
    }
    if (!alike)
        return joined_by_numpy(arrays);
    const ds_element element = element_of(first);
    ds_signature frame = {.dtype = element == DS_ELEMENT_F32 ? DS_F32 : DS_I64,
                          .rank = PyArray_NDIM(first) - 1};
    for (int d = 0; d < frame.rank; d++)
        frame.shape[d] = shape[d + 1] = PyArray_DIM(first, d + 1);
    PyObject *out = PyArray_SimpleNew(frame.rank + 1, shape, PyArray_TYPE(first));
    char *to = out ? ds_data(out) : NULL;
    for (Py_ssize_t i = 0; out && i < n; i++) {
        PyArrayObject *a = (PyArrayObject *)PyTuple_GET_ITEM(arrays, i);
        ds_layout_read(to, PyArray_DATA(a), PyArray_STRIDES(a), element, &frame, PyArray_DIM(a, 0));
        to += (size_t)PyArray_DIM(a, 0) * ds_signature_bytes(&frame);
    }
    return out;
}
