/* What the tests of csrc/kernels share: random numbers, reals of either size, guarded arrays, bits. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "cpu/detect.h"
#include "kernels/kernels.h"

enum { MAX_VARIANTS = 16, GUARD_BYTES = 128 };

/* What an engine's step lends its thread. */
static _Alignas(64) char workspace_of_tests[DS_WORKSPACE_BYTES];
__attribute__((constructor)) static void lend_workspace(void)
{
    (void)ds_workspace_lend(workspace_of_tests);
}

typedef long double real;

/* Half the distance from 1 to the next number of that size. */
static inline real unit_of(size_t element)
{
    return element == sizeof(float) ? 0x1p-24L : 0x1p-53L;
}

static uint64_t random_state = 0x9e3779b97f4a7c15U;

/* xorshift64*, Marsaglia and Vigna. */
static inline uint64_t random_bits(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1dU;
}

static inline size_t random_size(size_t low, size_t high)
{
    return low + (size_t)(random_bits() >> 33) % (high - low + 1);
}

static inline double random_real(double low, double high)
{
    return low + (high - low) * ((double)(random_bits() >> 11) * 0x1p-53);
}

/* Element i of an array of float or double. */
static inline double get(const void *array, size_t element, size_t i)
{
    return element == sizeof(float) ? (double)((const float *)array)[i]
                                    : ((const double *)array)[i];
}

static inline void put(void *array, size_t element, size_t i, double x)
{
    if (element == sizeof(float))
        ((float *)array)[i] = (float)x;
    else
        ((double *)array)[i] = x;
}

static inline void fill(void *array, size_t element, size_t n, double low, double high)
{
    for (size_t i = 0; i < n; i++)
        put(array, element, i, random_real(low, high));
}

/* An array between two zones that nobody may write to; filled with their byte. */
typedef struct guarded {
    unsigned char *block;
    void *data;
    size_t n_bytes;
} guarded;

enum { GUARD_BYTE = 0xa5 };

static inline guarded guarded_new(size_t n_bytes)
{
    guarded array = {malloc(n_bytes + 2 * GUARD_BYTES), NULL, n_bytes};
    CHECK(array.block != NULL);
    memset(array.block, GUARD_BYTE, n_bytes + 2 * GUARD_BYTES);
    array.data = array.block + GUARD_BYTES;
    return array;
}

static inline void guarded_free(guarded array)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (array.block[i] != GUARD_BYTE ||
            array.block[GUARD_BYTES + array.n_bytes + i] != GUARD_BYTE) {
            CHECK(!"written outside of the array");
        }
    }
    free(array.block);
}

/* A weight [n_cols][depth]. */
static inline ds_weight_layout rows_of(size_t depth)
{
    return (ds_weight_layout){
        .n_taps = 1, .n_inner = 1, .n_channels = depth, .col = (ptrdiff_t)depth, .channel = 1};
}

/* Equal bits, or both NaN, whose bits nobody promises. */
static inline bool same(const void *a, const void *b, size_t element, size_t n)
{
    if (memcmp(a, b, n * element) == 0)
        return true;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *const u = (const unsigned char *)a + i * element;
        const unsigned char *const v = (const unsigned char *)b + i * element;
        if (memcmp(u, v, element) != 0 && !(isnan(get(a, element, i)) && isnan(get(b, element, i))))
            return false;
    }
    return true;
}

/* The kernels of one real type, of every variant that this machine can run, the reference's first. */
typedef struct variants {
    size_t n, element;
    const ds_real_kernels *k[MAX_VARIANTS];
    const char *name[MAX_VARIANTS];
} variants;

/* float_or_double: 0 or 1. */
static inline variants variants_of(size_t float_or_double)
{
    const ds_kernels *all[MAX_VARIANTS];
    const size_t n_all = ds_kernels_list(all, MAX_VARIANTS);
    const ds_isa best = ds_cpu_best();
    CHECK(n_all >= 1 && n_all <= MAX_VARIANTS && all[0]->isa == DS_ISA_REF);
    variants fits = {.element = float_or_double ? sizeof(double) : sizeof(float)};
    for (size_t i = 0; i < n_all; i++)
        if (all[i]->isa <= best) {
            fits.k[fits.n] = &all[i]->real[float_or_double];
            fits.name[fits.n++] = all[i]->name;
        }
    CHECK(fits.k[0]->element == fits.element);
    return fits;
}

/* A program that runs these with the kernels of floats, then of doubles. */
#define KERNEL_TESTS(...)                                             \
    int main(void)                                                    \
    {                                                                 \
        void (*const tests[])(const variants *all) = {__VA_ARGS__};   \
        for (size_t i = 0; i < 2; i++) {                              \
            const variants all = variants_of(i);                      \
            for (size_t t = 0; t < sizeof tests / sizeof *tests; t++) \
                tests[t](&all);                                       \
        }                                                             \
        return check_report();                                        \
    }
