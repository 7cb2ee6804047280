"""Constants that meet the first or the last frames of streams: what a fade is multiplied by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .elementwise import ones_of
from .stream_tensor import StreamTensor
from .tensor import Tensor


def meets(constant: Any, x: StreamTensor, axis: int, count: int) -> bool:
    """Whether `constant` is a plain tensor of size `count`, above 1, in the dimension where the stream has L."""
    if not isinstance(constant, (Tensor, x.edge.entry.library.tensor)):  # type: ignore[union-attr]
        return False
    sizes, at = constant.shape, axis - x.ndim
    own = count > 1 and not getattr(constant, "is_stream", False)
    return own and len(sizes) >= -at and type(sizes[at]) is int and sizes[at] == count


def placed(
    args: Sequence[Any],
    x: StreamTensor,
    axis: int,
    count: int,
    of: Callable[[StreamTensor], Any],
    last: bool = False,
) -> list[Any]:
    """Return `args` with ``of(at_an_end(constant))`` in place of each constant that `meets` the frames."""
    return [of(at_an_end(a, x, axis, last)) if meets(a, x, axis, count) else a for a in args]


def at_an_end(constant: Any, x: StreamTensor, axis: int, last: bool) -> StreamTensor:
    """Return a stream of the constant's values at the first (or `last`) frames of `x`, ones at others."""
    library = x.edge.entry.library  # type: ignore[union-attr]
    own = constant if isinstance(constant, Tensor) else library.constant(constant)
    count = own.shape[axis - x.ndim]
    x.require_frames(count)
    one = ones_of(x, own.dtype)
    sizes = [count if i == axis else 1 if d == "B" else one.features[d] for i, d in enumerate(one.dims)]
    for dim in range(-own.ndim, 0):  # where the constant has size 1 so have the ones: it is broadcast later
        if dim != axis - x.ndim and own.shape[dim] == 1 and type(one.dims[dim]) is int:
            one, sizes[dim] = one.narrow(dim, 0, 1), 1
    own = own.expand(*sizes)
    made = one._cat([one, own] if last else [own, one], axis)
    kept = slice(count, None) if last else slice(None, -count)
    placed: StreamTensor = made[(slice(None),) * axis + (kept,)]
    return placed
