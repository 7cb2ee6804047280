"""Streams of which no more than the shape is known.

A function of lengths may know no more of a stream. Frames of no features, as ``x[..., n:]`` of n features gives,
have no more: joined with others they vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ..errors import NotStreamableError, ShapeError
from ..stream.foreign import inner_of
from ..stream.rules import BatchSize, Length
from .dimension_arguments import Described, Unnamed
from .protocol import refuse_the_rest


class ShapeOf(Unnamed):
    """A stream as a function that makes a mask sees it: it has a shape and no values."""

    def __init__(self, shape: Sequence[Any], device: Any, dtype: Any) -> None:
        self.shape, self.device, self.dtype = tuple(shape), device, dtype

    def at(self, count: Callable[[Length], int]) -> ShapeOf:
        """Return it with lengths that `count` turns into numbers."""
        sizes = (
            count(s) if isinstance(s, Length) else s.times if isinstance(s, BatchSize) else s for s in self.shape
        )
        return ShapeOf(sizes, self.device, self.dtype)  # type: ignore[arg-type]

    def lengths(self) -> Iterator[Length]:
        """Give the lengths among its sizes."""
        return (s for s in self.shape if isinstance(s, Length))

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._refuse(name)

    def _refuse(self, name: str, *_: Any) -> NoReturn:
        raise NotStreamableError.here(
            f"{name} of a stream in a function that makes a mask,",
            ": of streams such a function may know the shape; a mask of values does not stream",
        )


refuse_the_rest(ShapeOf, ShapeOf._refuse)


def shape_alone(x: Any) -> Any:
    """Replace a stream by its shape, and what shows a deferred value by that; return everything else unchanged."""
    inner = inner_of(x)
    if hasattr(type(inner), "probe"):
        return inner
    edge = getattr(inner, "edge", None)
    if edge is None or isinstance(inner, Length):
        return x
    return ShapeOf(inner.shape, getattr(x, "device", "cpu"), getattr(x, "dtype", None))


class Empty(Described):
    """A stream of which a feature axis has no element; its sizes of B and L are tokens."""

    is_stream = True
    dims = features = ("empty",)
    value = None

    def __init__(self, shape: Sequence[Any], dtype: Any, origin: str) -> None:
        self.shape, self.dtype, self.origin = tuple(shape), dtype, origin

    parts = property(lambda self: self.shape)

    def _seen(self, shape: Sequence[Any]) -> Empty:
        return Empty(shape, self.dtype, self.origin)

    def _same(self, *_: Any, **__: Any) -> Empty:
        return self

    contiguous = clone = to = float = double = _same

    def beside(self, tensors: Sequence[Any], dim: int) -> Any:
        """Join the others, without what is empty."""
        if any(isinstance(x, Empty) and x.shape[dim] != 0 for x in tensors):
            self._misuse("joined along another dimension")
        rest = [x for x in tensors if not isinstance(x, Empty)]
        return rest[0]._cat(rest, dim) if len(rest) > 1 else [*rest, self][0]

    def as_output(self) -> NoReturn:
        """Refuse to be what a forward returns."""
        self._misuse("returned")

    def _misuse(self, use: str) -> NoReturn:
        raise ShapeError.here(
            f"{self.origin} keeps none, and is {use},",
            ": a frame has one of each dimension at least; what is empty can be joined with others by cat, and "
            "is left out there",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "device":
            raise AttributeError(name)
        return self._misuse(f"asked for {name}")


refuse_the_rest(Empty, lambda empty, name: empty._misuse(f"given to {name}"))
