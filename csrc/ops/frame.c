/* ops/frame.c: windows of frames as features (torch.Tensor.unfold along L; stacking with exact).
 *
 *     y[m][i] = x[m step + i dilation],  i < size;   span = dilation (size - 1) + 1
 *
 *     known  floor((known - span) / step) + 1    total  floor((total - span) / step) + 1
 *     need   m step
 *
 * With exact, size = step and dilation 1, a length that is no multiple of size is an error at the
 * end (a view of (L, F) as (L / size, size F)); without, what is left over is dropped. */
#include "ops/frames.h"
#include "ops/registry.h"

#include <stdio.h>

enum { SIZE, STEP, DILATION, EXACT };

static const ds_attr_def attrs[] = {
    {"size", DS_ATTR_INT, .required = true, .doc = "frames in a window"},
    {"step", DS_ATTR_INT, .required = true, .doc = "frames from window to window"},
    {"dilation", DS_ATTR_INT, .i = 1, .doc = "frames from one to the next within a window"},
    {"exact", DS_ATTR_INT, .doc = "1: the length must be a multiple of size"},
    {0}};

static int64_t span(const ds_op *op)
{
    return op->attr[DILATION].i * (op->attr[SIZE].i - 1) + 1;
}

static ds_status infer(ds_op *op)
{
    DS_TRY(ds_op_require_least(op, SIZE, 1));
    DS_TRY(ds_op_require_least(op, STEP, 1));
    DS_TRY(ds_op_require_least(op, DILATION, 1));
    DS_TRY(ds_op_require_least(op, EXACT, 0));
    const int64_t size = op->attr[SIZE].i, step = op->attr[STEP].i;
    DS_CHECK(op->attr[DILATION].i < ((int64_t)1 << 40) / size, DS_ARGUMENT,
             "frame: windows of %lld frames, %lld apart, are too long", (long long)size,
             (long long)op->attr[DILATION].i);
    DS_CHECK(op->attr[EXACT].i <= 1, DS_ARGUMENT, "frame: attribute 'exact' is 0 or 1");
    DS_CHECK(op->attr[EXACT].i == 0 || (step == size && op->attr[DILATION].i == 1), DS_ARGUMENT,
             "frame: exact windows need step = size and dilation 1, got %lld, %lld and %lld",
             (long long)step, (long long)size, (long long)op->attr[DILATION].i);
    ds_signature *out = &op->out[0];
    DS_CHECK(out->rank < DS_MAX_RANK, DS_SHAPE,
             "frame: its input has %d feature dimensions, one more is not supported", out->rank);
    out->rank++;
    out->shape[0] = size;
    for (int d = 1; d < out->rank; d++) {
        out->shape[d] = op->in[0].shape[d - 1];
    }
    DS_CHECK(ds_rate_scale(&out->rate, 1, step), DS_ARGUMENT, "frame: its rate overflows");
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    const int64_t step = op->attr[STEP].i;
    const ds_expr known = ds_add_k(p, ds_known(p, 0), -span(op));
    const ds_expr total = ds_add_k(p, ds_total(p, 0), -span(op));
    ds_root(p, ds_add_k(p, ds_floordiv_k(p, known, step), 1));
    ds_root(p, ds_add_k(p, ds_floordiv_k(p, total, step), 1));
}

static void need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_m(p), op->attr[STEP].i));
}

static void check(const ds_op *op, ds_program *p)
{
    if (op->attr[EXACT].i == 1) {
        const int64_t size = op->attr[SIZE].i;
        const ds_expr whole = ds_mul_k(p, ds_floordiv_k(p, ds_total(p, 0), size), size);
        ds_root(p, ds_const(p, 1));
        ds_root(p, ds_sub(p, ds_total(p, 0), whole));
    }
}

static const char *check_message(const ds_op *op, const ds_pair *in, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, "length %lld is not a multiple of %lld", (long long)in[0].total,
             (long long)op->attr[SIZE].i);
    return text;
}

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    const int64_t size = op->attr[SIZE].i, step = op->attr[STEP].i;
    const int64_t dilation = op->attr[DILATION].i;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t m = out->m0; m < out->m1; m++) {
            ds_frames_gather(ds_to(out, m, (size_t)size * n_bytes),
                             ds_at(&run->in[r], m * step, n_bytes), size, n_bytes,
                             (size_t)dilation * n_bytes);
        }
    }
}

const ds_op_def ds_op_frame = {
    .name = "frame",
    .doc = "Windows of successive frames, each a frame with one more feature dimension.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .attrs = attrs,
    .infer = infer,
    .counts = counts,
    .need = need,
    .check = check,
    .check_message = check_message,
    .forward = forward};
