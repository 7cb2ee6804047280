/*
 * An instance of every operator of the registry, as text: for tests that must leave none out.
 *
 * They are the examples of csrc/ops/operators.def, which says how they are written, and some more.
 */
#ifndef EVERY_OP_H
#define EVERY_OP_H

#include <math.h>

#include "codec/json.h"
#include "graph_cases.h"

static const char *const every_op[] = {
#define OPERATOR(name, example) "{'op':'" #name "'" example "}",
#include "ops/operators.def"
    /* and others of some */
    "{'op':'conv1d','attrs':{'groups':2,'right':2,'mode':'circular'},'weights':[[6,2,3],[6]]}",
    "{'op':'layer_norm','attrs':{'eps':0}}",
    "{'op':'lstm','attrs':{'bias':0,'bidirectional':1},'weights':[[8,4],[8,2],[8,4],[8,2]]}",
    "{'op':'sub','attrs':{'order':[1,0]},'weights':[[4]]}",
    "{'op':'gelu','attrs':{'approximate':'tanh'}}",
    "{'op':'clamp','attrs':{'min':-1.5}}",
    "{'op':'clamp','attrs':{'max':'nan'}}",
    "{'op':'softplus','attrs':{'beta':0.1}}",
    "{'op':'elu','attrs':{'alpha':1e-300}}",
};

enum { N_EVERY_OP = sizeof every_op / sizeof every_op[0], EVERY_OP_WEIGHTS = 8 };

static inline ds_dtype dtype_named(const char *name)
{
    for (int d = DS_F32; d <= DS_I16; d++) {
        if (strcmp(ds_dtype_name((ds_dtype)d), name) == 0) {
            return (ds_dtype)d;
        }
    }
    CHECK(!"a type of that name");
    return DS_F32;
}

static inline void shape_in(ds_signature *s, ds_json_value list)
{
    ds_json_cursor at;
    ds_json_value value;
    CHECK(ds_json_enter(&at, list, DS_JSON_ARRAY) == DS_OK);
    while (ds_json_next(&at, &value)) {
        CHECK(ds_json_integer(&s->shape[s->rank++], value, 1, 1000) == DS_OK);
    }
}

static inline void attr_in(ds_attr *attr, const ds_op_def *def, ds_json_value key,
                           ds_json_value value)
{
    ds_json_cursor at;
    ds_json_value item;
    *attr = (ds_attr){.kind = DS_ATTR_INT};
    CHECK(ds_json_string(&attr->name, NULL, key) == DS_OK);
    for (const ds_attr_def *d = def->attrs; d != NULL && d->name != NULL; d++) {
        attr->kind = strcmp(d->name, attr->name) == 0 ? d->kind : attr->kind;
    }
    switch (attr->kind) {
    case DS_ATTR_INT:
        CHECK(ds_json_integer(&attr->value.i, value, -1000, 1000) == DS_OK);
        break;
    case DS_ATTR_CHOICE:
        CHECK(ds_json_string(&attr->text, NULL, value) == DS_OK);
        break;
    case DS_ATTR_REAL:
        if (ds_json_double(&attr->value.x, value) != DS_OK) {
            attr->value.x = NAN;
        }
        break;
    case DS_ATTR_INTS:
        CHECK(ds_json_enter(&at, value, DS_JSON_ARRAY) == DS_OK);
        while (ds_json_next(&at, &item)) {
            CHECK(ds_json_integer(&attr->value.ints[attr->value.n_ints++], item, -1000, 1000) ==
                  DS_OK);
        }
        break;
    }
}

/* Writes a weight's name, "F32_8x4_w0"; returns it. */
static inline const char *name_by_shape(char *name, const ds_signature *s, size_t i)
{
    int n = sprintf(name, "F32");
    for (int d = 0; d < s->rank; d++) {
        n += sprintf(name + n, "%c%d", d == 0 ? '_' : 'x', (int)s->shape[d]);
    }
    (void)sprintf(name + n, "_w%d", (int)i);
    return name;
}

