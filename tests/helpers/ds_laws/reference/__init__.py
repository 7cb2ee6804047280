"""What every operator computes, in plain NumPy: the values that the suite believes.

A function takes the operator's attributes by name, its weights and its inputs, each ``[frames][features]``
of one whole sequence, and returns its outputs. Inputs of floating point arrive as float64. They are NumPy's
arithmetic alone. `Refused` is raised for lengths that are an error at the end of a stream.

Families of few operators have theirs beside their random cases, in `..operators`, which enters them here.

Where torch raises only because a sequence is too short, or empty, there are no frames; nothing comes out
of no frames. An output without a stream axis is one frame, or none.
"""

from __future__ import annotations

from collections.abc import Callable

from . import features, frames, planes, pointwise, products, recurrent
from .base import Array, Refused, length_of, named, operands
from .frames import RELATIONS, padded_to, required

__all__ = ["REFERENCES", "RELATIONS", "Refused", "length_of", "operands", "padded_to", "required"]

REFERENCES: dict[str, Callable[..., list[Array]]] = {}

for _file in (products, frames, pointwise, recurrent, planes, features):
    REFERENCES.update(named(_file, "list[Array]") | getattr(_file, "REFERENCES", {}))
