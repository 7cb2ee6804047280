"""Normalisation of every frame by itself, and of channels by known statistics or those of groups of channels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ... import autograd
from ...array import Tensor, cat
from ...array.draws import with_values
from ...array.dtypes import require_same
from ...dispatch import apply
from ...errors import ModeError, NotStreamableError, ShapeError
from ...operations.refusals import OVER_STREAM
from .arguments import Ints, checked, same_types
from .texts import described

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


#: What the parameters are, of functions and layers.
CHANNELS = {
    "weight": "``(C,)``.",
    "bias": "``(C,)``.",
    "num_groups": "Groups of neighbouring channels; it divides their number.",
    "momentum": "What part of the running statistics is replaced in training; None of a layer: they are means.",
}


@described(
    "As `input`.",
    **CHANNELS,
    input="``(B, C, *)``: the second dimension must be features, all others may be anything.",
    running_mean="``(C,)``. In training it is brought up to date, where it is given.",
    running_var="As `running_mean`.",
    training="Whether the statistics are the batch's: of plain tensors, and of streams that start and end in it.",
)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - running_mean) / sqrt(running_var + eps) * weight + bias per channel.

    Raises
    ------
    ModeError
        In training, where streams go on: statistics are those of whole streams.
    NotStreamableError
        Where streams would be normalised by the statistics of their batch, and nothing keeps these.
    """
    x = checked("batch_norm", input)
    stats = {"running_mean": running_mean, "running_var": running_var}
    tensors = {"input": x, **stats, "weight": weight, "bias": bias}
    require_same("batch_norm", **{k: None if t is None else t.dtype for k, t in tensors.items()})
    if training:
        given = (running_mean, running_var)
        tracked = all(t is not None for t in given)
        update = partial(update_statistics, given, momentum) if tracked else None
        return by_batch(x, weight, bias, eps, update)
    dims = _channels_last("batch_norm", x)
    if running_mean is None or running_var is None:
        raise ShapeError("batch_norm: running_mean and running_var must be given unless training=True")
    constants = (running_mean, running_var, weight, bias)
    return apply("batch_norm", {"eps": float(eps)}, (x,), constants, dims)[0]


def update_statistics(running: Any, momentum: float | None, mean: Tensor, variance: Tensor) -> None:
    """Bring running statistics up to date by those of a batch, the variance of which is unbiased."""
    part = 0.0 if momentum is None else momentum
    with autograd.no_grad():
        for known, new in zip(running, (mean, variance)):
            known.copy_(known * (1 - part) + new.detach().to(known.dtype) * part)


def by_batch(
    x: Any, weight: Any, bias: Any, eps: float, update: Callable[[Tensor, Tensor], None] | None
) -> Tensor:
    """Return channels normalised by the statistics of a batch.

    `update` is given the mean and the unbiased variance; None where nothing keeps them.
    """
    dims = _channels_last("batch_norm", x)
    if x.is_stream and update is None:
        raise NotStreamableError.here(
            "batch_norm",
            " takes its statistics from the batch, over streams and frames; give it running statistics "
            "(track_running_stats=True) and call bn.eval()",
        )
    frames, at = _frames_of_whole("batch_norm", x) if x.is_stream else (x, 1)
    n = prod(s for i, s in enumerate(frames.shape) if i != at)
    if n == 0:
        return x
    if n == 1:
        raise ShapeError.here("batch_norm", ": expected more than one value of each channel in training")
    axes = [i for i in range(frames.ndim) if i != at]
    mean, variance = frames.mean(axes), frames.var(axes, correction=0)
    out = apply("batch_norm", {"eps": float(eps)}, (x,), (mean, variance, weight, bias), dims)[0]
    if update is not None:
        later = partial(update, mean, variance * (n / (n - 1)))
        if x.is_stream:
            x.edge.entry.afterwards.append(later)
        else:
            later()
    return out


def _frames_of_whole(name: str, x: Any) -> tuple[Tensor, int]:
    """Return the frames of streams that start and end in this call, and which of their axes is the channels'."""
    if x.edge is None or x.value is None or not hasattr(x.edge.entry, "afterwards"):
        raise ModeError.here(
            name,
            " is in training, where it takes the statistics of whole streams; call eval() on the layer (or "
            "the model), which uses those that it has gathered",
        )
    meta = x.edge.entry.meta
    going = [i for i, sos, eos in zip(meta.ids, meta.sos, meta.eos) if not (sos and eos)]
    if going:
        raise ModeError.here(
            name,
            " is in training: its statistics are those of whole streams, but these go on; call eval() on the "
            "layer",
            ids=going,
        )
    frames = autograd.follow(Tensor._plain(x.value), x.edge.made, "frames")
    return frames, x.value.ndim - len(x.features) + x.dims[1]


@described(
    "As `input`; no frames where a group has one value, of which there is no statistic.",
    **CHANNELS,
    input="``(B, C, *)``. The statistics of each row's groups are over all dimensions behind C. Where the stream "
    "axis is among them they need the whole stream; rows of ``(B_L, C, *)`` are frames, which stream.",
)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, by the statistics of groups of channels.

    Raises
    ------
    NotStreamableError
        Where statistics over the stream would be needed and nothing waits for its end.
    """
    return _by_group("group_norm", checked("group_norm", input), num_groups, weight, bias, eps)


@described(
    **CHANNELS,
    input="``(B, C, *)``, with one dimension or more behind C.",
    running_mean="``(C,)``; used if `use_input_stats` is False, else brought up to date.",
    running_var="As `running_mean`.",
    use_input_stats="Whether statistics are the input's.",
)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return `group_norm` with one channel per group, or by running statistics `batch_norm`.

    Raises
    ------
    ModeError
        Where running statistics are brought up to date, of streams that go on.
    NotStreamableError
        As `group_norm`.
    """
    x = checked("instance_norm", input)
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    if x.ndim < 3:
        raise ShapeError(f"instance_norm: expected (B, C, *) of 3 dimensions or more, got {x.ndim}")
    if running_mean is None or running_var is None:
        return _by_group("instance_norm", x, x.shape[1], weight, bias, eps)
    return _by_row(x, (running_mean, running_var), weight, bias, momentum, eps)


