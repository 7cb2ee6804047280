"""All that stands in the way of a model, in one pass: behind each refusal the forward goes on with a stand-in.

What a refused call would have given is found by calling it on plain tensors, for two numbers of streams and
frames: sizes that follow them are those of B and L. A stream of the same dimensions, whose values mean nothing,
stands there from then on; where such a call fails, the first stream that it was given does. Of an ``if`` that no
stream can have, the first branch counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from fractions import Fraction
from functools import partial
from operator import getitem
from threading import RLock
from typing import Any

import numpy as np

from ..array.deferred import Deferred
from ..array.for_loops import iterate
from ..array.frame_numbers import FrameTruth, LoopNumber
from ..array.lengths_as_numbers import count_of
from ..array.loop_frames import Frames, Numbers
from ..array.loop_lists import Gathered
from ..array.loop_values import is_of_body
from ..array.softmax_pooling import Weights
from ..array.stream_tensor import StreamTensor
from ..array.tensor import Tensor
from ..errors import DreamStreamError, LocatedError
from ..online.patch import as_it_was, front_of, patch_module
from ..online.tracer import TRACER
from ..operations.refusals import LOOPS_WHOLE
from ..stream.context import Context
from ..stream.foreign import inner_of
from ..stream.rules import BatchSize, Length
from ..stream.tree import leaves, map_leaves
from ..stream.where import explained, passes_on
from ..stream.within import within
from ..tracing import Hooks, Site
from .capture import as_output, begun
from .explained_loops import ExplainedComprehension, ExplainedLoop, frames_instead, like, whole

#: Streams and frames of the first input for which refused calls are made on plain tensors.
_TRIED = ((2, 96), (3, 128))
#: The most refusals that are listed.
_MOST = 64
#: The number of the frame that a loop is at in such calls.
_AT = 7

#: Where the classes are of what stands in a stream's place.
_ROOMS = {
    f"dreamstream.array.{name}" for name in ("scores", "softmax_pooling", "first_frame", "merged_dimensions")
}

_ONE_AT_A_TIME = RLock()
_CURRENT: ContextVar[Explanation | None] = ContextVar("dreamstream_explanation", default=None)


def in_full(
    error: DreamStreamError,
    model: Any,
    spec: Any,
    rate: Any,
    dtype: Any,
    waits: bool,
    context: Mapping[str, Context] | Context | None,
) -> DreamStreamError:
    """Return an error that says all that stands in the way of a model, each with its line and what would work.

    `error` was refused first; `waits` says whether layers may wait for a stream's end. All else is as for
    `compile`.
    """
    with as_it_was(model):
        if context is not None:
            patch_module(model, unstreamable="buffer", context=context)
        return _in_full(error, model, spec, rate, dtype, waits)


def _in_full(
    error: DreamStreamError, model: Any, spec: Any, rate: Any, dtype: Any, waits: bool
) -> DreamStreamError:
    front = front_of(model, "compile")
    capture, source, args, kwargs = begun(model, spec, rate, dtype, waits)
    modules = dict(front.parts(model))
    explanation = Explanation(capture, modules)
    with explanation.listening(), explanation.noting():
        for x in leaves(source.streamed(capture, args, kwargs)):
            # of a loop that was left nothing more is known; the question itself may be refused, of rolled frames
            with explanation.noting(), suppress(DreamStreamError) if explanation.is_made(x) else nullcontext():
                as_output(capture, model, x)
    reasons = explanation.reasons or [str(error)]
    for path, part in modules.items():
        name, found = f"{path or 'the model'} ({type(part).__name__})", front.unstreamable(part)
        if found is not None:
            own = next((i for i, text in enumerate(reasons) if text.startswith(name)), len(reasons))
            reasons[own : own + 1] = [f"{name}: {found[0]}; {found[1]}"]
    also = "; ".join(reasons[1:])
    out = type(error)(f"{reasons[0]}. Also in the way: {also}" if also else reasons[0])
    out.refusals = tuple(reasons)
    return out


class Explanation:
    """Notes what is refused in one capture, and gives stand-ins."""

    def __init__(self, capture: Any, modules: Mapping[str, Any]) -> None:
        self.capture, self.modules = capture, modules
        self.reasons: list[str] = []
        #: How often it was guessed what stands for a result.
        self.guesses = 0
        self.has_arrays = False  # in the place of NumPy's
        #: By identity what stands for a number of all streams, and what is computed of it: ifs on it are refused.
        self.of_batch: dict[int, Any] = {}
        #: The loops whose frames stand for those that they were refused.
        self.instead_of: list[Any] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within it refused calls and ifs of this thread's forwards have stand-ins."""
        cell = TRACER.cell
        with _ONE_AT_A_TIME, TRACER.spelling():
            before, self.capture.explanation = cell.cell_contents, self
            cell.cell_contents = _Asking(before)
            try:
                with within(_CURRENT, self):
                    yield
            finally:
                cell.cell_contents, self.capture.explanation = before, None

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what is refused within it; behind what has no stand-in anything may fail."""
        try:
            yield
        except Exception as error:
            if isinstance(found := explained(error), DreamStreamError):
                self.note(found)

    def is_made(self, x: Any) -> bool:
        """Whether an output is of a loop's body, or may be of an array that stands in NumPy's place."""
        is_plain = type(x) in (np.ndarray, Tensor) or type(x).__module__ == "torch"
        return (self.has_arrays and is_plain) or is_of_body(x)

    def note(self, error: DreamStreamError) -> None:
        """List what was refused, once, with the module that runs."""
        path = self.capture.paths[-1] if self.capture.paths else ""
        if path in self.modules and isinstance(error, LocatedError):
            error.locate(path, type(self.modules[path]).__name__)
        text = str(error)
        if text not in self.reasons:
            self.reasons.append(text)

    def instead(self, error: DreamStreamError, f: Any, args: Any, kwargs: Any) -> Any:
        """Note a refusal and return what stands for the result of the call; raise it where nothing can."""
        given = _within((getattr(f, "__self__", None), args, kwargs))
        loop = getattr(self.capture, "open_loop", None)
        frames = [x for x in map(inner_of, given) if is_of_body(x)]
        left = any(loop is None or x.edge.entry is not loop.body for x in frames)
        number = next((x for x in given if isinstance(x, LoopNumber)), None)
        # That it is one frame's, or at such a number, follows from its loop's refusal.
        follows = left and LOOPS_WHOLE.text in str(error)
        if not follows and (number is None or number.loop not in self.instead_of):
            self.note(error)
        if any(type(inner_of(x)) is Weights for x in given):  # what else is refused of their frames
            owner = getattr(f, "__self__", None)
            again = f if type(inner_of(owner)) is not Weights else getattr(self._frames(owner), f.__name__)
            return _called(
                again, again, *map_leaves(tuple(args), self._frames), **map_leaves(dict(kwargs), self._frames)
            )
        in_loop = loop is not None and bool(frames or number is not None)
        streams = [x for x in map(inner_of, given) if type(x) is StreamTensor and x.edge and "L" in x.dims]
        if f is getitem and type(args[0]) is Gathered and type(args[1]) is slice:
            return args[0]
        token = _CURRENT.set(None)
        self.capture.explanation = None
        try:
            if (instead := frames_instead(f, args, self._length())) is not None:
                return instead
            two, three = (self._tried(f, args, kwargs, rows, n) for rows, n in _TRIED)
            if two is NotImplemented:
                raise TypeError("an operator without such operands")
            others, base = iter(leaves(three)), next(iter(streams), self.capture.inputs[0])
            frame = loop.frame(whole(loop.clock), 0) if in_loop and loop is not None else None

            def stands(x: Any) -> Any:
                is_number = number is not None and type(x) is int
                return number if is_number else self._stands(x, next(others), base, frame)

            return map_leaves(two, stands)
        except Exception:  # it takes some lengths alone, or has no result that a stream could be
            self.guesses += 1
            if f is getattr and callable(getattr(list, args[1], None)):  # of what a loop gathered
                return lambda *_, **__: None
            if len(self.reasons) >= _MOST or not given:
                raise error from None
            same = frames if in_loop else streams
            return self.capture.library.see(same[0] if same else self.capture.inputs[0])
        finally:
            self.capture.explanation = self
            _CURRENT.reset(token)

    def _frames(self, x: Any) -> Any:
        """Return frames in the place of a softmax over L, which has none yet; all else as it is."""
        if type(own := inner_of(x)) is not Weights:
            return x
        roles = [d if isinstance(d, str) else own.features[d] for d in own.dims]
        return self.capture.library.see(like(own.scores, roles, np.dtype(np.float32)))

    def _length(self) -> Any:
        first = self.capture.inputs[0]
        return first.shape[first.dims.index("L")] if "L" in first.dims else None

    def follow(self, f: Any, given: Any, out: Any) -> Any:
        """Return what was computed of a number of all streams, and know it; of Python's max and min the number."""
        number = next((x for x in given if id(x) in self.of_batch), None)
        if number is not None and f in (max, min):
            return number
        if number is not None and hasattr(out, "ndim") and not _stands_for_frames(inner_of(out)):
            self.of_batch[id(out)] = out
        return out

    def all_frames(self) -> Frames:
        """Return the frames of the first input."""
        return Numbers(0, self._length())

    def _tried(self, f: Any, args: Any, kwargs: Any, rows: int, frames: int) -> Any:
        """Call a function on plain tensors."""
        library = self.capture.library
        with library.evaluating():

            def plain(x: Any) -> Any:
                x = inner_of(x)
                if type(x) is slice:
                    return slice(plain(x.start), plain(x.stop), plain(x.step))
                if isinstance(x, BatchSize):
                    return rows * x.times
                if isinstance(x, LoopNumber):
                    return x.at(_AT)
                if isinstance(x, Gathered):
                    return [plain(x.frames.select(1, -1))] * frames
                if isinstance(x, Length):
                    return count_of(x, frames)
                if isinstance(x, Deferred):
                    return x.at(lambda length: count_of(length, frames), rows)
                if not _stands_for_frames(x):
                    return x
                sizes = [plain(s) if not isinstance(s, int) else s for s in x.shape]
                kind = x.dtype if type(x) is StreamTensor else np.dtype(np.float32)
                return library.array(np.full(sizes, 0 if kind.kind in "iu" else 0.5, kind))

            owner = inner_of(getattr(f, "__self__", None))
            if _stands_for_frames(owner) or isinstance(owner, Deferred):
                f = getattr(plain(owner), f.__name__)
            elif isinstance(f, partial):
                args, kwargs, f = (*f.args, *args), {**f.keywords, **kwargs}, f.func
            return f(*map_leaves(tuple(args), plain), **map_leaves(dict(kwargs), plain))

    def _stands(self, two: Any, three: Any, base: StreamTensor, frame: StreamTensor | None) -> Any:
        """Return what has the dimensions of a result, of which two sizes were tried."""
        if not hasattr(two, "ndim"):
            return two
        (rows, frames), (more_rows, more_frames) = _TRIED
        roles: list[Any] = []
        ratio = Fraction(1)
        for n, m in zip(two.shape, three.shape):
            if n == m:
                roles.append(int(n))
            elif (n, m) == (rows, more_rows):
                roles.append("B")
            else:
                roles.append("L")
                own = [count_of(base.shape[base.dims.index("L")], f) for f in (frames, more_frames)]
                ratio = Fraction(int(m) - int(n), own[1] - own[0]).limit_denominator(4096)
        if not {"B", "L"} & {*roles}:
            self.of_batch[id(two)] = two
            return two
        if isinstance(two, np.ndarray):  # one that meets every stream
            self.has_arrays = True
            return two[tuple(slice(1) if isinstance(r, str) else slice(None) for r in roles)]
        if roles.count("L") > 1 or roles.count("B") != 1:  # no stream has these dimensions
            self.guesses += 1
            return self.capture.library.see(base if frame is None else frame)
        if "L" not in roles:
            base = base if frame is None else frame
        elif frame is not None:
            self.guesses += 1  # no stream is made in a loop of its frames
        elif ratio < 1:
            base = base[(slice(None),) * base.dims.index("L") + (slice(None, None, round(1 / ratio)),)]
        elif ratio > 1:
            base = base.repeat_interleave(round(ratio), base.dims.index("L"))
        kind = "b" if "bool" in (name := str(two.dtype)) else "i" if "int" in name else "f"
        return self.capture.library.see(like(base, roles, np.dtype(f"{kind}{1 if kind == 'b' else 8}")))


