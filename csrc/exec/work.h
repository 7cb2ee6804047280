/* exec/work.h: one operator's rows put together, as eager calls and backward have them. */
#pragma once
#include "exec/eager.h"

/* in, out and count are as a run has them. */
typedef struct ds_work {
    const ds_eager *call;
    ds_arena *arena;
    bool back; /* windows that are not read have no data; nothing is written for the next call */
    ds_window *in;
    ds_target *out;
    ds_counts *count;
    void **carried;
    const char **from; /* [n_rows]: what is unread of the states before */
    char **to;         /* [n_rows]: where the rest of the states after goes, or NULL */
    int64_t n_in[DS_MAX_INPUTS], n_out[DS_MAX_OUTPUTS]; /* new frames of all rows */
    int64_t n_kept;                                     /* all frames that had been kept */
} ds_work;

/* Fills all from `call`, `arena` and `back`. */
ds_status ds_work_load(ds_work *w);
/* The run of these rows; its weights are raw, and it has no scratch. */
ds_run ds_work_run(const ds_work *w);
/* Whether the operator runs: it has frames to give, or, where something is carried, to take. */
bool ds_work_runs(const ds_work *w);
/* All rows as one, from frame 0 on, where the operator need not tell them apart; else leaves them. */
bool ds_work_flatten(ds_work *w, ds_run *run);
