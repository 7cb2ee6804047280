/* exec/eager.h: one operator for a ragged batch, outside a graph: what eager mode runs.
 *
 * A graph of one node, run as in a batch, but its counts and its state are the caller's: per row the kept
 * frames of each value input, one after another, then the carried arrays. The state's size follows from the
 * counts; new states are written aside. */
#pragma once
#include "base/arena.h"
#include "ops/op.h"

typedef struct ds_eager {
    const ds_op *op;
    const ds_kernels *kernels;
    size_t n_rows;
    const ds_counts *const *in;  /* [n_inputs] -> [n_rows] */
    const ds_counts *const *out; /* [n_outputs] -> [n_rows] */
    const bool *ended;           /* [n_rows] */
    const void *const *values;   /* [n_values]: new frames of all rows, row after row */
    const void *const *weights;  /* [n_weights], raw */
    const void *prepared;        /* what prepare makes of them; NULL: not made yet */
    /* [n_rows]: state before; NULL where it is empty, a start, or not read because the row keeps its
     * new frames and gives none (then new_states is NULL too, and the caller keeps the frames) */
    const void *const *states;
    void *const *outputs;    /* [n_outputs]: room for the new frames of all rows */
    void *const *new_states; /* [n_rows]: room for the state after; NULL where not wanted */
    bool *bad;               /* [n_rows]: set where an error concerns that row */
    void *const *saved;      /* [n_saved]: room for what backward reads besides; NULL: not wanted */
    const ds_drop *drop;     /* as a run has it */
} ds_eager;

static inline int64_t ds_new_frames(const ds_counts *c)
{
    return c->now.known - c->before.known;
}

/* First frame of value input i that is kept when its pair is `in` and output 0's is `out`; in.known
 * where nothing is kept. */
int64_t ds_eager_kept_from(const ds_op *op, int input, ds_pair in, ds_pair out);
/* Bytes of one row's state for these counts (in: one pair per input), and of each value input the frames that
 * are kept. */
ds_status ds_eager_state_bytes(const ds_op *op, const ds_pair *in, ds_pair out, int64_t *n_kept,
                               size_t *n_bytes);
/* Looks at the new values of the checked input of all rows, one row's after another, and marks those that are refused.
 * Errors: DS_INDEX. */
ds_status ds_eager_check_values(const ds_op *op, const void *values, const ds_counts *counts,
                                size_t n_rows, bool *bad);
/* Runs; scratch comes from the arena, which is reset first. Errors: DS_NO_MEMORY; DS_INDEX. */
ds_status ds_eager_run(const ds_eager *eager, ds_arena *arena);
