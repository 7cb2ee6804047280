/* ops/scan.c: a loop over frames. For each frame of a stream, one after the other, a body computes what the loop
 * carries and what it gives from this frame of the inputs and from what it carried before.
 *
 * A body is a graph of operators that look at single frames. There is one for each of the first frames, where these
 * are treated in another way, and the last body is that of all later frames. The attribute `body` holds them as JSON:
 *
 *     {"carried":[{"name":"h","dtype":"float32","shape":[4]}],
 *      "bodies":[{"nodes":[{"op":"linear","attributes":{},"inputs":[1],"weights":[1,null]}],
 *                 "carried":[2],"outputs":[2]}]}
 *
 * Values are numbered: the inputs, what is carried, then the outputs of the nodes in their order. Weights are numbered
 * as the operator's own, of which the first ones, one for each carried array, are what it is before the first frame;
 * an absent one is zero.
 *
 * A node's member "note" is not for kernels: it says what a front end's own arithmetic does besides.
 *
 * How frames go through a body says scan_run.c. */
#include <math.h>
#include <string.h>

#include "ops/attributes.h"
#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/registry.h"
#include "ops/scan.h"

enum { SCAN_BODY, SCAN_MAX_BODIES = 16, SCAN_MAX_NODES = 512, SCAN_MAX_NAME = 200 };

/* ---------------------------------------------------------------- reading a body */
static ds_status scan_read_attr(ds_attr *attr, const ds_op_def *def, ds_json_value key,
                                ds_json_value value)
{
    const ds_attr_def *own = def->attrs;
    *attr = (ds_attr){.name = NULL};
    DS_TRY(ds_json_string(&attr->name, NULL, key));
    while (own && own->name && strcmp(own->name, attr->name) != 0)
        own++;
    attr->kind =
        own && own->name ? own->kind : DS_ATTR_INT; /* unknown names are refused by the operator */
    return ds_attr_read(attr, value);
}

/* One of n numbers that exist; null is -1 where it may be absent. */
static ds_status scan_read_place(int *place, ds_json_value value, size_t n, bool absent)
{
    int64_t i = -1;
    if (!absent || ds_json_kind_of(value) != DS_JSON_NULL)
        DS_TRY(ds_json_integer(&i, value, 0, (int64_t)n - 1));
    *place = (int)i;
    return DS_OK;
}

static ds_status scan_read_places(int *places, size_t *n, size_t most, ds_json_value object,
                                  const char *key, size_t n_known, bool absent)
{
    ds_json_cursor at;
    ds_json_value value;
    DS_TRY(ds_json_get_list(&at, object, key, 0, most, key));
    *n = 0;
    while (ds_json_next(&at, &value))
        DS_TRY(scan_read_place(&places[(*n)++], value, n_known, absent));
    return DS_OK;
}

/* What a front end noted of a node: of its own arithmetic, and where gradients end. */
static ds_status scan_read_note(ds_scan_node *node, ds_json_value object)
{
    ds_json_value value;
    const char *note;
    if (!ds_json_find(&value, object, "note"))
        return DS_OK;
    DS_TRY(ds_json_get_string(&note, object, "note"));
    node->ends_gradients = strcmp(note, "detach") == 0 || strcmp(note, "no_grad") == 0;
    return DS_OK;
}

