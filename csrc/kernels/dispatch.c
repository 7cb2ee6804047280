/* kernels/dispatch.c: which table serves an instruction set. The tables are constants of their
 * variants (kernels.def); nothing is stored here. */
#include "kernels/kernels.h"
#include "kernels/variants.h"

const ds_kernels *ds_kernels_for(ds_isa isa)
{
    const ds_kernels *best = dsk_table__ref();
#define DSK_VARIANT(name, level)    \
    if (isa >= (level)) {           \
        best = dsk_table__##name(); \
    }
#include "kernels/kernels.def"
#undef DSK_VARIANT
    return best;
}

const ds_kernels *ds_kernels_blas(ds_isa isa)
{
    const ds_kernels *best = dsk_blas_table__ref();
#define DSK_VARIANT(name, level)         \
    if (isa >= (level)) {                \
        best = dsk_blas_table__##name(); \
    }
#include "kernels/kernels.def"
#undef DSK_VARIANT
    return best;
}

size_t ds_kernels_list(const ds_kernels **fills, size_t n)
{
    size_t count = 0;
#define DSK_VARIANT(name, level)            \
    if (count < n) {                        \
        fills[count] = dsk_table__##name(); \
    }                                       \
    count++;
#include "kernels/kernels.def"
#undef DSK_VARIANT
    return count;
}
