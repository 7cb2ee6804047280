"""Attention without softmax: sums over pairs of frames whose weights are powers of decays, as a loop over frames.

``((q @ k.mT) * D) @ v`` with a causal D of entries ``g ** (i - j)`` (RetNet; with g = 1 linear attention) needs no
pairs: the state of a head, ``S = g * S + v k``, holds the sum of all earlier frames, and an output is ``S q``.
What D says is read from its values, as masks of attention are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import NotStreamableError
from ..stream.edge import Line
from ..stream.mask_recognition import Unrecognised
from .elementwise import ones_of
from .filled import Whatever
from .lengths_as_numbers import frames_for
from .loop_body import FRAME
from .loops import Loop
from .mask_terms import end_of_tables, frames_of_one, learned_in, operand
from .score_layout import KEYS, QUERIES, Axes, laid, shown, streams_of, with_heads
from .stream_tensor import StreamTensor

Array = npt.NDArray[Any]

#: How far weights may be from powers of a decay, beside the greatest.
_CLOSE = 1e-5
#: The longest distance at which a decay is measured.
_FAR = 64
#: How many queries are looked at, of the first, of the last, and of those between.
_FEW = 32
REMEDY = "without softmax a query's weights are powers of one number per head, (gamma ** (i - j)).tril()"


class Decays(NamedTuple):
    """The weights of pairs: ``factor * g ** (i + ahead - j)`` for keys up to i + ahead, and 0 for later ones."""

    ahead: int  #: How many frames behind its own a query sees; negative: how many of the last ones it does not.
    far: Array  #: For each head a distance at which its decay shows well.
    lost: Array  #: 1 - g for each head.
    factor: Array
    power: float  #: Of the sum of a query's powers of g, by which its weights are divided.


def decays(w: Array) -> Decays:
    """Read decays from weights ``(heads, n, n)``, or raise Unrecognised."""
    n = w.shape[1]
    rows, columns = np.nonzero(w.any(0))
    ahead = int((columns - rows).max(initial=-n))
    if ahead > n // 2:
        raise Unrecognised("queries see all keys, which are there at the stream's end")
    if ahead < -n // 2:
        raise Unrecognised("queries see no keys")
    seen = np.arange(max(0, -ahead), n - max(0, ahead))
    few = seen[np.r_[:_FEW, -_FEW:0, _FEW : len(seen) - _FEW : max(1, len(seen) // _FEW)]]
    first = w[:, seen, seen + ahead].astype(np.float64)
    powers = w[:, seen[-1], seen[-1] + ahead :: -1] / first[:, -1:]
    distances = few[:, None] + ahead - np.arange(n)
    own = w[:, few] / w[:, few, few + ahead][..., None]
    if not (np.abs(own - np.where(distances < 0, 0.0, powers[:, np.maximum(distances, 0)])) <= _CLOSE).all():
        raise Unrecognised("they are no function of the distance")
    far = np.array([max(1, *np.flatnonzero(np.abs(p[: _FAR + 1]) >= 0.3)) for p in powers])
    if (powers[:, 1] <= 0).any():
        far[:] = 1
    shown = powers[np.arange(len(w)), far]
    lost = 1 - shown if far.max() == 1 else -np.expm1(np.log(shown) / far)
    fall = (1 - lost[:, None]) ** np.arange(n)
    if (lost < 0).any() or not (np.abs(powers - fall[:, : powers.shape[1]]) <= _CLOSE).all():
        raise Unrecognised("they are no powers of one number, which is at most 1, of the distance")
    sums = np.cumsum(fall, 1)[:, seen + ahead]
    for power in (0.0, 1.0, 0.5):
        factor = first * sums**power
        if (np.abs(factor - factor[:, -1:]) <= _CLOSE * np.abs(factor[:, -1:])).all():
            return Decays(ahead, far, lost, factor[:, -1], power)
    raise Unrecognised("they change with the query otherwise than with the distance")


# ---------------------------------------------------------------------- what the steps say
def _weights(steps: Sequence[Any], n: int, keys: Any) -> Any:
    """Return what steps multiply n scores by, ``(1 or heads, n, n)``."""
    given = frames_for(keys, n)[0]
    library = keys.shape[2].edge.entry.library
    out = library.array(np.ones((1, n, n), np.float32))
    for step in steps:
        if step.name == "mul":
            continue
        filled = step.name in ("fill", "keep") and (step.value == 0 or step.value != step.value)
        if not filled and step.name != "times":
            raise Unrecognised("something other than 0 stands, or is added, in the place of scores")
        at = operand(step, n, keys, given)
        if step.name == "times":
            out = library.as_terms(out) * library.as_terms(at)
        else:
            out = out.masked_fill(at == 0 if step.name == "keep" else at != 0, step.value)
    if any(step.value != step.value for step in steps) and bool((out != out).any()):
        raise Unrecognised("something other than 0 stands in the place of scores")
    return out


def _read_decays(steps: Sequence[Any], deferred: Sequence[Any], keys: Any) -> Decays:
    """Return what steps say of all streams."""
    shown = max(end_of_tables(deferred), *(x.frames for x in deferred)) // frames_of_one(keys)
    n = min([max(4 * _FAR, shown), *(x.ends for x in deferred if x.ends)])

    def values(n: int) -> Array:
        return np.asarray(_weights(steps, n, keys).cpu().numpy())

    whole = values(n)
    for fewer in (n - 1, n // 2):
        if not np.allclose(values(fewer), whole[:, :fewer, :fewer], _CLOSE, 0):
            raise Unrecognised("they depend on frames that a query does not see")
    return decays(whole)


def recognise(steps: Sequence[Any], keys: Any) -> tuple[Decays, Any, Any]:
    """Return the decays that scores are multiplied by, 1 - g and the factors, or raise Unrecognised."""
    tensors: list[Any] = []
    deferred = [x for step in steps for x in step.deferred()]
    if not deferred:
        raise Unrecognised("queries see all keys, which are there at the stream's end")
    library = deferred[0].library
    learned = learned_in(steps, keys)

    def key(by_identity: list[Any]) -> Any:
        return "decays", *(deferred[0].key(step, keys, by_identity) for step in steps)

    def made() -> tuple[Decays, Any, Any]:
        found = now() if learned else _read_decays(steps, deferred, keys)
        return found, library.array(found.lost), library.array(found.factor)

    def now() -> Decays:
        """Look at the first frames alone, as long as what is learned leaves the form that was recognised."""
        by_identity = Whatever()
        kept = deferred[0].answered(key(by_identity), by_identity, lambda: _read_decays(steps, deferred, keys))
        found = decays(np.asarray(_weights(steps, _FAR + 2 + 2 * abs(kept.ahead), keys).cpu().numpy()))
        return (
            found
            if found.ahead == kept.ahead and found.power == kept.power
            else _read_decays(steps, deferred, keys)
        )

    found, lost, factor = deferred[0].answered(key(tensors), tensors, made)
    heads, row = np.arange(len(found.far)), int(found.far.max()) + max(0, -found.ahead)
    column = row + found.ahead

    def at(columns: Any) -> Any:
        return _weights(steps, max(row, column) + 1, keys)[heads, row, columns]

    def lost_of() -> Any:
        ratio = at(column - found.far) / at(column)
        return 1 - ratio if found.far.max() == 1 else -(ratio.log() / library.array(found.far)).expm1()

    def factor_of() -> Any:
        if not found.power:
            return at(column)
        powers = (1 - lost_of()).unsqueeze(-1) ** library.array(np.arange(column + 1.0))
        return at(column) * powers.sum(-1) ** found.power

    return found, library.table(lost_of, lost, keys), library.table(factor_of, factor, keys)


# ---------------------------------------------------------------------- the loop
def summed(scores: Any, v: Any) -> Any:
    """Return what scores without softmax make of values, ``(B, heads, L, features)``."""
    found, lost, factor = read(scores)
    q, k, gates = scores.q * scores.scale, scores.k, scores.gates or ()
    n_heads = max(scores.axes.n_heads, len(found.far))
    q, k, v, *gates = (with_heads(x, n_heads) for x in (q, k, v, *gates))
    y = _loop(q, k, v, found.ahead, lost, gates)
    if found.power:
        ones = ones_of(v.narrow(-1, 0, 1), v.dtype)
        y = y / _loop(ones, ones, ones, found.ahead, lost, ()) ** found.power
    plain = (found.factor == 1).all() and not learned_in(scores.steps, scores.k)
    return y if plain else y * factor.reshape(-1, 1, 1)


def read(scores: Any) -> tuple[Decays, Any, Any]:
    """Return what `recognise` finds in scores; 1 - g is None where it is 0."""
    try:
        found, lost, factor = recognise(scores.steps, scores.k)
        learned = learned_in(scores.steps, scores.k)
        if any(t.numel() > max(1, len(found.far)) for t in learned):
            raise Unrecognised("more than one number per head is learned")
        if scores.gates and (found.power or found.ahead > 0):
            raise Unrecognised("gates are divided by their sum, or see later frames")
    except Unrecognised as error:
        raise NotStreamableError.here("the weights of pairs", f" don't stream: {error}; {REMEDY}") from None
    return found, lost if found.lost.any() or learned else None, factor


def _loop(q: Any, k: Any, v: Any, ahead: int, lost: Any, gates: Sequence[Any]) -> Any:
    """Return the sums of k and v that queries see, seen by them."""
    if ahead > 0:
        q = q.in_order()._padded(ahead, 0)
        k, v = (x.in_order()._padded(0, ahead) for x in (k, v))
    elif ahead < 0:
        k, v, *more = (x.in_order()._padded(-ahead, ahead) for x in (k, v, *gates[1:]))
        gates = [*gates[:1], *more]
    if gates:
        v = v * (gates[0] + gates[1]).exp()
    gone = -_gained(gates[0], "replicate").expm1() if gates else None
    if lost is not None:
        lost = lost.reshape(-1, 1, 1)
        gone = lost if gone is None else gone + lost - gone * lost
    shape = (v.shape[1], v.shape[3], k.shape[3])
    # What slow decays take is subtracted, as exact as it is small; fast ones multiply.
    slow = None if gone is None else gone * (gone < 0.5).to(gone.dtype)
    decays: Any = () if gone is None else (slow, 1 - (gone - slow), 1 - gone)
    streams = [q, k, v, *(decays if gates else ())]
    constant: Any = () if gates else [x.squeeze(-1) for x in decays]

    def body(sums: Any, rest: Any, q: Any, k: Any, v: Any, *more: Any) -> Any:
        new, kept = v.unsqueeze(-1) * k.unsqueeze(-2), sums
        if decays:
            slow, fast, left = (x.unsqueeze(-1) for x in more or constant)
            new, kept = new + rest * left - sums * slow, sums * fast
        else:
            new = new + rest
        sums = kept + new
        return sums, new - (sums - kept), (sums * q.unsqueeze(-2)).sum(-1)

    y = _run(("pairs", "rest"), body, streams, shape)
    return y._padded(-max(ahead, 0), 0)


def _gained(rows: Any, mode: str) -> Any:
    """Return what a frame has more than the one before; of the first 0 by the mode "replicate", or -inf."""
    return rows - rows.in_order()._padded(1, -1, mode=mode, value=np.inf)


def _run(names: Sequence[str], body: Any, streams: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Return the outputs ``(B, heads, L, features)`` of a loop over the frames of streams of that kind.

    The body takes what is carried, each of `names` and of the `shape` of the zeros that it begins as, and frames
    ``(B, heads, features)``; it gives what is carried on, and the output.
    """
    streams = [x.in_order() for x in streams]
    loop = Loop(streams[0].shape[2], 0)
    entry, keys = loop.entry, [(name,) for name in names]
    places, entry.places = entry.places, None  # what happens within is recorded by the loop
    try:
        loop.begin()
        frames = [loop.frame(x, 0) for x in streams]
        line = Line(FRAME, loop.clock.rate, streams[0].edge.dtype, shape)
        dims = ("B", *range(len(shape)))
        given = [StreamTensor.inside(None, dims, loop.placeholder(key, None, None, line)) for key in keys]
        *carried, y = (x.in_order() for x in body(*given, *frames))
        loop.end({key: x.edge for key, x in zip(keys, carried)}, {"y": y.edge})
    finally:
        entry.places = places
    return loop.run(["y"])["y"].with_dims(("B", "L", 0, 1)).permute(0, 2, 1, 3)


