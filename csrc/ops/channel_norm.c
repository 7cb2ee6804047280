/* ops/channel_norm.c: every channel moved and scaled, by known statistics (batch_norm) or by those of its group
 * (group_norm).
 *
 *     y = (x - mean) / sqrt(variance + eps) * weight + bias
 *
 * in [..., C]: channels last; all weights [C], weight? and bias? optional; out as in. A channel's factor is computed
 * in double and rounded once.
 *
 * Of batch_norm mean and variance are running_mean and running_var; frame in, frame out, in place where it can be.
 * Of group_norm they are those of a group's channels, neighbours in `groups` groups, and of the axes before them,
 * `over` every frame by itself (frame in, frame out) or over all frames of the stream too, which needs the whole
 * stream. The variance is the mean square about the mean; both are sums in double: down each channel, then over the
 * channels of the group in four lanes. Over the stream, of what could be a single value a stream has no statistics and
 * gives no frame:
 *     total  in.total > 1 ? in.total : 0      where a group has one value per frame
 *
 * Source: torch.nn.functional.batch_norm with training=False; group_norm, instance_norm (one channel per group). */
#include <math.h>
#include <string.h>

#include "ops/framewise.h"
#include "ops/norm_back.h"
#include "ops/packed.h"
#include "ops/registry.h"
#include "ops/sums.h"

/* ---------------------------------------------------------------- what channels are moved and scaled by */

/* Four arrays of n channels of the operator's real type, one behind the other (kernels.h, column_scale). */
enum { MEAN, REST, SCALE, SHIFT, COLUMNS };

/* Element i of an array of reals; `absent` where the array is NULL. */
DS_FOR_ELEMENT double column(const void *array, size_t element, size_t i, double absent)
{
    return array == NULL ? absent : ds_sums_real(array, element, i);
}

/* Writes an element as a real; returns what that leaves. */
DS_FOR_ELEMENT double put(void *array, size_t element, size_t i, double value)
{
    ds_sums_set_real(array, element, i, value);
    return value - ds_sums_real(array, element, i);
}

/* Channels first.. of a group, which have one mean and one deviation. */
DS_FOR_ELEMENT void set_group(void *columns, size_t n, size_t first, size_t per_group, double mean,
                              double deviation, const void *weight, const void *bias, size_t e)
{
    const size_t end = first + per_group;
    const double rest = put(columns, e, MEAN * n + first, mean);
    for (size_t i = first; i < end; i++) {
        put(columns, e, MEAN * n + i, mean);
        put(columns, e, REST * n + i, rest);
    }
    for (size_t i = first; i < end; i++)
        put(columns, e, SCALE * n + i, column(weight, e, i, 1) / deviation);
    for (size_t i = first; i < end; i++)
        put(columns, e, SHIFT * n + i, column(bias, e, i, 0));
}

/* Applies them to rows of n channels; y may be x. */
static void scale_rows(const ds_real_kernels *k, void *y, const void *x, size_t n_rows, size_t n,
                       const void *columns)
{
    const char *const at = columns;
    const size_t n_bytes = n * k->element;
    k->column_scale(y, x, n_rows, n, at + MEAN * n_bytes, at + REST * n_bytes, at + SCALE * n_bytes,
                    at + SHIFT * n_bytes);
}

static size_t channels(const ds_op *op)
{
    return ds_last_size(&op->in[0]);
}

/* ---------------------------------------------------------------- batch_norm */

enum { BATCH_EPS };
enum { BATCH_MEAN, BATCH_VARIANCE, BATCH_WEIGHT, BATCH_BIAS };

static const ds_attr_def batch_norm_attrs[] = {
    {"eps", DS_ATTR_REAL, .x = 1e-5, .doc = "added to the variance", .range = DS_FROM_0}, {0}};

static ds_status batch_norm_infer(ds_op *op)
{
    size_t n_bytes;
    op->back_scratch.per_call = 4 * channels(op) * sizeof(double);
    return ds_size_mul(&n_bytes, channels(op), COLUMNS * ds_op_element(op));
}

static size_t batch_norm_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return channels(op) * COLUMNS * k->element;
}

static void batch_norm_prepare(const ds_op *op, void *prepared, const void *const *weights,
                               const ds_real_kernels *k)
{
    const void *const weight = ds_op_has_weight(op, BATCH_WEIGHT) ? weights[BATCH_WEIGHT] : NULL;
    const void *const bias = ds_op_has_weight(op, BATCH_BIAS) ? weights[BATCH_BIAS] : NULL;
    for (size_t i = 0; i < channels(op); i++) {
        const double variance = column(weights[BATCH_VARIANCE], k->element, i, 1);
        DS_BY_ELEMENT(set_group, k->element, prepared, channels(op), i, 1,
                      column(weights[BATCH_MEAN], k->element, i, 0),
                      sqrt(variance + op->attr[BATCH_EPS].x), weight, bias);
    }
}

