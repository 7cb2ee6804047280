"""Layers that act on every frame by itself: a matrix product, or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array import Tensor, dtypes as element_types
from . import functional as F, init
from .functional.arguments import require_positive
from .functional.texts import described
from .module import Module
from .parameter import Parameter

__all__ = ["Bilinear", "Identity", "Linear"]

_ERRORS = {
    "ShapeError": "Where an input's last dimension has another size.",
    "DTypeError": "Where its type is not the weight's.",
}
_described = described(
    "",
    _ERRORS,
    in_features="Size of the input's last dimension.",
    in1_features="Size of the first input's last dimension.",
    in2_features="Size of the second input's last dimension.",
    out_features="Size of the output's last dimension.",
    bias="Whether there is a bias.",
)


def new_parameter(*shape: int, dtype: Any = None, device: Any = None) -> Parameter:
    """Return a parameter of zeros, float32 unless `dtype` says otherwise.

    A type that is no float raises DTypeError, a device that is not the CPU ModeError.
    """
    element_types.check_device(device)
    to = element_types.float32 if dtype is None else element_types.as_dtype(dtype)
    element_types.require_float("a layer's parameters", to)
    return Parameter(np.zeros(shape, to))


def add_bias(module: Module, wanted: bool, size: int, device: Any, dtype: Any) -> None:
    """Give a module a bias of zeros, or a place for none."""
    module.register_parameter("bias", new_parameter(size, device=device, dtype=dtype) if wanted else None)


#: What the parameters of normalisations are.
AFFINE = {
    "affine": "Whether there are weight and bias.",
    "elementwise_affine": "Whether there are weight and bias.",
    "bias": "Whether there is a bias, if there is a weight.",
}


class Affine(Module):
    """What normalisations have: a weight of ones and a bias of zeros, or none."""

    def _make_affine(self, shape: Sequence[int], wanted: dict[str, bool], device: Any, dtype: Any) -> None:
        for name, there in wanted.items():
            given = new_parameter(*shape, device=device, dtype=dtype) if there else None
            self.register_parameter(name, given)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
            parameter = self._parameters.get(name)
            if parameter is not None:
                fill(parameter)


class Identity(Module):
    """Returns its input; arguments are ignored.

    Notes
    -----
    **Streaming.** Delay 0, no state. Source: torch.nn.Identity.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return the input."""
        return input


@_described
class Linear(Module):
    """``y = x @ weight.T + bias`` on the last dimension.

    Attributes
    ----------
    weight : Parameter
        ``(out_features, in_features)``.
    bias : Parameter or None
        ``(out_features,)``.

    Notes
    -----
    Input ``(*, in_features)``, output ``(*, out_features)``. **Streaming.** Delay 0, no state.
    Source: torch.nn.Linear.
    """

    _shown = "in_features={in_features}, out_features={out_features}, bias={bias}"

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_parameter(out_features, in_features, device=device, dtype=dtype)
        add_bias(self, bias, out_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self: Any) -> None:
        """Draw new initial values: evenly over ± 1 / sqrt(weights of one output)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``(*, out_features)`` for an input ``(*, in_features)``."""
        return F.linear(input, self.weight, self.bias)


@_described
class Bilinear(Module):
    """``y[n] = sum of x1[i] * weight[n, i, j] * x2[j] + bias[n]`` on the last dimension.

    Attributes
    ----------
    weight : Parameter
        ``(out_features, in1_features, in2_features)``.
    bias : Parameter or None
        ``(out_features,)``.

    Notes
    -----
    Inputs ``(*, in1_features)`` and ``(*, in2_features)``, output ``(*, out_features)``. **Streaming.**
    Delay 0, no state. Source: torch.nn.Bilinear.
    """

    _shown = "in1_features={in1_features}, in2_features={in2_features}, out_features={out_features}, bias={bias}"

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        require_positive("Bilinear", in1_features=in1_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = new_parameter(out_features, in1_features, in2_features, device=device, dtype=dtype)
        add_bias(self, bias, out_features, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: evenly over ± 1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return ``(*, out_features)`` for inputs ``(*, in1_features)`` and ``(*, in2_features)``."""
        return F.bilinear(input1, input2, self.weight, self.bias)
