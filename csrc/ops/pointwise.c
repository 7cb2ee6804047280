/* ops/pointwise.c: functions of single elements (torch.relu, exp, add, eq, logical_and, where, ...), all but
 * where and logical_not by the lines of kernels/pointwise.def.
 *
 * One operand is a stream. Two or three are streams or constants and broadcast within a frame (operands.h);
 * streams progress in lockstep. All counts are those of input 0. */
#include <string.h>

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/operands.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- one operand */

/* The member is the function. */
static ds_unary unary_function(const ds_op *op)
{
    const bool other = op->def->member == DS_UNARY_GELU && op->attr[0].i == 1;
    return other ? DS_UNARY_GELU_TANH : (ds_unary)op->def->member;
}

static void unary_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const double p[3] = {op->attr[0].x, op->attr[1].x, op->attr[2].x};
    run->k->unary(unary_function(op), f->y[0], f->x[0], f->n * ds_elements(&op->in[0]), p);
}
DS_FRAMEWISE_FORWARD(unary)

static void unary_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const double p[3] = {op->attr[0].x, op->attr[1].x, op->attr[2].x};
    if (f->dx[0])
        b->run->k->unary_slope(unary_function(op), f->dx[0], f->g[0], f->x[0], f->y[0],
                               f->n * ds_elements(&op->in[0]), p);
}
DS_FRAMEWISE_BACKWARD(unary)

/* What each function's slope reads of a run. */
enum { READS_NONE, READS_Y = DS_READS_Y, READS_X = DS_READS_X };
enum {
#define SLOPE(ID, reads, ...) UNARY_READS_##ID = READS_##reads,
#define SLOPE_OF SLOPE
#include "kernels/pointwise.def"
};

#define UNWRAP(...) __VA_ARGS__
#define PARAMETER(word, value, text) {word, DS_ATTR_REAL, .x = value, .doc = text},
#define CHOICE(word, words, text) {word, DS_ATTR_CHOICE, .choices = words, .doc = text},
#define UNARY(op_name, ID, parameters, text, ...)                              \
    static const ds_attr_def op_name##_attrs[] = {UNWRAP parameters{0}};       \
    const ds_op_def ds_op_##op_name = {DS_OPERATOR_OF(op_name, text, 1, 1, 1), \
                                       .flags = DS_OP_INPLACE | DS_OP_REAL,    \
                                       .member = DS_UNARY_##ID,                \
                                       .attrs = op_name##_attrs,               \
                                       .forward = unary_forward,               \
                                       .backward = unary_backward,             \
                                       .reads = UNARY_READS_##ID};
#define WHOLE(op_name, ID, text, ...) UNARY(op_name, ID, (), text)
#include "kernels/pointwise.def"

/* Bools by way of a block of its own: compilers can't see that what is written is read no more. */
#define BOOLS(name, ...)                                                                \
    static void name##_bools(uint8_t *to, const uint8_t *a, const uint8_t *b, size_t n, \
                             size_t a_step, size_t b_step)                              \
    {                                                                                   \
        enum { BLOCK = 64 };                                                            \
        uint8_t block[BLOCK];                                                           \
        size_t done = 0;                                                                \
        for (; a_step == 1 && b_step == 1 && n - done >= BLOCK; done += BLOCK) {        \
            for (size_t i = 0; i < BLOCK; i++) {                                        \
                const uint8_t u = a[done + i], v = b[done + i];                         \
                block[i] = (uint8_t)(__VA_ARGS__);                                      \
            }                                                                           \
            memcpy(to + done, block, BLOCK);                                            \
        }                                                                               \
        for (; done < n; done++) {                                                      \
            const uint8_t u = a[done * a_step], v = b[done * b_step];                   \
            to[done] = (uint8_t)(__VA_ARGS__);                                          \
        }                                                                               \
    }
BOOLS(not, (u == 0) & (v == 0))

static void logical_not_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    (void)run;
    not_bools(f->y[0], f->x[0], f->x[0], f->n * ds_elements(&op->in[0]), 1, 1);
}
DS_FRAMEWISE_FORWARD(logical_not)

const ds_op_def ds_op_logical_not = {
    DS_OPERATOR_OF(logical_not, "True where the input is false.", 1, 1, 1), .shapes = "[..]: bool",
    .forward = logical_not_forward, .flags = DS_OP_INPLACE | DS_OP_CONSTANT};

/* ---------------------------------------------------------------- two or three operands */

static const ds_attr_def operands_attrs[] = {DS_OPERANDS_ORDER, {0}};

/* A kind of function by the types of its operands and of its result, as ds_operands_infer has them. */
#define KIND(kind, types, out)                                               \
    static ds_status kind##_infer(ds_op *op)                                 \
    {                                                                        \
        return ds_operands_infer(op, types, out);                            \
    }                                                                        \
    static void kind##_forward(const ds_op *op, const ds_run *run)           \
    {                                                                        \
        ds_operands_forward(op, run, sizeof types - 1, kind##_visit, false); \
    }
#define VISITOR(name)                                                            \
    static void name##_visit(const ds_op *op, const ds_real_kernels *k, void *y, \
                             const void *const *x, const ds_operands_rows *r)
