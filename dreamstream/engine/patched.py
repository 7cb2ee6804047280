"""Evaluation of a patched module on an engine: what ``online(backend="engine")`` does.

The graph is captured at the first call, from that call's streams, and the forward is not run any more. What an
engine can't give is refused: training, gradients, hooks, floats other than float32, arguments that are no streams.
"""

from __future__ import annotations

import copy
import inspect
import json
import threading
import zlib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .. import _core
from ..array.dtypes import name_of
from ..array.lengths_of import LengthsOf
from ..array.stream_tensor import StreamTensor
from ..errors import FormatError, ModeError, StreamIdError, StreamMismatchError
from ..online.front import BACKENDS
from ..online.given import Static
from ..online.states import sealed, unsealed
from ..stream.tree import map_leaves
from .compile import compile, is_other_float
from .engine import Engine
from .interface import sizes_of

_MAGIC = b"DSGRAPH1"
_HOLDERS = ("_parameters", "_buffers", "_modules")


class _Weights:
    """What a module's weights were when an engine was made of them, and whether they still are.

    Where a stream starts all their bytes are compared; in other calls their places, their versions where the front
    end counts these, and the greatest number of each: an optimizer or an average changes all numbers.
    """

    def __init__(self, patch: Any) -> None:
        self._patch = patch
        module = patch.module
        self.modules = list(module.modules())
        self._owners = [m.__dict__ for m in self.modules]
        self._held = list(map(dict, self._holders()))
        named = [*module.named_parameters(), *module.named_buffers()]
        self.tensors = [tensor for _, tensor in named]
        self._names = [name for name, _ in named]
        self._stamps = patch.stamps(self.tensors)
        arrays = [patch.array_of(tensor) for tensor in self.tensors]
        self._greatest = [_greatest(a) for a in arrays if a.size]
        self._numbers = b"".join(self._greatest)
        self.sums = self._sums()

    def _holders(self) -> list[Any]:
        """Return the dictionaries in which each module holds parameters, buffers and modules."""
        return [own[name] for own in self._owners for name in _HOLDERS]

    def _sums(self) -> dict[str, int]:
        arrays = (np.ascontiguousarray(self._patch.array_of(tensor)) for tensor in self.tensors)
        return {name: zlib.crc32(a.reshape(-1).view(np.uint8).data) for name, a in zip(self._names, arrays)}

    def change(self, starts: bool) -> str | None:
        """Return the name of something that is no longer what it was, or None."""
        now = self._holders()
        for i in _core.differing(now, self._held):  # ordered ones always differ there
            if list(map(id, now[i].values())) != list(map(id, self._held[i].values())):
                return "a layer or a parameter"
        stamps = self._patch.stamps(self.tensors)
        if stamps != self._stamps:
            return next((n for n, now, then in zip(self._names * 2, stamps, self._stamps) if now != then), None)
        if b"".join(self._greatest) != self._numbers:
            return "a weight"
        if starts and (now_are := self._sums()) != self.sums:
            return next((n for n in now_are if now_are[n] != self.sums.get(n)), None)
        return None


def _greatest(a: Any) -> memoryview:
    """Return the memory of an array's greatest number."""
    at = tuple(slice(i, i + 1) for i in np.unravel_index(np.abs(a).argmax(), a.shape))
    number: memoryview = (a[at] if at else a).reshape(1).view(np.uint8).data
    return number


