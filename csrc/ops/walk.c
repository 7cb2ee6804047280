#include "ops/walk.h"

void ds_walk_add(ds_walk *walk, int64_t size, const int64_t *stride)
{
    if (size == 1) {
        return;
    }
    bool joined = walk->rank > 0;
    for (int i = 0; joined && i < walk->n_operands; i++) {
        joined = walk->stride[walk->rank - 1][i] == stride[i] * size;
    }
    const int d = joined ? walk->rank - 1 : walk->rank++;
    walk->shape[d] = joined ? walk->shape[d] * size : size;
    for (int i = 0; i < walk->n_operands; i++) {
        walk->stride[d][i] = stride[i];
    }
}

void ds_walk_run(const ds_walk *walk, void *y, size_t y_bytes, const void *const *x,
                 const size_t *x_bytes, ds_walk_visit visit, const void *context)
{
    const int last = walk->rank - 1; /* the run; -1: one element */
    const size_t n = last < 0 ? 1 : (size_t)walk->shape[last];
    size_t step[DS_WALK_OPERANDS] = {0};
    const char *at[DS_WALK_OPERANDS] = {NULL};
    const void *view[DS_WALK_OPERANDS] = {NULL};
    int64_t index[DS_WALK_RANK] = {0};
    char *to = y;
    for (int i = 0; i < walk->n_operands; i++) {
        at[i] = x[i];
        step[i] = last < 0 ? 1 : (size_t)walk->stride[last][i];
    }
    for (;;) {
        for (int i = 0; i < walk->n_operands; i++) {
            view[i] = at[i];
        }
        visit(context, to, view, n, step);
        to += n * y_bytes;
        int d = last - 1;
        for (; d >= 0; d--) {
            const bool carry = ++index[d] == walk->shape[d];
            const int64_t moved = carry ? 1 - walk->shape[d] : 1;
            for (int i = 0; i < walk->n_operands; i++) {
                at[i] += moved * walk->stride[d][i] * (int64_t)x_bytes[i];
            }
            if (!carry) {
                break;
            }
            index[d] = 0;
        }
        if (d < 0) {
            return;
        }
    }
}
