/* _core.draws: random numbers by key and place.
 *
 *     numbers = draws(keys, first, n, width)
 *
 * keys: uint64 per row; first, n: int64 per row, its first frame and how many; numbers: float64 in [0, 1), [frames of
 * all rows][width], each a function of its row's key, its frame and its place in the frame. */
#include "kernels/draw.h"

#include "python/support.h"

enum { KEYS, FIRST, N, WIDTH, N_ARGS };

static void draw(double *to, const uint64_t *keys, const int64_t *first, const int64_t *n,
                 npy_intp n_rows, uint64_t width)
{
    for (npy_intp r = 0; r < n_rows; r++) {
        const uint64_t from = (uint64_t)first[r] * width, end = from + (uint64_t)n[r] * width;
        for (uint64_t place = from; place < end; place++)
            *to++ = ds_draw_real(keys[r], place);
    }
}

PyObject *ds_python_draws(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    static const int types[] = {NPY_UINT64, NPY_INT64, NPY_INT64};
    bool right = n_args == N_ARGS;
    npy_intp n_rows = -1;
    for (int i = KEYS; right && i <= N; i++) {
        right = ds_array_is(args[i], types[i], 1, &n_rows, false);
        n_rows = right ? PyArray_DIM((PyArrayObject *)args[i], 0) : -1;
    }
    if (!right)
        return PyErr_Format(PyExc_TypeError, "draws(keys, first, n, width): per row uint64, int64");
    const long long width = PyLong_AsLongLong(args[WIDTH]);
    if (width == -1 && PyErr_Occurred())
        return NULL;
    const int64_t *const first = ds_data(args[FIRST]);
    const int64_t *const n = ds_data(args[N]);
    npy_intp shape[2] = {0, (npy_intp)width};
    right = width >= 0;
    for (npy_intp r = 0; right && r < n_rows; r++)
        right = n[r] >= 0 && first[r] >= 0 && !__builtin_add_overflow(shape[0], n[r], &shape[0]);
    if (!right)
        return PyErr_Format(PyExc_ValueError, "draws: sizes are at least 0");
    PyObject *numbers = PyArray_SimpleNew(2, shape, NPY_DOUBLE);
    if (numbers) {
        double *const to = ds_data(numbers);
        const uint64_t *const keys = ds_data(args[KEYS]);
        Py_BEGIN_ALLOW_THREADS;
        draw(to, keys, first, n, n_rows, (uint64_t)width);
        Py_END_ALLOW_THREADS;
    }
    return numbers;
}
