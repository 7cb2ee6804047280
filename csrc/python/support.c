/* python/support.c: errors, arrays, signatures and attributes, between Python and the engine. */
#include "python/support.h"

#include <string.h>

ds_module *ds_module_of(PyTypeObject *type)
{
    return PyType_GetModuleState(type);
}

void ds_free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

void ds_set_item(PyObject **sequence, Py_ssize_t i, PyObject *item)
{
    if (*sequence && item)
        PySequence_Fast_ITEMS(*sequence)[i] = item;
    else if (*sequence)
        Py_CLEAR(*sequence);
    else
        Py_XDECREF(item);
}

void ds_append(PyObject **list, PyObject *item)
{
    if (*list && (!item || PyList_Append(*list, item) < 0))
        Py_CLEAR(*list);
    Py_XDECREF(item);
}

void ds_set_named(PyObject **dict, PyObject *name, PyObject *item)
{
    if (*dict && (!item || PyDict_SetItem(*dict, name, item) < 0))
        Py_CLEAR(*dict);
    Py_XDECREF(item);
}

PyObject *ds_build_list(size_t n, PyObject *(*item)(const void *of, size_t i), const void *of)
{
    PyObject *list = PyErr_Occurred() ? NULL : PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++)
        ds_set_item(&list, (Py_ssize_t)i, item(of, i));
    return list;
}

PyObject *ds_int_item(const void *ints, size_t i)
{
    return PyLong_FromLong(((const int *)ints)[i]);
}

PyObject *ds_int64_item(const void *ints, size_t i)
{
    return PyLong_FromLongLong(((const int64_t *)ints)[i]);
}

Py_ssize_t ds_parse_ints(PyObject *sequence, int64_t *values, Py_ssize_t limit)
{
    /* a copy: items may run code that changes the caller's */
    DS_OWNED PyObject *fast = PySequence_Tuple(sequence);
    const Py_ssize_t n = fast ? PyTuple_GET_SIZE(fast) : 0;
    for (Py_ssize_t i = 0; i < n && i < limit && !PyErr_Occurred(); i++)
        values[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(fast, i));
    return PyErr_Occurred() ? -1 : n;
}

/* ---------------------------------------------------------------- errors */
PyObject *ds_raise(ds_module *m, ds_status status, PyObject *ids)
{
    PyObject *cls = m->errors[status > 0 && (int)status < DS_N_STATUS ? status : DS_INTERNAL];
    PyObject *message =
        PyUnicode_DecodeUTF8(ds_last_error(), (Py_ssize_t)strlen(ds_last_error()), "replace");
    DS_OWNED PyObject *arguments =
        message ? Py_BuildValue(ids ? "(NO)" : "(N)", message, ids) : NULL;
    if (arguments)
        PyErr_SetObject(cls, arguments);
    return NULL;
}

PyObject *ds_unless_failed(ds_module *m, ds_status status, PyObject *object)
{
    if (status == DS_OK)
        return object;
    Py_XDECREF(object);
    return ds_raise(m, status, NULL);
}

bool ds_have_kernels(const ds_module *m)
{
    if (!m->kernels)
        PyErr_SetString(PyExc_ValueError, m->no_kernels);
    return m->kernels != NULL;
}

/* ---------------------------------------------------------------- dtypes and signatures */
static const int numpy_types[] = {
    NPY_NOTYPE,           [DS_F32] = NPY_FLOAT32, [DS_F64] = NPY_FLOAT64,
    [DS_I64] = NPY_INT64, [DS_BOOL] = NPY_BOOL,   [DS_I16] = NPY_INT16,
};
enum { N_DTYPES = sizeof numpy_types / sizeof *numpy_types };

static int parse_dtype(ds_module *m, PyObject *name, ds_dtype *dtype)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    *dtype = text ? ds_dtype_find(text) : (ds_dtype)0;
    if (!*dtype && !PyErr_Occurred())
        PyErr_Format(m->errors[DS_DTYPE], "dtype %R: expected float32, float64, int64 or bool",
                     name);
    return *dtype ? 0 : -1;
}

