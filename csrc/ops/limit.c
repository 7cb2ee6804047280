/* ops/limit.c: passes a stream on and refuses it where it becomes longer than allowed.
 *
 *     y = x        known, total, need: the input's
 *
 * Stands before what must wait for a stream's end (buffer_limit), so that memory stays bounded. */
#include "ops/frames.h"
#include "ops/registry.h"

#include <stdio.h>

enum { FRAMES };

static const ds_attr_def attrs[] = {
    {.name = "frames", .kind = DS_ATTR_INT, .required = true, .doc = "the longest stream allowed"},
    {0}};

static ds_status infer(ds_op *op)
{
    DS_CHECK(op->attr[FRAMES].i >= 0, DS_ARGUMENT, "limit: frames must not be negative, got %lld",
             (long long)op->attr[FRAMES].i);
    return DS_OK;
}

static void check(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_add_k(p, ds_total(p, 0), -op->attr[FRAMES].i));
}

static const char *check_message(const ds_op *op, const ds_pair *in, char *text, size_t n_bytes)
{
    snprintf(text, n_bytes, "%lld frames wait for the stream's end, more than buffer_limit allows (%lld)",
             (long long)in[0].total, (long long)op->attr[FRAMES].i);
    return text;
}

static void forward(const ds_op *op, const ds_run *run)
{
    ds_frames_take(op, run, 0, 1);
}

const ds_op_def ds_op_limit = {
    .name = "limit",
    .doc = "Refuses streams that become longer than a number of frames.",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_INPLACE,
    .attrs = attrs,
    .check_status = DS_LIMIT,
    .infer = infer,
    .check = check,
    .check_message = check_message,
    .forward = forward};
