/* One line for a step's rows: what the caller says of each, and which were at fault. */
#pragma once

#include <string.h>

#include "exec/step.h"

/* n_frames: [n_inputs][n_rows]; ended, bad: [n_rows]. */
static inline ds_status begin_rows(ds_step *step, ds_slot *const *slots, const int64_t *n_frames,
                                   const bool *ended, bool *bad, size_t n_rows)
{
    DS_TRY(ds_step_rows(step, n_rows));
    if (n_rows > 0) {
        memcpy(step->slots, slots, n_rows * sizeof *slots);
        memcpy(step->n_frames, n_frames, n_rows * step->plan->graph->n_inputs * sizeof *n_frames);
        memcpy(step->ended, ended, n_rows * sizeof *ended);
    }
    const ds_status status = ds_step_begin(step);
    if (n_rows > 0)
        memcpy(bad, step->bad, n_rows * sizeof *bad);
    return status;
}
