/* A step's room and the copies at its ends; its values are the batch's (exec/batch.h). */
#include "exec/step.h"

#include <string.h>

#include "base/alloc.h"
#include "cpu/float_env.h"

ds_status ds_steps_init(ds_steps *steps, ds_engine *engine)
{
    *steps = (ds_steps){.allocator = ds_engine_plan(engine)->allocator};
    DS_CHECK(pthread_mutex_init(&steps->lock, NULL) == 0, DS_NO_MEMORY, "no lock could be made");
    steps->engine = engine;
    return DS_OK;
}

void ds_steps_free(ds_steps *steps)
{
    if (!steps->engine)
        return;
    for (ds_step *step = steps->resting, *next; step; step = next) {
        next = step->next;
        ds_arena_free(&step->arena);
        ds_release(&steps->allocator, step, sizeof *step);
    }
    pthread_mutex_destroy(&steps->lock);
    *steps = (ds_steps){0};
}

void ds_step_give(ds_steps *steps, ds_step *step)
{
    if (!step)
        return;
    ds_engine_give_batch(step->engine, step->batch);
    step->batch = NULL;
    pthread_mutex_lock(&steps->lock);
    step->next = steps->resting;
    steps->resting = step;
    pthread_mutex_unlock(&steps->lock);
}

static ds_status make_step(ds_steps *steps, ds_step **step)
{
    pthread_mutex_lock(&steps->lock);
    ds_step *rested = steps->resting;
    steps->resting = rested ? rested->next : NULL;
    pthread_mutex_unlock(&steps->lock);
    if (!rested) {
        void *memory;
        DS_TRY(ds_allocate_zeroed(&steps->allocator, &memory, sizeof *rested));
        rested = memory;
        rested->engine = steps->engine;
        rested->plan = ds_engine_plan(steps->engine);
        ds_arena_init(&rested->arena, &steps->allocator);
    }
    ds_arena_reset(&rested->arena);
    *step = rested;
    return DS_OK;
}

static ds_status make_room(ds_step *s, size_t n_inputs)
{
    void *p = NULL;
    DS_TRY(ds_arena_push_array(&s->arena, &p, s->n_rows, sizeof *s->slots));
    s->slots = p;
    DS_TRY(ds_arena_push_array(&s->arena, &p, s->n_rows * n_inputs, sizeof *s->n_frames));
    s->n_frames = p;
    DS_TRY(ds_arena_push_array(&s->arena, &p, s->n_rows, 2 * sizeof *s->ended));
    s->ended = p;
    s->bad = s->n_rows ? s->ended + s->n_rows : NULL;
    if (s->n_rows) {
        memset(s->n_frames, 0, s->n_rows * n_inputs * sizeof *s->n_frames);
        memset(s->ended, 0, 2 * s->n_rows * sizeof *s->ended);
    }
    return DS_OK;
}

ds_status ds_step_take(ds_steps *steps, ds_step **step, size_t n_rows)
{
    ds_step *s = NULL;
    DS_TRY(make_step(steps, &s));
    s->n_rows = n_rows;
    ds_status status = make_room(s, s->plan->graph->n_inputs);
    if (status == DS_OK)
        status = ds_engine_take_batch(s->engine, &s->batch);
    if (status == DS_OK)
        *step = s;
    else
        ds_step_give(steps, s);
    return status;
}

ds_status ds_step_begin(ds_step *step)
{
    return ds_batch_begin(step->batch, step->slots, step->n_frames, step->ended, step->bad,
                          step->n_rows, ds_engine_threads(step->engine));
}

void ds_step_put(const ds_step *step, size_t input, size_t row, const void *frames,
                 const ptrdiff_t *strides, ds_element element)
{
    const int64_t n = step->n_frames[input * step->n_rows + row];
    ds_float_env callers;
    if (!n)
        return;
    ds_float_env_enter(&callers); /* doubles are rounded */
    ds_layout_read(ds_batch_input(step->batch, input, row), frames, strides, element,
                   ds_step_input(step->plan, input), n);
    ds_float_env_leave(&callers);
}

ds_status ds_step_check(ds_step *step)
{
    return ds_batch_check(step->batch, step->bad);
}

void ds_step_run(ds_step *step)
{
    ds_engine_run(step->engine, step->batch);
}

int64_t ds_step_frames(const ds_step *step, size_t output, size_t row, int64_t *start)
{
    return ds_batch_output_frames(step->batch, output, row, start);
}

void ds_step_get(const ds_step *step, size_t output, size_t row, int64_t n, void *frames,
                 const ptrdiff_t *strides)
{
    if (n)
        ds_layout_write(frames, strides, ds_batch_output(step->batch, output, row),
                        ds_step_output(step->plan, output), n);
}
