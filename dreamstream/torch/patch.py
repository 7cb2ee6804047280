"""Patching torch modules: the handle of each, which torch's own call of a module reaches.

``Module.__call__`` looks for ``_compiled_call_impl``, which `torch.nn.Module.compile` sets, before it runs hooks
and the forward. The handle lies there, in the module's ``__dict__``; what torch has compiled is kept in it, and
called offline.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from types import FunctionType
from typing import Any

import torch
from torch.nn.utils import parametrize

from .. import _core
from ..array.lengths_of import LengthsOf
from ..array.stream_tensor import StreamTensor as Native
from ..array.symbolic import as_symbolic
from ..errors import DreamStreamError, ModeError, StreamMismatchError
from ..online.front import BACKENDS, CONVOLUTIONS
from ..online.given import Given, Static, forgotten, input_names
from ..online.handle import VALUES, VARIANTS, Patch
from ..online.patch import PatchesItself
from ..online.registered import registered_for
from ..online.tracer import TRACER
from ..stream.tree import leaves, map_leaves
from ..stream.where import offline_error, passes_on, raise_explained, runs_forward
from . import private
from .forward.capture import TorchSource
from .forward.constants import HALF
from .forward.drawn import places_of_draws, warn_of_others
from .forward.held import TorchHeld
from .forward.layers import is_recurrence, streaming_forward, unstreamable
from .forward.mode import Forward
from .forward.replay import REPLAY
from .forward.running import current, running
from .outside.attention import DeclaredContext
from .private import pytree
from .run import declared as _declared  # noqa: F401  (operators declared in Python take torch tensors)
from .run.arrivals import arrived
from .run.calls import TorchGiven, TorchSession
from .tensor import StreamTensor
from .tensor.padding import unpad
from .tensor.stream_tensor import SHELL
from .train.kept import Versions, keeping, zeros
from .train.outputs import TorchOutputs

#: The entry of a module's ``__dict__`` that torch calls in place of hooks and forward, and who looks for it.
_CALLED, _CALLER = "_compiled_call_impl", "_wrapped_call_impl"
#: The attribute that tells `torch.jit.script` which entries it is not to look at.
_IGNORED = "__jit_ignored_attributes__"

runs_forward(private.runs_modules)


class Ignored(list[str]):
    """Names that `torch.jit.script` is not to look at."""


#: Where torch has layers whose forwards compute what their attributes and tensors say, and do nothing else.
_ROOMS = (
    "activation", "batchnorm", "conv", "dropout", "instancenorm", "linear", "normalization", "padding", "pooling",
    "rnn",
)  # fmt: skip
_LAYERS = frozenset(f"torch.nn.modules.{room}" for room in _ROOMS)

#: torch's functions as they were when this was loaded, where layers look for them.
_FUNCTIONS = tuple((vars(room), dict(vars(room))) for room in (torch.nn.functional, torch))

#: Methods of layers that no call of them runs.
_APART = ("__init__", "__setstate__", "extra_repr", "reset_parameters")


@lru_cache(maxsize=256)
def _called_by(kind: Any) -> list[tuple[dict[str, Any], str, Any]]:
    """Return which of torch's functions the methods of a layer's class may call: where they are, their names."""
    methods = [f for cls in kind.__mro__ if cls is not torch.nn.Module for f in vars(cls).values()]
    codes = [f.__code__ for f in methods if type(f) is FunctionType and f.__name__ not in _APART]
    called = {name for code in codes for name in code.co_names}
    return [(now, n, own[n]) for now, own in _FUNCTIONS for n in called if callable(own.get(n))]


class Layer:
    """What a module was when it was called: its class, that class's forward, its attributes."""

    def __init__(self, module: Any, number: int) -> None:
        kind: Any = type(module)
        state = module.__dict__
        self.kind, self.forward, self.number, self._state = kind, kind.forward, number, state
        self._hooks = private.hooks_of(module)
        self._places = [state, state["_parameters"], state["_buffers"], state["_modules"], *self._hooks]
        self._before = [dict(place) or None for place in self._places]
        changing = [v for name, v in state.items() if name[:1] != "_" and isinstance(v, (dict, list, set))]
        draws = kind.__module__ == torch.nn.Dropout.__module__
        writes = state.get("inplace") or (state["training"] and (draws or state["_buffers"]))
        called = _called_by(kind)
        self._rooms, self._names = [now for now, _, _ in called], [name for _, name, _ in called]
        self._functions = [now.get(name) for now, name, _ in called]
        self._versions, self._rooms_versions = bytearray(), bytearray()
        own = self._functions == [function for _, _, function in called]
        other = streaming_forward(module) is not None and not is_recurrence(module)
        inside = "forward" in state or state["_modules"] or any(self._hooks) or other
        #: Whether it is one of torch's that computes what its attributes and tensors say, and does nothing else.
        self.is_own = own and kind is not torch.nn.Identity and not (inside or changing or writes)
        #: `number`, which belongs to these attributes, and the module's tensors.
        self.settings = (number, *state["_parameters"].values(), *state["_buffers"].values())

    def serves(self, module: Any, kind: Any) -> bool:
        """Whether the module's attributes, tensors and hooks, and torch's functions, are the same objects now."""
        return (
            module.__dict__ is self._state
            and kind is self.kind
            and kind.forward is self.forward
            and not _core.differing(self._places, self._before, self._versions)
            and _core.finds(self._rooms, self._names, self._functions, self._rooms_versions)
        )


