/* unary and pow: errors against libm in the next wider type, special values, and the same bits in every
 * variant, at every length and place. The step of the sweep over all floats is an argument; it defaults
 * to 20011, and 1 takes hours. */
#include "pointwise_ideals.h"
#include "test_kernels.h"

enum { BLOCK = 4096 };

/* The distance between neighbours of x in the type of that size. */
static wide unit_at(wide x, size_t element)
{
    int exponent = 0;
    (void)frexpl(x, &exponent);
    const int least = element == sizeof(float) ? -125 : -1021;
    const int digits = element == sizeof(float) ? 24 : 53;
    return ldexpl(1, (x == 0 || exponent < least ? least : exponent) - digits);
}

static wide greatest_of(size_t element)
{
    return element == sizeof(float) ? 0x1.fffffep127L : 0x1.fffffffffffffp1023L;
}

static bool close_to(wide got, wide ideal, wide x, size_t element, double ulps, bool of_x)
{
    const wide rounded = element == sizeof(float) ? (wide)(float)ideal : (wide)(double)ideal;
    if (isnan(ideal))
        return isnan(got);
    if (isnan(got))
        return false;
    const wide bound = (wide)ulps * unit_at(of_x ? x : ideal, element);
    if (isinf(rounded) || isinf(got)) /* either may have rounded to inf just before */
        return got == rounded || (fabsl(ideal) >= greatest_of(element) - bound && got * ideal > 0);
    return fabsl(got - ideal) <= bound && (got == 0 || ideal == 0 || (got > 0) == (ideal > 0));
}

static void check_block(ds_unary function, const variants *all, const void *x, size_t n)
{
    static double expected[BLOCK], y[BLOCK];
    const size_t element = all->element;
    const unary_ideal *const c = &unary_ideals[function];
    for (size_t v = 0; v < all->n; v++) {
        all->k[v]->unary(function, v == 0 ? expected : y, x, n, c->p);
        if (v > 0 && !same(y, expected, element, n)) {
            fprintf(stderr, "%s differs in %s\n", c->name, all->name[v]);
            CHECK(!"same bits");
        }
    }
    for (size_t i = 0; i < n; i++) {
        const wide in = (wide)get(x, element, i), got = (wide)get(expected, element, i);
        const double ulps = element == sizeof(float) ? c->ulps_f32 : c->ulps_f64;
        const wide ideal = c->f(in, c->p, greatest_of(element));
        if (!close_to(got, ideal, in, element, ulps, c->of_x)) {
            fprintf(stderr, "%s(%La) is %La, not %La\n", c->name, in, got, ideal);
            CHECK(!"within its bound");
        }
    }
}

static void test_sweep_f32(const variants *all, uint64_t step)
{
    static float x[BLOCK];
    for (ds_unary c = 0; c < DS_UNARY_COUNT; c++) {
        for (uint64_t bits = 0; bits <= UINT32_MAX;) {
            size_t n = 0;
            for (; n < BLOCK && bits <= UINT32_MAX; n++, bits += step) {
                const uint32_t low = (uint32_t)bits;
                memcpy(&x[n], &low, sizeof low);
            }
            check_block(c, all, x, n);
        }
        for (int scale = 0; scale < 4; scale++) { /* where things happen */
            static const double widths[] = {1, 5, 30, 120};
            fill(x, sizeof *x, BLOCK, -widths[scale], widths[scale]);
            check_block(c, all, x, BLOCK);
        }
    }
}

static void test_sweep_f64(const variants *all)
{
    static double x[BLOCK];
    for (ds_unary c = 0; c < DS_UNARY_COUNT; c++) {
        for (int scale = 0; scale < 4; scale++) {
            static const double widths[] = {1, 5, 30, 750};
            fill(x, sizeof *x, BLOCK / 8, -widths[scale], widths[scale]);
            check_block(c, all, x, BLOCK / 8);
        }
        static const double special[] = {0,        -0.0,      0x1p-1074, -0x1p-1030,
                                         0x1p1023, -0x1p1023, 1,         -1};
        memcpy(x, special, sizeof special);
        x[8] = (double)INFINITY;
        x[9] = -(double)INFINITY;
        x[10] = (double)NAN;
        check_block(c, all, x, 11);
    }
}

