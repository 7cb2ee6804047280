"""Dimensions brought to another size by repeating and leaving out elements."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np

from ...array import Tensor
from ...array.elementwise import with_frames
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from ...operations.refusals import RESIZED
from ...stream.rules import Length
from .arguments import checked
from .padding import pad
from .texts import described

__all__ = ["interpolate"]


@described(
    "``(B, C, L_out)`` or ``(B, C, H_out, W_out)``. Whole factors repeat elements exactly (torch's positions in "
    "single precision slip for some of them, 41, 47, 49 …).",
    {
        "NotStreamableError": "For other factors, and sizes, along a stream.",
        "ShapeError": "For other modes, and arguments that don't fit.",
    },
    input="``(B, C, L)`` or ``(B, C, H, W)``; any of the dimensions but the first two may be the stream axis.",
    size="int or (int, int), optional: The new sizes. Along a stream a length that is a whole multiple, or part, "
    "of its own, as in ``size=2 * x.size(2)``; streams in which it isn't are refused at their ends.",
    scale_factor="float or (float, float), optional: New elements per old one. Along a stream a whole number, "
    "or one divided by a whole number k, every k-th frame, as ``x[..., ::k]``, as far as there are k.",
    mode='{"nearest", "nearest-exact", "linear", "bilinear"}: How elements are found. Along a stream "linear" '
    "waits for one more frame.",
    align_corners="As in torch. Along a stream the corners can't be aligned: where its end lies, all depends on.",
    recompute_scale_factor="Whether the places are found by the sizes.",
    antialias='As in torch; of no consequence for "nearest".',
)
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Return the last dimensions in another size, each element the nearest one below its place."""
    x = checked("interpolate", input)
    if mode not in MODES or antialias:
        asked = "antialias=True" if mode in MODES else repr(mode)
        raise ShapeError(f"interpolate: mode is one of {', '.join(MODES)}, got {asked}")
    linear = mode in ("linear", "bilinear")
    if align_corners is not None and not linear:
        raise ShapeError(f"interpolate: align_corners has no meaning for mode {mode!r}")
    n = x.ndim - 2
    if n not in (1, 2):
        raise ShapeError(f"interpolate: expected (B, C, L) or (B, C, H, W), got {x.ndim} dimensions")
    if linear and n != MODES.index(mode) - 1:
        raise ShapeError(f"interpolate: mode {mode!r} is not for {x.ndim} dimensions")
    sizes, factors = scales("interpolate", size, scale_factor, n)
    for axis, wanted, factor in zip(range(-n, 0), sizes, factors):
        if isinstance(wanted, Length):
            factor, wanted = _factor(x.shape[axis], wanted), None
        if linear:
            x = _linear(x, axis + x.ndim, wanted, factor, bool(recompute_scale_factor), bool(align_corners))
            continue
        if mode == "nearest-exact" and not (factor is not None and factor.is_integer()):
            raise ShapeError("interpolate: mode 'nearest-exact' takes whole factors")
        x = _resized(x, axis + x.ndim, wanted, factor, bool(recompute_scale_factor))
    return x


MODES = ("nearest", "nearest-exact", "linear", "bilinear")


def scales(name: str, size: Any, factor: Any, n: int) -> tuple[list[Any], list[Any]]:
    """Return a size or a factor, the other None, for each of n dimensions.

    Raises
    ------
    ShapeError
        Where not exactly one is given, in that number, above 0.
    """
    if (size is None) == (factor is None):
        raise ShapeError(f"{name}: give either size or scale_factor")
    given = size if factor is None else factor
    values = list(given) if isinstance(given, (tuple, list)) else [given] * n
    if len(values) != n:
        raise ShapeError(f"{name}: expected {n} sizes or factors, got {given}")
    values = [v if isinstance(v, Length) else operator.index(v) if factor is None else float(v) for v in values]
    if any(v <= 0 for v in values if not isinstance(v, Length)):
        raise ShapeError(f"{name}: sizes and factors must be above 0, got {given}")
    none = [None] * n
    return (values, none) if factor is None else (none, values)


def _factor(old: Any, new: Length) -> float:
    """Return by what a dimension is longer, or shorter, in all streams; others are refused at their ends."""
    times = new.rate / old.rate if isinstance(old, Length) and old.rate else Fraction(0)
    n, k = times.numerator, times.denominator
    same = 1 in (n, k) and new * k == old * n
    if same is False:
        raise _refused("a length that is no whole multiple, or part, of its own", None)
    if same is not True:
        same.require()
    return n / k


