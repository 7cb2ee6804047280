/* exec/budget.h: the most memory that a model may take, counted before any of it is taken.
 *
 * A file of some hundred bytes can ask for any amount: a pad of 2^40 frames, a Fourier transform of 2^24 numbers a
 * thousand times. So a plan adds up what its nodes take, what its weights do as its kernels want them, what one stream
 * remembers, and what a call takes that brings one frame of input 0 and ends the stream; each call, what its rows
 * take. */
#pragma once
#include "exec/plan.h"

/* The plan's max_bytes where its maker says 0: these, and so many times the weights as they were given. */
#define DS_DEFAULT_BYTES ((size_t)1 << 31)
enum { DS_DEFAULT_TIMES_WEIGHTS = 4 };

/* Sets the plan's limits; max_bytes 0: the default, and for calls the memory of this machine. Before weights are packed,
 * and after all else is known. Errors: DS_LIMIT, naming the node that takes most. */
ds_status ds_budget_start(ds_plan *plan, ds_arena *scratch, size_t max_bytes);
/* Adds what packed weights, or other things that are prepared, of a node take. Errors: DS_LIMIT. */
ds_status ds_budget_add(ds_plan *plan, size_t j, size_t n_bytes);
/* Returns what is wrong with a call that takes n_bytes, `most` of them, of one row, for edge e: DS_LIMIT, or DS_NO_MEMORY
 * where nobody chose a limit. */
ds_status ds_budget_refuse_call(const ds_plan *plan, size_t n_bytes, size_t e, size_t most);
