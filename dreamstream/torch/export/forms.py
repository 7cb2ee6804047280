"""Which kernel an exported operator runs: the operator's, but for what exporters don't follow."""

from __future__ import annotations

from dataclasses import replace

from ...errors import NotStreamableError
from ..run.kernels import KERNELS, Kernel
from .framing import frame, overlap_add
from .graph import FunctionalNode
from .recurrent import recurrent

__all__ = ["kernel_of"]

FORMS = {
    "lstm": recurrent,
    "gru": recurrent,
    "rnn": recurrent,
    "frame": frame,
    "overlap_add": overlap_add,
}


def kernel_of(node: FunctionalNode) -> Kernel:
    """Return the kernel of a node's operator.

    Raises
    ------
    NotStreamableError
        Where there is none.
    """
    kernel = KERNELS.get(node.name)
    if kernel is None:
        raise NotStreamableError(
            f"{node.path or 'the forward'}: {node.name} has no form that can be exported"
        )
    form = FORMS.get(node.name)
    return kernel if form is None else replace(kernel, run=form)
