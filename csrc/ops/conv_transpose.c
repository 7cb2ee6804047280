/* ops/conv_transpose.c: transposed convolution over planes, one axis of which is the stream.
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
 * Where frames are single positions, without dilation and groups, neighbouring phases with equally
 * many taps share their windows: they are one product, whose columns (phase, n) are contiguous
 * output frames. Where only a part of these frames is wanted, at the ends of a call, they are
 * computed aside.
 *
 * conv_transpose1d: in [C], weight [C][N / groups][kernel], bias? [N], out [N]; rate * stride. in [lanes][C], out
 * [lanes][N]: every lane by itself.
 *
 * conv_transpose2d: in [F][C], weight [C][N / groups][kernel 0][kernel 1], bias? [N], out [F'][N];
 * rate * stride. in [H][F][C], out [H'][F'][N]: images, each frame by itself (ops/planes.h).
 *
 * Source: torch.nn.ConvTranspose1d (also along an axis that is not the stream) and
 * torch.nn.ConvTranspose2d. */
#include <string.h>

#include "ops/fused.h"
#include "ops/move.h"
#include "ops/packed.h"
#include "ops/phases.h"
#include "ops/planes.h"
#include "ops/registry.h"

enum { AXIS, STRIDE, PADDING, OUTPUT_PADDING, DILATION, GROUPS };
enum { WEIGHT = DS_PLANES_WEIGHT, BIAS = DS_PLANES_BIAS };

static const ds_attr_def conv_transpose1d_attrs[] = {
    {"stride", DS_ATTR_INT, .i = 1, .doc = "output frames per input frame"},
    {"padding", DS_ATTR_INT, .doc = "output frames dropped at both ends"},
    {"output_padding", DS_ATTR_INT, .doc = "output frames added at the end"},
    {"dilation", DS_ATTR_INT, .i = 1, .doc = "frames between taps"},
    {"groups", DS_ATTR_INT, .i = 1, .doc = "groups of channels", .range = DS_FROM_1},
    {0},
};

static const ds_attr_def conv_transpose2d_attrs[] = {
    {"axis", DS_ATTR_INT, .doc = "the kernel axis that runs along the stream, 0 or 1",
     .range = DS_0_OR_1},
    {"stride", DS_ATTR_INTS,
     .doc = "output per input along the stream and within a frame; without: 1 and 1"},
    {"padding", DS_ATTR_INTS,
     .doc = "output dropped at both ends of the stream and of each frame; without: none"},
    {"output_padding", DS_ATTR_INTS,
     .doc = "output added at the end of the stream and of each frame; without: none"},
    {"dilation", DS_ATTR_INTS,
     .doc = "between taps along the stream and within a frame; without: 1 and 1"},
    {"groups", DS_ATTR_INT, .i = 1, .doc = "groups of channels", .range = DS_FROM_1},
    {0},
};

/* Along axis i of the plane: 0 the stream (or an image's rows), 1 within a row. */
static ds_padding conv_transpose_numbers(const ds_op *op, int i)
{
    return (ds_padding){.kernel = ds_planes_kernel(op, i),
                        .stride = ds_planes_number(op, STRIDE, i, 1),
                        .dilation = ds_planes_number(op, DILATION, i, 1),
                        .left = ds_planes_number(op, PADDING, i, 0),
                        .right = ds_planes_number(op, OUTPUT_PADDING, i, 0)};
}

/* Both axes. */
static void conv_transpose_geometry(const ds_op *op, ds_phases *g)
{
    for (int i = 0; i < 2; i++)
        g[i] = ds_phases_make(conv_transpose_numbers(op, i));
}

/* How many phases from f on along the first axis are one product. */
static int64_t conv_transpose_shared(const ds_op *op, const ds_phases *g, int64_t f)
{
    if (op->in[0].rank > 1 || g->dilation != 1 || ds_planes_attr(op, GROUPS)->i != 1)
        return 1;
    return (f < g->n_full ? g->n_full : g->n_phases) - f;
}

