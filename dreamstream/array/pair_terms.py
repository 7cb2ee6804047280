"""Weights of pairs of frames that follow from streams, as ``(c[..., :, None] - c[..., None, :]).exp()``.

Gates that forget are written so: c is the running sum of their logarithms, and a frame counts for a later one by
what the gates between them leave of it. Products of weights by position and frames, ``D @ x``, are such sums, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..stream.rules import Length
from . import pair_sums
from .deferred import is_computed
from .dimension_arguments import sizes_of
from .elementwise import ones_of
from .score_layout import KEYS, QUERIES, Axes, Dim, Heads, atoms_of, streams_of
from .score_steps import Step
from .scores import Scores


class Terms(Scores):
    """A number of the query and one of the key, added: the logarithm of a pair's weight.

    Both are ``(B, 1 or heads, L, 1)``.
    """

    #: Whether keys add nothing.
    is_of_queries = False

    def __init__(self, of_queries: Any, of_keys: Any, axes: Axes) -> None:
        super().__init__(ones_of(of_queries, of_queries.dtype), ones_of(of_keys, of_keys.dtype), axes)
        self.gates = of_queries, of_keys

    def add(self, other: Any, alpha: float = 1) -> Any:
        if isinstance(other, Terms):
            return self._plus(other, alpha)
        if not getattr(other, "is_stream", False) or is_computed(other) or isinstance(other, Scores):
            return super().add(other, alpha) if is_computed(other) else self._misuse("given a number")
        assert self.gates is not None
        side, x = pair_sums.met_by(self, other)
        gates = list(self.gates)
        gates[side] = gates[side] + x * alpha
        return self._copy(gates=tuple(gates), is_of_queries=False)

    __add__ = __radd__ = add

    def _plus(self, other: Terms, alpha: float) -> Any:
        assert self.gates is not None and other.gates is not None
        at = other.axes.dims.index((QUERIES,)) if self.ndim == other.ndim else -1
        gates = other.gates if self.axes.dims[at] == (QUERIES,) else other.gates[::-1]
        if self.steps or other.steps or self.axes.dims[at] not in ((QUERIES,), (KEYS,)):
            self._misuse("added to others that are masked")
        return self._copy(gates=tuple(a + b * alpha for a, b in zip(self.gates, gates)), is_of_queries=False)

    def cumsum(self, dim: int, dtype: Any = None) -> Any:
        """Return the running sum over queries of a number that each adds for all keys before it."""
        assert self.gates is not None
        own = self._copy(steps=[s for s in self.steps if s.name in ("fill", "keep") and s.value == 0])
        found = pair_sums.read(own)[0]
        alike = len(own.steps) == len(self.steps) and not found.lost.any() and found.factor == 1
        if self.axes.dims[dim] != (QUERIES,) or not (alike and found.ahead == -1 and self.is_of_queries):
            self._misuse("summed over frames, but for a query's number under tril(-1)")
        total = self.gates[0].cumsum(2)
        return self._copy(gates=(total, -total), steps=[], is_of_queries=False)

    def __getitem__(self, index: Any) -> Any:
        """Return a part; the first queries and keys may be left out."""
        parts = index if isinstance(index, tuple) else (index,)
        at = [self.axes.dims.index((side,)) for side in (QUERIES, KEYS)]
        starts = [parts[i].start if len(parts) == self.ndim and isinstance(parts[i], slice) else None for i in at]
        if starts[0] != starts[1] or type(starts[0]) is not int or self.steps:
            return super().__getitem__(index)
        assert self.gates is not None
        of_queries, of_keys = (x[:, :, starts[0] :] for x in self.gates)
        out = Terms(of_queries, of_keys, self.axes)
        return out[tuple(slice(None) if i in at else part for i, part in enumerate(parts))]

    def expand(self, *given: Any, size: Any = ()) -> Any:
        sizes = sizes_of(given, size)
        same = len(sizes) == self.ndim and all(
            (type(n) is int and n == -1) or n == m for n, m in zip(sizes, self.shape)
        )
        return self if same else self._misuse(f"expanded to {tuple(sizes)}")

    def repeat(self, *given: Any, repeats: Any = ()) -> Any:
        times = sizes_of(given, repeats)
        return self if all(n == 1 for n in times) else self._misuse(f"repeated {tuple(times)} times")

    def mul(self, other: Any) -> Any:
        factor = super().mul(other)
        assert self.gates is not None
        by = factor.scale / self.scale
        steps = [s._replace(value=s.value * by) if s.name == "add" else s for s in self.steps]
        return self._copy(steps=steps, gates=tuple(x * by for x in self.gates))

    __mul__ = __rmul__ = mul

    def softmax(self, dim: int | None = -1, *_: Any, **__: Any) -> Scores:
        """Return the softmax over keys, in which what queries add is nothing."""
        assert self.gates is not None
        out = Scores(self.q, self.gates[1], self.axes)
        out.steps = self.steps
        return out.softmax(dim)

    def exp(self) -> Scores:
        """Return the weights."""
        steps = []
        for step in self.steps:
            if step.name in ("fill", "keep"):
                # what is filled with other numbers has no weight by gates, and must become 0 by a later step
                steps.append(step._replace(value=0.0 if step.value <= -1e4 else math.nan))
            elif step.name == "add":
                steps.append(Step("times", (step.by * step.value).exp(), None, step.axes))
            else:
                self._misuse("changed before exp")
        out = Scores(self.q, self.k, self.axes)
        out.gates, out.steps = self.gates, steps
        return out

    def amax(self, dim: Any = None, keepdim: bool = False) -> Any:
        """Return the greatest of each query's terms."""
        return pair_sums.greatest(self, dim, keepdim)

    def valued(self, *_: Any) -> Any:
        return self._misuse("multiplied with values")


