"""Ramps and windows over whole streams: computed of positions and of the length that these are divided by.

They are known at a stream's end, so that they wait for it under ``unstreamable="buffer"``, as do positions that a
forward divides by a length itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...array.symbolic import Symbolic
from ...stream.rules import Length
from .mode import current
from .names import OF_LENGTHS, function

__all__: list[str] = []


def _ramp(n: Length, last: Length) -> Any:
    """Return positions, of which that of a frame at `last` is 1; streams of one frame are refused."""
    enough = (n - 1).compare(1, "ge")
    if not isinstance(enough, bool):
        enough.require()
    return current().call(torch.arange, (n,), {"dtype": torch.float32}) / last


def _number(n: Any) -> Any:
    return n.item() if isinstance(n, Symbolic) else n


@function("linspace", of=OF_LENGTHS)
def linspace(start: Any, end: Any, steps: Any, **named: Any) -> Any:
    """Return numbers from `start` to `end`, one for each frame."""
    steps = _number(steps)
    return _ramp(steps, steps - 1) * (end - start) + start


def _window(name: str, *terms: float) -> None:
    @function(name, of=OF_LENGTHS)
    def window(window_length: Any, periodic: bool = True, *given: float, **named: Any) -> Any:
        n = _number(window_length)
        at = _ramp(n, n if periodic else n - 1)
        own = list(given) or [named.get(k, d) for k, d in zip(("alpha", "beta"), terms)] + list(terms[2:])
        out = own[0]
        for k, term in enumerate(own[1:], 1):
            out = (-1) ** k * term * torch.cos(at * (2 * math.pi * k)) + out
        return out


_window("hann_window", 0.5, 0.5)
_window("hamming_window", 0.54, 0.46)
_window("blackman_window", 0.42, 0.5, 0.08)
