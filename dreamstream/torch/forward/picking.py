"""torch's functions that pick by places that a stream has: along features; what picks frames is refused."""

from __future__ import annotations

from typing import Any

from ...array import where as native_where
from ...array.forward import gather
from ...array.stream_tensor import StreamTensor as Native
from ...errors import NotStreamableError
from ...operations.refusals import PLACES
from ...stream.where import user_line
from .mode import Forward
from .names import function

__all__: list[str] = []


def _refuse(name: str) -> NotStreamableError:
    reason, remedy = PLACES.words
    return NotStreamableError(f"{name} at {user_line()}: {reason}; {remedy}")


def _of_frames(name: str) -> None:
    @function(name)
    def refuse(forward: Forward, *_: Any, **__: Any) -> Any:
        raise _refuse(name)


for _name in ("nonzero", "argwhere", "masked_select", "bincount"):
    _of_frames(_name)


@function("where_function")
def where(forward: Forward, *args: Any, **kwargs: Any) -> Any:
    if len(args) + len(kwargs) == 1:
        raise _refuse("where of a condition alone")
    return native_where(*args, **kwargs)


@function("take_along_dim")
def taken(forward: Forward, x: Any, indices: Any, dim: Any = None) -> Any:
    streams = isinstance(x, Native) and isinstance(indices, Native) and indices.ndim == x.ndim
    if not streams or dim is None or isinstance(x.dims[x._axis("take_along_dim", dim)], str):
        raise NotStreamableError(
            f"take_along_dim at {user_line()}: expected streams, and a dimension of features along which it takes"
        )
    axis = x._axis("take_along_dim", dim)

    def widened(own: Any, other: Any) -> Any:
        sizes = [
            -1 if i == axis or isinstance(d, str) else max(int(own.shape[i]), int(other.shape[i]))
            for i, d in enumerate(own.dims)
        ]
        return own.expand(*sizes)

    return gather(widened(x, indices), axis, widened(indices, x))
