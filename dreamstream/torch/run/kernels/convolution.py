"""Convolutions along the stream, and over planes one axis of which is the stream.

Transposed ones are seen from the outputs: which inputs reach them, and where theirs begin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...tensor.padding import runs, to_device
from .positions import extent, inside, lanes_as_rows, padded_run, repeats_by_zeros, rows_as_lanes, run_from, seeing
from .registry import Seen, Step, Window, windowed
from .shape import pad_axis


def _one_tap(step: Step, weights: Sequence[Any]) -> Callable[..., Tensor] | None:
    """Return what runs where a kernel has one tap."""
    a = step.attributes
    if weights[0].shape[2] > 1 or (a["stride"], a["left"], a["right"]) != (1, 0, 0):
        return None
    if a["groups"] > 1:
        return lambda step, x, weight, bias: _products(step, x.unsqueeze(0), weight, bias)[0]
    return lambda step, x, weight, bias: F.linear(x, weight.flatten(1), bias)


def _sees_spans(step: Step, weights: Sequence[Any]) -> Seen:
    """Return what a convolution reads: frames from where the first output's window begins."""
    a = step.attributes
    span = a["dilation"] * (extent(weights[0], 2) - 1) + 1
    first = step.first[0] * a["stride"] - a["left"]
    compute = _KnownWay(step) if step.live else partial(_products, step)
    return first, (step.n[0] - 1) * a["stride"] + span, 0.0, compute


