"""Reading what a user wrote as integers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...errors import DreamStreamError, DTypeError


def as_int(value: Any, what: str) -> int:
    """Return a value as an int.

    Parameters
    ----------
    value : int or NumPy integer
        What a user wrote. A token (`Length`, `BatchSize`) raises its own error.
    what : str
        Subject of the error's message, such as ``"a dimension"``.

    Raises
    ------
    DTypeError
        It is a bool, or no integer.
    """
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except DreamStreamError:
            raise
        except TypeError:
            pass
    raise DTypeError(f"{what} must be an integer, got {value!r} of type {type(value).__name__}")


def is_integer(value: object) -> bool:
    """Return whether a value is an int or a NumPy integer (and no bool, no token)."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
