/* What the compiler must not do with floats: compile_flags.txt includes this in front of every file.
 *
 * Outputs are the same bits on every machine because each expression is computed as it is written: in its own
 * type, in its own order, with signed zeros, infinities, NaN and denormals. The build's flags say so, after all
 * that CFLAGS and CC may say; a compiler that was told otherwise behind them is stopped here. */
#pragma once

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || defined(__ROUNDING_MATH__)
#error \
    "DreamStream's numbers need exact floats: compile without -ffast-math, -Ofast and their parts"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0
#error "DreamStream's numbers may be NaN and infinite: compile without -ffinite-math-only"
#endif
#if defined(__GCC_IEC_559) && __GCC_IEC_559 == 0 /* -fsingle-precision-constant, too */
#error "DreamStream's numbers need IEEE 754: compile without flags that give it up"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error "DreamStream computes floats as floats: compile with -mfpmath=sse, not for the x87"
#endif
