"""The packed product of our own kernels beside OpenBLAS and the machine's limits.

Usage: python benchmarks/kernels.py [--isa x86_v4 x86_v3] [--rounds N] [--json]; needs x86, a C compiler and the
scipy-openblas32 wheel.

y[M][N] = x[M][K] . W^T on one thread, for several shapes and numbers of rows M, with weights `cold` (each call
takes another weight of a ring of 512 MB, far beyond the last cache) and `hot` (the same weight again). Ours has
W packed beforehand, as a compiled model has; OpenBLAS gets it as [N][K] and as [K][N], the call being sgemm and,
for one row, sgemv too: the table shows the best of them, chosen per row by its median. Beside them a plain read of
the same bytes, and a loop of as many multiply-adds in registers. All take turns in every round (see kernels.c), so
compare within a row: ratios and percentages are medians of the rounds' ratios.

With x86_v3, OpenBLAS is held to its AVX2 kernels too, and the limits are those of 256-bit registers.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

import dreamstream as ds

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "csrc"))
import cbuild  # noqa: E402

BUILD = ROOT / "build" / "benchmarks"
ISAS = ("x86_v4", "x86_v3")
SHAPES = ("512x512", "2048x512", "512x2048", "768x256", "500x333")
ROWS = (1, 2, 8, 32, 128)
CANDIDATES = {"nt": "sgemm [N][K]", "nn": "sgemm [K][N]", "vt": "sgemv [N][K]", "vn": "sgemv [K][N]"}
CORES = {"x86_v3": "Haswell"}  # what OpenBLAS is held to; else its own choice


def build() -> Path:
    """Compile kernels.c; the engine's kernels are the package's own objects."""
    import scipy_openblas32

    blas = Path(scipy_openblas32.get_lib_dir()) / "libscipy_openblas.so"
    cc = os.environ.get("CC", "cc").split()
    sources = [
        path
        for path in cbuild.sources(python=False)
        if path.parts[-2] in ("base", "cpu") or "kernels" in path.parts
    ]
    flags = cbuild.flags(openblas=True)
    objects = cbuild.compile_all(cbuild.extension_compiler(), sources, ROOT / "build" / "objects", flags)
    objects += cbuild.compile_all(cc, [ROOT / "benchmarks" / "kernels.c"], BUILD, flags)
    program = BUILD / "kernels"
    subprocess.run(
        [*cc, "-o", str(program), *map(str, objects), str(blas), f"-Wl,-rpath,{blas.parent}", "-lm", "-pthread"],
        check=True,
    )
    return program


def measure(program: Path, isa: str, cells: list[str], args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield cells with the samples of each candidate, nanoseconds per call, as they are measured."""
    command = [
        str(program),
        isa,
        str(args.rounds),
        str(args.microseconds),
        str(args.ring_mb),
        str(int(args.wall)),
        *cells,
    ]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # no idle threads that spin
    if isa in CORES:
        environment["OPENBLAS_CORETYPE"] = CORES[isa]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        cell, samples = "", {}
        for line in process.stdout:
            label, name, *times = line.split()
            if label == "openblas":
                yield label, name
                continue
            if label != cell and samples:
                yield cell, samples
                samples = {}
            cell, samples[name] = label, np.array(times, float)
        if samples:
            yield cell, samples
    if process.returncode:
        sys.exit(process.returncode)


def summary(cell: str, samples: dict[str, np.ndarray]) -> dict[str, Any]:
    """The figures of one row of the table."""
    shape, state = cell[:-1], {"c": "cold", "h": "hot"}[cell[-1]]
    n, k, m = map(int, shape.split("x"))
    best = min((name for name in CANDIDATES if name in samples), key=lambda name: np.median(samples[name]))
    ours = samples["ours"]

    def spread(times: np.ndarray) -> list[float]:
        return [round(2 * m * n * k / t, 2) for t in np.percentile(times, [90, 50, 10])]

    return {
        "shape": f"{n}x{k}",
        "rows": m,
        "state": state,
        "openblas_call": CANDIDATES[best],
        "gflops": {name: spread(times) for name, times in samples.items() if name != "read"},
        "weights_gb_s": {name: round(float(4 * n * k / np.median(samples[name])), 2) for name in ("ours", "read")},
        "ratio": [round(float(x), 2) for x in np.percentile(samples[best] / ours, [10, 50, 90])],
        "of_read": round(float(np.median(samples["read"] / ours)), 3),
        "of_fma": round(float(np.median(samples["fma"] / ours)), 3),
        "best": best,
    }


