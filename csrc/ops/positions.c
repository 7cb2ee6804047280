/* ops/positions.c: what follows from the absolute positions of frames.
 *
 *     positions  y[m] = g(m), m < f(total)               torch.arange(x.size(L)) // 4 + 1
 *                g is made of integers: + c, * c, // c, mod c, min c, max c, in turn, rounding down
 *                known = total = f(total)     need  never: of x only the length is read
 *     rotary     y[m][..., D] = x[m], pairs of features turned by the angle m' w_i, m' = scale m, for i < n / 2:
 *                    halves   features i and n / 2 + i of the first n
 *                    pairs    features 2 i and 2 i + 1
 *                (a, b) -> (a cos - b sin, b cos + a sin); other features stay. Counts are the input's.
 *                w_i = base^(-2 i / n), or the weight's [n / 2].
 *
 * Angles are in double (kernels/turn.h), no position is too far; sine and cosine are rounded to the type of the frames
 * once.
 *
 * Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021). */
#include <math.h>
#include <string.h>

#include "kernels/turn.h"
#include "ops/back.h"
#include "ops/length.h"
#include "ops/registry.h"
#include "ops/sums.h"

/* ---------------------------------------------------------------- positions */

enum { LENGTH, STEPS, TO };
enum { PLUS, TIMES, DIVIDED, MODULO, AT_MOST, AT_LEAST };

static const ds_attr_def positions_attrs[] = {
    DS_LENGTH_ATTR("length"),
    {"steps", DS_ATTR_INTS,
     .doc = "what is made of positions, in pairs: 0 c adds, 1 c multiplies, 2 c divides, 3 c is "
            "the rest, 4 c is the lesser of both, 5 c the greater"},
    {"to", DS_ATTR_CHOICE, .choices = "int64|float32|float64", .doc = "the type of the numbers"},
    {0}};

static ds_status positions_infer(ds_op *op)
{
    const ds_attr_value *steps = &op->attr[STEPS];
    DS_CHECK(
        steps->n_ints % 2 == 0, DS_ARGUMENT,
        "positions: attribute 'steps' must hold pairs of a code and a constant, got %d integers",
        steps->n_ints);
    for (int i = 0; i < steps->n_ints; i += 2)
        DS_CHECK(steps->ints[i] >= PLUS && steps->ints[i] <= AT_LEAST &&
                     ((steps->ints[i] != DIVIDED && steps->ints[i] != MODULO) ||
                      steps->ints[i + 1] >= 1),
                 DS_ARGUMENT,
                 "positions: step %d is (%lld, %lld), expected 0 (+), 1 (*), 2 (//), 3 (mod), "
                 "4 (min) or 5 (max); // and mod by at least 1",
                 i / 2, (long long)steps->ints[i], (long long)steps->ints[i + 1]);
    static const ds_dtype types[] = {DS_I64, DS_F32, DS_F64};
    op->out[0].dtype = types[op->attr[TO].i];
    op->out[0].rank = 0;
    return ds_length_rate(op, LENGTH, &op->out[0].rate);
}

static void positions_forward(const ds_op *op, const ds_run *run)
{
    const ds_attr_value *steps = &op->attr[STEPS];
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t m = out->m0; m < out->m1; m++) {
            const int64_t position = ds_length_at(m, steps->ints, steps->n_ints);
            if (op->out[0].dtype == DS_I64)
                ((int64_t *)out->data)[m - out->m0] = position;
            else if (op->out[0].dtype == DS_F64)
                ((double *)out->data)[m - out->m0] = (double)position;
            else
                ((float *)out->data)[m - out->m0] = (float)position;
        }
    }
}

const ds_op_def ds_op_positions = {
    DS_OPERATOR_OF(positions, "Absolute positions in the stream.", 1, 1, 0),
    .flags = DS_OP_CONSTANT,
    .attrs = positions_attrs,
    .infer = positions_infer,
    .counts = ds_length_counts,
    .forward = positions_forward};