static ds_status scan_make_node(const ds_op *op, ds_scan *s, ds_scan_body *body,
                                ds_json_value object)
{
    ds_scan_node *node = &body->nodes[body->n_nodes];
    ds_attr attrs[DS_MAX_ATTRS];
    ds_signature in[DS_MAX_INPUTS], weights[DS_MAX_WEIGHTS];
    int numbers[DS_MAX_WEIGHTS];
    size_t n_attrs = 0, n_in, n_weights;
    const char *name;
    ds_json_value list, key, value;
    ds_json_cursor at;
    DS_TRY(ds_json_only(object, DS_JSON_KEYS("op", "attributes", "inputs", "weights", "note")));
    DS_TRY(scan_read_note(node, object));
    DS_TRY(ds_json_get_string(&name, object, "op"));
    const ds_op_def *def = ds_op_find(name);
    DS_CHECK(def != NULL && def != &ds_op_scan, DS_ARGUMENT,
             "scan: its body has an operator '%.40s', which is none that a body may have", name);
    DS_TRY(ds_json_member(&list, object, "attributes"));
    DS_TRY(ds_json_enter(&at, list, DS_JSON_OBJECT));
    while (ds_json_next_member(&at, &key, &value)) {
        DS_CHECK(n_attrs < DS_MAX_ATTRS, DS_FORMAT, "scan: too many attributes in its body");
        DS_TRY(scan_read_attr(&attrs[n_attrs++], def, key, value));
    }
    DS_TRY(scan_read_places(node->inputs, &n_in, DS_MAX_INPUTS, object, "inputs", body->n_values,
                            false));
    DS_TRY(scan_read_places(numbers, &n_weights, DS_MAX_WEIGHTS, object, "weights",
                            (size_t)op->n_weights, true));
    for (size_t i = 0; i < n_in; i++)
        in[i] = body->values[node->inputs[i]];
    for (size_t i = 0; i < n_weights; i++) {
        weights[i] = (ds_signature){.rank = 0};
        DS_CHECK(numbers[i] < 0 || ds_op_has_weight(op, numbers[i]), DS_ARGUMENT,
                 "scan: weight %d, which its body reads, is absent", numbers[i]);
        if (numbers[i] >= 0)
            weights[i] = op->weight[numbers[i]];
    }
    DS_PUSH_COPY(&s->arena, node->weights, numbers, n_weights);
    DS_TRY(
        ds_op_create(&node->op, &op->allocator, def, attrs, n_attrs, in, n_in, weights, n_weights));
    body->n_nodes++; /* from here on its operator is released with the others */
    DS_CHECK(ds_op_framewise(node->op), DS_ARGUMENT,
             "scan: '%s' looks at more than one frame, and can't stand in its body", def->name);
    node->first_output = (int)body->n_values;
    for (int o = 0; o < node->op->n_outputs; o++)
        body->values[body->n_values++] = node->op->out[o];
    return DS_OK;
}

/* What a body's nodes take of scratch: for each frame, and beside these. */
static void scan_measure(ds_scan_body *body)
{
    for (size_t j = 0; j < body->n_nodes; j++) {
        const ds_op *node = body->nodes[j].op;
        const size_t call = ds_saturated_sum(node->scratch.per_call, node->scratch.per_row);
        const size_t row = ds_saturated_sum(node->scratch.per_in, node->scratch.per_out);
        body->scratch_per_call = call > body->scratch_per_call ? call : body->scratch_per_call;
        body->scratch_per_slot = row > body->scratch_per_slot ? row : body->scratch_per_slot;
    }
}

/* Says of each node when it runs: by what it depends on, and by what depends on it. */
static ds_status scan_set_phases(const ds_op *op, ds_scan *s, ds_scan_body *body)
{
    bool *depends, *needed;
    DS_PUSH_ZEROED(&s->arena, depends, body->n_values);
    DS_PUSH_ZEROED(&s->arena, needed, body->n_values);
    DS_PUSH_ZEROED(&s->arena, body->hidden, body->n_values + body->n_nodes);
    for (int c = 0; c < op->n_carried; c++)
        depends[op->n_inputs + c] = needed[body->carried[c]] = true;
    for (size_t j = 0; j < body->n_nodes; j++) {
        const ds_scan_node *node = &body->nodes[j];
        for (int o = 0; o < node->op->n_outputs; o++)
            for (int i = 0; i < node->op->n_inputs; i++)
                depends[node->first_output + o] |= depends[node->inputs[i]];
    }
    for (size_t j = body->n_nodes; j-- > 0;) {
        ds_scan_node *node = &body->nodes[j];
        bool wanted = false;
        for (int o = 0; o < node->op->n_outputs; o++)
            wanted |= needed[node->first_output + o];
        for (int i = 0; i < node->op->n_inputs; i++)
            needed[node->inputs[i]] |= wanted;
        node->phase = !depends[node->first_output] ? DS_SCAN_BEFORE
                      : wanted                     ? DS_SCAN_STEP
                                                   : DS_SCAN_AFTER;
        node->ahead = -1;
    }
    for (size_t j = 0; j < body->n_nodes; j++) {
        ds_scan_node *node = &body->nodes[j];
        if (node->phase == DS_SCAN_STEP && node->op->def->ahead && !depends[node->inputs[0]]) {
            node->ahead = (int)body->n_values;
            body->values[body->n_values++] =
                (ds_signature){.dtype = ds_op_real(node->op),
                               .rank = 1,
                               .shape = {(int64_t)node->op->def->ahead(node->op)},
                               .rate = op->in[0].rate};
        }
    }
    return DS_OK;
}

