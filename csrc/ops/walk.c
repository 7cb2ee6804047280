/* ops/walk.c: runs of operands, and blocks of them where they are short.
 *
 * A visit takes longer than the work of a few elements. Where runs are short, as many as make a block are written
 * out one behind the other, operand by operand, and visited together: functions of single elements don't see
 * the difference. */
#include "ops/walk.h"

#include <string.h>

enum { SHORT = 64, BLOCK = 512 /* elements */ };

void ds_walk_add(ds_walk *walk, int64_t size, const int64_t *stride)
{
    if (size == 1)
        return;
    bool joined = walk->rank > 0;
    for (int i = 0; joined && i < walk->n_operands; i++)
        joined = walk->stride[walk->rank - 1][i] == stride[i] * size;
    const int d = joined ? walk->rank - 1 : walk->rank++;
    walk->shape[d] = joined ? walk->shape[d] * size : size;
    for (int i = 0; i < walk->n_operands; i++)
        walk->stride[d][i] = stride[i];
}

/* Where a walk stands: at the start of dimension `d`, all dimensions before it having an index. */
typedef struct place {
    int64_t index[DS_WALK_RANK];
    const char *at[DS_WALK_OPERANDS];
} place;

/* Goes on by one along dimension d, or if that is through, along those before it; false at the end. */
static bool step_on(const ds_walk *walk, place *p, int d, const size_t *x_bytes)
{
    for (; d >= 0; d--) {
        const bool carry = ++p->index[d] == walk->shape[d];
        const int64_t moved = carry ? 1 - walk->shape[d] : 1;
        for (int i = 0; i < walk->n_operands; i++)
            p->at[i] += moved * walk->stride[d][i] * (int64_t)x_bytes[i];
        if (!carry)
            return true;
        p->index[d] = 0;
    }
    return false;
}

/* y[j][l] = x[j][0] for n_l of 4 or so: a loop that the compiler sees through. */
#define REPEAT(bytes, n_l)                  \
    for (int64_t j = 0; j < n; j++)         \
        for (int64_t l = 0; l < (n_l); l++) \
            memcpy(y + (j * (n_l) + l) * (bytes), x + j * s_j * (bytes), bytes);

/* y[j][l] = x[j s_j + l s_l], elements of a constant size. */
#define SPREAD(bytes)                                                                          \
    if (s_l == 0 && n_l == 2) {                                                                \
        REPEAT(bytes, 2)                                                                       \
    } else if (s_l == 0 && n_l == 4) {                                                         \
        REPEAT(bytes, 4)                                                                       \
    } else if (s_l == 0 && n_l == 8) {                                                         \
        REPEAT(bytes, 8)                                                                       \
    } else {                                                                                   \
        for (int64_t j = 0; j < n; j++)                                                        \
            for (int64_t l = 0; l < n_l; l++)                                                  \
                memcpy(y + (j * n_l + l) * (bytes), x + (j * s_j + l * s_l) * (bytes), bytes); \
    }

/* Writes out dimensions d.. of operand i, of which d has n indices; returns behind them. */
static char *spread(const ds_walk *walk, int d, int64_t n, int i, char *y, const char *x,
                    size_t n_bytes)
{
    const int inner = walk->rank - 1 - d;
    const int64_t s_j = walk->stride[d][i];
    if (inner > 1) {
        for (int64_t j = 0; j < n; j++)
            y = spread(walk, d + 1, walk->shape[d + 1], i, y, x + j * s_j * (int64_t)n_bytes,
                       n_bytes);
        return y;
    }
    const int64_t n_l = inner == 1 ? walk->shape[d + 1] : 1,
                  s_l = inner == 1 ? walk->stride[d + 1][i] : 0;
    if (n_bytes == 1) {
        SPREAD(1)
    } else if (n_bytes == 4) {
        SPREAD(4)
    } else {
        SPREAD(8)
    }
    return y + n * n_l * (int64_t)n_bytes;
}

/* The step of operand i along dimensions d.., where it is the same for all of them: 0 or 1; else -1. */
static int step_of(const ds_walk *walk, int d, int i)
{
    int64_t expected = 1;
    bool zero = true, one = true;
    for (int e = walk->rank - 1; e >= d; expected *= walk->shape[e--]) {
        zero = zero && walk->stride[e][i] == 0;
        one = one && walk->stride[e][i] == expected;
    }
    return zero ? 0 : one ? 1 : -1;
}

/* Visits n indices of dimension d at a time, with all that lies within them. */
static void run_blocks(const ds_walk *walk, int d, int64_t inner, char *y, size_t y_bytes, place p,
                       const size_t *x_bytes, ds_walk_visit visit, const void *context)
{
    uint64_t room[DS_WALK_OPERANDS][BLOCK];
    const char *held[DS_WALK_OPERANDS] = {
        NULL}; /* what the room shows, where dimension d repeats it */
    const void *view[DS_WALK_OPERANDS] = {NULL};
    size_t step[DS_WALK_OPERANDS] = {0};
    const int64_t most = BLOCK / inner;
    do {
        for (int64_t j = 0, n; j < walk->shape[d]; j += n) {
            n = walk->shape[d] - j < most ? walk->shape[d] - j : most;
            for (int i = 0; i < walk->n_operands; i++) {
                const int own = step_of(walk, d, i);
                const char *x = p.at[i] + j * walk->stride[d][i] * (int64_t)x_bytes[i];
                step[i] = own == 0 ? 0 : 1;
                view[i] = own >= 0 ? (const void *)x : room[i];
                if (own < 0 && held[i] != x) {
                    spread(walk, d, n, i, (char *)room[i], x, x_bytes[i]);
                    held[i] =
                        walk->stride[d][i] == 0 ? x : NULL; /* the first block is the longest */
                }
            }
            visit(context, y, view, (size_t)(n * inner), step);
            y += (size_t)(n * inner) * y_bytes;
        }
    } while (step_on(walk, &p, d - 1, x_bytes));
}

void ds_walk_run(const ds_walk *walk, void *y, size_t y_bytes, const void *const *x,
                 const size_t *x_bytes, ds_walk_visit visit, const void *context)
{
    const int last = walk->rank - 1; /* the run; -1: one element */
    const size_t n = last < 0 ? 1 : (size_t)walk->shape[last];
    size_t step[DS_WALK_OPERANDS] = {0};
    const void *view[DS_WALK_OPERANDS] = {NULL};
    place p = {{0}, {NULL}};
    char *to = y;
    for (int i = 0; i < walk->n_operands; i++) {
        p.at[i] = x[i];
        step[i] = last < 0 ? 1 : (size_t)walk->stride[last][i];
    }
    if (last > 0 && n < SHORT) {
        int d = last;
        int64_t inner = 1;
        while (d > 0 && inner * walk->shape[d] <= BLOCK / 2)
            inner *= walk->shape[d--];
        run_blocks(walk, d, inner, to, y_bytes, p, x_bytes, visit, context);
        return;
    }
    do {
        for (int i = 0; i < walk->n_operands; i++)
            view[i] = p.at[i];
        visit(context, to, view, n, step);
        to += n * y_bytes;
    } while (step_on(walk, &p, last - 1, x_bytes));
}
