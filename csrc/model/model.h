/* model/model.h: a model as a file holds it: the graph, and how callers see its inputs and outputs.
 *
 * A model file is a safetensors container (codec/safetensors.h). Its metadata hold one text of this
 * project's, under the key "dreamstream": a JSON object with
 *
 *     "version"    1
 *     "graph"      {"inputs": [...], "nodes": [...], "outputs": [edge, ...]}
 *     "interface"  {"name": ..., "inputs": [...], "outputs": [...], "structure": ..., ...}
 *
 * and, under the key "dreamstream.fingerprint", what tells whether the file is as it was written; where weights
 * were stored otherwise, under "dreamstream.origin" the fingerprint of the graph that they were of.
 * Under "dreamstream.types" stand the element types that Python callers are given, where an output's is another than the
 * graph's. docs/file_format.md specifies every member. The reader distrusts all of it: whatever it takes is
 * a graph that ir/ has checked, whose weights are the arrays of a mapped container, used where they lie, or
 * copies of others'. The same graph and interface give the same bytes. */
#pragma once
#include "base/arena.h"
#include "codec/json.h"
#include "codec/mapped.h"
#include "exec/plan.h"
#include "ir/graph.h"

#define DS_MODEL_KEY "dreamstream"
#define DS_MODEL_FINGERPRINT_KEY "dreamstream.fingerprint"
#define DS_MODEL_ORIGIN_KEY "dreamstream.origin"
#define DS_MODEL_TYPES_KEY "dreamstream.types"
#define DS_MODEL_VERSION 1
/* Nodes, and outputs: what takes the reader\'s time grows with their square. */
#define DS_MODEL_MAX_NODES 32768
#define DS_MODEL_MAX_DEPTH 32 /* of the structure */

/* A dimension of a caller's array: one of these, or the number of a frame's axis (0, 1, ...). */
enum {
    DS_DIM_B = -1 /* streams */,
    DS_DIM_L = -2 /* frames */,
    DS_DIM_B_L = -3 /* both, joined */,
    DS_DIM_M = -4 /* frames that are given once, with a stream's start */
};

/* How callers see one input or output. */
typedef struct ds_port {
    char *name; /* of forward's argument, or the place in what forward returns; UTF-8 */
    int rank;
    /* the axes of a frame, "B" and, with a stream axis, "L", each once; or the axes and "B_L" */
    int dims[DS_MAX_RANK + 2];
    ds_signature signature; /* of the graph's edge */
    bool memory;            /* its frames come with a stream's start; "M" stands for "L" */
} ds_port;

typedef struct ds_interface {
    ds_arena memory; /* of this, and of what it points to */
    char *name;      /* of the model: its class */
    size_t n_inputs, n_outputs;
    ds_port *inputs, *outputs;
    ds_buffer structure; /* JSON: what forward returns, numbers of outputs for tensors */
    bool by_name;        /* whether callers give the inputs by name (else there is one) */
    bool blas;           /* products by OpenBLAS where it is there */
    int64_t skew;        /* frames of the slowest input by which inputs may be apart */
    char *
        types; /* the text under DS_MODEL_TYPES_KEY, or NULL; no part of the interface's text or fingerprint */
} ds_interface;

/* Reads an interface (returned owned) and checks it against the graph: as many inputs and outputs,
 * with its signatures, each of their axes named once, a "structure" that names every output once.
 * Errors: DS_FORMAT, DS_NO_MEMORY. */
ds_status ds_interface_read(ds_interface **interface, const ds_allocator *allocator,
                            ds_json_value value, const ds_graph *graph);
/* The same from the text of the JSON object. */
ds_status ds_interface_parse(ds_interface **interface, const ds_allocator *allocator,
                             const char *text, size_t n_bytes, const ds_graph *graph);
/* Appends that text; what ds_interface_parse takes, if the interface is right (ds_model_write
 * checks). */
ds_status ds_interface_text(ds_buffer *text, const ds_interface *interface);
void ds_interface_free(ds_interface *interface);

/* Fills a graph and its interface (both returned owned) with what a model file holds. The graph
 * shares `file`, whose bytes are its weights. On failure both are as they were. Errors: DS_FORMAT,
 * naming the byte, of the file or of the text under DS_MODEL_KEY; last of all, unless the file was
 * `changed` on purpose, where it has a fingerprint and that is another than that of what was read;
 * DS_NO_MEMORY. Thread: any. */
ds_status ds_model_read(ds_graph **graph, ds_interface **interface, const ds_allocator *allocator,
                        ds_mapped *file, bool changed);
/* Writes a model file, which ds_model_read takes. Weights keep their names where these differ and
 * are not reserved; others are called "<path>.<operator>.<number of the weight>". The graph is one
 * that was not rewritten and whose inputs were added first; weights that the plan has packed are
 * unpacked one by one (NULL: it has none). Errors: DS_ARGUMENT where graph or interface are not what
 * a file can hold, before anything is written; DS_NO_MEMORY; what the sink returns. Thread: any. */
ds_status ds_model_write(const ds_sink *sink, const ds_graph *graph, const ds_interface *interface,
                         const ds_plan *plan);
