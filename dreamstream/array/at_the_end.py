"""Lengths as values of whole streams, which are known when these end and meet others that are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .stream_tensor import StreamTensor

__all__ = ["at_the_end"]


def at_the_end(length: Any, sizes: Sequence[int] = ()) -> Any:
    """Return a length as a real number of each stream, with features of these sizes."""
    ((value, edge),) = length.of.measure({"length": tuple(length.steps())})
    out = StreamTensor.inside(value, ("B",), edge).to(np.dtype(np.float32))
    return out.reshape(out.shape[0], *(1 for _ in sizes)).expand(-1, *sizes) if sizes else out
