/*
 * The tables of pointwise_ideals.def, by the numbers of the functions. A function that it leaves out fails
 * `every_ideal`.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "check.h"
#include "kernels/kernels.h"

typedef long double wide;

static inline wide ideal_sigmoid(wide x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

#define IDEAL(ID, p_, ulps_f32, ulps_f64, of_x, ...)                            \
    static inline wide ideal_unary_##ID(wide x, const double *p, wide greatest) \
    {                                                                           \
        (void)p, (void)greatest;                                                \
        return __VA_ARGS__;                                                     \
    }
#define IDEAL_BINARY(ID, ulps_f32, ...)                        \
    static inline double ideal_binary_##ID(double a, double b) \
    {                                                          \
        return __VA_ARGS__;                                    \
    }
#define IDEAL_COMPARE(ID, ...)                                  \
    static inline double ideal_compare_##ID(double a, double b) \
    {                                                           \
        return __VA_ARGS__;                                     \
    }
#define IDEAL_LOGICAL(name, ...)                          \
    static inline double ideal_##name(double a, double b) \
    {                                                     \
        return __VA_ARGS__;                               \
    }
#include "pointwise_ideals.def"

typedef struct unary_ideal {
    const char *name; /* of the function; its operator's name, but for forms */
    wide (*f)(wide x, const double *p, wide greatest);
    double p[3], ulps_f32, ulps_f64;
    bool of_x;
} unary_ideal;

typedef struct binary_ideal {
    double (*f)(double a, double b);
    double ulps_f32;
} binary_ideal;

#define UNWRAP(...) __VA_ARGS__
static const unary_ideal unary_ideals[DS_UNARY_COUNT] = {
#define IDEAL(ID, p, ulps_f32, ulps_f64, of_x, ...) \
    [DS_UNARY_##ID] = {#ID, ideal_unary_##ID, {UNWRAP p}, ulps_f32, ulps_f64, of_x},
#include "pointwise_ideals.def"
};
static const binary_ideal binary_ideals[DS_BINARY_COUNT] = {
#define IDEAL_BINARY(ID, ulps_f32, ...) [DS_BINARY_##ID] = {ideal_binary_##ID, ulps_f32},
#include "pointwise_ideals.def"
};
static const binary_ideal compare_ideals[DS_COMPARE_COUNT] = {
#define IDEAL_COMPARE(ID, ...) [DS_COMPARE_##ID] = {ideal_compare_##ID, 0},
#include "pointwise_ideals.def"
};

/* Whether every function of the kernels has an ideal; says which has none. */
static inline bool every_ideal(void)
{
    bool all = true;
#define FORM(ID, ...)                          \
    if (unary_ideals[DS_UNARY_##ID].f == NULL) \
        all = false, fprintf(stderr, "no ideal of " #ID "\n");
#define UNARY(name, ID, ...) FORM(ID)
#define WHOLE(name, ID, ...) FORM(ID)
#define BINARY(name, ID, ...)                    \
    if (binary_ideals[DS_BINARY_##ID].f == NULL) \
        all = false, fprintf(stderr, "no ideal of " #ID "\n");
#define COMPARE(name, ID, ...)                     \
    if (compare_ideals[DS_COMPARE_##ID].f == NULL) \
        all = false, fprintf(stderr, "no ideal of " #ID "\n");
#include "kernels/pointwise.def"
    return all;
}
