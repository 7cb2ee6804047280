"""Functions on tensors with torch's names and arguments.

All go through the door, so that each means the same offline, inside an online forward (where a call
keeps its own state, like a layer) and in a captured graph. Tensors are float32 or float64, plain or
streams; weights are plain tensors of the same type, else `DTypeError` is raised. Shapes are those of
plain tensors: B rows, L frames, C, F features; a stream's dimensions must mean the same.

Source: torch.nn.functional, the function of the same name.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array import Tensor
from ..array.dtypes import require_float, require_same
from ..array.elementwise import along, unary
from ..dispatch import apply
from ..errors import DTypeError, ModeError, NotStreamableError, ShapeError

__all__ = [
    "conv1d",
    "conv_transpose1d",
    "dropout",
    "gelu",
    "glu",
    "hardtanh",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "pad",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]

Ints = int | Sequence[int]


def _checked(name: str, input: Any) -> Tensor:
    if not isinstance(input, Tensor):
        hint = "; wrap it in ds.tensor(...)" if isinstance(input, (np.ndarray, list)) else ""
        raise DTypeError(f"{name}: expected a tensor, got {type(input).__name__}{hint}")
    return input


def _types(name: str, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    require_same(
        name,
        input=input.dtype,
        weight=None if weight is None else weight.dtype,
        bias=None if bias is None else bias.dtype,
    )


def single(value: Ints, what: str) -> int:
    """Return a size that callers give as an int or as a sequence of one."""
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise ShapeError(f"{what} must be one integer, got {tuple(value)}")
        value = value[0]
    return operator.index(value)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- products


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias.

    Parameters
    ----------
    input : Tensor
        ``(*, in_features)``.
    weight : Tensor
        ``(out_features, in_features)``.
    bias : Tensor, optional
        ``(out_features,)``.

    Returns
    -------
    Tensor
        ``(*, out_features)``.
    """
    x = _checked("linear", input)
    _types("linear", x, weight, bias)
    return apply("linear", {}, (x,), (weight, bias), (..., 0))[0]


def window_padding(padding: Any, kernel: int, dilation: int, stride: int) -> tuple[int, int]:
    """Return the frames of padding before and after a stream.

    Parameters
    ----------
    padding : int, (int, int), "valid", "same" or "causal"
        As layers and `conv1d` take it.
    kernel, dilation, stride : int
        The windows.

    Raises
    ------
    ShapeError
        For other words, "same" with a stride, and negative numbers.
    """
    around = dilation * (kernel - 1)
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if stride != 1:
            raise ShapeError(
                "padding='same' is not supported for strided convolutions; give the numbers"
            )
        return around // 2, around - around // 2
    if padding == "causal":
        return around, 0
    if isinstance(padding, str):
        raise ShapeError(f"padding is numbers, 'valid', 'same' or 'causal', got {padding!r}")
    if isinstance(padding, (tuple, list)) and len(padding) == 2:
        left, right = map(operator.index, padding)
    else:
        left = right = single(padding, "padding")
    if left < 0 or right < 0:
        raise ShapeError(f"padding must not be negative, got {padding}")
    return left, right


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Any = 0,
    dilation: Ints = 1,
    groups: int = 1,
    *,
    padding_mode: str = "zeros",
) -> Tensor:
    """Return the convolution of frames with windows of weights.

    Parameters
    ----------
    input : Tensor
        ``(B, C_in, L)`` or ``(C_in, L)``.
    weight : Tensor
        ``(C_out, C_in / groups, kernel_size)``.
    bias : Tensor, optional
        ``(C_out,)``.
    stride, dilation, groups : int
        As in torch.
    padding : int, (left, right), "valid", "same" or "causal"
        Frames added at both ends; beyond torch a pair, and "causal": all of it on the left.
    padding_mode : {"zeros", "replicate", "reflect", "circular"}
        What they hold. "circular" needs the whole stream.

    Returns
    -------
    Tensor
        ``(B, C_out, L_out)`` or ``(C_out, L_out)``, where L_out = (L + left + right - dilation *
        (kernel_size - 1) - 1) // stride + 1; no frames where the input is too short.
    """
    x = _checked("conv1d", input)
    _types("conv1d", x, weight, bias)
    if weight.ndim != 3:
        raise ShapeError(f"conv1d: expected a weight (out, in / groups, kernel), got {weight.shape}")
    step, spread = single(stride, "stride"), single(dilation, "dilation")
    left, right = window_padding(padding, weight.shape[2], spread, step)
    attributes = {
        "stride": step,
        "dilation": spread,
        "groups": groups,
        "left": left,
        "right": right,
        "mode": padding_mode,
    }
    return apply("conv1d", attributes, (x,), (weight, bias), _channels_first("conv1d", x))[0]


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Return the transposed convolution: each frame adds a window of weights, `stride` apart.

    Parameters
    ----------
    input : Tensor
        ``(B, C_in, L)`` or ``(C_in, L)``.
    weight : Tensor
        ``(C_in, C_out / groups, kernel_size)``.
    bias : Tensor, optional
        ``(C_out,)``.
    stride, padding, output_padding, groups, dilation : int
        As in torch: `padding` frames are dropped at both ends, `output_padding` added at the end.

    Returns
    -------
    Tensor
        ``(B, C_out, L_out)`` or ``(C_out, L_out)``, where L_out = (L - 1) * stride - 2 * padding +
        dilation * (kernel_size - 1) + output_padding + 1.
    """
    x = _checked("conv_transpose1d", input)
    _types("conv_transpose1d", x, weight, bias)
    attributes = {
        "stride": single(stride, "stride"),
        "padding": single(padding, "padding"),
        "output_padding": single(output_padding, "output_padding"),
        "dilation": single(dilation, "dilation"),
        "groups": groups,
    }
    dims = _channels_first("conv_transpose1d", x)
    return apply("conv_transpose1d", attributes, (x,), (weight, bias), dims)[0]


def _channels_first(name: str, x: Tensor) -> tuple[Any, ...]:
    if x.ndim not in (2, 3):
        raise ShapeError(f"{name}: expected (B, C, L) or (C, L), got {x.ndim} dimensions")
    return ("B", 0, "L") if x.ndim == 3 else (0, "L")


def layer_norm(
    input: Tensor,
    normalized_shape: Ints,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions.

    Parameters
    ----------
    input : Tensor
        ``(*, *normalized_shape)``.
    normalized_shape : int or sequence of int
        Sizes of the last dimensions.
    weight, bias : Tensor, optional
        Of that shape.
    eps : float
        Added to the variance.

    Returns
    -------
    Tensor
        As `input`.
    """
    x = _checked("layer_norm", input)
    _types("layer_norm", x, weight, bias)
    shape = (
        tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    )
    n = len(shape)
    sizes = x.shape[-n:] if 0 < n <= x.ndim else None
    if sizes is None or any(isinstance(own, int) and own != given for own, given in zip(sizes, shape)):
        raise ShapeError(
            f"layer_norm: expected an input (*, {', '.join(map(str, shape))}), got {x.shape}"
        )
    return apply("layer_norm", {"axes": n, "eps": float(eps)}, (x,), (weight, bias), (..., *range(n)))[0]


