"""What the functions ask of their arguments, once for all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np

from ...array import Tensor
from ...array.batch_constants import is_constant
from ...array.deferred import is_deferred
from ...array.dimension_arguments import numbered
from ...array.dtypes import require_float, require_same
from ...array.first_frame import FirstFrame
from ...errors import DTypeError, NotStreamableError, ShapeError
from ...stream.rules import BatchSize

__all__ = [
    "Ints", "channels_first", "checked", "for_each_stream", "frame_dims", "real", "require_positive", "same_types",
    "several", "single", "within_frames",
]  # fmt: skip


Ints = int | Sequence[int]


def checked(name: str, input: Any) -> Tensor:
    if isinstance(input, Tensor):
        return input
    if is_deferred(input):
        input = input.as_stream()
    if isinstance(input, FirstFrame):
        input.refuse(name)
    if not isinstance(input, Tensor):
        hint = "; wrap it in ds.tensor(...)" if isinstance(input, (np.ndarray, list)) else ""
        kind = type(input).__name__
        if type(input).__module__.partition(".")[0] == "torch":
            kind, hint = f"torch's {kind}", "; dreamstream.nn computes with NumPy: ds.tensor(t.numpy())"
        raise DTypeError.here(f"{name}: expected a tensor, got {kind}{hint}")
    return input


def real(name: str, input: Any) -> Tensor:
    """Return an argument, which must be of floats."""
    x = checked(name, input)
    require_float(name, x.dtype)
    return x


def same_types(name: str, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    own = input.dtype
    if own.kind != "f" or (weight is not None and weight.dtype != own) or (bias is not None and bias.dtype != own):
        require_same(name, input=own, weight=getattr(weight, "dtype", None), bias=getattr(bias, "dtype", None))


def require_positive(name: str, **sizes: Any) -> None:
    """Refuse sizes of a function, or a layer, that are not 1 at least."""
    for what, size in sizes.items():
        if operator.index(size) < 1:
            raise ShapeError(f"{name}: {what} must be at least 1, got {size}")


def single(value: Ints, what: str) -> int:
    """Return a size that callers give as an int or as a sequence of one."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise ShapeError(f"{what} must be one integer, got {tuple(value)}")
        value = value[0]
    return operator.index(value)  # type: ignore[arg-type]


def several(value: Ints, n: int, what: str) -> tuple[int, ...]:
    """Return n sizes that callers give as an int, or as a sequence of one or of n."""
    if not isinstance(value, (tuple, list)):
        return (operator.index(value),) * n  # type: ignore[arg-type]
    if len(value) not in (1, n):
        raise ShapeError(f"{what} must be {'one integer' if n == 1 else f'1 or {n} integers'}, got {tuple(value)}")
    return tuple(map(operator.index, value)) * (n // len(value))


def for_each_stream(convolution: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a convolution take ``(1, B * C, …)``, with as many groups for each stream and weights repeated for each.

    That is how batch and channels are packed into one dimension where all have the same kernel; it is the
    convolution of ``(B, C, …)`` by one stream's weights.
    """

    @wraps(convolution)
    def convolved(input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not is_constant(weight):
            return convolution(input, weight, bias, *args, **kwargs)
        bound = signature(convolution).bind(input, weight, bias, *args, **kwargs).arguments
        groups, shape = bound.get("groups", 1), input.shape
        rows = shape[1] if input.ndim > 1 else None
        if not isinstance(groups, BatchSize) or not isinstance(rows, BatchSize) or shape[0] != 1:
            raise NotStreamableError.here(
                f"{convolution.__name__} with a weight for each stream of a batch",
                ": expected (1, B * C, L), and groups that are a multiple of the number of streams",
            )
        own = {"weight": weight.of_stream(), "groups": groups.times}
        own |= {"bias": bias.of_stream()} if is_constant(bias) else {}
        x = input.reshape(rows // rows.times, rows.times, *shape[2:])
        y = convolution(**{**bound, "input": x, **own})
        return y.reshape(1, rows // rows.times * y.shape[1], *y.shape[2:])

    return convolved


def within_frames(x: Tensor) -> bool:
    """Whether the last two of three dimensions are features of a stream: (B_L, C, T)."""
    return x.is_stream and x.dims[1:] in ((0, 1), (1, 0))  # type: ignore[attr-defined]


def channels_first(name: str, x: Tensor) -> tuple[Any, ...]:
    n = x.ndim
    if n not in (2, 3):
        raise ShapeError(f"{name}: expected (B, C, L) or (C, L), got {n} dimensions")
    return ("B", 0, "L") if n == 3 else (0, "L")


def frame_dims(name: str, x: Tensor, axis: int) -> tuple[int, tuple[Any, ...]]:
    """Return the stream axis and what every dimension is, for operators along the stream.

    A stream knows its axis, or is refused; `axis` is that of a plain tensor.
    """
    if x.is_stream:
        roles: tuple[Any, ...] = x.dims  # type: ignore[attr-defined]
        if "L" not in roles:
            raise NotStreamableError(f"{name}: a stream with dimensions {roles} has no axis of frames")
        return roles.index("L"), numbered(roles)
    at = x._axis(name, axis)
    rows = 0 if x.ndim > 1 and at > 0 else None
    return at, numbered(["L" if i == at else "B" if i == rows else i for i in range(x.ndim)])
