/* ops/pool.c: the integers of pooling, and the two reductions of a window. */
#include "ops/pool.h"

#include <math.h>
#include <string.h>

#include "ops/move.h"
#include "ops/sums.h"

static bool trivial(const ds_padding *g)
{
    return g->kernel == 1 && g->stride == 1 && g->left == 0;
}

/* Windows over an axis of `size` elements. */
static int64_t n_windows(const ds_padding *g, int64_t size, bool ceil)
{
    const int64_t room = size + g->left + g->right - ds_padding_span(g);
    const int64_t rest = ceil ? g->stride - 1 : 0;
    if (room + rest < 0)
        return 0;
    const int64_t n = (room + rest) / g->stride;
    return ceil && n * g->stride >= size + g->left ? n : n + 1;
}

ds_pool ds_pool_of(const ds_op *op, int64_t dilation, int64_t inner_dilation)
{
    ds_pool pool = {
        .frames = {.kernel = op->attr[DS_POOL_KERNEL].i,
                   .stride = op->attr[DS_POOL_STRIDE].i,
                   .dilation = dilation,
                   .left = op->attr[DS_POOL_LEFT].i,
                   .right = op->attr[DS_POOL_RIGHT].i},
        .inner = {.kernel = op->attr[DS_POOL_INNER_KERNEL].i,
                  .stride = op->attr[DS_POOL_INNER_STRIDE].i,
                  .dilation = inner_dilation,
                  .left = op->attr[DS_POOL_INNER_PADDING].i,
                  .right = op->attr[DS_POOL_INNER_PADDING].i},
        .ceil = op->attr[DS_POOL_CEIL].i == 1,
        .n_in = 1,
        .n_out = 1,
        .n_channels = (size_t)ds_signature_elements(&op->in[0]),
    };
    if (!trivial(&pool.inner) && op->in[0].rank > 0) { /* else the whole frame is channels */
        pool.n_in = op->in[0].shape[0];
        pool.n_out = op->out[0].shape[0];
        pool.n_channels /= (size_t)pool.n_in;
    }
    return pool;
}

ds_status ds_pool_infer(ds_op *op, const ds_pool *pool)
{
    const ds_padding *const frames = &pool->frames, *const inner = &pool->inner;
    DS_TRY(ds_op_require_real(op));
    DS_TRY(ds_padding_check(op, frames));
    DS_TRY(ds_padding_check(op, inner));
    DS_CHECK(op->attr[DS_POOL_CEIL].i == 0 || pool->ceil, DS_ARGUMENT,
             "%s: attribute 'ceil' is 0 or 1, got %lld", op->def->name,
             (long long)op->attr[DS_POOL_CEIL].i);
    DS_CHECK(trivial(inner) || op->in[0].rank > 0, DS_SHAPE,
             "%s: an inner window needs a feature axis, its input has none", op->def->name);
    ds_signature *out = &op->out[0];
    if (!trivial(inner)) {
        out->shape[0] = n_windows(inner, pool->n_in, pool->ceil);
        DS_CHECK(out->shape[0] >= 1, DS_SHAPE,
                 "%s: the inner axis of %lld elements is shorter than a window of %lld",
                 op->def->name, (long long)pool->n_in, (long long)ds_padding_span(inner));
    }
    DS_TRY(ds_scale_rate(op, 1, frames->stride));
    return DS_OK;
}

void ds_pool_counts(const ds_pool *pool, ds_program *p)
{
    const ds_padding *const g = &pool->frames;
    ds_padding_counts(g, p);
    if (pool->ceil) {
        const ds_expr total = ds_total(p, 0);
        const ds_expr room = ds_add_k(p, total, g->left + g->right - ds_padding_span(g));
        const ds_expr n = ds_ceildiv_k(p, room, g->stride);
        const ds_expr hangs =
            ds_sub(p, ds_add_k(p, total, g->left), ds_mul_k(p, n, g->stride));
        p->roots[1] = ds_select(p, hangs, ds_add_k(p, n, 1), n);
    }
}

void ds_pool_need(const ds_pool *pool, ds_program *p)
{
    ds_padding_need(&pool->frames, p);
}

ds_taps ds_pool_taps(const ds_padding *window, int64_t m, int64_t size)
{
    const int64_t d = window->dilation, first = m * window->stride - window->left;
    const int64_t skipped = first < 0 ? (d - 1 - first) / d : 0;
    const int64_t before_end = first < size ? (size - first + d - 1) / d : 0;
    const int64_t end = before_end < window->kernel ? before_end : window->kernel;
    return (ds_taps){first + skipped * d, d, end > skipped ? end - skipped : 0};
}

void ds_pool_max(const ds_op *op, const ds_run *run, const ds_window *x, ds_taps frames,
                 ds_taps inner, size_t n_channels, void *y)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]), stride = n_channels * ds_op_element(op);
    bool any = false;
    for (int64_t t = 0; t < frames.n; t++) {
        const char *frame = ds_at(x, frames.first + t * frames.step, n_bytes);
        for (int64_t u = 0; u < inner.n; u++, any = true) {
            const char *from = frame + (size_t)(inner.first + u * inner.step) * stride;
            if (any)
                run->k->binary(DS_BINARY_MAXIMUM, y, y, from, n_channels, 1, 1);
            else
                memcpy(y, from, stride);
        }
    }
    if (!any) {
        const float none = -INFINITY;
        const double none_double = -INFINITY;
        const bool is_float = op->in[0].dtype == DS_F32;
        ds_move_repeat(y, stride, is_float ? (const void *)&none : &none_double, ds_op_element(op));
    }
}

void ds_pool_mean(const ds_op *op, const ds_run *run, const ds_window *x, ds_taps frames,
                  ds_taps inner, size_t n_channels, double divisor, void *y)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]), stride = n_channels * ds_op_element(op);
    double *const sum = run->scratch;
    memset(sum, 0, n_channels * sizeof *sum);
    for (int64_t t = 0; t < frames.n; t++) {
        const char *frame = ds_at(x, frames.first + t * frames.step, n_bytes);
        for (int64_t u = 0; u < inner.n; u++) {
            ds_sums_add(sum, frame + (size_t)(inner.first + u * inner.step) * stride, n_channels,
                        op->in[0].dtype);
        }
    }
    ds_sums_write(y, sum, n_channels, divisor, op->in[0].dtype);
}
