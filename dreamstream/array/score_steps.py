"""What a forward does to scores, recorded as steps, and values that there are once for each query or each key.

Where keys are given once, a term or a mask may be each key's own. A term s_j is one more feature of key j, which
meets one more feature of every query: ``q_i k_j + s_j`` is the product of (q_i, 1) and (k_j, s_j). So it is
computed with the memory, once per stream, and kept with its keys. Where a mask puts a number in a score's place,
the key's features become zeros, and the number is its term.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import NotStreamableError
from ..operations.refusals import MASKED
from ..stream.mask_recognition import Unrecognised
from . import hook
from .batch_constants import value_of
from .deferred import Deferred, has_formula
from .deferred_stream import DeferredStream
from .elementwise import where
from .protocol import refuse_the_rest
from .score_layout import (
    KEYS,
    QUERIES,
    STREAMS,
    Axes,
    Before,
    Heads,
    Spread,
    atoms_of,
    laid,
    streams_of,
    with_heads,
)

#: The greatest number that leaves 1 as it is when it is added, in float32.
_NOTHING = 2.0**-25


class Step(NamedTuple):
    """One operation on scores, recorded until their mask is recognised."""

    name: str  #: "add", "mul", "times", "fill", "keep", or "sum": what other steps give.
    by: Any  #: The operand: a deferred value, a number, or the steps of other scores.
    value: Any  #: The factor of an added value, or the number that is filled in.
    axes: Axes  #: The scores' dimensions when it was recorded.

    def deferred(self) -> Iterator[Any]:
        """Yield its deferred values."""
        if self.name == "sum":
            for step in self.by:
                yield from step.deferred()
        elif isinstance(self.by, Deferred):
            yield self.by

    def exchanged(self, other: Callable[[Deferred], Any]) -> Step:
        """Return the step with each deferred value `d` replaced by ``other(d)``."""
        if self.name == "sum":
            return self._replace(by=tuple(s.exchanged(other) for s in self.by))
        return self._replace(by=other(self.by)) if isinstance(self.by, Deferred) else self

    def hides_nothing(self) -> bool:
        """Whether it is a mask that hides nothing, zeros that are added, or a factor, whatever the lengths."""
        if not isinstance(self.by, Deferred):
            return self.name == "mul"
        if any(True for _ in self.by.learned()):  # a parameter may be zeros now and change
            return False
        found = [self.by.probe(n) for n in (24, 37)]
        return not any(bool((x == 0).any() if self.name == "keep" else (x != 0).any()) for x in found)

    def seen(self, axes: Callable[[Axes], Axes]) -> Step:
        """Return the step for scores with other dimensions, ``axes(old)``, such as those of some heads."""
        by = tuple(s.seen(axes) for s in self.by) if self.name == "sum" else self.by
        return self._replace(by=by, axes=axes(self.axes))


def among(steps: Sequence[Step], spread: Spread | Before) -> list[Step]:
    """Return the steps for scores of which keys, or queries, stand among more, or behind others."""
    return [s.seen(lambda axes: axes.like(axes.dims, spread)) for s in steps]


OTHER = {QUERIES: KEYS, KEYS: QUERIES}


def turned(axes: Axes) -> Axes:
    return axes.like([tuple(OTHER.get(a, a) for a in dim) for dim in axes.dims])


class OverKeys:
    """A statistic of each query's scores, in a softmax that is written out: their amax, or the sum of their exp.

    Subtracting the amax does not change a softmax. Dividing exponentials by their sum makes it, as does the exp of
    scores less logsumexp. Only these uses are known; every other one is refused. `what` is "greatest", "sum",
    "inverse" or "logarithm"; `is_kept` says whether the dimension of keys stays, of one element.
    """

    is_stream = takes_deferred = True
    dims = features = ("scores",)

    def __init__(self, of: Any, what: str, is_kept: bool = True) -> None:
        self.of, self.what, self.is_kept = of, what, is_kept

    def divides(self, scores: Any, what: str) -> bool:
        """Whether it is `what` of these very scores, "sum" or "inverse", with the dimension of keys kept."""
        of = self.of
        alike = of.q is scores.q and of.k is scores.k and of.axes is scores.axes
        alike = alike and len(of.steps) == len(scores.steps) and all(map(operator.is_, scores.steps, of.steps))
        return bool(alike and scores.is_exponential and self.what == what and self.is_kept)

    def to(self, *_: Any, **__: Any) -> OverKeys:
        """Return itself: element types and memory layout make no difference."""
        return self

    contiguous = to

    def detach(self) -> OverKeys:
        """Return itself if it is the amax, which has no effect on softmax's gradient; a sum's is refused."""
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
        """Return itself if the number added, an epsilon, leaves float32 sums of at least 1 as they are."""
        number = number_of(other)
        small = (
            number is not None and 0 <= number * alpha <= _NOTHING and self.what == "sum" and self.of.is_lowered
        )
        return self if small else self._misuse()

    __add__ = __radd__ = add

    def clamp(self, min: Any = None, max: Any = None) -> OverKeys:
        """Return itself if it is a sum after the amax was subtracted, at least 1, and the limit is at most 1."""
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
        if name.startswith("_") or name in ("device", "edge"):
            raise AttributeError(name)
        return self._misuse()


refuse_the_rest(OverKeys, OverKeys._misuse)


class Undivided(DeferredStream):
    """``exp(scores) @ v``, which a forward must divide by the sum of the exponentials before any other use.

    `made` are the attended values, division included.
    """

    def __init__(self, made: Any, scores: Any) -> None:
        self._stand(made, made.dims, made.names)
        self._scores = scores

    def div(self, other: Any, *_: Any, **__: Any) -> Any:
        """Return the attended values, if `other` is the sum of the exponentials."""
        fits = isinstance(other, OverKeys) and other.divides(self._scores, "sum")
        return self.base if fits else self.refuse("divided by what is not the sum of their exponentials")

    def mul(self, other: Any) -> Any:
        """Return the attended values, if `other` is one over that sum."""
        fits = isinstance(other, OverKeys) and other.divides(self._scores, "inverse")
        return self.base if fits else self.refuse("multiplied")

    __truediv__, __mul__ = div, mul

    def by_element(self, *_: Any) -> Any:
        """Refuse all operators."""
        return self.refuse()

    def refuse(self, _: str = "") -> Any:
        """Refuse any other use: the division is missing."""
        return self._scores._misuse(
            "multiplied before softmax, and not divided by the sum of their exponentials next"
        )


def number_of(x: Any) -> Any:
    """Return the one number that a constant holds in all of its elements, as a float; else None."""
    x = value_of(x)
    if has_formula(x):
        x = x.everywhere()
    if isinstance(x, (int, float, np.number)):
        return float(x)
    if getattr(x, "is_stream", None) is False and math.prod(x.shape) == 1:
        return float(np.asarray(x.numpy()).reshape(()))
    return None


def unrecognised_mask(error: Unrecognised | str) -> NotStreamableError:
    """Return the refusal of an attention mask that isn't recognised, for the reason `error`."""
    remedy = MASKED.words[1]
    return NotStreamableError.here("the mask of attention", f" does not stream: {error}; {remedy}")