# ---------------------------------------------------------------------- frames


def frame_dims(name: str, x: Tensor, axis: int) -> tuple[int, tuple[Any, ...]]:
    """Return the stream axis and what every dimension is, for operators along the stream.

    Parameters
    ----------
    name : str
        The function, for messages.
    x : Tensor
        A stream, which knows its axis, or a plain tensor.
    axis : int
        The stream axis of a plain tensor.

    Raises
    ------
    NotStreamableError
        Where a stream has no stream axis of its own.
    """
    if x.is_stream:
        roles: tuple[Any, ...] = x.dims  # type: ignore[attr-defined]
        if "L" not in roles:
            raise NotStreamableError(f"{name}: a stream with dimensions {roles} has no axis of frames")
        return roles.index("L"), _numbered(roles)
    at = x._axis(name, axis)
    rows = 0 if x.ndim > 1 and at > 0 else None
    return at, _numbered(["L" if i == at else "B" if i == rows else i for i in range(x.ndim)])


def _numbered(roles: Sequence[Any]) -> tuple[Any, ...]:
    features = iter(range(len(roles)))
    return tuple(r if isinstance(r, str) else next(features) for r in roles)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Return the tensor with elements added at both ends of its last dimensions.

    Parameters
    ----------
    input : Tensor
        ``(*, L)``; of a stream only the stream axis can be padded.
    pad : sequence of int
        ``(left, right)`` of the last dimension, then of the one before, and so on; negative numbers
        take elements away.
    mode : {"constant", "replicate", "reflect", "circular"}
        What is added. "circular" is for plain tensors.
    value : float, optional
        For "constant"; 0 without it.

    Raises
    ------
    ShapeError
        For pads that don't come in pairs, or more pairs than dimensions.
    NotStreamableError
        Where a stream would be padded along features, or with its own end.
    """
    x, pads = _checked("pad", input), [operator.index(p) for p in pad]
    if len(pads) % 2 or len(pads) > 2 * x.ndim:
        raise ShapeError(f"pad: {len(pads)} numbers for a tensor of {x.ndim} dimensions; give pairs")
    if mode not in ("constant", "replicate", "reflect", "circular"):
        raise ShapeError(f"pad: mode is constant, replicate, reflect or circular, got {mode!r}")
    if mode != "constant" and value is not None:
        raise ShapeError(f"pad: mode {mode!r} takes no value")
    for i in range(0, len(pads), 2):
        axis, (left, right) = x.ndim - 1 - i // 2, pads[i : i + 2]
        if left or right:
            x = _pad_axis(x, axis, left, right, mode, 0.0 if value is None else float(value))
    return x


def _pad_axis(x: Tensor, axis: int, left: int, right: int, mode: str, value: float) -> Tensor:
    at, dims = frame_dims("pad", x, axis)
    if x.is_stream and (at != axis or mode == "circular"):
        what = "with its own end" if at == axis else "along features"
        raise NotStreamableError(f"pad: a stream can't be padded {what}; join constants with ds.cat")
    if left < 0 or right < 0:
        crop = {"start": max(-left, 0), "crop": max(-right, 0)}
        x, left, right = apply("slice", crop, (x,), (), dims)[0], max(left, 0), max(right, 0)
    if not left and not right:
        return x
    if mode == "circular":
        return _pad_circular(x, axis, left, right)
    attributes = {"left": left, "right": right, "mode": mode, "value": value}
    return apply("pad", attributes, (x,), (), dims)[0]


def _pad_circular(x: Tensor, axis: int, left: int, right: int) -> Tensor:
    n = x.shape[axis]
    if max(left, right) > n:
        raise ShapeError(f"pad: circular padding of {(left, right)} needs as many elements, got {n}")
    return x.index_select(axis, Tensor(np.arange(-left, n + right) % n if n else np.arange(0)))


# ---------------------------------------------------------------------- elementwise


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(x, 0); `inplace` changes nothing."""
    return _checked("relu", input).relu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution function of x; `approximate` is "none" or "tanh"."""
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is 'none' or 'tanh', got {approximate!r}")
    return _real("gelu", input, {"approximate": approximate})


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x * sigmoid(x); `inplace` changes nothing."""
    return _real("silu", input)


