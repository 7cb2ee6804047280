"""Attention of streams of unequal rates: keys, or queries, of which there is one for several frames of the others.

Keys are put at frames of the queries, with hidden ones between them; queries are repeated, and of what is attended
only their own frames are kept. The mask is looked at where both are, and continued between these places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from ..stream.context import is_declared
from ..stream.mask_recognition import MASKED, Unrecognised
from . import hook
from .ends import padded_to
from .mask_terms import added, answered, deferred_in, frames_shown, frames_shown_at_most, product_within, recognise
from .score_layout import KEYS, QUERIES, Spread
from .score_steps import Step, among, padded_features, require_zeros, unrecognised_mask, with_one

#: What a score is less by where there is no key.
_HIDDEN = 1e30


def ratio(q: Any, k: Any) -> Fraction:
    """Return how many queries there are for a key."""
    return Fraction(q.edge.rate, k.edge.rate) if q.edge.rate and k.edge.rate else Fraction(1)


def at_one_rate(scores: Any, v: Any) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Return scores with a query for each key, values for these, and what picks the queries of what is attended.

    Values are ``(B, heads, L, features)``, as many as keys.
    """
    times = ratio(scores.q, scores.k)
    along, n = (KEYS, int(times)) if times > 1 else (QUERIES, int(1 / times))
    plain = scores.within or scores.sinks is not None or scores.terms is not None
    masks = deferred_in(scores.steps)
    fits = n in (times, 1 / times) and v.edge.rate == scores.k.edge.rate
    if not fits or plain or not masks or is_declared() or any(product_within(x) for x in masks):
        scores._misuse(f"those of {times} queries for a key, without a mask of positions that says which it sees")
    few, many = (scores.k, scores.q) if along == KEYS else (scores.q, scores.k)
    spreads = [p for p in _spreads(along, n) if ((few.shape[2] - 1) * n + p.first < many.shape[2]) is True]
    spread, blank = answered(
        ("spread", *spreads), scores.steps, many, lambda: _chosen(scores.steps, spreads, many)
    )
    if spread is None:
        raise unrecognised_mask(blank)
    if blank is not None:
        require_zeros(scores, blank)
    steps = among(scores.steps, spread)
    if along == QUERIES:
        own = scores._copy(q=_so_long(few.repeat_interleave(n, 2), many.shape[2]), steps=steps)
        return own, v, lambda out: out[:, :, spread.first :: n][:, :, : few.shape[2]]
    q, k = _joined(scores.q, scores.k, spread, scores.scale)
    return scores._copy(q=q, k=k, steps=steps), _at_frames(v, spread, q.shape[2]), lambda out: out


def _chosen(steps: Sequence[Step], spreads: Sequence[Spread], many: Any) -> tuple[Spread | None, Any]:
    """Return the first place at which a mask is recognised, and a query that sees no key but hidden ones.

    Where there is no such place: None, and why.
    """
    why: Any = "of keys and queries, the rarer go on when the others have ended"
    for spread in spreads:
        own = among(steps, spread)
        try:
            recognise(own, many)
        except Unrecognised as error:
            why = str(error)
            continue
        n = min(frames_shown(own), frames_shown_at_most(own))
        seen = added(own, n, many).cpu().numpy()[:, :, spread.first :: spread.times] > MASKED
        blank = ~seen.any(2)
        return spread, int(blank.any(0).argmax()) if spread.along == KEYS and blank.any() else None
    return None, why


def _spreads(along: str, n: int) -> Iterator[Spread]:
    """Give the ways in which one of n frames may stand among them, and pairs between these be continued."""
    for first in range(n):
        for diagonal in (True, False):
            yield Spread(along, n, first, diagonal)


def _joined(q: Any, k: Any, spread: Spread, scale: float) -> tuple[Any, Any]:
    """Return queries and keys of one length, with one more feature each: its products hide what is no key."""
    k = _at_frames(with_one(k), spread, q.shape[2])
    hidden = (k[..., -1:] - 1) * min(max(_HIDDEN / (scale or 1.0), -3e38), 3e38)
    return with_one(q), hook.one("cat", {"axis": 1}, (k[..., :-1], hidden), (), ("B", 0, "L", 1))


def _at_frames(x: Any, spread: Spread, length: Any) -> Any:
    """Return a stream ``(B, heads, L, features)`` of another's length, with zeros between its frames."""
    behind = spread.times - 1 - spread.first
    own = padded_features(x.unsqueeze(3), spread.first, behind, 0.0, ("B", 0, "L", 1, 2))
    return _so_long(own.flatten(2, 3), length)


def _so_long(x: Any, length: Any) -> Any:
    """Return a stream cut to a length, or with zeros up to it."""
    if (x.shape[2] >= length) is True:
        return x[:, :, :length]
    return padded_to(x, length, 0, "constant", 0.0)
