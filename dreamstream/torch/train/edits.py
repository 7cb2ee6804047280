"""Weights that are written into between a forward and its backward: torch's error, with the parameters' names.

torch refuses such a backward where it needs the values as they were, and doesn't say whose they are. So a backward
that comes to what a module returned looks first: where a parameter has another version than it had in the forward,
and a node of the graph can't give what it saved, it raises and names the parameters that were written into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...errors import ModeError
from ..private import current_node, has_lost_what_it_saved


class Versions:
    """The versions of a module's parameters in a call.

    Parameters
    ----------
    names : sequence of str
    parameters : sequence of Tensor
    """

    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
        self.names, self.parameters = names, parameters
        self.before = [p._version for p in parameters]

    @property
    def are_now(self) -> bool:
        """Whether nothing was written into since."""
        return self.before == [p._version for p in self.parameters]

    def watch(self, frames: Tensor) -> None:
        """Let a backward that comes to these frames look first whether weights are as they were."""
        if frames.grad_fn is not None:
            frames.grad_fn.register_prehook(self._check)

    def _check(self, _: Any) -> None:
        if self.are_now:
            return
        edited = [n for n, p, v in zip(self.names, self.parameters, self.before) if p._version != v]
        todo, seen = [current_node()], set[Any]()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if has_lost_what_it_saved(node):
                raise ModeError(
                    f"backward: it needs values as they were in the forward, but since then the parameter "
                    f"{', '.join(edited)} was written into in place (an optimizer's step before the "
                    "backward?); go back first, or write into a copy"
                )
            todo += [n for n, _ in node.next_functions]
