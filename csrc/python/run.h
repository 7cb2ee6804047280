/* python/run.h: what one run of an operator reads, shared by running it (run.c) and by reading it backwards (record.c).
 */
#pragma once
#include "python/op.h"

typedef struct ds_op_call {
    ds_module *m;
    const ds_op *op;
    ds_eager eager;
    const ds_counts *in[DS_MAX_INPUTS], *out[DS_MAX_OUTPUTS];
    const void *values[DS_MAX_INPUTS], *weights[DS_MAX_WEIGHTS];
    void *outputs[DS_MAX_OUTPUTS], *saved[DS_MAX_SAVED];
    ds_drop drop;
    const void **states; /* [n_rows] */
    void **new_states;   /* [n_rows] */
    Py_ssize_t n_rows;
    PyObject *news; /* list of states after */
    PyObject
        *flat; /* list: the states before, each in one piece; True for one that is not read; None */
    PyObject *names; /* of a state's arrays */
} ds_op_call;

/* New frames of all rows. */
int64_t ds_op_call_frames(const ds_op_call *c, const ds_counts *counts);
/* Of a row's state before the call, or after it (now): n_kept: of each value input the frames that are kept. */
int ds_op_call_state_bytes(const ds_op_call *c, Py_ssize_t r, bool now, int64_t *n_kept,
                           size_t *n_bytes);
/* A state of the arrays that lie in these bytes, which it takes over (NULL: none): n[i] frames of input i,
 * then what is carried. */
PyObject *ds_op_call_state(const ds_op_call *c, const int64_t *n, PyObject *bytes);
/* A state's bytes in one piece, those of segments end to end (new reference). */
PyObject *ds_op_call_flatten(const ds_op_call *c, PyObject *state);
/* Reads counts (args 1 and 2), ended (3) and blas (6) of run's arguments, and values; those that are None are not
 * there. */
int ds_op_call_parse(ds_op_call *c, PyObject *const *args, PyObject *values);
/* Reads weights; returns what keeps them (new reference). */
PyObject *ds_op_call_weights(ds_op_call *c, PyObject *weights);

/* Room for what backward reads of a run besides its arguments: a tuple of bytes (new reference). */
PyObject *ds_record_saved(ds_op_call *c);
/* The record of a run that is done (record.c). */
PyObject *ds_record_make(const ds_op_call *c, PyObject *op, PyObject *const *args, PyObject *values,
                         PyObject *weights, PyObject *outputs, PyObject *saved, PyObject *drop);
int ds_op_call_drop(ds_op_call *c, PyObject *drop);
