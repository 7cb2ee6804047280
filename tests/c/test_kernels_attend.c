/* attend: against long double, masked and spoiled keys, and bits in every variant, for queries alone and together. */
#include "test_kernels.h"

enum { QUERIES = 19, KEYS = 230, KEPT = 70, WIDEST = 90 };

typedef struct problem {
    size_t e, n, d_key, d_value, step; /* step: of keys and values, no less than either */
    int64_t at;
    void *q[QUERIES];
    int64_t position[QUERIES], from[QUERIES], to[QUERIES];
    void *u[QUERIES];
    size_t n_rows, d_rows; /* 0: none */
    int64_t rows_first;
    bool turned; /* of the distance sines and cosines, in place of rows */
    double angles[WIDEST / 2], turns[DS_ATTEND_TILE * WIDEST];
    double memory_u[QUERIES * WIDEST], rows[9 * WIDEST];
    double memory_q[QUERIES * WIDEST], keys[KEYS * WIDEST], values[KEYS * WIDEST], table[8];
    double scale;
    size_t n_bias; /* 0: none */
    int64_t first;
    bool linear;
    double softcap, sink[1]; /* none: 0, -inf */
    int64_t n_kept;
    double kept_keys[KEPT * WIDEST], kept_values[KEPT * WIDEST];
} problem;

/* Queries [begin, end); y [QUERIES][d_value]. */
static void run(const problem *p, const ds_real_kernels *k, void *y, size_t begin, size_t end)
{
    void *out[QUERIES];
    for (size_t i = 0; i < p->n; i++)
        out[i] = (char *)y + i * p->d_value * p->e;
    const ds_attend a = {
        .y = out + begin,
        .q = (const void *const *)p->q + begin,
        .position = p->position + begin,
        .from = p->from + begin,
        .to = p->to + begin,
        .n_queries = end - begin,
        .keys = p->keys,
        .values = p->values,
        .at = p->at,
        .kept_keys = p->kept_keys,
        .kept_values = p->kept_values,
        .n_kept = p->n_kept,
        .key_step = p->step,
        .value_step = p->step,
        .d_key = p->d_key,
        .d_value = p->d_value,
        .scale = p->scale,
        .u = (const void *const *)p->u + begin,
        .turns = {.angles = p->turned ? p->angles : NULL, .table = p->turns, .d = p->d_rows},
        .rows = {.table = p->n_rows > 0 && !p->turned ? p->rows : NULL,
                 .first = p->rows_first,
                 .n = p->n_rows,
                 .d = p->d_rows},
        .bias = {.table = p->n_bias > 0 ? p->table : NULL,
                 .first = p->first,
                 .n = p->n_bias,
                 .linear = p->linear},
        .softcap = p->softcap,
        .sink = isinf(get(p->sink, p->e, 0)) ? NULL : p->sink};
    k->attend(&a);
}

static real bias_of(const problem *p, int64_t distance)
{
    if (p->n_bias == 0)
        return 0;
    const int64_t at = distance - p->first, last = (int64_t)p->n_bias - 1;
    const int64_t near = at < 0 ? 0 : at > last ? last : at;
    const real t = (real)get(p->table, p->e, (size_t)near);
    if (near == at || !p->linear || last == 0)
        return t;
    const size_t low = near == 0 ? 0 : (size_t)last - 1;
    return t + (real)(at - near) *
                   ((real)get(p->table, p->e, low + 1) - (real)get(p->table, p->e, low));
}

static real row_of(const problem *p, size_t i, int64_t distance)
{
    const int64_t at = p->rows_first - distance, last = (int64_t)p->n_rows - 1;
    const int64_t near = at < 0 ? 0 : at > last ? last : at;
    real sum = 0;
    for (size_t c = 0; p->turned && c < p->d_rows; c++) {
        const real angle = (real)((double)distance * p->angles[c / 2]);
        sum += (real)get(p->u[i], p->e, c) * (c % 2 == 0 ? sinl(angle) : cosl(angle));
    }
    for (size_t c = 0; p->n_rows > 0 && !p->turned && c < p->d_rows; c++)
        sum += (real)get(p->u[i], p->e, c) * (real)get(p->rows, p->e, (size_t)near * p->d_rows + c);
    return sum;
}

