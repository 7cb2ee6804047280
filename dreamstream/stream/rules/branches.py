"""Ifs and loops over lengths that streams answer differently.

``if T % 4: x = F.pad(x, (0, 4 - T % 4))`` is one operation for all streams: a pad by an amount that is 0 where
the condition doesn't hold. The private copy of a forward (`dreamstream.tracing`) runs both branches of such an
if, one after the other, and what each leaves in the variables is merged. Two numbers become a length that counts
show to be the one where the condition holds and the other elsewhere. A stream that a branch pads or crops is
padded or cropped at once, by an amount that is nothing in all other streams. Of ``while T % 8: T += 1`` one
round runs, which tells what all rounds do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from ...errors import NotStreamableError
from ...source_line import user_line
from ...tracing import Hooks, Site
from ..foreign import inner_of
from .compare import Comparison, open_branch
from .condition import Condition, is_length
from .for_every_stream import OPPOSITE, holds
from .sizes import Token

__all__ = ["Apart", "Branch", "Loop", "changed_in_place", "chosen", "trusted"]

UNBOUND = Hooks.unbound


class Apart(Exception):
    """The two values of a variable can't be merged."""


def trusted(asked: Comparison, short: str = "few") -> bool | None:
    """Return what all streams answer but short ones: "few" frames, or fewer than any file has ("soon")."""
    length, relation = asked.single()
    if length is None:
        return None
    where = {"few": "beyond_few", "soon": "soon"}[short]
    return length.fact((short, relation), lambda f: holds(getattr(f, where)(), relation))


