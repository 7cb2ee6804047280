/* ops/sync.c: holds a stream back until others have come as far.
 *
 *     y = x, as far as all inputs are known
 *
 *     known  minimum of all known       total  minimum of all totals
 *     need   m of the first input; of the others only counts are read
 *
 * Streams that are combined must end at the same length; at the end that is checked. */
#include "ops/frames.h"
#include "ops/registry.h"

#include <stdio.h>

static ds_status infer(ds_op *op)
{
    for (int i = 1; i < op->n_inputs; i++) {
        const ds_rate a = op->in[0].rate, b = op->in[i].rate;
        DS_CHECK(ds_rate_equal(a, b), DS_MISMATCH,
                 "sync: input 0 has rate %lld/%lld but input %d has rate %lld/%lld",
                 (long long)a.num, (long long)a.den, i, (long long)b.num, (long long)b.den);
    }
    return DS_OK;
}

static void counts(const ds_op *op, ds_program *p)
{
    ds_expr known = ds_known(p, 0), total = ds_total(p, 0);
    for (int i = 1; i < op->n_inputs; i++) {
        known = ds_min(p, known, ds_known(p, i));
        total = ds_min(p, total, ds_total(p, i));
    }
    ds_root(p, known);
    ds_root(p, total);
}

static void check(const ds_op *op, ds_program *p)
{
    ds_expr least = ds_total(p, 0), most = least;
    for (int i = 1; i < op->n_inputs; i++) {
        least = ds_min(p, least, ds_total(p, i));
        most = ds_max(p, most, ds_total(p, i));
    }
    ds_root(p, ds_const(p, 1));
    ds_root(p, ds_sub(p, most, least));
}

static const char *check_message(const ds_op *op, const ds_pair *in, char *text, size_t n_bytes)
{
    int64_t other = in[0].total;
    for (int i = 1; i < op->n_inputs && other == in[0].total; i++) {
        other = in[i].total;
    }
    snprintf(text, n_bytes, "lengths %lld and %lld differ at the end of the stream",
             (long long)in[0].total, (long long)other);
    return text;
}

static void forward(const ds_op *op, const ds_run *run)
{
    ds_frames_take(op, run, 0, 1);
}

const ds_op_def ds_op_sync = {
    .name = "sync",
    .doc =
        "Lets a stream progress only as far as the others have, for operators that combine them.",
    .n_inputs = 2,
    .n_outputs = 1,
    .n_values = 1,
    .flags = DS_OP_VARIADIC | DS_OP_INPLACE,
    .infer = infer,
    .counts = counts,
    .check = check,
    .check_message = check_message,
    .forward = forward};
