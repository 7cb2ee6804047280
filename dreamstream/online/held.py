"""What a model holds: noted before a forward that must not change it, and put back after.

A trace (a capture, a run offline beside an engine) leaves a model as it was; so does an online call that fails.
The forward runs on the user's own modules, so that hooks, closures and what refers to them see what it assigns;
all is put back when it has ended. An online call that succeeds keeps what it has assigned, as offline, but for
what stands for streams: that is its session's, which brings it back for the next call alone.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from types import FunctionType
from typing import Any

import numpy as np

from ..array.base import Base
from ..array.stream_tensor import StreamTensor
from ..errors import NotStreamableError
from ..operations.refusals import KEPT
from ..stream.where import is_stand_in
from .assigned import assignment_of
from .homes import ATOMS, Array, Attributes, Globals, Home, homes_of, is_foreign

#: Where streams go on, containers of more items, and arrays, are noted if an earlier call has changed them.
_MANY = 256
#: A session's calls for which Python's and NumPy's generators are looked at, unless they are used.
_WATCHED = 3
#: Traces run one at a time: what one puts back must not be what another has assigned.
_TRACING = threading.RLock()
_MISSING: Any = object()
_WHOLE: Any = object()
#: A place that holds what stands for a stream: the place, its key there, that value, and what stands there else.
_Kept = tuple[Home, Any, Any, Any]


class Held:
    """What a model holds, as it was when it was last noted.

    Parameters
    ----------
    model : module
    trace : bool
        Whether a trace runs: what the model's functions hold (globals they use, closures, classes) counts too.

    Attributes
    ----------
    drew : bool
        Whether the last forward has drawn numbers of Python's or NumPy's generators.
    """

    def __init__(self, model: Any, *, trace: bool = False) -> None:
        self._model, self._trace = model, trace
        self._homes: list[Home] = []
        self._small: list[Home] = []
        self._generators: Sequence[Any] = ()
        self._noted: list[Home] = []
        self._before: list[Any] = []
        self._states: list[tuple[Callable[[Any], Any], Any]] = []
        self._changing: set[int] = set()  # large places that calls change
        self._kept: list[_Kept] = []
        self._kept_before: list[_Kept] = []
        self._stale = True
        self._watched = _WATCHED  # for how many calls Python's and NumPy's generators are looked at
        self.drew = False

    # ---------------------------------------------------------------- before a forward
    def look(self, *, first: bool = True) -> None:
        """Find where the model holds values; where streams go on (not `first`) large containers are left out."""
        if self._stale or (first and any(_may_hold(value) for _, _, value, _ in self._changes())):
            found = homes_of(self._model, functions=self._trace)
            self._homes, self._generators, self._stale = found.homes, found.generators, False
            self._small = [h for h in self._homes if not _is_large(h.of)]
        self._noted = self._homes
        if not first:
            self._noted = [*self._small, *(h for h in self._homes if _key(h.of) in self._changing)]
        self._before, self._states, self._kept_before = [], [], self._kept

    def note(self) -> None:
        """Note what it holds; let it hold what stood for streams in the last call, which none may read."""
        self._before = [h.read(h.of) if h.of else None for h in self._noted]
        self._states = self._settings()
        for home, key, value, other in self._kept:
            if key is not _WHOLE and home.of.get(key, _MISSING) is other:
                home.of[key] = value
            elif key is _WHOLE and not _changed(home.of, other):
                home.write(home.of, value)

    def _settings(self) -> list[tuple[Callable[[Any], Any], Any]]:
        """Return the states of generators, and what else a forward may set, each with what sets it."""
        states = [_state_of(g) for g in self._generators]
        if self._watched:
            states += _others()
        return states

    # ---------------------------------------------------------------- after it
    def settle(self) -> None:
        """Take out of the model what stands for streams.

        Raises
        ------
        NotStreamableError
            Where the forward has read what an earlier one kept.
        """
        kept: list[_Kept] = []
        for change in self._changes():
            home, _, value, _ = change
            if _stands_for_streams(value):
                kept.append(change)
            elif _may_hold(value):
                self._stale = True
            if _is_large(home.of):
                self._changing.add(_key(home.of))
        known = {(_key(home.of), key) for home, key, _, _ in self._kept}
        self._require_no_cache([k for k in kept if (_key(k[0].of), k[1]) not in known])
        for home, key, _, other in kept:
            if key is _WHOLE:
                home.write(home.of, other)
            elif other is _MISSING:
                del home.of[key]
            else:
                home.of[key] = other
        self._kept = kept
        if self._watched:
            now = dict(_others())
            self.drew = any(str(now[put]) != str(state) for put, state in self._states if put in now)
            self._watched = _WATCHED if self.drew else self._watched - 1

    def restore(self) -> None:
        """Let the model hold what it held."""
        for home, before in zip(self._noted, self._before):
            if _changed(home.of, before):
                home.write(home.of, {} if before is None else before)
        for put, state in self._states:
            put(state)
        self._kept = self._kept_before
        self._stale = True

    def _changes(self) -> Iterator[_Kept]:
        """Yield what has changed: the place, its key there, and what is there now and was there before."""
        for home, before in zip(self._noted, self._before):
            of = home.of
            if (before is None and not of) or not _changed(of, before):
                continue
            now, then = home.read(of), {} if before is None else before
            if isinstance(now, dict):
                for key, value in now.items():
                    other = then.get(key, _MISSING)
                    if other is not value:
                        yield home, key, value, other
            else:
                yield home, _WHOLE, now, then

    def _require_no_cache(self, kept: Sequence[_Kept]) -> None:
        if not kept:
            return
        functions = homes_of(self._model, functions=True).functions
        for home, key, _, _ in kept:
            is_buffer = home.name == "_buffers"
            name = str(key if is_buffer or not home.name else home.name)
            found = assignment_of(name, functions)
            if is_buffer or (found is not None and found.read_before):
                path = home.path if home.name and not is_buffer else ".".join(filter(None, (home.path, name)))
                reason, remedy = KEPT.words
                line = "" if found is None else f", at {found.line}"
                raise NotStreamableError(f"{path} keeps frames{line}: {reason}; {remedy}")


@contextmanager
def undone(held: Held) -> Iterator[None]:
    """Let a model be as it was when what runs within has ended, however it ends."""
    with _TRACING:
        held.look()
        held.note()
        try:
            yield
        finally:
            held.restore()


# ---------------------------------------------------------------------- values
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


def _stands_for_streams(value: Any) -> bool:
    """Whether a value is, or holds, what stands for a stream or its length inside a forward."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        x = waiting.pop()
        if type(x) in ATOMS or id(x) in seen:
            continue
        seen.add(id(x))
        if is_stand_in(type(x)):
            if (
                x.is_stream and (type(x) is not StreamTensor or x.edge is not None)
                if isinstance(x, Base)
                else (getattr(x, "_inner", _MISSING) is not None)
            ):
                return True
        elif isinstance(x, dict):
            waiting += x.values()
        elif isinstance(x, (list, tuple, set, deque)):
            waiting += x
        elif not (is_foreign(x) or isinstance(x, (type, FunctionType))):
            waiting += getattr(x, "__dict__", {}).values()
    return False


def _others() -> list[tuple[Callable[[Any], Any], Any]]:
    """Return the states of Python's and NumPy's generators, each with what sets it."""
    return [(random.setstate, random.getstate()), (np.random.set_state, np.random.get_state(legacy=False))]


def _state_of(generator: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return what sets a generator of random numbers, and its state."""
    if isinstance(generator, np.random.Generator):
        return partial(setattr, generator.bit_generator, "state"), generator.bit_generator.state
    if isinstance(generator, random.Random):
        return generator.setstate, generator.getstate()
    return generator.set_state, generator.get_state()
