/*
 * An instance of every operator of the registry, as text: for tests that must leave none out.
 *
 * They are the examples of csrc/ops/operators.def, which says how they are written, and some of op_cases.def.
 */
#pragma once

#include <math.h>

#include "codec/json.h"
#include "graph_cases.h"

#define OP_TEXT(name, example) "{'op':'" #name "'" example "}",

static const char *const every_op[] = {
#define OPERATOR OP_TEXT
#include "ops/operators.def"
#define EXAMPLE OP_TEXT
#include "op_cases.def"
};

enum { N_EVERY_OP = sizeof every_op / sizeof every_op[0], EVERY_OP_WEIGHTS = 32 };

/* An operator as a text says it. */
typedef struct op_text {
    const ds_op_def *def;
    ds_attr attrs[DS_MAX_ATTRS];
    ds_signature in[DS_MAX_INPUTS], weights[EVERY_OP_WEIGHTS]; /* weights: dtype 0 where absent */
    size_t n_attrs, n_in, n_weights;
    ds_json *json; /* holds names and texts */
} op_text;

static inline ds_dtype dtype_named(const char *name)
{
    for (int d = DS_F32; d <= DS_I16; d++)
        if (strcmp(ds_dtype_name((ds_dtype)d), name) == 0)
            return (ds_dtype)d;
    CHECK(!"a type of that name");
    return DS_F32;
}

static inline int read_ints(int64_t *ints, int most, ds_json_value list)
{
    ds_json_cursor at;
    ds_json_value value;
    int n = 0;
    CHECK(ds_json_enter(&at, list, DS_JSON_ARRAY) == DS_OK);
    while (ds_json_next(&at, &value))
        CHECK(n < most && ds_json_integer(&ints[n++], value, INT64_MIN, INT64_MAX) == DS_OK);
    return n;
}

/* [dtype, shape of a frame], perhaps with a rate [numerator, denominator]. */
static inline void read_input(ds_signature *s, ds_json_value value)
{
    ds_json_cursor at;
    ds_json_value part;
    const char *name;
    *s = (ds_signature){.rate = {100, 1}};
    CHECK(ds_json_enter(&at, value, DS_JSON_ARRAY) == DS_OK && ds_json_next(&at, &part));
    CHECK(ds_json_string(&name, NULL, part) == DS_OK && ds_json_next(&at, &part));
    s->dtype = dtype_named(name);
    s->rank = read_ints(s->shape, DS_MAX_RANK, part);
    if (ds_json_next(&at, &part)) {
        int64_t rate[2];
        CHECK(read_ints(rate, 2, part) == 2);
        s->rate = (ds_rate){rate[0], rate[1]};
    }
}

/* A shape, of float32, or [dtype, shape]. */
static inline void read_weight(ds_signature *s, ds_json_value value)
{
    ds_json_cursor at;
    ds_json_value first;
    CHECK(ds_json_enter(&at, value, DS_JSON_ARRAY) == DS_OK);
    if (ds_json_next(&at, &first) && ds_json_kind_of(first) == DS_JSON_STRING) {
        read_input(s, value);
    } else {
        s->dtype = DS_F32;
        s->rank = read_ints(s->shape, DS_MAX_RANK, value);
    }
}

static inline void read_attr(ds_attr *attr, const ds_op_def *def, ds_json_value key,
                             ds_json_value value)
{
    const char *text;
    *attr = (ds_attr){.kind = DS_ATTR_INT};
    CHECK(ds_json_string(&attr->name, NULL, key) == DS_OK);
    for (const ds_attr_def *d = def->attrs; d != NULL && d->name != NULL; d++)
        attr->kind = strcmp(d->name, attr->name) == 0 ? d->kind : attr->kind;
    switch (attr->kind) {
    case DS_ATTR_INT:
        CHECK(ds_json_integer(&attr->value.i, value, INT64_MIN, INT64_MAX) == DS_OK);
        break;
    case DS_ATTR_CHOICE:
    case DS_ATTR_TEXT:
        CHECK(ds_json_string(&attr->text, NULL, value) == DS_OK);
        break;
    case DS_ATTR_REAL: /* nan and -inf are texts */
        if (ds_json_double(&attr->value.x, value) != DS_OK) {
            CHECK(ds_json_string(&text, NULL, value) == DS_OK);
            attr->value.x = strtod(text, NULL);
        }
        break;
    case DS_ATTR_INTS:
        attr->value.n_ints = read_ints(attr->value.ints, DS_MAX_INTS, value);
        break;
    }
}

