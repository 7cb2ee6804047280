"""Frames of no features, as ``x[..., n:]`` of n features gives: joined with others they vanish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import ShapeError
from ..stream.where import user_line
from .axes import Described

__all__ = ["Empty"]


class Empty(Described):
    """A stream of which a feature axis has no element.

    Parameters
    ----------
    shape : sequence
        Its sizes; tokens for B and L.
    dtype : dtype
    said : str
        What made it, for messages.
    """

    is_stream = True
    dims = features = ("empty",)
    value = None

    def __init__(self, shape: Sequence[Any], dtype: Any, said: str) -> None:
        self.shape, self.dtype, self.said = tuple(shape), dtype, said

    parts = property(lambda self: self.shape)

    def _seen(self, shape: Sequence[Any]) -> Empty:
        return Empty(shape, self.dtype, self.said)

    def _same(self, *_: Any, **__: Any) -> Empty:
        return self

    contiguous = clone = to = float = double = _same

    def beside(self, tensors: Sequence[Any], dim: int) -> Any:
        """Return what is joined without it."""
        if any(isinstance(x, Empty) and x.shape[dim] != 0 for x in tensors):
            self._misuse("joined along another dimension")
        rest = [x for x in tensors if not isinstance(x, Empty)]
        return rest[0]._cat(rest, dim) if len(rest) > 1 else [*rest, self][0]

    def as_output(self) -> NoReturn:
        """Refuse to be what a forward returns."""
        self._misuse("returned")

    def _misuse(self, use: str) -> NoReturn:
        raise ShapeError(
            f"{self.said} keeps none, and is {use}, at {user_line()}: a frame has one of each dimension at least; "
            "what is empty can be joined with others by cat, and is left out there"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "device":
            raise AttributeError(name)
        return self._misuse(f"asked for {name}")
