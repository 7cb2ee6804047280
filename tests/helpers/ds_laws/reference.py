"""What every operator computes, in plain NumPy: the values that the suite believes.

A function takes the operator's attributes by name, its weights and its inputs, each ``[frames][features]``
of one whole sequence, and returns its outputs. Inputs of floating point arrive as float64. They are NumPy's
arithmetic alone. `Refused` is raised for lengths that are an error at the end of a stream.

They stand beside the random cases, in `operators`, which enters them here; this file has what they share.

Where torch raises only because a sequence is too short, or empty, there are no frames. Where it defines what comes
of no frames (pads, sums), references are given none. An output without a stream axis is one frame, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isfunction
from typing import Any

import numpy as np
import numpy.typing as npt

from dreamstream.operations import OPERATORS

Array = npt.NDArray[Any]
Arrays = Sequence[Array]

REFERENCES: dict[str, Callable[..., list[Array]]] = {}


class Refused(Exception):
    """A stream of such a length is an error."""


def named(module: Any, returned: str) -> dict[str, Any]:
    """A file's functions that are named after operators and return this, less what keeps names from others.

    ``slice_`` is "slice"; a function that draws cases may stand beside the reference, with an underscore in front.
    """
    own = [f for f in vars(module).values() if isfunction(f) and f.__module__ == module.__name__]
    functions = {f.__name__.strip("_"): f for f in own if f.__annotations__.get("return") == returned}
    return {name: f for name, f in functions.items() if name in OPERATORS}


def no_frames(*features: int) -> Array:
    return np.zeros((0, *features))


def by_lane(run: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """Let every lane of frames ``[lanes][...]`` go its own way; others as they are."""

    def each(a: dict[str, Any], w: Arrays, x: Array, *states: Array) -> list[Array]:
        if x.ndim < 3:
            return run(a, w, x, *states)
        return [np.stack(ys, 1) for ys in zip(*(run(a, w, x[:, i]) for i in range(x.shape[1])))]

    return each


def length_of(steps: Sequence[int], n: int) -> int:
    """Apply a length's function, in pairs: 0 c adds, 1 c multiplies, 2 c divides."""
    for code, c in zip(steps[::2], steps[1::2]):
        n = n + c if code == 0 else n * c if code == 1 else n // c
    return n


def padded(x: Array, left: int, right: int, mode: str, value: float = 0.0) -> Array | None:
    """Add frames at both ends; None where there are too few to do so."""
    n = len(x)
    needed = {"reflect": max(left, right) + 1, "circular": max(left, right), "replicate": 1}.get(mode, 0)
    if n < needed and (left or right or mode == "replicate"):
        return None
    names = {
        "zeros": "constant",
        "constant": "constant",
        "replicate": "edge",
        "reflect": "reflect",
        "circular": "wrap",
    }
    more = {"constant_values": value} if mode in ("zeros", "constant") else {}
    return np.pad(x, [(left, right)] + [(0, 0)] * (x.ndim - 1), mode=names[mode], **more)


def sigmoid(x: Array) -> Array:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def operands(a: dict[str, Any], w: Arrays, xs: Arrays) -> list[Array]:
    """The operands in turn: streams, and constants that serve every frame; features aligned at the right."""
    queues = [list(xs), list(w)]
    order = a.get("order") or [0] * len(xs)
    found = [(queues[kind].pop(0), kind) for kind in order]
    rank = max(x.ndim - (not kind) for x, kind in found)
    out = []
    for x, kind in found:
        features = x.shape if kind else x.shape[1:]
        lead = (1,) if kind else x.shape[:1]
        out.append(x.reshape(*lead, *(1,) * (rank - len(features)), *features))
    return out
