/* fft: against long double by its definition, rows alone and together, and bits in every variant. */
#include "test_kernels.h"

enum {
    ROWS = 19, /* more than any variant's vector has lanes of float */
    LONGEST = 514
};

/* Random rows, what every variant makes of them, and the same one row at a time. */
static void transform(const variants *all, const ds_fft *shape, void *const *y,
                      const void *const *x, size_t in, size_t out)
{
    const size_t e = all->element;
    for (size_t v = 0; v < all->n; v++) {
        const ds_real_kernels *const k = all->k[v];
        ds_fft f = *shape;
        guarded table = guarded_new(ds_fft_table_bytes(f.kind, f.n, e));
        guarded scratch = guarded_new(ds_fft_scratch(f.kind, f.n, e));
        k->fft_table(table.data, f.kind, f.n);
        f.table = table.data;
        f.scratch = scratch.data;
        guarded z[2] = {guarded_new(ROWS * out * e), guarded_new(ROWS * out * e)};
        guarded one[2] = {guarded_new(out * e), guarded_new(out * e)};
        if (v == 0)
            k->fft(&f, y, x, ROWS);
        k->fft(&f, (void *[2]){z[0].data, z[1].data}, x, ROWS);
        const int n_out = f.kind == DS_FFT_REAL_INVERSE ? 1 : 2;
        for (int o = 0; o < n_out; o++)
            CHECK(same(z[o].data, y[o], e, ROWS * out));
        for (size_t m = 0; m < ROWS; m++) {
            const void *const row[2] = {(const char *)x[0] + m * in * e,
                                        (const char *)x[1] + m * in * e};
            k->fft(&f, (void *[2]){one[0].data, one[1].data}, row, 1);
            for (int o = 0; o < n_out; o++)
                CHECK(same(one[o].data, (char *)y[o] + m * out * e, e, out));
        }
        for (int o = 0; o < 2; o++) {
            guarded_free(z[o]);
            guarded_free(one[o]);
        }
        guarded_free(scratch);
        guarded_free(table);
    }
}

/* Output k of one row by definition: the parts that there are. `turns` has cosine and sine of j n-ths of a turn, j from
 * 0 to n - 1. */
static void ideal(const ds_fft *f, const real *turns, const void *const *x, size_t e, size_t k,
                  real *re, real *im)
{
    const bool inverse = f->kind == DS_FFT_REAL_INVERSE || f->kind == DS_FFT_COMPLEX_INVERSE;
    *re = *im = 0;
    for (size_t j = 0; j < f->n; j++) {
        const bool mirrored = f->kind == DS_FFT_REAL_INVERSE && j > f->n / 2;
        const size_t at = mirrored ? f->n - j : j;
        const real a = (real)get(x[0], e, at);
        real b = f->kind == DS_FFT_REAL ? 0 : (real)get(x[1], e, at);
        if (f->kind == DS_FFT_REAL_INVERSE && (at == 0 || 2 * at == f->n))
            b = 0;
        b = mirrored ? -b : b;
        const real *const turn = turns + 2 * (j * k % f->n), c = turn[0];
        const real s = inverse ? -turn[1] : turn[1];
        *re += a * c + b * s;
        *im += b * c - a * s;
    }
    if (inverse) {
        *re /= (real)f->n;
        *im /= (real)f->n;
    }
}

static real square(real x)
{
    return x * x;
}

static void test_size(const variants *all, ds_fft_kind kind, size_t n)
{
    const size_t e = all->element;
    const ds_fft f = {.kind = kind, .n = n};
    const size_t in = kind == DS_FFT_REAL_INVERSE ? n / 2 + 1 : n;
    const size_t out = kind == DS_FFT_REAL ? n / 2 + 1 : n;
    guarded x[2], y[2];
    for (int i = 0; i < 2; i++) {
        x[i] = guarded_new(ROWS * in * e);
        y[i] = guarded_new(ROWS * out * e);
        fill(x[i].data, e, ROWS * in, -1, 1);
    }
    transform(all, &f, (void *[2]){y[0].data, y[1].data}, (const void *[2]){x[0].data, x[1].data},
              in, out);
    real turns[2 * LONGEST];
    for (size_t j = 0; j < n; j++) {
        const real angle = 8 * atanl(1.0L) / (real)n * (real)j;
        turns[2 * j] = cosl(angle);
        turns[2 * j + 1] = sinl(angle);
    }
    const real epsilon = unit_of(e), unit = epsilon * 8 * (real)n;
    for (size_t m = 0; m < ROWS; m += 6) {
        real error = 0, size = 0;
        for (size_t k = 0; k < out; k++) {
            real re, im;
            ideal(&f, turns,
                  (const void *[2]){(char *)x[0].data + m * in * e, (char *)x[1].data + m * in * e},
                  e, k, &re, &im);
            CHECK(fabsl((real)get(y[0].data, e, m * out + k) - re) <= unit);
            if (kind != DS_FFT_REAL_INVERSE)
                CHECK(fabsl((real)get(y[1].data, e, m * out + k) - im) <= unit);
            error += square((real)get(y[0].data, e, m * out + k) - re);
            size += square(re);
        }
        CHECK(sqrtl(error) <= 8 * epsilon * sqrtl(size));
    }
    for (int i = 0; i < 2; i++) {
        guarded_free(x[i]);
        guarded_free(y[i]);
    }
}

/* Eighths of a turn are exact up to their root, whole quarters altogether. */
static void test_table(const ds_real_kernels *k)
{
    guarded table = guarded_new(2 * 8 * k->element);
    k->fft_table(table.data, DS_FFT_COMPLEX, 8);
    const double root = k->element == sizeof(float) ? (double)(float)sqrt(0.5) : sqrt(0.5);
    const double cosines[] = {1, root, 0, -root, -1, -root, 0, root};
    for (size_t j = 0; j < 8; j++) {
        CHECK(fabs(get(table.data, k->element, 2 * j) - cosines[j]) <= 0x1p-53);
        CHECK(fabs(get(table.data, k->element, 2 * j + 1) - cosines[(j + 6) % 8]) <= 0x1p-53);
    }
    guarded_free(table);
}

static void test_tables(const variants *all)
{
    for (size_t v = 0; v < all->n; v++)
        test_table(all->k[v]);
}

static void test_sizes(const variants *all)
{
    static const size_t sizes[] = {20,  21,  25,  27,  30,  32,  49,  64,  67,  100, 121,    128,
                                   134, 142, 178, 183, 200, 240, 254, 257, 262, 335, LONGEST};
    for (int kind = DS_FFT_REAL; kind <= DS_FFT_COMPLEX_INVERSE; kind++) {
        for (size_t n = 1; n < 20; n++)
            test_size(all, (ds_fft_kind)kind, n);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            test_size(all, (ds_fft_kind)kind, sizes[i]);
    }
}

KERNEL_TESTS(test_tables, test_sizes)