static void batch_norm_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const size_t n = channels(op), per_frame = ds_elements(&op->in[0]) / n;
    scale_rows(run->k, f->y[0], f->x[0], f->n * per_frame, n, run->prepared);
}
DS_FRAMEWISE_FORWARD(batch_norm)

/* Slopes of all four weights are sums over every value of a channel of its slope, and of that times the value. */
static void batch_norm_backward(const ds_op *op, const ds_back *b)
{
    const ds_run *run = b->run;
    const size_t n = channels(op), per_frame = ds_elements(&op->in[0]) / n,
                 element = ds_op_element(op);
    const void *const weight = ds_run_weight(op, run, BATCH_WEIGHT);
    double *const sums = b->scratch, *const along = sums + n, *const mean = along + n,
                  *const scale = mean + n;
    memset(sums, 0, 2 * n * sizeof *sums);
    for (size_t c = 0; c < n; c++) {
        mean[c] = column(run->weights[BATCH_MEAN], element, c, 0);
        scale[c] =
            1 / sqrt(column(run->weights[BATCH_VARIANCE], element, c, 1) + op->attr[BATCH_EPS].x);
    }
    ds_frames f;
    for (f.next = 0; ds_back_next_frames(op, b, &f);)
        for (size_t i = 0, c = 0; i < f.n * per_frame * n; i++, c = c + 1 == n ? 0 : c + 1) {
            const double slope = ds_sums_real(f.g[0], element, i);
            sums[c] += slope;
            along[c] += slope * (ds_sums_real(f.x[0], element, i) - mean[c]) * scale[c];
            if (f.dx[0])
                ds_back_add_real(f.dx[0], element, i,
                                 slope * column(weight, element, c, 1) * scale[c]);
        }
    for (size_t c = 0; c < n; c++) {
        const double factor = column(weight, element, c, 1) * scale[c];
        const double of[] = {-sums[c] * factor, -along[c] * factor * scale[c] / 2, along[c],
                             sums[c]};
        for (int i = BATCH_MEAN; i <= BATCH_BIAS && i < op->n_weights; i++)
            if (b->dweights[i])
                ds_back_add_real(b->dweights[i], element, c, of[i]);
    }
}

const ds_op_def ds_op_batch_norm = {
    DS_OPERATOR(batch_norm, "every channel normalised by statistics that are constants"),
    .flags = DS_OP_INPLACE | DS_OP_REAL,
    .attrs = batch_norm_attrs,
    .shapes = "[.., C]; running_mean [C]; running_var [C]; weight? [C]; bias? [C]",
    DS_PREPARED(batch_norm),
    .backward = batch_norm_backward,
    .reads = DS_READS_X};

/* ---------------------------------------------------------------- group_norm */

enum { GROUPS, GROUP_EPS, GROUP_OVER };
enum { FRAME, STREAM };
enum { GROUP_WEIGHT, GROUP_BIAS };

static const ds_attr_def group_norm_attrs[] = {
    {"groups", DS_ATTR_INT, .required = true, .doc = "groups of channels", .range = DS_FROM_1},
    {"eps", DS_ATTR_REAL, .x = 1e-5, .doc = "added to the variance", .range = DS_FROM_0},
    {"over", DS_ATTR_CHOICE, .choices = "frame|stream",
     .doc = "stream: over all frames too, which needs the whole stream"},
    {0}};

/* Whether a group has one value in each frame. */
static bool group_norm_single(const ds_op *op)
{
    return ds_signature_elements(&op->in[0]) == op->attr[GROUPS].i;
}

static ds_status group_norm_infer(ds_op *op)
{
    const int64_t n = (int64_t)channels(op);
    op->whole = op->attr[GROUP_OVER].i == STREAM;
    /* torch refuses one frame then. Of none it gives none; but a pad behind would leave before there are two. */
    op->needs_frames = op->whole && group_norm_single(op);
    op->back_scratch.per_call = ds_back_sums_bytes(op);
    return ds_size_mul(&op->scratch.per_call, (size_t)n,
                       2 * sizeof(double) + COLUMNS * ds_op_element(op));
}

