/* ops/reduce_frames.c: one vector for the whole stream (torch.sum, mean, amax, amin over L).
 *
 *     y = sum_t x[t],  sum_t x[t] / T,  max_t x[t],  min_t x[t]        per feature; NaN wins
 *
 *     known  0      total  1      need  never: each call reads its new frames only
 *
 * Rate 0: the vector leaves when the stream ends; a stream of no frames has none. Carried: double
 * sums (or the extremes), added frame by frame in order, so that chunks don't matter. */
#include "ops/framewise.h"
#include "ops/registry.h"
#include "ops/sums.h"

enum { KIND };
enum { SUM, MEAN, MAX, MIN };

static const ds_attr_def reduce_frames_attrs[] = {{"kind", DS_ATTR_CHOICE, .required = true,
                                                   .choices = "sum|mean|max|min",
                                                   .doc = "what is computed"},
                                                  {0}};

static ds_status reduce_frames_infer(ds_op *op)
{
    DS_TRY(ds_op_require_real(op));
    op->out[0].rate = (ds_rate){0, 1};
    op->n_carried = 1;
    op->carried[0] = (ds_carried){"accumulator", op->in[0], true, 0};
    op->carried[0].array.dtype = DS_F64;
    return DS_OK;
}

static void reduce_frames_counts(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_const(p, 1));
}

static void reduce_frames_need(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_const(p, DS_NEVER));
}

enum { BESIDE = 64 /* features whose extremes are taken at a time */ };

/* sum[i] = the extreme of itself and of feature i of n_frames frames. */
static void reduce_frames_extreme(const ds_real_kernels *k, bool greatest, double *sum,
                                  const char *x, size_t n, size_t n_frames)
{
    double v[BESIDE];
    for (size_t at = 0, wide; at < n; at += wide) {
        wide = n - at < BESIDE ? n - at : BESIDE;
        k->reduce(greatest ? DS_REDUCE_GREATEST : DS_REDUCE_LEAST, v, x + at * k->element, wide, 1,
                  n_frames, n, NULL);
        for (size_t i = 0; i < wide; i++)
            if (v[i] != v[i] || (greatest ? v[i] > sum[at + i] : v[i] < sum[at + i]))
                sum[at + i] = v[i];
    }
}

static void reduce_frames_forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]), n_bytes = n * ds_op_element(op);
    const int64_t kind = op->attr[KIND].i;
    const bool adds = kind == SUM || kind == MEAN;
    for (size_t r = 0; r < run->n_rows; r++) {
        double *sum = (double *)((char *)run->carried[r] + op->carried[0].offset);
        const int64_t from = run->count[r].before.known, end = run->count[r].now.known;
        if (from == 0 && end > 0) { /* the stream's first frame replaces what is there */
            ds_sums_set(sum, ds_at(&run->in[r], 0, n_bytes), n, op->in[0].dtype);
        }
        const int64_t t = from > 0 ? from : 1;
        if (t < end && adds)
            run->k->column_sums(sum, ds_at(&run->in[r], t, n_bytes), (size_t)(end - t), n, NULL);
        else if (t < end)
            reduce_frames_extreme(run->k, kind == MAX, sum, ds_at(&run->in[r], t, n_bytes), n,
                                  (size_t)(end - t));
        if (run->out[r].m0 < run->out[r].m1)
            ds_sums_write(run->out[r].data, sum, n, kind == MEAN ? (double)end : 1.0,
                          op->in[0].dtype);
    }
}

const ds_op_def ds_op_reduce_frames = {
    DS_OPERATOR(reduce_frames,
                "Sum, mean, maximum or minimum over all frames, at the end of the stream."),
    .attrs = reduce_frames_attrs, .counts = reduce_frames_counts, .need = reduce_frames_need};
