/* ops/conv_transpose1d.c: transposed convolution along the stream (upsampling by the stride).
 *
 * Input frame i adds x[i][c] * weight[c][n][j] to output frame i * stride + j * dilation - padding,
 * for every tap j = 0 .. kernel - 1; then the bias. Seen from output m, with u = m + padding:
 *
 *     y[m][n] = sum over j with (u - j * dilation) divisible by stride of
 *               x[(u - j * dilation) / stride][c] * weight[c][n][j]  (+ bias[n])
 *
 * Each phase of ops/phases.h is a product over a window of the input, in ascending order of frames, that is
 * of descending taps; frames outside the stream count as zero, and a phase without taps is the bias.
 * Without dilation and groups, neighbouring phases with equally many taps share their windows: they are
 * one product, whose columns (phase, n) are contiguous output frames. Where only a part of these frames
 * is wanted, at the ends of a call, they are computed aside.
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

static ds_phases conv_transpose1d_geometry(const ds_op *op)
{
    return ds_phases_make(op->weight[WEIGHT].shape[2], op->attr[STRIDE].i, op->attr[DILATION].i,
                          op->attr[PADDING].i, op->attr[OUTPUT_PADDING].i);
}

/* Phases [f, end) that share windows, the first of them given. */
static int64_t conv_transpose1d_batch_end(const ds_op *op, const ds_phases *g, int64_t f)
{
    if (op->attr[DILATION].i != 1 || op->attr[GROUPS].i != 1)
        return f + 1;
    return f < g->n_full ? g->n_full : g->n_phases;
}

static ds_window_shape conv_transpose1d_shape(const ds_op *op, const ds_phases *g, int64_t f)
{
    return (ds_window_shape){.n_in = (size_t)op->in[0].shape[0],
                             .n_out = (size_t)op->out[0].shape[0] *
                                      (size_t)(conv_transpose1d_batch_end(op, g, f) - f),
                             .groups = (size_t)op->attr[GROUPS].i,
                             .n_taps = (size_t)ds_phases_taps(g, f),
                             .n_inner = 1,
                             .step = g->frame_step,
                             .inner_step = 1,
                             .width = 1,
                             .element = ds_op_element(op)};
}

/* Room for any batch: the first has most taps, and taps differ by one at most. */
static size_t conv_transpose1d_copy_bytes(const ds_op *op, const ds_phases *g)
{
    const ds_window_shape full = conv_transpose1d_shape(op, g, 0);
    const ds_window_shape rest =
        conv_transpose1d_shape(op, g, g->n_full < g->n_phases ? g->n_full : 0);
    const size_t a = ds_window_copy_bytes(&full, true), b = ds_window_copy_bytes(&rest, true);
    return a > b ? a : b;
}

/* Output frames that were computed aside. */
typedef struct piece {
    void *to;
    const char *from;
    size_t n_bytes;
} piece;

/* Bytes of what a batch gives for one window, at most. */
static size_t conv_transpose1d_aside_bytes(const ds_op *op, const ds_phases *g)
{
    const int64_t a = conv_transpose1d_batch_end(op, g, 0);
    const int64_t b =
        g->n_full < g->n_phases ? conv_transpose1d_batch_end(op, g, g->n_full) - g->n_full : 0;
    return (size_t)(a > b ? a : b) * ds_signature_bytes(&op->out[0]);
}

static ds_status conv_transpose1d_set_sizes(ds_op *op, const ds_phases *g)
{
    size_t n_columns, most;
    DS_TRY(ds_size_mul(&n_columns, (size_t)g->n_phases, (size_t)op->out[0].shape[0]));
    const ds_window_shape full = conv_transpose1d_shape(op, g, 0);
    DS_TRY(ds_window_check(&full, &most)); /* the rest take less */
    DS_TRY(ds_size_mul(&most, most, (size_t)g->n_phases));
    op->scratch.per_call = conv_transpose1d_copy_bytes(op, g);
    op->scratch.per_out = 2 * sizeof(void *);
    op->scratch.per_row = 2 * (sizeof(piece) + conv_transpose1d_aside_bytes(op, g));
    return DS_OK;
}

static ds_status conv_transpose1d_infer(ds_op *op)
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
    if (ds_op_has_weight(op, BIAS))
        DS_TRY(ds_op_require_weight(op, BIAS, "bias", 1, &n_out));
    DS_TRY(ds_phases_check(op, weight->shape[2], op->attr[STRIDE].i, op->attr[DILATION].i,
                           op->attr[PADDING].i, op->attr[OUTPUT_PADDING].i));

    op->out[0].shape[0] = n_out;
    const ds_phases g = conv_transpose1d_geometry(op);
    DS_CHECK(ds_rate_scale(&op->out[0].rate, g.stride, 1), DS_LIMIT,
             "conv_transpose1d: the rate overflows");
    DS_TRY(conv_transpose1d_set_sizes(op, &g));
    return DS_OK;
}

static void conv_transpose1d_counts(const ds_op *op, ds_program *p)
{
    const ds_phases g = conv_transpose1d_geometry(op);
    ds_phases_counts(&g, p);
}

static void conv_transpose1d_need(const ds_op *op, ds_program *p)
{
    const ds_phases g = conv_transpose1d_geometry(op);
    ds_phases_need(&g, p);
}

/* Bytes of a batch's bias, repeated for each phase. */
static size_t conv_transpose1d_bias_bytes(const ds_op *op, const ds_window_shape *s)
{
    const bool repeated = s->n_out > (size_t)op->out[0].shape[0];
    return repeated && ds_op_has_weight(op, BIAS) ? ds_packed_align(s->n_out * s->element) : 0;
}

