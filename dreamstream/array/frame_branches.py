"""An ``if`` in a loop over frames that is true for some frames only, as ``if t % 2 == 0``.

Both branches run, one after the other, on the frame that stands for many; what each leaves in a variable is chosen
by the comparison, frame by frame (`where`). Where that can't be, since a variable has no value yet, or two values
are no tensors of one shape, the round is made that frame's own, and enters one branch alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..stream.foreign import inner_of
from ..stream.rules import changed_in_place
from ..tracing import Hooks, Site
from .elementwise import where
from .frame_numbers import FIRST, Computed, FrameTruth, LoopNumber, beside, refuse
from .loop_lists import Grown, has_grown
from .loop_values import is_of_body, walk
from .protocol import unless_refused

#: How many first frames may have rounds of their own because a variable has no value yet.
_UNSET = 4


def undecided(value: Computed) -> Any:
    """Return the truth of a frame's number: a bool in a round of one frame, else a `FrameTruth`."""
    truth, loop = value if isinstance(value, FrameTruth) else value != 0, value.loop
    loop.of_one_frame |= loop.is_unset and len(loop.rounds) < _UNSET
    return bool(truth.at(loop.position)) if loop.of_one_frame else truth


def one_of(truth: FrameTruth, yes: Any, no: Any, name: str = "the value", most: int = FIRST) -> Any:
    """Return a value that is `yes` at frames where `truth` holds, and `no` at others.

    If there is none, the round is made one frame's own; after `most` such rounds that is refused.
    """
    made, loop = _merged(truth, yes, no), truth.loop
    if made is not NotImplemented:
        return made
    if len(loop.rounds) >= most:
        refuse(f"{name} of an if on a frame's number is of another kind or shape in its branches; make both alike")
    loop.of_one_frame = True
    return yes if truth.at(loop.position) else no


def _merged(truth: FrameTruth, yes: Any, no: Any) -> Any:
    kind = type(yes)
    if yes is no:
        return yes
    if kind is not type(no) and Grown in (kind, type(no)):  # one that the loop appends to, and a new list
        own = [[*list.__iter__(x)] if isinstance(x, list) and not has_grown(x) else None for x in (yes, no)]
        return NotImplemented if None in own else _merged(truth, *own)
    if kind is type(no) and kind in (tuple, list) and len(yes) == len(no):
        parts = [_merged(truth, a, b) for a, b in zip(yes, no)]
        return NotImplemented if any(p is NotImplemented for p in parts) else kind(parts)
    if kind is type(no) is dict and [*yes] == [*no]:
        values = _merged(truth, [*yes.values()], [*no.values()])
        return values if values is NotImplemented else dict(zip(yes, values))
    if kind is type(no) is bool:
        return yes if yes == no else truth if yes else truth.opposite()
    if all(isinstance(x, (int, float, LoopNumber)) for x in (yes, no)):
        return yes if kind is type(no) in (int, float) and yes == no else _Choice(truth, yes, no)
    if not (hasattr(yes, "where") and hasattr(no, "where") and _alike(yes, no)):
        return NotImplemented
    condition = truth.as_tensor(lambda x: x)
    condition = condition if is_of_body(no) else beside(condition, yes)
    return yes.where(truth.loop.entry.library.see(condition), no)


def _alike(yes: Any, no: Any) -> bool:
    """Whether two tensors have the same dimensions and element type."""
    shapes = [tuple(map(str, inner_of(x).shape)) for x in (yes, no)]
    return shapes[0] == shapes[1] and str(yes.dtype) == str(no.dtype)


class _Choice(Computed):
    """A number of a frame that is one of two, as ``a if t % 2 else b``."""

    __slots__ = ()

    def __init__(self, *operands: Any) -> None:
        super().__init__(operands[0].loop, where, *operands)

    def at(self, position: int) -> Any:
        truth, yes, no = self._operands
        chosen = yes if truth.at(position) else no
        return chosen.at(position) if isinstance(chosen, LoopNumber) else chosen

    def as_tensor(self, real: Any) -> Any:
        truth, *numbers = self._operands
        zero: Any = self.loop.positions() * 0
        zero = real(zero) if self.is_float else zero
        return where(
            truth.as_tensor(real),
            *(zero + (x.as_tensor(real) if isinstance(x, LoopNumber) else x) for x in numbers),
        )


class FrameBranch:
    """An ``if`` on a frame's number; both branches run, first the one where it is true.

    `seen` are the variables of the function.
    """

    def __init__(self, truth: FrameTruth, site: Site, seen: Mapping[str, Any]) -> None:
        self._truth, self._site, self._before = truth, site, seen
        self._after: Mapping[str, Any] = seen
        self._merged: dict[str, Any] = {}
        self._require_none(next(iter((*site.escapes, *site.effects)), None))
        self._counts = [(v, list.__len__(v)) for v in seen.values() if isinstance(v, Grown)]
        truth.loop.within.append((truth, True))

    def _require_none(self, lasting: tuple[str, int] | None) -> None:
        """Refuse an effect of a branch, as a method that changes an object: it would happen at every frame."""
        if lasting is not None:
            refuse(
                f"`{lasting[0]}` in line {lasting[1]} would be done at every frame, not only where "
                f"`{self._site.text}` holds; assign new values in the if, as h = h + x[:, t], and append or write "
                "them behind it"
            )

    def then(self, seen: Mapping[str, Any]) -> None:
        """Begin the other branch; `seen` are the variables at the end of the first."""
        self._after = seen
        self._truth.loop.within[-1] = (self._truth, False)

    def back(self, name: str) -> Any:
        """Return the value of a variable before the if."""
        return self._before.get(name, Hooks.unbound)

    def merge(self, seen: Mapping[str, Any]) -> None:
        """Choose the variables' values after the if; `seen` are those at the end of the second branch."""
        self._truth.loop.within.pop()
        self._require_none(changed_in_place(self._site, self._after) or changed_in_place(self._site, seen))
        if any(list.__len__(v) != n for v, n in self._counts):
            self._require_none((self._site.text, self._site.line))
        for name in self._site.names:
            yes, no = (v.get(name, Hooks.unbound) for v in (self._after, seen))
            choose = partial(one_of, self._truth, yes, no, f"`{name}`")
            if name in self._truth.loop.live:
                self._merged[name] = choose()
            elif self._is_gone(yes) or self._is_gone(no):
                self._merged[name] = no if self._is_gone(yes) else yes  # only one branch uses it
            else:  # if no value serves both, it is refused where it is read
                self._merged[name] = unless_refused(partial(choose, FIRST - 1))

    def _is_gone(self, value: Any) -> bool:
        """Whether a variable has no value, or one of an earlier round, which nothing reads."""
        leaves: list[Any] = []
        walk(value, lambda x, _: leaves.append(x))
        body = self._truth.loop.body
        return value is Hooks.unbound or any(is_of_body(x) and inner_of(x).edge.entry is not body for x in leaves)

    def merged(self, name: str) -> Any:
        """Return the value of a variable after the if."""
        return self._merged[name]
