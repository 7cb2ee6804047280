/* ops/lstm, gru, rnn and their cells against plain loops in double, offline and streamed (op_driver.h);
 * and what they refuse. */
#include "op_driver.h"

enum { WIDEST = 64 };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static int64_t n_gates(const problem *p)
{
    return p->def->name[0] == 'l' ? 4 : p->def->name[0] == 'g' ? 3 : 1;
}

static bool is_relu(const problem *p)
{
    return p->n_attrs > 0 && p->attrs[p->n_attrs - 1].text != NULL;
}

static double product(const double *row, const double *x, int64_t n, const double *bias, int64_t at)
{
    double sum = bias != NULL ? bias[at] : 0;
    for (int64_t i = 0; i < n; i++) {
        sum += row[at * n + i] * x[i];
    }
    return sum;
}

/* One step: x [n_in], h [n_out] and c [hidden] before; after it, what h is before its projection. */
static void step(const problem *p, double *const *w, const double *const *bias, const double *x,
                 int64_t n_in, const double *h, int64_t n_out, double *c, int64_t hidden,
                 double *after)
{
    for (int64_t i = 0; i < hidden; i++) {
        double a[4], b[4];
        for (int64_t g = 0; g < n_gates(p); g++) {
            a[g] = product(w[0], x, n_in, bias[0], g * hidden + i);
            b[g] = product(w[1], h, n_out, bias[1], g * hidden + i);
        }
        switch (n_gates(p)) {
        case 4:
            c[i] = sigmoid(a[1] + b[1]) * c[i] + sigmoid(a[0] + b[0]) * tanh(a[2] + b[2]);
            after[i] = sigmoid(a[3] + b[3]) * tanh(c[i]);
            break;
        case 3: {
            const double update = sigmoid(a[1] + b[1]);
            after[i] = (1 - update) * tanh(a[2] + sigmoid(a[0] + b[0]) * b[2]) + update * h[i];
            break;
        }
        default:
            after[i] = is_relu(p) ? fmax(a[0] + b[0], 0) : tanh(a[0] + b[0]);
        }
    }
}

/* ---------------------------------------------------------------- along the stream */

typedef struct shape {
    int64_t n_in, hidden, out, layers, dirs, cells, per_cell, projection;
    bool bias;
} shape;

static shape shape_of(const problem *p)
{
    shape s = {.layers = get_int(p, "layers"),
               .dirs = 1 + get_int(p, "bidirectional"),
               .bias = get_int(p, "bias") != 0,
               .projection = n_gates(p) == 4 ? get_int(p, "projection") : 0,
               .n_in = p->in.shape[0],
               .hidden = p->weight[0].shape[0] / n_gates(p)};
    s.out = s.projection ? s.projection : s.hidden;
    s.cells = s.layers * s.dirs;
    s.per_cell = 2 + 2 * s.bias + (s.projection ? 1 : 0);
    return s;
}

/* One layer in one direction: x [n][n_in] to y [n][dirs * out], and its last h and c. */
static void direction_oracle(const problem *p, const shape *s, int64_t cell, const double *x,
                             int64_t n_in, int64_t n, double *y, result *ends)
{
    double *const *w = p->values + cell * s->per_cell;
    const double *bias[2] = {s->bias ? w[2] : NULL, s->bias ? w[3] : NULL};
    const double *h0 = p->values[s->cells * s->per_cell];
    const double *c0 = n_gates(p) == 4 ? p->values[s->cells * s->per_cell + 1] : NULL;
    double h[WIDEST], after[WIDEST], c[WIDEST];
    for (int64_t i = 0; i < s->hidden; i++) {
        h[i] = i < s->out && h0 != NULL ? h0[cell * s->out + i] : 0;
        c[i] = c0 != NULL ? c0[cell * s->hidden + i] : 0;
    }
    for (int64_t t = 0; t < n; t++) {
        const int64_t at = cell % s->dirs ? n - 1 - t : t;
        step(p, w, bias, x + at * n_in, n_in, h, s->out, c, s->hidden, after);
        for (int64_t i = 0; i < s->out; i++) {
            h[i] =
                s->projection ? product(w[s->per_cell - 1], after, s->hidden, NULL, i) : after[i];
            y[(at * s->dirs + cell % s->dirs) * s->out + i] = h[i];
        }
    }
    memcpy(ends[0].y + cell * s->out, h, (size_t)s->out * sizeof(double));
    if (n_gates(p) == 4) {
        memcpy(ends[1].y + cell * s->hidden, c, (size_t)s->hidden * sizeof(double));
    }
}

static void recurrence_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const shape s = shape_of(p);
    double *below = NULL;
    out[1] = make_result(n > 0 ? 1 : 0, s.cells * s.out);
    if (n_gates(p) == 4) {
        out[2] = make_result(n > 0 ? 1 : 0, s.cells * s.hidden);
    }
    for (int64_t layer = 0; layer < s.layers; layer++) {
        out[0] = make_result(n, s.dirs * s.out);
        for (int64_t d = 0; d < s.dirs && n > 0; d++) {
            direction_oracle(p, &s, layer * s.dirs + d, layer ? below : x,
                             layer ? s.dirs * s.out : s.n_in, n, out[0].y, out + 1);
        }
        free(below);
        below = out[0].y;
    }
}

