/*
 * Random instances of the operators that only arrange frames and elements, each beside its meaning.
 *
 * The meaning of an instance is two plain functions: how many frames it gives for inputs of given
 * lengths, and which input element each of its elements is. They are written from the operator's
 * description in Python terms and know nothing of known, need or chunks.
 */
#ifndef OP_CASES_H
#define OP_CASES_H

#include "op_stream.h"
#include "ops/registry.h"

enum { FILL = -1, WEIGHT = -2 };

/* Where an output element comes from; input may be FILL or WEIGHT. */
typedef struct source {
    int input;
    int64_t frame, element;
} source;

typedef struct op_case op_case;
struct op_case {
    const ds_op_def *def;
    ds_attr attrs[5];
    size_t n_attrs;
    ds_signature in[STREAM_INPUTS], weight;
    size_t n_inputs, n_weights;
    int64_t p[6]; /* parameters of the meaning */
    int64_t (*length)(const op_case *c, const int64_t *n_in);
    source (*from)(const op_case *c, int64_t m, int64_t e, const int64_t *n_in);
    ds_op *op;
};

static int64_t floor_by(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Frames of range(0, n, step). */
static int64_t range_length(int64_t n, int64_t step)
{
    return n <= 0 ? 0 : (n + step - 1) / step;
}

static void add_int(op_case *c, const char *name, int64_t i)
{
    c->attrs[c->n_attrs++] = (ds_attr){.name = name, .kind = DS_ATTR_INT, .value.i = i};
}

static void add_text(op_case *c, const char *name, const char *text)
{
    c->attrs[c->n_attrs++] = (ds_attr){.name = name, .kind = DS_ATTR_CHOICE, .text = text};
}

static void add_ints(op_case *c, const char *name, const int64_t *ints, int n)
{
    ds_attr *attr = &c->attrs[c->n_attrs++];
    *attr = (ds_attr){.name = name, .kind = DS_ATTR_INTS, .value.n_ints = n};
    for (int i = 0; i < n; i++) {
        attr->value.ints[i] = ints[i];
    }
}

/* Index of element e along dimension d. */
static int64_t index_along(const ds_signature *s, int64_t e, int d)
{
    for (int i = s->rank - 1; i > d; i--) {
        e /= s->shape[i];
    }
    return e % s->shape[d];
}

static int64_t element_at(const ds_signature *s, const int64_t *index)
{
    int64_t e = 0;
    for (int d = 0; d < s->rank; d++) {
        e = e * s->shape[d] + index[d];
    }
    return e;
}

static int64_t same_length(const op_case *c, const int64_t *n_in)
{
    (void)c;
    return n_in[0];
}

/* ---------------------------------------------------------------- along the stream */

static int64_t pad_length(const op_case *c, const int64_t *n_in)
{
    const int64_t longest = c->p[0] > c->p[1] ? c->p[0] : c->p[1];
    if (n_in[0] == 0 || (c->p[2] == 2 && longest > 0 && n_in[0] <= longest)) {
        return 0;
    }
    return n_in[0] + c->p[0] + c->p[1];
}

static source pad_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    int64_t q = m - c->p[0];
    const int64_t last = n_in[0] - 1;
    if (q < 0 || q > last) {
        if (c->p[2] == 0) {
            return (source){FILL, 0, 0};
        }
        q = c->p[2] == 1 ? (q < 0 ? 0 : last) : (q < 0 ? -q : 2 * last - q);
    }
    return (source){0, q, e};
}

static void make_pad(op_case *c)
{
    static const char *const modes[] = {"constant", "replicate", "reflect"};
    c->def = &ds_op_pad;
    add_int(c, "left", c->p[0] = random_in(0, 4));
    add_int(c, "right", c->p[1] = random_in(0, 4));
    c->p[2] = random_in(0, 2);
    add_text(c, "mode", modes[c->p[2]]);
    c->p[5] = random_in(0, 1);
    c->attrs[c->n_attrs++] =
        (ds_attr){.name = "value", .kind = DS_ATTR_REAL, .value.x = (double)c->p[5]};
    c->length = pad_length;
    c->from = pad_from;
}

static int64_t slice_length(const op_case *c, const int64_t *n_in)
{
    return range_length(n_in[0] - c->p[0] - c->p[1], c->p[2]);
}

