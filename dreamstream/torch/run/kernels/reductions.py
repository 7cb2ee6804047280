"""One value of all elements of a frame, or of all frames: so far, or of the whole stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .positions import there
from .registry import Step, Window, framewise, windowed

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
        out: Tensor = torch.linalg.vector_norm(x, a["p"], axes, kept)
        return out
    if kind in ("prod", "argmax", "argmin"):
        return _of_one_axis(kind, x, axes, kept)
    out = getattr(torch, kind)(x, axes, keepdim=kept)
    return out


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
    out: Tensor = y
    return out


START = {"max": -torch.inf, "min": torch.inf}


def _nothing(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor]:
    """Return what there is before the first frame, of one row, in double."""
    start = START.get(step.attributes["kind"], 0.0)
    features = step.features[0]
    return (torch.full((1, *features), start, dtype=torch.float64, device=like.device),)


def _of_rows(numbers: Tensor, like: Tensor) -> Tensor:
    """Return numbers of rows, or of their frames, where they meet values."""
    numbers = there(numbers, like)
    return numbers.reshape(*numbers.shape, *(1,) * (like.dim() - numbers.dim()))


@windowed("cumulative", carries=_nothing)
def cumulative(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the running sums or means."""
    frames, _ = windows[0].new()
    wide = frames.double()
    sums = state[0][:, None] + wide.cumsum(1)
    y = sums
    if step.attributes["kind"] == "mean":
        first = step.first[0]
        so_far = first[:, None] + torch.arange(1, frames.shape[1] + 1, device=first.device)
        y = sums / _of_rows(so_far, sums)
    return (y.to(frames.dtype),), (state[0] + wide.sum(1),)  # zeros stand behind each row's frames


@windowed("reduce_frames", carries=_nothing)
def reduce_frames(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the sum, mean, maximum or minimum of whole streams, where they end."""
    kind, (so_far,) = step.attributes["kind"], state
    frames, n = windows[0].new()
    wide = frames.double()
    if kind in START:
        places = torch.arange(frames.shape[1], device=frames.device)
        valid = _of_rows(places < there(n, frames)[:, None], wide)
        wide = torch.where(valid, wide, START[kind])
        wide = torch.cat([so_far[:, None], wide], 1)
        so_far = wide.amax(1) if kind == "max" else wide.amin(1)
    else:
        so_far = so_far + wide.sum(1)
    y = so_far
    if kind == "mean":
        y = y / _of_rows(windows[0].known.clamp(min=1), y)
    return (y.to(frames.dtype)[:, None][:, : step.n[0]],), (so_far,)


def _zeros(n: int) -> Callable[..., tuple[Tensor, ...]]:
    """What carries n arrays of double zeros, each as a frame of the output."""

    def carries(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros((1, *step.features[0]), dtype=torch.float64, device=like.device),) * n

    return carries


def _valid(frames: Tensor, n: Tensor) -> Tensor:
    """Return which frames of ``(B, most, *features)`` are some of each row's n."""
    places = torch.arange(frames.shape[1], device=frames.device)
    return _of_rows(places < there(n, frames)[:, None], frames)


def _of_ended(step: Step, quotient: Tensor, divisor: Tensor, like: Tensor) -> tuple[Tensor]:
    """Return the quotients of streams that end, whose gradients no other row's division by zero reaches."""
    assert step.ended is not None
    y = quotient / torch.where(_of_rows(step.ended, divisor), divisor, 1)
    return (y.to(like.dtype)[:, None][:, : step.n[0]],)


@windowed("var_frames", carries=_zeros(2))
def var_frames(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the variance of whole streams, where they end, by means and squares so far and of these frames."""
    (x,), (mean, squares) = windows, state
    frames, n = x.new()
    wide = frames.double()
    new, before = (_of_rows(numbers, mean).to(mean) for numbers in (n, x.before))
    own = wide.sum(1) / new.clamp(min=1)
    apart, share = own - mean, new / (before + new).clamp(min=1)
    off = torch.where(_valid(wide, n), wide - own[:, None], 0)
    squares = squares + off.square().sum(1) + apart.square() * before * share
    lost = (_of_rows(x.known, mean).to(mean) - step.attributes["correction"]).clamp(min=0)
    return _of_ended(step, squares, lost, frames), (mean + apart * share, squares)


@windowed("softmax_sum", carries=_zeros(3))
def softmax_sum(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the mean of whole streams' frames, where they end, weighted by the softmax of scores."""
    (top, divisor, total), (scores, values) = state, windows
    a, n = scores.new()
    frames, _ = values.new()
    aligned = a.reshape(*a.shape[:2], *(1,) * (step.ranks[1] - step.ranks[0]), *a.shape[2:]).expand_as(frames)
    hidden = torch.where(_valid(frames, n), aligned, -torch.inf).double()
    started = _of_rows(scores.before, top) > 0
    so_far = torch.where(started, top, -torch.inf)
    largest = torch.cat([so_far[:, None], hidden], 1).detach().amax(1)
    centre = torch.where(largest == -torch.inf, 0, largest)
    by = (hidden - centre[:, None]).exp()
    kept = torch.where(started, (so_far - centre).exp(), 0)
    divisor, total = divisor * kept + by.sum(1), total * kept + (by * frames).sum(1)
    return _of_ended(step, total, divisor, frames), (largest, divisor, total)


@windowed("length", "require")
def length(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return a function of the stream's length."""
    value, codes = step.inputs[0][:, 3], step.attributes["length"]
    for code, c in zip(codes[::2], codes[1::2]):
        value = value + c if code == 0 else value * c if code == 1 else value // c
    return (value[:, None].expand(-1, step.n[0]),), state
