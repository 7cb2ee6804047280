/* ops/attention_back.c: attention read backwards (ops/attention.c has what it is).
 *
 * With p the weight that a query's softmax gives a key, m what dropping makes of it (1 where nothing is dropped), g the
 * slopes of its output y, and D = g . y:
 *
 *     slope of the score    ds = p (m g . v - D)    and of a sink's score, whose value is 0: -p D
 *     of the bias of the distance   ds              behind a softcap c:   ds (1 - (capped / c)^2)
 *     with e = ds scale:   q' += e k   k' += e q   u' += e row   row' += e u   v' += p m g
 *
 * Weights are made again, of the scores and of the logarithms of sums that forward leaves. Queries come by blocks, each
 * with its keys by tiles at absolute positions; what is a product of a block and a tile is the kernel by
 * which forward sums values (attend_sums). */
#include <math.h>
#include <string.h>

#include "kernels/turn.h"
#include "ops/attention.h"
#include "ops/sums.h"

enum { Q = DS_ATTENTION_Q, K, V, U };
enum { BIAS, ROWS, SINKS };
enum { TILE = DS_ATTEND_TILE, BESIDE = 64, LANES = 8 };

/* Keys, or values, that lie one after another. */
typedef struct keys {
    const char *data; /* of the key at `at`, of one head */
    char *slopes;     /* of the key at `slopes_at`; NULL: none are wanted */
    int64_t at, slopes_at;
} keys;

/* What is read and written of one head and up to BESIDE queries, and room for a tile. */
typedef struct block {
    const ds_op *op;
    const ds_run *run;
    const ds_attention *s;
    size_t head, n, k_step, v_step; /* n: queries; steps: bytes from a key to the next */
    int64_t position;               /* of the first query */
    const char *u;                  /* of the first query; NULL: there is none */
    uint64_t drop_key;
    double scale, cap;
    void *q, *g, *dq;          /* [n][d_key], [n][d_value], [n][d_key] */
    void *q_turned, *g_turned; /* [d_key][BESIDE], [d_value][BESIDE] */
    void *ones;                /* [TILE] */
    void *k, *aside;           /* [TILE][d_key]; [TILE][d_key or d_value] */
    void *weight, *slope;      /* [TILE][BESIDE]: of each key and query; slopes of scores */
    double *capped;            /* as these: before the bias */
    double log_sum[BESIDE], d[BESIDE];
    int64_t from[BESIDE], to[BESIDE];
    double *du;                     /* [BESIDE][d_u] */
    double *dbias, *drows, *dsinks; /* of all heads; NULL: not wanted */
    double *angles, *row;           /* of sines and cosines; a row by distance */
} block;

void ds_attention_set_back_sizes(ds_op *op)
{
    const ds_attention s = ds_attention_of(op);
    const size_t d_u = ds_attention_terms(op), n = (BESIDE + 2) * d_u + BESIDE * TILE;
    const size_t reals = (3 * BESIDE + 2 * TILE) * (s.d_key + s.d_value) + 2 * TILE * BESIDE + TILE;
    op->back_scratch.per_call = n * sizeof(double) + reals * s.element + 20 * (size_t)DS_ALIGNMENT;
    if (op->def->member == DS_ATTENTION_ALONG)
        op->back_scratch.per_call += ds_back_sums_bytes(op);
    op->saved[0] = (ds_saved){DS_PER_OUT, s.heads * s.element};
    op->n_saved = 1;
}

DS_FOR_ELEMENT double dot(const void *a, const void *b, size_t n, size_t e)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] += ds_sums_real(a, e, i + j) * ds_sums_real(b, e, i + j);
    for (; i < n; i++)
        lane[0] += ds_sums_real(a, e, i) * ds_sums_real(b, e, i);
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* The row of a distance, in double: its place in the table, or -1 where it is made. */
static int64_t row_of(const block *a, int64_t distance, size_t d_u)
{
    if (a->op->attr[DS_ATTENTION_SINUSOIDS].x != 0) {
        for (size_t i = 0; i < d_u / 2; i++)
            dsk_turn_far((double)distance * a->angles[i], &a->row[2 * i], &a->row[2 * i + 1]);
        return -1;
    }
    const ds_signature *rows = &a->op->weight[ROWS];
    const int64_t n = rows->shape[1], row = a->op->attr[DS_ATTENTION_ROWS_FIRST].i - distance;
    const int64_t near = row < 0 ? 0 : row < n ? row : n - 1;
    const int64_t place = (rows->shape[0] == 1 ? 0 : (int64_t)a->head * n) + near;
    for (size_t i = 0; i < d_u; i++)
        a->row[i] = ds_sums_real(a->run->weights[ROWS], a->s->element, (size_t)place * d_u + i);
    return place;
}

