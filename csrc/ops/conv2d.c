/* ops/conv2d.c: convolution over planes, one axis of which is the stream, with padding at all ends.
 *
 *     y[m][j][n] = sum over taps t, inner taps i and channels c of
 *                  x[m * stride - left + t * dilation][j * stride' - left' + i * dilation'][c]
 *                  * weight[n][c][t][i]  (+ bias[n])
 *
 * The primed numbers are those within a frame; weight[n][c][i][t] stands there where `axis` is 1.
 *
 * in [F][C], weight [N][C / groups][kernel 0][kernel 1], bias? [N], out [F'][N]; rate / stride.
 * With a kernel of 1 along the stream (or a weight [N][C / groups][kernel]), stride 1 and no
 * padding it is a convolution within each frame. in [H][F][C], out [H'][F'][N]: images, each frame
 * convolved by itself (ops/planes.h).
 *
 * The padding's modes and the counts along the stream: ops/padding.h; circular padding there needs
 * the whole stream. Within a frame all modes are at hand. The products: ops/window_product.h.
 *
 * Source: torch.nn.Conv2d; torch.nn.Conv1d along an axis that is not the stream. */
#include "ops/packed.h"
#include "ops/planes.h"
#include "ops/window_product.h"

enum { AXIS, STRIDE, DILATION, GROUPS, PADDING, MODE, INNER_MODE };
enum { WEIGHT, BIAS };

static const ds_attr_def attrs[] = {
    {.name = "axis",
     .kind = DS_ATTR_INT,
     .doc = "the kernel axis that runs along the stream, 0 or 1"},
    {.name = "stride",
     .kind = DS_ATTR_INTS,
     .doc = "input per output along the stream and within a frame; without: 1 and 1"},
    {.name = "dilation",
     .kind = DS_ATTR_INTS,
     .doc = "between taps along the stream and within a frame; without: 1 and 1"},
    {.name = "groups", .kind = DS_ATTR_INT, .i = 1, .doc = "groups of channels"},
    {.name = "padding",
     .kind = DS_ATTR_INTS,
     .doc = "before and after the stream, then before and after each frame; without: none"},
    {.name = "mode",
     .kind = DS_ATTR_CHOICE,
     .i = DS_PADDING_ZEROS,
     .choices = DS_PADDING_CHOICES,
     .doc = "what the stream's padding holds"},
    {.name = "inner_mode",
     .kind = DS_ATTR_CHOICE,
     .i = DS_PADDING_ZEROS,
     .choices = DS_PADDING_CHOICES,
     .doc = "what a frame's padding holds"},
    {.name = NULL},
};

/* Along axis i of the plane: 0 the stream (or an image's rows), 1 within a row. */
static ds_padding conv2d_windows(const ds_op *op, int i)
{
    return (ds_padding){.kernel = ds_planes_kernel(op, i),
                        .stride = ds_planes_number(op, STRIDE, i, 1),
                        .dilation = ds_planes_number(op, DILATION, i, 1),
                        .left = ds_planes_number(op, PADDING, 2 * i, 0),
                        .right = ds_planes_number(op, PADDING, 2 * i + 1, 0),
                        .mode = (ds_padding_mode)op->attr[i == 0 ? MODE : INNER_MODE].i};
}

static ds_window_shape conv2d_shape(const ds_op *op)
{
    const ds_signature *in = &op->in[0];
    return (ds_window_shape){.n_in = (size_t)in->shape[in->rank - 1],
                             .n_out = (size_t)op->weight[WEIGHT].shape[0],
                             .groups = (size_t)op->attr[GROUPS].i,
                             .n_taps = (size_t)ds_planes_kernel(op, 0),
                             .n_inner = (size_t)ds_planes_kernel(op, 1),
                             .step = ds_planes_number(op, DILATION, 0, 1),
                             .inner_step = ds_planes_number(op, DILATION, 1, 1),
                             .width = (size_t)in->shape[in->rank - 2],
                             .element = ds_op_element(op)};
}

static size_t conv2d_copy_bytes(const ds_op *op)
{
    const ds_window_shape s = conv2d_shape(op);
    bool padded = false;
    for (int i = 0; i < 4; i++)
        padded |= ds_planes_number(op, PADDING, i, 0) > 0;
    return ds_window_copy_bytes(&s, padded);
}

/* Windows of a frame: one of a stream of vectors' for each position of the output. */
static size_t conv2d_frame_windows(const ds_op *op)
{
    const ds_signature *out = &op->out[0];
    return (size_t)(out->shape[out->rank - 2] * (out->rank > 2 ? out->shape[0] : 1));
}

static ds_status conv2d_check_channels(const ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    const int64_t groups = op->attr[GROUPS].i, n_in = in->shape[in->rank - 1];
    const int64_t n_out = weight->shape[0];
    char text[160];
    DS_CHECK(groups >= 1 && n_in % groups == 0 && n_out % groups == 0, DS_ARGUMENT,
             "conv2d: groups must divide %lld input and %lld output channels, got %lld",
             (long long)n_in, (long long)n_out, (long long)groups);
    DS_CHECK(weight->shape[1] == n_in / groups, DS_SHAPE,
             "conv2d: its weight 'weight' must have shape (%lld, %lld, kernel...) for %lld input "
             "channels, got %s",
             (long long)n_out, (long long)(n_in / groups), (long long)n_in,
             ds_signature_text(weight, text, sizeof text));
    return ds_planes_check_bias(op, n_out);
}

