/* What most programs need: memory that is counted and fails on demand, random numbers, failures that name
 * themselves, threads. Include it in one file per program. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/status.h"
#include "check.h"
#include "fault.h"

enum { MAX_THREADS = 16 };

/* ---------------------------------------------------------------- memory and failures */

static ds_fault_allocator fault;
static ds_allocator hooks;

/* At the beginning of a program: from here on `hooks` count and fail. */
static inline void count_memory(void)
{
    ds_fault_init(&fault);
    hooks = ds_fault_hooks(&fault);
}

/* At its end: all memory came back. */
static inline int report_memory(void)
{
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
    return check_report();
}

static inline void *fresh_memory(size_t n_bytes)
{
    void *p = malloc(n_bytes > 0 ? n_bytes : 1);
    CHECK(p != NULL);
    memset(p, 0xff, n_bytes);
    return p;
}

/* Whether the call failed so, with a message that holds these words. */
static inline bool failed(ds_status got, ds_status want, const char *words)
{
    if (got != want || strstr(ds_last_error(), words) == NULL) {
        fprintf(stderr, "got %s: %s\n", ds_status_name(got), ds_last_error());
        return false;
    }
    return true;
}

static inline bool succeeded(ds_status status)
{
    if (status != DS_OK)
        fprintf(stderr, "got %s: %s\n", ds_status_name(status), ds_last_error());
    return status == DS_OK;
}

/* The call succeeds, or its message is printed. */
#define CHECK_OK(...) CHECK(succeeded(__VA_ARGS__))

/* ---------------------------------------------------------------- random numbers */

static uint64_t random_state = 1;

static inline int64_t next_below(uint64_t *state, int64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(*state >> 33) % n;
}

static inline int64_t random_below(int64_t n)
{
    return next_below(&random_state, n);
}

static inline int64_t random_in(int64_t least, int64_t most)
{
    return least + random_below(most - least + 1);
}

static inline void fill_random(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_below(1 << 20) / (float)(1 << 19) - 1.0f;
}

/* ---------------------------------------------------------------- threads */

/* Runs n threads to their ends, by turns `work` and `other`; thread i is given contexts + i * n_bytes. */
static inline void in_parallel(size_t n, void *(*work)(void *), void *(*other)(void *),
                               void *contexts, size_t n_bytes)
{
    pthread_t threads[MAX_THREADS];
    CHECK(n <= MAX_THREADS);
    for (size_t i = 0; i < n; i++) {
        void *const context = contexts == NULL ? NULL : (char *)contexts + i * n_bytes;
        CHECK(pthread_create(&threads[i], NULL, i % 2 == 0 ? work : other, context) == 0);
    }
    for (size_t i = 0; i < n; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}
