"""What a caller of an exported model needs to know, as data of JSON's types."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch

from ...engine import Engine
from .integers import UNENDED

FORMAT = 1
"""Of the manifest: what reads it refuses other numbers."""

STATIC_FORMAT = 2
"""Of a static export's manifest."""

State = tuple[str, tuple[int, ...], str, torch.Tensor | None]


def make_manifest(engine: Engine) -> dict[str, Any]:
    """Return the manifest of a model, but for its states."""
    used: set[str] = {"sos", "eos"}
    inputs: list[dict[str, Any]] = [
        {"name": unique(s.name, used), "dims": list(s.dimensions), "dtype": s.dtype, "rate": _ratio(s.rate)}
        for s in engine.inputs
    ]
    outputs: list[dict[str, Any]] = [
        {
            "name": unique(_identifier(o.name), used),
            "dims": list(o.dimensions) if "B" in o.dimensions else ["B", *o.dimensions],
            "dtype": o.dtype,
            "rate": _ratio(o.rate),
            "delay": None if math.isinf(o.delay) else int(o.delay),
        }
        for o in engine.outputs
    ]
    for port in (*inputs, *outputs):
        port["lengths"] = unique(f"{port['name']}_lengths", used)
    return {
        "format": FORMAT,
        "name": engine._interface.name,
        "inputs": inputs,
        "outputs": outputs,
        "states": [],
        "skew": engine._interface.skew,
        "frames": "frames",
        "chunk": {"rows": None, "frames": None},
        "flush": (
            "set eos for a row in the call with its last frames, or in one more with length 0; all frames "
            "that are left come out of that call"
        ),
    }


def with_states(manifest: dict[str, Any], states: Sequence[State]) -> dict[str, Any]:
    """Return the manifest of a model with these states.

    Each state is its name, shape without B, dtype, and what a stream starts with: None for zeros.
    """
    ports = (*manifest["inputs"], *manifest["outputs"])
    used = {"sos", "eos", *(p[key] for p in ports for key in ("name", "lengths"))}
    entries = [
        {
            "name": unique(name, used),
            "next": unique(f"next.{name}", used),
            "dims": ["B", *shape],
            "dtype": dtype,
            "initial": 0 if first is None else first.tolist(),
        }
        for name, shape, dtype, first in states
    ]
    return {**manifest, "states": entries}


def with_chunk(manifest: dict[str, Any], n_rows: int, n_frames: Sequence[int]) -> dict[str, Any]:
    """Return the manifest of a model whose calls have exactly so many rows, and frames of each input."""
    frames = {port["name"]: n for port, n in zip(manifest["inputs"], n_frames)}
    return {**manifest, "chunk": {"rows": n_rows, "frames": frames}}


def of_static(manifest: dict[str, Any], schedule: Any, n_rows: int) -> dict[str, Any]:
    """Return the manifest of a static export, whose calls differ so much that readers of the other refuse it."""
    used = {p[key] for p in (*manifest["inputs"], *manifest["outputs"]) for key in ("name", "lengths")}
    graph = schedule.graph
    inputs = [
        {
            **_without_lengths(port),
            "frames": n,
            "total": unique(f"{port['name']}_total", used) if schedule.ended else None,
        }
        for port, n in zip(manifest["inputs"], schedule.frames)
    ]
    ports = zip(manifest["outputs"], graph.outputs)
    outputs = [{**_without_lengths(port), **schedule.described(e)} for port, e in ports]
    states = manifest["states"][0 if schedule.counted else 1 :]
    if schedule.counted:
        states = [{**states[0], "dims": ["B"]}, *states[1:]]
    return {
        "format": STATIC_FORMAT,
        "name": manifest["name"],
        "inputs": inputs,
        "outputs": outputs,
        "states": states,
        "chunk": {"rows": n_rows, "frames": {port["name"]: port["frames"] for port in inputs}},
        "phases": [None] * schedule.n_phases,
        "unended": UNENDED,
        "flush": (
            "fill the call with a stream's last frames up with zeros"
            + (", give its total in this call and those behind it, and" if schedule.ended else ";")
            + " go on calling with zeros until every output has had all of its frames"
        ),
    }


def _without_lengths(port: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in port.items() if key != "lengths"}


def unique(name: str, used: set[str]) -> str:
    """Return a name that is not used yet, and note it."""
    candidate, n = name, 2
    while candidate in used:
        candidate, n = f"{name}_{n}", n + 1
    used.add(candidate)
    return candidate


def _identifier(name: str) -> str:
    """Return an output's name, which may be its place in a tuple, as a name that every format takes."""
    word = re.sub(r"\W", "_", name)
    return word if word[:1].isalpha() else f"output_{word}"


def _ratio(rate: Fraction) -> list[int]:
    return [rate.numerator, rate.denominator]