/* Outputs of an axis of n positions within a frame. */
static ds_status conv2d_inner_size(const ds_padding *g, int64_t n, int64_t *n_outputs)
{
    const int64_t widest = g->left > g->right ? g->left : g->right;
    const int64_t most = g->mode == DS_PADDING_REFLECT    ? n - 1
                         : g->mode == DS_PADDING_CIRCULAR ? n
                                                          : widest;
    DS_CHECK(widest <= most, DS_SHAPE,
             "conv2d: %lld positions within a frame can be padded by %lld at most in this mode, "
             "got %lld",
             (long long)n, (long long)most, (long long)widest);
    const int64_t room = n + g->left + g->right - ds_padding_span(g);
    DS_CHECK(room >= 0, DS_SHAPE,
             "conv2d: a window of %lld positions doesn't fit the %lld within a frame, padded by "
             "%lld and %lld",
             (long long)ds_padding_span(g), (long long)n, (long long)g->left, (long long)g->right);
    *n_outputs = room / g->stride + 1;
    return DS_OK;
}

static ds_status conv2d_infer(ds_op *op)
{
    ds_signature *out = &op->out[0];
    const int rank = op->in[0].rank;
    DS_TRY(ds_planes_check(op));
    DS_TRY(ds_planes_check_numbers(op, STRIDE, 2));
    DS_TRY(ds_planes_check_numbers(op, DILATION, 2));
    DS_TRY(ds_planes_check_numbers(op, PADDING, 4));
    DS_TRY(conv2d_check_channels(op));
    const ds_padding along = conv2d_windows(op, 0), inner = conv2d_windows(op, 1);
    DS_TRY(ds_padding_check(op, &along));
    DS_TRY(ds_padding_check(op, &inner));
    const ds_window_shape s = conv2d_shape(op);
    size_t most;
    DS_TRY(ds_window_check(&s, &most));

    DS_TRY(conv2d_inner_size(&inner, op->in[0].shape[rank - 2], &out->shape[rank - 2]));
    out->shape[rank - 1] = op->weight[WEIGHT].shape[0];
    size_t n_windows = (size_t)out->shape[rank - 2];
    if (ds_planes_images(op)) {
        DS_TRY(conv2d_inner_size(&along, op->in[0].shape[0], &out->shape[0]));
        DS_TRY(ds_size_mul(&n_windows, n_windows, (size_t)out->shape[0]));
    } else {
        DS_CHECK(ds_rate_scale(&out->rate, 1, along.stride), DS_LIMIT,
                 "conv2d: the rate overflows");
        op->whole = ds_padding_whole(&along);
    }
    op->scratch.per_call = conv2d_copy_bytes(op);
    op->finishes = ds_window_finishes(&s);
    return ds_size_mul(&op->scratch.per_out, n_windows, 2 * sizeof(void *));
}

static void conv2d_counts(const ds_op *op, ds_program *p)
{
    const ds_padding along = conv2d_windows(op, 0);
    if (ds_planes_images(op)) {
        ds_root(p, ds_known(p, 0));
        ds_root(p, ds_total(p, 0));
    } else {
        ds_padding_counts(&along, p);
    }
}

static void conv2d_need(const ds_op *op, ds_program *p)
{
    const ds_padding along = conv2d_windows(op, 0);
    if (ds_planes_images(op))
        ds_root(p, ds_m(p));
    else
        ds_padding_need(&along, p);
}

static size_t conv2d_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_window_shape s = conv2d_shape(op);
    return ds_window_prepared_bytes(&s, k);
}

static void conv2d_prepare(const ds_op *op, void *prepared, const void *const *weights,
                           const ds_real_kernels *k)
{
    const ds_window_shape s = conv2d_shape(op);
    const size_t taps = s.n_taps * s.n_inner, per_out = s.n_in / s.groups * taps;
    const ds_window_weight layout = {.group = s.n_out / s.groups * per_out,
                                     .col = (ptrdiff_t)per_out,
                                     .tap = (ptrdiff_t)ds_planes_tap(op, 0),
                                     .inner = (ptrdiff_t)ds_planes_tap(op, 1),
                                     .channel = (ptrdiff_t)taps};
    ds_window_prepare(&s, prepared, weights[WEIGHT], &layout,
                      ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL, k);
}

static void conv2d_forward(const ds_op *op, const ds_run *run)
{
    const ds_padding along = conv2d_windows(op, 0), inner = conv2d_windows(op, 1);
    const ds_window_shape s = conv2d_shape(op);
    const ds_signature *out = &op->out[0];
    const int64_t width = op->in[0].shape[op->in[0].rank - 2];
    const size_t n_outputs = (size_t)out->shape[out->rank - 2];
    const size_t position_bytes = (size_t)out->shape[out->rank - 1] * s.element;
    ds_window_product product;
    ds_window_begin(&product, &s, run, run->prepared, run->scratch, conv2d_copy_bytes(op),
                    (size_t)run->frames_out * conv2d_frame_windows(op));
    ds_planes planes = {.op = op, .run = run};
    ds_plane plane;
    while (ds_planes_next(&planes, &plane)) {
        for (int64_t m = plane.out.m0; m < plane.out.m1; m++) {
            char *y = ds_to(&plane.out, m, n_outputs * position_bytes);
            const ds_window_place at = {m * along.stride - along.left, along.mode, plane.total};
            for (size_t j = 0; j < n_outputs; j++, y += position_bytes) {
                ds_window_add_at(
                    &product, y, &plane.in, at,
                    (ds_window_place){(int64_t)j * inner.stride - inner.left, inner.mode, width});
            }
        }
    }
    ds_window_flush(&product);
}

const ds_op_def ds_op_conv2d = {
    .name = "conv2d",
    .doc = "convolution along the stream and within each frame",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight bias?",
    .infer = conv2d_infer,
    .counts = conv2d_counts,
    .need = conv2d_need,
    .prepared_bytes = conv2d_prepared_bytes,
    .prepare = conv2d_prepare,
    .forward = conv2d_forward,
};
