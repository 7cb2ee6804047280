"""How tokens were routed: counts by expert, entropy, margins and drops, in total and per stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RoutingStatistics"]

#: Margins below this are near ties.
NEAR = 1e-4

Array = NDArray[Any]


class _Sums:
    """What is added up of some tokens."""

    def __init__(self, n: int, history: bool = False) -> None:
        self.history: list[Array] | None = [] if history else None
        self.tokens = self.weighed = self.choices = self.dropped = self.near = self.margins = 0
        self.counts = np.zeros(n, np.int64)
        self.margin, self.least, self.entropy, self.switches, self.pairs = 0.0, np.inf, 0.0, 0, 0
        self.probability = np.zeros(n)
        self.last: Array | None = None

    def add(self, index: Array, logits: Array | None, margin: Array | None) -> None:
        self.tokens += len(index)
        self.choices += index.size
        self.dropped += int((index < 0).sum())
        self.counts += np.bincount(index[(index >= 0) & (index < len(self.counts))], minlength=len(self.counts))
        logits, margin = (
            None if a is None else a[~np.isnan(a.reshape(len(a), -1)).any(-1)] for a in (logits, margin)
        )
        if logits is not None and len(logits):
            self.weighed += len(logits)
            shifted = logits - logits.max(-1, keepdims=True)
            p = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
            self.probability += p.sum(0)
            self.entropy -= float((p * np.log(np.maximum(p, 1e-300))).sum())
        if margin is not None and len(margin):
            self.margin += float(margin.sum())
            self.margins += len(margin)
            self.least = min(self.least, float(margin.min()))
            self.near += int((margin < NEAR).sum())

    def follow(self, first: Array) -> None:
        """Count how often neighbouring frames' first experts differ."""
        first = first if self.last is None else np.append(self.last, first)
        self.switches += int((np.diff(first) != 0).sum())
        self.pairs += max(len(first) - 1, 0)
        self.last = first[-1:]

    def include(self, other: _Sums) -> None:
        """Add what another has; experts of equal numbers together."""
        names = "tokens weighed choices dropped near margins margin entropy switches pairs"
        for name in names.split():
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least = min(self.least, other.least)
        self.counts[: len(other.counts)] += other.counts
        self.probability[: len(other.counts)] += other.probability

    def as_dict(self) -> dict[str, Any]:
        n = max(self.weighed, 1)
        kept = max(int(self.counts.sum()), 1)
        load = self.counts / kept
        mean = self.counts.mean()
        experts = {} if self.history is None else {"experts": np.concatenate([*self.history])}
        return {
            "tokens": self.tokens,
            "counts": self.counts.copy(),
            "load": load,
            "dead": int((self.counts == 0).sum()),
            "cv": float(self.counts.std(ddof=1) / mean) if len(load) > 1 and mean else 0.0,
            "balance": float(len(load) * (load * self.probability / n).sum()),
            "probability": self.probability / n,
            "entropy": float(-(load * np.log(np.maximum(load, 1e-300))).sum()),
            "token_entropy": self.entropy / n,
            "margin": self.margin / max(self.margins, 1),
            "least_margin": float(self.least),
            "near_ties": self.near / max(self.margins, 1),
            "dropped": self.dropped / max(self.choices, 1),
            "switches": self.switches / max(self.pairs, 1),
            **experts,
        }


class RoutingStatistics:
    """Sums over what a layer's tokens were routed to, all of them and those of each stream.

    With `history` every choice of each stream is kept.
    """

    def __init__(self, n: int, history: bool = False) -> None:
        self.n, self.history = n, history
        self.total, self.streams = _Sums(n), dict[str, _Sums]()

    @classmethod
    def of(cls, parts: Sequence[RoutingStatistics]) -> RoutingStatistics:
        """Return the sums of several layers."""
        out = cls(max((part.n for part in parts), default=1))
        for part in parts:
            out.total.include(part.total)
            for stream, sums in part.streams.items():
                out.streams.setdefault(stream, _Sums(out.n)).include(sums)
        return out

    def add(
        self, index: Array, logits: Array | None, margin: Array | None, rows: Sequence[tuple[str, int]] | None
    ) -> None:
        """Add tokens ``(n, k)``, with their logits ``(n, experts)`` and margins ``(n,)``.

        `rows` says whose they are, stream after stream: its id and how many.
        """
        self.total.add(index, logits, margin)
        at = 0
        for stream, n in rows or ():
            part = slice(at, at + n)
            if not n:
                continue
            sums = self.streams.setdefault(stream, _Sums(self.n, self.history))
            sums.add(index[part], *(None if a is None else a[part] for a in (logits, margin)))
            before = sums.switches, sums.pairs
            sums.follow(index[part, 0])
            if sums.history is not None:
                sums.history.append(index[part].astype(np.int32))
            self.total.switches += sums.switches - before[0]
            self.total.pairs += sums.pairs - before[1]
            at += n

    def as_dict(self) -> dict[str, Any]:
        """Return numbers by name, and under "streams" those of each stream by id."""
        return {**self.total.as_dict(), "streams": {i: sums.as_dict() for i, sums in self.streams.items()}}
