/* ops/limit.h: what is said of a stream that is longer than what waits for its end may be. */
#ifndef DS_OPS_LIMIT_H
#define DS_OPS_LIMIT_H
#include "ops/op.h"

/* Writes it, for buffer_limit; returns text. */
const char *ds_limit_message(int64_t n_frames, int64_t limit, char *text, size_t n_bytes);

#endif
