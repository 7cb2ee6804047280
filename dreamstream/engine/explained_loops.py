"""Loops over frames of a model of which all that stands in the way is listed: behind a refusal they go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np

from ..array.for_loops import OPEN, Comprehension, ForLoop, frames_in
from ..array.frame_numbers import FrameNumber
from ..array.loop_frames import Frames, Numbers
from ..array.loop_lists import Gathered, Grown
from ..array.loop_values import is_of_body, walk
from ..array.loops import Loop
from ..array.stream_tensor import StreamTensor
from ..errors import DreamStreamError
from ..operations.refusals import LOOPS_CHANGE, LOOPS_ELSEWHERE
from ..stream.foreign import inner_of
from ..tracing import Hooks, Site
from ..tracing.callees import Callee


def whole(edge: Any) -> StreamTensor:
    """Return the stream of an edge, its frames' dimensions in order."""
    return StreamTensor.inside(None, ("B", "L", *range(len(edge.features))), edge)


def like(base: StreamTensor, roles: list[Any], dtype: np.dtype[Any]) -> StreamTensor:
    """Return a stream, a frame, or what a stream has once, that depends on another one and has these dimensions.

    They are "B", "L" and numbers of features; L only where the other one has it.
    """
    first = [base.dims.index(d) for d in ("B", "L") if d in base.dims]
    x: Any = base.permute(*first, *(i for i in range(base.ndim) if i not in first)).to(np.dtype(np.float32))
    n = len(first)
    x = x.flatten(n).sum(-1) if x.ndim > n else x
    if "L" in base.dims and "L" not in roles:
        x, n = x.sum(1), 1
    features = [r for r in roles if r not in ("B", "L")]
    if features:
        x = x.reshape(*x.shape, *[1] * len(features)).expand(*[-1] * n, *features)
    places = iter(range(n, len(roles)))
    x = x.permute(*(("B", "L").index(r) if isinstance(r, str) else next(places) for r in roles))
    kind: StreamTensor = x > 0 if dtype.kind == "b" else x.to(np.dtype(np.int64)) if dtype.kind in "iu" else x
    return kind


class Instead(Numbers):
    """What stands for a range that was refused: at its numbers there may be no frames."""


class Paired(Frames):
    """What stands for ``zip`` of frames and something else, of which the first item does."""

    def __init__(self, parts: tuple[Any, ...], frames: list[Frames | None]) -> None:
        self._parts = [next(iter(p), None) if f is None else f for p, f in zip(parts, frames)]
        own = next(f for f in frames if f is not None)
        self.length, self.first = own.length, own.first

    def at(self, number: FrameNumber) -> Any:
        return tuple(p.at(number) if isinstance(p, Frames) else p for p in self._parts)


def frames_instead(f: Callee, args: tuple[Any, ...], length: Any) -> Frames | None:
    """Return the frames that stand for what a builtin was refused to give; `length` is a stream's."""
    found = [frames_in(a) for a in args]
    if f is zip:
        return Paired(args, found)
    if f in (enumerate, reversed, range, list, tuple):
        return next((x for x in found if x is not None), Instead(0, length))
    return None


