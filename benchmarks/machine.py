"""What the figures of a benchmark depend on, for all of them."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import numpy as np


def machine(command: str, packages: tuple[str, ...] = ("numpy",)) -> Iterator[str]:
    """Yield lines of text; `packages`: those whose versions matter beside dreamstream's."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    yield f"command   {command}"
    yield f"machine   {model}, {os.cpu_count()} CPUs visible, load {load} before the run"
    yield f"system    {platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}"
    yield "versions  " + ", ".join(f"{name} {version(name)}" for name in ("dreamstream", *packages))


def kernels() -> str:
    """What dreamstream and torch chose for this processor, as a line."""
    import torch

    import dreamstream as ds

    own = ds.config.config()["kernels"]
    return f"kernels   dreamstream {own}, torch {torch.backends.cpu.get_cpu_capability()}"


def version(package: str) -> str:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def spread(times: Sequence[float]) -> list[float]:
    """10th percentile, median, 90th percentile."""
    return [round(float(t), 5) for t in np.percentile(times, [10, 50, 90])]


def figure(times: Sequence[float]) -> str:
    """The three as a cell of a table."""
    low, middle, high = times
    digits = 2 if middle >= 10 else 3 if middle >= 0.1 else 4
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def least(run: Callable[[], object], times: int = 7) -> float:
    """Seconds of CPU time, the least of some runs."""
    out = []
    for _ in range(times):
        start = time.thread_time()
        run()
        out.append(time.thread_time() - start)
    return min(out)


def _linear(n: int, rows: int, fmt: str) -> Callable[[], object]:
    """A step of our own engine with nothing but a square product."""
    import dreamstream as ds
    from dreamstream import nn

    narrow = {} if fmt == "fp32" else {"products": fmt}
    layer = nn.Linear(n, n, bias=False).eval()
    engine = ds.compile(layer, ("B", "L", n), threads=1, verify=False, **narrow)
    x = {"": np.ones((rows, n), np.float32)}
    engine.step(x, sos="")
    return lambda: engine.step(x)


def bandwidth(n_bytes: int = 1 << 28) -> float:
    """Bytes per second that one thread reads, again and again, from wherever so many bytes stay: the best of a dot
    product, a sum, and our own product of one row."""
    import torch

    side = max(64, round((n_bytes / 4) ** 0.5))
    a = np.ones(side * side, np.float32)
    again = max(1, (1 << 24) // a.nbytes)
    ways = [lambda: np.dot(a, a), torch.from_numpy(a).sum, _linear(side, 1, "fp32")]
    return max(again * a.nbytes / least(lambda way=way: [way() for _ in range(again)]) for way in ways)


def bandwidth_together(threads: int, n_bytes: int = 1 << 28) -> float:
    """Bytes per second that so many threads read at the same time, each from an array of its own that no cache
    holds: of dot products, the best of some rounds on the wall's clock."""
    arrays = [np.ones(n_bytes // 4, np.float32) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(7):
            start = time.perf_counter()
            list(pool.map(lambda a: np.dot(a, a), arrays))
            best = max(best, threads * n_bytes / (time.perf_counter() - start))
    return best


def arithmetic(fmt: str = "fp32") -> float:
    """Operations per second of one thread in large products of a format: the best of torch's and our own."""
    import torch

    def theirs(n: int) -> Callable[[], object]:
        a = torch.ones(n, n, dtype={"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}[fmt])
        return lambda: torch._int_mm(a, a) if fmt == "int8" else a @ a

    runs = [(n, run) for n in (256, 512, 1024) for run in (theirs(n), _linear(n, n, fmt))]
    return max(2 * n**3 / least(run, 15) for n, run in runs)


def in_turns(
    runs: dict[str, Callable[[], object]], seconds: float, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Run each in turn, again and again, seven times at least; return what the clock says of each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    spent = 0.0
    while spent < seconds or len(next(iter(times.values()))) < 7:
        for name, run in runs.items():
            start = clock()
            run()
            times[name].append(clock() - start)
            spent += times[name][-1]
    return times
