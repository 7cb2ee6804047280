/* exec/batch.h: one call for a ragged batch of streams.
 *
 * Phase 1 (ds_batch_begin): integers, checks, sizes, all allocations; may fail, and then nothing has
 * changed. The caller writes the new input frames (ds_batch_input) and has them looked at
 * (ds_batch_check): the last that may fail. Phase 2 (ds_batch_run): values; cannot fail; updates the streams' blocks in place. The caller reads the outputs
 * (ds_batch_output). The rows are split among threads; every row's bits are its own. */
#ifndef DS_EXEC_BATCH_H
#define DS_EXEC_BATCH_H
#include "base/arena.h"
#include "cpu/threads.h"
#include "exec/session.h"

typedef struct ds_batch ds_batch;

/* A batch is scratch for one call at a time; after a call no larger than an earlier one it has
 * allocated nothing. Keeps the plan. */
ds_status ds_batch_create(ds_batch **batch, const ds_plan *plan);
void ds_batch_destroy(ds_batch *batch);
/* The pool on which calls will run: its workers are awake by then, where there is work for them. Keeps it. */
void ds_batch_expect(ds_batch *batch, ds_pool *pool);

/* slots: distinct, entered by the caller. n_frames: [n_inputs][n_rows] new frames. ended: [n_rows].
 * bad: [n_rows], set where the error concerns that row (borrows all until ds_batch_run is over).
 * Errors: DS_SHAPE (a check failed at the end; a position beyond a table), DS_MISMATCH (inputs further
 * apart than the skew), DS_ARGUMENT (negative or absurd counts), DS_NO_MEMORY. */
ds_status ds_batch_begin(ds_batch *batch, ds_slot *const *slots, const int64_t *n_frames,
                         const bool *ended, bool *bad, size_t n_rows, size_t n_threads);
/* Where the new frames of a graph input of one row go, contiguous. */
void *ds_batch_input(const ds_batch *batch, size_t input, size_t row);
/* The new frames of a graph output of one row: count and absolute position of the first. Known after
 * ds_batch_begin. */
int64_t ds_batch_output_frames(const ds_batch *batch, size_t output, size_t row, int64_t *start);
/* Whether the new input frames are what the operators that read them can take; marks bad rows, as
 * ds_batch_begin does. Errors: DS_INDEX. */
ds_status ds_batch_check(const ds_batch *batch, bool *bad);
void ds_batch_run(ds_batch *batch, ds_pool *pool);
/* Bytes of kept frames that the last run copied to where they were needed. */
size_t ds_batch_moved(const ds_batch *batch);
/* Returns view, valid until the next call with this batch. */
const void *ds_batch_output(const ds_batch *batch, size_t output, size_t row);

#endif