/* A distance's bias is a sum of two entries of the table, weighed; those of all heads count on. */
static void bias_of(const block *a, int64_t distance, size_t *entry, double *weigh)
{
    const ds_signature *bias = &a->op->weight[BIAS];
    const int64_t n = bias->shape[1], last = n - 1,
                  i = distance - a->op->attr[DS_ATTENTION_FIRST].i,
                  near = i < 0      ? 0
                         : i > last ? last
                                    : i,
                  other = near == 0 ? last > 0 : last - 1;
    const bool beyond = near != i && a->op->attr[DS_ATTENTION_BEYOND].i == 1;
    const double past = beyond ? (double)(i - near) : 0;
    const int64_t first = bias->shape[0] == 1 ? 0 : (int64_t)a->head * n;
    entry[0] = (size_t)(first + near);
    entry[1] = (size_t)(first + (beyond ? other : near));
    weigh[0] = near == 0 ? 1 - past : 1 + past;
    weigh[1] = near == 0 ? past : -past;
}

/* What is added to the score of query i with a key so far away, and what its slope gives to what that is made of. */
DS_FOR_ELEMENT double term_of(const block *a, size_t i, int64_t distance, size_t d_u, size_t e)
{
    double term = 0;
    (void)row_of(a, distance, d_u);
    for (size_t c = 0; c < d_u; c++)
        term += ds_sums_real(a->u + i * a->s->heads * d_u * e, e, c) * a->row[c];
    return term;
}

DS_FOR_ELEMENT void term_back(const block *a, size_t i, int64_t distance, double ds, size_t d_u,
                              size_t e)
{
    const int64_t place = row_of(a, distance, d_u);
    for (size_t c = 0; c < d_u; c++) {
        a->du[i * d_u + c] += ds * a->row[c];
        if (a->drows && place >= 0)
            a->drows[(size_t)place * d_u + c] +=
                ds * ds_sums_real(a->u + i * a->s->heads * d_u * e, e, c);
    }
}

DS_FOR_ELEMENT double bias_at(const block *a, int64_t distance, size_t e)
{
    size_t entry[2];
    double weigh[2];
    bias_of(a, distance, entry, weigh);
    const double first = weigh[0] * ds_sums_real(a->run->weights[BIAS], e, entry[0]);
    return weigh[1] == 0 ? first
                         : first + weigh[1] * ds_sums_real(a->run->weights[BIAS], e, entry[1]);
}

/* Scores of key j of a tile, with queries [first, last), become what the kernels' `exp` makes weights of. */
DS_FOR_ELEMENT int scores_to_logs(const block *a, size_t j, int64_t tile, size_t first, size_t last,
                                  size_t e)
{
    const bool bias = a->op->def->member == DS_ATTENTION_ALONG && ds_op_has_weight(a->op, BIAS);
    const size_t d_u = ds_attention_terms(a->op), at = j * BESIDE;
    if (d_u == 0 && a->cap == 0 && !bias) {
        for (size_t i = first; i < last; i++)
            ds_sums_set_real(a->weight, e, at + i,
                             ds_sums_real(a->weight, e, at + i) * a->scale - a->log_sum[i]);
        return 0;
    }
    for (size_t i = first; i < last; i++) {
        const int64_t distance = a->position + (int64_t)i - tile - (int64_t)j;
        double score = ds_sums_real(a->weight, e, at + i);
        if (d_u > 0)
            score += term_of(a, i, distance, d_u, e);
        score *= a->scale;
        if (a->cap != 0)
            score = a->capped[at + i] = a->cap * tanh(score / a->cap);
        if (bias)
            score += bias_at(a, distance, e);
        ds_sums_set_real(a->weight, e, at + i, score - a->log_sum[i]);
    }
    return 0;
}

