/* unary and pow: errors against libm in the next wider type, special values, and the same bits in every
 * variant, at every length and place. The step of the sweep over all floats is an argument; it defaults
 * to 20011, and 1 takes hours. */
#include "test_kernels.h"

typedef long double real;

static real id_relu(real x)
{
    return isnan(x) || x > 0 ? x : 0;
}
static real id_sigmoid(real x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static real id_silu(real x)
{
    return isinf(x) && x < 0 ? (real)NAN : x * id_sigmoid(x);
}
static real id_gelu(real x)
{
    return isinf(x) && x < 0 ? (real)NAN : x * erfcl(-x * 0.70710678118654752440L) / 2;
}
static real id_gelu_tanh(real x)
{
    const real inner = 0.79788456080286535588L * (x + 0.044715L * x * x * x);
    return isinf(x) && x < 0 ? (real)NAN : x * id_sigmoid(2 * inner);
}
static real id_rsqrt(real x)
{
    return 1 / sqrtl(x);
}
static real id_neg(real x)
{
    return -x;
}
static real id_reciprocal(real x)
{
    return 1 / x;
}
static real id_square(real x)
{
    return x * x;
}
static real id_clamp(real x)
{
    return x < -1.5L ? -1.5L : x > 2 ? 2 : x;
}
static real id_sign(real x)
{
    return (real)(x > 0) - (real)(x < 0);
}
static real id_softplus(real x)
{
    return x * 2 > 10 ? x : log1pl(expl(2 * x)) / 2;
}
static real id_logsigmoid(real x)
{
    return isnan(x) ? x : fminl(x, 0) - log1pl(expl(-fabsl(x)));
}
static real id_elu(real x)
{
    return x < 0 ? 1.5L * expm1l(0.5L * x) : 3 * x;
}

/* Bounds in units of the last place of the result; or, where a formula that torch shares cancels, of x. */
static const struct {
    const char *name;
    ds_unary function;
    real (*ideal)(real);
    double p[3], ulps_f32, ulps_f64;
    bool of_x;
} cases[] = {
    {"relu", DS_UNARY_RELU, id_relu, {0, 0}, 0, 0, false},
    {"gelu", DS_UNARY_GELU, id_gelu, {0, 0}, 2.5, 2.5, true},
    {"gelu_tanh", DS_UNARY_GELU_TANH, id_gelu_tanh, {0, 0}, 2.5, 2.5, true},
    {"silu", DS_UNARY_SILU, id_silu, {0, 0}, 2.5, 2.5, true},
    {"sigmoid", DS_UNARY_SIGMOID, id_sigmoid, {0, 0}, 2.5, 2.5, false},
    {"tanh", DS_UNARY_TANH, tanhl, {0, 0}, 2.5, 2.5, false},
    {"exp", DS_UNARY_EXP, expl, {0, 0}, 1, 1, false},
    {"log", DS_UNARY_LOG, logl, {0, 0}, 0.51, 1, false},
    {"sqrt", DS_UNARY_SQRT, sqrtl, {0, 0}, 0.5, 0.51, false},
    {"rsqrt", DS_UNARY_RSQRT, id_rsqrt, {0, 0}, 1.5, 1.5, false},
    {"abs", DS_UNARY_ABS, fabsl, {0, 0}, 0, 0, false},
    {"neg", DS_UNARY_NEG, id_neg, {0, 0}, 0, 0, false},
    {"reciprocal", DS_UNARY_RECIPROCAL, id_reciprocal, {0, 0}, 0.5, 0.51, false},
    {"square", DS_UNARY_SQUARE, id_square, {0, 0}, 0.5, 0.51, false},
    {"clamp", DS_UNARY_CLAMP, id_clamp, {-1.5, 2}, 0, 0, false},
    {"sin", DS_UNARY_SIN, sinl, {0, 0}, 0.51, 1, false},
    {"cos", DS_UNARY_COS, cosl, {0, 0}, 0.51, 1, false},
    {"log1p", DS_UNARY_LOG1P, log1pl, {0, 0}, 0.51, 1, false},
    {"expm1", DS_UNARY_EXPM1, expm1l, {0, 0}, 1.5, 1, false},
    {"erf", DS_UNARY_ERF, erfl, {0, 0}, 1.5, 1, false},
    {"log2", DS_UNARY_LOG2, log2l, {0, 0}, 0.51, 1, false},
    {"log10", DS_UNARY_LOG10, log10l, {0, 0}, 0.51, 2, false},
    {"floor", DS_UNARY_FLOOR, floorl, {0, 0}, 0, 0, false},
    {"ceil", DS_UNARY_CEIL, ceill, {0, 0}, 0, 0, false},
    {"round", DS_UNARY_ROUND, rintl, {0, 0}, 0, 0, false},
    {"sign", DS_UNARY_SIGN, id_sign, {0, 0}, 0, 0, false},
    {"softplus", DS_UNARY_SOFTPLUS, id_softplus, {2, 10}, 1.5, 1.5, false},
    {"logsigmoid", DS_UNARY_LOGSIGMOID, id_logsigmoid, {0, 0}, 1.5, 1.5, false},
    {"elu", DS_UNARY_ELU, id_elu, {1.5, 3, 0.5}, 2.5, 2.5, false},
    {"sinh", DS_UNARY_SINH, sinhl, {0, 0}, 0.51, 2, false},
    {"cosh", DS_UNARY_COSH, coshl, {0, 0}, 0.51, 2, false},
    {"asin", DS_UNARY_ASIN, asinl, {0, 0}, 0.51, 1, false},
    {"acos", DS_UNARY_ACOS, acosl, {0, 0}, 0.51, 1, false},
    {"atan", DS_UNARY_ATAN, atanl, {0, 0}, 0.51, 1, false},
    {"asinh", DS_UNARY_ASINH, asinhl, {0, 0}, 0.51, 2, false},
    {"acosh", DS_UNARY_ACOSH, acoshl, {0, 0}, 0.51, 2, false},
    {"atanh", DS_UNARY_ATANH, atanhl, {0, 0}, 0.51, 2, false},
    {"trunc", DS_UNARY_TRUNC, truncl, {0, 0}, 0, 0, false},
    {"erfc", DS_UNARY_ERFC, erfcl, {0, 0}, 0.51, 5, false},
};
enum { N_CASES = sizeof cases / sizeof *cases, BLOCK = 4096 };

/* The distance between neighbours of x in the type of that size. */
static real unit_at(real x, size_t element)
{
    int exponent = 0;
    (void)frexpl(x, &exponent);
    const int least = element == sizeof(float) ? -125 : -1021;
    const int digits = element == sizeof(float) ? 24 : 53;
    return ldexpl(1, (x == 0 || exponent < least ? least : exponent) - digits);
}

static bool close_to(real got, real ideal, real x, size_t element, double ulps, bool of_x)
{
    const real rounded = element == sizeof(float) ? (real)(float)ideal : (real)(double)ideal;
    if (isnan(ideal)) {
        return isnan(got);
    }
    if (isnan(got)) {
        return false;
    }
    const real greatest = element == sizeof(float) ? 0x1.fffffep127L : 0x1.fffffffffffffp1023L;
    const real bound = (real)ulps * unit_at(of_x ? x : ideal, element);
    if (isinf(rounded) || isinf(got)) { /* either may have rounded to inf just before */
        return got == rounded || (fabsl(ideal) >= greatest - bound && got * ideal > 0);
    }
    return fabsl(got - ideal) <= bound && (got == 0 || ideal == 0 || (got > 0) == (ideal > 0));
}

static void check_block(size_t c, const ds_kernels *const *variants, size_t n_variants,
                        size_t real_at, const void *x, size_t n)
{
    static double expected[BLOCK], y[BLOCK];
    const size_t element = variants[0]->real[real_at].element;
    for (size_t v = 0; v < n_variants; v++) {
        variants[v]->real[real_at].unary(cases[c].function, v == 0 ? expected : y, x, n,
                                         cases[c].p);
        if (v > 0 && !same(y, expected, element, n)) {
            fprintf(stderr, "%s differs in %s\n", cases[c].name, variants[v]->name);
            CHECK(!"same bits");
        }
    }
    for (size_t i = 0; i < n; i++) {
        const real in = (real)get(x, element, i), got = (real)get(expected, element, i);
        const double ulps = element == sizeof(float) ? cases[c].ulps_f32 : cases[c].ulps_f64;
        const real ideal = cases[c].ideal(in);
        if (!close_to(got, ideal, in, element, ulps, cases[c].of_x)) {
            fprintf(stderr, "%s(%La) is %La, not %La\n", cases[c].name, in, got, ideal);
            CHECK(!"within its bound");
        }
    }
}

static void test_sweep_f32(const ds_kernels *const *variants, size_t n_variants, uint64_t step)
{
    static float x[BLOCK];
    for (size_t c = 0; c < N_CASES; c++) {
        for (uint64_t bits = 0; bits <= UINT32_MAX;) {
            size_t n = 0;
            for (; n < BLOCK && bits <= UINT32_MAX; n++, bits += step) {
                const uint32_t low = (uint32_t)bits;
                memcpy(&x[n], &low, sizeof low);
            }
            check_block(c, variants, n_variants, 0, x, n);
        }
        for (int scale = 0; scale < 4; scale++) { /* where things happen */
            static const double widths[] = {1, 5, 30, 120};
            fill(x, sizeof *x, BLOCK, -widths[scale], widths[scale]);
            check_block(c, variants, n_variants, 0, x, BLOCK);
        }
        CHECK(c + 1 < N_CASES || cases[c].function + 1 == DS_UNARY_COUNT);
    }
}

static void test_sweep_f64(const ds_kernels *const *variants, size_t n_variants)
{
    static double x[BLOCK];
    for (size_t c = 0; c < N_CASES; c++) {
        for (int scale = 0; scale < 4; scale++) {
            static const double widths[] = {1, 5, 30, 750};
            fill(x, sizeof *x, BLOCK / 8, -widths[scale], widths[scale]);
            check_block(c, variants, n_variants, 1, x, BLOCK / 8);
        }
        static const double special[] = {0,        -0.0,      0x1p-1074, -0x1p-1030,
                                         0x1p1023, -0x1p1023, 1,         -1};
        memcpy(x, special, sizeof special);
        x[8] = (double)INFINITY;
        x[9] = -(double)INFINITY;
        x[10] = (double)NAN;
        check_block(c, variants, n_variants, 1, x, 11);
    }
}

static float one(const ds_kernels *kernels, ds_unary function, float x, double p0, double p1)
{
    const double p[3] = {p0, p1, 1};
    float y = 0;
    kernels->real[0].unary(function, &y, &x, 1, p);
    return y;
}

static bool is(float got, float wanted)
{
    return isnan(wanted) ? isnan(got) : got == wanted && !signbit(got) == !signbit(wanted);
}

/* torch's special values. */
static void test_special(const ds_kernels *kernels)
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
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        CHECK(is(one(kernels, values[i].function, values[i].x, 0, 0), values[i].y));
    }
    for (ds_unary f = 0; f < DS_UNARY_COUNT; f++) {
        CHECK(f == DS_UNARY_SIGN || isnan(one(kernels, f, nan, 1, 20)));
    }
    const double open = (double)INFINITY;
    CHECK(is(one(kernels, DS_UNARY_CLAMP, -inf, -open, 3), -inf));
    CHECK(is(one(kernels, DS_UNARY_CLAMP, inf, 1, open), inf));
    CHECK(is(one(kernels, DS_UNARY_CLAMP, 7, 1, 3), 3));
    CHECK(is(one(kernels, DS_UNARY_CLAMP, -7, 1, 3), 1));
    CHECK(is(one(kernels, DS_UNARY_CLAMP, 2, 5, 3), 3));
    CHECK(is(one(kernels, DS_UNARY_CLAMP, 0, (double)nan, 3), nan));
    CHECK(is(one(kernels, DS_UNARY_CLAMP, 0, -1, (double)nan), nan));
    CHECK(is(one(kernels, DS_UNARY_SOFTPLUS, 21, 1, 20), 21));
    CHECK(is(one(kernels, DS_UNARY_SOFTPLUS, 1000, 1, 5000), 1000));
    CHECK(is(one(kernels, DS_UNARY_SOFTPLUS, -inf, 1, 20), 0));
    CHECK(one(kernels, DS_UNARY_EXPM1, tiny, 0, 0) == tiny);
    CHECK(one(kernels, DS_UNARY_TANH, -tiny, 0, 0) == -tiny);
    CHECK(one(kernels, DS_UNARY_SIN, tiny, 0, 0) == tiny);
    CHECK(one(kernels, DS_UNARY_SIGMOID, -100, 0, 0) == 0x1.b2p-145f);
}