def of_streams(name: str, a: Any, b: Any) -> Terms | None:
    """Return the sum or difference of two streams whose frames stand at different dimensions; None of all else.

    ``expand`` gives a stream, and which of its dimensions is repeated for each frame.
    """
    if name == "expand":
        return repeated(a, b)
    if name not in ("add", "sub") or not all(getattr(x, "edge", None) is not None for x in (a, b)):
        return None
    at = [x.dims.index("L") - x.ndim if "L" in x.dims else 0 for x in (a, b)]
    batch = {x.dims.index("B") - x.ndim if "B" in x.dims else 0 for x in (a, b)}
    if 0 in at or at[0] == at[1] or 0 in batch or not batch.isdisjoint(at):
        return None
    axes = _axes_of((a, b), *at)
    sides = [pair_sums.along(axes, x) for x in (a, b)]
    if sides[0] is None or sides[1] is None:
        return None
    gates = [sides[0][1], -sides[1][1] if name == "sub" else sides[1][1]]
    of_queries, of_keys = gates if at[0] < at[1] else gates[::-1]
    return Terms(of_queries, of_keys, axes)


def repeated(x: Any, axis: int) -> Terms | None:
    """Return a stream that is repeated for each frame along an axis of one element; None of all else."""
    if "L" not in x.dims or "B" not in x.dims or isinstance(x.dims[axis], str) or x.shape[axis] != 1:
        return None
    at = x.dims.index("L") - x.ndim
    axes = _axes_of((x,), at, axis - x.ndim)
    found: Any = pair_sums.along(axes, x)
    gates = [found[1], found[1] * 0]
    is_of_queries = at < axis - x.ndim
    of_queries, of_keys = gates if is_of_queries else gates[::-1]
    out = Terms(of_queries, of_keys, axes)
    out.is_of_queries = is_of_queries
    return out


def _axes_of(streams: Sequence[Any], *at: int) -> Axes:
    """Return what the dimensions of pairs are, of which those at two places are queries and keys."""
    labels: list[Dim] = [()] * max(x.ndim for x in streams)
    for x in streams:
        found = atoms_of(x, [i - x.ndim for i in range(x.ndim)], "L")  # type: ignore[arg-type]
        for i, dim in (found or {}).items():
            labels[i] = labels[i] or dim  # type: ignore[call-overload]
    labels[min(at)], labels[max(at)] = (QUERIES,), (KEYS,)
    return Axes(labels, [d for dim in labels for d in dim if isinstance(d, Heads)])


def weighted(weights: Any, s: str, x: Any, t: str, out: str) -> Any:
    """Return the sum over frames of what a function of positions weighs for each pair; None where it is none.

    `s`, `t` and `out` have a letter for each dimension of the weights, of the stream `x` and of the result.
    """
    along = [c for c, size in zip(s, weights.shape) if isinstance(size, Length)]
    keys = [c for c in along if c in t and c not in out]
    x = streams_of(x)
    if len(along) != 2 or len(keys) != 1 or x is None or x.dims[t.index(keys[0])] != "L":
        return None
    atoms = atoms_of(x, t, KEYS)
    free = [c for c in t if c not in s]
    if atoms is None or "B" not in x.dims:
        return None
    if not free or isinstance([*atoms[free[-1]], None][0], str):
        return None
    letters = [*free[:-1], *s]
    sizes = dict(zip(s, weights.shape))
    dims: list[Dim] = []
    for c in letters:
        own: Any = (KEYS,) if c == keys[0] else (QUERIES,) if c in along else atoms.get(c, ())
        dims.append(own or ((Heads(sizes[c]),) if sizes.get(c, 1) != 1 else ()))
    axes = Axes(dims, [d for dim in dims for d in dim if isinstance(d, Heads)])
    order = [i for i, d in enumerate(x.dims) if isinstance(d, int)]
    one: Any = x.permute(x.dims.index("B"), x.dims.index("L"), *order).flatten(2).narrow(-1, 0, 1)
    one = ones_of(one, x.dtype).unsqueeze(1)
    t, out = (y.replace(free[-1], "*") for y in (t, out))
    return Scores(one, one, axes).mul(weights).valued(x, t, "".join(letters), out)


def product(x: Sequence[Any], letters: Sequence[str], out: str) -> Any:
    """Return `weighted` of two operands of which one is such a function; None where none is."""
    for i in (0, 1):
        if is_computed(x[i]) and not (is_computed(x[1 - i]) or isinstance(x[1 - i], Scores)):
            return weighted(x[i], letters[i], x[1 - i], letters[1 - i], out)
    return None