#define OPERANDS(op_name, text, kind, which, flag, ...)                                   \
    const ds_op_def ds_op_##op_name = {DS_OPERATOR_OF(op_name, text, 1, 1, -1),           \
                                       .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | (flag), \
                                       .member = which,                                   \
                                       .attrs = operands_attrs,                           \
                                       .shapes = "constant*",                             \
                                       .infer = kind##_infer,                             \
                                       .forward = kind##_forward,                         \
                                       __VA_ARGS__};

VISITOR(binary)
{
    const ds_binary f = (ds_binary)op->def->member;
    const size_t *const row = r->row, *const step = r->step;
    if (op->out[0].dtype == DS_I64)
        k->whole->binary(f, y, x[0], x[1], r->n_rows, r->n, row[0], step[0], row[1], step[1]);
    else if (r->n_rows > 1)
        k->binary_rows(f, y, x[0], x[1], r->n_rows, r->n, row[0], step[0], row[1], step[1]);
    else
        k->binary(f, y, x[0], x[1], r->n, step[0], step[1]);
}
static ds_status binary_infer(ds_op *op)
{
    switch ((ds_binary)op->def->member) {
#define INTEGERS(ID, ...) case DS_BINARY_##ID:
#include "kernels/pointwise.def"
        return ds_operands_infer(op, "nn", 'n');
    default:
        return ds_operands_infer(op, "rr", 'n');
    }
}

static void binary_forward(const ds_op *op, const ds_run *run)
{
    ds_operands_forward(op, run, 2, binary_visit, op->def->member != DS_BINARY_POW);
}

static void binary_slopes(const ds_op *op, const ds_real_kernels *k, int operand, void *dx,
                          const void *g, const void *const *x, size_t n, const size_t *step)
{
    k->binary_slope((ds_binary)op->def->member, operand, dx, g, x[0], x[1], n, step[0], step[1]);
}

static void binary_backward(const ds_op *op, const ds_back *b)
{
    ds_operands_backward(op, b, 2, binary_slopes);
}

/* Operand 1 has the slopes where the condition, operand 0, holds, operand 2 the others. */
static void where_slopes(const ds_op *op, const ds_real_kernels *k, int operand, void *dx,
                         const void *g, const void *const *x, size_t n, const size_t *step)
{
    static const double zeros[1];
    (void)op;
    k->where(dx, x[0], operand == 1 ? g : zeros, operand == 1 ? zeros : g, n, step[0], operand == 1,
             operand != 1);
}

static void where_backward(const ds_op *op, const ds_back *b)
{
    ds_operands_backward(op, b, 3, where_slopes);
}

/* Whether slopes of two operands read these. */
enum {
#define SLOPES(ID, reads, of_u, of_v) BINARY_READS_##ID = READS_##reads != READS_NONE,
#include "kernels/pointwise.def"
};

VISITOR(compare)
{
    const bool whole = ds_operands_first(op)->dtype == DS_I64;
    (whole ? k->whole->compare : k->compare)((ds_compare)op->def->member, y, x[0], x[1], r->n,
                                             r->step[0], r->step[1]);
}
KIND(compare, "nn", 'b')

VISITOR(where)
{
    const bool whole = op->out[0].dtype == DS_I64;
    (whole ? k->whole->where : k->where)(y, x[0], x[1], x[2], r->n, r->step[0], r->step[1],
                                         r->step[2]);
}
KIND(where, "bnn", 'n')

#define BINARY(op_name, ID, text, ...)                                                          \
    OPERANDS(op_name, text, binary, DS_BINARY_##ID, DS_OP_INPLACE, .backward = binary_backward, \
             .reads = BINARY_READS_##ID ? DS_READS_ALL_X : 0)
#define COMPARE(op_name, ID, text, ...) \
    OPERANDS(op_name, text, compare, DS_COMPARE_##ID, DS_OP_CONSTANT, .backward = NULL)
#define LOGICAL(op_name, text, ...)                                   \
    BOOLS(op_name, __VA_ARGS__)                                       \
    VISITOR(op_name)                                                  \
    {                                                                 \
        (void)op;                                                     \
        (void)k;                                                      \
        op_name##_bools(y, x[0], x[1], r->n, r->step[0], r->step[1]); \
    }                                                                 \
    KIND(op_name, "bb", 'b')                                          \
    OPERANDS(op_name, text, op_name, 0, DS_OP_INPLACE | DS_OP_CONSTANT, .backward = NULL)
#include "kernels/pointwise.def"
OPERANDS(where, "Elements of a where the condition holds, else of b.", where, 0, 0,
         .backward = where_backward, .reads = DS_READS_X)
