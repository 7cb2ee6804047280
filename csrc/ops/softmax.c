/* ops/softmax.c: what is computed over the last feature axis of every frame.
 *
 *     softmax      y[..., i] = exp(x[..., i]) / sum_j exp(x[..., j])
 *     log_softmax  its logarithm
 *     glu          in [..., 2 n], out [..., n]:  y = x[..., :n] sigmoid(x[..., n:])
 *
 * Source: torch.softmax, log_softmax, torch.nn.functional.glu. All counts are those of the input. */
#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/move.h"
#include "ops/registry.h"

enum { SOFTMAX, LOG_SOFTMAX };
/* Bytes of rows whose halves are brought together, at least so many rows at a time. */
enum { GLU_ROOM = 4096, GLU_ROWS = 16 };

static void softmax_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const size_t n = ds_last_size(&op->in[0]), n_rows = f->n * ds_elements(&op->in[0]) / n;
    run->k->softmax(f->y[0], f->x[0], n_rows, n, op->def->member == LOG_SOFTMAX);
}
DS_FRAMEWISE_FORWARD(softmax)

/* dx += y (g - sum of g y), or of the logarithm g - p sum of g; p: the exponentials of y, or NULL. */
DS_FOR_ELEMENT void softmax_row(void *dx, const void *g, const void *y, const void *p, size_t n,
                                size_t element)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ds_sums_real(g, element, i) * (p ? 1 : ds_sums_real(y, element, i));
    for (size_t i = 0; i < n; i++) {
        const double slope = ds_sums_real(g, element, i);
        ds_back_add_real(dx, element, i,
                         p ? slope - ds_sums_real(p, element, i) * sum
                           : ds_sums_real(y, element, i) * (slope - sum));
    }
}

static void softmax_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const size_t n = ds_last_size(&op->in[0]), n_bytes = n * ds_op_element(op);
    const size_t n_rows = f->n * ds_elements(&op->in[0]) / n;
    void *const p = op->def->member == LOG_SOFTMAX ? b->scratch : NULL;
    for (size_t i = 0; i < n_rows && f->dx[0]; i++) {
        const size_t at = i * n_bytes;
        const char *const made = (const char *)f->y[0] + at;
        if (p)
            b->run->k->unary(DS_UNARY_EXP, p, made, n, NULL);
        DS_BY_ELEMENT(softmax_row, ds_op_element(op), (char *)f->dx[0] + at,
                      (const char *)f->g[0] + at, made, p, n);
    }
}
DS_FRAMEWISE_BACKWARD(softmax)

static ds_status softmax_infer(ds_op *op)
{
    op->back_scratch.per_call = ds_last_size(&op->in[0]) * ds_op_element(op);
    return DS_OK;
}

static ds_status glu_infer(ds_op *op)
{
    ds_signature *out = &op->out[0];
    out->shape[out->rank - 1] /= 2;
    op->scratch.per_call = GLU_ROOM;
    op->back_scratch.per_call = 2 * ds_last_size(out) * ds_op_element(op);
    return DS_OK;
}

/* Short rows have their halves brought together, so that a call of a kernel is for many of them. */
static void glu_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const size_t n = ds_last_size(&op->out[0]), n_bytes = n * ds_op_element(op);
    const size_t n_rows = f->n * ds_elements(&op->out[0]) / n, most = GLU_ROOM / 2 / n_bytes;
    for (size_t i = 0, rows; i < n_rows; i += rows) {
        const char *first = (const char *)f->x[0] + 2 * i * n_bytes;
        char *const y = (char *)f->y[0] + i * n_bytes;
        rows = most < GLU_ROWS ? 1 : n_rows - i < most ? n_rows - i : most;
        const int64_t row = (int64_t)n_bytes, all = (int64_t)rows * row;
        ds_box halves = {.element = n_bytes};
        ds_box_add(&halves, 2, all, row);
        ds_box_add(&halves, (int64_t)rows, row, 2 * row);
        if (rows > 1)
            ds_box_copy(&halves, run->scratch, first);
        first = rows > 1 ? run->scratch : first;
        run->k->unary(DS_UNARY_SIGMOID, y, first + all, rows * n, NULL);
        run->k->binary(DS_BINARY_MUL, y, first, y, rows * n, 1, 1);
    }
}
DS_FRAMEWISE_FORWARD(glu)

static void glu_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const ds_real_kernels *k = b->run->k;
    const size_t n = ds_last_size(&op->out[0]), n_bytes = n * ds_op_element(op);
    const size_t n_rows = f->n * ds_elements(&op->out[0]) / n;
    char *const gate = b->scratch, *const product = gate + n_bytes;
    for (size_t i = 0; i < n_rows && f->dx[0]; i++) {
        const char *const from = (const char *)f->x[0] + 2 * i * n_bytes;
        const char *const slopes = (const char *)f->g[0] + i * n_bytes;
        char *const to = (char *)f->dx[0] + 2 * i * n_bytes;
        k->unary(DS_UNARY_SIGMOID, gate, from + n_bytes, n, NULL);
        k->binary(DS_BINARY_MUL, product, slopes, gate, n, 1, 1);
        ds_back_add(k, to, product, n);
        k->binary(DS_BINARY_MUL, product, slopes, from, n, 1, 1);
        k->unary_slope(DS_UNARY_SIGMOID, to + n_bytes, product, NULL, gate, n, NULL);
    }
}
DS_FRAMEWISE_BACKWARD(glu)

#define SOFTMAXES(which)                                                              \
    .member = which, .flags = DS_OP_INPLACE | DS_OP_REAL, .shapes = "[.., n]",        \
    .infer = softmax_infer, .forward = softmax_forward, .backward = softmax_backward, \
    .reads = DS_READS_Y

const ds_op_def ds_op_softmax = {
    DS_OPERATOR_OF(softmax, "Softmax over the last feature dimension.", 1, 1, 1),
    SOFTMAXES(SOFTMAX)};

const ds_op_def ds_op_log_softmax = {
    DS_OPERATOR_OF(log_softmax, "Logarithm of softmax over the last feature dimension.", 1, 1, 1),
    SOFTMAXES(LOG_SOFTMAX)};

const ds_op_def ds_op_glu = {
    DS_OPERATOR(glu, "Half of the last feature dimension, gated by the other half."),
    .flags = DS_OP_REAL, .shapes = "[.., 2*n]", .backward = glu_backward, .reads = DS_READS_X};
