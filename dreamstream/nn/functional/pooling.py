"""Pooling: windows, or parts, reduced to their largest or mean element."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from ...array import Tensor
from ...array.elementwise import with_frames
from ...array.over_time import chosen
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from ...operations.refusals import ADAPTIVE
from ...stream.rules import Length
from .arguments import Ints, checked, frame_dims, require_positive, several, single
from .texts import described, torch_lacks

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "lp_pool1d", "max_pool1d", "max_pool2d", "running_mean",
]  # fmt: skip

Attributes = dict[str, Any]


# ---------------------------------------------------------------------- windows
_windows1d = described(
    "``(B, C, L_out)`` or ``(C, L_out)``; NaN where a window has one.",
    input="``(B, C, L)`` or ``(C, L)``; of a stream, the last dimension may also be one of features.",
    norm_type="The power p; infinity is the largest absolute value.",
    kernel_size="int: Elements of a window.",
    stride="int, optional: From window to window; `kernel_size` by default.",
    padding="int: Elements at both ends that count as no elements, or as zeros of means; at most half a window.",
    dilation="int: From one element of a window to the next.",
    ceil_mode="Whether a last window may hang over the end; what hangs over is not counted, but by powers.",
    return_indices="Must be False.",
    count_include_pad="Whether padding counts as elements of a window.",
)
_windows2d = described(
    "``(B, C, H_out, W_out)`` or ``(C, H_out, W_out)``; NaN where a window has one.",
    input="``(B, C, H, W)`` or ``(C, H, W)``; either of the last two may be the stream axis, or none.",
    kernel_size="int or (int, int): Elements of a window, for H and W.",
    stride="int or (int, int), optional: From window to window; `kernel_size` by default.",
    padding="int or (int, int): As along one dimension, for H and W.",
    dilation="int or (int, int): From one element of a window to the next.",
    ceil_mode="Whether a last window may hang over the end; what hangs over is not counted.",
    return_indices="Must be False.",
    count_include_pad="Whether padding counts as elements of a window.",
    divisor_override="What sums are divided by, whatever a window holds.",
)


@_windows1d
def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Return the largest element of each window over the last dimension."""
    given = (kernel_size, stride, padding, dilation, return_indices)
    return _windowed(1, "max_pool", input, given, {"ceil": int(ceil_mode)})


@_windows2d
def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Return the largest element of each window over the last two dimensions."""
    given = (kernel_size, stride, padding, dilation, return_indices)
    return _windowed(2, "max_pool", input, given, {"ceil": int(ceil_mode)})


@_windows1d
def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Return the mean of each window over the last dimension."""
    options = {"ceil": int(ceil_mode), "count_include_pad": int(count_include_pad)}
    return _windowed(1, "avg_pool", input, (kernel_size, stride, padding), options)