/* Of n phases from f on along the plane's first axis, and e along its second. */
static ds_windows conv_transpose_windows(const ds_op *op, const ds_phases *g, int64_t f, int64_t n,
                                         int64_t e)
{
    const int64_t n_out = op->out[0].shape[op->out[0].rank - 1];
    return ds_windows_make(op, ds_planes_attr(op, GROUPS)->i, n_out * n, ds_phases_taps(&g[0], f),
                           g[0].frame_step, ds_phases_taps(&g[1], e), g[1].frame_step);
}

/* Of phase f with those that share its windows. */
static ds_windows conv_transpose_shape(const ds_op *op, const ds_phases *g, int64_t f, int64_t e)
{
    return conv_transpose_windows(op, g, f, conv_transpose_shared(op, g, f), e);
}

/* Where the weights of phases f and e lie; start: those of the first channels, from the raw weight on. */
static ds_weight_layout conv_transpose_layout(const ds_op *op, const ds_phases *g, int64_t f,
                                              int64_t e, size_t *start)
{
    const int64_t tap = ds_planes_tap(op, 0), inner = ds_planes_tap(op, 1);
    const int64_t taps = g[0].kernel * g[1].kernel, n_out = op->weight[WEIGHT].shape[1];
    *start = (size_t)(ds_phases_last(&g[0], f) * tap + ds_phases_last(&g[1], e) * inner);
    return (ds_weight_layout){.col = (ptrdiff_t)taps,
                              .tap = -(ptrdiff_t)(g[0].tap_step * tap),
                              .inner = -(ptrdiff_t)(g[1].tap_step * inner),
                              .channel = (ptrdiff_t)(n_out * taps)};
}

/* Output frames that were computed aside. */
typedef struct piece {
    void *to;
    const char *from;
    size_t n_bytes;
} piece;

/* Outputs of an axis of n positions within a frame. */
static ds_status conv_transpose_inner_size(const ds_op *op, const ds_phases *g, int64_t n,
                                           int64_t *n_outputs)
{
    *n_outputs = ds_phases_size(g, n);
    DS_CHECK(*n_outputs >= 1, DS_SHAPE,
             "%s: padding %lld drops all of the %lld positions that the %lld within a frame give",
             op->def->name, (long long)g->padding, (long long)(*n_outputs + 2 * g->padding),
             (long long)n);
    return DS_OK;
}

static ds_status conv_transpose_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    ds_signature *out = &op->out[0];
    const int rank = in->rank;
    DS_TRY(ds_planes_check(op, 2));
    const int64_t groups = ds_planes_attr(op, GROUPS)->i, n_out = op->weight[WEIGHT].shape[1];
    DS_CHECK(n_out <= INT64_MAX / groups, DS_LIMIT, "%s: too many channels", op->def->name);
    out->shape[rank - 1] = n_out * groups;
    for (int i = 0; i < 2; i++) {
        const ds_padding numbers = conv_transpose_numbers(op, i);
        DS_TRY(ds_phases_check(op, &numbers));
    }
    ds_phases g[2];
    conv_transpose_geometry(op, g);
    const ds_phases *a = &g[0], *b = &g[1];
    if (rank > 1)
        DS_TRY(conv_transpose_inner_size(op, b, in->shape[rank - 2], &out->shape[rank - 2]));
    DS_TRY(ds_planes_images(op) ? conv_transpose_inner_size(op, a, in->shape[0], &out->shape[0])
                                : ds_scale_rate(op, a->stride, 1));
    /* Frames that share a product lie side by side in its rows. */
    const bool shared =
        conv_transpose_shared(op, a, 0) > 1 || conv_transpose_shared(op, a, a->n_full) > 1;
    op->finishes = shared ? DS_FINISHES_ELEMENTS : DS_FINISHES_STEPS;
    const ds_windows s = conv_transpose_shape(op, g, 0, 0); /* no phase has more taps */
    op->shares = !s.depthwise;
    DS_TRY(ds_windows_set_sizes(op, &s, (size_t)(g[0].n_phases * g[1].n_phases), true));
    if (rank == 1)
        op->scratch.per_row =
            ds_aligned(2 * (sizeof(piece) + (size_t)g[0].n_phases * ds_signature_bytes(out)));
    return DS_OK;
}

