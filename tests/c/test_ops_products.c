/* ops/linear, conv1d, conv_transpose1d and layer_norm against plain loops in double, offline and
 * streamed (op_driver.h); and what they refuse. */
#include "op_driver.h"

/* ---------------------------------------------------------------- linear and layer_norm */

static void linear_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t n_out = p->weight[0].shape[0], n_in = p->weight[0].shape[1];
    const int64_t lead = ds_signature_elements(&p->in) / n_in;
    out[0] = make_result(n, lead * n_out);
    for (int64_t i = 0; i < n * lead * n_out; i++) {
        for (int64_t k = 0; k < n_in; k++) {
            out[0].y[i] += x[i / n_out * n_in + k] * p->values[0][i % n_out * n_in + k];
        }
        out[0].y[i] += p->values[1] != NULL ? p->values[1][i % n_out] : 0;
    }
}

static void test_linear(void)
{
    static const int64_t sizes[][2] = {
        {1, 1}, {3, 5}, {33, 70}, {300, 17}, {530, 40}}; /* in, out */
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int lead = 0; lead < 3; lead++) {
            const int64_t n_in = sizes[i][0], n_out = sizes[i][1];
            problem p = {.def = &ds_op_linear, .oracle = linear_oracle};
            p.in = (ds_signature){.rank = lead + 1,
                                  .shape = {lead ? 3 : n_in, lead > 1 ? 2 : n_in, n_in},
                                  .rate = {1, 1}};
            add_weight(&p, true, 2, (int64_t[]){n_out, n_in});
            add_weight(&p, random_below(2) == 0, 1, &n_out);
            try_problem(&p, 20);
        }
    }
}

static void layer_norm_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t width = ds_signature_elements(&p->in), axes = get_int(p, "axes");
    int64_t inner = 1;
    for (int i = p->in.rank - (int)axes; i < p->in.rank; i++) {
        inner *= p->in.shape[i];
    }
    out[0] = make_result(n, width);
    for (int64_t v = 0; v < n * width; v += inner) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < inner; i++) {
            mean += x[v + i] / (double)inner;
        }
        for (int64_t i = 0; i < inner; i++) {
            variance += (x[v + i] - mean) * (x[v + i] - mean) / (double)inner;
        }
        for (int64_t i = 0; i < inner; i++) {
            out[0].y[v + i] = (x[v + i] - mean) / sqrt(variance + 0.125) *
                                  (p->values[0] != NULL ? p->values[0][i] : 1) +
                              (p->values[1] != NULL ? p->values[1][i] : 0);
        }
    }
}

static void test_layer_norm(void)
{
    for (int i = 0; i < 16; i++) {
        problem p = {.def = &ds_op_layer_norm, .oracle = layer_norm_oracle};
        const int64_t axes = random_in(1, 2);
        p.in =
            (ds_signature){.rank = 2, .shape = {random_in(1, 4), random_in(1, 40)}, .rate = {1, 1}};
        set_int(&p, "axes", axes);
        p.attrs[p.n_attrs++] =
            (ds_attr){.name = "eps", .kind = DS_ATTR_REAL, .value = {.x = 0.125}};
        add_weight(&p, i & 1, (int)axes, p.in.shape + 2 - axes);
        add_weight(&p, i & 2, (int)axes, p.in.shape + 2 - axes);
        try_problem(&p, 12);
    }
}

/* ---------------------------------------------------------------- convolutions */

static const char *const modes[] = {"zeros", "replicate", "reflect", "circular"};

/* Frame `position` of the stream of n frames padded in this way, NULL for zeros: one step at a time. */
static const double *padded(const char *mode, const double *x, int64_t n, int64_t width,
                            int64_t position)
{
    if (strcmp(mode, "reflect") == 0) {
        int64_t at = 0, way = position < 0 ? -1 : 1;
        for (int64_t i = 0; i != position; i += position < 0 ? -1 : 1) {
            way = at + way < 0 || at + way >= n ? -way : way;
            at += way;
        }
        return x + at * width;
    }
    while (strcmp(mode, "circular") == 0 && position < 0) {
        position += n;
    }
    while (strcmp(mode, "circular") == 0 && position >= n) {
        position -= n;
    }
    while (strcmp(mode, "replicate") == 0 && position < 0) {
        position++;
    }
    while (strcmp(mode, "replicate") == 0 && position >= n) {
        position--;
    }
    return position < 0 || position >= n ? NULL : x + position * width;
}

