/* ops/sync.c: streams passed on as they are, if at all.
 *
 *     sync    y = x, as far as all inputs are known
 *             known  minimum of all known       total  minimum of all totals
 *             need   m of the first input; of the others only counts are read
 *     limit   y = x        known, total, need: the input's
 *     unless_empty  y = x       of a stream without frames there is no y
 *     hold    y[m] = x[0], for every frame of the second input, of which only counts are read
 *             known  the second's, 0 while frame 0 of the first is not    total  the second's    need  0, for ever
 *
 * sync holds a stream back until others have come as far. Streams that are combined must end at the same length;
 * at the end that is checked. limit refuses a stream that becomes longer than allowed; it stands before what
 * must wait for a stream's end (buffer_limit), so that memory stays bounded. hold lets what is given once, with a
 * stream's start, meet the stream's frames. */
#include "ops/limit.h"
#include "ops/move.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- sync */

static void sync_counts(const ds_op *op, ds_program *p)
{
    ds_expr known = ds_known(p, 0), total = ds_total(p, 0);
    for (int i = 1; i < op->n_inputs; i++) {
        known = ds_min(p, known, ds_known(p, i));
        total = ds_min(p, total, ds_total(p, i));
    }
    ds_root(p, known);
    ds_root(p, total);
}

static void sync_check(const ds_op *op, ds_program *p)
{
    ds_expr least = ds_total(p, 0), most = least;
    for (int i = 1; i < op->n_inputs; i++) {
        least = ds_min(p, least, ds_total(p, i));
        most = ds_max(p, most, ds_total(p, i));
    }
    ds_root(p, ds_const(p, 1));
    ds_root(p, ds_select(p, least, ds_sub(p, most, least), ds_const(p, 0)));
}

static ds_status sync_fail_check(const ds_op *op, const ds_pair *in)
{
    int64_t other = in[0].total;
    for (int i = 1; i < op->n_inputs && other == in[0].total; i++)
        other = in[i].total;
    return ds_fail(DS_SHAPE, "sync: lengths %lld and %lld differ at the end of the stream",
                   (long long)in[0].total, (long long)other);
}

const ds_op_def ds_op_sync = {
    DS_OPERATOR_OF(
        sync,
        "Lets a stream progress only as far as the others have, for operators that combine them.",
        2, 1, 1),
    .flags = DS_OP_VARIADIC | DS_OP_INPLACE, .counts = sync_counts, DS_CHECKED(sync),
    DS_MOVED(ds_same_pieces, 0)};

/* ---------------------------------------------------------------- limit */

enum { LIMIT_FRAMES, LIMIT_OF };

enum { BUFFER, TABLE, CONTEXT };

static const ds_attr_def limit_attrs[] = {{"frames", DS_ATTR_INT, .required = true,
                                           .doc = "the longest stream allowed", .range = DS_FROM_0},
                                          {"of", DS_ATTR_CHOICE, .choices = "buffer|table|context",
                                           .doc = "what ends there, for the message"},
                                          {0}};

static void limit_check(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_add_k(p, ds_total(p, 0), -op->attr[LIMIT_FRAMES].i));
}

ds_status ds_limit_fail(const ds_op *op, int64_t n_frames, int64_t limit)
{
    return ds_fail(
        DS_LIMIT, "%s: %lld frames wait for the stream's end, more than buffer_limit allows (%lld)",
        op->def->name, (long long)n_frames, (long long)limit);
}

static ds_status limit_fail_check(const ds_op *op, const ds_pair *in)
{
    const int64_t frames = op->attr[LIMIT_FRAMES].i;
    if (op->attr[LIMIT_OF].i == BUFFER)
        return ds_limit_fail(op, in[0].total, frames);
    return ds_fail(DS_LIMIT,
                   op->attr[LIMIT_OF].i == TABLE
                       ? "limit: the stream has %lld frames, and the table that a mask is cut from "
                         "ends at %lld"
                       : "limit: attention keeps all %lld frames of the stream, more than "
                         "context_limit allows (%lld)",
                   (long long)in[0].total, (long long)frames);
}

const ds_op_def ds_op_limit = {
    DS_OPERATOR_OF(limit, "Refuses streams that become longer than a number of frames.", 1, 1, 1),
    .flags = DS_OP_INPLACE, .attrs = limit_attrs, DS_CHECKED(limit), DS_MOVED(ds_same_pieces, 0)};

/* ---------------------------------------------------------------- unless_empty */

const ds_op_def ds_op_unless_empty = {
    DS_OPERATOR_OF(unless_empty,
                   "A stream as it is; one without frames is refused, as by torch: nothing follows "
                   "from it.",
                   1, 1, 1),
    .flags = DS_OP_INPLACE | DS_OP_NEEDS_FRAMES, DS_MOVED(ds_same_pieces, 0)};

/* ---------------------------------------------------------------- hold */

static ds_status hold_infer(ds_op *op)
{
    op->out[0].rate = op->in[1].rate;
    return DS_OK;
}

static void hold_counts(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_select(p, ds_known(p, 0), ds_known(p, 1), ds_const(p, 0)));
    ds_root(p, ds_select(p, ds_total(p, 0), ds_total(p, 1), ds_const(p, 0)));
}

static void hold_need(const ds_op *op, ds_program *p)
{
    (void)op;
    ds_root(p, ds_const(p, 0));
}

const ds_op_def ds_op_hold = {
    DS_OPERATOR_OF(hold, "Gives what comes once, with a stream's start, to each of its frames.", 2,
                   1, 1),
    .infer = hold_infer, DS_COUNTED(hold), DS_MOVED(ds_first_pieces, 0)};
