/* ops/linear.c: products of every frame with constant matrices, along its last feature axis.
 *
 *     linear   y[f][..., n] = sum over k of x[f][..., k] * weight[n][k]  (+ bias[n])
 *     router   the same, its sums always in the order of the kernels' own products: choices depend on them
 *     matmul   y[f][b..., m..., n] = sum over k of x[f][b..., m..., k] * weight[b...][n][k]
 *
 * linear, router: in [..., K], weight [N][K], bias? [N], out [..., N]. matmul: in [B..., M..., K], weight
 * [B'...][N][K], where each of B' is that of B or 1, which serves all; out [B..., M..., N]. Frame in,
 * frame out. For every matrix one product over all frames of all streams, each vector of K elements
 * being one row by pointer.
 *
 * Source: torch.nn.functional.linear; torch.matmul with a constant (whose last two axes are the other
 * way round). */
#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/fused.h"
#include "ops/packed.h"
#include "ops/registry.h"

enum { WEIGHT, BIAS };

typedef struct sizes {
    size_t n_in, n_out, element;
    size_t matrices; /* in the weight */
    size_t blocks;   /* in a frame: vectors with one place along B... */
    size_t vectors;  /* in a block */
    int leading;     /* axes B... */
} sizes;

static sizes linear_sizes_of(const ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    sizes s = {.n_in = ds_last_size(weight),
               .n_out = (size_t)weight->shape[weight->rank - 2],
               .element = ds_op_element(op),
               .matrices = 1,
               .blocks = 1,
               .vectors = 1,
               .leading = weight->rank - 2};
    for (int i = 0; i < s.leading; i++) {
        s.matrices *= (size_t)weight->shape[i];
        s.blocks *= (size_t)in->shape[i];
    }
    for (int i = s.leading; i + 1 < in->rank; i++)
        s.vectors *= (size_t)in->shape[i];
    return s;
}

/* Matrices lie along leading axes of the input, or are one for all of an axis. */
static ds_status matmul_check_leading(const ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    bool fits = in->rank >= weight->rank - 1;
    for (int i = 0; fits && i + 2 < weight->rank; i++)
        fits = weight->shape[i] == 1 || weight->shape[i] == in->shape[i];
    DS_CHECK(fits, DS_SHAPE, "matmul: matrices of shape %s don't fit an input of shape %s",
             DS_SHAPE_TEXT(weight), DS_SHAPE_TEXT(in));
    return DS_OK;
}

static void linear_set_back_scratch(ds_op *op, const sizes *s)
{
    const size_t rows = ds_back_rows_bytes(s->n_in, s->element);
    size_t most = ds_back_outer_bytes(s->n_out, s->n_in, s->element);
    most = most > rows ? most : rows;
    most = most > s->n_out * sizeof(double) ? most : s->n_out * sizeof(double);
    op->back_scratch.per_call = ds_saturated_sum(
        most, ds_back_packed_bytes(s->n_in, s->n_out, s->element) + 4 * (size_t)DS_ALIGNMENT);
    op->back_scratch.per_out = s->blocks * s->vectors * 3 * sizeof(void *);
}

static ds_status linear_infer(ds_op *op)
{
    if (op->def == &ds_op_matmul)
        DS_TRY(matmul_check_leading(op));
    const sizes s = linear_sizes_of(op);
    size_t most = 0, vectors = 1;
    DS_TRY(ds_packed_check(&most, s.n_out, s.n_in, s.element));
    DS_TRY(ds_size_mul(&most, most, s.matrices));
    for (int i = 0; i + 1 < op->in[0].rank; i++)
        DS_TRY(ds_size_mul(&vectors, vectors, (size_t)op->in[0].shape[i]));
    DS_TRY(ds_size_mul(&op->scratch.per_out, vectors, 2 * sizeof(void *)));
    op->out[0].shape[op->in[0].rank - 1] = (int64_t)s.n_out;
    op->finishes = DS_FINISHES_STEPS | DS_FINISHES_GLU;
    op->shares = true;
    linear_set_back_scratch(op, &s);
    return DS_OK;
}

/* A router's products are no library's. */
static const ds_real_kernels *kernels_of(const ds_op *op, const ds_real_kernels *k)
{
    return op->def == &ds_op_router ? k->own : k;
}

static size_t linear_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const sizes s = linear_sizes_of(op);
    k = kernels_of(op, k);
    return s.matrices * ds_packed_bytes(k, k->format, s.n_out, s.n_in);
}

static void linear_prepare(const ds_op *op, void *prepared, const void *const *weights,
                           const ds_real_kernels *k)
{
    const sizes s = linear_sizes_of(op);
    const size_t raw = s.n_out * s.n_in * s.element;
    k = kernels_of(op, k);
    for (size_t i = 0; i < s.matrices; i++) {
        prepared = ds_packed_rows(k, prepared, weights, WEIGHT, i * raw, s.n_out, s.n_in,
                                  ds_op_has_weight(op, BIAS) ? weights[BIAS] : NULL);
    }
}

/* The matrix that serves a block. */
static size_t linear_matrix_of(const ds_op *op, const sizes *s, size_t block)
{
    size_t matrix = 0, step = 1;
    for (int i = s->leading - 1; i >= 0; i--) {
        const size_t size = (size_t)op->in[0].shape[i], own = (size_t)op->weight[WEIGHT].shape[i];
        matrix += own == 1 ? 0 : block % size * step;
        step *= own;
        block /= size;
    }
    return matrix;
}