def sigmoid(input: Tensor) -> Tensor:
    """Return 1 / (1 + e ** -x)."""
    return _checked("sigmoid", input).sigmoid()


def tanh(input: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return _checked("tanh", input).tanh()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + e ** (beta * x)) / beta; x where beta * x is above `threshold`."""
    return _real("softplus", input, {"beta": float(beta), "threshold": float(threshold)})


def logsigmoid(input: Tensor) -> Tensor:
    """Return log(sigmoid(x))."""
    return _real("logsigmoid", input)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Return x moved into [min_val, max_val]; `inplace` changes nothing."""
    return _checked("hardtanh", input).clamp(min_val, max_val)


def _real(name: str, input: Tensor, attributes: dict[str, Any] | None = None) -> Tensor:
    x = _checked(name, input)
    require_float(name, x.dtype)
    return unary(name, x, attributes)


# ---------------------------------------------------------------------- along a dimension


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """Return e ** x / sum(e ** x) along `dim`, which must be given."""
    x = _checked("softmax", input)
    return along("softmax", x if dtype is None else x.to(dtype), dim)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Return log(softmax(x)) along `dim`, which must be given."""
    x = _checked("log_softmax", input)
    return along("log_softmax", x if dtype is None else x.to(dtype), dim)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of dimension `dim` times the sigmoid of the second."""
    x = _checked("glu", input)
    size = x.shape[x._axis("glu", dim)]
    if isinstance(size, int) and size % 2:
        raise ShapeError(f"glu: the size of dimension {dim} must be even, got {size}")
    return along("glu", x, dim)


# ---------------------------------------------------------------------- the rest


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Return the input: nothing is dropped in evaluation.

    Raises
    ------
    ModeError
        Where something would be dropped: training with dropout is not supported.
    """
    x = _checked("dropout", input)
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: a probability lies in [0, 1], got {p}")
    if training and p > 0:
        raise ModeError("dropout can't train; call module.eval(), or give training=False or p=0")
    return x


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the square of the difference: its mean, its "sum", or all of it ("none")."""
    return _reduced("mse_loss", (_checked("mse_loss", input) - target).square(), reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the absolute difference: its mean, its "sum", or all of it ("none")."""
    return _reduced("l1_loss", (_checked("l1_loss", input) - target).abs(), reduction)


def _reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ShapeError(f"{name}: reduction is 'mean', 'sum' or 'none', got {reduction!r}")
    return loss.mean() if reduction == "mean" else loss.sum()
