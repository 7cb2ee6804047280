"""Torch's functions that choose among elements, where somebody else orders them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...array.hook import CHOICE

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


_COMPARE = frozenset(
    ("ge", "gt", "le", "lt", "__eq__", "__ne__", "eq", "ne", "greater_equal", "greater", "less_equal", "less")
)


def _compared(choice: Any, said: Any, a: Any, b: Any) -> Any:
    """Return how a and b compare, where one is a tensor of floats."""
    given = [t.detach().cpu().numpy() if isinstance(t, torch.Tensor) else t for t in (a, b)]
    if not all(isinstance(g, float) or getattr(getattr(g, "dtype", None), "kind", "f") == "f" for g in given):
        return said
    told = choice.compared(*given, said.cpu().numpy())
    return said if told is None else torch.from_numpy(told).to(said.device)


class Choosing(TorchFunctionMode):
    """Within it, choices are those of `CHOICE`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        choice, given = CHOICE.get(), _GIVEN.get(name)
        if choice is not None and name in _COMPARE and isinstance(result, torch.Tensor):
            return _compared(choice, result, *args) if len(args) == 2 else result
        if choice is None or given is None or not isinstance(args and args[0], torch.Tensor):
            return result
        x, dim, largest, k = given(*args, **(kwargs or {}))
        if not isinstance(dim, int) or not x.is_floating_point() or not x.ndim:
            return result
        order = choice.order(x.detach().movedim(dim, -1).cpu().numpy(), largest)
        if order is None:
            return result
        places = torch.from_numpy(order[..., :k]).to(x.device).movedim(-1, dim)
        own = result if isinstance(result, torch.Tensor) else result[1]
        values = x.gather(dim, places)
        values, places = (t if own.ndim == x.ndim else t.squeeze(dim) for t in (values, places))
        return places if own is result else type(result)((values, places))