/* Puts pointers to the vectors of one block, of so many elements each, in all of these frames (NULL: there are none) at
 * list[n]; returns where the next go. */
static size_t linear_vectors(const sizes *s, size_t block, void *list, size_t n, const void *frames,
                             size_t n_frames, size_t n_elements)
{
    const size_t vector = n_elements * s->element, per_frame = s->blocks * s->vectors;
    const void **const to = list;
    for (size_t f = 0; f < n_frames; f++)
        for (size_t v = 0; v < s->vectors; v++, n++)
            to[n] = frames
                        ? (const char *)frames + (f * per_frame + block * s->vectors + v) * vector
                        : NULL;
    return n;
}

/* The vectors of a matrix, over all frames of all rows; returns how many there are. Backward (b is not NULL), y are slopes
 * of results, and dx those of inputs, of which some may be wanted. */
static size_t linear_gather(const ds_op *op, const ds_run *run, const ds_back *b, const sizes *s,
                            size_t matrix, void *y, const void **x, void **dx, bool *wanted)
{
    const size_t width = ds_last_size(&op->out[0]);
    const void **const operands = b ? NULL : ds_run_operands(run);
    size_t n = 0;
    for (size_t block = 0; block < s->blocks; block++) {
        if (linear_matrix_of(op, s, block) != matrix)
            continue;
        ds_frames f;
        f.next = 0;
        while (b ? ds_back_next_frames(op, b, &f) : ds_next_frames(op, run, &f)) {
            if (operands)
                (void)linear_vectors(s, block, operands, n, ds_run_operand(run, f.row, f.y[0]), f.n,
                                     width);
            if (b) {
                *wanted |= f.dx[0] != NULL;
                (void)linear_vectors(s, block, dx, n, f.dx[0], f.n, s->n_in);
            }
            (void)linear_vectors(s, block, y, n, b ? f.g[0] : f.y[0], f.n, width);
            n = linear_vectors(s, block, x, n, f.x[0], f.n, s->n_in);
        }
    }
    return n;
}

static void linear_forward(const ds_op *op, const ds_run *run)
{
    const sizes s = linear_sizes_of(op);
    const void *packed = run->prepared;
    ds_run own = *run;
    own.k = kernels_of(op, run->k);
    void **y = run->scratch, *const behind_y = y + (size_t)run->frames_out * s.blocks * s.vectors;
    const void **x = behind_y;
    for (size_t matrix = 0; matrix < s.matrices; matrix++, packed = ds_packed_next(packed)) {
        const size_t n = linear_gather(op, run, NULL, &s, matrix, y, x, NULL, NULL);
        if (n > 0) {
            ds_product p = {.weight = packed, .y = y, .x = x, .n_rows = n};
            ds_run_product(&own, &p, NULL, 0);
        }
    }
}

static void linear_backward(const ds_op *op, const ds_back *b)
{
    const sizes s = linear_sizes_of(op);
    ds_run own = *b->run;
    const ds_run *const run = &own;
    own.k = kernels_of(op, b->run->k);
    const size_t most = (size_t)run->frames_out * s.blocks * s.vectors;
    ds_room room = {b->scratch};
    const void **const g = ds_room_take(&room, most * sizeof(void *));
    const void **const x = ds_room_take(&room, most * sizeof(void *));
    void **const dx = ds_room_take(&room, most * sizeof(void *));
    ds_packed *const packed = ds_room_take(&room, ds_back_packed_bytes(s.n_in, s.n_out, s.element));
    const ds_weight_layout turned = ds_layout_turned(s.n_out, (ptrdiff_t)s.n_in),
                           rows = ds_layout_rows(s.n_in);
    for (size_t matrix = 0; matrix < s.matrices; matrix++) {
        const size_t offset = matrix * s.n_out * s.n_in * s.element;
        bool wanted = false;
        const size_t n = linear_gather(op, run, b, &s, matrix, g, x, dx, &wanted);
        if (n > 0 && wanted) {
            ds_pack(run->k, run->k->format, packed, (const char *)run->weights[WEIGHT] + offset,
                    s.n_in, &turned, NULL);
            ds_back_rows(run, packed, dx, g, n, room);
        }
        if (n > 0 && b->dweights[WEIGHT])
            ds_back_outer(run, (char *)b->dweights[WEIGHT] + offset, &rows, g, s.n_out, x, n, room);
        if (n > 0 && op->n_weights > BIAS && b->dweights[BIAS])
            ds_back_column_sums(run, b->dweights[BIAS], g, n, s.n_out, room);
    }
}

#define LINEAR "[.., in_features]; weight [out_features, in_features]; bias? [out_features]"

#define PRODUCT(op, text, line)                                                            \
    DS_OPERATOR_OF(op, text, 1, 1, -1), .flags = DS_OP_PACKS | DS_OP_REAL, .shapes = line, \
        .infer = linear_infer, DS_PREPARED(linear), .forward = linear_forward,             \
        .backward = linear_backward, .reads = DS_READS_X

const ds_op_def ds_op_linear = {PRODUCT(linear, "y = x W^T + b over the last feature axis", LINEAR),
                                .narrows = ds_narrows_rows};

const ds_op_def ds_op_router = {
    PRODUCT(router, "y = x W^T + b over the last feature axis, by no library", LINEAR)};

const ds_op_def ds_op_matmul = {
    PRODUCT(matmul,
            "products with constant matrices, one for each place along leading feature axes",
            "[.., in_features]; weight [..., out_features, in_features]"),
    .narrows = ds_narrows_rows};
