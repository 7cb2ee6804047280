/* python/graph.h: the object behind _core.Graph, which _core.Engine takes the graph from. */
#ifndef DS_PYTHON_GRAPH_H
#define DS_PYTHON_GRAPH_H
#include "python/support.h"

typedef struct ds_graph_object {
    PyObject_HEAD ds_graph *graph; /* NULL once an engine has taken it */
} ds_graph_object;

#endif
