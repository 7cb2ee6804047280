"""What noted scores look like, and other orders and shapes of the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from ..errors import NotStreamableError
from ..stream.rules import Length
from ..stream.where import user_line
from .axes import Described, sizes_of
from .axes_of_scores import KEYS, QUERIES, Axes
from .filled import Shared

__all__ = ["ScoreViews"]

V = TypeVar("V", bound="ScoreViews")

#: What drops a column beside the keys.
_WITHOUT = {1: slice(None, -1), -1: slice(1, None)}
SERVES = (
    "scores of attention are scaled, masked, given terms by position, brought through softmax and multiplied with "
    "values"
)


class ScoreViews(Described, Shared):
    """The products of queries and keys, as a tensor that is seen.

    Attributes
    ----------
    q, k : StreamTensor
        ``(B, heads, L, features)``.
    axes : Axes
        What each dimension is.
    soft : bool
        Whether they are brought through softmax.
    wider : int
        Where a column stands beside the keys: 1 behind them, -1 before them, 0 where none does.
    """

    is_stream = True
    q: Any
    k: Any
    axes: Axes
    soft: bool
    wider: int

    # ------------------------------------------------------------------ what it looks like
    @property
    def shape(self) -> tuple[Any, ...]:
        keys = self.k.shape[2]
        return self.axes.sizes(self.q.shape[0], self.q.shape[2], keys + 1 if self.wider else keys)

    ndim = property(lambda self: len(self.axes.dims))
    value = None
    _one = ()

    @property
    def dtype(self) -> Any:
        """Element type, of the queries."""
        return self.q.dtype

    dims = parts = property(lambda self: self.axes.dims)
    features = ()

    # ------------------------------------------------------------------ its dimensions
    def _copy(self: V, **changes: Any) -> V:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__, **changes, _source=None, _taken=())
        if "axes" in changes:
            out._shares(self)
        return out

    def _seen(self: V, dims: Sequence[Any]) -> V:
        return self._copy(axes=self.axes.like(dims))

    def t(self) -> Any:
        return self.transpose(0, 1)

    def reshape(self: V, *shape: Any) -> V:
        sizes = sizes_of(shape)
        axes = self.axes.reshaped(sizes)
        return self._copy(axes=axes) if axes is not None else self._misuse(f"reshaped to {tuple(sizes)}")

    view = reshape

    def unflatten(self: V, dim: int, sizes: Sequence[Any]) -> V:
        at = dim % self.ndim
        return self.reshape(*self.shape[:at], *sizes, *self.shape[at + 1 :])

    def flatten(self: V, start_dim: int = 0, end_dim: int = -1) -> V:
        first, last = start_dim % self.ndim, end_dim % self.ndim
        dims = self.axes.dims
        joined = tuple(a for d in dims[first : last + 1] for a in d)
        if {QUERIES, KEYS} & {*joined} and len(joined) > 1:
            self._misuse("flattened")
        return self._seen([*dims[:first], joined, *dims[last + 1 :]])

    def __getitem__(self: V, index: Any) -> V:
        parts = list(index) if isinstance(index, tuple) else [index]
        n = sum(p is not None and p is not Ellipsis for p in parts)
        at = parts.index(Ellipsis) if Ellipsis in parts else len(parts)
        parts[at : at + 1] = [slice(None)] * (self.ndim - n)
        own = iter(zip(self.axes.dims, self.shape))
        dims: list[Any] = []
        for part in parts:
            dim, size = ((), 1) if part is None else next(own)
            if self.wider and self.soft and dim == (KEYS,) and part == _WITHOUT[self.wider]:
                rest = (*parts[: len(dims)], slice(None), *parts[len(dims) + 1 :])
                return self._copy(wider=0)[rest]
            whole = part is None or (
                isinstance(part, slice) and part.start in (None, 0) and part.step in (None, 1)
            )
            if whole and part is not None and part.stop is not None:
                whole = isinstance(part.stop, Length) and isinstance(size, Length) and part.stop == size
            if not whole:
                self._misuse("cut")
            dims.append(dim)
        return self._seen(dims)

    def _misuse(self, use: str) -> NoReturn:
        layers = "; nn.MultiheadAttention gives none with need_weights=False" if self.soft else ""
        raise NotStreamableError(f"scores of attention are {use}, at {user_line()}; {SERVES}{layers}")
