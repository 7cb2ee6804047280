"""Losses: of streams outside a forward they see valid frames only."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ...array import Tensor, where
from ...array.chunks import frames_of, of_elements
from ...array.derivatives import derived, sign
from ...array.elementwise import unary
from ...errors import DTypeError, ShapeError, StreamIndexError
from .activation import log_softmax
from .arguments import checked, real
from .texts import Function, described

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "kl_div", "l1_loss", "mse_loss",
    "nll_loss", "smooth_l1_loss",
]  # fmt: skip

_described = described(
    'Without dimensions; with ``reduction="none"`` one loss for each element or class index.',
    {"ShapeError": "For shapes that don't fit, and another `reduction`."},
    target="What should have come, of the shape of `input`, or indices of classes.",
    reduction='{"mean", "sum", "none"}: What becomes of the losses of all elements.',
    size_average='bool, optional: torch\'s older way to say whether `reduction` is "mean", not "sum".',
    reduce='bool, optional: torch\'s older way to say whether `reduction` is one of these, not "none".',
    beta="Where the parabola meets the straight line.",
    weight="Factors of the losses, of elements or one for each class.",
    pos_weight="A factor of the losses of positive targets, one for each class.",
    ignore_index="Targets that are left out.",
    label_smoothing="Which part of each target is spread over all classes.",
    log_target="Whether the target is a logarithm.",
)


#: Losses whose target may have another shape, which is seldom meant: of (N, 1) and (N,) come N x N differences.
BROADCASTS = ("mse_loss", "l1_loss", "smooth_l1_loss")


def _loss(function: Function) -> Function:
    """Describe a loss, with torch's older arguments for its `reduction` and its warning of shapes that differ."""
    arguments = inspect.signature(function)

    @wraps(_described(function))
    def run(*args: Any, **kwargs: Any) -> Tensor:
        try:
            given = arguments.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which says what it takes
        pair = [given.arguments[name] for name in ("input", "target")]
        if function.__name__ in BROADCASTS and not any(getattr(x, "is_stream", False) for x in pair):
            x, target = map(np.shape, pair)
            if x != target:
                text = f"{function.__name__}: the shapes {x} and {target} are broadcast"
                warnings.warn(f"{text}; give a target of the input's shape", stacklevel=2)
        average, reduce = (given.arguments.get(name) for name in ("size_average", "reduce"))
        if average is not None or reduce is not None:
            mean, joined = (flag is None or flag for flag in (average, reduce))
            given.arguments["reduction"] = "none" if not joined else "mean" if mean else "sum"
        return function(*given.args, **given.kwargs)

    return run  # type: ignore[return-value]


def reduced(name: str, loss: Tensor, reduction: str, shown: Callable[[Any], Any] = lambda y: y) -> Tensor:
    """Return the mean, the sum, or all of the losses of frames, shown as the input is."""
    if reduction == "none":
        return shown(loss)
    if reduction not in ("mean", "sum"):
        raise ShapeError(f"{name}: reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    return loss.mean() if reduction == "mean" else loss.sum()


def _of_elements(
    name: str, losses: Callable[..., Tensor], input: Any, target: Any, reduction: str, weight: Any = None
) -> Tensor:
    x = real(name, input)
    own, others, shown = of_elements(name, x, [target, *([] if weight is None else [weight])])
    loss = losses(own, others[0])
    return reduced(name, loss if weight is None else loss * others[1], reduction, shown)


def _of_differences(name: str, losses: Callable[..., Tensor], input: Any, target: Any, reduction: str) -> Tensor:
    """Return the losses of differences, which are known inside a forward, too."""
    if getattr(input, "edge", None) is not None or getattr(target, "edge", None) is not None:
        return reduced(name, losses(checked(name, input) - target), reduction)
    return _of_elements(name, lambda x, t: losses(x - t), input, target, reduction)


# ---------------------------------------------------------------------- of elements
@_loss
def mse_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", *, size_average: Any = None, reduce: Any = None
) -> Tensor:
    """Return the square of the difference."""
    return _of_differences("mse_loss", lambda x: x.square(), input, target, reduction)


@_loss
def l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", *, size_average: Any = None, reduce: Any = None
) -> Tensor:
    """Return the absolute difference."""
    return _of_differences("l1_loss", lambda x: x.abs(), input, target, reduction)


@_loss
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Return the absolute difference, with a parabola around 0: square / (2 * beta) below beta."""
    if beta < 0:
        raise ShapeError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    return _of_elements("smooth_l1_loss", lambda x, t: _smooth(x, t, beta=beta), input, target, reduction)


def _bent(a: Any, b: Any, beta: float) -> Any:
    apart = a - b
    if not beta:
        return sign(apart)
    return np.where(apart <= -beta, -1, np.where(apart >= beta, 1, apart / beta))


@derived(lambda g, a, b, beta: g * _bent(a, b, beta), lambda g, a, b, beta: -g * _bent(a, b, beta))
def _smooth(x: Tensor, target: Tensor, beta: float) -> Tensor:
    apart = (x - target).abs()
    return where(apart < beta, 0.5 * apart.square() / (beta or 1), apart - 0.5 * beta)


#: What torch divides by at least, a float there.
_EPS = np.float32(1e-12)


@_loss
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Return -(target * log(input) + (1 - target) * log(1 - input)), logarithms being at least -100."""
    x = checked("binary_cross_entropy", input)
    _require_same_shape("binary_cross_entropy", x, target)
    values = x.value if x.is_stream else x.numpy()  # type: ignore[attr-defined]
    if values.size and not (values.min() >= 0 and values.max() <= 1):
        raise ShapeError("binary_cross_entropy: the input's elements must be from 0 to 1")
    return _of_elements("binary_cross_entropy", _entropy, x, target, reduction, weight)


