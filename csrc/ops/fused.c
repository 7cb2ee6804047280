/* ops/fused.c: which operators can be steps of an epilogue, and the operator that a product with its steps is.
 *
 * A step computes what its operator computes, by the same kernel, element by element, so that fusing leaves
 * every bit. */
#include "ops/fused.h"

#include <string.h>

#include "base/alloc.h"
#include "ops/operands.h"
#include "ops/packed.h"
#include "ops/registry.h"

static const struct {
    const ds_op_def *def;
    ds_step_kind kind;
    int function;
} fused_kinds[] = {
#define UNARY(name, ID, ...) {&ds_op_##name, DS_STEP_UNARY, DS_UNARY_##ID},
#define WHOLE UNARY
#define BINARY(name, ID, ...) {&ds_op_##name, DS_STEP_BINARY, DS_BINARY_##ID},
#include "kernels/pointwise.def"
    {&ds_op_batch_norm, DS_STEP_COLUMNS, 0},
    {&ds_op_glu, DS_STEP_GLU, 0},
};

/* The operand of a function of two that is not the product: another stream, or a constant that serves each row
 * of the output alike: one element, or one for each column. */
static bool fused_operand(const ds_op *op, int input, ds_fused_step *step, int *operand)
{
    const ds_signature *out = &op->out[0], *constant = &op->weight[0];
    const ds_attr_value *order = &op->attr[0];
    if (op->n_inputs == 2) {
        *operand = 1 - input;
        step->epilogue.swapped = input == 1;
        step->stream = true;
        return ds_signature_same_shape(&op->in[*operand], out);
    }
    const int64_t n = ds_signature_elements(constant);
    step->epilogue.swapped = order->n_ints > 0 && order->ints[0] == 1;
    step->epilogue.one = n == 1;
    return op->n_weights == 1 &&
           (n == 1 || (constant->rank > 0 && constant->shape[constant->rank - 1] == n &&
                       n == out->shape[out->rank - 1]));
}

bool ds_fused_function(const ds_op *op, ds_step_kind *kind, int *function)
{
    const size_t n_kinds = sizeof fused_kinds / sizeof *fused_kinds;
    size_t i = 0;
    while (i < n_kinds && fused_kinds[i].def != op->def)
        i++;
    if (i == n_kinds)
        return false;
    *kind = fused_kinds[i].kind;
    *function = fused_kinds[i].function;
    if (*kind == DS_STEP_UNARY && *function == DS_UNARY_GELU && op->attr[0].i == 1)
        *function = DS_UNARY_GELU_TANH;
    return true;
}

bool ds_fused_step_of(const ds_op *main, const ds_fused_step *steps, int n_steps, const ds_op *op,
                      int input, ds_fused_step *step, int *operand)
{
    const ds_signature *in = &op->in[input], *out = &op->out[0];
    const ds_fused_step *last = n_steps > 0 ? &steps[n_steps - 1] : NULL;
    ds_step_kind kind;
    int function;
    *operand = -1;
    if (!ds_fused_function(op, &kind, &function) || n_steps == DS_FUSED_STEPS || in->rank < 1 ||
        in->dtype != out->dtype || main->n_weights > DS_FUSED_WEIGHTS ||
        op->n_weights > DS_FUSED_WEIGHTS)
        return false;
    *step = (ds_fused_step){.op = op,
                            .epilogue = {.kind = kind,
                                         .function = function,
                                         .p = {op->attr[0].x, op->attr[1].x, op->attr[2].x},
                                         .n = ds_last_size(out)},
                            .weight = last ? last->weight + last->op->n_weights : DS_FUSED_WEIGHTS};
    ds_epilogue_step *e = &step->epilogue;
    if (e->kind == DS_STEP_GLU)
        return n_steps == 0 && (main->finishes & DS_FINISHES_GLU) != 0;
    if (!ds_signature_same_shape(in, out))
        return false;
    bool streams = false;
    for (int k = 0; k < n_steps; k++)
        streams |= steps[k].stream;
    if (e->kind == DS_STEP_BINARY &&
        (!fused_operand(op, input, step, operand) || (streams && step->stream)))
        return false;
    const bool alike = e->kind == DS_STEP_UNARY || e->one;
    return (main->finishes & (DS_FINISHES_STEPS | (alike ? DS_FINISHES_ELEMENTS : 0))) != 0;
}

/* ---------------------------------------------------------------- the operator */

static size_t fused_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_fused *f = (const ds_fused *)(const void *)op;
    size_t n_bytes = ds_op_prepared_bytes(f->main, k);
    for (int i = 0; i < f->n_steps; i++)
        n_bytes += ds_aligned(ds_op_prepared_bytes(f->steps[i].op, k));
    return n_bytes;
}

static void fused_prepare(const ds_op *op, void *prepared, const void *const *weights,
                          const ds_real_kernels *k)
{
    const ds_fused *f = (const ds_fused *)(const void *)op;
    ds_op_prepare(f->main, prepared, weights, k);
    char *to = (char *)prepared + ds_op_prepared_bytes(f->main, k);
    for (int i = 0; i < f->n_steps; i++) {
        const ds_op *step = f->steps[i].op;
        const size_t n_bytes = ds_op_prepared_bytes(step, k);
        if (n_bytes > 0)
            ds_op_prepare(step, to, weights + f->steps[i].weight, k);
        to += ds_aligned(n_bytes);
    }
}

