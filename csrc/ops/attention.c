/* ops/attention.c: scaled dot-product attention along the stream, by blocks at absolute positions.
 *
 *     y[i][h] = sum over j of softmax_j(scale (q[i][h] . k[j][g] + u[i][h] . rows[h](i - j)) + bias[h](i - j)) v[j][g]
 *
 * over the keys that block b = floor(i / chunk) sees: b chunk - left <= j < (b + 1) chunk + right, and those of the
 * first `keep` before them. Head h of queries has keys and values of head g = h / (H / G).
 *
 *     in     queries [H][D], keys [G][D], values [G][E], and with rows u [H][F]; G divides H     out  [H][E]
 *     known  chunk floor((known - right) / chunk)                        total  total
 *     need   queries and u m; keys and values floor(m / chunk) chunk - left, 0 where left is unbounded
 *
 * chunk 1 is a sliding window, causal where right is 0. What is carried from call to call are the keys and values that
 * their edges keep, and a copy of the first, which stay when these move on. Without a bound of chunk or right
 * everything waits for the end. A query that sees no key, or whose keys all have the score -inf, gets zeros.
 *
 * bias [H or 1][n] is a table over distances i - j from `first` on; beyond its ends it keeps its last value there
 * (constant: clipped, T5's buckets) or goes on by its last step (linear: ALiBi). -inf masks.
 *
 * rows [H or 1][n][F] are vectors by distance, as keys follow each other: row t is that of distance rows_first - t;
 * beyond the ends it is the one there (Shaw's clipping; Transformer-XL's projected positions, whose second bias is in
 * u). With sinusoids in their place row(x) is sin(w_0 x), cos(w_0 x), sin(w_1 x), ..., w_k = sinusoids^(-2 k / F), of
 * any distance: nothing is stored that grows with a stream (Transformer-XL without a bound; its projection is in u).
 *
 * With a softcap c, what is before the bias is c tanh(it / c). A sink per head is one more score that softmax sees, and
 * that has no value.
 *
 * cross_attention is the same of keys and values that are given once, with the stream's start, or are weights, of
 * all streams: every query sees all.
 *
 *     known  known of the queries    total  total    need  queries m; keys and values 0, for ever
 *
 * Source: torch.nn.functional.scaled_dot_product_attention; the kernel's order of sums: kernels/kernels.h. */
#include <math.h>
#include <string.h>

#include "kernels/turn.h"
#include "ops/attention.h"
#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { CHUNK, LEFT, RIGHT, SCALE, FIRST, BEYOND, ROWS_FIRST, SINUSOIDS, SOFTCAP, KEEP };
enum { Q = DS_ATTENTION_Q, K = DS_ATTENTION_K, V = DS_ATTENTION_V, U = DS_ATTENTION_U };
enum { BIAS = DS_ATTENTION_BIAS, ROWS = DS_ATTENTION_ROWS, SINKS = DS_ATTENTION_SINKS };
enum { CONSTANT, LINEAR };
enum { UNBOUNDED = -1 };
enum {
    BESIDE = 32,              /* queries of a call of the kernel */
    MOST_AHEAD = 1 << 19,     /* bytes of a row's keys that a cache holds until they are read */
    WORTH_SPLITTING = 1 << 15 /* multiplications of a task, below which waking others costs more */
};

