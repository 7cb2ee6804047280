"""Models as plain modules, whose states are arguments and results: what exporters take."""

from __future__ import annotations

from typing import Any

import torch

from ...engine import Engine, compile
from ...errors import NotStreamableError
from .graph import read_graph
from .module import FunctionalModule

__all__ = ["FunctionalModule", "functionalize"]


def functionalize(
    model: Any, spec: Any = None, rate: Any = 1, dtype: Any = "float32", skew: int = 0
) -> FunctionalModule:
    """Return a streaming model as a plain module, ``(x, lengths, sos, eos, states) -> (y, lengths, states)``.

    `torch.jit.trace`, `torch.jit.script` and `torch.export` take it. It gives the frames that the engine gives, in
    the same calls.

    Parameters
    ----------
    model : torch.nn.Module, Module or Engine
        A torch model's parameters are the returned module's own; other weights are copied. An engine has its spec.
        A functional module is returned as it is.
    spec, rate, dtype, skew
        As for :func:`dreamstream.compile`.

    Returns
    -------
    FunctionalModule

    Raises
    ------
    CaptureError, NotStreamableError
        As for :func:`dreamstream.compile`; where a layer keeps more the longer a stream lasts.
    """
    if isinstance(model, FunctionalModule):
        return model
    engine = model if isinstance(model, Engine) else compile(model, spec, rate, dtype, skew=skew, verify=False)
    for s in engine.inputs:
        if s.once:
            instead = (
                "make it a constant of the model"
                if s.rate
                else "make it an input with L, of one frame for each of the others'"
            )
            raise NotStreamableError(
                f"input {s.name} is given once, with the start of a stream, for which an exported module has no "
                f"place; {instead}"
            )
    own: dict[str, torch.Tensor] = {}
    if isinstance(model, torch.nn.Module):
        own = dict([*model.named_buffers(remove_duplicate=False), *model.named_parameters(remove_duplicate=False)])
    return FunctionalModule(engine, read_graph(engine), own)
