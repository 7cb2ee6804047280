/* _core.Engine.watch: what steps compute within, for those who want statistics of it.
 *
 * A call's frames of the watched edges are copied as they arise into arrays that are made before its values, and
 * appended to the watcher's list behind them: no Python code runs there, and nothing can fail. Where the list has
 * become long, the next call has the watcher empty it first. */
#include "python/call.h"

enum { MOST_SEEN = 64 };

static const ds_plan *plan_of(const ds_call *c)
{
    return c->e->engine->plan;
}

/* watch(edges, seen, full): from now on append (ids, counts [edges, ids], one array per edge) to the list `seen`, and
 * call full() where it is long; edges: bytes of int32. watch(None): no more. */
PyObject *ds_engine_watch(PyObject *self, PyObject *given)
{
    ds_engine_object *e = (ds_engine_object *)self;
    PyObject *edges, *seen = NULL, *full = NULL;
    if (!PyArg_ParseTuple(given, "O|O!O:watch", &edges, &PyList_Type, &seen, &full) ||
        ds_engine_check_open(ds_module_of(Py_TYPE(self)), e) < 0)
        return NULL;
    const ds_graph *graph = e->engine->plan->graph;
    const bool none = edges == Py_None;
    if (!none && (!full || !PyBytes_Check(edges)))
        return PyErr_Format(PyExc_TypeError, "watch: expected bytes, a list and a callable");
    for (Py_ssize_t i = 0; !none && i < PyBytes_GET_SIZE(edges) / (Py_ssize_t)sizeof(int); i++) {
        int edge;
        memcpy(&edge, PyBytes_AS_STRING(edges) + (size_t)i * sizeof edge, sizeof edge);
        if (edge < 0 || (size_t)edge >= graph->n_edges || graph->edges[edge].node < 0)
            return PyErr_Format(PyExc_ValueError, "watch: no node has the edge %d", edge);
    }
    Py_XSETREF(e->watch, none ? NULL : Py_NewRef(given));
    Py_RETURN_NONE;
}

/* The new frames of an edge, all rows' one behind the other; says where each begins, and how many it has. */
static PyObject *room_of(ds_call *c, size_t w, int64_t *counts)
{
    const size_t e = (size_t)c->step->watched[w], n = (size_t)c->n;
    const ds_signature *s = &plan_of(c)->graph->edges[e].signature;
    int64_t start, sum = 0;
    for (size_t r = 0; r < n; r++)
        sum += counts[r] = ds_step_edge_frames(c->step, e, r, &start);
    PyObject *array = ds_build_array(s, sum, true);
    char *at = array ? PyArray_BYTES((PyArrayObject *)array) : NULL;
    for (size_t r = 0; at && r < n; r++) {
        c->step->seen[w * n + r] = at;
        at += (size_t)counts[r] * plan_of(c)->edges[e].frame_bytes;
    }
    return array;
}

int ds_call_watch(ds_call *c)
{
    PyObject *watch = c->watch = Py_NewRef(c->e->watch);
    if (PyList_GET_SIZE(PyTuple_GET_ITEM(watch, WATCH_SEEN)) >= MOST_SEEN) {
        DS_OWNED PyObject *done = PyObject_CallNoArgs(PyTuple_GET_ITEM(watch, WATCH_FULL));
        if (!done)
            return -1;
    }
    PyObject *edges = PyTuple_GET_ITEM(watch, WATCH_EDGES);
    const size_t n = (size_t)PyBytes_GET_SIZE(edges) / sizeof(int);
    npy_intp shape[2] = {(npy_intp)n, (npy_intp)c->n};
    int *watched = ds_call_room(c, n, sizeof *watched);
    c->step->seen = ds_call_room(c, n * (size_t)c->n, sizeof *c->step->seen);
    DS_OWNED PyObject *ids = PyTuple_New(c->n), *arrays = PyTuple_New((Py_ssize_t)n);
    DS_OWNED PyObject *counts = PyArray_ZEROS(2, shape, NPY_INT64, 0);
    if (!watched || !c->step->seen || !ids || !counts || !arrays)
        return -1;
    memcpy(watched, PyBytes_AS_STRING(edges), n * sizeof *watched);
    c->step->watched = watched;
    for (Py_ssize_t r = 0; r < c->n; r++)
        PyTuple_SET_ITEM(ids, r, Py_NewRef(c->ids[r]));
    for (size_t w = 0; arrays && w < n; w++)
        ds_set_item(&arrays, (Py_ssize_t)w,
                    room_of(c, w, (int64_t *)ds_data(counts) + w * (size_t)c->n));
    c->seen = arrays ? PyTuple_Pack(3, ids, counts, arrays) : NULL;
    c->step->n_watched = c->seen ? n : 0;
    return c->seen ? 0 : -1;
}
