/* ops/operands.c: operands of equal standing: their order, their types, the walk over what they broadcast to. */
#include "ops/operands.h"

/* Whether operand i is a weight, and which input or weight it is. */
static bool locate(const ds_op *op, int i, int *index)
{
    const ds_attr_value *order = &op->attr[0];
    if (order->n_ints == 0) {
        *index = i;
        return false;
    }
    *index = 0;
    for (int j = 0; j < i; j++)
        *index += order->ints[j] == order->ints[i] ? 1 : 0;
    return order->ints[i] == 1;
}

const ds_signature *ds_operands_at(const ds_op *op, int i)
{
    int index;
    return locate(op, i, &index) ? &op->weight[index] : &op->in[index];
}

static ds_status check_order(const ds_op *op, int n_operands)
{
    const char *name = op->def->name;
    const ds_attr_value *order = &op->attr[0];
    int n_weights = 0;
    for (int i = 0; i < order->n_ints; i++) {
        DS_CHECK(order->ints[i] == 0 || order->ints[i] == 1, DS_ARGUMENT,
                 "%s: attribute 'order' holds 0 (input) and 1 (weight), got %lld", name,
                 (long long)order->ints[i]);
        n_weights += (int)order->ints[i];
    }
    DS_CHECK(order->n_ints == 0 || order->n_ints == n_operands, DS_ARGUMENT,
             "%s: attribute 'order' must have %d entries, got %d", name, n_operands, order->n_ints);
    DS_CHECK(op->n_inputs == n_operands - n_weights && op->n_weights == n_weights, DS_ARGUMENT,
             "%s: expected %d inputs and %d weights by its order, got %d and %d", name,
             n_operands - n_weights, n_weights, op->n_inputs, op->n_weights);
    for (int i = 0; i < n_weights; i++)
        DS_CHECK(ds_op_has_weight(op, i), DS_ARGUMENT, "%s: its weight %d is missing", name, i);
    return DS_OK;
}

/* Size of dimension d of a shape of `rank` dimensions to which this one is aligned at the right. */
static int64_t aligned(const ds_signature *signature, int rank, int d)
{
    const int own = d - (rank - signature->rank);
    return own < 0 ? 1 : signature->shape[own];
}

ds_status ds_operands_infer(ds_op *op, int n_operands)
{
    DS_TRY(check_order(op, n_operands));
    ds_signature shape = *ds_operands_at(op, 0);
    for (int i = 1; i < n_operands; i++) {
        const ds_signature *next = ds_operands_at(op, i);
        const int rank = shape.rank > next->rank ? shape.rank : next->rank;
        int64_t size[DS_MAX_RANK];
        for (int d = 0; d < rank; d++) {
            const int64_t a = aligned(&shape, rank, d), b = aligned(next, rank, d);
            if (a != b && a != 1 && b != 1) {
                char first[160], second[160];
                return ds_fail(DS_SHAPE, "%s: features of shapes %s and %s do not broadcast",
                               op->def->name, ds_signature_text(&shape, first, sizeof first),
                               ds_signature_text(next, second, sizeof second));
            }
            size[d] = a == 1 ? b : a;
        }
        shape.rank = rank;
        for (int d = 0; d < rank; d++)
            shape.shape[d] = size[d];
    }
    shape.dtype = op->out[0].dtype;
    shape.rate = op->in[0].rate;
    op->out[0] = shape;
    return DS_OK;
}

ds_status ds_operands_require_real(const ds_op *op, int first, int n_operands)
{
    const ds_dtype dtype = ds_operands_at(op, first)->dtype;
    for (int i = first; i < first + n_operands; i++) {
        const ds_dtype own = ds_operands_at(op, i)->dtype;
        DS_CHECK(own == DS_F32 || own == DS_F64, DS_DTYPE,
                 "%s: operand %d must be float32 or float64, got %s", op->def->name, i,
                 ds_dtype_name(own));
        DS_CHECK(own == dtype, DS_DTYPE, "%s: operand %d is %s but operand %d is %s", op->def->name,
                 first, ds_dtype_name(dtype), i, ds_dtype_name(own));
    }
    return DS_OK;
}

ds_status ds_operands_require_bool(const ds_op *op, int first, int n_operands)
{
    for (int i = first; i < first + n_operands; i++) {
        const ds_dtype own = ds_operands_at(op, i)->dtype;
        DS_CHECK(own == DS_BOOL, DS_DTYPE, "%s: operand %d must be bool, got %s", op->def->name, i,
                 ds_dtype_name(own));
    }
    return DS_OK;
}

/* Elements from one index of dimension d to the next: 0 where the operand is broadcast along it. */
static int64_t stride_of(const ds_signature *signature, int rank, int d)
{
    if (aligned(signature, rank, d) == 1)
        return 0;
    int64_t stride = 1;
    for (int own = d - (rank - signature->rank) + 1; own < signature->rank; own++)
        stride *= signature->shape[own];
    return stride;
}

void ds_operands_forward(const ds_op *op, const ds_run *run, int n_operands, ds_walk_visit visit,
                         const void *context)
{
    const ds_signature *out = &op->out[0];
    int index[DS_WALK_OPERANDS];
    bool weight[DS_WALK_OPERANDS];
    size_t element[DS_WALK_OPERANDS];
    int64_t frame[DS_WALK_OPERANDS]; /* elements from frame to frame */
    int64_t stride[DS_MAX_RANK][DS_WALK_OPERANDS];
    for (int i = 0; i < n_operands; i++) {
        const ds_signature *own = ds_operands_at(op, i);
        weight[i] = locate(op, i, &index[i]);
        element[i] = ds_dtype_bytes(own->dtype);
        frame[i] = weight[i] ? 0 : ds_signature_elements(own);
        for (int d = 0; d < out->rank; d++)
            stride[d][i] = stride_of(own, out->rank, d);
    }
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *target = &run->out[r];
        if (target->m1 <= target->m0)
            continue;
        ds_walk walk = {.n_operands = n_operands};
        ds_walk_add(&walk, target->m1 - target->m0, frame);
        for (int d = 0; d < out->rank; d++)
            ds_walk_add(&walk, out->shape[d], stride[d]);
        const void *x[DS_WALK_OPERANDS];
        for (int i = 0; i < n_operands; i++) {
            x[i] = weight[i] ? run->weights[index[i]]
                             : ds_at(&run->in[(size_t)index[i] * run->n_rows + r], target->m0,
                                     (size_t)frame[i] * element[i]);
        }
        ds_walk_run(&walk, target->data, ds_dtype_bytes(out->dtype), x, element, visit, context);
    }
}
