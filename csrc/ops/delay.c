/* ops/delay.c: a stream n frames late, of unchanged length.
 *
 *     y[t] = x[t - n], zeros for t < n; the last n frames of x are never seen
 *
 *     known  known + n, at most total      total  total      need  m - n
 *
 * Where an input's total runs ahead of what is known of it (behind a convolution that looks ahead),
 * those n frames are not waited for twice. Equals a causal convolution with one tap. */
#include "ops/frames.h"
#include "ops/registry.h"

#include <string.h>

enum { FRAMES };

static const ds_attr_def attrs[] = {
    {"frames", DS_ATTR_INT, .required = true, .doc = "by how many frames"}, {0}};

static ds_status infer(ds_op *op)
{
    return ds_op_require_least(op, FRAMES, 0);
}

static void counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_known(p, 0), op->attr[FRAMES].i));
    ds_root(p, ds_total(p, 0));
}

static void need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_m(p), -op->attr[FRAMES].i));
}

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    const int64_t late = op->attr[FRAMES].i;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        const int64_t first = late < out->m0 ? out->m0 : late < out->m1 ? late : out->m1;
        if (out->m0 < first) {
            memset(out->data, 0, (size_t)(first - out->m0) * n_bytes);
        }
        if (first < out->m1) {
            ds_frames_copy(ds_to(out, first, n_bytes), ds_at(&run->in[r], first - late, n_bytes),
                           (size_t)(out->m1 - first) * n_bytes);
        }
    }
}

const ds_op_def ds_op_delay = {.name = "delay",
                               .doc = "Moves a stream by some frames, without changing its length.",
                               .n_inputs = 1,
                               .n_outputs = 1,
                               .n_values = 1,
                               .attrs = attrs,
                               .infer = infer,
                               .counts = counts,
                               .need = need,
                               .forward = forward};
