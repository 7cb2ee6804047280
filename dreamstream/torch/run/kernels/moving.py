"""Frames in other places: added, dropped or held back, laid out as features and back, at another rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .positions import padded_run, repeats_by_zeros, run_from, seeing, spread, there, valid
from .registry import Seen, Step, Window, as_they_are, windowed
from .shape import pad_axis


def _padding_repeats(step: Step, weights: Sequence[Tensor | None]) -> int:
    given = any(w is not None for w in weights)  # in place of zeros
    return 0 if given or step.name != "pad" else repeats_by_zeros(step, weights)


def _sees_padded(step: Step, weights: Sequence[Any]) -> Seen:
    """Return how many frames a padded stream has of its own, from where on."""
    return step.first[0] - step.attributes["left"], step.n[0], step.attributes["value"], as_they_are


@windowed("pad", "pad_to", numbers=True, repeats=_padding_repeats, sees=_sees_padded, shift=lambda a: a["left"])
def pad(step: Step, x: Window, more: Tensor | None = None) -> Tensor:
    """Return the stream with frames before and behind it."""
    a = step.attributes
    out = padded_run(x, step.first[0] - a["left"], step.n[0], a["mode"], a["value"])
    if more is None:
        return out
    first = step.first[0] if isinstance(step.first[0], Tensor) else torch.full_like(x.total, step.first[0])
    at = first[:, None] + torch.arange(step.n[0], device=first.device)
    own = (at >= a["left"]) & (at < a["left"] + x.total[:, None])
    rows = torch.where(at < a["left"], at, at - x.total[:, None]).clamp(0, len(more) - 1)
    return torch.where(spread(own, out), out, more[there(rows, out)])


@windowed(
    "pad_to_multiple",
    numbers=lambda step: step.attributes["mode"] != "before",
    sees=_sees_padded,
    shift=lambda a: a["left"],
)
def pad_to_multiple(step: Step, x: Window) -> Tensor:
    """Return the stream with frames before it, and behind it up to a whole number of blocks."""
    a = step.attributes
    if a["mode"] == "before":  # all of them
        return x.run(step.first[0] - (a["least"] - x.total).clamp(min=0), step.n[0], a["value"])
    more = (-x.total).remainder(a["multiple"]).maximum(a["least"] - x.total)
    right = a["right"] + more
    end = x.total.maximum(right.clamp(min=a["left"]) + 1)  # of too short a stream that is mirrored
    return padded_run(x, step.first[0] - a["left"], step.n[0], a["mode"], a["value"], end)


@seeing("slice", "cut", repeats=1, shift=lambda a: -a["start"] if a["step"] == 1 else None)
def part(step: Step, weights: Sequence[Any]) -> Seen:
    """Take every step-th frame from a start on; where they end the counts say."""
    start, hop = step.attributes["start"], step.attributes["step"]
    compute = as_they_are if hop == 1 else lambda frames, *_: frames[:, ::hop]
    return start + step.first[0] * hop, (step.n[0] - 1) * hop + 1, 0.0, compute


@windowed("put")
def put(step: Step, x: Window, v: Window) -> Tensor:
    """Return the stream with frames replaced by another's."""
    a, first = step.attributes, step.first[0]
    alone = step.live and not torch.is_grad_enabled() and (a["step"], a["crop"]) == (1, 0)
    if alone and bool((first >= a["start"]).all()):
        return v.run(first - a["start"], step.n[0])  # all of them
    at = first[:, None] + torch.arange(step.n[0], device=first.device)
    replaced = (at >= a["start"]) & (at < x.total[:, None] - a["crop"]) & ((at - a["start"]) % a["step"] == 0)
    own, other = x.run(first, step.n[0]), v.run(first - a["start"], step.n[0])
    return torch.where(spread(replaced, own), other, own)


def _sees_own(step: Step, weights: Sequence[Any]) -> Seen:
    """Return how many frames become as many of the result, from where on."""
    return step.first[0], step.n[0], 0.0, as_they_are


@windowed("sync", numbers=True, repeats=1, sees=_sees_own, shift=lambda a: 0)
def sync(step: Step, x: Window, *_: Window) -> Tensor:
    """Return the stream as far as the others have come."""
    if step.live and not isinstance(step.first[0], int):
        return x.joined(step.first[0], step.last[0] - step.first[0])
    return x.run(step.first[0], step.n[0])


@seeing("frame", repeats=1)
def frame(step: Step, weights: Sequence[Any]) -> Seen:
    """Take windows of successive frames."""
    hop, size, dilation = (step.attributes[name] for name in ("step", "size", "dilation"))
    span = dilation * (size - 1) + 1

    def compute(frames: Tensor) -> Tensor:
        return frames.unfold(1, span, hop)[..., ::dilation].movedim(-1, 2)

    return step.first[0] * hop, (step.n[0] - 1) * hop + span, 0.0, compute