static void conv1d_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t n_out = p->weight[0].shape[0], depth = p->weight[0].shape[1];
    const int64_t kernel = p->weight[0].shape[2], groups = get_int(p, "groups");
    const int64_t left = get_int(p, "left"), right = get_int(p, "right");
    const int64_t stride = get_int(p, "stride"), dilation = get_int(p, "dilation");
    const char *mode = p->attrs[p->n_attrs - 1].text;
    const int64_t wide = left > right ? left : right;
    bool none = n == 0 || (strcmp(mode, "reflect") == 0 && wide > 0 && n <= wide);
    none |= strcmp(mode, "circular") == 0 && n < wide;
    int64_t frames = 0;
    while (!none && frames * stride + dilation * (kernel - 1) < n + left + right) {
        frames++;
    }
    out[0] = make_result(frames, n_out);
    for (int64_t m = 0; m < frames; m++) {
        for (int64_t o = 0; o < n_out; o++) {
            double *y = &out[0].y[m * n_out + o];
            for (int64_t t = 0; t < kernel; t++) {
                const double *frame =
                    padded(mode, x, n, depth * groups, m * stride + t * dilation - left);
                for (int64_t c = 0; c < depth && frame != NULL; c++) {
                    *y += frame[o / (n_out / groups) * depth + c] *
                          p->values[0][(o * depth + c) * kernel + t];
                }
            }
            *y += p->values[1] != NULL ? p->values[1][o] : 0;
        }
    }
}

static void try_conv1d(int64_t n_in, int64_t n_out, int64_t groups, int64_t kernel, int64_t stride,
                       int64_t dilation, int64_t left, int64_t right, int mode)
{
    problem p = {.def = &ds_op_conv1d, .oracle = conv1d_oracle};
    p.in = (ds_signature){.rank = 1, .shape = {n_in}, .rate = {1, 1}};
    set_int(&p, "stride", stride);
    set_int(&p, "dilation", dilation);
    set_int(&p, "groups", groups);
    set_int(&p, "left", left);
    set_int(&p, "right", right);
    p.attrs[p.n_attrs++] = (ds_attr){.name = "mode", .kind = DS_ATTR_CHOICE, .text = modes[mode]};
    add_weight(&p, true, 3, (int64_t[]){n_out, n_in / groups, kernel});
    add_weight(&p, random_below(2) == 0, 1, &n_out);
    try_problem(&p, 3 * (dilation * (kernel - 1) + 1 + left + right) + 2 * stride);
}

static void test_conv1d(void)
{
    try_conv1d(40, 70, 1, 9, 2, 1, 4, 4, 0);     /* a depth beyond one chain, several panels */
    try_conv1d(40, 70, 1, 9, 1, 3, 8, 8, 0);     /* more copies than there is room for */
    try_conv1d(70, 70, 70, 31, 1, 1, 15, 15, 0); /* depthwise */
    try_conv1d(70, 70, 70, 3, 1, 4, 8, 0, 0);
    try_conv1d(1, 24, 1, 10, 5, 1, 0, 0, 0);
    try_conv1d(12, 20, 4, 1, 3, 1, 0, 0, 0); /* groups by pointer */
    try_conv1d(5, 7, 1, 1, 1, 1, 0, 0, 0);
    try_conv1d(300, 8, 1, 70, 1, 1, 69, 0, 1); /* the least number of copies */
    for (int i = 0; i < 400; i++) {
        const int64_t groups = random_below(2) == 0 ? 1 : random_in(1, 4);
        const int64_t n_in = groups * random_in(1, 3), n_out = groups * random_in(1, 3);
        const int64_t wide = random_below(3) == 0 ? 0 : 9;
        try_conv1d(n_in, n_out, groups, random_in(1, 5), random_in(1, 7), random_in(1, 3),
                   random_in(0, wide), random_in(0, wide), (int)random_below(4));
    }
}

