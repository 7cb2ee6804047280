/* _core.WavReader: audio/wav.h over a path, over bytes, or over a Python file object.
 *
 * The interpreter's lock is released while a path or bytes are decoded; a file object needs it.
 * One call at a time: another one, from a second thread or from within the file object, is
 * refused. */
#include <errno.h>
#include <string.h>

#include "audio/wav.h"
#include "python/support.h"

enum { FIRST_SAMPLES = 1 << 22 }; /* that room is made for before any came; above 65535 channels */

typedef struct wav_object {
    PyObject_HEAD
    ds_wav wav;
    FILE *file; /* of a path */
    ds_memory_source memory;
    Py_buffer view; /* of bytes; view.obj NULL without */
    PyObject *read; /* of a file object: its method */
    PyObject *name; /* for messages: a str */
    PyObject *path; /* as it was given, for OSError */
    bool busy, closed;
} wav_object;

/* ---------------------------------------------------------------- sources */
/* Takes one piece that a file object returned. */
static int copy_piece(PyObject *piece, char *to, size_t most, size_t *n)
{
    Py_buffer view;
    if (PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE) < 0) {
        PyErr_Format(PyExc_TypeError,
                     "read() of a file object must return bytes (open it with \"rb\"), "
                     "got %.100s",
                     Py_TYPE(piece)->tp_name);
        return -1;
    }
    *n = (size_t)view.len;
    if (*n <= most)
        memcpy(to, view.buf, *n);
    else
        PyErr_Format(PyExc_ValueError, "read(%zu) of a file object returned %zu bytes", most, *n);
    PyBuffer_Release(&view);
    return *n <= most ? 0 : -1;
}

static ds_status read_object(void *context, void *bytes, size_t n, size_t *n_read)
{
    const wav_object *self = context;
    for (*n_read = 0; *n_read < n;) {
        size_t got = 0;
        PyObject *piece = PyObject_CallFunction(self->read, "n", (Py_ssize_t)(n - *n_read));
        int status = piece ? copy_piece(piece, (char *)bytes + *n_read, n - *n_read, &got) : -1;
        Py_XDECREF(piece);
        if (status < 0)
            return ds_fail(DS_FORMAT, "a file object raised an exception");
        if (got == 0)
            break;
        *n_read += got;
    }
    return DS_OK;
}

/* The reader's source; -1 with an exception. */
static int make_source(wav_object *self, PyObject *from, ds_source *source)
{
    if (PyUnicode_Check(from) || PyObject_HasAttrString(from, "__fspath__")) {
        PyObject *bytes = NULL;
        if (!PyUnicode_FSConverter(from, &bytes))
            return -1;
        self->path = Py_NewRef(from);
        self->name = PyUnicode_DecodeFSDefault(PyBytes_AS_STRING(bytes));
        int error = 0;
        Py_BEGIN_ALLOW_THREADS
        self->file = fopen(PyBytes_AS_STRING(bytes), "rb");
        error = errno;
        Py_END_ALLOW_THREADS
        Py_DECREF(bytes);
        if (!self->file) {
            errno = error;
            PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, from);
            return -1;
        }
        *source = ds_source_file(self->file);
        return self->name ? 0 : -1;
    }
    if (PyObject_CheckBuffer(from)) {
        if (PyObject_GetBuffer(from, &self->view, PyBUF_SIMPLE) < 0)
            return -1;
        *source = ds_source_memory(&self->memory, self->view.buf, (size_t)self->view.len);
    } else {
        self->read = PyObject_GetAttrString(from, "read");
        if (!self->read) {
            PyErr_Format(PyExc_TypeError,
                         "expected a path, bytes or a file object with read(), got %.100s",
                         Py_TYPE(from)->tp_name);
            return -1;
        }
        *source = (ds_source){.read = read_object, .context = self};
        self->name = PyObject_GetAttrString(from, "name");
        PyErr_Clear();
    }
    if (!self->name || !PyUnicode_Check(self->name))
        Py_XSETREF(self->name, PyUnicode_FromString("recording"));
    return self->name ? 0 : -1;
}

