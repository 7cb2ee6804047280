"""What the figures of a benchmark depend on, for all of them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata


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

    return f"kernels   dreamstream {ds.config.config()['kernels']}, torch {torch.backends.cpu.get_cpu_capability()}"


def version(package: str) -> str:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
