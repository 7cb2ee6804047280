/* exec/step.h: one step of a ragged batch of streams, whoever makes it: ds_model_step, Python's Engine.step.
 *
 *     ds_step_take        (exec/engine.h) a step for n rows; the caller fills slots (entered by it, and
 *                         distinct), n_frames and ended
 *     ds_step_begin       integers, checks, sizes, all memory; then how many output frames come is known
 *     ds_step_put         per input and row: the caller's frames, in its own layout and element type
 *     ds_step_check       whether their values can be taken: the last that may fail
 *     ds_step_run         values: the streams' blocks are updated in place
 *     ds_step_get         per output and row: frames, into the caller's layout
 *     ds_step_give        always, and last
 *
 * Up to ds_step_check a step that is given back has changed nothing. Its rows are split among threads; every
 * row's bits are its own. */
#pragma once
#include "batch/layout.h"
#include "cpu/threads.h"
#include "exec/positions.h"
#include "exec/session.h"

typedef struct ds_step {
    struct ds_step *next; /* at rest */
    const ds_plan *plan;
    ds_arena arena; /* the caller may push what it needs for this step */
    size_t n_rows;
    ds_slot **slots;          /* [n_rows] */
    int64_t *n_frames;        /* [n_inputs][n_rows] new frames; 0 at first */
    bool *ended, *bad;        /* [n_rows]; false at first. bad: the rows that an error concerns */
    const char **input_names; /* [n_inputs] for messages; NULL at first: they have numbers */
    const int *watched; /* [n_watched] edges of nodes, whose new frames are copied as they arise */
    size_t n_watched;   /* 0 at first */
    void **seen;        /* [n_watched][n_rows]: where to */
    /* what follows is private (exec/rows.h) */
    ds_pool *pool;
    void *workspace; /* of the calling thread */
    ds_positions positions;
    struct ds_row *rows; /* [n_rows] */
    struct ds_group *groups;
    size_t n_groups;
    size_t n_bytes; /* of what the call takes, so far */
    bool within;    /* nodes may split themselves among threads */
    void **outputs; /* [n_outputs][n_rows]: where the new frames lie, after the run */
} ds_step;

/* A step is scratch for one call at a time; after a call no larger than an earlier one it has allocated
 * nothing. It runs on the pool (NULL: in the caller alone). Keeps both. */
ds_status ds_step_create(ds_step **step, const ds_plan *plan, ds_pool *pool);
void ds_step_destroy(ds_step *step);
/* Forgets the last call; room for the rows of the next. */
ds_status ds_step_rows(ds_step *step, size_t n_rows);

/* Errors: DS_SHAPE (a check failed at the end; a position beyond a table), DS_MISMATCH (inputs further apart
 * than the skew; one that is given once missing at the start, or given later), DS_ARGUMENT (negative or absurd
 * counts), DS_LIMIT (more memory than max_bytes), DS_NO_MEMORY. */
ds_status ds_step_begin(ds_step *step);
/* Where the new frames of an input of one row go, contiguous. */
void *ds_step_room(const ds_step *step, size_t input, size_t row);
/* The element type must fit the input (ds_layout_fits); strides as in ds_layout_read. */
void ds_step_put(const ds_step *step, size_t input, size_t row, const void *frames,
                 const ptrdiff_t *strides, ds_element element);
/* Whether the new frames are what the operators that read them can take. Errors: DS_INDEX. */
ds_status ds_step_check(ds_step *step);
void ds_step_run(ds_step *step);
/* New frames of an output, and the absolute position of the first. */
int64_t ds_step_frames(const ds_step *step, size_t output, size_t row, int64_t *start);
/* Likewise of any edge. */
int64_t ds_step_edge_frames(const ds_step *step, size_t e, size_t row, int64_t *start);
/* Returns view, until the next call. */
const void *ds_step_values(const ds_step *step, size_t output, size_t row);
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
