"""Frames beyond a stream's ends, as the modes of padding see them, runs that begin anywhere, and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...private import is_traced
from .registry import Sees, Step, Window, windowed


def there(tensor: Tensor, like: Tensor) -> Tensor:
    """Return integers of the host where `like` is."""
    return tensor.to(like.device, non_blocking=True)


def spread(numbers: Tensor, like: Tensor) -> Tensor:
    """Return numbers of rows, or of their frames, where `like` is, so that they meet its features."""
    numbers = there(numbers, like)
    return numbers.reshape(*numbers.shape, *(1,) * (like.dim() - numbers.dim()))


def valid(frames: Tensor, n: Tensor) -> Tensor:
    """Return which frames of ``(B, most, *features)`` are some of each row's n."""
    places = torch.arange(frames.shape[1], device=frames.device)
    return spread(places < there(n, frames)[:, None], frames)


def traced() -> bool:
    """Return whether a graph is being made, so that nothing may depend on the numbers at hand."""
    return torch.compiler.is_compiling() or is_traced()


def extent(tensor: Tensor, axis: int) -> int:
    """Return a size as a number, which it is not while torch.jit traces."""
    return int(tensor.shape[axis])


def padded_run(
    x: Window, first: Tensor | int, n: int, mode: str = "constant", value: float = 0.0, end: Tensor | None = None
) -> Tensor:
    """Return n frames from absolute position `first` on, where the stream is padded at both ends.

    `mode` (zeros, constant, replicate, reflect or circular) is what stands before 0 and from total on. `end`,
    ``(B,)``, is where a reflection turns, in place of total; from there back to total it sees `value`.
    """
    if mode in ("zeros", "constant") or inside(x, first, n):
        return x.run(first, n, value)
    if isinstance(first, int):
        first = torch.full_like(x.total, first)
    positions = first[:, None] + torch.arange(n, device=first.device)
    length = x.total[:, None]
    if mode == "replicate":
        return x.take(positions.clamp(min=0).minimum(length - 1))
    if mode == "circular":
        return x.take(positions.remainder(length.clamp(min=1)))
    positions, turn = positions.abs(), length if end is None else end[:, None]
    return x.take(torch.where(positions < turn, positions, 2 * (turn - 1) - positions), value)


def seeing(*names: str, **kind: Any) -> Callable[[Sees], Sees]:
    """Enter a windowed kernel of one input by what it sees and computes (`Kernel.sees`); returns that function."""

    def keep(sees: Sees) -> Sees:
        def run(step: Step, x: Window, *weights: Tensor | None) -> Tensor:
            first, n, fill, compute = sees(step, weights)
            return compute(padded_run(x, first, n, step.attributes.get("mode", "zeros"), fill), *weights)

        windowed(*names, numbers=True, sees=sees, **kind)(run)
        return sees

    return keep


def repeats_by_zeros(step: Step, weights: Sequence[Tensor | None]) -> int:
    """Return 1 where an operator pads with zeros, 0 where its padding is of what it reads (`Kernel.repeats`)."""
    return int(step.attributes["mode"] in ("zeros", "constant"))


def inside(x: Window, first: Tensor | int, n: int) -> bool:
    """Whether it is certain that no row reaches beyond an end."""
    if isinstance(first, int):
        return first >= 0 and first + n <= int(x.total[0])
    return not traced() and bool(((first >= 0) & (first + n <= x.total)).all())


def rows_of(frames: Tensor, index: Tensor) -> Tensor:
    """Return ``frames[b, index[b, i]]`` of ``(B, n, *features)`` for all b and i."""
    base = torch.arange(frames.shape[0], device=frames.device)[:, None] * frames.shape[1]
    flat = frames.flatten(0, 1).index_select(0, (base + index).flatten())
    return flat.reshape(index.shape + frames.shape[2:])


def run_from(frames: Tensor, offset: Tensor | int, n: int) -> Tensor:
    """Return n of the frames ``(B, more, *features)`` of every row, from its own offset on, or from one of all."""
    if isinstance(offset, int) or not offset.dim():  # a trace has tensors for sizes
        return frames[:, offset : offset + n]
    return rows_of(frames, there(offset[:, None] + torch.arange(n, device=offset.device), frames))


def lanes_as_rows(frames: Tensor) -> Tensor:
    """Return frames ``(B, n, lanes, ...)`` as ``(B * lanes, n, ...)``."""
    return frames.transpose(1, 2).flatten(0, 1)


def rows_as_lanes(y: Tensor, lanes: int) -> Tensor:
    """Return rows as the lanes that they were."""
    return rows_apart(y, lanes).transpose(1, 2)


def rows_apart(x: Tensor, lanes: int) -> Tensor:
    """Return rows ``(B * lanes, ...)`` as ``(B, lanes, ...)``."""
    n_rows = -1 if traced() else x.shape[0] // lanes  # a trace holds sizes that it is told
    return x.reshape(n_rows, lanes, *x.shape[1:])


#: Steps of a function of positions, or of a length, by their codes.
STEPS: tuple[Callable[[Tensor, int], Tensor], ...] = (
    torch.add,
    torch.mul,
    lambda at, c: at.div(c, rounding_mode="floor"),
    torch.remainder,
    lambda at, c: at.clamp(max=c),
    lambda at, c: at.clamp(min=c),
)


@windowed("positions", of_positions=True)
def positions(step: Step, *_: Window) -> Tensor:
    """Return the positions of the frames."""
    a, first = step.attributes, step.first[0]
    at: Tensor = first[:, None] + torch.arange(step.n[0], device=first.device)
    for code, c in zip(a["steps"][::2], a["steps"][1::2]):
        at = STEPS[code](at, c)
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