def _resized(x: Tensor, axis: int, size: int | None, factor: float | None, by_sizes: bool) -> Tensor:
    if factor is not None and factor.is_integer():
        return with_frames(x).repeat_interleave(int(factor), axis)
    role = x.dims[axis] if x.is_stream else None  # type: ignore[attr-defined]
    if isinstance(role, str) and role != "L":
        raise NotStreamableError.here(f"interpolate along {role}: it would mix streams")
    every = 0 if factor is None else round(1 / factor)
    if factor is not None and every > 1 and abs(every * factor - 1) < 1e-9:
        whole = slice(0, 1 - every, every)
        return with_frames(x[(slice(None),) * axis + (whole,)])
    if role == "L":
        raise _refused(size, factor)
    n = x.shape[axis]
    wanted = int(n * factor) if size is None and factor is not None else size
    if not n and not x.is_stream:
        return x
    if not wanted:
        raise ShapeError(f"interpolate: {n} elements can't become {wanted}")
    attributes = {"axis": 0, "size": wanted, "scale": 0.0 if factor is None or by_sizes else factor}
    if x.is_stream:
        dims = x.dims  # type: ignore[attr-defined]
        return apply("nearest", {**attributes, "axis": dims[axis]}, (x,), (), dims)[0]
    return apply("nearest", attributes, (x.movedim(axis, -1),), (), (..., 0))[0].movedim(-1, axis)


def _refused(size: int | str | None, factor: float | None) -> NotStreamableError:
    asked = f"scale_factor={factor}" if size is None else f"size={size}"
    return NotStreamableError.here(f"interpolate({asked}) along the stream: {RESIZED.text}")


def _linear(x: Tensor, axis: int, size: int | None, factor: float | None, by_sizes: bool, corners: bool) -> Tensor:
    role = x.dims[axis] if x.is_stream else None  # type: ignore[attr-defined]
    if isinstance(role, str) and role != "L":
        raise NotStreamableError.here(f"interpolate along {role}: it would mix streams")
    if role == "L":
        return _linear_frames(x.movedim(axis, -1), size, factor, corners).movedim(-1, axis)
    n, x = x.shape[axis], with_frames(x)
    wanted = int(n * factor) if size is None and factor is not None else size
    if not n:
        return x
    if not wanted:
        raise ShapeError(f"interpolate: {n} elements can't become {wanted}")
    if corners:
        places = np.arange(wanted) * ((n - 1) / (wanted - 1) if wanted > 1 else 0.0)
    else:
        step = n / wanted if factor is None or by_sizes else 1 / factor
        places = ((np.arange(wanted) + 0.5) * step - 0.5).clip(0)
    first = np.floor(places).astype(np.int64).clip(max=n - 1)
    last, shape = (first + 1).clip(max=n - 1), [-1] + [1] * (x.ndim - axis - 1)
    share = Tensor((places - first).astype(x.dtype).reshape(shape))
    return x.index_select(axis, Tensor(first)) * (1 - share) + x.index_select(axis, Tensor(last)) * share


def _linear_frames(x: Any, size: int | None, factor: float | None, corners: bool) -> Tensor:
    """Resize a stream, whose last dimension is L, by a whole factor or 1 / k."""
    every = 0 if factor is None else round(1 / factor)
    if corners or factor is None or not (factor.is_integer() or abs(every * factor - 1) < 1e-9):
        raise _refused(size, factor)
    if not factor.is_integer():  # between the middle frames of each k
        low, high = (every - 1) // 2, every // 2
        first, last = (x[..., a : a - every + 1 or None : every] for a in (low, high))
        return with_frames(first * 0.5 + last * 0.5 if every % 2 == 0 else first)
    # Between two frames lie as many outputs as have not been given with the first: all that the second decides on.
    k = int(factor)
    padded = pad(x, (1, 1), mode="replicate")
    behind = (np.arange(k) + 0.5) / k - 0.5
    early = int((behind <= 0).sum())
    share = Tensor(np.concatenate([behind[early:], behind[:early] + 1]).astype(x.dtype))
    between: Tensor = padded[..., :-1].unsqueeze(-1) * (1 - share) + padded[..., 1:].unsqueeze(-1) * share
    return between.reshape(*between.shape[:-2], between.shape[-2] * k)[..., k - early : -early]