class TorchPatch(Patch):
    """The handle of one patched torch module."""

    _kind = TorchSession
    _names: dict[int, str] | None = None
    _named: list[torch.Tensor]
    _versions: Versions
    _types: list[torch.dtype]
    _is_single: bool = False  # whether its parameters of floats are float32

    #: What `torch.nn.Module.compile` has made of the offline model.
    compiled: Any = None
    _layer: Layer | None = None

    # ---------------------------------------------------------------- in the module's __dict__
    def _lend(self, names: Iterable[str]) -> None:
        own = self.module.__dict__
        own.setdefault("compile", self.compile)
        if _IGNORED not in own:
            own[_IGNORED] = Ignored((*getattr(type(self.module), _IGNORED, ()), _CALLED, *VALUES))
        super()._lend(names)

    def stand(self, capturing: bool = False) -> None:
        super().stand(capturing)
        own = self.module.__dict__
        if self.lent and isinstance(self.module, torch.nn.Conv1d) and "kernel_size" in own:
            more = tuple(n for n in CONVOLUTIONS if n not in self.lent and not hasattr(self.module, n))
            own.update({n: self._offer(n) for n in more})
            self.lent += more
        if not self.takes_calls:
            self._give_calls_back(own)
        elif own.get(_CALLED) is not self:
            self.compiled = own.get(_CALLED)
            own[_CALLED] = self

    def _give_calls_back(self, own: dict[str, Any]) -> None:
        if self._is_mine(own.get(_CALLED)):
            own[_CALLED] = own[_CALLED].compiled
            if own[_CALLED] is None:
                del own[_CALLED]

    def _offer(self, name: str) -> Any:
        return CONVOLUTIONS[name](self) if name in CONVOLUTIONS else super()._offer(name)

    def strip(self, own: dict[str, Any]) -> None:
        super().strip(own)
        if self._is_mine(own.get("compile")):
            del own["compile"]
        if isinstance(own.get(_IGNORED), Ignored):
            del own[_IGNORED]
        self._give_calls_back(own)

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """Compile the offline model, as the module's class does; online it streams as ever."""
        module = self._of()
        try:
            return type(module).compile(module, *args, **kwargs)
        finally:
            self.stand()

    # ---------------------------------------------------------------- calls
    @private.runs_uncompiled
    @passes_on
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Take a call of the module from torch."""
        streams = len(args) == 1 and isinstance(args[0], StreamTensor)
        if not streams and torch.compiler.is_compiling() and not _streams(args, kwargs):  # which can't be compiled
            return self.module._call_impl(*args, **kwargs)
        module, caller = self.module, sys._getframe(1)
        if caller.f_code.co_name == _CALLER and (found := caller.f_locals.get("self")) is not module:
            return self._of_copy(found, args, kwargs)
        call, compiler = self.call if self.around else self._call, private.set_compiler(None)
        if compiler is None:
            return call(module, args, kwargs)
        try:  # within torch.compile(model)
            if self.online_mode or _streams(args, kwargs):
                return call(module, args, kwargs)
        finally:
            private.set_compiler(compiler)
        return (self.compiled or module._call_impl)(*args, **kwargs)

    @passes_on
    def direct(self, /, *args: Any, **kwargs: Any) -> Any:
        """Take a call of the module from a forward's copy; one of a layer of torch's own is a place itself."""
        module, kinds = self.module, [*map(type, args), *map(type, kwargs.values())]
        if self.around or SHELL not in kinds or StreamTensor in kinds:
            return module(*args, **kwargs)
        layer, forward = self._layer, running() or current()
        kind: Any = type(module)
        if forward.arrays is not None or kind.__module__ not in _LAYERS or kwargs or kinds[0] is not SHELL:
            return self._inside(module, args, kwargs)
        if layer is None or not layer.serves(module, kind):
            # Attributes that are other objects than in the call before have another number.
            layer = self._layer = Layer(module, 0 if layer is None else layer.number + 1)
        if not layer.is_own or registered_for(kind) is not None:
            return self._inside(module, args, kwargs)
        x, *others = args
        return REPLAY.function(TorchPatch._recorded, self, x, others, *layer.settings)

    def _recorded(self, x: Any, others: list[Any], *settings: Any) -> Any:
        """Run a layer where its call before isn't known, or isn't repeated."""
        anew = partial(self._inside, self.module, (x, *others), {})
        return current().replayed(self, (x, others, *settings), {}, anew)

    def _of_copy(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.strip(module.__dict__)
        given = _streams(args, kwargs)
        if any(x._inner is not None for x in given):
            return run_module(module, args, kwargs)
        if given:
            raise offline_error(module)
        return module._wrapped_call_impl(*args, **kwargs)

    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the module's forward as its mode says, in its context."""
        with nullcontext() if _within(Forward, DeclaredContext) else DeclaredContext():
            return super().call(module, args, kwargs)

    def _call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and type(args[0]) is SHELL and not kwargs:
            return self._inside(module, args, kwargs)
        tensors = _streams(args, kwargs)
        if not tensors and not self.online_mode:
            run = module._call_impl if self.compiled is None or _within(Forward) else self.compiled
            return run(*args, **kwargs)
        kinds = list(map(type, tensors))
        if SHELL in kinds:
            if kinds.count(SHELL) < len(kinds):
                raise StreamMismatchError("a StreamTensor from outside meets streams inside a forward")
            return self._inside(module, args, kwargs)
        name = type(module).__name__
        if not self.online_mode:
            raise offline_error(module)
        if tensors:
            return self._outermost(module, args, kwargs, tensors)
        if _within(Forward) and current().takes_constants:  # a layer of constants
            return module._call_impl(*args, **kwargs)
        if any(isinstance(x, Native) for x in _leaves(args, kwargs)):
            raise ModeError(
                f"{name} is a torch module and got a StreamTensor of NumPy arrays, as an empty list makes, too; "
                "make it of torch tensors, as in ds.stream_tensor([torch.from_numpy(a)], ids=...)"
            )
        raise ModeError(
            f"{name} is online and got no StreamTensor; wrap its input with ds.stream_tensor, or call "
            ".offline() first"
        )

    def _inside(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the module on streams that are inside a forward already; its errors name it."""
        forward = running() or current()
        try:
            if forward.arrays is None:
                return run_module(module, args, kwargs)
            with forward.entry.within(forward.paths.get(id(module)), module):
                return run_module(module, args, kwargs)
        except Exception as error:
            raise_explained(_refused(forward, error), self.path, type(module).__name__)

    def _outermost(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[Any]
    ) -> Any:
        ids = tensors[0]._info.meta._ids
        if self.backend in BACKENDS and (evaluated := self._evaluated(module, args, kwargs, ids)):
            return evaluated[0]
        session: Any = self.session
        with session.hold(ids):
            given: Any = ()
            alone = tensors is args and not session.given  # one stream is all that the forward gets
            if not alone:
                args, kwargs, given = session.take_given(module, args, kwargs, TorchGiven)
            names = self._tensor_names(module, session)  # which looks at the types in every call
            recorded = torch.is_grad_enabled()
            taped, detach = module.training and recorded, self.train_variant == VARIANTS[0]
            mode = taped, detach, not (recorded or private.is_watched()), self._is_single
            arrival, arrivals, values = arrived(None if given else session.arrivals, tensors, mode)
            if self._named and self._named[0].device != arrival.device:
                raise self._elsewhere(module, tensors)
            if arrivals.last is not None:
                call = arrival.next(arrivals)
            else:
                inputs = partial(input_names, module, args, kwargs, tensors)
                call = arrival.first(session, values, names, given, inputs)
            outputs = TorchOutputs(call, self.options.train_variant, module.training, taped)
            if taped:
                self._versions = self._versions.of_now(not detach)
                outputs.versions = call.on_tape(self._versions)
            forward = outputs.forward = Forward(call, call.device)
            held = forward.held = session.held = session.held or TorchHeld(module)
            held.noted = False
            inside_args, inside_kwargs = arrival.inside(call, values), kwargs
            shells = {} if alone else dict(zip(map(id, tensors), inside_args))
            for n, each in enumerate(given, len(tensors)):
                shells[id(each)] = StreamTensor.shell(call.give(n, each, call.device))
            try:
                held.note(first=call.fresh)
                if not alone:
                    inside_args, inside_kwargs = _entered(forward, shells, args, kwargs)
                watched = held.watched and forward.goes_on
                entered: Any = places_of_draws(forward) if watched else forward
                with entered as lines:
                    result = self._inside(module, inside_args, inside_kwargs)
                held.settle()
                if held.drew and watched and session.warned < 3:
                    session.warned += 1
                    warn_of_others(type(module).__name__, lines)
                if isinstance(result, StreamTensor):
                    (result,) = outputs.given((result,))
                elif _is_plain(result):
                    given_out = iter(outputs.given(leaves(result)))
                    result = map_leaves(result, lambda _: next(given_out))
                else:
                    found, structure = pytree.tree_flatten(result)
                    result = structure.unflatten(outputs.given_within(found))
                session.commit(call)
                arrivals.follow(call, arrival.meta)
            except BaseException as error:
                forward.leave()
                if not call.committed:
                    held.restore()
                if isinstance(error, DreamStreamError):
                    call.explain(error)
                if isinstance(error, (AttributeError, TypeError)) and (missing := forgotten(module, args, kwargs)):
                    raise missing from error
                raise
            return result

    # ---------------------------------------------------------------- on an engine
    def require_evaluation(self, modules: Sequence[Any], tensors: Sequence[Any]) -> None:
        super().require_evaluation(modules, tensors)
        hooked = next((m for m in modules if any(private.hooks_of(m))), None)
        elsewhere = next((t.device for t in tensors if not t.is_cpu), None)
        why = ""
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            why = "gradients are recorded, which an engine does not: call it within torch.no_grad()"
        elif hooked is not None:
            why = f"{type(hooked).__name__} has hooks, which an engine does not run: remove them"
        elif torch.is_autocast_enabled("cpu"):
            why = "autocast is on, and an engine computes in float32: leave it out"
        elif elsewhere is not None:
            why = f"a weight is on {elsewhere}, and an engine on the CPU: move it there"
        if why:
            raise ModeError(f'{why}, or use online(backend="auto")')

    def to_native(self, x: Any) -> Native | None:
        if not isinstance(x, StreamTensor) or x._info is None:
            return None
        info, value = x._info, unpad(x, x._info)
        if value.requires_grad and torch.is_grad_enabled():
            raise ModeError(
                'gradients of an input are recorded, which an engine has not: use online(backend="auto")', x.ids
            )
        value = value.detach()
        value = (value.float() if value.dtype in HALF else value).cpu().contiguous()
        out = Native._make(value.numpy(), info.dims, info.names, info.meta, info.starts, info.rate, None)
        out.restart = info.restart
        return out

    def from_native(self, x: Native) -> StreamTensor:
        return StreamTensor.from_frames(torch.from_numpy(x.value), x.dims, x.meta, x.starts, x._rate)

    def array_of(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return super().array_of(x)
        x = x.detach().cpu()
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy()  # of which NumPy has no type

    def stamps(self, tensors: Sequence[Any]) -> list[Any]:
        return [*map(torch.Tensor.data_ptr, tensors), *(0 if x.is_inference() else x._version for x in tensors)]

    def n_threads(self) -> int | None:
        return torch.get_num_threads()

    def _tensor_names(self, module: Any, session: Any) -> dict[int, str]:
        """Return the names of parameters and buffers by identity; they are read anew where no stream is live.

        ModeError is raised where element types have changed while streams are live.
        """
        if self._names is None or (session.arrivals is None and not session.is_live):
            named = [*module.named_parameters(), *module.named_buffers()]
            self._names = {id(t): n for n, t in named}
            self._named = [t for _, t in named]  # so that no other tensor takes their place in memory
            self._types = [t.dtype for t in self._named]
            learned = {n: t for n, t in named if t.requires_grad and not t.is_inference()}
            self._versions = Versions(list(learned), list(learned.values()))
            self._is_single = {d for d in self._types if d.is_floating_point} == {torch.float32}
            session.know(self._named)
        now = private.dtypes_of(self._named)
        if now != self._types:
            before, after = next((a, b) for a, b in zip(self._types, now) if a != b)
            raise ModeError(
                f"{type(module).__name__} was {before} and is {after}, but streams are live; end them or reset() "
                "first",
                session.live_ids,
            )
        return self._names

    def _elsewhere(self, module: Any, tensors: Sequence[Any]) -> StreamMismatchError:
        """Return the refusal of streams that are on another device than the module."""
        own, name = self._named[0].device, type(module).__name__
        x = next(x for x in tensors if x.device != own)
        why = f"{name} is on {own}, but a StreamTensor is on {x.device}; move one of them with .to()"
        return StreamMismatchError(why, x.ids)

    def __getstate__(self) -> dict[str, Any]:
        none = dict.fromkeys(("_names", "_versions", "compiled", "_layer"))
        return {**super().__getstate__(), "_named": [], "_types": [], **none}


def _refused(forward: Forward, error: Exception) -> Exception:
    """Return the refusal that an error of torch's or Python's is, or the error."""
    if isinstance(error, (RuntimeError, TypeError, AttributeError)) and not isinstance(error, DreamStreamError):
        refusal = forward.refusal(error)
        if refusal is not None:
            refusal.__cause__ = error
            return refusal
    return error


def _direct(module: Any) -> Any:
    """Return what a forward's copy calls in the place of a module, if its handle takes its calls."""
    state = module.__dict__
    own = state.get(_CALLED)
    if type(own) is TorchPatch and own.module is module and "_orig_mod" not in state["_modules"]:
        return own.direct
    return None


TRACER.direct[torch.nn.Module.__call__] = _direct


@passes_on
def run_module(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a module's call on streams inside a forward: its hooks, and what streams in its forward's place."""
    other = streaming_forward(module)
    if any(private.hooks_of(module)) or "forward" in module.__dict__:
        forward = type(module).forward
        if other is not None and TRACER.stands_for(forward) is None:
            TRACER.stand_in(forward, partial(_forward, forward))
        return TRACER.of(type(module)._call_impl)(module, *args, **kwargs)
    if other is None:
        return TRACER.of(type(module).forward)(module, *args, **kwargs)
    return current().watched(TRACER.of(other), module, *args, **kwargs)


def _forward(forward: Any, module: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run what streams in the place of the forward that a class has, or its copy."""
    other = streaming_forward(module) if _streams(args, kwargs) else None
    if other is None:
        return TRACER.copied(forward)(module, *args, **kwargs)
    return current().watched(TRACER.of(other), module, *args, **kwargs)


def _entered(
    forward: Forward, shells: dict[int, StreamTensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments as the forward gets them; `shells` are its streams by what was given."""
    if not kwargs and shells.keys() >= set(map(id, args)):
        return tuple(map(shells.__getitem__, map(id, args))), kwargs

    def enter(x: Any) -> Any:
        if isinstance(x, LengthsOf):
            return forward.loose(as_symbolic(x, {of: shell._inner for of, shell in shells.items()}))
        return shells[id(x)] if isinstance(x, (StreamTensor, Given)) else x

    if all(map(_is_plain, (*args, *kwargs.values()))):
        return map_leaves(args, enter), map_leaves(kwargs, enter)
    inside_args, inside_kwargs = pytree.tree_map(enter, (args, kwargs))
    return inside_args, inside_kwargs


def _within(*kinds: type) -> bool:
    return any(isinstance(m, kinds) for m in private.active_modes())


#: Arguments that hold no streams.
_ATOMS = frozenset((bool, float, int, str, type(None), Static, TorchGiven))


def _leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    """Return the tensors and other values among arguments."""
    given = (*args, *kwargs.values()) if kwargs else args
    return leaves(given) if all(map(_is_plain, given)) else pytree.tree_leaves((args, kwargs))


def _is_plain(x: Any) -> bool:
    """Whether nothing but tuples and lists holds others in a value.

    torch's functions for all else take long, and leave cycles to the collector.
    """
    kind = type(x)
    return all(map(_is_plain, x)) if kind in (tuple, list) else kind in _ATOMS or isinstance(x, torch.Tensor)


def _streams(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[StreamTensor]:
    """Return the streams among arguments: `args` itself where that is one, and nothing else is given."""
    if len(args) == 1 and not kwargs and isinstance(args[0], StreamTensor):
        return args
    return [x for x in _leaves(args, kwargs) if isinstance(x, StreamTensor)]


class _Front:
    """The torch front end."""

    base, patch = torch.nn.Module, TorchPatch

    def parts(self, module: Any) -> list[tuple[str, Any]]:
        """Return a module and all below it, but for what computes parametrized weights.

        TypeError is raised for a module that is scripted.
        """
        scripted = [p for p, m in module.named_modules() if isinstance(m, torch.jit.ScriptModule)]
        if scripted:
            raise TypeError(
                f"{scripted[0] or 'the model'} is scripted, and can't be looked into; take the module of which "
                "torch.jit.script or torch.jit.trace made it"
            )
        parametrizations = [m for m in module.modules() if isinstance(m, parametrize.ParametrizationList)]
        inner = {id(m) for each in parametrizations for m in each.modules()}
        return [(path, m) for path, m in module.named_modules() if id(m) not in inner]

    def unstreamable(self, module: Any) -> tuple[str, str] | None:
        return unstreamable(module)

    def keeping(self, model: Any) -> Any:
        return keeping(model)

    def zeros(self, model: Any, shape: Sequence[int], dtype: str) -> Any:
        return zeros(model, shape, dtype)

    def source(self, model: Any) -> Any:
        return TorchSource(model, self)


FRONT = _Front()


class StreamModule(PatchesItself, torch.nn.Module):
    """A torch module that patches itself; see `dreamstream.StreamModule`."""
