/* exec/step.h: one step of a batch of streams, whoever makes it: ds_model_step, Python's Engine.step.
 *
 *     ds_step_take        room for n rows; the caller fills slots (entered by it), n_frames and ended
 *     ds_step_begin       integers and memory; then how many output frames come is known
 *     ds_step_put         per input and row: the caller's frames, in its own layout and element type
 *     ds_step_check       whether their values can be taken: the last that may fail
 *     ds_step_run         values: the streams advance
 *     ds_step_get         per output and row: frames, into the caller's layout
 *     ds_step_give        always, and last
 *
 * Up to ds_step_check a step that is given back has changed nothing. */
#ifndef DS_EXEC_STEP_H
#define DS_EXEC_STEP_H
#include <pthread.h>

#include "batch/layout.h"
#include "exec/engine.h"

typedef struct ds_step {
    struct ds_step *next; /* at rest */
    ds_engine *engine;
    const ds_plan *plan; /* the engine's */
    ds_arena arena;      /* the caller may push what it needs for this step */
    ds_batch *batch;
    size_t n_rows;
    ds_slot **slots;   /* [n_rows] */
    int64_t *n_frames; /* [n_inputs][n_rows] new frames; 0 at first */
    bool *ended,
        *bad; /* [n_rows]; false at first. bad: after an error, the rows that it concerns */
} ds_step;

/* The steps of one engine that are at rest; fields are private. */
typedef struct ds_steps {
    ds_engine *engine; /* kept */
    ds_allocator allocator;
    pthread_mutex_t lock;
    ds_step *resting;
} ds_steps;

/* Errors: DS_NO_MEMORY. */
ds_status ds_steps_init(ds_steps *steps, ds_engine *engine);
/* Before the engine is destroyed; zeroed ones are allowed. */
void ds_steps_free(ds_steps *steps);

/* Errors: DS_NO_MEMORY. Thread: any. */
ds_status ds_step_take(ds_steps *steps, ds_step **step, size_t n_rows);
void ds_step_give(ds_steps *steps, ds_step *step);
/* Errors: those of ds_batch_begin. */
ds_status ds_step_begin(ds_step *step);
/* The element type must fit the input (ds_layout_fits); strides as in ds_layout_read. */
void ds_step_put(const ds_step *step, size_t input, size_t row, const void *frames,
                 const ptrdiff_t *strides, ds_element element);
/* Errors: those of ds_batch_check. */
ds_status ds_step_check(ds_step *step);
void ds_step_run(ds_step *step);
/* New frames of an output, and the absolute position of the first. */
int64_t ds_step_frames(const ds_step *step, size_t output, size_t row, int64_t *start);
/* Copies the n frames that there are of them. */
void ds_step_get(const ds_step *step, size_t output, size_t row, int64_t n, void *frames,
                 const ptrdiff_t *strides);

/* Signatures of inputs and outputs. */
static inline const ds_signature *ds_step_input(const ds_plan *plan, size_t input)
{
    return &plan->graph->edges[plan->graph->inputs[input]].signature;
}

static inline const ds_signature *ds_step_output(const ds_plan *plan, size_t output)
{
    return &plan->graph->edges[plan->graph->outputs[output]].signature;
}

#endif
