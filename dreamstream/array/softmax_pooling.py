"""The softmax of a stream over L: what it is until it is summed over L.

``(x * a.softmax(2)).sum(2)``, attention that pools, is a mean that streams: it needs the largest score so far and
two sums. So softmax is deferred, with its factor. Whatever else is done to it needs its frames,
which wait for the stream's end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from ..source_line import user_line
from ..stream.edge import Edge
from ..stream.rules import Shape
from . import hook
from .deferred_stream import DeferredStream
from .dimension_arguments import axes_of, sizes_of
from .over_time import require_waiting
from .stream_tensor import StreamTensor


class Weights(DeferredStream):
    """The softmax over L of a stream's frames, times others.

    `factor` is what all its features are multiplied with. Without one `steps` has the constants by which they are
    multiplied and divided, with "mul" or "div".
    """

    scores: Any
    factor: Any

    def __init__(self, scores: Any, factor: Any = None, steps: Sequence[tuple[str, Any]] = ()) -> None:
        self.scores, self.factor, self.steps = scores.in_order(), None, tuple(steps)
        if factor is not None:
            self.factor, self.steps = _done(factor, steps).in_order(), ()
        like = self.scores if factor is None else self.factor
        self._stand(like, like.dims, like.names)
        self._made: StreamTensor | None = None
        self._where = "" if scores.edge.entry.buffers else user_line()

    # ------------------------------------------------------------------ what it looks like
    features = property(lambda self: self.base.features)

    @property
    def shape(self) -> tuple[Any, ...]:
        return Shape([self.scores._token(d) if isinstance(d, str) else self.features[d] for d in self.dims])

    as_output = StreamTensor.as_output

    def __repr__(self) -> str:
        return f"StreamTensor({', '.join(map(str, self.shape))}, a softmax over L)"

    # ------------------------------------------------------------------ its frames
    def frames(self) -> Any:
        """Return them as any other stream: they wait for the stream's end, where that is allowed."""
        if self._made is None:
            require_waiting("softmax over L", self.scores.edge, self._where)
            axis = self.dims.index("L")
            # Not the greatest, which no stream without frames has.
            powers = (self.scores - self.scores.logsumexp(axis, keepdim=True)).exp()
            frames = _done(powers / powers.sum(axis, keepdim=True), self.steps)
            self._made = (frames if self.factor is None else frames * self.factor).in_order()
        return self._made

    @property
    def edge(self) -> Edge | None:  # type: ignore[override]
        return cast("Edge | None", self.frames().edge)

    @property
    def value(self) -> Any:  # type: ignore[override]
        return self.frames().value

    def in_order(self, stored: Sequence[int] | None = None) -> StreamTensor:
        return self if stored is None else cast("StreamTensor", self.frames().in_order(stored))

    # ------------------------------------------------------------------ as it is seen
    def _seen(self, view: Callable[[Any], Any], anew: bool = False) -> Any:
        """Return the same view of both parts, of equal shapes if it changes the shape of features."""
        if any(c.ndim for _, c in self.steps):
            return view(self.frames())
        if self.factor is None:
            return Weights(view(self.scores), None, self.steps)
        return Weights(view(self.scores.expand(*self.factor.shape) if anew else self.scores), view(self.factor))

    # ------------------------------------------------------------------ what becomes of it
    def step(self, name: str, constant: Any) -> Weights:
        """Return it multiplied with or divided by a constant."""
        return Weights(self.scores, self.factor, (*self.steps, (name, constant)))

    def by_element(
        self, run: Any, name: str, attributes: Any, inputs: Sequence[Any], weights: Sequence[Any], dims: Any
    ) -> tuple[Any, ...] | None:
        if weights:
            takes = name == "mul" or (name == "div" and attributes["order"] == [0, 1])
            return (self.step(name, weights[0]),) if takes else None
        other = next((x for x in inputs if not isinstance(x, DeferredStream)), None)
        if name != "mul" or other is None or other.rate == 0 or other.ndim != self.ndim:
            return None
        return (self.times(other.in_order()),)

    def times(self, other: Any) -> Weights:
        """Return it times the frames of another stream, of as many dimensions."""
        if self.factor is not None:
            return Weights(self.scores, self.factor * other)
        sizes = [
            -1 if isinstance(a, str) or isinstance(b, str) else max(self.features[a], other.features[b])
            for a, b in zip(self.dims, other.dims)
        ]
        return Weights(self.scores, other.expand(*sizes), self.steps)

    def sum(self, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        given = None if dim is None else [self._axis("sum", d) for d in sizes_of((dim,))]
        axes = axes_of("sum", given, self.ndim)
        over = self.dims.index("L")
        if self.factor is None or over not in axes or dtype is not None:
            return self.frames().sum(dim, keepdim=keepdim, dtype=dtype)
        out = hook.one("softmax_sum", {}, [self.scores, self.factor], (), self.dims)
        others = [a for a in axes if a != over]
        out = out.unsqueeze(over)
        out = out.sum(others, keepdim=True) if others else out
        return out if keepdim else out.squeeze(list(axes))

    def matmul(self, other: Any) -> Any:
        summed = getattr(other, "is_stream", False) and self.dims[-1] == "L"
        return product(self, other) if summed else self.frames().matmul(other)

    __matmul__ = bmm = matmul  # type: ignore[assignment]


def _viewed(name: str) -> Callable[..., Any]:
    anew = name not in ("permute", "unsqueeze")

    def view(self: Weights, *args: Any, **kwargs: Any) -> Any:
        return self._seen(lambda x: getattr(x, name)(*args, **kwargs), anew)

    return view


for _name in ("permute", "unsqueeze", "squeeze", "reshape", "view", "expand", "repeat"):
    setattr(Weights, _name, _viewed(_name))


def product(x: Any, y: Any) -> Any:
    """Return the product of streams ``(..., M, L)`` and ``(..., L, N)``, a sum over L that is there at the end."""
    return (x.transpose(-1, -2).unsqueeze(-1) * y.unsqueeze(-2)).sum(-3)


def _done(x: Any, steps: Sequence[tuple[str, Any]]) -> Any:
    """Return a stream multiplied with and divided by constants."""
    for name, constant in steps:
        x = getattr(x, name)(constant)
    return x
