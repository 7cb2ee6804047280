"""torch's functions inside an online forward: each becomes the native front end's function of the same name.

A `Forward` is the mode that is active while a patched module runs. It sees every call of torch, so that plain
tensors that meet streams are seen too, and sizes that are tokens reach ``torch.zeros``. What a stream is there, a
`StreamTensor` with an inner native stream tensor, is unwrapped; plain tensors become constants that keep their
gradients. What the native front end does not know does not stream, and says so with the user's line.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ... import array as native_array
from ...array.batch_constants import is_constant, lifts, writes_into_all
from ...array.deferred import Deferred, are_positions, is_filled
from ...array.dtypes import nominal
from ...array.elementwise import stands_elsewhere
from ...array.filled import SharesMemory, to_a_copy
from ...array.first_frame import first_of
from ...array.lengths_as_numbers import settled
from ...array.loop_frames import place_of_number
from ...array.positions import ELEMENTWISE, PICKING
from ...array.scores import Scores
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...array.tensor import Tensor as NativeTensor
from ...array.writing import is_own_part, write
from ...errors import DreamStreamError, ModeError, NotStreamableError, StreamMismatchError
from ...nn import functional as native_functional
from ...source_line import user_line
from ...stream.context import declared_here
from ...stream.rules import Length, open_branch
from ...stream.tree import leaves
from ...stream.where import INSTEAD, WRITTEN, is_of_streams, passes_on, refused
from ..private import active_modes, enter_mode, leave_innermost_mode, mode_at, n_modes, set_gradients
from ..tensor.stream_tensor import SHELL, StreamTensor
from . import per_frame
from .arguments import (
    ATOMS,
    DEFERRED,
    among,
    apart,
    as_stream,
    bared,
    beside,
    by_place,
    concerned,
    extended,
    inner_of,
    is_foreign,
    is_stream,
    is_view,
    only_symbolic,
    takes_copy,
    unless_symbolic,
    with_numbers,
    written_apart,
)
from .complex_pair import Complex
from .constants import Arrays, Constant, constant_of
from .custom import Gradients, saving
from .drawn import MAKE_NUMBERS, Drawn, draws, only_computes
from .foreign_errors import refusal_of
from .held import TorchHeld
from .integers import typed
from .names import (
    AS_ANOTHER,
    ATTENTION,
    ATTRIBUTES,
    COMPLEX,
    HANDLERS,
    IGNORED,
    OF_LENGTHS,
    OF_MASKS,
    OWN,
    QUIET,
    SIZES,
    SPELLINGS,
    WRITERS,
    Meaning,
    meaning_of,
    writes,
)
from .places import Anew, recorded, repeated
from .recordings import handled, looked_at, noted, same
from .replay import COMPUTES, REPLAY, Repeats
from .running import RUNNING

#: Attributes that are views.
_VIEWS = ("T", "mT", "H", "mH", "real", "imag")
#: The kinds of torch's functions that Python can't replace.
_BUILTINS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType)


class Forward(Repeats, TorchFunctionMode):
    """The mode of one online forward.

    `entry` is the call or the capture, and `device` is where the module's values are. In a capture there are the
    `arrays` that weights become, and the modules' `paths` by identity.
    """

    held: TorchHeld | None = None
    gradients: Gradients | None
    drawn: Drawn | None
    watching: Callable[[], None] | None  # runs before what is done with streams
    _outer: Forward | None = None
    _beneath: NotStreamableError | None = None

    def __init__(
        self,
        entry: Any,
        device: torch.device,
        arrays: Arrays | None = None,
        paths: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__()
        self.entry, self.device = entry, device
        self.arrays, self.paths = arrays, paths or {}
        self.sums: dict[Any, Any] = {}  # of what great tensors hold
        self._parameters: dict[int, Constant] = getattr(entry, "parameters", {})
        self.gradients, self.drawn, self.watching = None, None, None
        self._session = getattr(entry, "session", None)
        self._has_loose: bool = getattr(self._session, "has_loose", False)
        self.depth = 0

    @passes_on
    def asked(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer what torch asks a mode, where nothing is done again: see `Repeats`."""
        kwargs, gradients = kwargs or {}, self.gradients
        if SHELL in types or concerned(args) or (kwargs and concerned(kwargs)):
            return self.call(func, args, kwargs)
        if gradients is None:
            return self._plainly(func, args, kwargs)
        if func is set_gradients:
            return gradients.set(func, *args, **kwargs)
        return self.watched(self._plainly, func, args, kwargs)

    def _plainly(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a torch function on plain tensors."""
        body = getattr(self.entry, "body", None)
        if body is not None and func.__name__ != "__get__":
            of = [id(x) for x in leaves(args) if id(x) in self._parameters]
            body.computed += [(func.__name__, of)] if of else []
        if self.drawn is None and "out" not in kwargs and only_computes(func):
            if func.__name__ in MAKE_NUMBERS:
                looked_at(*args[:1])
            elif type(func) in _BUILTINS:
                COMPUTES.add(func)
            return noted(func, *args, **kwargs)
        if self.held is not None and writes(func.__name__, kwargs):
            looked_at()  # a layer that writes is none that can be repeated
            found = self.held.writes((*args, *kwargs.values()))
            if found and self.gradients is not None and self.gradients.running is not None:
                self.gradients.running.writes = True
            if found and func is torch.nn.functional.normalize and self.goes_on:
                raise ModeError.here(
                    "spectral_norm",
                    " is in training: its weights change with every call, but these streams go on; call .eval() "
                    "on the layer",
                    ids=self.going_on,
                )
        if (draws(func) or self.drawn is not None) and self.goes_on:
            self.drawn = self.drawn or Drawn(self.device)
            return self.drawn.run(func, args, kwargs)
        return func(*args, **kwargs)

    def watched(self, run: Any, *args: Any, **kwargs: Any) -> Any:
        """Run something on streams; where gradients are recorded, those of the user's own Functions are theirs."""
        gradients = self.gradients
        if gradients is None or gradients.quiet:
            return run(*args, **kwargs)
        gradients.require_seen((args, kwargs))
        with saving():
            return run(*args, **kwargs)

    def __enter__(self) -> Forward:
        self._outer = RUNNING.get()
        RUNNING.set(self)
        self.gradients = Gradients(self.entry, self.device) if torch.is_grad_enabled() else None
        self.drawn = None
        enter_mode(self)
        self.depth = n_modes()
        return self

    def leave(self, *exception: Any) -> None:
        """Be active no more, however far a with statement that was interrupted had come."""
        if self.depth and n_modes() == self.depth and mode_at(self.depth - 1) is self:
            modes = [self]
        else:
            modes = active_modes()
        for _ in modes[modes.index(self) :] if self in modes else ():
            leave_innermost_mode()
        if RUNNING.get() is self:
            RUNNING.set(self._outer)

    __exit__ = leave

    @property
    def recorder(self) -> Any:
        """The entry whose functions are repeated: the body of a loop over frames, or else the call."""
        return getattr(self.entry, "body", None) or self.entry

    @property
    def going_on(self) -> list[str]:
        """The streams that have frames in other calls, too."""
        meta = self.entry.meta
        return [i for i, first, last in zip(meta.ids, meta.sos, meta.eos) if not (first and last)]

    @property
    def goes_on(self) -> bool:
        """Whether a stream has frames in other calls, too."""
        meta = getattr(self.entry, "meta", None)
        return meta is None or not meta.all_starting_and_ending

    @property
    def takes_constants(self) -> bool:
        """Whether patched modules that get plain tensors are layers of constants."""
        return self.gradients is None or not self.gradients.applies

    def refusal(self, error: Exception) -> NotStreamableError | None:
        """Return what an error means for streams if it comes from where ours are lost."""
        beneath, self._beneath = self._beneath, None
        return refusal_of(error, beneath, getattr(self.entry, "misused", None))

    # ---------------------------------------------------------------- one call
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a torch function on streams; whatever it fails with names the user's line."""
        if self.watching is not None:
            self.watching()
        try:
            gradients = self.gradients
            if gradients is None or gradients.quiet:
                out = REPLAY.call(self, func, args, kwargs)
                if out is not NotImplemented and type(out) is not Anew:
                    return out
                out = self._answer(func, args, kwargs)
            else:
                out = self.watched(self._answer, func, args, kwargs)
        except Exception as error:
            return self._failed(error, func, args, kwargs)
        if out is NotImplemented and not any(map(is_foreign, args)):
            raise NotStreamableError.here(
                f"{resolve_name(func) or func.__name__} on a stream inside a forward,",
                f": it does not stream with these operands; {INSTEAD}",
            )
        return out

    def replayed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], anew: Callable[[], Any]) -> Any:
        """Run a function of torch's, or a layer by its handle, without asking where it did the same before."""
        entry, gradients = self.recorder, self.gradients
        watched = n_modes() != self.depth or self.watching is not None  # another mode is asked first
        if watched or entry.places is None or not (gradients is None or gradients.quiet):
            return anew()
        done = entry.n_done
        try:
            out = REPLAY.call(self, func, args, kwargs)
        except Exception:  # it fails anew, where it is known what that means
            entry.n_done = done
            return anew()
        if type(out) is Anew:
            return anew()
        return recorded(self, func, args, kwargs, anew) if out is NotImplemented else out

    def _failed(self, error: Exception, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Raise what an error means for streams, or let an explanation go on without the operation."""
        if isinstance(error, DreamStreamError):
            error.at(user_line())
            if (explanation := getattr(self.entry, "explanation", None)) is None:
                raise error
            return explanation.instead(error, func, args, kwargs)
        if not is_of_streams(error):
            raise error
        raise refused(resolve_name(func) or func.__name__, user_line(), error) from error

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func.__name__
        if name == "__get__" and func.__self__.__name__ in _VIEWS:
            return repeated(self, func, args, kwargs, self._attribute, func, name, args)
        if name in ("__get__", "__set__"):
            return self._attribute(func, name, args)
        meaning = meaning_of(func)
        writes_into = meaning.in_place or kwargs.get("inplace") is True
        operands = (*args, *kwargs.values()) if name != "diff" else args
        if name == "__getitem__":
            if (own := _whose_frame(*args)) is not None:
                at = place_of_number(args[1])
                frame, rest = StreamTensor.shell(own[args[1][: at + 1]]), args[1][at + 1 :]
                return frame.__getitem__((*args[1][:at], *rest)) if rest else frame
            args = (args[0], with_numbers(self, args[1]))
        if name == "__setitem__":
            value = inner_of(args[2])
            if is_own_part(inner_of(args[0]), args[1], value):
                return None
            own = _whose_frame(*args[:2])
            if own is not None and type(value) is NativeStream and value.dtype == own.dtype:
                looked_at()
                own[args[1]] = value
                return None
        elif (first := first_of(operands, meaning.name in ("cat", "stack"))) is not None:
            return repeated(self, func, args, kwargs, first.apply_function, name, func, args, kwargs)
        if meaning.name in WRITERS or (writes_into and (meaning.shares or is_view(args))):
            if meaning.shares or self.entry.places is None or not takes_copy(name, args, kwargs):
                return self._anew(func, meaning, args, kwargs)
            looked_at()  # as below
            whole = repeated(self, (func, "apart"), args, kwargs, written_apart, self, func, meaning, args, kwargs)
            self._written(args[0], whole, name)
            return None if name == "__setitem__" else args[0]
        known_as = (func, "in place") if writes_into else func
        context, _ = declared_here()
        if context is not None and (meaning.name in ATTENTION or Scores in [type(inner_of(x)) for x in args]):
            known_as = (known_as, context)
        if writes_into:
            looked_at()  # a function around it can't be repeated, whose place has no writes
        run = beside if not kwargs and meaning.name.strip("_") in ELEMENTWISE else Forward._anew
        out = repeated(self, known_as, args, kwargs, run, self, func, meaning, args, kwargs)
        if writes_into and out is not args[0]:
            return self._written(args[0], out, name)
        return out

    def _anew(self, func: Any, meaning: Meaning, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Ask the native front end."""
        args, kwargs = settled(meaning.name, args, kwargs)
        if not (concerned(args) or concerned(kwargs)):  # by nothing but lengths that are numbers now
            return self._plainly(func, args, kwargs)
        if self._has_loose:
            if meaning.name == "cat" and (joined := extended(self, *args, **kwargs)) is not None:
                return joined
            target = args[0] if args else None
            own = inner_of(target) if meaning.name == "__setitem__" else None
            if is_filled(own) and own.begins(args[1], self.unwrap(args[2])):
                return None
            args, kwargs = self._bare(func, meaning, args, kwargs)
            if len(args) > 1 and is_constant(args[0]) and isinstance(args[1], Symbolic):
                args = (args[0].meeting(args[1]), *args[1:])
            if args and isinstance(args[0], Symbolic):
                if meaning.name in AS_ANOTHER:
                    return self._wrapped(getattr(args[0], meaning.name)(args[1]))
                if meaning.in_place:
                    made = self.entry.library.of_lengths(func, meaning.name, args, kwargs)
                    return self._written(target, made, func.__name__)
                if meaning.name in WRITERS and not args[0].is_filled:
                    return self._defer(func, meaning, target, args, kwargs)
        if (
            meaning.name not in ("arange", "linspace")
            and (not args or type(args[0]) is not SHELL)
            and only_symbolic((args, kwargs))
        ):
            return self._wrapped(self.entry.library.of_lengths(func, meaning.name, args, kwargs))
        return self._called(func, meaning, args, kwargs)

    def loose(self, x: Deferred) -> StreamTensor:
        """Return a tensor that is one value for all streams or frames as torch's functions take it."""
        self._has_loose = True
        if self._session is not None:
            self._session.has_loose = True
        return StreamTensor.shell(x)

    def _bare(self, func: Any, meaning: Meaning, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return arguments with values of all streams or frames themselves.

        What is written into becomes a stream before, as does what is taken apart: its parts may be written into.
        """
        own = getattr(args[0], "_inner", None) if args else None
        if isinstance(own, Symbolic):
            known = hasattr(type(own), meaning.name) or meaning.name in OF_MASKS
            writes_into = meaning.in_place or meaning.name in WRITERS
            if own.is_filled and (writes_into or not known) and meaning.name != "index_add":
                own.become(*args[1:2] if meaning.name == "masked_fill" else ())
        elif is_constant(own) and (meaning.in_place or meaning.name in WRITERS):
            given = [getattr(x, "_inner", None) for x in leaves((args[1:], kwargs))]
            frames = own.as_frames(given) if own.fresh else None
            if frames is not None:
                args[0]._inner = frames
            elif not func.__name__.startswith("__i"):  # else the name stands for the result
                raise writes_into_all(func.__name__)
        if meaning.name in ("cat", "stack") and any(is_stream(x) for x in args[0]):
            args = ([as_stream(x) for x in args[0]], *args[1:])
        return bared(args), bared(kwargs)

    def _called(self, func: Any, meaning: Meaning, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("out") is not None:
            raise NotStreamableError.here(f"{func.__name__}: out= of a stream inside a forward,", "")
        target = args[0] if args else kwargs.get("input")
        constant = isinstance(target, torch.Tensor) and not isinstance(target, StreamTensor)
        if constant and (meaning.in_place or meaning.name == "copy_") and func.__name__[:2] != "__":
            raise NotStreamableError.here(func.__name__, f" {WRITTEN}")
        if meaning.name in OF_LENGTHS:
            return self._wrapped(OF_LENGTHS[meaning.name](*args, **kwargs))
        listed = next((a for a in args[:2] if isinstance(a, (list, tuple))), ())
        shells: list[Any] = [x for x in (*listed, *args, *kwargs.values()) if type(x) is SHELL]
        picks = self._has_loose and meaning.name in PICKING and is_stream(target)
        picks = picks and any(map(are_positions, leaves((args, kwargs))))
        if picks or not DEFERRED.isdisjoint([type(x._inner) for x in shells]):
            return self._defer(func, meaning, target, args, kwargs)
        given = [a if type(a) in ATOMS else self.unwrap(a) for a in args]
        if len(args) > 1 and isinstance(args[1], Symbolic) and meaning.name in ("__getitem__", "__setitem__"):
            given[1] = args[1]
        if self._has_loose and meaning.name.strip("_") in ELEMENTWISE:
            others = [g for a, g in zip(args, given) if not isinstance(a, Symbolic)]
            away = [isinstance(a, Symbolic) and stands_elsewhere(a, others) for a in args]
            given = [a.as_stream() if at else g for a, g, at in zip(args, given, away)]
        named = {
            SPELLINGS.get(k, k): self.unwrap(v) for k, v in kwargs.items() if v is not None and k not in IGNORED
        }
        if named and SIZES.get(meaning.name) in named:
            given = [*(given or [named.pop("input")]), named.pop(SIZES[meaning.name])]
        known = meaning.native is not None and given and type(given[0]) is NativeStream and not among(given)
        is_known = known and torch.dtype not in map(type, (*given, *named.values()))
        native: Any = meaning.native if is_known else lambda *a, **k: self._run(func, meaning.name, *a, **k)
        result = typed(native, meaning.name, given, named)
        if result is NotImplemented and (number := next((x for x in given if isinstance(x, Length)), None)):
            number._misuse(f'an operand of {func.__name__} beside frames (unstreamable="buffer" waits for it)')
        if (meaning.in_place or kwargs.get("inplace") is True) and isinstance(target, StreamTensor):
            if meaning.shares and isinstance(result, (NativeStream, Complex)):  # as unsqueeze_ gives
                target._inner = result
                return target
            return self._written(target, result, func.__name__)
        return self._wrapped(result if meaning.shares else apart(result, (*given, *named.values()), meaning.new))

    def _defer(
        self, func: Any, meaning: Meaning, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a function on deferred values."""
        if kwargs and meaning.name != "where_function":
            args, kwargs = by_place(args, kwargs)
        given = tuple([unless_symbolic(self, x) for x in args])
        named = {k: unless_symbolic(self, v) for k, v in kwargs.items() if v is not None and k not in IGNORED}
        writes_into = meaning.in_place or meaning.name in WRITERS
        views = meaning.in_place and meaning.shares  # as unsqueeze_ does
        if writes_into:
            func = getattr(torch.Tensor, meaning.name) if views else to_a_copy(func)
        result = self.entry.library.take(func, meaning.name, given, named)
        if result is NotImplemented:
            given = tuple(map(self.unwrap, given))
            named = {SPELLINGS.get(k, k): self.unwrap(v) for k, v in named.items()}
            result = self._run(func, meaning.name, *given, **named)
        if isinstance(target, StreamTensor) and writes_into and result is not None:
            if not views:
                return self._written(target, result, func.__name__)
            target._inner = result
            return target
        return self._wrapped(result)

    def _run(self, func: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        if self._has_loose and lifts((args, kwargs)):
            if writes(func.__name__, kwargs):
                raise writes_into_all(func.__name__)
            return self.entry.library.defer(func, args, kwargs)
        complex_too = among((*args, *kwargs.values()))
        handler = (COMPLEX if complex_too else HANDLERS).get(name)
        if handler is not None:
            if not (complex_too or name in QUIET or name.endswith("dropout")):  # in evaluation that does nothing
                handled()
            return handler(*args, **kwargs)
        if complex_too:
            raise NotStreamableError.here(
                f"{resolve_name(func) or name} on a complex stream inside a forward,",
                ": it is not among the operations of complex streams; do it on their parts, torch.view_as_real(x)",
            )
        if "input" in kwargs and not args:
            args = (kwargs.pop("input"),)
        args = tuple(nominal(a) if isinstance(a, torch.dtype) else a for a in args)
        kwargs = {k: nominal(v) if isinstance(v, torch.dtype) else v for k, v in kwargs.items()}
        if name in OWN:
            return OWN[name](*args, **kwargs)
        head = args[0] if args else None
        if is_constant(head) and not name.startswith("__"):
            frames = head.as_frames([*args[1:], *kwargs.values()])
            args = args if frames is None else (frames, *args[1:])
        first = getattr(native_functional, name, None)
        of_functional = getattr(func, "__module__", None) == "torch.nn.functional"
        if first is not None and (of_functional or not hasattr(NativeTensor, name)):
            return first(*args, **kwargs)
        if hasattr(NativeTensor, name) and args:
            owner = args[0]
            if isinstance(owner, (int, float)):  # as in torch.sub(1, x)
                owner = Constant(torch.as_tensor(owner), self.arrays)
            return getattr(owner, name)(*args[1:], **kwargs)
        made = getattr(native_array, name, None)
        if made is not None:
            return made(*args, **kwargs)
        if (own := per_frame.run(name, args, kwargs)) is not None:
            return own
        raise NotStreamableError.here(
            f"{resolve_name(func) or name} on a stream inside a forward,",
            f": it is not among the operations that stream; {INSTEAD}",
        )

    def _attribute(self, func: Any, name: str, args: tuple[Any, ...]) -> Any:
        if (what := func.__self__.__name__) == "device" and name == "__get__":
            return self.device
        if name == "__set__":
            if what == "requires_grad":
                HANDLERS[what](self.unwrap(args[0]), *args[1:])
                return None
            raise NotStreamableError.here(f"{what} of a stream can't be set inside a forward")
        inner: Any = getattr(args[0], "_inner", None)
        if is_constant(inner) and what not in ATTRIBUTES:
            return self._wrapped(self.entry.library.defer(func, (inner,), {}))
        if isinstance(inner, Symbolic) and hasattr(type(inner), what):
            return self._wrapped(getattr(inner, what))
        inner = self.unwrap(args[0])
        if what == "grad_fn" and getattr(args[0], "_node", None) is not None:
            return args[0]._node
        own = type(inner) is Complex and hasattr(inner, what)
        handler = None if own else ATTRIBUTES.get(what)
        if handler is not None:
            return self._wrapped(handler(inner))
        if what.startswith("is_") or what in ("layout", "itemsize", "nbytes", "output_nr", "_version"):
            return getattr(torch.empty(0, device=self.device), what)
        if (found := getattr(inner, what, NotImplemented)) is not NotImplemented:
            return self._wrapped(found)
        raise NotStreamableError.here(f"{what} of a stream inside a forward")

    # ---------------------------------------------------------------- in and out
    def unwrap(self, x: Any) -> Any:
        """Return what the native front end computes with."""
        if isinstance(x, StreamTensor):
            return self._inner(x)
        if isinstance(x, torch.Tensor):
            return self._constant(x)
        if isinstance(x, Symbolic):
            constant: Any = x.value if not x.roles and isinstance(x.value, Length) else x.beside_frames()
            if getattr(constant, "is_stream", True):
                return constant
            return Constant(same(torch.from_numpy(constant.numpy()).to(self.device, x.dtype)), self.arrays)
        if isinstance(x, (list, tuple)):
            if ATOMS.issuperset(map(type, x)):
                return x
            return [self.unwrap(i) for i in x] if isinstance(x, list) else tuple(map(self.unwrap, x))
        return {k: self.unwrap(v) for k, v in x.items()} if isinstance(x, dict) else x

    def _constant(self, x: torch.Tensor) -> Constant:
        """Return a plain tensor as the native front end sees it, a parameter as the same each time."""
        if self.drawn is not None:
            self.drawn.require_none(x)
        found = self._parameters.get(id(x))
        return constant_of(x, self.arrays) if found is None else found

    def _inner(self, x: StreamTensor) -> Any:
        inner = x._inner
        if inner is None:
            raise StreamMismatchError.here("a StreamTensor from outside meets streams inside a forward")
        return inner

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, Constant):
            return result.torch
        if type(result) is SHELL:
            return result
        if isinstance(result, Symbolic) or is_constant(result):
            return self.loose(result)
        if isinstance(result, NativeTensor) and not result.is_stream:
            return torch.from_numpy(result.numpy())
        if getattr(result, "is_stream", False):
            return result if type(result) is SHELL else StreamTensor.shell(result)
        if isinstance(result, (list, tuple)) and not isinstance(result, torch.Size):
            items = [self._wrapped(r) for r in result]
            return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
        return map(self._wrapped, result) if isinstance(result, Iterator) else result

    def _written(self, target: Any, result: Any, name: str) -> Any:
        """Let a stream be the result of an operation in place."""
        if (branch := open_branch(self.entry)) is not None:
            raise branch.wrote(name)
        before = target._inner
        result = result._inner if isinstance(result, StreamTensor) else result
        if isinstance(before, NativeStream):
            write(before, result, name)
        elif isinstance(before, Complex) and isinstance(result, Complex):
            write(before.real, result.real, name)
            write(before.imag, result.imag, name)
        else:
            held = isinstance(before, SharesMemory) and not is_constant(before)
            target._inner = before.hold(result) if held else result
        return target


def _whose_frame(x: Any, index: Any) -> Any:
    """Return the stream of floats whose frame, ``x[:, t]`` or part of it, an index takes in a loop; else None."""
    own: Any = getattr(x, "_inner", None) if type(index) is tuple else None
    if type(own) is not NativeStream or place_of_number(index) < 0 or own._by_elements:
        return None
    return own if own.edge is not None and own.edge.line.dtype in ("float32", "float64") else None
