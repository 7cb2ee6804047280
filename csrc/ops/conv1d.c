/* ops/conv1d.c: convolution along the stream, with padding at its start and its end.
 *
 *     y[m][n] = sum over taps t and channels c of x[m * stride - left + t * dilation][c]
 *               * weight[n][c][t]  (+ bias[n])
 *
 * in [C], weight [N][C / groups][kernel], bias? [N], out [N]; rate / stride. The padding's modes and
 * the counts: ops/padding.h; the products: ops/window_product.h. Circular padding needs the whole
 * stream.
 *
 * Source: torch.nn.Conv1d (there left = right = padding, or asymmetric with padding="same"). */
#include "ops/packed.h"
#include "ops/window_product.h"

enum { STRIDE, DILATION, GROUPS, LEFT, RIGHT, MODE };
enum { WEIGHT, BIAS };

static const ds_attr_def attrs[] = {
    {.name = "stride", .kind = DS_ATTR_INT, .i = 1, .doc = "input frames per output frame"},
    {.name = "dilation", .kind = DS_ATTR_INT, .i = 1, .doc = "frames between taps"},
    {.name = "groups", .kind = DS_ATTR_INT, .i = 1, .doc = "groups of channels"},
    {.name = "left", .kind = DS_ATTR_INT, .doc = "frames of padding before the first"},
    {.name = "right", .kind = DS_ATTR_INT, .doc = "frames of padding after the last"},
    {.name = "mode",
     .kind = DS_ATTR_CHOICE,
     .i = DS_PADDING_ZEROS,
     .choices = DS_PADDING_CHOICES,
     .doc = "what the padding holds"},
    {.name = NULL},
};

static ds_padding conv1d_windows(const ds_op *op)
{
    return (ds_padding){.kernel = op->weight[WEIGHT].shape[2],
                        .stride = op->attr[STRIDE].i,
                        .dilation = op->attr[DILATION].i,
                        .left = op->attr[LEFT].i,
                        .right = op->attr[RIGHT].i,
                        .mode = (ds_padding_mode)op->attr[MODE].i};
}

static ds_window_shape conv1d_shape(const ds_op *op)
{
    return (ds_window_shape){.n_in = (size_t)op->in[0].shape[0],
                             .n_out = (size_t)op->weight[WEIGHT].shape[0],
                             .groups = (size_t)op->attr[GROUPS].i,
                             .n_taps = (size_t)op->weight[WEIGHT].shape[2],
                             .n_inner = 1,
                             .step = op->attr[DILATION].i,
                             .inner_step = 1,
                             .width = 1,
                             .element = ds_op_element(op)};
}

static size_t conv1d_copy_bytes(const ds_op *op)
{
    const ds_window_shape s = conv1d_shape(op);
    return ds_window_copy_bytes(&s, op->attr[LEFT].i > 0 || op->attr[RIGHT].i > 0);
}

static ds_status conv1d_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    const int64_t groups = op->attr[GROUPS].i;
    char text[128];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(in->rank == 1 && in->shape[0] >= 1, DS_SHAPE,
             "conv1d: expected an input of shape (channels,), got %s",
             ds_signature_text(in, text, sizeof text));
    DS_CHECK(weight->rank == 3 && weight->shape[0] >= 1, DS_SHAPE,
             "conv1d: its weight 'weight' must have shape (out_channels, in_channels / groups, "
             "kernel_size), got %s",
             ds_signature_text(weight, text, sizeof text));
    const int64_t n_in = in->shape[0], n_out = weight->shape[0];
    DS_CHECK(groups >= 1 && n_in % groups == 0 && n_out % groups == 0, DS_ARGUMENT,
             "conv1d: groups must divide %lld input and %lld output channels, got %lld",
             (long long)n_in, (long long)n_out, (long long)groups);
    DS_CHECK(weight->shape[1] == n_in / groups, DS_SHAPE,
             "conv1d: its weight 'weight' must have shape (%lld, %lld, kernel_size) for %lld input "
             "channels, got %s",
             (long long)n_out, (long long)(n_in / groups), (long long)n_in,
             ds_signature_text(weight, text, sizeof text));
    if (ds_op_has_weight(op, BIAS))
        DS_TRY(ds_op_require_weight(op, BIAS, "bias", 1, &n_out));

    const ds_padding g = conv1d_windows(op);
    DS_TRY(ds_padding_check(op, &g));
    const ds_window_shape s = conv1d_shape(op);
    size_t most;
    DS_TRY(ds_window_check(&s, &most));
    op->out[0].shape[0] = n_out;
    DS_CHECK(ds_rate_scale(&op->out[0].rate, 1, g.stride), DS_LIMIT, "conv1d: the rate overflows");
    op->scratch.per_call = conv1d_copy_bytes(op);
    op->scratch.per_out = 2 * sizeof(void *);
    op->finishes = ds_window_finishes(&s);
    op->whole = ds_padding_whole(&g);
    return DS_OK;
}

static void conv1d_counts(const ds_op *op, ds_program *p)
{
    const ds_padding g = conv1d_windows(op);
    ds_padding_counts(&g, p);
}

static void conv1d_need(const ds_op *op, ds_program *p)
{
    const ds_padding g = conv1d_windows(op);
    ds_padding_need(&g, p);
}

static size_t conv1d_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_window_shape s = conv1d_shape(op);
    return ds_window_prepared_bytes(&s, k);
}

static void conv1d_prepare(const ds_op *op, void *prepared, const void *const *weights,
                           const ds_real_kernels *k)
{
    const ds_window_shape s = conv1d_shape(op);
    const size_t per_out = s.n_in / s.groups * s.n_taps;
    const ds_window_weight layout = {.start = 0,
                                     .group = s.n_out / s.groups * per_out,
                                     .col = (ptrdiff_t)per_out,
                                     .tap = 1,
                                     .channel = (ptrdiff_t)s.n_taps};
    ds_window_prepare(&s, prepared, weights[WEIGHT], &layout,
                      ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL, k);
}

static void conv1d_forward(const ds_op *op, const ds_run *run)
{
    const ds_padding g = conv1d_windows(op);
    const ds_window_shape s = conv1d_shape(op);
    ds_window_product product;
    ds_window_begin(&product, &s, run, run->prepared, run->scratch, conv1d_copy_bytes(op),
                    (size_t)run->frames_out);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t total = run->ended[row] ? run->count[row].now.total : DS_PADDING_OPEN;
        for (int64_t m = out->m0; m < out->m1; m++) {
            ds_window_add(&product, ds_to(out, m, ds_signature_bytes(&op->out[0])), &run->in[row],
                          m * g.stride - g.left, g.mode, total);
        }
    }
    ds_window_flush(&product);
}

const ds_op_def ds_op_conv1d = {
    .name = "conv1d",
    .doc = "convolution along the stream",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight bias?",
    .infer = conv1d_infer,
    .counts = conv1d_counts,
    .need = conv1d_need,
    .prepared_bytes = conv1d_prepared_bytes,
    .prepare = conv1d_prepare,
    .forward = conv1d_forward,
};
