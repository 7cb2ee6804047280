"""What torch computes: one kernel per operator of the C registry."""

from . import (  # noqa: F401  (each file enters its kernels)
    attention,
    convolution,
    experts,
    loops,
    moving,
    normalization,
    pointwise,
    pooling,
    positions,
    recurrent,
    reductions,
    shape,
    spectra,
    weights,
)
from .registry import KERNELS, Kernel, Step, Window

__all__ = ["KERNELS", "Kernel", "Step", "Window"]
