"""What calls in training keep for their backward: the memory of torch's saved tensors, and weights as they were.

torch refuses a backward that needs weights as they were, where they were written into since, and doesn't say whose
they are. So a backward that comes to what a module returned looks first: where a parameter has another version
than it had in the forward, and a node of the graph can't give what it saved, it raises and names the parameters
that were written into.

What is written through `.data` or by NumPy has no version, and torch's backward would be silently wrong. So the
parameters of whole files have a checksum besides, which every call looks at, and every backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from ...array.versions import checksum
from ...errors import ModeError
from ..forward.constants import dtype_of
from ..private import current_node, graph_task, has_lost_what_it_saved


class _Saved:
    """What a node of a graph holds in place of a tensor, and lives as long as the node."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # the tensor itself would be a cycle where it is its operation's output


@contextmanager
def keeping(model: Any) -> Iterator[Callable[[Sequence[Any]], int]]:
    """Give what says how many bytes the graphs of calls within it hold.

    Weights and buffers are left out; memory that several tensors share counts once.
    """
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    held = WeakSet[_Saved]()

    def pack(tensor: Tensor) -> _Saved:
        saved = _Saved(tensor)
        held.add(saved)
        return saved

    def n_bytes(_: Sequence[Any]) -> int:
        storages = [saved.tensor.untyped_storage() for saved in held]
        return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in own}.values())

    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        yield n_bytes


def zeros(model: Any, shape: Sequence[int], dtype: str) -> Tensor:
    """Return frames of zeros on the model's device."""
    device = next((t.device for t in [*model.parameters(), *model.buffers()]), None)
    return torch.zeros(*shape, dtype=dtype_of(dtype), device=device)


class Versions:
    """The versions of a module's parameters in a call."""

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
