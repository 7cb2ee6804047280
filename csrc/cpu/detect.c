/*
 * Instruction sets: CPUID for the processor, XGETBV for the operating system.
 *
 * A register file that the operating system does not save on a task switch must not be used,
 * whatever CPUID says: XCR0 tells which ones it saves. Bits as in Intel's SDM, volume 1 chapter 13
 * and volume 2 "CPUID"; the levels as in the x86-64 psABI, "Microarchitecture levels".
 */
#if defined(__linux__)
#define _GNU_SOURCE /* syscall() */
#endif

#include "cpu/detect.h"

#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define DETECT_X86 1
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#define BIT(n) (UINT32_C(1) << (n))

/* CPUID 1, ecx: SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C */
#define OSXSAVE BIT(27)
#define V3_LEAF1_ECX                                                                         \
    (BIT(0) | BIT(9) | BIT(12) | BIT(13) | BIT(19) | BIT(20) | BIT(22) | BIT(23) | OSXSAVE | \
     BIT(28) | BIT(29))
/* CPUID 7, ebx: BMI1, AVX2, BMI2 */
#define V3_LEAF7_EBX (BIT(3) | BIT(5) | BIT(8))
/* CPUID 0x80000001, ecx: LAHF, LZCNT */
#define V3_EXTENDED1_ECX (BIT(0) | BIT(5))
/* CPUID 7, ebx: AVX512 F, DQ, CD, BW, VL */
#define V4_LEAF7_EBX (BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31))
/* CPUID 7, edx: AMX bf16, tile, int8 */
#define AMX_LEAF7_EDX (BIT(22) | BIT(24) | BIT(25))

#define AVX512_VNNI_LEAF7_ECX BIT(11)
#define AVX_VNNI_LEAF7_1_EAX BIT(4)
#define AVX512_BF16_LEAF7_1_EAX BIT(5)

/* XCR0: xmm, ymm; opmask, zmm 0-15, zmm 16-31; tile configuration, tile data */
#define XCR0_V3 UINT64_C(0x6)
#define XCR0_V4 (XCR0_V3 | UINT64_C(0xE0))
#define XCR0_AMX (XCR0_V4 | UINT64_C(0x60000))

static bool has(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

ds_cpu_features ds_cpu_decode(const ds_cpu_words *words)
{
    ds_cpu_features features = {false, false, false, false, false, false};
    features.v3 = has(words->leaf1_ecx, V3_LEAF1_ECX) && has(words->leaf7_ebx, V3_LEAF7_EBX) &&
                  has(words->extended1_ecx, V3_EXTENDED1_ECX) && (words->xcr0 & XCR0_V3) == XCR0_V3;
    features.v4 =
        features.v3 && has(words->leaf7_ebx, V4_LEAF7_EBX) && (words->xcr0 & XCR0_V4) == XCR0_V4;
    features.amx =
        features.v4 && has(words->leaf7_edx, AMX_LEAF7_EDX) && (words->xcr0 & XCR0_AMX) == XCR0_AMX;
    features.avx_vnni = features.v3 && has(words->leaf7_1_eax, AVX_VNNI_LEAF7_1_EAX);
    features.avx512_vnni = features.v4 && has(words->leaf7_ecx, AVX512_VNNI_LEAF7_ECX);
    features.avx512_bf16 = features.v4 && has(words->leaf7_1_eax, AVX512_BF16_LEAF7_1_EAX);
    return features;
}

#ifdef DETECT_X86

ds_cpu_words ds_cpu_read(void)
{
    ds_cpu_words words;
    memset(&words, 0, sizeof words);
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    /* __get_cpuid fails, and writes nothing, where the processor has no such leaf */
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        words.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        const unsigned highest_subleaf = eax;
        words.leaf7_ebx = ebx;
        words.leaf7_ecx = ecx;
        words.leaf7_edx = edx;
        if (highest_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
            words.leaf7_1_eax = eax;
    }
    if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx))
        words.extended1_ecx = ecx;
    if (has(words.leaf1_ecx, OSXSAVE)) { /* without it XGETBV is an illegal instruction */
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        words.xcr0 = (uint64_t)high << 32 | low;
    }
    return words;
}

#else

ds_cpu_words ds_cpu_read(void)
{
    ds_cpu_words words;
    memset(&words, 0, sizeof words);
    return words;
}

#endif

/* Linux switches the tiles' 8 KiB of state on for processes that ask; elsewhere, never. */
static bool allow_tiles(void)
{
#if defined(DETECT_X86) && defined(__linux__) && defined(SYS_arch_prctl)
    const long request_permission = 0x1023; /* ARCH_REQ_XCOMP_PERM */
    const long tile_data = 18;              /* XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

ds_cpu_features ds_cpu_detect(void)
{
    const ds_cpu_words words = ds_cpu_read();
    return ds_cpu_decode(&words);
}

static ds_isa best_up_to(ds_isa cap)
{
    const ds_cpu_features features = ds_cpu_detect();
    if (cap >= DS_ISA_X86_AMX && features.amx && allow_tiles())
        return DS_ISA_X86_AMX;
    if (cap >= DS_ISA_X86_V4 && features.v4)
        return DS_ISA_X86_V4;
    if (cap >= DS_ISA_X86_V3 && features.v3)
        return DS_ISA_X86_V3;
    return DS_ISA_REF;
}

ds_isa ds_cpu_best(void)
{
    return best_up_to(DS_ISA_X86_AMX);
}

ds_status ds_cpu_choose(ds_isa *isa, const char *cap)
{
    if (cap == NULL || cap[0] == '\0') {
        *isa = ds_cpu_best();
        return DS_OK;
    }
    for (int level = DS_ISA_REF; level <= DS_ISA_X86_AMX; level++) {
        if (strcmp(cap, ds_isa_name((ds_isa)level)) == 0) {
            *isa = best_up_to((ds_isa)level);
            return DS_OK;
        }
    }
    return ds_fail(DS_ARGUMENT,
                   "unknown instruction set '%s': expected ref, x86_v3, x86_v4 or x86_amx", cap);
}

bool ds_cpu_has_vnni(void)
{
    return ds_cpu_detect().avx512_vnni;
}

const char *ds_isa_name(ds_isa isa)
{
    switch (isa) {
    case DS_ISA_REF:
        return "ref";
    case DS_ISA_X86_V3:
        return "x86_v3";
    case DS_ISA_X86_V4:
        return "x86_v4";
    case DS_ISA_X86_AMX:
        return "x86_amx";
    }
    return "unknown";
}