/* Any length, any place, in place: the same bits. */
static void test_lengths(const ds_kernels *kernels, size_t real_at)
{
    const ds_real_kernels *const k = &kernels->real[real_at];
    enum { LONGEST = 150 };
    double x[LONGEST], whole[LONGEST];
    for (size_t c = 0; c < N_CASES; c++) {
        fill(x, k->element, LONGEST, -20, 20);
        put(x, k->element, 17, (double)NAN);
        put(x, k->element, 80, 0x1p100);
        k->unary(cases[c].function, whole, x, LONGEST, cases[c].p);
        for (size_t n = 0; n <= 70; n++) {
            const size_t from = random_size(0, LONGEST - n);
            const char *const in = (const char *)x + from * k->element;
            const char *const expected = (const char *)whole + from * k->element;
            guarded y = guarded_new(n * k->element);
            k->unary(cases[c].function, y.data, in, n, cases[c].p);
            CHECK(same(y.data, expected, k->element, n));
            memcpy(y.data, in, n * k->element);
            k->unary(cases[c].function, y.data, y.data, n, cases[c].p);
            CHECK(same(y.data, expected, k->element, n));
            guarded_free(y);
        }
    }
}

static void test_pow(const ds_kernels *const *variants, size_t n_variants)
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
            for (size_t i = 0; round % 3 == 0 && i < BLOCK; i++) {
                b[i] = rintf(b[i]);
            }
        }
        for (size_t v = 0; v < n_variants; v++) {
            variants[v]->real[0].binary(DS_BINARY_POW, v == 0 ? expected : y, a, b, n, 1, 1);
            CHECK(v == 0 || same(y, expected, sizeof *y, n));
        }
        for (size_t i = 0; i < n; i++) {
            const real ideal = (real)pow((double)a[i], (double)b[i]);
            if (!close_to((real)expected[i], ideal, 0, sizeof(float), 0.51, false) ||
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
    const ds_kernels *variants[MAX_VARIANTS];
    const size_t n_variants = runnable(variants);
    const uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 20011;
    CHECK(step > 0);
    for (size_t v = 0; v < n_variants; v++) {
        test_special(variants[v]);
        test_lengths(variants[v], 0);
        test_lengths(variants[v], 1);
    }
    test_pow(variants, n_variants);
    test_sweep_f64(variants, n_variants);
    test_sweep_f32(variants, n_variants, step);
    return check_report();
}
