/* ops/avg_pool.c: the mean of each window.
 *
 * in [F][C] or any shape where the window is along the stream only; out [F'][C]; rate / stride. The
 * sum over the window, in double and in ascending order, is divided by
 *
 *     divisor                     where that is given
 *     frames * elements           of the window, padding included, what hangs over it not
 *     frames * elements           without padding, where count_include_pad is 0
 *
 * A window in which nothing lies is 0. Windows and counts: ops/pool.h.
 *
 * Source: torch.nn.functional.avg_pool1d, avg_pool2d. */
#include "ops/framewise.h"
#include "ops/pool.h"

enum { COUNT_INCLUDE_PAD = DS_POOL_OWN, DIVISOR };

static const ds_attr_def avg_pool_attrs[] = {
    DS_POOL_ATTRS,
    {.name = "count_include_pad",
     .kind = DS_ATTR_INT,
     .i = 1,
     .doc = "1: padding counts as elements of a window"},
    {.name = "divisor", .kind = DS_ATTR_INT, .doc = "what sums are divided by; 0: by their elements"},
    {.name = NULL},
};

static ds_pool windows(const ds_op *op)
{
    return ds_pool_of(op, 1, 1);
}

static ds_status avg_pool_infer(ds_op *op)
{
    const ds_pool pool = windows(op);
    DS_TRY(ds_pool_infer(op, &pool));
    DS_CHECK(op->attr[COUNT_INCLUDE_PAD].i == 0 || op->attr[COUNT_INCLUDE_PAD].i == 1, DS_ARGUMENT,
             "avg_pool: attribute 'count_include_pad' is 0 or 1, got %lld",
             (long long)op->attr[COUNT_INCLUDE_PAD].i);
    op->scratch.per_call = pool.n_channels * sizeof(double);
    return DS_OK;
}

static void avg_pool_counts(const ds_op *op, ds_program *p)
{
    const ds_pool pool = windows(op);
    ds_pool_counts(&pool, p);
}

static void avg_pool_need(const ds_op *op, ds_program *p)
{
    const ds_pool pool = windows(op);
    ds_pool_need(&pool, p);
}

/* Elements that window m counts, of those in `taps`. */
static int64_t size_of(const ds_op *op, const ds_padding *window, int64_t m, int64_t size,
                       ds_taps taps)
{
    if (op->attr[COUNT_INCLUDE_PAD].i == 0)
        return taps.n;
    const int64_t first = m * window->stride - window->left;
    const int64_t room = size + window->right - first;
    return room < window->kernel ? room : window->kernel;
}

static void avg_pool_forward(const ds_op *op, const ds_run *run)
{
    const ds_pool pool = windows(op);
    const size_t n_bytes = ds_signature_bytes(&op->out[0]);
    const size_t stride = pool.n_channels * ds_op_element(op);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t known = run->count[row].now.known;
        for (int64_t m = out->m0; m < out->m1; m++) {
            const ds_taps frames = ds_pool_taps(&pool.frames, m, known);
            const int64_t n_frames = size_of(op, &pool.frames, m, known, frames);
            char *y = ds_to(out, m, n_bytes);
            for (int64_t g = 0; g < pool.n_out; g++, y += stride) {
                const ds_taps inner = ds_pool_taps(&pool.inner, g, pool.n_in);
                const int64_t n = n_frames * size_of(op, &pool.inner, g, pool.n_in, inner);
                const int64_t divisor = op->attr[DIVISOR].i != 0 ? op->attr[DIVISOR].i : n;
                ds_pool_mean(op, run, &run->in[row], frames, inner, pool.n_channels,
                             divisor != 0 ? (double)divisor : 1.0, y);
            }
        }
    }
}

const ds_op_def ds_op_avg_pool = {
    DS_OPERATOR(avg_pool, "the mean of windows along the stream and the first feature axis"),
    .attrs = avg_pool_attrs, .counts = avg_pool_counts, .need = avg_pool_need};
