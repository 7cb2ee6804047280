"""Eager online mode: a session's call whose values the C kernels compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..stream.edge import Edge
from .session import Call

__all__ = ["EagerCall"]


class EagerCall(Call):
    """A call that computes NumPy values."""

    def run(
        self,
        name: str,
        attributes: dict[str, Any],
        op: Any,
        edges: Sequence[Edge],
        values: Sequence[Any],
        weights: Sequence[Any],
    ) -> list[tuple[Any, Edge]]:
        """Run one operator for all rows in one C call."""
        inputs, out = self.advance(name, attributes, op, edges, weights)
        results, states = op.run(
            values,
            inputs,
            [e.counts for e in out],
            self.ended,
            self.before(),
            weights,
            False,
            self.ids,
            self.session.prepared(self.n_done - 1, op),
        )
        self.record(states)
        return list(zip(results, out))