/* Along the stream. */
static ds_phases conv_transpose_along(const ds_op *op)
{
    return ds_phases_make(ds_planes_images(op) ? DS_PADDING_NONE : conv_transpose_numbers(op, 0));
}
DS_COUNTS_OF(conv_transpose, ds_phases, conv_transpose_along)

/* Bytes of a product's bias that is repeated for each phase. */
static size_t conv_transpose_bias_bytes(const ds_op *op, const ds_windows *s)
{
    const bool repeated = s->n_out > ds_last_size(&op->out[0]);
    return repeated && ds_op_has_weight(op, BIAS) ? ds_aligned(s->n_out * s->element) : 0;
}

static size_t conv_transpose_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    ds_phases g[2];
    conv_transpose_geometry(op, g);
    size_t n_bytes = 0;
    for (int64_t f = 0; f < g[0].n_phases; f += conv_transpose_shared(op, &g[0], f)) {
        for (int64_t e = 0; e < g[1].n_phases; e++) {
            const ds_windows s = conv_transpose_shape(op, g, f, e);
            n_bytes += ds_windows_prepared_bytes(&s, k) + conv_transpose_bias_bytes(op, &s);
        }
    }
    return n_bytes;
}

/* The product of phases f and e; returns where the next one goes. */
static void *conv_transpose_prepare_phases(const ds_op *op, const ds_phases *g, int64_t f,
                                           int64_t e, void *prepared, const void *const *weights,
                                           const ds_real_kernels *k)
{
    const int64_t n_out = op->weight[WEIGHT].shape[1];
    const ds_windows s = conv_transpose_shape(op, g, f, e);
    size_t start;
    ds_weight_layout layout = conv_transpose_layout(op, g, f, e, &start);
    const char *bias = ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL;
    const size_t n_bytes = ds_windows_prepared_bytes(&s, k),
                 repeated = conv_transpose_bias_bytes(op, &s);
    if (conv_transpose_shared(op, g, f) > 1) { /* columns (phase, n) */
        layout.n_sub = (size_t)n_out;
        layout.sub = layout.col;
        layout.col = 1;
    }
    ds_windows_prepare(&s, prepared, weights, start, s.n_in / s.groups * (size_t)layout.channel,
                       &layout, bias, k);
    if (repeated > 0) {
        ds_packed *packed = prepared;
        char *to = (char *)prepared + n_bytes;
        packed->bias = to;
        packed->n_bytes += repeated;
        ds_move_repeat(to, s.n_out * s.element, bias, (size_t)n_out * s.element);
    }
    return (char *)prepared + n_bytes + repeated;
}

static void conv_transpose_prepare(const ds_op *op, void *prepared, const void *const *weights,
                                   const ds_real_kernels *k)
{
    ds_phases g[2];
    conv_transpose_geometry(op, g);
    for (int64_t f = 0; f < g[0].n_phases; f += conv_transpose_shared(op, &g[0], f))
        for (int64_t e = 0; e < g[1].n_phases; e++)
            prepared = conv_transpose_prepare_phases(op, g, f, e, prepared, weights, k);
}

static size_t conv_transpose_narrows(const ds_op *op, int i)
{
    const ds_signature *weight = &op->weight[WEIGHT];
    const int64_t groups = ds_planes_attr(op, GROUPS)->i;
    return i == WEIGHT
               ? ds_signature_bytes(weight) / sizeof(float) / (size_t)(groups * weight->shape[1])
               : 0;
}

