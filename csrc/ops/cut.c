/* ops/cut.c: a stream cut to a function of another's length (x[..., start : f(y.size(L)) : step]).
 *
 *     y'[m] = x[start + m step]
 *
 *     known  ceil((known x - start) / step), at most total    f grows, so what is below it stays
 *     total  ceil((min(total x, f(total y)) - start) / step)
 *     need   start + m step; of y only the length is read
 *
 * Only a function that turns y's rate into x's is a cut: with any other, ever more of x would wait,
 * or be thrown away. */
#include "ops/frames.h"
#include "ops/length.h"
#include "ops/registry.h"

enum { START, STEP, LENGTH };

static const ds_attr_def attrs[] = {
    {"start", DS_ATTR_INT, .doc = "frames dropped at the start"},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of the others every step-th is kept"},
    {"length", DS_ATTR_INTS,
     .doc = "the function, in pairs: 0 c adds, 1 c multiplies, 2 c divides"},
    {0}};

static ds_status infer(ds_op *op)
{
    ds_length length;
    DS_TRY(ds_op_require_least(op, START, 0));
    DS_TRY(ds_op_require_least(op, STEP, 1));
    DS_TRY(ds_length_read(op, LENGTH, &length));
    ds_rate rate = op->in[1].rate;
    DS_TRY(ds_length_rate(op, &length, &rate));
    DS_CHECK(ds_rate_equal(rate, op->in[0].rate), DS_MISMATCH,
             "cut: input 0 has rate %lld/%lld, but the length that it is cut to has rate %lld/%lld",
             (long long)op->in[0].rate.num, (long long)op->in[0].rate.den, (long long)rate.num,
             (long long)rate.den);
    DS_CHECK(ds_rate_scale(&op->out[0].rate, 1, op->attr[STEP].i), DS_ARGUMENT,
             "cut: its rate overflows");
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    const int64_t start = op->attr[START].i, step = op->attr[STEP].i;
    const ds_attr_value *codes = &op->attr[LENGTH];
    const ds_expr end = ds_length_function(p, ds_total(p, 1), codes->ints, codes->n_ints);
    const ds_expr total = ds_min(p, ds_total(p, 0), end);
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_known(p, 0), -start), step));
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, total, -start), step));
}

static void need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_m(p), op->attr[STEP].i), op->attr[START].i));
}

static void forward(const ds_op *op, const ds_run *run)
{
    ds_frames_take(op, run, op->attr[START].i, op->attr[STEP].i);
}

const ds_op_def ds_op_cut = {.name = "cut",
                             .doc = "Cuts a stream to a function of another stream's length.",
                             .n_inputs = 2,
                             .n_outputs = 1,
                             .n_values = 1,
                             .attrs = attrs,
                             .infer = infer,
                             .counts = counts,
                             .need = need,
                             .forward = forward};