class OnEngine:
    """The streams of a patched module that are evaluated on an engine.

    The engine is compiled with the options of the module's handle, `patch`.
    """

    def __init__(self, patch: Any) -> None:
        self._patch = patch
        self.engine: Engine | None = None  #: None before the first call.
        self._weights: _Weights | None = None
        self._sums: dict[str, int] = {}  # of the weights, where the handle is a copy
        self._asked = ""  # spec, rates and types of the inputs, as JSON
        self._kinds: Any = None  # of the streams that it was asked for
        self._making = threading.Lock()
        self._signature: Any = None  # of the forward, beside it

    # ---------------------------------------------------------------- calls
    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Advance the streams of a call, and return what the forward would."""
        given, lengths = self._inputs(module, args, kwargs)
        xs = {name: x for name, x in given.items() if isinstance(x, StreamTensor)}
        metas = [x.meta for x in xs.values()]
        elsewhere = self._patch.session.live_ids if self._patch.session.is_live else ()
        others = [i for i in metas[0].ids if i in elsewhere]
        if others:
            raise ModeError("these streams have begun without the engine, as in training, and go on so", others)
        engine = self._current(given, lengths, any(bool(m.sos.any()) for m in metas))
        for spec in engine.inputs:
            x = xs.get(spec.name)
            if x is not None and x._rate != spec.rate:
                raise StreamMismatchError(
                    f"input {spec.name}: expected a rate of {spec.rate}, got {x._rate}", list(x.ids)
                )
        return map_leaves(engine(**given), self._patch.from_native)

    def _inputs(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, LengthsOf]]:
        """Return a call's inputs by name, and by name what stands for lengths of inputs."""
        if self._signature is None or self._signature[0] != module.forward:
            self._signature = (module.forward, inspect.signature(module.forward))
        bound = self._signature[1].bind(*args, **kwargs)
        given: dict[str, Any] = {}
        lengths: dict[str, LengthsOf] = {}
        names = {id(x): name for name, x in bound.arguments.items()}
        for name, x in bound.arguments.items():
            parameter = bound.signature.parameters[name]
            once = self.engine is not None and any(s.once and s.name == name for s in self.engine.inputs)
            if isinstance(x, LengthsOf) and id(x.of) in names:
                lengths[name] = LengthsOf(names[id(x.of)], x.relative)
            elif isinstance(x, Static):
                given[name] = Static({i: self._patch.array_of(row) for i, row in x.rows.items()}, x.dims)
            elif x is None and once:
                given[name] = None
            elif (native := self._patch.to_native(x)) is not None:
                given[name] = native
            elif not (x is parameter.default or (type(x) in _ATOMS and x == parameter.default)):
                raise ModeError(
                    f'online(backend="engine"): {type(module).__name__} got {str(x)[:60]!r} as {name}; an engine '
                    f"takes streams and what is given once, and for the rest the defaults of the forward. {_ELSE}"
                )
        return given, lengths

    def _current(self, given: Mapping[str, Any], lengths: Mapping[str, LengthsOf], starts: bool) -> Engine:
        """Return the engine of the module's weights as they are."""
        with self._making:
            changed = None
            kinds = [
                (name, x.dims, x.value.shape[1:], x.value.dtype, x._rate)
                for name, x in given.items()
                if isinstance(x, StreamTensor)
            ]
            if kinds != self._kinds and not self.live_ids:
                self._asked, self._kinds, self.engine = "", kinds, None
            if self._weights is None:
                self._weights = _Weights(self._patch)
                if self.engine is not None and self._weights.sums != self._sums:  # a copy of another handle's
                    changed = "a weight"
            else:
                changed = self._weights.change(starts)
            if changed is not None:
                if self.live_ids:
                    raise ModeError(
                        f"{changed} has changed while streams are live on the engine; end them or reset() first",
                        self.live_ids,
                    )
                self._weights, self.engine = _Weights(self._patch), None
            self._patch.require_evaluation(self._weights.modules, self._weights.tensors)
            if self.engine is None:
                self._asked = self._asked or _asked(given, lengths)
                self._make()
            assert self.engine is not None
            return self.engine

    def _make(self) -> None:
        spec, rates, types = json.loads(self._asked)
        own, model = self._patch.options, self._patch.module
        for name, x in (*model.named_parameters(), *model.named_buffers()):
            if is_other_float(x):
                kind = str(x.dtype).rpartition(".")[2]
                raise ModeError(f"{name} is {kind}, and an engine computes in float32: {_ELSE}")
        self.engine = compile(
            model,
            {name: LengthsOf(**x) if isinstance(x, dict) else tuple(x) for name, x in spec.items()},
            {name: Fraction(rate) for name, rate in rates.items()},
            dtype=types,
            threads=self._patch.n_threads(),
            unstreamable=own.unstreamable,
            buffer_limit=own.buffer_limit,
            skew=own.skew,
            context_limit=own.context_limit,
        )
        self._weights = _Weights(self._patch)  # which a comparison has written to and put back

    # ---------------------------------------------------------------- streams
    @property
    def live_ids(self) -> list[str]:
        """Streams that have started and not ended."""
        return [] if self.engine is None else self.engine.ids

    def reset(self, ids: Iterable[str]) -> None:
        """Forget streams."""
        if self.engine is not None:
            self.engine.reset(list(ids))

    def get_state(self, stream_id: str) -> bytes:
        """Return what a stream remembers: the spec, as JSON, and the engine's snapshot."""
        assert self.engine is not None
        return sealed(_MAGIC, json.loads(self._asked), self.engine.snapshot(stream_id))

    @staticmethod
    def is_state(data: Any) -> bool:
        """Whether bytes are of `get_state`."""
        return isinstance(data, bytes) and data[: len(_MAGIC)] == _MAGIC

    def set_state(self, states: Mapping[str, bytes]) -> None:
        """Add streams, all or none."""
        read = {i: _read_state(data) for i, data in states.items()}
        live = [i for i in states if i in self.live_ids]
        if live:
            raise StreamIdError("these streams are live", live)
        with self._making:
            for asked, _ in read.values():
                if asked != (self._asked or asked):
                    raise FormatError("these streams are of a model with other inputs")
                self._asked = asked
            if self.engine is None:
                self._make()
        assert self.engine is not None
        done: list[str] = []
        try:
            for i, (_, snapshot) in read.items():
                done.append(self.engine.restore(snapshot, i))
        except BaseException:
            self.engine.reset(done)
            raise

    # ---------------------------------------------------------------- copies
    def of_copy(self, patch: Any) -> OnEngine:
        """Return the same for the handle of a copy of the module, with the streams that are live."""
        out = OnEngine(patch)
        if self.engine is not None and self._weights is not None:
            out.engine, out._asked, out._kinds = copy.copy(self.engine), self._asked, self._kinds
            out._sums = self._weights.sums
            for i in self.engine.ids:
                out.engine.restore(self.engine.snapshot(i), i)
        return out


