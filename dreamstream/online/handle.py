"""The handle of a patched module: what stands between its call and its forward, and the names that it lends.

Everything is in the module's own ``__dict__``: the handle under ``_patch``, and ``online``, ``reset``, … where the
module has no attribute of that name. Its class is what it was. A front end says what brings a call to the handle.
"""

from __future__ import annotations

import copy
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import autograd
from ..array.deferred import Deferred
from ..array.dtypes import name_of
from ..array.first_frame import FirstFrame
from ..array.lengths_of import LengthsOf
from ..array.loop_body import mixed
from ..array.scores import Scores
from ..array.stream_tensor import StreamTensor
from ..array.symbolic import as_symbolic
from ..array.tensor import Tensor
from ..errors import ModeError, StreamIdError, StreamMismatchError
from ..nn.module import Module
from ..stream.context import Context, declared
from ..stream.foreign import inner_of
from ..stream.rules import require_same_streams
from ..stream.tree import leaves, map_leaves
from ..stream.where import offline_error, passes_on, raise_explained
from . import states
from .eager import EagerCall
from .front import BACKENDS
from .given import forgotten, input_names
from .held import Held
from .session import Session
from .taped import NativeOutputs, TapedCall
from .tracer import forward_of

_MAKING = threading.Lock()

VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
POLICIES = ("raise", "buffer")

#: What a patched module offers, where it has no attribute of its own of that name.
METHODS = ("online", "offline", "reset", "get_state", "set_state")
OFFERED = (*METHODS, "is_online", "live_ids")
VALUES = ("is_online", "kernel_width")  # what is lent and doesn't know its handle
_PATCHING = f"{__package__}.patch"  # where classes are of modules that patch themselves


class Options(NamedTuple):
    """What a module is patched with; see `patch_module`."""

    train_variant: str = VARIANTS[0]
    unstreamable: str = POLICIES[0]
    buffer_limit: int | None = None
    skew: int = 0
    context_limit: int | None = None


class LiveIds(Sequence[str]):
    """The ids of the streams that have started and not ended: a view, right at any time, that reads as a list."""

    def __init__(self, patch: Patch) -> None:
        self.__self__ = patch

    def _list(self) -> list[str]:
        session = self.__self__._session
        return [*([] if session is None else session.live_ids), *self.__self__.engine_ids]

    def __getitem__(self, index: Any) -> Any:
        return self._list()[index]

    def __len__(self) -> int:
        return len(self._list())

    def __iter__(self) -> Iterator[str]:
        return iter(self._list())

    def __eq__(self, other: object) -> bool:
        return self._list() == (list(other) if isinstance(other, LiveIds) else other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[str]) -> list[str]:
        return [*self, *other]

    def __radd__(self, other: Sequence[str]) -> list[str]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self._list())


