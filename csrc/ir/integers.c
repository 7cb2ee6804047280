/* ir/integers.c: operators' programs, evaluated on functions instead of numbers. */
#include "ir/integers.h"

ds_status ds_stairs_program(ds_stairs_maker *maker, const ds_program *p,
                            const ds_stairs *const *known, const ds_stairs *const *total,
                            const ds_stairs *m, const ds_stairs **roots)
{
    const ds_stairs *value[DS_PROGRAM_NODES];
    for (int n = 0; n < p->n_nodes; n++) {
        const ds_expr_node *node = &p->nodes[n];
        switch (node->code) {
        case DS_EXPR_CONST:
            DS_TRY(ds_stairs_constant(maker, &value[n], node->k));
            break;
        case DS_EXPR_KNOWN:
            value[n] = known[node->a];
            break;
        case DS_EXPR_TOTAL:
            value[n] = total[node->a];
            break;
        case DS_EXPR_M:
            value[n] = m;
            break;
        default:
            DS_TRY(ds_stairs_apply(maker, &value[n], node->code, value[node->a], value[node->b],
                                   node->code == DS_EXPR_SELECT ? value[node->c] : NULL));
        }
    }
    for (int i = 0; i < p->n_roots; i++)
        roots[i] = value[p->roots[i]];
    return DS_OK;
}

ds_status ds_stairs_total(ds_stairs_maker *maker, const ds_op *op, const ds_stairs *const *inputs,
                          const ds_stairs **total)
{
    /* One more than the total, 0 where there is no such edge. */
    const ds_stairs *there, *more;
    DS_TRY(ds_stairs_apply_k(maker, total, DS_EXPR_MAX, *total, 0));
    DS_TRY(ds_stairs_apply_k(maker, &more, DS_EXPR_ADD, *total, 1));
    if (op->needs_frames) {
        DS_TRY(ds_stairs_mask(maker, &more, more, *total));
        DS_TRY(ds_stairs_mask(maker, &more, more, inputs[0]));
    }
    for (int i = 0; i < op->n_inputs; i++) {
        DS_TRY(ds_stairs_apply_k(maker, &there, DS_EXPR_ADD, inputs[i], 1));
        DS_TRY(ds_stairs_mask(maker, &more, more, there));
    }
    return ds_stairs_apply_k(maker, total, DS_EXPR_ADD, more, -1);
}
