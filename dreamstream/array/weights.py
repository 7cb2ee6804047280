"""The softmax of a stream over L: what it is until it is summed over L.

``(x * a.softmax(2)).sum(2)``, attention that pools, is a mean that streams: it needs the largest score so far and two
sums. So softmax is only noted, with what it is multiplied with. Whatever else is done to it needs its frames, all of
which wait for the stream's end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..stream.edge import Edge
from ..stream.rules import Shape
from ..stream.where import user_line
from . import hook
from .axes import axes_of, axis_of, sizes_of
from .stream_tensor import StreamTensor
from .whole import require_waiting

__all__ = ["Weights", "product", "weighted"]


class Weights(StreamTensor):
    """The softmax over L of a stream's frames, times others.

    Parameters
    ----------
    scores : StreamTensor
    factor : StreamTensor, optional
        What it is multiplied with, of all its features.
    scale : float
        The same of a number.
    """

    scores: StreamTensor
    factor: StreamTensor | None

    def __init__(self, scores: StreamTensor, factor: StreamTensor | None = None, scale: float = 1.0) -> None:
        self.scores, self.factor, self.scale = scores.in_order(), factor, scale
        if factor is not None:
            self.factor = factor = factor.in_order()
        like = self.scores if factor is None else factor
        self.dims, self._names, self._rate = like.dims, like.names, like.rate
        self._meta = self._starts = None
        self._made: StreamTensor | None = None
        edge = scores.edge
        self._where = "" if edge is None or edge.entry.buffers else user_line()

    # ------------------------------------------------------------------ what it looks like
    @property
    def dtype(self) -> np.dtype[Any]:
        return self.scores.dtype

    @property
    def features(self) -> tuple[int, ...]:
        return (self.scores if self.factor is None else self.factor).features

    @property
    def shape(self) -> tuple[Any, ...]:
        return Shape([self.scores._token(d) if isinstance(d, str) else self.features[d] for d in self.dims])

    # ------------------------------------------------------------------ its frames
    def frames(self) -> StreamTensor:
        """Return them as any other stream: they wait for the stream's end.

        Raises
        ------
        NotStreamableError
            Where nothing may wait.
        """
        if self._made is None:
            edge = self.scores.edge
            assert edge is not None
            require_waiting("softmax over L", edge, self._where)
            axis = self.scores.dims.index("L")
            powers = (self.scores - self.scores.amax(axis, keepdim=True)).exp()
            frames: Any = powers / powers.sum(axis, keepdim=True)
            frames = frames if self.factor is None else frames * self.factor
            self._made = (frames if self.scale == 1 else frames * self.scale).in_order()
        return self._made

    @property
    def edge(self) -> Edge | None:  # type: ignore[override]
        return self.frames().edge

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self.frames().value

    def in_order(self, stored: Sequence[int] | None = None) -> StreamTensor:
        return self if stored is None else self.frames().in_order(stored)

    def _clone(self) -> StreamTensor:
        return self

    _make = StreamTensor._make  # what is made of its frames is no weights

    # ------------------------------------------------------------------ as it is seen
    def _each(self, view: Any) -> Weights:
        """Return the same view of both parts, which must be of equal shapes."""
        if self.factor is None:
            return Weights(view(self.scores), None, self.scale)
        return Weights(view(self.scores.expand(*self.factor.shape)), view(self.factor), self.scale)

    def permute(self, *dims: Any) -> Weights:
        own = [self.scores, *([] if self.factor is None else [self.factor])]
        return Weights(*(x.permute(*dims) for x in own), scale=self.scale)  # type: ignore[attr-defined]

    def unsqueeze(self, dim: int) -> Weights:
        axis = axis_of("unsqueeze", dim, self.ndim + 1)
        own = [self.scores, *([] if self.factor is None else [self.factor])]
        return Weights(*(x.unsqueeze(axis) for x in own), scale=self.scale)

    def squeeze(self, dim: Any = None) -> Weights:
        return self._each(lambda x: x.squeeze(dim))

    def reshape(self, *shape: Any) -> Weights:
        return self._each(lambda x: x.reshape(*shape))

    view = reshape

    def expand(self, *size: Any) -> Weights:
        return self._each(lambda x: x.expand(*size))

    # ------------------------------------------------------------------ what becomes of it
    def scaled(self, number: float) -> Weights:
        """Return it times a number."""
        return Weights(self.scores, self.factor, self.scale * number)

    def times(self, other: StreamTensor) -> StreamTensor:
        """Return it times another stream."""
        if other.rate == 0 or isinstance(other, Weights) or other.ndim != self.ndim:
            out: StreamTensor = self.frames() * other  # type: ignore[operator]
            return out
        if self.factor is not None:
            return Weights(self.scores, self.factor * other, self.scale)
        sizes = [
            -1 if isinstance(a, str) or isinstance(b, str) else max(self.features[a], other.in_order().features[b])
            for a, b in zip(self.dims, other.in_order().dims)
        ]
        return Weights(self.scores, other.expand(*sizes), self.scale)

    def div(self, other: Any) -> Any:
        number = _number(other)
        return self.frames().div(other) if number is None else self.scaled(1 / number)  # type: ignore[attr-defined]

    __truediv__ = div

    def sum(self, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        given = None if dim is None else [self._axis("sum", d) for d in sizes_of((dim,))]
        axes = axes_of("sum", given, self.ndim)
        over = self.dims.index("L")
        if self.factor is None or over not in axes or "B" in [self.dims[a] for a in axes] or dtype is not None:
            return self.frames().sum(dim, keepdim=keepdim, dtype=dtype)
        (out,) = hook.apply("softmax_sum", {}, [self.scores, self.factor], (), self.dims)
        out = out if self.scale == 1 else out * self.scale
        out = out.unsqueeze(over)
        others = [a for a in axes if a != over]
        out = out.sum(others, keepdim=True) if others else out
        return out if keepdim else out.squeeze(list(axes))

    def matmul(self, other: Any) -> Any:
        if not getattr(other, "is_stream", False) or self.dims[-1] != "L":
            return self.frames().matmul(other)  # type: ignore[attr-defined]
        return product(self, other)

    __matmul__ = bmm = matmul


def product(x: Any, y: Any) -> Any:
    """Return the matrix product of streams that sums over L, which is there at the end.

    Parameters
    ----------
    x, y : StreamTensor
        ``(..., M, L)`` and ``(..., L, N)``.
    """
    return (x.transpose(-1, -2).unsqueeze(-1) * y.unsqueeze(-2)).sum(-3)


def weighted(inputs: Sequence[Any], constants: Sequence[Any]) -> Any:
    """Return the product of two operands, of which at least one is weights."""
    weights = next(x for x in inputs if type(x) is Weights)
    if not constants:
        return weights.times(inputs[1] if weights is inputs[0] else inputs[0])
    number = _number(constants[0])
    if number is not None:
        return weights.scaled(number)
    if weights.factor is None:
        return weights.frames() * constants[0]
    return Weights(weights.scores, weights.factor * constants[0], weights.scale)


def _number(x: Any) -> float | None:
    """Return a number, or a constant of one element as one; None of anything else."""
    if isinstance(x, (int, float)):
        return float(x)
    if getattr(x, "is_stream", None) is False and math.prod(x.shape) == 1:
        return float(np.asarray(x.numpy()).reshape(()))
    return None
