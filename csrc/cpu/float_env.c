/* cpu/float_env.c: by the control register of SSE where there is one, else by <fenv.h>. */
#include "cpu/float_env.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

/* All exceptions masked, no flags, round to nearest, neither FTZ nor DAZ: what processes begin with. */
#define ENGINES_MXCSR 0x1F80u

void ds_float_env_enter(ds_float_env *callers)
{
    callers->mxcsr = _mm_getcsr();
    _mm_setcsr(ENGINES_MXCSR);
}

void ds_float_env_leave(const ds_float_env *callers)
{
    _mm_setcsr(callers->mxcsr);
}
#else
void ds_float_env_enter(ds_float_env *callers)
{
    (void)fegetenv(&callers->env);
    (void)fesetenv(FE_DFL_ENV);
}

void ds_float_env_leave(const ds_float_env *callers)
{
    (void)fesetenv(&callers->env);
}
#endif
