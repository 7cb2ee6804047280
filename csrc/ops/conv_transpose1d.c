/* ops/conv_transpose1d.c: transposed convolution along the stream (upsampling by the stride).
 *
 * Input frame i adds x[i][c] * weight[c][n][j] to output frame i * stride + j * dilation - padding,
 * for every tap j = 0 .. kernel - 1; then the bias. Seen from output m, with u = m + padding:
 *
 *     y[m][n] = sum over j with (u - j * dilation) divisible by stride of
 *               x[(u - j * dilation) / stride][c] * weight[c][n][j]  (+ bias[n])
 *
 * Each phase of ops/phases.h is a product of its own over a window of the input, in ascending order
 * of frames, that is of descending taps; frames outside the stream count as zero, and a phase without
 * taps is the bias.
 *
 * in [C], weight [C][N / groups][kernel], bias? [N], out [N]; rate * stride. Counts: ops/phases.h.
 *
 * Source: torch.nn.ConvTranspose1d. */
#include <string.h>

#include "ops/packed.h"
#include "ops/phases.h"
#include "ops/window_product.h"

enum { STRIDE, PADDING, OUTPUT_PADDING, DILATION, GROUPS };
enum { WEIGHT, BIAS };

static const ds_attr_def attrs[] = {
    {.name = "stride", .kind = DS_ATTR_INT, .i = 1, .doc = "output frames per input frame"},
    {.name = "padding", .kind = DS_ATTR_INT, .doc = "output frames dropped at both ends"},
    {.name = "output_padding", .kind = DS_ATTR_INT, .doc = "output frames added at the end"},
    {.name = "dilation", .kind = DS_ATTR_INT, .i = 1, .doc = "frames between taps"},
    {.name = "groups", .kind = DS_ATTR_INT, .i = 1, .doc = "groups of channels"},
    {.name = NULL},
};

static ds_phases geometry_of(const ds_op *op)
{
    return ds_phases_make(op->weight[WEIGHT].shape[2], op->attr[STRIDE].i, op->attr[DILATION].i,
                          op->attr[PADDING].i, op->attr[OUTPUT_PADDING].i);
}

static ds_window_shape shape(const ds_op *op, const ds_phases *g, int64_t taps)
{
    return (ds_window_shape){.n_in = (size_t)op->in[0].shape[0],
                             .n_out = (size_t)op->out[0].shape[0],
                             .groups = (size_t)op->attr[GROUPS].i,
                             .n_taps = (size_t)taps,
                             .n_inner = 1,
                             .step = g->frame_step,
                             .inner_step = 1,
                             .width = 1,
                             .element = ds_op_element(op)};
}

/* Room for any phase: taps differ by one at most. */
static size_t copy_bytes(const ds_op *op, const ds_phases *g)
{
    const ds_window_shape full = shape(op, g, ds_phases_taps(g, 0));
    const ds_window_shape rest = shape(op, g, ds_phases_taps(g, g->n_phases - 1));
    const size_t a = ds_window_copy_bytes(&full, true), b = ds_window_copy_bytes(&rest, true);
    return a > b ? a : b;
}

static ds_status set_sizes(ds_op *op, const ds_phases *g)
{
    const ds_window_shape full = shape(op, g, ds_phases_taps(g, 0));
    size_t most;
    DS_TRY(ds_window_check(&full, &most)); /* the rest take less */
    DS_TRY(ds_size_mul(&most, most, (size_t)g->n_phases));
    op->scratch.per_call = copy_bytes(op, g);
    op->scratch.per_out = 2 * sizeof(void *);
    return DS_OK;
}

static ds_status infer(ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    const int64_t groups = op->attr[GROUPS].i;
    char text[128];
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(in->rank == 1 && in->shape[0] >= 1, DS_SHAPE,
             "conv_transpose1d: expected an input of shape (channels,), got %s",
             ds_signature_text(in, text, sizeof text));
    const int64_t n_in = in->shape[0];
    DS_CHECK(weight->rank == 3 && weight->shape[0] == n_in && weight->shape[1] >= 1, DS_SHAPE,
             "conv_transpose1d: its weight 'weight' must have shape (%lld, out_channels / groups, "
             "kernel_size), got %s",
             (long long)n_in, ds_signature_text(weight, text, sizeof text));
    DS_CHECK(groups >= 1 && n_in % groups == 0, DS_ARGUMENT,
             "conv_transpose1d: groups must divide %lld input channels, got %lld", (long long)n_in,
             (long long)groups);
    DS_CHECK(weight->shape[1] <= INT64_MAX / groups, DS_LIMIT,
             "conv_transpose1d: too many channels");
    const int64_t n_out = weight->shape[1] * groups;
    if (ds_op_has_weight(op, BIAS)) {
        DS_TRY(ds_op_require_weight(op, BIAS, "bias", 1, &n_out));
    }
    DS_TRY(ds_phases_check(op, weight->shape[2], op->attr[STRIDE].i, op->attr[DILATION].i,
                           op->attr[PADDING].i, op->attr[OUTPUT_PADDING].i));

    op->out[0].shape[0] = n_out;
    const ds_phases g = geometry_of(op);
    DS_CHECK(ds_rate_scale(&op->out[0].rate, g.stride, 1), DS_LIMIT,
             "conv_transpose1d: the rate overflows");
    DS_TRY(set_sizes(op, &g));
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    const ds_phases g = geometry_of(op);
    ds_phases_counts(&g, p);
}

