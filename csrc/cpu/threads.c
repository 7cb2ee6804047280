/* The thread pool.
 *
 * A run is a job on the caller's stack, linked into the pool's list of open jobs. Whoever works on
 * a job takes its next index from an atomic counter until there is none left. The caller does that
 * first of all; then it takes the job off the list, upon which no more workers can join, and waits
 * for those that did (`n_helpers`), each of which is executing a task. That wait ends: a helper can
 * only be waiting for helpers of a run that its own task made, and so on down a finite chain, since
 * a waiting thread never works on anything else.
 *
 * `mutex` guards the list, the jobs' `n_helpers` and `waiting`, and the sleepers. It is held for a
 * few instructions, never while a task runs.
 *
 * `n_posted` counts jobs that were linked; a worker that spins watches it without the mutex. */
#define _POSIX_C_SOURCE 200809L

#include "cpu/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/now.h"
#include "cpu/float_env.h"

static _Thread_local void *workspace;

void *ds_workspace_lend(void *lent)
{
    void *const before = workspace;
    workspace = lent;
    return before;
}

void *ds_workspace(void)
{
    return workspace;
}

static _Thread_local ds_fetch *fetched;

void ds_fetch_lend(ds_fetch *fetch)
{
    fetched = fetch;
}

ds_fetch *ds_fetch_list(void)
{
    return fetched;
}

#define SPIN_SECONDS 200e-6
#define PAUSES_PER_LOOK 64 /* pauses between two looks at the clock */

typedef struct job {
    struct job *next;
    ds_pool_task task;
    void *context;
    size_t n_tasks;
    atomic_size_t next_index;
    atomic_size_t n_helpers; /* workers in this job; written under the mutex only */
    bool waiting;            /* the caller sleeps on `done` */
    pthread_cond_t done;
} job;

struct ds_pool {
    ds_allocator allocator;
    size_t n_bytes; /* of this object, its array included */
    pid_t process;  /* where the workers live */
    size_t n_workers;
    pthread_mutex_t mutex;
    pthread_cond_t posted;
    job *first;        /* open jobs, the oldest first */
    size_t n_sleeping; /* workers that wait on `posted` */
    bool stopping;
    atomic_size_t n_posted;
    char *workspaces; /* [n_asked] of the workers */
    size_t n_asked;
    atomic_size_t n_running;
    pthread_t workers[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until `*value` is (equal: or no longer is) `reference`, but not for long; says whether. */
static bool spin_until(atomic_size_t *value, size_t reference, bool equal)
{
    double start = 0;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if ((atomic_load_explicit(value, memory_order_acquire) == reference) == equal)
                return true;
            pause_briefly();
        }
        const double now = ds_now();
        if (start == 0)
            start = now;
        else if (now - start > SPIN_SECONDS)
            return false;
    }
}

/* Takes tasks of `work` until none is left. */
static void work_on(job *work)
{
    for (;;) {
        const size_t index = atomic_fetch_add_explicit(&work->next_index, 1, memory_order_relaxed);
        if (index >= work->n_tasks)
            return;
        work->task(work->context, index);
    }
}

/* Returns the oldest open job with tasks that nobody has taken, or NULL. Under the mutex. */
static job *find_work(ds_pool *pool)
{
    job *work = pool->first;
    while (work != NULL &&
           atomic_load_explicit(&work->next_index, memory_order_relaxed) >= work->n_tasks)
        work = work->next;
    return work;
}

/* Works on `work`, with the mutex held before and after. */
static void help(ds_pool *pool, job *work)
{
    const size_t n_joined = atomic_load_explicit(&work->n_helpers, memory_order_relaxed) + 1;
    atomic_store_explicit(&work->n_helpers, n_joined, memory_order_relaxed);
    pthread_mutex_unlock(&pool->mutex);

    work_on(work);

    pthread_mutex_lock(&pool->mutex);
    const size_t n_left = atomic_load_explicit(&work->n_helpers, memory_order_relaxed) - 1;
    if (n_left == 0 && work->waiting)
        pthread_cond_signal(&work->done);
    /* Last of all: a caller that spins may see 0 and return, and the job is gone. */
    atomic_store_explicit(&work->n_helpers, n_left, memory_order_release);
}

