/* ops/limit.h: what is said of a stream that is longer than what waits for its end may be. */
#pragma once
#include "ops/op.h"

/* Fails with it, for buffer_limit. */
ds_status ds_limit_fail(const ds_op *op, int64_t n_frames, int64_t limit);
