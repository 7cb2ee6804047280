"""Layers that add elements at both ends of the last dimensions."""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Iterator
from typing import Any

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from .derived import layer
from .functional.arguments import Ints
from .functional.texts import described

__all__ = [
    "CircularPad1d", "CircularPad2d", "ConstantPad1d", "ConstantPad2d", "ReflectionPad1d", "ReflectionPad2d",
    "ReplicationPad1d", "ReplicationPad2d", "ZeroPad1d", "ZeroPad2d",
]  # fmt: skip

_PADDING = {
    1: "int or (left, right): Elements before the first and behind the last; negative ones take away.",
    2: "int or (left, right, top, bottom): Elements before the first and behind the last of the last dimension, "
    "then of the one before; negative ones take elements away.",
}
_INPUTS = (
    "``(B, C, L)`` or ``(C, L)``, or ``(B_L, C, T)``: T is a dimension of features, of which each frame of a "
    "stream is padded by itself",
    "``(B, C, H, W)`` or ``(C, H, W)``; of a stream H or W may be the stream axis L",
)
_CONSTANT = (
    "Along L delay: the frames that negative padding takes away, else 0; state those taken away at the end."
)


def _layer(name: str, mode: str, what: str, streaming: str) -> Any:
    """Return the layer of a mode, by its name of the last one or two dimensions."""
    axes = int(name[-2])
    sizes = ("C, L", "C, H, W")[axes - 1]

    def constant(input: Tensor, padding: Ints, value: float) -> Tensor:
        if input.ndim not in (axes + 1, axes + 2):
            raise ShapeError(f"{name}: expected (B, {sizes}) or ({sizes}), got {input.ndim} dimensions")
        return F.pad(input, padding, mode, value)  # type: ignore[arg-type]

    def others(input: Tensor, padding: Ints) -> Tensor:
        return constant(input, padding, 0.0)

    def prepare(self: Any) -> None:
        given = self.padding
        pads = (given,) * (2 * axes) if isinstance(given, int) else tuple(map(operator.index, given))
        if len(pads) != 2 * axes:
            raise ShapeError(f"padding must be one number or {2 * axes}, got {given}")
        self.padding = pads
        if name.startswith("Zero"):
            self.value = 0.0

    function = constant if name.startswith("Constant") else others
    function.__doc__ = f"Return {what} of the last {'dimension' if axes == 1 else 'two dimensions'}."
    function = described(padding=_PADDING[axes], value="What they hold.")(function)
    shown = "padding={padding}, value={value}" if name.startswith("Constant") else "{padding}"
    notes = f"Input {_INPUTS[axes - 1]}. **Streaming.** {streaming} Source: torch.nn.{name}."
    notes = f"Notes\n-----\n{textwrap.fill(notes, 110)}"
    return layer(__name__, notes, name, function, shown, prepare=prepare)


def _layers(kind: str, mode: str, what: str, *streaming: str) -> Iterator[Any]:
    """Return the layers of a mode, of the last dimension and of the last two, with how each streams."""
    return (_layer(f"{kind}Pad{n}d", mode, what, text) for n, text in enumerate(streaming, 1))


ConstantPad1d, ConstantPad2d = _layers(
    "Constant",
    "constant",
    "A number added at both ends",
    f"{_CONSTANT} Along T delay 0, no state.",
    f"{_CONSTANT} Along a dimension of features delay 0, no state.",
)
ZeroPad1d, ZeroPad2d = _layers(
    "Zero", "constant", "Zeros added at both ends", "As `ConstantPad1d`.", "As `ConstantPad2d`."
)
ReplicationPad1d, ReplicationPad2d = _layers(
    "Replication",
    "replicate",
    "The first and the last element repeated at both ends",
    "Along L delay 0, state one frame; along T none.",
    "As `ConstantPad2d`; along L state one frame.",
)
ReflectionPad1d, ReflectionPad2d = _layers(
    "Reflection",
    "reflect",
    "Elements mirrored at the first and at the last one, at both ends",
    "A stream that is no longer than its padding gives no frames. Along L delay `left` frames at the start, "
    "state up to left + 2 * right frames; along T none.",
    "Dimensions of features must be larger than their padding; a stream that is not gives no frames. As "
    "`ReflectionPad1d` along L; along a dimension of features delay 0, no state.",
)
CircularPad1d, CircularPad2d = _layers(
    "Circular",
    "circular",
    "The last elements added before the first, and the first behind the last,",
    "Along T delay 0, no state; L can't be padded so.",
    "Along dimensions of features delay 0, no state; L can't be padded so.",
)