# ---------------------------------------------------------------------- what is once for each query
def along(axes: Axes, x: Any) -> tuple[int, Any] | None:
    """Return a stream that meets pairs as ``(B, 1 or heads, L, 1)``, and whether its frames are keys, or queries.

    None where they are neither, or other dimensions don't fit.
    """
    x = streams_of(x)
    if x is None or x.ndim > len(axes.dims) or "B" not in x.dims:
        return None
    own = axes.dims[len(axes.dims) - x.ndim :]
    at = own[x.dims.index("L")]
    if at not in ((QUERIES,), (KEYS,)) or not all(
        isinstance(d, str) or n == 1 or o for d, n, o in zip(x.dims, x.shape, own)
    ):
        return None
    labels = [o if isinstance(d, str) or n != 1 else () for d, n, o in zip(x.dims, x.shape, own)]
    return at == (KEYS,), laid(x, labels, axes.heads, at).unsqueeze(-1)


def met_by(scores: Any, x: Any) -> tuple[int, Any]:
    """Return the same of what meets scores; they refuse what doesn't fit."""
    return along(scores.axes, x) or scores._misuse("met by a stream whose frames are neither queries nor keys")


def met(scores: Any, other: Any) -> Any:
    """Return scores multiplied by a stream of queries or keys, or by other scores of the same pairs."""
    if not hasattr(other, "gates"):
        side, x = met_by(scores, other)
        return scores._copy(**({"k": scores.k * x} if side else {"q": scores.q * x}), is_lowered=False)
    if scores.gates is None:
        scores, other = other, scores
    if other.gates is not None or scores.q.shape[3] != 1:
        scores._misuse("multiplied by others")
    q, k = (a * b for a, b in ((scores.q, other.q), (scores.k, other.k)))
    axes = other.axes if other.axes.n_heads >= scores.axes.n_heads else scores.axes
    scale = scores.scale * other.scale
    return other._copy(q=q, k=k, axes=axes, gates=scores.gates, steps=[*other.steps, *scores.steps], scale=scale)


