/* ops/attention_back.c: attention read backwards (ops/attention.c has what it is).
 *
 * With p the weight that a query's softmax gives a key, g the slopes of its output y, and D = g . y:
 *
 *     slope of the score    ds = p (g . v - D)      and of a sink's score, whose value is 0: -p D
 *     of the bias of the distance   ds              behind a softcap c:   ds (1 - (capped / c)^2)
 *     with e = ds scale:   q' += e k   k' += e q   u' += e row   row' += e u   v' += p g
 *
 * Weights are made again, by two passes over the keys: one for the greatest score and the sum of exponentials, one for
 * the slopes. Queries come one by one, each with all its keys in turn. */
#include <math.h>
#include <string.h>

#include "kernels/turn.h"
#include "ops/attention.h"
#include "ops/sums.h"

enum { Q = DS_ATTENTION_Q, K, V, U };
enum { BIAS, ROWS, SINKS };
enum { TILE = 64, LANES = 8 };

/* Keys [from, to) that lie one after another. */
typedef struct run_of_keys {
    int64_t from, to;
    const char *k, *v; /* of key `from`, of one head */
    char *dk, *dv;     /* their slopes; NULL: not wanted */
} run_of_keys;

typedef struct query {
    const ds_op *op;
    const ds_run *run;
    const ds_attention *s;
    size_t head, k_step, v_step; /* bytes from a key to the next */
    int64_t position;
    const void *q, *u, *y, *g;
    run_of_keys keys[6]; /* kept and new, each of which may be split in two */
    int n_keys;
    double scale, cap;
    double *dq, *du;                /* in double */
    double *dbias, *drows, *dsinks; /* of all heads; NULL: not wanted */
    double *angles, *row;           /* of sines and cosines; a row by distance */
} query;

