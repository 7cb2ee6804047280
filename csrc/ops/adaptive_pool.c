/* ops/adaptive_pool.c: an axis divided into as many parts as are asked for, each reduced to its largest
 * element or its mean.
 *
 *     part i of n holds the elements  floor(i size / n) .. ceil((i + 1) size / n) - 1
 *
 * in [F][C] or any shape where only frames are pooled; frames and inner: parts of the stream and of the
 * first feature axis, 0 where that axis stays as it is. The parts of the stream depend on its length:
 *
 *     known  0      total  frames      need  0      where frames > 0, else those of the input
 *
 * Source: torch.nn.functional.adaptive_avg_pool2d, adaptive_max_pool2d. */
#include "ops/framewise.h"
#include "ops/pool.h"

enum { KIND, FRAMES, INNER };
enum { AVG, MAX };

static const ds_attr_def adaptive_pool_attrs[] = {
    {.name = "kind",
     .kind = DS_ATTR_CHOICE,
     .required = true,
     .choices = "avg|max",
     .doc = "what a part is reduced to"},
    {.name = "frames", .kind = DS_ATTR_INT, .doc = "parts of the stream; 0: it stays as it is"},
    {.name = "inner",
     .kind = DS_ATTR_INT,
     .doc = "parts of the first feature axis; 0: it stays as it is"},
    {.name = NULL},
};

static size_t adaptive_pool_n_channels(const ds_op *op)
{
    const int64_t n = ds_signature_elements(&op->in[0]);
    return (size_t)(op->attr[INNER].i > 0 ? n / op->in[0].shape[0] : n);
}

static ds_status adaptive_pool_infer(ds_op *op)
{
    DS_TRY(ds_op_require_real(op));
    for (int i = FRAMES; i <= INNER; i++) {
        DS_TRY(ds_op_require_least(op, i, 0));
        DS_CHECK(op->attr[i].i <= DS_PADDING_LIMIT, DS_ARGUMENT,
                 "adaptive_pool: at most %lld parts are supported, got %lld",
                 (long long)DS_PADDING_LIMIT, (long long)op->attr[i].i);
    }
    if (op->attr[INNER].i > 0) {
        DS_CHECK(op->in[0].rank > 0, DS_SHAPE,
                 "adaptive_pool: inner parts need a feature axis, its input has none");
        op->out[0].shape[0] = op->attr[INNER].i;
    }
    op->scratch.per_call = adaptive_pool_n_channels(op) * sizeof(double);
    op->whole = op->attr[FRAMES].i > 0;
    return DS_OK;
}

static void adaptive_pool_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_known(p, 0));
    ds_root(p, op->whole ? ds_const(p, op->attr[FRAMES].i) : ds_total(p, 0));
}

static void adaptive_pool_need(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_m(p));
}

/* Part i of n of an axis; with n = 0 the element itself. */
static ds_taps adaptive_pool_part(int64_t i, int64_t n, int64_t size)
{
    if (n == 0)
        return (ds_taps){i, 1, 1};
    const int64_t first = i * size / n, end = ((i + 1) * size + n - 1) / n;
    return (ds_taps){first, 1, end - first};
}

static void adaptive_pool_forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->out[0]), channels = adaptive_pool_n_channels(op);
    const int64_t n_inner = op->attr[INNER].i;
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t length = run->count[row].now.total;
        for (int64_t m = out->m0; m < out->m1; m++) {
            const ds_taps frames = adaptive_pool_part(m, op->attr[FRAMES].i, length);
            char *y = ds_to(out, m, n_bytes);
            for (int64_t g = 0; g < (n_inner > 0 ? n_inner : 1); g++) {
                const ds_taps inner =
                    n_inner > 0 ? adaptive_pool_part(g, n_inner, op->in[0].shape[0]) : (ds_taps){0, 1, 1};
                if (op->attr[KIND].i == MAX) {
                    ds_pool_max(op, run, &run->in[row], frames, inner, channels, y);
                } else {
                    ds_pool_mean(op, run, &run->in[row], frames, inner, channels,
                                 (double)(frames.n * inner.n), y);
                }
                y += channels * ds_op_element(op);
            }
        }
    }
}

const ds_op_def ds_op_adaptive_pool = {
    DS_OPERATOR(adaptive_pool, "the mean or the largest element of a given number of parts"),
    .attrs = adaptive_pool_attrs, .counts = adaptive_pool_counts, .need = adaptive_pool_need};
