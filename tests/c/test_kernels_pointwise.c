/* binary, compare and where: values, special values, steps, in place, and bits in every variant. */
#include "pointwise_ideals.h"
#include "test_kernels.h"

enum { LONGEST = 90 };

/* Values with ties, zeros of both signs, infinities and NaN among them. */
static void fill_mixed(void *array, size_t element, size_t n)
{
    const double special[] = {0, -0.0, 1, -1, 2, (double)INFINITY, -(double)INFINITY, (double)NAN};
    for (size_t i = 0; i < n; i++) {
        const size_t pick = random_size(0, 15);
        put(array, element, i, pick < 8 ? special[pick] : random_real(-3, 3));
    }
}

/* One base to many powers, and many powers of one base each: the same bits. */
static void test_power_of_one_base(const ds_real_kernels *k)
{
    static const double bases[] = {2, 10, 0.3, 1, 0, -2, 1e30, 1e-40};
    /* first those that are multiplications or roots */
    static const double exponents[] = {0, 1, 2, 3, -1, -2, 0.5, -0.5, (double)INFINITY};
    double a[LONGEST], b[LONGEST], one[LONGEST], each[LONGEST];
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        fill_mixed(b, k->element, LONGEST);
        for (size_t j = 0; j < LONGEST; j++) {
            const double exponent = j < 9 ? exponents[j] : get(b, k->element, j);
            put(a, k->element, j, bases[i]);
            put(b, k->element, j, exponent);
        }
        k->binary(DS_BINARY_POW, one, a, b, LONGEST, 0, 1);
        k->binary(DS_BINARY_POW, each, a, b, LONGEST, 1, 1);
        CHECK(same(one, each, k->element, LONGEST));
    }
}

static void test_binary(const variants *all)
{
    const size_t e = all->element;
    double a[LONGEST], b[LONGEST], expected[LONGEST];
    for (ds_binary f = 0; f < DS_BINARY_COUNT; f++) {
        for (size_t n = 0; n <= 70; n++) {
            const size_t from = random_size(0, LONGEST - 71), steps = n % 4;
            const size_t a_step = steps & 1, b_step = steps >> 1;
            fill_mixed(a, e, LONGEST);
            fill_mixed(b, e, LONGEST);
            const void *const left = (char *)a + from * e;
            const void *const right = (char *)b + from * e;
            for (size_t v = 0; v < all->n; v++) {
                const ds_real_kernels *const k = all->k[v];
                guarded y = guarded_new(n * e);
                k->binary(f, y.data, left, right, n, a_step, b_step);
                if (v == 0)
                    memcpy(expected, y.data, n * e);
                CHECK(same(y.data, expected, e, n));
                if (a_step == 1) { /* in place */
                    memcpy(y.data, left, n * e);
                    k->binary(f, y.data, y.data, right, n, 1, b_step);
                    CHECK(same(y.data, expected, e, n));
                }
                if (b_step == 1) {
                    memcpy(y.data, right, n * e);
                    k->binary(f, y.data, left, y.data, n, a_step, 1);
                    CHECK(same(y.data, expected, e, n));
                }
                guarded_free(y);
            }
            for (size_t i = 0; i < n; i++) {
                const double ideal =
                    binary_ideals[f].f(get(left, e, i * a_step), get(right, e, i * b_step));
                const double got = get(expected, e, i);
                const double rounded = e == sizeof(float) ? (double)(float)ideal : ideal;
                const double bound =
                    e == sizeof(float) ? fabs(rounded) * binary_ideals[f].ulps_f32 * 0x1p-24 : 0;
                CHECK(isnan(ideal) ? isnan(got) : got == rounded || fabs(got - rounded) <= bound);
            }
        }
    }
}

static void test_compare(const variants *all)
{
    const size_t e = all->element;
    double a[LONGEST], b[LONGEST];
    for (ds_compare f = 0; f < DS_COMPARE_COUNT; f++) {
        for (size_t n = 0; n <= 70; n++) {
            const size_t steps = n % 4, a_step = steps & 1, b_step = steps >> 1;
            fill_mixed(a, e, LONGEST);
            fill_mixed(b, e, LONGEST);
            for (size_t v = 0; v < all->n; v++) {
                guarded y = guarded_new(n);
                all->k[v]->compare(f, y.data, a, b, n, a_step, b_step);
                for (size_t i = 0; i < n; i++) {
                    CHECK(((uint8_t *)y.data)[i] ==
                          compare_ideals[f].f(get(a, e, i * a_step), get(b, e, i * b_step)));
                }
                guarded_free(y);
            }
        }
    }
}

