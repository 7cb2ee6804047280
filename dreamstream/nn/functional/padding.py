"""Padding: elements added at the ends of dimensions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...array import Tensor
from ...array.deferred import is_computed
from ...array.ends import at_least_before, in_most_streams, last_frames, padded_to
from ...array.hook import made
from ...array.scores import Scores
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from ...stream.rules import Length, open_branch
from .arguments import checked, frame_dims
from .texts import described, torch_lacks

__all__ = ["pad", "pad_to_multiple"]


@described(
    "",
    {
        "ShapeError": "For pads that don't come in pairs, more pairs than dimensions, and features that are too "
        "few to be mirrored or repeated that often.",
        "NotStreamableError": "Where a stream would be padded with its own end, or with other streams.",
    },
    input="``(*, L)``; of a stream the stream axis, which is padded at its start and its end, and axes of "
    "features, within each frame.",
    pad="sequence of int: ``(left, right)`` of the last dimension, then of the one before, and so on; negative "
    "numbers take elements away. Behind a stream's last frame also what was computed of lengths, such as "
    '``y.size(L) - x.size(L)`` or ``-x.size(L) % 4``, for "constant" and "replicate", and before the first '
    'what makes short streams longer, ``max(0, k - x.size(L))``, for "constant".',
    mode='{"constant", "replicate", "reflect", "circular"}: What is added. "circular" is not for the stream axis.',
    value='For "constant"; 0 without it.',
)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Return the tensor with elements added at both ends of its last dimensions."""
    if is_computed(input):  # computed of positions
        return input.library.defer(_padded, (input, tuple(pad), mode, value), {})
    if isinstance(input, Scores):
        return input.pad(tuple(pad), mode, value)
    return _padded(input, pad, mode, value)


def _padded(input: Tensor, pad: Sequence[int], mode: str, value: float | None) -> Tensor:
    x, pads = checked("pad", input), [p if isinstance(p, Length) else operator.index(p) for p in pad]
    if len(pads) % 2 or len(pads) > 2 * x.ndim:
        raise ShapeError(f"pad: {len(pads)} numbers for a tensor of {x.ndim} dimensions; give pairs")
    if mode not in ("constant", "replicate", "reflect", "circular"):
        raise ShapeError(f"pad: mode is constant, replicate, reflect or circular, got {mode!r}")
    if mode != "constant" and value:
        raise ShapeError(f"pad: mode {mode!r} takes no value")
    fill = 0.0 if value is None else float(value)
    if x.is_stream:
        return _pad_stream(x, pads, lambda y, by: _pad_axes(y, by, mode, fill))
    return _pad_axes(x, pads, mode, fill)


def _pad_stream(x: Any, pads: list[Any], pad: Callable[[Any, list[Any]], Tensor]) -> Tensor:
    """Pad a stream; in an if that some streams enter, by what is nothing in others."""
    branch: Any = None if x.edge is None or "L" not in x.dims else open_branch(x.edge.entry)
    end = 2 * (x.ndim - 1 - x.dims.index("L")) + 1 if branch is not None else len(pads)
    if end >= len(pads):
        return pad(x, pads)
    return branch.padded(x, pads, end, x.size(x.dims.index("L")), pad)


def _before(x: Any, axis: int, more: Length, value: float, crops: bool) -> Any:
    """Pad before the first frame up to a number, or, where it `crops`, to a number, which leaves the last ones."""
    if not x.is_stream or x.dims[axis] != "L":
        return None
    count = more + x.shape[axis]
    if isinstance(count, Length):
        return at_least_before(x, axis, more, value)
    if not crops or count < 1:
        return None
    padded: Any = _pad_axis(x, axis, count, 0, "constant", value)
    return last_frames(padded, count)


def _pad_axes(x: Tensor, pads: Sequence[Any], mode: str, value: float) -> Tensor:
    """Pad the last dimensions, one pair of numbers for each, beginning at the last."""
    for i in range(0, len(pads), 2):
        axis, (left, right) = x.ndim - 1 - i // 2, pads[i : i + 2]
        if isinstance(left, Length) and mode == "constant" and type(right) is int:
            before = _before(x, axis, left, value, not right)
            x, left = (x, left) if before is None else (before, 0)
        left = operator.index(left)
        if isinstance(right, Length):
            x = _pad_to(x, axis, left, right, mode, value)
        elif left or right:
            x = _pad_axis(x, axis, left, right, mode, value)
    return x


