"""One value of all elements along feature axes, in every frame."""

from __future__ import annotations

import torch

from .registry import Step, framewise

Tensor = torch.Tensor


@framewise("reduce_features")
def reduce_features(step: Step, x: Tensor) -> Tensor:
    """Return torch's reduction of the operator's kind."""
    a, rank = step.attributes, step.ranks[0]
    kind, kept = a["kind"], bool(a["keepdim"])
    axes = sorted(axis - rank for axis in a["axes"] or range(rank))
    if kind == "var":
        return torch.var(x, axes, correction=a["correction"], keepdim=kept)
    if kind == "std":
        return torch.std(x, axes, correction=a["correction"], keepdim=kept)
    if kind == "norm":
        return torch.linalg.vector_norm(x, a["p"], axes, kept)
    if kind in ("prod", "argmax", "argmin"):
        return _of_one_axis(kind, x, axes, kept)
    return getattr(torch, kind)(x, axes, keepdim=kept)


def _of_one_axis(kind: str, x: Tensor, axes: list[int], kept: bool) -> Tensor:
    """Return what torch reduces along one axis only: the axes are joined, the last runs fastest."""
    others = [axis for axis in range(-x.dim(), 0) if axis not in axes]
    if x.dtype == torch.bool and kind != "prod":
        x = x.to(torch.uint8)
    joined = x.permute(*others, *axes).flatten(len(others))
    y = getattr(torch, kind)(joined, -1)
    if kept:
        for axis in axes:
            y = y.unsqueeze(axis + x.dim())
    return y