/* Raises what a call of audio/ came to; error: the system's, as it was right after the call. */
static PyObject *raise_status(ds_module *m, const wav_object *self, ds_status status, int error)
{
    if (PyErr_Occurred())
        return NULL;
    if (self->file && ferror(self->file)) {
        errno = error;
        return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, self->path);
    }
    return PyErr_Format(m->errors[status], "%U: %s", self->name, ds_last_error());
}

/* ---------------------------------------------------------------- making and ending one */
static void release(wav_object *self)
{
    if (self->file)
        (void)fclose(self->file);
    self->file = NULL;
    if (self->view.obj)
        PyBuffer_Release(&self->view);
    Py_CLEAR(self->read);
    self->closed = true;
}

static PyObject *wav_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ds_module *m = ds_module_of(type);
    PyObject *from;
    ds_source source;
    if (!PyArg_ParseTuple(args, "O:WavReader", &from))
        return NULL;
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "WavReader takes no keyword arguments");
        return NULL;
    }
    wav_object *self = (wav_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    if (make_source(self, from, &source) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    ds_status status;
    int error = 0;
    if (self->read) {
        status = ds_wav_open(&self->wav, &source);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = ds_wav_open(&self->wav, &source);
        error = errno;
        Py_END_ALLOW_THREADS
    }
    if (status != DS_OK) {
        raise_status(m, self, status, error);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int wav_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((wav_object *)self)->read);
    Py_VISIT(((wav_object *)self)->path);
    Py_VISIT(((wav_object *)self)->view.obj);
    return 0;
}

static int wav_clear(PyObject *self)
{
    release((wav_object *)self);
    Py_CLEAR(((wav_object *)self)->path);
    return 0;
}

static void wav_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)wav_clear(self);
    Py_XDECREF(((wav_object *)self)->name);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Whether no other call is under way; StreamBusyError elsewhere. */
static int check_idle(const ds_module *m, const wav_object *self)
{
    if (!self->busy)
        return 0;
    PyErr_Format(m->errors[DS_BUSY], "%U: another call is reading it", self->name);
    return -1;
}

