/* ops/slice.c: frames left out at the start, at the end, between (x[..., start : -crop : step]).
 *
 *     y[m] = x[start + m step]
 *
 *     known  ceil((known - start) / step)          frames below known lie before the crop if at all
 *     total  ceil((total - crop - start) / step)
 *     need   start + m step */
#include "ops/frames.h"
#include "ops/registry.h"

enum { START, CROP, STEP };

static const ds_attr_def attrs[] = {
    {"start", DS_ATTR_INT, .doc = "frames dropped at the start"},
    {"crop", DS_ATTR_INT, .doc = "frames dropped at the end"},
    {"step", DS_ATTR_INT, .i = 1, .doc = "of these every step-th is kept"},
    {0}};

static ds_status infer(ds_op *op)
{
    DS_TRY(ds_op_require_least(op, START, 0));
    DS_TRY(ds_op_require_least(op, CROP, 0));
    DS_TRY(ds_op_require_least(op, STEP, 1));
    DS_CHECK(ds_rate_scale(&op->out[0].rate, 1, op->attr[STEP].i), DS_ARGUMENT,
             "slice: its rate overflows");
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    const int64_t start = op->attr[START].i, step = op->attr[STEP].i;
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_known(p, 0), -start), step));
    ds_root(p, ds_ceildiv_k(p, ds_add_k(p, ds_total(p, 0), -start - op->attr[CROP].i), step));
}

static void need(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_add_k(p, ds_mul_k(p, ds_m(p), op->attr[STEP].i), op->attr[START].i));
}

static void forward(const ds_op *op, const ds_run *run)
{
    ds_frames_take(op, run, op->attr[START].i, op->attr[STEP].i);
}

const ds_op_def ds_op_slice = {
    .name = "slice",
    .doc = "Drops frames at the start and at the end, and keeps every step-th of the others.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = 1,
    .attrs = attrs,
    .infer = infer,
    .counts = counts,
    .need = need,
    .forward = forward};
