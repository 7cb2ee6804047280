/* ops/conv2d, conv_transpose2d and pad_features against plain loops in double, offline and streamed
 * (op_driver.h); and what they refuse. */
#include "op_driver.h"

static const char *const modes[] = {"zeros", "replicate", "reflect", "circular"};

/* Numbers of one case: along the plane's first axis, then along its second. */
typedef struct plane_case {
    int64_t n_in, n_out, groups, rows, width; /* rows: 0 where the first axis is the stream */
    int64_t axis, kernel[2], stride[2], dilation[2];
    int64_t pads[4]; /* conv2d: both ends of each axis; transposed: padding[2], output_padding[2] */
    int mode, inner_mode;
} plane_case;

static plane_case now; /* the case at hand, for the oracles */

static void set_ints(problem *p, const char *name, const int64_t *ints, int n)
{
    ds_attr *attr = &p->attrs[p->n_attrs++];
    *attr = (ds_attr){.name = name, .kind = DS_ATTR_INTS, .value.n_ints = n};
    for (int i = 0; i < n; i++) {
        attr->value.ints[i] = ints[i];
    }
}

static void set_text(problem *p, const char *name, const char *text)
{
    p->attrs[p->n_attrs++] = (ds_attr){.name = name, .kind = DS_ATTR_CHOICE, .text = text};
}

/* What stands at `position` of n padded elements; -1: nothing. There are enough to be padded. */
static int64_t source(int mode, int64_t position, int64_t n)
{
    while (mode == 1 && (position < 0 || position >= n)) {
        position += position < 0 ? 1 : -1;
    }
    if (mode == 2 && (position < 0 || position >= n)) {
        position = position < 0 ? -position : 2 * (n - 1) - position;
    }
    if (mode == 3) {
        position = (position % n + n) % n;
    }
    return position < 0 || position >= n ? -1 : position;
}

static int64_t windows(int axis, int64_t n)
{
    const int64_t left = now.pads[2 * axis], right = now.pads[2 * axis + 1];
    const int mode = axis == 0 ? now.mode : now.inner_mode;
    const int64_t wide = left > right ? left : right;
    if (n == 0 || (mode == 2 && wide > 0 && n <= wide) || (mode == 3 && n < wide)) {
        return 0;
    }
    int64_t m = 0;
    while (m * now.stride[axis] + now.dilation[axis] * (now.kernel[axis] - 1) < n + left + right) {
        m++;
    }
    return m;
}

static double weight_at(const problem *p, int64_t a, int64_t b, int64_t t, int64_t i)
{
    const int64_t along = now.axis == 0 ? t : i, other = now.axis == 0 ? i : t;
    const int64_t *shape = p->weight[0].shape;
    return p->values[0][((a * shape[1] + b) * shape[2] + along) * shape[3] + other];
}

static void convolve(const problem *p, const double *x, int64_t n, double *y)
{
    const int64_t depth = now.n_in / now.groups, per_group = now.n_out / now.groups;
    const int64_t n_rows = windows(0, n), n_positions = windows(1, now.width);
    for (int64_t e = 0; e < n_rows * n_positions * now.n_out; e++) {
        const int64_t o = e % now.n_out, j = e / now.n_out % n_positions;
        const int64_t m = e / now.n_out / n_positions;
        for (int64_t t = 0; t < now.kernel[0] * now.kernel[1]; t++) {
            const int64_t a = t / now.kernel[1], b = t % now.kernel[1];
            const int64_t row =
                source(now.mode, m * now.stride[0] + a * now.dilation[0] - now.pads[0], n);
            const int64_t at = source(
                now.inner_mode, j * now.stride[1] + b * now.dilation[1] - now.pads[2], now.width);
            for (int64_t c = 0; c < depth && row >= 0 && at >= 0; c++) {
                y[e] += x[(row * now.width + at) * now.n_in + o / per_group * depth + c] *
                        weight_at(p, o, c, a, b);
            }
        }
        y[e] += p->values[1] != NULL ? p->values[1][o] : 0;
    }
}

static void conv2d_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t width = windows(1, now.width) * now.n_out;
    if (now.rows == 0) {
        out[0] = make_result(windows(0, n), width);
        convolve(p, x, n, out[0].y);
        return;
    }
    const int64_t image = now.rows * now.width * now.n_in;
    out[0] = make_result(n, windows(0, now.rows) * width);
    for (int64_t f = 0; f < n; f++) {
        convolve(p, x + f * image, now.rows, out[0].y + f * out[0].width);
    }
}

