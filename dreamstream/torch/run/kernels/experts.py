"""Mixture of experts: what chooses, what is chosen, and the experts' products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ....errors import StreamIndexError
from .registry import Step, each_frame, framewise


def logits(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x W^T + b`` by sums in double, of which no order is seen once they are rounded."""
    out = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    return out.to(x.dtype)


def top(x: Tensor, k: int, smallest: bool = False, first: int = 0) -> tuple[Tensor, Tensor]:
    """Return the k greatest elements from number `first` on and their places, the first of equals first."""
    values, indices = torch.sort(x, dim=-1, descending=not smallest, stable=True)
    return values[..., first:k], indices[..., first:k]


def check_experts(name: str, index: Tensor, n: int) -> None:
    """Refuse an index that names no expert, where values are at hand."""
    wrong = (index < -1) | (index >= n)
    if index.device.type == "cpu" and wrong.any():
        raise StreamIndexError(
            f"{name}: expert {int(index[wrong][0])} is out of range, expected 0 to {n - 1}, or -1 for none"
        )


def expert_products(x: Tensor, index: Tensor, weight: Tensor, bias: Tensor | None, live: bool) -> Tensor:
    """Return every vector's products with the matrices of its experts ``(..., k, out)``.

    Where the numbers may be looked at and are at hand, one product for each expert that has some; else each
    choice's matrix is brought to it.
    """
    n_experts, n_out, depth = weight.shape
    lead, k = index.shape[:-1], index.shape[-1]
    vectors = x.unflatten(-1, (-1, depth)).expand(*lead, k, depth).reshape(-1, depth)
    chosen = index.reshape(-1)
    there = (chosen >= 0) & (chosen < n_experts)
    inside = torch.where(there, chosen, 0)
    if live and index.device.type == "cpu":
        order = torch.sort(inside, stable=True)[1]
        sizes = torch.bincount(inside, minlength=n_experts).tolist()
        own = [None] * n_experts if bias is None else bias.unbind()
        grouped = zip(vectors[order].split(sizes), weight.unbind(), own)
        parts = [F.linear(part, w, b) for part, w, b in grouped if len(part)]
        out = (torch.cat(parts) if parts else vectors.new_zeros(0, n_out))[torch.argsort(order)]
    else:
        out = torch.matmul(weight[inside], vectors.unsqueeze(-1)).squeeze(-1)
        out = out if bias is None else out + bias[inside]
    instead = torch.where(chosen == -1, 0.0, torch.nan).to(out.dtype)
    return torch.where(there.unsqueeze(-1), out, instead.unsqueeze(-1)).reshape(*lead, k, n_out)


def combined(x: Tensor, weights: Tensor) -> Tensor:
    """Return the sums of ``x (..., k, n)``, weighted, in the order of the choices."""
    parts = weights.unsqueeze(-1) * x
    out = parts[..., 0, :]
    for j in range(1, x.shape[-2]):
        out = out + parts[..., j, :]
    return out


@framewise("gather")
def gather(step: Step, x: Tensor, index: Tensor) -> Tensor:
    """Return elements of the last feature axis by their places; NaN, or -1, where there is none."""
    there = (index >= 0) & (index < x.shape[-1])
    nowhere = torch.nan if x.is_floating_point() else -1
    return torch.where(there, torch.gather(x, -1, torch.where(there, index, 0).long()), nowhere)


#: Of plain tensors, too.
EXPERTS: dict[str, Callable[..., Any]] = {
    "router": lambda step, x, weight, bias: logits(x, weight, bias),
    "topk": lambda step, x: top(x, step.attributes["k"], *map(step.attributes.get, ("smallest", "first"), (0, 0))),
    "expert_linear": lambda step, x, i, w, b: expert_products(x, i, w, b, step.live).flatten(-2),
    "combine": lambda step, x, weights: combined(x.unflatten(-1, (weights.shape[-1], -1)), weights),
}
each_frame(EXPERTS)