/* Query i by the definition. */
static void check_query(const problem *p, const void *y, size_t i)
{
    static real score[KEPT + KEYS];
    const real sink = (real)get(p->sink, p->e, 0), cap = (real)p->softcap;
    real top = sink, sum = 0, largest = 0;
    const size_t kept = (size_t)(p->from[i] < p->n_kept ? p->from[i] : p->n_kept);
    const size_t n = kept + (size_t)(p->to[i] - p->from[i]), first = (size_t)(p->from[i] - p->at);
    for (size_t j = 0; j < n; j++) {
        const double *const keys = j < kept ? p->kept_keys : p->keys;
        const size_t row = (j < kept ? j : first + j - kept) * p->step;
        const int64_t distance =
            p->position[i] - (j < kept ? (int64_t)j : p->from[i] + (int64_t)(j - kept));
        score[j] = 0;
        for (size_t c = 0; c < p->d_key; c++)
            score[j] += (real)get(p->q[i], p->e, c) * (real)get(keys, p->e, row + c);
        score[j] += row_of(p, i, distance);
        score[j] *= p->scale;
        largest = cap > 0 && fabsl(score[j]) > largest ? fabsl(score[j]) : largest; /* it rounds */
        score[j] = cap > 0 ? cap * tanhl(score[j] / cap) : score[j];
        score[j] += bias_of(p, distance);
        top = score[j] > top ? score[j] : top;
        largest = isfinite(score[j]) && fabsl(score[j]) > largest ? fabsl(score[j]) : largest;
    }
    sum = isinf(top) ? 0 : expl(sink - top);
    for (size_t j = 0; j < n; j++)
        sum += isinf(top) ? 0 : expl(score[j] - top);
    const real unit = unit_of(p->e);
    for (size_t c = 0; c < p->d_value; c++) {
        real ideal = 0, size = 0;
        for (size_t j = 0; j < n && sum > 0; j++) {
            const double *const values = j < kept ? p->kept_values : p->values;
            const size_t row = (j < kept ? j : first + j - kept) * p->step;
            const real v = (real)get(values, p->e, row + c);
            ideal += expl(score[j] - top) / sum * v;
            size += expl(score[j] - top) / sum * fabsl(v);
        }
        const real got = (real)get(y, p->e, i * p->d_value + c);
        CHECK(fabsl(got - ideal) <=
              unit * size * (40 + (real)(p->d_key + p->n_rows * p->d_rows) * (1 + largest)) +
                  0x1p-118L); /* beside a sink all weights may be too small for a float */
    }
}

/* Rows of keys or values, NaN behind each. */
static void fill_rows(void *rows, const problem *p, size_t n, size_t d)
{
    fill(rows, p->e, n * p->step, -3, 3);
    for (size_t i = 0; i < n * p->step; i++)
        if (i % p->step >= d)
            put(rows, p->e, i, (double)NAN);
}