/* Weights with which what differs, rounding errors among them, does not grow from frame to frame. */
static void shrink(problem *p)
{
    for (size_t i = 0; i < p->n_weights; i++) {
        for (int64_t j = 0; p->values[i] && j < ds_signature_elements(&p->weight[i]); j++) {
            p->values[i][j] /= 8;
        }
    }
}

static problem make_recurrence(const ds_op_def *def, shape s, bool h0, bool c0)
{
    problem p = {.def = def, .oracle = recurrence_oracle};
    p.in = (ds_signature){.rank = 1, .shape = {s.n_in}, .rate = {1, 1}};
    set_int(&p, "layers", s.layers);
    set_int(&p, "bias", s.bias);
    set_int(&p, "bidirectional", s.dirs - 1);
    const int64_t gates = n_gates(&p) * s.hidden, out = s.projection ? s.projection : s.hidden;
    if (n_gates(&p) == 4) {
        set_int(&p, "projection", s.projection);
    }
    for (int64_t cell = 0; cell < s.layers * s.dirs; cell++) {
        add_weight(&p, true, 2, (int64_t[]){gates, cell < s.dirs ? s.n_in : s.dirs * out});
        add_weight(&p, true, 2, (int64_t[]){gates, out});
        for (int i = 0; i < 2 * s.bias; i++) {
            add_weight(&p, true, 1, &gates);
        }
        if (s.projection) {
            add_weight(&p, true, 2, (int64_t[]){out, s.hidden});
        }
    }
    add_weight(&p, h0, 2, (int64_t[]){s.layers * s.dirs, out});
    if (n_gates(&p) == 4) {
        add_weight(&p, c0, 2, (int64_t[]){s.layers * s.dirs, s.hidden});
    }
    return p;
}

static void set_relu(problem *p)
{
    p->attrs[p->n_attrs++] =
        (ds_attr){.name = "nonlinearity", .kind = DS_ATTR_CHOICE, .text = "relu"};
}

static void test_recurrences(void)
{
    const ds_op_def *const defs[] = {&ds_op_lstm, &ds_op_lstm, &ds_op_gru, &ds_op_rnn, &ds_op_rnn};
    for (int i = 0; i < 100; i++) {
        const int which = i % 5;
        shape s = {.n_in = random_in(1, 20),
                   .hidden = random_in(1, i % 8 ? 9 : 40),
                   .layers = random_in(1, 3),
                   .dirs = 1 + random_below(2),
                   .bias = random_below(2) == 0};
        s.projection = which == 1 ? random_in(1, s.hidden) : 0;
        problem p = make_recurrence(defs[which], s, random_below(2) == 0, random_below(2) == 0);
        if (which != 0) {
            shrink(&p);
        }
        if (which == 4) {
            set_relu(&p);
        }
        try_problem(&p, 20);
    }
}

/* ---------------------------------------------------------------- on frames by themselves */

/* From zeros: the input alone. */
static void cell_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t n_in = p->weight[0].shape[1], hidden = p->weight[1].shape[1];
    const int64_t vectors = ds_signature_elements(&p->in) / n_in;
    const double *bias[2] = {p->values[2], p->values[3]}, zeros[WIDEST] = {0};
    for (int i = 0; i < (n_gates(p) == 4 ? 2 : 1); i++) {
        out[i] = make_result(n, vectors * hidden);
    }
    for (int64_t v = 0; v < n * vectors; v++) {
        double c[WIDEST] = {0};
        step(p, p->values, bias, x + v * n_in, n_in, zeros, hidden, c, hidden,
             out[0].y + v * hidden);
        if (n_gates(p) == 4) {
            memcpy(out[1].y + v * hidden, c, (size_t)hidden * sizeof(double));
        }
    }
}

static problem make_cell(const ds_op_def *def, int lead, int64_t n_in, int64_t hidden)
{
    problem p = {.def = def, .oracle = cell_oracle};
    p.in = (ds_signature){
        .rank = lead + 1, .shape = {lead ? 3 : n_in, lead > 1 ? 2 : n_in, n_in}, .rate = {1, 1}};
    const int64_t gates = n_gates(&p) * hidden;
    add_weight(&p, true, 2, (int64_t[]){gates, n_in});
    add_weight(&p, true, 2, (int64_t[]){gates, hidden});
    add_weight(&p, random_below(2) == 0, 1, &gates);
    add_weight(&p, random_below(2) == 0, 1, &gates);
    return p;
}

static void test_cells(void)
{
    const ds_op_def *const defs[] = {&ds_op_lstm_cell, &ds_op_gru_cell, &ds_op_rnn_cell,
                                     &ds_op_rnn_cell};
    for (int i = 0; i < 48; i++) {
        problem p = make_cell(defs[i % 4], i / 4 % 3, random_in(1, 40), random_in(1, 40));
        if (i % 4 == 3) {
            set_relu(&p);
        }
        try_problem(&p, 20);
    }
}

