"""One value of all elements of a frame, or of all frames: so far, or of the whole stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .positions import STEPS, spread, there, valid
from .registry import Onwards, Step, Window, framewise, windowed


@framewise("reduce_features")
def reduce_features(step: Step, x: Tensor) -> Tensor:
    """Return torch's reduction of the operator's kind."""
    a, rank = step.attributes, step.ranks[0]
    kind, kept = a["kind"], bool(a["keepdim"])
    axes = sorted(axis - rank for axis in a["axes"] or range(rank))
    if kind in ("var", "std"):
        return getattr(torch, kind)(x, axes, correction=a["correction"], keepdim=kept)
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


@framewise("cumulative_within")
def cumulative_within(step: Step, x: Tensor) -> Tensor:
    """Return torch's running reduction along an axis."""
    kind, axis = step.attributes["kind"], step.attributes["axis"] - step.ranks[0]
    if kind == "mean":
        n = torch.arange(1, x.shape[axis] + 1, device=x.device)
        return x.cumsum(axis) / n.reshape(-1, *(1,) * (-1 - axis))
    if kind[-3:] in ("max", "min"):
        return (x.cummax(axis) if kind[-3:] == "max" else x.cummin(axis))[kind.startswith("arg")]
    name = {"sum": "cumsum", "prod": "cumprod", "logsumexp": "logcumsumexp"}[kind]
    return getattr(x, name)(axis)


# ---------------------------------------------------------------------- what frames are folded into
def _start(kind: str, like: Tensor) -> float:
    """Return what changes nothing in a fold: what there is before the first frame."""
    if kind == "prod":
        return 1
    if kind == "logsumexp":
        return -torch.inf
    if kind[-3:] not in ("max", "min"):
        return 0
    most = torch.inf if like.is_floating_point() else torch.iinfo(like.dtype).max
    return -most - (not like.is_floating_point()) if kind[-3:] == "max" else most


