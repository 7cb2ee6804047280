/* python/support.c: errors, arrays, signatures and attributes, between Python and the engine. */
#include "python/support.h"

#include <string.h>

ds_module *ds_module_of(PyTypeObject *type)
{
    return PyType_GetModuleState(type);
}

/* ---------------------------------------------------------------- errors */
PyObject *ds_raise(ds_module *m, ds_status status, PyObject *ids)
{
    PyObject *cls = m->errors[status > 0 && (int)status < DS_N_STATUS ? status : DS_INTERNAL];
    PyObject *message =
        PyUnicode_DecodeUTF8(ds_last_error(), (Py_ssize_t)strlen(ds_last_error()), "replace");
    if (!message)
        return NULL;
    PyObject *error = ids ? PyObject_CallFunctionObjArgs(cls, message, ids, NULL)
                          : PyObject_CallFunctionObjArgs(cls, message, NULL);
    Py_DECREF(message);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

bool ds_have_kernels(const ds_module *m)
{
    if (!m->kernels)
        PyErr_SetString(PyExc_ValueError, m->no_kernels);
    return m->kernels != NULL;
}

PyObject *ds_bad_ids(PyObject *ids, const bool *bad, Py_ssize_t n_rows)
{
    PyObject *list = PyList_New(0);
    Py_ssize_t n_ids = PySequence_Size(ids);
    if (n_ids < 0)
        PyErr_Clear();
    for (Py_ssize_t r = 0; list && r < n_rows && r < n_ids; r++) {
        if (!bad[r])
            continue;
        PyObject *id = PySequence_GetItem(ids, r);
        if (!id || PyList_Append(list, id) < 0)
            Py_CLEAR(list);
        Py_XDECREF(id);
    }
    return list;
}

/* ---------------------------------------------------------------- dtypes and signatures */
static const struct {
    ds_dtype dtype;
    const char *name;
    int numpy;
} dtypes[] = {
    {DS_F32, "float32", NPY_FLOAT32}, {DS_F64, "float64", NPY_FLOAT64},
    {DS_I64, "int64", NPY_INT64},     {DS_BOOL, "bool", NPY_BOOL},
    {DS_I16, "int16", NPY_INT16},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

int ds_parse_dtype(ds_module *m, PyObject *name, ds_dtype *dtype)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    for (int i = 0; text && i < N_DTYPES; i++)
        if (strcmp(text, dtypes[i].name) == 0) {
            *dtype = dtypes[i].dtype;
            return 0;
        }
    if (!PyErr_Occurred())
        PyErr_Format(m->errors[DS_DTYPE], "dtype %R: expected float32, float64, int64 or bool",
                     name);
    return -1;
}

int ds_numpy_type(ds_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].numpy;
    return NPY_NOTYPE;
}

static int parse_shape(ds_module *m, PyObject *shape, ds_signature *s)
{
    PyObject *fast =
        PySequence_Tuple(shape); /* a copy: items may run code that changes the caller's */
    if (!fast)
        return -1;
    Py_ssize_t rank = PyTuple_GET_SIZE(fast);
    int status = 0;
    if (rank > DS_MAX_RANK) {
        PyErr_Format(m->errors[DS_SHAPE], "at most %d feature axes are supported, got %zd",
                     DS_MAX_RANK, rank);
        status = -1;
    }
    s->rank = (int)rank;
    for (Py_ssize_t i = 0; status == 0 && i < rank; i++) {
        s->shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(fast, i));
        if (s->shape[i] == -1 && PyErr_Occurred())
            status = -1;
    }
    Py_DECREF(fast);
    return status;
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
    return ds_parse_dtype(m, dtype, &signature->dtype) < 0 ? -1 : parse_shape(m, shape, signature);
}

