/* kernels/x86_v3/kernels_x86_v3.c: the kernels for AVX2 and FMA (x86-64-v3).
 *
 * The text of ref/, compiled for 256-bit registers; products by blocks of registers. */
#include "kernels/variants.h"

#if DSK_X86
#include <immintrin.h>

DSK_TARGET("avx2,fma,bmi2,f16c", "avx2,fma,bmi2,f16c")

#define DSK_ISA x86_v3
#define DSK_ISA_NAME "x86_v3"
#define DSK_ISA_LEVEL DS_ISA_X86_V3
#define DSK_REGISTER 256
#include "kernels/ref/variant.inc"

DSK_TARGET_END
#else
typedef int dsk_no_x86_v3; /* a file must hold something */
#endif
