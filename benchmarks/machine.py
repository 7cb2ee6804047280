"""What the figures of a benchmark depend on, for all of them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
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