static void draw(problem *p, size_t e, int kind)
{
    p->e = e;
    p->n = random_size(0, QUERIES);
    p->d_key = random_size(1, 70);
    p->d_value = random_size(1, 80);
    const size_t widest = p->d_key > p->d_value ? p->d_key : p->d_value;
    p->step = random_size(0, 1) ? WIDEST - random_size(0, 5)
                                : (widest + 15) / 16 * 16; /* whole lanes, too */
    p->n_kept = (int64_t)(random_size(0, 1) ? 0 : random_size(1, KEPT));
    const int64_t far = p->n_kept > 0 ? 0 : (int64_t)1 << 40; /* there angles are rounded */
    p->at = (int64_t)random_size(0, 1) * far + (int64_t)random_size(0, 200);
    p->scale = 1 / sqrt((double)p->d_key);
    p->n_bias = kind == 0 ? 0 : random_size(1, 8);
    p->first = (int64_t)random_size(0, 6) - 3;
    p->linear = kind == 1;
    fill(p->memory_q, e, QUERIES * WIDEST, -3, 3);
    fill_rows(p->keys, p, KEYS, p->d_key);
    fill_rows(p->values, p, KEYS, p->d_value);
    fill_rows(p->kept_keys, p, KEPT, p->d_key);
    fill_rows(p->kept_values, p, KEPT, p->d_value);
    fill(p->table, e, 8, -2, 2);
    p->softcap = random_size(0, 2) ? 0 : (double)random_size(1, 20) / 4;
    put(p->sink, e, 0, random_size(0, 2) ? -(double)INFINITY : (double)random_size(0, 8) - 4);
    p->n_rows = kind == 2 ? random_size(0, 9) : 0;
    p->d_rows = random_size(1, 70);
    p->rows_first = (int64_t)random_size(0, 12) - 3;
    p->turned = kind == 3;
    if (p->turned) {
        p->n_rows = 1;
        p->d_rows = 2 * random_size(1, WIDEST / 2);
        fill(p->angles, sizeof(double), WIDEST / 2, 0, 1);
        for (size_t i = 0; i < DS_ATTEND_TILE * p->d_rows; i++) {
            const double angle = (double)(i / p->d_rows) * p->angles[i % p->d_rows / 2];
            put(p->turns, e, i, i % 2 == 0 ? sin(angle) : cos(angle));
        }
    }
    fill(p->memory_u, e, QUERIES * WIDEST, -2, 2);
    fill(p->rows, e, 9 * WIDEST, -2, 2);
    for (size_t i = 0; kind == 2 && i < p->n_bias; i += 2)
        put(p->table, e, i, -(double)INFINITY);
    const size_t window = random_size(1, KEYS);
    for (size_t i = 0; i < p->n; i++) {
        const size_t from = random_size(0, 2) ? i : random_size(0, KEYS);
        p->q[i] = (char *)p->memory_q + i * WIDEST * e;
        p->u[i] = (char *)p->memory_u + i * WIDEST * e;
        p->from[i] = p->at + (int64_t)from;
        p->to[i] = p->at + (int64_t)(from + window < KEYS ? from + window : KEYS);
        p->position[i] = p->at + (int64_t)random_size(0, KEYS);
    }
}

/* A key that is NaN spoils those who see it, and no others. */
static void test_spoiled(problem *p, const ds_real_kernels *k, const void *clean)
{
    const int64_t bad = p->at + KEYS / 2;
    for (size_t c = 0; c < p->step; c++) {
        put(p->keys, p->e, KEYS / 2 * p->step + c, (double)NAN);
        put(p->values, p->e, KEYS / 2 * p->step + c, (double)NAN);
    }
    guarded y = guarded_new(p->n * p->d_value * p->e);
    run(p, k, y.data, 0, p->n);
    for (size_t i = 0; i < p->n; i++) {
        const size_t at = i * p->d_value;
        if (p->from[i] <= bad && bad < p->to[i])
            CHECK(isnan(get(y.data, p->e, at)));
        else
            CHECK(same((char *)y.data + at * p->e, (const char *)clean + at * p->e, p->e,
                       p->d_value));
    }
    guarded_free(y);
}

static void test_attend(const variants *all)
{
    static problem p;
    const size_t e = all->element;
    for (int round = 0; round < SOME_OF(150); round++) {
        draw(&p, e, round % 4);
        const size_t n_bytes = p.n * p.d_value * e;
        guarded expected = guarded_new(n_bytes);
        run(&p, all->k[0], expected.data, 0, p.n);
        for (size_t i = 0; i < p.n; i++)
            check_query(&p, expected.data, i);
        for (size_t v = 0; v < all->n; v++) {
            const ds_real_kernels *const k = all->k[v];
            guarded together = guarded_new(n_bytes), alone = guarded_new(n_bytes);
            run(&p, k, together.data, 0, p.n);
            for (size_t i = 0; i < p.n; i++)
                run(&p, k, alone.data, i, i + 1);
            CHECK(same(together.data, expected.data, e, p.n * p.d_value));
            CHECK(same(alone.data, expected.data, e, p.n * p.d_value));
            guarded_free(together);
            guarded_free(alone);
        }
        test_spoiled(&p, all->k[(size_t)round % all->n], expected.data);
        guarded_free(expected);
    }
}

KERNEL_TESTS(test_attend)
