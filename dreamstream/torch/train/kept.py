"""What calls in training keep for their backward: the memory of torch's saved tensors, on a copy of the model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...engine.spec import read_specs
from ...errors import ModeError
from ...online import patch_module
from ..forward.constants import dtype_of
from ..tensor.creation import stream_tensor


def kept_by_calls(
    model: Any, spec: Any, rate: Any, dtype: Any, variant: str, chunk: int, ids: Sequence[str], n_calls: int
) -> list[int]:
    """Return the bytes that each of the first calls of streams adds to what their backward needs.

    Weights and buffers are left out; memory that several tensors share counts once. Frames are zeros.
    """
    specs = read_specs(model, spec, rate, dtype)
    if any(s.once for s in specs):
        raise ModeError("audit: what training keeps is not known for inputs that are given once")
    copied = copy.deepcopy(model)
    if not copied.training:
        copied.train()
    patch_module(copied, train_variant=variant).online()
    tensors = [*copied.parameters(), *copied.buffers()]
    own = {t.untyped_storage().data_ptr() for t in tensors}
    device = tensors[0].device if tensors else None
    held: dict[int, Any] = {}
    sizes, outputs = [], []

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return saved.detach()  # the tensor itself would be a cycle where it is its operation's output

    with torch.random.fork_rng(), torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        for k in range(n_calls):
            before = sum(s.nbytes() for s in held.values())
            inputs = {}
            for s in specs:
                frames = torch.zeros(s.shape_of(int(chunk * s.rate / specs[0].rate)), dtype=dtype_of(s.dtype))
                names = [d if isinstance(d, str) else None for d in s.dimensions]
                inputs[s.name] = stream_tensor(
                    [frames] * len(ids), None, names, ids=ids, sos=k == 0, device=device
                )
            outputs.append(copied(*inputs.values()) if len(specs) == 1 else copied(**inputs))
            sizes.append(sum(s.nbytes() for s in held.values()) - before)
            if variant == "chunk-wise-aligned":
                held.clear()
                outputs.clear()
    return sizes
