/* reduce and pool: the order of sums to the bit, extremes by their definition, along rows and columns, everywhere. */
#include "test_kernels.h"

enum { MOST = 40 * 90 };

static double value(const void *x, size_t e, size_t i, ds_reduction kind, double centre)
{
    const double v = get(x, e, i);
    return kind == DS_REDUCE_SQUARES ? (v - centre) * (v - centre) : v;
}

/* One result, element by element. */
static double plain(const void *x, size_t e, ds_reduction kind, size_t from, size_t n, size_t step,
                    double centre)
{
    const bool product = kind == DS_REDUCE_PRODUCT;
    double lane[4] = {product, product, product, product}, best = get(x, e, from);
    for (size_t k = 0; k < n; k++) {
        const double v = value(x, e, from + k * step, kind, centre);
        lane[k % 4] = product ? lane[k % 4] * v : lane[k % 4] + v;
        if (best == best && (v != v || (kind == DS_REDUCE_GREATEST ? v > best : v < best)))
            best = v;
    }
    if (product)
        return (lane[0] * lane[1]) * (lane[2] * lane[3]);
    return kind <= DS_REDUCE_SQUARES ? (lane[0] + lane[1]) + (lane[2] + lane[3]) : best;
}

static void fill_some(void *x, size_t e, int round)
{
    static const double special[] = {0, -0.0, 1, -1, 0, -0.0, 1e-40, 3};
    for (size_t i = 0; i < MOST; i++)
        put(x, e, i, round % 3 == 0 ? special[random_size(0, 7)] : random_real(-3, 2));
    for (int i = 0; round % 3 == 1 && i < 20; i++)
        put(x, e, random_size(0, MOST - 1), i % 2 == 0 ? (double)NAN : -(double)INFINITY);
    for (size_t i = 0; round % 6 == 3 && i < MOST; i++) /* only zeros, of either sign */
        put(x, e, i, random_size(0, 1) == 0 ? 0 : -0.0);
}

static void test_reduce(const ds_real_kernels *k)
{
    static double x[MOST], centre[90];
    for (int round = 0; round < 750; round++) {
        const bool rows = round % 2 == 0;
        const size_t n = random_size(1, round % 7 == 0 ? 40 : 20), n_results = random_size(0, 90);
        const size_t step = rows ? 1 : random_size(n_results, 90), stride = rows ? n : 1;
        const ds_reduction kind = (ds_reduction)(round / 2 % 5);
        const bool about = kind == DS_REDUCE_SQUARES && round % 3 != 0;
        fill_some(x, k->element, round);
        fill(centre, sizeof *centre, 90, -1, 1);
        guarded y = guarded_new(n_results * sizeof(double));
        if (rows || step > 1)
            k->reduce(kind, y.data, x, n_results, stride, n, step, about ? centre : NULL);
        for (size_t r = 0; (rows || step > 1) && r < n_results; r++) {
            const double want =
                plain(x, k->element, kind, r * stride, n, step, about ? centre[r] : 0);
            CHECK(same((double *)y.data + r, &want, sizeof want, 1));
        }
        guarded_free(y);
    }
}

/* The sum of taps [from, from + n) of a window: by halves, of parts of 2^k taps, the longest first. */
static double halves(const void *x, size_t e, size_t from, size_t n, size_t step)
{
    size_t part = 1;
    while (2 * part <= n)
        part *= 2;
    if (n == 1)
        return get(x, e, from);
    if (part == n)
        return halves(x, e, from, n / 2, step) + halves(x, e, from + n / 2 * step, n / 2, step);
    double sum = 0;
    for (; n > 0; n -= part, from += part * step) {
        while (part > n)
            part /= 2;
        sum += halves(x, e, from, part, step);
    }
    return sum;
}

static void test_pool(const ds_real_kernels *k)
{
    static double x[MOST];
    for (int round = 0; round < 400; round++) {
        const size_t n = random_size(1, 40), n_taps = random_size(1, 18), at = random_size(1, 3);
        const size_t n_windows = random_size(1, 16), stride = n * at, step = n * random_size(1, 2);
        const bool by_halves = round % 4 == 3;
        const double divisor = round % 2 == 0 ? 0 : (double)n_taps;
        fill_some(x, k->element, round);
        guarded y = guarded_new(n_windows * n * k->element);
        k->pool(divisor, by_halves, y.data, x, n_windows, stride, n_taps, step, n);
        for (size_t i = 0; i < n_windows * n; i++) {
            const size_t from = i / n * stride + i % n;
            double most = get(x, k->element, from), sum = 0, want;
            for (size_t t = 0; t < n_taps; t++) {
                const double v = get(x, k->element, from + t * step);
                sum += v;
                most = v > most || v != v ? v : most;
            }
            put(&want, k->element, 0,
                divisor == 0
                    ? most
                    : (by_halves ? 0 + halves(x, k->element, from, n_taps, step) : sum) / divisor);
            CHECK(same((char *)y.data + i * k->element, &want, k->element, 1));
        }
        guarded_free(y);
    }
}

/* The same of int64, whose sums and products wrap. */
static void test_reduce_whole(const ds_whole_kernels *k)
{
    static int64_t x[MOST], y[90];
    for (int round = 0; round < 400; round++) {
        const bool rows = round % 2 == 0;
        const size_t n = random_size(1, 20), n_results = random_size(0, 90);
        const size_t step = rows ? 1 : random_size(n_results, 90) + 2, stride = rows ? n : 1;
        for (size_t i = 0; i < MOST; i++)
            x[i] = (int64_t)((uint64_t)random_size(0, 1 << 20) << random_size(0, 60));
        for (int kind = DS_REDUCE_SUM; kind <= DS_REDUCE_LEAST; kind++) {
            if (kind == DS_REDUCE_SQUARES)
                continue;
            k->reduce((ds_reduction)kind, y, x, n_results, stride, n, step);
            for (size_t r = 0; r < n_results; r++) {
                int64_t want = x[r * stride];
                for (size_t i = 1; i < n; i++) {
                    const int64_t v = x[r * stride + i * step];
                    want = kind == DS_REDUCE_SUM       ? (int64_t)((uint64_t)want + (uint64_t)v)
                           : kind == DS_REDUCE_PRODUCT ? (int64_t)((uint64_t)want * (uint64_t)v)
                           : (kind == DS_REDUCE_GREATEST ? v > want : v < want) ? v
                                                                                : want;
                }
                CHECK(y[r] == want);
            }
        }
    }
}

static void test_both(const variants *all)
{
    for (size_t v = 0; v < all->n; v++) {
        test_reduce(all->k[v]);
        test_reduce_whole(all->k[v]->whole);
        test_pool(all->k[v]);
    }
}

KERNEL_TESTS(test_both)