/* A graph of that one operator, all its outputs the graph's. */
static inline graph_case case_of_op(const char *text, const char **op_name)
{
    const char *names[EVERY_OP_WEIGHTS] = {NULL};
    char line[256], name_texts[EVERY_OP_WEIGHTS][64];
    graph_case c = new_case();
    ds_json *json = NULL;
    ds_json_value root, list, value, part, key;
    ds_json_cursor at, inner;
    CHECK(c.status == DS_OK && strlen(text) < sizeof line);
    for (size_t i = 0; i <= strlen(text); i++) {
        line[i] = text[i];
        if (text[i] == '\'') {
            line[i] = '"';
        }
    }
    CHECK(ds_json_parse(&json, NULL, line, strlen(line), 0) == DS_OK);
    root = ds_json_root(json);
    const char *name;
    CHECK(ds_json_member(&value, root, "op") == DS_OK &&
          ds_json_string(&name, NULL, value) == DS_OK);
    const ds_op_def *def = ds_op_find(name);
    CHECK(def != NULL);
    *op_name = def->name;
    int inputs[DS_MAX_INPUTS], outputs[DS_MAX_OUTPUTS];
    size_t n_inputs = 0, n_attrs = 0, n_weights = 0;
    if (ds_json_find(&list, root, "in")) {
        CHECK(ds_json_enter(&at, list, DS_JSON_ARRAY) == DS_OK);
        while (ds_json_next(&at, &value)) {
            ds_signature s = {.rate = {100, 1}};
            CHECK(ds_json_enter(&inner, value, DS_JSON_ARRAY) == DS_OK &&
                  ds_json_next(&inner, &part));
            CHECK(ds_json_string(&name, NULL, part) == DS_OK && ds_json_next(&inner, &part));
            s.dtype = dtype_named(name);
            shape_in(&s, part);
            CHECK(ds_graph_input(c.graph, &inputs[n_inputs++], &s) == DS_OK);
        }
    } else {
        inputs[n_inputs++] = add_input(&c, 4, 100, 1);
    }
    ds_attr attrs[DS_MAX_ATTRS];
    if (ds_json_find(&list, root, "attrs")) {
        CHECK(ds_json_enter(&at, list, DS_JSON_OBJECT) == DS_OK);
        while (ds_json_next_member(&at, &key, &value)) {
            attr_in(&attrs[n_attrs++], def, key, value);
        }
    }
    ds_signature weights[EVERY_OP_WEIGHTS] = {{0}};
    void *data[EVERY_OP_WEIGHTS] = {NULL};
    if (ds_json_find(&list, root, "weights")) {
        CHECK(ds_json_enter(&at, list, DS_JSON_ARRAY) == DS_OK);
        for (; ds_json_next(&at, &value); n_weights++) {
            if (ds_json_kind_of(value) == DS_JSON_ARRAY) {
                weights[n_weights].dtype = DS_F32;
                shape_in(&weights[n_weights], value);
                const size_t n = (size_t)ds_signature_elements(&weights[n_weights]);
                data[n_weights] = fresh_memory(n * sizeof(float));
                fill_random(data[n_weights], n);
                names[n_weights] =
                    name_by_shape(name_texts[n_weights], &weights[n_weights], n_weights);
            }
        }
    }
    const ds_node_names called = {"net.layer", names};
    c.status = ds_graph_node(c.graph, outputs, def, attrs, n_attrs, inputs, n_inputs, weights,
                             (const void *const *)data, n_weights, &called);
    if (c.status != DS_OK) {
        fprintf(stderr, "%s: %s\n", text, ds_last_error());
    }
    CHECK(c.status == DS_OK);
    for (int o = 0; o < def->n_outputs; o++) {
        add_output(&c, outputs[o]);
    }
    for (size_t i = 0; i < n_weights; i++) {
        free(data[i]);
    }
    ds_json_free(json);
    return c;
}

#endif