static PyObject *wav_close(PyObject *object, PyObject *unused)
{
    wav_object *self = (wav_object *)object;
    (void)unused;
    if (check_idle(ds_module_of(Py_TYPE(object)), self) < 0)
        return NULL;
    release(self);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- frames */
static PyObject *new_frames(const wav_object *self, npy_intp n, ds_dtype dtype)
{
    npy_intp shape[2] = {n, (npy_intp)self->wav.channels};
    return PyArray_SimpleNew(2, shape, ds_numpy_type(dtype));
}

/* What there is of an array's frames, `used`, in another of n; takes the array. */
static PyObject *moved_frames(const wav_object *self, PyObject *frames, int64_t used, int64_t n,
                              ds_dtype dtype)
{
    PyObject *out = new_frames(self, (npy_intp)n, dtype);
    if (out && used)
        memcpy(PyArray_DATA((PyArrayObject *)out), PyArray_DATA((PyArrayObject *)frames),
               (size_t)used * (size_t)PyArray_STRIDE((PyArrayObject *)frames, 0));
    Py_DECREF(frames);
    return out;
}

/* Fills `frames` from frame `have` up to frame `room`; -1 with an exception. */
static int fill_frames(ds_module *m, wav_object *self, PyObject *frames, int64_t have, int64_t room,
                       ds_dtype dtype, int64_t *got)
{
    int error = 0;
    ds_status status;
    void *to = PyArray_BYTES((PyArrayObject *)frames) +
               (npy_intp)have * PyArray_STRIDE((PyArrayObject *)frames, 0);
    const int64_t n = room - have;
    self->busy = true;
    if (self->read) {
        status = ds_wav_read(&self->wav, dtype, to, n, got);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = ds_wav_read(&self->wav, dtype, to, n, got);
        error = errno;
        Py_END_ALLOW_THREADS
    }
    self->busy = false;
    if (status == DS_OK)
        return 0;
    if (have > 0 && !PyErr_Occurred() && !(self->file && ferror(self->file))) {
        *got = 0; /* it ends too early: what came is given, and the next call fails */
        return 0;
    }
    (void)raise_status(m, self, status, error);
    return -1;
}

/* Up to n frames. Room grows with what the source really has: a header can promise anything. */
static PyObject *read_frames(ds_module *m, wav_object *self, int64_t n, ds_dtype dtype)
{
    const int64_t few = FIRST_SAMPLES / self->wav.channels;
    int64_t have = 0, got, room = n < few ? n : few;
    PyObject *frames = new_frames(self, (npy_intp)room, dtype);
    while (frames) {
        if (fill_frames(m, self, frames, have, room, dtype, &got) < 0) {
            Py_DECREF(frames);
            return NULL;
        }
        have += got;
        if (have < room)
            return moved_frames(self, frames, have, have, dtype);
        if (room == n)
            return frames;
        room = room < n / 2 ? 2 * room : n;
        frames = moved_frames(self, frames, have, room, dtype);
    }
    return NULL;
}

static PyObject *wav_read(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"n_frames", "dtype", NULL};
    ds_module *m = ds_module_of(Py_TYPE(object));
    wav_object *self = (wav_object *)object;
    Py_ssize_t n;
    PyObject *name = NULL;
    ds_dtype dtype = DS_F32;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|O:read", names, &n, &name) ||
        (name && ds_parse_dtype(m, name, &dtype) < 0) || check_idle(m, self) < 0)
        return NULL;
    if (self->closed)
        return PyErr_Format(m->errors[DS_CLOSED], "%U: the reader was closed", self->name);
    if (n < 0)
        return PyErr_Format(m->errors[DS_ARGUMENT], "expected a number of frames, got %zd", n);
    const int64_t left = self->wav.frames - self->wav.position;
    if (self->wav.frames >= 0 && n > left)
        n = (Py_ssize_t)left;
    return read_frames(m, self, n, dtype);
}

/* ---------------------------------------------------------------- the header */
static PyObject *get_sample_rate(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(((wav_object *)self)->wav.sample_rate);
}

static PyObject *get_channels(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(((wav_object *)self)->wav.channels);
}

static PyObject *get_frames(PyObject *self, void *unused)
{
    (void)unused;
    const int64_t frames = ((wav_object *)self)->wav.frames;
    return frames < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(frames);
}

static PyGetSetDef wav_getset[] = {
    {"sample_rate", get_sample_rate, NULL, "Frames per second.", NULL},
    {"channels", get_channels, NULL, "Samples of a frame.", NULL},
    {"frames", get_frames, NULL, "Of the whole recording; None: it lasts until the source ends.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef wav_methods[] = {
    {"read", (PyCFunction)(void (*)(void))wav_read, METH_VARARGS | METH_KEYWORDS,
     "read(n_frames, dtype='float32') -> array (frames, channels), shorter at the end only"},
    {"close", wav_close, METH_NOARGS, "Close the file of a path, release bytes or a file object."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot wav_slots[] = {
    {Py_tp_new, wav_new},
    {Py_tp_dealloc, wav_dealloc},
    {Py_tp_traverse, wav_traverse},
    {Py_tp_clear, wav_clear},
    {Py_tp_methods, wav_methods},
    {Py_tp_getset, wav_getset},
    {Py_tp_doc, "Reads a WAV file front to back."},
    {0, NULL},
};

PyType_Spec ds_wav_spec = {"dreamstream._core.WavReader", sizeof(wav_object), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
                           wav_slots};