static ds_status scan_make_body(const ds_op *op, ds_scan *s, ds_scan_body *body,
                                ds_json_value object, size_t *n_outputs)
{
    ds_json_cursor at;
    ds_json_value node;
    size_t n_carried;
    DS_TRY(ds_json_only(object, DS_JSON_KEYS("nodes", "carried", "outputs")));
    DS_TRY(ds_json_get_list(&at, object, "nodes", 0, SCAN_MAX_NODES, "nodes"));
    DS_TRY(ds_json_member(&node, object, "nodes"));
    const size_t n_nodes = ds_json_count(node);
    const size_t n_known = (size_t)op->n_inputs + (size_t)op->n_carried;
    DS_PUSH_ZEROED(&s->arena, body->nodes, n_nodes);
    DS_PUSH_ZEROED(&s->arena, body->values, n_known + n_nodes * (DS_MAX_OUTPUTS + 1));
    for (int i = 0; i < op->n_inputs; i++)
        body->values[body->n_values++] = op->in[i];
    for (int i = 0; i < op->n_carried; i++)
        body->values[body->n_values++] = op->carried[i].array;
    while (ds_json_next(&at, &node))
        DS_TRY(scan_make_node(op, s, body, node));
    DS_TRY(scan_read_places(body->carried, &n_carried, DS_MAX_CARRIED, object, "carried",
                            body->n_values, false));
    DS_TRY(scan_read_places(body->outputs, n_outputs, DS_MAX_OUTPUTS, object, "outputs",
                            body->n_values, false));
    DS_CHECK(n_carried == (size_t)op->n_carried && *n_outputs > 0, DS_ARGUMENT,
             "scan: a body gives %zu carried arrays and %zu outputs, expected %d and at least 1",
             n_carried, *n_outputs, op->n_carried);
    for (size_t i = 0; i < n_carried; i++) {
        const ds_signature *is = &body->values[body->carried[i]], *was = &op->carried[i].array;
        DS_CHECK(is->dtype == was->dtype && ds_signature_same_shape(is, was), DS_SHAPE,
                 "scan: '%s' is %s %s, but %s %s after a frame", op->carried[i].name,
                 ds_dtype_name(was->dtype), DS_SHAPE_TEXT(was), ds_dtype_name(is->dtype),
                 DS_SHAPE_TEXT(is));
    }
    scan_measure(body);
    return scan_set_phases(op, s, body);
}