static void fused_steps(const ds_fused *f, const ds_run *run, ds_finish *finish)
{
    const char *prepared = (const char *)run->prepared + ds_op_prepared_bytes(f->main, run->k);
    for (int i = f->glu ? 1 : 0; i < f->n_steps; i++) {
        const ds_fused_step *from = &f->steps[i];
        ds_epilogue_step *step = &finish->steps[finish->epilogue.n_steps++];
        *step = from->epilogue;
        if (step->kind == DS_STEP_COLUMNS)
            step->operand = prepared;
        else if (from->stream)
            step->rows = finish->rows;
        else if (step->kind == DS_STEP_BINARY)
            step->operand = run->weights[from->weight];
        prepared += ds_aligned(ds_op_prepared_bytes(from->op, run->k));
    }
}

/* Rows of products per output frame: products keep two pointers for each. */
static size_t fused_rows(const ds_op *main)
{
    return main->scratch.per_out / (2 * sizeof(void *));
}

/* Scratch: the workspace, the operand's rows, then what the product wants. */
static void fused_forward(const ds_op *op, const ds_run *run)
{
    const ds_fused *f = (const ds_fused *)(const void *)op;
    const ds_signature *sums = &f->main->out[0];
    const size_t n_rows = (size_t)run->frames_out * fused_rows(f->main);
    char *scratch = run->scratch;
    ds_finish finish = {.frame_bytes = ds_signature_bytes(&op->out[0]), .workspace = scratch};
    scratch += ds_aligned(ds_product_workspace(ds_last_size(sums), f->glu, run->k->element));
    if (f->stream >= 0) {
        finish.stream = run->in + (size_t)f->stream * run->n_rows;
        finish.rows = (const void **)(void *)scratch;
        scratch += ds_aligned(n_rows * sizeof(void *));
    }
    finish.epilogue = (ds_epilogue){.glu = f->glu, .steps = finish.steps};
    fused_steps(f, run, &finish);
    ds_run finished = *run;
    finished.scratch = scratch;
    finished.finish = &finish;
    f->main->def->forward(op, &finished);
}

ds_status ds_fused_create(ds_fused **fused, const ds_op *main, const ds_fused_step *steps,
                          int n_steps, const ds_signature *stream)
{
    ds_fused *f;
    DS_TRY(ds_allocate_zeroed(&main->allocator, (void **)&f, sizeof(ds_fused)));
    f->op = *main;
    f->def = *main->def;
    f->main = main;
    f->n_steps = n_steps;
    f->stream = -1;
    memcpy(f->steps, steps, (size_t)n_steps * sizeof *steps);
    f->def.prepared_bytes = fused_prepared_bytes;
    f->def.prepare = fused_prepare;
    f->def.forward = fused_forward;
    ds_op *op = &f->op;
    op->def = &f->def;
    op->out[0] = steps[n_steps - 1].op->out[0];
    f->glu = steps[0].epilogue.kind == DS_STEP_GLU;
    for (int i = 0; i < n_steps; i++) {
        for (int w = 0; w < steps[i].op->n_weights; w++)
            op->weight[steps[i].weight + w] = steps[i].op->weight[w];
        op->n_weights = steps[i].weight + steps[i].op->n_weights;
    }
    const ds_signature *sums = &main->out[0];
    op->scratch.per_call += 2 * (size_t)DS_ALIGNMENT +
                            ds_product_workspace(ds_last_size(sums), f->glu, ds_op_element(main));
    if (stream != NULL) {
        f->stream = op->n_inputs;
        op->in[op->n_inputs++] = *stream;
        ds_root(&op->need, ds_m(&op->need));
        op->scratch.per_out += fused_rows(main) * sizeof(void *);
    }
    *fused = f;
    return DS_OK;
}

const ds_op *ds_fused_main(const ds_op *op)
{
    return op->def->forward == fused_forward ? ((const ds_fused *)(const void *)op)->main : op;
}

void ds_fused_destroy(ds_fused *fused)
{
    const ds_allocator allocator = fused->op.allocator;
    ds_release(&allocator, fused, sizeof *fused);
}

/* ---------------------------------------------------------------- runs */

void ds_run_finish(const ds_run *run, ds_product *product)
{
    const ds_finish *finish = run->finish;
    if (finish == NULL)
        return;
    product->epilogue = &finish->epilogue;
    run->k->finish(product);
}

void ds_run_product(const ds_run *run, ds_product *product, const ds_taps *places, size_t column)
{
    const ds_finish *finish = run->finish;
    ds_finish shifted;
    if (finish != NULL && column > 0) {
        shifted = *finish;
        shifted.epilogue.steps = shifted.steps;
        for (size_t i = 0; i < shifted.epilogue.n_steps; i++)
            if (shifted.steps[i].operand != NULL && !shifted.steps[i].one)
                shifted.steps[i].operand =
                    (const char *)shifted.steps[i].operand + column * run->k->element;
        finish = &shifted;
    }
    if (finish != NULL) {
        product->epilogue = &finish->epilogue;
        product->workspace = finish->workspace;
    }
    if (places != NULL)
        run->k->depthwise(product, *places);
    else
        ds_product_run(run->k, product, run->pool);
}
