/* kernels/arm_v8/kernels_arm_v8.c: the kernels for 64-bit ARM (Armv8-A with its vectors, NEON).
 *
 * The text of ref/, compiled for 128-bit registers; products and depthwise convolutions by blocks of them. */
#include "kernels/variants.h"

#if DSK_ARM
#include <arm_neon.h>

#define DSK_ISA arm_v8
#define DSK_ISA_NAME "arm_v8"
#define DSK_ISA_LEVEL DS_ISA_ARM_V8
#define DSK_REGISTER 128
#include "kernels/ref/variant.inc"
#else
typedef int dsk_no_arm_v8; /* a file must hold something */
#endif