@seeing("delay", repeats=1)
def delay(step: Step, weights: Sequence[Any]) -> Seen:
    """Take the frames of some time before."""
    return step.first[0] - step.attributes["frames"], step.n[0], 0.0, as_they_are


@windowed("hold", "spread")
def first(step: Step, x: Window, *_: Window) -> Tensor:
    """Return what is given once, or the first frame, once for every new frame."""
    frame = x.run(torch.zeros_like(step.first[0]), 1)
    return frame.expand(-1, step.n[0], *step.features[0])


@windowed("flip")
def flip(step: Step, x: Window) -> Tensor:
    """Return the frames from the last to the first."""
    places = torch.arange(step.n[0], device=step.first[0].device)
    return x.take(x.total[:, None] - 1 - step.first[0][:, None] - places)


windowed("unstack", repeats=1)(lambda step, x: x.new()[0].flatten(1, 2))  # the first feature axis along the stream
windowed("repeat_frames", repeats=1)(lambda step, x: x.new()[0].repeat_interleave(step.attributes["times"], 1))


@seeing("overlap_add", repeats=1)
def overlap_add(step: Step, weights: Sequence[Any]) -> Seen:
    """Lay windows over each other and add them, in double: each hop of frames is a sum of parts of windows."""
    hop, size = step.attributes["step"], step.frames[0][0]
    reach = -(-size // hop)  # windows over a frame, at most
    first = step.first[0] // hop
    within = step.first[0] - first * hop  # known of a call, at most hop - 1 in a trace
    n = ((within if isinstance(within, int) else hop - 1) + step.n[0] - 1) // hop + 1

    def compute(windows: Tensor) -> Tensor:
        whole = pad_axis(windows, 2 - windows.dim(), 0, reach * hop - size, "zeros")
        parts = whole.double().unflatten(2, (reach, hop))
        y = sum(parts[:, reach - 1 - r : reach - 1 - r + n, r] for r in range(reach))
        return run_from(y.flatten(1, 2).to(windows.dtype), within, step.n[0])

    return first - (reach - 1), n + reach - 1, 0.0, compute


@windowed("resample", repeats=lambda step, weights: step.attributes["new"])
def resample(step: Step, x: Window, kernel: Tensor) -> Tensor:
    """Return the sums over each phase's taps.

    A phase's taps lie within `half` of its output. They are gathered, and the kernel's structural zeros meet
    no frame: what stands there may not have come yet.
    """
    a = step.attributes
    orig, new, half, width = a["orig"], a["new"], a["half"], a["width"]
    centres = torch.arange(new) * orig
    begin = -((half - centres) // new)  # of a phase's taps, from where its block of `orig` frames begins
    taps = begin[:, None] + torch.arange(2 * half // new + 1)
    used = taps <= ((centres + half) // new)[:, None]

    block = step.first[0] // new
    n = (step.n[0] + new - 2) // new + 1
    low, span = -(half // new), (new - 1) * orig // new + 2 * half // new + 2
    frames = x.run(block * orig + low, (n - 1) * orig + span)
    n_rows, features = frames.shape[0], frames.shape[2:]
    at = (torch.arange(n)[:, None, None] * orig + taps - low).flatten()
    seen = frames.flatten(2).index_select(1, there(at, frames)) if features else frames[:, at, None]
    seen = seen.reshape(n_rows, n, *taps.shape, -1)
    seen = torch.where(there(used, frames)[..., None], seen, 0)
    factors = kernel[:, 0].gather(1, there((taps + width).clamp(max=kernel.shape[2] - 1), kernel))
    y = torch.einsum("bqptf,pt->bqpf", seen, factors).flatten(1, 2)
    y = run_from(y, step.first[0] - block * new, step.n[0])
    return y.reshape(n_rows, -1, *features)


@windowed("sort")
def sort(step: Step, x: Window) -> tuple[Tensor, Tensor]:
    """Return the frames in order, and where they were; what fills rows comes last, behind its equals."""
    frames, down = x.run(step.first[0], step.n[0]), bool(step.attributes["descending"])
    wide = frames.to(torch.uint8) if frames.dtype == torch.bool else frames
    if wide.is_floating_point():
        last = -torch.inf if down else torch.nan
    else:
        last = torch.iinfo(wide.dtype).min if down else torch.iinfo(wide.dtype).max
    values, indices = torch.where(valid(frames, x.total), wide, last).sort(stable=True, dim=1, descending=down)
    return values.to(frames.dtype), indices
