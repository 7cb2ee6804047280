"""What torch computes: one kernel per operator of the C registry."""

from . import (  # noqa: F401  (each file enters its kernels)
    cells,
    convolution,
    cumulative,
    cutting,
    framing,
    linear,
    lookup,
    normalization,
    operands,
    pointwise,
    pooling,
    recurrent,
    reductions,
    resampling,
    shape,
    transposed,
)
from .registry import KERNELS, Kernel, Step, Window

__all__ = ["KERNELS", "Kernel", "Step", "Window"]