/* ---------------------------------------------------------------- refusals */

static void refused(problem *p, ds_status status, const char *words)
{
    ds_op *op = NULL;
    const ds_status got = create(p, DS_F32, &op);
    if (got != status || strstr(ds_last_error(), words) == NULL) {
        fprintf(stderr, "status %d: %s\n", (int)got, ds_last_error());
        CHECK(!"another message");
    }
    CHECK(op == NULL);
    free_problem(p);
}

static void refused_states(const ds_op_def *def, const ds_signature *in, size_t n_in,
                           ds_status status, const char *words)
{
    problem p = make_cell(def, 0, 8, 16);
    ds_signature inputs[4], weights[4];
    for (size_t i = 0; i < 4; i++) {
        inputs[i] = i == 0 ? p.in : in[i - 1];
        inputs[i].dtype = DS_F32;
        inputs[i].rate = (ds_rate){1, 1};
        weights[i] = p.weight[i];
        weights[i].dtype = p.values[i] == NULL ? (ds_dtype)0 : DS_F32;
    }
    ds_op *op = NULL;
    CHECK(ds_op_create(&op, NULL, def, NULL, 0, inputs, n_in, weights, 4) == status);
    CHECK(op == NULL && strstr(ds_last_error(), words) != NULL);
    free_problem(&p);
}

static void test_refusals(void)
{
    const shape two = {.n_in = 8, .hidden = 16, .layers = 2, .dirs = 1, .bias = true};
    const shape both = {.n_in = 8, .hidden = 16, .layers = 1, .dirs = 2, .bias = true};
    shape projected = both;
    projected.projection = 5;
    problem p = make_recurrence(&ds_op_lstm, two, false, false);
    p.weight[5].shape[1] = 17;
    refused(&p, DS_SHAPE, "'weight_hh_l1' must have shape (64, 16), got (64, 17)");
    p = make_recurrence(&ds_op_lstm, both, true, false);
    p.weight[6].shape[0] = 63;
    refused(&p, DS_SHAPE, "'bias_ih_l0_reverse' must have shape (64,), got (63,)");
    p = make_recurrence(&ds_op_lstm, both, true, true);
    p.weight[9].shape[0] = 1;
    refused(&p, DS_SHAPE, "'c0' must have shape (2, 16), got (1, 16)");
    p = make_recurrence(&ds_op_lstm, two, false, false);
    free(p.values[p.n_weights - 3]);
    p.n_weights -= 3;
    refused(&p, DS_SHAPE, "expected 8 weights, then perhaps h0 and c0, got 7");
    p = make_recurrence(&ds_op_lstm, projected, true, true);
    p.weight[9].shape[1] = 15;
    refused(&p, DS_SHAPE, "'weight_hr_l0_reverse' must have shape (5, 16), got (5, 15)");
    p = make_recurrence(&ds_op_lstm, projected, true, true);
    p.attrs[3].value.i = -1;
    refused(&p, DS_ARGUMENT, "'projection' must be at least 0, got -1");
    p = make_recurrence(&ds_op_lstm, projected, true, true);
    p.weight[1].shape[0] = 3;
    refused(&p, DS_SHAPE, "'weight_hh_l0' must have shape (4 * hidden, projection), got (3, 5)");
    p = make_recurrence(&ds_op_gru, two, true, false);
    p.weight[8].shape[1] = 3;
    refused(&p, DS_SHAPE, "gru: its weight 'h0' must have shape (2, 16), got (2, 3)");
    p = make_recurrence(&ds_op_rnn, two, true, false);
    p.attrs[0].value.i = 0;
    refused(&p, DS_ARGUMENT, "rnn: layers must be 1 to");
    p = make_recurrence(&ds_op_rnn, two, true, false);
    p.attrs[1].value.i = 2;
    refused(&p, DS_ARGUMENT, "rnn: bias must be 0 or 1, got 2");

    p = make_cell(&ds_op_gru_cell, 0, 8, 16);
    p.weight[1].shape[0] = 47;
    refused(&p, DS_SHAPE,
            "gru_cell: its weight 'weight_hh' must have shape (48, 16), got (47, 16)");
    p = make_cell(&ds_op_rnn_cell, 0, 8, 16);
    p.in.rank = 0;
    refused(&p, DS_SHAPE, "rnn_cell: expected an input of shape (..., features), got ()");
    const ds_signature states[] = {
        {.rank = 1, .shape = {16}}, {.rank = 1, .shape = {15}}, {.rank = 1, .shape = {16}}};
    refused_states(&ds_op_lstm_cell, states, 2, DS_ARGUMENT, "expected 1 input or 3, got 2");
    refused_states(&ds_op_lstm_cell, states, 3, DS_SHAPE, "a state of shape (16,), got (15,)");
    refused_states(&ds_op_gru_cell, states, 3, DS_ARGUMENT, "expected 1 input or 2, got 3");
}

int main(void)
{
    test_recurrences();
    test_cells();
    test_refusals();
    return check_report();
}
