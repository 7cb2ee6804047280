/* ops/logical.c: logic on bool (torch.logical_not, logical_and, logical_or).
 *
 * A bool is a byte; any but 0 is true, and results are 0 or 1. All counts are those of input 0. */
#include "ops/operands.h"
#include "ops/registry.h"

static const ds_attr_def attrs[] = {DS_OPERANDS_ORDER, {0}};

static ds_status infer_not(ds_op *op)
{
    DS_CHECK(op->in[0].dtype == DS_BOOL, DS_DTYPE, "logical_not: its input must be bool, got %s",
             ds_dtype_name(op->in[0].dtype));
    return DS_OK;
}

static void forward_not(const ds_op *op, const ds_run *run)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 < out->m1) {
            const uint8_t *x = ds_at(&run->in[r], out->m0, n_bytes);
            uint8_t *y = out->data;
            const size_t n = (size_t)(out->m1 - out->m0) * n_bytes;
            for (size_t i = 0; i < n; i++) {
                y[i] = x[i] == 0;
            }
        }
    }
}

static ds_status infer_binary(ds_op *op)
{
    DS_TRY(ds_operands_infer(op, 2));
    DS_TRY(ds_operands_require_bool(op, 0, 2));
    op->out[0].dtype = DS_BOOL;
    return DS_OK;
}

static void visit_and(const void *context, void *y, const void *const *x, size_t n,
                      const size_t *step)
{
    (void)context;
    const uint8_t *a = x[0], *b = x[1];
    uint8_t *to = y;
    for (size_t i = 0; i < n; i++) {
        to[i] = (uint8_t)((a[i * step[0]] != 0) & (b[i * step[1]] != 0));
    }
}

static void visit_or(const void *context, void *y, const void *const *x, size_t n,
                     const size_t *step)
{
    (void)context;
    const uint8_t *a = x[0], *b = x[1];
    uint8_t *to = y;
    for (size_t i = 0; i < n; i++) {
        to[i] = (uint8_t)((a[i * step[0]] != 0) | (b[i * step[1]] != 0));
    }
}

static void forward_and(const ds_op *op, const ds_run *run)
{
    ds_operands_forward(op, run, 2, visit_and, NULL);
}

static void forward_or(const ds_op *op, const ds_run *run)
{
    ds_operands_forward(op, run, 2, visit_or, NULL);
}

const ds_op_def ds_op_logical_not = {.name = "logical_not",
                                     .doc = "True where the input is false.",
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .n_values = 1,
                                     .flags = DS_OP_INPLACE,
                                     .infer = infer_not,
                                     .forward = forward_not};

const ds_op_def ds_op_logical_and = {.name = "logical_and",
                                     .doc = "True where a and b are.",
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .n_values = -1,
                                     .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_INPLACE,
                                     .attrs = attrs,
                                     .weights = "constant*",
                                     .infer = infer_binary,
                                     .forward = forward_and};

const ds_op_def ds_op_logical_or = {.name = "logical_or",
                                    .doc = "True where a or b is, or both.",
                                    .n_inputs = 1,
                                    .n_outputs = 1,
                                    .n_values = -1,
                                    .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_INPLACE,
                                    .attrs = attrs,
                                    .weights = "constant*",
                                    .infer = infer_binary,
                                    .forward = forward_or};