_ATOMS = (bool, float, int, str, type(None))
#: What to do where an engine can't serve.
_ELSE = 'model.online(backend="auto") runs the forward itself'


def _asked(given: Mapping[str, Any], lengths: Mapping[str, LengthsOf]) -> str:
    """Return what a first call tells of a module's inputs: spec, rates and types, as JSON."""
    xs = {name: x for name, x in given.items() if isinstance(x, StreamTensor)}
    spec: dict[str, Any] = {name: _spec_of(x) for name, x in given.items()}
    spec |= {name: {"of": x.of, "relative": x.relative} for name, x in lengths.items()}
    rates = {name: str(x._rate) for name, x in xs.items()}
    return json.dumps([spec, rates, {name: name_of(x.value.dtype) for name, x in xs.items()}])


def _spec_of(x: Any) -> tuple[Any, ...]:
    """Return the dimensions of an input."""
    if isinstance(x, StreamTensor):
        return sizes_of(x.dims, x.value.shape[1:])
    shape = np.shape(next(iter(x.rows.values())))
    if x.dims is None:
        return ("B", "M", shape[1]) if len(shape) == 2 else ("B", *shape)
    sizes = iter(shape)
    return tuple("B" if d == "B" else d if (n := next(sizes)) is not None and d == "M" else n for d in x.dims)


def _read_state(data: bytes) -> tuple[str, bytes]:
    """Return the inputs, as JSON, and the snapshot in what `OnEngine.get_state` gave."""
    text, snapshot = unsealed(_MAGIC, data)
    try:
        inputs = json.loads(text)
    except ValueError:
        inputs = None
    if not (isinstance(inputs, list) and len(inputs) == 3 and all(isinstance(x, dict) for x in inputs)):
        raise FormatError("the state's header is damaged: there are no inputs in it")
    return json.dumps(inputs), snapshot


BACKENDS["engine"] = OnEngine
