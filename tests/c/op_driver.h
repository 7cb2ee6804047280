/* A driver for the tests of single operators: offline against an oracle in double, then several
 * streams in random chunks, in batches of random others, to the bit as offline and alone.
 *
 *     problem p = {.def = &ds_op_linear, .in = {...}, .oracle = linear_oracle};
 *     add_weight(&p, true, 2, shape);              // random values
 *     try_problem(&p, 20);                         // streams of up to 20 frames; takes the problem
 *
 * It keeps per stream what counts and need say and nothing else: windows, targets, scratch, prepared
 * weights and carried blocks are exact allocations, so that the sanitizers see any other access. */
#ifndef OP_DRIVER_H
#define OP_DRIVER_H

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "check.h"
#include "ops/op.h"
#include "ops/registry.h"

enum { MAX_ROWS = 5, MAX_CHUNK = 9 };

/* ---------------------------------------------------------------- small tools */

static uint64_t random_state = 1;

static inline int64_t random_below(int64_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(random_state >> 33) % n;
}

static inline int64_t random_in(int64_t least, int64_t most)
{
    return least + random_below(most - least + 1);
}

/* In [-1, 1), exact in float. */
static inline double random_real(void)
{
    return (double)random_below(1 << 20) / (1 << 19) - 1.0;
}

/* n_bytes of 0xff (a NaN in both types); NULL for none. */
static inline void *room(size_t n_bytes)
{
    if (n_bytes == 0) {
        return NULL;
    }
    void *memory = malloc(n_bytes);
    CHECK(memory != NULL);
    memset(memory, 0xff, n_bytes);
    return memory;
}

/* The same, aligned to 64 bytes and exact at its end. */
static inline void *aligned_room(size_t n_bytes)
{
    void *memory = NULL;
    CHECK(ds_allocate(NULL, &memory, n_bytes) == DS_OK);
    if (n_bytes > 0) {
        memset(memory, 0xff, n_bytes);
    }
    return memory;
}

