/* python/call.h: one step of an engine by ids, whatever arrays its frames come in and go to.
 *
 *     ds_call_open        rows; the caller fills ids, sos and step->ended
 *     ds_call_find        the ids are right; nothing is entered yet. The caller fills step->n_frames
 *     ds_call_enter       streams are entered, new ones opened, and integers known
 *     ...                 the caller makes its outputs, and puts its inputs (ds_call_put)
 *     ds_call_ready       the last that may fail, and where signals that wait are handled
 *     ds_call_run         the streams advance; get copies the outputs, without the GIL
 *     ds_call_close       always, and last: what was not run is as it was
 *
 * All but ds_call_close and ds_call_run return -1 with an exception. */
#ifndef DS_PYTHON_CALL_H
#define DS_PYTHON_CALL_H
#include "python/engine.h"

typedef struct ds_call {
    ds_module *m;
    ds_engine_object *e;
    ds_step *step; /* NULL: not open */
    Py_ssize_t n;
    size_t n_inputs, n_outputs;
    PyObject **ids;  /* [n] plain str, kept by the caller until the call is closed */
    ds_live **live;  /* [n] borrowed; NULL where the id is not live */
    ds_live **fresh; /* [n] owned; of rows that start */
    bool *sos;       /* [n] */
    bool restart;    /* sos may start a live stream anew */
    bool any_sos, any_eos, ran;
    Py_ssize_t n_entered;
    size_t
        n_leaving; /* live streams that end, or are replaced, if the call succeeds: free places */
} ds_call;

int ds_call_open(ds_call *c, ds_module *m, ds_engine_object *e, Py_ssize_t n);
/* Room for the call's time; zeroed. NULL with an exception. */
void *ds_call_room(ds_call *c, size_t n, size_t item_bytes);
/* known: what stood behind the ids at an earlier time, or NULL. */
int ds_call_find(ds_call *c, PyObject *known);
int ds_call_enter(ds_call *c);
int ds_call_ready(ds_call *c);
void ds_call_run(ds_call *c, void (*get)(const ds_call *c, void *context), void *context);
void ds_call_close(ds_call *c);

/* How many frames an array has (-1 with an exception, about the stream id, where they don't fit). */
int64_t ds_call_measure(const ds_call *c, size_t input, const ds_axes *axes, PyArrayObject *array,
                        PyObject *id);
/* 0: none of those that engines know. */
ds_element ds_element_of(const PyArrayObject *array);
/* Raises what an exec function reported, about the rows that are bad. Always -1. */
int ds_call_refuse(ds_call *c, ds_status status);

/* Rows as callers name them (rows.c); these may run Python code. */
/* The plain ids as a tuple (new reference), and in `known` what stood behind them, where it is remembered. */
PyObject *ds_rows_ids(ds_module *m, const ds_engine_object *e, PyObject *given, PyObject **known);
void ds_rows_name(ds_call *c, PyObject *ids);
/* Whether rows start or end: of a bool, a bool per row, or ids; NULL and None: none does. */
int ds_rows_flags(const ds_call *c, const char *name, PyObject *given, bool *flags);
/* Reads the new frames of each row; -1 where none are given, INT64_MAX where there are less than none. */
int ds_rows_lengths(const ds_call *c, size_t input, PyObject *given);

#endif