def row(r: dict[str, Any]) -> str:
    """The same as a line of text."""
    low, middle, high = r["gflops"]["ours"]
    blas = r["gflops"][r["best"]]
    return (
        f"| {r['shape']} | {r['rows']} | {r['state']} | {middle:.1f} ({low:.1f}–{high:.1f}) "
        f"| {blas[1]:.1f} ({blas[0]:.1f}–{blas[2]:.1f}) | {r['openblas_call']} "
        f"| {r['ratio'][1]:.2f} ({r['ratio'][0]:.2f}–{r['ratio'][2]:.2f}) "
        f"| {100 * r['of_read']:.0f} | {100 * r['of_fma']:.0f} |"
    )


def means(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Over the shapes, per state and number of rows: geometric means of the medians."""
    for state, m in sorted({(r["state"], r["rows"]) for r in rows}):
        some = [r for r in rows if (r["state"], r["rows"]) == (state, m)]

        def mean(values: list[float]) -> float:
            return float(np.exp(np.mean(np.log(values))))

        yield {
            "state": state,
            "rows": m,
            "ratio": round(mean([r["ratio"][1] for r in some]), 2),
            "of_read": round(mean([r["of_read"] for r in some]), 3),
            "of_fma": round(mean([r["of_fma"] for r in some]), 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", nargs="+", choices=ISAS, help="instruction sets of ours: all that run here")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="NxK")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--states", nargs="+", default=["cold", "hot"], choices=["cold", "hot"])
    parser.add_argument("--rounds", type=int, default=15, help="samples per figure (15)")
    parser.add_argument("--microseconds", type=int, default=2000, help="length of a sample (2000)")
    parser.add_argument("--ring-mb", type=int, default=512, help="cold weights (512)")
    parser.add_argument("--wall", action="store_true", help="the clock on the wall, not the thread's CPU time")
    parser.add_argument("--json", action="store_true", help="one object per line instead of tables")
    args = parser.parse_args()
    best = ds.config.config()["kernels"].split("+")[0]
    best = "x86_v4" if best in ("x86_bf16", "x86_amx") else best  # whose float products are the same
    if best not in ISAS:
        sys.exit(f"kernels.py: this processor runs the kernels {best}, which are no packed ones")
    program = build()
    print_text = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        print_text(line)
    print_text(f"times     {'clock on the wall' if args.wall else 'CPU time of the one thread'}")
    cells = [f"{shape}x{m}{state[0]}" for state in args.states for shape in args.shapes for m in args.rows]
    for isa in args.isa or ISAS[ISAS.index(best) :]:
        rows = []
        for cell, samples in measure(program, isa, cells, args):
            if cell == "openblas":
                print_text(f"\n{isa}; OpenBLAS's kernels: {samples}\n")
                print_text(
                    "| N x K | M | weights | ours, GF/s | best of OpenBLAS, GF/s | its call "
                    "| ours ÷ OpenBLAS | % of read | % of fma |\n|---|--:|---|--:|--:|---|--:|--:|--:|"
                )
                continue
            rows.append(summary(cell, samples))
            print(json.dumps({"isa": isa, **rows[-1]}) if args.json else row(rows[-1]), flush=True)
        print_text("\n| weights | M | ours ÷ OpenBLAS | % of read | % of fma |\n|---|--:|--:|--:|--:|")
        for r in means(rows):
            text = f"| {r['state']} | {r['rows']} | {r['ratio']:.2f} "
            text += f"| {100 * r['of_read']:.0f} | {100 * r['of_fma']:.0f} |"
            print(json.dumps({"isa": isa, "mean": r}) if args.json else text)


if __name__ == "__main__":
    main()
