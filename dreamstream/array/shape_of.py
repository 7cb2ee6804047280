"""A stream of which a function of lengths may know the shape, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partialmethod
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..stream.rules import BatchSize, Length
from ..stream.where import user_line
from .axes import HasShape

__all__ = ["ShapeOf", "shape_alone"]


class ShapeOf(HasShape):
    """A stream of which a function of lengths may know the shape, and nothing else.

    Parameters
    ----------
    shape : sequence of int, Length or BatchSize
    device, dtype
        Its own.
    """

    def __init__(self, shape: Sequence[Any], device: Any, dtype: Any) -> None:
        self.shape, self.device, self.dtype = tuple(shape), device, dtype

    def at(self, count: Callable[[Length], int]) -> ShapeOf:
        """Return it where lengths are what `count` says."""
        sizes = (
            count(s) if isinstance(s, Length) else s.times if isinstance(s, BatchSize) else s for s in self.shape
        )
        return ShapeOf(sizes, self.device, self.dtype)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse(name)

    def _refuse(self, name: str, *_: Any) -> NoReturn:
        raise NotStreamableError(
            f"{name} of a stream in a function that makes a mask, at {user_line()}: of streams such a function "
            "may know the shape; a mask of values does not stream"
        )


for _name in (
    "getitem", "iter", "array", "add", "sub", "mul", "truediv", "matmul", "lt", "le", "gt", "ge", "eq", "ne",
    "neg", "abs", "invert", "and", "or",
):  # fmt: skip
    setattr(ShapeOf, f"__{_name}__", partialmethod(ShapeOf._refuse, _name))
ShapeOf.__hash__ = object.__hash__  # type: ignore[method-assign]


def shape_alone(x: Any) -> Any:
    """Return a stream's shape in its place; everything else as it is."""
    inner = getattr(x, "_inner", x)
    edge = getattr(inner, "edge", None)
    if edge is None or isinstance(inner, Length):
        return x
    return ShapeOf(inner.shape, getattr(x, "device", "cpu"), getattr(x, "dtype", None))
