/* model/interface.c: how callers see a model's inputs and outputs, read from JSON and written.
 *
 *     {"name": "Tagger", "by_name": false, "skew": 0, "blas": false,
 *      "inputs":  [{"name": "x", "dimensions": ["B", 0, "L"]}],
 *      "outputs": [{"name": "output", "dimensions": ["B", "L", 0],
 *                   "dtype": "float32", "shape": [29], "rate": [50, 1]}],
 *      "structure": 0}
 */
#include <string.h>

#include "model/members.h"

/* The dimensions that are no axis of a frame. */
static const struct {
    const char *name;
    int dim;
} dim_names[] = {{"B", DS_DIM_B}, {"L", DS_DIM_L}, {"B_L", DS_DIM_B_L}, {"M", DS_DIM_M}};
enum { N_DIM_NAMES = sizeof dim_names / sizeof dim_names[0] };

static ds_status read_name(char **copy, ds_arena *memory, ds_json_value object)
{
    const char *text;
    DS_TRY(ds_json_get_string(&text, object, "name"));
    DS_PUSH_COPY(memory, *copy, text, strlen(text) + 1);
    return DS_OK;
}

/* ---------------------------------------------------------------- dimensions */
static ds_status read_dimension(int *dim, ds_json_value value, int rank)
{
    if (ds_json_kind_of(value) == DS_JSON_STRING) {
        const char *text = NULL;
        DS_TRY(ds_json_string(&text, NULL, value));
        for (size_t i = 0; i < N_DIM_NAMES; i++) {
            if (strcmp(text, dim_names[i].name) == 0) {
                *dim = dim_names[i].dim;
                return DS_OK;
            }
        }
        return ds_json_refuse_text(value, "\"B\", \"L\", \"B_L\" or an axis");
    }
    int64_t axis = 0;
    if (ds_json_kind_of(value) != DS_JSON_INTEGER || rank == 0)
        return ds_json_refuse(value, "expected \"B\", \"L\", \"B_L\" or one of %d axes", rank);
    DS_TRY(ds_json_integer(&axis, value, 0, rank - 1));
    *dim = (int)axis;
    return DS_OK;
}

/* Every axis once, and "B" with "L" (where there are frames to count; "M", where they come with the start), or for an
 * output "B_L" alone. An output that is the same for every stream, of a table, may lack "B". */
static ds_status read_dimensions(ds_port *port, ds_json_value object, bool is_output)
{
    ds_json_value list, value;
    ds_json_cursor at;
    DS_TRY(ds_json_get_list(&at, object, "dimensions", 0, DS_MAX_RANK + 2, "dimensions"));
    DS_TRY(ds_json_member(&list, object, "dimensions"));
    const int rank = port->signature.rank;
    const bool streams = port->signature.rate.num > 0;
    unsigned seen = 0; /* by bit 4 + dim */
    while (ds_json_next(&at, &value)) {
        int dim = 0;
        DS_TRY(read_dimension(&dim, value, rank));
        const unsigned bit = 1u << (4 + dim);
        if ((seen & bit) != 0)
            return ds_json_refuse(value, "expected every dimension once, got this one twice");
        seen |= bit;
        port->dims[port->rank++] = dim;
    }
    const unsigned axes = ((1u << rank) - 1) << 4, b = 1u << (4 + DS_DIM_B),
                   l = 1u << (4 + (port->memory ? DS_DIM_M : DS_DIM_L));
    const unsigned joined = axes | 1u << (4 + DS_DIM_B_L), wanted = axes | b | (streams ? l : 0);
    const bool right =
        is_output ? (seen | b) == wanted || (streams && seen == joined) : seen == wanted;
    return right ? DS_OK
                 : ds_json_refuse(list, "expected each of the %d axes of a frame, and %s", rank,
                                  !streams       ? "\"B\""
                                  : port->memory ? "\"B\" and \"M\""
                                  : is_output    ? "\"B\" and \"L\", or \"B_L\""
                                                 : "\"B\" and \"L\"");
}

/* ---------------------------------------------------------------- ports */
static ds_status read_signature(ds_port *port, ds_json_value object)
{
    ds_signature said;
    DS_TRY(ds_signature_read(&said, object));
    const ds_signature *has = &port->signature;
    if (said.dtype != has->dtype || !ds_signature_same_shape(&said, has) ||
        !ds_rate_equal(said.rate, has->rate)) {
        return ds_json_refuse(
            object,
            "expected the signature that the graph gives, %s %s at rate %lld/%lld, got another",
            ds_dtype_name(has->dtype), DS_SHAPE_TEXT(has), (long long)has->rate.num,
            (long long)has->rate.den);
    }
    return DS_OK;
}

