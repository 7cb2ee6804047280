/* ir/stairs: functions that repeat against their definition, frame by frame: random programs over random
 * operands, near the start and far away; what does not repeat is refused. */
#include "graph_cases.h"
#include "ir/stairs.h"

enum { MOST = 12, NEAR = 400 };

static ds_stairs_maker maker;

/* Operands and results so far, and how each was made. */
typedef struct made {
    const ds_stairs *f[MOST];
    ds_expr_code code[MOST];
    int64_t k[MOST][3]; /* of a line: period, gain, plus; else operands */
    int n;
} made;

static int64_t direct(const made *c, int i, int64_t n)
{
    const int64_t *k = c->k[i];
    if (c->code[i] == DS_EXPR_M)
        return (int64_t)((__extension__(__int128) n * k[1]) / k[0]) + k[2];
    if (c->code[i] == DS_EXPR_CONST)
        return k[0];
    return ds_expr_apply(c->code[i], direct(c, (int)k[0], n), direct(c, (int)k[1], n),
                         c->code[i] == DS_EXPR_SELECT ? direct(c, (int)k[2], n) : 0);
}

static void add_operand(made *c)
{
    int64_t *k = c->k[c->n];
    if (random_below(2) == 0) {
        c->code[c->n] = DS_EXPR_CONST;
        k[0] = random_in(1, 6) * (random_below(3) == 0 ? -1 : 1) + (random_below(6) == 0 ? 100 : 0);
        k[0] += k[0] == 0;
        CHECK(ds_stairs_constant(&maker, &c->f[c->n], k[0]) == DS_OK);
    } else {
        c->code[c->n] = DS_EXPR_M;
        k[0] = random_in(1, 5);
        do {
            k[1] = random_in(1, 5); /* in lowest terms */
        } while (ds_greatest_divisor(k[0], k[1]) != 1);
        k[2] = random_in(-9, 9);
        CHECK(ds_stairs_line(&maker, &c->f[c->n], k[0], k[1], k[2]) == DS_OK);
    }
    c->n++;
}

/* May be refused, and then is not there: products of what grows. */
static void add_result(made *c)
{
    static const ds_expr_code codes[] = {DS_EXPR_ADD,      DS_EXPR_SUB,     DS_EXPR_MUL,
                                         DS_EXPR_FLOORDIV, DS_EXPR_CEILDIV, DS_EXPR_MIN,
                                         DS_EXPR_MAX,      DS_EXPR_SELECT};
    const ds_expr_code code = codes[random_below(8)];
    int64_t *k = c->k[c->n];
    for (int i = 0; i < 3; i++)
        k[i] = random_below(c->n);
    c->code[c->n] = code;
    const ds_status status = ds_stairs_apply(&maker, &c->f[c->n], code, c->f[k[0]], c->f[k[1]],
                                             code == DS_EXPR_SELECT ? c->f[k[2]] : NULL);
    CHECK(status == DS_OK || code == DS_EXPR_MUL || code == DS_EXPR_FLOORDIV ||
          code == DS_EXPR_CEILDIV);
    c->n += status == DS_OK;
}

static void check_function(const made *c, int i)
{
    const ds_stairs *f = c->f[i];
    const ds_flight *last = ds_stairs_last(f);
    int64_t largest = -DS_NEVER, first = -1;
    ds_stairs_summary sum;
    CHECK(ds_stairs_summarise(&maker, f, &sum) == DS_OK);
    for (int64_t n = 0; n < NEAR; n++) {
        const int64_t value = direct(c, i, n);
        CHECK(ds_stairs_at(f, n) == value);
        CHECK(n == 0 || ds_stairs_after(f, n - 1) == n || value == direct(c, i, n - 1));
        largest = value > largest && n < last->start + last->period ? value : largest;
        first = value != 0 && first < 0 ? n : first;
    }
    if (last->start + last->period < NEAR) {
        CHECK(sum.most == largest && sum.nonzero == first);
        CHECK((sum.positive >= 0) == (largest > 0) &&
              (sum.positive < 0 || direct(c, i, sum.positive) > 0));
    }
    for (int trial = 0; trial < 20; trial++) {
        const int64_t n = last->start + (random_below(1 << 20) << random_below(11));
        CHECK(ds_stairs_at(f, n) == direct(c, i, n));
    }
    /* It begins to repeat no later than it does, and no shorter period holds from there on. */
    const int64_t before = last->start - 1;
    CHECK(before < 0 || direct(c, i, before + last->period) != direct(c, i, before) + last->gain);
    for (int64_t part = 2; part <= last->period && last->period < NEAR; part++) {
        const int64_t shorter = last->period / part;
        bool holds = last->period % part == 0 && last->gain % part == 0;
        for (int64_t n = last->start; n < last->start + last->period && holds; n++)
            holds = direct(c, i, n + shorter) == direct(c, i, n) + last->gain / part;
        CHECK(!holds);
    }
}

