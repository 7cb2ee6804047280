/* python/engine.h: the object behind _core.Engine. Its files: engine.c (making, streams by id),
 * step.c (one call), engine_info.c (what the plan says), engine_graph.c (the plan's graph as data). */
#ifndef DS_PYTHON_ENGINE_H
#define DS_PYTHON_ENGINE_H
#include "exec/engine.h"
#include "python/support.h"

/* How a caller's array of one input or output relates to [L][features...]. */
typedef struct ds_axes {
    int rank;
    int axis[DS_MAX_RANK + 1]; /* inputs: canonical axis -> caller's; outputs: the other way */
} ds_axes;

typedef struct ds_engine_object {
    PyObject_HEAD
    ds_engine *engine;
    PyObject *original; /* whose plan this engine uses; NULL where it is its own */
    const ds_plan *plan; /* the engine's */
    ds_session *session; /* the engine's; NULL once closed */
    PyObject *slots;     /* dict: id -> the slot's address, as int */
    Py_ssize_t n_running; /* calls under way (Python code may run in them): the engine stays open */
    bool blas;
    ds_axes *inputs, *outputs;
} ds_engine_object;

/* The slot of a live stream (borrowed), or NULL: with an exception only if one occurred. */
ds_slot *ds_engine_slot(ds_engine_object *e, PyObject *id);
/* The id as a plain str, so that looking it up runs no Python code (new reference); StreamIdError
 * where it is no str. */
PyObject *ds_plain_id(ds_module *m, PyObject *id);
/* Raises ClosedError where the engine is closed; returns -1 then. */
int ds_engine_check_open(ds_module *m, const ds_engine_object *e);
/* Raises an error about one stream. Always NULL. */
PyObject *ds_engine_error(ds_module *m, ds_status status, const char *text, PyObject *id);

PyObject *ds_engine_step(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                         Py_ssize_t n_args, PyObject *names);
PyObject *ds_engine_graph(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *names);
extern PyGetSetDef ds_engine_getset[];

#endif