class ExplainedLoop(ForLoop):
    """A loop whose refusals are noted; what it would have given has stand-ins."""

    _depth = 2
    _seen: dict[str, Any] | None = None
    _is_whole = False

    def __init__(self, site: Site, explanation: Any) -> None:
        super().__init__(site)
        self._explanation, self._apart = explanation, set[str]()
        self._guesses, self._n_reasons = explanation.guesses, len(explanation.reasons)

    def _is_guessed(self) -> bool:
        """Whether something in the loop was guessed: it may be another thing in each round."""
        return bool(self._explanation.guesses > self._guesses)

    def _noting(self) -> AbstractContextManager[Any]:
        """Within it a refusal is noted, but where something was guessed, and what is within is left."""
        return suppress(DreamStreamError) if self._is_guessed() else self._explanation.noting()

    def begin(self, frames: Frames, found: dict[str, Any]) -> Iterator[Any]:
        """Return the rounds; within another loop over frames one round, whose variables stay as they are."""
        loop = getattr(self._explanation.capture, "open_loop", None)
        if loop is None:
            return super().begin(frames, found)
        with self._explanation.noting():
            Loop(frames.length, frames.first)
        see = loop.entry.library.see
        return iter([walk(frames.at(FrameNumber(loop)), lambda x, _: see(x) if type(x) is StreamTensor else x)])

    def _require_no_leave(self) -> None:
        with self._explanation.noting():
            super()._require_no_leave()

    def _open(self, frames: Frames) -> None:
        try:
            super()._open(frames)
        except DreamStreamError as error:
            self._explanation.note(error)
            super()._open(self._explanation.all_frames())
        if type(frames) is Instead:
            self._explanation.instead_of.append(self.loop)

    def _rounds(self) -> Iterator[Any]:
        rounds = super()._rounds()
        while True:
            try:
                target = next(rounds)
            except StopIteration:
                self._is_whole = True
                return
            except DreamStreamError as error:
                follows = any(r.text in str(error) for r in (LOOPS_ELSEWHERE, LOOPS_CHANGE))
                elsewhere = any(
                    LOOPS_ELSEWHERE.text in text for text in self._explanation.reasons[self._n_reasons :]
                )
                if not (follows and (elsewhere or self._is_guessed())):
                    self._explanation.note(error)
                return
            yield target

    def _end(self, seen: dict[str, Any]) -> bool:
        self._seen = seen
        return super()._end(seen)

    def _appended(self, name: str, value: Grown, carried: dict[Any, Any], outputs: dict[Any, Any]) -> None:
        self._apart.add(name)
        with self._noting():
            super()._appended(name, value, carried, outputs)
            self._apart.discard(name)

    def _listed(self, item: Any) -> Gathered:
        """Return what stands for a list of frames like this one."""
        frame = inner_of(item)
        frame = frame.in_order() if is_of_body(item) else self.loop.frame(whole(self.loop.clock), 0)
        frames = like(whole(self.loop.clock), ["B", "L", *frame.features], frame.dtype)
        return Gathered(frames, frame.dims, self._see)

    def after(self, name: str) -> Any:
        """Return what a name holds behind the loop, or what stands for that."""
        if self._is_whole and name not in self._apart:
            with self._noting():
                return super().after(name)
        value = (self._seen or self._values).get(name, Hooks.unbound)
        if type(value) is Grown and (own := [*list.__iter__(value)][value.before :]):
            return self._listed(own[0])
        return walk(value, lambda leaf, _: self._behind(leaf))

    def _behind(self, leaf: Any) -> Any:
        if type(leaf) is FrameNumber:
            return self._frames.length
        if not is_of_body(leaf):
            return leaf
        frame = inner_of(leaf)
        roles = [d if d == "B" else frame.shape[i] for i, d in enumerate(frame.dims)]
        return self._see(like(whole(self.loop.clock), roles, frame.dtype))


class ExplainedComprehension(ExplainedLoop, Comprehension):
    """The same of a comprehension."""

    def begin(self, frames: Frames, found: dict[str, Any]) -> Iterator[Any]:
        """Return the rounds; of those that are no list nobody asks what is gathered."""
        opened = OPEN.get()
        rounds = super().begin(frames, found)
        if not self.site.single:
            OPEN.set(opened)
        return rounds

    def _twice(self) -> Iterator[Any]:
        with self._explanation.noting():
            yield from super()._twice()
        self.ended = True

    def gather(self, made: list[Any]) -> Any:
        """Return what is gathered, or what stands for it."""
        with self._noting():
            return super().gather(made)
        return self._listed(made[0]) if made and is_of_body(made[0]) else made
