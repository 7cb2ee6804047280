/* exec/engine.h: a plan with all that running it takes: its streams, its threads, its scratch.
 *
 * One engine serves any number of threads at a time, each with streams of its own (exec/session.h). */
#pragma once
#include <pthread.h>

#include "exec/step.h"

typedef struct ds_engine {
    const ds_plan *plan;
    ds_session *session; /* NULL once closed */
    size_t n_threads;    /* of one call */
    /* what follows is private */
    ds_plan *owned;       /* the plan, or NULL where another engine owns it */
    ds_pool *pool;        /* NULL with one thread */
    pthread_mutex_t lock; /* guards what follows */
    ds_step *resting;
} ds_engine;

typedef struct ds_engine_options {
    const ds_kernels *kernels;
    size_t n_threads;   /* of one call; at least 1 */
    size_t max_streams; /* 0: no limit */
    int64_t skew;       /* frames by which the inputs of one stream may be apart */
    size_t max_bytes;   /* ds_plan_create's */
} ds_engine_options;

/* Plans the graph, which it takes also on failure. Errors: those of ds_plan_create, ds_pool_create. */
ds_status ds_engine_create(ds_engine **engine, ds_graph *takes_graph,
                           const ds_engine_options *options);
/* Makes another engine of the same plan, with streams of its own. The plan stays the original's, which
 * must outlive this one. The options' kernels, skew and max_bytes are not looked at. Errors: those of
 * ds_engine_create. */
ds_status ds_engine_copy(ds_engine **engine, const ds_engine *original,
                         const ds_engine_options *options);
/* Ends all streams and threads; the plan stays. Thread: one, while no call is under way. */
void ds_engine_close(ds_engine *engine);
/* The same, and releases it; NULL is allowed. */
void ds_engine_destroy(ds_engine *engine);

/* Takes a step that is at rest, or makes one, for n rows. Thread: any. Errors: DS_NO_MEMORY. */
ds_status ds_step_take(ds_engine *engine, ds_step **step, size_t n_rows);
/* Puts it to rest; NULL is allowed. Thread: any. */
void ds_step_give(ds_engine *engine, ds_step *step);