/* Weights, and products of slopes with values, become weights as they were used and slopes of products. */
DS_FOR_ELEMENT int weights_to_slopes(const block *a, size_t j, int64_t tile, size_t first,
                                     size_t last, size_t e)
{
    const ds_drop *drop = a->run->drop;
    const size_t d_u = ds_attention_terms(a->op), at = j * BESIDE;
    if (d_u == 0 && a->cap == 0 && !a->dbias && !drop) {
        for (size_t i = first; i < last; i++) {
            const double p = ds_sums_real(a->weight, e, at + i);
            const double ds = p * (ds_sums_real(a->slope, e, at + i) - a->d[i]) * a->scale;
            ds_sums_set_real(a->slope, e, at + i, p == 0 ? 0 : ds);
        }
        return 0;
    }
    for (size_t i = first; i < last; i++) {
        const int64_t position = a->position + (int64_t)i, key = tile + (int64_t)j;
        const double p = ds_sums_real(a->weight, e, at + i);
        const double m =
            drop ? ds_drop_factor(drop, ds_draw(a->drop_key, (uint64_t)position), (uint64_t)key)
                 : 1;
        double ds = p == 0 ? 0 : p * (m * ds_sums_real(a->slope, e, at + i) - a->d[i]);
        if (a->dbias && p != 0) {
            size_t entry[2];
            double weigh[2];
            bias_of(a, position - key, entry, weigh);
            a->dbias[entry[0]] += ds * weigh[0];
            a->dbias[entry[1]] += ds * weigh[1];
        }
        if (a->cap != 0)
            ds *= 1 - a->capped[at + i] / a->cap * (a->capped[at + i] / a->cap);
        if (d_u > 0 && p != 0)
            term_back(a, i, position - key, ds * a->scale, d_u, e);
        ds_sums_set_real(a->slope, e, at + i, ds * a->scale);
        ds_sums_set_real(a->weight, e, at + i, p * m);
    }
    return 0;
}

/* What queries of a tile see: query i keys [begin[i], end[i]), key j queries [first[j], last[j]). */
typedef struct sight {
    size_t begin[BESIDE], end[BESIDE], first[TILE], last[TILE];
    size_t least, most; /* the first key that one sees, and the last and one */
} sight;

static void set_queries_of_keys(sight *seen, size_t n)
{
    /* The queries that see a key are beside each other: both ends of what is seen move on from query to query. */
    for (size_t j = seen->least; j < seen->most; j++) {
        size_t i = 0;
        while (i < n && !(seen->begin[i] <= j && j < seen->end[i]))
            i++;
        seen->first[j] = i;
        while (i < n && seen->begin[i] <= j && j < seen->end[i])
            i++;
        seen->last[j] = i;
    }
}

/* Products of keys, or values, of a tile with the block's queries, or slopes. */
static void products(const block *a, const sight *seen, void *to, const char *rows, size_t step,
                     const void *turned, size_t d)
{
    const size_t e = a->s->element, width = (a->n + 15) / 16 * 16;
    size_t none[TILE] = {0}, all[TILE];
    void *y[TILE];
    for (size_t j = seen->least; j < seen->most; j++) {
        y[j] = (char *)to + j * BESIDE * e;
        memset(y[j], 0, width * e);
        all[j] = d;
    }
    a->run->k->attend_sums(y + seen->least, a->ones, seen->most - seen->least,
                           rows + seen->least * step, step / e, 1, turned, BESIDE, width,
                           none + seen->least, all + seen->least);
}

/* Adds to the slopes of keys, or values, of a tile what the block's queries, or slopes, say by these weights. */
static void keys_back(const block *a, const keys *k, const sight *seen, int64_t tile,
                      const char *weight, const void *rows, size_t d, size_t step)
{
    void *y[TILE];
    size_t least = seen->least;
    const size_t n_bytes = d * a->s->element;
    if (!k->slopes)
        return;
    while (least < seen->most && tile + (int64_t)least < k->slopes_at)
        least++;
    /* Aside first: rows that are a power of two apart have few lines of a cache. */
    for (size_t j = least; j < seen->most; j++)
        y[j] = (char *)a->aside + j * n_bytes;
    if (least >= seen->most)
        return;
    memset(y[least], 0, (seen->most - least) * n_bytes);
    a->run->k->attend_sums(y + least, a->ones, seen->most - least,
                           weight + least * BESIDE * a->s->element, BESIDE, 1, rows, d, d,
                           seen->first + least, seen->last + least);
    for (size_t j = least; j < seen->most; j++)
        ds_back_add(a->run->k, k->slopes + (size_t)(tile + (int64_t)j - k->slopes_at) * step, y[j],
                    d);
}

