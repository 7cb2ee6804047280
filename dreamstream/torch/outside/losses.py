"""Losses see valid frames only; with ``reduction="none"`` they keep the metadata.

So do comparisons of whole tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import ShapeError, StreamMismatchError
from ...stream.fallback import report_fallback
from ...stream.rules import BATCH, LENGTH, require_same
from ...stream.tensor_info import Info
from ...stream.tree import map_leaves
from ..tensor import StreamTensor
from ..tensor.padding import pad, unpad
from .common import agree, inputs, keep, name_of, padded, plain, rule, run, streams_in, unknown


@lru_cache(maxsize=64)
def _signature(func: Any) -> inspect.Signature:
    return inspect.signature(func)


def _bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(func).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _frames(x: Any, info: Info, shape: Any, what: str) -> Tensor:
    """Return an operand's frames; a plain one is padded as the streams are, or broadcasts."""
    own = plain(x)
    if isinstance(x, StreamTensor):
        return unpad(own, x._info)
    try:
        return unpad(own.expand(shape), info)
    except RuntimeError:
        raise ShapeError(f"{what}: a tensor of shape {tuple(own.shape)} meets streams {tuple(shape)}") from None


def _returned(result: Tensor, info: Info, width: int) -> Any:
    """Return a loss: a number, or one per element of each frame."""
    return result if result.dim() == 0 else keep(pad(result, info, width), info)


def elementwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a loss of elements on the frames of its operands."""
    name = name_of(func)
    options = _bound(func, args, kwargs)
    operands = {k: v for k, v in options.items() if isinstance(v, Tensor)}
    model = max(streams_in(operands), key=lambda t: len(t.names))
    info, shape = agree(streams_in(operands), name), plain(model).shape
    if any(isinstance(v, StreamTensor) and v.dims != model.dims for v in operands.values()):
        raise ShapeError(f"{name}: dimensions {[v.names for v in streams_in(operands)]} don't line up")
    frames = {k: _frames(v, info, shape, name) for k, v in operands.items()}
    if name == "kl_div" and options["reduction"] == "batchmean":
        total = run(func, (), {**options, **frames, "reduction": "sum"})
        return total / shape[0]
    return _returned(run(func, (), {**options, **frames}), info, info.width_of(shape))


def of_classes(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run cross_entropy or nll_loss on frames: classes are dimension 1, as torch has them."""
    name = name_of(func)
    options = _bound(func, args, kwargs)
    x, target = options["input"], options["target"]
    if not isinstance(x, StreamTensor):
        return unknown(func, *args, **kwargs)
    info, shape = x._info, plain(x).shape
    axis = 1 if len(shape) > 1 else 0
    if info.is_stream(axis):
        raise ShapeError(
            f"{name}: classes are dimension {axis}, which is {info.names[axis]} of {info.names}; "
            "transpose them there"
        )
    others = [n for i, n in enumerate(info.names) if i != axis]
    rest = info.with_names(others)
    of_rest = shape[:axis] + shape[axis + 1 :]
    by_index = not target.is_floating_point()
    if isinstance(target, StreamTensor):
        agree([x, target], name)
        wanted = rest if by_index else info
        if target._info.dims != wanted.dims:
            raise ShapeError(f"{name}: a target with {target.names} for {info.names}; expected {wanted.names}")
    at = 1 + info.features.index(axis)
    frames = unpad(plain(x), info).movedim(at, 1)
    if by_index:
        goal = _frames(target, rest, of_rest, name)
    else:
        goal = _frames(target, info, shape, name).movedim(at, 1)
    result = run(func, (), {**options, "input": frames, "target": goal, "weight": plain(options["weight"])})
    return _returned(result, rest, info.width_of(shape))


def ctc(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run ctc_loss, whose lengths are those of the streams; they may be given, and be None."""
    options = _bound(func, args, kwargs)
    x, given = options["log_probs"], options["input_lengths"]
    if not isinstance(x, StreamTensor) or LENGTH not in x.names:
        return unknown(func, *args, **kwargs)
    if x.names[0] != LENGTH or (len(x.names) > 2 and x.names[1] != BATCH):
        raise ShapeError(f"ctc_loss: log_probs must be (L, B, classes), got {x.names}")
    if given is None:
        given = torch.from_numpy(np.array(x.lengths))
    elif not isinstance(given, Tensor) or given.device.type == "cpu":
        bad = np.flatnonzero(np.asarray(given).reshape(-1) > x.lengths)
        if bad.size:
            raise StreamMismatchError(
                f"ctc_loss: input_lengths {np.asarray(given).tolist()} go beyond the frames that there are",
                [x.ids[r] for r in bad],
            )
    (own,), _ = inputs((x,), {})
    options.update(log_probs=own, input_lengths=given)
    return run(func, (), map_leaves(options, plain))


ELEMENTWISE = (
    F.mse_loss,
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
    F.kl_div,
    F.poisson_nll_loss,
    F.gaussian_nll_loss,
    F.soft_margin_loss,
    F.hinge_embedding_loss,
    F.margin_ranking_loss,
)

LOSSES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    F.cross_entropy: of_classes,
    F.nll_loss: of_classes,
    F.ctc_loss: ctc,
}


@rule("equal", dims=False, anywhere=True)
def equal(func: Any, a: Any, b: Any) -> bool:
    """Return whether two tensors hold the same streams with the same frames."""
    if not isinstance(a, StreamTensor) or not isinstance(b, StreamTensor):
        return _with_plain(func, a, b, {})
    if a.meta != b.meta or a.dims != b.dims:
        return False
    return torch.equal(unpad(plain(a), a._info), unpad(plain(b), b._info))


@rule("allclose", dims=False, anywhere=True)
def allclose(func: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
    """Return whether all frames of the same streams are close."""
    if not isinstance(a, StreamTensor) or not isinstance(b, StreamTensor):
        return _with_plain(func, a, b, {**dict(zip(("rtol", "atol", "equal_nan"), args)), **kwargs})
    require_same([a.meta, b.meta], [a.starts, b.starts], "allclose")
    if a.dims != b.dims:
        raise ShapeError(f"allclose: dimensions {a.names} don't line up with {b.names}")
    own = unpad(plain(a), a._info), unpad(plain(b), b._info)
    return bool(run(func, (*own, *args), kwargs))


def _with_plain(func: Any, a: Any, b: Any, kwargs: Any) -> bool:
    report_fallback(f"{name_of(func)} with a plain tensor")
    return bool(run(func, (padded(a), padded(b)), kwargs))