void ds_attention_set_back_sizes(ds_op *op)
{
    size_t n = 0;
    for (int i = BIAS; i <= SINKS && op->def->member == DS_ATTENTION_ALONG; i++)
        n += ds_op_has_weight(op, i) ? (size_t)ds_signature_elements(&op->weight[i]) : 0;
    const size_t d_u = op->n_inputs > U ? (size_t)op->in[U].shape[1] : 0;
    n += (size_t)op->in[Q].shape[1] + 3 * d_u;
    op->back_scratch.per_call = n * sizeof(double) + 8 * (size_t)DS_ALIGNMENT;
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

/* The row of the distance to key j, in double: its place in the table, or -1 where it is made. */
static int64_t row_of(const query *a, int64_t j, size_t d_u)
{
    const int64_t distance = a->position - j;
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
static void bias_of(const query *a, int64_t j, size_t *entry, double *weigh)
{
    const ds_signature *bias = &a->op->weight[BIAS];
    const int64_t n = bias->shape[1], last = n - 1,
                  i = a->position - j - a->op->attr[DS_ATTENTION_FIRST].i,
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

/* What a query scores a key; *capped: before the bias. */
DS_FOR_ELEMENT double score_of(const query *a, const char *k, int64_t j, double *capped, size_t e)
{
    const bool along = a->op->def->member == DS_ATTENTION_ALONG;
    const size_t d_u = a->u ? (size_t)a->op->in[U].shape[1] : 0;
    double score = dot(a->q, k, a->s->d_key, e);
    if (d_u > 0) {
        (void)row_of(a, j, d_u);
        for (size_t i = 0; i < d_u; i++)
            score += ds_sums_real(a->u, e, i) * a->row[i];
    }
    score *= a->scale;
    *capped = a->cap != 0 ? a->cap * tanh(score / a->cap) : score;
    score = *capped;
    if (along && ds_op_has_weight(a->op, BIAS)) {
        size_t entry[2];
        double weigh[2];
        bias_of(a, j, entry, weigh);
        score += weigh[0] * ds_sums_real(a->run->weights[BIAS], e, entry[0]);
        if (weigh[1] != 0)
            score += weigh[1] * ds_sums_real(a->run->weights[BIAS], e, entry[1]);
    }
    return score;
}

/* exp(score - top) of n scores, by the kernels. */
DS_FOR_ELEMENT void exponentials(const query *a, double *score, double top, size_t n, size_t e)
{
    double room[TILE];
    for (size_t i = 0; i < n; i++)
        ds_sums_set_real(room, e, i, score[i] - top);
    a->run->k->unary(DS_UNARY_EXP, room, room, n, NULL);
    for (size_t i = 0; i < n; i++)
        score[i] = ds_sums_real(room, e, i);
}

/* Slopes that one key has of a query. */
DS_FOR_ELEMENT void key_back(const query *a, const run_of_keys *r, int64_t j, double p,
                             double capped, double d, size_t e)
{
    const ds_attention *s = a->s;
    const size_t at = (size_t)(j - r->from), d_u = a->u ? (size_t)a->op->in[U].shape[1] : 0;
    const char *const k = r->k + at * a->k_step, *const v = r->v + at * a->v_step;
    char *const dk = r->dk ? r->dk + at * a->k_step : NULL;
    char *const dv = r->dv ? r->dv + at * a->v_step : NULL;
    double ds = p * (dot(a->g, v, s->d_value, e) - d);
    for (size_t i = 0; i < s->d_value && dv; i++)
        ds_back_add_real(dv, e, i, p * ds_sums_real(a->g, e, i));
    if (a->dbias) {
        size_t entry[2];
        double weigh[2];
        bias_of(a, j, entry, weigh);
        a->dbias[entry[0]] += ds * weigh[0];
        a->dbias[entry[1]] += ds * weigh[1];
    }
    if (a->cap != 0)
        ds *= 1 - capped / a->cap * (capped / a->cap);
    ds *= a->scale;
    for (size_t i = 0; i < s->d_key; i++)
        a->dq[i] += ds * ds_sums_real(k, e, i);
    for (size_t i = 0; i < s->d_key && dk; i++)
        ds_back_add_real(dk, e, i, ds * ds_sums_real(a->q, e, i));
    if (d_u > 0) {
        const int64_t place = row_of(a, j, d_u);
        for (size_t i = 0; i < d_u; i++) {
            a->du[i] += ds * a->row[i];
            if (a->drows && place >= 0)
                a->drows[(size_t)place * d_u + i] += ds * ds_sums_real(a->u, e, i);
        }
    }
}

DS_FOR_ELEMENT int query_back(const query *a, size_t e)
{
    const double sink = a->op->def->member == DS_ATTENTION_ALONG && ds_op_has_weight(a->op, SINKS)
                            ? ds_sums_real(a->run->weights[SINKS], e, a->head)
                            : -(double)INFINITY;
    double top = sink, sum = isinf(sink) ? 0 : 1, capped[TILE], score[TILE];
    const double d = dot(a->g, a->y, a->s->d_value, e);
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < a->n_keys; r++)
            for (int64_t j = a->keys[r].from; j < a->keys[r].to; j += TILE) {
                const run_of_keys *keys = &a->keys[r];
                const size_t n = (size_t)(keys->to - j < TILE ? keys->to - j : TILE);
                double here = -(double)INFINITY;
                for (size_t i = 0; i < n; i++) {
                    const size_t at = (size_t)(j - keys->from) + i;
                    score[i] = score_of(a, keys->k + at * a->k_step, j + (int64_t)i, &capped[i], e);
                    here = score[i] > here ? score[i] : here;
                }
                if (pass == 0 && here > top) {
                    sum *= exp(top - here);
                    top = here;
                }
                if (top == -(double)INFINITY) /* all are masked */
                    continue;
                exponentials(a, score, top, n, e);
                for (size_t i = 0; i < n; i++) {
                    if (pass == 0)
                        sum += score[i];
                    else if (score[i] != 0)
                        key_back(a, keys, j + (int64_t)i, score[i] / sum, capped[i], d, e);
                }
            }
    }
    if (a->dsinks && !isinf(sink))
        a->dsinks[a->head] -= exp(sink - top) / sum * d;
    return 0;
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

/* Adds the keys [from, to) that lie in a window, those whose slopes are not wanted apart. */
static void add_keys(query *a, const ds_window *in, const ds_slope *dx, int64_t from, int64_t to,
                     size_t group)
{
    const size_t k_at = group * a->s->d_key * a->s->element,
                 v_at = group * a->s->d_value * a->s->element;
    for (int64_t next; from < to; from = next) {
        const int64_t at = dx[0].at > dx[1].at ? dx[0].at : dx[1].at;
        next = from < at && at < to ? at : to;
        char *const dk = from < at ? NULL : ds_slope_at(&dx[0], from, a->k_step);
        char *const dv = from < at ? NULL : ds_slope_at(&dx[1], from, a->v_step);
        a->keys[a->n_keys++] = (run_of_keys){from,
                                             next,
                                             (const char *)ds_at(&in[0], from, a->k_step) + k_at,
                                             (const char *)ds_at(&in[1], from, a->v_step) + v_at,
                                             dk ? dk + k_at : NULL,
                                             dv ? dv + v_at : NULL};
    }
}

/* Slopes of what the row keeps of the first keys: of those that came in this call they are new frames'. */
static void first_back(const ds_op *op, const ds_back *b, const ds_attention *s, size_t row)
{
    for (int i = K; i <= V; i++) {
        const ds_counts *count = &b->run->count[(size_t)i * b->run->n_rows + row];
        const size_t n = s->groups * (i == K ? s->d_key : s->d_value), n_bytes = n * s->element;
        const int64_t end = count->now.known < s->n_kept ? count->now.known : s->n_kept;
        char *const kept = (char *)b->dcarried[row] + op->carried[i - K].offset;
        for (int64_t j = count->before.known; j < end; j++) {
            char *const from = kept + (size_t)j * n_bytes;
            void *const to = ds_slope_at(&b->dx[(size_t)i * b->run->n_rows + row], j, n_bytes);
            if (to)
                ds_back_add(b->run->k, to, from, n);
            memset(from, 0, n_bytes);
        }
    }
}

/* The keys that a query of a group of heads sees. */
static void see(query *a, const ds_back *b, size_t row, size_t group, int64_t n_keys)
{
    const ds_attention *s = a->s;
    ds_window in[2];
    ds_slope dx[2];
    int64_t from, to;
    for (int i = K; i <= V; i++)
        window_of(a->op, b, i, row, &in[i - K], &dx[i - K]);
    ds_attention_sees(s, a->position, n_keys, &from, &to);
    a->n_keys = 0;
    if (s->n_kept > 0) {
        const int64_t known = a->run->count[K * a->run->n_rows + row].before.known,
                      end = from < s->n_kept ? from : s->n_kept, old = known < end ? known : end;
        ds_window kept[2];
        ds_slope dkept[2];
        for (int i = 0; i < 2; i++) {
            kept[i] = (ds_window){ds_run_carried(a->op, a->run, row, i), 0, s->n_kept};
            dkept[i] =
                (ds_slope){(char *)b->dcarried[row] + a->op->carried[i].offset, 0, s->n_kept};
        }
        add_keys(a, kept, dkept, 0, old, group);
        add_keys(a, in, dx, old, end, group);
    }
    add_keys(a, in, dx, from, to, group);
}

static void row_back(query *a, const ds_back *b, size_t row)
{
    const ds_attention *s = a->s;
    const ds_run *run = b->run;
    const ds_target *out = &run->out[row];
    const size_t e = s->element, per = s->heads / s->groups,
                 d_u = a->op->n_inputs > U ? (size_t)a->op->in[U].shape[1] : 0;
    const int64_t n_keys = ds_attention_keys(s, run, row);
    const size_t q_bytes = s->heads * s->d_key * e, v_bytes = s->heads * s->d_value * e,
                 u_bytes = s->heads * d_u * e;
    for (int64_t i = out->m0; i < out->m1; i++)
        for (size_t h = 0; h < s->heads; h++) {
            const ds_slope *const du = d_u > 0 ? &b->dx[U * run->n_rows + row] : NULL;
            char *const dq = ds_slope_at(&b->dx[row], i, q_bytes);
            char *const to_u = du ? ds_slope_at(du, i, u_bytes) : NULL;
            const size_t v_at = (size_t)(i - out->m0) * v_bytes + h * s->d_value * e;
            a->head = h;
            a->position = i;
            a->q = (const char *)ds_at(&run->in[row], i, q_bytes) + h * s->d_key * e;
            a->u = d_u > 0 ? (const char *)ds_at(&run->in[U * run->n_rows + row], i, u_bytes) +
                                 h * d_u * e
                           : NULL;
            a->y = (const char *)out->data + v_at;
            a->g = (const char *)b->dy[row] + v_at;
            memset(a->dq, 0, s->d_key * sizeof *a->dq);
            memset(a->du, 0, d_u * sizeof *a->du);
            see(a, b, row, h / per, n_keys);
            (void)DS_BY_ELEMENT(query_back, e, a);
            if (dq)
                ds_back_add_sums(run->k, dq + h * s->d_key * e, a->dq, s->d_key);
            if (to_u)
                ds_back_add_sums(run->k, to_u + h * d_u * e, a->du, d_u);
        }
}

void ds_attention_backward(const ds_op *op, const ds_back *b)
{
    const ds_attention s = ds_attention_of(op);
    const bool along = op->def->member == DS_ATTENTION_ALONG;
    const size_t d_u = op->n_inputs > U ? (size_t)op->in[U].shape[1] : 0;
    ds_room room = {b->scratch};
    double *sums[SINKS + 1] = {NULL};
    query a = {.op = op,
               .run = b->run,
               .s = &s,
               .k_step = s.groups * s.d_key * s.element,
               .v_step = s.groups * s.d_value * s.element,
               .scale = s.scale != 0 ? s.scale : 1 / sqrt((double)s.d_key),
               .cap = along ? op->attr[DS_ATTENTION_SOFTCAP].x : 0};
    a.dq = ds_room_take(&room, s.d_key * sizeof(double));
    a.du = ds_room_take(&room, d_u * sizeof(double));
    a.row = ds_room_take(&room, d_u * sizeof(double));
    a.angles = ds_room_take(&room, d_u / 2 * sizeof(double));
    for (size_t i = 0; i < d_u / 2 && op->attr[DS_ATTENTION_SINUSOIDS].x != 0; i++)
        a.angles[i] = pow(op->attr[DS_ATTENTION_SINUSOIDS].x, -(double)i / (double)(d_u / 2));
    for (int i = BIAS; i <= SINKS && along; i++)
        if (ds_op_has_weight(op, i) && b->dweights[i]) {
            const size_t n = (size_t)ds_signature_elements(&op->weight[i]);
            sums[i] = ds_room_take(&room, n * sizeof(double));
            memset(sums[i], 0, n * sizeof(double));
        }
    a.dbias = sums[BIAS];
    a.drows = sums[ROWS];
    a.dsinks = sums[SINKS];
    for (size_t row = 0; row < b->run->n_rows; row++) {
        if (s.n_kept > 0)
            first_back(op, b, &s, row);
        row_back(&a, b, row);
    }
    for (int i = BIAS; i <= SINKS; i++)
        if (sums[i])
            ds_back_add_sums(b->run->k, b->dweights[i], sums[i],
                             (size_t)ds_signature_elements(&op->weight[i]));
}
