"""Which kernel an exported operator runs."""

from __future__ import annotations

from ...errors import NotStreamableError
from ..kernels import KERNELS
from ..kernels.registry import Kernel
from .graph import FunctionalNode

__all__ = ["kernel_of"]


def kernel_of(node: FunctionalNode) -> Kernel:
    """Return the kernel of a node's operator.

    Raises
    ------
    NotStreamableError
        Where there is none.
    """
    kernel = KERNELS.get(node.name)
    if kernel is None:
        raise NotStreamableError(f"{node.path or 'the forward'}: {node.name} has no form that can be exported")
    return kernel