def _require_same_shape(name: str, input: Any, target: Any) -> None:
    outside = getattr(input, "edge", None) is None
    if outside and tuple(input.shape) != np.shape(target):
        raise ShapeError(f"{name}: a target of shape {np.shape(target)} for an input of {tuple(input.shape)}")


@derived(lambda g, a, b: g * (a - b) / np.maximum((1 - a) * a, _EPS), lambda g, a: g * (np.log1p(-a) - np.log(a)))
def _entropy(x: Tensor, target: Tensor) -> Tensor:
    return -(target * x.log().clamp_min(-100.0) + (1 - target) * (-x).log1p().clamp_min(-100.0))


@_loss
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return `binary_cross_entropy` of sigmoid(input), exact for large inputs."""
    name = "binary_cross_entropy_with_logits"
    x = real(name, input)
    _require_same_shape(name, x, target)
    factors = [w for w in (weight, pos_weight) if w is not None]
    own, (t, *others), shown = of_elements(name, x, [target, *factors])
    low = unary("logsigmoid", own)
    positive = low if pos_weight is None else low * ((others[-1] - 1) * t + 1)
    loss = (1 - t) * own - positive
    return reduced(name, loss if weight is None else loss * others[0], reduction, shown)


@_loss
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """Return target * (log(target) - input), where the input is a logarithm; "batchmean" divides by the rows."""

    def losses(x: Tensor, t: Tensor) -> Tensor:
        return t.exp() * (t - x) if log_target else t.xlogy(t) - t * x

    if reduction == "batchmean":
        n = input.shape[0] if input.ndim else 1
        return _of_elements("kl_div", losses, input, target, "sum") / n
    return _of_elements("kl_div", losses, input, target, reduction)


# ---------------------------------------------------------------------- of classes
@_loss
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Return -input at the target's class, ``(N, C, *)`` and ``(N, *)``; the mean is weighted."""
    x, t, shown, _ = _classes("nll_loss", input, target)
    if t.is_floating_point():
        raise DTypeError(f"nll_loss: the target holds indices, int64, not {t.dtype}")
    return _at_classes("nll_loss", x, t, weight, ignore_index, reduction, shown)


@_loss
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return `nll_loss` of log_softmax(input), of classes' indices ``(N, *)`` or probabilities ``(N, C, *)``."""
    name = "cross_entropy"
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"{name}: label_smoothing is from 0 to 1, got {label_smoothing}")
    x, t, shown, axis = _classes(name, input, target)
    x = log_softmax(x, axis)
    n = x.shape[axis]
    if t.is_floating_point():
        t = t if not label_smoothing else t * (1 - label_smoothing) + label_smoothing / n
        loss: Tensor = -(x * t * _per_class(weight, x, axis)).sum(axis)
        if reduction == "mean":
            return loss.sum() / (x.numel() / n)
        return reduced(name, loss, reduction, shown)
    loss = _at_classes(name, x, t, weight, ignore_index, reduction, shown)
    if not label_smoothing:
        return loss
    valid = (t != ignore_index).to(x.dtype)
    smooth = where(t == ignore_index, 0.0, -(x * _per_class(weight, x, axis)).sum(axis))
    if reduction == "mean":
        smooth = smooth.sum() / (valid * _of_targets(weight, t, ignore_index, x)).sum()
    else:
        smooth = reduced(name, smooth, reduction, shown)
    return loss * (1 - label_smoothing) + smooth * (label_smoothing / n)


def _classes(name: str, input: Any, target: Any) -> tuple[Tensor, Tensor, Callable[[Any], Any], int]:
    """Return the input and the target as plain tensors, what shows a loss of each, and where classes are."""
    x = real(name, input)
    x, t, shown = frames_of(name, x, target)
    axis = 1 if x.ndim > 1 else 0
    expected = x.shape if t.is_floating_point() else (*x.shape[:axis], *x.shape[axis + 1 :])
    if t.shape != expected:
        raise ShapeError(f"{name}: a target of shape {t.shape} for an input of {x.shape}; expected {expected}")
    return x, t, shown, axis


def _per_class(weight: Tensor | None, x: Tensor, axis: int) -> Any:
    return 1 if weight is None else weight.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _of_targets(weight: Tensor | None, t: Tensor, ignore_index: int, x: Tensor) -> Any:
    """Return each target's weight."""
    if weight is None:
        return 1
    return weight[where(t == ignore_index, 0, t)]


def _at_classes(
    name: str,
    x: Tensor,
    t: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    shown: Callable[[Any], Any],
) -> Tensor:
    axis, ignored = (1 if x.ndim > 1 else 0), t == ignore_index
    n, places = x.shape[axis], where(ignored, 0, t)
    wrong = places.numpy()[(places.numpy() < 0) | (places.numpy() >= n)]
    if wrong.size:
        raise StreamIndexError(f"{name}: class {int(wrong[0])} of {n}")
    own = x.gather(axis, places.unsqueeze(axis)).squeeze(axis)
    factor = where(ignored, 0.0, x._plain(np.ones(t.shape, x.dtype)) * _of_targets(weight, t, ignore_index, x))
    loss = where(ignored, 0.0, -own * factor)
    if reduction == "mean":
        return loss.sum() / factor.sum()
    return reduced(name, loss, reduction, shown)
