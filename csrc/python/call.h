/* python/call.h: one step of an engine by ids, whatever arrays its frames come in and go to.
 *
 *     ds_call_open        rows; the caller fills ids, sos, step->ended, in, out and the lengths it knows
 *     ds_call_begin       streams are entered, new ones opened, integers known, inputs copied
 *     ...                 the caller makes its outputs
 *     ds_call_ready       the last that may fail, and where signals that wait are handled
 *     ds_call_run         the streams advance; outputs are copied, without the GIL
 *     ds_call_close       always, and last: what was not run is as it was
 *
 * All but ds_call_close and ds_call_run return -1 with an exception. Its files: call.c (the course), rows.c
 * (ids, flags and lengths as callers give them), frames.c (the arrays). */
#pragma once
#include "python/engine.h"

/* Where the axes of a caller's array are; -1 where there is none. */
typedef struct ds_axes {
    int rank, batch;
    int axis[DS_MAX_RANK + 1]; /* of frames, then of features */
} ds_axes;

/* The frames of an input or output in callers' arrays: an array for each row, one that is padded (batch: its
 * axis of rows), or one with the rows end to end. */
typedef struct ds_rows {
    PyObject **arrays; /* of row 0; None: no frames */
    size_t next;       /* to the array of the next row; 0: all rows are in one */
    int rank, batch;   /* batch: -1 where there is none */
    const int *axis;   /* of frames, then of features; -1: none */
} ds_rows;

/* Items of an engine's `watch`: bytes of int32, a list, a callable. */
enum { WATCH_EDGES, WATCH_SEEN, WATCH_FULL };

typedef struct ds_call {
    ds_module *m;
    ds_engine_object *e;
    PyObject *names; /* of the inputs: a tuple, borrowed; NULL: they have numbers */
    ds_step *step;   /* NULL: not open */
    Py_ssize_t n;
    size_t n_inputs, n_outputs;
    PyObject **ids;    /* [n] plain str, kept by the caller until the call is closed */
    ds_live **live;    /* [n] borrowed; NULL where the id is not live */
    ds_live **fresh;   /* [n] owned; of rows that start */
    bool *sos;         /* [n] */
    ds_rows *in, *out; /* [n_inputs], [n_outputs] */
    bool restart;      /* sos may start a live stream anew */
    PyObject *watch,
        *seen;       /* the engine's, and what this call adds to it; NULL: nothing is watched */
    PyObject *error; /* the first about a row, while others are looked at; NULL: none */
    bool any_sos, ran;
    Py_ssize_t n_entered;
    size_t
        n_leaving; /* live streams that end, or are replaced, if the call succeeds: free places */
} ds_call;

/* names: of the inputs. */
int ds_call_open(ds_call *c, ds_module *m, ds_engine_object *e, PyObject *names, Py_ssize_t n);
/* Room for the call's time; zeroed. NULL with an exception. */
void *ds_call_room(ds_call *c, size_t n, size_t item_bytes);
/* known: what stood behind the ids at an earlier time, or NULL. */
int ds_call_begin(ds_call *c, PyObject *known);
int ds_call_ready(ds_call *c);
void ds_call_run(ds_call *c);
void ds_call_close(ds_call *c);
/* Raises what an exec function reported, about the rows that are bad. Always -1. */
int ds_call_refuse(const ds_call *c, ds_status status);
/* Takes an exception about row r aside, so that rows that fail alike are named by one; false: it stays, and is to be
 * raised at once. */
bool ds_call_collect(ds_call *c, Py_ssize_t r);
/* Raises what was collected, -1; 0 where nothing was. */
int ds_call_collected(ds_call *c);

/* Makes room for what the call will see of watched edges (watch.c). May run Python code. */
int ds_call_watch(ds_call *c);

/* The rows' frames in arrays that lie like this. */
static inline ds_rows ds_rows_in(PyObject **arrays, size_t next, const ds_axes *axes)
{
    return (ds_rows){arrays, next, axes->rank, axes->batch, axes->axis};
}

/* Whether input k can read what was given as it stands: None, or a plain array of this machine's byte order whose
 * elements are converted while they are copied. What all else means is decided in Python
 * (dreamstream/array/chunk_values.py). */
bool ds_frames_take(const ds_engine_object *e, size_t k, PyObject *given);
/* Reads how many frames each row has, where its array or nobody says; checks arrays and lengths. */
int ds_frames_measure(ds_call *c);
void ds_frames_put(const ds_call *c);
void ds_frames_get(const ds_call *c);
/* A new array for `frames` frames of an output, or of the longest row of those in it. */
PyObject *ds_frames_new(const ds_call *c, size_t output, int64_t frames, bool zeroed);
/* Whether a caller's array takes as many. */
int ds_frames_check_out(const ds_call *c, size_t output, int64_t frames);

/* Ids, flags and lengths of rows; these may run Python code. */
/* The plain ids of a str or a collection of them, as a list (new reference). */
PyObject *ds_plain_ids(ds_module *m, PyObject *given);
/* Likewise where each is a row's, with what stood behind them in `known` where it is remembered. */
PyObject *ds_rows_ids(ds_module *m, const ds_engine_object *e, PyObject *given, PyObject **known);
/* Marks the rows of a list of plain ids. */
int ds_rows_mark(const ds_call *c, PyObject *ids, bool *flags);
/* Whether rows start or end: of a bool, a bool per row, or ids; NULL and None: none does. */
int ds_rows_flags(const ds_call *c, const char *name, PyObject *given, bool *flags);
/* Reads the new frames of each row; -1 where none are given, INT64_MAX where there are less than none. */
int ds_rows_lengths(const ds_call *c, size_t input, PyObject *given);
