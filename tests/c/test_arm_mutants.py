"""Planted faults in what 64-bit ARM's kernels have of their own: a test in C notices each, under emulation.

    pytest -m slow tests/c/test_arm_mutants.py         # minutes

One file is compiled per fault, against the engine of the variant `aarch64`. A fault in the arithmetic of
an instruction is none of these: the self-check at load finds it, and other kernels run.
"""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = HERE.parent.parent / "csrc" / "kernels" / "arm_v8"

# What is wrong: the file, its line, and what stands there then.
MUTANTS = {
    "a part of a register is loaded short": (
        "lanes.inc", "memcpy(all, p, n * sizeof *p)", "memcpy(all, p, (n - 1) * sizeof *p)"),
    "a part of a register is stored whole": (
        "lanes.inc", "memcpy(p, all, n * sizeof *p)", "memcpy(p, all, sizeof all)"),
    "products and sums are rounded apart": (
        "lanes.inc", "NEON(vfmaq)(c, a, b)", "NEON(vaddq)(c, NEON(vmulq)(a, b))"),
    "bf16 is shifted by less": ("lanes.inc", "vshll_n_u16(vld1_u16(p), 16)", "vshll_n_u16(vld1_u16(p), 15)"),
    "int8 has no sign": (
        "lanes.inc", "vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))))",
        "vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))))))"),
    "no product of bf16 is tiny": ("product_bf16.inc", "of_row + of_panel < 2 * 127 - 112", "false"),
    "the least exponent is one greater": ("product_bf16.inc", "2 * 127 - 112", "2 * 127 - 113"),
    "the last row's exponents decide": (
        "product_bf16.inc", "least = of_row < least ? of_row : least", "least = of_row"),
    "the first panel's exponents decide": (
        "product_bf16.inc", "(const uint16_t *)weight->data + col * depth",
        "(const uint16_t *)weight->data + begin * depth"),
    "the lower number of a pair twice": (
        "product_bf16.inc", "? vshlq_n_u32(vld1q_u32(p), 16)", "? vld1q_u32(p)"),
    "a pair's numbers in the other order": (
        "product_bf16.inc", "VEC_BROADCAST(&(p)->part[(v) % 2])", "VEC_BROADCAST(&(p)->part[1 - (v) % 2])"),
    "a row's pairs begin with the second": (
        "product_bf16.inc", "NAME(bf16_term)(c, b, &(p)->part[(v) % 2], (v) % 2)",
        "NAME(bf16_term)(c, b, &(p)->part[1 - (v) % 2], (v) % 2)"),
    "panels of bf16 are too wide": ("product_bf16.inc", "col + DSK_PANEL;", "col + DSK_PANEL - 1;"),
    "rows of int8 keep 128 too much": ("product_int8.inc", "sum += 128 * weight", "sum += 127 * weight"),
    "all columns of int8 have the first one's sum": (
        "product_int8.inc", "weight->sums[col + j]", "weight->sums[col + 0 * j]"),
    "a byte of a group loses another 128": ("product_int8.inc", "0x80808080", "0x80808000"),
    "the upper half of a group is the lower": (
        "product_int8.inc", "vpaddlq_s16(vmull_high_s8(w, x))",
        "vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)))"),
    "neighbours of int8 change places": ("product_int8.inc", "vpaddq_s32(low, high)", "vpaddq_s32(high, low)"),
    "instructions of int8 begin with zero": (
        "product_int8.inc", "vdotq_s32(vreinterpretq_s32_f32(sum),", "vdotq_s32(vdupq_n_s32(0),"),
    "rows of int8 overlap": ("product_int8.inc", "NAME(int8_row)(room + r * row, x[m + r]",
                             "NAME(int8_row)(room + r * row, x[m]"),
    "groups of int8 lose their last byte": (
        "product_int8.inc", "memcpy(&sum, sums + j, sizeof sum);", "memcpy(&sum, sums + j, 3), sum &= 0xffffff;"),
}  # fmt: skip

# Those that only a processor without instructions for int8 and bf16 comes by.
OLD = {
    "the lower number of a pair twice",
    "a pair's numbers in the other order",
    "the upper half of a group is the lower",
    "neighbours of int8 change places",
}


def build(c_build, name, folder):
    """Compile and link the program with a fault; None plants none."""
    made, flags, compiler = c_build.engine("aarch64"), [], c_build.cc("aarch64")
    assert not made.error, made.error
    if name is not None:
        file, line, planted = MUTANTS[name]
        copy = folder / "kernels" / "arm_v8" / file
        copy.parent.mkdir(parents=True)
        copy.write_text((KERNELS / file).read_text().replace(line, planted))
        flags = [f"-I{folder}"]  # comes first
    program = folder / "program"
    sources = [KERNELS / "kernels_arm_v8.c", HERE / "test_kernels_product.c"]
    flags = [*flags, *made.cflags, "-w", "-O1"]
    c_build._link([*compiler, *flags, *map(str, sources), str(made.archive), *made.libraries, "-o", str(program)])
    return program


def test_lines_are_there_once():
    found = {name: (KERNELS / file).read_text().count(line) for name, (file, line, _) in MUTANTS.items()}
    assert {name: n for name, n in found.items() if n != 1} == {}, "plant them anew"


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_planted(c_build, tmp_path, name):
    for tool in (c_build.cc("aarch64")[-2], c_build.EMULATOR[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    program = build(c_build, name, tmp_path)
    words = ["bf16", "int8"]
    if name is not None:
        words = words[:1] if "bf16" in name + MUTANTS[name][0] else words[1:]
    processor = "cortex-a57" if name in OLD else "max"
    emulator = [part.replace(c_build.PROCESSOR, processor) for part in c_build.EMULATOR]
    for word in words:
        done = c_build.run(program, word, timeout=3600, under=emulator)
        assert (done.returncode != 0) == (name is not None), done.stdout
