/* exec/back.h: one call of an operator read backwards.
 *
 * A call is a function of new frames, kept frames, carried arrays and weights; slopes go the same ways back. A state's
 * slope lies as the state lies: kept frames of each value input, then what is carried. Counts, windows and targets are
 * those that forward had. */
#pragma once
#include "exec/eager.h"

typedef struct ds_eager_back {
    /* As it ran. Of values, outputs and states only what the operator's `reads` names need be there; states[r] is NULL
     * where the row had none, whatever is read of it; new_states and bad are not looked at. */
    const ds_eager *call;
    const void *const *slopes; /* [n_outputs]: of the new frames of all rows; NULL: zeros */
    void *const *inputs;       /* [n_values]: added to, as values lie; NULL: not wanted */
    void *const *weights;      /* [n_weights]: added to; NULL: not wanted */
    const void *const *after;  /* [n_rows]: of the state after the call; NULL: zeros */
    void *const *before;       /* [n_rows]: room for those of the state before; NULL: dropped */
} ds_eager_back;

/* Scratch comes from the arena, which is reset first. Errors: DS_NO_MEMORY, upon which inputs may hold a part of their
 * slopes. */
ds_status ds_eager_backward(const ds_eager_back *back, ds_arena *arena);
