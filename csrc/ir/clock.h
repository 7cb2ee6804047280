/* ir/clock.h: several inputs of one stream, each with its rate, advance together.
 *
 * max(n_i / r_i) - min(n_j / r_j) < (skew + 1) / r_slowest must hold for their frames so far; all in
 * exact integers: input i's time is n_i * tick[i]. */
#ifndef DS_IR_CLOCK_H
#define DS_IR_CLOCK_H
#include "ops/op.h"

typedef struct ds_clock {
    size_t n_inputs;
    int64_t tick[DS_MAX_INPUTS]; /* duration of one frame of input i */
    int64_t limit;               /* the spread must stay below it */
} ds_clock;

/* rates: one per input, positive. Errors: DS_ARGUMENT for a negative or absurd skew, or rates
 * without a common tick. */
ds_status ds_clock_init(ds_clock *clock, const ds_rate *rates, size_t n_inputs, int64_t skew);
/* Whether these frames so far (one per input) are close enough together. */
bool ds_clock_together(const ds_clock *clock, const int64_t *frames);

#endif
