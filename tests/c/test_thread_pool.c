/* cpu/threads: every task once, many callers, nesting, fork, failures to start. */
#define _GNU_SOURCE

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/threads.h"
#include "tools.h"

enum { N_MOST = 300 };

/* Plain ints: the pool's own ordering must make them safe to read after the run. */
typedef struct counts {
    int base;
    int times[N_MOST];
} counts;

static void count(void *context, size_t index)
{
    counts *to = context;
    to->times[index] += to->base;
}

/* Runs n tasks and checks that each was done once. */
static void run_and_check(ds_pool *pool, size_t n_tasks)
{
    counts to;
    memset(&to, 0, sizeof to);
    to.base = 1 + (int)(n_tasks % 5);
    ds_pool_run(pool, count, &to, n_tasks);
    for (size_t i = 0; i < N_MOST; i++)
        CHECK(to.times[i] == (i < n_tasks ? to.base : 0));
}

static ds_pool *make_pool(size_t n_threads)
{
    ds_pool *pool = NULL;
    CHECK(ds_pool_create(&pool, NULL, n_threads) == DS_OK);
    CHECK(ds_pool_threads(pool) == n_threads);
    return pool;
}

static void nap(long nanoseconds)
{
    const struct timespec time = {0, nanoseconds};
    nanosleep(&time, NULL);
}

TEST(one_caller)
{
    run_and_check(NULL, 5);
    CHECK(ds_pool_threads(NULL) == 1);
    ds_pool_destroy(NULL);
    static const size_t sizes[] = {1, 2, 3, 4, 9};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        ds_pool *pool = make_pool(sizes[s]);
        ds_pool_run(pool, NULL, NULL, 0); /* no task, so none is called */
        for (size_t n = 0; n < 40; n++)
            run_and_check(pool, n);
        run_and_check(pool, N_MOST);
        nap(2000000); /* the workers go to sleep */
        run_and_check(pool, N_MOST);
        ds_pool_destroy(pool);
    }
    for (int i = 0; i < 20; i++) { /* destroyed at once, and while workers still spin */
        ds_pool *pool = make_pool(4);
        if (i % 2 == 0)
            run_and_check(pool, 8);
        ds_pool_destroy(pool);
    }
}

typedef struct meeting {
    atomic_size_t n_here;
    size_t n_expected;
} meeting;

static void meet(void *context, size_t index)
{
    (void)index;
    meeting *place = context;
    atomic_fetch_add(&place->n_here, 1);
    while (atomic_load(&place->n_here) < place->n_expected)
        nap(10000);
}

/* Tasks that wait for each other end only if as many threads work on them at the same time. */
TEST(all_threads_work)
{
    ds_pool *pool = make_pool(4);
    for (int i = 0; i < 20; i++) {
        meeting place = {0, 4};
        ds_pool_run(pool, meet, &place, 4);
        if (i % 5 == 0) { /* they go to sleep, and are woken ahead of the next run or by it */
            nap(5000000);
            if (i % 2 == 0)
                ds_pool_wake(pool);
        }
    }
    ds_pool_destroy(pool);
}

enum { N_CALLERS = 16, N_RUNS = 120 };

static void *call_often(void *argument)
{
    ds_pool *pool = argument;
    for (size_t i = 0; i < N_RUNS; i++) {
        run_and_check(pool, (i * 7) % 50);
        if (i % 40 == 0)
            nap(200000);
    }
    return NULL;
}

TEST(many_callers)
{
    static const size_t sizes[] = {1, 2, 5};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        ds_pool *pool = make_pool(sizes[s]);
        in_parallel(N_CALLERS, call_often, call_often, pool, 0);
        ds_pool_destroy(pool);
    }
}

typedef struct nest {
    ds_pool *pool;
    int depth;
    atomic_int n_leaves;
} nest;

static void go_deeper(void *context, size_t index)
{
    nest *mine = context;
    if (mine->depth == 0) {
        if (index == 1)
            nap(20000);
        atomic_fetch_add(&mine->n_leaves, 1);
        return;
    }
    nest below = {mine->pool, mine->depth - 1, 0};
    ds_pool_run(mine->pool, go_deeper, &below, 4);
    atomic_fetch_add(&mine->n_leaves, atomic_load(&below.n_leaves));
}

static void *nest_often(void *argument)
{
    for (int i = 0; i < 8; i++) {
        nest top = {argument, 3, 0};
        ds_pool_run(argument, go_deeper, &top, 4);
        CHECK(atomic_load(&top.n_leaves) == 4 * 4 * 4 * 4);
    }
    return NULL;
}

TEST(nested)
{
    ds_pool *pool = make_pool(3);
    in_parallel(4, nest_often, nest_often, pool, 0);
    ds_pool_destroy(pool);
}

