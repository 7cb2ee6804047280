/* ops/max_pool.c: the largest element of each window.
 *
 * in [F][C] or any shape where the window is along the stream only; out [F'][C]; rate / stride. Padding
 * is -inf; NaN wins. Windows and counts: ops/pool.h.
 *
 * Source: torch.nn.functional.max_pool1d, max_pool2d. */
#include "ops/framewise.h"
#include "ops/pool.h"

enum { DILATION = DS_POOL_OWN, INNER_DILATION };

static const ds_attr_def max_pool_attrs[] = {
    DS_POOL_ATTRS,
    {.name = "dilation", .kind = DS_ATTR_INT, .i = 1, .doc = "frames from tap to tap"},
    {.name = "inner_dilation", .kind = DS_ATTR_INT, .i = 1, .doc = "elements from tap to tap"},
    {.name = NULL},
};

static ds_pool windows(const ds_op *op)
{
    return ds_pool_of(op, op->attr[DILATION].i, op->attr[INNER_DILATION].i);
}

static ds_status max_pool_infer(ds_op *op)
{
    const ds_pool pool = windows(op);
    return ds_pool_infer(op, &pool);
}

static void max_pool_counts(const ds_op *op, ds_program *p)
{
    const ds_pool pool = windows(op);
    ds_pool_counts(&pool, p);
}

static void max_pool_need(const ds_op *op, ds_program *p)
{
    const ds_pool pool = windows(op);
    ds_pool_need(&pool, p);
}

static void max_pool_forward(const ds_op *op, const ds_run *run)
{
    const ds_pool pool = windows(op);
    const size_t n_bytes = ds_signature_bytes(&op->out[0]);
    const size_t stride = pool.n_channels * ds_op_element(op);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        for (int64_t m = out->m0; m < out->m1; m++) {
            const ds_taps frames = ds_pool_taps(&pool.frames, m, run->count[row].now.known);
            char *y = ds_to(out, m, n_bytes);
            for (int64_t g = 0; g < pool.n_out; g++, y += stride) {
                ds_pool_max(op, run, &run->in[row], frames, ds_pool_taps(&pool.inner, g, pool.n_in),
                            pool.n_channels, y);
            }
        }
    }
}

const ds_op_def ds_op_max_pool = {
    DS_OPERATOR(max_pool, "the largest element of windows along the stream and the first feature axis"),
    .attrs = max_pool_attrs, .counts = max_pool_counts, .need = max_pool_need};