static void conv_transpose1d_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t n_in = p->weight[0].shape[0], per_group = p->weight[0].shape[1];
    const int64_t kernel = p->weight[0].shape[2], groups = get_int(p, "groups");
    const int64_t stride = get_int(p, "stride"), dilation = get_int(p, "dilation");
    const int64_t padding = get_int(p, "padding"), n_out = per_group * groups;
    const int64_t frames =
        (n - 1) * stride - 2 * padding + dilation * (kernel - 1) + get_int(p, "output_padding") + 1;
    out[0] = make_result(n > 0 ? frames : 0, n_out);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < kernel; j++) {
            const int64_t m = i * stride + j * dilation - padding;
            for (int64_t c = 0; c < n_in && m >= 0 && m < out[0].n; c++) {
                for (int64_t o = 0; o < per_group; o++) {
                    out[0].y[m * n_out + c / (n_in / groups) * per_group + o] +=
                        x[i * n_in + c] * p->values[0][(c * per_group + o) * kernel + j];
                }
            }
        }
    }
    for (int64_t i = 0; i < out[0].n * n_out && p->values[1] != NULL; i++) {
        out[0].y[i] += p->values[1][i % n_out];
    }
}

static void try_conv_transpose1d(int64_t n_in, int64_t n_out, int64_t groups, int64_t kernel,
                                 int64_t stride, int64_t dilation, int64_t padding,
                                 int64_t output_padding)
{
    problem p = {.def = &ds_op_conv_transpose1d, .oracle = conv_transpose1d_oracle};
    p.in = (ds_signature){.rank = 1, .shape = {n_in}, .rate = {1, 1}};
    set_int(&p, "stride", stride);
    set_int(&p, "dilation", dilation);
    set_int(&p, "groups", groups);
    set_int(&p, "padding", padding);
    set_int(&p, "output_padding", output_padding);
    add_weight(&p, true, 3, (int64_t[]){n_in, n_out / groups, kernel});
    add_weight(&p, random_below(2) == 0, 1, &n_out);
    try_problem(&p, 3 * (dilation * (kernel - 1) / stride + 1 + padding / stride) + 8);
}

static void test_conv_transpose1d(void)
{
    try_conv_transpose1d(70, 40, 1, 16, 8, 1, 4, 0);
    try_conv_transpose1d(150, 33, 1, 6, 2, 1, 0, 1);
    try_conv_transpose1d(40, 40, 40, 4, 2, 1, 1, 0);
    for (int i = 0; i < 400; i++) {
        const int64_t groups = random_below(2) == 0 ? 1 : random_in(1, 4);
        const int64_t n_in = groups * random_in(1, 3), n_out = groups * random_in(1, 3);
        const int64_t stride = random_in(1, 7), dilation = random_in(1, 4);
        const int64_t most = stride > dilation ? stride : dilation;
        try_conv_transpose1d(n_in, n_out, groups, random_in(1, 8), stride, dilation,
                             random_below(2) == 0 ? 0 : random_in(0, 9), random_in(0, most - 1));
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

static void refused_conv(const ds_op_def *def, const char *attr, int64_t i, const int64_t *shape,
                         ds_status status, const char *words)
{
    problem p = {.def = def, .in = {.rank = 1, .shape = {6}, .rate = {1, 1}}};
    set_int(&p, attr, i);
    add_weight(&p, true, 3, shape);
    refused(&p, status, words);
}

static void test_refusals(void)
{
    const int64_t shape[] = {4, 6, 3};
    refused_conv(&ds_op_conv1d, "stride", 0, shape, DS_ARGUMENT, "stride must be 1 to");
    refused_conv(&ds_op_conv1d, "dilation", 1 << 30, shape, DS_ARGUMENT, "dilation must be 1 to");
    refused_conv(&ds_op_conv1d, "left", -1, shape, DS_ARGUMENT, "left padding must be 0 to");
    refused_conv(&ds_op_conv1d, "groups", 4, shape, DS_ARGUMENT, "groups must divide 6 input");
    refused_conv(&ds_op_conv1d, "groups", 2, shape, DS_SHAPE, "(4, 3, kernel_size)");
    refused_conv(&ds_op_conv_transpose1d, "groups", 2, shape, DS_SHAPE,
                 "(6, out_channels / groups");
    refused_conv(&ds_op_conv_transpose1d, "output_padding", 1, (int64_t[]){6, 4, 3}, DS_ARGUMENT,
                 "output_padding must be below");
    refused_conv(&ds_op_linear, "x", 1, shape, DS_ARGUMENT, "unknown attribute");
}

int main(void)
{
    test_linear();
    test_layer_norm();
    test_conv1d();
    test_conv_transpose1d();
    test_refusals();
    return check_report();
}
