/* ops/declared.h: operators whose integers are given as data, and whose values the caller computes.
 *
 * What a user declares in another language: the driver answers for its counts and needs as for any
 * operator's; it has no forward, so it can stand in no graph. */
#ifndef DS_OPS_DECLARED_H
#define DS_OPS_DECLARED_H
#include "ops/op.h"

/* counts: roots known and total of each output in turn; need: one root per input. Both are copied.
 * Errors: DS_ARGUMENT for programs that refer to what is not there, DS_NO_MEMORY. */
ds_status ds_op_declare(ds_op **op, const ds_allocator *allocator, const ds_signature *inputs,
                        size_t n_inputs, const ds_signature *outputs, size_t n_outputs,
                        const ds_program *counts, const ds_program *need);

#endif
