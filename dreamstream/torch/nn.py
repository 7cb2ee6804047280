"""Features of speech and mixtures of experts as torch modules: those of `dreamstream.nn`, by the same names.

On plain tensors they compute as any module does, with gradients; patched they stream, and compiled they run in the
engine.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..array import draws
from ..errors import NotStreamableError, ShapeError
from ..nn import cepstra, features, functional as native, mixing, routing, routing_models
from ..nn.native_ops import Ops, first_come, rows_of
from .forward.conversions import with_value
from .forward.running import current
from .functional import of_streams
from .private import without_functions
from .run.kernels.experts import EXPERTS, check_experts
from .tensor import StreamTensor

__all__ = [
    "MFCC", "DCGate", "Deltas", "EmbeddingGate", "Experts", "FMoE", "FMoELinear", "FMoETransformerMLP",
    "FasterGate", "GShardGate", "GatedExperts", "KaldiFbank", "KaldiMFCC", "LogMel", "NaiveGate", "NoisyGate",
    "SlidingCMVN", "SpecAugment", "SwipeGate", "SwitchGate", "TopKGate", "ZeroGate",
]  # fmt: skip


# ---------------------------------------------------------------------- functions
def is_stream(x: Any) -> bool:
    return isinstance(x, StreamTensor)


def _either(name: str) -> Callable[..., Any]:
    """A function of streams inside a forward, or of plain tensors."""
    inside, kernel = of_streams(getattr(native, name)), EXPERTS[name]

    def run(x: Any, *args: Any, **attributes: Any) -> Any:
        if is_stream(x):
            return inside(x, *args, **attributes)
        return kernel(SimpleNamespace(attributes=attributes, live=True), x, *args)

    return run


_CHOSEN = {name: _either(name) for name in EXPERTS}


def _products(x: Any, index: Any, weight: Tensor, bias: Tensor | None) -> Any:
    k, depth = index.shape[-1], weight.shape[-1]
    if not is_stream(x):
        if x.shape[:-1] != index.shape[:-1] or x.shape[-1] not in (depth, k * depth):
            raise ShapeError(
                f"expert_linear: expected an input (..., {depth}) or (..., {k * depth}) for an index of shape "
                f"{tuple(index.shape)}, got {tuple(x.shape)}"
            )
        check_experts("expert_linear", index, len(weight))
    return _CHOSEN["expert_linear"](x, index, weight, bias)


def _of_values(x: Any, function: Callable[[Tensor], Tensor], what: str) -> Any:
    if not is_stream(x):
        return function(x)
    forward = current()
    inner = forward.unwrap(x)
    if inner.value is None:
        raise NotStreamableError.here(what, " looks at a batch, which an engine has not")
    with without_functions():  # what it draws is each frame's own
        return forward._wrapped(with_value(inner, function))


def _symbolic(x: Any) -> bool:
    inner = current().unwrap(x) if is_stream(x) else None
    return inner is not None and inner.value is None and not draws.is_in_loop(inner)


def _limited(index: Any, limit: Callable[[int], int], n: int) -> Any:
    def drop(value: Tensor) -> Tensor:
        rows = value.detach().reshape(-1, value.shape[-1]).cpu().numpy()
        return torch.from_numpy(first_come(rows, limit(len(rows)), n)).to(value.device).reshape(value.shape)

    return _of_values(index, drop, "capacity")


def _drawn(draw: Callable[..., Tensor], of_frames: Callable[..., Any], what: str) -> Callable[..., Any]:
    def run(gate: Any, like: Any) -> Any:
        goes_on, name = is_stream(like) and current().goes_on, type(gate).__name__
        inner = current().unwrap(like) if is_stream(like) else None
        if inner is not None and draws.is_in_loop(inner):
            return current()._wrapped(draws.in_loop(name, inner, of_frames))

        def fill(value: Tensor) -> Tensor:
            if goes_on:
                numbers = of_frames(name, inner, tuple(value.shape[1:]))
                return torch.from_numpy(numbers).to(value)
            return draw(value.shape, generator=gate.random, dtype=value.dtype).to(value.device)

        return _of_values(like, fill, what)

    return run


def _random(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)


def _parameter(*shape: int, bound: float = 0.0) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.empty(shape).uniform_(-bound, bound) if bound else torch.zeros(shape))


def _array(x: Any) -> Any:
    return (current().unwrap(x).value if is_stream(x) else x).detach().cpu().numpy()


def _pair(spectrum: Any) -> tuple[Any, Any]:
    return spectrum.real, spectrum.imag


_OPS = Ops(
    elsewhere=(torch, F),
    rows=lambda x: rows_of(current().unwrap(x)) if is_stream(x) else None,
    array=_array,
    **{**_CHOSEN, "expert_linear": _products},
    linear=lambda d, n, bias: torch.nn.Linear(d, n, bias=bias),
    parameter=_parameter,
    zeros=torch.zeros,
    random=_random,
    normal=_drawn(torch.randn, draws.normal, "noise"),
    uniform=_drawn(torch.rand, draws.uniform, "random_routing"),
    limited=_limited,
    is_stream=is_stream,
    is_symbolic=_symbolic,
    check_experts=check_experts,
    is_integer=lambda index: (
        not (index.dtype.is_floating_point or index.dtype.is_complex or index.dtype is torch.bool)
    ),
    gelu=torch.nn.GELU,
    silu=torch.nn.SiLU,
    naive=lambda: NaiveGate,
    module_list=torch.nn.ModuleList,
    is_module=lambda m: isinstance(m, torch.nn.Module),
    is_list=lambda m: isinstance(m, torch.nn.ModuleList),
    checked=lambda name, x: x,
    tensor=torch.from_numpy,
    constant=lambda values, like: torch.from_numpy(values).to(like.dtype),
    linear_of=F.linear,
    keeps_tables=False,
    rfft=lambda x, n: _pair(torch.fft.rfft(x, n)),
    stft=lambda x, n, hop, **how: _pair(torch.stft(x, n, hop, **how | {"return_complex": True})),
)


# ---------------------------------------------------------------------- features of speech
class LogMel(features.Bands, torch.nn.Module, ops=_OPS): ...


class KaldiFbank(features.KaldiBands, torch.nn.Module, ops=_OPS): ...


class MFCC(cepstra.MelCepstra, torch.nn.Module, ops=_OPS): ...


class KaldiMFCC(cepstra.KaldiCepstra, torch.nn.Module, ops=_OPS): ...


class Deltas(cepstra.Slopes, torch.nn.Module, ops=_OPS): ...


class SlidingCMVN(cepstra.SlidingNorm, torch.nn.Module, ops=_OPS): ...


class SpecAugment(cepstra.Masks, torch.nn.Module, ops=_OPS): ...


# ---------------------------------------------------------------------- gates
class ZeroGate(routing.Zero, torch.nn.Module, ops=_OPS): ...


class NaiveGate(routing.Naive, torch.nn.Module, ops=_OPS): ...


class FasterGate(routing.Faster, torch.nn.Module, ops=_OPS): ...


class SwipeGate(routing.Swipe, torch.nn.Module, ops=_OPS): ...


class NoisyGate(routing.Noisy, torch.nn.Module, ops=_OPS): ...


class SwitchGate(routing.Switch, torch.nn.Module, ops=_OPS): ...


class GShardGate(routing.GShard, torch.nn.Module, ops=_OPS): ...


class DCGate(routing.DC, torch.nn.Module, ops=_OPS): ...


class EmbeddingGate(routing_models.Embedding, torch.nn.Module, ops=_OPS): ...


class TopKGate(routing_models.TopK, torch.nn.Module, ops=_OPS): ...


# ---------------------------------------------------------------------- experts
class FMoELinear(mixing.Stacked, torch.nn.Module, ops=_OPS): ...


class Experts(mixing.MLPs, torch.nn.Module, ops=_OPS):
    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Take the weights of single experts, too."""
        found = mixing.stacked(state_dict, prefix, self.num_expert, torch.cat)
        if found.keys() != state_dict.keys():
            for key in set(state_dict) - set(found):
                del state_dict[key]
            state_dict.update(found)
        super()._load_from_state_dict(state_dict, prefix, *args)


class GatedExperts(mixing.Gated, torch.nn.Module, ops=_OPS): ...


class FMoE(mixing.Mixture, torch.nn.Module, ops=_OPS): ...


class FMoETransformerMLP(mixing.MixtureOfMLPs, torch.nn.Module, ops=_OPS): ...


_OPS.stacked, _OPS.experts = FMoELinear, Experts