/* To be freed by free_op_text. */
static inline op_text read_op(const char *text)
{
    op_text t = {.json = NULL};
    char line[1024];
    const char *name;
    ds_json_value root, list, value, key;
    ds_json_cursor at;
    CHECK(strlen(text) < sizeof line);
    for (size_t i = 0; i <= strlen(text); i++) {
        line[i] = text[i];
        if (text[i] == '\'')
            line[i] = '"';
    }
    CHECK(ds_json_parse(&t.json, NULL, line, strlen(line), 0) == DS_OK);
    root = ds_json_root(t.json);
    CHECK(ds_json_member(&value, root, "op") == DS_OK &&
          ds_json_string(&name, NULL, value) == DS_OK);
    t.def = ds_op_find(name);
    CHECK(t.def != NULL);
    if (ds_json_find(&list, root, "in")) {
        CHECK(ds_json_enter(&at, list, DS_JSON_ARRAY) == DS_OK);
        while (ds_json_next(&at, &value)) {
            CHECK(t.n_in < DS_MAX_INPUTS);
            read_input(&t.in[t.n_in++], value);
        }
    } else {
        t.in[t.n_in++] = frames_of(4, 100, 1);
    }
    if (ds_json_find(&list, root, "attrs")) {
        CHECK(ds_json_enter(&at, list, DS_JSON_OBJECT) == DS_OK);
        while (ds_json_next_member(&at, &key, &value)) {
            CHECK(t.n_attrs < DS_MAX_ATTRS);
            read_attr(&t.attrs[t.n_attrs++], t.def, key, value);
        }
    }
    if (ds_json_find(&list, root, "weights")) {
        CHECK(ds_json_enter(&at, list, DS_JSON_ARRAY) == DS_OK);
        for (; ds_json_next(&at, &value); t.n_weights++) {
            CHECK(t.n_weights < EVERY_OP_WEIGHTS);
            if (ds_json_kind_of(value) == DS_JSON_ARRAY)
                read_weight(&t.weights[t.n_weights], value);
        }
    }
    return t;
}

static inline void free_op_text(op_text *t)
{
    ds_json_free(t->json);
}

static inline ds_status create_op(ds_op **op, const op_text *t)
{
    return ds_op_create(op, NULL, t->def, t->attrs, t->n_attrs, t->in, t->n_in, t->weights,
                        t->n_weights);
}

/* Writes a weight's name, "F32_8x4_w0" or "I64_3_w0"; returns it. */
static inline const char *name_by_shape(char *name, const ds_signature *s, size_t i)
{
    int n = sprintf(name, s->dtype == DS_I64 ? "I64" : "F32");
    for (int d = 0; d < s->rank; d++)
        n += sprintf(name + n, "%c%d", d == 0 ? '_' : 'x', (int)s->shape[d]);
    (void)sprintf(name + n, "_w%d", (int)i);
    return name;
}

/* A graph of that one operator, all its outputs the graph's; it may be refused. */
static inline graph_case graph_of_op(const op_text *t)
{
    const char *names[EVERY_OP_WEIGHTS] = {NULL};
    char name_texts[EVERY_OP_WEIGHTS][64];
    int inputs[DS_MAX_INPUTS], outputs[DS_MAX_OUTPUTS];
    void *data[EVERY_OP_WEIGHTS] = {NULL};
    graph_case c = new_case();
    CHECK(c.status == DS_OK);
    for (size_t i = 0; i < t->n_in; i++)
        CHECK(ds_graph_input(c.graph, &inputs[i], &t->in[i]) == DS_OK);
    for (size_t i = 0; i < t->n_weights; i++) {
        if (t->weights[i].dtype != 0) {
            const size_t n = ds_signature_bytes(&t->weights[i]) / sizeof(float);
            data[i] = fresh_memory(n * sizeof(float));
            fill_random(data[i], n);
            names[i] = name_by_shape(name_texts[i], &t->weights[i], i);
        }
    }
    const ds_node_names called = {.path = "net.layer", .weights = names};
    c.status = ds_graph_node(c.graph, outputs, t->def, t->attrs, t->n_attrs, inputs, t->n_in,
                             t->weights, (const void *const *)data, t->n_weights, &called);
    for (int o = 0; o < t->def->n_outputs && c.status == DS_OK; o++)
        add_output(&c, outputs[o]);
    for (size_t i = 0; i < t->n_weights; i++)
        free(data[i]);
    return c;
}

static inline graph_case case_of_op(const char *text, const char **op_name)
{
    op_text t = read_op(text);
    graph_case c = graph_of_op(&t);
    *op_name = t.def->name;
    if (c.status != DS_OK)
        fprintf(stderr, "%s: %s\n", text, ds_last_error());
    CHECK(c.status == DS_OK);
    free_op_text(&t);
    return c;
}
