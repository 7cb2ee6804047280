/* _core.Window: puts what was kept of streams and their new frames together, in the memory of torch's tensors.
 *
 * A row has `back` kept columns and behind them `added` new ones, or as many as counts say. Those that an operator sees,
 * `seen` of them from `offset` on, are copied into a tensor of their own, zeros behind a row's; the last `tail` into the
 * row of the table of states that is read in the next call. So no tensor is made of what only moves, which costs more
 * than the few bytes do. For products of windows these are laid side by side at once: window i has the columns from
 * i * `stride` on, `taps` of them, `dilation` apart.
 *
 *     table   [rows][width][elements]   two rows for each stream: one is read, the other written
 *     value   [frames of all rows][elements]
 *     out     [rows][windows][elements][taps]; [rows][seen][elements] where each column is a window
 *
 * Invariants: all of it is memory of the processor, of one element type and as large as it must be, else nothing is
 * touched. Table and out are contiguous; value may be so, or any plane. Tensors are asked for their memory in every
 * call, and none is kept beyond the table's. */
#include "python/support.h"

enum { BACK, ADDED, TAIL, OFFSET, SEEN, TAPS, STRIDE, DILATION, N_COLUMNS };

/* clang-format off */
#define NAMES(X) X(data_ptr) X(is_contiguous) X(is_neg) X(is_cpu) X(dtype) X(nbytes) X(itemsize) X(shape) X(stride)
/* clang-format on */
#define NAME_NUMBER(name) N_##name,
enum { NAMES(NAME_NUMBER) N_NAMES };

typedef struct window_object {
    PyObject_HEAD PyObject *tensor_type;
    PyObject *names[N_NAMES];            /* interned */
    Py_ssize_t rows, columns[N_COLUMNS]; /* see above */
    PyObject *table, *dtype; /* the table that is known, or NULL, and its element type */
    Py_ssize_t n_rows, width, frame_bytes, element_bytes; /* of the known table */
} window_object;

/* By how many bytes frames, and elements of a frame, lie apart. */
typedef struct steps {
    Py_ssize_t frame, element;
} steps;

/* An attribute that is an integer, or what a method without arguments returns; -1 with an exception. */
static Py_ssize_t number(const window_object *w, PyObject *x, int name, bool is_method)
{
    DS_OWNED PyObject *found = is_method ? PyObject_CallMethodNoArgs(x, w->names[name])
                                         : PyObject_GetAttr(x, w->names[name]);
    return found ? PyLong_AsSsize_t(found) : -1;
}

/* Whether an attribute is this object, or what a method returns; -1 with an exception. */
static int gives(const window_object *w, PyObject *x, int name, bool is_method, PyObject *wanted)
{
    DS_OWNED PyObject *found = is_method ? PyObject_CallMethodNoArgs(x, w->names[name])
                                         : PyObject_GetAttr(x, w->names[name]);
    return found ? found == wanted : -1;
}

/* Whether a tensor's elements lie in the processor's memory as they are; -1 with an exception. */
static int lies_plainly(const window_object *w, PyObject *x)
{
    if ((PyObject *)Py_TYPE(x) != w->tensor_type)
        return 0;
    const int is_cpu = gives(w, x, N_is_cpu, false, Py_True);
    return is_cpu == 1 ? gives(w, x, N_is_neg, true, Py_False) : is_cpu;
}

/* Finds how frames lie: one behind the other, or in a plane; 0 where otherwise, -1 with an exception. */
static int find_steps(const window_object *w, PyObject *x, steps *s)
{
    *s = (steps){w->frame_bytes, w->element_bytes};
    const int is_contiguous = gives(w, x, N_is_contiguous, true, Py_True);
    if (is_contiguous != 0)
        return is_contiguous;
    DS_OWNED PyObject *found = PyObject_CallMethodNoArgs(x, w->names[N_stride]);
    const bool is_plane = found && PyTuple_Check(found) && PyTuple_GET_SIZE(found) == 2;
    if (is_plane) {
        s->frame = PyLong_AsSsize_t(PyTuple_GET_ITEM(found, 0)) * w->element_bytes;
        s->element = PyLong_AsSsize_t(PyTuple_GET_ITEM(found, 1)) * w->element_bytes;
    }
    return PyErr_Occurred() ? -1 : is_plane;
}

