/* python/op.h: the object behind _core.Op. Its files: op.c (making, counts), run.c (running),
 * declare.c (operators whose integers come from Python). */
#ifndef DS_PYTHON_OP_H
#define DS_PYTHON_OP_H
#include "python/support.h"

typedef struct ds_op_object {
    PyObject_HEAD
    ds_op *op;
} ds_op_object;

/* Borrows the (rows, 4) int64 arrays of a list or tuple of n; *n_rows -1: set from the first. */
int ds_parse_counts(ds_module *m, const ds_op *op, PyObject *sequence, int n,
                    const ds_counts **counts, Py_ssize_t *n_rows);
/* Borrows a bool array of n_rows; NULL with an exception. */
const bool *ds_parse_ended(ds_module *m, PyObject *ended, Py_ssize_t n_rows);

PyObject *ds_op_object_run(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                           Py_ssize_t n_args, PyObject *names);
PyObject *ds_op_object_declare(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                               Py_ssize_t n_args, PyObject *names);

#endif