static void group_norm_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_known(p, 0));
    const ds_expr total = ds_total(p, 0);
    const bool two = op->needs_frames; /* or more */
    ds_root(p, two ? ds_select(p, ds_add_k(p, total, -1), total, ds_const(p, 0)) : total);
}

/* Gives all of n channels the mean of their group's values, from their channels' sums; in four lanes, which are chains
 * of their own, added as `reduce` adds them. */
static void group_norm_average(double *of_group, const double *sums, size_t n, size_t groups,
                               double n_values)
{
    const size_t per_group = n / groups;
    for (size_t first = 0; first < n; first += per_group) {
        double lane[4] = {0};
        size_t i = 0;
        for (; i + 4 <= per_group; i += 4)
            for (size_t j = 0; j < 4; j++)
                lane[j] += sums[first + i + j];
        for (size_t j = 0; i + j < per_group; j++)
            lane[j] += sums[first + i + j];
        const double mean = ((lane[0] + lane[1]) + (lane[2] + lane[3])) / n_values;
        for (i = 0; i < per_group; i++)
            of_group[first + i] = mean;
    }
}

/* Normalises n_rows rows of channels together. */
static void group_norm_rows(const ds_op *op, const ds_run *run, void *y, const void *x,
                            size_t n_rows)
{
    const size_t n = channels(op), groups = (size_t)op->attr[GROUPS].i;
    double *const mean = run->scratch, *const sums = mean + n;
    void *const columns = sums + n;
    const double n_values = (double)n_rows * (double)(n / groups);
    const void *const weight = ds_run_weight(op, run, GROUP_WEIGHT), *const bias = ds_run_weight(
                                                                         op, run, GROUP_BIAS);
    memset(sums, 0, n * sizeof *sums);
    run->k->column_sums(sums, x, n_rows, n, NULL);
    group_norm_average(mean, sums, n, groups, n_values);
    memset(sums, 0, n * sizeof *sums);
    run->k->column_sums(sums, x, n_rows, n, mean);
    group_norm_average(sums, sums, n, groups, n_values);
    for (size_t i = 0; i < n; i += n / groups)
        DS_BY_ELEMENT(set_group, run->k->element, columns, n, i, n / groups, mean[i],
                      sqrt(sums[i] + op->attr[GROUP_EPS].x), weight, bias);
    scale_rows(run->k, y, x, n_rows, n, columns);
}

static void group_norm_forward(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    const size_t positions = ds_elements(&op->in[0]) / channels(op);
    for (size_t row = 0; row < run->n_rows; row++) {
        const ds_target *out = &run->out[row];
        const int64_t step = op->whole ? out->m1 - out->m0 : 1;
        for (int64_t m = out->m0; m < out->m1; m += step)
            group_norm_rows(op, run, ds_to(out, m, n_bytes), ds_at(&run->in[row], m, n_bytes),
                            (size_t)step * positions);
    }
}

static void group_norm_backward(const ds_op *op, const ds_back *b)
{
    const size_t n = channels(op), n_bytes = ds_signature_bytes(&op->in[0]);
    const size_t positions = ds_elements(&op->in[0]) / n;
    ds_norm norm = {positions,
                    n,
                    (size_t)op->attr[GROUPS].i,
                    false,
                    op->attr[GROUP_EPS].x,
                    ds_run_weight(op, b->run, GROUP_WEIGHT)};
    ds_room room = {b->scratch};
    double *sums[DS_SUMMED];
    ds_back_sums_begin(op, b, sums, &room);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const ds_target *out = &b->run->out[r];
        const int64_t together = op->whole ? out->m1 - out->m0 : 1;
        norm.n_rows = (size_t)together * positions;
        for (int64_t m = out->m0; m < out->m1; m += together)
            ds_norm_back(&norm, ds_slope_at(&b->dx[r], m, n_bytes), sums[GROUP_WEIGHT],
                         sums[GROUP_BIAS], (const char *)b->dy[r] + (size_t)(m - out->m0) * n_bytes,
                         ds_at(&b->run->in[r], m, n_bytes), ds_op_element(op));
    }
    ds_back_sums_end(op, b, sums);
}

const ds_op_def ds_op_group_norm = {
    DS_OPERATOR(group_norm, "normalisation over all positions and the channels of each group"),
    .flags = DS_OP_REAL,
    .attrs = group_norm_attrs,
    .shapes = "[.., groups*C]; weight? [groups*C]; bias? [groups*C]",
    .counts = group_norm_counts,
    .backward = group_norm_backward,
    .reads = DS_READS_X};
