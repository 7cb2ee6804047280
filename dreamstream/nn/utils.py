"""What is done to all gradients of a model at once.

Source: torch.nn.utils, the function of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..array import Tensor
from ..array.dimension_arguments import in_c_order
from ..autograd import edited
from ..errors import ModeError

__all__ = ["clip_grad_norm_", "clip_grad_value_"]


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale gradients so that the norm of all of them together is at most `max_norm`.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Their `grad` changes in place.
    max_norm : float
    norm_type : float
        Of the p-norm; ``inf`` takes the largest element.
    error_if_nonfinite : bool
        Whether a norm that is no number is an error.
    foreach : bool, optional
        For torch's sake.

    Returns
    -------
    Tensor
        The norm that they had.

    Raises
    ------
    ModeError
        For a norm that is no number, where that is asked for; nothing has changed then.
    """
    gradients, norm_type = _gradients(parameters), float(norm_type)
    if not gradients:
        return Tensor(np.zeros((), np.float32))
    norms = [_norm_of(g.numpy(), norm_type) for g in gradients]
    total = Tensor(_norm_of(np.array(norms), norm_type))
    size = total.item()
    if error_if_nonfinite and not math.isfinite(size):
        raise ModeError(f"clip_grad_norm_: the norm of the gradients is {size}")
    factor = min(float((max_norm / (total + 1e-6)).item()), 1.0) if size == size else math.nan
    for g in gradients if factor != 1 else ():
        array = g.numpy()
        with np.errstate(invalid="ignore"):  # of infinities
            array *= array.dtype.type(factor)
        edited(array)
    return total


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Move the elements of gradients into [-clip_value, clip_value].

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Their `grad` changes in place.
    clip_value : float
    foreach : bool, optional
        For torch's sake.
    """
    for g in _gradients(parameters):
        np.clip(g.numpy(), -float(clip_value), float(clip_value), out=g.numpy())
        edited(g.numpy())


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in listed if p.grad is not None]


def _norm_of(array: NDArray[Any], p: float) -> NDArray[Any]:
    """Return the p-norm of all elements."""
    if p == 2 and array.dtype in (np.float32, np.float64):
        return np.array(math.sqrt(_core.squares(in_c_order(array))), array.dtype)
    return Tensor(array).norm(p).numpy()
