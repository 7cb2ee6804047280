/*
 * CHECK for the C test programs.
 *
 *     #include "check.h"
 *     int main(void) {
 *         CHECK(1 + 1 == 2);
 *         return check_report();
 *     }
 *
 * A check that fails prints where and ends the program with 1. Checks are counted: a program that
 * made none fails. CHECK may be called from several threads. Include it in one file per program.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_long check_count;

#define CHECK(cond)                                                                  \
    do {                                                                             \
        atomic_fetch_add_explicit(&check_count, 1, memory_order_relaxed);            \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static inline int check_report(void)
{
    long n = atomic_load(&check_count);
    printf("%ld checks\n", n);
    return n > 0 ? 0 : 1;
}

#endif