static ds_status scan_read_carried(ds_op *op, ds_scan *s, ds_json_value object)
{
    ds_json_cursor at;
    ds_json_value value;
    const char *name, *dtype;
    DS_TRY(ds_json_get_list(&at, object, "carried", 0, DS_MAX_CARRIED, "carried arrays"));
    while (ds_json_next(&at, &value)) {
        ds_carried *c = &op->carried[op->n_carried];
        DS_TRY(ds_json_only(value, DS_JSON_KEYS("name", "dtype", "shape")));
        DS_TRY(ds_json_get_string(&name, value, "name"));
        DS_TRY(ds_json_get_string(&dtype, value, "dtype"));
        c->array = (ds_signature){.dtype = ds_dtype_find(dtype), .rate = op->in[0].rate};
        DS_CHECK((int)c->array.dtype != 0 && strlen(name) <= SCAN_MAX_NAME, DS_ARGUMENT,
                 "scan: a carried array has no element type '%.40s', or a name that is too long",
                 dtype);
        DS_TRY(ds_json_get_integers(c->array.shape, &c->array.rank, value, "shape", 0, DS_MAX_RANK,
                                    1));
        DS_CHECK(ds_signature_elements(&c->array) < DS_INT_LIMIT, DS_SHAPE,
                 "scan: '%s' has 2^40 elements or more", name);
        for (int i = 0; i < op->n_carried; i++)
            DS_CHECK(strcmp(op->carried[i].name, name) != 0, DS_ARGUMENT,
                     "scan: two carried arrays are called '%s'", name);
        char *copy;
        DS_PUSH_COPY(&s->arena, copy, name, strlen(name) + 1);
        c->name = copy;
        const int i = op->n_carried++;
        if (ds_op_has_weight(op, i)) {
            const ds_signature *first = &op->weight[i];
            DS_CHECK(first->dtype == c->array.dtype && ds_signature_same_shape(first, &c->array),
                     DS_SHAPE, "scan: '%s' is %s, but begins as %s", name, DS_SHAPE_TEXT(&c->array),
                     DS_SHAPE_TEXT(first));
        }
    }
    DS_CHECK(op->n_weights >= op->n_carried, DS_ARGUMENT,
             "scan: expected a weight, or none, for each of %d carried arrays, got %d weights",
             op->n_carried, op->n_weights);
    return DS_OK;
}

static ds_status scan_list_nodes(ds_scan *s)
{
    for (size_t b = 0; b < s->n_bodies; b++) {
        s->bodies[b].first_node = s->n_nodes;
        s->n_nodes += s->bodies[b].n_nodes;
    }
    DS_CHECK(s->n_nodes <= SCAN_MAX_NODES, DS_LIMIT, "scan: its bodies have more than %d operators",
             SCAN_MAX_NODES);
    DS_PUSH(&s->arena, s->nodes, s->n_nodes);
    for (size_t b = 0; b < s->n_bodies; b++)
        for (size_t j = 0; j < s->bodies[b].n_nodes; j++)
            s->nodes[s->bodies[b].first_node + j] = &s->bodies[b].nodes[j];
    return DS_OK;
}

static size_t scan_depth(const ds_op *node, int j)
{
    return node->def->narrows && !node->def->scale_of ? node->def->narrows(node, j) : 0;
}

/* A node's weights are narrow, all that may be, where each is read so by all nodes that read it. */
static ds_status scan_find_narrow(const ds_op *op, ds_scan *s)
{
    bool *wide, changes = true;
    DS_PUSH_ZEROED(&s->arena, s->depths, (size_t)op->n_weights);
    DS_PUSH_ZEROED(&s->arena, wide, (size_t)op->n_weights);
    for (int i = 0; i < op->n_carried; i++)
        wide[i] = true;
    while (changes) {
        changes = false;
        for (size_t k = 0; k < s->n_nodes; k++) {
            const ds_scan_node *node = s->nodes[k];
            bool any = false;
            for (int j = 0; j < node->op->n_weights; j++)
                any |=
                    node->weights[j] >= 0 && scan_depth(node->op, j) > 0 && wide[node->weights[j]];
            for (int j = 0; j < node->op->n_weights; j++) {
                const int i = node->weights[j];
                const size_t depth = any ? 0 : scan_depth(node->op, j);
                if (i < 0 || wide[i])
                    continue;
                wide[i] = depth == 0 || (s->depths[i] > 0 && s->depths[i] != depth);
                s->depths[i] = wide[i] ? 0 : depth;
                changes |= wide[i];
            }
        }
    }
    return DS_OK;
}

