/* ops/repeat_frames.c: every frame several times (torch.repeat_interleave along L, nearest upsampling).
 *
 *     y[m] = x[floor(m / times)]
 *
 *     known  known times      total  total times      need  floor(m / times)
 *
 * Rate * times. */
#include "ops/frames.h"
#include "ops/padding.h"
#include "ops/registry.h"

enum { TIMES };

static const ds_attr_def attrs[] = {
    {"times", DS_ATTR_INT, .required = true, .doc = "output frames per input frame"}, {0}};

static ds_status infer(ds_op *op)
{
    DS_TRY(ds_op_require_least(op, TIMES, 1));
    DS_CHECK(op->attr[TIMES].i <= DS_PADDING_LIMIT, DS_ARGUMENT,
             "repeat_frames: times must be at most %lld, got %lld", (long long)DS_PADDING_LIMIT,
             (long long)op->attr[TIMES].i);
    DS_CHECK(ds_rate_scale(&op->out[0].rate, op->attr[TIMES].i, 1), DS_LIMIT,
             "repeat_frames: the rate overflows");
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_mul_k(p, ds_known(p, 0), op->attr[TIMES].i));
    ds_root(p, ds_mul_k(p, ds_total(p, 0), op->attr[TIMES].i));
}

static void need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_floordiv_k(p, ds_m(p), op->attr[TIMES].i));
}

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    const int64_t times = op->attr[TIMES].i;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t m = out->m0; m < out->m1;) {
            const int64_t frame = m / times, next = (frame + 1) * times;
            const int64_t end = next < out->m1 ? next : out->m1;
            ds_frames_fill(ds_to(out, m, n_bytes), (size_t)(end - m) * n_bytes,
                           ds_at(&run->in[r], frame, n_bytes), n_bytes);
            m = end;
        }
    }
}

const ds_op_def ds_op_repeat_frames = {
    .name = "repeat_frames",
    .doc = "Every frame several times.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .attrs = attrs,
    .infer = infer,
    .counts = counts,
    .need = need,
    .forward = forward};
