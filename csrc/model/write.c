/* model/write.c: from a graph and its interface to a model file.
 *
 * Weights become tensors in the order of their first use. Two weights are one tensor where their
 * bytes lie at one place, or are packed as one; a name that another tensor has, or that is reserved,
 * is replaced. What is packed or stored narrow is made when it is written, one weight at a time. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/safetensors.h"
#include "cpu/float_env.h"
#include "exec/weights.h"
#include "kernels/narrow.h"
#include "model/members.h"

typedef struct writer {
    const ds_allocator *allocator;
    const ds_graph *graph;
    const ds_plan *plan;       /* or NULL */
    ds_arena memory, numbers;  /* numbers: of the weight that is written */
    ds_tensor_source *tensors; /* [n_tensors of n_weights] */
    uintptr_t *places;         /* [n_tensors] where the weights are that they are of (place_of) */
    const char **names; /* [n_weights] of each weight of each node in turn; NULL where absent */
    size_t n_tensors;
    uint32_t *slots; /* [n_slots] hashed by bytes and by name; 0: none, n + 1: tensor n */
    size_t n_slots;  /* a power of two; at most half are taken */
    ds_buffer text, interface;
} writer;

/* ---------------------------------------------------------------- finding tensors */
/* What weights of the same array have alike: its address, or which of the replaced ones it is; 0: there is none. */
static uintptr_t place_of(const ds_weight *weight)
{
    return weight->data != NULL ? (uintptr_t)weight->data : weight->replaced;
}

static bool same_array(const writer *w, const ds_tensor_source *t, const ds_node *node, int k)
{
    const ds_signature *s = &node->op->weight[k];
    return w->places[t - w->tensors] == place_of(&node->weights[k]) &&
           t->type == ds_tensor_of_stored(s->dtype, ds_op_stored(node->op, k)) &&
           t->rank == (size_t)s->rank &&
           memcmp(t->shape, s->shape, t->rank * sizeof t->shape[0]) == 0;
}

/* A slot of the tensor with that name, or, where it is NULL, of weight k of a node; else where it would
 * stand. */
static uint32_t *find_slot(const writer *w, const char *name, const ds_node *node, int k)
{
    const uintptr_t place = name != NULL ? 0 : place_of(&node->weights[k]);
    size_t at =
        name != NULL ? ds_hash_bytes(name, strlen(name)) : ds_hash_bytes(&place, sizeof place);
    for (;; at++) {
        uint32_t *slot = &w->slots[at & (w->n_slots - 1)];
        if (*slot == 0)
            return slot;
        const ds_tensor_source *t = &w->tensors[*slot - 1];
        if (name != NULL ? strcmp(t->name, name) == 0 : same_array(w, t, node, k))
            return slot;
    }
}

static uint32_t *slot_of_name(const writer *w, const char *name)
{
    return find_slot(w, name, NULL, 0);
}

/* ---------------------------------------------------------------- naming tensors */
/* "<path>.<operator>.<k>"; where that is taken too, with a number behind it. */
static ds_status make_up(const char **made, writer *w, const ds_node *node, int k)
{
    const char *dot = node->path[0] != 0 ? "." : "", *op = node->op->def->name;
    const char *first =
        node->path[0] == '.' || node->path[0] == '_' ? "model" : ""; /* not reserved */
    const size_t room = strlen(node->path) + strlen(op) + 64;
    char *name;
    DS_PUSH(&w->memory, name, room);
    (void)snprintf(name, room, "%s%s%s%s.%d", first, node->path, dot, op, k);
    for (size_t more = w->n_tensors; *slot_of_name(w, name) != 0; more++)
        (void)snprintf(name, room, "%s%s%s%s.%d.%zu", first, node->path, dot, op, k, more);
    *made = name;
    return DS_OK;
}

/* "<name>.scales"; NULL where there is such a tensor already. */
static ds_status name_scales(writer *w, char **called, const char *name)
{
    DS_PUSH(&w->memory, *called, strlen(name) + sizeof DS_MODEL_SCALES);
    (void)sprintf(*called, "%s" DS_MODEL_SCALES, name);
    if (*slot_of_name(w, *called) != 0)
        *called = NULL;
    return DS_OK;
}

static void put_tensor(writer *w, const ds_tensor_source *tensor, uintptr_t place)
{
    w->places[w->n_tensors] = place;
    w->tensors[w->n_tensors++] = *tensor;
    *slot_of_name(w, tensor->name) = (uint32_t)w->n_tensors;
}

