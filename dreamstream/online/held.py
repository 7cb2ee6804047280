"""What a model holds: noted before a forward that must not change it, and put back after.

A trace (a capture, a run offline beside an engine) leaves a model as it was; so does an online call that fails.
The forward runs on the user's own modules, so that hooks, closures and what refers to them see what it assigns;
all is put back when it has ended. An online call that succeeds keeps what it has assigned, as offline, but for
what stands for streams: that is its session's, which brings it back for the next call alone.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import is_
from types import FunctionType
from typing import Any
from weakref import ref

import numpy as np

from .. import _core
from ..array.base import Base
from ..array.deferred import has_formula
from ..array.deferred_stream import DeferredStream
from ..array.stream_tensor import StreamTensor
from ..errors import NotStreamableError, StreamWarning
from ..operations.refusals import KEPT
from ..stream.foreign import inner_of
from ..stream.where import is_stand_in
from .assigned import assignment_of
from .homes import ATOMS, Array, Attributes, Globals, Home, homes_of, is_foreign

#: Containers of more items, and arrays, are noted where streams begin, else only once a call has changed them.
_MANY = 256
#: A session's calls for which Python's and NumPy's generators are looked at, unless they are used.
_WATCHED = 3
#: Traces run one at a time: what one puts back must not be what another has assigned.
_TRACING = threading.RLock()
_NUMBERS = (int, float)
_COUNTED = (
    "If frames use it, each chunk of a file gets another: change it outside the forward, or take the positions of "
    "frames, torch.arange(x.size(1))"
)
_MISSING: Any = object()
_WHOLE: Any = object()
#: What a forward left where it stands for a stream: the place, its key there, that value, and the one before.
_Kept = tuple[Home, Any, Any, Any]


class Held:
    """What a model holds, as it was when it was last noted.

    With `trace` also what its functions hold: globals they use, closures, classes.
    """

    def __init__(self, model: Any, *, trace: bool = False) -> None:
        self._model, self._trace = ref(model), trace
        self._homes: list[Home] = []
        self._small: list[Home] = []
        self._generators: Sequence[Any] = ()
        self._now: list[Home] = []
        self._before: list[Any] = []
        self._places: list[Any] = []
        self._versions = bytearray()
        self._states: list[tuple[Callable[[Any], Any], Any]] = []
        self._changing: set[int] = set()  # large places that calls change
        self._kept: list[_Kept] = []
        self._kept_before: list[_Kept] = []
        self._stale = True
        self.watched = _WATCHED  #: For how many calls generators of Python's and NumPy's are looked at.
        self.noted = False  #: Whether it was noted since this was last set to False, as it is before each forward.
        self.drew = False  #: Whether the last forward has drawn numbers of Python's or NumPy's generators.
        self._goes_on = False
        self._warned: set[str] = set()  # numbers of the model, once they are warned of

    #: Whether a front end's forwards may set more than generators of random numbers (torch's default dtype, ...).
    _has_settings = False

    # ---------------------------------------------------------------- before a forward
    def note(self, *, first: bool = True) -> None:
        """Note what the model holds; where streams go on (not `first`) large containers are left out.

        Then let it hold what stood for streams in the last call, which this one must not read.
        """
        model, self._goes_on = self._model(), not first
        if self._stale or (first and any(_may_hold(value) for _, _, value, _ in self._changes())):
            found = homes_of(model, functions=self._trace)
            self._homes, self._generators, self._stale = found.homes, found.generators, False
            self._small = [h for h in self._homes if not _is_large(h.of)]
        noted = self._homes if first else self._small
        if not first and self._changing:
            noted = [*noted, *(h for h in self._homes if _key(h.of) in self._changing)]
        if noted is self._now:  # what was noted before the last call mostly holds
            for i in _core.differing(self._places, self._before, self._versions):
                self._before[i] = _read(noted[i])
        else:
            self._before = list(map(_read, noted))
            self._places, self._versions = [home.of for home in noted], bytearray()
        self._now, self._kept_before = noted, self._kept
        self._states = self._settings() if self._generators or self.watched or self._has_settings else []
        self.noted = True
        for home, key, value, other in self._kept:
            if _has(home, key, other):
                _put(home, key, value)

    def _settings(self) -> list[tuple[Callable[[Any], Any], Any]]:
        """Return the states of generators, and what else a forward may set, each with what sets it."""
        states = [state_of(g) for g in self._generators] if self._generators else []
        return [*states, *_global_generators()] if self.watched else states

    # ---------------------------------------------------------------- after it
    def settle(self, noting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Take out of the model what stands for streams; each refusal is raised within what `noting` returns.

        Refused is a forward that has read what an earlier one kept.
        """
        changes = self._changes()
        if not (changes or self._kept or self.watched):
            return
        kept, new = [], []
        for change in changes:
            home, key, value, other = change
            what = _kind_of((key, value))
            if what is not None:
                kept.append(change)
            elif self._goes_on and type(value) in _NUMBERS and type(other) in _NUMBERS:
                self._warn_of_count(home, key)
            elif _may_hold(value):
                self._stale = True
            if _is_large(home.of):
                self._changing.add(_key(home.of))
            if what is _FRAMES:
                new.append(change)
        known = {(_key(home.of), key) for home, key, _, _ in self._kept}
        first = [(home, key) for home, key, _, _ in new if (_key(home.of), key) not in known]
        functions = homes_of(self._model(), functions=True).functions if first else []
        for home, key in first:
            with noting():
                self._require_no_cache(home, key, functions)
        for home, key, _, other in kept:
            _put(home, key, other)
        self._kept = new
        if self.watched:
            now = dict(_global_generators())
            self.drew = not all(_same_state(now[put], state) for put, state in self._states if put in now)
            self.watched = _WATCHED if self.drew else self.watched - 1

    def restore(self) -> None:
        """Let the model hold what it held when it was noted."""
        if not self.noted:
            return
        for home, before in zip(self._now, self._before):
            if _changed(home.of, before):
                home.write(home.of, {} if before is None else before)
        for put, state in self._states:
            put(state)
        self._kept = self._kept_before  # and its places are those that it had: they need not be looked for again

    def _changes(self) -> list[_Kept]:
        """Return what has changed: the place, its key there, and what is there now and was there before."""
        out: list[_Kept] = []
        for i in _core.differing(self._places, self._before, self._versions):
            home, before = self._now[i], self._before[i]
            if not _changed(home.of, before):
                continue
            now, then = home.read(home.of), {} if before is None else before
            if isinstance(now, dict):
                changed = ((key, value, then.get(key, _MISSING)) for key, value in now.items())
                out += [(home, key, value, other) for key, value, other in changed if other is not value]
            else:
                out.append((home, _WHOLE, now, then))
        return out

    def _warn_of_count(self, home: Home, key: Any) -> None:
        """Warn of a number that each call changes, where a function computes something of it."""
        path, name = _named(home, key)
        if path in self._warned:
            return
        self._warned.add(path)
        functions = homes_of(self._model(), functions=True).functions
        found = assignment_of(name, functions, is_variable=home.is_variable)
        if found is not None and found.read_before and found.used:
            message = f"{path} holds another number after each call, at {found.line}. {_COUNTED}"
            warnings.warn(message, StreamWarning, stacklevel=2)

    def _require_no_cache(self, home: Home, key: Any, functions: Sequence[FunctionType]) -> None:
        """Refuse what a place keeps of streams, where a function reads it before it assigns it."""
        path, name = _named(home, key)
        found = assignment_of(name, functions, is_variable=home.is_variable)
        if home.name == "_buffers" or (found is not None and found.read_before):
            line = "" if found is None else f", at {found.line}"
            raise NotStreamableError(f"{path} keeps frames{line}: {KEPT.text}")


