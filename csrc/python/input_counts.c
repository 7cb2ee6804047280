/* _core.input_counts: the counts of a call's inputs, of the frames that came before and of those that come now. */
#include "python/op.h"

/* Adds the frames of a row, a sequence of one number per input or None, to what is known before; false with an
 * exception. */
static bool read_before(PyObject *row, ds_counts *counts, Py_ssize_t n_rows, Py_ssize_t n_inputs)
{
    if (row == Py_None)
        return true;
    PyObject *frames = PySequence_Fast(row, "frames must be sequences");
    if (frames && PySequence_Fast_GET_SIZE(frames) != n_inputs)
        PyErr_Format(PyExc_ValueError, "expected frames of %zd inputs", n_inputs);
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < n_inputs; i++)
        counts[i * n_rows].before.known = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(frames, i));
    Py_XDECREF(frames);
    return !PyErr_Occurred();
}

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

/* What is known before of all rows is what was known at the end of a call, whose counts these are; false with an
 * exception. */
static bool go_on(PyObject *call, ds_counts *counts, Py_ssize_t n_rows, Py_ssize_t n_inputs)
{
    PyArrayObject *array = (PyArrayObject *)call;
    if (PyArray_TYPE(array) != NPY_INT64 || !PyArray_IS_C_CONTIGUOUS(array) ||
        PyArray_SIZE(array) != 4 * n_rows * n_inputs) {
        PyErr_SetString(PyExc_ValueError, "expected counts (inputs, rows, 4)");
        return false;
    }
    const ds_counts *then = PyArray_DATA(array);
    for (Py_ssize_t i = 0; i < n_rows * n_inputs; i++)
        counts[i].before.known = then[i].now.known;
    return true;
}

/* input_counts(frames, lengths, ended): (inputs, rows, 4), of a list with the frames that each row had of every input,
 * None where it starts, or of the counts of the call before, and of one array of new frames per input. */
PyObject *ds_input_counts(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    ds_module *m = PyModule_GetState(module);
    const bool follows =
        n_args == 3 && PyArray_Check(args[0]) && PyArray_NDIM((PyArrayObject *)args[0]) == 3;
    if (n_args != 3 || !(follows || PyList_Check(args[0])) || !PySequence_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "input_counts(frames, lengths, ended)");
    const Py_ssize_t n_rows =
        follows ? PyArray_DIM((PyArrayObject *)args[0], 1) : PyList_GET_SIZE(args[0]);
    const Py_ssize_t n_inputs = PySequence_Size(args[1]);
    if (n_inputs < 0 || n_inputs > DS_MAX_INPUTS)
        return n_inputs < 0 ? NULL : PyErr_Format(PyExc_ValueError, "too many inputs");
    const bool *ended = ds_parse_ended(m, args[2], n_rows);
    if (!ended)
        return NULL;
    PyObject *arrays[DS_MAX_INPUTS] = {NULL};
    const int64_t *lengths[DS_MAX_INPUTS];
    npy_intp shape[] = {n_inputs, n_rows, 4};
    PyObject *out = PyArray_ZEROS(3, shape, NPY_INT64, 0);
    for (Py_ssize_t i = 0; out && !PyErr_Occurred() && i < n_inputs; i++) {
        PyObject *item = PySequence_GetItem(args[1], i);
        arrays[i] = item ? PyArray_FROM_OTF(item, NPY_INT64, NPY_ARRAY_CARRAY_RO) : NULL;
        Py_XDECREF(item);
        if (arrays[i] && PyArray_SIZE((PyArrayObject *)arrays[i]) != n_rows)
            PyErr_Format(PyExc_ValueError, "expected one length for each of %zd rows", n_rows);
        else if (arrays[i])
            lengths[i] = PyArray_DATA((PyArrayObject *)arrays[i]);
    }
    ds_counts *counts = out ? PyArray_DATA((PyArrayObject *)out) : NULL;
    if (counts && follows && !PyErr_Occurred())
        go_on(args[0], counts, n_rows, n_inputs);
    for (Py_ssize_t r = 0; counts && !PyErr_Occurred() && r < n_rows; r++)
        if (follows || read_before(PyList_GET_ITEM(args[0], r), counts + r, n_rows, n_inputs))
            count_row(counts, n_rows, lengths, n_inputs, r, ended[r]);
    for (Py_ssize_t i = 0; i < n_inputs; i++)
        Py_XDECREF(arrays[i]);
    if (PyErr_Occurred())
        Py_CLEAR(out);
    return out;
}
