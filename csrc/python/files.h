/* python/files.h: what Python reads and writes of files. container.c: arrays and texts; model.c: models. */
#ifndef DS_PYTHON_FILES_H
#define DS_PYTHON_FILES_H
#include "codec/buffer.h"
#include "python/support.h"

/* Bytes on their way to a Python callable, in pieces of at most this size: what it keeps is its own. */
enum { DS_PIECE_BYTES = 1 << 20 };

typedef struct ds_python_sink {
    PyObject *write; /* borrowed: a callable that takes bytes */
    char *stage;     /* [DS_PIECE_BYTES] */
    size_t n_staged;
} ds_python_sink;

/* -1 with an exception. Ended by ds_python_sink_end, whatever came. */
int ds_python_sink_begin(ds_python_sink *sink, PyObject *write);
ds_sink ds_python_sink_of(ds_python_sink *sink);
/* Hands on what is left, if `status` is DS_OK, and releases the stage. Returns None, or NULL with the
 * callable's exception or that of the status. */
PyObject *ds_python_sink_end(ds_module *m, ds_python_sink *sink, ds_status status);

/* Functions of the module. */
PyObject *ds_joined(PyObject *module, PyObject *arrays);
PyObject *ds_read_container(PyObject *module, PyObject *args);
PyObject *ds_write_container(PyObject *module, PyObject *args);
PyObject *ds_read_model(PyObject *module, PyObject *args);
PyObject *ds_write_model(PyObject *module, PyObject *args);

#endif