def _named(home: Home, key: Any) -> tuple[str, str]:
    """Return where a place stands in the model, and by which attribute or variable functions reach it."""
    if home.name and home.name != "_buffers":
        return home.path, home.name
    return ".".join(filter(None, (home.path, str(key)))), str(key)


@contextmanager
def undone(held: Held) -> Iterator[None]:
    """Let a model be as it was when what runs within has ended, however it ends."""
    with _TRACING:
        held.note()
        try:
            yield
        finally:
            held.restore()


# ---------------------------------------------------------------------- places
def _read(home: Home) -> Any:
    """Return what a place holds, None for nothing."""
    return home.read(home.of) if home.of else None


def _has(home: Home, key: Any, value: Any) -> bool:
    """Whether a place holds this very value at a key, or all of these."""
    if key is _WHOLE:
        return not _changed(home.of, value)
    return home.read(home.of).get(key, _MISSING) is value


def _put(home: Home, key: Any, value: Any) -> None:
    """Let a place hold a value at a key, or nothing, or let it hold all of these."""
    then = value
    if key is not _WHOLE:
        then = home.read(home.of)
        then[key] = value
        if value is _MISSING:
            del then[key]
    home.write(home.of, then)


def _changed(of: Any, before: Any) -> bool:
    """Whether a place no longer holds the very values that it held before."""
    if before is None:
        return bool(of)
    if isinstance(of, Array):
        now = of.of
        return not np.array_equal(now, before, equal_nan=now.dtype.kind in "fc")
    now = of.read() if isinstance(of, (Attributes, Globals)) else of
    if len(now) != len(before):
        return True
    if isinstance(now, dict):
        return not (all(map(is_, now.values(), before.values())) and all(map(is_, now, before)))
    return not all(map(is_, now, before))


