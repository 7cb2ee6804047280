/* ops/unary.c: functions of one operand, element by element (torch.relu, torch.exp, ...).
 *
 * The table at the end has one line per operator; the functions are those of kernels.h. All counts
 * are those of the input. */
#include "ops/registry.h"

#include <math.h>

static const ds_attr_def none[] = {{0}};

static const ds_attr_def gelu_attrs[] = {
    {"approximate", DS_ATTR_CHOICE, .choices = "none|tanh", .doc = "none: by the error function"},
    {0}};

static const ds_attr_def clamp_attrs[] = {
    {"min", DS_ATTR_REAL, .x = -INFINITY, .doc = "least value"},
    {"max", DS_ATTR_REAL, .x = INFINITY, .doc = "greatest value, wins over min"},
    {0}};

static const ds_attr_def softplus_attrs[] = {
    {"beta", DS_ATTR_REAL, .x = 1.0, .doc = "log(1 + exp(beta x)) / beta"},
    {"threshold", DS_ATTR_REAL, .x = 20.0, .doc = "x itself where beta x is above it"},
    {0}};

static const ds_attr_def elu_attrs[] = {
    {"alpha", DS_ATTR_REAL, .x = 1.0, .doc = "alpha expm1(input_scale x) below zero"},
    {"scale", DS_ATTR_REAL, .x = 1.0, .doc = "scale x above zero"},
    {"input_scale", DS_ATTR_REAL, .x = 1.0, .doc = "of x, below zero"},
    {0}};

static ds_status infer(ds_op *op)
{
    return ds_op_require_real(op);
}

static void run_unary(const ds_op *op, const ds_run *run, ds_unary function)
{
    if (function == DS_UNARY_GELU && op->attr[0].i == 1) {
        function = DS_UNARY_GELU_TANH;
    }
    const double p[3] = {op->attr[0].x, op->attr[1].x, op->attr[2].x};
    const size_t n = (size_t)ds_signature_elements(&op->in[0]);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 < out->m1) {
            run->k->unary(function, out->data, ds_at(&run->in[r], out->m0, n * ds_op_element(op)),
                          (size_t)(out->m1 - out->m0) * n, p);
        }
    }
}

#define UNARY(op_name, function, op_attrs, text)                      \
    static void forward_##op_name(const ds_op *op, const ds_run *run) \
    {                                                                 \
        run_unary(op, run, function);                                 \
    }                                                                 \
    const ds_op_def ds_op_##op_name = {.name = #op_name,              \
                                       .doc = text,                   \
                                       .n_inputs = 1,                 \
                                       .n_outputs = 1,                \
                                       .n_values = 1,                 \
                                       .flags = DS_OP_INPLACE,        \
                                       .attrs = op_attrs,             \
                                       .infer = infer,                \
                                       .forward = forward_##op_name};

UNARY(relu, DS_UNARY_RELU, none, "max(x, 0)")
UNARY(gelu, DS_UNARY_GELU, gelu_attrs, "x times the normal distribution function of x")
UNARY(silu, DS_UNARY_SILU, none, "x sigmoid(x)")
UNARY(sigmoid, DS_UNARY_SIGMOID, none, "1 / (1 + exp(-x))")
UNARY(tanh, DS_UNARY_TANH, none, "The hyperbolic tangent.")
UNARY(exp, DS_UNARY_EXP, none, "e to the power of x")
UNARY(log, DS_UNARY_LOG, none, "The natural logarithm.")
UNARY(sqrt, DS_UNARY_SQRT, none, "The square root.")
UNARY(rsqrt, DS_UNARY_RSQRT, none, "1 / sqrt(x)")
UNARY(abs, DS_UNARY_ABS, none, "The absolute value.")
UNARY(neg, DS_UNARY_NEG, none, "-x")
UNARY(reciprocal, DS_UNARY_RECIPROCAL, none, "1 / x")
UNARY(square, DS_UNARY_SQUARE, none, "x x")
UNARY(clamp, DS_UNARY_CLAMP, clamp_attrs, "x held between min and max")
UNARY(sin, DS_UNARY_SIN, none, "The sine.")
UNARY(cos, DS_UNARY_COS, none, "The cosine.")
UNARY(log1p, DS_UNARY_LOG1P, none, "log(1 + x)")
UNARY(expm1, DS_UNARY_EXPM1, none, "exp(x) - 1")
UNARY(erf, DS_UNARY_ERF, none, "The error function.")
UNARY(log2, DS_UNARY_LOG2, none, "The logarithm to base 2.")
UNARY(log10, DS_UNARY_LOG10, none, "The logarithm to base 10.")
UNARY(floor, DS_UNARY_FLOOR, none, "The next integer below.")
UNARY(ceil, DS_UNARY_CEIL, none, "The next integer above.")
UNARY(round, DS_UNARY_ROUND, none, "The nearest integer, halves to even.")
UNARY(sign, DS_UNARY_SIGN, none, "-1, 0 or 1")
UNARY(softplus, DS_UNARY_SOFTPLUS, softplus_attrs, "A smooth max(x, 0).")
UNARY(logsigmoid, DS_UNARY_LOGSIGMOID, none, "log(sigmoid(x))")
UNARY(elu, DS_UNARY_ELU, elu_attrs, "x above zero, an exponential below, scaled")
UNARY(sinh, DS_UNARY_SINH, none, "The hyperbolic sine.")
UNARY(cosh, DS_UNARY_COSH, none, "The hyperbolic cosine.")
UNARY(asin, DS_UNARY_ASIN, none, "The angle whose sine is x.")
UNARY(acos, DS_UNARY_ACOS, none, "The angle whose cosine is x.")
UNARY(atan, DS_UNARY_ATAN, none, "The angle whose tangent is x.")
UNARY(asinh, DS_UNARY_ASINH, none, "What has x as its hyperbolic sine.")
UNARY(acosh, DS_UNARY_ACOSH, none, "What has x as its hyperbolic cosine.")
UNARY(atanh, DS_UNARY_ATANH, none, "What has x as its hyperbolic tangent.")
UNARY(trunc, DS_UNARY_TRUNC, none, "The next integer towards zero.")
UNARY(erfc, DS_UNARY_ERFC, none, "1 - erf(x), exact for small ones.")
