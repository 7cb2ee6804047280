/* The safetensors container (codec/safetensors.h) from Python: its parts, and a file made of parts. */
#include <string.h>

#include "codec/safetensors_write.h"
#include "python/files.h"

/* ---------------------------------------------------------------- a sink in Python */
static int flush(ds_python_sink *sink)
{
    if (!sink->n_staged)
        return 0;
    PyObject *done =
        PyObject_CallFunction(sink->write, "y#", sink->stage, (Py_ssize_t)sink->n_staged);
    sink->n_staged = 0;
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static ds_status put(void *context, const void *bytes, size_t n_bytes)
{
    ds_python_sink *sink = context;
    for (const char *from = bytes; n_bytes > 0;) {
        size_t n = DS_PIECE_BYTES - sink->n_staged;
        n = n < n_bytes ? n : n_bytes;
        memcpy(sink->stage + sink->n_staged, from, n);
        sink->n_staged += n;
        from += n;
        n_bytes -= n;
        if (sink->n_staged == DS_PIECE_BYTES && flush(sink) < 0)
            return ds_fail(DS_FORMAT, "what takes the bytes raised an exception");
    }
    return DS_OK;
}

int ds_python_sink_begin(ds_python_sink *sink, PyObject *write)
{
    *sink = (ds_python_sink){.write = write, .stage = PyMem_Malloc(DS_PIECE_BYTES)};
    if (!sink->stage)
        PyErr_NoMemory();
    return sink->stage ? 0 : -1;
}

ds_sink ds_python_sink_of(ds_python_sink *sink)
{
    return (ds_sink){.context = sink, .write = put};
}

PyObject *ds_python_sink_end(ds_module *m, ds_python_sink *sink, ds_status status)
{
    int flushed = status == DS_OK ? flush(sink) : -1;
    PyMem_Free(sink->stage);
    if (status != DS_OK && !PyErr_Occurred())
        /* What is no valid argument here is what a file can't hold. */
        ds_raise(m, status == DS_ARGUMENT ? DS_FORMAT : status, NULL);
    return flushed == 0 ? Py_NewRef(Py_None) : NULL;
}

/* ---------------------------------------------------------------- reading */
static PyObject *build_tensor(const ds_tensor_view *view)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)view->rank);
    for (size_t d = 0; shape && d < view->rank; d++) {
        PyObject *n = PyLong_FromLongLong(view->shape[d]);
        if (!n)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, (Py_ssize_t)d, n);
    }
    return shape ? Py_BuildValue("(ssNnn)", view->name, ds_tensor_type_name(view->type), shape,
                                 (Py_ssize_t)view->offset, (Py_ssize_t)view->n_bytes)
                 : NULL;
}

static PyObject *build_tensors(const ds_safetensors *file)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < ds_safetensors_count(file); i++) {
        const ds_tensor_view *view = ds_safetensors_at(file, i);
        PyObject *item = ds_tensor_is_filler(view) ? Py_NewRef(Py_None) : build_tensor(view);
        if (!item || (item != Py_None && PyList_Append(list, item) < 0))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *build_texts(const ds_safetensors *file)
{
    ds_json_value metadata, key, value;
    ds_json_cursor at;
    PyObject *dict = PyDict_New();
    if (!dict || !ds_safetensors_metadata(&metadata, file) ||
        ds_json_enter_object(&at, metadata) != DS_OK)
        return dict;
    while (dict && ds_json_next_member(&at, &key, &value)) {
        const char *name, *text;
        size_t n_name, n_text;
        PyObject *k = NULL, *v = NULL;
        if (ds_json_string(&name, &n_name, key) == DS_OK &&
            ds_json_string(&text, &n_text, value) == DS_OK) {
            k = PyUnicode_FromStringAndSize(name, (Py_ssize_t)n_name);
            v = k ? PyUnicode_FromStringAndSize(text, (Py_ssize_t)n_text) : NULL;
        }
        if (!v || PyDict_SetItem(dict, k, v) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(k);
        Py_XDECREF(v);
    }
    return dict;
}

/* read_container(bytes) -> ([(name, type, shape, offset, n_bytes), ...], {key: text}), fillers apart */
PyObject *ds_read_container(PyObject *module, PyObject *args)
{
    ds_module *m = PyModule_GetState(module);
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "y*:read_container", &view))
        return NULL;
    const ds_allocator allocator = ds_module_allocator(m);
    ds_safetensors *file = NULL;
    ds_status status = ds_safetensors_open(&file, &allocator, view.buf, (size_t)view.len);
    PyObject *result = NULL;
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
    } else {
        PyObject *tensors = build_tensors(file), *texts = tensors ? build_texts(file) : NULL;
        if (texts)
            result = PyTuple_Pack(2, tensors, texts);
        Py_XDECREF(tensors);
        Py_XDECREF(texts);
    }
    ds_safetensors_close(file);
    PyBuffer_Release(&view);
    return result;
}

