/* _core.ctc: the losses of connectionist temporal classification of many sequences, and their slopes.
 *
 *     losses, alphas = ctc(frames, n_frames, targets, n_targets, blank)
 *     slopes = ctc(frames, n_frames, targets, n_targets, blank, losses, alphas, scales)
 *
 * frames: float64 [frames of all rows][classes]; n_frames, n_targets: int64 per row; targets: int64, of all rows. */
#include "kernels/ctc.h"

#include "python/support.h"

enum { FRAMES, N_FRAMES, TARGETS, N_TARGETS, BLANK, LOSSES, ALPHAS, SCALES, N_ARGS };

static const int64_t *ints(PyObject *array)
{
    return ds_data(array);
}

static bool is_array(PyObject *object, int type, int rank)
{
    return ds_array_is(object, type, rank, (const npy_intp[]){-1, -1}, false);
}

/* Numbers of all rows' alphas; -1 with an exception where arrays don't fit each other. */
static npy_intp checked(PyObject *const *args, Py_ssize_t n_args, int64_t blank)
{
    bool right = n_args == LOSSES || n_args == N_ARGS;
    right = right && is_array(args[FRAMES], NPY_DOUBLE, 2) &&
            is_array(args[N_FRAMES], NPY_INT64, 1) && is_array(args[TARGETS], NPY_INT64, 1) &&
            is_array(args[N_TARGETS], NPY_INT64, 1);
    for (int i = LOSSES; right && i < n_args; i++)
        right = is_array(args[i], NPY_DOUBLE, 1);
    DS_EXPECT(right, PyExc_TypeError,
              "ctc: float64 frames, int64 lengths and targets are expected");
    const npy_intp n_rows = PyArray_DIM((PyArrayObject *)args[N_FRAMES], 0);
    const int64_t classes = PyArray_DIM((PyArrayObject *)args[FRAMES], 1);
    int64_t frames = 0, targets = 0, alphas = 0;
    right =
        PyArray_DIM((PyArrayObject *)args[N_TARGETS], 0) == n_rows && blank >= 0 && blank < classes;
    for (npy_intp r = 0; right && r < n_rows; r++) {
        const int64_t t = ints(args[N_FRAMES])[r], n = ints(args[N_TARGETS])[r];
        right = t >= 0 && n >= 0 && !__builtin_add_overflow(frames, t, &frames) &&
                !__builtin_add_overflow(targets, n, &targets) && n < INT32_MAX && t < INT32_MAX &&
                !__builtin_add_overflow(alphas, t * (2 * n + 1), &alphas);
    }
    right = right && frames == PyArray_DIM((PyArrayObject *)args[FRAMES], 0) &&
            targets == PyArray_DIM((PyArrayObject *)args[TARGETS], 0);
    for (int64_t i = 0; right && i < targets; i++)
        right = ints(args[TARGETS])[i] >= 0 && ints(args[TARGETS])[i] < classes;
    if (right && n_args == N_ARGS)
        right = PyArray_DIM((PyArrayObject *)args[LOSSES], 0) == n_rows &&
                PyArray_DIM((PyArrayObject *)args[ALPHAS], 0) == alphas &&
                PyArray_DIM((PyArrayObject *)args[SCALES], 0) == n_rows;
    DS_EXPECT(right, PyExc_ValueError, "ctc: frames, targets and lengths don't fit each other");
    return (npy_intp)alphas;
}

/* Each row's loss, or its slope. */
static void run(PyObject *const *args, int64_t blank, double *losses, double *alphas,
                double *slopes, double *beta)
{
    ds_ctc c = {ds_data(args[FRAMES]),
                ints(args[TARGETS]),
                0,
                (size_t)PyArray_DIM((PyArrayObject *)args[FRAMES], 1),
                0,
                blank};
    const npy_intp n_rows = PyArray_DIM((PyArrayObject *)args[N_FRAMES], 0);
    for (npy_intp r = 0; r < n_rows; r++) {
        c.n_frames = (size_t)ints(args[N_FRAMES])[r];
        c.n_targets = (size_t)ints(args[N_TARGETS])[r];
        if (slopes) {
            ds_ctc_slope(&c, alphas, losses[r], ((const double *)ds_data(args[SCALES]))[r], beta,
                         slopes);
            slopes += c.n_frames * c.n_classes;
        } else {
            losses[r] = ds_ctc_loss(&c, alphas);
        }
        alphas += c.n_frames * (2 * c.n_targets + 1);
        c.x += c.n_frames * c.n_classes;
        c.targets += c.n_targets;
    }
}

PyObject *ds_python_ctc(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)self;
    const int64_t blank = n_args > BLANK ? PyLong_AsLongLong(args[BLANK]) : 0;
    if (blank == -1 && PyErr_Occurred())
        return NULL;
    npy_intp n_alphas = checked(args, n_args, blank);
    if (n_alphas < 0)
        return NULL;
    if (n_args == LOSSES) {
        npy_intp n_rows = PyArray_DIM((PyArrayObject *)args[N_FRAMES], 0);
        DS_OWNED PyObject *losses = PyArray_SimpleNew(1, &n_rows, NPY_DOUBLE);
        DS_OWNED PyObject *alphas = PyArray_SimpleNew(1, &n_alphas, NPY_DOUBLE);
        if (!losses || !alphas)
            return NULL;
        double *const of_rows = ds_data(losses), *const of_frames = ds_data(alphas);
        Py_BEGIN_ALLOW_THREADS;
        run(args, blank, of_rows, of_frames, NULL, NULL);
        Py_END_ALLOW_THREADS;
        return PyTuple_Pack(2, losses, alphas);
    }
    const size_t longest = (size_t)PyArray_DIM((PyArrayObject *)args[TARGETS], 0);
    double *beta = PyMem_RawMalloc(2 * (2 * longest + 1) * sizeof *beta);
    PyObject *slopes =
        beta ? PyArray_SimpleNew(2, PyArray_DIMS((PyArrayObject *)args[FRAMES]), NPY_DOUBLE)
             : PyErr_NoMemory();
    if (slopes) {
        double *const to = ds_data(slopes);
        Py_BEGIN_ALLOW_THREADS;
        run(args, blank, ds_data(args[LOSSES]), ds_data(args[ALPHAS]), to, beta);
        Py_END_ALLOW_THREADS;
    }
    PyMem_RawFree(beta);
    return slopes;
}