def require_zeros(scores: Any, query: int) -> None:
    """Refuse a mask by which `query` sees no key, unless the forward turns the NaN of that into zeros."""
    if not scores.zeros:
        raise NotStreamableError.here(
            f"attention: query {query} sees no key, of which softmax makes NaN; let it see its own frame, or "
            "take zeros, by F.scaled_dot_product_attention or nan_to_num behind softmax"
        )


def of_heads(scores: Any, at: int, part: Any) -> Any:
    """Return the scores of a slice of heads, ``scores[:, part]``; an int `part` drops the dimension, `at`."""
    whole = scores.axes.n_heads
    chosen = range(whole)[slice(part, part + 1 or None) if isinstance(part, int) else part]
    changed = any(x is not None for x in (scores.head_part, scores.mix, scores.terms))
    if changed or chosen.step != 1 or not chosen:
        scores._misuse("cut")
    own = slice(chosen.start, chosen.stop)
    heads = [Heads(len(chosen))] if len(chosen) > 1 else []
    dims = list(scores.axes.dims)
    dims[at : at + 1] = [] if isinstance(part, int) else [tuple(heads)]
    k = scores.k if scores.k.shape[1] == 1 else with_heads(scores.k, whole)
    return scores._copy(
        q=scores.q[:, own],
        k=k if k.shape[1] == 1 else k[:, own],
        axes=Axes(dims, heads),
        steps=[s.seen(lambda axes: Axes(axes.dims, axes.heads, head_part=own)) for s in scores.steps],
        sinks=None if scores.sinks is None else scores.sinks[own],
        head_part=own,
    )