static float one(const ds_real_kernels *k, ds_unary function, float x, double p0, double p1)
{
    const double p[3] = {p0, p1, 1};
    float y = 0;
    k->unary(function, &y, &x, 1, p);
    return y;
}

static bool is(float got, float wanted)
{
    return isnan(wanted) ? isnan(got) : got == wanted && !signbit(got) == !signbit(wanted);
}

/* torch's special values. */
static void test_special(const ds_real_kernels *k)
{
    const float inf = INFINITY, nan = NAN, tiny = 0x1p-149f;
    static const struct {
        ds_unary function;
        float x, y;
    } values[] = {
        {DS_UNARY_RELU, -1, 0},
        {DS_UNARY_RELU, NAN, NAN},
        {DS_UNARY_EXP, -INFINITY, 0},
        {DS_UNARY_EXP, 88.8f, INFINITY},
        {DS_UNARY_EXP, -104, 0},
        {DS_UNARY_EXP, -103, 0x1p-149f},
        {DS_UNARY_EXP, 0, 1},
        {DS_UNARY_EXP, -3.4e38f, 0},
        {DS_UNARY_EXPM1, -0.0f, -0.0f},
        {DS_UNARY_EXPM1, -INFINITY, -1},
        {DS_UNARY_TANH, -0.0f, -0.0f},
        {DS_UNARY_TANH, INFINITY, 1},
        {DS_UNARY_TANH, -40, -1},
        {DS_UNARY_ERF, -0.0f, -0.0f},
        {DS_UNARY_ERF, -INFINITY, -1},
        {DS_UNARY_SIGMOID, -INFINITY, 0},
        {DS_UNARY_SIGMOID, INFINITY, 1},
        {DS_UNARY_SILU, -INFINITY, NAN},
        {DS_UNARY_SILU, INFINITY, INFINITY},
        {DS_UNARY_GELU, -INFINITY, NAN},
        {DS_UNARY_GELU_TANH, -INFINITY, NAN},
        {DS_UNARY_LOG, 0, -INFINITY},
        {DS_UNARY_LOG, -0.0f, -INFINITY},
        {DS_UNARY_LOG, -1, NAN},
        {DS_UNARY_LOG, INFINITY, INFINITY},
        {DS_UNARY_LOG, 1, 0},
        {DS_UNARY_LOG1P, -1, -INFINITY},
        {DS_UNARY_LOG1P, -0.0f, -0.0f},
        {DS_UNARY_LOG1P, -1.5f, NAN},
        {DS_UNARY_LOG2, 0x1p-149f, -149},
        {DS_UNARY_LOG2, 8, 3},
        {DS_UNARY_LOG10, 1000, 3},
        {DS_UNARY_SQRT, -1, NAN},
        {DS_UNARY_SQRT, -0.0f, -0.0f},
        {DS_UNARY_RSQRT, 0, INFINITY},
        {DS_UNARY_SIN, -0.0f, -0.0f},
        {DS_UNARY_SIN, INFINITY, NAN},
        {DS_UNARY_COS, 0, 1},
        {DS_UNARY_COS, -INFINITY, NAN},
        {DS_UNARY_ROUND, 0.5f, 0},
        {DS_UNARY_ROUND, 1.5f, 2},
        {DS_UNARY_ROUND, 2.5f, 2},
        {DS_UNARY_ROUND, -0.4f, -0.0f},
        {DS_UNARY_SIGN, 0, 0},
        {DS_UNARY_SIGN, -0.0f, 0},
        {DS_UNARY_SIGN, NAN, 0},
        {DS_UNARY_SIGN, -INFINITY, -1},
        {DS_UNARY_LOGSIGMOID, -INFINITY, -INFINITY},
        {DS_UNARY_LOGSIGMOID, INFINITY, 0},
        {DS_UNARY_SINH, -0.0f, -0.0f},
        {DS_UNARY_SINH, -90, -INFINITY},
        {DS_UNARY_SINH, -INFINITY, -INFINITY},
        {DS_UNARY_COSH, 0, 1},
        {DS_UNARY_COSH, -INFINITY, INFINITY},
        {DS_UNARY_ASIN, -0.0f, -0.0f},
        {DS_UNARY_ASIN, 1, 0x1.921fb6p0f},
        {DS_UNARY_ASIN, 1.5f, NAN},
        {DS_UNARY_ASIN, -INFINITY, NAN},
        {DS_UNARY_ACOS, 1, 0},
        {DS_UNARY_ACOS, -1, 0x1.921fb6p1f},
        {DS_UNARY_ACOS, -1.5f, NAN},
        {DS_UNARY_ACOS, INFINITY, NAN},
        {DS_UNARY_ATAN, -0.0f, -0.0f},
        {DS_UNARY_ATAN, -INFINITY, -0x1.921fb6p0f},
        {DS_UNARY_ASINH, -0.0f, -0.0f},
        {DS_UNARY_ASINH, -INFINITY, -INFINITY},
        {DS_UNARY_ACOSH, 1, 0},
        {DS_UNARY_ACOSH, 0.999f, NAN},
        {DS_UNARY_ACOSH, -1e30f, NAN},
        {DS_UNARY_ACOSH, INFINITY, INFINITY},
        {DS_UNARY_ATANH, -0.0f, -0.0f},
        {DS_UNARY_ATANH, -1, -INFINITY},
        {DS_UNARY_ATANH, 1.5f, NAN},
        {DS_UNARY_ATANH, INFINITY, NAN},
        {DS_UNARY_TRUNC, -0.9f, -0.0f},
        {DS_UNARY_TRUNC, -INFINITY, -INFINITY},
        {DS_UNARY_ERFC, -INFINITY, 2},
        {DS_UNARY_ERFC, INFINITY, 0},
        {DS_UNARY_ERFC, 0, 1},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        CHECK(is(one(k, values[i].function, values[i].x, 0, 0), values[i].y));
    for (ds_unary f = 0; f < DS_UNARY_COUNT; f++)
        CHECK(f == DS_UNARY_SIGN || f == DS_UNARY_NAN_TO_NUM || isnan(one(k, f, nan, 1, 20)));
    const double open = (double)INFINITY;
    CHECK(is(one(k, DS_UNARY_CLAMP, -inf, -open, 3), -inf));
    CHECK(is(one(k, DS_UNARY_CLAMP, inf, 1, open), inf));
    CHECK(is(one(k, DS_UNARY_CLAMP, 7, 1, 3), 3));
    CHECK(is(one(k, DS_UNARY_CLAMP, -7, 1, 3), 1));
    CHECK(is(one(k, DS_UNARY_CLAMP, 2, 5, 3), 3));
    CHECK(is(one(k, DS_UNARY_CLAMP, 0, (double)nan, 3), nan));
    CHECK(is(one(k, DS_UNARY_CLAMP, 0, -1, (double)nan), nan));
    CHECK(is(one(k, DS_UNARY_SOFTPLUS, 21, 1, 20), 21));
    CHECK(is(one(k, DS_UNARY_SOFTPLUS, 1000, 1, 5000), 1000));
    CHECK(is(one(k, DS_UNARY_SOFTPLUS, -inf, 1, 20), 0));
    CHECK(one(k, DS_UNARY_EXPM1, tiny, 0, 0) == tiny);
    CHECK(one(k, DS_UNARY_TANH, -tiny, 0, 0) == -tiny);
    CHECK(one(k, DS_UNARY_SIN, tiny, 0, 0) == tiny);
    CHECK(one(k, DS_UNARY_SIGMOID, -100, 0, 0) == 0x1.b2p-145f);
}

/* Any length, any place, in place: the same bits. */
static void test_lengths(const ds_real_kernels *k)
{
    enum { LONGEST = 150 };
    double x[LONGEST], whole[LONGEST];
    for (ds_unary c = 0; c < DS_UNARY_COUNT; c++) {
        fill(x, k->element, LONGEST, -20, 20);
        put(x, k->element, 17, (double)NAN);
        put(x, k->element, 80, 0x1p100);
        k->unary(c, whole, x, LONGEST, unary_ideals[c].p);
        for (size_t n = 0; n <= 70; n++) {
            const size_t from = random_size(0, LONGEST - n);
            const char *const in = (const char *)x + from * k->element;
            const char *const expected = (const char *)whole + from * k->element;
            guarded y = guarded_new(n * k->element);
            k->unary(c, y.data, in, n, unary_ideals[c].p);
            CHECK(same(y.data, expected, k->element, n));
            memcpy(y.data, in, n * k->element);
            k->unary(c, y.data, y.data, n, unary_ideals[c].p);
            CHECK(same(y.data, expected, k->element, n));
            guarded_free(y);
        }
    }
}

static void test_pow(const variants *all)
{
    static float a[BLOCK], b[BLOCK], y[BLOCK], expected[BLOCK];
    const float special[] = {0,       -0.0f,      1,         -1,      2,           -2,
                             0.5f,    -0.5f,      3,         -3,      2.5f,        -2.5f,
                             1e30f,   1e9f,       -1e9f,     1e-40f,  NAN,         100,
                             -100.0f, INFINITY,   -INFINITY, 0x1p24f, 16777215.0f, -16777215.0f,
                             0.999f,  -0x1p-149f, 33,        -1e-30f, 0.1f};
    enum { N = sizeof special / sizeof *special };
    for (size_t i = 0; i < N * N; i++) {
        a[i] = special[i / N];
        b[i] = special[i % N];
    }
    for (int round = 0; round < 30; round++) {
        const size_t n = round == 0 ? N * N : BLOCK;
        if (round > 0) {
            fill(a, sizeof *a, BLOCK, round % 3 == 0 ? -3 : 0, round % 2 == 0 ? 3 : 1e5);
            fill(b, sizeof *b, BLOCK, -12, 12);
            for (size_t i = 0; round % 3 == 0 && i < BLOCK; i++)
                b[i] = rintf(b[i]);
        }
        for (size_t v = 0; v < all->n; v++) {
            all->k[v]->binary(DS_BINARY_POW, v == 0 ? expected : y, a, b, n, 1, 1);
            CHECK(v == 0 || same(y, expected, sizeof *y, n));
            for (size_t i = 0; round == 0 && i < N; i++) { /* one exponent for all */
                all->k[v]->binary(DS_BINARY_POW, y, special, special + i, N, 1, 0);
                for (size_t j = 0; j < N; j++)
                    CHECK(same(y + j, expected + j * N + i, sizeof *y, 1));
            }
        }
        for (size_t i = 0; i < n; i++) {
            const wide ideal = (wide)pow((double)a[i], (double)b[i]);
            const bool twice = b[i] == 3 || b[i] == -2 || b[i] == -0.5f; /* rounded */
            if (!close_to((wide)expected[i], ideal, 0, sizeof(float), twice ? 1.51 : 0.51, false) ||
                (!isnan(expected[i]) && !signbit(expected[i]) != !signbit(ideal))) {
                fprintf(stderr, "pow(%a, %a) is %a\n", (double)a[i], (double)b[i],
                        (double)expected[i]);
                CHECK(!"C's pow");
            }
        }
    }
}

int main(int argc, char **argv)
{
    const variants floats = variants_of(0), doubles = variants_of(1);
    const uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 20011;
    CHECK(step > 0 && every_ideal());
    for (size_t v = 0; v < floats.n; v++) {
        test_special(floats.k[v]);
        test_lengths(floats.k[v]);
        test_lengths(doubles.k[v]);
    }
    test_pow(&floats);
    test_sweep_f64(&doubles);
    test_sweep_f32(&floats, step);
    return check_report();
}
