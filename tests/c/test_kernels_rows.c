/* softmax, layer_norm and rms_norm: against long double, special rows, and bits in every variant. */
#include "test_kernels.h"

enum { WIDEST = 700 };

/* Runs a kernel of rows in every variant: bits equal, rows alone = together, in place. */
typedef void rows_kernel(const ds_real_kernels *kernels, void *y, const void *x, size_t n_rows,
                         size_t n, const void *context);

static guarded run_rows(rows_kernel *kernel, const variants *all, const void *x, size_t n_rows,
                        size_t n, const void *context)
{
    const size_t e = all->element;
    guarded expected = guarded_new(n_rows * n * e);
    for (size_t v = 0; v < all->n; v++) {
        const ds_real_kernels *const k = all->k[v];
        guarded y = v == 0 ? expected : guarded_new(n_rows * n * e);
        kernel(k, y.data, x, n_rows, n, context);
        CHECK(same(y.data, expected.data, e, n_rows * n));
        guarded alone = guarded_new(n * e);
        for (size_t m = 0; m < n_rows; m++) {
            memcpy(alone.data, (const char *)x + m * n * e, n * e);
            kernel(k, alone.data, alone.data, 1, n, context);
            CHECK(same(alone.data, (char *)expected.data + m * n * e, e, n));
        }
        guarded_free(alone);
        if (v > 0)
            guarded_free(y);
    }
    return expected;
}

static void softmax(const ds_real_kernels *kernels, void *y, const void *x, size_t n_rows, size_t n,
                    const void *context)
{
    kernels->softmax(y, x, n_rows, n, *(const int *)context);
}

static void check_softmax(const void *y, const void *x, size_t element, size_t n, int logarithm)
{
    real top = -(real)INFINITY, sum = 0;
    bool bad = false;
    for (size_t i = 0; i < n; i++) {
        const real v = (real)get(x, element, i);
        bad = bad || isnan(v) || (isinf(v) && v > 0);
        top = v > top ? v : top;
    }
    for (size_t i = 0; i < n; i++)
        sum += expl((real)get(x, element, i) - top);
    for (size_t i = 0; i < n; i++) {
        const real v = (real)get(x, element, i), got = (real)get(y, element, i);
        if (bad) {
            CHECK(isnan(got));
        } else if (isinf(top)) {
            CHECK(logarithm ? isinf(got) && got < 0 : got == 0);
        } else if (isinf(v)) {
            CHECK(logarithm ? got == v : got == 0);
        } else {
            const real ideal = logarithm ? v - top - logl(sum) : expl(v - top) / sum;
            const real size = logarithm ? 2 + fabsl(v) + fabsl(top) + logl(sum)
                                        : ideal * (8 + fabsl(v) + fabsl(top));
            CHECK(fabsl(got - ideal) <= 2 * unit_of(element) * size +
                                            (element == sizeof(float) ? 0x1p-148L : 0x1p-1073L));
        }
    }
}

static void test_softmax(const variants *all)
{
    const size_t e = all->element;
    double x[36 * 70];
    for (size_t n = 0; n <= 70; n++) {
        for (int kind = 0; kind < 4; kind++) {
            const size_t n_rows = random_size(0, n <= 16 ? 36 : 6); /* short rows go by sixteen */
            const double width = kind == 0 ? 1 : kind == 1 ? 30 : 120;
            fill(x, e, n_rows * n, -width, width);
            for (size_t m = 0; kind == 3 && n > 0 && m < n_rows; m++) {
                const double odd[] = {(double)NAN, -(double)NAN, (double)INFINITY,
                                      -(double)INFINITY};
                for (size_t i = 0; m % 3 == 0 && i < n; i++) /* masked wholly, or but for one */
                    put(x, e, m * n + i, -(double)INFINITY);
                put(x, e, m * n + random_size(0, n - 1), odd[random_size(0, 3)]);
            }
            for (int logarithm = 0; logarithm < 2; logarithm++) {
                guarded y = run_rows(softmax, all, x, n_rows, n, &logarithm);
                for (size_t m = 0; m < n_rows; m++) {
                    check_softmax((char *)y.data + m * n * e, (char *)x + m * n * e, e, n,
                                  logarithm);
                }
                guarded_free(y);
            }
        }
    }
}

typedef struct affine {
    const void *weight, *bias;
    double epsilon;
} affine;

static void layer_norm(const ds_real_kernels *kernels, void *y, const void *x, size_t n_rows,
                       size_t n, const void *context)
{
    const affine *const a = context;
    kernels->layer_norm(y, x, n_rows, n, a->weight, a->bias, a->epsilon);
}

