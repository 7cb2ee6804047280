/* cpu/detect: machines made of words, and this machine against the compiler's own detection. */
#include <string.h>

#include "cpu/detect.h"
#include "main.h"

#define BIT(n) (UINT32_C(1) << (n))

/* Words of three generations, only the bits that a level asks for, by the manuals' bit numbers. */
static ds_cpu_words v3_machine(void)
{
    ds_cpu_words words;
    memset(&words, 0, sizeof words);
    static const unsigned leaf1_ecx[] = {0, 9, 12, 13, 19, 20, 22, 23, 27, 28, 29};
    for (size_t i = 0; i < sizeof leaf1_ecx / sizeof *leaf1_ecx; i++)
        words.leaf1_ecx |= BIT(leaf1_ecx[i]);
    words.leaf7_ebx = BIT(3) | BIT(5) | BIT(8);
    words.extended1_ecx = BIT(0) | BIT(5);
    words.xcr0 = 0x7;
    return words;
}

static ds_cpu_words v4_machine(void)
{
    ds_cpu_words words = v3_machine();
    words.leaf7_ebx |= BIT(16) | BIT(17) | BIT(28) | BIT(30) | BIT(31);
    words.xcr0 |= 0xE0;
    return words;
}

static ds_cpu_words bf16_machine(void)
{
    ds_cpu_words words = v4_machine();
    words.leaf7_ecx |= BIT(11);
    words.leaf71_eax |= BIT(5);
    return words;
}

static ds_cpu_words amx_machine(void)
{
    ds_cpu_words words = bf16_machine();
    words.leaf7_edx |= BIT(22) | BIT(24) | BIT(25);
    words.xcr0 |= BIT(17) | BIT(18);
    return words;
}

static int level(ds_cpu_words words)
{
    return (int)ds_cpu_decode(&words);
}

TEST(decode)
{
    ds_cpu_words none;
    memset(&none, 0, sizeof none);
    CHECK(level(none) == 0);
    CHECK(level(v3_machine()) == 1);
    CHECK(level(v4_machine()) == 2);
    CHECK(level(bf16_machine()) == 3);
    CHECK(level(amx_machine()) == 4);

    ds_cpu_words words = v3_machine();
    for (unsigned bit = 0; bit < 32; bit++) { /* every bit that is set is needed */
        ds_cpu_words less = words;
        less.leaf1_ecx &= ~BIT(bit);
        CHECK(level(less) == (words.leaf1_ecx & BIT(bit) ? 0 : 1));
        less = words;
        less.extended1_ecx &= ~BIT(bit);
        CHECK(level(less) == (words.extended1_ecx & BIT(bit) ? 0 : 1));
    }
    words = amx_machine();
    for (unsigned bit = 0; bit < 32; bit++) {
        ds_cpu_words less = words;
        less.leaf7_ebx &= ~BIT(bit);
        const bool of_v3 = v3_machine().leaf7_ebx & BIT(bit);
        CHECK(level(less) == (of_v3 ? 0 : words.leaf7_ebx & BIT(bit) ? 1 : 4));
        less = words;
        less.leaf7_edx &= ~BIT(bit);
        CHECK(level(less) == (words.leaf7_edx & BIT(bit) ? 3 : 4));
        less = words;
        less.leaf7_ecx &= ~BIT(bit);
        CHECK(level(less) == (words.leaf7_ecx & BIT(bit) ? 2 : 4));
        less = words;
        less.leaf71_eax &= ~BIT(bit);
        CHECK(level(less) == (words.leaf71_eax & BIT(bit) ? 2 : 4));
    }

    /* what the processor has but the operating system does not save */
    words.xcr0 = 0;
    CHECK(level(words) == 0);
    words.xcr0 = 0x3; /* x87, SSE */
    CHECK(level(words) == 0);
    words.xcr0 = 0x7;
    CHECK(level(words) == 1);
    for (unsigned bit = 5; bit <= 7; bit++) {
        words.xcr0 = 0xE7 & ~BIT(bit);
        CHECK(level(words) == 1);
    }
    words.xcr0 = 0xE7;
    CHECK(level(words) == 3);
    words.xcr0 = 0xE7 | BIT(17);
    CHECK(level(words) == 3);
    words.xcr0 = 0xE7 | BIT(18);
    CHECK(level(words) == 3);
}