static inline double *random_reals(int64_t n)
{
    double *reals = room((size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        reals[i] = random_real();
    }
    return reals;
}

/* ---------------------------------------------------------------- a problem */

/* What an oracle computes: frames of one output. */
typedef struct result {
    double *y;
    int64_t n, width;
} result;

typedef struct problem {
    const ds_op_def *def;
    ds_attr attrs[DS_MAX_ATTRS];
    size_t n_attrs;
    ds_signature in;
    ds_signature weight[DS_MAX_WEIGHTS];
    double *values[DS_MAX_WEIGHTS]; /* NULL: absent */
    size_t n_weights;
    void (*oracle)(const struct problem *p, const double *x, int64_t n, result *out);
} problem;

static inline void set_int(problem *p, const char *name, int64_t i)
{
    p->attrs[p->n_attrs++] = (ds_attr){.name = name, .kind = DS_ATTR_INT, .value = {.i = i}};
}

static inline int64_t get_int(const problem *p, const char *name)
{
    for (size_t i = 0; i < p->n_attrs; i++) {
        if (strcmp(p->attrs[i].name, name) == 0) {
            return p->attrs[i].value.i;
        }
    }
    CHECK(!"no such attribute");
    return 0;
}

static inline void add_weight(problem *p, bool present, int rank, const int64_t *shape)
{
    ds_signature *w = &p->weight[p->n_weights];
    *w = (ds_signature){.rank = rank, .rate = {0, 1}};
    for (int i = 0; i < rank; i++) {
        w->shape[i] = shape[i];
    }
    p->values[p->n_weights++] = present ? random_reals(ds_signature_elements(w)) : NULL;
}

static inline void free_problem(problem *p)
{
    for (size_t i = 0; i < p->n_weights; i++) {
        free(p->values[i]);
    }
}

static inline result make_result(int64_t n, int64_t width)
{
    result r = {.n = n > 0 ? n : 0, .width = width};
    r.y = room((size_t)(r.n * width) * sizeof(double));
    for (int64_t i = 0; i < r.n * width; i++) {
        r.y[i] = 0;
    }
    return r;
}

/* ---------------------------------------------------------------- a model: operator, type, kernels */

typedef struct model {
    const problem *p;
    ds_op *op;
    const ds_real_kernels *k;
    void *weights[DS_MAX_WEIGHTS];
    void *prepared;
    size_t element, in_bytes, prepared_bytes;
} model;

static inline void *convert(const double *from, int64_t n, size_t element)
{
    char *to = room((size_t)n * element);
    for (int64_t i = 0; i < n; i++) {
        const float single = (float)from[i];
        memcpy(to + (size_t)i * element,
               element == sizeof single ? (const void *)&single : (const void *)&from[i], element);
    }
    return to;
}

static inline double value_at(const void *values, int64_t i, size_t element)
{
    if (element == sizeof(float)) {
        return (double)((const float *)values)[i];
    }
    return ((const double *)values)[i];
}

static inline ds_status create(const problem *p, ds_dtype dtype, ds_op **op)
{
    ds_signature in = p->in, weights[DS_MAX_WEIGHTS];
    in.dtype = dtype;
    for (size_t i = 0; i < p->n_weights; i++) {
        weights[i] = p->weight[i];
        weights[i].dtype = p->values[i] != NULL ? dtype : (ds_dtype)0;
    }
    return ds_op_create(op, NULL, p->def, p->attrs, p->n_attrs, &in, 1, weights, p->n_weights);
}

static inline model make_model(const problem *p, ds_dtype dtype, const ds_kernels *kernels)
{
    model m = {.p = p, .k = &kernels->real[dtype == DS_F64], .element = ds_dtype_bytes(dtype)};
    if (create(p, dtype, &m.op) != DS_OK) {
        fprintf(stderr, "%s\n", ds_last_error());
        CHECK(!"ds_op_create failed");
    }
    m.in_bytes = ds_signature_bytes(&m.op->in[0]);
    for (size_t i = 0; i < p->n_weights; i++) {
        if (p->values[i] != NULL) {
            m.weights[i] = convert(p->values[i], ds_signature_elements(&p->weight[i]), m.element);
        }
    }
    m.prepared_bytes = ds_op_prepared_bytes(m.op, m.k);
    m.prepared = aligned_room(m.prepared_bytes);
    if (m.prepared_bytes > 0) {
        m.op->def->prepare(m.op, m.prepared, (const void *const *)m.weights, m.k);
    }
    return m;
}

static inline void free_model(model *m)
{
    for (size_t i = 0; i < m->p->n_weights; i++) {
        free(m->weights[i]);
    }
    ds_release(NULL, m->prepared, m->prepared_bytes);
    ds_op_destroy(m->op);
}

/* ---------------------------------------------------------------- the driver */

typedef struct stream {
    const char *x;       /* all frames, the later ones being unseen so far */
    int64_t length, lag; /* lag: total runs ahead of known by this much */
    ds_pair in, out[DS_MAX_OUTPUTS];
    void *carried;
    char *y[DS_MAX_OUTPUTS];
    int64_t n[DS_MAX_OUTPUTS]; /* frames of y, all told */
    bool ended;
} stream;

static inline stream open_stream(const model *m, const char *x, int64_t length, int64_t lag)
{
    stream s = {.x = x, .length = length, .lag = lag};
    const ds_pair all = {length, length};
    ds_pair out[DS_MAX_OUTPUTS];
    ds_op_counts(m->op, &all, true, out);
    for (int o = 0; o < m->op->n_outputs; o++) {
        s.n[o] = out[o].total;
        s.y[o] = room((size_t)out[o].total * ds_signature_bytes(&m->op->out[o]));
    }
    s.carried = room(m->op->carried_bytes);
    if (s.carried != NULL) {
        memset(s.carried, 0, m->op->carried_bytes);
    }
    return s;
}

static inline void close_stream(const model *m, stream *s)
{
    for (int o = 0; o < m->op->n_outputs; o++) {
        free(s->y[o]);
    }
    free(s->carried);
}

/* One call: each stream gets so many more frames, and perhaps its end. */
static inline void call(const model *m, stream *const *rows, const int64_t *chunk, const bool *end,
                        size_t n_rows)
{
    const ds_op *op = m->op;
    ds_window in[MAX_ROWS];
    ds_target out[DS_MAX_OUTPUTS * MAX_ROWS];
    ds_counts count[MAX_ROWS];
    ds_pair now[MAX_ROWS][DS_MAX_OUTPUTS];
    void *carried[MAX_ROWS];
    ds_run run = {.n_rows = n_rows,
                  .in = in,
                  .out = out,
                  .count = count,
                  .ended = end,
                  .carried = op->n_carried > 0 ? carried : NULL,
                  .prepared = m->prepared,
                  .weights = (const void *const *)m->weights,
                  .k = m->k};
    bool anything = false;
    for (size_t r = 0; r < n_rows; r++) {
        stream *s = rows[r];
        const int64_t known = s->in.known + chunk[r];
        const int64_t ahead = known + s->lag < s->length ? known + s->lag : s->length;
        count[r].before = s->in;
        count[r].now = (ds_pair){known, end[r] ? known : ahead};
        ds_op_counts(op, &count[r].now, end[r], now[r]);
        int64_t need;
        ds_op_need(op, s->out[0].known, &need);
        need = need < s->in.known ? need : s->in.known;
        need = need > 0 ? need - random_below(2) : 0;
        in[r] = (ds_window){.at = need, .n = known - need};
        void *frames = room((size_t)in[r].n * m->in_bytes);
        if (frames != NULL) {
            memcpy(frames, s->x + (size_t)need * m->in_bytes, (size_t)in[r].n * m->in_bytes);
        }
        in[r].data = frames;
        carried[r] = s->carried;
        run.frames_in += chunk[r];
        for (int o = 0; o < op->n_outputs; o++) {
            ds_target *t = &out[(size_t)o * n_rows + r];
            *t = (ds_target){.m0 = s->out[o].known, .m1 = now[r][o].known};
            CHECK(t->m1 >= t->m0 && t->m1 <= now[r][o].total && t->m1 <= s->n[o]);
            CHECK(!end[r] || t->m1 == s->n[o]);
            t->data = room((size_t)(t->m1 - t->m0) * ds_signature_bytes(&op->out[o]));
            anything |= t->m1 > t->m0 || (op->n_carried > 0 && chunk[r] > 0);
            run.frames_out += o == 0 ? t->m1 - t->m0 : 0;
        }
    }
    if (anything) {
        const size_t n_bytes = ds_op_scratch_bytes(op, n_rows, run.frames_in, run.frames_out);
        run.scratch = aligned_room(n_bytes);
        op->def->forward(op, &run);
        ds_release(NULL, run.scratch, n_bytes);
    }
    for (size_t r = 0; r < n_rows; r++) {
        stream *s = rows[r];
        for (int o = 0; o < op->n_outputs; o++) {
            const ds_target *t = &out[(size_t)o * n_rows + r];
            const size_t frame = ds_signature_bytes(&op->out[o]);
            if (t->data != NULL) {
                memcpy(s->y[o] + (size_t)t->m0 * frame, t->data, (size_t)(t->m1 - t->m0) * frame);
            }
            free(t->data);
            s->out[o] = now[r][o];
        }
        free((void *)(uintptr_t)in[r].data);
        s->in = count[r].now;
        s->ended = end[r];
    }
}

/* Feeds all streams to their ends: random chunks, each call with a random choice of them. */
static inline void feed(const model *m, stream *streams, size_t n_streams)
{
    for (size_t n_ended = 0; n_ended < n_streams;) {
        stream *rows[MAX_ROWS];
        int64_t chunk[MAX_ROWS];
        bool end[MAX_ROWS];
        size_t n_rows = 0;
        for (size_t i = 0; i < n_streams; i++) {
            stream *s = &streams[i];
            if (s->ended || random_below(4) == 0) {
                continue;
            }
            const int64_t left = s->length - s->in.known;
            const int64_t most = random_below(3) == 0 ? 1 : random_below(8) == 0 ? 1000 : MAX_CHUNK;
            const int64_t n = random_in(0, most);
            chunk[n_rows] = n < left ? n : left;
            end[n_rows] = chunk[n_rows] == left && random_below(2) == 0;
            n_ended += end[n_rows];
            rows[n_rows++] = s;
        }
        call(m, rows, chunk, end, n_rows);
    }
}

/* ---------------------------------------------------------------- comparing */

static inline void compare_with_oracle(const model *m, const stream *s, const result *want,
                                       double tolerance)
{
    for (int o = 0; o < m->op->n_outputs; o++) {
        double largest = 1, worst = 0;
        CHECK(want[o].width == ds_signature_elements(&m->op->out[o]));
        CHECK(s->n[o] == want[o].n);
        for (int64_t i = 0; i < want[o].n * want[o].width; i++) {
            const double difference = fabs(value_at(s->y[o], i, m->element) - want[o].y[i]);
            worst = difference <= worst ? worst : difference; /* a NaN stays */
            largest = fabs(want[o].y[i]) > largest ? fabs(want[o].y[i]) : largest;
        }
        CHECK(worst <= tolerance * largest);
    }
}

static inline void compare_bits(const model *m, const stream *a, const stream *b)
{
    for (int o = 0; o < m->op->n_outputs; o++) {
        CHECK(a->n[o] == b->n[o]);
        const size_t n_bytes = (size_t)a->n[o] * ds_signature_bytes(&m->op->out[o]);
        CHECK(n_bytes == 0 || memcmp(a->y[o], b->y[o], n_bytes) == 0);
    }
}

static inline void try_kernels(const problem *p, ds_dtype dtype, const ds_kernels *kernels,
                               double *const *x, const int64_t *lengths)
{
    model m = make_model(p, dtype, kernels);
    const double tolerance = dtype == DS_F64 ? 1e-13 : 1e-5;
    stream alone[MAX_ROWS], streamed[MAX_ROWS];
    void *frames[MAX_ROWS];
    for (size_t i = 0; i < MAX_ROWS; i++) {
        frames[i] = convert(x[i], lengths[i] * ds_signature_elements(&p->in), m.element);
        alone[i] = open_stream(&m, frames[i], lengths[i], 0);
        streamed[i] = open_stream(&m, frames[i], lengths[i], random_below(2) * random_below(5));
        stream *const row = &alone[i];
        const bool end = true;
        call(&m, &row, &lengths[i], &end, 1);
        result want[DS_MAX_OUTPUTS];
        p->oracle(p, x[i], lengths[i], want);
        compare_with_oracle(&m, &alone[i], want, tolerance);
        for (int o = 0; o < m.op->n_outputs; o++) {
            free(want[o].y);
        }
    }
    feed(&m, streamed, MAX_ROWS);
    for (size_t i = 0; i < MAX_ROWS; i++) {
        compare_bits(&m, &alone[i], &streamed[i]);
        close_stream(&m, &alone[i]);
        close_stream(&m, &streamed[i]);
        free(frames[i]);
    }
    free_model(&m);
}

/* All that is promised, for random streams of up to `longest` frames. Takes the problem. */
static inline void try_problem(problem *p, int64_t longest)
{
    const ds_kernels *all[8];
    const size_t n_listed = ds_kernels_list(all, 8);
    const ds_isa isa = ds_cpu_best();
    double *x[MAX_ROWS];
    int64_t lengths[MAX_ROWS];
    for (size_t i = 0; i < MAX_ROWS; i++) {
        lengths[i] = random_below(3) == 0 ? random_in(0, 4) : random_in(0, longest);
        x[i] = random_reals(lengths[i] * ds_signature_elements(&p->in));
    }
    for (size_t i = 0; i < n_listed; i++) {
        if (all[i]->isa <= isa) {
            try_kernels(p, DS_F64, all[i], x, lengths);
            try_kernels(p, DS_F32, all[i], x, lengths);
        }
    }
    for (size_t i = 0; i < MAX_ROWS; i++) {
        free(x[i]);
    }
    free_problem(p);
}

#endif