static void tile_back(const block *a, const keys *k, const keys *v, int64_t tile, sight *seen)
{
    const ds_attention *s = a->s;
    const ds_real_kernels *kernels = a->run->k;
    const size_t e = s->element, d_bytes = s->d_key * e;
    const ptrdiff_t ahead[2] = {(ptrdiff_t)(tile - k->at), (ptrdiff_t)(tile - v->at)};
    void *dq[BESIDE];
    for (size_t j = seen->least; j < seen->most; j++)
        memcpy((char *)a->k + j * d_bytes,
               k->data + (ahead[0] + (ptrdiff_t)j) * (ptrdiff_t)a->k_step, d_bytes);
    set_queries_of_keys(seen, a->n);
    products(a, seen, a->weight, a->k, d_bytes, a->q_turned, s->d_key);
    products(a, seen, a->slope, v->data + ahead[1] * (ptrdiff_t)a->v_step, a->v_step, a->g_turned,
             s->d_value);
    for (size_t j = seen->least; j < seen->most; j++) {
        char *const from = (char *)a->weight + (j * BESIDE + seen->first[j]) * e;
        (void)DS_BY_ELEMENT(scores_to_logs, e, a, j, tile, seen->first[j], seen->last[j]);
        kernels->unary(DS_UNARY_EXP, from, from, seen->last[j] - seen->first[j], NULL);
        (void)DS_BY_ELEMENT(weights_to_slopes, e, a, j, tile, seen->first[j], seen->last[j]);
    }
    for (size_t i = 0; i < a->n; i++)
        dq[i] = (char *)a->dq + i * d_bytes;
    kernels->attend_sums(dq, a->ones, a->n, a->slope, 1, BESIDE, a->k, s->d_key, s->d_key,
                         seen->begin, seen->end);
    keys_back(a, v, seen, tile, a->weight, a->g, s->d_value, a->v_step);
    keys_back(a, k, seen, tile, a->slope, a->q, s->d_key, a->k_step);
}

/* Keys [from[i], to[i]) of each query, which are a run. */
static void keys_seen_back(const block *a, const keys *k, const keys *v, const int64_t *from,
                           const int64_t *to)
{
    int64_t least = INT64_MAX, most = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (from[i] >= to[i] || a->log_sum[i] == -(double)INFINITY) /* all that it sees is masked */
            continue;
        least = from[i] < least ? from[i] : least;
        most = to[i] > most ? to[i] : most;
    }
    for (int64_t tile = least == INT64_MAX ? most : least / TILE * TILE; tile < most;
         tile += TILE) {
        sight seen = {.least = TILE};
        for (size_t i = 0; i < a->n; i++) {
            const int64_t b = from[i] - tile, e = to[i] - tile;
            const bool none = a->log_sum[i] == -(double)INFINITY;
            seen.end[i] = none || e < 0 ? 0 : e > TILE ? TILE : (size_t)e;
            seen.begin[i] = b < 0 ? 0 : (size_t)b < seen.end[i] ? (size_t)b : seen.end[i];
            if (seen.begin[i] == seen.end[i])
                continue;
            seen.least = seen.begin[i] < seen.least ? seen.begin[i] : seen.least;
            seen.most = seen.end[i] > seen.most ? seen.end[i] : seen.most;
        }
        if (seen.least < seen.most)
            tile_back(a, k, v, tile, &seen);
    }
}

/* ---------------------------------------------------------------- rows */

/* Keys and values of a row, and where their slopes go. */
static void window_of(const ds_op *op, const ds_back *b, int i, size_t row, ds_window *in,
                      ds_slope *dx)
{
    const size_t at = (size_t)i * b->run->n_rows + row;
    const bool given = op->n_inputs > i;
    *in =
        given ? b->run->in[at] : (ds_window){b->run->weights[i - K], 0, op->weight[i - K].shape[0]};
    *dx = given ? b->dx[at] : (ds_slope){b->dweights[i - K], 0, op->weight[i - K].shape[0]};
}

/* Slopes of what the row keeps of the first keys: of those that came in this call they are new frames'. */
static void first_back(const ds_op *op, const ds_back *b, const ds_attention *s, size_t row)
{
    for (int i = K; i <= V; i++) {
        const ds_counts *count = &b->run->count[(size_t)i * b->run->n_rows + row];
        const size_t n = s->groups * (i == K ? s->d_key : s->d_value), n_bytes = n * s->element;
        const int64_t end = count->now.known < s->n_kept ? count->now.known : s->n_kept;
        char *const kept = ds_back_carried(op, b, row, i - K);
        for (int64_t j = count->before.known; j < end; j++) {
            char *const from = kept + (size_t)j * n_bytes;
            void *const to = ds_slope_at(&b->dx[(size_t)i * b->run->n_rows + row], j, n_bytes);
            if (to)
                ds_back_add(b->run->k, to, from, n);
            memset(from, 0, n_bytes);
        }
    }
}

