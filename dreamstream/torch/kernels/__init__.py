"""What torch computes: one kernel per operator of the C registry."""

from . import convolution, linear  # noqa: F401  (each file enters its kernels)
from .registry import KERNELS, Kernel, Step, Window

__all__ = ["KERNELS", "Kernel", "Step", "Window"]
