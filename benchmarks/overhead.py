"""Everything but forwards: what a step costs when no operator computes anything.

Usage: python benchmarks/overhead.py [--networks stack-64 stack-256] [--streams 1 32 1000] [--frames 1]
[--seconds S] [--tree FOLDER] [--json]; needs a C compiler.

A network (networks.py) is compiled and saved, then overhead.c, linked to the engine's objects of this source tree
(or of --tree, which Python must import too), steps it with one thread by the C API twice, in turns: as it is,
and with every operator's forward replaced by a function that does nothing. The second is what counts, windows,
kept frames, inputs and outputs cost; its share is the quotient of the medians. Nanoseconds per operator and
stream divide it by the operators that ran (as many calls of forward as there were) and by the streams. Bytes moved
are those that pass through memcpy and memmove in a step without forwards, less one copy of the chunks and one of
the outputs, which stand in columns of their own.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from machine import figure, machine, spread
from networks import NETWORKS

import dreamstream as ds

ROOT = Path(__file__).resolve().parent.parent
WRAP = [f"-Wl,--wrap={name}" for name in ("memcpy", "memmove")]


def build(tree: Path) -> Path:
    """Link overhead.c with all of the tree's engine: the objects of its C tests, compiled by its own flags."""
    sys.path[:0] = [str(tree / "csrc"), str(tree / "tests" / "c")]
    import cbuild

    import build as tests

    assert Path(tests.__file__).is_relative_to(tree), tests.__file__
    if errors := tests.build("plain", []).errors:
        sys.exit(f"overhead.py: {errors}")
    folder, blas = tests.BUILD / "plain", tests.openblas()
    libraries = [*blas.libraries, *(f"-Wl,-rpath,{path.parent}" for path in blas.carried[:1])] if blas else []
    program = folder / "overhead"
    command = [
        *tests.cc(),
        *cbuild.flags(openblas=blas is not None, prefix=blas.prefix if blas else ""),
        str(ROOT / "benchmarks" / "overhead.c"),
    ]
    command += [str(folder / "engine.a"), *WRAP, "-lm", "-pthread", "-o", str(program)]
    subprocess.run(command + libraries, check=True)
    return program


def measure(program: Path, name: str, n: int, n_frames: int, seconds: float, model: Path) -> dict[str, Any]:
    """One row."""
    unit = NETWORKS[name].unit
    command = [str(program), str(model), str(n), str(n_frames * unit), str(seconds)]
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"overhead.py: {shlex.join(command)}: {done.stderr}")
    operators, moved, given, made, *samples = done.stdout.splitlines()
    step, rest = ([float(t) / 1e6 for t in line.split()] for line in samples)
    more = float(moved) - float(given) - float(made)
    return {
        "network": name,
        "streams": n,
        "frames": n_frames,
        "operators": float(operators),
        "step": spread(step),
        "rest": spread(rest),
        "share": round(float(np.median(rest) / np.median(step)), 4),
        "ns_per_operator_and_stream": round(float(np.median(rest)) * 1e6 / float(operators) / n, 2),
        "moved_bytes_per_stream": more / n,
        "chunk_bytes": float(given) / n,
        "output_bytes": float(made) / n,
    }


def text(r: dict[str, Any]) -> str:
    cells = [
        r["network"],
        r["streams"],
        r["frames"],
        f"{r['operators']:g}",
        figure(r["step"]),
        figure(r["rest"]),
        f"{100 * r['share']:.0f}",
        f"{r['ns_per_operator_and_stream']:.0f}",
        f"{r['moved_bytes_per_stream']:,.0f}",
        f"{r['chunk_bytes']:,.0f}",
        f"{r['output_bytes']:,.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--networks", nargs="+", choices=list(NETWORKS), default=["stack-64", "stack-256", "memory-31"]
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 100, 1000])
    parser.add_argument("--frames", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=3.0, help="per row (3)")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another source tree, with PYTHONPATH the same")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    args = parser.parse_args()
    tree = args.tree.resolve()
    assert Path(ds.__file__).is_relative_to(tree) or tree == ROOT, f"PYTHONPATH must be {tree}, not {ds.__file__}"
    tell = (lambda *_: None) if args.json else print
    for line in machine(f"python {shlex.join(sys.argv)}"):
        tell(line)
    tell(f"kernels   {ds.config.config()['kernels']}")
    tell("times     CPU time of the one thread, by the C API\n")
    tell(
        "| network | streams | frames | operators | step, ms | all but forwards, ms | % "
        "| ns per operator and stream | bytes moved per stream | of a chunk | of an output |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    program = build(tree)
    with tempfile.TemporaryDirectory() as folder:
        for name in args.networks:
            model = Path(folder) / f"{name}.dsm"
            network = NETWORKS[name]
            ds.compile(network.model(), network.spec, rate=network.rate, verify=False).save(model)
            for n in args.streams:
                for n_frames in args.frames:
                    row = measure(program, name, n, n_frames, args.seconds, model)
                    print(json.dumps(row) if args.json else text(row), flush=True)


if __name__ == "__main__":
    main()
