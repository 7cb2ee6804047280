/* ops/conv_transpose2d.c: transposed convolution over planes, one axis of which is the stream.
 *
 * Position (i, p) of the plane adds x[i][p][c] * weight[c][n][t][u] to the output (i * stride + t
 * * dilation - padding, p * stride' + u * dilation' - padding'), for all taps; then the bias. The
 * primed numbers are those within a frame, and weight[c][n][u][t] stands in its place where
 * `axis` is 1.
 *
 * Seen from an output, only the taps of its phases matter (ops/phases.h), of one along the stream
 * and of one within a frame. Each pair of phases is a product of its own over windows of the
 * input, in ascending order of positions, that is of descending taps; positions outside count as
 * zero, and an output of no phase is the bias.
 *
 * in [F][C], weight [C][N / groups][kernel 0][kernel 1], bias? [N], out [F'][N]; rate * stride.
 * in [H][F][C], out [H'][F'][N]: images, each frame by itself (ops/planes.h).
 *
 * Source: torch.nn.ConvTranspose2d; torch.nn.ConvTranspose1d along an axis that is not the
 * stream. */
#include <string.h>

#include "ops/packed.h"
#include "ops/phases.h"
#include "ops/planes.h"
#include "ops/window_product.h"

enum { AXIS, STRIDE, PADDING, OUTPUT_PADDING, DILATION, GROUPS };
enum { WEIGHT, BIAS };

static const ds_attr_def attrs[] = {
    {.name = "axis",
     .kind = DS_ATTR_INT,
     .doc = "the kernel axis that runs along the stream, 0 or 1"},
    {.name = "stride",
     .kind = DS_ATTR_INTS,
     .doc = "output per input along the stream and within a frame; without: 1 and 1"},
    {.name = "padding",
     .kind = DS_ATTR_INTS,
     .doc = "output dropped at both ends of the stream and of each frame; without: none"},
    {.name = "output_padding",
     .kind = DS_ATTR_INTS,
     .doc = "output added at the end of the stream and of each frame; without: none"},
    {.name = "dilation",
     .kind = DS_ATTR_INTS,
     .doc = "between taps along the stream and within a frame; without: 1 and 1"},
    {.name = "groups", .kind = DS_ATTR_INT, .i = 1, .doc = "groups of channels"},
    {.name = NULL},
};

/* Phases along both axes of the plane: the stream (or an image's rows), and within a row. */
typedef struct geometry {
    ds_phases axis[2];
} geometry;

static geometry conv_transpose2d_geometry(const ds_op *op)
{
    geometry g;
    for (int i = 0; i < 2; i++) {
        g.axis[i] = ds_phases_make(ds_planes_kernel(op, i), ds_planes_number(op, STRIDE, i, 1),
                                   ds_planes_number(op, DILATION, i, 1),
                                   ds_planes_number(op, PADDING, i, 0),
                                   ds_planes_number(op, OUTPUT_PADDING, i, 0));
    }
    return g;
}

/* Of phases f along the plane's first axis and e along its second. */
static ds_window_shape conv_transpose2d_shape(const ds_op *op, const geometry *g, int64_t f,
                                              int64_t e)
{
    const ds_signature *in = &op->in[0];
    return (ds_window_shape){.n_in = (size_t)in->shape[in->rank - 1],
                             .n_out = (size_t)op->out[0].shape[in->rank - 1],
                             .groups = (size_t)op->attr[GROUPS].i,
                             .n_taps = (size_t)ds_phases_taps(&g->axis[0], f),
                             .n_inner = (size_t)ds_phases_taps(&g->axis[1], e),
                             .step = g->axis[0].frame_step,
                             .inner_step = g->axis[1].frame_step,
                             .width = (size_t)in->shape[in->rank - 2],
                             .element = ds_op_element(op)};
}

/* Room for the copies of any pair of phases, and a check that the prepared weights of all fit into memory.
 * Along each axis there are phases with most taps and the rest, which have one less. */
static ds_status conv_transpose2d_copy_bytes(const ds_op *op, const geometry *g, size_t *copies)
{
    size_t most = 0;
    *copies = 0;
    for (int pair = 0; pair < 4; pair++) {
        int64_t phase[2];
        size_t n = 1, n_bytes;
        for (int i = 0; i < 2; i++) {
            const ds_phases *a = &g->axis[i];
            const bool rest = (pair >> i & 1) != 0;
            phase[i] = rest ? a->n_phases - 1 : 0;
            DS_TRY(ds_size_mul(&n, n, (size_t)(rest ? a->n_phases - a->n_full : a->n_full)));
        }
        if (n == 0)
            continue;
        const ds_window_shape s = conv_transpose2d_shape(op, g, phase[0], phase[1]);
        DS_TRY(ds_window_check(&s, &n_bytes));
        DS_TRY(ds_size_mul(&n_bytes, n_bytes, n));
        DS_TRY(ds_size_add(&most, n_bytes));
        const size_t copied = ds_window_copy_bytes(&s, true);
        *copies = copied > *copies ? copied : *copies;
    }
    return DS_OK;
}