/* ---------------------------------------------------------------- rotary */

enum { FEATURES, BASE, SCALE, FORM };
enum { HALVES, PAIRS };
enum { FREQUENCIES };

static const ds_attr_def rotary_attrs[] = {
    {"features", DS_ATTR_INT, .doc = "features that are turned, from the first on; 0: all",
     .range = DS_FROM_0},
    {"base", DS_ATTR_REAL, .x = 10000, .doc = "angles of a step are its powers from 0 to -1"},
    {"scale", DS_ATTR_REAL, .x = 1, .doc = "what positions are multiplied with"},
    {"form", DS_ATTR_CHOICE, .choices = "halves|pairs", .doc = "which features belong together"},
    {0}};

/* Pairs of features that are turned. */
static size_t rotary_pairs(const ds_op *op)
{
    const ds_signature *in = &op->in[0];
    const int64_t given = op->attr[FEATURES].i;
    return (size_t)(given > 0 ? given : in->shape[in->rank - 1]) / 2;
}

static ds_status rotary_infer(ds_op *op)
{
    const int64_t last = op->in[0].shape[op->in[0].rank - 1], given = op->attr[FEATURES].i;
    DS_CHECK(given <= last && (given > 0 ? given : last) % 2 == 0, DS_SHAPE,
             "rotary: features are turned in pairs, got %lld of %lld",
             (long long)(given > 0 ? given : last), (long long)last);
    DS_CHECK(op->attr[BASE].x > 0, DS_ARGUMENT, "rotary: base must be above 0, got %g",
             op->attr[BASE].x);
    const int64_t n = (int64_t)rotary_pairs(op);
    op->scratch.per_call = 2 * (size_t)n * sizeof(double); /* sine and cosine of each pair */
    op->back_scratch.per_call = ds_aligned(3 * (size_t)n * sizeof(double)) + ds_back_sums_bytes(op);
    op->reads = ds_op_has_weight(op, FREQUENCIES) ? DS_READS_Y : 0;
    return ds_require_optional(op, FREQUENCIES, "frequencies", 1, &n);
}

/* Angles of a step, [pairs]. */
static size_t rotary_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    (void)k;
    return rotary_pairs(op) * sizeof(double);
}

static void rotary_prepare(const ds_op *op, void *prepared, const void *const *weights,
                           const ds_real_kernels *k)
{
    const size_t n = rotary_pairs(op);
    const void *given = ds_op_has_weight(op, FREQUENCIES) ? weights[FREQUENCIES] : NULL;
    double *const angles = prepared;
    for (size_t i = 0; i < n; i++)
        angles[i] = given == NULL ? pow(op->attr[BASE].x, -(double)i / (double)n)
                                  : ds_sums_real(given, k->element, i);
}

/* Turns one vector of n pairs `apart` features from each other, `step` from one pair to the next. */
#define ROTARY_VECTOR(real)                                                                        \
    static void rotary_##real(real *y, const real *x, const double *turns, size_t n, size_t apart, \
                              size_t step)                                                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const real s = (real)turns[2 * i], c = (real)turns[2 * i + 1];                         \
            const real a = x[i * step], b = x[i * step + apart];                                   \
            y[i * step] = a * c - b * s;                                                           \
            y[i * step + apart] = b * c + a * s;                                                   \
        }                                                                                          \
    }
ROTARY_VECTOR(float)
ROTARY_VECTOR(double)

