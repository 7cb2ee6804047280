/* A pool of threads that share the tasks of a call.
 *
 * The caller always works on its own tasks, and workers join in as they are free: so several
 * threads may run at the same time on one pool, a task may itself run on the pool (at worst
 * serially), and none waits for another's tasks. Tasks start in ascending order but run in any;
 * which thread runs one is not defined, so results must not depend on it. A run allocates nothing
 * and cannot fail; a task that can keeps its status in its context (messages of ds_fail stay in the
 * worker's thread).
 *
 * Everything written before the run is visible to its tasks, and everything they wrote is visible
 * after it.
 *
 * Workers that find nothing to do look again for up to 200 microseconds, then sleep. They block all
 * signals.
 *
 * Fork: a child process has no workers. The pool notices, and runs serially there; the child may
 * destroy it, and make another one. */
#pragma once

#include "base/alloc.h"

/* More threads than this per pool are refused. */
#define DS_POOL_MAX_THREADS 1024

/* Room of one thread for what its kernels hold while they run, blocks that a cache takes but a small stack does
 * not. Each worker of a pool has one; whoever runs kernels in a thread of its own lends it one meanwhile. */
enum { DS_WORKSPACE_BYTES = (1 << 18) + (1 << 15) };

/* Lends the calling thread a workspace, 64-byte aligned, kept until the next call of this; returns the one before,
 * which the caller lends it again afterwards. */
void *ds_workspace_lend(void *workspace);
/* The one of the calling thread. A kernel has all of it, and what it calls has what it leaves. */
void *ds_workspace(void);

/* Rows that the calling thread will read soon; kernels that compute long from few bytes fetch them in passing. */
typedef struct ds_fetch {
    const char *const *rows;
    size_t n_rows, bytes; /* of each */
    size_t row, passed;   /* what is next: of this row, behind so many bytes */
} ds_fetch;
/* Tells the calling thread's kernels so, or NULL: nothing. */
void ds_fetch_lend(ds_fetch *fetch);
ds_fetch *ds_fetch_list(void);

/* Takes the next bytes of a list (NULL: none), at most so many; returns NULL where there are none. */
static inline const char *ds_fetch_next(ds_fetch *f, size_t most, size_t *n_bytes)
{
    if (f == NULL || f->row == f->n_rows || most == 0)
        return NULL;
    const char *const from = f->rows[f->row] + f->passed;
    *n_bytes = f->bytes - f->passed < most ? f->bytes - f->passed : most;
    f->passed += *n_bytes;
    if (f->passed == f->bytes) {
        f->row++;
        f->passed = 0;
    }
    return from;
}

typedef struct ds_pool ds_pool;

/* One task: `index` counts from 0; `context` is ds_pool_run's. */
typedef void (*ds_pool_task)(void *context, size_t index);

/* Fills `*pool` (returns owned) with a pool of `n_threads`, the caller of a run included: 1 starts
 * no worker, and runs serially. `allocator` is copied, NULL is the C library's. Errors: DS_ARGUMENT
 * if n_threads is 0 or above DS_POOL_MAX_THREADS; DS_NO_MEMORY; DS_LIMIT if the system starts no
 * more threads. Thread: any. */
ds_status ds_pool_create(ds_pool **pool, const ds_allocator *allocator, size_t n_threads);
/* Runs task(context, 0) ... task(context, n_tasks - 1), each once, and returns when all are done.
 * `pool` may be NULL: serially, in the caller. Thread: any, several at a time, also within a task. */
void ds_pool_run(ds_pool *pool, ds_pool_task task, void *context, size_t n_tasks);
/* Lets sleeping workers look for tasks: for a caller that is going to run some in a moment. Thread: any. */
void ds_pool_wake(ds_pool *pool);
/* Returns the number of threads that a run can use here: 1 for NULL and in a forked child. */
size_t ds_pool_threads(const ds_pool *pool);
/* Ends the workers, releases the pool; NULL is allowed. Thread: one, while no run is under way. */
void ds_pool_destroy(ds_pool *pool);