/* Taps of a phase are a column's. */
static size_t conv_transpose_scale_of(const ds_op *op, size_t place)
{
    ds_phases g[2];
    conv_transpose_geometry(op, g);
    const size_t n_taps = (size_t)(g[0].kernel * g[1].kernel), tap = place % n_taps;
    for (int i = 0; i < 2; i++) {
        const size_t step = (size_t)ds_planes_tap(op, i);
        const size_t at = tap / step % (size_t)g[i].kernel;
        place -= (at - at % (size_t)g[i].tap_step) * step;
    }
    return place;
}

/* All outputs of the phases [f, f + n) along the plane's first axis and e along its second. dx: slopes of the rows'
 * windows, or NULL; phases are one by one then. */
static void conv_transpose_walk(const ds_op *op, const ds_phases *g, int64_t f, int64_t n,
                                int64_t e, ds_window_product *product, const ds_slope *dx)
{
    const ds_run *run = product->run;
    const ds_phases *a = &g[0], *b = &g[1];
    const ds_signature *out = &op->out[0];
    const int64_t n_outputs = ds_planes_width(out);
    const size_t position_bytes = ds_last_size(out) * product->shape.element;
    const size_t row_bytes = (size_t)n_outputs * position_bytes;
    piece *pieces = run->scratch;
    char *aside = n > 1 ? (char *)(pieces + 2 * run->n_rows) : NULL;
    size_t n_pieces = 0;
    for (size_t row = 0; row < run->n_rows; row++) {
        for (int64_t i = 0; i < ds_planes_count(op, run, row); i++) {
            const ds_plane plane = ds_planes_at(op, run, row, i, dx ? dx + row : NULL);
            const int64_t m0 = plane.out.m0, m1 = plane.out.m1;
            int64_t m = ds_phases_from(a, f, m0);
            if (n > 1 && m - a->stride + n > m0)
                m -= a->stride; /* its last frames are wanted */
            for (; m < m1 && m0 < m1; m += a->stride) {
                const int64_t from = m > m0 ? m : m0, to = m + n < m1 ? m + n : m1;
                char *y = ds_to(&plane.out, from, row_bytes);
                if (to - from < n) {
                    char *at = aside + n_pieces * (size_t)n * row_bytes;
                    pieces[n_pieces++] = (piece){y, at + (size_t)(from - m) * row_bytes,
                                                 (size_t)(to - from) * row_bytes};
                    y = at;
                }
                const ds_window_place along = {ds_phases_first(a, f, m), DS_PADDING_ZEROS,
                                               plane.total};
                for (int64_t j = ds_phases_from(b, e, 0); j < n_outputs; j += b->stride) {
                    const ds_window_place inner = {ds_phases_first(b, e, j), DS_PADDING_ZEROS,
                                                   product->shape.width};
                    ds_window_add(product, y + (size_t)j * position_bytes, &plane, along, inner);
                }
            }
        }
    }
    ds_window_flush(product);
    for (size_t i = 0; i < n_pieces; i++)
        memcpy(pieces[i].to, pieces[i].from, pieces[i].n_bytes);
}

/* The outputs that no tap reaches: the bias, and what follows it, once for all but where a stream has a part in it. y:
 * room for the frames' positions. */
