/* ops/overlap_add.c: windows laid over each other, `step` apart, and added (the inverse of frame).
 *
 *     y[u] = sum over i of x[i][u - i step],  0 <= u - i step < size
 *
 * in [size][shape...], out [shape...]; rate * step. Sums run in double over ascending i, and are rounded
 * once; where size < step, the samples between windows are 0.
 *
 *     known   known step            (no window to come touches these)
 *     total   (total - 1) step + size
 *     need    ceil((m - size + 1) / step)
 *
 * Source: torch.nn.functional.fold with one row; torch.istft's synthesis. */
#include <string.h>

#include "ops/framewise.h"
#include "ops/packed.h"
#include "ops/padding.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { STEP };
enum { RUN = 256 }; /* samples that are summed at a time, at most */

static const ds_attr_def overlap_add_attrs[] = {
    {"step", DS_ATTR_INT, .required = true, .doc = "samples from window to window"}, {0}};

static ds_status overlap_add_infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    ds_signature *out = &op->out[0];
    const int64_t step = op->attr[STEP].i;
    DS_TRY(ds_op_require_real(op));
    DS_TRY(ds_op_require_least(op, STEP, 1));
    DS_CHECK(step <= DS_PADDING_LIMIT, DS_ARGUMENT, "overlap_add: step must be at most %lld, got %lld",
             (long long)DS_PADDING_LIMIT, (long long)step);
    DS_CHECK(in->rank >= 1, DS_SHAPE,
             "overlap_add: expected windows (size, ...) as features, its input has no features");
    ds_drop_first(op, in);
    DS_TRY(ds_scale_rate(op, step, 1));
    size_t n_bytes = (size_t)ds_signature_elements(out);
    DS_TRY(ds_size_mul(&n_bytes, n_bytes, RUN * sizeof(double)));
    op->scratch.per_call = n_bytes;
    return DS_OK;
}

static void overlap_add_counts(const ds_op *op, ds_program *p)
{
    const int64_t step = op->attr[STEP].i;
    const ds_expr last = ds_mul_k(p, ds_add_k(p, ds_total(p, 0), -1), step);
    ds_root(p, ds_mul_k(p, ds_known(p, 0), step));
    ds_root(p, ds_add_k(p, last, op->in[0].shape[0]));
}

static void overlap_add_need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_m(p), 1 - op->in[0].shape[0]), op->attr[STEP].i));
}

/* The samples from u on that the same windows, [first, last], touch. */
typedef struct stretch {
    int64_t first, last, end;
} stretch;

static stretch overlap_add_stretch_at(int64_t u, int64_t end, int64_t step, int64_t size, int64_t n_windows)
{
    stretch s = {.first = u < size ? 0 : (u - size) / step + 1, .last = u / step};
    s.end = (s.last + 1) * step;
    if (s.last >= n_windows)
        s.last = n_windows - 1;
    if (s.first <= s.last && s.first * step + size < s.end)
        s.end = s.first * step + size;
    s.end = s.end < end ? s.end : end;
    s.end = s.end < u + RUN ? s.end : u + RUN;
    return s;
}

static void overlap_add_forward(const ds_op *op, const ds_run *run)
{
    const int64_t step = op->attr[STEP].i, size = op->in[0].shape[0];
    const size_t n = (size_t)ds_signature_elements(&op->out[0]), element = ds_op_element(op);
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    double *const sum = run->scratch;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t u = out->m0; u < out->m1;) {
            const stretch s = overlap_add_stretch_at(u, out->m1, step, size, run->count[r].now.known);
            const size_t n_here = (size_t)(s.end - u) * n;
            memset(sum, 0, n_here * sizeof *sum);
            for (int64_t i = s.first; i <= s.last; i++) {
                const char *window = ds_at(&run->in[r], i, n_bytes);
                ds_sums_add(sum, window + (size_t)(u - i * step) * n * element, n_here,
                            op->in[0].dtype);
            }
            ds_sums_write(ds_to(out, u, n * element), sum, n_here, 1.0, op->in[0].dtype);
            u = s.end;
        }
    }
}

const ds_op_def ds_op_overlap_add = {
    DS_OPERATOR(overlap_add, "Windows laid over each other, a step apart, and added."),
    .attrs = overlap_add_attrs, .counts = overlap_add_counts, .need = overlap_add_need};
