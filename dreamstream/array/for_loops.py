"""Loops over frames in a forward's private copy: which rounds their bodies run, and what their names mean.

A round of the body stands for one frame and all later ones, or, where something in it holds at its position alone,
for that frame; then another round follows. A round at whose end all that is carried is as it was at its beginning
is that of all later frames. It runs once more, to see that it does the same again: what a forward keeps elsewhere
from frame to frame, in an attribute perhaps, would show there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from ..operations.refusals import (
    LOOPS_BACKWARDS,
    LOOPS_CHANGE,
    LOOPS_ELSEWHERE,
    LOOPS_GROW,
    LOOPS_LEFT,
    LOOPS_NUMBERS,
)
from ..stream.foreign import inner_of
from ..stream.rules import Length, Slots, open_branch
from ..tracing import Hooks, Site, variables
from . import writing
from .batch_constants import is_constant
from .dimension_arguments import numbered
from .elementwise import where
from .first_frame import FirstFrame, with_first
from .frame_numbers import FrameNumber, LoopNumber, refuse
from .loop_body import mixed
from .loop_frames import EachFrame, Enumerated, Frames, InParts, Numbers, Together, along, from_before, last_of
from .loop_lists import Gathered, GatheredParts, Grown, History
from .loop_values import PARTS, is_of_body, parts_of, put_together, walk
from .loops import MOST_ROUNDS, Loop
from .stream_tensor import StreamTensor

#: Python's own types of what holds others, and goes through none of streams.
PLAIN = frozenset((list, tuple, dict, set, str, range, zip, enumerate, type({}.keys()), type({}.items())))


def frames_in(x: Any) -> Frames | None:
    """Return the frames that a value is gone through by; None where it is none of streams."""
    if type(x) in PLAIN:
        return None
    if isinstance(x, Frames):
        return x
    if isinstance(x, Gathered):
        return x.each()
    inner = inner_of(x)
    if type(inner) is StreamTensor and inner.edge is not None and inner.dims[:1] == ("L",):
        return EachFrame(inner, 0)
    parts = [frames_in(part) for part in parts_of(x) or ()]
    return InParts(parts, partial(put_together, x)) if any(parts) else None


# ---------------------------------------------------------------------- builtins
def _range(*args: Any) -> Any:
    args = tuple([a.settled() if isinstance(a, Length) else a for a in args])
    if not any(isinstance(a, (Length, FrameNumber)) for a in args):
        return range(*args)
    if len(args) > 2 and args[2] != 1:
        refuse(
            LOOPS_BACKWARDS
            if type(args[2]) is int and args[2] < 0
            else "a step over frames; take every k-th one before the loop, x[:, ::k], and give layers all that "
            "blocks would, layer(x, state)"
        )
    start, stop = (0, args[0]) if len(args) == 1 else args[:2]
    if isinstance(stop, FrameNumber) or isinstance(start, FrameNumber):
        refuse(LOOPS_GROW)
    if not isinstance(start, int):
        refuse("a loop over frames that begins at another frame in each stream")
    return Numbers(start, stop)


def _enumerate(over: Any, start: int = 0) -> Any:
    frames = frames_in(over)
    return enumerate(over, start) if frames is None else Enumerated(start, frames)


def _zip(*parts: Any, **options: Any) -> Any:
    frames = [frames_in(p) for p in parts]
    if not any(f is not None for f in frames):
        return zip(*parts, **options)
    if any(f is None for f in frames):
        refuse("zip of frames and something else; index that by the frame's number: for t, frame in enumerate(…)")
    return Together(frames)  # type: ignore[arg-type]


def _reversed(over: Any) -> Any:
    return reversed(over) if frames_in(over) is None else refuse(LOOPS_BACKWARDS)


def _len(x: Any) -> Any:
    if type(x) in PLAIN:
        return len(x)
    if type(x) is Grown:
        return x.length()
    if type(x) is Slots:
        return x.length
    frames = frames_in(x)
    if frames is not None:
        return frames.length
    inner = inner_of(x)
    streams = type(inner) is StreamTensor and inner.edge is not None and inner.dims[:1] == ("B",)
    return inner.shape[0] if streams else len(x)


def _listed(kind: type, *args: Any) -> Any:
    return args[0] if args and isinstance(args[0], (Frames, Gathered)) else kind(*args)


#: What stands for Python's functions of what a loop goes over.
INSTEAD: dict[Any, Callable[..., Any]] = {
    range: _range, enumerate: _enumerate, zip: _zip, reversed: _reversed, len: _len,
    **{kind: partial(_listed, kind) for kind in (list, tuple)},
}  # fmt: skip


# ---------------------------------------------------------------------- the statement
def _each(name: str) -> list[Any]:
    """Return the outputs that the parts are which a list gathers."""
    return [("each", name, part) for part in PARTS]


def _place(name: str, path: tuple[Any, ...]) -> str:
    """Return how what stands in a variable is written."""
    return name + "".join([f"[{p}]" for p in path]) if path else name


#: What is compared by value from round to round.
_NUMBERS = frozenset((int, float, bool, str, type(None)))


class ForLoop:
    """A ``for`` that runs; `begin` makes it one over frames."""

    solved = False
    scans = False
    _depth = 1  # of the function whose loop it is, from where its rounds are

    def __init__(self, site: Site) -> None:
        self.site = site

    def begin(self, frames: Frames, found: dict[str, Any]) -> Iterator[Any]:
        """Return the rounds of a loop over frames; `found` are the function's variables."""
        self._require_no_leave()
        self._open(frames)
        self.scans = True
        self._found = found
        self._initial = {n: found.get(n, Hooks.unbound) for n in (*self.site.names, *self.site.held)}
        self._values = self._initial
        self._counts: dict[Any, FrameNumber] = {}
        self._histories: dict[str, History] = {}
        return self._rounds()

    def _require_no_leave(self) -> None:
        leave = next((e for e in self.site.escapes if e[0] not in ("continue", "del")), None)
        if leave is not None:
            refuse(f"`{leave[0]}` at line {leave[1]}: {LOOPS_LEFT.text}")

    def _open(self, frames: Frames) -> None:
        self.loop = Loop(frames.length, frames.first)
        self._frames, self.loop.live = frames, self.site.live
        entry = self.loop.entry
        if open_branch(entry) is not None:
            refuse("a loop over frames in an if that only some streams enter")
        self._see = entry.library.see
        self._places = entry.places
        #: Whether this loop runs at a place where none has run before, as in all captures.
        self._is_new = entry.n_done >= len(entry.script) if hasattr(entry, "script") else True

    def _target(self, number: FrameNumber) -> Any:
        target = self._frames.at(number)
        if target is number:
            return number
        return walk(target, lambda x, _: self._see(x) if type(x) is StreamTensor else x)

    def _rounds(self) -> Iterator[Any]:
        entry, places, place = self.loop.entry, self._places, (self.site, getattr(self.loop.entry, "n_done", 0))
        entry.places, self.loop.places = None, places  # what happens within is recorded by the loop
        entry.loop = entry.open_loop = self.loop
        self.loop.kept = None if places is None else places.pop(place, None)
        try:
            steady = False
            for _ in range(MOST_ROUNDS):
                number = self.loop.begin()
                self._stand_ins: list[tuple[int, StreamTensor, Any]] = []
                self._before: dict[str, list[Any]] = {}
                self._started = {n: self._start(n, v) for n, v in self._values.items()}
                unset = [self._started[n] for n in self.site.names if n in self.site.live]
                self.loop.is_unset = any(v is None or v is Hooks.unbound for v in unset)
                self._given: dict[Any, Any] = {}
                self._items: dict[str, Any] = {}
                yield self._target(number)
                seen = variables(sys._getframe(self._depth))
                again = self._end(seen)
                if again and self.loop.is_as_kept():
                    break  # in the call before, one more round did the same
                needed = self.loop.needed() if steady else ()
                if steady and self.loop.rounds[-2].does_as(self.loop.rounds[-1], needed):
                    verified = self.loop.rounds.pop()
                    self.loop.keep_if_same(verified)
                    break
                differs, steady = steady, again
            else:
                if differs:
                    refuse(LOOPS_ELSEWHERE)
                if self._moved:
                    numbers = all(isinstance(self._values[n], (int, float, LoopNumber)) for n in self._moved)
                    why = LOOPS_NUMBERS if numbers else LOOPS_CHANGE
                    refuse(f"{', '.join(f'`{n}`' for n in self._moved)}: {why.text}")
                refuse(f"something else happens at each of {MOST_ROUNDS} first frames; ask `if t >= k`")
            if self._is_new:
                self._require_own_state()
            entry.places, entry.loop, entry.open_loop, entry.body = places, None, None, None
            self._finish()
            if places is not None and self.loop.kept is not None:
                places[place] = self.loop.kept
        finally:
            entry.places, entry.loop, entry.open_loop = places, None, None
            self._histories, self._started = {}, {}
            self.loop.close()

    # ------------------------------------------------------------------ one round
    def _start(self, name: str, value: Any) -> Any:
        """Return what a name holds at the head of the body."""
        if name in self.site.names and name not in self.site.live:
            return value
        kinds = self._before[name] = []
        if value is Hooks.unbound:
            return value

        def at(leaf: Any, path: tuple[Any, ...]) -> Any:
            made = begun(leaf, path)
            self._note_kind(kinds, name, made, path, 0)
            return made

        def begun(leaf: Any, path: tuple[Any, ...]) -> Any:
            inner = inner_of(leaf)
            if is_constant(inner):
                return self._begins_as(name, path, inner)
            if type(leaf) is int and (number := self._counts.get((name, path))) is not None:
                return number
            if type(leaf) is FrameNumber:
                return FrameNumber(self.loop, leaf.off - 1)
            if isinstance(leaf, FirstFrame):
                self.loop.of_one_frame = True
                return self._see(leaf.frame(self.loop))
            if is_of_body(leaf):
                dims = inner.dims
                edge = self.loop.placeholder(self._key(name, path, dims, inner.edge), inner)
                return self._placed(inner, StreamTensor.inside(None, dims, edge))
            return leaf

        if type(value) in (list, Grown, Slots):
            places = value.length if type(value) is Slots else None
            if places is not None and (places == self._frames.length) is not True:
                refuse("a list of other places than the loop has frames is filled; make it as long as the loop")
            return Grown(walk(value, at), self.loop, self._histories.get(name), places)
        return walk(value, at)

    def _key(self, name: str, path: tuple[Any, ...], dims: Any, edge: Any) -> Any:
        return (_place(name, path), dims, edge.dtype, edge.features)

    def _begins_as(self, name: str, path: tuple[Any, ...], constant: Any) -> Any:
        """Return what stands for a state that every stream begins with alike."""
        value, dtype, shape = constant.first()
        dims: list[Any] = list(range(len(shape)))
        dims.insert(constant.batch_axis, "B")
        key = (_place(name, path), tuple(dims), dtype, shape)
        edge = self.loop.constant(key, value, dtype, shape)
        return self._placed(constant, StreamTensor.inside(None, tuple(dims), edge))

    def _placed(self, of: Any, native: StreamTensor) -> Any:
        """Note what stands for a tensor, to see whether it is written into, and return it."""
        self._stand_ins.append((id(of), native, native.edge))
        return self._see(native)

    def _require_own_memory(self, gathered: Any) -> None:
        """Refuse what is written in place where another variable, or a list, holds the same tensor."""
        written = [(of, native) for of, native, edge in self._stand_ins if native.edge is not edge]
        for of, native in written:
            shared = sum(other == of for other, _, _ in self._stand_ins) > 1
            if shared or any(inner_of(item) is native for item in gathered):
                refuse(
                    "a loop over frames writes in place into a tensor that another variable, or a list, holds, "
                    "too; compute a new tensor instead"
                )

    def _require_one_view(self) -> None:
        """Refuse what the loop writes into one tensor, and reads of another that shares its memory."""
        for y, *_ in self.loop.written:
            family = writing.sharing(y)
            if any(i in family for i, x in self.loop.seen.items() if x is not y):
                refuse(
                    "a loop over frames writes into one view of a tensor, and reads or writes another one; "
                    "do both in the tensor itself"
                )

    def carried(self, name: str) -> Any:
        """Return what a name holds at the head of the body."""
        return self._started[name]

    def _require_own_state(self) -> None:
        """Refuse queues in attributes, objects and other functions: they still hold an earlier round's frames."""
        reachable = {n: v for n, v in self._found.items() if n in (*self.site.live, self.site.function)}
        for home in self.loop.entry.homes_of(reachable):
            held = () if home.is_array else home.read(home.of)
            for value in held.values() if isinstance(held, dict) else held:
                if is_of_body(value) and inner_of(value).edge.entry is not self.loop.body:
                    refuse(LOOPS_ELSEWHERE)

    def _end(self, seen: dict[str, Any]) -> bool:
        """End a round; return whether all that is carried is as it was when it began."""
        carried: dict[Any, Any] = {}
        outputs: dict[Any, Any] = {}
        self._moved = []
        values: dict[str, Any] = {}
        for name in self._started:
            value = seen.get(name, Hooks.unbound)
            live = name in self.site.live
            if isinstance(value, Grown):
                self._appended(name, value, carried, outputs)
                items = [*list.__iter__(value)][: value.before]
                value = items if value.places is None else Slots(items, value.places)
            values[name] = value
            kinds: list[Any] = []
            self._leave(name, value, live, kinds, carried, outputs)
            if live and kinds != self._before[name]:
                self._count(name, value)
                self._moved.append(name)
        grown = [v for v in seen.values() if isinstance(v, Grown)]
        self._require_own_memory([item for v in grown for item in list.__iter__(v)][: 1 << 10])
        self._require_one_view()
        steady = not self._moved and not self.loop.of_one_frame
        self.loop.end(carried, outputs)
        self._values = values
        return steady

    def _count(self, name: str, value: Any) -> None:
        """Note integers that are one more after each frame: they are the frame's number and a constant more."""
        numbers = {found[0]: found[1] for found in self._before[name] if type(found[1]) is int and len(found) == 2}
        walk(value, lambda x, path: self._is_more(name, path, numbers.get(path), x))

    def _is_more(self, name: str, path: Any, before: int | None, now: Any) -> None:
        if type(now) is int and before is not None and now == before + 1:
            self._counts[name, path] = FrameNumber(self.loop, now - self.loop.position - 1)

    def _note_kind(self, found: list[Any], name: str, leaf: Any, path: Any, later: int) -> bool:
        """Append what a value is like, to be compared from round to round; return whether it is the body's."""
        if type(leaf) in _NUMBERS:
            found.append((path, leaf))
        elif type(leaf) is FrameNumber:
            found.append((path, "number", leaf.off - later))
        elif leaf is not Hooks.unbound:
            inner = inner_of(leaf)
            if is_of_body(inner):
                found.append((path, self._key(name, path, inner.dims, inner.edge)))
                return True
            found.append((path, "object", id(inner)))
        return False

    def _leave(
        self, name: str, value: Any, live: bool, kinds: list[Any], carried: dict[Any, Any], outputs: dict[Any, Any]
    ) -> None:
        """Note what a value is like, what goes on to the next frame, and what is used after the loop."""

        def at(leaf: Any, path: tuple[Any, ...]) -> Any:
            if self._note_kind(kinds, name, leaf, path, 1):
                inner = inner_of(leaf).in_order()
                if inner.edge.entry is not self.loop.body:
                    mixed([inner.edge.entry, self.loop.body])
                if live:
                    key = self._key(name, path, inner.dims, inner.edge)
                    self.loop.placeholder(key, inner)
                    carried[key] = inner.edge
                if name in self.site.later:
                    outputs["last", name, path] = inner.edge
                    self._given["last", name, path] = inner.dims
            return leaf

        walk(value, at)

    def _appended(self, name: str, value: Grown, carried: dict[Any, Any], outputs: dict[Any, Any]) -> None:
        """Note what was appended to a list."""
        more = [*list.__iter__(value)][value.before :]
        if len(more) > 1:
            refuse("several values for each frame in one list; keep them in several lists")
        if more and sum(other is self._initial[name] for other in self._found.values()) > 1:
            refuse("a loop over frames appends to a list that another variable holds, too; give each its own")
        if more and value.is_moved:
            refuse("a loop over frames appends to a list, and moves, inserts or removes items; append alone")
        if more and value.history is None and value.has_used_length:
            self.loop.of_one_frame = True
        if more:
            self._histories.setdefault(name, History(name, self._gathered))
        for item in more:
            parts = parts_of(item)
            for key, part in ((("each", name), item),) if parts is None else zip(_each(name), parts):
                if not is_of_body(part):
                    refuse("a list gathers what is no tensor of the loop's frames; append to one list for each")
                inner = inner_of(part).in_order()
                outputs[key] = inner.edge
                self._given[key] = inner.dims
            if parts is None:
                self._histories[name].append(self.loop, inner, carried)
            self._items[name] = item

    def _gathered(self, native: StreamTensor) -> Any:
        """Return what stands for what an earlier frame gathered, which may not be written into."""
        self._stand_ins += [(0, native, native.edge)] * 2
        return self._see(native)

    # ------------------------------------------------------------------ after the loop
    def _finish(self) -> None:
        outputs = self.loop.rounds[-1].outputs
        for round_ in self.loop.rounds:
            for key in [k for k in outputs if k not in round_.outputs]:
                if key[0] != "written":
                    refuse(
                        f"`{key[1]}` is no tensor of the frame, or gathers none, at some of the first "
                        "frames; leave these out after the loop"
                    )
                round_.outputs[key] = self.loop.unwritten(round_, key[1])
            for key in [k for k in round_.outputs if k not in outputs]:
                if key[0] == "each":
                    refuse(f"`{key[1]}` gathers nothing but at some of the first frames; read x[:, :k] instead")
                del round_.outputs[key]
        self._made = self.loop.run(list(outputs)) if outputs else {}
        for i, (y, _, at) in enumerate(self.loop.written):
            frames = self._made["written", i]
            frames = frames.with_dims(numbered(y.dims))
            start, more = self.loop.first + at, self.loop.behind(y)
            if start < 0:  # of a frame that an if leaves out
                frames, start = frames._padded(start, 0), 0
            crop = self.loop.left_out - at + (more if isinstance(more, int) else 0)
            if start or crop or not isinstance(more, int):
                frames = writing.put_frames(y, frames, start, crop)
            writing.write(y, frames, "an assignment to frames")

    def after(self, name: str) -> Any:
        """Return what a name holds behind the loop."""
        if ("each", name) in self._made:
            before = self._initial[name]
            before = before.items if type(before) is Slots else before
            if len(before) == 1 and isinstance(before[0], FirstFrame) and self.loop.first == 1:
                made = along(self._made["each", name], self._given["each", name])
                if before[0].keeps:
                    made = made.squeeze(1 + before[0].axis)
                made = with_first(made, before[0], self.loop.left_out)
                self._made["each", name] = made.unsqueeze(1 + before[0].axis) if before[0].keeps else made
                before = []
            made, dims = self._made["each", name], self._given["each", name]
            last = partial(self._last, made, dims, before[-1]) if before else None
            return Gathered(made, dims, self._see, len(before), last)
        if ("each", name, PARTS[0]) in self._made:
            if self._initial[name]:
                refuse("a list that held something before the loop gathers complex frames")
            real, imag = (Gathered(self._made[k], self._given[k], inner_of) for k in _each(name))
            return GatheredParts(real, imag, partial(put_together, self._items[name]))
        value = self._values[name]
        if name in self.site.names and name not in self.site.later:
            return Hooks.unbound
        firsts: dict[Any, Any] = {}
        if self._initial[name] is not Hooks.unbound and any(key[:2] == ("last", name) for key in self._made):
            walk(self._initial[name], lambda x, path: firsts.update({path: x}))

        def at(leaf: Any, path: tuple[Any, ...]) -> Any:
            if type(leaf) is FrameNumber:
                return self._frames.length - 1 + leaf.off
            key = ("last", name, path)
            if key not in self._made:
                return leaf
            return self._last(self._made[key], self._given[key], firsts.get(path))

        return walk(value, at)

    def _last(self, frames: StreamTensor, dims: Any, first: Any) -> Any:
        """Return what is carried when a stream has ended: in one without frames what it began as."""
        if isinstance(first, FirstFrame):
            if self.loop.first != 1:
                refuse("what begins with a stream's first frame is used after a loop that begins elsewhere")
            own: Any = along(frames, dims)
            whole = with_first(own.squeeze(1 + first.axis) if first.keeps else own, first, self.loop.left_out)
            last = whole.select(whole.dims.index("L"), -1)
            return self._see(last.unsqueeze(first.axis) if first.keeps else last)
        inner = inner_of(first)
        constant = inner.constant if is_constant(inner) else first
        once = type(inner) is StreamTensor
        if first is None or (not once and _is_zero(constant)):
            return self._see(last_of(frames, dims))
        stream, before, there = from_before(frames, dims)
        if once:
            constant = inner.unsqueeze(stream.dims.index("L"))
        if hasattr(constant, "dim") and not hasattr(constant, "is_stream"):  # another front end's own
            made = inner_of(self._see(before).where(self._see(there), constant))
        else:
            made = where(there, before, constant)
        return self._see(made.select(stream.dims.index("L"), -1))