static void set_input(problem *p)
{
    p->in = (ds_signature){.rank = 2, .shape = {now.width, now.n_in}, .rate = {1, 1}};
    if (now.rows > 0) {
        p->in = (ds_signature){.rank = 3, .shape = {now.rows, now.width, now.n_in}, .rate = {1, 1}};
    }
    set_int(p, "axis", now.axis);
    set_int(p, "groups", now.groups);
    set_ints(p, "stride", now.stride, 2);
    set_ints(p, "dilation", now.dilation, 2);
}

static void add_weights(problem *p, int64_t a, int64_t b)
{
    const int64_t first = now.kernel[now.axis], second = now.kernel[1 - now.axis];
    add_weight(p, true, 4, (int64_t[]){a, b, first, second});
    add_weight(p, random_below(2) == 0, 1, &now.n_out);
}

static void try_conv2d(plane_case c)
{
    now = c;
    problem p = {.def = &ds_op_conv2d, .oracle = conv2d_oracle};
    set_input(&p);
    set_ints(&p, "padding", c.pads, 4);
    set_text(&p, "mode", modes[c.mode]);
    set_text(&p, "inner_mode", modes[c.inner_mode]);
    add_weights(&p, c.n_out, c.n_in / c.groups);
    try_problem(&p, c.rows > 0 ? 4
                               : 2 * (c.dilation[0] * (c.kernel[0] - 1) + c.pads[0] + c.pads[1]) +
                                     c.stride[0] + 3);
}

static plane_case random_case(void)
{
    plane_case c = {.groups = random_below(2) == 0 ? 1 : random_in(1, 3),
                    .rows = random_below(4) == 0 ? random_in(1, 4) : 0,
                    .width = random_in(1, 6),
                    .axis = random_below(2)};
    c.n_in = c.groups * random_in(1, 3);
    c.n_out = c.groups * random_in(1, 3);
    for (int i = 0; i < 2; i++) {
        c.kernel[i] = random_in(1, 3);
        c.stride[i] = random_in(1, 4);
        c.dilation[i] = random_in(1, 2);
    }
    return c;
}

static void test_conv2d(void)
{
    try_conv2d((plane_case){40, 70, 1, 0, 9, 0, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 0, 0});
    try_conv2d((plane_case){33, 40, 1, 0, 5, 1, {3, 2}, {1, 1}, {2, 1}, {4, 0, 1, 0}, 0, 1});
    try_conv2d((plane_case){16, 33, 1, 0, 6, 1, {4, 6}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 0, 0});
    try_conv2d((plane_case){1, 128, 1, 0, 64, 0, {1, 16}, {1, 8}, {1, 1}, {0, 0, 0, 0}, 0, 0});
    try_conv2d((plane_case){40, 40, 40, 0, 7, 0, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 0, 0});
    try_conv2d((plane_case){20, 20, 20, 0, 6, 1, {2, 6}, {1, 1}, {1, 1}, {1, 0, 0, 0}, 0, 0});
    for (int i = 0; i < 300; i++) {
        plane_case c = random_case();
        c.mode = (int)random_below(4);
        c.inner_mode = (int)random_below(4);
        for (int k = 0; k < 4; k++) {
            const int64_t n = k > 1 ? c.width : c.rows > 0 ? c.rows : 5;
            const int mode = k > 1 ? c.inner_mode : c.mode;
            c.pads[k] = random_below(2) == 0 ? 0 : random_in(0, mode == 2 ? n - 1 : n);
        }
        now = c;
        if (windows(1, c.width) > 0 && (c.rows == 0 || windows(0, c.rows) > 0)) {
            try_conv2d(c);
        }
    }
}

/* ---------------------------------------------------------------- transposed */

static int64_t upsampled(int axis, int64_t n)
{
    return (n - 1) * now.stride[axis] - 2 * now.pads[axis] +
           now.dilation[axis] * (now.kernel[axis] - 1) + now.pads[2 + axis] + 1;
}

