"""The plain tensor: an array with torch's methods.

The class takes its methods from the files of their subjects: each public function of `maths`, `views` and
`reductions` is one, and what `functions` and `creation` say. Editors and type checkers read ``tensor.pyi``, which
``python tests/source/test_stubs.py`` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from .base import Base


class Tensor(Base):
    """An array of float32, float64, int64 or bool with torch's methods.

    Parameters
    ----------
    data : numpy.ndarray
        The values, shared, not copied; `dreamstream.tensor` copies and takes lists and numbers.
    requires_grad : bool
        Whether what is computed of it is recorded, so that `backward` gives its gradient.

    Attributes
    ----------
    grad : Tensor or None
        The gradient; None until a backward pass has filled it.
    grad_fn : object or None
        The record of what made the tensor; None of leaves.

    Raises
    ------
    DTypeError
        For element types that a tensor doesn't hold, and for gradients of integers and bools.

    Notes
    -----
    Methods take torch's arguments. float32 and float64 never mix; Python numbers adopt the tensor's
    type. ``np.asarray(t)`` and ``t.numpy()`` share the tensor's memory. ``x += y`` and the methods whose
    names end in ``_`` write in place, and so does assignment; outside a forward ``x += y`` of streams makes a
    new tensor.

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


def take(cls: type[Any], module: Mapping[str, Any] | None = None, /, **others: Any) -> None:
    """Give a class of tensors its methods: `others`, by their names, and those of a module's ``globals()``.

    Of a module these are its own functions, but those whose names begin with one underscore.
    """
    own = {
        name: function
        for name, function in (module or {}).items()
        if getattr(function, "__module__", None) == module["__name__"]  # type: ignore[index]
        and isinstance(function, FunctionType)
        and (name.startswith("__") or not name.startswith("_"))
    }
    for name, function in (*others.items(), *own.items()):
        inner = getattr(function, "fget", function)
        inner.__name__, inner.__qualname__ = name, f"{cls.__name__}.{name}"
        setattr(cls, name, function)


def each(**words: str) -> Callable[[Callable[[str], Any]], dict[str, Any]]:
    """Make methods that differ by their names alone of a function that gives one by its name.

    `words` has by the method's name what stands in its docstring for ``{}``.
    """

    def make(method_of: Callable[[str], Any]) -> dict[str, Any]:
        methods = {name: method_of(name) for name in words}
        for name, method in methods.items():
            method.__doc__ = (method.__doc__ or "").replace("{}", words[name])
        return methods

    return make
