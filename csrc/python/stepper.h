/* python/stepper.h: _core.Stepper, the base of dreamstream.Engine: steps from Python to Python in C, so that
 * no Python code runs between a step's effect and its result. Its files: stepper.c (the type), step.c (dicts
 * by id, and one stream by hand), step_batch.c (padded arrays). */
#pragma once
#include "python/call.h"

typedef struct ds_stepper {
    PyObject_HEAD PyObject *core; /* _core.Engine; NULL before __init__ */
    PyObject *names;              /* tuple of str: the inputs */
    PyObject *structure;          /* what forward returns, with the numbers of outputs */
    int casts;                    /* whether callers are given other types than are computed */
    ds_axes *inputs, *outputs;    /* of arrays with all rows, and behind them of one row's */
} ds_stepper;

/* The engine, or NULL with an exception where __init__ was not called. */
ds_engine_object *ds_stepper_engine(const ds_stepper *s);
/* What forward returns with items[k] for output k; new reference. Runs Python code only for classes of the
 * model's own. */
PyObject *ds_stepper_build(PyObject *structure, PyObject *const *items);
/* What callers are given of what a step made (stolen): it itself, or what Python's method makes of it, after the step. */
PyObject *ds_stepper_given(PyObject *stepper, const char *method, PyObject *made);
/* Arguments by position or name into `values`, NULL where absent; -1 with a TypeError. */
int ds_parse_arguments(const char *function, const char *const *known, PyObject **values,
                       PyObject *const *args, Py_ssize_t n_args, PyObject *names);

PyObject *ds_stepper_step(DS_METHOD_ARGUMENTS);
PyObject *ds_stepper_step_batch(DS_METHOD_ARGUMENTS);
