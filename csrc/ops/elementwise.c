/* ops/elementwise.c: functions of two or three operands, element by element (torch.add, sub, mul,
 * div, minimum, maximum, pow, prelu, atan2, hypot, fmod, remainder, floor_divide, copysign; eq, ne,
 * lt, le, gt, ge, which give bool; where).
 *
 * Operands are streams or constants and broadcast within a frame (operands.h). All counts are those
 * of input 0; streams progress in lockstep. */
#include "ops/operands.h"
#include "ops/registry.h"

static const ds_attr_def attrs[] = {DS_OPERANDS_ORDER, {0}};

typedef struct context {
    const ds_real_kernels *k;
    int function;
} context;

/* ---------------------------------------------------------------- arithmetic */

static ds_status infer_binary(ds_op *op)
{
    DS_TRY(ds_operands_infer(op, 2));
    DS_TRY(ds_operands_require_real(op, 0, 2));
    op->out[0].dtype = ds_operands_at(op, 0)->dtype;
    return DS_OK;
}

static void visit_binary(const void *given, void *y, const void *const *x, size_t n,
                         const size_t *step)
{
    const context *c = given;
    c->k->binary((ds_binary)c->function, y, x[0], x[1], n, step[0], step[1]);
}

/* One definition: its name, its kernel, its one-line documentation. */
#define BINARY(op_name, function, text)                                                          \
    static void forward_##op_name(const ds_op *op, const ds_run *run)                            \
    {                                                                                            \
        ds_operands_forward(op, run, 2, visit_binary, &(context){run->k, function});             \
    }                                                                                            \
    const ds_op_def ds_op_##op_name = {.name = #op_name,                                         \
                                       .doc = text,                                              \
                                       .n_inputs = 1,                                            \
                                       .n_outputs = 1,                                           \
                                       .n_values = -1,                                           \
                                       .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_INPLACE, \
                                       .attrs = attrs,                                           \
                                       .weights = "constant*",                                   \
                                       .infer = infer_binary,                                    \
                                       .forward = forward_##op_name};

BINARY(add, DS_BINARY_ADD, "a + b")
BINARY(sub, DS_BINARY_SUB, "a - b")
BINARY(mul, DS_BINARY_MUL, "a * b")
BINARY(div, DS_BINARY_DIV, "a / b")
BINARY(minimum, DS_BINARY_MINIMUM, "The lesser of a and b; NaN wins.")
BINARY(maximum, DS_BINARY_MAXIMUM, "The greater of a and b; NaN wins.")
BINARY(pow, DS_BINARY_POW, "a to the power of b")
BINARY(prelu, DS_BINARY_PRELU, "a above zero, else b times a")
BINARY(atan2, DS_BINARY_ATAN2, "The angle of the point (b, a).")
BINARY(hypot, DS_BINARY_HYPOT, "sqrt(a a + b b)")
BINARY(fmod, DS_BINARY_FMOD, "What a division leaves; the sign is that of a.")
BINARY(remainder, DS_BINARY_REMAINDER, "What a division leaves; the sign is that of b.")
BINARY(floor_divide, DS_BINARY_FLOOR_DIVIDE, "a / b, rounded down.")
BINARY(copysign, DS_BINARY_COPYSIGN, "a with the sign of b")

/* ---------------------------------------------------------------- comparison */

static ds_status infer_compare(ds_op *op)
{
    DS_TRY(ds_operands_infer(op, 2));
    DS_TRY(ds_operands_require_real(op, 0, 2));
    op->out[0].dtype = DS_BOOL;
    return DS_OK;
}

static void visit_compare(const void *given, void *y, const void *const *x, size_t n,
                          const size_t *step)
{
    const context *c = given;
    c->k->compare((ds_compare)c->function, y, x[0], x[1], n, step[0], step[1]);
}

#define COMPARE(op_name, function, text)                                              \
    static void forward_##op_name(const ds_op *op, const ds_run *run)                 \
    {                                                                                 \
        ds_operands_forward(op, run, 2, visit_compare, &(context){run->k, function}); \
    }                                                                                 \
    const ds_op_def ds_op_##op_name = {.name = #op_name,                              \
                                       .doc = text,                                   \
                                       .n_inputs = 1,                                 \
                                       .n_outputs = 1,                                \
                                       .n_values = -1,                                \
                                       .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC,      \
                                       .attrs = attrs,                                \
                                       .weights = "constant*",                        \
                                       .infer = infer_compare,                        \
                                       .forward = forward_##op_name};

COMPARE(eq, DS_COMPARE_EQ, "a == b")
COMPARE(ne, DS_COMPARE_NE, "a != b")
COMPARE(lt, DS_COMPARE_LT, "a < b")
COMPARE(le, DS_COMPARE_LE, "a <= b")
COMPARE(gt, DS_COMPARE_GT, "a > b")
COMPARE(ge, DS_COMPARE_GE, "a >= b")

/* ---------------------------------------------------------------- choice */

static ds_status infer_where(ds_op *op)
{
    DS_TRY(ds_operands_infer(op, 3));
    DS_TRY(ds_operands_require_bool(op, 0, 1));
    DS_TRY(ds_operands_require_real(op, 1, 2));
    op->out[0].dtype = ds_operands_at(op, 1)->dtype;
    return DS_OK;
}

static void visit_where(const void *given, void *y, const void *const *x, size_t n,
                        const size_t *step)
{
    const context *c = given;
    c->k->where(y, x[0], x[1], x[2], n, step[0], step[1], step[2]);
}

static void forward_where(const ds_op *op, const ds_run *run)
{
    ds_operands_forward(op, run, 3, visit_where, &(context){run->k, 0});
}

const ds_op_def ds_op_where = {.name = "where",
                               .doc = "Elements of a where the condition holds, else of b.",
                               .n_inputs = 1,
                               .n_outputs = 1,
                               .n_values = -1,
                               .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC,
                               .attrs = attrs,
                               .weights = "constant*",
                               .infer = infer_where,
                               .forward = forward_where};
