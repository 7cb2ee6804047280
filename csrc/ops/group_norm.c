/* ops/group_norm.c: normalisation over all positions and the channels of a group.
 *
 *     y = (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * in [..., C]: channels last, in `groups` groups of neighbours; weight? and bias? [C]; out as in. The
 * statistics of a group are over its channels and the axes before them, `over` every frame by itself
 * (frame in, frame out) or over all frames of the stream too, which needs the whole stream. The variance
 * is the mean square about the mean; both are sums in double: down each channel, then over the channels
 * of the group in order.
 *
 * Over the stream, of what could be a single value a stream has no statistics and gives no frame:
 *     total  in.total > 1 ? in.total : 0      where a group has one value per frame
 *
 * Source: torch.nn.functional.group_norm, instance_norm (one channel per group). */
#include <math.h>
#include <string.h>

#include "ops/norm_columns.h"
#include "ops/packed.h"

enum { GROUPS, EPS, OVER };
enum { FRAME, STREAM };
enum { WEIGHT, BIAS };

static const ds_attr_def attrs[] = {
    {.name = "groups", .kind = DS_ATTR_INT, .required = true, .doc = "groups of channels"},
    {.name = "eps", .kind = DS_ATTR_REAL, .x = 1e-5, .doc = "added to the variance"},
    {.name = "over",
     .kind = DS_ATTR_CHOICE,
     .choices = "frame|stream",
     .doc = "stream: over all frames too, which needs the whole stream"},
    {.name = NULL},
};

typedef struct sizes {
    size_t n, groups, positions; /* channels; rows of channels in a frame */
} sizes;

static sizes sizes_of(const ds_op *op)
{
    const ds_signature *in = &op->in[0];
    sizes s = {.n = (size_t)in->shape[in->rank - 1], .groups = (size_t)op->attr[GROUPS].i};
    s.positions = (size_t)ds_signature_elements(in) / s.n;
    return s;
}

/* Whether a group has one value in each frame. */
static bool single(const ds_op *op)
{
    const sizes s = sizes_of(op);
    return s.positions * (s.n / s.groups) == 1;
}

static ds_status infer(ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t groups = op->attr[GROUPS].i;
    DS_TRY(ds_op_require_real(op));
    DS_CHECK(in->rank >= 1, DS_SHAPE, "group_norm: expected an input of shape (..., channels), got ()");
    const int64_t n = in->shape[in->rank - 1];
    DS_CHECK(groups >= 1 && n % groups == 0, DS_ARGUMENT,
             "group_norm: groups must divide the %lld channels, got %lld", (long long)n,
             (long long)groups);
    DS_CHECK(op->attr[EPS].x >= 0, DS_ARGUMENT, "group_norm: eps must be at least 0, got %g",
             op->attr[EPS].x);
    if (ds_op_has_weight(op, WEIGHT)) {
        DS_TRY(ds_op_require_weight(op, WEIGHT, "weight", 1, &n));
    }
    if (ds_op_has_weight(op, BIAS)) {
        DS_TRY(ds_op_require_weight(op, BIAS, "bias", 1, &n));
    }
    op->whole = op->attr[OVER].i == STREAM;
    const size_t per_channel = 2 * sizeof(double) + DS_NORM_COLUMNS * ds_op_element(op);
    return ds_size_mul(&op->scratch.per_call, (size_t)n, per_channel);
}

static void counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_known(p, 0));
    const ds_expr total = ds_total(p, 0);
    const bool needs_two = op->whole && single(op);
    ds_root(p, needs_two ? ds_select(p, ds_add_k(p, total, -1), total, ds_const(p, 0)) : total);
}

/* Gives all channels the mean of their group's values, from their channels' sums. */
static void average(double *of_group, const double *sums, const sizes *s, double n_values)
{
    const size_t per_group = s->n / s->groups;
    for (size_t g = 0; g < s->groups; g++) {
        double sum = 0;
        for (size_t i = 0; i < per_group; i++) {
            sum += sums[g * per_group + i];
        }
        for (size_t i = 0; i < per_group; i++) {
            of_group[g * per_group + i] = sum / n_values;
        }
    }
}

/* Normalises n_rows rows of channels together. */
static void normalise(const ds_op *op, const ds_run *run, const sizes *s, void *y, const void *x,
                      size_t n_rows)
{
    double *const mean = run->scratch, *const sums = mean + s->n;
    void *const columns = sums + s->n;
    const double n_values = (double)n_rows * (double)(s->n / s->groups);
    memset(sums, 0, s->n * sizeof *sums);
    run->k->column_sums(sums, x, n_rows, s->n, NULL);
    average(mean, sums, s, n_values);
    memset(sums, 0, s->n * sizeof *sums);
    run->k->column_sums(sums, x, n_rows, s->n, mean);
    average(sums, sums, s, n_values);
    for (size_t i = 0; i < s->n; i++) {
        ds_norm_columns_set(columns, s->n, run->k->element, i, mean[i],
                            sqrt(sums[i] + op->attr[EPS].x), ds_run_weight(op, run, WEIGHT),
                            ds_run_weight(op, run, BIAS));
    }
    ds_norm_columns_apply(columns, s->n, run->k, y, x, n_rows);
}

static void forward(const ds_op *op, const ds_run *run)
{
    const sizes s = sizes_of(op);
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t step = op->whole ? out->m1 - out->m0 : 1;
        for (int64_t m = out->m0; m < out->m1; m += step) {
            normalise(op, run, &s, ds_to(out, m, n_bytes), ds_at(&run->in[row], m, n_bytes),
                      (size_t)step * s.positions);
        }
    }
}

const ds_op_def ds_op_group_norm = {
    .name = "group_norm",
    .doc = "normalisation over all positions and the channels of each group",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .attrs = attrs,
    .weights = "weight? bias?",
    .infer = infer,
    .counts = counts,
    .forward = forward,
};