/* A caller whose tasks are short is not held up by one whose tasks take long. */
static void wait_for_flag(void *context, size_t index)
{
    (void)index;
    while (!atomic_load((atomic_bool *)context))
        nap(50000);
}

typedef struct blocked {
    ds_pool *pool;
    atomic_bool flag;
} blocked;

static void *call_blocked(void *argument)
{
    blocked *mine = argument;
    ds_pool_run(mine->pool, wait_for_flag, &mine->flag, 8);
    return NULL;
}

TEST(independent_callers)
{
    blocked mine = {make_pool(3), false};
    pthread_t caller;
    CHECK(pthread_create(&caller, NULL, call_blocked, &mine) == 0);
    nap(1000000);
    for (size_t i = 0; i < 50; i++)
        run_and_check(mine.pool, i); /* all workers hang in the other's tasks */
    atomic_store(&mine.flag, true);
    CHECK(pthread_join(caller, NULL) == 0);
    ds_pool_destroy(mine.pool);
}

TEST(arguments)
{
    count_memory();
    ds_pool *pool = NULL;
    CHECK(ds_pool_create(&pool, &hooks, 0) == DS_ARGUMENT);
    CHECK(ds_pool_create(&pool, &hooks, DS_POOL_MAX_THREADS + 1) == DS_ARGUMENT);
    ds_fault_arm(&fault, 1, false);
    CHECK(ds_pool_create(&pool, &hooks, 2) == DS_NO_MEMORY);
    CHECK(pool == NULL);
    CHECK(ds_pool_create(&pool, &hooks, 3) == DS_OK);
    const size_t n_calls = ds_fault_calls(&fault);
    run_and_check(pool, 100);
    CHECK(ds_fault_calls(&fault) == n_calls); /* a run allocates nothing */
    ds_pool_destroy(pool);
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
}

static void check_signals_blocked(void *context, size_t index)
{
    (void)index;
    sigset_t blocked_now;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked_now) == 0);
    if (!pthread_equal(pthread_self(), *(pthread_t *)context)) {
        CHECK(sigismember(&blocked_now, SIGINT) == 1 && sigismember(&blocked_now, SIGTERM) == 1);
    } else {
        CHECK(sigismember(&blocked_now, SIGINT) == 0);
        nap(100000);
    }
}

TEST(signals)
{
    ds_pool *pool = make_pool(3);
    pthread_t me = pthread_self();
    ds_pool_run(pool, check_signals_blocked, &me, 20);
    ds_pool_destroy(pool);
}

/* Runs `body` in a forked child and checks that it returned. */
static void in_child(void (*body)(ds_pool *), ds_pool *pool)
{
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body(pool);
        _exit(42);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void use_in_child(ds_pool *pool)
{
    CHECK(ds_pool_threads(pool) == 1);
    run_and_check(pool, 100);
    ds_pool_destroy(pool);
/* A child of a threaded process gets no new threads from the sanitizer, which refuses them, nor from QEMU 7.2, which
 * ends there with an assertion of its own, of a program of three lines of pthread.h and fork() too. */
#if !defined(__SANITIZE_THREAD__) && !defined(DS_EMULATED)
    pool = make_pool(3);
    run_and_check(pool, 100);
    ds_pool_destroy(pool);
#endif
}

TEST(fork)
{
    ds_pool *pool = make_pool(4);
    run_and_check(pool, 100);
    in_child(use_in_child, pool);
    blocked mine = {pool, false}; /* and while a run is under way in another thread */
    pthread_t caller;
    CHECK(pthread_create(&caller, NULL, call_blocked, &mine) == 0);
    nap(1000000);
    in_child(use_in_child, pool);
    atomic_store(&mine.flag, true);
    CHECK(pthread_join(caller, NULL) == 0);
    run_and_check(pool, 100);
    ds_pool_destroy(pool);
}

/* Sanitizers need the address space, and an emulator has it from a system that it doesn't limit. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(DS_EMULATED)
static void create_too_many(ds_pool *pool)
{
    unsigned long n_pages = 0; /* of address space, in use */
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &n_pages) != 1)
        return; /* not on Linux */
    fclose(file);
    const rlim_t n_bytes = (rlim_t)n_pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)300 << 20);
    const struct rlimit limit = {n_bytes, n_bytes};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0); /* no room for so many stacks */
    CHECK(ds_pool_create(&pool, NULL, DS_POOL_MAX_THREADS) == DS_LIMIT);
    CHECK(pool == NULL);
    CHECK(strstr(ds_last_error(), "1024") != NULL);
    CHECK(ds_pool_create(&pool, NULL, 2) == DS_OK); /* those that had started are gone */
    run_and_check(pool, 10);
    ds_pool_destroy(pool);
}

TEST(no_more_threads)
{
    in_child(create_too_many, NULL);
}
#endif

int main(void)
{
    alarm(300); /* a deadlock fails, instead of hanging */
    run_tests();
    return check_report();
}
