"""Streams that move between processes: `python -m ds_laws.moved take FILE`, then `... go FILE` elsewhere.

`take` stops streams of every model midway, writes their snapshots to FILE (JSON), and goes on to the end; `go`
restores them and goes on from there. Both print, per model, a hash of what came out: under any instruction sets,
thread counts, with and without OpenBLAS, the lines must be equal.
"""

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from dreamstream import _core

from .case import Array, Case
from .drive import driver, run, schedule
from .models import MODELS, case as model_case


def _streams(name: str) -> tuple[Case, Any, list[Any], dict[str, Any], int]:
    """The same in every process: a driver, calls, their frames, and before which of them the streams move."""
    case, rng = model_case(name), np.random.default_rng([7, len(name)])
    data = {f"s{i}": case.stream(rng) for i in range(3)}
    calls = schedule(case, rng, data)
    at = int(rng.integers(1, len(calls)))
    return case, driver("engine", case, rng), calls, data, at


def _hash(frames: dict[str, Any]) -> str:
    text = hashlib.sha256()
    for i in sorted(frames):
        for y in frames[i]:
            text.update(f"{y.dtype} {y.shape}".encode() + np.ascontiguousarray(y).tobytes())
    return text.hexdigest()[:16]


def _names() -> list[str]:
    return [name for name in MODELS if "engine" in model_case(name).modes]


def take(file: Path) -> dict[str, str]:
    """Stop, write, and go on; returns the hashes."""
    kept, out = {}, {}
    for name in _names():
        _, d, calls, data, at = _streams(name)
        parts: dict[str, list[list[Array]]] = {}
        run(d, calls[:at], data, parts)
        kept[name] = {i: base64.b64encode(s).decode() for i, s in d.states().items()}
        out[name] = _hash(run(d, calls[at:], data, parts).frames)
    file.write_text(json.dumps(kept))
    return out


def go(file: Path) -> dict[str, str]:
    """Restore and go on; returns the hashes."""
    kept, out = json.loads(file.read_text()), {}
    for name in _names():
        _, d, calls, data, at = _streams(name)
        parts: dict[str, list[list[Array]]] = {}
        run(d, calls[:at], data, parts)
        fresh = d.fresh()
        for i, state in kept[name].items():
            fresh.put(i, base64.b64decode(state))
        out[name] = _hash(run(fresh, calls[at:], data, parts).frames)
    return out


if __name__ == "__main__":
    hashes = {"take": take, "go": go}[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps({"kernels": _core.config()["kernels"], "hashes": hashes}))