static source step_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    return (source){0, c->p[0] + m * c->p[2], e};
}

static void make_slice(op_case *c)
{
    c->def = &ds_op_slice;
    add_int(c, "start", c->p[0] = random_in(0, 4));
    add_int(c, "crop", c->p[1] = random_in(0, 4));
    add_int(c, "step", c->p[2] = random_in(1, 4));
    c->length = slice_length;
    c->from = step_from;
}

/* f(n) = (n * mul + p[3]) // div, mul = p[4], div = p[5] */
static int64_t function_of(const op_case *c, int64_t n)
{
    const int64_t value = floor_by(n * c->p[4] + c->p[3], c->p[5]);
    return value < 0 ? 0 : value;
}

static void add_function(op_case *c)
{
    c->p[3] = random_in(-3, 3);
    c->p[4] = random_in(1, 3);
    c->p[5] = random_in(1, 3);
    const int64_t codes[] = {1, c->p[4], 0, c->p[3], 2, c->p[5]};
    add_ints(c, "length", codes, 6);
}

static int64_t cut_length(const op_case *c, const int64_t *n_in)
{
    if (n_in[0] == 0 || n_in[1] == 0) {
        return 0;
    }
    const int64_t end = function_of(c, n_in[1]);
    return range_length((n_in[0] < end ? n_in[0] : end) - c->p[0], c->p[2]);
}

static void make_cut(op_case *c)
{
    c->def = &ds_op_cut;
    add_int(c, "start", c->p[0] = random_in(0, 3));
    add_int(c, "step", c->p[2] = random_in(1, 3));
    add_function(c);
    c->in[1] = (ds_signature){.dtype = DS_BOOL, .rank = 1, .shape = {2}, .rate = {1, 1}};
    CHECK(ds_rate_scale(&c->in[0].rate, c->p[4], c->p[5]));
    c->n_inputs = 2;
    c->length = cut_length;
    c->from = step_from;
}

static source delay_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    return m < c->p[0] ? (source){FILL, 0, 0} : (source){0, m - c->p[0], e};
}

static void make_delay(op_case *c)
{
    c->def = &ds_op_delay;
    add_int(c, "frames", c->p[0] = random_in(0, 4));
    c->length = same_length;
    c->from = delay_from;
}

static int64_t frame_length(const op_case *c, const int64_t *n_in)
{
    const int64_t span = c->p[2] * (c->p[0] - 1) + 1;
    return n_in[0] < span ? 0 : (n_in[0] - span) / c->p[1] + 1;
}

static source frame_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    const int64_t n = ds_signature_elements(&c->in[0]);
    return (source){0, m * c->p[1] + e / n * c->p[2], e % n};
}

static void make_frame(op_case *c)
{
    const bool exact = random_in(0, 3) == 0;
    c->def = &ds_op_frame;
    add_int(c, "size", c->p[0] = random_in(1, 4));
    add_int(c, "step", c->p[1] = exact ? c->p[0] : random_in(1, 5));
    add_int(c, "dilation", c->p[2] = exact ? 1 : random_in(1, 3));
    add_int(c, "exact", c->p[3] = exact ? 1 : 0);
    c->length = frame_length;
    c->from = frame_from;
}

static int64_t unstack_length(const op_case *c, const int64_t *n_in)
{
    return n_in[0] * c->in[0].shape[0];
}

static source unstack_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    const int64_t k = c->in[0].shape[0], n = ds_signature_elements(&c->in[0]) / k;
    return (source){0, m / k, m % k * n + e};
}

static void make_unstack(op_case *c)
{
    c->def = &ds_op_unstack;
    c->length = unstack_length;
    c->from = unstack_from;
}

static int64_t table_length(const op_case *c, const int64_t *n_in)
{
    return n_in[0] == 0 ? 0 : function_of(c, n_in[0]);
}

static source table_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)c;
    (void)n_in;
    return (source){WEIGHT, m, e};
}

static void make_table(op_case *c)
{
    c->def = &ds_op_table;
    add_function(c);
    c->weight = c->in[0];
    c->weight.rank = c->in[0].rank + 1;
    c->weight.shape[0] = 200;
    for (int d = 0; d < c->in[0].rank; d++) {
        c->weight.shape[d + 1] = c->in[0].shape[d];
    }
    c->n_weights = 1;
    c->in[0].dtype = DS_BOOL;
    c->length = table_length;
    c->from = table_from;
}