class Patch:
    """The handle of one patched module: its mode, its options and, where it is outermost, its session."""

    _kind: type[Session] = Session

    def __init__(
        self, module: Any, options: Options, path: str = "", context: Context | None = None, around: bool = False
    ) -> None:
        self.module = module  #: None in copies that classes make by themselves: these are not patched.
        self.options, self.path, self.context = options, path, context
        self.around = around  #: Whether it, or a module below, has a context.
        self.online_mode = False  #: Whether it streams.
        #: Whether calls of the module come here: where it streams, or has a context, or where a module above it
        #: streams that has brought it online. Else the module is called as if it were not patched.
        self.takes_calls = False
        self.lent: tuple[str, ...] = ()  #: The names that the module had not, and has from here.
        self.leader: Any = None  # refers weakly to the module that has brought this one online
        self.backend = "auto"
        self._session: Session | None = None
        self._on_engine: Any = None

    @property
    def train_variant(self) -> str:
        """How the module trains."""
        return self.options.train_variant

    @property
    def session(self) -> Session:
        """The session, made when it is first needed."""
        if self._session is None:
            own = self.options
            made = self._kind(own.skew, own.unstreamable == "buffer", own.buffer_limit, own.context_limit)
            with _MAKING:  # two threads may come here at once
                self._session = self._session or made
        return self._session

    # ---------------------------------------------------------------- in the module's __dict__
    def attach(self, lends: bool = True) -> None:
        """Stand before the module's forward from now on; lend it the names that it has not."""
        self.module.__dict__["_patch"] = self
        self.lent = tuple(name for name in OFFERED if lends and not _has(self.module, name))
        self._lend(self.lent)

    def _lend(self, names: Iterable[str]) -> None:
        """Give the module attributes of these names."""
        self.module.__dict__.update({name: self._offer(name) for name in names})
        self.module.__dict__["__getstate__"] = self._state_of_module
        self.stand()

    def _offer(self, name: str) -> Any:
        return getattr(self, name)

    def stand(self, capturing: bool = False) -> None:
        """Let calls of the module come here, where they have to; those of a module that is captured have to."""
        self.takes_calls = capturing or self.online_mode or self.around or self.is_led

    @property
    def is_led(self) -> bool:
        """Whether a module above streams, and has brought this one online, whatever it is now."""
        leader = None if self.leader is None else patch_of(self.leader())
        return leader is not None and leader.online_mode

    def strip(self, own: dict[str, Any]) -> None:
        """Take what is this handle's out of a dictionary, the module's or a copy of it."""
        for name in (*self.lent, "_patch", "__getstate__"):
            if name in VALUES or self._is_mine(own.get(name)):
                own.pop(name, None)

    def _is_mine(self, value: Any) -> bool:
        """Whether an entry is this handle's, or of one that came with a copy and knows no module."""
        owner = getattr(value, "__self__", value)
        return owner is self or (isinstance(owner, Patch) and owner.module is None)

    def _state_of_module(self) -> Any:
        """Return the module's state for copies and pickles, as its class does: they get a handle of their own.

        Where a module was made with the same dictionary, `copy` asks here, too: who is copied stands in its frame.
        """
        module, caller = self.module, sys._getframe(1)
        by_copy = caller.f_globals.get("__name__") == "copy"
        if by_copy and (found := caller.f_locals.get("x")) is not module:
            module = found
            self.strip(module.__dict__)
        own = getattr(type(module), "__getstate__", None)  # which Python 3.10 has not
        state = module.__dict__ if own is None else own(module)
        if isinstance(state, dict) and state.get("_patch") is self:
            values = {name: state[name] for name in VALUES if name in self.lent and name in state}
            state = dict(state)
            self.strip(state)
            if not by_copy or caller.f_code.co_name != "copy":  # a shallow copy is not patched
                state.update(values, _patch=Travelling(self))
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Patch:
        out = copy.copy(self)
        memo[id(self)] = out
        out.module = memo.get(id(self.module))
        out._on_engine = None if self._on_engine is None else self._on_engine.of_copy(out)
        out._session = None if self._session is None else self._session.__deepcopy__(memo)
        return out

    def __getstate__(self) -> dict[str, Any]:
        own = dict.fromkeys(("module", "leader", "_session", "_on_engine"))
        return {**self.__dict__, **own}  # live streams travel by get_state

    def _of(self) -> Any:
        if self.module is None:
            raise ModeError("this is a copy of a patched module that its class made by itself: patch it, too")
        return self.module

    # ---------------------------------------------------------------- what a patched module offers
    def online(self, mode: bool = True, backend: str | None = None) -> Any:
        """Stream from now on, here and below, or be the untouched model; see `dreamstream.online`."""
        if not isinstance(mode, bool):
            raise ValueError(f"online: mode must be a bool, got {mode!r}")
        if backend is not None and backend not in ("auto", *BACKENDS):
            raise ValueError(f'online: backend is "auto" or "engine", got {backend!r}')
        parts = [(part, patch) for part in self._of().modules() if (patch := patch_of(part)) is not None]
        live = [i for _, patch in parts if patch.backend != (backend or patch.backend) for i in patch.known_ids()]
        if live:
            raise ModeError("streams are live; end them or reset() before another backend", live)
        for part, patch in parts:
            patch.online_mode, patch.backend = mode, backend or patch.backend
            if "is_online" in patch.lent and "is_online" in part.__dict__:
                part.__dict__["is_online"] = mode
            patch.stand()  # by the leader that it had
            if mode and not patch.is_led:
                patch.leader = weakref.ref(self.module)
        return self.module

    def offline(self) -> Any:
        """Be the untouched model; live streams stay as they are."""
        return self.online(False)

    @property
    def is_online(self) -> bool:
        """Whether the module streams."""
        return self.online_mode

    @property
    def live_ids(self) -> LiveIds:
        """Streams that have started and not ended."""
        return LiveIds(self)

    def known_ids(self) -> list[str]:
        """Streams that would be lost with the session."""
        return [*([] if self._session is None else self._session.known_ids), *self.engine_ids]

    def reset(self, ids: Iterable[str] | None = None) -> None:
        """Forget streams, or all."""
        gone = None if ids is None else [ids] if isinstance(ids, str) else list(ids)
        known = self.known_ids()
        unknown = [i for i in gone or () if i not in known]
        if unknown:
            raise StreamIdError("no such streams are live", unknown)
        on_engine = [i for i in self.engine_ids if gone is None or i in gone]
        if self._session is not None:
            self._session.reset(None if gone is None else [i for i in gone if i not in on_engine])
        if on_engine:
            self._on_engine.reset(on_engine)

    def get_state(self, ids: Sequence[str] | str | None = None) -> dict[str, bytes]:
        """Return what streams remember, as bytes per id."""
        wanted = list(self.live_ids) if ids is None else [ids] if isinstance(ids, str) else list(ids)
        on_engine = [i for i in wanted if i in self.engine_ids]
        rest = states.dump(self.session, [i for i in wanted if i not in on_engine])
        return {i: self._on_engine.get_state(i) if i in on_engine else rest[i] for i in wanted}

    def set_state(self, given: Mapping[str, bytes]) -> None:
        """Add streams with the states that `get_state` gave, here or in another process."""
        own = {
            i: data for i, data in given.items() if self.on_engine is not None and self.on_engine.is_state(data)
        }
        states.load(self.session, {i: data for i, data in given.items() if i not in own})
        if own:
            self.on_engine.set_state(own)

    # ---------------------------------------------------------------- on an engine
    @property
    def on_engine(self) -> Any:
        """What evaluates the module in the place of its forward; None where its forward does."""
        if self._on_engine is None and self.backend in BACKENDS:
            with _MAKING:
                self._on_engine = self._on_engine or BACKENDS[self.backend](self)
        return self._on_engine

    @property
    def engine_ids(self) -> list[str]:
        """The streams that are live on an engine."""
        return [] if self._on_engine is None else self._on_engine.live_ids

    def _evaluated(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ids: Sequence[str]
    ) -> tuple[Any, ...]:
        """Return what an engine gives for a call, in a tuple; none where the forward runs."""
        if not module.training:
            return (self.on_engine.call(module, args, kwargs),)
        others = [i for i in ids if i in self.engine_ids]
        if others:
            raise ModeError(
                "these streams are live on the engine, which evaluates; call .eval() on the model", others
            )
        return ()

    def require_evaluation(self, modules: Sequence[Any], tensors: Sequence[Any]) -> None:
        """Raise ModeError where modules, which hold these tensors, don't run as an engine would."""
        if any(m.__dict__["training"] for m in modules):
            name = next(n for n, m in self._of().named_modules() if m.training)
            raise ModeError(f'{name} is in train(), which no engine is: call .eval(), or online(backend="auto")')

    def to_native(self, x: Any) -> StreamTensor | None:
        """Return a stream of the front end as an engine takes it; None for anything else."""
        return x if isinstance(x, StreamTensor) else None

    def from_native(self, x: Any) -> Any:
        """Return a stream as the front end's."""
        return x

    def array_of(self, x: Any) -> Any:
        """Return the values of a tensor, without a copy where that can be."""
        return x.numpy() if isinstance(x, Tensor) else np.asarray(x)

    def stamps(self, tensors: Sequence[Any]) -> list[Any]:
        """Return what of tensors shows that they have been exchanged, of all one kind after the other."""
        return [id(x._own) for x in tensors]

    def n_threads(self) -> int | None:
        """Threads for an engine; None for the default."""
        return None

    # ---------------------------------------------------------------- calls
    @passes_on
    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the module's forward as its mode says, in its context."""
        if module is not self.module:
            return self._of_copy(module, args, kwargs)
        if self.context is None:
            return self._call(module, args, kwargs)
        with declared(self.context) as asked:
            out = self._call(module, args, kwargs)
        inside = (getattr(inner_of(x), "edge", None) is not None for x in leaves((args, kwargs)))
        if not asked and any(inside):
            raise ValueError(
                f"context: in {self.path!r} ({type(module).__name__}), for which {self.context} is declared, "
                "nothing attends to a stream; ds.unpatch_module(model) forgets what is declared"
            )
        return out

    def _of_copy(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take a call of a module that has a copy of another one's dictionary, and let it be unpatched."""
        self.strip(module.__dict__)
        if any(isinstance(x, StreamTensor) and x.edge is None for x in leaves((args, kwargs))):
            raise offline_error(module)
        return forward_of(module)(*args, **kwargs)

    @passes_on
    def _call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [x for x in leaves((args, kwargs)) if isinstance(x, StreamTensor)]
        inside = [x.edge.entry for x in tensors if x.edge is not None]
        if inside or (
            not tensors and any(isinstance(x, (Scores, Deferred, FirstFrame)) for x in leaves((args, kwargs)))
        ):
            if inside and inside.count(inside[0]) < len(inside):
                mixed(inside)
                raise StreamMismatchError("tensors of different forwards meet in one module")
            if len(inside) < len(tensors):
                raise StreamMismatchError("a StreamTensor from outside meets streams inside a forward")
            try:
                return forward_of(module)(*args, **kwargs)
            except Exception as error:
                raise_explained(error, self.path, type(module).__name__)
        name = type(module).__name__
        if not self.online_mode:
            if tensors:
                raise offline_error(module)
            return module.forward(*args, **kwargs)
        if not tensors:
            if any(type(x).__name__ == "StreamTensor" for x in leaves((args, kwargs))):
                raise ModeError(
                    f"{name} computes with NumPy and got a StreamTensor of torch; make it of arrays, as in "
                    "ds.stream_tensor([t.numpy()], ids=...)"
                )
            raise ModeError(
                f"{name} is online and got no StreamTensor; wrap its input with ds.stream_tensor, or call "
                ".offline() first"
            )
        return self._outermost(module, args, kwargs, tensors)

    @passes_on
    def _outermost(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[StreamTensor]
    ) -> Any:
        if self.backend in BACKENDS and (found := self._evaluated(module, args, kwargs, tensors[0].ids)):
            return found[0]
        meta = tensors[0].meta
        if len(tensors) > 1:
            require_same_streams([x.meta for x in tensors])
        session = self.session
        with session.hold(meta.ids):
            args, kwargs, given = session.take_given(module, args, kwargs)
            rates, lengths, restarts = zip(*[(x._rate, x.lengths, x.restart) for x in tensors])
            names = partial(_names_of, module)
            taped = module.told_to_train and autograd.is_grad_enabled()
            kind = TapedCall if taped else EagerCall
            call: Any = session.admit(meta, rates, lengths, True in restarts, names, kind, given)
            outputs = NativeOutputs(call, self.options.train_variant, module.told_to_train, taped)
            call.kinds = [(name_of(x.value.dtype), x.value.shape[1:]) for x in tensors]
            if call.kinds != session.kinds:
                call.require_kinds(input_names(module, args, kwargs, tensors))
            index = iter(range(len(call.rates)))
            entered = {}
            for x in tensors:
                edge = call.input_edge(next(index), name_of(x.value.dtype), x.value.shape[1:])
                edge.made = autograd.source(x) if taped else None
                entered[id(x)] = StreamTensor.inside(x.value, x.dims, edge, x._names)
            if taped:
                call.begin(module, self.train_variant != VARIANTS[0])
            if given:
                call.remember([each.rows for each in given])
            for n, each in enumerate(given):
                edge = call.input_edge(next(index), *each.kind_of_frame())
                entered[id(each)] = StreamTensor.inside(call.given_once(n, each, edge), each.dims, edge)

            def enter(x: Any) -> Any:
                return as_symbolic(x, entered) if isinstance(x, LengthsOf) else entered.get(id(x), x)

            only_streams = not kwargs and list(map(type, args)).count(StreamTensor) == len(args)
            inside_args = tuple(map(enter, args)) if only_streams else map_leaves(args, enter)
            inside_kwargs = map_leaves(kwargs, enter) if kwargs else kwargs
            held = session.held = session.held or Held(module)
            held.noted = False
            try:
                held.note(first=call.fresh)
                try:
                    if taped:
                        with autograd.noting() as call.constants:
                            result = forward_of(module)(*inside_args, **inside_kwargs)
                    else:
                        result = forward_of(module)(*inside_args, **inside_kwargs)
                except Exception as error:
                    call.explain(error)
                    wrong = isinstance(error, (AttributeError, TypeError))
                    refusal = forgotten(module, args, kwargs) if wrong else None
                    if refusal is not None:
                        raise refusal from None
                    raise_explained(error, self.path, type(module).__name__)
                if isinstance(result, StreamTensor):
                    (result,) = outputs.given([result])
                else:
                    seen = iter(outputs.given_within(leaves(result)))
                    result = map_leaves(result, lambda x: next(seen))
                held.settle()
                session.commit(call)
            except BaseException:
                if not call.committed:
                    held.restore()
                raise
            return result


class Travelling:
    """What stands for a handle in a module's state: the copy that is made of it gets a handle of its own."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch

    def __deepcopy__(self, memo: dict[int, Any]) -> Patch:
        return _arrived(memo.get(id(self.patch.module)), copy.deepcopy(self.patch, memo))

    def __reduce__(self) -> Any:
        return _arrived, (self.patch.module, self.patch)


def _arrived(module: Any, patch: Patch) -> Patch:
    """Return a handle that has come to a module of which nothing but the object is there yet."""
    if module is None or "_parameters" in module.__dict__:
        raise ModeError("what has the dictionary of a patched module would become that one; unpatch it before")
    patch.module = module
    patch._lend(name for name in patch.lent if name not in VALUES)  # which are in the state
    return patch


def patch_of(module: Any) -> Patch | None:
    """Return a module's handle; None where it is not patched, as a shallow copy of one that is."""
    found = getattr(module, "__dict__", {}).get("_patch")
    return found if isinstance(found, Patch) and found.module is module else None


def _has(module: Any, name: str) -> bool:
    """Whether a module has an attribute of a name, without asking properties for their values."""
    homes = [cls.__module__ for cls in type(module).__mro__ if name in vars(cls)]
    if homes:
        return homes[0] != _PATCHING
    try:
        found = getattr(module, name)
    except Exception:  # of a class's own __getattr__
        return False
    return not isinstance(getattr(found, "__self__", None), Patch)  # which a wrapper finds in what it wraps


def forget_patch(module: Any) -> None:
    """Undo what `Patch.attach` did, or what a copy brought along."""
    found = module.__dict__.get("_patch")
    if isinstance(found, Patch):
        found.strip(module.__dict__)
    module.__dict__.pop("_patch", None)


def _names_of(module: Module) -> dict[int, str]:
    """Return the names of parameters and buffers by the identity of what holds their values."""
    return {id(p._own): n for n, p in [*module.named_parameters(), *module.named_buffers()]}