static void rotary_forward(const ds_op *op, const ds_run *run)
{
    const ds_signature *in = &op->in[0];
    const size_t n = rotary_pairs(op), width = ds_last_size(in);
    const size_t n_vectors = ds_elements(in) / width, element = ds_op_element(op);
    const size_t n_bytes = ds_signature_bytes(in), step = op->attr[FORM].i == PAIRS ? 2 : 1;
    const size_t apart = op->attr[FORM].i == PAIRS ? 1 : n;
    const double *const angles = run->prepared;
    double *const turns = run->scratch;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        for (int64_t m = out->m0; m < out->m1; m++) {
            const char *x = ds_at(&run->in[r], m, n_bytes);
            char *y = ds_to(out, m, n_bytes);
            for (size_t i = 0; i < n; i++)
                dsk_turn_far((double)m * op->attr[SCALE].x * angles[i], &turns[2 * i],
                             &turns[2 * i + 1]);
            if (y != x)
                memcpy(y, x, n_bytes);
            for (size_t v = 0; v < n_vectors; v++, x += width * element, y += width * element) {
                if (element == sizeof(float))
                    rotary_float((float *)y, (const float *)x, turns, n, apart, step);
                else
                    rotary_double((double *)y, (const double *)x, turns, n, apart, step);
            }
        }
    }
}

/* Turns slopes back; adds to each pair's frequency what an angle of one more makes of y. */
DS_FOR_ELEMENT void rotary_turn(void *dx, double *dangle, const void *g, const void *y,
                                const double *turns, size_t n, size_t apart, size_t step, double by,
                                size_t element)
{
    for (size_t i = 0; i < n; i++) {
        const size_t a = i * step, b = a + apart;
        const double ga = ds_sums_real(g, element, a), gb = ds_sums_real(g, element, b);
        if (dx) {
            ds_back_add_real(dx, element, a, ga * turns[2 * i + 1] + gb * turns[2 * i]);
            ds_back_add_real(dx, element, b, gb * turns[2 * i + 1] - ga * turns[2 * i]);
        }
        if (dangle)
            dangle[i] += by * (gb * ds_sums_real(y, element, a) - ga * ds_sums_real(y, element, b));
    }
}

static void rotary_backward(const ds_op *op, const ds_back *b)
{
    const ds_signature *in = &op->in[0];
    const size_t n = rotary_pairs(op), width = ds_last_size(in);
    const size_t n_vectors = ds_elements(in) / width, element = ds_op_element(op);
    const size_t n_bytes = ds_signature_bytes(in), step = op->attr[FORM].i == PAIRS ? 2 : 1;
    const size_t apart = op->attr[FORM].i == PAIRS ? 1 : n;
    ds_room room = {b->scratch};
    double *const turns = ds_room_take(&room, 3 * n * sizeof *turns), *const angles = turns + 2 * n;
    double *sums[DS_SUMMED];
    rotary_prepare(op, angles, b->run->weights, b->run->k);
    ds_back_sums_begin(op, b, sums, &room);
    for (size_t r = 0; r < b->run->n_rows; r++) {
        const ds_target *out = &b->run->out[r];
        for (int64_t m = out->m0; m < out->m1; m++) {
            const size_t at = (size_t)(m - out->m0) * n_bytes;
            char *const dx = ds_slope_at(&b->dx[r], m, n_bytes);
            const char *const g = (const char *)b->dy[r] + at, *const y = out->data;
            const double by = (double)m * op->attr[SCALE].x;
            for (size_t i = 0; i < n; i++)
                dsk_turn_far(by * angles[i], &turns[2 * i], &turns[2 * i + 1]);
            for (size_t v = 0; v < n_vectors; v++) {
                const size_t from = v * width * element, rest = from + 2 * n * element;
                DS_BY_ELEMENT(rotary_turn, element, dx ? dx + from : NULL, sums[FREQUENCIES],
                              g + from, y ? y + at + from : NULL, turns, n, apart, step, by);
                if (dx)
                    ds_back_add(b->run->k, dx + rest, g + rest, width - 2 * n);
            }
        }
    }
    ds_back_sums_end(op, b, sums);
}

const ds_op_def ds_op_rotary = {
    DS_OPERATOR(rotary, "Pairs of features turned by angles that grow with the position."),
    .flags = DS_OP_INPLACE | DS_OP_REAL | DS_OP_PLACED,
    .attrs = rotary_attrs,
    .shapes = "[.., n]; frequencies? [pairs]",
    DS_PREPARED(rotary),
    .backward = rotary_backward};