static ds_status conv_transpose2d_check_channels(const ds_op *op, int64_t *n_out)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    const int64_t groups = op->attr[GROUPS].i, n_in = in->shape[in->rank - 1];
    char text[160];
    DS_CHECK(weight->shape[0] == n_in, DS_SHAPE,
             "conv_transpose2d: its weight 'weight' must have shape (%lld, out_channels / groups, "
             "kernel...) for %lld input channels, got %s",
             (long long)n_in, (long long)n_in, ds_signature_text(weight, text, sizeof text));
    DS_CHECK(groups >= 1 && n_in % groups == 0, DS_ARGUMENT,
             "conv_transpose2d: groups must divide %lld input channels, got %lld", (long long)n_in,
             (long long)groups);
    DS_CHECK(weight->shape[1] <= INT64_MAX / groups, DS_LIMIT,
             "conv_transpose2d: too many channels");
    *n_out = weight->shape[1] * groups;
    return ds_planes_check_bias(op, *n_out);
}

static ds_status conv_transpose2d_check_numbers(const ds_op *op)
{
    for (int attr = STRIDE; attr <= DILATION; attr++)
        DS_TRY(ds_planes_check_numbers(op, attr, 2));
    for (int i = 0; i < 2; i++) {
        DS_TRY(ds_phases_check(op, ds_planes_kernel(op, i), ds_planes_number(op, STRIDE, i, 1),
                               ds_planes_number(op, DILATION, i, 1),
                               ds_planes_number(op, PADDING, i, 0),
                               ds_planes_number(op, OUTPUT_PADDING, i, 0)));
    }
    return DS_OK;
}

/* Outputs of an axis of n positions within a frame. */
static ds_status conv_transpose2d_inner_size(const ds_phases *g, int64_t n, int64_t *n_outputs)
{
    *n_outputs = ds_phases_size(g, n);
    DS_CHECK(
        *n_outputs >= 1, DS_SHAPE,
        "conv_transpose2d: padding %lld drops all of the %lld positions that the %lld within a "
        "frame give",
        (long long)g->padding, (long long)(*n_outputs + 2 * g->padding), (long long)n);
    return DS_OK;
}

static ds_status conv_transpose2d_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    ds_signature *out = &op->out[0];
    const int rank = in->rank;
    DS_TRY(ds_planes_check(op));
    DS_TRY(conv_transpose2d_check_channels(op, &out->shape[rank - 1]));
    DS_TRY(conv_transpose2d_check_numbers(op));
    const geometry g = conv_transpose2d_geometry(op);
    const ds_phases *along = &g.axis[0];
    DS_TRY(conv_transpose2d_inner_size(&g.axis[1], in->shape[rank - 2], &out->shape[rank - 2]));
    size_t n_windows = (size_t)out->shape[rank - 2];
    if (ds_planes_images(op)) {
        DS_TRY(conv_transpose2d_inner_size(along, in->shape[0], &out->shape[0]));
        DS_TRY(ds_size_mul(&n_windows, n_windows, (size_t)out->shape[0]));
    } else {
        DS_CHECK(ds_rate_scale(&out->rate, along->stride, 1), DS_LIMIT,
                 "conv_transpose2d: the rate overflows");
    }
    DS_TRY(conv_transpose2d_copy_bytes(op, &g, &op->scratch.per_call));
    return ds_size_mul(&op->scratch.per_out, n_windows, 2 * sizeof(void *));
}

static void conv_transpose2d_counts(const ds_op *op, ds_program *p)
{
    const geometry g = conv_transpose2d_geometry(op);
    if (ds_planes_images(op)) {
        ds_root(p, ds_known(p, 0));
        ds_root(p, ds_total(p, 0));
    } else {
        ds_phases_counts(&g.axis[0], p);
    }
}

static void conv_transpose2d_need(const ds_op *op, ds_program *p)
{
    const geometry g = conv_transpose2d_geometry(op);
    if (ds_planes_images(op))
        ds_root(p, ds_m(p));
    else
        ds_phases_need(&g.axis[0], p);
}

static size_t conv_transpose2d_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const geometry g = conv_transpose2d_geometry(op);
    size_t n_bytes = 0;
    for (int64_t f = 0; f < g.axis[0].n_phases; f++) {
        for (int64_t e = 0; e < g.axis[1].n_phases; e++) {
            const ds_window_shape s = conv_transpose2d_shape(op, &g, f, e);
            n_bytes += ds_window_prepared_bytes(&s, k);
        }
    }
    return n_bytes;
}