static size_t conv_transpose1d_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_phases g = conv_transpose1d_geometry(op);
    size_t n_bytes = 0;
    for (int64_t f = 0; f < g.n_phases; f = conv_transpose1d_batch_end(op, &g, f)) {
        const ds_window_shape s = conv_transpose1d_shape(op, &g, f);
        n_bytes += ds_window_prepared_bytes(&s, k) + conv_transpose1d_bias_bytes(op, &s);
    }
    return n_bytes;
}

static void conv_transpose1d_prepare(const ds_op *op, void *prepared, const void *const *weights,
                                     const ds_real_kernels *k)
{
    const ds_phases g = conv_transpose1d_geometry(op);
    const size_t n_out = (size_t)op->out[0].shape[0], frame_bytes = n_out * ds_op_element(op);
    for (int64_t f = 0; f < g.n_phases; f = conv_transpose1d_batch_end(op, &g, f)) {
        const ds_window_shape s = conv_transpose1d_shape(op, &g, f);
        const size_t per_in = n_out / s.groups * (size_t)g.kernel;
        const bool single = s.n_out == n_out;
        const ds_window_weight layout = {.start = (size_t)ds_phases_last(&g, f),
                                         .group = s.n_in / s.groups * per_in,
                                         .col = single ? (ptrdiff_t)g.kernel : 1,
                                         .tap = -(ptrdiff_t)g.tap_step,
                                         .channel = (ptrdiff_t)per_in,
                                         .n_sub = single ? 0 : n_out,
                                         .sub = (ptrdiff_t)g.kernel};
        const void *bias = ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL;
        ds_packed *packed = prepared;
        prepared = ds_window_prepare(&s, prepared, weights[WEIGHT], &layout, bias, k);
        if (conv_transpose1d_bias_bytes(op, &s) > 0) {
            packed->bias = prepared;
            packed->n_bytes += conv_transpose1d_bias_bytes(op, &s);
            for (size_t n = 0; n < s.n_out; n += n_out)
                memcpy((char *)prepared + n * s.element, bias, frame_bytes);
            prepared = ds_packed_next(packed);
        }
    }
}

/* All outputs of the phases [f, end). Window i gives frames i * stride - padding + [f, end). */
static void conv_transpose1d_forward_batch(const ds_run *run, const ds_phases *g, int64_t f,
                                           int64_t end, ds_window_product *product,
                                           size_t frame_bytes, piece *pieces)
{
    char *aside = (char *)(pieces + 2 * run->n_rows);
    const size_t whole = (size_t)(end - f) * frame_bytes;
    size_t n_pieces = 0;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t total = run->ended[row] ? run->count[row].now.total : DS_PADDING_OPEN;
        int64_t first = ds_phases_from(g, f, out->m0);
        if (end - f > 1 && first - g->stride + end - f > out->m0)
            first -= g->stride; /* its last frames are wanted */
        for (int64_t m = first; m < out->m1 && out->m0 < out->m1; m += g->stride) {
            const int64_t from = m > out->m0 ? m : out->m0;
            const int64_t to = m + end - f < out->m1 ? m + end - f : out->m1;
            void *y = ds_to(out, from, frame_bytes);
            if (to - from < end - f) {
                const char *at = aside + n_pieces * whole;
                pieces[n_pieces++] = (piece){y, at + (size_t)(from - m) * frame_bytes,
                                             (size_t)(to - from) * frame_bytes};
                y = (void *)(uintptr_t)at;
            }
            ds_window_add(product, y, &run->in[row], ds_phases_first(g, f, m), DS_PADDING_ZEROS,
                          total);
        }
    }
    ds_window_flush(product);
    for (size_t i = 0; i < n_pieces; i++)
        memcpy(pieces[i].to, pieces[i].from, pieces[i].n_bytes);
}

/* The bias in every output, to begin with. */
static void conv_transpose1d_fill(const ds_run *run, const void *bias, size_t frame_bytes)
{
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        for (int64_t m = out->m0; m < out->m1; m++)
            if (bias)
                memcpy(ds_to(out, m, frame_bytes), bias, frame_bytes);
            else
                memset(ds_to(out, m, frame_bytes), 0, frame_bytes);
    }
}

static void conv_transpose1d_forward(const ds_op *op, const ds_run *run)
{
    const ds_phases g = conv_transpose1d_geometry(op);
    const size_t copies = conv_transpose1d_copy_bytes(op, &g),
                 frame_bytes = ds_signature_bytes(&op->out[0]);
    const size_t n_windows = (size_t)run->frames_out;
    const void *prepared = run->prepared;
    char *behind = (char *)run->scratch + copies + n_windows * 2 * sizeof(void *);
    if (g.n_phases < g.stride)
        conv_transpose1d_fill(run, ds_run_weight(op, run, BIAS), frame_bytes);
    for (int64_t f = 0, end; f < g.n_phases; f = end) {
        const ds_window_shape s = conv_transpose1d_shape(op, &g, f);
        ds_window_product product;
        end = conv_transpose1d_batch_end(op, &g, f);
        ds_window_begin(&product, &s, run, prepared, run->scratch, copies, n_windows);
        conv_transpose1d_forward_batch(run, &g, f, end, &product, frame_bytes,
                                       (piece *)(void *)behind);
        for (size_t i = 0; i < (s.groups == s.n_in ? 1 : s.groups); i++)
            prepared = ds_packed_next(prepared);
    }
}

const ds_op_def ds_op_conv_transpose1d = {
    .name = "conv_transpose1d",
    .doc = "transposed convolution along the stream",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight bias?",
    .infer = conv_transpose1d_infer,
    .counts = conv_transpose1d_counts,
    .need = conv_transpose1d_need,
    .prepared_bytes = conv_transpose1d_prepared_bytes,
    .prepare = conv_transpose1d_prepare,
    .forward = conv_transpose1d_forward,
};