int ds_parse_signatures(ds_module *m, PyObject *sequence, int has_rate, ds_signature *signatures,
                        size_t limit, size_t *n)
{
    PyObject *fast = PySequence_Tuple(sequence);
    if (!fast)
        return -1;
    *n = (size_t)PyTuple_GET_SIZE(fast);
    int status = 0;
    if (*n > limit) {
        PyErr_Format(m->errors[DS_ARGUMENT], "at most %zu signatures, got %zu", limit, *n);
        status = -1;
    }
    for (size_t i = 0; status == 0 && i < *n; i++) {
        PyObject *item = PyTuple_GET_ITEM(fast, (Py_ssize_t)i);
        if (item == Py_None)
            memset(&signatures[i], 0, sizeof *signatures);
        else
            status = ds_parse_signature(m, item, has_rate, &signatures[i]);
    }
    Py_DECREF(fast);
    return status;
}

PyObject *ds_build_signature(const ds_signature *s)
{
    PyObject *shape = PyTuple_New(s->rank);
    for (int i = 0; shape && i < s->rank; i++) {
        PyObject *n = PyLong_FromLongLong(s->shape[i]);
        if (!n)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, i, n);
    }
    if (!shape)
        return NULL;
    return Py_BuildValue("sNLL", ds_dtype_name(s->dtype), shape, (long long)s->rate.num,
                         (long long)s->rate.den);
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

