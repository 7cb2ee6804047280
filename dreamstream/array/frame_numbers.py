"""Numbers that differ from frame to frame of a loop: the frame's own, and what Python's operators make of it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partialmethod
from typing import Any, NoReturn

from ..errors import NotStreamableError
from ..operations.refusals import LOOPS_BACKWARDS, LOOPS_TO_LAST, Refusal
from ..source_line import user_line
from ..stream.foreign import inner_of
from ..stream.rules import MIRRORED, Length, Token

#: How many first frames of a loop may have rounds of their own.
FIRST = 8


def refuse(why: str | Refusal) -> NoReturn:
    """Refuse what a loop over frames does."""
    raise NotStreamableError(f"{user_line()}: {why if isinstance(why, str) else why.text}")


class LoopNumber(Token):
    """A number that differs from frame to frame of a loop, in Python's operators.

    What they make of it and a tensor is a tensor. What they make of it and a number is not computed before it
    meets a tensor: as in Python it has no precision of its own, and takes the tensor's.
    """

    __slots__ = ("loop",)
    loop: Any  # a Loop
    is_float = False
    _what = "the number of a frame"
    _serves = (
        "It serves to index streams and tables along L (`x[:, t]`, `x[:, t - 1]`), in `if t >= k` and "
        "`if t % 2 == 0`, and in Python's operators (`h / (t + 1)`, `table[t % 4]`)."
    )

    def at(self, position: int) -> Any:
        """Return the number at a frame."""
        raise NotImplementedError

    def as_tensor(self, real: Callable[[Any], Any]) -> Any:
        """Return it as a native tensor of one value; `real` makes floats of its integers where it is none."""
        raise NotImplementedError

    def _operator(self, operation: str, other: Any) -> Any:
        if isinstance(other, Length) and operation == "rsub":
            refuse(LOOPS_BACKWARDS)
        reflected = operation.startswith("r")
        of = getattr(operator, operation.removeprefix("r"))
        if isinstance(other, (int, float, LoopNumber)):
            return Computed(self.loop, of, *((other, self) if reflected else (self, other)))
        if not hasattr(other, "is_floating_point"):
            self._misuse(f"combined with {'another size' if isinstance(other, Token) else type(other).__name__}")
        at = self.loop.entered(self, self.as_tensor(_like(other)))
        at = self.loop.entry.library.see(beside(at, other))
        return of(other, at) if reflected else of(at, other)

    __add__, __radd__ = partialmethod(_operator, "add"), partialmethod(_operator, "radd")
    __sub__, __rsub__ = partialmethod(_operator, "sub"), partialmethod(_operator, "rsub")
    __mul__, __rmul__ = partialmethod(_operator, "mul"), partialmethod(_operator, "rmul")
    __truediv__, __rtruediv__ = partialmethod(_operator, "truediv"), partialmethod(_operator, "rtruediv")
    __floordiv__, __rfloordiv__ = partialmethod(_operator, "floordiv"), partialmethod(_operator, "rfloordiv")
    __mod__, __rmod__ = partialmethod(_operator, "mod"), partialmethod(_operator, "rmod")
    __pow__, __rpow__ = partialmethod(_operator, "pow"), partialmethod(_operator, "rpow")

    def __neg__(self) -> Any:
        return self * -1


def _like(x: Any) -> Callable[[Any], Any]:
    """Return what makes floats as a tensor's."""
    native = inner_of(x)
    return (lambda at: at.to(native.dtype)) if native.is_floating_point() else (lambda at: at.float())


def beside(at: Any, constant: Any) -> Any:
    """Return a number of each frame with as many dimensions as a tensor has that all frames share."""
    own = hasattr(type(constant), "_inner") or getattr(constant, "is_stream", False)
    return at if own else at.reshape(*[1] * constant.ndim)


