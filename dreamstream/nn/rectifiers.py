"""Activations that bend or cut the line y = x, and their smooth relatives, as layers.

Inputs and outputs have the same shape, ``(*, any) float32 | float64``. **Streaming.** Delay 0, no state.
Source: torch.nn, the class of the same name.
"""

from __future__ import annotations

from typing import Any

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from . import init
from .activation import Along, InPlace
from .linear import new_parameter
from .module import Module

__all__ = [
    "CELU",
    "ELU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU6",
    "Softmax2d",
    "Softmin",
    "Softshrink",
    "Softsign",
    "Tanhshrink",
    "Threshold",
]


class ELU(InPlace):
    """x above zero, alpha * (e ** x - 1) below.

    Parameters
    ----------
    alpha : float
        What -inf gives, negated.
    inplace : bool
        Changes nothing.
    """

    options = "alpha={alpha}"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """Return x above zero, alpha * (e ** x - 1) below."""
        return F.elu(input, self.alpha)


class CELU(ELU):
    """x above zero, alpha * (e ** (x / alpha) - 1) below.

    Parameters
    ----------
    alpha : float
        As in `ELU`.
    inplace : bool
        Changes nothing.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return x above zero, alpha * (e ** (x / alpha) - 1) below."""
        return F.celu(input, self.alpha)


class SELU(InPlace):
    """`ELU` with a fixed alpha and scale, which keep mean and variance."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the scaled exponential linear unit."""
        return F.selu(input)


class LeakyReLU(InPlace):
    """x above zero, negative_slope * x below.

    Parameters
    ----------
    negative_slope : float
        The slope below zero.
    inplace : bool
        Changes nothing.
    """

    options = "negative_slope={negative_slope}"

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """Return x above zero, negative_slope * x below."""
        return F.leaky_relu(input, self.negative_slope)


class PReLU(Module):
    """x above zero, weight * x below.

    Parameters
    ----------
    num_parameters : int
        1, or the size of dimension 1, which must be one of features.
    init : float
        The first value of the weights.
    device : None or "cpu"
        For torch's sake.
    dtype : dtype or str, optional
        float32 or float64.

    Attributes
    ----------
    weight : Parameter
        ``(num_parameters,)``.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = new_parameter(num_parameters, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set all weights to `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Return x above zero, weight * x below."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """Return the number of weights."""
        return f"num_parameters={self.num_parameters}"


class RReLU(InPlace):
    """x above zero, x times the mean of `lower` and `upper` below: random slopes in evaluation.

    Parameters
    ----------
    lower, upper : float
        Bounds of the slope.
    inplace : bool
        Changes nothing.

    Raises
    ------
    ModeError
        In training, which is not supported.
    """

    options = "lower={lower}, upper={upper}"

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        """Return x above zero, x times the mean slope below."""
        return F.rrelu(input, self.lower, self.upper, self.training)


class Hardtanh(InPlace):
    """x moved into [min_val, max_val].

    Parameters
    ----------
    min_val, max_val : float
        The bounds.
    inplace : bool
        Changes nothing.
    """

    options = "min_val={min_val}, max_val={max_val}"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        if not max_val > min_val:
            raise ShapeError(f"Hardtanh: max_val must be above min_val, got {max_val} and {min_val}")
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Tensor) -> Tensor:
        """Return x moved into [min_val, max_val]."""
        return F.hardtanh(input, self.min_val, self.max_val)


class ReLU6(Hardtanh):
    """x moved into [0, 6]."""

    options = ""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Threshold(InPlace):
    """x above a threshold, a fixed value elsewhere.

    Parameters
    ----------
    threshold : float
        The last number that is replaced.
    value : float
        What replaces it.
    inplace : bool
        Changes nothing.
    """

    options = "threshold={threshold}, value={value}"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """Return x above the threshold, the value elsewhere."""
        return F.threshold(input, self.threshold, self.value)


class Hardsigmoid(InPlace):
    """x + 3 moved into [0, 6], / 6."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x + 3 moved into [0, 6], / 6."""
        return F.hardsigmoid(input)

    def extra_repr(self) -> str:
        """Return nothing, as torch does."""
        return ""


class Hardswish(Hardsigmoid):
    """x * hardsigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x * hardsigmoid(x)."""
        return F.hardswish(input)


class Mish(InPlace):
    """x * tanh(softplus(x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x * tanh(softplus(x))."""
        return F.mish(input)


class Hardshrink(Module):
    """x, but 0 where its size is at most `lambd`.

    Parameters
    ----------
    lambd : float
        The largest size that becomes 0.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Return x, but 0 where its size is at most `lambd`."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Return the constructor's argument."""
        return str(self.lambd)


class Softshrink(Hardshrink):
    """x, `lambd` nearer to 0; 0 where its size is at most that.

    Parameters
    ----------
    lambd : float
        By how much; at least 0.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return x, `lambd` nearer to 0."""
        return F.softshrink(input, self.lambd)


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `x / (1 + |x|)`."""
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x - tanh(x)."""
        return F.tanhshrink(input)


class Softmin(Along):
    """softmax(-x) along a dimension of features, `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmin along `dim`."""
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of images ``(B, C, H, W)`` or ``(C, H, W)``, which must be features."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax along dimension -3."""
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: expected (B, C, H, W) or (C, H, W), got {input.ndim} dimensions")
        return F.softmax(input, -3)
