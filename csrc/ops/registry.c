/* ops/registry.c: the list of operators as data. */
#include "ops/registry.h"

#include <string.h>

static const ds_op_def *const defs[] = {
#define OPERATOR(name, example) &ds_op_##name,
#include "ops/operators.def"
};

const ds_op_def *const *ds_op_defs(size_t *n)
{
    *n = sizeof defs / sizeof defs[0];
    return defs;
}

const ds_op_def *ds_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof defs / sizeof defs[0]; i++)
        if (strcmp(defs[i]->name, name) == 0)
            return defs[i];
    return NULL;
}
