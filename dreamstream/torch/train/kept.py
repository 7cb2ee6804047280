"""What calls in training keep for their backward: the memory of torch's saved tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from ..forward.constants import dtype_of


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
