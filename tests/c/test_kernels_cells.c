/* lstm_cell, gru_cell, rnn_cell and linear_recurrence: against long double, and bits in every variant. */
#include "test_kernels.h"

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

static void test_cell(kind which, const variants *all)
{
    const size_t e = all->element;
    const real unit = unit_of(e);
    double from_x[4 * WIDEST], from_h[4 * WIDEST], h_before[WIDEST], c_before[WIDEST];
    for (size_t n = 0; n <= WIDEST; n++) {
        fill(from_x, e, 4 * n, -6, 6);
        fill(from_h, e, 4 * n, -2, 2);
        fill(h_before, e, n, -1, 1);
        fill(c_before, e, n, -3, 3);
        guarded h[MAX_VARIANTS], c[MAX_VARIANTS];
        for (size_t v = 0; v < all->n; v++) {
            h[v] = guarded_new(n * e);
            c[v] = guarded_new(n * e);
            memcpy(h[v].data, h_before, n * e);
            memcpy(c[v].data, c_before, n * e);
            step(which, all->k[v], h[v].data, c[v].data, from_x, from_h, n);
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
        for (size_t v = 0; v < all->n; v++) {
            guarded_free(h[v]);
            guarded_free(c[v]);
        }
    }
}

/* What is no number stays none; a positive sum without bound has no bound. */
static void test_special(const variants *all)
{
    const size_t e = all->element;
    for (size_t v = 0; v < all->n; v++) {
        for (kind which = LSTM; which < KINDS; which++) {
            double from_x[4 * 3], from_h[4 * 3], h[3], c[3];
            fill(from_x, e, 4 * 3, -1, 1);
            fill(from_h, e, 4 * 3, -1, 1);
            fill(h, e, 3, -1, 1);
            fill(c, e, 3, -1, 1);
            put(from_x, e, 1, (double)NAN);
            step(which, all->k[v], h, c, from_x, from_h, 3);
            CHECK(!isnan(get(h, e, 0)) && isnan(get(h, e, 1)) && !isnan(get(h, e, 2)));
            put(from_x, e, 1, (double)INFINITY);
            step(RNN_RELU, all->k[v], h, c, from_x, from_h, 3);
            CHECK(isinf(get(h, e, 1)));
        }
    }
}

/* Factors of all steps: of rows, of what rows share, of single elements. */
static void test_recurrence(const variants *all, size_t n, unsigned form)
{
    enum { ROWS = 37 };
    const size_t e = all->element, n_all = ROWS * n;
    static double x[5][ROWS * WIDEST], before[ROWS * WIDEST], room[4096];
    ds_linear_recurrence p = {
        .n_rows = ROWS, .n = n, .exponential = form & 1, .before = before, .room = room};
    ds_factor *const factors[] = {&p.a[0], &p.a[1], &p.b[0], &p.b[1], &p.c};
    for (int i = 0; i < 5; i++) {
        const unsigned step =
            i == 4 || i % 2 == 1 ? form >> i & 1 : form >> i & form >> (i + 1) & 1;
        fill(x[i], e, n_all, -1, 1);
        *factors[i] = (ds_factor){x[i], form >> (5 + i) & 1 ? n : step == 0, i == 4 ? 1 : step};
    }
    fill(before, e, n_all, -1, 1);
    guarded h = guarded_new(n_all * e), sums = guarded_new(ROWS * e), first[2] = {h, sums};
    for (size_t v = 0; v < all->n; v++) {
        guarded y[2] = {guarded_new(n_all * e), guarded_new(ROWS * e)};
        p.h = y[0].data;
        p.sums = form >> 10 & 1 ? y[1].data : NULL;
        all->k[v]->linear_recurrence(&p);
        for (int i = 0; i < (p.sums ? 2 : 1); i++) {
            if (v == 0)
                memcpy(first[i].data, y[i].data, (i == 0 ? n_all : ROWS) * e);
            CHECK(memcmp(first[i].data, y[i].data, (i == 0 ? n_all : ROWS) * e) == 0);
        }
        for (size_t r = 0; r < ROWS; r++) {
            real sum = 0;
            for (size_t i = 0; i < n; i++) {
                real f[5];
                for (int j = 0; j < 5; j++)
                    f[j] = (real)get(factors[j]->x, e, r * factors[j]->row + i * factors[j]->step);
                const real a = p.exponential ? expl(f[0] * f[1]) : f[0] * f[1];
                const real wanted = a * (real)get(before, e, r * n + i) + f[2] * f[3];
                CHECK(fabsl((real)get(p.h, e, r * n + i) - wanted) <=
                      (e == sizeof(float) ? 0x1p-20L : 0x1p-49L));
                sum += (real)get(p.h, e, r * n + i) * f[4];
            }
            CHECK(!p.sums || fabsl((real)get(p.sums, e, r) - sum) <=
                                 (e == sizeof(float) ? 0x1p-16L : 0x1p-45L));
        }
        guarded_free(y[0]);
        guarded_free(y[1]);
    }
    guarded_free(h);
    guarded_free(sums);
}

static void test_cells(const variants *all)
{
    for (kind which = LSTM; which < KINDS; which++)
        test_cell(which, all);
}

static void test_recurrences(const variants *all)
{
    for (unsigned form = 0; form < 1 << 11; form += 7)
        for (size_t n = 5; n <= 27; n += 11)
            test_recurrence(all, n, form);
}

KERNEL_TESTS(test_cells, test_special, test_recurrences)
