/* kernels/ref/kernels_ref.c: the definition of every kernel, for any machine.
 *
 * Where the processor has no fma that the compiler may use, fmaf and fma are calls: exact and slow. */
#include "kernels/variants.h"

#define DSK_ISA ref
#define DSK_ISA_NAME "ref"
#define DSK_ISA_LEVEL DS_ISA_REF
#include "kernels/ref/variant.inc"
