"""What was chosen at import, and the defaults that the environment sets."""

from __future__ import annotations

import os
from typing import Any

from .. import _core

__all__ = ["config", "default_threads", "show_config"]


def default_threads() -> int:
    """Return ``DREAMSTREAM_THREADS``, or 1."""
    text = os.environ.get("DREAMSTREAM_THREADS", "1")
    try:
        threads = int(text)
    except ValueError:
        threads = 0
    if not 1 <= threads <= 1024:
        raise ValueError(f"DREAMSTREAM_THREADS must be 1 to 1024, got {text!r}")
    return threads


def config() -> dict[str, Any]:
    """Return version, kernels, the backends that were built, OpenBLAS and threads as a dict."""
    return {**_core.config(), "threads": default_threads()}


def show_config() -> None:
    """Print what was chosen: kernels and the instruction sets that there are, OpenBLAS, threads."""
    c = config()
    blas = c["openblas"] or "not built in"
    if c["openblas"] and not c["blas"]:
        blas += " (kept out by DREAMSTREAM_BLAS=none)"
    for name, value in (
        ("version", c["version"]),
        ("kernels", f"{c['kernels']} (this machine: {c['best_isa']})"),
        ("backends", ", ".join(b["name"] for b in c["backends"] if b["usable"])),
        ("OpenBLAS", blas),
        ("threads", c["threads"]),
    ):
        print(f"{name:10}{value}")