static const ds_attr_def attention_attrs[] = {
    {"chunk", DS_ATTR_INT, .i = 1, .doc = "queries of a block; 0: one block of all",
     .range = DS_FROM_0},
    {"left", DS_ATTR_INT, .i = UNBOUNDED, .doc = "keys seen before the block; -1: all"},
    {"right", DS_ATTR_INT, .doc = "keys seen behind the block; -1: all"},
    {"scale", DS_ATTR_REAL, .doc = "factor of products; 0: 1 / sqrt(D)"},
    {"first", DS_ATTR_INT, .doc = "query position - key position of the bias's first entry"},
    {"beyond", DS_ATTR_CHOICE, .choices = "constant|linear",
     .doc = "how the bias goes on beyond its ends"},
    {"rows_first", DS_ATTR_INT, .doc = "query position - key position of the first of the rows"},
    {"sinusoids", DS_ATTR_REAL,
     .doc = "rows are sines and cosines of the distance, whose angles are its powers from 0 to -1; "
            "0: none",
     .range = DS_FROM_0},
    {"softcap", DS_ATTR_REAL, .doc = "what products stay below, by tanh; 0: none",
     .range = DS_FROM_0},
    {"keep", DS_ATTR_INT, .doc = "first keys that are seen however far behind they are",
     .range = DS_FROM_0},
    {0}};

static const ds_attr_def cross_attention_attrs[] = {
    {"scale", DS_ATTR_REAL, .doc = "factor of products; 0: 1 / sqrt(D)"}, {0}};

enum { ALONG = DS_ATTENTION_ALONG, ACROSS = DS_ATTENTION_ACROSS };

/* What a frame of keys or of values is; their number, where they are weights. */
static ds_signature signature_of(const ds_op *op, int i, int64_t *n)
{
    if (op->n_inputs > i)
        return op->in[i];
    ds_signature one = op->weight[i - K];
    *n = one.shape[0];
    one.rank--;
    memmove(one.shape, one.shape + 1, sizeof one.shape - sizeof one.shape[0]);
    return one;
}

ds_attention ds_attention_of(const ds_op *op)
{
    const bool across = op->def->member == ACROSS;
    int64_t n_fixed = 0;
    const ds_signature keys = signature_of(op, K, &n_fixed), values = signature_of(op, V, &n_fixed);
    return (ds_attention){.chunk = across ? 0 : op->attr[CHUNK].i,
                          .left = across ? UNBOUNDED : op->attr[LEFT].i,
                          .right = across ? UNBOUNDED : op->attr[RIGHT].i,
                          .scale = op->attr[across ? 0 : SCALE].x,
                          .heads = (size_t)op->in[Q].shape[0],
                          .groups = (size_t)keys.shape[0],
                          .d_key = (size_t)keys.shape[1],
                          .d_value = (size_t)values.shape[1],
                          .n_fixed = n_fixed,
                          .n_kept = op->n_carried > 0 ? op->attr[KEEP].i : 0,
                          .element = ds_op_element(op)};
}

static ds_status attention_check_rows(const ds_op *op)
{
    const ds_signature *in = op->in;
    const bool given = ds_op_has_weight(op, ROWS), turned = op->attr[SINUSOIDS].x != 0;
    DS_CHECK(!given || !turned, DS_ARGUMENT, "attention: sinusoids stand in the place of rows");
    DS_CHECK(op->n_inputs == (given || turned ? 4 : 3), DS_ARGUMENT,
             "attention: rows by distance take a fourth input, and nothing else does; got %d "
             "inputs %s rows",
             op->n_inputs, given || turned ? "with" : "without");
    if (!given && !turned)
        return DS_OK;
    DS_CHECK(
        !turned || in[U].shape[1] % 2 == 0, DS_SHAPE,
        "attention: sines and cosines take an even number of features of its input 3, got %lld",
        (long long)in[U].shape[1]);
    return DS_OK;
}

static ds_status check_heads(ds_op *op)
{
    int64_t n[3] = {0};
    const ds_signature in[] = {op->in[Q], signature_of(op, K, &n[K]), signature_of(op, V, &n[V])};
    DS_CHECK(in[Q].shape[0] % in[K].shape[0] == 0, DS_SHAPE,
             "%s: keys must have a number of heads that divides that of the queries; got %lld and "
             "%lld",
             op->def->name, (long long)in[K].shape[0], (long long)in[Q].shape[0]);
    op->out[0].shape[1] = in[V].shape[1];
    op->shares = true;
    ds_attention_set_back_sizes(op);
    return DS_OK;
}

