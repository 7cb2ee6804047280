"""Attention written by hand: what the product of queries and keys is until it meets values.

``softmax(q @ k.transpose(-2, -1) * s + mask, -1) @ v`` has as many elements as pairs of frames, which no stream
can keep. So the product is deferred, with all that is done to it; the product with values runs the operator.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..errors import NotStreamableError, ShapeError
from ..operations import RELATIONS
from ..operations.refusals import MASKED, OF_VALUES
from ..stream.rules import Length, is_full_slice
from . import hook, pair_sums
from .attend import across, seen_by_queries, valued
from .batch_constants import value_of
from .deferred import as_deferred, has_formula, is_computed
from .dimension_arguments import Described, parts_of, sizes_of
from .filled import SharesMemory, kept
from .mask_terms import before_diagonal
from .protocol import refuse_the_rest
from .reductions import Extreme
from .score_layout import KEYS, QUERIES, STREAMS, Axes, Heads, atoms_of, laid, streams_of, with_heads
from .score_steps import OTHER, KeyBias, OverKeys, Step, filled, key_bias_of, number_of, of_heads, turned
from .tensor import Tensor

#: What stands for -inf in a score's place.
_HIDES = -1e4
#: What drops a column beside the keys.
_WITHOUT = {1: slice(None, -1), -1: slice(1, None)}
SERVES = (
    "scores of attention are scaled, masked, given terms by position, brought through softmax and multiplied with "
    "values"
)


def scores_of(x: Any, other: Any) -> Scores | None:
    """Return x @ other where these are queries and transposed keys of one attention; None where they are not."""
    if not getattr(other, "is_stream", False) or not hasattr(other, "dims"):
        return None
    s, t, out = matrices(x.ndim, other.ndim)
    return paired(x, s, other, t, out)


def matrices(x: int, other: int) -> tuple[str, str, str]:
    """Return a letter for each dimension of two matrices of so many dimensions, and of their product."""
    n = max(x, other) - 2
    lead = string.ascii_uppercase[:n]
    return f"{lead[n + 2 - x :]}id", f"{lead[n + 2 - other :]}dj", f"{lead}ij"


def paired(x: Any, s: str, other: Any, t: str, out: str) -> Scores | None:
    """Return the product of two streams over what they share but for heads; None of all else.

    `s`, `t` and `out` have a letter for each dimension of either, and of the product.
    """
    x, other = streams_of(x), streams_of(other)
    if x is None or other is None:
        return None
    summed = [c for c in s if c in t and c not in out]
    own, others = atoms_of(x, s, QUERIES), atoms_of(other, t, KEYS)
    if own is None or others is None or not summed or any(c not in s + t for c in out):
        return None
    if any(len(d[c]) > 1 or isinstance([*d[c], None][0], str) for c in summed for d in (own, others)):
        return None
    known: dict[str, tuple[Any, ...]] = {}
    lacking = []
    for c in out:
        mine, theirs = own.get(c, ()), others.get(c, ())
        if mine and theirs and [getattr(a, "size", a) for a in mine] != [getattr(a, "size", a) for a in theirs]:
            return None
        if theirs and not mine and KEYS not in theirs:
            return None  # heads of keys alone
        if mine:
            others = {**others, c: mine if theirs else ()}
            lacking += [] if theirs or QUERIES in mine or STREAMS in mine else [*mine]
        known[c] = mine or theirs
    axes = Axes([known[c] for c in out], ())
    every = [a for dim in axes.dims for a in dim]
    if every.count(QUERIES) != 1 or every.count(KEYS) != 1 or every.count(STREAMS) != 1:
        return None
    heads = [a for a in every if not isinstance(a, str) and a not in lacking] + lacking
    q, k = (
        laid(y, [(c,) if c in summed else atoms[c] for c in letters], heads, (at, *summed))
        for y, letters, atoms, at in ((x, s, own, QUERIES), (other, t, others, KEYS))
    )
    return Scores(q, k, Axes(axes.dims, heads))


class Scores(Described, SharesMemory):
    """The products of queries and keys.

    These are ``(B, heads, L, features)``; a head of keys may serve several of queries.
    """

    is_stream = takes_deferred = True

    def __init__(self, q: Any, k: Any, axes: Axes) -> None:
        self.q, self.k, self.axes = q, k, axes
        self.scale = 1.0
        self.steps: list[Step] = []  # done to zeros, they give what is added
        self.terms: KeyBias | None = None  # of keys that are given once
        self.soft = False
        self.logarithm = False  # of what softmax gives
        self.is_exponential = False  # whether they are exponentials, to be divided by their sum
        self.is_lowered = False  # whether the greatest was taken from them last
        self.is_shifted = False  # whether a number was added to all of a query's, which softmax does not see
        self.shift = 0.0  # the number, where it is one
        self.p = 0.0  # of dropout
        self.zeros = False  # whether a query that sees no key gets zeros, in the place of NaN
        self.within = 0.0  # what products were multiplied by before tanh; 0 where they were not
        self.sinks: Any = None  # a score per head beside those of keys
        self.head_part: slice | None = None  # which of the heads
        self.mix: Any = None  # what softmax gave is weighted by, for each head and each of those before
        self.gates: tuple[Any, Any] | None = None  # of queries and keys: their sum's exponential is a factor
        self.wider = 0  # where that stands in the scores: 1 behind the keys, -1 before them, 0 once it is dropped

    @classmethod
    def of(cls, q: Any, k: Any) -> Scores:
        """Return the scores of queries and keys ``(B, heads, L, features)`` or ``(B, L, features)``."""
        if q.ndim == 4 and k.shape[1] != q.shape[1]:
            heads = Heads(q.shape[1])
            return cls(q, k, Axes([(STREAMS,), (heads,), (QUERIES,), (KEYS,)], [heads]))
        out = scores_of(q, k.transpose(-2, -1))
        if out is None:
            raise ShapeError.here(f"attention: queries {q.roles} and keys {k.roles} don't fit")
        return out

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
    def _copy(self, **changes: Any) -> Scores:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__, **changes, _source=None, _taken=(), _facts=None)
        if "axes" in changes:
            out._shares(self)
        return out

    def _retaken(self, of: Any, *_: Any) -> Any:
        return of._copy(axes=self.axes)

    def _within(self, of: Any, out: Any, *_: Any) -> Any:
        return out._copy(axes=of.axes)

    def _seen(self, dims: Sequence[Any]) -> Scores:
        return self._copy(axes=self.axes.like(dims))

    def clone(self, *_: Any, **__: Any) -> Scores:
        return self._copy()

    def _same(self, *_: Any, **__: Any) -> Scores:
        return self

    def _unshifted(self, *others: Any) -> None:
        """Refuse what only softmax does not see, where it isn't softmax that comes next."""
        if any(isinstance(x, Scores) and x.is_shifted for x in (self, *others)):
            self._misuse("given a number, or less their greatest, without softmax behind it")

    def tanh(self) -> Scores:
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

    def reshape(self, *given: Any, shape: Any = (), size: Any = ()) -> Scores:
        sizes = sizes_of(given, shape or size)
        axes = self.axes.reshaped(sizes)
        return self._copy(axes=axes) if axes is not None else self._misuse(f"reshaped to {tuple(sizes)}")

    view = reshape

    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Scores:
        at = dim % self.ndim
        return self.reshape(*self.shape[:at], *sizes, *self.shape[at + 1 :])

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Scores:
        first, last = start_dim % self.ndim, end_dim % self.ndim
        dims = self.axes.dims
        joined = tuple(a for d in dims[first : last + 1] for a in d)
        if {QUERIES, KEYS} & {*joined} and len(joined) > 1:
            self._misuse("flattened")
        return self._seen([*dims[:first], joined, *dims[last + 1 :]])

    def __getitem__(self, index: Any) -> Scores:
        parts = parts_of(index, self.ndim)
        inner = [i for i, p in enumerate(parts) if p is not None]
        for i, part, dim in zip(inner, (parts[i] for i in inner), self.axes.dims):
            if dim and dim == self.axes.heads and (isinstance(part, int) or part != slice(None)):
                cut = of_heads(self, inner.index(i), part)
                others = [*parts[:i], *([] if isinstance(part, int) else [slice(None)]), *parts[i + 1 :]]
                return cut[tuple(others)]
        own = iter(zip(self.axes.dims, self.shape))
        dims: list[Any] = []
        for part in parts:
            dim, size = ((), 1) if part is None else next(own)
            if self.wider and self.soft and dim == (KEYS,) and part == _WITHOUT[self.wider]:
                rest = (*parts[: len(dims)], slice(None), *parts[len(dims) + 1 :])
                return self._copy(wider=0)[rest]
            stop = part.stop if isinstance(part, slice) else None
            if isinstance(stop, Length) and isinstance(size, Length) and stop == size:
                part = slice(part.start, None, part.step)
            if part is not None and not is_full_slice(part):
                self._misuse("cut")
            dims.append(dim)
        return self._seen(dims)

    def _misuse(self, use: str) -> NoReturn:
        layers = "; nn.MultiheadAttention gives none with need_weights=False" if self.soft else ""
        raise NotStreamableError.here(f"scores of attention are {use},", f"; {SERVES}{layers}")

    # ------------------------------------------------------------------ what is done to it
    def _with(self, name: str, by: Any, value: Any = None, **changes: Any) -> Scores:
        if self.soft:
            self._misuse(f"{'multiplied' if name in ('mul', 'times') else 'changed'} behind softmax")
        if self.is_exponential:
            self._misuse("changed behind exp")
        if name in ("fill", "keep") and value is None:
            self._misuse("filled with what is no number")
        if self.wider:
            self._misuse("changed with a column beside them")
        if name == "times":
            self._unshifted()
        return self._copy(steps=[*self.steps, Step(name, kept(by), value, self.axes)], is_lowered=False, **changes)

    def mul(self, other: Any) -> Scores:
        other = value_of(other)
        if isinstance(other, OverKeys):
            return self._divided(other, "inverse")
        if self.is_exponential and is_computed(other):  # zeros and ones
            return (
                self._copy(is_exponential=False, is_shifted=False)
                ._with("times", other)
                ._with("keep", other, -math.inf)
                .exp()
            )
        if is_computed(other):
            return self._with("times", other)
        has_frames = not has_formula(other) and getattr(other, "edge", None) is not None
        if isinstance(other, Scores) or has_frames:
            self._unshifted(other)
            met: Scores = self._misuse("multiplied by a stream") if self._bent() else pair_sums.met(self, other)
            return met
        factor = number_of(other)
        is_tensor = not has_formula(other) and hasattr(other, "numpy")
        if is_tensor and (factor is None or getattr(other, "_learned", False)):
            return self._tempered(other)
        if factor is None:
            self._misuse(f"multiplied{' behind softmax' * self.soft} by what is no number")
        terms = self.terms and self.terms._replace(values=self.terms.values * factor)
        return self._with("mul", factor, scale=self.scale * factor, shift=self.shift * factor, terms=terms)

    __mul__ = __rmul__ = mul

    def _divided(self, other: OverKeys, what: str) -> Scores:
        """Return what softmax makes of scores: their exponentials, divided by the sum of all of a query."""
        if not other.divides(self, what):
            self._misuse("divided by what is not the sum of their exponentials over the keys")
        return self._copy(is_exponential=False, soft=True)

    def div(self, other: Any) -> Scores:
        if isinstance(other, OverKeys):
            return self._divided(other, "sum")
        if getattr(other, "is_stream", False) and not (is_computed(other) or isinstance(other, Scores)):
            return self.mul(1 / other)
        divisor = number_of(other := value_of(other))
        if divisor is None or getattr(other, "_learned", False):
            return self.mul(1 / other) if hasattr(other, "numpy") else self._misuse("divided by what is no number")
        return self.mul(1 / divisor)

    __truediv__ = div

    def _tempered(self, factor: Any) -> Scores:
        """Return the scores, each head's multiplied by a number of its own, or all by one that is learned."""
        if self.soft or self.terms or self.within or any(s.name in ("add", "sum") for s in self.steps):
            self._misuse("multiplied by a tensor behind softmax, tanh or terms")
        by = self.axes.read(factor, 1) if math.prod(factor.shape) > 1 else factor.reshape(1, 1, 1)
        if by is None:
            self._misuse(f"multiplied by a tensor {tuple(factor.shape)}")
        return self._copy(q=self.q * by, is_lowered=False)

    def add(self, other: Any, alpha: float = 1) -> Scores:
        other = as_deferred(other)
        if isinstance(other, OverKeys):
            is_greatest = other.what in ("greatest", "greatest of all")
            bent = self.soft or self.is_exponential if is_greatest else self._bent()
            if alpha != -1 or bent or not (other.is_kept or other.what == "greatest of all"):
                self._misuse("given their greatest")
            if other.what == "logarithm":
                return self.log_softmax(self.axes.dims.index((KEYS,)))
            if not is_greatest:
                self._misuse("given a sum")
            return self._copy(is_lowered=other.what == "greatest", is_shifted=True)
        if self.is_exponential:
            self._misuse("added to behind exp")
        if isinstance(other, Scores):
            return self._beside(other, alpha)
        if self.soft:
            self._misuse("given terms behind softmax")
        if (number := number_of(other)) is not None and not getattr(other, "is_stream", False):
            return self if number == 0 else self._copy(is_shifted=True, shift=self.shift + number * alpha)
        if (own := self._of_keys(other)) is not None:
            return self._copy(terms=self._sum(KeyBias(own.values * alpha, own.along), self.terms))
        return self._with("add", self._pairs(other), alpha)

    __add__ = __radd__ = add

    def sub(self, other: Any, alpha: float = 1) -> Scores:
        return self.add(other, -alpha)

    __sub__ = sub

    def __neg__(self) -> Scores:
        return self.mul(-1)

    def _beside(self, other: Scores, alpha: float) -> Scores:
        """Return the sum of two scores of the same queries and keys: the score of what stands side by side."""
        if self._bent() or other._bent() or self.axes.key() != other.axes.key():
            self._misuse("added to others behind softmax or tanh, or of other dimensions")
        q = hook.one("cat", {"axis": 1}, (self.q, other.q * (alpha * other.scale / self.scale)), (), self.q.dims)
        groups = max(self.k.shape[1], other.k.shape[1])
        keys = [k.repeat_interleave(groups // k.shape[1], 1) for k in (self.k, other.k)]
        k = hook.one("cat", {"axis": 1}, keys, (), keys[0].dims)
        more = [Step("sum", tuple(other.steps), alpha, self.axes)] if other.steps else []
        terms = other.terms and other.terms._replace(values=other.terms.values * alpha)
        terms = self._sum(self.terms, terms) if self.terms else terms
        shifted = self.is_shifted or other.is_shifted
        return self._copy(q=q, k=k, steps=[*self.steps, *more], terms=terms, is_shifted=shifted)

    def beside(self, tensors: Sequence[Any], dim: int) -> Scores:
        """Return the scores with a column beside them: a number per head, of no key."""
        at = next(i for i, x in enumerate(tensors) if x is self)
        column: Any = None
        self._unshifted()
        if len(tensors) == 2 and not self.soft and self.sinks is None and self.axes.dims[dim] == (KEYS,):
            other = tensors[1 - at]
            edge, column = (None, None) if isinstance(other, Scores) else getattr(other, "alike", (None, None))
            new = (1,) * (other.ndim - column.ndim) if edge is not None and other.edge is edge else None
            column = None if new is None else self.axes.read(column.reshape(new + tuple(column.shape)), 1)
        if column is None:
            self._misuse("joined with what is no number per head beside those of keys")
        return self._copy(sinks=column.reshape(-1).expand(self.axes.n_heads), wider=1 - 2 * at)

    def pad(self, sizes: Sequence[int], mode: str = "constant", value: float | None = None) -> Scores:
        """Return the scores with a column of one number beside them, of no key."""
        left, right = (*sizes, 0, 0)[:2]
        if sorted((left, right)) != [0, 1] or any(sizes[2:]) or mode != "constant" or self._bent():
            self._misuse("padded by more than a column")
        column = self.q._plain(np.full(self.axes.n_heads, value or 0.0, np.float32)).to(self.q.dtype)
        return self._copy(sinks=column, wider=right - left)

    def _of_keys(self, x: Any) -> KeyBias | None:
        """Return a tensor that follows from what is given once as terms of keys; None where it is none."""
        if is_computed(x):
            lengths = [s for s in x.shape if isinstance(s, Length)] if across(self.q, self.k) else []
            if len(lengths) != 1:
                return None
            x = x.as_stream()
        return key_bias_of(x, self.axes)

    def _sum(self, terms: KeyBias, more: KeyBias | None) -> KeyBias:
        return terms.plus(more) or self._misuse("given terms by queries and by keys")

    def _filled(self, mask: KeyBias, value: float | None) -> Scores:
        """Return the scores, or what softmax made of them, with a number where a mask of keys holds."""
        if self.soft:
            if value != 0 or self.terms is None or mask.masks[0] not in self.terms.masks:
                self._misuse("masked behind softmax otherwise than before")
            value = -math.inf
        if value is None or (self.steps and value > _HIDES):
            self._misuse(f"filled with {value} behind terms")
        side = "k" if mask.along == KEYS else "q"
        if self.terms and self.terms.along != mask.along:
            self._misuse("given terms by queries and by keys")
        keys, terms = filled(getattr(self, side), self.terms, mask, value)
        return self._copy(**{side: keys}, terms=terms, is_lowered=False)

    def masked_fill(self, mask: Any, value: Any) -> Scores:
        if number_of(mask) == 0:  # it is known to hold nowhere
            return self
        if self.is_exponential and number_of(value) == 0:
            return self._copy(is_exponential=False).masked_fill(mask, -math.inf).exp()
        return self._put("fill", mask, value)

    def filled_where(self, mask: Any, value: Any) -> Scores:
        """Return the scores where a mask holds, a number elsewhere."""
        return self if number_of(mask) == 1 else self._put("keep", mask, value)

    def _put(self, name: str, mask: Any, value: Any) -> Scores:
        keeps = name == "keep"
        if (own := self._of_keys(mask)) is not None:
            own = own._replace(values=~own.values, masks=((*own.masks, "kept"),)) if keeps else own
            return self._filled(own, number_of(value))
        if self.soft:
            return self._hidden(~mask if keeps else mask, value)
        return self._with(name, self._pairs(mask), self._filling(value))

    def _filling(self, value: Any) -> float:
        number = number_of(value)
        if number is None:
            self._misuse("filled with what is no number")
        return -math.inf if number < self.q.edge.entry.library.least(self.q) else float(number) - self.shift

    def assigned(self, index: Any, value: Any) -> Scores:
        """Return the scores with a number where a mask of their last dimensions holds."""
        *front, mask = index if isinstance(index, tuple) else (index,)
        rest = self.ndim - getattr(mask, "ndim", 0)
        whole = front == [Ellipsis] or (len(front) == rest and all(p == slice(None) for p in front))
        if not whole or not is_computed(mask):
            self._misuse("written into")
        return self.masked_fill(mask, value)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        self._misuse("written into: take what masked_fill gives")

    def softmax(self, dim: int | None = -1, *_: Any, **__: Any) -> Scores:
        along = self.axes.dims[dim] if dim is not None and -self.ndim <= dim < self.ndim else ()
        if along == (KEYS,) and not self.soft and not self.is_exponential:
            return self._copy(soft=True)
        if along != (QUERIES,) or self.soft or self.is_exponential:
            self._misuse(f"brought through softmax along dimension {dim}, which is not that of the keys")
        terms = self.terms and self.terms._replace(along=OTHER[self.terms.along])
        return self._copy(
            q=with_heads(self.k, self.axes.n_heads),
            k=self.q,
            axes=turned(self.axes),
            steps=[s.seen(turned) for s in self.steps],
            soft=True,
            terms=terms,
        )

    def log_softmax(self, dim: int | None = -1, *_: Any, **__: Any) -> Scores:
        return self.softmax(dim)._copy(logarithm=True)

    def exp(self) -> Scores:
        if self.logarithm:
            return self._copy(logarithm=False)
        return self._misuse("asked for exp") if self._bent() or self.wider else self._copy(is_exponential=True)

    def _over_keys(self, what: str, dim: Any, keepdim: bool, allowed: bool) -> OverKeys:
        beside = self.wider and what != "greatest"
        if not allowed or type(dim) is not int or self.axes.dims[dim] != (KEYS,) or beside:
            self._misuse(f"asked for their {what}")
        return OverKeys(self, what, keepdim)

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        if not self._bent() and self.terms is None:
            self._unshifted()
            return pair_sums.total(self, dim, keepdim)
        return self._over_keys("sum", dim, keepdim, self.is_exponential)

    def logsumexp(self, dim: Any, keepdim: bool = False) -> OverKeys:
        return self._over_keys("logarithm", dim, keepdim, not self._bent())

    def amax(self, dim: Any = None, keepdim: bool = False) -> OverKeys:
        if dim is None and not self.soft:
            return OverKeys(self, "greatest of all")
        return self._over_keys("greatest", dim, keepdim, not self.soft and not self.is_exponential)

    def max(self, dim: Any = None, keepdim: bool = False) -> Any:
        if (least := None if type(dim) is int else number_of(dim)) is not None:
            return self.clamp(least)
        greatest: Any = self.amax(dim, keepdim)
        return greatest if dim is None else Extreme(greatest, greatest)

    maximum = max

    def clamp(self, min: Any = None, max: Any = None) -> Scores:
        """Return the scores where the limits are beyond all finite numbers: what is masked stays masked."""
        least, most = -math.inf if min is None else number_of(min), math.inf if max is None else number_of(max)
        lowest = self.q.edge.entry.library.least(self.q)
        if self.soft or None in (least, most) or least > lowest or most < -lowest:
            self._misuse("limited")
        return self

    clip = clamp

    def dropout(self, p: float = 0.5, training: bool = True, inplace: bool = False) -> Scores:
        if not training or p == 0:
            return self
        if not self.soft or self.mix is not None:
            self._misuse("dropped before softmax, or behind a mixture of heads")
        return self._copy(p=p)

    def nan_to_num(self, nan: float | None = 0.0, posinf: Any = None, neginf: Any = None) -> Scores:
        """Return it with zeros where a query sees no key."""
        return self._copy(zeros=True) if self.soft and not nan else self._misuse("asked for nan_to_num")

    def isnan(self) -> Any:
        """Answer that none is NaN: code that asks puts zeros where it is, which the operator then does."""
        self.zeros = True
        return Tensor(np.zeros((), bool)) if self.soft else self._misuse("asked for isnan")

    def _hidden(self, mask: Any, value: Any) -> Scores:
        """Zero weights that softmax has made zero already, as models do for queries that see no key."""
        masked = Scores(self.q, self.k, self.axes)._with("fill", self._pairs(mask), -math.inf)
        if number_of(value) != 0 or seen_by_queries(masked).shows() != seen_by_queries(self).shows():
            self._misuse("masked behind softmax otherwise than before")
        return self._copy(zeros=True)

    def _pairs(self, x: Any) -> Any:
        if not is_computed(x):
            raise NotStreamableError.here(f"scores of attention: {MASKED.reason}; {MASKED.remedy}")
        return x

    # ------------------------------------------------------------------ what becomes of it
    def linear(self, weight: Any, bias: Any = None) -> Scores:
        """Return scores whose heads, the last dimension, are weighted sums of these heads."""
        own = string.ascii_lowercase[: self.ndim]
        out: Scores = self.valued(weight, f"Z{own[-1]}", own, f"{own[:-1]}Z")
        if bias is not None and self.soft:
            self._misuse("given terms behind softmax")
        if bias is None:
            return out
        return out._copy(q=out.q + bias.reshape(-1, 1, 1) * 0.0, is_shifted=True)  # softmax's slope of it is 0

    def conv2d(self, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, *_: Any, **__: Any) -> Any:
        """Return what a convolution of one tap makes of heads, the second dimension."""
        in_place = np.all(np.equal(stride, 1)) and (padding in ("valid", "same") or not np.any(padding))
        if self.ndim != 4 or not in_place or tuple(weight.shape[1:]) != (self.axes.n_heads, 1, 1):
            self._misuse("brought through a convolution over queries and keys")
        return self.transpose(1, 3).linear(weight.flatten(1), bias).transpose(1, 3)

    def matmul(self, v: Any) -> Any:
        """Return the attended values."""
        lead = string.ascii_uppercase[: self.ndim - 2]
        letters = f"{lead[self.ndim - getattr(v, 'ndim', self.ndim) :]}je"
        return self.valued(v, letters, f"{lead}ij", f"{lead}ie")

    __matmul__ = bmm = matmul

    def __rmatmul__(self, v: Any) -> Any:
        lead = string.ascii_uppercase[: self.ndim - 2]
        letters = f"{lead[self.ndim - getattr(v, 'ndim', self.ndim) :]}ej"
        return self.valued(v, letters, f"{lead}ji", f"{lead}ei")

    valued = valued

    def as_output(self) -> NoReturn:
        """Refuse to be what a forward returns."""
        self._misuse("returned")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("dtype", "device", "edge"):
            raise AttributeError(name)
        return self._misuse(f"asked for {name}")


def _refuse(scores: Scores, name: str) -> NoReturn:
    if name in RELATIONS:
        raise NotStreamableError.here(f"{name} of scores of attention: {OF_VALUES.text}")
    scores._misuse(f"given to {name}")


for _name in ("to", "float", "double", "half", "bfloat16", "contiguous", "type"):
    setattr(Scores, _name, Scores._same)
refuse_the_rest(Scores, _refuse)