/* A weight whose elements are made when they are written, and its scales, which are written after them. */
typedef struct made_tensor {
    writer *w;
    const ds_node *node;
    int k;
    float *scales;
} made_tensor;

static ds_status make_elements(void *context, const void **data)
{
    const made_tensor *const made = context;
    const ds_weight *const weight = &made->node->weights[made->k];
    const ds_stored stored = ds_op_stored(made->node->op, made->k);
    ds_arena *const a = &made->w->numbers;
    void *wide = weight->data;
    char *elements;
    ds_arena_reset(a);
    if (wide == NULL) {
        DS_TRY(ds_arena_push(a, &wide, weight->n_bytes));
        ds_weights_unpack(made->w->plan, weight->replaced, wide);
    }
    *data = wide;
    if (stored == DS_STORED_WIDE)
        return DS_OK;
    DS_PUSH(a, elements, weight->n_bytes / sizeof(float) * ds_stored_bytes(stored));
    ds_op_narrowed(made->node->op, made->k, wide, made->scales, elements, NULL);
    *data = elements;
    return DS_OK;
}

static ds_status add_tensor(writer *w, const ds_node *node, int k, uint32_t *slot)
{
    const ds_signature *s = &node->op->weight[k];
    const ds_weight *weight = &node->weights[k];
    const char *name = weight->name;
    const ds_stored stored = ds_op_stored(node->op, k);
    made_tensor *made;
    char *of_scales = NULL;
    if (name != NULL && stored == DS_STORED_INT8)
        DS_TRY(name_scales(w, &of_scales, name));
    if (name == NULL || ds_tensor_name_is_reserved(name) || *slot_of_name(w, name) != 0 ||
        (stored == DS_STORED_INT8 && of_scales == NULL)) {
        DS_TRY(make_up(&name, w, node, k));
        if (stored == DS_STORED_INT8)
            DS_TRY(name_scales(w, &of_scales, name));
    }
    DS_PUSH(&w->memory, made, 1);
    *made = (made_tensor){w, node, k, NULL};
    ds_tensor_source tensor = {.name = name,
                               .type = ds_tensor_of_stored(s->dtype, stored),
                               .rank = (size_t)s->rank,
                               .shape = s->shape,
                               .data = weight->data,
                               .context = made};
    if (stored != DS_STORED_WIDE || weight->data == NULL)
        tensor.make = make_elements;
    put_tensor(w, &tensor, place_of(weight));
    *slot = (uint32_t)w->n_tensors;
    if (stored != DS_STORED_INT8)
        return DS_OK;
    ds_signature *shape;
    DS_PUSH(&w->memory, shape, 1);
    *shape = ds_op_scales(node->op, k);
    DS_PUSH(&w->memory, made->scales, ds_signature_bytes(shape) / sizeof(float));
    tensor = (ds_tensor_source){.name = of_scales,
                                .type = DS_TENSOR_F32,
                                .rank = (size_t)shape->rank,
                                .shape = shape->shape,
                                .data = made->scales};
    put_tensor(w, &tensor, 0);
    return DS_OK;
}

static ds_status list_tensors(writer *w)
{
    size_t at = 0;
    for (size_t j = 0; j < w->graph->n_nodes; j++) {
        const ds_node *node = &w->graph->nodes[j];
        for (int k = 0; k < node->op->n_weights; k++, at++) {
            w->names[at] = NULL;
            if (place_of(&node->weights[k]) == 0)
                continue;
            uint32_t *slot = find_slot(w, NULL, node, k);
            if (*slot == 0)
                DS_TRY(add_tensor(w, node, k, slot));
            w->names[at] = w->tensors[*slot - 1].name;
        }
    }
    return DS_OK;
}

static ds_status make_room(writer *w)
{
    size_t n_weights = 0;
    for (size_t j = 0; j < w->graph->n_nodes; j++)
        n_weights += (size_t)w->graph->nodes[j].op->n_weights;
    for (w->n_slots = 16; w->n_slots < 8 * n_weights;)
        w->n_slots *= 2;
    ds_arena *a = &w->memory;
    DS_PUSH(a, w->tensors, 2 * n_weights); /* their scales, too */
    DS_PUSH(a, w->places, 2 * n_weights);
    DS_PUSH(a, w->names, n_weights);
    DS_PUSH_ZEROED(a, w->slots, w->n_slots);
    return DS_OK;
}