static ds_status cross_attention_infer(ds_op *op)
{
    const bool fixed = ds_op_has_weight(op, 0) && ds_op_has_weight(op, 1);
    DS_CHECK(fixed ? op->n_inputs == 1 : op->n_inputs == 3 && op->n_weights == 0, DS_ARGUMENT,
             "cross_attention: expected 3 inputs, or 1 and keys and values as weights; got %d and "
             "%d weights",
             op->n_inputs, op->n_weights);
    return check_heads(op);
}

static ds_status attention_infer(ds_op *op)
{
    DS_TRY(check_heads(op));
    DS_CHECK(op->attr[LEFT].i >= UNBOUNDED && op->attr[RIGHT].i >= UNBOUNDED, DS_ARGUMENT,
             "attention: left and right must be at least 0, or -1 for all keys");
    DS_TRY(attention_check_rows(op));
    op->whole = op->attr[CHUNK].i == 0 || op->attr[RIGHT].i == UNBOUNDED;
    if (op->attr[KEEP].i == 0 || op->attr[LEFT].i == UNBOUNDED || op->attr[CHUNK].i == 0)
        return DS_OK; /* all keys are seen, or none but those of the window */
    for (int i = K; i <= V; i++) {
        ds_signature *kept = &op->carried[i - K].array;
        op->carried[i - K].name = i == K ? "keys" : "values";
        *kept = op->in[i];
        DS_CHECK(kept->rank < DS_MAX_RANK, DS_SHAPE, "attention: frames have too many dimensions");
        memmove(kept->shape + 1, kept->shape, sizeof kept->shape - sizeof kept->shape[0]);
        kept->shape[0] = op->attr[KEEP].i;
        kept->rank++;
    }
    op->n_carried = 2;
    return DS_OK;
}

static void attention_counts(const ds_op *op, ds_program *p)
{
    const int64_t chunk = op->whole ? 1 : op->attr[CHUNK].i;
    const ds_expr seen = ds_add_k(p, ds_known(p, Q), -op->attr[RIGHT].i);
    ds_root(p, ds_mul_k(p, ds_floordiv_k(p, seen, chunk), chunk));
    ds_root(p, ds_total(p, Q));
}

static void attention_need(const ds_op *op, ds_program *p)
{
    const int64_t chunk = op->attr[CHUNK].i, left = op->attr[LEFT].i;
    ds_root(p, ds_m(p));
    for (int i = K; i <= V; i++) {
        const ds_expr block = ds_mul_k(p, ds_floordiv_k(p, ds_m(p), chunk), chunk);
        ds_root(p, left == UNBOUNDED ? ds_const(p, 0) : ds_add_k(p, block, -left));
    }
    if (op->n_inputs > U)
        ds_root(p, ds_m(p));
}

static void cross_attention_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_m(p));
    for (int i = K; i < op->n_inputs; i++)
        ds_root(p, ds_const(p, 0));
}

/* ---------------------------------------------------------------- sines and cosines of distances */

/* Angles [F / 2] in double, and the table of a tile. */
static size_t attention_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    if (op->attr[SINUSOIDS].x == 0)
        return 0;
    const size_t d = (size_t)op->in[U].shape[1];
    return d / 2 * sizeof(double) + DS_ATTEND_TILE * d * k->element;
}

static void attention_prepare(const ds_op *op, void *prepared, const void *const *weights,
                              const ds_real_kernels *k)
{
    (void)weights;
    const size_t n = (size_t)op->in[U].shape[1] / 2;
    double *const angles = prepared;
    for (size_t i = 0; i < n; i++)
        angles[i] = pow(op->attr[SINUSOIDS].x, -(double)i / (double)n);
    for (size_t i = 0; i < DS_ATTEND_TILE * n; i++) {
        double turn[2];
        dsk_turn_far((double)(i / n) * angles[i % n], &turn[0], &turn[1]);
        for (size_t j = 0; j < 2; j++)
            ds_sums_set_real(angles + n, k->element, 2 * i + j, turn[j]);
    }
}