static void scatter(const problem *p, const double *x, int64_t n, double *y)
{
    const int64_t n_rows = upsampled(0, n), width = upsampled(1, now.width);
    const int64_t per_in = now.n_in / now.groups, per_out = now.n_out / now.groups;
    for (int64_t e = 0; e < n * now.width * now.n_in; e++) {
        const int64_t c = e % now.n_in, at = e / now.n_in % now.width,
                      row = e / now.n_in / now.width;
        for (int64_t t = 0; t < now.kernel[0] * now.kernel[1]; t++) {
            const int64_t a = t / now.kernel[1], b = t % now.kernel[1];
            const int64_t m = row * now.stride[0] + a * now.dilation[0] - now.pads[0];
            const int64_t j = at * now.stride[1] + b * now.dilation[1] - now.pads[1];
            for (int64_t o = 0; o < per_out && m >= 0 && m < n_rows && j >= 0 && j < width; o++) {
                y[(m * width + j) * now.n_out + c / per_in * per_out + o] +=
                    x[e] * weight_at(p, c, o, a, b);
            }
        }
    }
    for (int64_t e = 0; e < n_rows * width * now.n_out && p->values[1] != NULL; e++) {
        y[e] += p->values[1][e % now.n_out];
    }
}

static void conv_transpose2d_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t width = upsampled(1, now.width) * now.n_out;
    if (now.rows == 0) {
        out[0] = make_result(n > 0 ? upsampled(0, n) : 0, width);
        if (out[0].n > 0) {
            scatter(p, x, n, out[0].y);
        }
        return;
    }
    out[0] = make_result(n, upsampled(0, now.rows) * width);
    for (int64_t f = 0; f < n; f++) {
        scatter(p, x + f * now.rows * now.width * now.n_in, now.rows, out[0].y + f * out[0].width);
    }
}

static void try_conv_transpose2d(plane_case c)
{
    now = c;
    problem p = {.def = &ds_op_conv_transpose2d, .oracle = conv_transpose2d_oracle};
    set_input(&p);
    set_ints(&p, "padding", c.pads, 2);
    set_ints(&p, "output_padding", c.pads + 2, 2);
    add_weights(&p, c.n_in, c.n_out / c.groups);
    const int64_t lag = (c.dilation[0] * (c.kernel[0] - 1) + 1 + 2 * c.pads[0]) / c.stride[0];
    try_problem(&p, c.rows > 0 ? 4 : 2 * lag + 5);
}

static void test_conv_transpose2d(void)
{
    try_conv_transpose2d(
        (plane_case){40, 70, 1, 0, 5, 0, {4, 3}, {2, 2}, {1, 1}, {1, 1, 0, 1}, 0, 0});
    try_conv_transpose2d(
        (plane_case){33, 16, 1, 0, 3, 1, {5, 4}, {3, 1}, {1, 2}, {0, 0, 2, 0}, 0, 0});
    try_conv_transpose2d(
        (plane_case){40, 40, 40, 0, 4, 0, {3, 2}, {2, 2}, {1, 1}, {1, 0, 0, 0}, 0, 0});
    for (int i = 0; i < 300; i++) {
        plane_case c = random_case();
        for (int k = 0; k < 2; k++) {
            const int64_t most = c.stride[k] > c.dilation[k] ? c.stride[k] : c.dilation[k];
            c.pads[k] = random_below(2) == 0 ? 0 : random_in(0, 2);
            c.pads[2 + k] = random_below(2) == 0 ? 0 : random_in(0, most - 1);
        }
        now = c;
        if (upsampled(1, c.width) > 0 && (c.rows == 0 || upsampled(0, c.rows) > 0)) {
            try_conv_transpose2d(c);
        }
    }
}

/* ---------------------------------------------------------------- padding of features */

static void pad_oracle(const problem *p, const double *x, int64_t n, result *out)
{
    const int64_t size = p->in.shape[now.axis], left = now.pads[0], all = size + left + now.pads[1];
    int64_t inner = 1;
    for (int d = (int)now.axis + 1; d < p->in.rank; d++) {
        inner *= p->in.shape[d];
    }
    const int64_t runs = ds_signature_elements(&p->in) / size / inner;
    out[0] = make_result(n, runs * all * inner);
    for (int64_t e = 0; e < n * out[0].width; e++) {
        const int64_t at = source(now.mode, e / inner % all - left, size);
        out[0].y[e] = at < 0 ? -3 : x[(e / inner / all * size + at) * inner + e % inner];
    }
}