static void conv_transpose_fill(const ds_op *op, const ds_run *run, const ds_phases *g, void **y)
{
    const ds_signature *out = &op->out[0];
    const int64_t n_outputs = ds_planes_width(out);
    const void *const bias = ds_run_weight(op, run, BIAS);
    const ds_packed none = {.n_cols = ds_last_size(out)};
    const size_t n_bytes = none.n_cols * ds_op_element(op);
    ds_product product = {.weight = &none, .y = y};
    const void **const operands = ds_run_operands(run);
    const bool alike = operands == NULL;
    const void *made = NULL; /* one of those that are alike */
    for (size_t row = 0; row < run->n_rows; row++) {
        for (int64_t i = 0; i < ds_planes_count(op, run, row); i++) {
            const ds_target to = ds_planes_at(op, run, row, i, NULL).out;
            char *at = to.data;
            for (int64_t m = to.m0; m < to.m1; m++) {
                const bool reached = ds_phases_reach(&g[0], m);
                for (int64_t j = 0; j < n_outputs; j++, at += n_bytes) {
                    if (reached && ds_phases_reach(&g[1], j))
                        continue;
                    if (made) {
                        memcpy(at, made, n_bytes);
                        continue;
                    }
                    if (operands)
                        operands[product.n_rows] = ds_run_operand(run, row, at);
                    y[product.n_rows++] = bias ? memcpy(at, bias, n_bytes) : memset(at, 0, n_bytes);
                    if (alike) {
                        ds_run_finish(run, &product);
                        made = at;
                    }
                }
            }
        }
    }
    if (!alike)
        ds_run_finish(run, &product);
}

/* Scratch: the pieces of all rows, then what products want. */
static void conv_transpose_forward(const ds_op *op, const ds_run *run)
{
    ds_phases g[2];
    conv_transpose_geometry(op, g);
    const ds_phases *a = &g[0], *b = &g[1];
    const void *prepared = run->prepared;
    char *scratch = (char *)run->scratch + run->n_rows * op->scratch.per_row;
    if (a->n_phases < a->stride || b->n_phases < b->stride)
        conv_transpose_fill(op, run, g, (void **)(void *)scratch);
    for (int64_t f = 0, n; f < a->n_phases; f += n) {
        n = conv_transpose_shared(op, a, f);
        for (int64_t e = 0; e < b->n_phases; e++) {
            const ds_windows s = conv_transpose_shape(op, g, f, e);
            ds_window_product product;
            ds_window_begin(&product, &s, op, run, prepared, scratch);
            conv_transpose_walk(op, g, f, n, e, &product, NULL);
            for (size_t i = 0; i < (s.depthwise ? 1 : s.groups); i++)
                prepared = ds_packed_next(prepared);
        }
    }
}

static void conv_transpose_backward(const ds_op *op, const ds_back *b)
{
    ds_phases g[2];
    ds_room room = {b->scratch};
    const ds_run run = ds_windows_turned(b, &room);
    conv_transpose_geometry(op, g);
    for (int64_t f = 0; f < g[0].n_phases; f++)
        for (int64_t e = 0; e < g[1].n_phases; e++) {
            const ds_windows s = conv_transpose_windows(op, g, f, 1, e);
            ds_window_product product;
            ds_window_turn turn;
            size_t start;
            const ds_weight_layout layout = conv_transpose_layout(op, g, f, e, &start);
            ds_window_begin_back(&product, &turn, &s, b, &run, &layout,
                                 s.n_in / s.groups * (size_t)layout.channel, start, room);
            conv_transpose_walk(op, g, f, 1, e, &product, b->dx);
            ds_window_end_back(&product);
        }
    ds_windows_bias_back(op, b, room);
}

#define CONV_TRANSPOSE(positions, kernel) \
    "[.., " positions "groups*C]; weight [groups*C, N, " kernel "]; bias? [groups*N]"

const ds_op_def ds_op_conv_transpose1d = {
    DS_PLANES_OPERATOR(conv_transpose1d, DS_PLANES_VECTORS,
                       "transposed convolution along the stream", conv_transpose,
                       conv_transpose_narrows, CONV_TRANSPOSE("", "kernel")),
    .scale_of = conv_transpose_scale_of};

const ds_op_def ds_op_conv_transpose2d = {
    DS_PLANES_OPERATOR(conv_transpose2d, DS_PLANES_OF_ROWS,
                       "transposed convolution along the stream and within each frame",
                       conv_transpose, conv_transpose_narrows,
                       CONV_TRANSPOSE("positions, ", "kernel, ...")),
    .scale_of = conv_transpose_scale_of};