/* ---------------------------------------------------------------- values */

/* The queries of one row, by the heads of one group of them, are a task. */
typedef struct attention_tasks {
    const ds_op *op;
    const ds_run *run;
    ds_attention s;
    bool in_turn; /* one thread does them all */
} attention_tasks;

/* Keys or values of a row: frames, or what all rows have. */
static ds_window seen_window(const ds_op *op, const ds_run *run, int i, size_t row)
{
    return op->n_inputs > i ? run->in[(size_t)i * run->n_rows + row]
                            : (ds_window){.data = run->weights[i - K]};
}

int64_t ds_attention_keys(const ds_attention *s, const ds_run *run, size_t row)
{
    return s->n_fixed > 0 ? s->n_fixed : run->count[K * run->n_rows + row].now.known;
}

/* Where keys or values of the first frames stay, of one row and one group of heads. */
static void *kept_of(const attention_tasks *t, int i, size_t row, size_t group)
{
    const size_t n_bytes = (i == K ? t->s.d_key : t->s.d_value) * t->s.element;
    return (char *)ds_run_carried(t->op, t->run, row, i - K) + group * n_bytes;
}

/* Copies what came of the first keys, or values, of one row and one group of heads to where they stay. */
static void keep_first(const attention_tasks *t, int i, size_t row, size_t group)
{
    const ds_counts *count = &t->run->count[(size_t)i * t->run->n_rows + row];
    const int64_t end = count->now.known < t->s.n_kept ? count->now.known : t->s.n_kept;
    const size_t n_bytes = (i == K ? t->s.d_key : t->s.d_value) * t->s.element;
    const ds_window *in = &t->run->in[(size_t)i * t->run->n_rows + row];
    char *const kept = kept_of(t, i, row, group);
    for (int64_t j = count->before.known; j < end; j++)
        memcpy(kept + (size_t)j * t->s.groups * n_bytes,
               (const char *)ds_at(in, j, t->s.groups * n_bytes) + group * n_bytes, n_bytes);
}

/* Queries that are computed beside each other; `a` points at what each of them has. */
typedef struct beside {
    ds_attend a;
    void *y[BESIDE], *logs[BESIDE];
    const void *q[BESIDE], *u[BESIDE];
    int64_t position[BESIDE], from[BESIDE], to[BESIDE];
    const char *ahead[2]; /* of keys and values that are fetched */
    ds_fetch fetch[2];
} beside;

/* Lists a group's part of the keys, or values, of the next row. Few queries read much for what they compute, and rows
 * are far apart: without this most of the time they would wait for memory. */
static void list_ahead(const attention_tasks *t, int i, size_t row, size_t group, const char **from,
                       ds_fetch *ahead)
{
    const bool any = t->in_turn && t->op->n_inputs > i && row + 1 < t->run->n_rows;
    const ds_window next = any ? seen_window(t->op, t->run, i, row + 1) : (ds_window){0};
    const size_t n_bytes = (size_t)next.n * (i == K ? t->s.d_key : t->s.d_value) * t->s.element;
    const bool fits = n_bytes > 0 && n_bytes * t->s.groups <= MOST_AHEAD;
    *from = fits ? (const char *)next.data + group * n_bytes : NULL;
    *ahead = (ds_fetch){.rows = from, .n_rows = fits, .bytes = n_bytes};
}