@torch_lacks
@described(
    "``left + max(least, T rounded up to the multiple) + right`` frames; of no frames none are replicated.",
    {"ShapeError": "For a multiple below 1, a negative padding or least and an unknown mode."},
    input="``(*, L)``, or a stream, which knows its axis.",
    multiple="The size of a block.",
    padding="(left, right): Frames that are added in any case.",
    mode='{"constant", "replicate", "reflect"}: What is added. A stream that is too short to be mirrored is '
    "continued with `value` until it is long enough, and cut again afterwards.",
    value='What the frames hold in mode "constant".',
    least="Shorter streams are padded up to so many frames; then come those of `padding`.",
)
def pad_to_multiple(
    input: Tensor,
    multiple: int,
    padding: Sequence[int] = (0, 0),
    mode: str = "constant",
    value: float = 0.0,
    least: int = 0,
) -> Tensor:
    """Return the stream with frames at both ends, at its end as many more as make it whole blocks.

    What convolutions do that pad their input to a whole number of strides: ``left`` frames stand before
    the T frames of the stream and ``right + (-T % multiple)`` behind them, more if T is below `least`.

    Notes
    -----
    **Streaming.** Delay 0, but `left` frames at the start for "reflect"; state none for "constant", as many
    frames as may stand behind the last for "replicate", twice as many for "reflect".
    """
    x, (left, right) = checked("pad_to_multiple", input), [operator.index(p) for p in padding]
    if operator.index(multiple) < 1 or min(left, right, operator.index(least)) < 0:
        raise ShapeError(
            "pad_to_multiple: expected a multiple of 1 or more, padding and least of 0 or more, got "
            f"{multiple}, {(left, right)} and {least}"
        )
    if mode not in ("constant", "replicate", "reflect"):
        raise ShapeError(f"pad_to_multiple: mode is constant, replicate or reflect, got {mode!r}")
    sizes = {"left": left, "right": right, "multiple": operator.index(multiple), "least": operator.index(least)}
    attributes = {**sizes, "mode": mode, "value": float(value)}
    _, dims = frame_dims("pad_to_multiple", x, -1)
    return apply("pad_to_multiple", attributes, (x,), (), dims)[0]


def _pad_axis(x: Tensor, axis: int, left: int, right: int, mode: str, value: float) -> Tensor:
    role = x.dims[axis] if x.is_stream else "L"  # type: ignore[attr-defined]
    if not isinstance(role, int) and role != "L":
        raise NotStreamableError(f"pad: {role} of a stream can't be padded; pad L, or axes of features")
    if x.is_stream and role == "L" and mode == "circular":
        raise NotStreamableError(
            "pad: a stream can't be padded with its own end; use replicate or reflect, or pad with zeros"
        )
    if not x.is_stream and not x.numel():
        return _pad_nothing(x, axis, left, right, mode, value)
    more, less = (max(left, 0), max(right, 0)), (max(-left, 0), max(-right, 0))
    if mode == "circular":  # what is taken away doesn't come back at the other end
        x = _crop(x, axis, role, *less)
        return _add(x, axis, role, *more, mode, value)
    return _crop(_add(x, axis, role, *more, mode, value), axis, role, *less)


def _pad_to(x: Any, axis: int, left: int, right: Length, mode: str, value: float) -> Tensor:
    """Pad a stream at its end by what depends on its length, or another's."""
    if not x.is_stream or x.dims[axis] != "L":
        operator.index(right)  # says that it is no number
    size: Any = x.size(axis) + min(left, 0)
    right = in_most_streams(size + right, right)
    if isinstance(right, int):
        return _pad_axis(x, axis, left, right, mode, value)
    wanted, most = size + right, right.most()
    if not isinstance(wanted, Length):
        raise NotStreamableError.here(
            f"pad to {wanted} frames: an output of a constant length would go on without frames; pad to a "
            "multiple, or to another stream's length"
        )
    if mode not in ("constant", "replicate") or (mode == "replicate" and most is None):
        raise NotStreamableError.here(
            f"pad: mode {mode!r} by {right!r} frames",
            "; pad with a constant, or by a number, or use pad_to_multiple, which continues a stream that is too "
            "short to be mirrored",
        )
    if left < 0:
        x, left = _crop(x, axis, "L", -left, 0), 0
    return padded_to(x, wanted, left, mode, value, most or 0)


def _crop(x: Any, axis: int, role: Any, left: int, right: int) -> Tensor:
    """Take elements away at both ends."""
    if not left and not right:
        return x
    if role == "L":
        _, dims = frame_dims("pad", x, axis)
        return apply("slice", {"start": left, "crop": right}, (x,), (), dims)[0]
    n = x.shape[axis] - left - right
    if n < 1:
        raise ShapeError(f"pad: nothing is left of {x.shape[axis]} features without {left} and {right}")
    return x.narrow(axis, left, n)


def _add(x: Any, axis: int, role: Any, left: int, right: int, mode: str, value: float) -> Tensor:
    """Add elements at both ends."""
    if not left and not right:
        return x
    attributes = {"left": left, "right": right, "mode": mode, "value": value}
    if role != "L":
        return apply("pad_features", {**attributes, "axis": role}, (x,), (), x.dims)[0]
    if mode == "circular":
        return _pad_circular(x, axis, left, right)
    _, dims = frame_dims("pad", x, axis)
    return apply("pad", attributes, (x,), (), dims)[0]


def _pad_nothing(x: Tensor, axis: int, left: int, right: int, mode: str, value: float) -> Tensor:
    """Pad a plain tensor without elements; an axis of none has nothing that could be repeated or mirrored."""
    n, shape = x.shape[axis], list(x.shape)
    too_short = (n == 0 and (mode != "constant" or x._missing)) or (mode == "reflect" and n <= max(left, right))
    shape[axis] = 0 if too_short else max(n + left + right, 0)
    out = made("of_nothing", x, shape=shape, fill_value=value, dtype=x.dtype)
    out._missing = out._missing or too_short
    return out


def _pad_circular(x: Tensor, axis: int, left: int, right: int) -> Tensor:
    n = x.shape[axis]
    if max(left, right) > n:
        raise ShapeError(f"pad: circular padding of {(left, right)} needs as many elements, got {n}")
    return x.index_select(axis, Tensor(np.arange(-left, n + right) % n if n else np.arange(0)))