static ds_status read_port(ds_port *port, ds_arena *memory, ds_json_value object, bool is_output)
{
    static const char *const keys[] = {"name", "dimensions", "dtype", "shape", "rate"};
    DS_TRY(ds_json_only(object, keys, is_output ? 5 : 2));
    DS_TRY(read_name(&port->name, memory, object));
    DS_TRY(read_dimensions(port, object, is_output));
    return is_output ? read_signature(port, object) : DS_OK;
}

/* As many as the graph has. */
static ds_status read_ports(ds_port **ports, size_t n, ds_arena *memory, ds_json_value object,
                            const ds_graph *graph, bool is_output)
{
    const int *edges = is_output ? graph->outputs : graph->inputs;
    ds_json_value list, value;
    ds_json_cursor at;
    DS_TRY(ds_json_member(&list, object, is_output ? "outputs" : "inputs"));
    DS_TRY(ds_json_enter(&at, list, DS_JSON_ARRAY));
    if (ds_json_count(list) != n) {
        return ds_json_refuse(list, "expected %zu, as many as the graph has, got %zu", n,
                              ds_json_count(list));
    }
    DS_PUSH(memory, *ports, n);
    for (size_t i = 0; ds_json_next(&at, &value); i++) {
        ds_port *port = &(*ports)[i];
        const ds_edge *edge = &graph->edges[edges[i]];
        *port = (ds_port){.signature = edge->signature,
                          .memory = !is_output && edge->given && edge->signature.rate.num > 0};
        DS_TRY(read_port(port, memory, value, is_output));
        for (size_t k = 0; k < i && !is_output; k++) { /* at most DS_MAX_INPUTS */
            if (strcmp(port->name, (*ports)[k].name) == 0)
                return ds_json_refuse(value, "expected inputs whose names differ, got one twice");
        }
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- structure */
/* {"list": [...]} or {"dict": {...}}. Fills `dict` with which it is. */
static ds_status check_wrapper(bool *dict, ds_json_value object)
{
    ds_json_value inner;
    const bool list =
        ds_json_find(&inner, object, "list") && ds_json_kind_of(inner) == DS_JSON_ARRAY;
    *dict = ds_json_find(&inner, object, "dict") && ds_json_kind_of(inner) == DS_JSON_OBJECT;
    if (ds_json_count(object) != 1 || (!list && !*dict)) {
        return ds_json_refuse(object, "expected the number of an output, an array (a tuple), "
                                      "{\"list\": [...]} or {\"dict\": {...}}");
    }
    return DS_OK;
}

/* What is due where a tree of numbers of outputs is copied: every output once. */
typedef struct copy {
    ds_json_writer w;
    bool *seen;
    size_t n_outputs;
} copy;

static ds_status copy_output(copy *c, ds_json_value value)
{
    int64_t output = 0;
    DS_TRY(ds_json_integer(&output, value, 0, (int64_t)c->n_outputs - 1));
    if (c->seen[output])
        return ds_json_refuse(value, "expected every output once, got %lld twice",
                              (long long)output);
    c->seen[output] = true;
    ds_json_put_integer(&c->w, NULL, output);
    return DS_OK;
}

/* A tuple is an array, a list {"list": [...]}, a dict {"dict": {...}}, whose inner object is
 * `within_dict`. */
static ds_status copy_structure(copy *c, ds_json_value value, int depth, bool within_dict)
{
    ds_json_cursor at;
    ds_json_value part;
    bool dict = false;
    const ds_json_kind kind = ds_json_kind_of(value);
    const bool object = kind == DS_JSON_OBJECT;
    if (depth > DS_MODEL_MAX_DEPTH)
        return ds_json_refuse(value, "expected at most %d levels", DS_MODEL_MAX_DEPTH);
    if (!object && kind != DS_JSON_ARRAY)
        return copy_output(c, value);
    if (object && !within_dict)
        DS_TRY(check_wrapper(&dict, value));
    ds_json_put_open(&c->w, NULL, kind);
    DS_TRY(ds_json_enter(&at, value, kind));
    while (ds_json_next(&at, &part)) {
        if (object) { /* that was the key */
            const char *text = NULL;
            size_t n_bytes = 0;
            DS_TRY(ds_json_string(&text, &n_bytes, part));
            ds_json_put_key_bytes(&c->w, text, n_bytes);
            (void)ds_json_next(&at, &part);
        }
        DS_TRY(copy_structure(c, part, depth + 1, dict));
    }
    ds_json_put_close(&c->w);
    return DS_OK;
}

static ds_status read_structure(ds_interface *interface, ds_json_value object)
{
    copy c = {.n_outputs = interface->n_outputs};
    ds_json_value value;
    DS_TRY(ds_json_member(&value, object, "structure"));
    DS_PUSH_ZEROED(&interface->memory, c.seen, c.n_outputs);
    ds_json_writer_init(&c.w, &interface->structure);
    DS_TRY(copy_structure(&c, value, 0, false));
    DS_TRY(ds_json_writer_finish(&c.w));
    for (size_t o = 0; o < c.n_outputs; o++) {
        if (!c.seen[o])
            return ds_json_refuse(value, "expected every output once, got %zu nowhere", o);
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- the whole */
static ds_status fill(ds_interface *interface, ds_json_value value, const ds_graph *graph)
{
    ds_arena *memory = &interface->memory;
    interface->n_inputs = graph->n_inputs;
    interface->n_outputs = graph->n_outputs;
    DS_TRY(ds_json_only(
        value, DS_JSON_KEYS("name", "by_name", "skew", "blas", "inputs", "outputs", "structure")));
    DS_TRY(read_name(&interface->name, memory, value));
    DS_TRY(ds_json_get_boolean(&interface->by_name, value, "by_name"));
    DS_TRY(ds_json_get_boolean(&interface->blas, value, "blas"));
    DS_TRY(ds_json_get_integer(&interface->skew, value, "skew", 0, INT32_MAX));
    DS_TRY(read_ports(&interface->inputs, graph->n_inputs, memory, value, graph, false));
    DS_TRY(read_ports(&interface->outputs, graph->n_outputs, memory, value, graph, true));
    if (!interface->by_name && interface->n_inputs != 1) {
        return ds_json_refuse(value, "expected \"by_name\": true where there are %zu inputs",
                              interface->n_inputs);
    }
    return read_structure(interface, value);
}

ds_status ds_interface_read(ds_interface **interface, const ds_allocator *allocator,
                            ds_json_value value, const ds_graph *graph)
{
    ds_arena memory;
    ds_interface *made;
    ds_arena_init(&memory, allocator);
    DS_PUSH_ZEROED(&memory, made, 1);
    made->memory = memory;
    ds_buffer_init(&made->structure, allocator);
    DS_TRY_ELSE(fill(made, value, graph), ds_interface_free(made));
    *interface = made;
    return DS_OK;
}

ds_status ds_interface_parse(ds_interface **interface, const ds_allocator *allocator,
                             const char *text, size_t n_bytes, const ds_graph *graph)
{
    ds_json *json = NULL;
    DS_TRY(ds_json_parse(&json, allocator, text, n_bytes, 0));
    const ds_status status = ds_interface_read(interface, allocator, ds_json_root(json), graph);
    ds_json_free(json);
    return status;
}

void ds_interface_free(ds_interface *interface)
{
    if (interface == NULL)
        return;
    ds_arena memory = interface->memory;
    ds_buffer_free(&interface->structure);
    ds_arena_free(&memory);
}

/* ---------------------------------------------------------------- writing */
static void put_dimension(ds_json_writer *w, int dim)
{
    for (size_t k = 0; k < N_DIM_NAMES; k++) {
        if (dim == dim_names[k].dim)
            ds_json_put_string(w, NULL, dim_names[k].name);
    }
    if (dim >= 0)
        ds_json_put_integer(w, NULL, dim);
}

static void put_ports(ds_json_writer *w, const char *key, const ds_port *ports, size_t n,
                      bool are_outputs)
{
    ds_json_put_open(w, key, DS_JSON_ARRAY);
    for (size_t i = 0; i < n; i++) {
        ds_json_put_open(w, NULL, DS_JSON_OBJECT);
        ds_json_put_string(w, "name", ports[i].name);
        ds_json_put_open(w, "dimensions", DS_JSON_ARRAY);
        for (int d = 0; d < ports[i].rank; d++)
            put_dimension(w, ports[i].dims[d]);
        ds_json_put_close(w);
        if (are_outputs)
            ds_signature_put(w, &ports[i].signature);
        ds_json_put_close(w);
    }
    ds_json_put_close(w);
}

ds_status ds_interface_text(ds_buffer *text, const ds_interface *interface)
{
    ds_json_writer w;
    ds_json_writer_init(&w, text);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    ds_json_put_string(&w, "name", interface->name);
    ds_json_put_boolean(&w, "by_name", interface->by_name);
    ds_json_put_integer(&w, "skew", interface->skew);
    ds_json_put_boolean(&w, "blas", interface->blas);
    put_ports(&w, "inputs", interface->inputs, interface->n_inputs, false);
    put_ports(&w, "outputs", interface->outputs, interface->n_outputs, true);
    ds_json_put_written(&w, "structure", interface->structure.bytes, interface->structure.n_bytes);
    ds_json_put_close(&w);
    return ds_json_writer_finish(&w);
}