def changed_in_place(site: Site, seen: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the first of a site's ``name += …`` that changes what the name holds, and its line; else None."""
    for name, line in site.augmented:
        value = seen.get(name, UNBOUND)
        if value is not UNBOUND and not isinstance(value, (int, float, str, bytes, tuple, Token)):
            return name, line
    return None


def chosen(asked: Comparison, yes: Any, no: Any) -> Any:
    """Return what is `yes` where a comparison holds and `no` elsewhere; numbers and lengths only."""
    return _Values(asked, _conditions(asked, None), {}).merged(yes, no)


def _conditions(asked: Comparison, outer: Any) -> dict[bool, Condition]:
    """Return where each side of a comparison runs."""
    length, relation = asked.single()
    if length is None or not length.fact("known", bool):
        asked.refuse()
    made = {True: Condition((length, relation)), False: Condition((length, OPPOSITE[relation]))}
    return made if outer is None else {side: where.within(outer.where) for side, where in made.items()}


class _Values:
    """Merging the values that two branches leave in a variable."""

    def __init__(self, asked: Comparison, where: Mapping[bool, Condition], edits: Mapping[int, Any]) -> None:
        self._asked, self._where, self._edits = asked, where, edits

    def merged(self, yes: Any, no: Any) -> Any:
        """Merge two values: `yes` for streams where the condition holds, `no` for the others; or raise Apart."""
        if yes is no or no is UNBOUND:
            return yes
        if yes is UNBOUND:
            return no
        if type(yes) is tuple and type(no) is tuple and len(yes) == len(no):
            return tuple(self.merged(a, b) for a, b in zip(yes, no))
        if all(is_length(v) or type(v) is int for v in (yes, no)):
            number = self._where[True].recalled("merged", [yes, no], lambda: self._number(yes, no))
            if number is None:
                raise Apart
            return number
        if type(yes) is bool and type(no) is bool:
            return yes if yes is no else self._asked if yes else self._asked.opposite()
        if type(yes) is type(no) and type(yes) in (str, float, bytes) and yes == no:
            return yes
        return self._stream(yes, no)

    def _number(self, yes: Any, no: Any) -> Any:
        if type(differs := yes - no) is int and differs == 0:
            return no
        for side, own, other in ((True, yes, no), (False, no, yes)):
            for sign in (1, -1):
                settled = self._where[side].settled(sign * (own - other), other, sign)
                if settled is not None:
                    return other + sign * settled
        each = [self._where[side].settled(value) for side, value in ((True, yes), (False, no))]
        return None if any(value is None for value in each) else each[0] + each[1]

    def _stream(self, yes: Any, no: Any) -> Any:
        """Return a stream that comes from one by the pads and crops of both branches."""
        a, b = map(inner_of, (yes, no))
        ways = self._way(a), self._way(b)
        roots = [id(x) for x, _ in ways[1]]
        common = next((i for i, (x, _) in enumerate(ways[0]) if id(x) in roots), None)
        if common is None:
            raise Apart
        more = ways[1][: roots.index(id(ways[0][common][0]))]
        if not more:
            return yes
        if not common:
            return no
        for _, retake in reversed(more):
            a = retake(a)
        if a is inner_of(yes):
            return yes
        return type(yes).shell(a) if hasattr(type(yes), "_inner") else a

    def _way(self, x: Any) -> list[tuple[Any, Any]]:
        """Return a stream and what it was made of by pads and crops, the last first."""
        way: list[tuple[Any, Any]] = []
        while id(x) in self._edits:
            _, base, retake = self._edits[id(x)]
            way.append((x, retake))
            x = base
        return [*way, (x, None)]


def _frames(x: Any) -> Any:
    """Return the length of a stream; None of what is none."""
    edge = getattr(x, "edge", None)
    return edge.entry.library.length(edge) if edge is not None and edge.rate else None


class _Open:
    """What runs in a frame while only some streams are meant."""

    def __init__(self, asked: Comparison, site: Site, frame: FrameType) -> None:
        self.entry = asked.edge.entry
        self.outer = open_branch(self.entry)
        self._asked = asked
        self._site = site
        self._frame: FrameType | None = frame
        self._edits: dict[int, tuple[Any, Any, Callable[[Any], Any]]] = {}

    def is_running(self) -> bool:
        """Whether what runs is within it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None and frame.f_lineno in self._site.lines

    def left(self) -> NotStreamableError:
        """Return the error for a forward that goes on after an exception within it."""
        self.entry.guard = None
        return NotStreamableError(
            f"an exception was caught that leaves the `{self._site.kind} {self._site.text}` at {self._site}: "
            "streams that don't enter it have none; ask for what raises it by a comparison"
        )

    def wrote(self, what: str) -> NotStreamableError:
        """Return the error for a stream that is written into inside such a branch."""
        return NotStreamableError.here(
            what,
            f" writes into a stream in the `{self._site.kind} {self._site.text}` at {self._site}, which only "
            "some streams enter; do so in all of them, before or after it, or outside the forward",
        )

    def open(self) -> None:
        """Enter the branch: pads and crops of streams are made in it from now on."""
        self.entry.guard = self

    def close(self) -> None:
        """End it; what encloses it knows what was padded and cropped within."""
        if self.entry.guard is self:
            self.entry.guard = self.outer
        self._frame = None
        if self.outer is not None:
            self.outer._edits.update(self._edits)

    # ------------------------------------------------------------------ what happens to streams meanwhile
    def key(self, edges: list[Any]) -> Any:
        """Return a key of who enters it, and append the edges that are in it; None: nothing in it is repeated."""
        return None

    def padded(self, x: Any, pads: list[Any], end: int, whole: Any, pad: Callable[[Any, list[Any]], Any]) -> Any:
        """Pad a stream of this length by what all streams are padded by; `end` is behind its last frame."""
        others = [i for i, p in enumerate(pads) if i != end and (type(p) is not int or p)]
        if others == [end - 1] and type(pads[end]) is int and not pads[end]:  # before its first frame
            end -= 1
        elif others:
            if (meant := self.meant("soon")) is None:
                raise self._refused("pads")
            return pad(x, pads) if meant else x
        amount = pads[end]
        if is_length(amount) or amount:
            amount = self._settled(amount, whole, 1)
        if amount is None:
            raise self._refused("pads")
        before, after = [0] * end, [0] * (len(pads) - end - 1)
        return self._edited(x, amount, lambda y, by: pad(y, [*before, by, *after]))

    def cropped(self, x: Any, index: Any, whole: Any, crop: Callable[[Any, slice], Any]) -> Any:
        """Crop the end of a stream of this length by what all streams lose."""
        lost = None
        if isinstance(index, slice) and not index.start and not index.step and index.stop is not None:
            lost = self._settled(-index.stop if _is_negative(index.stop) else whole - index.stop, whole, -1)
        if lost is None:
            if (meant := self.meant()) is None:
                raise self._refused("crops")
            return crop(x, index) if meant else x
        if type(lost) is int and not lost:
            return x

        return self._edited(x, lost, lambda y, by: crop(y, slice(None, y.size(y.dims.index("L")) - by)))

    def becomes(self, x: Any, new: Any) -> Any:
        """Know a tensor that was made in the branch as the stream that it becomes, and return that."""
        self._forget()
        self._edits[id(x)] = x, new, lambda y: y
        return new

    def _edited(self, x: Any, amount: Any, edit: Callable[[Any, Any], Any]) -> Any:
        result = edit(x, amount)
        if result is not x:
            self.know(result, x, amount, edit)
            if self.entry.recording is not None:
                self.entry.recording.edited(result, x, amount, edit)
        return result

    def know(self, result: Any, x: Any, amount: Any, edit: Callable[[Any, Any], Any]) -> None:
        """Know a stream as what an edit by an amount of frames, a pad or a crop, made of another."""
        self._edits[id(result)] = result, x, lambda y: edit(y, amount)

    def _forget(self) -> None:
        """Let what runs now not be repeated by later calls: it depends on more than which streams enter."""
        if self.entry.recording is not None:
            self.entry.recording.forget()

    def meant(self, short: str = "few") -> bool | None:
        """Return whether all but short streams enter this branch; None where that isn't known."""
        return None

    def _settled(self, amount: Any, whole: Any, sign: int) -> Any:
        """Return by how much all streams are padded (1) or cropped (-1); None where that isn't known."""
        raise NotImplementedError

    def _refused(self, does: str) -> NotStreamableError:
        return NotStreamableError.here(
            f"an if that some streams enter {does} by what is not nothing in others,",
            "; do so by lengths without an if, as in F.pad(x, (0, -x.size(L) % 4))",
        )


class Branch(_Open):
    """An if that streams answer differently: first the branch where its test holds, then the other.

    `seen` are the variables of the frame that runs it; the frame is only looked at.
    """

    def __init__(self, asked: Comparison, site: Site, frame: FrameType, seen: Mapping[str, Any]) -> None:
        super().__init__(asked, site, frame)
        self._may_trust = self.outer is None and not site.in_while
        self._conditions = _conditions(asked, self.outer)
        self._before = seen
        self._after: Mapping[str, Any] = seen
        self._side = True
        #: What all but short streams answer, where an amount has no meaning for all.
        self._answer: bool | None = None
        self._merged: dict[str, Any] = {}
        self.open()

    @property
    def where(self) -> Condition:
        """Where the branch that runs is entered."""
        return self._conditions[self._side]

    def key(self, edges: list[Any]) -> Any:
        return self.where.key(edges)

    def then(self, seen: Mapping[str, Any]) -> None:
        """Go on with the other branch; `seen` are the variables behind the first."""
        self._after, self._side = seen, False

    def chosen(self, yes: Any, no: Any) -> Any:
        """Return the value of a conditional expression, of whose sides these are the values."""
        self._site, self._after = self._site._replace(names=("",)), {"": yes}
        self.merge({"": no})
        return self._merged[""]

    def back(self, name: str) -> Any:
        """Return the value of a variable before the if."""
        return self._before.get(name, UNBOUND)

    def merge(self, seen: Mapping[str, Any]) -> None:
        """Merge variables; `seen` are those behind the second branch.

        Where they can't be, all take the values of the branch that all but short streams enter; others are refused
        at their ends.
        """
        self.close()
        if (
            changed := changed_in_place(self._site, self._after) or changed_in_place(self._site, seen)
        ) is not None:
            self._asked.refuse_for_all(*changed)
        values = _Values(self._asked, self._conditions, self._edits)
        for name in self._site.names:
            yes, no = self._after.get(name, UNBOUND), seen.get(name, UNBOUND)
            try:
                self._merged[name] = values.merged(yes, no)
            except Apart:
                if (value := self._filled(yes, no)) is not UNBOUND:
                    self._merged[name] = value
                    continue
                numbers = all(is_length(v) or type(v) is int for v in (yes, no))
                self._trust("soon" if numbers and (is_length(yes) or is_length(no)) else "few")
                if self._answer is None:
                    self._merged[name] = self._unknown(name, yes, no)
        if self._answer is not None:
            taken = self._after if self._answer else seen
            self._merged = {name: taken.get(name, UNBOUND) for name in self._site.names}

    def _filled(self, yes: Any, no: Any) -> Any:
        """Return what all but short streams have, if neither has frames in the others; else `UNBOUND`."""
        usual = trusted(self._asked)
        lengths = [_frames(inner_of(v)) for v in (yes, no)]
        if usual is None or any(n is None for n in lengths):
            return UNBOUND
        return (yes if usual else no) if all(map(self._conditions[not usual].empties, lengths)) else UNBOUND

    def _trust(self, short: str) -> None:
        self._forget()
        if self._answer is None and self._may_trust:
            self._answer = trusted(self._asked, short)
            if self._answer is not None:
                now, self.entry.guard = self.entry.guard, None
                self._asked.require(self._answer)
                self.entry.guard = now

    def _unknown(self, name: str, yes: Any, no: Any) -> Any:
        """Return what stands for a number that may be needed within the if only."""
        more = (
            f" `{name}` after the if at {user_line()} is, where it holds, not what it is elsewhere but for "
            "padding, cropping and numbers."
        )
        if all(is_length(v) or type(v) is int for v in (yes, no)):
            return Unknown(self._asked, more)
        self._asked.refuse(more)

    def merged(self, name: str) -> Any:
        """Return the value of a variable behind the if."""
        return self._merged[name]

    def _settled(self, amount: Any, whole: Any, sign: int) -> Any:
        settled = self.where.settled(amount, whole, sign)
        if settled is None:
            self._trust("few" if type(amount) is int else "soon")
            return None if self._answer is None else amount if self._answer is self._side else 0
        return settled

    def meant(self, short: str = "few") -> bool | None:
        """Return whether all but short streams enter this branch; None where that isn't known."""
        self._trust(short)
        return None if self._answer is None else self._answer is self._side


class Unknown(Token):
    """A number that differs between streams after an if. It may be assigned again; every other use is refused."""

    __slots__ = ("_asked", "_why")

    def __init__(self, asked: Comparison, why: str) -> None:
        super().__init__(asked.edge)
        self._asked, self._why = asked, why

    def _misuse(self, use: str, more: str = "") -> NoReturn:
        self._asked.refuse(self._why)


def _is_negative(stop: Any) -> bool:
    if type(stop) is int:
        return stop < 0
    return bool(stop.fact("never above", lambda f: not f.exceeds(0)))


class Loop(_Open):
    """A ``while`` whose test streams answer differently. Its first round shows what every round does."""

    def __init__(self, asked: Comparison, site: Site, frame: FrameType, seen: Mapping[str, Any]) -> None:
        super().__init__(asked, site, frame)
        self._before = seen
        self._missing: Any = None
        self._results: dict[str, Any] = {}
        length, self._relation = asked.single()
        if length is None or self.outer is not None:
            asked.refuse()
        self._length = length
        self.open()

    def _settled(self, amount: Any, whole: Any, sign: int) -> Any:
        """Return by how much all rounds pad a stream, each by one frame up to a multiple; they crop none."""
        of, by = _remainder(self._length)
        if sign < 0 or of is None or amount != 1 or whole.key() != of.key() or self._relation not in ("ne", "gt"):
            return None
        self._missing = -of % by
        return self._missing

    def end(self, asked: Any, seen: Mapping[str, Any]) -> None:
        """Find the variables behind the loop; `seen` are those after its first round, `asked` its test then."""
        self.close()
        rounds = self._missing if asked is False else self._rounds(asked)
        if rounds is None:
            self._asked.refuse()
        for name in self._site.names:
            before, after = self._before.get(name, UNBOUND), seen.get(name, UNBOUND)
            self._results[name] = self._behind(before, after, rounds if name in self._site.even else None)

    def _behind(self, before: Any, after: Any, rounds: Any) -> Any:
        if after is before or id(inner_of(after)) in self._edits:
            return after
        numbers = all(is_length(v) or type(v) is int for v in (before, after))
        if rounds is None or not numbers or type(after - before) is not int:
            self._asked.refuse()
        return before + rounds * (after - before)

    def after(self, name: str) -> Any:
        """Return the value of a variable behind the loop."""
        return self._results[name]

    def _rounds(self, asked: Any) -> Any:
        """Return how many rounds there are; None where that is not known."""
        length, relation = asked.single() if isinstance(asked, Comparison) else (None, None)
        if length is None or relation != self._relation:
            return None
        (of, by), (later, by_later) = _remainder(self._length), _remainder(length)
        if of is not None and by == by_later and relation in ("ne", "gt"):
            step = later - of
            step = step % by if type(step) is int else 0
            return -of % by if step == 1 else of % by if step == by - 1 else None
        below = _BELOW.get(relation)
        if below is None:
            return None
        first, more = below(self._length), below(length) - below(self._length)
        if type(more) is not int or more <= 0:
            return None
        rounds = -(first // more)
        if not is_length(rounds) or rounds.compare(0, "ge") is True:
            return rounds
        return _conditions(self._asked, None)[True].settled(rounds)


#: A length that is below 0 as long as a loop goes on, by the relation with 0 of the one that it asks for.
_BELOW: dict[str, Callable[[Any], Any]] = {
    "lt": lambda n: n,
    "le": lambda n: n - 1,
    "gt": lambda n: -n,
    "ge": lambda n: -n - 1,
}


def _remainder(length: Any) -> tuple[Any, int]:
    """Return of what a length is the remainder, and by which number; None, 0 where it is none."""
    for coefficient, atom in length.terms:
        by = getattr(atom, "by", 0)
        if coefficient == -by and by > 1 and (length - atom.length % by) == 0:
            return atom.length, by
    return None, 0
