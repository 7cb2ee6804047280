/* exec/engine.c: owns what running a plan takes; steps at rest are kept for the next calls. */
#include "exec/engine.h"

#include "base/lock.h"
#include "cpu/float_env.h"

/* Gives a plan streams and threads. owned: the plan, which is destroyed on failure, or NULL. */
static ds_status make(ds_engine **engine, const ds_plan *plan, ds_plan *owned,
                      const ds_engine_options *options)
{
    ds_engine *e;
    DS_TRY_ELSE(ds_allocate(&plan->allocator, (void **)&e, sizeof *e), ds_plan_destroy(owned));
    *e = (ds_engine){.plan = plan,
                     .owned = owned,
                     .n_threads = options->n_threads,
                     .lock = PTHREAD_MUTEX_INITIALIZER};
    DS_TRY_ELSE(ds_session_create(&e->session, plan, options->max_streams), ds_engine_destroy(e));
    if (e->n_threads > 1)
        DS_TRY_ELSE(ds_pool_create(&e->pool, &plan->allocator, e->n_threads), ds_engine_destroy(e));
    *engine = e;
    return DS_OK;
}

ds_status ds_engine_create(ds_engine **engine, ds_graph *takes_graph,
                           const ds_engine_options *options)
{
    ds_plan *plan;
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers); /* weights are prepared */
    DS_TRY(ds_plan_create(&plan, takes_graph, options->kernels, options->skew, options->max_bytes));
    return make(engine, plan, plan, options);
}

ds_status ds_engine_copy(ds_engine **engine, const ds_engine *original,
                         const ds_engine_options *options)
{
    return make(engine, original->plan, NULL, options);
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
    const ds_allocator a = engine->plan->allocator;
    ds_engine_close(engine);
    ds_plan_destroy(engine->owned);
    pthread_mutex_destroy(&engine->lock);
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
    DS_TRY_ELSE(ds_step_rows(taken, n_rows), ds_step_give(engine, taken));
    *step = taken;
    return DS_OK;
}

void ds_step_give(ds_engine *engine, ds_step *step)
{
    if (!step)
        return;
    DS_LOCKED(&engine->lock);
    step->next = engine->resting;
    engine->resting = step;
}