/* What one is above another by, where both ascend. */
static void check_apart(const made *c, int i, int j)
{
    const ds_stairs *f = c->f[i], *g = c->f[j];
    const int64_t late_f = ds_stairs_last(f)->start, late_g = ds_stairs_last(g)->start;
    int64_t most, gain, period, largest = -DS_NEVER;
    bool ascends = true;
    for (int64_t n = 1; n < NEAR; n++)
        ascends &= direct(c, i, n) >= direct(c, i, n - 1);
    CHECK(!ds_stairs_ascends(f) || ascends);
    CHECK(ds_stairs_ascends(f) || !ascends || late_f + 2 * ds_stairs_last(f)->period >= NEAR);
    if (!ds_stairs_ascends(f) || !ds_stairs_ascends(g))
        return;
    CHECK(ds_stairs_apart(&maker, f, g, &most, &gain, &period) == DS_OK);
    const int64_t late = late_f > late_g ? late_f : late_g;
    if (late + period >= NEAR)
        return;
    for (int64_t n = 0; n < late + period; n++) {
        const int64_t apart = direct(c, i, n) - direct(c, j, n);
        largest = apart > largest ? apart : largest;
    }
    CHECK(most == largest);
    CHECK(direct(c, i, late + period) - direct(c, j, late + period) ==
          direct(c, i, late) - direct(c, j, late) + gain);
}

TEST(random)
{
    for (int trial = 0; trial < SOME_OF(3000); trial++) {
        made c = {.n = 0};
        for (int i = 0; i < 4; i++)
            add_operand(&c);
        for (int i = 0; i < 7; i++)
            add_result(&c);
        for (int i = 0; i < c.n; i++)
            check_function(&c, i);
        for (int i = 0; i < c.n; i++)
            check_apart(&c, i, (int)random_below(c.n));
        ds_arena_reset(&maker.arena);
    }
}

/* A stretch of 2^40 frames takes no time. */
TEST(long)
{
    const ds_stairs *line, *late, *zero, *f, *next;
    CHECK(ds_stairs_line(&maker, &line, 3, 1, 0) == DS_OK);
    CHECK(ds_stairs_line(&maker, &late, 1, 1, -((int64_t)1 << 40)) == DS_OK);
    CHECK(ds_stairs_constant(&maker, &zero, 0) == DS_OK);
    const int64_t work = maker.work;
    CHECK(ds_stairs_apply(&maker, &f, DS_EXPR_SELECT, late, line, zero) == DS_OK);
    CHECK(work - maker.work < 200);
    CHECK(ds_stairs_last(f)->start == ((int64_t)1 << 40) + 1 && ds_stairs_last(f)->period == 3);
    CHECK(ds_stairs_at(f, (int64_t)1 << 40) == 0);
    CHECK(ds_stairs_at(f, ((int64_t)1 << 40) + 1) == (((int64_t)1 << 40) + 1) / 3);
    CHECK(ds_stairs_next(&maker, &next, f) == DS_OK);
    CHECK(ds_stairs_at(next, (int64_t)1 << 40) == ds_stairs_at(f, ((int64_t)1 << 40) + 1));
    CHECK(failed(ds_stairs_apply(&maker, &f, DS_EXPR_MUL, line, line, NULL), DS_LIMIT, "products"));
    CHECK(failed(ds_stairs_apply(&maker, &f, DS_EXPR_FLOORDIV, late, line, NULL), DS_LIMIT,
                 "divided"));
    CHECK(failed(ds_stairs_line(&maker, &f, (int64_t)1 << 40, 1, 0), DS_LIMIT, "period"));
    maker.work = 3;
    CHECK(failed(ds_stairs_line(&maker, &f, 10, 7, 0), DS_LIMIT, "too large"));
}

int main(void)
{
    count_memory();
    maker.work = (int64_t)1 << 40;
    ds_arena_init(&maker.arena, &hooks);
    run_tests();
    ds_arena_free(&maker.arena);
    return report_memory();
}