static void *worker_main(void *argument)
{
    ds_pool *pool = argument;
    ds_float_env makers; /* was inherited */
    ds_float_env_enter(&makers);
    (void)ds_workspace_lend(pool->workspaces +
                            atomic_fetch_add(&pool->n_running, 1) * DS_WORKSPACE_BYTES);
    pthread_mutex_lock(&pool->mutex);
    while (!pool->stopping) {
        job *work = find_work(pool);
        if (work != NULL) {
            help(pool, work);
            continue;
        }
        const size_t n_seen = atomic_load_explicit(&pool->n_posted, memory_order_relaxed);
        pthread_mutex_unlock(&pool->mutex);
        const bool news = spin_until(&pool->n_posted, n_seen, false);
        pthread_mutex_lock(&pool->mutex);
        if (!news) {
            pool->n_sleeping++;
            while (!pool->stopping &&
                   atomic_load_explicit(&pool->n_posted, memory_order_relaxed) == n_seen) {
                pthread_cond_wait(&pool->posted, &pool->mutex);
            }
            pool->n_sleeping--;
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* The link that points to `work` (NULL: the last). Under the mutex. */
static job **link_to(ds_pool *pool, const job *work)
{
    job **link = &pool->first;
    while (*link != work)
        link = &(*link)->next;
    return link;
}

/* Links `work` as the newest and wakes as many sleepers as it has tasks for. */
static void post(ds_pool *pool, job *work)
{
    pthread_mutex_lock(&pool->mutex);
    *link_to(pool, NULL) = work;
    const size_t n_posted = atomic_load_explicit(&pool->n_posted, memory_order_relaxed) + 1;
    atomic_store_explicit(&pool->n_posted, n_posted, memory_order_release);
    const size_t n_useful = work->n_tasks - 1;
    if (n_useful >= pool->n_sleeping) {
        pthread_cond_broadcast(&pool->posted);
    } else {
        for (size_t i = 0; i < n_useful; i++)
            pthread_cond_signal(&pool->posted);
    }
    pthread_mutex_unlock(&pool->mutex);
}

/* Lets no more workers join, and waits for those that did. */
static void withdraw(ds_pool *pool, job *work)
{
    pthread_mutex_lock(&pool->mutex);
    *link_to(pool, work) = work->next;
    pthread_mutex_unlock(&pool->mutex);
    if (spin_until(&work->n_helpers, 0, true))
        return;
    pthread_mutex_lock(&pool->mutex);
    work->waiting = true;
    while (atomic_load_explicit(&work->n_helpers, memory_order_relaxed) > 0)
        pthread_cond_wait(&work->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_destroy(&work->done);
}

size_t ds_pool_threads(const ds_pool *pool)
{
    return pool != NULL && pool->n_workers > 0 && pool->process == getpid() ? pool->n_workers + 1
                                                                            : 1;
}

void ds_pool_run(ds_pool *pool, ds_pool_task task, void *context, size_t n_tasks)
{
    if (n_tasks < 2 || ds_pool_threads(pool) == 1) {
        for (size_t i = 0; i < n_tasks; i++)
            task(context, i);
        return;
    }
    job work = {
        .task = task, .context = context, .n_tasks = n_tasks, .done = PTHREAD_COND_INITIALIZER};
    post(pool, &work);
    work_on(&work);
    withdraw(pool, &work);
}

void ds_pool_wake(ds_pool *pool)
{
    if (ds_pool_threads(pool) == 1)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (pool->n_sleeping > 0) { /* they find no job, and look again for a while */
        atomic_fetch_add_explicit(&pool->n_posted, 1, memory_order_release);
        pthread_cond_broadcast(&pool->posted);
    }
    pthread_mutex_unlock(&pool->mutex);
}

/* Starts the workers, with all signals blocked; `pool->n_workers` counts those that are running. */
static bool start_workers(ds_pool *pool, size_t n_workers)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    while (pool->n_workers < n_workers &&
           pthread_create(&pool->workers[pool->n_workers], NULL, worker_main, pool) == 0) {
        pool->n_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool->n_workers == n_workers;
}

ds_status ds_pool_create(ds_pool **pool, const ds_allocator *allocator, size_t n_threads)
{
    DS_CHECK(n_threads >= 1 && n_threads <= DS_POOL_MAX_THREADS, DS_ARGUMENT,
             "thread pool: between 1 and %d threads, not %zu", DS_POOL_MAX_THREADS, n_threads);
    const ds_allocator from = allocator != NULL ? *allocator : *ds_default_allocator();
    const size_t n_bytes = sizeof(ds_pool) + (n_threads - 1) * sizeof(pthread_t);
    ds_pool *made;
    DS_TRY(ds_allocate(&from, (void **)&made, n_bytes));
    *made = (ds_pool){.allocator = from,
                      .n_bytes = n_bytes,
                      .n_asked = n_threads - 1,
                      .process = getpid(),
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .posted = PTHREAD_COND_INITIALIZER};
    void *workspaces = NULL;
    DS_TRY_ELSE(ds_allocate(&from, &workspaces, (n_threads - 1) * DS_WORKSPACE_BYTES),
                ds_release(&from, made, n_bytes));
    made->workspaces = workspaces;
    if (!start_workers(made, n_threads - 1)) {
        const size_t n_started = made->n_workers + 1;
        ds_pool_destroy(made);
        return ds_fail(DS_LIMIT, "thread pool: the system starts no more than %zu of %zu threads",
                       n_started, n_threads);
    }
    *pool = made;
    return DS_OK;
}

void ds_pool_destroy(ds_pool *pool)
{
    if (pool == NULL)
        return;
    if (pool->process == getpid()) {
        pthread_mutex_lock(&pool->mutex);
        pool->stopping = true;
        /* a worker that spins stops doing so, and finds no job */
        atomic_fetch_add_explicit(&pool->n_posted, 1, memory_order_release);
        pthread_cond_broadcast(&pool->posted);
        pthread_mutex_unlock(&pool->mutex);
        for (size_t i = 0; i < pool->n_workers; i++)
            pthread_join(pool->workers[i], NULL);
        pthread_cond_destroy(&pool->posted);
        pthread_mutex_destroy(&pool->mutex);
    } /* else the mutex may be held by a thread that does not exist here: leave it all alone */
    const ds_allocator allocator = pool->allocator;
    ds_release(&allocator, pool->workspaces, pool->n_asked * DS_WORKSPACE_BYTES);
    ds_release(&allocator, pool, pool->n_bytes);
}
