/* ir/stairs.h: integers as functions of how many frames have come.
 *
 * What is counted of a stream after n = 0, 1, 2, ... frames stays as it is between steps, and the steps repeat:
 * within a stretch of n, f(n + period) = f(n) + gain, and the last stretch has no end. So a function is a list of
 * stretches, each with the steps of one period; operations on functions take time by the number of steps,
 * not of frames, however long a stretch is. */
#pragma once
#include "base/arena.h"
#include "ops/expr.h"

__extension__ typedef __int128 ds_wide; /* frames times ticks go beyond 64 bits */

enum { DS_MOST_PERIOD = 1 << 24 }; /* frames */

typedef struct ds_stair {
    int64_t at; /* from a stretch's origin, below its period; the first at 0 */
    int64_t value;
} ds_stair;

typedef struct ds_flight {
    int64_t start;  /* up to the next one's */
    int64_t origin; /* where a period begins */
    int64_t period, gain;
    size_t first, n; /* of its steps */
} ds_flight;

typedef struct ds_stairs {
    size_t n_stretches, n_steps, stretches_capacity, steps_capacity;
    ds_flight *stretches;
    ds_stair *steps;
} ds_stairs;

/* Who makes functions: where they lie, for as long as the arena is not reset, and how many steps may still
 * be looked at. */
typedef struct ds_stairs_maker {
    ds_arena arena;
    int64_t work;
} ds_stairs_maker;

/* DS_LIMIT where nothing is left of the work. */
ds_status ds_stairs_spend(ds_stairs_maker *m, int64_t n_looks);
/* f(n) = value. */
ds_status ds_stairs_constant(ds_stairs_maker *m, const ds_stairs **f, int64_t value);
/* f(n) = floor(n * gain / period) + plus. */
ds_status ds_stairs_line(ds_stairs_maker *m, const ds_stairs **f, int64_t period, int64_t gain,
                         int64_t plus);
/* f(n) = g(n + 1). */
ds_status ds_stairs_next(ds_stairs_maker *m, const ds_stairs **f, const ds_stairs *g);
/* f(n) = code(a(n), b(n), c(n)); c NULL but for select. DS_LIMIT where the result does not repeat (a product
 * of two functions), or only after more than DS_MOST_PERIOD frames. */
ds_status ds_stairs_apply(ds_stairs_maker *m, const ds_stairs **f, ds_expr_code code,
                          const ds_stairs *a, const ds_stairs *b, const ds_stairs *c);
/* f(n) = code(a(n), k). */
ds_status ds_stairs_apply_k(ds_stairs_maker *m, const ds_stairs **f, ds_expr_code code,
                            const ds_stairs *a, int64_t k);
/* f(n) = a(n), or 0 where `condition` is not positive; NULL: it always is. */
ds_status ds_stairs_mask(ds_stairs_maker *m, const ds_stairs **f, const ds_stairs *a,
                         const ds_stairs *condition);
/* Copies f into another arena. */
ds_status ds_stairs_keep(ds_arena *arena, const ds_stairs **f);

int64_t ds_stairs_at(const ds_stairs *f, int64_t n);
/* The next n at which f may differ; DS_NEVER: none. */
int64_t ds_stairs_after(const ds_stairs *f, int64_t n);
static inline const ds_flight *ds_stairs_last(const ds_stairs *f)
{
    return &f->stretches[f->n_stretches - 1];
}
/* Whether both are made of the same steps. */
bool ds_stairs_same(const ds_stairs *f, const ds_stairs *g);
typedef struct ds_stairs_summary {
    int64_t most; /* of the last stretch in its first period; larger beyond only where that gains */
    int64_t positive; /* the first n found with a positive value; -1: none */
    int64_t nonzero;  /* the first n with another value than 0; -1: none */
} ds_stairs_summary;

ds_status ds_stairs_summarise(ds_stairs_maker *m, const ds_stairs *f, ds_stairs_summary *summary);
/* Whether f never gets smaller. */
bool ds_stairs_ascends(const ds_stairs *f);
/* The most that f is above g by, both ascending, without making the difference: of the last stretch in its first
 * period, by whose `period` it grows by `gain`. */
ds_status ds_stairs_apart(ds_stairs_maker *m, const ds_stairs *f, const ds_stairs *g, int64_t *most,
                          int64_t *gain, int64_t *period);
/* a becomes the least common multiple; DS_LIMIT beyond DS_MOST_PERIOD. */
ds_status ds_extend_period(int64_t *a, int64_t b);
