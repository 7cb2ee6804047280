"""Weights that are written into between a forward and its backward: torch's error, with the parameters' names.

torch refuses such a backward where it needs the values as they were, and doesn't say whose they are. So a backward
that comes to what a module returned looks first: where a parameter has another version than it had in the forward,
and a node of the graph can't give what it saved, it raises and names the parameters that were written into.

What is written through `.data` or by NumPy has no version, and torch's backward would be silently wrong. So the
parameters of whole files have a checksum besides, which every call looks at, and every backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...array.versions import checksum
from ...errors import ModeError
from ..private import current_node, graph_task, has_lost_what_it_saved


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
        self._contents: list[tuple[str, Tensor, int, int]] | None = None
        self._checked = -1

    def of_now(self, whole_files: bool) -> Versions:
        """Return the versions of a new call, with checksums if it is of whole files: these, if they hold still."""
        if not self.are_now or self._overwritten():
            return Versions(self.names, self.parameters).of_now(whole_files)
        if whole_files and self._contents is None:
            values = [(n, p.detach()) for n, p in zip(self.names, self.parameters) if _is_plain(p)]
            self._contents = [(n, x, x._version, _checksum(x)) for n, x in values]
        return self

    @property
    def are_now(self) -> bool:
        """Whether torch knows of nothing that was written into since."""
        return self.before == [p._version for p in self.parameters]

    def _overwritten(self) -> list[str]:
        """Return the parameters that hold something else, though their versions are the same."""
        return [n for n, x, v, c in self._contents or () if x._version == v and _checksum(x) != c]

    def watch(self, frames: Tensor) -> None:
        """Let a backward that comes to these frames look first whether weights are as they were."""
        if frames.grad_fn is not None:
            frames.grad_fn.register_prehook(self._check)

    def _check(self, _: Any) -> None:
        if graph_task() != self._checked:
            if unseen := self._overwritten():
                raise ModeError(
                    f"backward: it needs values as they were in the forward, but since then the parameter "
                    f"{', '.join(unseen)} was written into where torch doesn't see it (.data, .numpy()); go back "
                    "first, or write into a copy"
                )
            self._checked = graph_task()
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


def _is_plain(p: Tensor) -> bool:
    """Whether a parameter lies in memory that can be read at once."""
    return p.device.type == "cpu" and p.layout == torch.strided and type(p.detach()) is Tensor


def _checksum(values: Tensor) -> int:
    return checksum(values.contiguous().reshape(-1).view(torch.uint8).numpy())
