/* ops/declared.c: operators whose integers are data, and whose values the caller computes: checks of their
 * programs. They have no forward, so they can stand in no graph. */
#include "ops/framewise.h"

#include <string.h>

#include "base/alloc.h"

static const ds_op_def definition = {
    DS_OPERATOR_OF(declared, "An operator whose integers are data.", 1, 1, -1),
    .flags = DS_OP_VARIADIC};

/* Nodes may refer to earlier nodes and to inputs that exist; m stands in need only. */
static ds_status check_node(const ds_expr_node *node, int i, size_t n_inputs, bool with_m)
{
    const int code = (int)node->code, operands[] = {node->a, node->b, node->c};
    const int n_operands = code < DS_EXPR_ADD ? 0 : code == DS_EXPR_SELECT ? 3 : 2;
    bool fits = code >= DS_EXPR_CONST && code <= DS_EXPR_SELECT;
    if (code == DS_EXPR_CONST)
        fits = node->k > -DS_NEVER && node->k <= DS_NEVER;
    if (code == DS_EXPR_KNOWN || code == DS_EXPR_TOTAL)
        fits = node->a >= 0 && (size_t)node->a < n_inputs;
    if (code == DS_EXPR_M)
        fits = with_m;
    for (int j = 0; j < n_operands; j++)
        fits = fits && operands[j] >= 0 && operands[j] < i;
    DS_CHECK(fits, DS_ARGUMENT, "declared: node %d of its integers refers to what is not there", i);
    return DS_OK;
}

static ds_status check_program(const ds_program *p, size_t n_roots, size_t n_inputs, bool with_m)
{
    DS_CHECK(!p->full && p->n_nodes <= DS_PROGRAM_NODES && p->n_roots == (int)n_roots, DS_ARGUMENT,
             "declared: expected %zu integers in at most %d nodes, got %d", n_roots,
             DS_PROGRAM_NODES, p->n_roots);
    for (int i = 0; i < p->n_nodes; i++)
        DS_TRY(check_node(&p->nodes[i], i, n_inputs, with_m));
    for (int r = 0; r < p->n_roots; r++)
        DS_CHECK(p->roots[r] >= 0 && p->roots[r] < p->n_nodes, DS_ARGUMENT,
                 "declared: root %d is no node", r);
    return DS_OK;
}

ds_status ds_op_declare(ds_op **op, const ds_allocator *allocator, const ds_signature *inputs,
                        size_t n_inputs, const ds_signature *outputs, size_t n_outputs,
                        const ds_program *counts, const ds_program *need)
{
    DS_CHECK(
        n_inputs >= 1 && n_inputs <= DS_MAX_INPUTS && n_outputs >= 1 && n_outputs <= DS_MAX_OUTPUTS,
        DS_ARGUMENT, "declared: 1 to %d inputs and 1 to %d outputs", DS_MAX_INPUTS, DS_MAX_OUTPUTS);
    DS_TRY(check_program(counts, 2 * n_outputs, n_inputs, false));
    DS_TRY(check_program(need, n_inputs, n_inputs, true));
    ds_op *o;
    DS_TRY(ds_allocate_zeroed(allocator, (void **)&o, sizeof(ds_op)));
    o->def = &definition;
    o->n_inputs = (int)n_inputs;
    o->n_outputs = (int)n_outputs;
    o->needs_frames = true; /* its author is not asked what comes of no frames */
    memcpy(o->in, inputs, n_inputs * sizeof *inputs);
    memcpy(o->out, outputs, n_outputs * sizeof *outputs);
    o->counts = *counts;
    o->need = *need;
    o->allocator = *allocator;
    *op = o;
    return DS_OK;
}