@_windows2d
def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window over the last two dimensions."""
    if divisor_override is not None and (not isinstance(divisor_override, int) or divisor_override == 0):
        raise ShapeError(
            f"avg_pool2d: divisor_override must be an integer that is not 0, got {divisor_override!r}"
        )
    options = {"ceil": int(ceil_mode), "count_include_pad": int(count_include_pad)}
    given = (kernel_size, stride, padding)
    return _windowed(2, "avg_pool", input, given, {**options, "divisor": divisor_override or 0})


@_windows1d
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return (sum x ** p) ** (1 / p) of each window over the last dimension; NaN where the sum is negative."""
    x = checked("lp_pool1d", input)
    if math.isinf(norm_type):
        sign = math.copysign(1.0, norm_type)
        return max_pool1d(x.abs() * sign, kernel_size, stride, 0, 1, ceil_mode) * sign
    size = single(kernel_size, "kernel_size")
    mean = avg_pool1d(x.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    mean = mean.sign() * mean.abs().relu()  # itself, with the gradient 0 at 0
    return (mean * size).pow(1.0 / norm_type)


@torch_lacks
@described(
    "As `input`; summed in float64, each frame rounded once, so that nothing drifts.",
    size="Frames.",
    dim="The axis of frames of plain tensors; streams know theirs.",
)
def running_mean(input: Tensor, size: int, dim: int = -1) -> Tensor:
    """Return the mean of the last `size` frames, or of all so far where there are fewer."""
    require_positive("running_mean", size=size)
    _, dims = frame_dims("running_mean", checked("running_mean", input), dim)
    window = {"kernel": size, "left": size - 1, "count_include_pad": 0}
    return apply("avg_pool", window, (input,), (), dims)[0]


def _windowed(n: int, op: str, input: Any, given: Sequence[Any], shared: Attributes) -> Tensor:
    """Pool over the last n dimensions; `given` is the kernel, the stride, the padding, and what else there is."""
    name = f"{op}{n}d"
    parts = _covered(n, input, given[0], given[2])
    if parts is not None:
        return _adaptive(name, op.removesuffix("_pool"), input, parts, n)
    return _pool(name, op, input, _windows(name, n, *given), shared)


def _covered(n: int, x: Any, kernel: Any, padding: Any) -> list[int | None] | None:
    """Return, where a window is as long as a stream, 1 for dimensions with one window and None for others."""
    given = list(kernel) if isinstance(kernel, (tuple, list)) else [kernel] * n
    measured = any(isinstance(k, Length) for k in given)
    if padding != 0 or not measured or not getattr(x, "is_stream", False):
        return None
    sizes = x.shape[-n:]
    whole = [isinstance(k, Length) == isinstance(s, Length) and (k == s) is True for k, s in zip(given, sizes)]
    return [1 if w else None for w in whole] if all(w or k == 1 for w, k in zip(whole, given)) else None


def _windows(
    name: str, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1, indices: bool = False
) -> list[tuple[int, int, int, int]]:
    """Return kernel, stride, padding and dilation for each of n dimensions, checked."""
    if indices:
        raise NotStreamableError(
            f"{name}: return_indices=True is not supported: positions in a stream have no end; leave it out"
        )
    sizes = several(kernel, n, "kernel_size")
    steps = sizes if stride is None or stride in ((), []) else several(stride, n, "stride")
    out = list(zip(sizes, steps, several(padding, n, "padding"), several(dilation, n, "dilation")))
    for size, step, pad, spread in out:
        require_positive(name, kernel_size=size, stride=step, dilation=spread)
        if not 0 <= pad <= size // 2:
            raise ShapeError(f"{name}: padding must be 0 to half of kernel_size {size}, got {pad}")
    return out


def _along_stream(op: str, window: tuple[int, int, int, int]) -> Attributes:
    kernel, stride, padding, dilation = window
    out = {"kernel": kernel, "stride": stride, "left": padding, "right": padding}
    return out | {"dilation": dilation} if op == "max_pool" else out


def _along_features(op: str, window: tuple[int, int, int, int]) -> Attributes:
    kernel, stride, padding, dilation = window
    out = {"inner_kernel": kernel, "inner_stride": stride, "inner_padding": padding}
    return out | {"inner_dilation": dilation} if op == "max_pool" else out


def _pool(name: str, op: str, input: Any, windows: Sequence[Any], shared: Attributes) -> Tensor:
    """Run a pooling operator over the last dimensions, one window for each."""
    x = checked(name, input)
    roles = _roles(name, x, len(windows), lambda axis: _holds(x.shape[axis], windows[axis], shared))
    at = roles.index("L") - x.ndim if "L" in roles[-len(windows) :] else None
    inner = [i for i in range(-len(windows), 0) if i != at]
    if at is not None:
        attributes = {**shared, **_along_stream(op, windows[at])}
        for axis in inner:
            attributes |= _along_features(op, windows[axis])
        if op == "max_pool" and inner and at == -1 and getattr(x, "has_gradients", False) and not x.lanes:  # type: ignore[attr-defined]
            op = "max_pool_across"  # of equal elements torch takes the first in the order of the dimensions
        return apply(op, attributes, (x,), (), _inner_first(roles, inner[0] if inner else None))[0]
    for count, axis in enumerate(_in_turn(op, inner), 1):
        attributes = {**shared, **_along_features(op, windows[axis])}
        if shared.get("divisor") and count < len(inner):
            attributes["divisor"] = 1
        x = apply(op, attributes, (x,), (), _inner_first(roles, axis))[0]
    return x


def _in_turn(kind: str, axes: Sequence[int]) -> Sequence[int]:
    """Return axes as they are pooled in turn: of equal elements torch takes the first in the dimensions' order."""
    return axes[::-1] if kind.startswith("max") else axes


def _holds(size: int, window: Any, shared: Attributes) -> bool:
    """Whether an axis of this size has a window at all."""
    kernel, stride, padding, dilation = window
    more = stride - 1 if shared["ceil"] else 0
    return size > 0 and size + 2 * padding + more >= dilation * (kernel - 1) + 1


# ---------------------------------------------------------------------- what the dimensions are
def _roles(name: str, x: Tensor, n: int, holds: Any) -> tuple[Any, ...]:
    """Return "B", "L" or a feature for every dimension; of the last n none is B.

    In a plain tensor the stream axis is the first of the last n, unless only the last one is too short:
    a stream that is too short has no frames, which is no error.
    """
    if x.ndim not in (n + 1, n + 2):
        names = "C, L" if n == 1 else "C, H, W"
        raise ShapeError(f"{name}: expected (B, {names}) or ({names}), got {x.ndim} dimensions")
    if not x.is_stream:
        at = -1 if n == 2 and not holds(-1) else -n
        lead: tuple[Any, ...] = ("B", 0) if x.ndim == n + 2 else (0,)
        if x.shape[x.ndim - n - 1] == 0:  # without channels they are the rows
            lead = (0, "B")[2 - len(lead) :]
        return lead + tuple("L" if i == at else 0 for i in range(-n, 0))
    roles: tuple[Any, ...] = x.dims  # type: ignore[attr-defined]
    mixed = [d for d in roles[-n:] if isinstance(d, str) and d != "L"]
    if mixed:
        raise NotStreamableError.here(
            name,
            f" pools the last {'dimension' if n == 1 else f'{n} dimensions'} of {roles} and would mix "
            f"{mixed[0]}; transpose what is to be pooled to the end",
        )
    return roles


def _inner_first(roles: tuple[Any, ...], axis: int | None) -> tuple[Any, ...]:
    """Return the dims that store the feature at `axis` first, all others in their order."""
    others = iter(range(0 if axis is None else 1, len(roles)))
    at = None if axis is None else axis + len(roles)
    return tuple(r if isinstance(r, str) else 0 if i == at else next(others) for i, r in enumerate(roles))


# ---------------------------------------------------------------------- parts
_parts1d = described(
    "``(B, C, output_size)`` or ``(C, output_size)``.",
    input="``(B, C, L)`` or ``(C, L)``.",
    output_size="int: The number of parts.",
    return_indices="Must be False.",
)
_parts2d = described(
    "``(B, C, *output_size)`` or ``(C, *output_size)``.",
    input="``(B, C, H, W)`` or ``(C, H, W)``.",
    output_size="int or (int, int): The number of parts of H and W; None keeps a dimension as it is.",
    return_indices="Must be False.",
)


@_parts1d
def adaptive_avg_pool1d(input: Tensor, output_size: Ints) -> Tensor:
    """Return the means of a number of parts of the last dimension."""
    return _adaptive("adaptive_avg_pool1d", "avg", input, output_size, 1)


@_parts2d
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Return the means of a number of parts of each of the last two dimensions."""
    return _adaptive("adaptive_avg_pool2d", "avg", input, output_size, 2)


@_parts1d
def adaptive_max_pool1d(input: Tensor, output_size: Ints, return_indices: bool = False) -> Tensor:
    """Return the largest elements of a number of parts of the last dimension."""
    return _adaptive("adaptive_max_pool1d", "max", input, output_size, 1, return_indices)


@_parts2d
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Return the largest elements of a number of parts of each of the last two dimensions."""
    return _adaptive("adaptive_max_pool2d", "max", input, output_size, 2, return_indices)


def _adaptive(name: str, kind: str, input: Any, size: Any, n: int, indices: bool = False) -> Tensor:
    if indices:
        raise NotStreamableError(f"{name}: return_indices=True is not supported; leave it out")
    given = list(size) if isinstance(size, (tuple, list)) else [size] * n
    if len(given) != n:
        raise ShapeError(f"{name}: output_size must be {n} numbers, got {size}")
    parts = [0 if v is None else operator.index(v) for v in given]
    if any(v is not None and p < 1 for v, p in zip(given, parts)) or (n == 1 and size is None):
        raise ShapeError(f"{name}: output_size must be at least 1, got {size}")
    x: Any = checked(name, input)
    roles = _roles(name, x, n, lambda axis: x.shape[axis] > 0)
    at = roles.index("L") - x.ndim if "L" in roles[-n:] else None
    if at is not None and parts[at] > 1:
        _require_buffer(name, x)
    if kind == "avg" and n == 2 and at is not None and parts != [1, 1]:  # a mean of all is taken of nothing, too
        x = with_frames(x)
    inner = [i for i in range(-n, 0) if i != at and parts[i]]
    once = x.is_stream and at is not None and parts[at] == 1
    if once and kind == "max" and at == -1:
        x, once = chosen(x, "max", roles.index("L"), True), False
        roles = x.dims
    frames = parts[at] if at is not None and "L" in roles and not once else 0
    apart = frames and kind == "max" and at != -1  # for the operator reduces frames before features
    for axis in _in_turn(kind, inner):
        bins = {"kind": kind, "frames": 0 if apart else frames, "inner": parts[axis]}
        x = apply("adaptive_pool", bins, (x,), (), _inner_first(roles, axis))[0]
    if frames and (apart or not inner):
        x = apply("adaptive_pool", {"kind": kind, "frames": frames}, (x,), (), _inner_first(roles, None))[0]
    if once:
        return x.mean(at, keepdim=True) if kind == "avg" else chosen(x, "max", roles.index("L"), True)
    return x


def _require_buffer(name: str, x: Tensor) -> None:
    """Refuse parts of a stream that goes on."""
    edge = x.edge if x.is_stream else None  # type: ignore[attr-defined]
    if edge is not None and not edge.may_wait:
        raise NotStreamableError.here(
            name,
            f" can't stream: {ADAPTIVE.text}, or patch or compile with "
            'unstreamable="buffer" to wait for the end of each stream',
        )