static ds_status scan_read(ds_op *op, ds_scan *s)
{
    ds_json_value value;
    ds_json_cursor at;
    const ds_json_value root = ds_json_root(s->json);
    size_t n_outputs = 0;
    DS_TRY(ds_json_only(root, DS_JSON_KEYS("carried", "bodies")));
    DS_TRY(scan_read_carried(op, s, root));
    DS_TRY(ds_json_get_list(&at, root, "bodies", 1, SCAN_MAX_BODIES, "bodies"));
    DS_PUSH_ZEROED(&s->arena, s->bodies, SCAN_MAX_BODIES);
    while (ds_json_next(&at, &value)) {
        ds_scan_body *body = &s->bodies[s->n_bodies++];
        size_t n = 0;
        DS_TRY(scan_make_body(op, s, body, value, &n));
        for (size_t o = 0; o < n; o++) {
            const ds_signature *y = &body->values[body->outputs[o]], *before = &op->out[o];
            DS_CHECK(s->n_bodies == 1 || (n == n_outputs && y->dtype == before->dtype &&
                                          ds_signature_same_shape(y, before)),
                     DS_SHAPE, "scan: what frame %zu gives is %s, and %s before", s->n_bodies - 1,
                     DS_SHAPE_TEXT(y), DS_SHAPE_TEXT(before));
            op->out[o] = *y;
        }
        n_outputs = n;
    }
    op->n_outputs = (int)n_outputs;
    DS_TRY(scan_list_nodes(s));
    DS_TRY(scan_find_narrow(op, s));
    const ds_dtype real = ds_op_real(op);
    for (size_t i = 0; i < s->n_nodes; i++) {
        const ds_op *node = s->nodes[i]->op;
        bool reals = false;
        for (int k = 0; k < node->n_inputs; k++)
            reals |= ds_is_real(node->in[k].dtype);
        DS_CHECK(ds_op_real(node) == real || !reals, DS_DTYPE,
                 "scan: %s and %s meet in one body; convert one before the loop",
                 ds_dtype_name(ds_op_real(node)), ds_dtype_name(real));
    }
    return DS_OK;
}

static size_t scan_narrows(const ds_op *op, int i)
{
    const ds_scan *s = op->own;
    return s->depths[i];
}

static ds_status scan_store(const ds_op *op)
{
    const ds_scan *s = op->own;
    for (size_t k = 0; k < s->n_nodes; k++) {
        const ds_scan_node *node = s->nodes[k];
        bool narrow = false;
        for (int j = 0; j < node->op->n_weights; j++)
            narrow |= node->weights[j] >= 0 && s->depths[node->weights[j]] > 0;
        const ds_narrowing how = {narrow ? op->stored : DS_STORED_WIDE, narrow && op->products};
        DS_TRY(ds_op_store(node->op, how));
    }
    return DS_OK;
}

static void scan_release(ds_op *op)
{
    ds_scan *s = op->own;
    if (s == NULL)
        return;
    for (size_t b = 0; b < s->n_bodies; b++)
        for (size_t j = 0; j < s->bodies[b].n_nodes; j++)
            ds_op_destroy(s->bodies[b].nodes[j].op);
    ds_json_free(s->json);
    ds_arena_free(&s->arena);
    ds_release(&op->allocator, s, sizeof *s);
}

static ds_status scan_infer(ds_op *op)
{
    const char *text = op->attr[SCAN_BODY].text;
    void *memory;
    DS_TRY(ds_allocate_zeroed(&op->allocator, &memory, sizeof(ds_scan)));
    ds_scan *s = op->own = memory;
    ds_arena_init(&s->arena, &op->allocator);
    DS_PUSH_COPY(&s->arena, s->text, text, strlen(text) + 1);
    op->attr[SCAN_BODY].text = s->text;
    DS_TRY(ds_json_parse(&s->json, &op->allocator, s->text, strlen(s->text), 0));
    DS_TRY(scan_read(op, s));
    ds_json_free(s->json);
    s->json = NULL;
    DS_TRY(ds_scan_make_chain(op, s, &s->bodies[s->n_bodies - 1]));
    ds_scan_set_sizes(op);
    DS_CHECK(op->scratch.per_row < SIZE_MAX / 4, DS_LIMIT, "scan: its body is too large");
    op->shares = true;
    ds_scan_set_back_sizes(op);
    return DS_OK;
}