class _KnownWay:
    """Computes `_products`, having asked once which way is best for frames of a shape."""

    def __init__(self, step: Step) -> None:
        self._step, self._ways = step, dict[Any, Callable[..., Tensor]]()
        self._memory: Any = None  # the weight's, of which the last product took the matrix
        self._matrix: Any = None

    def __call__(self, frames: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        way = self._ways.get(frames.shape)
        if way is None:
            way = self._ways[frames.shape] = _way(self._step, frames, weight)
        return way(frames, weight, bias)

    def windows(self, rows: int, weights: Sequence[Any]) -> tuple[int, int, int] | None:
        """Return taps, stride and dilation where an evaluation takes so many rows' windows, laid side by side."""
        a, n = self._step.attributes, rows * self._step.n[0]
        weight = weights[0]
        if len(self._step.features[0]) > 1 or a["groups"] > 1 or n * weight[0].numel() > _CACHED:
            return None
        return weight.shape[2], a["stride"], a["dilation"]

    def of_windows(self, windows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the products with windows ``(all rows' windows, channels * taps)``, as `F.linear` gives them."""
        matrix = self._matrix
        if weight.data_ptr() != self._memory or not weight.is_contiguous():
            matrix = weight.flatten(1).t()
            if type(weight) is torch.nn.Parameter:  # others are computed, and let go of behind each call
                self._memory, self._matrix = matrix.data_ptr(), matrix
        return windows.mm(matrix) if bias is None else torch.addmm(bias, windows, matrix)


@windowed("conv1d", numbers=True, repeats=repeats_by_zeros, alone=_one_tap, sees=_sees_spans)
def conv1d(step: Step, x: Window, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the windows' products."""
    first, n, _, compute = _sees_spans(step, (weight, bias))
    a = step.attributes
    stride, lengths = a["stride"], _run_lengths(step, a["stride"], n - (step.n[0] - 1) * a["stride"], weight)
    if lengths is None or not (a["mode"] in ("zeros", "constant") or inside(x, first, n)):
        return compute(padded_run(x, first, n, a["mode"]), weight, bias)
    frames = x.joined(first, lengths).unsqueeze(0)
    begins, counts = lengths.cumsum(0) - lengths, step.last[0] - step.first[0]
    places = to_device(runs((begins // stride).numpy(), counts.numpy()), frames.device)
    return _products(step, frames, weight, bias, places)[0]


#: Products of numbers that cost as much as laying one run of all rows out.
_MANY = 2**21


def _run_lengths(step: Step, stride: int, span: int, weight: Tensor) -> Tensor | None:
    """Return how many frames each row needs in one run of all, whole strides each; None where rows are better.

    In the run there are products that reach from row to row; side by side there are those behind short rows.
    """
    if not step.live or step.training or isinstance(step.first[0], int):
        return None
    counts = step.last[0] - step.first[0]
    lengths = torch.where(counts > 0, counts - 1 - (-span // stride), 0) * stride
    spared = len(counts) * step.n[0] * stride - int(lengths.sum())
    return lengths if spared * weight.numel() > _MANY * stride else None


def _products(
    step: Step, frames: Tensor, weight: Tensor, bias: Tensor | None, places: Tensor | None = None
) -> Tensor:
    """Return the products with all windows in frames ``(B, n, channels)``, or ``(B, n, lanes, channels)``.

    With `places` only those of these windows, counted in strides.
    """
    return _way(step, frames, weight, places)(frames, weight, bias)


def _way(step: Step, frames: Tensor, weight: Tensor, places: Tensor | None = None) -> Callable[..., Tensor]:
    """Return what computes `_products` of frames of this shape, ``fn(frames, weight, bias)``."""
    if frames.dim() == 4:
        return partial(_way_of_lanes, step, places)
    a, span = step.attributes, step.attributes["dilation"] * (extent(weight, 2) - 1) + 1
    stride, dilation, groups = a["stride"], a["dilation"], a["groups"]
    n = (frames.shape[1] - span) // stride + 1

    def product(frames: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if step.training and dilation > 1:  # the gradient of what follows is as large as the whole spans
            reach = (n - 1) * stride + 1
            taps = range(0, span, dilation)
            windows = torch.stack([frames[:, at : at + reach : stride] for at in taps], 3)
        else:
            windows = frames.unfold(1, span, stride)[..., ::dilation]
        if places is not None:
            windows = windows.index_select(1, places)
        return F.linear(windows.flatten(2), weight.flatten(1), bias)

    def images(frames: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        columns, kernel = frames.transpose(1, 2).unsqueeze(2), weight.unsqueeze(2)
        y = F.conv2d(columns, kernel, bias, (1, stride), 0, (1, dilation), groups).squeeze(2).transpose(1, 2)
        return y if places is None else y.index_select(1, places)

    def plain(frames: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = F.conv1d(frames.transpose(1, 2), weight, bias, stride, 0, dilation, groups).transpose(1, 2)
        return y if places is None else y.index_select(1, places)

    if as_product(step, frames, weight, n, n if places is None else len(places)):
        return product
    return images if as_images(step, frames, weight) else plain


def _way_of_lanes(
    step: Step, places: Tensor | None, frames: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    y = rows_as_lanes(_products(step, lanes_as_rows(frames), weight, bias), step.features[0][0])
    return y if places is None else y.index_select(1, places)


def as_product(step: Step, frames: Tensor, weight: Tensor, n: int, wanted: int) -> bool:
    """Return whether windows of frames ``(B, ., channels)``, n in a row, go faster as the rows of one product.

    On the CPU they do where a row is one frame, where they are no larger than a cache, and where few of the n are
    wanted. For gradients these must not be few, nor is a single window of frames in a row faster; and of frames
    that get none a product does not keep its weight, whose edits before the backward would not be refused.
    """
    a, taps = step.attributes, weight.shape[2]
    if not step.live or a["groups"] > 1 or frames.device.type != "cpu":
        return False
    small = frames.shape[0] * n * (weight.numel() // weight.shape[0]) <= _CACHED
    if step.training:
        return taps == 1 or (small and frames.requires_grad and (frames.shape[0] * n > 1 or a["dilation"] > 1))
    return taps == 1 or small or 4 * wanted <= 3 * n


#: Elements of windows that stay in a cache.
_CACHED = 2**19


def as_images(step: Step, frames: Tensor, weight: Tensor) -> bool:
    """Return whether frames ``(B, n, channels)`` go faster as images of one row.

    On the CPU torch then takes them as they lie, several times faster, and turns the weight instead; for
    gradients it is slower.
    """
    small = weight.numel() <= frames.numel()
    return step.live and small and not step.training and frames.device.type == "cpu"


def _plane_repeats(step: Step, weights: Sequence[Tensor | None]) -> int:
    """Return the same for planes; images that frames are by themselves have padding of their own."""
    return 1 if step.ranks[0] == 3 else repeats_by_zeros(step, weights)


def _planes_alone(step: Step, weights: Sequence[Any]) -> Callable[..., Tensor] | None:
    """Return what runs where frames are images, or where a kernel has one tap along the stream."""
    a, shape = step.attributes, weights[0].shape
    taps = 1 if len(shape) == 3 else shape[3 if a["axis"] else 2]
    ends: tuple[int, ...]
    if "inner_mode" in a:
        run, ends = _convolved, (a["padding"] or (0, 0))[:2]
    else:
        run, ends = _transposed, ((a["padding"] or (0,))[0], (a["output_padding"] or (0,))[0])
    moves = any(a["padding"] or ()) or set(a["stride"] or (1,)) != {1}
    if run is _convolved and shape[2:].numel() == 1 == a["groups"] and not moves:
        return lambda step, x, weight, bias: F.linear(x, weight.flatten(1), bias)
    if step.ranks[0] == 3:
        return lambda step, x, weight, bias: run(step, x, weight, bias, images=True)
    if taps > 1 or (a["stride"] or (1,))[0] > 1 or any(ends):
        return None
    return lambda step, x, weight, bias: run(step, x.unsqueeze(0), weight, bias)[0]


def _of_images(run: Callable[..., Tensor], step: Step) -> Seen:
    """Return what is seen and computed of images that are frames."""

    def compute(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = run(step, images.flatten(0, 1), weight, bias, images=True)
        return y.reshape(*images.shape[:2], *y.shape[1:])

    return step.first[0], step.n[0], 0.0, compute


@seeing("conv2d", repeats=_plane_repeats, alone=_planes_alone)
def conv2d(step: Step, weights: Sequence[Any]) -> Seen:
    """Compute the products of windows over (stream, positions), or over the images that frames are."""
    a = step.attributes
    if step.ranks[0] == 3:
        return _of_images(_convolved, step)
    stride, dilation = (a["stride"] or (1, 1))[0], (a["dilation"] or (1, 1))[0]
    span = dilation * (extent(plane_weight(weights[0], a["axis"]), 2) - 1) + 1
    first = step.first[0] * stride - (a["padding"] or (0,))[0]
    return first, (step.n[0] - 1) * stride + span, 0.0, partial(_convolved, step)


def _convolved(step: Step, plane: Tensor, weight: Tensor, bias: Tensor | None, *, images: bool = False) -> Tensor:
    """Return the products of windows over planes ``(B, n, F, C)`` whose first axis is padded, or over images."""
    a = step.attributes
    before, behind, left, right = a["padding"] or (0, 0, 0, 0)
    if images:
        plane = pad_axis(plane, -3, before, behind, a["mode"])
    zeros = left if left == right and a["inner_mode"] == "zeros" else 0
    plane = _channels_first(plane if zeros else pad_axis(plane, -2, left, right, a["inner_mode"]))
    weight, stride, dilation = plane_weight(weight, a["axis"]), a["stride"] or (1, 1), a["dilation"] or (1, 1)
    return F.conv2d(plane, weight, bias, stride, (0, zeros), dilation, a["groups"]).permute(0, 2, 3, 1)


def _channels_first(plane: Tensor) -> Tensor:
    """Return ``(B, n, F, C)`` as ``(B, C, n, F)``.

    A single channel is put in front anew: where its stride is 1, F.conv2d of torch 2.13 on a CPU gives wrong sums.
    """
    return plane.squeeze(3).unsqueeze(1) if plane.shape[3] == 1 else plane.permute(0, 3, 1, 2)


def plane_weight(weight: Tensor, axis: int) -> Tensor:
    """Return a weight whose last two axes are those of the plane; without the first it has one tap there."""
    if weight.dim() == 3:
        return weight.unsqueeze(2)
    return weight.transpose(2, 3) if axis else weight


@seeing("conv_transpose1d", repeats=1)
def conv_transpose1d(step: Step, weights: Sequence[Any]) -> Seen:
    """Compute the sums of all inputs that reach the new frames."""
    a = step.attributes
    stride, dilation, groups = a["stride"], a["dilation"], a["groups"]
    reach = dilation * (extent(weights[0], 2) - 1)
    first, n, offset, more = _reaching(step, stride, a["padding"], reach, a["output_padding"])

    def compute(frames: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        lanes = step.features[0][0] if frames.dim() == 4 else 0
        frames = lanes_as_rows(frames) if lanes else frames
        columns = frames.transpose(1, 2)
        if as_images(step, frames, weight):
            images, kernel, added = columns.unsqueeze(2), weight.unsqueeze(2), (0, more)
            y = F.conv_transpose2d(images, kernel, bias, (1, stride), 0, added, groups, (1, dilation))
            y = y.squeeze(2)
        else:
            y = F.conv_transpose1d(columns, weight, bias, stride, 0, more, groups, dilation)
        y = y.transpose(1, 2)
        return run_from(rows_as_lanes(y, lanes) if lanes else y, offset, step.n[0])

    return first, n, 0.0, compute


@seeing("conv_transpose2d", repeats=1, alone=_planes_alone)
def conv_transpose2d(step: Step, weights: Sequence[Any]) -> Seen:
    """Compute the sums of all inputs that reach the new frames, or the images that frames become."""
    a = step.attributes
    if step.ranks[0] == 3:
        return _of_images(_transposed, step)
    stride, dilation, padding, added = ((a[name] or default)[0] for name, default in _PLANES.items())
    reach = dilation * (extent(plane_weight(weights[0], a["axis"]), 2) - 1)
    first, n, offset, more = _reaching(step, stride, padding, reach, added)

    def compute(frames: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return run_from(_transposed(step, frames, weight, bias, more), offset, step.n[0])

    return first, n, 0.0, compute


_PLANES = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0), "output_padding": (0, 0)}


def _transposed(
    step: Step, plane: Tensor, weight: Tensor, bias: Tensor | None, more: int = 0, *, images: bool = False
) -> Tensor:
    """Return the sums of all that reach outputs in planes ``(B, n, F, C)``, `more` of them at the end of n."""
    a = step.attributes
    stride, dilation, padding, added = (a[name] or default for name, default in _PLANES.items())
    if not images:
        padding, added = (0, padding[1]), (more, added[1])
    weight, columns = plane_weight(weight, a["axis"]), plane.permute(0, 3, 1, 2)
    y = F.conv_transpose2d(columns, weight, bias, stride, padding, added, a["groups"], dilation)
    return y.permute(0, 2, 3, 1)


def _reaching(step: Step, stride: int, padding: int, reach: int, added: int) -> tuple[Any, int, Any, int]:
    """Return the frames that reach the outputs: the first, how many; how many outputs of theirs to drop, to add.

    Input i reaches the outputs from i stride - padding up to `reach` further.
    """
    at = step.first[0] + padding
    more = max(0, stride - 1 - reach)
    if padding % stride == 0 and reach + 1 + added - padding >= stride:
        # whole strides are known, never less: all rows go on at a multiple of the stride
        back = reach // stride
        return at // stride - back, (step.n[0] - 1) // stride + back + 1, back * stride, more
    reach = max(reach, stride - 1)
    first = -((reach - at) // stride)
    # from where rows begin follows how far the last one reaches; in a trace it is as far as it may be
    last = (at + step.n[0] - 1) // stride - first if isinstance(at, int) else (step.n[0] - 1 + reach) // stride
    return first, last + 1, at - first * stride, more
