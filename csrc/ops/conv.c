/* ops/conv.c: convolution over planes, one axis of which is the stream, with padding at all ends.
 *
 *     y[m][j][n] = sum over taps t, inner taps i and channels c of
 *                  x[m * stride - left + t * dilation][j * stride' - left' + i * dilation'][c]
 *                  * weight[n][c][t][i]  (+ bias[n])
 *
 * The primed numbers are those within a frame; weight[n][c][i][t] stands there where `axis` is 1.
 *
 * conv1d: in [C], weight [N][C / groups][kernel], bias? [N], out [N]; rate / stride. Frames of one
 * position: j = i = 0. in [lanes][C], out [lanes][N]: every lane by itself, j, and i = 0.
 *
 * conv2d: in [F][C], weight [N][C / groups][kernel 0][kernel 1], bias? [N], out [F'][N]; rate /
 * stride. With a kernel of 1 along the stream (or a weight [N][C / groups][kernel]), stride 1 and no
 * padding it is a convolution within each frame. in [H][F][C], out [H'][F'][N]: images, each frame
 * convolved by itself (ops/planes.h).
 *
 * The padding's modes and the counts along the stream: ops/padding.h; circular padding there needs
 * the whole stream. Within a frame all modes are at hand. The products: ops/planes.h.
 *
 * Source: torch.nn.Conv1d (there left = right = padding, or asymmetric with padding="same") and
 * torch.nn.Conv2d; torch.nn.Conv1d along an axis that is not the stream. */
#include "ops/planes.h"
#include "ops/registry.h"

enum { AXIS, STRIDE, DILATION, GROUPS, PADDING, MODE, INNER_MODE };
enum { LEFT = 3, RIGHT }; /* conv1d's; STRIDE to GROUPS are one earlier there, MODE is the same */
enum { WEIGHT = DS_PLANES_WEIGHT, BIAS = DS_PLANES_BIAS };

static const ds_attr_def conv1d_attrs[] = {
    {"stride", DS_ATTR_INT, .i = 1, .doc = "input frames per output frame"},
    {"dilation", DS_ATTR_INT, .i = 1, .doc = "frames between taps"},
    {"groups", DS_ATTR_INT, .i = 1, .doc = "groups of channels", .range = DS_FROM_1},
    {"left", DS_ATTR_INT, .doc = "frames of padding before the first"},
    {"right", DS_ATTR_INT, .doc = "frames of padding after the last"},
    {"mode", DS_ATTR_CHOICE, .i = DS_PADDING_ZEROS, .choices = DS_PADDING_CHOICES,
     .doc = "what the padding holds"},
    {0},
};

static const ds_attr_def conv2d_attrs[] = {
    {"axis", DS_ATTR_INT, .doc = "the kernel axis that runs along the stream, 0 or 1",
     .range = DS_0_OR_1},
    {"stride", DS_ATTR_INTS,
     .doc = "input per output along the stream and within a frame; without: 1 and 1"},
    {"dilation", DS_ATTR_INTS,
     .doc = "between taps along the stream and within a frame; without: 1 and 1"},
    {"groups", DS_ATTR_INT, .i = 1, .doc = "groups of channels", .range = DS_FROM_1},
    {"padding", DS_ATTR_INTS,
     .doc = "before and after the stream, then before and after each frame; without: none"},
    {"mode", DS_ATTR_CHOICE, .i = DS_PADDING_ZEROS, .choices = DS_PADDING_CHOICES,
     .doc = "what the stream's padding holds"},
    {"inner_mode", DS_ATTR_CHOICE, .i = DS_PADDING_ZEROS, .choices = DS_PADDING_CHOICES,
     .doc = "what a frame's padding holds"},
    {0},
};