/* What all heads of a group have in common. */
static void attention_begin(const attention_tasks *t, size_t row, size_t group, beside *b)
{
    const ds_attention *s = &t->s;
    const ds_window keys = seen_window(t->op, t->run, K, row),
                    values = seen_window(t->op, t->run, V, row);
    const size_t key_bytes = s->d_key * s->element, value_bytes = s->d_value * s->element;
    const bool along = t->op->def->member == ALONG;
    for (int i = K; i <= V; i++)
        list_ahead(t, i, row, group, &b->ahead[i - K], &b->fetch[i - K]);
    b->a = (ds_attend){.y = b->y,
                       .logs = t->run->saved ? b->logs : NULL,
                       .drop = t->run->drop,
                       .q = b->q,
                       .u = b->u,
                       .position = b->position,
                       .from = b->from,
                       .to = b->to,
                       .at = keys.at > values.at ? keys.at : values.at,
                       .keys_ahead = &b->fetch[0],
                       .values_ahead = &b->fetch[1],
                       .kept_keys = s->n_kept > 0 ? kept_of(t, K, row, group) : NULL,
                       .kept_values = s->n_kept > 0 ? kept_of(t, V, row, group) : NULL,
                       .n_kept = s->n_kept,
                       .key_step = s->groups * s->d_key,
                       .value_step = s->groups * s->d_value,
                       .d_key = s->d_key,
                       .d_value = s->d_value,
                       .scale = s->scale != 0 ? s->scale : 1 / sqrt((double)s->d_key),
                       .softcap = along ? t->op->attr[SOFTCAP].x : 0};
    ds_attend *const a = &b->a;
    if (along && t->op->attr[SINUSOIDS].x != 0) {
        const double *angles = t->run->prepared;
        const size_t d = ds_attention_terms(t->op);
        a->turns = (ds_distance_turns){.angles = angles, .table = angles + d / 2, .d = d};
    }
    a->keys = (const char *)ds_at(&keys, a->at, s->groups * key_bytes) + group * key_bytes;
    a->values = (const char *)ds_at(&values, a->at, s->groups * value_bytes) + group * value_bytes;
}

/* Where a head's part of a weight lies, which is `each` elements, or one part for all heads. */
static const void *attention_part(const attention_tasks *t, int weight, size_t h, size_t each)
{
    const size_t own = t->op->weight[weight].shape[0] == 1 ? 0 : h;
    return (const char *)t->run->weights[weight] + own * each * t->s.element;
}

/* What one head has of weights and draws. */
static void attention_set_head(const attention_tasks *t, size_t row, size_t h, ds_attend *a)
{
    const ds_op *op = t->op;
    const bool along = op->def->member == ALONG;
    if (along && ds_op_has_weight(op, BIAS)) {
        const size_t n = (size_t)op->weight[BIAS].shape[1];
        a->bias = (ds_distances){.table = attention_part(t, BIAS, h, n),
                                 .first = op->attr[FIRST].i,
                                 .n = n,
                                 .linear = op->attr[BEYOND].i == LINEAR};
    }
    if (along && ds_op_has_weight(op, ROWS)) {
        const size_t n = (size_t)op->weight[ROWS].shape[1], d = ds_attention_terms(op);
        a->rows = (ds_distance_rows){.table = attention_part(t, ROWS, h, n * d),
                                     .first = op->attr[ROWS_FIRST].i,
                                     .n = n,
                                     .d = d};
    }
    if (along && ds_op_has_weight(op, SINKS))
        a->sink = attention_part(t, SINKS, h, 1);
    a->drop_key = t->run->drop ? ds_draw(t->run->drop->keys[row], h) : 0;
}

/* One head's queries of a row; log_sums: of the row's first query and head. */
static void attention_head(const attention_tasks *t, size_t row, size_t h, beside *b,
                           char *log_sums)
{
    const ds_attention *s = &t->s;
    const ds_run *run = t->run;
    const ds_target *out = &run->out[row];
    const size_t q_bytes = s->d_key * s->element, v_bytes = s->d_value * s->element,
                 u_bytes = ds_attention_terms(t->op) * s->element;
    const int64_t n_keys = ds_attention_keys(s, run, row);
    size_t n = 0;
    for (int64_t i = out->m0; i < out->m1; i++) {
        b->y[n] = (char *)ds_to(out, i, s->heads * v_bytes) + h * v_bytes;
        b->q[n] = (const char *)ds_at(&run->in[Q * run->n_rows + row], i, s->heads * q_bytes) +
                  h * q_bytes;
        if (u_bytes > 0)
            b->u[n] = (const char *)ds_at(&run->in[U * run->n_rows + row], i, s->heads * u_bytes) +
                      h * u_bytes;
        if (run->saved)
            b->logs[n] = log_sums + ((size_t)(i - out->m0) * s->heads + h) * s->element;
        b->position[n] = i;
        ds_attention_sees(s, i, n_keys, &b->from[n], &b->to[n]);
        if (++n == BESIDE || i + 1 == out->m1) {
            b->a.n_queries = n;
            run->k->attend(&b->a);
            n = 0;
        }
    }
}

