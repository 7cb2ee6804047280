/* lstm_cell, gru_cell and rnn_cell: against long double, and bits in every variant. */
#include "test_kernels.h"

typedef long double real;
typedef enum kind { LSTM, GRU, RNN_TANH, RNN_RELU, KINDS } kind;
enum { WIDEST = 70 };

static void step(kind which, const ds_real_kernels *k, void *h, void *c, const void *from_x,
                 const void *from_h, size_t n)
{
    switch (which) {
    case LSTM:
        k->lstm_cell(h, c, from_x, from_h, n);
        break;
    case GRU:
        k->gru_cell(h, from_x, from_h, n);
        break;
    default:
        k->rnn_cell(h, from_x, from_h, n, which == RNN_RELU);
        break;
    }
}

static real sigmoid(real x)
{
    return 1 / (1 + expl(-x));
}

/* h and c of one unit after the step, from a and b [gates] and what h and c were. */
static void ideal(kind which, const real *a, const real *b, real *h, real *c)
{
    if (which == LSTM) {
        *c = sigmoid(a[1] + b[1]) * *c + sigmoid(a[0] + b[0]) * tanhl(a[2] + b[2]);
        *h = sigmoid(a[3] + b[3]) * tanhl(*c);
    } else if (which == GRU) {
        const real update = sigmoid(a[1] + b[1]);
        *h = (1 - update) * tanhl(a[2] + sigmoid(a[0] + b[0]) * b[2]) + update * *h;
    } else if (which == RNN_TANH) {
        *h = tanhl(a[0] + b[0]);
    } else {
        *h = a[0] + b[0] > 0 ? a[0] + b[0] : 0;
    }
}

static void test_cell(kind which, const ds_kernels *const *variants, size_t n_variants,
                      size_t real_at)
{
    const size_t e = variants[0]->real[real_at].element;
    const real unit = e == sizeof(float) ? 0x1p-24L : 0x1p-53L;
    double from_x[4 * WIDEST], from_h[4 * WIDEST], h_before[WIDEST], c_before[WIDEST];
    for (size_t n = 0; n <= WIDEST; n++) {
        fill(from_x, e, 4 * n, -6, 6);
        fill(from_h, e, 4 * n, -2, 2);
        fill(h_before, e, n, -1, 1);
        fill(c_before, e, n, -3, 3);
        guarded h[MAX_VARIANTS], c[MAX_VARIANTS];
        for (size_t v = 0; v < n_variants; v++) {
            h[v] = guarded_new(n * e);
            c[v] = guarded_new(n * e);
            memcpy(h[v].data, h_before, n * e);
            memcpy(c[v].data, c_before, n * e);
            step(which, &variants[v]->real[real_at], h[v].data, c[v].data, from_x, from_h, n);
            CHECK(memcmp(h[v].data, h[0].data, n * e) == 0);
            CHECK(memcmp(c[v].data, c[0].data, n * e) == 0);
        }
        for (size_t j = 0; j < n; j++) {
            real a[4], b[4], h_after = (real)get(h_before, e, j),
                             c_after = (real)get(c_before, e, j);
            for (size_t g = 0; g < 4; g++) {
                a[g] = (real)get(from_x, e, g * n + j);
                b[g] = (real)get(from_h, e, g * n + j);
            }
            ideal(which, a, b, &h_after, &c_after);
            CHECK(fabsl((real)get(h[0].data, e, j) - h_after) <= 40 * unit);
            CHECK(fabsl((real)get(c[0].data, e, j) - c_after) <= 40 * unit);
        }
        for (size_t v = 0; v < n_variants; v++) {
            guarded_free(h[v]);
            guarded_free(c[v]);
        }
    }
}

/* What is no number stays none; a positive sum without bound has no bound. */
static void test_special(const ds_kernels *const *variants, size_t n_variants, size_t real_at)
{
    const size_t e = variants[0]->real[real_at].element;
    for (size_t v = 0; v < n_variants; v++) {
        for (kind which = LSTM; which < KINDS; which++) {
            double from_x[4 * 3], from_h[4 * 3], h[3], c[3];
            fill(from_x, e, 4 * 3, -1, 1);
            fill(from_h, e, 4 * 3, -1, 1);
            fill(h, e, 3, -1, 1);
            fill(c, e, 3, -1, 1);
            put(from_x, e, 1, (double)NAN);
            step(which, &variants[v]->real[real_at], h, c, from_x, from_h, 3);
            CHECK(!isnan(get(h, e, 0)) && isnan(get(h, e, 1)) && !isnan(get(h, e, 2)));
            put(from_x, e, 1, (double)INFINITY);
            step(RNN_RELU, &variants[v]->real[real_at], h, c, from_x, from_h, 3);
            CHECK(isinf(get(h, e, 1)));
        }
    }
}

int main(void)
{
    const ds_kernels *variants[MAX_VARIANTS];
    const size_t n_variants = runnable(variants);
    for (size_t real_at = 0; real_at < 2; real_at++) {
        for (kind which = LSTM; which < KINDS; which++)
            test_cell(which, variants, n_variants, real_at);
        test_special(variants, n_variants, real_at);
    }
    return check_report();
}
