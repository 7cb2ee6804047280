"""Padding: elements added at the ends of dimensions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...array import Tensor
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from .arguments import checked, frame_dims

__all__ = ["pad"]


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Return the tensor with elements added at both ends of its last dimensions.

    Parameters
    ----------
    input : Tensor
        ``(*, L)``; of a stream the stream axis, which is padded at its start and its end, and axes of
        features, within each frame.
    pad : sequence of int
        ``(left, right)`` of the last dimension, then of the one before, and so on; negative numbers
        take elements away.
    mode : {"constant", "replicate", "reflect", "circular"}
        What is added. "circular" is not for the stream axis.
    value : float, optional
        For "constant"; 0 without it.

    Raises
    ------
    ShapeError
        For pads that don't come in pairs, more pairs than dimensions, and features that are too few to
        be mirrored or repeated that often.
    NotStreamableError
        Where a stream would be padded with its own end, or with other streams.
    """
    x, pads = checked("pad", input), [operator.index(p) for p in pad]
    if len(pads) % 2 or len(pads) > 2 * x.ndim:
        raise ShapeError(f"pad: {len(pads)} numbers for a tensor of {x.ndim} dimensions; give pairs")
    if mode not in ("constant", "replicate", "reflect", "circular"):
        raise ShapeError(f"pad: mode is constant, replicate, reflect or circular, got {mode!r}")
    if mode != "constant" and value is not None:
        raise ShapeError(f"pad: mode {mode!r} takes no value")
    for i in range(0, len(pads), 2):
        axis, (left, right) = x.ndim - 1 - i // 2, pads[i : i + 2]
        if left or right:
            x = _pad_axis(x, axis, left, right, mode, 0.0 if value is None else float(value))
    return x


def _pad_axis(x: Tensor, axis: int, left: int, right: int, mode: str, value: float) -> Tensor:
    role = x.dims[axis] if x.is_stream else "L"  # type: ignore[attr-defined]
    if isinstance(role, int):
        return _pad_features(x, axis, left, right, mode, value)
    if role != "L":
        raise NotStreamableError(f"pad: {role} of a stream can't be padded; pad L, or axes of features")
    if x.is_stream and mode == "circular":
        raise NotStreamableError(
            "pad: a stream can't be padded with its own end; use replicate or reflect, or pad with zeros"
        )
    _, dims = frame_dims("pad", x, axis)
    if left < 0 or right < 0:
        crop = {"start": max(-left, 0), "crop": max(-right, 0)}
        x, left, right = apply("slice", crop, (x,), (), dims)[0], max(left, 0), max(right, 0)
    if not left and not right:
        return x
    if mode == "circular":
        return _pad_circular(x, axis, left, right)
    attributes = {"left": left, "right": right, "mode": mode, "value": value}
    return apply("pad", attributes, (x,), (), dims)[0]


def _pad_features(x: Any, axis: int, left: int, right: int, mode: str, value: float) -> Tensor:
    """Pad each frame of a stream."""
    n = x.shape[axis]
    start, stop = max(-left, 0), n - max(-right, 0)
    if stop <= start:
        raise ShapeError(f"pad: {(left, right)} leaves nothing of {n} features")
    x = x.narrow(axis, start, stop - start)
    left, right = max(left, 0), max(right, 0)
    if not left and not right:
        return x  # type: ignore[no-any-return]
    x = x.in_order()
    attributes = {"left": left, "right": right, "mode": mode, "value": value, "axis": x.dims[axis]}
    return apply("pad_features", attributes, (x,), (), x.dims)[0]


def _pad_circular(x: Tensor, axis: int, left: int, right: int) -> Tensor:
    n = x.shape[axis]
    if max(left, right) > n:
        raise ShapeError(f"pad: circular padding of {(left, right)} needs as many elements, got {n}")
    return x.index_select(axis, Tensor(np.arange(-left, n + right) % n if n else np.arange(0)))