def over_keys(scores: Any, dim: Any, keepdim: bool, of: Any) -> Any:
    """Return what `of` gives for each query ``(B, heads, L, 1)`` with the dimensions of scores, without keys."""
    if type(dim) is not int or scores.axes.dims[dim] != (KEYS,):
        scores._misuse("summed over another dimension than that of keys")
    dims = [("one",) if d == (KEYS,) else d for d in scores.axes.dims]
    out = shown(of(), dims, scores.axes.heads, (QUERIES, "one"))
    return out if keepdim else out.squeeze(dim)


def total(scores: Any, dim: Any, keepdim: bool) -> Any:
    """Return the sum of scores over keys."""
    ones = ones_of(scores.k.narrow(-1, 0, 1), scores.k.dtype)
    return over_keys(scores, dim, keepdim, lambda: summed(scores, ones))


def greatest(terms: Any, dim: Any, keepdim: bool) -> Any:
    """Return the greatest of terms, of the keys that a query sees."""
    found, lost, _ = read(terms.exp())
    if lost is not None or found.ahead or (found.factor != 1).any():
        terms._misuse("asked for their greatest under other than a causal mask")
    n_heads = terms.axes.n_heads
    rows, columns = (with_heads(x, n_heads) for x in terms.gates)

    def body(most: Any, own: Any, more: Any) -> Any:
        most = (most + more).maximum(own)
        return most, most

    streams = [rows + columns, _gained(rows, "constant")]  # the first frame has gained -inf
    return over_keys(terms, dim, keepdim, lambda: _run(("greatest",), body, streams, (n_heads, 1)))
