/* rms_norm, column_sums and column_scale: against long double, and bits in every variant; adam and sgd: bits. */
#include "test_kernels.h"

typedef long double real;
enum { WIDEST = 300, ROWS = 5 };

static double x[ROWS * WIDEST], arrays[4][WIDEST], centre[WIDEST];

static real unit_of(size_t element)
{
    return element == sizeof(float) ? 0x1p-24L : 0x1p-53L;
}

static void check_rms_norm(const void *y, size_t e, size_t row, size_t n, const void *weight,
                           double epsilon)
{
    real square = (real)epsilon;
    for (size_t i = 0; i < n; i++) {
        const real v = (real)get(x, e, row * n + i);
        square += v * v / (real)n;
    }
    for (size_t i = 0; i < n; i++) {
        const real w = weight != NULL ? (real)get(weight, e, i) : 1;
        const real expected = (real)get(x, e, row * n + i) / sqrtl(square) * w;
        CHECK(fabsl((real)get(y, e, row * n + i) - expected) <= 16 * unit_of(e) * fabsl(expected));
    }
}

static void test_rms_norm(const ds_kernels *const *variants, size_t n_variants, size_t real_at)
{
    const size_t e = variants[0]->real[real_at].element;
    for (size_t n = 1; n <= WIDEST; n += n < 70 ? 1 : 37) {
        const void *weight = n % 2 ? arrays[0] : NULL;
        const double epsilon = n % 3 ? 1e-6 : 0.5;
        fill(x, e, ROWS * n, -3, 5);
        guarded first = guarded_new(ROWS * n * e), alone = guarded_new(n * e);
        for (size_t v = 0; v < n_variants; v++) {
            const ds_real_kernels *const k = &variants[v]->real[real_at];
            guarded y = guarded_new(ROWS * n * e);
            k->rms_norm(y.data, x, ROWS, n, weight, epsilon);
            if (v == 0)
                memcpy(first.data, y.data, ROWS * n * e);
            CHECK(same(y.data, first.data, e, ROWS * n));
            for (size_t m = 0; m < ROWS; m++) { /* alone, in place */
                memcpy(alone.data, (const char *)x + m * n * e, n * e);
                k->rms_norm(alone.data, alone.data, 1, n, weight, epsilon);
                CHECK(same(alone.data, (char *)first.data + m * n * e, e, n));
            }
            guarded_free(y);
        }
        for (size_t m = 0; m < ROWS; m++)
            check_rms_norm(first.data, e, m, n, weight, epsilon);
        guarded_free(first);
        guarded_free(alone);
    }
}

/* Sums in one go are sums row by row. */
static void test_column_sums(const ds_kernels *const *variants, size_t n_variants, size_t real_at)
{
    const size_t e = variants[0]->real[real_at].element;
    for (size_t n = 1; n <= 70; n++) {
        fill(x, e, ROWS * n, 1000, 1001);
        for (int about = 0; about < 2; about++) {
            double expected[70] = {0};
            for (size_t i = 0; i < ROWS * n; i++) {
                const double v = get(x, e, i), d = v - centre[i % n];
                expected[i % n] += about ? d * d : v;
            }
            for (size_t v = 0; v < n_variants; v++) {
                const ds_real_kernels *const k = &variants[v]->real[real_at];
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

static void test_column_scale(const ds_kernels *const *variants, size_t n_variants, size_t real_at)
{
    const size_t e = variants[0]->real[real_at].element;
    for (size_t n = 1; n <= 70; n++) {
        fill(x, e, ROWS * n, -3, 5);
        guarded first = guarded_new(ROWS * n * e);
        for (size_t v = 0; v < n_variants; v++) {
            guarded y = guarded_new(ROWS * n * e);
            memcpy(y.data, x, ROWS * n * e); /* in place */
            variants[v]->real[real_at].column_scale(y.data, y.data, ROWS, n, arrays[0], arrays[1],
                                                    arrays[2], arrays[3]);
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
static void test_updates(const ds_kernels *const *variants, size_t n_variants, size_t real_at)
{
    enum { N = WIDEST, N_ARRAYS = 4 };
    const size_t e = variants[0]->real[real_at].element;
    guarded first[N_ARRAYS], own[N_ARRAYS];
    fill(x, e, N, -2, 2);
    for (int a = 0; a < N_ARRAYS; a++) {
        first[a] = guarded_new(N * e);
        own[a] = guarded_new(N * e);
    }
    for (int way = 0; way < 16; way++)
        for (size_t v = 0; v < n_variants; v++) {
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
            const ds_real_kernels *const k = &variants[v]->real[real_at];
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

int main(void)
{
    const ds_kernels *variants[MAX_VARIANTS];
    const size_t n_variants = runnable(variants);
    for (size_t real_at = 0; real_at < 2; real_at++) {
        const size_t e = variants[0]->real[real_at].element;
        for (int i = 0; i < 4; i++)
            fill(arrays[i], e, WIDEST, -2, 2);
        fill(centre, sizeof(double), WIDEST, 1000, 1001);
        test_rms_norm(variants, n_variants, real_at);
        test_column_sums(variants, n_variants, real_at);
        test_column_scale(variants, n_variants, real_at);
        test_updates(variants, n_variants, real_at);
    }
    return check_report();
}
