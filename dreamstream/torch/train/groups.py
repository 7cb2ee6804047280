"""What torch's graphs have to do with groups of streams (`dreamstream.online.groups`).

A backward through what the module returned raises until the group has ended (`Exit`).
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakSet, ref

import torch
from torch import Tensor

from ...errors import ModeError
from ...online.groups import Groups, in_mid_file
from ..private import graph_task, will_run


# ---------------------------------------------------------------------- no gradient before the end
class _Owner(Protocol):
    """The session whose groups guard its outputs."""

    @property
    def groups(self) -> Groups: ...


class Guard:
    """Refuses a backward that would go through the outputs of a group that has not ended.

    The first output that a backward reaches looks for all that it will reach, so that no gradient of the module or
    of its inputs has been accumulated when it raises.
    """

    def __init__(self, owner: _Owner) -> None:
        self._owner = ref(owner)  # the graph keeps the guard, and must not keep the session that keeps the graph
        self.exits: WeakSet[Any] = WeakSet()
        self._checked = -1

    def check(self) -> None:
        """Raise ModeError within a backward that comes too early."""
        task = graph_task()
        owner = self._owner()
        if owner is None or task == self._checked:
            return
        early: set[str] = set()
        for group in owner.groups.groups:
            if group.live and not group.live <= early:
                exits = [e for e in list(self.exits) if e.root in group.roots]
                if any(will_run(e) for e in exits):
                    early |= group.live
        if early:
            raise in_mid_file(early)
        self._checked = task


class Exit(torch.autograd.Function):
    """The place where frames leave the module."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, guard: Guard, root: Any) -> Tensor:
        ctx.guard, ctx.root = guard, root
        guard.exits.add(ctx)
        return frames.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.guard.check()
        return grad, None, None


class Cut(torch.autograd.Function):
    """The place where an evaluation's frames leave a module that trains over whole files."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor) -> Tensor:
        return frames.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise ModeError(
            "backward through a call in eval() under a full-file variant: in evaluation streams keep no graph, so "
            "this would be the gradient of a file's last chunk alone; call train() on the model, eval() on the "
            "layers that shall not change (dropout, batch norm), or patch with chunk-wise-aligned"
        )
