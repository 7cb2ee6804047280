/* _core.input_counts: the counts of a call's inputs, of the frames that came before and of those that come now. */
#include "python/op.h"

/* Makes counts of what is known before, lengths and ends. A stream begins with its first frame, of whatever input, or
 * its end; until then it has no total. */
static void count_row(ds_counts *counts, Py_ssize_t n_rows, const int64_t *const *lengths,
                      Py_ssize_t n_inputs, Py_ssize_t r, bool ended)
{
    bool begun = false, begins = ended;
    for (Py_ssize_t i = 0; i < n_inputs; i++) {
        ds_counts *own = &counts[i * n_rows + r];
        own->now.known = (int64_t)((uint64_t)own->before.known +
                                   (uint64_t)lengths[i][r]); /* wraps, as NumPy's */
        begun = begun || own->before.known != 0;
        begins = begins || own->now.known != 0;
    }
    for (Py_ssize_t i = 0; i < n_inputs; i++) {
        ds_counts *own = &counts[i * n_rows + r];
        own->before.total = begun ? own->before.known : -1;
        own->now.total = begins ? own->now.known : -1;
    }
}

/* A C-contiguous array of this many integers; new reference, NULL with an exception. */
static PyObject *integers(PyObject *given, npy_intp size)
{
    PyObject *array = PyArray_FROM_OTF(given, NPY_INT64, NPY_ARRAY_CARRAY_RO);
    if (array && PyArray_SIZE((PyArrayObject *)array) != size) {
        PyErr_Format(PyExc_ValueError, "input_counts: expected %zd numbers", (Py_ssize_t)size);
        Py_CLEAR(array);
    }
    return array;
}

/* input_counts(frames, lengths, ended): (inputs, rows, 4), of the frames that rows had of every input, (inputs, rows),
 * and of one array of new frames per input. */
PyObject *ds_input_counts(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    ds_module *m = PyModule_GetState(module);
    if (n_args != 3 || !PyArray_Check(args[0]) || PyArray_NDIM((PyArrayObject *)args[0]) != 2 ||
        !PySequence_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "input_counts(frames, lengths, ended)");
    const Py_ssize_t n_rows = PyArray_DIM((PyArrayObject *)args[0], 1);
    const Py_ssize_t n_inputs = PySequence_Size(args[1]);
    if (n_inputs < 0 || n_inputs > DS_MAX_INPUTS)
        return n_inputs < 0 ? NULL : PyErr_Format(PyExc_ValueError, "too many inputs");
    const bool *ended = ds_parse_ended(m, args[2], n_rows);
    if (!ended)
        return NULL;
    PyObject *arrays[DS_MAX_INPUTS] = {NULL};
    DS_OWNED PyObject *before = integers(args[0], n_rows * n_inputs);
    const int64_t *lengths[DS_MAX_INPUTS];
    npy_intp shape[] = {n_inputs, n_rows, 4};
    PyObject *out = before ? PyArray_ZEROS(3, shape, NPY_INT64, 0) : NULL;
    for (Py_ssize_t i = 0; out && !PyErr_Occurred() && i < n_inputs; i++) {
        DS_OWNED PyObject *item = PySequence_GetItem(args[1], i);
        arrays[i] = item ? integers(item, n_rows) : NULL;
        if (arrays[i])
            lengths[i] = PyArray_DATA((PyArrayObject *)arrays[i]);
    }
    if (out && !PyErr_Occurred()) {
        ds_counts *counts = PyArray_DATA((PyArrayObject *)out);
        const int64_t *known = PyArray_DATA((PyArrayObject *)before);
        for (Py_ssize_t i = 0; i < n_rows * n_inputs; i++)
            counts[i].before.known = known[i];
        for (Py_ssize_t r = 0; r < n_rows; r++)
            count_row(counts, n_rows, lengths, n_inputs, r, ended[r]);
    }
    for (Py_ssize_t i = 0; i < n_inputs; i++)
        Py_XDECREF(arrays[i]);
    if (PyErr_Occurred())
        Py_CLEAR(out);
    return out;
}