static int parse_ints(PyObject *value, ds_attr *attr)
{
    PyObject *fast = PySequence_Tuple(value);
    if (!fast)
        return -1;
    Py_ssize_t n = PyTuple_GET_SIZE(fast);
    attr->kind = DS_ATTR_INTS;
    attr->value.n_ints = n > DS_MAX_INTS ? DS_MAX_INTS + 1 : (int)n; /* too long: refused by name */
    for (Py_ssize_t i = 0; i < n && i < DS_MAX_INTS; i++) {
        attr->value.ints[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(fast, i));
        if (attr->value.ints[i] == -1 && PyErr_Occurred())
            break;
    }
    Py_DECREF(fast);
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_attr(PyObject *value, ds_attr *attr)
{
    if (PyUnicode_Check(value)) {
        attr->kind = DS_ATTR_CHOICE;
        attr->text = PyUnicode_AsUTF8(value);
        return attr->text ? 0 : -1;
    }
    if (PyFloat_Check(value)) {
        attr->kind = DS_ATTR_REAL;
        attr->value.x = PyFloat_AS_DOUBLE(value);
        return 0;
    }
    if (PyIndex_Check(value)) {
        PyObject *index = PyNumber_Index(value);
        attr->kind = DS_ATTR_INT;
        attr->value.i = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(index);
        return PyErr_Occurred() ? -1 : 0;
    }
    return parse_ints(value, attr);
}

static PyObject *build_attribute(const ds_attr_def *def, const ds_attr_value *v)
{
    if (def->kind == DS_ATTR_REAL)
        return PyFloat_FromDouble(v->x);
    if (def->kind == DS_ATTR_INT)
        return PyLong_FromLongLong(v->i);
    if (def->kind == DS_ATTR_CHOICE) {
        const char *choice = def->choices, *end;
        for (int64_t i = 0; i < v->i && strchr(choice, '|'); i++)
            choice = strchr(choice, '|') + 1;
        end = strchr(choice, '|');
        return PyUnicode_FromStringAndSize(choice, end ? (Py_ssize_t)(end - choice)
                                                       : (Py_ssize_t)strlen(choice));
    }
    PyObject *list = PyList_New(v->n_ints);
    for (int i = 0; list && i < v->n_ints; i++) {
        PyObject *item = PyLong_FromLongLong(v->ints[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *ds_build_attributes(const ds_op *op)
{
    PyObject *dict = PyDict_New();
    const ds_attr_def *def = op->def->attrs;
    for (int i = 0; dict && def && def[i].name; i++) {
        PyObject *value = build_attribute(&def[i], &op->attr[i]);
        if (!value || PyDict_SetItemString(dict, def[i].name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

int ds_parse_attrs(ds_module *m, const ds_op_def *def, PyObject *mapping, ds_attr *attrs, size_t *n)
{
    if (!PyDict_Check(mapping)) {
        PyErr_Format(PyExc_TypeError, "%s: attributes must be a dict", def->name);
        return -1;
    }
    PyObject *key, *value;
    Py_ssize_t at = 0;
    *n = 0;
    while (PyDict_Next(mapping, &at, &key, &value)) {
        if (*n > DS_MAX_ATTRS) {
            PyErr_Format(m->errors[DS_ARGUMENT], "%s: too many attributes", def->name);
            return -1;
        }
        ds_attr *attr = &attrs[(*n)++];
        memset(attr, 0, sizeof *attr);
        attr->name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        if (!attr->name || parse_attr(value, attr) < 0) {
            if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_OverflowError)) {
                PyErr_Clear();
                PyErr_Format(m->errors[DS_ARGUMENT], "%s: %R is out of range", def->name, key);
            } else if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_TypeError, "%s: attribute names must be str", def->name);
            }
            return -1;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- weights */
static int parse_weight(ds_module *m, const ds_op_def *def, size_t i, PyObject *item,
                        ds_signature *s, const void **data)
{
    memset(s, 0, sizeof *s);
    s->rate = (ds_rate){0, 1};
    *data = NULL;
    if (item == Py_None)
        return 0;
    if (!PyArray_Check(item) || !PyArray_ISCARRAY_RO((PyArrayObject *)item)) {
        PyErr_Format(PyExc_TypeError, "%s: weight %zu must be a C-contiguous array", def->name, i);
        return -1;
    }
    PyArrayObject *array = (PyArrayObject *)item;
    for (int d = 0; d < N_DTYPES; d++)
        if (PyArray_TYPE(array) == dtypes[d].numpy)
            s->dtype = dtypes[d].dtype;
    if (!s->dtype || PyArray_NDIM(array) > DS_MAX_RANK) {
        PyErr_Format(m->errors[s->dtype ? DS_SHAPE : DS_DTYPE],
                     "%s: weight %zu has an unsupported dtype or rank", def->name, i);
        return -1;
    }
    s->rank = PyArray_NDIM(array);
    for (int d = 0; d < s->rank; d++)
        s->shape[d] = PyArray_DIM(array, d);
    *data = PyArray_DATA(array);
    return 0;
}

PyObject *ds_parse_weights(ds_module *m, const ds_op_def *def, PyObject *sequence,
                           ds_signature *signatures, const void **data, size_t *n)
{
    PyObject *fast = PySequence_Tuple(sequence);
    if (!fast)
        return NULL;
    *n = (size_t)PyTuple_GET_SIZE(fast);
    int status = 0;
    if (*n > DS_MAX_WEIGHTS) {
        PyErr_Format(m->errors[DS_ARGUMENT], "%s: at most %d weights", def->name, DS_MAX_WEIGHTS);
        status = -1;
    }
    for (size_t i = 0; status == 0 && i < *n; i++)
        status = parse_weight(m, def, i, PyTuple_GET_ITEM(fast, (Py_ssize_t)i), &signatures[i],
                              &data[i]);
    if (status < 0)
        Py_CLEAR(fast);
    return fast;
}

/* ---------------------------------------------------------------- memory */
ds_allocator ds_module_allocator(const ds_module *m)
{
    return m->fault ? ds_fault_hooks(m->fault) : ds_allocator_current();
}

ds_arena *ds_take_arena(ds_module *m)
{
    if (!m->fault && m->n_arenas > 0)
        return m->arenas[--m->n_arenas];
    ds_arena *arena = PyMem_RawMalloc(sizeof *arena);
    if (!arena) {
        PyErr_NoMemory();
        return NULL;
    }
    ds_allocator allocator = ds_module_allocator(m);
    ds_arena_init(arena, &allocator);
    return arena;
}

void ds_give_arena(ds_module *m, ds_arena *arena)
{
    ds_arena_reset(arena);
    if (!m->fault && m->n_arenas < DS_MAX_ARENAS) {
        m->arenas[m->n_arenas++] = arena;
        return;
    }
    ds_arena_free(arena);
    PyMem_RawFree(arena);
}
