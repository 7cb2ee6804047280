"""Activations as layers.

Inputs and outputs have the same shape, ``(*, any) float32 | float64`` (`GLU` halves one dimension).
**Streaming.** Delay 0, no state; `dim` must be a dimension of features. Source: torch.nn, the class of
the same name.
"""

from __future__ import annotations

from typing import ClassVar

from ..array import Tensor
from . import functional as F
from .module import Module

__all__ = [
    "GELU",
    "GLU",
    "LogSigmoid",
    "LogSoftmax",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


class InPlace(Module):
    """Activations whose `inplace` is accepted and changes nothing."""

    options: ClassVar[str] = ""
    """The other arguments of the constructor, as text with the attributes' names in braces."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """Return the constructor's arguments; ``inplace=True`` where it was asked for."""
        own = self.options.format_map(vars(self))
        return ", ".join(filter(None, (own, "inplace=True" if self.inplace else "")))


class ReLU(InPlace):
    """max(x, 0)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return max(x, 0)."""
        return F.relu(input)


class SiLU(InPlace):
    """x * sigmoid(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x * sigmoid(x)."""
        return F.silu(input)


class GELU(Module):
    """x times the normal distribution function of x.

    Parameters
    ----------
    approximate : {"none", "tanh"}
        By the error function, or by tanh.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Return x times the normal distribution function of x."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """Return the constructor's argument."""
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + e ** -x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Return 1 / (1 + e ** -x)."""
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(1 / (1 + e ** -x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Return log(sigmoid(x))."""
        return F.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """Return tanh(x)."""
        return F.tanh(input)


class Softplus(Module):
    """log(1 + e ** (beta * x)) / beta, a smooth ReLU.

    Parameters
    ----------
    beta : float
        How sharp it is.
    threshold : float
        Where beta * x is above it, x itself.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """Return log(1 + e ** (beta * x)) / beta."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Return the constructor's arguments."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Along(Module):
    """Activations along one dimension.

    Parameters
    ----------
    dim : int
        The dimension; torch's guess for None is not offered.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """Return the constructor's argument."""
        return f"dim={self.dim}"


class Softmax(Along):
    """e ** x / sum(e ** x) along a dimension of features, `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the softmax along `dim`."""
        return F.softmax(input, self.dim)


class LogSoftmax(Along):
    """log(e ** x / sum(e ** x)) along a dimension of features, `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the logarithm of the softmax along `dim`."""
        return F.log_softmax(input, self.dim)


class GLU(Along):
    """The first half of a dimension times the sigmoid of the second.

    Parameters
    ----------
    dim : int
        The dimension, of even size.
    """

    dim: int

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)

    def forward(self, input: Tensor) -> Tensor:
        """Return the first half times the sigmoid of the second."""
        return F.glu(input, self.dim)
