"""A module's buffers during a call that may fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..private import own_buffers, without_functions, without_subclass


class Buffers:
    """A module's buffers during one call: as they were before it, unless it succeeds.

    Those that are assigned anew are known at once; of those that are written into, `writes` keeps a copy when
    it is told of it.
    """

    def __init__(self, module: torch.nn.Module, training: bool) -> None:
        self._module = module
        self._homes = [(own, dict(own)) for own in map(own_buffers, module.modules()) if own] if training else []
        self._own: dict[int, list[Tensor]] | None = None
        self._before: list[tuple[Tensor, Tensor]] = []

    def writes(self, tensors: Iterable[Any]) -> bool:
        """Note that tensors are about to be written into: buffers that share their memory are kept.

        Returns whether one has not been written into before.
        """
        kept = len(self._before)
        if self._own is None:
            self._own = {}
            for buffer in self._module.buffers():
                self._own.setdefault(memory_of(buffer), []).append(buffer)
        for tensor in tensors:
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                for buffer in self._own.pop(memory_of(tensor), ()):
                    self._before.append((buffer, buffer.detach().clone()))
        return len(self._before) > kept

    def restore(self) -> None:
        """Let all buffers be as they were."""
        with torch.no_grad():
            for buffer, before in self._before:
                buffer.copy_(before)
        for home, held in self._homes:
            home.clear()
            home.update(held)


def memory_of(tensor: Tensor) -> int:
    """Return where a tensor's memory begins, which views share."""
    with without_subclass(), without_functions():
        return tensor.untyped_storage().data_ptr()