/* ---------------------------------------------------------------- the text */
static void put_real(ds_json_writer *j, const char *key, double x)
{
    if (isfinite(x))
        ds_json_put_double(j, key, x);
    else
        ds_json_put_string(j, key, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static void put_attr(ds_json_writer *j, const ds_attr_def *def, const ds_attr_value *v)
{
    const char *choice;
    size_t n_bytes;
    switch (def->kind) {
    case DS_ATTR_INT:
        ds_json_put_integer(j, def->name, v->i);
        break;
    case DS_ATTR_REAL:
        put_real(j, def->name, v->x);
        break;
    case DS_ATTR_CHOICE:
        choice = ds_attr_choice(def, v->i, &n_bytes);
        ds_json_put_string_bytes(j, def->name, choice, n_bytes);
        break;
    case DS_ATTR_INTS:
        ds_json_put_integers(j, def->name, v->ints, (size_t)v->n_ints);
        break;
    case DS_ATTR_TEXT:
        ds_json_put_string(j, def->name, v->text);
        break;
    }
}

static void put_edges(ds_json_writer *j, const char *key, const int *edges, size_t n)
{
    ds_json_put_open(j, key, DS_JSON_ARRAY);
    for (size_t i = 0; i < n; i++)
        ds_json_put_integer(j, NULL, edges[i]);
    ds_json_put_close(j);
}

/* first: number of its first weight among those of the graph. */
static void put_node(ds_json_writer *j, const ds_node *node, const writer *w, size_t first)
{
    const ds_op *op = node->op;
    ds_json_put_open(j, NULL, DS_JSON_OBJECT);
    ds_json_put_string(j, "op", op->def->name);
    ds_json_put_string(j, "path", node->path);
    ds_json_put_open(j, "attributes", DS_JSON_OBJECT);
    for (int i = 0; op->def->attrs != NULL && op->def->attrs[i].name != NULL; i++)
        put_attr(j, &op->def->attrs[i], &op->attr[i]);
    ds_json_put_close(j);
    put_edges(j, "inputs", node->inputs, (size_t)op->n_inputs);
    ds_json_put_open(j, "weights", DS_JSON_ARRAY);
    for (int k = 0; k < op->n_weights; k++) {
        const char *name = w->names[first + (size_t)k];
        if (name != NULL)
            ds_json_put_string(j, NULL, name);
        else
            ds_json_put_null(j, NULL);
    }
    ds_json_put_close(j);
    ds_json_put_integer(j, "outputs", op->n_outputs);
    if (op->products && !ds_op_splits(op))
        ds_json_put_string(j, "products", ds_products_name(op));
    ds_json_put_close(j);
}

static void put_graph(ds_json_writer *j, const writer *w)
{
    const ds_graph *g = w->graph;
    size_t first = 0;
    ds_json_put_open(j, "graph", DS_JSON_OBJECT);
    ds_json_put_open(j, "inputs", DS_JSON_ARRAY);
    for (size_t i = 0; i < g->n_inputs; i++) {
        ds_json_put_open(j, NULL, DS_JSON_OBJECT);
        ds_signature_put(j, &g->edges[i].signature);
        if (g->edges[i].given && g->edges[i].signature.rate.num > 0)
            ds_json_put_boolean(j, "memory", true);
        ds_json_put_close(j);
    }
    ds_json_put_close(j);
    ds_json_put_open(j, "nodes", DS_JSON_ARRAY);
    for (size_t k = 0; k < g->n_nodes; k++) {
        put_node(j, &g->nodes[k], w, first);
        first += (size_t)g->nodes[k].op->n_weights;
    }
    ds_json_put_close(j);
    put_edges(j, "outputs", g->outputs, g->n_outputs);
    ds_json_put_close(j);
}

static ds_status make_text(writer *w)
{
    ds_json_writer j;
    ds_json_writer_init(&j, &w->text);
    ds_json_put_open(&j, NULL, DS_JSON_OBJECT);
    ds_json_put_integer(&j, "version", DS_MODEL_VERSION);
    put_graph(&j, w);
    ds_json_put_written(&j, "interface", w->interface.bytes, w->interface.n_bytes);
    ds_json_put_close(&j);
    return ds_json_writer_finish(&j);
}

/* ---------------------------------------------------------------- checks */
static ds_status check_graph(const ds_graph *g)
{
    DS_CHECK(g->n_inputs > 0 && g->n_outputs > 0, DS_ARGUMENT,
             "model: a file's graph needs an input and an output");
    DS_CHECK(g->n_nodes <= DS_MODEL_MAX_NODES && g->n_outputs <= DS_MODEL_MAX_NODES, DS_ARGUMENT,
             "model: a file holds at most %d nodes and outputs, got %zu and %zu",
             DS_MODEL_MAX_NODES, g->n_nodes, g->n_outputs);
    size_t edge = g->n_inputs;
    bool in_order = true;
    for (size_t i = 0; i < g->n_inputs; i++)
        in_order = in_order && g->inputs[i] == (int)i;
    for (size_t k = 0; k < g->n_nodes; k++) {
        in_order = in_order && g->nodes[k].first_output == (int)edge;
        edge += (size_t)g->nodes[k].op->n_outputs;
    }
    DS_CHECK(in_order && edge == g->n_edges, DS_ARGUMENT,
             "model: a file's graph has its inputs first and was not rewritten");
    for (size_t k = 0; k < g->n_nodes; k++) {
        const char *name = g->nodes[k].op->def->name;
        DS_CHECK(ds_op_find(name) == g->nodes[k].op->def, DS_ARGUMENT,
                 "model: node %zu, %s, is no operator that a file can name", k, name);
    }
    return DS_OK;
}

/* Whether what was written of the interface will be read. */
static ds_status check_interface(const writer *w)
{
    ds_interface *copy = NULL;
    const ds_status status = ds_interface_parse(
        &copy, w->allocator, (const char *)w->interface.bytes, w->interface.n_bytes, w->graph);
    ds_interface_free(copy);
    return status != DS_FORMAT ? status
                               : ds_fail(DS_ARGUMENT, "model, interface: %s", ds_last_error());
}

/* ---------------------------------------------------------------- the file */
static ds_status write_all(writer *w, const ds_sink *sink, const ds_interface *interface)
{
    DS_TRY(check_graph(w->graph));
    DS_TRY(ds_interface_text(&w->interface, interface));
    DS_TRY(check_interface(w));
    DS_TRY(make_room(w));
    DS_TRY(list_tensors(w));
    DS_TRY(make_text(w));
    const ds_model_mark mark = ds_model_fingerprint(w->graph, &w->interface);
    const uint64_t *const origin = w->graph->origin;
    uint64_t own[2];
    ds_graph_fingerprint(w->graph, own);
    char of[33];
    (void)snprintf(of, sizeof of, "%016" PRIx64 "%016" PRIx64, origin[0], origin[1]);
    ds_metadata_source texts[4] = {
        {DS_MODEL_KEY, (const char *)w->text.bytes, w->text.n_bytes},
        {DS_MODEL_FINGERPRINT_KEY, mark.text, strlen(mark.text)},
    };
    size_t n_texts = 2;
    if (memcmp(origin, own, sizeof own) != 0 && (origin[0] != 0 || origin[1] != 0))
        texts[n_texts++] = (ds_metadata_source){DS_MODEL_ORIGIN_KEY, of, strlen(of)};
    const char *const types = interface->types;
    if (types != NULL)
        texts[n_texts++] = (ds_metadata_source){DS_MODEL_TYPES_KEY, types, strlen(types)};
    return ds_safetensors_write(sink, w->allocator, w->tensors, w->n_tensors, texts, n_texts);
}

static void free_writer(writer *w)
{
    ds_arena_free(&w->memory);
    ds_arena_free(&w->numbers);
    ds_buffer_free(&w->text);
    ds_buffer_free(&w->interface);
}

ds_status ds_model_write(const ds_sink *sink, const ds_graph *graph, const ds_interface *interface,
                         const ds_plan *plan)
{
    DS_SCOPED(free_writer)
    writer w = {.allocator = &graph->allocator, .graph = graph, .plan = plan};
    ds_arena_init(&w.memory, w.allocator);
    ds_arena_init(&w.numbers, w.allocator);
    ds_buffer_init(&w.text, w.allocator);
    ds_buffer_init(&w.interface, w.allocator);
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers); /* numbers are spelled */
    return write_all(&w, sink, interface);
}
