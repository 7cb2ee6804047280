"""What a forward of torch draws for frames: dropout, and random numbers like a stream.

Files that start and end in one call draw what torch draws offline. Where streams go on, each frame's numbers
follow from its stream's key and its position (`array.draws`), so that chunks and companions don't change them.
Which channels are dropped follows from the key alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from ...array import draws
from ...array.loop_body import in_loop
from ...errors import NotStreamableError
from ...nn import functional as native_functional
from ...operations.refusals import DRAWN
from .conversions import to, visible, with_value
from .names import HANDLERS, enter, function
from .running import current

#: What drops whole channels: for all frames of a file the same ones.
_CHANNELS = ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")


def _random(name: str) -> Callable[..., Any]:
    whole, native = getattr(F, name), getattr(native_functional, name)

    def run(input: Any, p: float = 0.5, training: bool = not name.endswith("alpha_dropout")) -> Any:
        if training and p != 0 and input.value is None:
            return _in_loop(name, input, p)
        if not training or p == 0:
            return native(input, p, False)
        _require_own_numbers(name, input)
        if current().goes_on:
            kept = draws.kept_of_stream(name, input, p, name in _CHANNELS)
            scale, shift = draws.factors(kept, p, "alpha" in name)
            return with_value(input, lambda value: _moved(value, scale, shift))
        return visible(input, lambda padded: whole(padded, p, True))

    return run


def _in_loop(name: str, x: Any, p: float) -> Any:
    """Return a frame in the body of a loop some of whose elements are dropped; itself in a capture."""
    entry = current().entry
    if hasattr(entry, "draw_keys") and (current().goes_on or entry.session.is_live):
        return draws.dropped_in_loop(name, x, p, name in _CHANNELS, "alpha" in name)
    return in_loop(x, "" if name in _CHANNELS else f"{name} {p}")


for _name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
    enter(HANDLERS, {_name: _random(_name)})


@function("rrelu")
def _rrelu(
    input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False, **_: Any
) -> Any:
    if not training:
        return native_functional.rrelu(input, lower, upper)
    if input.value is None:
        return in_loop(input, "")
    _require_own_numbers("rrelu", input)
    if not current().goes_on:
        return visible(input, lambda padded: F.rrelu(padded, lower, upper, True))
    u = torch.from_numpy(draws.uniform("rrelu", input, tuple(input.value.shape[1:])))
    slopes = lower + (upper - lower) * u
    return with_value(input, lambda value: torch.where(value <= 0, value * slopes.to(value), value))


def _moved(value: torch.Tensor, scale: Any, shift: Any) -> torch.Tensor:
    out = value * torch.from_numpy(scale).to(value)
    return out if shift is None else out + torch.from_numpy(shift).to(value)


def _require_own_numbers(name: str, x: Any) -> None:
    """Raise where frames of several calls would share what is drawn of an input that is given once."""
    if x.edge is not None and x.edge.line.static and current().goes_on:
        raise NotStreamableError.here(f"{name}: {DRAWN.text}")


def _numbers(of: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    return lambda x, value: torch.from_numpy(of("random numbers", x, tuple(value.shape[1:]))).to(value)


#: Numbers of frames of streams that go on.
_OF_FRAMES: dict[str, Callable[..., torch.Tensor]] = {
    "rand_like": _numbers(draws.uniform),
    "randn_like": _numbers(draws.normal),
    "bernoulli": lambda x, value: (_OF_FRAMES["rand_like"](x, value.double()) < value).to(value),
}


def _random_frames(draw: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Return what draws a number for each element of a stream, which no engine does."""

    def run(input: Any, dtype: torch.dtype | None = None, generator: Any = None, **_: Any) -> Any:
        if getattr(input, "value", None) is None:
            raise NotStreamableError.here("random numbers: an engine draws none")
        _require_own_numbers(draw.__name__, input)
        if generator is None and current().goes_on:
            out = with_value(input, partial(_OF_FRAMES[draw.__name__], input))
            return out if dtype is None else to(out, dtype)
        out = visible(input, draw if generator is None else partial(draw, generator=generator))
        return out if dtype is None else to(out, dtype)

    return run


for _draw in (torch.rand_like, torch.randn_like, torch.bernoulli):
    enter(HANDLERS, {_draw.__name__: _random_frames(_draw)})
