/* ops/expr: programs of integers against plain arithmetic, saturation, sharing, overflow. */
#include "main.h"
#include "ops/expr.h"

__extension__ typedef __int128 wide;

/* Rounds down by search, without dividing. */
static int64_t slow_floor(int64_t a, int64_t b)
{
    int64_t q = 0;
    if (b > 0) {
        while (q * b > a)
            q--;
        while ((q + 1) * b <= a)
            q++;
        return q;
    }
    return slow_floor(-a, -b);
}

static int64_t eval_one(const ds_program *p, const ds_pair *pairs, int64_t m)
{
    int64_t results[DS_PROGRAM_ROOTS];
    ds_program_eval(p, pairs, m, results);
    return results[0];
}

TEST(division)
{
    for (int64_t a = -30; a <= 30; a++) {
        for (int64_t b = -7; b <= 7; b++) {
            if (b == 0)
                continue;
            const ds_pair pairs[2] = {{a, 0}, {b, 0}};
            ds_program floor = {0}, ceil = {0};
            ds_root(&floor, ds_floordiv(&floor, ds_known(&floor, 0), ds_known(&floor, 1)));
            ds_root(&ceil, ds_ceildiv(&ceil, ds_known(&ceil, 0), ds_known(&ceil, 1)));
            CHECK(eval_one(&floor, pairs, 0) == slow_floor(a, b));
            CHECK(eval_one(&ceil, pairs, 0) == -slow_floor(-a, b));
            ds_program folded = {0};
            ds_root(&folded, ds_floordiv_k(&folded, ds_const(&folded, a), b));
            ds_root(&folded, ds_ceildiv_k(&folded, ds_const(&folded, a), b));
            int64_t results[2];
            ds_program_eval(&folded, NULL, 0, results);
            CHECK(results[0] == slow_floor(a, b) && results[1] == -slow_floor(-a, b));
        }
    }
    ds_program zero = {0};
    ds_root(&zero, ds_floordiv(&zero, ds_m(&zero), ds_const(&zero, 0)));
    CHECK(eval_one(&zero, NULL, 5) == 0);
}

TEST(saturation)
{
    static const int64_t large[] = {
        DS_NEVER, DS_NEVER - 1, DS_NEVER / 2 + 1, (int64_t)1 << 40, 3, 1, 0};
    const int n = sizeof large / sizeof large[0];
    for (int i = 0; i < 4 * n * n; i++) {
        const int64_t a = large[i / 4 % n] * (i % 2 == 0 ? 1 : -1);
        const int64_t b = large[i / 4 / n] * (i / 2 % 2 == 0 ? 1 : -1);
        const ds_pair pairs[2] = {{a, 0}, {b, 0}};
        ds_program p = {0};
        const ds_expr x = ds_known(&p, 0), y = ds_known(&p, 1);
        ds_root(&p, ds_add(&p, x, y));
        ds_root(&p, ds_sub(&p, x, y));
        ds_root(&p, ds_mul(&p, x, y));
        int64_t results[3];
        ds_program_eval(&p, pairs, 0, results);
        const wide exact[3] = {(wide)a + b, (wide)a - b, (wide)a * b};
        for (int j = 0; j < 3; j++) {
            const int64_t want = exact[j] > DS_NEVER    ? DS_NEVER
                                 : exact[j] < -DS_NEVER ? -DS_NEVER
                                                        : (int64_t)exact[j];
            CHECK(results[j] == want);
        }
    }
    ds_program p = {0};
    ds_root(&p, ds_const(&p, INT64_MAX));
    CHECK(eval_one(&p, NULL, 0) == DS_NEVER);
    ds_program m = {0};
    ds_root(&m, ds_add_k(&m, ds_m(&m), 1));
    CHECK(eval_one(&m, NULL, INT64_MAX) == DS_NEVER);
}

