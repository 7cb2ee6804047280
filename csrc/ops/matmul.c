/* ops/matmul.c: products of every frame with constant matrices that differ along leading feature axes.
 *
 *     y[f][b..., m..., n] = sum over k of x[f][b..., m..., k] * weight[b...][n][k]
 *
 * in [B..., M..., K], weight [B'...][N][K], where each of B' is that of B or 1, which serves all; out
 * [B..., M..., N]; frame in, frame out. For every matrix one product over all frames of all streams, each
 * vector of K elements being one row by pointer; linear is the case without B.
 *
 * Source: torch.matmul with a constant (whose last two axes are the other way round). */
#include "ops/packed.h"

enum { WEIGHT };

typedef struct sizes {
    size_t n_in, n_out, element;
    size_t matrices; /* in the weight */
    size_t blocks;   /* in a frame: vectors with one place along B... */
    size_t vectors;  /* in a block */
    int leading;     /* axes B... */
} sizes;

static sizes matmul_sizes_of(const ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    sizes s = {.n_in = (size_t)weight->shape[weight->rank - 1],
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

static ds_status matmul_check_shapes(const ds_op *op)
{
    const ds_signature *in = &op->in[0], *weight = &op->weight[WEIGHT];
    char given[128], wanted[128];
    ds_signature_text(in, wanted, sizeof wanted);
    ds_signature_text(weight, given, sizeof given);
    DS_CHECK(
        weight->rank >= 2 && in->rank >= weight->rank - 1, DS_SHAPE,
        "matmul: its weight 'weight' must have shape (..., n, k) with at most one axis more than "
        "the input %s, got %s",
        wanted, given);
    bool fits = weight->shape[weight->rank - 1] == in->shape[in->rank - 1];
    for (int i = 0; i + 2 < weight->rank; i++)
        fits = fits && (weight->shape[i] == 1 || weight->shape[i] == in->shape[i]);
    DS_CHECK(fits, DS_SHAPE, "matmul: matrices of shape %s don't fit an input of shape %s", given,
             wanted);
    return DS_OK;
}

static ds_status matmul_infer(ds_op *op)
{
    DS_TRY(ds_op_require_real(op));
    DS_TRY(matmul_check_shapes(op));
    const sizes s = matmul_sizes_of(op);
    size_t most = 0;
    DS_TRY(ds_packed_check(&most, s.n_out, s.n_in, s.element));
    DS_TRY(ds_size_mul(&most, most, s.matrices));
    DS_TRY(ds_size_mul(&op->scratch.per_out, s.blocks * s.vectors, 2 * sizeof(void *)));
    op->out[0].shape[op->in[0].rank - 1] = (int64_t)s.n_out;
    return DS_OK;
}

static size_t matmul_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const sizes s = matmul_sizes_of(op);
    return s.matrices * ds_packed_bytes(k, s.n_out, s.n_in);
}

static void matmul_prepare(const ds_op *op, void *prepared, const void *const *weights,
                           const ds_real_kernels *k)
{
    const sizes s = matmul_sizes_of(op);
    const size_t raw = s.n_out * s.n_in * s.element;
    for (size_t i = 0; i < s.matrices; i++) {
        prepared = ds_packed_rows(k, prepared, (const char *)weights[WEIGHT] + i * raw, s.n_out,
                                  s.n_in, NULL);
    }
}

/* The matrix that serves a block. */
static size_t matmul_matrix_of(const ds_op *op, const sizes *s, size_t block)
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

/* Adds pointers to the vectors of one block, over all frames of all rows; returns how many there are. */
static size_t matmul_gather(const ds_run *run, const sizes *s, size_t block, void **y,
                            const void **x, size_t n)
{
    const size_t in_vector = s->n_in * s->element, out_vector = s->n_out * s->element;
    const size_t per_frame = s->blocks * s->vectors;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        for (int64_t m = out->m0; m < out->m1; m++) {
            const char *from = ds_at(&run->in[row], m, per_frame * in_vector);
            char *to = ds_to(out, m, per_frame * out_vector);
            for (size_t v = block * s->vectors; v < (block + 1) * s->vectors; v++, n++) {
                y[n] = to + v * out_vector;
                x[n] = from + v * in_vector;
            }
        }
    }
    return n;
}

static void matmul_forward(const ds_op *op, const ds_run *run)
{
    const sizes s = matmul_sizes_of(op);
    const void *packed = run->prepared;
    const size_t per_frame = s.blocks * s.vectors;
    void **y = run->scratch, *const behind_y = y + (size_t)run->frames_out * per_frame;
    const void **x = behind_y;
    for (size_t matrix = 0; matrix < s.matrices; matrix++, packed = ds_packed_next(packed)) {
        size_t n = 0;
        for (size_t block = 0; block < s.blocks; block++)
            if (matmul_matrix_of(op, &s, block) == matrix)
                n = matmul_gather(run, &s, block, y, x, n);
        if (n > 0) {
            const ds_product p = {.weight = packed, .y = y, .x = x, .n_rows = n};
            ds_product_run(run->k, &p, run->pool);
        }
    }
}

const ds_op_def ds_op_matmul = {
    .name = "matmul",
    .doc = "products with constant matrices, one for each place along leading feature axes",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .weights = "weight",
    .infer = matmul_infer,
    .prepared_bytes = matmul_prepared_bytes,
    .prepare = matmul_prepare,
    .forward = matmul_forward,
};