def _within(given: Any) -> list[Any]:
    """Return all that is in arguments, in slices too, but for last frames, which have no place yet."""
    found = [x for x in leaves(given) if getattr(inner_of(x), "_ends", None) is None]
    return found + [end for x in found if type(x) is slice for end in (x.start, x.stop)]


def _stands_for_frames(x: Any) -> bool:
    """Whether something is a stream inside a forward, or what a forward has in the place of one."""
    return type(x) is StreamTensor or (type(x).__module__ in _ROOMS and hasattr(x, "shape"))


class _Asking:
    """What private copies ask in the place of the tracer: the tracer, whose refusals have stand-ins."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracer, name)

    def of(self, f: Any) -> Any:
        found = self._tracer.of(f)
        return found if _CURRENT.get() is None else partial(_called, f, found)

    def symbolic(self, value: Any) -> bool:
        explanation = _CURRENT.get()
        return (explanation is not None and id(value) in explanation.of_batch) or self._tracer.symbolic(value)

    def test(self, value: Any) -> Any:
        explanation = _CURRENT.get()
        if explanation is None or id(value) not in explanation.of_batch:
            return self._tracer.test(value)
        with explanation.noting():
            bool(explanation.capture.inputs[0])  # which says that streams have none
        return True

    def loop(self, site: Site) -> Any:
        explanation = _CURRENT.get()
        is_other = explanation is None or site.kind == "while"
        return self._tracer.loop(site) if is_other else ExplainedLoop(site, explanation)

    def iterate(self, iterable: Any, site: Site, loop: Any) -> Any:
        explanation = _CURRENT.get()
        if explanation is not None and loop is None:
            loop = ExplainedComprehension(site, explanation)
        return iterate(iterable, site, loop, sys._getframe(1))

    def ways(self, w: Any, site: Any, seen: dict[str, Any]) -> Any:
        explanation = _CURRENT.get()
        try:
            out = self._tracer.ways(w, site, seen, 2)
        except DreamStreamError as error:
            if explanation is None:
                raise
            explanation.note(error)
            return not (isinstance(w, FrameTruth) and site.escapes)  # which would leave nothing for what follows
        return out if explanation is None or type(out) is bool else _Branch(out, explanation)


class _Branch:
    """An ``if`` that streams answer differently; what can't be merged is what the first branch left."""

    def __init__(self, branch: Any, explanation: Explanation) -> None:
        self._branch, self._explanation = branch, explanation
        self._then: dict[str, Any] = {}
        self._is_apart = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._branch, name)

    def then(self, seen: dict[str, Any]) -> None:
        self._then = dict(seen)
        self._branch.then(seen)

    def merge(self, seen: dict[str, Any]) -> None:
        try:
            self._branch.merge(seen)
        except DreamStreamError as error:
            self._explanation.note(error)
            self._is_apart = True

    def merged(self, name: str) -> Any:
        return self._then.get(name, Hooks.unbound) if self._is_apart else self._branch.merged(name)


@passes_on
def _called(f: Callable[..., Any], found: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call what stands in a function's place; where that is refused, return a stand-in for the result."""
    explanation = _CURRENT.get()
    try:
        out = found(*args, **kwargs)
        if explanation is None or not explanation.of_batch:
            return out
        return explanation.follow(f, (getattr(f, "__self__", None), *args), out)
    except Exception as error:
        refusal = explained(error)
        if explanation is None or not isinstance(refusal, DreamStreamError):
            raise
        return explanation.instead(refusal, f, args, kwargs)
