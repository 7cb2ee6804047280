"""Functions of torch that are given lengths: ramps and windows over whole streams, and packed sequences.

Ramps and windows are computed of positions and of the length that these are divided by. They are known at a
stream's end, so that they wait for it under ``unstreamable="buffer"``, as do positions that a forward divides by a
length itself. Streams are packed already, so that packing is a check of the lengths: rows keep their order and
their frames; ``data`` of a packed sequence is the stream itself, batch first.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...array.deferred import as_number, has_formula
from ...array.symbolic import Symbolic
from ...errors import NotStreamableError
from ...stream.rules import Length
from ..tensor import StreamTensor
from .names import OF_LENGTHS, function
from .running import current


# ---------------------------------------------------------------------- ramps and windows
def _ramp(n: Length, last: Length) -> Any:
    """Return positions, of which that of a frame at `last` is 1; streams of one frame are refused."""
    (n - 1).require("ge", 1)
    return current().call(torch.arange, (n,), {"dtype": torch.float32}) / last


@function("linspace", of=OF_LENGTHS)
def linspace(start: Any, end: Any, steps: Any, **named: Any) -> Any:
    """Return numbers from `start` to `end`, one for each frame."""
    steps = as_number(steps)
    return _ramp(steps, steps - 1) * (end - start) + start


def _window(name: str, *terms: float) -> None:
    @function(name, of=OF_LENGTHS)
    def window(window_length: Any, periodic: bool = True, *given: float, **named: Any) -> Any:
        n = as_number(window_length)
        at = _ramp(n, n if periodic else n - 1)
        own = list(given) or [named.get(k, d) for k, d in zip(("alpha", "beta"), terms)] + list(terms[2:])
        out = own[0]
        for k, term in enumerate(own[1:], 1):
            out = (-1) ** k * term * torch.cos(at * (2 * math.pi * k)) + out
        return out


_window("hann_window", 0.5, 0.5)
_window("hamming_window", 0.54, 0.46)
_window("blackman_window", 0.42, 0.5, 0.08)


# ---------------------------------------------------------------------- packed sequences
class _Steps(Symbolic):
    """A placeholder for the sizes of the steps' batches."""

    device = torch.device("cpu")


@function("_pack_padded_sequence", of=OF_LENGTHS)
def pack(input: StreamTensor, lengths: Any, batch_first: bool = False) -> tuple[Any, Any]:
    """Return a stream, batch first, and what stands for the sizes of its batches."""
    data = input if batch_first else input.transpose(0, 1)
    frames = data.size(1)
    covers: Any = False
    if has_formula(lengths) and lengths.roles == ("B",) and isinstance(frames, Length):
        more = lengths.value - frames
        covers = more.compares("eq", frames) if isinstance(more, Length) else more == 0
    if covers is not True:
        raise NotStreamableError.here(
            f"pack_padded_sequence: {lengths!r} are not the lengths of a stream of {frames!r} frames; give those "
            "that ds.lengths_of stands for, as the layers before change them"
        )
    return data, _Steps(lengths.value, ("L",), frames)


@function("_pad_packed_sequence", of=OF_LENGTHS)
def pad(data: StreamTensor, steps: Any, batch_first: bool, padding_value: float, total: Any) -> tuple[Any, Any]:
    """Return a stream with the axes in the order that is asked for, and its lengths."""
    lengths = Symbolic(steps.value, ("B",), steps.length)
    more = total - data.size(1)
    if isinstance(more, Length) or more != 0:
        raise NotStreamableError.here(
            f"pad_packed_sequence: total_length={total!r} is not the length of every stream"
        )
    return data if batch_first else data.transpose(0, 1), lengths
