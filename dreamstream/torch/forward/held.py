"""What a torch model holds while a forward runs: also what is written in place, and torch's random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...online.held import Held
from ...stream.tree import leaves
from ..private import without_functions, without_subclass


class TorchHeld(Held):
    """What a torch model held when `note` was last called.

    Of tensors that are written into, `writes` keeps a copy when it is told of it.
    """

    _has_settings = True

    def __init__(self, module: torch.nn.Module, *, trace: bool = False) -> None:
        super().__init__(module, trace=trace)
        self.written: set[int] = set()  #: Where the memory begins of what the forward has written into.
        self._own: dict[int, list[Tensor]] | None = None
        self._copies: list[tuple[Tensor, Tensor, Tensor]] = []
        self._within: dict[int, tuple[Any, list[Tensor]]] = {}  # what places held, by identity, with its tensors
        self._on_cuda = any(x.is_cuda for x in module.parameters()) or torch.cuda.is_initialized()

    def writes(self, tensors: Iterable[Any]) -> bool:
        """Note that tensors are about to be written into: what the model holds and shares their memory is kept.

        Returns whether something has not been written into before.
        """
        kept = len(self._copies)
        if self._own is None:
            self._own = {}
            with without_subclass(), without_functions():
                for tensor in self._tensors():
                    self._own.setdefault(_memory(tensor), []).append(tensor)
        for tensor in leaves(list(tensors)):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                found = self._own.pop(memory_of(tensor), ())
                for own in found:
                    self._copies.append((own, own.data, own.detach().clone()))
                    self.written.add(memory_of(tensor))
        return len(self._copies) > kept

    def _tensors(self) -> list[Tensor]:
        """Return the tensors that the model held then, each once."""
        known, held = self._within, [b for b in self._before if not isinstance(b, (np.ndarray, type(None)))]
        with without_subclass(), without_functions():  # most of it was looked through for an earlier call
            self._within = {id(b): known.get(id(b)) or (b, _tensors_in(b)) for b in held}
        return [*{id(x): x for _, tensors in self._within.values() for x in tensors}.values()]

    def _settings(self) -> list[tuple[Callable[[Any], Any], Any]]:
        self._own, self._copies = None, []
        self.written.clear()
        default = torch.default_generator
        settings: list[tuple[Callable[[Any], Any], Any]] = [(default.set_state, default.get_state())]
        if self._generators or self.watched:
            settings += super()._settings()
        if self._on_cuda and torch.cuda.is_initialized():
            settings.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        if self._trace:
            settings.append((torch.set_grad_enabled, torch.is_grad_enabled()))
            settings.append((torch.set_default_dtype, torch.get_default_dtype()))
            settings += [(x.requires_grad_, x.requires_grad) for x in self._tensors() if x.is_leaf]
        return settings

    def restore(self) -> None:
        with torch.no_grad(), without_functions():
            for tensor, data, values in self._copies if self.noted else ():
                if tensor.data_ptr() != data.data_ptr():
                    tensor.data = data
                tensor.copy_(values)
        self._own, self._copies = None, []
        super().restore()


def _tensors_in(held: Any) -> list[Tensor]:
    """Return the tensors among what a place held."""
    values = [*held.values()] if isinstance(held, dict) else [*held]
    found = [x for x in leaves([x for x in values if isinstance(x, (Tensor, tuple))]) if isinstance(x, Tensor)]
    return [x for x in found if x.layout == torch.strided and getattr(x, "_inner", None) is None]


def memory_of(tensor: Tensor) -> int:
    """Return where a tensor's memory begins, which views share."""
    with without_subclass(), without_functions():
        return _memory(tensor)


def _memory(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except RuntimeError:  # a part of a tensor that several processes hold has no memory of its own
        return id(tensor)