/* What of a row's keys, or values, a group of heads has in a window. */
static keys keys_of(const ds_window *in, const ds_slope *dx, size_t group, size_t d, size_t e)
{
    return (keys){(const char *)in->data + group * d * e,
                  dx->data ? (char *)dx->data + group * d * e : NULL, in->at, dx->at};
}

static void block_keys_back(block *a, const ds_back *b, size_t row, size_t group, int64_t n_keys)
{
    const ds_attention *s = a->s;
    const size_t d[2] = {s->d_key, s->d_value};
    keys window[2], kept[2];
    int64_t first[BESIDE], old[BESIDE], none[BESIDE] = {0};
    for (int i = K; i <= V; i++) {
        ds_window in;
        ds_slope dx;
        window_of(a->op, b, i, row, &in, &dx);
        window[i - K] = keys_of(&in, &dx, group, d[i - K], s->element);
    }
    for (size_t i = 0; i < a->n; i++)
        ds_attention_sees(s, a->position + (int64_t)i, n_keys, &a->from[i], &a->to[i]);
    if (s->n_kept > 0) {
        const int64_t known = a->run->count[K * a->run->n_rows + row].before.known;
        for (size_t i = 0; i < a->n; i++) {
            first[i] = a->from[i] < s->n_kept ? a->from[i] : s->n_kept;
            old[i] = known < first[i] ? known : first[i];
        }
        for (int i = 0; i < 2; i++) {
            const ds_window in = {ds_run_carried(a->op, a->run, row, i), 0, s->n_kept};
            const ds_slope dx = {ds_back_carried(a->op, b, row, i), 0, s->n_kept};
            kept[i] = keys_of(&in, &dx, group, d[i], s->element);
        }
        keys_seen_back(a, &kept[0], &kept[1], none, old);
        keys_seen_back(a, &window[0], &window[1], old, first);
    }
    keys_seen_back(a, &window[0], &window[1], a->from, a->to);
}

/* to[c][i] = from[i][c], and zeros for queries that are not there. */
DS_FOR_ELEMENT int turn(void *to, const void *from, size_t n, size_t d, size_t e)
{
    for (size_t c = 0; c < d; c++)
        for (size_t i = 0; i < BESIDE; i++)
            ds_sums_set_real(to, e, c * BESIDE + i, i < n ? ds_sums_real(from, e, i * d + c) : 0);
    return 0;
}

/* Queries from a->position on, of one head. */
static void block_back(block *a, const ds_back *b, size_t row, int64_t n_keys, const char *log_sum)
{
    const ds_attention *s = a->s;
    const ds_run *run = b->run;
    const ds_target *out = &run->out[row];
    const bool sunk = a->op->def->member == DS_ATTENTION_ALONG && ds_op_has_weight(a->op, SINKS);
    const size_t e = s->element, h = a->head, i0 = (size_t)(a->position - out->m0),
                 d_u = a->op->n_inputs > U ? (size_t)a->op->in[U].shape[1] : 0,
                 q_bytes = s->d_key * e, v_bytes = s->d_value * e;
    const char *const q = ds_at(&run->in[row], a->position, s->heads * q_bytes);
    a->u = d_u > 0 ? (const char *)ds_at(&run->in[U * run->n_rows + row], a->position,
                                         s->heads * d_u * e) +
                         h * d_u * e
                   : NULL;
    memset(a->dq, 0, a->n * q_bytes);
    memset(a->du, 0, a->n * d_u * sizeof *a->du);
    for (size_t i = 0; i < a->n; i++) {
        const size_t at = ((i0 + i) * s->heads + h) * v_bytes;
        char *const g = (char *)a->g + i * v_bytes;
        memcpy((char *)a->q + i * q_bytes, q + (i * s->heads + h) * q_bytes, q_bytes);
        memcpy(g, (const char *)b->dy[row] + at, v_bytes);
        a->d[i] = DS_BY_ELEMENT(dot, e, g, (const char *)out->data + at, s->d_value);
        a->log_sum[i] = ds_sums_real(log_sum, e, (i0 + i) * s->heads + h);
        if (sunk && a->dsinks && a->log_sum[i] != -(double)INFINITY)
            a->dsinks[h] -= exp(ds_sums_real(run->weights[SINKS], e, h) - a->log_sum[i]) * a->d[i];
    }
    (void)DS_BY_ELEMENT(turn, e, a->q_turned, a->q, a->n, s->d_key);
    (void)DS_BY_ELEMENT(turn, e, a->g_turned, a->g, a->n, s->d_value);
    block_keys_back(a, b, row, h / (s->heads / s->groups), n_keys);
    for (size_t i = 0; i < a->n; i++) {
        const int64_t at = a->position + (int64_t)i;
        char *const dq = ds_slope_at(&b->dx[row], at, s->heads * q_bytes);
        char *const du =
            d_u > 0 ? ds_slope_at(&b->dx[U * run->n_rows + row], at, s->heads * d_u * e) : NULL;
        if (dq)
            ds_back_add(run->k, dq + h * q_bytes, (char *)a->dq + i * q_bytes, s->d_key);
        if (du)
            ds_back_add_sums(run->k, du + h * d_u * e, a->du + i * d_u, d_u);
    }
}

