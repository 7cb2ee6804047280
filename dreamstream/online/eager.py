"""Eager online mode: a session's call whose values the C kernels compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..array.draws import DROPPING, drop_probability
from ..stream.edge import Edge
from ..stream.place import Operation
from .given import Given
from .session import Call


class EagerCall(Call):
    """A call that computes NumPy values."""

    records = False  #: Whether the operator that runs next is to leave a record of what it did.
    answer: tuple[Any, ...]  #: What the last operator gave: outputs, states, and the record if one was asked for.

    def remember(self, given: Sequence[Mapping[str, Any]]) -> None:
        """Keep for each row what it is given once; of those that go on, what they were given."""
        for i, old in zip(self.ids, self.old):
            self.once.append([np.array(rows[i]) for rows in given] if old is None else old.once)

    def given_once(self, n: int, given: Given, edge: Edge) -> Any:
        """Return the values of the n-th input that is given once, as the forward sees them."""
        return given.stacked(self.ids)

    def compute(
        self, ran: Operation, edges: Sequence[Edge], values: Sequence[Any], weights: Sequence[Any]
    ) -> list[tuple[Any, Edge]]:
        """Run one operator for all rows in one C call."""
        op = ran.op
        inputs: list[Any] = [e.counts for e in edges]
        seen, ended = inputs, self.ended
        if ran.lines[0].static:  # rows that go on have had all of it, and keep nothing of it
            outputs, ended = self.counts_once(op, inputs)
            seen, made = ([np.where(c[:, :1] > 0, 0, c) for c in both] for both in (inputs, outputs))
        else:
            made = outputs = op.counts(inputs, ended, self.ids)
        p = DROPPING.get() and drop_probability(op.name)
        drop = (p, self.draw_keys()) if p else None
        self.answer = op.run(
            values,
            seen,
            made,
            ended,
            self.before(),
            weights,
            False,
            self.ids,
            self.session.prepared(self.n_done - 1, op, weights),
            *((self.records, drop) if self.records or drop else ()),  # those declared in Python know of neither
        )
        results, states = self.answer[:2]
        self.record(states)
        return [(y, Edge(self, line, counts)) for y, line, counts in zip(results, ran.lines, outputs)]