/* ---------------------------------------------------------------- writing */
typedef struct parts {
    ds_tensor_source *tensors;
    Py_buffer *views; /* [n_tensors] of those that were parsed; obj NULL elsewhere */
    int64_t *shapes;
    ds_metadata_source *texts;
    Py_ssize_t n_tensors, n_texts;
} parts;

enum { MAX_RANK = 16 };

static void release_parts(parts *p)
{
    for (Py_ssize_t i = 0; p->views && i < p->n_tensors; i++)
        if (p->views[i].obj)
            PyBuffer_Release(&p->views[i]);
    PyMem_Free(p->tensors);
    PyMem_Free(p->views);
    PyMem_Free(p->shapes);
    PyMem_Free(p->texts);
}

/* One (name, type, shape, bytes); the tuple keeps what is pointed to. */
static int parse_tensor(ds_module *m, PyObject *item, ds_tensor_source *source, int64_t *shape,
                        Py_buffer *view)
{
    const char *name, *type;
    PyObject *sizes;
    if (!PyArg_ParseTuple(item, "ssO!y*", &name, &type, &PyTuple_Type, &sizes, view))
        return -1;
    Py_ssize_t rank = PyTuple_GET_SIZE(sizes);
    *source = (ds_tensor_source){.name = name, .rank = (size_t)rank, .shape = shape};
    if (!ds_tensor_type_find(&source->type, type)) {
        PyErr_Format(m->errors[DS_FORMAT], "tensor %s: there is no element type %s", name, type);
        return -1;
    }
    if (rank > MAX_RANK) {
        PyErr_Format(m->errors[DS_FORMAT], "tensor %s: %zd dimensions, at most %d", name, rank,
                     MAX_RANK);
        return -1;
    }
    int64_t n_bytes = (int64_t)ds_tensor_type_bytes(source->type);
    bool fits = true;
    for (Py_ssize_t d = 0; d < rank; d++) {
        shape[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, d));
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
            return -1;
        PyErr_Clear();
        fits &= shape[d] >= 0 && !__builtin_mul_overflow(n_bytes, shape[d], &n_bytes);
    }
    if (!fits || n_bytes != view->len) {
        PyErr_Format(m->errors[DS_FORMAT], "tensor %s: %zd bytes are no %s of shape %R", name,
                     view->len, type, sizes);
        return -1;
    }
    source->data = view->len ? view->buf : "";
    return 0;
}

static int parse_parts(ds_module *m, PyObject *tensors, PyObject *texts, parts *p)
{
    p->n_tensors = PyList_GET_SIZE(tensors);
    p->n_texts = PyDict_GET_SIZE(texts);
    const size_t n = (size_t)p->n_tensors;
    p->tensors = PyMem_Calloc(n + 1, sizeof *p->tensors);
    p->views = PyMem_Calloc(n + 1, sizeof *p->views);
    p->shapes = PyMem_Calloc(n + 1, MAX_RANK * sizeof *p->shapes);
    p->texts = PyMem_Calloc((size_t)p->n_texts + 1, sizeof *p->texts);
    if (!p->tensors || !p->views || !p->shapes || !p->texts) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < p->n_tensors; i++)
        if (parse_tensor(m, PyList_GET_ITEM(tensors, i), &p->tensors[i], p->shapes + i * MAX_RANK,
                         &p->views[i]) < 0)
            return -1;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; PyDict_Next(texts, &at, &key, &value); i++) {
        Py_ssize_t n_bytes = 0;
        p->texts[i].key = PyUnicode_AsUTF8(key);
        p->texts[i].text = p->texts[i].key ? PyUnicode_AsUTF8AndSize(value, &n_bytes) : NULL;
        p->texts[i].n_bytes = (size_t)n_bytes;
        if (!p->texts[i].text)
            return -1;
    }
    return 0;
}

/* write_container(write, [(name, type, shape, bytes), ...], {key: text}) */
PyObject *ds_write_container(PyObject *module, PyObject *args)
{
    ds_module *m = PyModule_GetState(module);
    PyObject *write, *tensors, *texts;
    if (!PyArg_ParseTuple(args, "OO!O!:write_container", &write, &PyList_Type, &tensors,
                          &PyDict_Type, &texts))
        return NULL;
    /* What is pointed into must stay, whatever `write` does. */
    tensors = PyList_GetSlice(tensors, 0, PyList_GET_SIZE(tensors));
    texts = tensors ? PyDict_Copy(texts) : NULL;
    PyObject *result = NULL;
    parts p = {0};
    ds_python_sink sink;
    if (texts && parse_parts(m, tensors, texts, &p) == 0 &&
        ds_python_sink_begin(&sink, write) == 0) {
        const ds_allocator allocator = ds_module_allocator(m);
        const ds_sink to = ds_python_sink_of(&sink);
        result =
            ds_python_sink_end(m, &sink,
                               ds_safetensors_write(&to, &allocator, p.tensors, (size_t)p.n_tensors,
                                                    p.texts, (size_t)p.n_texts));
    }
    release_parts(&p);
    Py_XDECREF(tensors);
    Py_XDECREF(texts);
    return result;
}
