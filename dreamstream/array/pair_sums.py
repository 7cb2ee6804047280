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
from ..stream.mask_recognition import LONGEST, Unrecognised
from .deferred import frames_at, frames_for
from .loop_frames import ones_of
from .loops import FRAME, Loop
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
    """The weights of pairs: ``factor * g ** (i + ahead - j)`` for keys up to i + ahead, and 0 for later ones.

    Attributes
    ----------
    ahead : int
        How many frames behind its own a query sees; negative: how many of the last ones it does not.
    far : ndarray
        For each head a distance at which its decay shows well.
    lost : ndarray
        1 - g for each head.
    factor : ndarray
    power : float
        Of the sum of a query's powers of g, by which its weights are divided.
    """

    ahead: int
    far: Array
    lost: Array
    factor: Array
    power: float


def decays(w: Array) -> Decays:
    """Read decays from weights ``(heads, n, n)``.

    Raises
    ------
    Unrecognised
        Where they are none.
    """
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
        if step.name not in ("times", "fill", "keep") or (step.name != "times" and step.value != 0):
            raise Unrecognised("something other than 0 stands, or is added, in the place of scores")
        at = step.axes.read(step.by.at(lambda length: frames_at(length, n, keys, given)), n)
        if at is None:
            raise Unrecognised(f"they have another shape than scores, at {n} frames")
        if step.name == "times":
            out = out * at
        else:
            out = out.masked_fill(at == 0 if step.name == "keep" else at != 0, 0.0)
    return out


def _said(steps: Sequence[Any], deferred: Sequence[Any], keys: Any) -> Decays:
    """Return what steps say of all streams."""
    span = max(1, frames_for(keys, LONGEST)[0] // LONGEST)
    n = min([max(4 * _FAR, *(x.frames // span for x in deferred)), *(x.ends for x in deferred if x.ends)])

    def values(n: int) -> Array:
        return np.asarray(_weights(steps, n, keys).cpu().numpy())

    whole = values(n)
    for fewer in (n - 1, n // 2):
        if not np.allclose(values(fewer), whole[:, :fewer, :fewer], _CLOSE, 0):
            raise Unrecognised("they depend on frames that a query does not see")
    return decays(whole)


def recognise(steps: Sequence[Any], keys: Any) -> tuple[Decays, Any, Any]:
    """Recognise decays in what scores are multiplied by; return also 1 - g and the factors as constants.

    Raises
    ------
    Unrecognised
        Where they are none.
    """
    tensors: list[Any] = []
    deferred = [x for step in steps for x in step.deferred()]
    if not deferred:
        raise Unrecognised("queries see all keys, which are there at the stream's end")
    key = ("decays", *(deferred[0].key(step, keys, tensors) for step in steps))
    library = deferred[0].library

    def made() -> tuple[Decays, Any, Any]:
        found = _said(steps, deferred, keys)
        return found, library.array(found.lost), library.array(found.factor)

    found, lost, factor = deferred[0].answered(key, tensors, made)
    heads, row = np.arange(len(found.far)), int(found.far.max()) + max(0, -found.ahead)
    column = row + found.ahead

    def at(columns: Any) -> Any:
        return _weights(steps, max(row, column) + 1, keys)[heads, row, columns]

    def lost_of() -> Any:
        ratio = at(column - found.far) / at(column)
        return 1 - ratio if found.far.max() == 1 else -(ratio.log() / library.array(found.far)).expm1()

    sums = ((1 - found.lost[:, None]) ** np.arange(column + 1)).sum(1)
    return (
        found,
        library.table(lost_of, lost, keys),
        library.table(lambda: at(column) * library.array(sums**found.power), factor, keys),
    )


# ---------------------------------------------------------------------- the loop
def summed(scores: Any, v: Any) -> Any:
    """Return what scores without softmax make of values, ``(B, heads, L, features)``."""
    try:
        found, lost, factor = recognise(scores.steps, scores.k)
    except Unrecognised as error:
        raise NotStreamableError.here("the weights of pairs", f" don't stream: {error}; {REMEDY}") from None
    q, k = scores.q * scores.scale, scores.k
    n_heads = max(q.shape[1], k.shape[1], v.shape[1], len(found.far))
    q, k, v = (x if x.shape[1] == n_heads else x.repeat_interleave(n_heads // x.shape[1], 1) for x in (q, k, v))
    y = _loop(q, k, v, found.ahead, lost if found.lost.any() else None)
    if found.power:
        ones = ones_of(v.narrow(-1, 0, 1)).to(v.dtype)
        y = y / _loop(ones, ones, ones, found.ahead, lost if found.lost.any() else None) ** found.power
    return y if (found.factor == 1).all() else y * factor.reshape(-1, 1, 1)


def _loop(q: Any, k: Any, v: Any, ahead: int, lost: Any) -> Any:
    """Return the sums of k and v that queries see, seen by them."""
    q, k, v = (x.in_order() for x in (q, k, v))
    if ahead > 0:
        q = q._through("pad", {"left": ahead, "right": 0})
        k, v = (x._through("pad", {"left": 0, "right": ahead}) for x in (k, v))
    elif ahead < 0:
        k, v = (x._through("pad", {"left": -ahead, "right": 0}) for x in (k, v))
        k, v = (x._through("slice", {"start": 0, "crop": -ahead, "step": 1}) for x in (k, v))
    loop = Loop(q.shape[2], 0)
    entry, key = loop.entry, ("pairs",)
    courses, entry.courses = entry.courses, None  # what happens within is recorded by the loop
    try:
        loop.begin()
        q, k, v = (loop.frame(x, 0) for x in (q, k, v))
        line = Line(FRAME, loop.clock.rate, v.edge.dtype, (v.shape[1], v.shape[2], k.shape[2]))
        state: Any = StreamTensor.inside(None, ("B", 0, 1, 2), loop.place(key, None, None, line))
        state = state if lost is None else state - state * lost.reshape(-1, 1, 1)
        state = (state + v.unsqueeze(-1) * k.unsqueeze(-2)).in_order()
        y = (state * q.unsqueeze(-2)).sum(-1).in_order()
        loop.end({key: state.edge}, {"y": y.edge})
    finally:
        entry.courses = courses
    y = loop.run(["y"])["y"].with_dims(("B", "L", 0, 1)).permute(0, 2, 1, 3)
    return y._through("slice", {"start": ahead, "crop": 0, "step": 1}) if ahead > 0 else y