static int64_t repeat_length(const op_case *c, const int64_t *n_in)
{
    return n_in[0] * c->p[0];
}

static source repeat_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    return (source){0, m / c->p[0], e};
}

static void make_repeat(op_case *c)
{
    c->def = &ds_op_repeat_frames;
    add_int(c, "times", c->p[0] = random_in(1, 5));
    c->length = repeat_length;
    c->from = repeat_from;
}

/* ---------------------------------------------------------------- within a frame */

static source permute_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    int64_t index[DS_MAX_RANK] = {0};
    for (int d = 0; d < c->op->out[0].rank; d++) {
        index[c->p[d]] = index_along(&c->op->out[0], e, d);
    }
    return (source){0, m, element_at(&c->in[0], index)};
}

static void make_permute(op_case *c)
{
    c->def = &ds_op_permute;
    const int rank = c->in[0].rank;
    for (int d = 0; d < rank; d++) {
        c->p[d] = d;
    }
    for (int d = rank - 1; d > 0; d--) {
        const int64_t other = random_in(0, d), was = c->p[d];
        c->p[d] = c->p[other];
        c->p[other] = was;
    }
    add_ints(c, "order", c->p, rank);
    c->length = same_length;
    c->from = permute_from;
}

static source same_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)c;
    (void)n_in;
    return (source){0, m, e};
}

static void make_reshape(op_case *c)
{
    c->def = &ds_op_reshape;
    const int64_t n = ds_signature_elements(&c->in[0]), first = random_in(1, n);
    const int64_t shape[] = {n % first == 0 ? first : 1, n % first == 0 ? n / first : n};
    add_ints(c, "shape", shape, 2);
    c->length = same_length;
    c->from = same_from;
}

static source narrow_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    int64_t index[DS_MAX_RANK] = {0};
    for (int d = 0; d < c->in[0].rank; d++) {
        index[d] = index_along(&c->op->out[0], e, d);
        index[d] = d == c->p[0] ? c->p[1] + index[d] * c->p[3] : index[d];
    }
    return (source){0, m, element_at(&c->in[0], index)};
}

static void make_narrow(op_case *c)
{
    c->def = &ds_op_narrow;
    add_int(c, "axis", c->p[0] = random_in(0, c->in[0].rank - 1));
    const int64_t size = c->in[0].shape[c->p[0]];
    add_int(c, "start", c->p[1] = random_in(0, size - 1));
    add_int(c, "length", c->p[2] = random_in(1, size - c->p[1]));
    add_int(c, "step", c->p[3] = random_in(1, 3));
    c->length = same_length;
    c->from = narrow_from;
}

static source expand_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    int64_t index[DS_MAX_RANK] = {0};
    const int more = c->op->out[0].rank - c->in[0].rank;
    for (int d = 0; d < c->in[0].rank; d++) {
        index[d] = c->in[0].shape[d] == 1 ? 0 : index_along(&c->op->out[0], e, d + more);
    }
    return (source){0, m, element_at(&c->in[0], index)};
}

static void make_expand(op_case *c)
{
    c->def = &ds_op_expand;
    int64_t shape[DS_MAX_RANK];
    const int more = (int)random_in(0, 2);
    for (int d = 0; d < more; d++) {
        shape[d] = random_in(1, 3);
    }
    for (int d = 0; d < c->in[0].rank; d++) {
        c->in[0].shape[d] = random_in(0, 1) == 0 ? 1 : c->in[0].shape[d];
        shape[d + more] = c->in[0].shape[d] == 1 ? random_in(1, 3) : c->in[0].shape[d];
    }
    add_ints(c, "shape", shape, more + c->in[0].rank);
    c->length = same_length;
    c->from = expand_from;
}

static source cat_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    int64_t index[DS_MAX_RANK] = {0};
    for (int d = 0; d < c->in[0].rank; d++) {
        index[d] = index_along(&c->op->out[0], e, d);
    }
    int i = 0;
    for (; index[c->p[0]] >= c->in[i].shape[c->p[0]]; i++) {
        index[c->p[0]] -= c->in[i].shape[c->p[0]];
    }
    return (source){i, m, element_at(&c->in[i], index)};
}

