/* column_sums and column_scale: against long double, and bits in every variant; adam and sgd: bits. */
#include "test_kernels.h"

enum { WIDEST = 300, ROWS = 5 };

static double x[ROWS * WIDEST], arrays[4][WIDEST], centre[WIDEST];

/* Sums in one go are sums row by row. */
static void test_column_sums(const variants *all)
{
    const size_t e = all->element;
    for (size_t n = 1; n <= 70; n++) {
        fill(x, e, ROWS * n, 1000, 1001);
        for (int about = 0; about < 2; about++) {
            double expected[70] = {0};
            for (size_t i = 0; i < ROWS * n; i++) {
                const double v = get(x, e, i), d = v - centre[i % n];
                expected[i % n] += about ? d * d : v;
            }
            for (size_t v = 0; v < all->n; v++) {
                const ds_real_kernels *const k = all->k[v];
                guarded sums = guarded_new(n * sizeof(double));
                memset(sums.data, 0, n * sizeof(double));
                k->column_sums(sums.data, x, ROWS, n, about ? centre : NULL);
                CHECK(memcmp(sums.data, expected, n * sizeof(double)) == 0);
                memset(sums.data, 0, n * sizeof(double));
                for (size_t m = 0; m < ROWS; m++)
                    k->column_sums(sums.data, (char *)x + m * n * e, 1, n, about ? centre : NULL);
                CHECK(memcmp(sums.data, expected, n * sizeof(double)) == 0);
                guarded_free(sums);
            }
        }
    }
}

static void test_column_scale(const variants *all)
{
    const size_t e = all->element;
    for (size_t n = 1; n <= 70; n++) {
        fill(x, e, ROWS * n, -3, 5);
        guarded first = guarded_new(ROWS * n * e);
        for (size_t v = 0; v < all->n; v++) {
            guarded y = guarded_new(ROWS * n * e);
            memcpy(y.data, x, ROWS * n * e); /* in place */
            all->k[v]->column_scale(y.data, y.data, ROWS, n, arrays[0], arrays[1], arrays[2],
                                    arrays[3]);
            if (v == 0)
                memcpy(first.data, y.data, ROWS * n * e);
            CHECK(same(y.data, first.data, e, ROWS * n));
            guarded_free(y);
        }
        for (size_t i = 0; i < ROWS * n; i++) {
            const size_t c = i % n;
            const real d =
                (real)get(x, e, i) - (real)get(arrays[0], e, c) - (real)get(arrays[1], e, c);
            const real expected = d * (real)get(arrays[2], e, c) + (real)get(arrays[3], e, c);
            CHECK(fabsl((real)get(first.data, e, i) - expected) <= 64 * unit_of(e));
        }
        guarded_free(first);
    }
}

/* A step of each optimizer, over more elements than are updated at once: parameters and what is remembered. */
static void test_updates(const variants *all)
{
    enum { N = WIDEST, N_ARRAYS = 4 };
    const size_t e = all->element;
    guarded first[N_ARRAYS], own[N_ARRAYS];
    fill(x, e, N, -2, 2);
    for (int a = 0; a < N_ARRAYS; a++) {
        first[a] = guarded_new(N * e);
        own[a] = guarded_new(N * e);
    }
    for (int way = 0; way < 16; way++)
        for (size_t v = 0; v < all->n; v++) {
            for (int a = 0; a < N_ARRAYS; a++)
                memcpy(own[a].data, arrays[a], N * e);
            for (size_t i = 0; i < N; i++)
                put(own[2].data, e, i, fabs(get(own[2].data, e, i)));
            const ds_update u = {.p = own[0].data,
                                 .g = x,
                                 .mean = way & 8 ? NULL : own[1].data,
                                 .square = own[2].data,
                                 .most = way & 1 ? own[3].data : NULL,
                                 .n = N,
                                 .nesterov = way & 1,
                                 .first = way & 2,
                                 .decay = way & 2 ? 0.1 : 0,
                                 .shrink = 0.99,
                                 .part = way & 4 ? 0.1 : 0.7,
                                 .keep = 0.9,
                                 .fresh = 0.1,
                                 .root = 0.5,
                                 .eps = 1e-8,
                                 .rate = 0.01};
            const ds_real_kernels *const k = all->k[v];
            if (u.mean)
                k->adam(&u);
            k->sgd(&u);
            for (int a = 0; a < N_ARRAYS; a++) {
                if (v == 0)
                    memcpy(first[a].data, own[a].data, N * e);
                CHECK(same(own[a].data, first[a].data, e, N));
            }
        }
    for (int a = 0; a < N_ARRAYS; a++) {
        guarded_free(first[a]);
        guarded_free(own[a]);
    }
}

/* What all tests below read besides their rows. */
static void fill_arrays(const variants *all)
{
    for (int i = 0; i < 4; i++)
        fill(arrays[i], all->element, WIDEST, -2, 2);
    fill(centre, sizeof(double), WIDEST, 1000, 1001);
}

KERNEL_TESTS(fill_arrays, test_column_sums, test_column_scale, test_updates)
