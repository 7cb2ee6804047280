/* ops/fused.h: a product with the operators that follow it as its epilogue.
 *
 * A fused operator is a copy of the product's whose output is the last step's. A stream that a step takes as
 * its operand is one more input, in lockstep with the output; the steps' weights follow at
 * DS_FUSED_WEIGHTS. Its forward is the product's, whose run says what to finish with. */
#pragma once
#include "ops/op.h"

enum { DS_FUSED_STEPS = 6, DS_FUSED_WEIGHTS = 4 };

typedef struct ds_fused_step {
    const ds_op *op;
    ds_epilogue_step epilogue; /* without its operand */
    bool stream;               /* its operand is the additional input */
    int weight;                /* the first of its weights */
} ds_fused_step;

typedef struct ds_fused {
    ds_op op; /* first: a pointer to it is one to all of this */
    ds_op_def def;
    const ds_op *main;
    ds_fused_step steps[DS_FUSED_STEPS];
    int n_steps;
    bool glu;
    int stream; /* input; -1: none */
} ds_fused;

/* Whether an operator can be a step; fills of which kind, and its function. */
bool ds_fused_function(const ds_op *op, ds_step_kind *kind, int *function);
/* Describes what `main` with `steps` would be if `op` followed, which takes the product as input `input`
 * alone; false where it can't. operand: which input of op is the stream beside it, or -1. */
bool ds_fused_step_of(const ds_op *main, const ds_fused_step *steps, int n_steps, const ds_op *op,
                      int input, ds_fused_step *step, int *operand);
/* Makes the operator; stream: the operand's signature, where a step has one. */
ds_status ds_fused_create(ds_fused **fused, const ds_op *main, const ds_fused_step *steps,
                          int n_steps, const ds_signature *stream);
void ds_fused_destroy(ds_fused *fused);
/* The product of a fused operator, whose prepared weights come first; any other is its own. */
const ds_op *ds_fused_main(const ds_op *op);

/* What a run's products end with. */
typedef struct ds_finish {
    ds_epilogue epilogue;
    ds_epilogue_step steps[DS_FUSED_STEPS];
    void *workspace;
    const ds_window *stream; /* [n_rows], or NULL */
    const void **rows;       /* the stream's for each row of a product */
    size_t frame_bytes;      /* of the output and of the stream */
} ds_finish;

/* Where a product's rows of the stream that a step takes go, [rows of the product]; NULL where no step takes one. Who
 * lists a product's rows fills it: its row r begins, for place y of the output of the run's row r, at ds_run_operand. */
static inline const void **ds_run_operands(const ds_run *run)
{
    return run->finish != NULL && run->finish->stream != NULL ? run->finish->rows : NULL;
}

static inline const void *ds_run_operand(const ds_run *run, size_t r, const void *y)
{
    const ds_finish *const f = run->finish;
    return (const char *)ds_at(&f->stream[r], run->out[r].m0, f->frame_bytes) +
           ((const char *)y - (const char *)run->out[r].data);
}

/* Runs one product of an operator that finishes; depthwise where places are given. column: which of its
 * output's columns the product's first is. */
void ds_run_product(const ds_run *run, ds_product *product, const ds_taps *places, size_t column);
/* The same where rows hold their sums: of a product only its number of columns, y and n_rows. */
void ds_run_finish(const ds_run *run, ds_product *product);
