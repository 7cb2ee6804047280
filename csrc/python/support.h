/* python/support.h: what every file of the extension needs: module state, errors, arrays, signatures. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_25_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL ds_PyArray_API
#ifndef DS_PYTHON_IMPORT_ARRAY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "base/arena.h"
#include "batch/layout.h"
#include "exec/backend.h"
#include "exec/eager.h"
#include "ir/clock.h"
#include "ir/graph.h"

enum { DS_N_STATUS = 16, DS_MAX_ARENAS = 8 };

/* The types of the module: <name>_type in its state, made by ds_<name>_spec. */
#define DS_TYPES(X) \
    X(op)           \
    X(graph)        \
    X(engine)       \
    X(live)         \
    X(stepper)      \
    X(stream) X(hold) X(prepared) X(count) X(decoder) X(decoding) X(record) X(replay) X(window)
#define DS_TYPE_MEMBER(name) PyTypeObject *name##_type;
#define DS_TYPE_SPEC(name) extern PyType_Spec ds_##name##_spec;

typedef struct ds_module {
    DS_TYPES(DS_TYPE_MEMBER)
    PyObject *errors[DS_N_STATUS]; /* exception class of each status */
    /* Chosen at import; NULL where the environment asks for none there is, and why. */
    const ds_kernels *kernels;
    char no_kernels[DS_MESSAGE_BYTES];
    const ds_kernels *blas_kernels;  /* NULL without OpenBLAS, or where it is kept out */
    ds_arena *arenas[DS_MAX_ARENAS]; /* idle scratch of eager calls; guarded by the GIL */
    int n_arenas;
} ds_module;

DS_TYPES(DS_TYPE_SPEC)
/* The spec of one: dreamstream._core.<title>, whose objects are `object`s; its slots follow. */
#define DS_SPEC(name, title, object, flags, doc, ...)                                        \
    static PyType_Slot name##_slots[] = {__VA_ARGS__, {Py_tp_doc, doc}, {0, NULL}};          \
    PyType_Spec ds_##name##_spec = {"dreamstream._core." title, sizeof(object), 0,           \
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | (flags), \
                                    name##_slots}
ds_module *ds_module_of(PyTypeObject *type); /* of a type made by this module */

/* A function that computes an attribute of `o`. */
#define DS_GETTER(name, object, expression)                               \
    static PyObject *get_##name(PyObject *self, void *Py_UNUSED(closure)) \
    {                                                                     \
        const object *const o = (const object *)self;                     \
        return expression;                                                \
    }
#define DS_GETTER_ROW(name, doc, ...) {#name, get_##name, NULL, doc, NULL},
/* A function with the arguments that it has, for tables of methods. */
#define DS_FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

/* A method of a type that others may derive from, with the arguments that it has. */
#define DS_METHOD(name, function, doc) \
    {name, (PyCFunction)(void (*)(void))function, METH_METHOD | METH_FASTCALL | METH_KEYWORDS, doc}
#define DS_METHOD_ARGUMENTS \
    PyObject *self, PyTypeObject *cls, PyObject *const *args, Py_ssize_t n_args, PyObject *names
/* Before a declaration of objects, or NULL: they are the block's own, which lets go of them where it ends. */
static inline void ds_owned_end(PyObject **object)
{
    Py_XDECREF(*object);
}
#define DS_OWNED DS_SCOPED(ds_owned_end)
/* What a block owned, for its caller. */
static inline PyObject *ds_given_on(PyObject **owned)
{
    PyObject *object = *owned;
    *owned = NULL;
    return object;
}
/* The same of memory of Python's. */
static inline void ds_memory_end(void **memory)
{
    PyMem_Free(*memory);
}
/* The end of an object's deallocation. */
void ds_free_object(PyObject *self);

/* Put an item, which they take, into what is being made: a new list or tuple, at the end of a list, a dict. Where it is
 * NULL, or there is no room, what is being made is given up. */
void ds_set_item(PyObject **sequence, Py_ssize_t i, PyObject *item);
void ds_append(PyObject **list, PyObject *item);
void ds_set_named(PyObject **dict, PyObject *name, PyObject *item);
/* A list of what `item` makes of each i below n (new references); NULL with an exception. */
PyObject *ds_build_list(size_t n, PyObject *(*item)(const void *of, size_t i), const void *of);
PyObject *ds_int_item(const void *ints, size_t i);   /* of int */
PyObject *ds_int64_item(const void *ints, size_t i); /* of int64_t */
/* Fills at most `limit` integers of a sequence; returns how many it has, or -1 with an exception. */
Py_ssize_t ds_parse_ints(PyObject *sequence, int64_t *values, Py_ssize_t limit);

