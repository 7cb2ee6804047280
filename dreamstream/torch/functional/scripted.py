"""What TorchScript compiles in place of a functional module.

Its code walks a graph held in Python's data, which a compiler can't follow. One call's operations are the same for
any sizes, so they are recorded once.
"""

from __future__ import annotations

import json
import types
from typing import Any

import torch

__all__ = ["scriptable"]


class _Scriptable(torch.nn.Module):
    """A recorded call; the manifest as text."""

    def __init__(self, recorded: torch.nn.Module, manifest: str) -> None:
        super().__init__()
        self.recorded = recorded
        self.manifest = manifest

    def forward(self, x: Any, lengths: Any, sos: Any, eos: Any, states: Any) -> Any:
        return self.recorded(x, lengths, sos, eos, states)


def scriptable(module: Any) -> torch.nn.Module:
    """Return a module that `torch.jit.script` takes: a recorded call and its arguments' types."""
    example = module.example()
    recorded = torch.jit.trace(module, example, check_trace=False)
    names = ("x", "lengths", "sos", "eos", "states")
    forward = types.FunctionType(_Scriptable.forward.__code__, globals(), "forward")
    forward.__annotations__ = dict(zip(names, map(_type_of, example)))
    out = type(type(module).__name__, (_Scriptable,), {"forward": forward})(
        recorded, json.dumps(module.manifest)
    )
    return out.eval()


def _type_of(value: Any) -> Any:
    """Return the type of a tensor, or of a tuple of tensors, as TorchScript names it."""
    if isinstance(value, tuple):
        return tuple[tuple(torch.Tensor for _ in value)]  # type: ignore[misc]
    return torch.Tensor