/* Learns the sizes of a table; whether it can be used, -1 with an exception. */
static int learn(window_object *w, PyObject *table)
{
    int is_plain = lies_plainly(w, table);
    if (is_plain == 1)
        is_plain = gives(w, table, N_is_contiguous, true, Py_True);
    if (is_plain != 1)
        return is_plain;
    DS_OWNED PyObject *shape = PyObject_GetAttr(table, w->names[N_shape]);
    DS_OWNED PyObject *dtype = shape ? PyObject_GetAttr(table, w->names[N_dtype]) : NULL;
    if (!dtype || !PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) < 2)
        return dtype ? 0 : -1;
    const Py_ssize_t n_rows = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, 0));
    const Py_ssize_t width = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, 1));
    const Py_ssize_t n_bytes = number(w, table, N_nbytes, false);
    const Py_ssize_t element_bytes = number(w, table, N_itemsize, false);
    if (PyErr_Occurred() || n_rows <= 0 || width <= 0 || n_bytes <= 0)
        return PyErr_Occurred() ? -1 : 0;
    w->n_rows = n_rows;
    w->width = width;
    w->frame_bytes = n_bytes / (n_rows * width);
    w->element_bytes = element_bytes;
    Py_XSETREF(w->dtype, Py_NewRef(dtype));
    Py_XSETREF(w->table, Py_NewRef(table));
    return 1;
}

/* Reads which rows of the table are meant: false, with or without an exception, where they don't lie evenly in it. */
static bool read_rows(const window_object *w, PyObject *slice, Py_ssize_t *first, Py_ssize_t *step)
{
    Py_ssize_t stop;
    if (!PySlice_Check(slice) || PySlice_Unpack(slice, first, &stop, step) < 0)
        return false;
    return *first >= 0 && *step > 0 && *first + (w->rows - 1) * *step < w->n_rows;
}

/* A row of a call: its kept frames, its new ones and how these lie, and how many columns both are. */
typedef struct row {
    const char *kept, *added;
    steps of_added;
    Py_ssize_t back, width;
} row;

/* Copies n elements that lie apart, zeros where they come from nowhere. */
static inline void copy_apart(char *to, Py_ssize_t step, const char *from, Py_ssize_t from_step,
                              Py_ssize_t n, size_t size)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (from)
            memcpy(to + i * step, from + i * from_step, size);
        else
            memset(to + i * step, 0, size);
}

/* Copies n frames, zeros where they come from nowhere. */
static void copy_frames(const window_object *w, char *to, steps t, const char *from, steps f,
                        Py_ssize_t n)
{
    const Py_ssize_t size = w->element_bytes, n_elements = w->frame_bytes / size;
    const bool is_run = t.element == size && t.frame == w->frame_bytes;
    if (is_run && !from) {
        memset(to, 0, (size_t)(n * w->frame_bytes));
    } else if (is_run && f.element == size && f.frame == w->frame_bytes) {
        memcpy(to, from, (size_t)(n * w->frame_bytes));
    } else {
        for (Py_ssize_t e = 0; e < n_elements; e++, to += t.element, from += from ? f.element : 0)
            if (size == sizeof(float)) /* a constant: the copy of one is a move */
                copy_apart(to, t.frame, from, f.frame, n, sizeof(float));
            else
                copy_apart(to, t.frame, from, f.frame, n, (size_t)size);
    }
}

/* Copies n columns of a row, `apart` from each other, zeros behind its last. */
static void copy_columns(const window_object *w, char *to, steps t, const row *from,
                         Py_ssize_t begin, Py_ssize_t n, Py_ssize_t apart)
{
    const steps kept = {w->frame_bytes, w->element_bytes};
    for (Py_ssize_t done = 0, more; done < n; done += more, to += more * t.frame) {
        const Py_ssize_t at = begin + done * apart, back = from->back;
        const Py_ssize_t end = at < back ? back : at < from->width ? from->width : PY_SSIZE_T_MAX;
        const char *source = at < back          ? from->kept + at * kept.frame
                             : at < from->width ? from->added + (at - back) * from->of_added.frame
                                                : NULL;
        const steps own = at < back ? kept : from->of_added;
        more = Py_MIN(n - done, (end - at - 1) / apart + 1);
        copy_frames(w, to, t, source, (steps){own.frame * apart, own.element}, more);
    }
}

