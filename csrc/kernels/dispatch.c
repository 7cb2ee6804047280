/* kernels/dispatch.c: which table serves an instruction set. The tables are constants of their
 * variants; nothing is stored here. */
#include "cpu/float_env.h"
#include "kernels/variants.h"

/* Ascending. */
static const struct {
    ds_isa level;
    const ds_kernels *(*table)(bool blas);
} variants[] = {
    {DS_ISA_REF, dsk_table__ref},
#if DSK_X86
    {DS_ISA_X86_V3, dsk_table__x86_v3},     {DS_ISA_X86_V4, dsk_table__x86_v4},
    {DS_ISA_X86_BF16, dsk_table__x86_bf16}, {DS_ISA_X86_AMX, dsk_table__x86_amx},
#elif DSK_ARM
    {DS_ISA_ARM_V8, dsk_table__arm_v8},
#endif
};

enum { N_VARIANTS = sizeof variants / sizeof *variants };

#if DSK_X86
/* Whatever the host has set for its thread. */
static bool pairs_agree(void)
{
    if (!__builtin_cpu_supports("avx512bf16")) /* these kernels are looked at, not run */
        return true;
    ds_float_env callers;
    ds_float_env_enter(&callers);
    const bool agree = dsk_pairs_agree();
    ds_float_env_leave(&callers);
    return agree;
}
#endif

static const ds_kernels *best(ds_isa isa, bool blas)
{
    size_t i = N_VARIANTS - 1;
    while (i > 0 && isa < variants[i].level)
        i--;
#if DSK_X86
    if (variants[i].level == DS_ISA_X86_BF16 && !pairs_agree())
        i--;
#endif
    return variants[i].table(blas);
}

const ds_kernels *ds_kernels_for(ds_isa isa)
{
    return best(isa, false);
}

const ds_kernels *ds_kernels_blas(ds_isa isa)
{
    return best(isa, true);
}

size_t ds_kernels_list(const ds_kernels **fills, size_t n)
{
    for (size_t i = 0; i < n && i < N_VARIANTS; i++)
        fills[i] = variants[i].table(false);
    return N_VARIANTS;
}
