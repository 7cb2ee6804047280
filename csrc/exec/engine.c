/* exec/engine.c: owns what running a plan takes; steps at rest are kept for the next calls. */
#include "exec/engine.h"

#include "base/alloc.h"
#include "cpu/float_env.h"

/* An engine without plan, streams and threads. */
static ds_status make(ds_engine **engine, const ds_allocator *a, size_t n_threads)
{
    void *memory;
    DS_TRY(ds_allocate_zeroed(a, &memory, sizeof(ds_engine)));
    ds_engine *e = memory;
    e->allocator = *a;
    e->n_threads = n_threads;
    if (pthread_mutex_init(&e->lock, NULL) != 0) {
        ds_release(a, e, sizeof *e);
        return ds_fail(DS_NO_MEMORY, "no lock could be made");
    }
    *engine = e;
    return DS_OK;
}

/* Gives the engine streams and threads; destroys it on failure. */
static ds_status start(ds_engine **engine, ds_engine *e, size_t max_streams)
{
    ds_status status = ds_session_create(&e->session, e->plan, max_streams);
    if (status == DS_OK && e->n_threads > 1)
        status = ds_pool_create(&e->pool, &e->allocator, e->n_threads);
    if (status != DS_OK) {
        ds_engine_destroy(e);
        return status;
    }
    *engine = e;
    return DS_OK;
}

ds_status ds_engine_create(ds_engine **engine, ds_graph *takes_graph,
                           const ds_engine_options *options)
{
    const ds_allocator a = takes_graph->allocator;
    ds_engine *e = NULL;
    ds_status status = make(&e, &a, options->n_threads);
    if (status != DS_OK) {
        ds_graph_destroy(takes_graph);
        return status;
    }
    ds_float_env callers;
    ds_float_env_enter(&callers); /* weights are prepared */
    status = ds_plan_create(&e->owned, takes_graph, options->kernels, options->skew);
    ds_float_env_leave(&callers);
    if (status != DS_OK) {
        ds_engine_destroy(e);
        return status;
    }
    e->plan = e->owned;
    return start(engine, e, options->max_streams);
}

ds_status ds_engine_copy(ds_engine **engine, const ds_engine *original,
                         const ds_engine_options *options)
{
    ds_engine *e = NULL;
    DS_TRY(make(&e, &original->allocator, options->n_threads));
    e->plan = original->plan;
    return start(engine, e, options->max_streams);
}

void ds_engine_close(ds_engine *engine)
{
    for (ds_step *step = engine->resting, *next; step; step = next) {
        next = step->next;
        ds_step_destroy(step);
    }
    engine->resting = NULL;
    ds_session_destroy(engine->session);
    engine->session = NULL;
    ds_pool_destroy(engine->pool);
    engine->pool = NULL;
}

void ds_engine_destroy(ds_engine *engine)
{
    if (!engine)
        return;
    ds_engine_close(engine);
    ds_plan_destroy(engine->owned);
    pthread_mutex_destroy(&engine->lock);
    const ds_allocator a = engine->allocator;
    ds_release(&a, engine, sizeof *engine);
}

ds_status ds_step_take(ds_engine *engine, ds_step **step, size_t n_rows)
{
    pthread_mutex_lock(&engine->lock);
    ds_step *taken = engine->resting;
    if (taken)
        engine->resting = taken->next;
    pthread_mutex_unlock(&engine->lock);
    if (!taken)
        DS_TRY(ds_step_create(&taken, engine->plan, engine->pool));
    const ds_status status = ds_step_rows(taken, n_rows);
    if (status == DS_OK)
        *step = taken;
    else
        ds_step_give(engine, taken);
    return status;
}

void ds_step_give(ds_engine *engine, ds_step *step)
{
    if (!step)
        return;
    pthread_mutex_lock(&engine->lock);
    step->next = engine->resting;
    engine->resting = step;
    pthread_mutex_unlock(&engine->lock);
}