def _nothing(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
    """Return what there is before the first frame, of one row: in double, or as integers."""
    kind, shape = step.attributes["kind"], (1, *step.features[0])
    wide = torch.float64 if like.is_floating_point() else torch.int64
    made = [torch.full(shape, _start(kind, like), dtype=wide, device=like.device)]
    if kind == "logsumexp" or kind.startswith("arg") or _shares(step):
        made.append(torch.zeros(shape, dtype=torch.int64 if kind.startswith("arg") else wide, device=like.device))
    return tuple(made)


def _shares(step: Step) -> bool:
    """Return whether equal frames share an extreme's gradient, so that they are counted."""
    return step.live and step.name == "reduce_frames" and step.attributes["kind"] in ("max", "min")


def _among(frames: Tensor, n: Tensor | None, other: float) -> Tensor:
    """Return the frames that are some of each row's n, or all where that is None; in place of others, `other`."""
    return frames if n is None else torch.where(valid(frames, n), frames, other)


def _fold(
    kind: str, frames: Tensor, n: Tensor | None, state: Sequence[Tensor], before: Tensor | None = None
) -> tuple[Tensor, ...]:
    """Return what is carried once a call's frames are folded into it, of which there were some `before`."""
    so_far, *more = state
    wide = _among(frames.to(so_far.dtype), n, _start(kind, frames))
    if kind in ("sum", "mean"):
        return (so_far + wide.sum(1),)
    if kind == "prod":
        return (so_far * wide.prod(1),)
    every = torch.cat([so_far[:, None], wide], 1)
    every = every.detach() if more else every
    found = every.amin(1) if kind.endswith("min") else every.amax(1)
    if kind == "logsumexp":
        centre = _centre(found)
        kept = torch.where(so_far == found, 1, (so_far - centre).exp())
        if wide.requires_grad or more[0].requires_grad:  # beside an infinite frame the others have no gradient
            spoilt = found == torch.inf
            more = [torch.where(spoilt & (so_far != found), more[0].detach(), more[0])]
            wide = torch.where(spoilt[:, None] & (wide != torch.inf), wide.detach(), wide)
        return found, more[0] * kept + (wide - centre[:, None]).exp().sum(1)
    if not more:
        return (found,)
    assert before is not None and n is not None
    if not kind.startswith("arg"):
        return _shared(found, so_far, more[0], wide, valid(frames, n))
    hits = (every == found[:, None]) | ((every != every) & (found != found)[:, None])
    places = torch.cat([more[0][:, None], _places(before, wide).expand_as(wide)], 1)
    return found, torch.where(hits, places, torch.iinfo(torch.int64).max).amin(1)


def _shared(found: Tensor, so_far: Tensor, count: Tensor, wide: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return the extremes `found`, whose gradients all equal frames share, and how many of these there were."""
    before = torch.where(so_far == found, count, 0).detach()
    equal = (real & (wide == found[:, None])).to(wide.dtype)
    n = before + equal.sum(1)
    if wide.requires_grad or so_far.requires_grad:
        whole = torch.where((n == 0) & (found == found), 1, n)  # nothing equals NaN, which has torch's 0 / 0
        shares = before / whole * _of_gradient(so_far) + (equal / whole[:, None] * _of_gradient(wide)).sum(1)
        found = found + shares
    return found, n


def _of_gradient(x: Tensor) -> Tensor:
    """Return zeros whose gradient is that of x."""
    out = x.clone()
    with torch.no_grad():
        out.zero_()
    return out


def _places(before: Tensor, frames: Tensor) -> Tensor:
    """Return where new frames stand in their streams."""
    behind = torch.arange(frames.shape[1], device=frames.device)
    return spread(there(before, frames)[:, None] + behind, frames)


def _centre(largest: Tensor) -> Tensor:
    return torch.where(largest.isinf(), 0, largest)


def _log(largest: Tensor, weights: Tensor, started: Tensor) -> Tensor:
    """Return the logarithm of a sum of powers, of those that have begun, whose gradients no other's reaches."""
    return torch.where(started, torch.where(started, weights, 1).log() + _centre(largest), -torch.inf)


def _products(so_far: Tensor, wide: Tensor, kind: torch.dtype) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return products so far, and what is carried; with gradients as torch has them at 0, infinities and NaN."""
    if not wide.shape[1]:
        return wide, (so_far,)
    if not wide.is_floating_point():
        y = so_far[:, None] * wide.cumprod(1)
        return y, (so_far * wide.prod(1),)
    learns = wide.requires_grad or so_far.requires_grad
    y, product = _Products.apply(so_far, wide, kind) if learns else _products_of(so_far, wide)
    return y, (product,)


def _products_of(so_far: Tensor, wide: Tensor) -> tuple[Tensor, Tensor]:
    y, product = so_far[:, None] * wide.cumprod(1), so_far * wide.prod(1)
    met = (wide == 0).any(1) | _met_zero(so_far)
    none = torch.full_like(product, torch.nan)
    return y, torch.where(product == product, product, torch.where(met, -none, none))


def _met_zero(product: Tensor) -> Tensor:
    """Return whether products so far have met a 0: a NaN's sign says so, as in `csrc/ops/fold.h`."""
    return (product == 0) | (product.isnan() & product.signbit())


class _Products(torch.autograd.Function):
    """Products so far. What goes back to the call before is no slope, but what torch makes slopes of.

    Before the first 0 that is the sum of products times their slopes, behind it the slope of the products from
    there on; `csrc/ops/fold_back.c` says the same.
    """

    @staticmethod
    def forward(ctx: Any, so_far: Tensor, wide: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        y, product = _products_of(so_far, wide)
        ctx.save_for_backward(so_far, wide, y.to(kind).to(y.dtype))
        return y, product

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, last: Tensor) -> tuple[Tensor, Tensor, None]:
        so_far, x, y = ctx.saved_tensors
        met = _met_zero(so_far)
        zeros = (x == 0).to(torch.int64).cumsum(1) + met[:, None]
        before, one = zeros == 0, zeros == 1
        reached = torch.where(before, g * y, 0)
        reached[:, -1] += torch.where(before[:, -1], last, 0)
        reached = reached.flip(1).cumsum(1).flip(1)
        first = one & (x == 0)
        run = torch.where(one & ~first, x, 1).cumprod(1)  # from the first 0 on
        slope = (run * torch.where(one, g, 0)).sum(1) + torch.where(one[:, -1] & (last != 0), last * run[:, -1], 0)
        left = torch.cat([so_far[:, None], y[:, :-1]], 1)
        dx = torch.where(before, reached / x, torch.where(first, slope[:, None] * left, 0))
        return torch.where(met, slope, reached[:, 0]), dx, None


def _cumulated(
    kind: str, frames: Tensor, n: Tensor | None, state: Sequence[Tensor], before: Tensor | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return what comes of all frames so far, and what is carried; n are each row's frames, None where all are."""
    so_far, *more = state
    if kind in ("sum", "mean"):
        y = so_far[:, None] + frames.cumsum(1, dtype=so_far.dtype)
        folded = (y[:, -1],) if n is None else _fold(kind, frames, n, state)
        if kind == "mean":
            assert before is not None
            y = y / (_places(before, y) + 1)
        return y.to(frames.dtype), folded
    wide = frames.to(so_far.dtype)
    if kind == "prod":
        y, folded = _products(so_far, _among(wide, n, 1), frames.dtype)
    elif kind == "logsumexp":
        folded = _fold(kind, frames, n, state)
        before = _log(so_far, more[0], more[0] != 0)
        y = torch.cat([before[:, None], wide], 1).logcumsumexp(1)[:, 1:]
    else:
        every = torch.cat([so_far[:, None], wide], 1)
        y, at = every.cummax(1) if kind.endswith("max") else every.cummin(1)
        ends = torch.full((len(frames),), frames.shape[1]) if n is None else n
        last = spread(there(ends, at)[:, None], at).expand(-1, -1, *at.shape[2:])
        folded, y = (y.gather(1, last)[:, 0],), y[:, 1:]  # of equals the last has the gradient
        if more:
            assert before is not None
            began = spread(there(before, at)[:, None], at)
            at = torch.where(at == 0, more[0][:, None], began + at - 1)
            folded, y = (*folded, at.gather(1, last)[:, 0]), at[:, 1:]
    return y if kind.startswith("arg") else y.to(frames.dtype), folded


def _cumulates_onwards(step: Step, weights: Sequence[Any]) -> Onwards:
    """Return what goes on by new frames alone; see `Kernel.onwards`."""
    kind = step.attributes["kind"]
    return lambda frames, lengths, weights, state: _cumulated(kind, frames, lengths, state)


def _counts_no_frames(step: Step) -> bool:
    """Whether what comes of frames does not depend on how many there were before."""
    return step.attributes["kind"] != "mean" and not step.attributes["kind"].startswith("arg")


@windowed("cumulative", carries=_nothing, numbers=_counts_no_frames, onwards=_cumulates_onwards)
def cumulative(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return what comes of all frames so far."""
    (x,) = windows
    y, folded = _cumulated(step.attributes["kind"], *x.new(), state, x.before)
    return (y,), folded


@windowed("reduce_frames", carries=_nothing)
def reduce_frames(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return what comes of whole streams, where they end."""
    kind, (like, n) = step.attributes["kind"], windows[0].new()
    folded = _fold(kind, like, n, state, windows[0].before)
    y = folded[0] if kind in ("max", "min") else folded[-1]
    if kind == "mean":
        assert step.ended is not None
        y = y / spread(windows[0].known.maximum((~step.ended).to(torch.int64)), y)  # of no frames: NaN
    if kind == "logsumexp":
        assert step.ended is not None
        y = _log(folded[0], y, spread(step.ended, y).expand_as(y))
    return ((y if kind.startswith("arg") else y.to(like.dtype))[:, None][:, : step.n[0]],), folded


def nothing_chosen(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
    """Return what there is before the first frame, of `chosen_frame`."""
    return _nothing(step, weights, like)[:1]


def chosen_frame(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the extremes of whole streams, where they end; of equal frames the first alone has the gradient."""
    kind, (x,), (so_far,) = step.attributes["kind"], windows, state
    frames, n = x.new()
    folded = so_far
    if frames.shape[1]:
        wide = torch.where(valid(frames, n), frames.to(so_far.dtype), _start(kind, frames))
        found = (wide.max(1) if kind == "max" else wide.min(1)).values
        better = (found > so_far if kind == "max" else found < so_far) | (found != found)
        better = torch.where(spread(x.before, found) == 0, True, better & (so_far == so_far))
        folded = torch.where(better & spread(n > 0, found), found, so_far)
    return (folded.to(frames.dtype)[:, None][:, : step.n[0]],), (folded,)


def _zeros(n: int) -> Callable[..., tuple[Tensor, ...]]:
    """What carries n arrays of double zeros, each as a frame of the output."""

    def carries(step: Step, weights: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros((1, *step.features[0]), dtype=torch.float64, device=like.device),) * n

    return carries


def _of_ended(step: Step, quotient: Tensor, divisor: Tensor, like: Tensor) -> tuple[Tensor]:
    """Return the quotients of streams that end, whose gradients no other row's division by zero reaches."""
    assert step.ended is not None
    y = quotient / torch.where(spread(step.ended, divisor), divisor, 1)
    return (y.to(like.dtype)[:, None][:, : step.n[0]],)


@windowed("var_frames", carries=_zeros(2))
def var_frames(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the variance of whole streams, where they end, by means and squares so far and of these frames."""
    (x,), (mean, squares) = windows, state
    frames, n = x.new()
    wide = frames.double()
    new, before = (spread(numbers, mean).to(mean) for numbers in (n, x.before))
    own = wide.sum(1) / new.clamp(min=1)
    apart, share = own - mean, new / (before + new).clamp(min=1)
    off = torch.where(valid(wide, n), wide - own[:, None], 0)
    squares = squares + off.square().sum(1) + apart.square() * before * share
    lost = (spread(x.known, mean).to(mean) - step.attributes["correction"]).clamp(min=0)
    return _of_ended(step, squares, lost, frames), (mean + apart * share, squares)


@windowed("softmax_sum", carries=_zeros(3))
def softmax_sum(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the mean of whole streams' frames, where they end, weighted by the softmax of scores."""
    (top, divisor, total), (scores, values) = state, windows
    (a, n), (frames, _) = scores.new(), values.new()
    a, frames = a[:, : frames.shape[1]], frames[:, : a.shape[1]]  # a graph may have padded them to other widths
    aligned = a.reshape(*a.shape[:2], *(1,) * (step.ranks[1] - step.ranks[0]), *a.shape[2:]).expand_as(frames)
    hidden = torch.where(valid(frames, n), aligned, -torch.inf).double()
    started = spread(scores.before, top) > 0
    so_far = torch.where(started, top, -torch.inf)
    largest = torch.cat([so_far[:, None], hidden], 1).detach().amax(1)
    centre = torch.where(largest == -torch.inf, 0, largest)
    by = (hidden - centre[:, None]).exp()
    kept = torch.where(started, (so_far - centre).exp(), 0)
    divisor, total = divisor * kept + by.sum(1), total * kept + (by * frames).sum(1)
    weights_of_some = torch.where(spread(scores.known, divisor) > 0, divisor, 1)
    return _of_ended(step, total, weights_of_some, frames), (largest, divisor, total)


@windowed("length", "require")
def length(step: Step, *_: Window) -> Tensor:
    """Return a function of the stream's length."""
    assert step.total is not None
    value, codes = step.total(), step.attributes["length"]
    for code, c in zip(codes[::2], codes[1::2]):
        value = STEPS[code](value, c)
    return value[:, None].expand(-1, step.n[0])