static void test_pad_features(void)
{
    static const char *const names[] = {"constant", "replicate", "reflect", "circular"};
    for (int i = 0; i < 80; i++) {
        problem p = {.def = &ds_op_pad_features, .oracle = pad_oracle};
        p.in = (ds_signature){.rank = (int)random_in(1, 3), .rate = {1, 1}};
        for (int d = 0; d < p.in.rank; d++) {
            p.in.shape[d] = random_in(1, 5);
        }
        now = (plane_case){.axis = random_below(p.in.rank), .mode = i % 4};
        const int64_t n = p.in.shape[now.axis];
        for (int k = 0; k < 2; k++) {
            now.pads[k] = random_below(3) == 0 ? 0 : random_in(0, now.mode == 2 ? n - 1 : n);
        }
        set_int(&p, "axis", now.axis);
        set_int(&p, "left", now.pads[0]);
        set_int(&p, "right", now.pads[1]);
        set_text(&p, "mode", names[now.mode]);
        p.attrs[p.n_attrs++] = (ds_attr){.name = "value", .kind = DS_ATTR_REAL, .value = {.x = -3}};
        try_problem(&p, 6);
    }
}

/* ---------------------------------------------------------------- refusals */

/* The usual case: 4 positions of 6 channels, kernel (2, 3); what differs is set by the caller. */
static problem usual(const ds_op_def *def)
{
    problem p = {.def = def, .in = {.rank = 2, .shape = {4, 6}, .rate = {1, 1}}};
    add_weight(&p, true, 4, (int64_t[]){6, 6, 2, 3});
    return p;
}

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

static void refused_ints(const ds_op_def *def, const char *name, const int64_t *ints, int n,
                         ds_status status, const char *words)
{
    problem p = usual(def);
    set_ints(&p, name, ints, n);
    refused(&p, status, words);
}

static void test_refusals(void)
{
    const ds_op_def *conv = &ds_op_conv2d, *up = &ds_op_conv_transpose2d;
    refused_ints(conv, "stride", (int64_t[]){1}, 1, DS_ARGUMENT, "stride must be 2 numbers, got 1");
    refused_ints(conv, "stride", (int64_t[]){1, 0}, 2, DS_ARGUMENT, "stride must be 1 to");
    refused_ints(conv, "padding", (int64_t[]){0, 0, 0, -1}, 4, DS_ARGUMENT,
                 "right padding must be");
    refused_ints(conv, "dilation", (int64_t[]){1, 2}, 2, DS_SHAPE,
                 "of 5 positions doesn't fit the 4");
    refused_ints(up, "output_padding", (int64_t[]){1, 0}, 2, DS_ARGUMENT, "output_padding must be");
    refused_ints(up, "padding", (int64_t[]){0, 3}, 2, DS_SHAPE,
                 "padding 3 drops all of the 6 positions");
    problem p = usual(conv);
    p.in.rank = 1;
    refused(&p, DS_SHAPE, "expected an input of shape (positions, channels)");
    p = usual(conv);
    p.weight[0].rank = 2;
    refused(&p, DS_SHAPE, "'weight' must have four dimensions");
    p = usual(conv);
    set_int(&p, "axis", 2);
    refused(&p, DS_ARGUMENT, "axis must be 0 or 1, got 2");
    p = usual(conv);
    set_int(&p, "groups", 4);
    refused(&p, DS_ARGUMENT, "groups must divide 6 input and 6 output channels, got 4");
    p = usual(conv);
    set_int(&p, "groups", 2);
    refused(&p, DS_SHAPE,
            "expected an input of 12 channels, as its weight of shape (6, 6, 2, 3) has, got 6");
    p = usual(up);
    p.in.shape[1] = 5;
    refused(&p, DS_SHAPE, "channels, as its weight of shape");
    p = usual(conv);
    set_text(&p, "inner_mode", "reflect");
    set_ints(&p, "padding", (int64_t[]){9, 9, 4, 0}, 4);
    refused(&p, DS_SHAPE, "4 positions within a frame can be padded by 3 at most");
    p = (problem){.def = &ds_op_pad_features, .in = {.rank = 1, .shape = {3}, .rate = {1, 1}}};
    set_int(&p, "axis", 1);
    refused(&p, DS_SHAPE, "there is no feature dimension 1");
    p.n_attrs = 0;
    set_int(&p, "axis", 0);
    set_int(&p, "left", 4);
    set_text(&p, "mode", "circular");
    refused(&p, DS_SHAPE, "size 3 can be padded by 3 at most in this mode, got 4");
}

int main(void)
{
    test_conv2d();
    test_conv_transpose2d();
    test_pad_features();
    test_refusals();
    return check_report();
}
