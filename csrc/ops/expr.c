/* ops/expr.c: builds and evaluates programs of integers.
 *
 * Building shares equal nodes and folds what is constant or without effect (a + 0, a * 1, a / 1,
 * (a + j) + k), so that counts that leave a pair as it is come out as the bare input nodes: this is
 * how ds_op_create sees that an instance keeps its counts. Folding differs from evaluation only
 * where a sum would have saturated, which no stream reaches. */
#include "ops/expr.h"

static int64_t saturate(int64_t a)
{
    return a > DS_NEVER ? DS_NEVER : a < -DS_NEVER ? -DS_NEVER : a;
}

static int64_t add(int64_t a, int64_t b)
{
    if (b > 0 && a > DS_NEVER - b)
        return DS_NEVER;
    if (b < 0 && a < -DS_NEVER - b)
        return -DS_NEVER;
    return a + b;
}

static int64_t mul(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return 0;
    const int64_t size_a = a < 0 ? -a : a, size_b = b < 0 ? -b : b;
    if (size_a > DS_NEVER / size_b)
        return (a < 0) == (b < 0) ? DS_NEVER : -DS_NEVER;
    return a * b;
}

/* Nothing divides by zero; if it did, the result would be 0. */
static int64_t floordiv(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t ds_expr_apply(ds_expr_code code, int64_t a, int64_t b, int64_t c)
{
    switch (code) {
    case DS_EXPR_ADD:
        return add(a, b);
    case DS_EXPR_SUB:
        return add(a, -b);
    case DS_EXPR_MUL:
        return mul(a, b);
    case DS_EXPR_FLOORDIV:
        return floordiv(a, b);
    case DS_EXPR_CEILDIV:
        return -floordiv(-a, b);
    case DS_EXPR_MIN:
        return a < b ? a : b;
    case DS_EXPR_MAX:
        return a > b ? a : b;
    case DS_EXPR_SELECT:
        return a > 0 ? b : c;
    default:
        return 0;
    }
}

static ds_expr node(ds_program *p, ds_expr_code code, int a, int b, int c, int64_t k)
{
    for (int i = 0; i < p->n_nodes; i++) {
        const ds_expr_node *n = &p->nodes[i];
        if (n->code == code && n->a == a && n->b == b && n->c == c && n->k == k)
            return i;
    }
    if (p->n_nodes >= DS_PROGRAM_NODES) {
        p->full = true;
        return 0;
    }
    p->nodes[p->n_nodes] = (ds_expr_node){code, a, b, c, k};
    return p->n_nodes++;
}

static bool is_const(const ds_program *p, ds_expr e)
{
    return p->nodes[e].code == DS_EXPR_CONST;
}

ds_expr ds_const(ds_program *p, int64_t k)
{
    return node(p, DS_EXPR_CONST, 0, 0, 0, saturate(k));
}

ds_expr ds_given(ds_program *p, ds_expr_code code, int input)
{
    return node(p, code, input, 0, 0, 0);
}

/* Whether the code gives its first operand where the second is k. */
static bool keeps(ds_expr_code code, int64_t k)
{
    const bool scales = code == DS_EXPR_MUL || code == DS_EXPR_FLOORDIV || code == DS_EXPR_CEILDIV;
    return (code == DS_EXPR_ADD && k == 0) || (scales && k == 1);
}

ds_expr ds_combine_k(ds_program *p, ds_expr_code code, ds_expr a, int64_t k)
{
    return keeps(code, k) ? a : ds_combine(p, code, a, ds_const(p, k));
}

ds_expr ds_combine(ds_program *p, ds_expr_code code, ds_expr a, ds_expr b)
{
    if ((code == DS_EXPR_ADD || code == DS_EXPR_MUL) && is_const(p, a) && !is_const(p, b))
        return ds_combine(p, code, b, a);
    if (a == b && (code == DS_EXPR_MIN || code == DS_EXPR_MAX))
        return a;
    if (!is_const(p, b))
        return node(p, code, a, b, 0, 0);
    const int64_t k = p->nodes[b].k;
    if (code == DS_EXPR_SUB)
        return ds_add_k(p, a, -k);
    if (keeps(code, k))
        return a;
    const ds_expr_node first = p->nodes[a];
    if (first.code == DS_EXPR_CONST)
        return ds_const(p, ds_expr_apply(code, first.k, k, 0));
    if (code == DS_EXPR_ADD && first.code == DS_EXPR_ADD && is_const(p, first.b)) {
        const int64_t sum = add(p->nodes[first.b].k, k);
        if (sum < DS_NEVER && sum > -DS_NEVER)
            return ds_add_k(p, first.a, sum);
    }
    return node(p, code, a, b, 0, 0);
}

ds_expr ds_select(ds_program *p, ds_expr positive, ds_expr then, ds_expr otherwise)
{
    if (then == otherwise)
        return then;
    if (is_const(p, positive))
        return p->nodes[positive].k > 0 ? then : otherwise;
    return node(p, DS_EXPR_SELECT, positive, then, otherwise, 0);
}

static const ds_expr_code length_codes[] = {[0] = DS_EXPR_ADD,
                                            [1] = DS_EXPR_MUL,
                                            [2] = DS_EXPR_FLOORDIV,
                                            [4] = DS_EXPR_MIN,
                                            [5] = DS_EXPR_MAX};

ds_expr ds_length_function(ds_program *p, ds_expr a, const int64_t *codes, int n_codes)
{
    for (int i = 0; i + 1 < n_codes; i += 2)
        a = ds_combine_k(p, length_codes[codes[i]], a, codes[i + 1]);
    return a;
}

int64_t ds_length_at(int64_t a, const int64_t *codes, int n_codes)
{
    for (int i = 0; i + 1 < n_codes; i += 2) {
        const int64_t k = codes[i + 1];
        if (codes[i] == 3)
            a -= floordiv(a, k) * k;
        else
            a = ds_expr_apply(length_codes[codes[i]], a, k, 0);
    }
    return a;
}

void ds_root(ds_program *p, ds_expr e)
{
    if (p->n_roots >= DS_PROGRAM_ROOTS) {
        p->full = true;
        return;
    }
    p->roots[p->n_roots++] = e;
}

void ds_program_eval(const ds_program *p, const ds_pair *pairs, int64_t m, int64_t *results)
{
    int64_t value[DS_PROGRAM_NODES];
    for (int i = 0; i < p->n_nodes; i++) {
        const ds_expr_node *n = &p->nodes[i];
        switch (n->code) {
        case DS_EXPR_CONST:
            value[i] = n->k;
            break;
        case DS_EXPR_KNOWN:
            value[i] = saturate(pairs[n->a].known);
            break;
        case DS_EXPR_TOTAL:
            value[i] = saturate(pairs[n->a].total);
            break;
        case DS_EXPR_M:
            value[i] = saturate(m);
            break;
        default:
            value[i] = ds_expr_apply(n->code, value[n->a], value[n->b], value[n->c]);
            break;
        }
    }
    for (int i = 0; i < p->n_roots; i++)
        results[i] = value[p->roots[i]];
}
