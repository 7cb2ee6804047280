/* python/engine.h: the object behind _core.Engine. Its files: engine.c (making), streams.c (streams by id),
 * engine_info.c (what the plan says, and its graph as data). Steps: python/call.h. */
#pragma once
#include "exec/engine.h"
#include "python/support.h"

/* What stands behind a live id, until the stream is over; never seen by Python code. */
typedef struct ds_live {
    PyObject_HEAD ds_slot *slot; /* NULL: it is over */
} ds_live;

/* Behind _core.Graph, which _core.Engine takes the graph from. */
typedef struct ds_graph_object {
    PyObject_HEAD ds_graph *graph; /* NULL once an engine has taken it */
    PyObject *lenders; /* list: whose data the graph's weights are until then; or NULL */
} ds_graph_object;

typedef struct ds_engine_object {
    PyObject_HEAD ds_engine *engine;
    PyObject *original;   /* whose plan this engine uses; NULL where it is its own */
    PyObject *table;      /* dict: id -> ds_live */
    PyObject *last_ids;   /* list: the plain ids of the last step_batch */
    PyObject *last_live;  /* tuple: what stood behind them */
    Py_ssize_t n_running; /* calls under way (Python code may run in them): the engine stays open */
    long long n_restored; /* streams that were given a name */
    PyObject *watch;      /* what watch() was given (python/watch.c); NULL: nothing is watched */
    bool blas;
} ds_engine_object;

/* What stands behind a live id (borrowed), or NULL: with an exception only if one occurred. */
ds_live *ds_engine_find(const ds_engine_object *e, PyObject *id);
/* A new one (new reference), whose slot is entered; named: in the table. takes_place: of one that is about to
 * end. */
ds_live *ds_live_open(ds_module *m, ds_engine_object *e, PyObject *id, bool takes_place,
                      bool named);
/* Enters its slot; false with StreamBusyError. */
bool ds_live_enter(ds_module *m, const ds_live *live, PyObject *id);
/* Lets its slot go, which is entered. */
void ds_live_end(ds_engine_object *e, ds_live *live);
/* Likewise of a stream that is taken out of the table. Changes no exception. */
void ds_engine_forget(ds_engine_object *e, PyObject *id, ds_live *live);
/* The id as a plain str, so that looking it up runs no Python code (new reference); StreamIdError
 * where it is no str. */
PyObject *ds_plain_id(ds_module *m, PyObject *id);
/* Raises ClosedError where the engine is closed; returns -1 then. */
int ds_engine_check_open(ds_module *m, const ds_engine_object *e);
/* Raises the last error, about one stream or (NULL) none. Always NULL. */
void *ds_engine_error(ds_module *m, ds_status status, PyObject *id);

extern PyMethodDef ds_stream_methods[];                   /* streams.c */
PyObject *ds_engine_step(PyObject *self, PyObject *args); /* step_batch.c */
PyObject *ds_engine_object_copy(PyObject *self, PyObject *max_streams);
PyObject *ds_engine_object_close(PyObject *self, PyObject *unused);
PyObject *ds_engine_graph(PyObject *self, PyObject *unused);
PyObject *ds_engine_watch(PyObject *self, PyObject *given); /* watch.c */
extern PyGetSetDef ds_engine_getset[];
