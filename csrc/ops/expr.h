/* ops/expr.h: counts and need as data.
 *
 * A program is a list of integer expressions over the pairs of an operator's inputs (and, for need, the
 * number m of output frames already out). The driver evaluates it, the enumerator analyses it,
 * exporters translate it into a graph's own integer operations. Nodes refer to earlier nodes only.
 * Arithmetic saturates at +-DS_NEVER, so that no position overflows. */
#pragma once
#include "batch/value.h"

#define DS_NEVER ((int64_t)1 << 62) /* need: nothing of this input is kept */

enum { DS_PROGRAM_NODES = 96, DS_PROGRAM_ROOTS = 32 };

typedef enum ds_expr_code {
    DS_EXPR_CONST, /* k */
    DS_EXPR_KNOWN, /* of input a */
    DS_EXPR_TOTAL, /* of input a */
    DS_EXPR_M,     /* need only */
    DS_EXPR_ADD,
    DS_EXPR_SUB,
    DS_EXPR_MUL,
    DS_EXPR_FLOORDIV, /* rounds down, also below zero */
    DS_EXPR_CEILDIV,
    DS_EXPR_MIN,
    DS_EXPR_MAX,
    DS_EXPR_SELECT /* a > 0 ? b : c */
} ds_expr_code;

typedef struct ds_expr_node {
    ds_expr_code code;
    int a, b, c;
    int64_t k;
} ds_expr_node;

typedef struct ds_program {
    ds_expr_node nodes[DS_PROGRAM_NODES];
    int n_nodes;
    int roots[DS_PROGRAM_ROOTS]; /* meaning by use: see op.h */
    int n_roots;
    bool full; /* a node or root did not fit: the program is unusable */
} ds_program;

/* An expression is the index of its node. */
typedef int ds_expr;

ds_expr ds_const(ds_program *p, int64_t k);
ds_expr ds_given(ds_program *p, ds_expr_code code, int input);
#define ds_known(p, input) ds_given(p, DS_EXPR_KNOWN, input)
#define ds_total(p, input) ds_given(p, DS_EXPR_TOTAL, input)
#define ds_m(p) ds_given(p, DS_EXPR_M, 0)
/* A code of two operands; with a constant for the second. What has no effect (a + 0, a * 1, a / 1) adds no node. */
ds_expr ds_combine(ds_program *p, ds_expr_code code, ds_expr a, ds_expr b);
ds_expr ds_combine_k(ds_program *p, ds_expr_code code, ds_expr a, int64_t k);
#define ds_add(p, a, b) ds_combine(p, DS_EXPR_ADD, a, b)
#define ds_sub(p, a, b) ds_combine(p, DS_EXPR_SUB, a, b)
#define ds_mul(p, a, b) ds_combine(p, DS_EXPR_MUL, a, b)
#define ds_floordiv(p, a, b) ds_combine(p, DS_EXPR_FLOORDIV, a, b)
#define ds_ceildiv(p, a, b) ds_combine(p, DS_EXPR_CEILDIV, a, b)
#define ds_min(p, a, b) ds_combine(p, DS_EXPR_MIN, a, b)
#define ds_max(p, a, b) ds_combine(p, DS_EXPR_MAX, a, b)
#define ds_add_k(p, a, k) ds_combine_k(p, DS_EXPR_ADD, a, k)
#define ds_mul_k(p, a, k) ds_combine_k(p, DS_EXPR_MUL, a, k)
#define ds_floordiv_k(p, a, k) ds_combine_k(p, DS_EXPR_FLOORDIV, a, k)
#define ds_ceildiv_k(p, a, k) ds_combine_k(p, DS_EXPR_CEILDIV, a, k)
ds_expr ds_select(ds_program *p, ds_expr positive, ds_expr then, ds_expr otherwise);
/* A Length function: codes[2i] is 0 (+), 1 (*), 2 (//), 5 (max) with the constant codes[2i + 1];
 * n_codes counts entries, two for each step. */
ds_expr ds_length_function(ds_program *p, ds_expr a, const int64_t *codes, int n_codes);
/* The same of a number; a code 3 leaves the rest of a division, 4 the lesser of two. */
int64_t ds_length_at(int64_t a, const int64_t *codes, int n_codes);
/* The next root. */
void ds_root(ds_program *p, ds_expr e);

/* a / b rounded down, b > 0. */
static inline int64_t ds_floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* One operation, saturating; those of two operands ignore c. */
int64_t ds_expr_apply(ds_expr_code code, int64_t a, int64_t b, int64_t c);
/* Evaluates all nodes; results[i] is root i. pairs: one per input. */
void ds_program_eval(const ds_program *p, const ds_pair *pairs, int64_t m, int64_t *results);