/* Copies what a row's windows see, some windows at a time, whose memory stays in a cache; returns where they end. */
static char *copy_windows(const window_object *w, char *to, const row *from)
{
    enum { CACHED = 1 << 14 };
    const Py_ssize_t *c = w->columns, taps = c[TAPS];
    const Py_ssize_t span = (taps - 1) * c[DILATION] + 1, n = (c[SEEN] - span) / c[STRIDE] + 1;
    const steps apart = {taps * w->frame_bytes, taps * w->element_bytes};
    const Py_ssize_t most = taps > 1 ? Py_MAX(CACHED / apart.frame, 1) : n;
    for (Py_ssize_t i = 0, some; i < n; i += some, to += some * apart.frame) {
        some = Py_MIN(most, n - i);
        for (Py_ssize_t k = 0; k < taps; k++)
            copy_columns(w, to + k * w->element_bytes, apart, from,
                         c[OFFSET] + i * c[STRIDE] + k * c[DILATION], some, c[STRIDE]);
    }
    return to;
}

/* How many frames a row gets. */
static Py_ssize_t added_to(const window_object *w, const int64_t *counts, Py_ssize_t r)
{
    const Py_ssize_t added = w->columns[ADDED];
    return added < 0 ? (Py_ssize_t)(counts[4 * r + 2] - counts[4 * r]) : added;
}

/* Counts how many frames there are; whether more than half of the new columns of all rows have one. */
static bool is_dense(const window_object *w, const int64_t *counts, Py_ssize_t *n_frames)
{
    Py_ssize_t most = 0;
    *n_frames = 0;
    for (Py_ssize_t r = 0; r < w->rows; r++) {
        const Py_ssize_t added = added_to(w, counts, r);
        if (added < 0 || w->columns[BACK] + added < w->columns[TAIL])
            return false;
        most = Py_MAX(most, added);
        *n_frames += added;
    }
    return w->rows * most <= 2 * *n_frames || w->rows * most == *n_frames;
}

/* How many frames `out` has room for. */
static Py_ssize_t room_of(const window_object *w)
{
    const Py_ssize_t *c = w->columns, span = (c[TAPS] - 1) * c[DILATION] + 1;
    return w->rows * c[TAPS] * (c[SEEN] ? (c[SEEN] - span) / c[STRIDE] + 1 : 0);
}

/* Whether a tensor of this call is as large as so many frames; -1 with an exception. */
static int is_as_large(const window_object *w, PyObject *x, Py_ssize_t n)
{
    const Py_ssize_t n_bytes = number(w, x, N_nbytes, false);
    return PyErr_Occurred() ? -1 : n_bytes == n * w->frame_bytes;
}

/* Whether a call's tensors are what is copied here; -1 with an exception. */
static int fits(window_object *w, PyObject *table, PyObject *value, Py_ssize_t n_frames,
                PyObject *out, steps *of_value)
{
    int right = table == w->table ? 1 : learn(w, table);
    if (right == 1)
        right = w->width >= w->columns[BACK] && w->width >= w->columns[TAIL];
    if (right == 1)
        right = lies_plainly(w, value);
    if (right == 1)
        right = gives(w, value, N_dtype, false, w->dtype);
    if (right == 1)
        right = is_as_large(w, value, n_frames);
    if (right == 1)
        right = find_steps(w, value, of_value);
    return right == 1 ? is_as_large(w, out, room_of(w)) : right;
}

/* Where a tensor's elements begin; NULL, where there are none or with an exception. */
static char *memory_of(const window_object *w, PyObject *x)
{
    DS_OWNED PyObject *address = PyObject_CallMethodNoArgs(x, w->names[N_data_ptr]);
    return address ? PyLong_AsVoidPtr(address) : NULL;
}