def _by_row(x: Any, running: Any, weight: Any, bias: Any, momentum: float, eps: float) -> Tensor:
    """Normalise whole streams, or plain rows, by their own statistics, whose mean the running ones follow."""
    rows, at = [x], 1
    if x.is_stream:
        frames, at = _frames_of_whole("instance_norm", x)
        rows = [frames]
        if "L" in x.dims[1:]:
            rows = [r.unsqueeze(0) for r in frames.split(x.edge.counts[:, 2].tolist()) if len(r)]
            at += 1
    shape = [-1 if i == at else 1 for i in range(rows[0].ndim if rows else 0)]
    axes = [i for i in range(len(shape)) if i not in (0, at)]
    if any(prod(r.shape[i] for i in axes) < 2 for r in rows):
        raise ShapeError.here("instance_norm", ": expected more than one value of each row's channels in training")
    means, variances, out = [], [], []
    for row in rows:
        mean, variance = row.mean(axes, keepdim=True), row.var(axes, correction=0, keepdim=True)
        n = prod(row.shape[i] for i in axes)
        means.append(mean.detach().flatten(1))
        variances.append(variance.detach().flatten(1) * (n / (n - 1)))
        y = (row - mean) / (variance + eps).sqrt()
        y = y if weight is None else y * weight.reshape(shape)
        out.append(y if bias is None else y + bias.reshape(shape))
    if not out:
        return x
    later = partial(update_statistics, running, momentum, cat(means).mean(0), cat(variances).mean(0))
    if not x.is_stream:
        later()
        return out[0]
    x.edge.entry.afterwards.append(later)
    whole = cat([y.squeeze(0) for y in out]) if "L" in x.dims[1:] else out[0]
    made = with_values(x, whole.numpy())
    made.edge.made = autograd.source(whole)
    return made


def _by_group(name: str, x: Any, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    same_types(name, x, weight, bias)
    dims = _channels_last(name, x)
    over = "stream" if "L" in dims[1:] else "frame"
    if x.is_stream:
        roles = x.dims
        if not isinstance(roles[0], str) or "B" in roles[1:]:
            raise NotStreamableError.here(
                f"{name}: the first dimension of {x.roles} must be B (or B and L joined), each row of which has "
                "statistics of its own"
            )
        if over == "stream" and x.edge is not None and not x.edge.may_wait:
            raise NotStreamableError.here(
                name, f' {OVER_STREAM.text}, or unstreamable="buffer" to wait for the end'
            )
    attributes = {"groups": groups, "eps": float(eps), "over": over}
    return apply("group_norm", attributes, (x,), (weight, bias), dims)[0]


def _channels_last(name: str, x: Any) -> tuple[Any, ...]:
    """Return what each dimension of ``(B, C, *)`` is, the channels stored behind all other features.

    The stream axis of a plain tensor is the one behind C; where there is none, its rows are frames.
    """
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected (B, C, *), got shape {x.shape}")
    if x.is_stream:
        roles = list(x.dims)
        if isinstance(roles[1], str):
            over = f', where it {OVER_STREAM.text}, or unstreamable="buffer" to wait for the end'
            raise NotStreamableError.here(
                f"{name}: dimension 1 of {x.roles} is taken for the channels, which must be features; transpose "
                f"them there{over * (name != 'batch_norm')}"
            )
    else:
        roles = ["B", 0, "L", *range(x.ndim - 3)] if x.ndim > 2 else ["L", 0]
    others = iter(range(x.ndim))
    last = sum(not isinstance(r, str) for r in roles) - 1
    return tuple(r if isinstance(r, str) else last if i == 1 else next(others) for i, r in enumerate(roles))


#: What the parameters are, of functions and layers.
LAST = {
    "normalized_shape": "int or sequence of int: Sizes of the last dimensions.",
    "weight": "Of that shape.",
    "bias": "Of that shape.",
    "eps": "Added to the variance or mean square; None is the distance from 1 to the next number of the type.",
}
_last = described("As `input`.", **LAST, input="``(*, *normalized_shape)``.")


@_last
def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    x = checked("layer_norm", input)
    same_types("layer_norm", x, weight, bias)
    n = _last_dims("layer_norm", x, normalized_shape)
    return apply("layer_norm", {"axes": n, "eps": float(eps)}, (x,), (weight, bias), (..., *range(n)))[0]


@_last
def rms_norm(
    input: Tensor, normalized_shape: Ints, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return x / sqrt(mean of x * x + eps) * weight over the last dimensions."""
    x = checked("rms_norm", input)
    same_types("rms_norm", x, weight, None)
    n = _last_dims("rms_norm", x, normalized_shape)
    added = float(np.finfo(x.dtype).eps) if eps is None else float(eps)
    return apply("rms_norm", {"axes": n, "eps": added}, (x,), (weight,), (..., *range(n)))[0]


def _last_dims(name: str, x: Tensor, normalized_shape: Ints) -> int:
    """Return how many last dimensions `normalized_shape` names; they must be of these sizes."""
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    n = len(shape)
    sizes = x.shape[-n:] if 0 < n <= x.ndim else None
    if sizes is None or any(isinstance(own, int) and own != given for own, given in zip(sizes, shape)):
        raise ShapeError(f"{name}: expected an input (*, {', '.join(map(str, shape))}), got {x.shape}")
    return n
