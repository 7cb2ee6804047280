"""Activations as layers, made from the functions."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import ShapeError
from . import functional as F
from .derived import layer

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "RReLU", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip

_NOTES = """Notes
-----
Input and output have the same shape, ``(*, any) float32 | float64`` (`GLU` halves one dimension).
**Streaming.** Delay 0, no state; `dim` must be a dimension of features. Source: torch.nn, the class of the
same name."""

_activation = partial(layer, __name__, _NOTES)


def _check_bounds(self: Any) -> None:
    if not self.max_val > self.min_val:
        raise ShapeError(f"Hardtanh: max_val must be above min_val, got {self.max_val} and {self.min_val}")


ReLU = _activation("ReLU", F.relu)
SiLU = _activation("SiLU", F.silu)
GELU = _activation("GELU", F.gelu, "approximate={approximate!r}")
Sigmoid = _activation("Sigmoid", F.sigmoid)
LogSigmoid = _activation("LogSigmoid", F.logsigmoid)
Tanh = _activation("Tanh", F.tanh)
Softplus = _activation("Softplus", F.softplus, "beta={beta}, threshold={threshold}")
ELU = _activation("ELU", F.elu, "alpha={alpha}")
CELU = _activation("CELU", F.celu, "alpha={alpha}")
SELU = _activation("SELU", F.selu)
LeakyReLU = _activation("LeakyReLU", F.leaky_relu, "negative_slope={negative_slope}")
RReLU = _activation("RReLU", F.rrelu, "lower={lower}, upper={upper}")
Hardtanh = _activation("Hardtanh", F.hardtanh, "min_val={min_val}, max_val={max_val}", prepare=_check_bounds)
Threshold = _activation("Threshold", F.threshold, "threshold={threshold}, value={value}")
Hardsigmoid = _activation("Hardsigmoid", F.hardsigmoid, usual={})
Hardswish = _activation("Hardswish", F.hardswish, usual={})
Mish = _activation("Mish", F.mish)
Hardshrink = _activation("Hardshrink", F.hardshrink, "{lambd}")
Softshrink = _activation("Softshrink", F.softshrink, "{lambd}")
Softsign = _activation("Softsign", F.softsign)
Tanhshrink = _activation("Tanhshrink", F.tanhshrink)
Softmax = _activation("Softmax", F.softmax, "dim={dim}")
LogSoftmax = _activation("LogSoftmax", F.log_softmax, "dim={dim}")
Softmin = _activation("Softmin", F.softmin, "dim={dim}")
GLU = _activation("GLU", F.glu, "dim={dim}")