static void test_where(const variants *all)
{
    const size_t e = all->element;
    double a[LONGEST], b[LONGEST];
    uint8_t condition[LONGEST];
    for (size_t n = 0; n <= 160; n++) {
        const size_t length = n % 71, steps = random_size(0, 7);
        const size_t a_step = steps & 1, b_step = steps >> 1 & 1, c_step = steps >> 2;
        fill_mixed(a, e, LONGEST);
        fill_mixed(b, e, LONGEST);
        for (size_t i = 0; i < LONGEST; i++) /* anything but 0 is true */
            condition[i] = (uint8_t)(random_size(0, 1) * random_size(1, 255));
        for (size_t v = 0; v < all->n; v++) {
            for (int in_place = 0; in_place < 3; in_place++) {
                guarded y = guarded_new(length * e);
                const void *left = a, *right = b;
                if (in_place == 1 && a_step == 1) {
                    memcpy(y.data, a, length * e);
                    left = y.data;
                } else if (in_place == 2 && b_step == 1) {
                    memcpy(y.data, b, length * e);
                    right = y.data;
                }
                all->k[v]->where(y.data, condition, left, right, length, c_step, a_step, b_step);
                for (size_t i = 0; i < length; i++) {
                    const double ideal =
                        condition[i * c_step] ? get(a, e, i * a_step) : get(b, e, i * b_step);
                    const double got = get(y.data, e, i);
                    CHECK(isnan(ideal) ? isnan(got)
                                       : got == ideal && !signbit(got) == !signbit(ideal));
                }
                guarded_free(y);
            }
        }
    }
}

/* Rows are those of `binary`, one by one. */
static void test_binary_rows(const variants *all)
{
    const size_t e = all->element;
    double a[LONGEST], b[LONGEST], expected[LONGEST];
    fill_mixed(a, e, LONGEST);
    fill_mixed(b, e, LONGEST);
    for (int round = 0; round < 30 * DS_BINARY_COUNT; round++) {
        const ds_binary f = (ds_binary)(round % DS_BINARY_COUNT);
        const size_t n_rows = random_size(0, 4), n = random_size(1, 20);
        const size_t a_step = random_size(0, 1), b_step = random_size(0, 1);
        const size_t a_row = random_size(0, 1) ? n : random_size(0, 20), b_row = random_size(0, 20);
        for (size_t r = 0; r < n_rows; r++)
            all->k[0]->binary(f, (char *)expected + r * n * e, (char *)a + r * a_row * e,
                              (char *)b + r * b_row * e, n, a_step, b_step);
        for (size_t v = 0; v < all->n; v++) {
            guarded y = guarded_new(n_rows * n * e);
            const bool in_place = a_row == n && a_step == 1;
            memcpy(y.data, a, n_rows * n * e);
            all->k[v]->binary_rows(f, y.data, in_place ? y.data : (void *)a, b, n_rows, n, a_row,
                                   a_step, b_row, b_step);
            CHECK(same(y.data, expected, e, n_rows * n));
            guarded_free(y);
        }
    }
}

/* What is left of quotients of floats of every size is libm's, to the bit. */
static void test_rests(const variants *all)
{
    static float a[4096], b[4096], y[4096];
    for (int round = 0; round < 64 && all->element == sizeof(float); round++) {
        for (size_t i = 0; i < 4096; i++) {
            b[i] = (float)ldexp(random_real(-2, 2), (int)random_size(0, 240) - 140);
            const int more =
                round % 2 == 0 ? (int)random_size(0, 60) - 20 : 26 + (int)random_size(0, 4);
            a[i] = (float)ldexp(
                (double)b[i] * (i % 3 == 0 ? rint(random_real(1, 9)) : random_real(-2, 2)), more);
            a[i] = i % 7 == 0 ? nextafterf(a[i], 0) : a[i];
        }
        for (size_t v = 0; v < all->n; v++) {
            all->k[v]->binary(DS_BINARY_FMOD, y, a, b, 4096, 1, 1);
            for (size_t i = 0; i < 4096; i++) {
                const float ideal = fmodf(a[i], b[i]);
                CHECK(same(&y[i], &ideal, sizeof ideal, 1));
            }
        }
    }
}

static void test_powers(const variants *all)
{
    for (size_t v = 0; v < all->n; v++)
        test_power_of_one_base(all->k[v]);
}

KERNEL_TESTS(test_rests, test_binary, test_binary_rows, test_powers, test_compare, test_where)
