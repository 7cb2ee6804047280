/* Instruction sets: what this processor has *and* the operating system has switched on.
 *
 * The levels are ordered: whoever has one has all below it. x86_v3 and x86_v4 are the levels
 * x86-64-v3 and -v4 of the psABI in full, so whole files may be compiled for them. 64-bit ARM has one
 * level of its own; other processors have DS_ISA_REF, plain C.
 *
 * Nothing is cached: each call asks the processor, which may take microseconds under a hypervisor.
 * Ask once and keep the answer. All functions may be called from any thread. */
#pragma once

#include "base/status.h"

typedef enum ds_isa {
    DS_ISA_REF = 0,      /* plain C */
    DS_ISA_X86_V3 = 1,   /* AVX2, FMA, BMI1/2, F16C, ... */
    DS_ISA_X86_V4 = 2,   /* + AVX512 F, BW, CD, DQ, VL */
    DS_ISA_X86_BF16 = 3, /* + AVX512 VNNI, BF16 */
    DS_ISA_X86_AMX = 4,  /* + tiles of bf16 and int8 */
    DS_ISA_ARM_V8 = 5    /* 64-bit ARM with its vectors; of x86's levels it has none but plain C */
} ds_isa;

/* What CPUID and XGETBV say, as words. All zero means not x86. */
typedef struct ds_cpu_words {
    uint32_t leaf0_ebx;                       /* CPUID 0: the maker */
    uint32_t leaf1_ecx;                       /* CPUID 1 */
    uint32_t leaf7_ebx, leaf7_ecx, leaf7_edx; /* CPUID 7.0 */
    uint32_t leaf71_eax;                      /* CPUID 7.1 */
    uint32_t extended1_ecx;                   /* CPUID 0x80000001 */
    uint64_t xcr0;                            /* XGETBV 0: register state that the OS saves */
} ds_cpu_words;

/* Returns what this machine says; all zero where it is not x86-64. */
ds_cpu_words ds_cpu_read(void);
/* Returns the highest level that `words` allow, before permission for tiles is asked for; a pure function,
 * so that every machine can be tested on any. */
ds_isa ds_cpu_decode(const ds_cpu_words *words);
/* Returns the level to use, the highest but for the instruction of bf16 where it is slow. Where tiles exist this asks the kernel, once per
 * process in effect, for permission to use them (Linux 5.16 on); if it refuses, that level is out. */
ds_isa ds_cpu_best(void);
/* Fills `*isa` with the best level, but none above `cap`: "ref", "x86_v3", "x86_v4",
 * "x86_bf16", "x86_amx" or "arm_v8", of which each kind of processor takes another's for "ref";
 * NULL and "" cap nothing. A slow instruction of bf16 is used where it is asked for by name. A cap above what the machine has is no error. Permission for tiles is
 * asked for only if `cap` lets them be used. Errors: DS_ARGUMENT for another name. */
ds_status ds_cpu_choose(ds_isa *isa, const char *cap);
/* Returns whether the processor is an ARM that has SDOT, sums of four products of int8. */
bool ds_cpu_dots(void);
/* Returns whether it is an ARM that has BFMLALB and BFMLALT, products of bf16 with sums of floats. */
bool ds_cpu_bf16_terms(void);
/* Returns the name of `isa` as in ds_cpu_choose, "unknown" for none. View, valid for ever. */
const char *ds_isa_name(ds_isa isa);
