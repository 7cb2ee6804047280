/* ops/registry.h: the definitions of all operators. */
#pragma once
#include "ops/op.h"

#define OPERATOR(name, example) extern const ds_op_def ds_op_##name;
#include "ops/operators.def"
