/* python/engine.h: the object behind _core.Engine. Its files: engine.c (making), streams.c (streams by id),
 * engine_info.c (what the plan says, and its graph as data). Steps: python/call.h. */
#ifndef DS_PYTHON_ENGINE_H
#define DS_PYTHON_ENGINE_H
#include "exec/step.h"
#include "python/support.h"

/* Where [frames][features...] lie among the axes of a caller's array: canonical axis -> the caller's. */
typedef struct ds_axes {
    int rank;
    int axis[DS_MAX_RANK + 1];
} ds_axes;

/* What stands behind a live id, until the stream is over; never seen by Python code. */
typedef struct ds_live {
    PyObject_HEAD ds_slot *slot; /* NULL: it is over */
} ds_live;

/* Behind _core.Graph, which _core.Engine takes the graph from. */
typedef struct ds_graph_object {
    PyObject_HEAD ds_graph *graph; /* NULL once an engine has taken it */
} ds_graph_object;

typedef struct ds_engine_object {
    PyObject_HEAD ds_engine *engine;
    ds_steps steps;
    PyObject *original;   /* whose plan and axes this engine uses; NULL where they are its own */
    const ds_plan *plan;  /* the engine's */
    ds_session *session;  /* the engine's; NULL once closed */
    PyObject *table;      /* dict: id -> ds_live */
    PyObject *last_ids;   /* of the last step_batch: a tuple of plain ids, */
    PyObject *last_live;  /* and what stood behind them */
    Py_ssize_t n_running; /* calls under way (Python code may run in them): the engine stays open */
    long long n_restored; /* streams that were given a name */
    bool blas;
    ds_axes *inputs, *outputs; /* [n_inputs], and behind them [n_outputs] */
} ds_engine_object;

/* What stands behind a live id (borrowed), or NULL: with an exception only if one occurred. */
ds_live *ds_engine_find(const ds_engine_object *e, PyObject *id);
/* A new one, in no table yet (new reference). */
ds_live *ds_live_new(ds_module *m, ds_slot *slot);
/* Takes a stream, whose slot is entered, out of the table, and lets its slot go. Changes no exception. */
void ds_engine_forget(ds_engine_object *e, PyObject *id, ds_live *live);
/* The id as a plain str, so that looking it up runs no Python code (new reference); StreamIdError
 * where it is no str. */
PyObject *ds_plain_id(ds_module *m, PyObject *id);
/* Raises ClosedError where the engine is closed; returns -1 then. */
int ds_engine_check_open(ds_module *m, const ds_engine_object *e);
/* Raises an error about one stream. Always NULL. */
PyObject *ds_engine_error(ds_module *m, ds_status status, const char *text, PyObject *id);

extern PyMethodDef ds_stream_methods[];        /* streams.c */
PyObject *ds_engine_step(DS_METHOD_ARGUMENTS); /* step_batch.c */
PyObject *ds_engine_object_copy(PyObject *self, PyObject *max_streams);
PyObject *ds_engine_object_close(PyObject *self, PyObject *unused);
PyObject *ds_engine_graph(PyObject *self, PyObject *unused);
extern PyGetSetDef ds_engine_getset[];

#endif