/* Along axis i of the plane: 0 the stream (or an image's rows), 1 within a row. */
static ds_padding conv_windows(const ds_op *op, int i)
{
    ds_padding g = {.kernel = ds_planes_kernel(op, i),
                    .stride = ds_planes_number(op, STRIDE, i, 1),
                    .dilation = ds_planes_number(op, DILATION, i, 1)};
    if (!ds_planes_vectors(op)) {
        g.left = ds_planes_number(op, PADDING, 2 * i, 0);
        g.right = ds_planes_number(op, PADDING, 2 * i + 1, 0);
        g.mode = (ds_padding_mode)op->attr[i == 0 ? MODE : INNER_MODE].i;
    } else if (i == 0) {
        g.left = op->attr[LEFT].i;
        g.right = op->attr[RIGHT].i;
        g.mode = (ds_padding_mode)op->attr[MODE].i;
    }
    return g;
}

static ds_windows conv_shape(const ds_op *op)
{
    return ds_windows_make(op, ds_planes_attr(op, GROUPS)->i, op->weight[WEIGHT].shape[0],
                           ds_planes_kernel(op, 0), ds_planes_number(op, DILATION, 0, 1),
                           ds_planes_kernel(op, 1), ds_planes_number(op, DILATION, 1, 1));
}

/* Outputs of an axis of n positions within a frame. */
static ds_status conv_inner_size(const ds_op *op, const ds_padding *g, int64_t n,
                                 int64_t *n_outputs)
{
    const int64_t widest = g->left > g->right ? g->left : g->right;
    const int64_t most = g->mode == DS_PADDING_REFLECT    ? n - 1
                         : g->mode == DS_PADDING_CIRCULAR ? n
                                                          : widest;
    DS_CHECK(widest <= most, DS_SHAPE,
             "%s: %lld positions within a frame can be padded by %lld at most in this mode, "
             "got %lld",
             op->def->name, (long long)n, (long long)most, (long long)widest);
    *n_outputs = ds_padding_outputs(g, n);
    DS_CHECK(*n_outputs >= 1, DS_SHAPE,
             "%s: a window of %lld positions doesn't fit the %lld within a frame, padded by "
             "%lld and %lld",
             op->def->name, (long long)ds_padding_span(g), (long long)n, (long long)g->left,
             (long long)g->right);
    return DS_OK;
}

static ds_status conv_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    ds_signature *out = &op->out[0];
    const int rank = in->rank;
    DS_TRY(ds_planes_check(op, 4));
    const ds_padding along = conv_windows(op, 0), inner = conv_windows(op, 1);
    DS_TRY(ds_padding_check(op, &along));
    DS_TRY(ds_padding_check(op, &inner));
    const ds_windows s = conv_shape(op);
    out->shape[rank - 1] = (int64_t)s.n_out;
    if (rank > 1)
        DS_TRY(conv_inner_size(op, &inner, in->shape[rank - 2], &out->shape[rank - 2]));
    DS_TRY(ds_planes_images(op) ? conv_inner_size(op, &along, in->shape[0], &out->shape[0])
                                : ds_scale_rate(op, 1, along.stride));
    op->whole = !ds_planes_images(op) && ds_padding_whole(&along);
    op->finishes = DS_FINISHES_STEPS | (s.groups == 1 ? DS_FINISHES_GLU : 0);
    op->shares = !s.depthwise;
    return ds_windows_set_sizes(op, &s, 1, along.left + along.right + inner.left + inner.right > 0);
}

/* Along the stream. */
static ds_padding conv_along(const ds_op *op)
{
    return ds_planes_images(op) ? DS_PADDING_NONE : conv_windows(op, 0);
}

DS_COUNTS_OF(conv, ds_padding, conv_along)

static size_t conv_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_windows s = conv_shape(op);
    return ds_windows_prepared_bytes(&s, k);
}

static ds_weight_layout conv_layout(const ds_op *op, const ds_windows *s)
{
    const ptrdiff_t taps = (ptrdiff_t)s->all_taps;
    return (ds_weight_layout){.col = (ptrdiff_t)(s->n_in / s->groups) * taps,
                              .tap = (ptrdiff_t)ds_planes_tap(op, 0),
                              .inner = (ptrdiff_t)ds_planes_tap(op, 1),
                              .channel = taps};
}