/* ---------------------------------------------------------------- weights */
/* Packed weights of all nodes come first, one behind the other; then what other nodes prepare. */
static bool scan_packs(const ds_scan_node *node)
{
    return (node->op->def->flags & DS_OP_PACKS) != 0;
}

size_t ds_scan_holders(const ds_op *op, int i)
{
    const ds_scan *s = op->own;
    size_t n = 0;
    for (size_t k = 0; k < s->n_nodes; k++)
        for (int j = 0; j < s->nodes[k]->op->n_weights; j++) {
            if (s->nodes[k]->weights[j] != i)
                continue;
            if (!scan_packs(s->nodes[k]))
                return 0;
            n++;
        }
    return i < op->n_carried ? 0 : n;
}

static size_t scan_packed_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_scan *s = op->own;
    size_t n_bytes = 0;
    for (size_t i = 0; i < s->n_nodes; i++)
        n_bytes += scan_packs(s->nodes[i]) ? ds_op_prepared_bytes(s->nodes[i]->op, k) : 0;
    return n_bytes;
}

static size_t scan_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_scan *s = op->own;
    size_t n_bytes = ds_aligned(scan_packed_bytes(op, k));
    for (size_t i = 0; i < s->n_nodes; i++)
        if (!scan_packs(s->nodes[i]))
            n_bytes += ds_aligned(ds_op_prepared_bytes(s->nodes[i]->op, k));
    return n_bytes;
}

void ds_scan_places(const ds_op *op, const ds_real_kernels *k, const void *prepared,
                    const char **places)
{
    const ds_scan *s = op->own;
    const char *packed = prepared;
    const char *other = packed ? packed + ds_aligned(scan_packed_bytes(op, k)) : NULL;
    for (size_t i = 0; i < s->n_nodes; i++) {
        const size_t n_bytes = packed ? ds_op_prepared_bytes(s->nodes[i]->op, k) : 0;
        const char **from = scan_packs(s->nodes[i]) ? &packed : &other;
        places[i] = n_bytes > 0 ? *from : NULL;
        *from += scan_packs(s->nodes[i]) ? n_bytes : ds_aligned(n_bytes);
    }
}

static void scan_prepare(const ds_op *op, void *prepared, const void *const *weights,
                         const ds_real_kernels *k)
{
    const ds_scan *s = op->own;
    const char *places[SCAN_MAX_NODES];
    ds_scan_places(op, k, prepared, places);
    for (size_t i = 0; i < s->n_nodes; i++) {
        const void *own[DS_MAX_WEIGHTS];
        for (int j = 0; j < s->nodes[i]->op->n_weights; j++)
            own[j] = s->nodes[i]->weights[j] < 0 ? NULL : weights[s->nodes[i]->weights[j]];
        if (!places[i])
            continue;
        void *const to = (char *)(uintptr_t)places[i];
        ds_op_prepare(s->nodes[i]->op, to, own, k);
        DS_EACH_PACKED(w, to,
                       scan_packs(s->nodes[i]) ? ds_op_prepared_bytes(s->nodes[i]->op, k) : 0)
        {
            w->weight = s->nodes[i]->weights[w->weight];
        }
    }
}

static const ds_attr_def scan_attrs[] = {
    {"body", DS_ATTR_TEXT, .required = true, .doc = "what it does with a frame, as JSON"}, {0}};

const ds_op_def ds_op_scan = {
    DS_OPERATOR_OF(scan, "a loop over frames: what it carries and gives, frame by frame", 1, 1, -1),
    .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_PLACED | DS_OP_BODY,
    .attrs = scan_attrs,
    .shapes = "first*; weight*",
    .narrows = scan_narrows,
    .store = scan_store,
    .infer = scan_infer,
    .release = scan_release,
    DS_PREPARED(scan),
    .packed_bytes = scan_packed_bytes,
    .forward = ds_scan_forward,
    .backward = ds_scan_backward,
    .reads = DS_READS_ALL_X};
