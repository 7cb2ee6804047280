"""The elements of a frame in another order, selection or number."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from .registry import Step, each_frame, framewise


@framewise("permute")
def permute(step: Step, x: Tensor) -> Tensor:
    """Return the feature axes in another order."""
    return x.permute(_behind(x.dim() - step.ranks[0], tuple(step.attributes["order"])))


@lru_cache(maxsize=256)
def _behind(lead: int, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return an order of axes behind `lead` axes that stay."""
    return (*range(lead), *(lead + axis for axis in order))


@framewise("narrow")
def narrow(step: Step, x: Tensor) -> Tensor:
    """Return part of a feature axis, or every step-th element of it."""
    a = step.attributes
    if a["step"] == 1:
        return x.narrow(a["axis"] - step.ranks[0], a["start"], a["length"])
    behind = (slice(None),) * (step.ranks[0] - a["axis"] - 1)
    kept = (..., slice(a["start"], a["start"] + a["length"], a["step"]), *behind)
    return x[kept]


@framewise("pick")
def pick(step: Step, x: Tensor, index: Tensor) -> Tensor:
    """Return positions of a feature axis by their indices."""
    axis = step.attributes["axis"] - step.ranks[0]
    return x.index_select(axis, index.to(x.device).clamp(0, x.shape[axis] - 1))


@framewise("expand")
def expand(step: Step, x: Tensor) -> Tensor:
    """Return feature axes of size 1 repeated."""
    lead, shape = x.dim() - step.ranks[0], step.features[0]
    ones = (1,) * (len(shape) - step.ranks[0])
    return x.reshape(*x.shape[:lead], *ones, *x.shape[lead:]).expand(*x.shape[:lead], *shape)


each_frame(
    {
        "reshape": lambda step, x: x.reshape(*x.shape[: x.dim() - step.ranks[0]], *step.features[0]),
        "cat": lambda step, *xs: torch.cat(xs, step.attributes["axis"] - step.ranks[0]),
    }
)


@framewise("nearest")
def nearest(step: Step, x: Tensor) -> Tensor:
    """Return a feature axis of another size, each element the nearest one below it."""
    a = step.attributes
    axis = a["axis"] - step.ranks[0]
    n, size = x.shape[axis], a["size"]
    places = torch.arange(size, device=x.device)
    if size in (n, 2 * n):
        return x.index_select(axis, places // (size // n))
    step_size = torch.tensor(1 / a["scale"] if a["scale"] > 0 else n, dtype=torch.float32)
    if not a["scale"]:
        step_size = step_size / size
    # in single precision, as torch rounds the places
    places = (places.float() * step_size.to(x.device)).floor().long().clamp(max=n - 1)
    return x.index_select(axis, places)


@framewise("pad_features")
def pad_features(step: Step, x: Tensor) -> Tensor:
    """Return elements added at both ends of a feature axis."""
    a = step.attributes
    return pad_axis(x, a["axis"] - step.ranks[0], a["left"], a["right"], a["mode"], a["value"])


def pad_axis(x: Tensor, axis: int, left: int, right: int, mode: str, value: float = 0.0) -> Tensor:
    """Return x with elements added at both ends of an axis, which counts from the end (-1 is the last)."""
    if not left and not right:
        return x
    if mode in ("zeros", "constant"):
        return F.pad(x, (0, 0) * (-axis - 1) + (left, right), value=value)
    n = x.shape[axis]
    places = torch.arange(-left, n + right, device=x.device)
    if mode == "replicate":
        places = places.clamp(0, n - 1)
    elif mode == "circular":
        places = places.remainder(n)
    else:
        places = (n - 1) - ((n - 1) - places.abs()).abs()
    return x.index_select(axis, places)
