/* python/op.h: the object behind _core.Op. Its files: op.c (making, counts), columns.c (windows),
 * run.c (running), declare.c (integers to and from Python), prepared.c (kept weights), count.c (totals). */
#pragma once
#include "python/support.h"

typedef struct ds_op_object {
    PyObject_HEAD ds_op *op;
    PyObject *state_names; /* of a state's arrays, a tuple; NULL before the first run */
} ds_op_object;

/* Borrows the (rows, 4) int64 arrays of a list or tuple of n; *n_rows -1: set from the first. */
int ds_parse_counts(ds_module *m, const ds_op *op, PyObject *sequence, int n,
                    const ds_counts **counts, Py_ssize_t *n_rows);
/* Borrows a bool array of n_rows; NULL with an exception. */
const bool *ds_parse_ended(ds_module *m, PyObject *ended, Py_ssize_t n_rows);
/* Raises what an exec function reported, about the rows that are bad; ids: theirs, or NULL. Always NULL. */
PyObject *ds_op_raise(ds_module *m, ds_status status, PyObject *ids, const bool *bad,
                      Py_ssize_t n_rows);

/* Kept weights (prepared.c): takes them for one run of `op`; false where they are another's or in use. */
bool ds_prepared_take(ds_module *m, PyObject *object, PyObject *op);
void ds_prepared_give(PyObject *object);
/* What `prepare` makes of these weights, made anew where they are not those of the last run; NULL where
 * these kernels read weights where they lie, or there is no memory to keep it. Without the GIL. */
const void *ds_prepared_refresh(PyObject *object, const ds_kernels *kernels,
                                const void *const *weights);

PyObject *ds_op_object_run(PyObject *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *ds_op_object_columns(PyObject *self, PyObject *const *args, Py_ssize_t n_args);
/* The key that `columns` gives (columns.c). */
PyObject *ds_op_columns_key(PyObject *self, PyObject *inputs, PyObject *outputs, PyObject *ended);
PyObject *ds_op_object_declare(PyObject *type, PyObject *args);
PyObject *ds_op_object_integers(PyObject *self, PyObject *unused);
PyObject *ds_op_object_totals(PyObject *self, PyObject *inputs);
