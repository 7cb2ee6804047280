/* ops/reduce_frames.c: one vector for the whole stream (torch.sum, mean, amax, amin over L).
 *
 *     y = sum_t x[t],  sum_t x[t] / T,  max_t x[t],  min_t x[t]        per feature; NaN wins
 *
 *     known  0      total  1      need  never: each call reads its new frames only
 *
 * Rate 0: the vector leaves when the stream ends; a stream of no frames has none. Carried: double
 * sums (or the extremes), added frame by frame in order, so that chunks don't matter. */
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND };
enum { SUM, MEAN, MAX, MIN };

static const ds_attr_def attrs[] = {{"kind", DS_ATTR_CHOICE, .required = true,
                                     .choices = "sum|mean|max|min", .doc = "what is computed"},
                                    {0}};

static ds_status infer(ds_op *op)
{
    DS_TRY(ds_op_require_real(op));
    op->out[0].rate = (ds_rate){0, 1};
    op->n_carried = 1;
    op->carried[0] = (ds_carried){"accumulator", op->in[0], true, 0};
    op->carried[0].array.dtype = DS_F64;
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_const(p, 1));
}

static void need(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_const(p, DS_NEVER));
}

/* Adds one frame; the stream's first replaces what is there. */
#define DEFINE_TAKE(name, real)                                                      \
    static void name(int64_t kind, bool first, double *sum, const real *x, size_t n) \
    {                                                                                \
        for (size_t i = 0; i < n; i++) {                                             \
            const double v = (double)x[i], s = sum[i];                               \
            if (first) {                                                             \
                sum[i] = v;                                                          \
            } else if (kind == SUM || kind == MEAN) {                                \
                sum[i] = s + v;                                                      \
            } else if (v != v || (kind == MAX ? v > s : v < s)) {                    \
                sum[i] = v;                                                          \
            }                                                                        \
        }                                                                            \
    }

DEFINE_TAKE(take_float, float)
DEFINE_TAKE(take_double, double)

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    for (size_t r = 0; r < run->n_rows; r++) {
        double *sum = (double *)((char *)run->carried[r] + op->carried[0].offset);
        const ds_counts *count = &run->count[r];
        for (int64_t t = count->before.known; t < count->now.known; t++) {
            const void *x = ds_at(&run->in[r], t, n_bytes);
            if (op->in[0].dtype == DS_F32) {
                take_float(op->attr[KIND].i, t == 0, sum, x, n);
            } else {
                take_double(op->attr[KIND].i, t == 0, sum, x, n);
            }
        }
        if (run->out[r].m0 < run->out[r].m1) {
            ds_sums_write(run->out[r].data, sum, n,
                          op->attr[KIND].i == MEAN ? (double)count->now.known : 1.0, op->in[0].dtype);
        }
    }
}

const ds_op_def ds_op_reduce_frames = {
    .name = "reduce_frames",
    .doc = "Sum, mean, maximum or minimum over all frames, at the end of the stream.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .attrs = attrs,
    .infer = infer,
    .counts = counts,
    .need = need,
    .forward = forward};