/* A random program beside its values, for one set of pairs: folding and sharing change nothing. */
TEST(random)
{
    for (int round = 0; round < 3000; round++) {
        ds_pair pairs[3];
        for (int i = 0; i < 3; i++)
            pairs[i] = (ds_pair){random_in(-40, 40), random_in(-40, 40)};
        const int64_t m = random_in(-40, 40);
        ds_program p = {0};
        ds_expr e[24];
        int64_t v[24];
        for (int i = 0; i < 24; i++) {
            const int a = i > 0 ? (int)random_in(0, i - 1) : 0,
                      b = i > 0 ? (int)random_in(0, i - 1) : 0;
            const int c = i > 0 ? (int)random_in(0, i - 1) : 0;
            const int64_t k = random_in(-3, 3), positive = random_in(1, 4);
            const int which = (int)random_in(0, 2), code = i < 4 ? i : (int)random_in(0, 15);
            /* Values stay small: products of large ones are left out. */
            const bool small = i > 0 && v[a] > -1000 && v[a] < 1000 && v[b] > -1000 && v[b] < 1000;
            switch (code) {
            case 0:
                e[i] = ds_const(&p, k), v[i] = k;
                break;
            case 1:
                e[i] = ds_known(&p, which), v[i] = pairs[which].known;
                break;
            case 2:
                e[i] = ds_total(&p, which), v[i] = pairs[which].total;
                break;
            case 3:
                e[i] = ds_m(&p), v[i] = m;
                break;
            case 4:
                e[i] = ds_add(&p, e[a], e[b]), v[i] = v[a] + v[b];
                break;
            case 5:
                e[i] = ds_sub(&p, e[a], e[b]), v[i] = v[a] - v[b];
                break;
            case 6:
                e[i] = small ? ds_mul(&p, e[a], e[b]) : e[a];
                v[i] = small ? v[a] * v[b] : v[a];
                break;
            case 7:
                e[i] = ds_floordiv(&p, e[a], e[b]);
                v[i] = v[b] == 0 ? 0 : slow_floor(v[a], v[b]);
                break;
            case 8:
                e[i] = ds_ceildiv(&p, e[a], e[b]);
                v[i] = v[b] == 0 ? 0 : -slow_floor(-v[a], v[b]);
                break;
            case 9:
                e[i] = ds_min(&p, e[a], e[b]), v[i] = v[a] < v[b] ? v[a] : v[b];
                break;
            case 10:
                e[i] = ds_max(&p, e[a], e[b]), v[i] = v[a] > v[b] ? v[a] : v[b];
                break;
            case 11:
                e[i] = ds_select(&p, e[a], e[b], e[c]);
                v[i] = v[a] > 0 ? v[b] : v[c];
                break;
            case 12:
                e[i] = ds_add_k(&p, e[a], k), v[i] = v[a] + k;
                break;
            case 13:
                e[i] = ds_floordiv_k(&p, e[a], positive), v[i] = slow_floor(v[a], positive);
                break;
            case 14:
                e[i] = ds_ceildiv_k(&p, e[a], positive), v[i] = -slow_floor(-v[a], positive);
                break;
            default:
                e[i] = small ? ds_mul_k(&p, e[a], k) : e[a];
                v[i] = small ? v[a] * k : v[a];
                break;
            }
        }
        CHECK(!p.full);
        for (int i = 0; i < 24; i++)
            ds_root(&p, e[i]);
        int64_t results[DS_PROGRAM_ROOTS];
        ds_program_eval(&p, pairs, m, results);
        for (int i = 0; i < 24; i++)
            CHECK(results[i] == v[i]);
    }
}

TEST(sharing)
{
    ds_program p = {0};
    const ds_expr known = ds_known(&p, 0);
    CHECK(ds_known(&p, 0) == known && ds_known(&p, 1) != known && ds_total(&p, 0) != known);
    CHECK(ds_add_k(&p, known, 0) == known && ds_mul_k(&p, known, 1) == known);
    CHECK(ds_floordiv_k(&p, known, 1) == known && ds_ceildiv_k(&p, known, 1) == known);
    CHECK(ds_add_k(&p, ds_add_k(&p, known, 7), -7) == known);
    CHECK(ds_sub(&p, ds_add(&p, ds_const(&p, 3), known), ds_const(&p, 3)) == known);
    CHECK(ds_min(&p, known, known) == known && ds_max(&p, known, known) == known);
    CHECK(ds_select(&p, ds_const(&p, 1), known, ds_m(&p)) == known);
    CHECK(ds_select(&p, ds_const(&p, 0), ds_m(&p), known) == known);
    CHECK(ds_add_k(&p, known, 2) == ds_add_k(&p, known, 2));
}

TEST(length_function)
{
    /* ((x - 5) * 3 // 4 + 2) // 2 */
    static const int64_t codes[] = {0, -5, 1, 3, 2, 4, 0, 2, 2, 2};
    ds_program p = {0};
    ds_root(&p, ds_length_function(&p, ds_total(&p, 0), codes, 10));
    for (int64_t n = 0; n < 60; n++) {
        const ds_pair pair = {0, n};
        CHECK(eval_one(&p, &pair, 0) == slow_floor(slow_floor((n - 5) * 3, 4) + 2, 2));
    }
    ds_program same = {0};
    const ds_expr x = ds_total(&same, 0);
    CHECK(ds_length_function(&same, x, codes, 0) == x);
}

TEST(full)
{
    ds_program p = {0};
    for (int i = 0; i < DS_PROGRAM_NODES; i++)
        ds_known(&p, i);
    CHECK(!p.full && p.n_nodes == DS_PROGRAM_NODES);
    ds_const(&p, 77);
    CHECK(p.full);
    ds_program roots = {0};
    for (int i = 0; i < DS_PROGRAM_ROOTS; i++)
        ds_root(&roots, ds_m(&roots));
    CHECK(!roots.full);
    ds_root(&roots, ds_m(&roots));
    CHECK(roots.full);
}