def _key(of: Any) -> int:
    """Return the identity of a place, which is looked for anew."""
    return id(of.of if isinstance(of, (Array, Attributes, Globals)) else of)


def _is_large(of: Any) -> bool:
    return isinstance(of, Array) or (isinstance(of, (dict, list, set, deque)) and len(of) > _MANY)


def _may_hold(value: Any) -> bool:
    """Whether a value may hold others: anything but numbers, texts and tensors of torch."""
    return type(value) not in ATOMS and type(value).__module__ not in ("torch", "torch.nn.parameter")


#: What a value stands for: frames or lengths of streams, or a table that all streams have in common.
_FRAMES, _TABLE = "frames", "table"


def _kind_of(value: Any) -> str | None:
    """Return what of a stream inside a forward a value is, or holds."""
    seen: set[int] = set()
    waiting, found = [value], None
    while waiting:
        x = waiting.pop()
        if type(x) in ATOMS or id(x) in seen:
            continue
        seen.add(id(x))
        if is_stand_in(type(x)):
            inner = inner_of(x)
            while type(inner) is StreamTensor and "edge" not in vars(inner) and hasattr(inner._view, "of"):
                inner = inner._view.of  # a view that nobody has used is what its base is
            edge = inner.edge if type(inner) is StreamTensor else None
            if has_formula(inner) or (edge is not None and edge.line.alike):
                found = _TABLE
            elif inner is not None and (
                edge is not None or not isinstance(inner, Base) or isinstance(inner, DeferredStream)
            ):
                return _FRAMES
        elif isinstance(x, dict):
            waiting += (*x, *x.values())
        elif isinstance(x, (list, tuple, set, deque)):
            waiting += x
        elif not (is_foreign(x) or isinstance(x, (type, FunctionType))):
            waiting += getattr(x, "__dict__", {}).values()
    return found


def _same_state(a: Any, b: Any) -> bool:
    """Whether two states of a generator of random numbers are one."""
    if isinstance(a, dict):
        return all(_same_state(value, b[name]) for name, value in a.items())
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)


def _global_generators() -> list[tuple[Callable[[Any], Any], Any]]:
    """Return the states of Python's and NumPy's generators, each with what sets it."""
    return [(random.setstate, random.getstate()), (np.random.set_state, np.random.get_state(legacy=False))]


def state_of(generator: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return what sets a generator of random numbers, and its state."""
    if isinstance(generator, np.random.Generator):
        return partial(setattr, generator.bit_generator, "state"), generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.setstate, generator.getstate()
    return generator.set_state, generator.get_state()
