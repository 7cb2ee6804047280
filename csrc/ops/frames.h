/* ops/frames.h: moving whole frames of any type, for operators that only arrange them.
 *
 * Zero frames are allowed everywhere; their pointers may be NULL. */
#ifndef DS_OPS_FRAMES_H
#define DS_OPS_FRAMES_H
#include "ops/op.h"

/* Copies n_bytes; `to` may be `from` (an operator that runs in place). */
void ds_frames_copy(void *to, const void *from, size_t n_bytes);

/* Fills n_bytes, a multiple of pattern_bytes, with copies of the pattern, which lies elsewhere. */
void ds_frames_fill(void *to, size_t n_bytes, const void *pattern, size_t pattern_bytes);

/* Writes the value as an element (of 8 bytes at most); false where the type does not hold it. */
bool ds_frames_encode(ds_dtype dtype, double value, void *element);

/* Copies n frames (or elements) of frame_bytes, step_bytes apart, to contiguous ones. */
void ds_frames_gather(void *to, const void *from, int64_t n, size_t frame_bytes, size_t step_bytes);

/* The forward of output m = frame start + m * step of input 0. */
void ds_frames_take(const ds_op *op, const ds_run *run, int64_t start, int64_t step);

#endif