def _is_zero(constant: Any) -> bool:
    if getattr(constant, "requires_grad", False):
        return False
    values = constant.numpy() if hasattr(constant, "numpy") else constant
    return not bool((np.asarray(values) != 0).any())


# ---------------------------------------------------------------------- comprehensions
#: Comprehensions over frames whose values are not gathered yet.
OPEN: ContextVar[tuple[Comprehension, ...]] = ContextVar("dreamstream_comprehensions", default=())


class Comprehension(ForLoop):
    """A comprehension over frames: two rounds, of which the values must be alike, and are gathered."""

    ended = False

    def begin(self, frames: Frames, found: dict[str, Any]) -> Iterator[Any]:
        """Return the rounds."""
        self._require_no_leave()
        self._open(frames)
        OPEN.set((*OPEN.get(), self))
        entry, places = self.loop.entry, self._places
        self._at = self.site, getattr(entry, "n_done", 0)
        entry.places, self.loop.places = None, places
        self.loop.kept = None if places is None else places.pop(self._at, None)
        return self._twice()

    def _require_no_leave(self) -> None:
        if not self.site.single:
            refuse("a comprehension over frames that has ifs or several loops, or is no list; use a `for`")

    def _twice(self) -> Iterator[Any]:
        """Give the frame twice: what else than the frame the value depends on shows in the second one."""
        self.loop.entry.open_loop = self.loop
        try:
            for _ in range(2):
                number = self.loop.begin()
                yield self._target(number)
                if self.loop.of_one_frame:
                    refuse("a condition on the frame's number in a comprehension; use a `for`")
                if self.loop.kept is not None and self.loop.body.does_as_kept:
                    break  # in the call before, a second round did the same
        finally:
            self.loop.entry.open_loop = self.loop.entry.body = None
        self.ended = True

    def gather(self, made: list[Any]) -> Any:
        """Return what is gathered."""
        self.loop.entry.places = self._places
        if len(made) != len(self.loop.bodies) or not all(map(is_of_body, made)):
            refuse("a comprehension over frames must give a tensor for each, all alike")
        for item, body in zip(made, self.loop.bodies):
            self.loop.body = body
            inner = inner_of(item).in_order()
            self.loop.end({}, {"each": inner.edge})
        if len(made) > 1:
            second = self.loop.rounds.pop()
            if not self.loop.rounds[0].does_as(second, ()):
                refuse(LOOPS_ELSEWHERE)
            self.loop.keep_if_same(second)
        elif not self.loop.is_as_kept():
            self.loop.kept = None
        frames = self.loop.run(["each"])["each"]
        if self.loop.kept is not None:
            self._places[self._at] = self.loop.kept
        self.loop.close()
        return Gathered(frames, inner.dims, self._see)


def iterate(iterable: Any, site: Site, loop: Any, frame: FrameType) -> Any:
    """Return what a ``for`` or a comprehension in a function's frame goes over."""
    frames = frames_in(iterable)
    if frames is None:
        return iterable
    return (Comprehension(site) if loop is None else loop).begin(frames, variables(frame))


def gathered(made: list[Any]) -> Any:
    """Return the value of a list comprehension."""
    opened = OPEN.get()
    ended = next((i for i, each in enumerate(opened) if each.ended), None)
    if ended is None:  # of no frames, or within one that goes on
        return made
    OPEN.set(opened[:ended])
    return opened[ended].gather(made)
