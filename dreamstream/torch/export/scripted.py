"""What TorchScript compiles in place of a functional module.

Its code walks a graph held in Python's data, which a compiler can't follow. One call's operations are the same for
any sizes, so they are recorded once, and what is compiled hands its arguments on to them.
"""

from __future__ import annotations

import json
from typing import Any

import torch

__all__ = ["recorded", "scriptable"]

ARGUMENTS = ("x", "lengths", "sos", "eos", "states")


def recorded(module: Any) -> torch.nn.Module:
    """Return one call of a functional module, for any sizes."""
    out: torch.nn.Module = torch.jit.trace(module, module.example(), check_trace=False)
    return out


def scriptable(module: Any) -> torch.nn.Module:
    """Return a module that `torch.jit.script` takes, with the manifest as text."""
    graph = torch.fx.Graph()
    given = [graph.placeholder(name, _type_of(value)) for name, value in zip(ARGUMENTS, module.example())]
    graph.output(graph.call_module("recorded", tuple(given)))
    out = torch.fx.GraphModule({"recorded": recorded(module)}, graph, type(module).__name__)
    out.manifest = json.dumps(module.manifest)  # type: ignore[assignment]
    return out.eval()


def _type_of(value: Any) -> Any:
    """Return the type of a tensor, or of a tuple of tensors."""
    if isinstance(value, tuple):
        return tuple[tuple(torch.Tensor for _ in value)]  # type: ignore[misc]
    return torch.Tensor
