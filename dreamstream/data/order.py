"""In which order the streams of an epoch begin, and what padding their batches have for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class Padding(NamedTuple):
    """What an epoch's batches hold, padded to their longest rows."""

    frames: int  #: Frames of the streams.
    padding: int  #: Frames of padding behind shorter rows.
    unsorted: int  #: What `padding` would be without ``bucket``.


def order_of(
    n: int, shuffle: bool, seed: int, epoch: int, bucket: int | None, lengths: Sequence[int], lanes: int
) -> list[int]:
    """Return the numbers of an epoch's streams in the order in which they begin.

    Streams are shuffled; then those of a bucket, `bucket` that follow each other, are sorted by length, cut into
    groups of `lanes`, and the groups shuffled again. The numbers drawn depend on seed and epoch alone.
    """
    random = np.random.default_rng([seed, epoch])
    order: list[int] = (random.permutation(n) if shuffle else np.arange(n)).tolist()
    if bucket is None:
        return order
    out: list[int] = []
    for at in range(0, n, bucket):
        alike = sorted(order[at : at + bucket], key=lambda i: -lengths[i])
        groups = [alike[k : k + lanes] for k in range(0, len(alike), lanes)]
        turns = random.permutation(len(groups)).tolist() if shuffle else range(len(groups))
        out += [i for k in turns for i in groups[k]]
    return out


def padding_of(lengths: Sequence[int], chunk: int | None, lanes: int, together: bool) -> int:
    """Return the frames of padding in an epoch whose streams, of these lengths, begin in this order."""
    return sum(len(sizes) * max(sizes) - sum(sizes) for sizes in _batches(lengths, chunk, lanes, together))


def _batches(lengths: Sequence[int], chunk: int | None, lanes: int, together: bool) -> Iterator[list[int]]:
    """Yield the frames of each row of each batch."""
    left: list[int] = []
    waiting = iter(lengths)
    while True:
        n_free = 0 if together and left else lanes - len(left)
        left += [n for _, n in zip(range(n_free), waiting)]
        if not left:
            return
        sizes = [n if chunk is None else min(n, chunk) for n in left]
        yield sizes
        left = [n - size for n, size in zip(left, sizes) if n > size]
