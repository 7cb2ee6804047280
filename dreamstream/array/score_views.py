"""Views of scores, and the steps that are recorded of what is done to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from ..errors import NotStreamableError
from ..stream.rules import Length
from .deferred import Deferred
from .dimension_arguments import Described, sizes_of
from .filled import Shared
from .mask_terms import before_diagonal
from .protocol import refuse_the_rest
from .score_layout import KEYS, QUERIES, Axes, Heads
from .symbolic import Symbolic

V = TypeVar("V", bound="ScoreViews")

#: What drops a column beside the keys.
_WITHOUT = {1: slice(None, -1), -1: slice(1, None)}
#: What added to 1 leaves it as it is, in 32 bits.
_NOTHING = 2.0**-25
SERVES = (
    "scores of attention are scaled, masked, given terms by position, brought through softmax and multiplied with "
    "values"
)


class ScoreViews(Described, Shared):
    """The products of queries and keys as a tensor: its shape, its type, its views.

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

    is_stream = takes_deferred = True
    q: Any
    k: Any
    axes: Axes
    soft: bool
    wider: int
    is_exponential: bool
    is_shifted: bool
    within: float
    sinks: Any
    picked: slice | None = None  # which of the heads
    scale: float
    steps: Any
    terms: Any
    _with: Any

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

    def _again(self, of: Any, *_: Any) -> Any:
        return of._copy(axes=self.axes)

    def _within(self, of: Any, out: Any, *_: Any) -> Any:
        return out._copy(axes=of.axes)

    def _seen(self: V, dims: Sequence[Any]) -> V:
        return self._copy(axes=self.axes.like(dims))

    def clone(self: V, *_: Any, **__: Any) -> V:
        return self._copy()

    def _same(self: V, *_: Any, **__: Any) -> V:
        return self

    to = float = double = half = bfloat16 = contiguous = type = _same

    def _unshifted(self, *others: Any) -> None:
        """Refuse what only softmax does not see, where it isn't softmax that comes next."""
        if any(isinstance(x, ScoreViews) and x.is_shifted for x in (self, *others)):
            self._misuse("given a number, or less their greatest, without softmax behind it")

    def tanh(self: V) -> V:
        """Return the scores below a limit, by which they are multiplied then."""
        if self._bent() or self.terms or any(s.name != "mul" for s in self.steps):
            self._misuse("brought through tanh behind softmax, masks or terms")
        self._unshifted()
        return self._copy(within=self.scale, scale=1.0, steps=[])

    def _bent(self) -> bool:
        return bool(self.soft or self.is_exponential or self.within or self.sinks is not None)

    def tril(self, diagonal: int = 0) -> Any:
        """Return the scores with zeros where a key is further on than a diagonal."""
        return self._with("keep", before_diagonal(self.k, diagonal), 0.0)

    def t(self) -> Any:
        return self.transpose(0, 1)

    def reshape(self: V, *given: Any, shape: Any = (), size: Any = ()) -> V:
        sizes = sizes_of(given, shape or size)
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
        inner = [i for i, p in enumerate(parts) if p is not None]
        for i, part, dim in zip(inner, (parts[i] for i in inner), self.axes.dims):
            if dim and dim == self.axes.heads and (isinstance(part, int) or part != slice(None)):
                cut = self._of_heads(inner.index(i), part)
                kept = [*parts[:i], *([] if isinstance(part, int) else [slice(None)]), *parts[i + 1 :]]
                return cut[tuple(kept)]
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

    def _of_heads(self: V, at: int, part: Any) -> V:
        """Return the scores of some heads, next to each other; of one by its number without their dimension."""
        whole = self.axes.n_heads
        picked = range(whole)[slice(part, part + 1 or None) if isinstance(part, int) else part]
        if self.picked is not None or self.terms is not None or picked.step != 1 or not picked:
            self._misuse("cut")
        own = slice(picked.start, picked.stop)
        heads = [Heads(len(picked))] if len(picked) > 1 else []
        dims = list(self.axes.dims)
        dims[at : at + 1] = [] if isinstance(part, int) else [tuple(heads)]
        k = self.k if self.k.shape[1] in (1, whole) else self.k.repeat_interleave(whole // self.k.shape[1], 1)
        return self._copy(
            q=self.q[:, own],
            k=k if k.shape[1] == 1 else k[:, own],
            axes=Axes(dims, heads),
            steps=[s.of_heads(own) for s in self.steps],
            sinks=None if self.sinks is None else self.sinks[own],
            picked=own,
        )

    def _misuse(self, use: str) -> NoReturn:
        layers = "; nn.MultiheadAttention gives none with need_weights=False" if self.soft else ""
        raise NotStreamableError.here(f"scores of attention are {use},", f"; {SERVES}{layers}")


# ---------------------------------------------------------------------- what is done to them
class Step(NamedTuple):
    """Something that is done to scores.

    Attributes
    ----------
    name : str
        "add", "mul", "times", "fill", "keep", or "sum": what other steps give.
    by : Any
        The operand: a deferred value, a number, or the steps of other scores.
    value : float or None
        The factor of an added value, or the number that is filled in.
    axes : Axes
        What the dimensions are at that time.
    """

    name: str
    by: Any
    value: Any
    axes: Axes

    def deferred(self) -> Iterator[Any]:
        """Give all deferred values in it."""
        if self.name == "sum":
            for step in self.by:
                yield from step.deferred()
        elif isinstance(self.by, Deferred):
            yield self.by

    def exchanged(self, other: Callable[[Deferred], Any]) -> Step:
        """Return it with what `other` gives in place of its deferred values."""
        if self.name == "sum":
            return self._replace(by=tuple(s.exchanged(other) for s in self.by))
        return self._replace(by=other(self.by)) if isinstance(self.by, Deferred) else self

    def hides_nothing(self) -> bool:
        """Whether it is a mask that hides nothing, zeros that are added, or a factor, whatever the lengths."""
        if not isinstance(self.by, Deferred):
            return self.name == "mul"
        if any(True for _ in self.by.learned()):  # zeros that may become others
            return False
        found = [self.by.probe(n) for n in (24, 37)]
        return not any(bool((x == 0).any() if self.name == "keep" else (x != 0).any()) for x in found)

    def of_heads(self, picked: slice) -> Step:
        """Return it for some heads."""
        by = tuple(s.of_heads(picked) for s in self.by) if self.name == "sum" else self.by
        return self._replace(by=by, axes=Axes(self.axes.dims, self.axes.heads, picked=picked))

    def turned(self) -> Step:
        """Return it where queries are keys, and keys queries."""
        by = tuple(s.turned() for s in self.by) if self.name == "sum" else self.by
        return self._replace(by=by, axes=turned(self.axes))


OTHER = {QUERIES: KEYS, KEYS: QUERIES}


def turned(axes: Axes) -> Axes:
    return axes.like([tuple(OTHER.get(a, a) for a in dim) for dim in axes.dims])


class OverKeys:
    """What there is once for each query: its greatest score, the sum of exponentials, or the logarithm of that.

    Subtracting the greatest does not change what softmax gives. Dividing exponentials by their sum makes softmax
    of scores, as does subtracting its logarithm before.

    Parameters
    ----------
    of : Scores
    what : str
        "greatest", "sum", "inverse" or "logarithm".
    is_kept : bool
        Whether the dimension of keys stays, of one element.
    """

    is_stream = takes_deferred = True
    dims = features = ("scores",)

    def __init__(self, of: Any, what: str, is_kept: bool = True) -> None:
        self.of, self.what, self.is_kept = of, what, is_kept

    def to(self, *_: Any, **__: Any) -> OverKeys:
        """Return it as it is, of whatever element type."""
        return self

    contiguous = to

    def detach(self) -> OverKeys:
        """Return the greatest, of which softmax has no gradient; a sum has one."""
        return self if self.what == "greatest" else self._misuse()

    def unsqueeze(self, dim: int) -> OverKeys:
        """Return it with the dimension of keys."""
        return (
            self._misuse() if self.is_kept or dim not in (-1, self.of.ndim - 1) else OverKeys(self.of, self.what)
        )

    def __getitem__(self, index: Any) -> OverKeys:
        parts = index if isinstance(index, tuple) else (index,)
        if parts[-1] is not None or any(p is not Ellipsis and p != slice(None) for p in parts[:-1]):
            self._misuse()
        return self.unsqueeze(-1)

    def reciprocal(self) -> OverKeys:
        """Return one over a sum."""
        return OverKeys(self.of, "inverse") if self.what == "sum" and self.is_kept else self._misuse()

    def add(self, other: Any, alpha: float = 1) -> OverKeys:
        """Return it with what changes no sum: beside the exponential of the greatest score, which is 1."""
        number = number_of(other)
        small = (
            number is not None and 0 <= number * alpha <= _NOTHING and self.what == "sum" and self.of.is_lowered
        )
        return self if small else self._misuse()

    __add__ = __radd__ = add

    def clamp(self, min: Any = None, max: Any = None) -> OverKeys:
        """Return a sum where it is no less than 1."""
        number = number_of(min)
        fits = self.what == "sum" and self.of.is_lowered and max is None and number is not None and number <= 1
        return self if fits else self._misuse()

    clamp_min = clip = clamp

    def as_output(self) -> Any:
        """Refuse to be what a forward returns."""
        return self._misuse()

    def _misuse(self, *_: Any) -> Any:
        uses = {"greatest": "their greatest, but to be taken from them before softmax"}
        return self.of._misuse(f"asked for {uses.get(self.what, 'a sum, but to divide their exponentials by it')}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("device", "edge"):
            raise AttributeError(name)
        return self._misuse()


refuse_the_rest(OverKeys, OverKeys._misuse)


def number_of(x: Any) -> Any:
    """Return the number that a constant is everywhere; None of anything else."""
    if isinstance(x, Symbolic) and not (x.position or isinstance(x.value, Length)):
        x = x.value
    if isinstance(x, (int, float, np.number)):
        return float(x)
    if getattr(x, "is_stream", None) is False and math.prod(x.shape) == 1:
        return float(np.asarray(x.numpy()).reshape(()))
    return None