static void conv_prepare(const ds_op *op, void *prepared, const void *const *weights,
                         const ds_real_kernels *k)
{
    const ds_windows s = conv_shape(op);
    ds_weight_layout layout = conv_layout(op, &s);
    ds_windows_prepare(&s, prepared, weights, 0, s.n_out / s.groups * (size_t)layout.col, &layout,
                       ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL, k);
}

/* All windows of the product's run. dx: slopes of its rows' windows, or NULL. */
static void conv_walk(const ds_op *op, ds_window_product *product, const ds_slope *dx)
{
    const ds_padding along = conv_windows(op, 0), inner = conv_windows(op, 1);
    const ds_run *run = product->run;
    const ds_signature *out = &op->out[0];
    const int64_t n_outputs = ds_planes_width(out);
    const int64_t room = product->shape.width - ds_padding_span(&inner) + inner.left;
    int64_t begin = (inner.left + inner.stride - 1) / inner.stride; /* of outputs off padding */
    int64_t end = room < 0 ? 0 : room / inner.stride + 1;
    begin = begin < n_outputs ? begin : n_outputs;
    end = end < begin ? begin : end < n_outputs ? end : n_outputs;
    const size_t position_bytes = ds_last_size(out) * product->shape.element;
    for (size_t row = 0; row < run->n_rows; row++) {
        for (int64_t i = 0; i < ds_planes_count(op, run, row); i++) {
            const ds_plane plane = ds_planes_at(op, run, row, i, dx ? dx + row : NULL);
            char *y = plane.out.data;
            for (int64_t m = plane.out.m0; m < plane.out.m1; m++) {
                const ds_window_place at = {m * along.stride - along.left, along.mode, plane.total};
                for (int64_t j = 0, n; j < n_outputs; j += n, y += (size_t)n * position_bytes) {
                    const ds_window_place within = {j * inner.stride - inner.left, inner.mode,
                                                    product->shape.width};
                    n = j == begin && begin < end ? end - begin : 1;
                    ds_window_add_run(product, y, position_bytes, (size_t)n, &plane, at, within,
                                      (size_t)inner.stride);
                }
            }
        }
    }
}

static void conv_forward(const ds_op *op, const ds_run *run)
{
    const ds_windows s = conv_shape(op);
    ds_window_product product;
    ds_window_begin(&product, &s, op, run, run->prepared, run->scratch);
    conv_walk(op, &product, NULL);
    ds_window_flush(&product);
}

static void conv_backward(const ds_op *op, const ds_back *b)
{
    const ds_windows s = conv_shape(op);
    const ds_weight_layout layout = conv_layout(op, &s);
    ds_room room = {b->scratch};
    const ds_run run = ds_windows_turned(b, &room);
    ds_window_product product;
    ds_window_turn turn;
    ds_window_begin_back(&product, &turn, &s, b, &run, &layout,
                         s.n_out / s.groups * (size_t)layout.col, 0, room);
    conv_walk(op, &product, b->dx);
    ds_window_end_back(&product);
    ds_windows_bias_back(op, b, room);
}

#define CONV(positions, kernel) \
    "[.., " positions "groups*C]; weight [groups*N, C, " kernel "]; bias? [groups*N]"

const ds_op_def ds_op_conv1d = {DS_PLANES_OPERATOR(conv1d, DS_PLANES_VECTORS,
                                                   "convolution along the stream", conv,
                                                   ds_narrows_taps, CONV("", "kernel"))};

const ds_op_def ds_op_conv2d = {DS_PLANES_OPERATOR(
    conv2d, DS_PLANES_OF_ROWS, "convolution along the stream and within each frame", conv,
    ds_narrows_taps, CONV("positions, ", "kernel, ..."))};
