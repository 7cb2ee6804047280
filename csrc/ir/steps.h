/* ir/steps.h: integers as functions of how many frames have come.
 *
 * What is counted of a stream after n = 0, 1, 2, ... frames stays as it is between steps, and the steps repeat:
 * within a stretch of n, f(n + period) = f(n) + gain, and the last stretch has no end. So a function is a list of
 * stretches, each with the steps of one period; operations on functions take time by the number of steps,
 * not of frames, however long a stretch is. */
#ifndef DS_IR_STEPS_H
#define DS_IR_STEPS_H
#include "ops/expr.h"

enum { DS_MOST_PERIOD = 1 << 24 }; /* frames */

typedef struct ds_step {
    int64_t at; /* from a stretch's origin, below its period; the first at 0 */
    int64_t value;
} ds_step;

typedef struct ds_stretch {
    int64_t start;  /* up to the next one's */
    int64_t origin; /* where a period begins */
    int64_t period, gain;
    size_t first, n; /* of its steps */
} ds_stretch;

typedef struct ds_steps {
    size_t n_users;
    size_t n_stretches, n_steps, stretches_capacity, steps_capacity;
    ds_stretch *stretches; /* most have few, which lie here */
    ds_step *steps;
    ds_stretch few_stretches[4];
    ds_step few_steps[8];
} ds_steps;

/* Who makes functions: where their memory comes from, and how many steps may still be looked at. */
typedef struct ds_steps_maker {
    ds_allocator allocator;
    int64_t work;
} ds_steps_maker;

/* DS_LIMIT where nothing is left of the work. */
ds_status ds_steps_spend(ds_steps_maker *m, int64_t n_looks);
/* f(n) = value. */
ds_status ds_steps_constant(ds_steps_maker *m, ds_steps **f, int64_t value);
/* f(n) = floor(n * gain / period) + plus. */
ds_status ds_steps_line(ds_steps_maker *m, ds_steps **f, int64_t period, int64_t gain, int64_t plus);
/* f(n) = scale * (n * a mod b). */
ds_status ds_steps_rest(ds_steps_maker *m, ds_steps **f, int64_t a, int64_t b, int64_t scale);
/* f(n) = g(n + 1). */
ds_status ds_steps_next(ds_steps_maker *m, ds_steps **f, const ds_steps *g);
/* f(n) = code(a(n), b(n), c(n)); c NULL but for select. DS_LIMIT where the result does not repeat (a product
 * of two functions), or only after more than DS_MOST_PERIOD frames. */
ds_status ds_steps_apply(ds_steps_maker *m, ds_steps **f, ds_expr_code code, const ds_steps *a,
                         const ds_steps *b, const ds_steps *c);
/* f becomes code(f, b), code(f, k); or 0 where `condition` is not positive. f stays as it is on failure. */
ds_status ds_steps_change(ds_steps_maker *m, ds_steps **f, ds_expr_code code, const ds_steps *b);
ds_status ds_steps_change_k(ds_steps_maker *m, ds_steps **f, ds_expr_code code, int64_t k);
ds_status ds_steps_mask(ds_steps_maker *m, ds_steps **f, const ds_steps *condition);
ds_steps *ds_steps_share(ds_steps *f);
void ds_steps_release(ds_steps_maker *m, ds_steps *f); /* f may be NULL */

int64_t ds_steps_at(const ds_steps *f, int64_t n);
/* The next n at which f may differ; DS_NEVER: none. */
int64_t ds_steps_after(const ds_steps *f, int64_t n);
static inline const ds_stretch *ds_steps_last(const ds_steps *f)
{
    return &f->stretches[f->n_stretches - 1];
}
/* Whether both are made of the same steps. */
bool ds_steps_same(const ds_steps *f, const ds_steps *g);
/* The largest value up to the end of the last stretch's first period, and the first n found with a positive one
 * (-1: none). Beyond it is larger only where the last stretch has a gain. */
ds_status ds_steps_most(ds_steps_maker *m, const ds_steps *f, int64_t *most, int64_t *positive);
/* The first n with another value than 0; -1: none. */
ds_status ds_steps_nonzero(ds_steps_maker *m, const ds_steps *f, int64_t *n);
int64_t ds_greatest_divisor(int64_t a, int64_t b);
/* a becomes the least common multiple; DS_LIMIT beyond DS_MOST_PERIOD. */
ds_status ds_extend_period(int64_t *a, int64_t b);

#endif
