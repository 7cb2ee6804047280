/* ir/clock.h: several inputs of one stream, each with its rate, advance together.
 *
 * max(n_i / r_i) - min(n_j / r_j) < (skew + 1) / r_slowest must hold for their frames so far; all in
 * exact integers: input i's time is n_i * tick[i]. An input of rate 0 is given once, as one frame with the
 * stream's start: it has no part in this. */
#pragma once
#include "ir/stairs.h"
#include "ops/op.h"

typedef struct ds_clock {
    size_t n_inputs, n_moving;   /* moving: those that have a rate */
    int64_t tick[DS_MAX_INPUTS]; /* duration of one frame of input i; 0: it is given once */
    int64_t limit;               /* the spread must stay below it */
} ds_clock;

/* rates: one per input, that of the first positive. Errors: DS_ARGUMENT for a negative or absurd skew, or rates
 * without a common tick. */
ds_status ds_clock_init(ds_clock *clock, const ds_rate *rates, size_t n_inputs, int64_t skew);
/* Whether these frames so far (one per input) are close enough together. */
bool ds_clock_together(const ds_clock *clock, const int64_t *frames);
/* How many frames input i can be before where whole frames of input 0's time put it: from low to high. */
void ds_clock_offsets(const ds_clock *clock, size_t i, int64_t *low, int64_t *high);
/* Frames of all inputs as functions of those of input 0, input i offsets[i] before that (offsets[0] is 0), and
 * where the clock admits them: 1, else 0; mask NULL for a single input, which is admitted anywhere. An input
 * that is given once has one frame.
 * DS_LIMIT for rates that repeat too late. */
ds_status ds_clock_functions(const ds_clock *clock, ds_stairs_maker *m, const int64_t *offsets,
                             const ds_stairs **frames, const ds_stairs **mask);
