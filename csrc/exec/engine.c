/* exec/engine.c: owns what running a plan takes; batches at rest are kept for the next calls. */
#include "exec/engine.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "cpu/float_env.h"

struct ds_engine {
    ds_allocator allocator;
    const ds_plan *plan;
    ds_plan *owned; /* the plan, or NULL where another engine owns it */
    ds_session *session;
    ds_pool *pool; /* NULL with one thread */
    size_t n_threads;
    pthread_mutex_t lock; /* guards what follows */
    ds_batch **resting;   /* room for all there are */
    size_t n_resting, n_batches, n_room;
};

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
    while (engine->n_resting > 0)
        ds_batch_destroy(engine->resting[--engine->n_resting]);
    ds_release(&engine->allocator, engine->resting, engine->n_room * sizeof(ds_batch *));
    engine->resting = NULL;
    engine->n_batches = engine->n_room = 0;
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

const ds_plan *ds_engine_plan(const ds_engine *engine)
{
    return engine->plan;
}

ds_session *ds_engine_session(const ds_engine *engine)
{
    return engine->session;
}

size_t ds_engine_threads(const ds_engine *engine)
{
    return engine->n_threads;
}

/* Counts one more batch, which has its place at rest. The lock is held. */
static ds_status make_room(ds_engine *e)
{
    if (e->n_batches == e->n_room) {
        const size_t n_room = e->n_room ? 2 * e->n_room : 4;
        void *larger = NULL;
        DS_TRY(ds_allocate_array(&e->allocator, &larger, n_room, sizeof(ds_batch *)));
        if (e->n_resting)
            memcpy(larger, e->resting, e->n_resting * sizeof(ds_batch *));
        ds_release(&e->allocator, e->resting, e->n_room * sizeof(ds_batch *));
        e->resting = larger;
        e->n_room = n_room;
    }
    e->n_batches++;
    return DS_OK;
}

ds_status ds_engine_take_batch(ds_engine *engine, ds_batch **batch)
{
    pthread_mutex_lock(&engine->lock);
    ds_batch *rested = engine->n_resting > 0 ? engine->resting[--engine->n_resting] : NULL;
    ds_status status = rested ? DS_OK : make_room(engine);
    pthread_mutex_unlock(&engine->lock);
    DS_TRY(status);
    if (!rested) {
        status = ds_batch_create(&rested, engine->plan);
        if (status != DS_OK) {
            pthread_mutex_lock(&engine->lock);
            engine->n_batches--;
            pthread_mutex_unlock(&engine->lock);
            return status;
        }
    }
    ds_batch_expect(rested, engine->pool);
    *batch = rested;
    return DS_OK;
}

void ds_engine_give_batch(ds_engine *engine, ds_batch *batch)
{
    if (!batch)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->resting[engine->n_resting++] = batch;
    pthread_mutex_unlock(&engine->lock);
}

void ds_engine_run(ds_engine *engine, ds_batch *batch)
{
    ds_float_env callers;
    ds_float_env_enter(&callers);
    ds_batch_run(batch, engine->pool);
    ds_float_env_leave(&callers);
}