static void need(const ds_op *op, ds_program *p)
{
    const ds_phases g = geometry_of(op);
    ds_phases_need(&g, p);
}

static size_t prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_phases g = geometry_of(op);
    const ds_window_shape full = shape(op, &g, ds_phases_taps(&g, 0));
    const ds_window_shape rest = shape(op, &g, ds_phases_taps(&g, g.n_phases - 1));
    return ds_window_prepared_bytes(&full, k) * (size_t)g.n_full +
           ds_window_prepared_bytes(&rest, k) * (size_t)(g.n_phases - g.n_full);
}

static void prepare(const ds_op *op, void *prepared, const void *const *weights,
                    const ds_real_kernels *k)
{
    const ds_phases g = geometry_of(op);
    char *to = prepared;
    for (int64_t f = 0; f < g.n_phases; f++) {
        const ds_window_shape s = shape(op, &g, ds_phases_taps(&g, f));
        const size_t per_in = s.n_out / s.groups * (size_t)g.kernel;
        const ds_window_weight layout = {.start = (size_t)ds_phases_last(&g, f),
                                         .group = s.n_in / s.groups * per_in,
                                         .col = (ptrdiff_t)g.kernel,
                                         .tap = -(ptrdiff_t)g.tap_step,
                                         .channel = (ptrdiff_t)per_in};
        ds_window_prepare(&s, to, weights[WEIGHT], &layout, k);
        to += ds_window_prepared_bytes(&s, k);
    }
}

/* All outputs of one phase. */
static void forward_phase(const ds_run *run, const ds_phases *g, int64_t f,
                          ds_window_product *product, size_t frame_bytes)
{
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t total = run->ended[row] ? run->count[row].now.total : DS_PADDING_OPEN;
        for (int64_t m = ds_phases_from(g, f, out->m0); m < out->m1; m += g->stride) {
            ds_window_add(product, ds_to(out, m, frame_bytes), &run->in[row],
                          ds_phases_first(g, f, m), DS_PADDING_ZEROS, total);
        }
    }
    ds_window_flush(product);
}

/* The bias in every output, to begin with. */
static void fill(const ds_run *run, const void *bias, size_t frame_bytes)
{
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        for (int64_t m = out->m0; m < out->m1; m++) {
            if (bias) {
                memcpy(ds_to(out, m, frame_bytes), bias, frame_bytes);
            } else {
                memset(ds_to(out, m, frame_bytes), 0, frame_bytes);
            }
        }
    }
}

static void forward(const ds_op *op, const ds_run *run)
{
    const ds_phases g = geometry_of(op);
    const size_t copies = copy_bytes(op, &g), frame_bytes = ds_signature_bytes(&op->out[0]);
    const void *bias = ds_run_weight(op, run, BIAS);
    const char *prepared = run->prepared;
    if (g.n_phases < g.stride) {
        fill(run, bias, frame_bytes);
    }
    for (int64_t f = 0; f < g.n_phases; f++) {
        const ds_window_shape s = shape(op, &g, ds_phases_taps(&g, f));
        ds_window_product product;
        ds_window_begin(&product, &s, run->k, prepared, bias, run->scratch, copies,
                        (size_t)run->frames_out);
        forward_phase(run, &g, f, &product, frame_bytes);
        prepared += ds_window_prepared_bytes(&s, run->k);
    }
}

const ds_op_def ds_op_conv_transpose1d = {
    .name = "conv_transpose1d",
    .doc = "transposed convolution along the stream",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .attrs = attrs,
    .weights = "weight bias?",
    .infer = infer,
    .counts = counts,
    .need = need,
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .forward = forward,
};
