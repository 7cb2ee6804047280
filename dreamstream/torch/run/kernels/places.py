"""What follows from the absolute positions of frames."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .positions import there
from .registry import Step, Window, windowed

_STEPS: tuple[Callable[[Tensor, int], Tensor], ...] = (
    torch.add,
    torch.mul,
    lambda at, c: at.div(c, rounding_mode="floor"),
    torch.remainder,
    lambda at, c: at.clamp(max=c),
    lambda at, c: at.clamp(min=c),
)


@windowed("positions")
def positions(step: Step, *_: Window) -> Tensor:
    """Return the positions of the frames."""
    a, first = step.attributes, step.first[0]
    at: Tensor = first[:, None] + torch.arange(step.n[0], device=first.device)
    for code, c in zip(a["steps"][::2], a["steps"][1::2]):
        at = _STEPS[code](at, c)
    return at.to(step.device or at.device, getattr(torch, a["to"]))


@windowed("rotary")
def rotary(step: Step, window: Window, given: Tensor | None = None) -> Tensor:
    """Return pairs of features turned by angles that grow with the position, which are float64."""
    a, first = step.attributes, step.first[0]
    x = window.run(first, step.n[0])
    turned = a["features"] or x.shape[-1]
    if given is None:
        powers = torch.arange(turned // 2, dtype=torch.float64, device=x.device) / (turned // 2)
        given = a["base"] ** -powers
    at = there(first[:, None] + torch.arange(step.n[0], device=first.device), x).double() * a["scale"]
    angles = at[..., None] * given.double()
    shape = (*at.shape, *(1 for _ in x.shape[3:]), turned // 2)
    cos, sin = (y.to(x.dtype).reshape(shape) for y in (angles.cos(), angles.sin()))
    part, rest = x[..., :turned], x[..., turned:]
    if a["form"] == "pairs":
        p, q = part[..., ::2], part[..., 1::2]
        out = torch.stack([p * cos - q * sin, q * cos + p * sin], -1).flatten(-2)
    else:
        p, q = part[..., : turned // 2], part[..., turned // 2 :]
        out = torch.cat([p * cos - q * sin, q * cos + p * sin], -1)
    return torch.cat([out, rest], -1) if turned < x.shape[-1] else out
