"""An edge as sizes and positions of streams want one, without a stream behind it."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from dreamstream.errors import ModeError
from dreamstream.stream.edge import Line
from dreamstream.stream.rules import Sizes


class Edge:
    """An edge of a line and a rate; what misuses it is a ModeError."""

    def __init__(self, cid: Any = ("in", 0), rate: Any = 1) -> None:
        self.cid, self.rate = cid, Fraction(rate)
        self.line = Line(cid, self.rate, "float32", ())
        self.entry = SimpleNamespace(guard=None, library=Sizes())

    misuse = staticmethod(ModeError.here)
