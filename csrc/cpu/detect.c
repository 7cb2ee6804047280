/* Instruction sets: CPUID for the processor, XGETBV for the operating system.
 *
 * A register file that the operating system does not save on a task switch must not be used,
 * whatever CPUID says: XCR0 tells which ones it saves. Bits as in Intel's SDM, volume 1 chapter 13
 * and volume 2 "CPUID"; the levels as in the x86-64 psABI, "Microarchitecture levels". */
#include "cpu/detect.h"

#include <string.h>

#include "base/system.h"
#include "base/utf8.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define DETECT_X86 1
#include <cpuid.h>
#endif

#define BIT(n) (UINT32_C(1) << (n))
#define OSXSAVE BIT(27)

/* The levels, and what each needs beside what those below it do. */
static const struct {
    const char *name;
    ds_cpu_words needs;
} levels[] = {
    [DS_ISA_REF] = {"ref", {0}},
    [DS_ISA_X86_V3] = {"x86_v3",
                       {/* SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, AVX, F16C */
                        .leaf1_ecx = BIT(0) | BIT(9) | BIT(12) | BIT(13) | BIT(19) | BIT(20) |
                                     BIT(22) | BIT(23) | OSXSAVE | BIT(28) | BIT(29),
                        .leaf7_ebx = BIT(3) | BIT(5) | BIT(8), /* BMI1, AVX2, BMI2 */
                        .extended1_ecx = BIT(0) | BIT(5),      /* LAHF, LZCNT */
                        .xcr0 = 0x6}},                         /* xmm, ymm */
    [DS_ISA_X86_V4] = {"x86_v4",
                       {/* AVX512 F, DQ, CD, BW, VL */
                        .leaf7_ebx = BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31),
                        .xcr0 = 0xE0}}, /* opmask, zmm 0-15, zmm 16-31 */
    [DS_ISA_X86_BF16] = {"x86_bf16",
                         {.leaf7_ecx = BIT(11),   /* AVX512 VNNI */
                          .leaf71_eax = BIT(5)}}, /* AVX512 BF16 */
    [DS_ISA_X86_AMX] = {"x86_amx",
                        {.leaf7_edx = BIT(22) | BIT(24) | BIT(25), /* bf16, tile, int8 */
                         .xcr0 = 0x60000}}, /* tile configuration, tile data */
    [DS_ISA_ARM_V8] = {"arm_v8", {0}},
};
enum { N_LEVELS = sizeof levels / sizeof *levels, N_X86_LEVELS = DS_ISA_X86_AMX + 1 };

static bool has(const ds_cpu_words *words, const ds_cpu_words *needs)
{
    return !(needs->leaf1_ecx & ~words->leaf1_ecx) && !(needs->leaf7_ebx & ~words->leaf7_ebx) &&
           !(needs->leaf7_ecx & ~words->leaf7_ecx) && !(needs->leaf7_edx & ~words->leaf7_edx) &&
           !(needs->leaf71_eax & ~words->leaf71_eax) &&
           !(needs->extended1_ecx & ~words->extended1_ecx) && !(needs->xcr0 & ~words->xcr0);
}

ds_isa ds_cpu_decode(const ds_cpu_words *words)
{
    int isa = DS_ISA_REF;
    while (isa + 1 < N_X86_LEVELS && has(words, &levels[isa + 1].needs))
        isa++;
    return (ds_isa)isa;
}

ds_cpu_words ds_cpu_read(void)
{
    ds_cpu_words words = {0};
#ifdef DETECT_X86
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    /* __get_cpuid fails, and writes nothing, where the processor has no such leaf */
    if (__get_cpuid(0, &eax, &ebx, &ecx, &edx))
        words.leaf0_ebx = ebx;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        words.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        words.leaf7_ebx = ebx;
        words.leaf7_ecx = ecx;
        words.leaf7_edx = edx;
        if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
            words.leaf71_eax = eax;
    }
    if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx))
        words.extended1_ecx = ecx;
    if (words.leaf1_ecx & OSXSAVE) { /* without it XGETBV is an illegal instruction */
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        words.xcr0 = (uint64_t)high << 32 | low;
    }
#endif
    return words;
}

#if defined(__aarch64__)
/* Bits of Linux's AT_HWCAP: ASIMD is 1, ASIMDDP 20; and of AT_HWCAP2: BF16 is 14. */
static ds_isa best_up_to(ds_isa cap)
{
    return cap == DS_ISA_ARM_V8 && (ds_system_read_arm().hwcap & BIT(1)) != 0 ? cap : DS_ISA_REF;
}

bool ds_cpu_dots(void)
{
    return (ds_system_read_arm().hwcap & BIT(20)) != 0;
}

bool ds_cpu_bf16_terms(void)
{
    return (ds_system_read_arm().hwcap2 & BIT(14)) != 0;
}
#else
static ds_isa best_up_to(ds_isa cap)
{
    if (cap == DS_ISA_ARM_V8)
        return DS_ISA_REF;
    const uint32_t intel = 0x756e6547; /* "Genu", of "GenuineIntel" */
    const ds_cpu_words words = ds_cpu_read();
    const ds_isa most = ds_cpu_decode(&words);
    ds_isa isa = most < cap ? most : cap;
    if (isa == DS_ISA_X86_AMX && !ds_system_allow_tiles())
        isa = DS_ISA_X86_BF16;
    /* Intel's instruction for bf16 takes longer than the two of AVX-512 that it stands for; AMD's does not. */
    return isa == DS_ISA_X86_BF16 && cap != isa && words.leaf0_ebx == intel ? DS_ISA_X86_V4 : isa;
}

bool ds_cpu_dots(void)
{
    return false;
}

bool ds_cpu_bf16_terms(void)
{
    return false;
}
#endif

ds_isa ds_cpu_best(void)
{
#if defined(__aarch64__)
    return best_up_to(DS_ISA_ARM_V8);
#else
    return best_up_to(DS_ISA_X86_AMX);
#endif
}

ds_status ds_cpu_choose(ds_isa *isa, const char *cap)
{
    if (cap == NULL || cap[0] == '\0') {
        *isa = ds_cpu_best();
        return DS_OK;
    }
    for (int level = 0; level < N_LEVELS; level++) {
        if (strcmp(cap, levels[level].name) == 0) {
            *isa = best_up_to((ds_isa)level);
            return DS_OK;
        }
    }
    return ds_fail(
        DS_ARGUMENT,
        "unknown instruction set '%s': expected ref, x86_v3, x86_v4, x86_bf16, x86_amx or arm_v8",
        DS_SHOWN(cap));
}

const char *ds_isa_name(ds_isa isa)
{
    return (unsigned)isa < N_LEVELS ? levels[isa].name : "unknown";
}
