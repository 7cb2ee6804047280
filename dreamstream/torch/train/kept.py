"""What calls in training keep for their backward: the memory of torch's saved tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..forward.constants import dtype_of


@contextmanager
def keeping(model: Any) -> Iterator[Callable[[Sequence[Any]], int]]:
    """Give what says how many bytes the calls within it have saved, since there were no outputs to go back from.

    Weights and buffers are left out; memory that several tensors share counts once.
    """
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    held: dict[int, Any] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return saved.detach()  # the tensor itself would be a cycle where it is its operation's output

    def n_bytes(outputs: Sequence[Any]) -> int:
        if not outputs:
            held.clear()
        return sum(s.nbytes() for s in held.values())

    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        yield n_bytes


def zeros(model: Any, shape: Sequence[int], dtype: str) -> Tensor:
    """Return frames of zeros on the model's device."""
    device = next((t.device for t in [*model.parameters(), *model.buffers()]), None)
    return torch.zeros(*shape, dtype=dtype_of(dtype), device=device)