class KeyBias(NamedTuple):
    """Terms and masks that each key, or each query, has for itself."""

    values: Any  #: ``(B, heads or 1, L, 1)``, added to the scores as they are, after any scale.
    along: str  #: `KEYS` or `QUERIES`: which of the scores' dimensions L is.
    masks: tuple[Any, ...] = ()  #: Edges of the masks by which scores were filled.

    def plus(self, other: KeyBias | None) -> KeyBias | None:
        """Return the sum of both; None where one has terms of keys and the other of queries."""
        if other is None:
            return self
        if other.along != self.along:
            return None
        return self._replace(values=self.values + other.values, masks=self.masks + other.masks)


def key_bias_of(x: Any, axes: Axes) -> KeyBias | None:
    """Return a tensor that is given once as a term for each key of scores with these axes; None for other shapes.

    Its sizes broadcast against the scores: one of them is L, of the keys.
    """
    of = (getattr(x, "edge", None),)
    line = getattr(of[0], "line", None)
    x = streams_of(x) if line is not None and line.static else None
    if x is None or x.ndim > len(axes.dims):
        return None
    own = axes.dims[len(axes.dims) - x.ndim :]
    letters = "abcdefghijklmnop"[: x.ndim]
    theirs = atoms_of(x, letters, KEYS)
    if theirs is None:
        return None
    labels: list[tuple[Any, ...]] = []
    along = None
    for letter, dim in zip(letters, own):
        mine = theirs[letter]
        if mine == (KEYS,) and dim in ((KEYS,), (QUERIES,)):
            along, mine = dim[0], (KEYS,)
        elif mine and _sizes(mine) == _sizes(dim):
            mine = dim
        elif mine:
            return None
        labels.append(mine)
    if along is None:
        return None
    used = [h for dim in labels for h in dim if isinstance(h, Heads)]
    if used != [h for h in axes.heads if h in used][: len(used)] or used not in ([], [*axes.heads]):
        return None
    values = laid(x.unsqueeze(-1), [*labels, ("f",)], axes.heads, (KEYS, "f"))
    return KeyBias(values, along, (of,))


def _sizes(dim: tuple[Any, ...]) -> list[Any]:
    return [STREAMS if a == STREAMS else getattr(a, "size", a) for a in dim]


def filled(k: Any, terms: KeyBias | None, mask: KeyBias, value: float) -> tuple[Any, KeyBias]:
    """Return keys and terms whose scores are `value` for the keys at which `mask` is True."""
    hidden = mask.values
    before = 0.0 if terms is None else terms.values
    if hidden.shape[1] > k.shape[1]:
        k = k.repeat_interleave(hidden.shape[1] // k.shape[1], 1)
    masks = (*(terms.masks if terms else ()), *mask.masks)
    one = where(hidden, value, before)
    return where(hidden, 0.0, k), KeyBias(one.to(k.dtype), mask.along, masks)


def with_terms(q: Any, k: Any, terms: KeyBias) -> tuple[Any, Any]:
    """Return queries and keys with one more feature each, so that their product is ``q @ k.mT`` plus the terms."""
    s = terms.values.to(k.dtype)
    n = max(k.shape[1], s.shape[1])
    s, k = (x if x.shape[1] == n else x.repeat_interleave(n // x.shape[1], 1) for x in (s, k))
    return with_one(q), hook.one("cat", {"axis": 1}, (k, s), (), k.dims)


def with_one(x: Any) -> Any:
    """Return a stream ``(B, heads, L, features)`` with one more feature, which is 1."""
    return padded_features(x, 0, 1, 1.0, ("B", 0, "L", 1))


def padded_features(x: Any, left: int, right: int, value: float, dims: tuple[Any, ...]) -> Any:
    """Return a stream padded by `value`, `left` and `right`, along its second axis of features."""
    sides = {"axis": 1, "left": left, "right": right, "value": value}
    return hook.one("pad_features", sides, (x,), (), dims)