int ds_numpy_type(ds_dtype dtype)
{
    return numpy_types[dtype];
}

ds_element ds_element_of(const PyArrayObject *array)
{
    static const ds_element elements[NPY_DOUBLE + 1] = {
        [NPY_BOOL] = DS_ELEMENT_BOOL,
        [NPY_BYTE] = DS_ELEMENT_I8,
        [NPY_UBYTE] = DS_ELEMENT_U8,
        [NPY_SHORT] = DS_ELEMENT_I16,
        [NPY_USHORT] = DS_ELEMENT_U16,
        [NPY_INT] = DS_ELEMENT_I32,
        [NPY_UINT] = DS_ELEMENT_U32,
        [NPY_LONG] = sizeof(long) == 8 ? DS_ELEMENT_I64 : DS_ELEMENT_I32,
        [NPY_ULONG] = sizeof(long) == 8 ? DS_ELEMENT_U64 : DS_ELEMENT_U32,
        [NPY_LONGLONG] = DS_ELEMENT_I64,
        [NPY_ULONGLONG] = DS_ELEMENT_U64,
        [NPY_FLOAT] = DS_ELEMENT_F32,
        [NPY_DOUBLE] = DS_ELEMENT_F64,
    };
    const int type = PyArray_TYPE(array);
    return type <= NPY_DOUBLE ? elements[type] : 0;
}

bool ds_array_is(PyObject *object, int type, int rank, const npy_intp *shape, bool writable)
{
    PyArrayObject *a = (PyArrayObject *)object;
    bool right = PyArray_Check(object) && PyArray_TYPE(a) == type && PyArray_NDIM(a) == rank &&
                 (writable ? PyArray_ISCARRAY(a) : PyArray_ISCARRAY_RO(a));
    for (int d = 0; right && d < rank; d++)
        right = shape[d] < 0 || PyArray_DIM(a, d) == shape[d];
    return right;
}

bool ds_array_fits(PyObject *object, const ds_signature *s, int64_t n_frames, bool writable)
{
    const int frames = n_frames >= 0;
    npy_intp shape[DS_MAX_RANK + 1] = {n_frames};
    for (int d = 0; d < s->rank; d++)
        shape[d + frames] = s->shape[d];
    return ds_array_is(object, ds_numpy_type(s->dtype), s->rank + frames, shape, writable);
}

static int parse_shape(ds_module *m, PyObject *shape, ds_signature *s)
{
    const Py_ssize_t rank = ds_parse_ints(shape, s->shape, DS_MAX_RANK);
    s->rank = (int)rank;
    if (rank > DS_MAX_RANK)
        PyErr_Format(m->errors[DS_SHAPE], "at most %d feature axes are supported, got %zd",
                     DS_MAX_RANK, rank);
    return PyErr_Occurred() ? -1 : 0;
}

int ds_parse_signature(ds_module *m, PyObject *tuple, int has_rate, ds_signature *signature)
{
    PyObject *dtype, *shape;
    long long num = 0, den = 1;
    memset(signature, 0, sizeof *signature);
    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, has_rate ? "OOLL" : "OO", &dtype, &shape, &num, &den)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a signature is a tuple");
        return -1;
    }
    signature->rate = (ds_rate){num, den};
    return parse_dtype(m, dtype, &signature->dtype) < 0 ? -1 : parse_shape(m, shape, signature);
}