static void make_cat(op_case *c)
{
    c->def = &ds_op_cat;
    add_int(c, "axis", c->p[0] = random_in(0, c->in[0].rank - 1));
    c->n_inputs = (size_t)random_in(2, 3);
    for (size_t i = 1; i < c->n_inputs; i++) {
        c->in[i] = c->in[0];
        c->in[i].shape[c->p[0]] = random_in(1, 4);
    }
    c->length = same_length;
    c->from = cat_from;
}

static source nearest_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    int64_t index[DS_MAX_RANK] = {0};
    const int64_t n = c->in[0].shape[c->p[0]];
    for (int d = 0; d < c->in[0].rank; d++) {
        index[d] = index_along(&c->op->out[0], e, d);
    }
    int64_t *i = &index[c->p[0]];
    *i = c->p[1] == n       ? *i
         : c->p[1] == 2 * n ? *i / 2
                            : (int64_t)((float)*i * ((float)n / (float)c->p[1]));
    *i = *i < n ? *i : n - 1;
    return (source){0, m, element_at(&c->in[0], index)};
}

static void make_nearest(op_case *c)
{
    c->def = &ds_op_nearest;
    add_int(c, "axis", c->p[0] = random_in(0, c->in[0].rank - 1));
    add_int(c, "size", c->p[1] = random_in(1, 9));
    c->length = same_length;
    c->from = nearest_from;
}

static source pad_features_from(const op_case *c, int64_t m, int64_t e, const int64_t *n_in)
{
    (void)n_in;
    int64_t index[DS_MAX_RANK] = {0};
    const int64_t n = c->in[0].shape[c->p[0]];
    for (int d = 0; d < c->in[0].rank; d++) {
        index[d] = index_along(&c->op->out[0], e, d);
    }
    int64_t *i = &index[c->p[0]];
    *i -= c->p[1];
    if ((*i < 0 || *i >= n) && c->p[3] == 0) {
        return (source){FILL, 0, 0};
    }
    while (*i < 0 || *i >= n) {
        *i = c->p[3] == 1   ? (*i < 0 ? 0 : n - 1)
             : c->p[3] == 2 ? (*i < 0 ? -*i : 2 * (n - 1) - *i)
                            : *i + (*i < 0 ? n : -n);
    }
    return (source){0, m, element_at(&c->in[0], index)};
}

static void make_pad_features(op_case *c)
{
    static const char *const modes[] = {"constant", "replicate", "reflect", "circular"};
    c->def = &ds_op_pad_features;
    add_int(c, "axis", c->p[0] = random_in(0, c->in[0].rank - 1));
    c->p[3] = random_in(0, 3);
    const int64_t n = c->in[0].shape[c->p[0]], most = c->p[3] == 2 ? n - 1 : c->p[3] == 3 ? n : 5;
    add_int(c, "left", c->p[1] = random_in(0, most));
    add_int(c, "right", c->p[2] = random_in(0, most));
    add_text(c, "mode", modes[c->p[3]]);
    c->length = same_length;
    c->from = pad_features_from;
}

/* ---------------------------------------------------------------- all */

static void (*const case_makers[])(op_case *) = {
    make_pad,     make_slice, make_cut,     make_delay,   make_frame,
    make_unstack, make_table, make_permute, make_reshape, make_narrow,
    make_expand,  make_cat,   make_repeat,  make_nearest, make_pad_features};
enum { N_CASE_MAKERS = sizeof case_makers / sizeof case_makers[0] };

static void make_case(op_case *c, int which, ds_dtype dtype)
{
    *c = (op_case){.n_inputs = 1};
    c->in[0] = (ds_signature){.dtype = dtype, .rank = (int)random_in(1, 3), .rate = {1, 1}};
    for (int d = 0; d < c->in[0].rank; d++) {
        c->in[0].shape[d] = random_in(1, c->in[0].rank < 3 && random_in(0, 2) == 0 ? 9 : 4);
    }
    case_makers[which](c);
    const ds_status status = ds_op_create(&c->op, NULL, c->def, c->attrs, c->n_attrs, c->in,
                                          c->n_inputs, &c->weight, c->n_weights);
    if (status != DS_OK) {
        fprintf(stderr, "%s\n", ds_last_error());
    }
    CHECK(status == DS_OK);
}

#endif