static void attention_task(void *context, size_t index)
{
    const attention_tasks *t = context;
    const ds_attention *s = &t->s;
    const ds_run *run = t->run;
    const size_t row = index / s->groups, group = index % s->groups, per = s->heads / s->groups;
    for (int i = K; i <= V && s->n_kept > 0; i++)
        keep_first(t, i, row, group);
    if (run->out[row].m0 >= run->out[row].m1)
        return;
    char *log_sums = run->saved ? run->saved[0] : NULL;
    for (size_t r = 0; r < row && run->saved; r++)
        log_sums += (size_t)(run->out[r].m1 - run->out[r].m0) * s->heads * s->element;
    beside b;
    attention_begin(t, row, group, &b);
    for (size_t h = group * per; h < (group + 1) * per; h++) {
        attention_set_head(t, row, h, &b.a);
        attention_head(t, row, h, &b, log_sums);
    }
}

static void attention_forward(const ds_op *op, const ds_run *run)
{
    attention_tasks t = {.op = op, .run = run, .s = ds_attention_of(op)};
    double work = 0;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        int64_t from, to;
        if (out->m0 < out->m1) {
            ds_attention_sees(&t.s, out->m1 - 1, ds_attention_keys(&t.s, run, r), &from, &to);
            work += (double)(out->m1 - out->m0) * (double)(to - from);
        }
    }
    work *= (double)t.s.heads * (double)(t.s.d_key + t.s.d_value + ds_attention_terms(op));
    ds_pool *const pool = work < 2 * WORTH_SPLITTING ? NULL : run->pool;
    t.in_turn = ds_pool_threads(pool) == 1;
    ds_pool_run(pool, attention_task, &t, run->n_rows * t.s.groups);
}

const ds_op_def ds_op_attention = {
    DS_OPERATOR_OF(attention, "Scaled dot-product attention by blocks of the stream.", 3, 1, -1),
    .flags = DS_OP_LOCKSTEP | DS_OP_REAL | DS_OP_VARIADIC,
    .attrs = attention_attrs,
    .shapes = "[heads, features]; [groups, features]; [groups, out]; [heads, terms]; "
              "bias? [heads|1, distances]; rows? [heads|1, places, terms]; sinks? [heads]",
    .infer = attention_infer,
    DS_COUNTED(attention),
    DS_PREPARED(attention),
    .forward = attention_forward,
    .backward = ds_attention_backward,
    .reads = DS_READS_ALL_X | DS_READS_Y | DS_READS_CARRIED};

const ds_op_def ds_op_cross_attention = {
    DS_OPERATOR_OF(cross_attention, "Scaled dot-product attention to keys given once.", 1, 1, -1),
    .flags = DS_OP_REAL | DS_OP_MEMORY | DS_OP_VARIADIC,
    .member = ACROSS,
    .attrs = cross_attention_attrs,
    .shapes = "[heads, features]; [groups, features]; [groups, out]; "
              "keys? [n, groups, features]; values? [n, groups, out]",
    .infer = cross_attention_infer,
    .need = cross_attention_need,
    .forward = attention_forward,
    .backward = ds_attention_backward,
    .reads = DS_READS_ALL_X | DS_READS_Y | DS_READS_CARRIED};