/* take(table, old, next, value, counts, out): fills `out` and the next rows of the table; false where nothing was done. */
static PyObject *window_take(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    window_object *w = (window_object *)self;
    enum { TABLE, OLD, NEXT, VALUE, COUNTS, OUT, N_ARGUMENTS };
    if (n_args != N_ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "take(table, old, next, value, counts, out)");
    PyArrayObject *array = (PyArrayObject *)args[COUNTS];
    if (w->columns[ADDED] < 0 &&
        !(PyArray_Check(args[COUNTS]) && PyArray_TYPE(array) == NPY_INT64 &&
          PyArray_IS_C_CONTIGUOUS(array) && PyArray_SIZE(array) == 4 * w->rows))
        return Py_NewRef(Py_False);
    const int64_t *counts = w->columns[ADDED] < 0 ? PyArray_DATA(array) : NULL;
    Py_ssize_t n_frames, old, old_step, next, next_step;
    if (!is_dense(w, counts, &n_frames))
        return Py_NewRef(Py_False);
    row from = {.back = w->columns[BACK]};
    const int right = fits(w, args[TABLE], args[VALUE], n_frames, args[OUT], &from.of_added);
    if (right < 0)
        return NULL;
    if (!right || !read_rows(w, args[OLD], &old, &old_step) ||
        !read_rows(w, args[NEXT], &next, &next_step))
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    char *states = memory_of(w, args[TABLE]), *to = memory_of(w, args[OUT]);
    from.added = memory_of(w, args[VALUE]);
    if (PyErr_Occurred())
        return NULL;
    const Py_ssize_t tail = w->columns[TAIL], row_bytes = w->width * w->frame_bytes;
    const steps of_table = {w->frame_bytes, w->element_bytes};
    for (Py_ssize_t r = 0; r < w->rows; r++) {
        const Py_ssize_t added = added_to(w, counts, r);
        from.kept = states + (old + r * old_step) * row_bytes;
        from.width = from.back + added;
        if (w->columns[SEEN])
            to = copy_windows(w, to, &from);
        if (tail) /* zeros behind it: the row is as wide as any call's tail */
            copy_columns(w, states + (next + r * next_step) * row_bytes, of_table, &from,
                         from.width - tail, w->width, 1);
        from.added += added * from.of_added.frame;
    }
    return Py_NewRef(Py_True);
}

static PyObject *window_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"", "", "", "", "", "", "", "", "", "", NULL};
    static const char *const names[] = {
#define NAME_TEXT(name) #name,
        NAMES(NAME_TEXT)};
    PyObject *tensor_type;
    Py_ssize_t rows, c[N_COLUMNS] = {[TAPS] = 1, [STRIDE] = 1, [DILATION] = 1};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Onnnnnn|nnn:Window", keywords, &tensor_type,
                                     &rows, &c[BACK], &c[ADDED], &c[TAIL], &c[OFFSET], &c[SEEN],
                                     &c[TAPS], &c[STRIDE], &c[DILATION]))
        return NULL;
    if (rows < 1 || c[BACK] < 0 || c[TAIL] < 0 || c[OFFSET] < 0 || c[SEEN] < 0)
        return PyErr_Format(PyExc_ValueError, "Window: no columns are before the first");
    if (c[TAPS] < 1 || c[STRIDE] < 1 || c[DILATION] < 1 ||
        (c[SEEN] && (c[SEEN] - 1) / c[DILATION] < c[TAPS] - 1))
        return PyErr_Format(PyExc_ValueError, "Window: its taps must be within what is seen");
    window_object *w = (window_object *)type->tp_alloc(type, 0);
    if (!w)
        return NULL;
    w->tensor_type = Py_NewRef(tensor_type);
    w->rows = rows;
    memcpy(w->columns, c, sizeof c);
    for (int i = 0; i < N_NAMES; i++)
        if (!(w->names[i] = PyUnicode_InternFromString(names[i]))) {
            Py_DECREF(w);
            return NULL;
        }
    return (PyObject *)w;
}

static int window_traverse(PyObject *self, visitproc visit, void *arg)
{
    window_object *w = (window_object *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(w->tensor_type);
    Py_VISIT(w->table);
    Py_VISIT(w->dtype);
    return 0;
}

static int window_clear(PyObject *self)
{
    window_object *w = (window_object *)self;
    Py_CLEAR(w->tensor_type);
    Py_CLEAR(w->table);
    Py_CLEAR(w->dtype);
    return 0;
}

static void window_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    window_clear(self);
    for (int i = 0; i < N_NAMES; i++)
        Py_XDECREF(((window_object *)self)->names[i]);
    ds_free_object(self);
}

static PyMethodDef window_methods[] = {
    {"take", (PyCFunction)(void (*)(void))window_take, METH_FASTCALL,
     "Fill a tensor with the columns that are seen, and the next rows of the table."},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(window, "Window", window_object, Py_TPFLAGS_HAVE_GC,
        "Window(tensor_type, rows, back, added, tail, offset, seen, taps, stride, dilation): "
        "columns of kept and new frames.",
        {Py_tp_new, window_new}, {Py_tp_traverse, window_traverse}, {Py_tp_clear, window_clear},
        {Py_tp_dealloc, window_dealloc}, {Py_tp_methods, window_methods});
