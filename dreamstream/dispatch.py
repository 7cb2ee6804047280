"""The door: every layer and every functional call goes through :func:`apply`.

It alone chooses how an operator runs: on plain tensors at once (offline), inside an online forward
through the session (eager) or into a graph (capture). No operator is coded once per mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Dims = tuple[Any, ...]
"""What each visible dimension is: ``"B"`` (streams), ``"L"`` (stream axis), ``"B_L"`` (both joined), or
an int: that feature axis of the stored value ``[frames][features...]``."""


def apply(
    name: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    weights: Sequence[Any] = (),
    dims: Dims | None = None,
) -> tuple[Any, ...]:
    """Run the operator ``name`` on tensors.

    Parameters
    ----------
    name, attributes
        An operator of the C registry and its attributes.
    inputs
        Tensors: all plain, or StreamTensors of one entry.
    weights
        Constant tensors in the operator's order, None where an optional one is absent.
    dims
        What the dimensions of a *plain* input mean, and what those of a StreamTensor must be:
        ``("B", 0, "L")`` for a convolution, ``("B", "L", 0)`` for an LSTM, ``(..., 0)`` where the last
        axis is the feature axis and all others are frames, ``(..., 0, 1)`` for the last two;
        None: elementwise, operands broadcast as in NumPy.
        Without ``"B"`` a plain input is one sequence.

    Returns
    -------
    tuple of Tensor
        One per output, with the dimensions in the input's order (an output without L lacks it; new
        feature axes come last).
    """
    raise NotImplementedError