static void conv_transpose2d_prepare(const ds_op *op, void *prepared, const void *const *weights,
                                     const ds_real_kernels *k)
{
    const geometry g = conv_transpose2d_geometry(op);
    const ds_phases *a = &g.axis[0], *b = &g.axis[1];
    const int64_t tap = ds_planes_tap(op, 0), inner = ds_planes_tap(op, 1);
    const size_t taps = (size_t)(a->kernel * b->kernel);
    const void *bias = ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL;
    for (int64_t f = 0; f < a->n_phases; f++) {
        for (int64_t e = 0; e < b->n_phases; e++) {
            const ds_window_shape s = conv_transpose2d_shape(op, &g, f, e);
            const size_t per_in = s.n_out / s.groups * taps;
            const ds_window_weight layout = {
                .start = (size_t)(ds_phases_last(a, f) * tap + ds_phases_last(b, e) * inner),
                .group = s.n_in / s.groups * per_in,
                .col = (ptrdiff_t)taps,
                .tap = -(ptrdiff_t)(a->tap_step * tap),
                .inner = -(ptrdiff_t)(b->tap_step * inner),
                .channel = (ptrdiff_t)per_in};
            prepared = ds_window_prepare(&s, prepared, weights[WEIGHT], &layout, bias, k);
        }
    }
}

/* All outputs of one pair of phases. */
static void conv_transpose2d_forward_phases(const ds_op *op, const ds_run *run, const geometry *g,
                                            int64_t f, int64_t e, ds_window_product *product)
{
    const ds_phases *a = &g->axis[0], *b = &g->axis[1];
    const ds_signature *out = &op->out[0];
    const int64_t width = op->in[0].shape[out->rank - 2], n_outputs = out->shape[out->rank - 2];
    const size_t position_bytes = product->shape.n_out * product->shape.element;
    ds_planes planes = {.op = op, .run = run};
    ds_plane plane;
    while (ds_planes_next(&planes, &plane)) {
        for (int64_t m = ds_phases_from(a, f, plane.out.m0); m < plane.out.m1; m += a->stride) {
            char *y = ds_to(&plane.out, m, (size_t)n_outputs * position_bytes);
            const ds_window_place along = {ds_phases_first(a, f, m), DS_PADDING_ZEROS, plane.total};
            for (int64_t j = ds_phases_from(b, e, 0); j < n_outputs; j += b->stride) {
                ds_window_add_at(
                    product, y + (size_t)j * position_bytes, &plane.in, along,
                    (ds_window_place){ds_phases_first(b, e, j), DS_PADDING_ZEROS, width});
            }
        }
    }
    ds_window_flush(product);
}

/* The bias in every output, to begin with. */
static void conv_transpose2d_fill(const ds_op *op, const ds_run *run, const void *bias)
{
    const ds_signature *out = &op->out[0];
    const size_t n_bytes = (size_t)out->shape[out->rank - 1] * ds_op_element(op);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *to = &run->out[row];
        const size_t all = (size_t)(to->m1 - to->m0) * ds_signature_bytes(out);
        for (size_t done = 0; done < all; done += n_bytes)
            if (bias)
                memcpy((char *)to->data + done, bias, n_bytes);
            else
                memset((char *)to->data + done, 0, n_bytes);
    }
}

static void conv_transpose2d_forward(const ds_op *op, const ds_run *run)
{
    const geometry g = conv_transpose2d_geometry(op);
    const ds_phases *a = &g.axis[0], *b = &g.axis[1];
    const void *bias = ds_run_weight(op, run, BIAS);
    const char *prepared = run->prepared;
    const size_t n_windows = (size_t)run->frames_out * (op->scratch.per_out / (2 * sizeof(void *)));
    if (a->n_phases < a->stride || b->n_phases < b->stride)
        conv_transpose2d_fill(op, run, bias);
    for (int64_t f = 0; f < a->n_phases; f++) {
        for (int64_t e = 0; e < b->n_phases; e++) {
            const ds_window_shape s = conv_transpose2d_shape(op, &g, f, e);
            ds_window_product product;
            ds_window_begin(&product, &s, run, prepared, run->scratch, op->scratch.per_call,
                            n_windows);
            conv_transpose2d_forward_phases(op, run, &g, f, e, &product);
            prepared += ds_window_prepared_bytes(&s, run->k);
        }
    }
}

const ds_op_def ds_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .doc = "transposed convolution along the stream and within each frame",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight bias?",
    .infer = conv_transpose2d_infer,
    .counts = conv_transpose2d_counts,
    .need = conv_transpose2d_need,
    .prepared_bytes = conv_transpose2d_prepared_bytes,
    .prepare = conv_transpose2d_prepare,
    .forward = conv_transpose2d_forward,
};
