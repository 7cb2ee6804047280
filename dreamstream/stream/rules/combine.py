"""Whether tensors may be combined outside a forward, or enter one together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import StreamIdError, StreamMismatchError
from ..metadata import StreamMetadata

__all__ = ["Starts", "require_same", "require_same_streams", "starts_of_batches", "starts_of_chunks"]

#: Absolute position of each row's first frame; None where it is not known.
Starts = Sequence[int | None]
Known = tuple[int | None, ...] | None


def require_same(
    metas: Sequence[StreamMetadata], starts: Sequence[Starts | None] | None = None, what: str = "this operation"
) -> tuple[StreamMetadata, tuple[int | None, ...] | None]:
    """Return the metadata and starts that all operands share; an error names the streams that differ.

    A start is the absolute position of a row's first frame. None, for an operand or for a row, means not known,
    which agrees with anything. `what` names the operation in messages.
    """
    first = metas[0]
    for meta in metas[1:]:
        if meta is not first and meta != first:
            _refuse(first, meta, what)
    known: list[int | None] | None = None
    for own in starts or ():
        if own is None:
            continue
        if len(own) != len(first):
            raise StreamMismatchError(f"{what}: {len(own)} starts for {len(first)} streams")
        if known is None:
            known = list(own)
            continue
        pairs = list(zip(known, own))
        bad = [r for r, (a, b) in enumerate(pairs) if a is not None and b is not None and a != b]
        if bad:
            a, b = pairs[bad[0]]
            raise StreamMismatchError(
                f"{what}: the operands' starts differ ({a} and {b}): their frames are not the same "
                "part of the stream",
                [first.ids[r] for r in bad],
            )
        known = [b if a is None else a for a, b in pairs]
    return first, None if known is None else tuple(known)


def starts_of_batches(metas: Sequence[StreamMetadata], starts: Sequence[Starts | None]) -> Known:
    """Return the starts of batches that are put one below the other."""
    if all(own is None for own in starts):
        return None
    return tuple(s for meta, own in zip(metas, starts) for s in (own or (None,) * len(meta)))


def starts_of_chunks(metas: Sequence[StreamMetadata], starts: Sequence[Starts | None]) -> Known:
    """Return the starts of chunks that are laid end to end; None for rows that lack frames between them."""
    if any(own is None for own in starts):
        return None
    joined: list[int | None] = []
    for row, known in enumerate(zip(*(own or () for own in starts))):
        ends = [None if s is None else s + int(meta.lengths[row]) for s, meta in zip(known, metas)]
        joined.append(known[0] if all(a == b for a, b in zip(ends, known[1:])) else None)
    return tuple(joined)


def require_same_streams(metas: Sequence[StreamMetadata]) -> StreamMetadata:
    """Return the first metadata of a call's inputs, which hold the same streams, of any lengths (rates, skew)."""
    for meta in metas[1:]:
        _refuse(metas[0], meta, "this call", ("sos", "eos"))
    return metas[0]


def _refuse(
    a: StreamMetadata, b: StreamMetadata, what: str, fields: Sequence[str] = ("sos", "eos", "lengths")
) -> None:
    """Say in which field two metadata differ, if they do, and for which streams."""
    ids, other = a.ids, b.ids
    if ids != other:
        odd = sorted(set(ids) ^ set(other))
        if odd:
            raise StreamIdError(f"{what}: the operands hold different streams", odd)
        moved = [i for i, j in zip(ids, other) if i != j]
        raise StreamIdError(f"{what}: the operands hold the same streams in another order", moved)
    for field in fields:
        bad = np.flatnonzero(getattr(a, field) != getattr(b, field))
        if bad.size:
            x, y = getattr(a, field)[bad[0]], getattr(b, field)[bad[0]]
            raise StreamMismatchError(
                f"{what}: the operands differ in {field} ({x} and {y})", [ids[r] for r in bad]
            )
