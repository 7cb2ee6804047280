/* ops/operands.h: what operators with two or three operands of equal standing have in common.
 *
 * An operand is a stream or a constant. Attribute 0, `order`, names them in turn: 0 is the next
 * input, 1 the next weight; left out, all are inputs. A frame's features broadcast against the
 * others' as in NumPy, aligned at the right; a constant serves every frame. */
#ifndef DS_OPS_OPERANDS_H
#define DS_OPS_OPERANDS_H
#include "ops/op.h"
#include "ops/walk.h"

#define DS_OPERANDS_ORDER                                                                \
    {"order", DS_ATTR_INTS,                                                              \
     .doc = "one entry per operand: 0 the next input, 1 the next weight; all inputs if " \
            "left out"}

/* Checks `order` and writes the broadcast shape to output 0. DS_ARGUMENT, DS_SHAPE. */
ds_status ds_operands_infer(ds_op *op, int n_operands);

/* The signature of operand i. */
const ds_signature *ds_operands_at(const ds_op *op, int i);

/* DS_DTYPE unless operands first.. are of one type, and that is float or double. */
ds_status ds_operands_require_real(const ds_op *op, int first, int n_operands);

/* DS_DTYPE unless operands first..first+n are DS_BOOL. */
ds_status ds_operands_require_bool(const ds_op *op, int first, int n_operands);

/* Visits output 0 of all rows. */
void ds_operands_forward(const ds_op *op, const ds_run *run, int n_operands, ds_walk_visit visit,
                         const void *context);

#endif