static void check_layer_norm(const void *y, const void *x, size_t element, size_t n,
                             const affine *a)
{
    const real origin = (real)get(x, element, 0); /* long double is not long enough for offsets */
    real mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++)
        mean += ((real)get(x, element, i) - origin) / (real)n;
    for (size_t i = 0; i < n; i++) {
        const real d = (real)get(x, element, i) - origin - mean;
        variance += d * d / (real)n;
    }
    for (size_t i = 0; i < n; i++) {
        const real w = a->weight != NULL ? (real)get(a->weight, element, i) : 1;
        const real b = a->bias != NULL ? (real)get(a->bias, element, i) : 0;
        const real d = (real)get(x, element, i) - origin - mean;
        const real v = d / sqrtl(variance + (real)a->epsilon) * w;
        /* No term in the mean's size: an offset costs nothing. */
        CHECK(fabsl((real)get(y, element, i) - (v + b)) <=
              unit_of(element) * (16 * fabsl(v) + 2 * fabsl(b) + 4 * fabsl(w)));
    }
}

static void test_layer_norm(const variants *all)
{
    const size_t e = all->element;
    static double x[3 * WIDEST], weight[WIDEST], bias[WIDEST];
    static const double offsets[] = {0, 1, 1000, -30000};
    fill(weight, e, WIDEST, -2, 2);
    fill(bias, e, WIDEST, -2, 2);
    for (size_t n = 1; n <= WIDEST; n += n < 70 ? 1 : 97) {
        for (int kind = 0; kind < 8; kind++) {
            const affine a = {kind & 1 ? weight : NULL, kind & 2 ? bias : NULL,
                              kind & 4 ? 1e-5 : 1e-3};
            const double offset = offsets[random_size(0, 3)];
            fill(x, e, 3 * n, offset - 1, offset + 1);
            guarded y = run_rows(layer_norm, all, x, 3, n, &a);
            for (size_t m = 0; n > 1 && m < 3; m++)
                check_layer_norm((char *)y.data + m * n * e, (char *)x + m * n * e, e, n, &a);
            guarded_free(y);
        }
        /* A constant row, far off: what is left is the bias. */
        const affine a = {weight, bias, 1e-5};
        for (size_t i = 0; i < n; i++)
            put(x, e, i, 1234.567);
        guarded y = run_rows(layer_norm, all, x, 1, n, &a);
        for (size_t i = 0; i < n; i++)
            CHECK(fabs(get(y.data, e, i) - get(bias, e, i)) <= 1e-6);
        guarded_free(y);
        put(x, e, n / 2, (double)NAN);
        y = run_rows(layer_norm, all, x, 1, n, &a);
        for (size_t i = 0; i < n; i++)
            CHECK(isnan(get(y.data, e, i)));
        guarded_free(y);
    }
}

static void rms_norm(const ds_real_kernels *kernels, void *y, const void *x, size_t n_rows,
                     size_t n, const void *context)
{
    const affine *const a = context;
    kernels->rms_norm(y, x, n_rows, n, a->weight, a->epsilon);
}

static void check_rms_norm(const void *y, const void *x, size_t element, size_t n, const affine *a)
{
    real square = (real)a->epsilon;
    for (size_t i = 0; i < n; i++) {
        const real v = (real)get(x, element, i);
        square += v * v / (real)n;
    }
    for (size_t i = 0; i < n; i++) {
        const real w = a->weight != NULL ? (real)get(a->weight, element, i) : 1;
        const real expected = (real)get(x, element, i) / sqrtl(square) * w;
        CHECK(fabsl((real)get(y, element, i) - expected) <=
              16 * unit_of(element) * fabsl(expected));
    }
}

static void test_rms_norm(const variants *all)
{
    enum { ROWS = 5 };
    const size_t e = all->element;
    static double x[ROWS * WIDEST], weight[WIDEST];
    fill(weight, e, WIDEST, -2, 2);
    for (size_t n = 1; n <= 300; n += n < 70 ? 1 : 37) {
        const affine a = {n % 2 ? weight : NULL, NULL, n % 3 ? 1e-6 : 0.5};
        fill(x, e, ROWS * n, -3, 5);
        guarded y = run_rows(rms_norm, all, x, ROWS, n, &a);
        for (size_t m = 0; m < ROWS; m++)
            check_rms_norm((char *)y.data + m * n * e, (char *)x + m * n * e, e, n, &a);
        guarded_free(y);
    }
}

KERNEL_TESTS(test_softmax, test_layer_norm, test_rms_norm)