class Computed(LoopNumber):
    """What an operator makes of the number of a frame and another number."""

    __slots__ = ("_of", "_operands", "is_float")

    def __init__(self, loop: Any, of: Callable[..., Any], *operands: Any) -> None:
        super().__init__(loop.clock)
        self.loop, self._of, self._operands = loop, of, operands
        self.is_float = of is operator.truediv or any(
            isinstance(x, float) or getattr(x, "is_float", False) for x in operands
        )
        if of is operator.pow and not self.is_float:
            self.is_float = not isinstance(operands[1], int) or operands[1] < 0

    def at(self, position: int) -> Any:
        return self._of(*(x.at(position) if isinstance(x, LoopNumber) else x for x in self._operands))

    def as_tensor(self, real: Callable[[Any], Any]) -> Any:
        parts = [x.as_tensor(real) if isinstance(x, LoopNumber) else x for x in self._operands]
        if self.is_float:
            parts = [
                real(part) if isinstance(x, LoopNumber) and not x.is_float else part
                for x, part in zip(self._operands, parts)
            ]
        return self._of(*parts)

    def _compared(self, of: Callable[[Any, Any], Any], other: Any) -> FrameTruth:
        is_number = type(other) is int or (isinstance(other, LoopNumber) and not isinstance(other, FrameTruth))
        if self.is_float or not is_number:
            self._misuse("compared with what is no integer")
        return FrameTruth(self.loop, of, self, other)

    __eq__, __ne__ = partialmethod(_compared, operator.eq), partialmethod(_compared, operator.ne)
    __lt__, __le__ = partialmethod(_compared, operator.lt), partialmethod(_compared, operator.le)
    __gt__, __ge__ = partialmethod(_compared, operator.gt), partialmethod(_compared, operator.ge)

    __hash__ = Token.__hash__


class FrameTruth(Computed):
    """A comparison that some frames answer one way and others another, as ``t % 2 == 0``.

    An ``if`` on it runs both branches and chooses between what they leave (`frame_branches`).
    """

    __slots__ = ()

    def require(self, answer: bool = True) -> NoReturn:
        """Refuse what is raised, or repeated, at some frames only."""
        self._misuse("asked whether to raise an error, or by `while`; check `x.size(1)` before the loop")

    def opposite(self) -> FrameTruth:
        """Return what holds at all other frames."""
        return FrameTruth(self.loop, operator.eq, self, 0)

    def both(self, other: Any) -> FrameTruth:
        """Return what holds where this and another one do."""
        if not isinstance(other, FrameTruth):
            self._misuse("compared beside the length of a stream")
        return FrameTruth(self.loop, operator.and_, self, other)

    def either(self, other: Any) -> FrameTruth:
        """Return what holds where this or another one does."""
        return self.opposite().both(other.opposite()).opposite()


class FrameNumber(LoopNumber):
    """The position of the frame that a loop is at, and a constant more.

    A comparison with a number is decided by the kind of frame: of the first ones each is a kind of its own.
    """

    __slots__ = ("off",)
    off: int

    def __init__(self, loop: Any, off: int = 0) -> None:
        super().__init__(loop.clock)
        self.loop, self.off = loop, off

    def at(self, position: int) -> Any:
        return position + self.off

    def as_tensor(self, real: Callable[[Any], Any]) -> Any:
        return self.loop.positions() + self.off

    def __add__(self, other: Any) -> Any:
        return FrameNumber(self.loop, self.off + other) if type(other) is int else self._operator("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, FrameNumber) and other.loop is self.loop:
            return self.off - other.off
        return self + -other if type(other) is int else self._operator("sub", other)

    def __bool__(self) -> bool:
        return self != 0

    def _compare(self, relation: str, other: Any) -> Any:
        if isinstance(other, Length):
            refuse(LOOPS_TO_LAST)
        if isinstance(other, FrameNumber) and other.loop is self.loop:
            return bool(getattr(operator, relation)(self.off, other.off))
        if isinstance(other, Computed):
            return other._compared(getattr(operator, MIRRORED[relation]), self)
        if type(other) is not int:
            self._misuse("compared")
        compare, first = getattr(operator, relation), self.loop.position + self.off
        # an answer that changes behind the frames that may have rounds of their own differs from frame to frame
        if other - self.off + (relation not in ("lt", "ge")) >= FIRST:
            return FrameTruth(self.loop, compare, self, other)
        here = compare(first, other)
        later = {compare(n, other) for n in (*range(first, max(first, other) + 2), 1 << 40)}
        if not self.loop.of_one_frame and later != {here}:
            self.loop.of_one_frame = True
        return here

    __eq__, __ne__ = partialmethod(_compare, "eq"), partialmethod(_compare, "ne")
    __lt__, __le__ = partialmethod(_compare, "lt"), partialmethod(_compare, "le")
    __gt__, __ge__ = partialmethod(_compare, "gt"), partialmethod(_compare, "ge")

    __hash__ = Token.__hash__

    def __repr__(self) -> str:
        return "<number of a frame>" if not self.off else f"<number of a frame {self.off:+d}>"


def number_in(index: Any) -> bool:
    """Whether the number of a loop's frame is among the parts of an index."""
    for part in index if type(index) is tuple else (index,):
        if isinstance(part, LoopNumber) or (
            type(part) is slice and FrameNumber in (type(part.start), type(part.stop))
        ):
            return True
    return False
