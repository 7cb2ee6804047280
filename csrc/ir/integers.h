/* ir/integers.h: what operators say of their integers, as functions of how many frames have come. */
#pragma once
#include "ir/stairs.h"
#include "ops/op.h"

/* Evaluates a program on functions: known and total of its inputs, and m, where it refers to them. */
ds_status ds_stairs_program(ds_stairs_maker *maker, const ds_program *p,
                            const ds_stairs *const *known, const ds_stairs *const *total,
                            const ds_stairs *m, const ds_stairs **roots);
/* *total, an output's as its program says, becomes what the driver makes of it (ds_op_counts); inputs: their
 * totals. */
ds_status ds_stairs_total(ds_stairs_maker *maker, const ds_op *op, const ds_stairs *const *inputs,
                          const ds_stairs **total);