TEST(choose)
{
    const ds_isa best = ds_cpu_best();
    CHECK(best >= DS_ISA_REF && best <= DS_ISA_ARM_V8);
    const ds_cpu_words words = ds_cpu_read();
    const bool pairs = ds_cpu_decode(&words) >= DS_ISA_X86_BF16; /* used by name, wherever it is */
    CHECK(ds_cpu_best() == best); /* permission for tiles may be asked for again */
    static const char *const names[] = {"ref", "x86_v3", "x86_v4", "x86_bf16", "x86_amx", "arm_v8"};
    for (int i = 0; i < 6; i++) {
        ds_isa isa = (ds_isa)99;
        CHECK(strcmp(ds_isa_name((ds_isa)i), names[i]) == 0);
        CHECK(ds_cpu_choose(&isa, names[i]) == DS_OK);
        if ((i == DS_ISA_ARM_V8) != (best == DS_ISA_ARM_V8)) { /* another kind of processor's */
            CHECK(isa == DS_ISA_REF);
            continue;
        }
        CHECK((int)isa == (pairs && i == DS_ISA_X86_BF16 ? i : (int)best < i ? (int)best : i));
    }
    CHECK(strcmp(ds_isa_name((ds_isa)6), "unknown") == 0);
    ds_isa isa = (ds_isa)99;
    CHECK(ds_cpu_choose(&isa, NULL) == DS_OK && isa == best);
    isa = (ds_isa)99;
    CHECK(ds_cpu_choose(&isa, "") == DS_OK && isa == best);
    isa = (ds_isa)99;
    static const char *const wrong[] = {"avx2", "x86_v", "x86_v33", "REF", " ref", "unknown"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(ds_cpu_choose(&isa, wrong[i]) == DS_ARGUMENT && (int)isa == 99);
        CHECK(strstr(ds_last_error(), wrong[i]) != NULL);
        CHECK(strstr(ds_last_error(), "x86_v3") != NULL);
    }
    printf("this machine: %s\n", ds_isa_name(best));
}

#if defined(__x86_64__) && defined(__GNUC__)

/* One instruction of each level: it must run, not trap. */
__attribute__((target("avx2"))) static void run_v3(void)
{
    __asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0\n\tvpaddd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
    __asm__ volatile("vzeroupper");
}

__attribute__((target("avx512f"))) static void run_v4(void)
{
    __asm__ volatile("vpxord %%zmm16, %%zmm16, %%zmm16\n\tkxnorw %%k1, %%k1, %%k1" ::
                         : "xmm16", "k1");
}

static void run_amx(void)
{
    unsigned char configuration[64] = {0};
    configuration[0] = 1;   /* palette */
    configuration[16] = 64; /* tile 0: bytes per row */
    configuration[48] = 16; /* rows */
    __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0\n\ttilerelease" ::"m"(configuration));
}

TEST(this_machine)
{
    const ds_cpu_words words = ds_cpu_read();
    const ds_isa has = ds_cpu_decode(&words), best = ds_cpu_best();
    const bool v3 = has >= DS_ISA_X86_V3, v4 = has >= DS_ISA_X86_V4;
    __builtin_cpu_init();
    /* the compiler's runtime decides by itself */
#if !defined(__clang__) && __GNUC__ >= 12
    CHECK(v3 == (__builtin_cpu_supports("x86-64-v3") != 0));
    CHECK(v4 == (__builtin_cpu_supports("x86-64-v4") != 0));
#endif
    CHECK(!v3 || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")));
    CHECK(!v4 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")));
    CHECK(best == has || (has > DS_ISA_X86_V4 && best >= DS_ISA_X86_V4 && best < has));
    if (best >= DS_ISA_X86_V3)
        run_v3();
    if (best >= DS_ISA_X86_V4)
        run_v4();
    if (best >= DS_ISA_X86_AMX)
        run_amx();
}

#else

TEST(this_machine)
{
#if defined(__aarch64__)
    CHECK(ds_cpu_best() == DS_ISA_ARM_V8);
#else
    CHECK(ds_cpu_best() == DS_ISA_REF);
#endif
}

#endif
