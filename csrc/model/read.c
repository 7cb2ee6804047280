/* model/read.c: from a model file to a graph and its interface.
 *
 * The container first (codec/safetensors.h checks all of it), then the text in its metadata, front
 * to back: each node is added to the graph as it is read, so that the graph checks what refers to
 * what, and each operator its own attributes and weights. Then, that the file holds nothing else;
 * at last, that all of it is what the writer wrote. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cpu/float_env.h"
#include "kernels/narrow.h"
#include "model/members.h"
#include "ops/attributes.h"

/* What is being read. */
typedef struct reader {
    ds_allocator allocator;
    ds_arena memory;  /* scratch */
    ds_arena numbers; /* of the node that is read */
    ds_mapped *file;
    ds_safetensors *container;
    ds_json *json;
    bool *used; /* [tensors of the container] by a node */
    ds_graph *graph;
    ds_interface *interface;
} reader;

/* ---------------------------------------------------------------- attributes */
/* All attributes of the operator and no others. */
static ds_status read_attrs(ds_attr *attrs, size_t *n, const ds_op_def *def, ds_json_value node)
{
    ds_json_value object, value;
    const char *names[DS_MAX_ATTRS];
    DS_TRY(ds_json_member(&object, node, "attributes"));
    *n = 0;
    for (const ds_attr_def *d = def->attrs; d != NULL && d->name != NULL; d++)
        names[(*n)++] = d->name;
    DS_TRY(ds_json_only(object, names, *n));
    for (size_t i = 0; i < *n; i++) {
        attrs[i] = (ds_attr){.name = names[i], .kind = def->attrs[i].kind};
        DS_TRY(ds_json_member(&value, object, names[i]));
        DS_TRY(ds_attr_read(&attrs[i], value));
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- inputs and weights */
static ds_status read_edge(int *edge, ds_json_value value, const ds_graph *graph)
{
    int64_t e = 0;
    DS_TRY(ds_json_integer(&e, value, 0, (int64_t)graph->n_edges - 1));
    *edge = (int)e;
    return DS_OK;
}

static ds_status read_inputs(int *inputs, size_t *n, ds_json_value node, const ds_graph *graph)
{
    ds_json_value value;
    ds_json_cursor at;
    DS_TRY(ds_json_get_list(&at, node, "inputs", 0, DS_MAX_INPUTS, "inputs"));
    for (*n = 0; ds_json_next(&at, &value); ++*n)
        DS_TRY(read_edge(&inputs[*n], value, graph));
    return DS_OK;
}

/* Marks a tensor as used. The first use sees to what operators rely on: where it lies, and that bytes of type BOOL are 0
 * or 1. */
static ds_status use_tensor(reader *r, const ds_tensor_view *t, ds_json_value value)
{
    if (r->used[t->index])
        return DS_OK;
    if (t->offset % DS_ALIGNMENT != 0) {
        return ds_json_refuse(
            value, "expected a tensor at a multiple of %d bytes, got byte %zu of the file",
            DS_ALIGNMENT, t->offset);
    }
    const unsigned char *bytes = t->data;
    for (size_t i = 0; t->type == DS_TENSOR_BOOL && i < t->n_bytes; i++) {
        if (bytes[i] > 1) {
            return ds_json_refuse(value, "expected 0 or 1, got %d at byte %zu of the file",
                                  bytes[i], t->offset + i);
        }
    }
    r->used[t->index] = true;
    return DS_OK;
}

/* Scales are those of channels, runs of equally many elements; or of all elements behind the first axis, for each of
 * some groups along it. */
static bool scales_fit(const ds_tensor_view *scales, const ds_tensor_view *t)
{
    if (scales == NULL || scales->type != DS_TENSOR_F32 || scales->rank < 1 ||
        scales->shape[0] <= 0)
        return false;
    if (scales->rank == 1)
        return t->n_items % (size_t)scales->shape[0] == 0;
    return scales->rank == t->rank && t->shape[0] % scales->shape[0] == 0 &&
           memcmp(scales->shape + 1, t->shape + 1, (t->rank - 1) * sizeof t->shape[0]) == 0;
}

static ds_status find_scales(reader *r, const ds_tensor_view **scales, const ds_tensor_view *t,
                             ds_json_value value)
{
    char *name;
    DS_PUSH(&r->memory, name, strlen(t->name) + sizeof DS_MODEL_SCALES);
    (void)sprintf(name, "%s" DS_MODEL_SCALES, t->name);
    *scales = ds_safetensors_find(r->container, name);
    if (!scales_fit(*scales, t))
        return ds_json_refuse(
            value,
            "expected the scales of an I8 tensor, a tensor \"%s\" of F32, one of each "
            "channel or of each element behind the first axis",
            DS_SHOWN(name));
    return use_tensor(r, *scales, value);
}

/* What a narrow tensor's elements stand for. */
static ds_status read_narrow(reader *r, ds_narrow_data *narrow, const ds_tensor_view *t,
                             ds_stored stored, ds_json_value value)
{
    const ds_tensor_view *of = NULL;
    *narrow = (ds_narrow_data){.data = t->data, .stored = stored, .n_runs = 1};
    if (stored == DS_STORED_INT8) {
        DS_TRY(find_scales(r, &of, t, value));
        narrow->scales = of->data;
        narrow->n_runs = (size_t)of->shape[0];
        narrow->n_scales = of->n_items / narrow->n_runs;
    }
    return DS_OK;
}

static ds_status read_weight(reader *r, ds_signature *signature, const void **data,
                             ds_narrow_data *narrow_data, const char **name, ds_stored *stored,
                             ds_json_value value)
{
    *signature = (ds_signature){.rate = {0, 1}};
    *data = NULL;
    *narrow_data = (ds_narrow_data){.data = NULL};
    *name = NULL;
    if (ds_json_kind_of(value) == DS_JSON_NULL)
        return DS_OK;
    DS_TRY(ds_json_string(name, NULL, value));
    const ds_tensor_view *t = ds_safetensors_find(r->container, *name);
    if (t == NULL || ds_tensor_is_filler(t))
        return ds_json_refuse_text(value, "the name of a tensor in the file");
    ds_stored own = DS_STORED_WIDE;
    const bool narrow = ds_stored_of_tensor(&own, t->type);
    signature->dtype = DS_F32;
    if ((!narrow && !ds_dtype_of_tensor(&signature->dtype, t->type)) || t->rank > DS_MAX_RANK) {
        return ds_json_refuse(
            value,
            "expected a tensor of F32, F64, F16, BF16, I64, I16, I8 or BOOL of rank %d "
            "at most, got %s of rank %zu",
            DS_MAX_RANK, ds_tensor_type_name(t->type), t->rank);
    }
    DS_TRY(use_tensor(r, t, value));
    signature->rank = (int)t->rank;
    memcpy(signature->shape, t->shape, t->rank * sizeof t->shape[0]);
    *data = t->data;
    if (!narrow)
        return DS_OK;
    *stored = own;
    return read_narrow(r, narrow_data, t, own, value);
}

/* ---------------------------------------------------------------- nodes */
/* What one node says; what it points to is the tree's, and the file's. */
typedef struct node_text {
    const ds_op_def *def;
    ds_attr attrs[DS_MAX_ATTRS];
    int inputs[DS_MAX_INPUTS];
    ds_signature weights[DS_MAX_WEIGHTS];
    const void *data[DS_MAX_WEIGHTS];
    ds_narrow_data narrow[DS_MAX_WEIGHTS];
    const char *names[DS_MAX_WEIGHTS];
    const char *path;
    size_t n_attrs, n_inputs, n_weights;
    int n_outputs;
    ds_narrowing how;
} node_text;

static ds_status read_def(const ds_op_def **def, ds_json_value node)
{
    ds_json_value value;
    const char *name = NULL;
    DS_TRY(ds_json_member(&value, node, "op"));
    DS_TRY(ds_json_string(&name, NULL, value));
    *def = ds_op_find(name);
    return *def != NULL ? DS_OK : ds_json_refuse_text(value, "the name of an operator");
}

static ds_status read_weights(reader *r, node_text *n, ds_json_value node)
{
    ds_json_value value;
    ds_json_cursor at;
    DS_TRY(ds_json_get_list(&at, node, "weights", 0, DS_MAX_WEIGHTS, "weights"));
    size_t i = 0;
    n->how = (ds_narrowing){DS_STORED_WIDE, false};
    for (; ds_json_next(&at, &value); i++)
        DS_TRY(read_weight(r, &n->weights[i], &n->data[i], &n->narrow[i], &n->names[i],
                           &n->how.stored, value));
    n->n_weights = i;
    return DS_OK;
}

/* Of what rows are stored as that weights are, if they are. */
static ds_status read_products(node_text *n, ds_json_value node)
{
    ds_json_value value;
    const char *text = NULL;
    if (!ds_json_find(&value, node, "products"))
        return DS_OK;
    DS_TRY(ds_json_string(&text, NULL, value));
    n->how.products = (n->how.stored == DS_STORED_INT8 || n->how.stored == DS_STORED_BF16) &&
                      strcmp(text, ds_stored_name(n->how.stored)) == 0;
    return n->how.products ? DS_OK
                           : ds_json_refuse_text(
                                 value, "\"bf16\" or \"int8\", as the node's weights are stored");
}

static ds_status parse_node(reader *r, node_text *n, ds_json_value node)
{
    int64_t n_outputs = 0;
    DS_TRY(ds_json_only(node, DS_JSON_KEYS("op", "path", "attributes", "inputs", "weights",
                                           "outputs", "products")));
    DS_TRY(read_def(&n->def, node));
    DS_TRY(ds_json_get_string(&n->path, node, "path"));
    DS_TRY(read_attrs(n->attrs, &n->n_attrs, n->def, node));
    DS_TRY(read_inputs(n->inputs, &n->n_inputs, node, r->graph));
    DS_TRY(read_weights(r, n, node));
    DS_TRY(read_products(n, node));
    const bool body = (n->def->flags & DS_OP_BODY) != 0;
    DS_TRY(ds_json_get_integer(&n_outputs, node, "outputs", n->def->n_outputs,
                               body ? DS_MAX_OUTPUTS : n->def->n_outputs));
    n->n_outputs = (int)n_outputs;
    return DS_OK;
}

/* What the graph or the operator refuses is the file's fault. */
static ds_status blame_file(ds_status status, ds_json_value node, size_t number, const node_text *n)
{
    if (status == DS_OK || status == DS_NO_MEMORY || status == DS_INTERNAL)
        return status;
    return ds_json_refuse(node, "node %zu (%s, %s): %s", number, n->def->name, DS_SHOWN(n->path),
                          ds_last_error());
}

/* That the numbers a file has are those that the operator stores: rounded once more they are the same. */
static ds_status check_stored(reader *r, const ds_node *node, const node_text *n)
{
    for (int i = 0; i < node->op->n_weights; i++) {
        const ds_weight *w = &node->weights[i];
        const ds_stored stored = ds_op_stored(node->op, i);
        if (w->data == NULL || stored == DS_STORED_WIDE)
            continue;
        const size_t n_floats = w->n_bytes / sizeof(float);
        const ds_narrow_data *from = &w->narrow;
        float *numbers, *rounded;
        ds_arena_reset(&r->numbers);
        DS_PUSH(&r->numbers, numbers, 2 * n_floats + from->n_runs * from->n_scales);
        rounded = numbers + n_floats;
        if (w->unmade) {
            DS_TRY(ds_weight_make(&r->allocator, w, node->op, i, numbers));
            (void)ds_op_narrowed(node->op, i, numbers, rounded + n_floats, NULL, rounded);
        }
        DS_CHECK(w->unmade && memcmp(rounded, numbers, w->n_bytes) == 0, DS_FORMAT,
                 "weight '%s': rounded to %s as the operator stores it, it is another",
                 DS_SHOWN(n->names[i]), ds_stored_name(stored));
    }
    return DS_OK;
}

static ds_status read_node(reader *r, node_text *n, ds_json_value value)
{
    int outputs[DS_MAX_OUTPUTS];
    DS_TRY(parse_node(r, n, value));
    const size_t number = r->graph->n_nodes;
    const ds_node_names names = {n->path, n->names, n->how, n->narrow, false};
    ds_status status = ds_graph_node(r->graph, outputs, n->def, n->attrs, n->n_attrs, n->inputs,
                                     n->n_inputs, n->weights, n->data, n->n_weights, &names);
    if (status == DS_OK && r->graph->nodes[number].op->n_outputs != n->n_outputs)
        status = ds_fail(DS_FORMAT, "%s: has %d outputs, not %d", n->def->name,
                         r->graph->nodes[number].op->n_outputs, n->n_outputs);
    if (status == DS_OK)
        status = check_stored(r, &r->graph->nodes[number], n);
    return blame_file(status, value, number, n);
}

/* ---------------------------------------------------------------- the graph */
static ds_status read_graph_input(ds_graph *graph, ds_json_value value)
{
    ds_signature signature;
    ds_json_value said;
    bool memory = false;
    int edge;
    DS_TRY(ds_json_only(value, DS_JSON_KEYS("dtype", "shape", "rate", "memory")));
    DS_TRY(ds_signature_read(&signature, value));
    if (ds_json_find(&said, value, "memory"))
        DS_TRY(ds_json_boolean(&memory, said));
    ds_status status = ds_graph_input(graph, &edge, &signature);
    if (status == DS_OK && memory)
        status = ds_graph_memory(graph, edge);
    return status == DS_OK || status == DS_NO_MEMORY ? status
                                                     : ds_json_refuse(value, "%s", ds_last_error());
}

static ds_status read_graph(reader *r, ds_json_value object)
{
    ds_json_cursor at;
    ds_json_value value;
    DS_TRY(ds_json_only(object, DS_JSON_KEYS("inputs", "nodes", "outputs")));
    DS_TRY(ds_json_get_list(&at, object, "inputs", 1, DS_MAX_INPUTS, "inputs"));
    while (ds_json_next(&at, &value))
        DS_TRY(read_graph_input(r->graph, value));
    DS_TRY(ds_json_get_list(&at, object, "nodes", 0, DS_MODEL_MAX_NODES, "nodes"));
    node_text *text;
    DS_PUSH(&r->memory, text, 1); /* large for a stack */
    while (ds_json_next(&at, &value))
        DS_TRY(read_node(r, text, value));
    ds_arena_free(&r->numbers);
    DS_TRY(ds_json_get_list(&at, object, "outputs", 1, DS_MODEL_MAX_NODES, "outputs"));
    while (ds_json_next(&at, &value)) {
        int edge = 0;
        DS_TRY(read_edge(&edge, value, r->graph));
        DS_TRY(ds_graph_output(r->graph, edge));
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- the file */
static ds_status check_version(ds_json_value root)
{
    ds_json_value value;
    DS_TRY(ds_json_member(&value, root, "version"));
    int64_t version = 0;
    DS_TRY(ds_json_integer(&version, value, 1, INT64_MAX));
    return version == DS_MODEL_VERSION
               ? DS_OK
               : ds_json_refuse(value,
                                "expected version %d, got %lld: a newer DreamStream wrote it",
                                DS_MODEL_VERSION, (long long)version);
}

static ds_status read_text(reader *r, ds_json_value root)
{
    ds_json_value value;
    DS_TRY(check_version(root)); /* first: of a newer one nothing else is known */
    DS_TRY(ds_json_only(root, DS_JSON_KEYS("version", "graph", "interface")));
    DS_TRY(ds_json_member(&value, root, "graph"));
    DS_TRY(read_graph(r, value));
    DS_TRY(ds_json_member(&value, root, "interface"));
    return ds_interface_read(&r->interface, &r->allocator, value, r->graph);
}

/* A gap that is no longer than it has to be and holds zeros. */
static ds_status check_unused(const ds_tensor_view *t)
{
    const char *shown = DS_SHOWN(t->name);
    const unsigned char *bytes = t->data;
    DS_CHECK(ds_tensor_is_filler(t), DS_FORMAT,
             "model, byte %zu: expected tensors that nodes use, got \"%s\"", t->offset, shown);
    DS_CHECK(t->n_bytes < DS_ALIGNMENT, DS_FORMAT,
             "model, byte %zu: expected less than %d bytes of \"%s\", got %zu", t->offset,
             DS_ALIGNMENT, shown, t->n_bytes);
    for (size_t k = 0; k < t->n_bytes; k++)
        DS_CHECK(bytes[k] == 0, DS_FORMAT, "model, byte %zu: expected zeros in \"%s\", got %d",
                 t->offset + k, shown, bytes[k]);
    return DS_OK;
}

static ds_status parse_text(reader *r)
{
    size_t n_bytes = 0;
    const char *text = ds_safetensors_text(r->container, DS_MODEL_KEY, &n_bytes);
    DS_CHECK(
        text != NULL, DS_FORMAT,
        "model: expected a text \"" DS_MODEL_KEY
        "\" in the metadata; a safetensors file without it holds weights, and no graph of what is "
        "computed with them; compile the model in Python: dreamstream convert FILE.py:FUNCTION "
        "OUT.dsm --weights FILE");
    ds_status status = ds_json_parse(&r->json, &r->allocator, text, n_bytes, 0);
    if (status == DS_OK)
        status = read_text(r, ds_json_root(r->json));
    return status != DS_FORMAT
               ? status
               : ds_fail(DS_FORMAT, "model, text \"" DS_MODEL_KEY "\": %s", ds_last_error());
}

/* Refuses a key of somebody else's that is the name of a text of ours but for one byte: damage would pass as an older
 * writer's file. */
static ds_status check_key(const reader *r, const char *name)
{
    const size_t length = strlen(name);
    ds_json_value metadata, key, value;
    ds_json_cursor at;
    if (!ds_safetensors_metadata(&metadata, r->container))
        return DS_OK;
    DS_TRY(ds_json_enter(&at, metadata, DS_JSON_OBJECT));
    while (ds_json_next_member(&at, &key, &value)) {
        const char *text = NULL;
        size_t n_bytes = 0, differ = 0;
        DS_TRY(ds_json_string(&text, &n_bytes, key));
        for (size_t i = 0; n_bytes == length && i < length; i++)
            differ += text[i] != name[i];
        DS_CHECK(differ != 1, DS_FORMAT,
                 "model: the file is damaged or was changed: expected a text \"%s\" in the "
                 "metadata, got \"%s\"",
                 name, DS_SHOWN(text));
    }
    return DS_OK;
}

static ds_status check_fingerprint(reader *r)
{
    size_t n_bytes = 0;
    DS_TRY(check_key(r, DS_MODEL_FINGERPRINT_KEY));
    DS_TRY(check_key(r, DS_MODEL_ORIGIN_KEY));
    DS_TRY(check_key(r, DS_MODEL_TYPES_KEY));
    const char *says = ds_safetensors_text(r->container, DS_MODEL_FINGERPRINT_KEY, &n_bytes);
    if (!says) /* files of older writers */
        return DS_OK;
    DS_TRY(ds_graph_remember_fingerprint(r->graph));
    DS_SCOPED(ds_buffer_free) ds_buffer text;
    ds_buffer_init(&text, &r->allocator);
    DS_TRY(ds_interface_text(&text, r->interface));
    const ds_model_mark is = ds_model_fingerprint(r->graph, &text);
    char shown[DS_UTF8_SHOWN_BYTES];
    DS_CHECK(n_bytes == strlen(is.text) && memcmp(says, is.text, n_bytes) == 0, DS_FORMAT,
             "model: the file is damaged or was changed: its fingerprint is %s, but it says \"%s\" "
             "(what was changed on purpose: dreamstream convert --reseal)",
             is.text, ds_utf8_show(shown, sizeof shown, says, n_bytes));
    return DS_OK;
}

/* Whose snapshots go with the graph, where that is another. */
static ds_status read_origin(reader *r)
{
    size_t n_bytes = 0;
    const char *text = ds_safetensors_text(r->container, DS_MODEL_ORIGIN_KEY, &n_bytes);
    uint64_t *const origin = r->graph->origin;
    if (text != NULL) {
        bool digits = n_bytes == 32;
        for (size_t i = 0; digits && i < n_bytes; i++) {
            static const char known[] = "0123456789abcdef";
            const char *const at = strchr(known, text[i]);
            digits = at != NULL && text[i] != 0;
            if (digits)
                origin[i / 16] = origin[i / 16] << 4 | (uint64_t)(at - known);
        }
        DS_CHECK(digits, DS_FORMAT,
                 "model, text \"" DS_MODEL_ORIGIN_KEY "\": expected 32 hexadecimal digits");
    }
    return DS_OK;
}

static ds_status fill(reader *r)
{
    const ds_allocator *a = &r->allocator;
    DS_TRY(
        ds_safetensors_open(&r->container, a, ds_mapped_bytes(r->file), ds_mapped_size(r->file)));
    const size_t n = ds_safetensors_count(r->container);
    DS_PUSH_ZEROED(&r->memory, r->used, n);
    DS_TRY(ds_graph_create(&r->graph, a));
    ds_graph_borrow(r->graph, r->file);
    DS_TRY(parse_text(r));
    DS_TRY(read_origin(r));
    size_t n_bytes = 0;
    const char *types = ds_safetensors_text(r->container, DS_MODEL_TYPES_KEY, &n_bytes);
    if (types != NULL)
        DS_PUSH_COPY(&r->interface->memory, r->interface->types, types, n_bytes + 1);
    for (size_t i = 0; i < n; i++) {
        if (!r->used[i])
            DS_TRY(check_unused(ds_safetensors_at(r->container, i)));
    }
    return DS_OK;
}

static void free_reader(reader *r)
{
    ds_arena_free(&r->memory);
    ds_arena_free(&r->numbers);
    ds_json_free(r->json);
    ds_safetensors_close(r->container);
    ds_interface_free(r->interface);
    ds_graph_destroy(r->graph);
}

ds_status ds_model_read(ds_graph **graph, ds_interface **interface, const ds_allocator *allocator,
                        ds_mapped *file, bool changed)
{
    DS_SCOPED(free_reader)
    reader r = {.allocator = allocator != NULL ? *allocator : *ds_default_allocator(),
                .file = file};
    ds_arena_init(&r.memory, &r.allocator);
    ds_arena_init(&r.numbers, &r.allocator);
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers); /* numbers are rounded */
    DS_TRY(fill(&r));
    if (!changed)
        DS_TRY(check_fingerprint(&r));
    *graph = r.graph;
    *interface = r.interface;
    r.graph = NULL;
    r.interface = NULL;
    return DS_OK;
}
