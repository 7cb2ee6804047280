"""Before and after: the same steps by an earlier version of the source tree and by this one, in one run.

Usage: python benchmarks/before_after.py [--revision REV | --old FOLDER] [--networks ...] [--streams 1 32 1000]
[--frames 1 10] [--threads 1 2] [--seconds S] [--json FILE]; needs git and a C compiler.

The earlier version is taken from git (`git archive REV`), built under build/before/ (kept for the next run), and
stepped in a process of its own; so is this tree, which must be built. Both compile the same modules
(networks.py), with the same weights, and get the same chunks. Two steps' outputs are compared before anything is
timed. Then they take turns, of some steps each, with every number of threads, in an order that turns round after
each round. A frame is one of the network: 10 ms of samples for networks on raw audio, a window for silero.

A figure is the median of the steps with the 10th and 90th percentile, "least" the shortest of all; CPU time is
that of the process, all its threads, per step: the median of the turns. A row is called slower, in the last
column, only where both the median on the wall and the least are by more than 3 % (--noise): than before, or with
several threads than with one. A third process runs this tree again: a row is called slower where both are, and
their difference, told at the end, is the noise of the run.

The second table tells for each network what does not depend on the number of streams: state, weights, the time of
`ds.compile` without verification (least of three: capture, planning, and the weights' panels), the same by the
reference kernels, which make no panels, and, by overhead.py, what a step costs when no operator computes
anything, and how many bytes it moves.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import figure, machine, spread
from networks import NETWORKS

ROOT = Path(__file__).resolve().parent.parent
REVISION = "01f5232"
MORE_STREAMS = {"silero": [100]}  # beside --streams
TURN = 0.03  # seconds of one variant before the next has its turn; some steps at least
ROUNDS = 4  # at least
STEP_HEAD = (
    "| network | streams | frames | threads | before, ms | after, ms | before ÷ after | by the least "
    "| CPU before, ms | CPU after, ms | one thread ÷ these | |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)
ONCE_HEAD = (
    "\n| network | state, bytes per stream | of these kept | weights, MB | compile, ms | … by reference kernels "
    "| streams | all but forwards, % | … ns per operator and stream | bytes moved per stream and frame |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)
REFERENCE = {"DREAMSTREAM_ISA": "ref", "DREAMSTREAM_BLAS": "none"}


def tree_of(revision: str) -> Path:
    """The source tree of a revision, built."""
    name = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", f"{revision}^{{commit}}"], check=True, text=True, capture_output=True
    ).stdout.strip()
    tree = ROOT / "build" / "before" / name[:12]
    if not (tree / "built").exists():
        tree.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", name], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
        with open(tree / "build.log", "w") as log:
            subprocess.run(
                [sys.executable, "setup.py", "build_ext", "--inplace"],
                cwd=tree,
                check=True,
                stdout=log,
                stderr=log,
            )
        (tree / "built").touch()
    return tree


class Worker:
    """stepping.py with the dreamstream of one tree."""

    def __init__(self, tree: Path, **environment: str) -> None:
        command = [sys.executable, str(ROOT / "benchmarks" / "stepping.py")]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(tree), **environment},
        )
        used = self("tree")
        assert Path(used).is_relative_to(tree), f"{used} is not of {tree}"

    def __call__(self, do: str, **more: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps({"do": do, **more}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"before_after.py: {self.process.args} ended with {self.process.wait()}")
        return json.loads(answer)


def measure(
    workers: dict[str, Worker], name: str, n: int, frames: int, args: argparse.Namespace
) -> dict[str, Any]:
    """One network at one number of streams and frames, by both trees, with all numbers of threads."""
    facts, times, cpu = {}, {}, {}
    for tree, worker in workers.items():
        for threads in args.threads:
            facts[tree, threads] = worker(
                "open", slot=str(threads), name=name, n_streams=n, n_frames=frames, threads=threads
            )
            times[tree, threads], cpu[tree, threads] = [], []
    (_, one), *others = facts.items()
    for variant, other in others:
        gap = abs(other["size"] - one["size"])
        agree = other["frames"] == one["frames"] and gap <= 1e-4 * max(1.0, one["size"])
        assert agree, f"{name}: {variant} gives {other}, not {one}"
    spent, rounds, order = 0.0, 0, list(times)
    while spent < args.seconds * len(order) or rounds < ROUNDS:
        rounds += 1
        for tree, threads in order:
            length = min(TURN, args.seconds)
            steps, each = workers[tree]("turn", slot=str(threads), seconds=length, least=args.least)
            times[tree, threads] += steps
            cpu[tree, threads].append(each)
            spent += sum(steps) / 1000
        order = order[1:] + order[:1]
    for worker in workers.values():
        worker("close")
    same = len({f["bits"] for f in facts.values()}) == 1
    row: dict[str, Any] = {"network": name, "streams": n, "frames": frames, "same_bits": same, "threads": {}}
    for threads in args.threads:
        row["threads"][threads] = {
            tree: {
                "wall": spread(times[tree, threads]),
                "cpu": spread(cpu[tree, threads]),
                "least": round(min(times[tree, threads]), 5),
                "steps": len(times[tree, threads]),
            }
            for tree in workers
        }
    row["state"] = {tree: facts[tree, args.threads[0]] for tree in workers}
    return row


def remarks(row: dict[str, Any], threads: int, noise: float) -> str:
    """What is slower than it was, or than with one thread: beyond noise, in the median and at best."""
    said = []
    variants = row["threads"]

    def slower(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return a["wall"][1] > (1 + noise) * b["wall"][1] and a["least"] > (1 + noise) * b["least"]

    if all(slower(variants[threads][tree], variants[threads]["before"]) for tree in ("after", "again")):
        said.append("slower than before")
    single = variants.get(1, variants[threads])
    if all(slower(variants[threads][tree], single[tree]) for tree in ("after", "again")):
        said.append("slower than one thread")
    if not row["same_bits"]:
        said.append("other bits")
    return ", ".join(said)


def lines(row: dict[str, Any], noise: float) -> Iterator[str]:
    for threads, trees in row["threads"].items():
        before, after = trees["before"], trees["after"]
        one = row["threads"].get(1, trees)["after"]["wall"][1] / after["wall"][1]
        cells = [
            row["network"],
            row["streams"],
            row["frames"],
            threads,
            figure(before["wall"]),
            figure(after["wall"]),
            f"{before['wall'][1] / after['wall'][1]:.2f}",
            f"{before['least'] / after['least']:.2f}",
            f"{before['cpu'][1]:.3f}",
            f"{after['cpu'][1]:.3f}",
            f"{one:.2f}",
            remarks(row, threads, noise),
        ]
        yield f"| {' | '.join(map(str, cells))} |"


def per_stream(rows: list[dict[str, Any]], name: str) -> Iterator[str]:
    """What a stream costs among others, by what it costs among the fewest."""
    of_name = [r for r in rows if r["network"] == name]
    for few, many in ((f, m) for f in of_name for m in of_name if m["frames"] == f["frames"]):
        if few["streams"] == min(r["streams"] for r in of_name) < many["streams"]:
            for threads, trees in many["threads"].items():
                times = [
                    trees[t]["cpu"][1] / many["streams"] * few["streams"] / few["threads"][threads][t]["cpu"][1]
                    for t in ("before", "after")
                ]
                yield (
                    f"{name}, {many['frames']} frames, {threads} threads: CPU of one of {many['streams']} streams "
                    f"÷ of {few['streams']}: {times[0]:.2f} before, {times[1]:.2f} after"
                )


def overheads(tree: Path, name: str, n: int, args: argparse.Namespace) -> dict[str, Any]:
    """What overhead.py says about one frame per step."""
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "overhead.py"),
        "--tree",
        str(tree),
        "--json",
        "--networks",
        name,
        "--streams",
        str(n),
        "--seconds",
        str(args.seconds / 2),
    ]
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(tree)})
    if done.returncode:
        sys.exit(f"before_after.py: {shlex.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def once(
    trees: dict[str, Path], workers: dict[str, Worker], name: str, row: dict[str, Any], args: argparse.Namespace
) -> dict[str, Any]:
    """What a network costs whatever the number of streams, in both trees; workers: also by reference kernels."""
    n = max(args.streams)
    seconds: dict[str, list[float]] = {which: [] for which in workers}
    for _ in range(3):
        for which, worker in workers.items():
            if sum(seconds[which]) < 5:
                seconds[which].append(worker("compile", name=name))
    result: dict[str, Any] = {"network": name, "streams": n}
    for tree in trees:
        compiled = {"": min(seconds[tree]), "_reference": min(seconds[f"{tree}, reference"])}
        result[tree] = {
            **row["state"][tree],
            **{f"compile_seconds{which}": round(s, 5) for which, s in compiled.items()},
            "overhead": overheads(trees[tree], name, n, args),
        }
    return result


def once_line(row: dict[str, Any]) -> str:
    def both(show: Any) -> str:
        return " → ".join(show(row[tree]) for tree in ("before", "after"))

    cells = [
        row["network"],
        both(lambda r: f"{r['state_size']:,}"),
        both(lambda r: "–" if r["kept_bytes"] is None else f"{r['kept_bytes']:,}"),
        both(lambda r: f"{r['weights_size'] / 1e6:.1f}"),
        both(lambda r: f"{1000 * r['compile_seconds']:.1f}"),
        both(lambda r: f"{1000 * r['compile_seconds_reference']:.1f}"),
        row["streams"],
        both(lambda r: f"{100 * r['overhead']['share']:.0f}"),
        both(lambda r: f"{r['overhead']['ns_per_operator_and_stream']:.0f}"),
        both(lambda r: f"{r['overhead']['moved_bytes_per_stream']:,.0f}"),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--revision", default=REVISION, help=f"the earlier version, for git ({REVISION})")
    parser.add_argument("--old", type=Path, help="a source tree instead, built in place")
    parser.add_argument(
        "--networks", nargs="+", choices=list(NETWORKS), default=[n for n in NETWORKS if n != "bare"]
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 1000])
    parser.add_argument("--frames", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=1.0, help="per variant and row (1)")
    parser.add_argument("--least", type=int, default=2, help="steps in a turn (2)")
    parser.add_argument("--noise", type=float, default=0.03, help="what is not called slower (0.03)")
    parser.add_argument("--json", type=Path, help="write all figures there too")
    args = parser.parse_args()
    trees = {"before": (args.old or tree_of(args.revision)).resolve(), "after": ROOT}
    for line in machine(f"python {shlex.join(sys.argv)}"):
        print(line)
    print(f"before    {args.old or args.revision}; after: this tree")
    print("times     ms per step: median (10th–90th percentile), by the clock on the wall unless CPU is said\n")
    workers = {name: Worker(tree) for name, tree in [*trees.items(), ("again", ROOT)]}
    print(STEP_HEAD)
    rows, last = [], {}
    for name in args.networks:
        for n in sorted({*args.streams, *MORE_STREAMS.get(name, [])}):
            for frames in args.frames:
                last[name] = measure(workers, name, n, frames, args)
                rows.append(last[name])
                print("\n".join(lines(last[name], args.noise)), flush=True)
    print()
    for name in args.networks:
        print("\n".join(per_stream(rows, name)))
    print(ONCE_HEAD)
    constant = []
    workers.pop("again")
    workers |= {f"{name}, reference": Worker(tree, **REFERENCE) for name, tree in trees.items()}
    for name in args.networks:
        constant.append(once(trees, workers, name, last[name], args))
        print(once_line(constant[-1]), flush=True)
    if args.json:
        args.json.write_text(
            json.dumps({"machine": list(machine(shlex.join(sys.argv))), "steps": rows, "once": constant})
        )
    faster = [np.log(t["before"]["wall"][1] / t["after"]["wall"][1]) for r in rows for t in r["threads"].values()]
    slow = sum(bool(remarks(r, t, args.noise)) for r in rows for t in r["threads"])
    both = [(t["again"]["wall"][1], t["after"]["wall"][1]) for r in rows for t in r["threads"].values()]
    low, middle, high = 100 * np.expm1(np.percentile([abs(np.log(a / b)) for a, b in both], [10, 50, 90]))
    ratio = np.exp(np.mean(faster))
    print(f"\nbefore ÷ after, geometric mean: {ratio:.2f}; rows with a remark: {slow} of {len(both)}")
    print(f"noise: this tree beside itself differs by {middle:.1f} % ({low:.1f}–{high:.1f} %) in a row's median")


if __name__ == "__main__":
    main()
