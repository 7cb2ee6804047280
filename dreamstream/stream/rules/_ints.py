"""Reading what a user wrote as integers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...errors import DreamStreamError, DTypeError


def as_int(value: Any, what: str) -> int:
    """Return an integer that a user wrote, Python's or NumPy's, as an int.

    Tokens (`Length`, `BatchSize`) raise their own error, all else a DTypeError about `what`.
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
