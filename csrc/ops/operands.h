/* ops/operands.h: what operators with two or three operands of equal standing have in common.
 *
 * An operand is a stream or a constant. Attribute 0, `order`, names them in turn: 0 is the next
 * input, 1 the next weight; left out, all are inputs. A frame's features broadcast against the
 * others' as in NumPy, aligned at the right; a constant serves every frame. */
#pragma once
#include "ops/op.h"

enum { DS_OPERANDS = 3 /* at most */ };

#define DS_OPERANDS_ORDER                                                                \
    {"order", DS_ATTR_INTS,                                                              \
     .doc = "one entry per operand: 0 the next input, 1 the next weight; all inputs if " \
            "left out"}

/* Checks `order`, and that the operands are of the given types, a letter each: 'b' for bool, 'r' for float or double,
 * 'n' for these or int64, the same of all; writes the broadcast shape to output 0, which is of type `out`.
 * DS_ARGUMENT, DS_SHAPE, DS_DTYPE. */
ds_status ds_operands_infer(ds_op *op, const char *types, char out);

/* Whether operand i is a weight; fills which input or weight it is. */
bool ds_operands_locate(const ds_op *op, int i, int *index);
/* What operand 0 is. */
const ds_signature *ds_operands_first(const ds_op *op);

/* Rows of n elements: of operand i they begin row[i] elements apart, and have elements step[i] apart, 0 or 1. */
typedef struct ds_operands_rows {
    size_t n_rows, n;
    size_t row[DS_OPERANDS], step[DS_OPERANDS];
} ds_operands_rows;

/* Writes all of these from y on (contiguous); operand i has the first at x[i]. */
typedef void (*ds_operands_visit)(const ds_op *op, const ds_real_kernels *k, void *y,
                                  const void *const *x, const ds_operands_rows *r);

/* Visits output 0 of all rows; one row at a time but where the visitor takes several. */
void ds_operands_forward(const ds_op *op, const ds_run *run, int n_operands,
                         ds_operands_visit visit, bool by_rows);

/* Writes the slopes of one operand for n elements of the output, whose slopes are g, contiguous; operands as above,
 * where they are read. */
typedef void (*ds_operands_slopes)(const ds_op *op, const ds_real_kernels *k, int operand, void *dx,
                                   const void *g, const void *const *x, size_t n,
                                   const size_t *step);
/* Adds the slopes of all real operands; of those that are repeated over what they are repeated along, in double. Its
 * scratch is set by ds_operands_infer. */
void ds_operands_backward(const ds_op *op, const ds_back *b, int n_operands,
                          ds_operands_slopes slopes);
