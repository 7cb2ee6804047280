/* kernels/x86_v4/kernels_x86_v4.c: the kernels for AVX-512 F, BW, DQ, VL (x86-64-v4).
 *
 * The text of ref/, compiled for 512-bit registers; products by blocks of registers. Its kernels are those of machines
 * with tile units (x86_amx/) or pairs of bf16, too, but for products of cells. */
#include "kernels/variants.h"

#if DSK_X86
#include <immintrin.h>

DSK_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,f16c",
           "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,f16c,prefer-vector-width=512")

#define DSK_ISA x86_v4
#define DSK_ISA_NAME "x86_v4"
#define DSK_ISA_LEVEL DS_ISA_X86_V4
#define DSK_REGISTER 512
#include "kernels/ref/variant.inc"
DSK_TABLES(x86_bf16, "x86_bf16", DS_ISA_X86_BF16, false)
DSK_TABLES(x86_amx, "x86_amx", DS_ISA_X86_AMX, true)

DSK_TARGET_END
#else
typedef int dsk_no_x86_v4; /* a file must hold something */
#endif
