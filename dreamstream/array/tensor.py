"""The plain tensor: an array with torch's methods.

The class takes its methods from the files of their subjects: `functions`, `maths`, `views`, `reductions`,
`creation`. Editors and type checkers read ``tensor.pyi``, which ``python tests/source/test_stubs.py`` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .base import Base

__all__ = ["Tensor", "method"]

F = TypeVar("F")


class Tensor(Base):
    """An array of float32, float64, int64 or bool with torch's methods.

    Parameters
    ----------
    data : numpy.ndarray
        The values, shared, not copied; `dreamstream.tensor` copies and takes lists and numbers.
    requires_grad : bool
        For torch's sake: True raises ModeError, for no gradients are recorded without torch.

    Attributes
    ----------
    grad : Tensor or None
        The gradient; None until a backward pass has filled it.
    grad_fn : object or None
        The node of the tape that made the tensor; None without a tape.

    Raises
    ------
    DTypeError
        For element types that a tensor doesn't hold.
    ModeError
        Where a gradient is wanted.

    Notes
    -----
    Methods take torch's arguments. float32 and float64 never mix; Python numbers adopt the tensor's
    type. ``np.asarray(t)`` and ``t.numpy()`` share the tensor's memory. ``x += y`` computes a new
    tensor: only the methods whose names end in ``_`` write in place.

    Examples
    --------
    >>> import numpy as np
    >>> x = Tensor(np.array([[1, 2, 3], [4, 5, 6]]))
    >>> x.sum(dim=1)
    tensor([ 6, 15])
    >>> x[:, 1:].T.tolist()
    [[2, 5], [3, 6]]
    """


Base._plain_class = Tensor


def method(cls: type[Base], *names: str) -> Callable[[F], F]:
    """Make a function (or a property) a method of a class of tensors, under its own name or under these."""

    def take(function: F) -> F:
        inner: Any = getattr(function, "fget", function)
        own = names or (inner.__name__,)
        inner.__name__, inner.__qualname__ = own[0], f"{cls.__name__}.{own[0]}"
        for name in own:
            setattr(cls, name, function)
        return function

    return take
