/* cpu/float_env.h: the floating-point environment that the engine computes in: round to nearest, numbers
 * below the normal range kept, no traps. A host may have chosen another one for its threads (flush-to-zero,
 * denormals as zero, a direction of rounding, traps); with it bits would depend on which thread computes.
 *
 * Costs a few nanoseconds. Pairs may stand within each other. A thread that runs nothing but the engine's
 * work enters once. */
#pragma once

#if defined(__x86_64__)
typedef struct ds_float_env {
    unsigned mxcsr;
} ds_float_env;
#else
#include <fenv.h>
typedef struct ds_float_env {
    fenv_t env;
} ds_float_env;
#endif

/* Fills `*callers`, which is best DS_SCOPED(ds_float_env_leave), with the calling thread's environment and sets the engine's. Thread: any. */
void ds_float_env_enter(ds_float_env *callers);
/* Puts back what was there, exception flags included: what the engine computes raises none. */
void ds_float_env_leave(const ds_float_env *callers);
