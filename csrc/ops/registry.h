/* ops/registry.h: the definitions of all operators. */
#ifndef DS_OPS_REGISTRY_H
#define DS_OPS_REGISTRY_H
#include "ops/op.h"

#define OPERATOR(name, example) extern const ds_op_def ds_op_##name;
#include "ops/operators.def"

#endif