static block begin(const ds_op *op, const ds_back *b, const ds_attention *s, ds_room *room)
{
    const bool along = op->def->member == DS_ATTENTION_ALONG;
    const size_t d_u = ds_attention_terms(op), e = s->element;
    const size_t tile = TILE * e;
    block a = {.op = op,
               .run = b->run,
               .s = s,
               .k_step = s->groups * s->d_key * e,
               .v_step = s->groups * s->d_value * e,
               .scale = s->scale != 0 ? s->scale : 1 / sqrt((double)s->d_key),
               .cap = along ? op->attr[DS_ATTENTION_SOFTCAP].x : 0};
    a.q = ds_room_take(room, BESIDE * s->d_key * e);
    a.g = ds_room_take(room, BESIDE * s->d_value * e);
    a.dq = ds_room_take(room, BESIDE * s->d_key * e);
    a.q_turned = ds_room_take(room, BESIDE * s->d_key * e);
    a.g_turned = ds_room_take(room, BESIDE * s->d_value * e);
    a.k = ds_room_take(room, s->d_key * tile);
    a.aside = ds_room_take(room, (s->d_key + s->d_value) * tile);
    a.weight = ds_room_take(room, BESIDE * tile);
    a.slope = ds_room_take(room, BESIDE * tile);
    a.ones = ds_room_take(room, tile);
    a.capped = ds_room_take(room, BESIDE * TILE * sizeof(double));
    a.du = ds_room_take(room, BESIDE * d_u * sizeof(double));
    a.row = ds_room_take(room, d_u * sizeof(double));
    a.angles = ds_room_take(room, d_u / 2 * sizeof(double));
    for (size_t i = 0; i < TILE; i++)
        ds_sums_set_real(a.ones, e, i, 1);
    for (size_t i = 0; i < d_u / 2 && op->attr[DS_ATTENTION_SINUSOIDS].x != 0; i++)
        a.angles[i] = pow(op->attr[DS_ATTENTION_SINUSOIDS].x, -(double)i / (double)(d_u / 2));
    return a;
}

void ds_attention_backward(const ds_op *op, const ds_back *b)
{
    const ds_attention s = ds_attention_of(op);
    const ds_run *run = b->run;
    ds_room room = {b->scratch};
    double *sums[DS_SUMMED] = {NULL};
    block a = begin(op, b, &s, &room);
    if (op->def->member == DS_ATTENTION_ALONG) /* else weights are keys and values */
        ds_back_sums_begin(op, b, sums, &room);
    a.dbias = sums[BIAS];
    a.drows = sums[ROWS];
    a.dsinks = sums[SINKS];
    const char *log_sum = run->saved[0];
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        if (s.n_kept > 0)
            first_back(op, b, &s, row);
        for (size_t h = 0; h < s.heads; h++) {
            a.head = h;
            a.drop_key = run->drop ? ds_draw(run->drop->keys[row], h) : 0;
            for (a.position = out->m0; a.position < out->m1; a.position += BESIDE) {
                const int64_t left = out->m1 - a.position;
                a.n = left < BESIDE ? (size_t)left : BESIDE;
                block_back(&a, b, row, ds_attention_keys(&s, run, row), log_sum);
            }
        }
        log_sum += (size_t)(out->m1 - out->m0) * s.heads * s.element;
    }
    ds_back_sums_end(op, b, sums);
}