int ds_parse_signatures(ds_module *m, PyObject *sequence, int has_rate, ds_signature *signatures,
                        size_t limit, size_t *n)
{
    DS_OWNED PyObject *fast = PySequence_Tuple(sequence);
    if (!fast)
        return -1;
    *n = (size_t)PyTuple_GET_SIZE(fast);
    if (*n > limit)
        PyErr_Format(m->errors[DS_ARGUMENT], "at most %zu signatures, got %zu", limit, *n);
    for (size_t i = 0; i < *n && !PyErr_Occurred(); i++) {
        PyObject *item = PyTuple_GET_ITEM(fast, (Py_ssize_t)i);
        if (item == Py_None)
            signatures[i] = (ds_signature){0};
        else
            (void)ds_parse_signature(m, item, has_rate, &signatures[i]);
    }
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *ds_build_signature(const ds_signature *s)
{
    DS_OWNED PyObject *shape = ds_build_list((size_t)s->rank, ds_int64_item, s->shape);
    return shape ? Py_BuildValue("sNLL", ds_dtype_name(s->dtype), PyList_AsTuple(shape),
                                 (long long)s->rate.num, (long long)s->rate.den)
                 : NULL;
}

PyObject *ds_build_array(const ds_signature *s, int64_t n_frames, bool zeroed)
{
    const int frames = n_frames >= 0;
    npy_intp shape[DS_MAX_RANK + 1] = {n_frames};
    for (int d = 0; d < s->rank; d++)
        shape[d + frames] = s->shape[d];
    return zeroed ? PyArray_ZEROS(s->rank + frames, shape, ds_numpy_type(s->dtype), 0)
                  : PyArray_SimpleNew(s->rank + frames, shape, ds_numpy_type(s->dtype));
}

static PyObject *build_output(const void *op, size_t o)
{
    return ds_build_signature(&((const ds_op *)op)->out[o]);
}

PyObject *ds_build_outputs(const ds_op *op)
{
    return ds_build_list((size_t)op->n_outputs, build_output, op);
}

/* ---------------------------------------------------------------- attributes */
const ds_op_def *ds_parse_def(ds_module *m, PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    const ds_op_def *def = text ? ds_op_find(text) : NULL;
    if (!def && !PyErr_Occurred())
        PyErr_Format(m->errors[DS_ARGUMENT], "there is no operator %R", name);
    return def;
}

/* An exception is set where it is of no kind, or out of range. */
static void parse_attr(PyObject *value, ds_attr *attr)
{
    if (PyUnicode_Check(value)) {
        attr->kind = DS_ATTR_CHOICE;
        attr->text = PyUnicode_AsUTF8(value);
    } else if (PyFloat_Check(value)) {
        attr->kind = DS_ATTR_REAL;
        attr->value.x = PyFloat_AS_DOUBLE(value);
    } else if (PyIndex_Check(value)) {
        attr->kind = DS_ATTR_INT;
        attr->value.i = PyLong_AsLongLong(value);
    } else {
        const Py_ssize_t n = ds_parse_ints(value, attr->value.ints, DS_MAX_INTS);
        attr->kind = DS_ATTR_INTS; /* too many: refused by name */
        attr->value.n_ints = n > DS_MAX_INTS ? DS_MAX_INTS + 1 : (int)n;
    }
}

static PyObject *build_attribute(const ds_attr_def *def, const ds_attr_value *v)
{
    if (def->kind == DS_ATTR_REAL)
        return PyFloat_FromDouble(v->x);
    if (def->kind == DS_ATTR_INT)
        return PyLong_FromLongLong(v->i);
    if (def->kind == DS_ATTR_CHOICE) {
        size_t n_bytes;
        const char *choice = ds_attr_choice(def, v->i, &n_bytes);
        return PyUnicode_FromStringAndSize(choice, (Py_ssize_t)n_bytes);
    }
    if (def->kind == DS_ATTR_TEXT)
        return PyUnicode_FromString(v->text);
    return ds_build_list((size_t)v->n_ints, ds_int64_item, v->ints);
}

PyObject *ds_build_attributes(const ds_op *op)
{
    PyObject *dict = PyDict_New();
    const ds_attr_def *def = op->def->attrs;
    for (int i = 0; dict && def && def[i].name; i++) {
        DS_OWNED PyObject *name = PyUnicode_FromString(def[i].name);
        ds_set_named(&dict, name, name ? build_attribute(&def[i], &op->attr[i]) : NULL);
    }
    return dict;
}

int ds_parse_attrs(ds_module *m, const ds_op_def *def, PyObject *mapping, ds_attr *attrs, size_t *n)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    *n = 0;
    if (!PyDict_Check(mapping))
        PyErr_Format(PyExc_TypeError, "%s: attributes must be a dict", def->name);
    while (!PyErr_Occurred() && PyDict_Next(mapping, &at, &key, &value)) {
        if (*n > DS_MAX_ATTRS) {
            PyErr_Format(m->errors[DS_ARGUMENT], "%s: too many attributes", def->name);
            break;
        }
        ds_attr *attr = &attrs[(*n)++];
        *attr = (ds_attr){.name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL};
        if (attr->name)
            parse_attr(value, attr);
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s: attribute names must be str", def->name);
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            PyErr_Format(m->errors[DS_ARGUMENT], "%s: %R is out of range", def->name, key);
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ---------------------------------------------------------------- weights */
/* An exception is set where it is none. */
static void parse_weight(ds_module *m, const ds_op_def *def, size_t i, PyObject *item,
                         ds_signature *s, const void **data)
{
    *s = (ds_signature){.rate = {0, 1}};
    *data = NULL;
    if (item == Py_None)
        return;
    PyArrayObject *array = (PyArrayObject *)item;
    if (!PyArray_Check(item) || !PyArray_ISCARRAY_RO(array)) {
        PyErr_Format(PyExc_TypeError, "%s: weight %zu must be a C-contiguous array", def->name, i);
        return;
    }
    for (int d = 1; d < N_DTYPES; d++)
        if (PyArray_TYPE(array) == numpy_types[d])
            s->dtype = (ds_dtype)d;
    if (!s->dtype || PyArray_NDIM(array) > DS_MAX_RANK) {
        PyErr_Format(m->errors[s->dtype ? DS_SHAPE : DS_DTYPE],
                     "%s: weight %zu has an unsupported dtype or rank", def->name, i);
        return;
    }
    s->rank = PyArray_NDIM(array);
    for (int d = 0; d < s->rank; d++)
        s->shape[d] = PyArray_DIM(array, d);
    *data = PyArray_DATA(array);
}

PyObject *ds_parse_weights(ds_module *m, const ds_op_def *def, PyObject *sequence,
                           ds_signature *signatures, const void **data, size_t *n)
{
    DS_OWNED PyObject *fast = PySequence_Tuple(sequence);
    if (!fast)
        return NULL;
    *n = (size_t)PyTuple_GET_SIZE(fast);
    if (*n > DS_MAX_WEIGHTS)
        PyErr_Format(m->errors[DS_ARGUMENT], "%s: at most %d weights", def->name, DS_MAX_WEIGHTS);
    for (size_t i = 0; i < *n && !PyErr_Occurred(); i++)
        parse_weight(m, def, i, PyTuple_GET_ITEM(fast, (Py_ssize_t)i), &signatures[i], &data[i]);
    return PyErr_Occurred() ? NULL : ds_given_on(&fast);
}

/* ---------------------------------------------------------------- memory */
/* Scratch is kept from call to call where it is the C library's; a host that has set an allocator of its
 * own gets all of it back. */
static bool is_kept(const ds_allocator *allocator)
{
    return allocator->allocate == ds_default_allocator()->allocate;
}

ds_arena *ds_take_arena(ds_module *m)
{
    const ds_allocator allocator = ds_allocator_current();
    if (is_kept(&allocator) && m->n_arenas > 0)
        return m->arenas[--m->n_arenas];
    ds_arena *arena = PyMem_RawMalloc(sizeof *arena);
    if (!arena)
        return (ds_arena *)PyErr_NoMemory();
    ds_arena_init(arena, &allocator);
    return arena;
}

void ds_give_arena(ds_module *m, ds_arena *arena)
{
    ds_arena_reset(arena);
    if (is_kept(&arena->allocator) && m->n_arenas < DS_MAX_ARENAS) {
        m->arenas[m->n_arenas++] = arena;
        return;
    }
    ds_arena_free(arena);
    PyMem_RawFree(arena);
}