/* Raises the exception of a status with the thread's last message; ids: a sequence of str, or NULL.
 * Always returns NULL. */
PyObject *ds_raise(ds_module *m, ds_status status, PyObject *ids);
/* The object; where the status is a failure, its exception, and the object (may be NULL) is released. */
PyObject *ds_unless_failed(ds_module *m, ds_status status, PyObject *object);
/* Returns -1 with an exception unless `condition` holds; PyErr_Format's arguments follow. */
#define DS_EXPECT(condition, error, ...)      \
    do {                                      \
        if (!(condition)) {                   \
            PyErr_Format(error, __VA_ARGS__); \
            return -1;                        \
        }                                     \
    } while (0)
/* Whether there are kernels to compute with; false with a ValueError. An import alone doesn't ask, so that
 * the command line can say in one line what is wrong. */
bool ds_have_kernels(const ds_module *m);

int ds_numpy_type(ds_dtype dtype);
/* What engines know of an array's elements; 0: nothing. */
ds_element ds_element_of(const PyArrayObject *array);
/* Whether an object is an aligned array in C order, of a type and a shape, of which sizes below 0 may be any. */
bool ds_array_is(PyObject *object, int type, int rank, const npy_intp *shape, bool writable);
/* Whether it holds so many frames of a signature; below 0: one, of whose shape frames are no part. */
bool ds_array_fits(PyObject *object, const ds_signature *signature, int64_t n_frames,
                   bool writable);
/* (dtype, shape, num, den), or with has_rate 0 (dtype, shape). */
int ds_parse_signature(ds_module *m, PyObject *tuple, int has_rate, ds_signature *signature);
/* A sequence of them, at most `limit`; None gives dtype 0. */
int ds_parse_signatures(ds_module *m, PyObject *sequence, int has_rate, ds_signature *signatures,
                        size_t limit, size_t *n);
/* How a node's weights are stored, by the number that Python has for it: 4 more where products are of rows stored so. */
static inline ds_narrowing ds_parse_narrowing(char number)
{
    return (ds_narrowing){(ds_stored)(number & 3), (number & 4) != 0};
}
PyObject *ds_build_signature(const ds_signature *signature);
/* A new array for so many frames of a signature; below 0: for one, of whose shape frames are no part. */
PyObject *ds_build_array(const ds_signature *signature, int64_t n_frames, bool zeroed);
/* Where an array's elements lie. */
static inline void *ds_data(PyObject *array)
{
    return PyArray_DATA((PyArrayObject *)array);
}
PyObject *ds_build_outputs(const ds_op *op); /* a list of them */
/* Attributes of a definition from a mapping; texts point into the mapping's strings. Fills at most
 * DS_MAX_ATTRS + 1 (an unknown one is left to ds_op_create to name). */
int ds_parse_attrs(ds_module *m, const ds_op_def *def, PyObject *mapping, ds_attr *attrs,
                   size_t *n);
/* All attributes of an operator, defaults included, as a dict. */
PyObject *ds_build_attributes(const ds_op *op);
/* An operator's definition by its name. */
const ds_op_def *ds_parse_def(ds_module *m, PyObject *name);
/* Weights given as arrays (or None): signatures and data pointers, after checking that each is a
 * C-contiguous aligned array. Returns what keeps them alive (new reference), NULL with an exception. */
PyObject *ds_parse_weights(ds_module *m, const ds_op_def *def, PyObject *sequence,
                           ds_signature *signatures, const void **data, size_t *n);

ds_arena *ds_take_arena(ds_module *m); /* NULL with an exception set */
void ds_give_arena(ds_module *m, ds_arena *arena);

/* Functions of the module: joined.c, model.c. */
PyObject *ds_joined(PyObject *module, PyObject *arrays);
PyObject *ds_callee(PyObject *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_truth(PyObject *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_differing(PyObject *module, PyObject *args);
PyObject *ds_finds(PyObject *module, PyObject *args);
PyObject *ds_input_counts(PyObject *module, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_python_draws(PyObject *module, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_python_adam(PyObject *module, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_python_sgd(PyObject *module, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_python_squares(PyObject *module, PyObject *array);
PyObject *ds_python_ctc(PyObject *module, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_check_container(PyObject *module, PyObject *content);
PyObject *ds_read_model(PyObject *module, PyObject *args);
PyObject *ds_write_model(PyObject *module, PyObject *args);
