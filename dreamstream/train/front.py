"""What a trainer does in one way with modules of torch and in another with those of dreamstream."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import autograd
from ..array import creation
from ..array.stream_creation import stream_tensor
from ..array.stream_tensor import StreamTensor
from ..nn.module import Module
from ..online.handle import patch_of
from ..online.held import state_of
from ..online.homes import is_generator
from ..stream.foreign import bridge


def is_stream(x: Any) -> bool:
    """Whether this is a stream tensor of either front end."""
    return isinstance(x, StreamTensor) or (hasattr(x, "meta") and hasattr(x, "stream_axis"))


def is_native(model: Any) -> bool:
    """Whether a model is of dreamstream.nn."""
    return isinstance(model, Module)


def no_grad_of(model: Any) -> Any:
    """Return the class of contexts in which nothing is recorded for gradients."""
    return autograd.no_grad if is_native(model) else torch_module().no_grad


def taken(model: Any, x: Any) -> Any:
    """Return a stream tensor as the model takes it: of its front end, on its device. All else stays as it is."""
    if not is_stream(x):
        return x
    given = isinstance(x, StreamTensor)
    if is_native(model):
        if given:
            return x
        rows = [x[i].detach().cpu().numpy() for i in x.ids]
        return stream_tensor(rows, x.meta, x.names, rate=x.rate, restart=x.restart)
    device = next((p.device for p in model.parameters()), None)
    if not given:
        return x if device is None else x.to(device)
    torch: Any = bridge()
    frames = [torch_module().from_numpy(np.array(x[i])) for i in x.ids]
    return torch.stream_tensor(frames, x.meta, x.names, rate=x.rate, restart=x.restart, device=device)


def modes_of(model: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return which modules are in training, for `set_modes`."""
    return [(m, {k: m.__dict__[k] for k in _MODES if k in m.__dict__}) for m in model.modules()]


def set_modes(modes: list[tuple[Any, dict[str, Any]]]) -> None:
    """Let modules be in the modes that they had."""
    for module, before in modes:
        for name in _MODES:
            module.__dict__.pop(name, None)
        module.__dict__.update(before)


_MODES = ("training", "told_to_train")


# ---------------------------------------------------------------------- random numbers
def drawn() -> dict[str, Any]:
    """Return the states of all generators that a step may draw from."""
    state = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "dreamstream": creation.generator().bit_generator.state,
    }
    if "torch" in sys.modules:
        torch = torch_module()
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_drawn(state: Mapping[str, Any]) -> None:
    """Let generators go on from these states."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    creation.generator().bit_generator.state = state["dreamstream"]
    if "torch" in state:
        torch_module().set_rng_state(state["torch"])
    if "cuda" in state:
        torch_module().cuda.set_rng_state_all(state["cuda"])


def keys_of(model: Any) -> dict[str, Any]:
    """Return what keys of streams that start will follow from, and the states of the modules' generators."""
    patch: Any = patch_of(model)
    draws = getattr(patch.session, "draws", None)
    keys = {} if draws is None else {"number": draws.number, "lives": dict(draws.lives)}
    return {**keys, "generators": {name: state_of(x)[1] for name, x in _generators(model)}}


def set_keys(model: Any, state: Mapping[str, Any] | None) -> None:
    """Let the keys of streams that start, and the generators, follow from what `keys_of` returned."""
    patch: Any = patch_of(model)
    draws = getattr(patch.session, "draws", None)
    if draws is not None and state and "number" in state:
        draws.number, draws.lives = state["number"], dict(state["lives"])
    states = (state or {}).get("generators", {})
    for name, x in _generators(model):
        if name in states:
            state_of(x)[0](states[name])


def _generators(model: Any) -> list[tuple[str, Any]]:
    """Return the generators of random numbers that are modules' attributes, by path."""
    own = [(f"{path}.{k}", x) for path, part in model.named_modules() for k, x in part.__dict__.items()]
    return [(name, x) for name, x in own if is_generator(x)]


def torch_module() -> Any:
    """Return torch, which is imported where it is needed."""
    import torch

    return torch
