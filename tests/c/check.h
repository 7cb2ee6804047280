/*
 * CHECK and TEST for the C test programs.
 *
 *     #include "check.h"
 *     TEST(sums)
 *     {
 *         CHECK(1 + 1 == 2);
 *     }
 *     int main(void)
 *     {
 *         run_tests();
 *         return check_report();
 *     }
 *
 * A check that fails prints where and ends the program with 1. Checks are counted: a program that
 * made none fails. CHECK may be called from several threads. Tests run in the order in which they
 * stand; main.h has a main() for programs that do nothing else. Include it in one file per program.
 */
#pragma once

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long check_count;

/* How many of n random cases are tried: under the address sanitizer, where each takes five times as long, a third, for
 * what it finds comes of few. All of them are the plain program's, by default or in the slow tier. */
#ifdef __SANITIZE_ADDRESS__
#define SOME_OF(n) (((n) + 2) / 3)
#else
#define SOME_OF(n) (n)
#endif

#define CHECK(cond)                                                                  \
    do {                                                                             \
        atomic_fetch_add_explicit(&check_count, 1, memory_order_relaxed);            \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

typedef struct check_test {
    void (*run)(void);
    struct check_test *next;
} check_test;

/* The first of the tests, which are entered before main() begins. */
static inline check_test **check_tests(void)
{
    static check_test *first;
    return &first;
}

static inline void check_enter(check_test *test)
{
    check_test **end = check_tests();
    while (*end != NULL)
        end = &(*end)->next;
    *end = test;
}

#define TEST(name)                                                    \
    static void test_##name(void);                                    \
    __attribute__((constructor)) static void check_enter_##name(void) \
    {                                                                 \
        static check_test test = {test_##name, NULL};                 \
        check_enter(&test);                                           \
    }                                                                 \
    static void test_##name(void)

static inline void run_tests(void)
{
    for (const check_test *test = *check_tests(); test != NULL; test = test->next)
        test->run();
}

static inline int check_report(void)
{
    long n = atomic_load(&check_count);
    printf("%ld checks\n", n);
    return n > 0 ? 0 : 1;
}
