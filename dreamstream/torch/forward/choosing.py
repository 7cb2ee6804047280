"""Torch's functions that choose among elements, where somebody else orders them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...array.reductions import CHOICE

__all__ = ["Choosing"]


def _ordered(input: Any, dim: int = -1, descending: bool = False, *, stable: Any = None) -> tuple[Any, ...]:
    return input, dim, descending, None


def _topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, ...]:
    return input, dim, largest, k


def _extreme(largest: bool) -> Callable[..., tuple[Any, ...]]:
    def given(input: Any, dim: Any = None, keepdim: bool = False) -> tuple[Any, ...]:
        return input, dim, largest, 1

    return given


#: What is chosen, along which dimension, whether the greatest come first, and how many.
_GIVEN: dict[str, Callable[..., tuple[Any, ...]]] = {
    "topk": _topk,
    "sort": _ordered,
    "argsort": _ordered,
    **{name: _extreme(True) for name in ("max", "argmax")},
    **{name: _extreme(False) for name in ("min", "argmin")},
}


class Choosing(TorchFunctionMode):
    """Within it, choices are those of `CHOICE`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        choice, given = CHOICE.get(), _GIVEN.get(getattr(func, "__name__", ""))
        if choice is None or given is None or not isinstance(args and args[0], torch.Tensor):
            return result
        x, dim, largest, k = given(*args, **(kwargs or {}))
        if not isinstance(dim, int) or not x.is_floating_point() or not x.ndim:
            return result
        order = choice(x.detach().movedim(dim, -1).cpu().numpy(), largest)
        if order is None:
            return result
        places = torch.from_numpy(order[..., :k]).to(x.device).movedim(-1, dim)
        own = result if isinstance(result, torch.Tensor) else result[1]
        values = x.gather(dim, places)
        values, places = (t if own.ndim == x.ndim else t.squeeze(dim) for t in (values, places))
        return places if own is result else type(result)((values, places))
