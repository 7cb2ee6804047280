"""The handle of a patched module: what stands between its call and its forward, and the names that it lends.

Everything is in the module's own ``__dict__``: the handle under ``_patch``, and ``online``, ``reset``, … where the
module has no attribute of that name. Its class is what it was. A front end says what brings a call to the handle.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .. import autograd
from ..array.counted import noted
from ..array.dtypes import name_of
from ..array.lengths import LengthsOf
from ..array.scores import Scores
from ..array.stream_tensor import StreamTensor
from ..array.symbolic import as_symbolic, measured
from ..errors import ModeError, StreamIdError, StreamMismatchError
from ..nn.module import Module
from ..stream.context import Context, declared
from ..stream.rules import require_same_streams
from ..stream.tree import leaves, map_leaves
from ..stream.where import passes_on, raise_explained
from . import states
from .eager import EagerCall
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
        return [] if session is None else session.live_ids

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
    """The handle of one patched module: its mode, its options and, where it is outermost, its session.

    Attributes
    ----------
    module : Module or None
        None in copies that classes make by themselves: these are not patched.
    online_mode : bool
        Whether it streams.
    around : bool
        Whether it, or a module below, has a context.
    lent : tuple of str
        The names that the module had not, and has from here.
    """

    _kind: type[Session] = Session

    def __init__(
        self, module: Any, options: Options, path: str = "", context: Context | None = None, around: bool = False
    ) -> None:
        self.module = module
        self.options, self.path, self.context, self.around = options, path, context, around
        self.online_mode = False
        self.lent: tuple[str, ...] = ()
        self._session: Session | None = None

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
        """Give the module attributes of these names, and let calls come here."""
        self.module.__dict__.update({name: self._offer(name) for name in names})
        self.module.__dict__["__getstate__"] = self._state_of_module
        self._take_calls()

    def _offer(self, name: str) -> Any:
        return getattr(self, name)

    def _take_calls(self) -> None:
        """Let calls of the module come here; those of modules of `dreamstream.nn` do."""

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
        out._session = None if self._session is None else self._session.__deepcopy__(memo)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "module": None, "_session": None}  # live streams travel by get_state

    def _of(self) -> Any:
        if self.module is None:
            raise ModeError("this is a copy of a patched module that its class made by itself: patch it, too")
        return self.module

    # ---------------------------------------------------------------- what a patched module offers
    def online(self, mode: bool = True) -> Any:
        """Stream from now on (or, with False, be the untouched model), here and below."""
        if not isinstance(mode, bool):
            raise ValueError(f"online: mode must be a bool, got {mode!r}")
        for part in self._of().modules():
            patch = patch_of(part)
            if patch is not None:
                patch.online_mode = mode
                if "is_online" in patch.lent and "is_online" in part.__dict__:
                    part.__dict__["is_online"] = mode
                patch._take_calls()
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
        return [] if self._session is None else self._session.known_ids

    def reset(self, ids: Iterable[str] | None = None) -> None:
        """Forget streams, or all."""
        if self._session is not None:
            self._session.reset(ids)
        elif ids is not None:
            raise StreamIdError("no such streams are live", [ids] if isinstance(ids, str) else list(ids))

    def get_state(self, ids: Sequence[str] | str | None = None) -> dict[str, bytes]:
        """Return what streams remember, as bytes per id."""
        return states.dump(self.session, ids)

    def set_state(self, given: Mapping[str, bytes]) -> None:
        """Add streams with the states that `get_state` gave, here or in another process."""
        states.load(self.session, given)

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
        inside = (getattr(getattr(x, "_inner", x), "edge", None) is not None for x in leaves((args, kwargs)))
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
            raise not_patched(module)
        return forward_of(module)(*args, **kwargs)

    @passes_on
    def _call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [x for x in leaves((args, kwargs)) if isinstance(x, StreamTensor)]
        inside = [x.edge.entry for x in tensors if x.edge is not None]
        if inside or (not tensors and any(isinstance(x, Scores) or noted(x) for x in leaves((args, kwargs)))):
            if inside and inside.count(inside[0]) < len(inside):
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
                raise ModeError(f"{name} is offline and got a StreamTensor; call .online() first")
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
            outputs = NativeOutputs(call, self.train_variant, module.told_to_train, taped)
            call.kinds = [(name_of(x.value.dtype), x.value.shape[1:]) for x in tensors]
            if call.kinds != session.kinds:
                call.require_kinds(input_names(module, args, kwargs, tensors))
            index = iter(range(len(call.rates)))
            entered = {}
            for x in tensors:
                edge = call.input_edge(next(index), name_of(x.value.dtype), x.value.shape[1:])
                edge.made = autograd.source(x) if taped else None
                entered[id(x)] = StreamTensor.inside(x.value, x.dims, edge, x._names)
            for each in given:
                edge = call.input_edge(next(index), *each.known())
                entered[id(each)] = StreamTensor.inside(each.stacked(meta.ids), each.dims, edge)

            def enter(x: Any) -> Any:
                return as_symbolic(x, entered) if isinstance(x, LengthsOf) else entered.get(id(x), x)

            inside_args = map_leaves(args, enter)
            inside_kwargs = map_leaves(kwargs, enter) if kwargs else kwargs
            held = session.held = session.held or Held(module)
            held.noted = False
            try:
                held.note(first=call.fresh)
                try:
                    if taped:
                        with autograd.noting() as constants:
                            call.begin(self.train_variant != VARIANTS[0], constants)
                            result = forward_of(module)(*inside_args, **inside_kwargs)
                    else:
                        result = forward_of(module)(*inside_args, **inside_kwargs)
                except Exception as error:
                    call.explain(error)
                    wrong = isinstance(error, (AttributeError, TypeError))
                    told = forgotten(module, args, kwargs) if wrong else None
                    if told is not None:
                        raise told from None
                    raise_explained(error, self.path, type(module).__name__)
                found = list(map(measured, leaves(result)))
                seen = iter(outputs.given(found))
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
        raise ModeError("what has the dictionary of a patched module would become that one; call it once before")
    patch.module = module
    patch._lend(name for name in patch.lent if name not in VALUES)  # which are in the state
    return patch


def patch_of(module: Any) -> Patch | None:
    """Return a module's handle; None where it is not patched, as a shallow copy of one that is."""
    found = getattr(module, "__dict__", {}).get("_patch")
    return found if isinstance(found, Patch) and found.module is module else None


def not_patched(module: Any) -> ModeError:
    """Return the error for streams that come to a module whose dictionary is a copy of a patched one's."""
    name = type(module).__name__
    return ModeError(f"this {name} is a copy of one that is patched, and is not: ds.patch_module lets it stream")


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
    return {id(p.numpy()): n for n, p in [*module.named_parameters(), *module.named_buffers()]}
