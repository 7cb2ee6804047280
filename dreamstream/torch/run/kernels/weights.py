"""Products of every frame with constant weights, and rows of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ....stream.within import within
from .positions import there
from .registry import Step, each_frame, framewise, windowed

#: What concerns the gradient of a table, of which the operator's attributes say nothing.
_LOOKED_UP: ContextVar[dict[str, Any]] = ContextVar("dreamstream_embedding", default={})  # noqa: B039


def looking_up(padding_idx: int | None, scale_grad_by_freq: bool, sparse: bool) -> AbstractContextManager[Any]:
    """Let rows of tables that are looked up meanwhile have torch's gradients with these options."""
    options = {"padding_idx": padding_idx, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
    return within(_LOOKED_UP, options)


@framewise("bmm")
def bmm(step: Step, x: Tensor, y: Tensor) -> Tensor:
    """Return products of matrices."""
    return x @ y


@framewise("matmul")
def matmul(step: Step, x: Tensor, weight: Tensor) -> Tensor:
    """Return the products with a matrix ``(n, k)`` for each place along the leading feature axes."""
    lead = x.shape[: x.dim() - step.ranks[0]]
    n_places = weight.dim() - 2
    *axes, _ = step.features[0]
    vectors = x.reshape(*lead, *axes[:n_places], prod(axes[n_places:]), x.shape[-1])
    return (vectors @ weight.transpose(-1, -2)).reshape(*lead, *step.features[0])


each_frame(
    {
        "linear": lambda step, x, weight, bias: F.linear(x, weight, bias),
        "embedding": lambda step, x, weight: F.embedding(x.long(), weight, **_LOOKED_UP.get()),
    }
)


@windowed("table", of_positions=True)
def table(step: Step, *given: Any) -> Tensor:
    """Return the rows at the frames' absolute positions."""
    weight, first = given[-1], step.first[0]  # behind what tells how many frames there are
    at = first[:, None] + torch.arange(step.n[0], device=first.device)
    return weight[there(at.clamp(max=weight.shape[0] - 1), weight)]
