"""Patching: what turns a module into one that streams.

`patch_module` gives every module below its own handle (`Patch`), which stands between the call and the
forward. The outermost online module that is called owns the session.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from ..array.counted import noted
from ..array.dtypes import name_of
from ..array.lengths import LengthsOf
from ..array.scores import Scores
from ..array.stream_tensor import StreamTensor
from ..array.symbolic import as_symbolic, measured
from ..errors import ModeError, NotStreamableError, StreamIdError, StreamMismatchError, no_tape
from ..file_kinds import instead_of_module
from ..nn.module import Module
from ..operations.refusals import BACKWARDS
from ..stream.context import Context, contexts_of, declared
from ..stream.rules import require_same_streams
from ..stream.tree import leaves, map_leaves
from ..stream.where import passes_on, raise_explained
from . import states
from .eager import EagerCall
from .front import Front, foreign_front
from .given import forgotten, input_names
from .held import Held
from .joining import may_join
from .mask_functions import bring, note_failed
from .register import forward_of, registered_for
from .session import Session

M = TypeVar("M")

_MAKING = threading.Lock()

VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
POLICIES = ("raise", "buffer")


class Options(NamedTuple):
    """What a module is patched with; see `patch_module`."""

    train_variant: str = VARIANTS[0]
    unstreamable: str = POLICIES[0]
    buffer_limit: int | None = None
    skew: int = 0
    context_limit: int | None = None


class Patch:
    """The handle of one patched module: its mode, its options and, where it is outermost, its session."""

    #: What a patched module offers besides its own methods.
    METHODS = ("online", "offline", "reset", "get_state", "set_state")
    PROPERTIES = ("is_online", "live_ids")

    _kind: type[Session] = Session

    def __init__(
        self, options: Options, path: str = "", context: Context | None = None, around: bool = False
    ) -> None:
        self.options, self.path, self.context = options, path, context
        self.around = around  # whether it, or a module below, has a context
        self.online_mode = False
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

    # ---------------------------------------------------------------- what a patched module offers
    def online(self, module: M, mode: bool = True) -> M:
        """Stream from now on (or, with False, be the untouched model), here and below."""
        if not isinstance(mode, bool):
            raise ValueError(f"online: mode must be a bool, got {mode!r}")
        for part in cast(Any, module).modules():
            patch = part.__dict__.get("_patch")
            if patch is not None:
                patch.online_mode = mode
        return module

    def offline(self, module: M) -> M:
        """Be the untouched model; live streams stay as they are."""
        return self.online(module, False)

    def is_online(self, module: Any) -> bool:
        """Whether the module streams."""
        return self.online_mode

    def live_ids(self, module: Any) -> list[str]:
        """Streams that have started and not ended."""
        return [] if self._session is None else self._session.live_ids

    def known_ids(self) -> list[str]:
        """Streams that would be lost with the session."""
        return [] if self._session is None else self._session.known_ids

    def reset(self, module: Any, ids: Iterable[str] | None = None) -> None:
        """Forget streams, or all."""
        if self._session is not None:
            self._session.reset(ids)
        elif ids is not None:
            raise StreamIdError("no such streams are live", [ids] if isinstance(ids, str) else list(ids))

    def get_state(self, module: Any, ids: Sequence[str] | str | None = None) -> dict[str, bytes]:
        """Return what streams remember, as bytes per id."""
        return states.dump(self.session, ids)

    def set_state(self, module: Any, given: Mapping[str, bytes]) -> None:
        """Add streams with the states that `get_state` gave, here or in another process."""
        states.load(self.session, given)

    # ---------------------------------------------------------------- calls
    @passes_on
    def call(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the module's forward as its mode says, in its context."""
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
        try:
            return self._outermost(module, args, kwargs, tensors)
        except NotStreamableError as error:
            if not note_failed(error):
                raise
        return self._call(module, args, kwargs)

    @passes_on
    def _outermost(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Sequence[StreamTensor]
    ) -> Any:
        if module.told_to_train:
            raise no_tape(f"{type(module).__name__} is in train() and online; call .eval() to stream")
        meta = tensors[0].meta
        if len(tensors) > 1:
            require_same_streams([x.meta for x in tensors])
        session = self.session
        with session.hold(meta.ids):
            args, kwargs, given = session.take_given(module, args, kwargs)
            rates, lengths, restarts = zip(*[(x._rate, x.lengths, x.restart) for x in tensors])
            names = partial(_names_of, module)
            call = session.admit(meta, rates, lengths, True in restarts, names, EagerCall, given)
            call.kinds = [(name_of(x.value.dtype), x.value.shape[1:]) for x in tensors]
            if call.kinds != session.kinds:
                call.require_kinds(input_names(module, args, kwargs, tensors))
            index = iter(range(len(call.rates)))
            entered = {}
            for x in tensors:
                edge = call.input_edge(next(index), name_of(x.value.dtype), x.value.shape[1:])
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
                    result = forward_of(module)(*inside_args, **inside_kwargs)
                except Exception as error:
                    call.explain(error)
                    wrong = isinstance(error, (AttributeError, TypeError))
                    told = forgotten(module, args, kwargs) if wrong else None
                    if told is not None:
                        raise told from None
                    raise_explained(error, self.path, type(module).__name__)
                result = map_leaves(result, lambda x: _leave(measured(x), call))
                held.settle()
                session.commit(call)
                held.rest()
            except BaseException:
                if not call.committed:
                    held.restore()
                raise
            return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Patch:
        out = type(self)(self.options, self.path, self.context, self.around)
        out.online_mode = self.online_mode
        if self._session is not None:
            out._session = self._session.__deepcopy__(memo)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}  # live streams travel by get_state


class _Native:
    """The native front end."""

    patch = Patch

    def parts(self, module: Any) -> list[tuple[str, Any]]:
        return list(module.named_modules())

    def attach(self, module: Any, patch: Patch) -> None:
        module.__dict__["_patch"] = patch

    def detach(self, module: Any) -> None:
        module.__dict__.pop("_patch", None)

    def unstreamable(self, module: Any) -> tuple[str, str] | None:
        kind: Any = type(module)
        return module.unstreamable() if registered_for(kind) is None else None


_NATIVE = _Native()


def front_of(module: Any, what: str) -> Front:
    """Return the front end that a module belongs to.

    Raises
    ------
    TypeError
        Where it is of none.
    """
    front: Front | None = _NATIVE if isinstance(module, Module) else foreign_front(type(module))
    if front is None:
        raise TypeError(f"{what} takes a module of dreamstream.nn or torch.nn, got {instead_of_module(module)}")
    return front


def _names_of(module: Module) -> dict[int, str]:
    """Return the names of parameters and buffers by the identity of what holds their values."""
    return {id(p.numpy()): n for n, p in [*module.named_parameters(), *module.named_buffers()]}


def _leave(x: Any, call: EagerCall) -> Any:
    """Return an output as the caller sees it: this call's frames."""
    if not isinstance(x, StreamTensor):
        return x
    if x.edge is None or x.edge.entry is not call:
        raise StreamMismatchError("the forward returned a tensor of another call")
    return StreamTensor._make(x.value, x.dims, x._names, x.meta, x.starts, x._rate, None)


# ---------------------------------------------------------------------- patching
def check_policy(unstreamable: str, buffer_limit: int | None, skew: int, context_limit: int | None = None) -> None:
    """Raise ValueError for options that are none."""
    if unstreamable not in POLICIES:
        raise ValueError(f"unstreamable is one of {', '.join(POLICIES)}, got {unstreamable!r}")
    for name, limit in (("buffer_limit", buffer_limit), ("context_limit", context_limit)):
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise ValueError(f"{name} is a number of frames, got {limit!r}")
    if not isinstance(skew, int) or skew < 0:
        raise ValueError(f"skew is a number of frames, got {skew!r}")


def refuse_unstreamable(module: Any) -> None:
    """Raise NotStreamableError for the first layer that needs the future without bound.

    Where a forward has several inputs, one may be given once, whole: layers then say it where they run.
    """
    front = front_of(module, "streaming")
    parts = dict(front.parts(module))
    if _takes_several(module):
        return
    registered: list[str] = []  # what stands below them says itself, where it is called, that it doesn't stream
    for path, part in parts.items():
        kind: Any = type(part)
        if registered_for(kind) is not None:
            registered.append(path)
        elif any(not above or path.startswith(f"{above}.") for above in registered):
            continue
        found = front.unstreamable(part)
        if found is not None and not (found == BACKWARDS.words and may_join(parts.values())):
            reason, remedy = found
            raise NotStreamableError(
                f"{path or 'the model'} ({type(part).__name__}) can't stream: {reason}; {remedy}, or "
                'unstreamable="buffer" to wait for the end of each stream'
            )


def _takes_several(module: Any) -> bool:
    """Whether a forward can't be called with one argument."""
    parameters = inspect.signature(type(module).forward).parameters.values()
    return (
        sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        > 2
    )


def patch_module(
    module: M,
    train_variant: str = "chunk-wise-aligned",
    unstreamable: str = "raise",
    buffer_limit: int | None = None,
    skew: int = 0,
    context: Mapping[str, Context] | Context | None = None,
    context_limit: int | None = None,
) -> M:
    """Make a module and all below it able to stream, in place; twice is a no-op.

    Parameters
    ----------
    module : dreamstream.nn.Module or torch.nn.Module
        Any model of such layers.
    train_variant : {"chunk-wise-aligned", "full-file-aligned", "full-file-unaligned"}
        In training: gradients of each chunk by itself; of whole streams, outputs call by call; of whole streams,
        outputs at their end. Modules of dreamstream.nn take the first alone.
    unstreamable : {"raise", "buffer"}
        What to do with layers that need the whole stream: refuse them, or let them wait for its end.
    buffer_limit : int, optional
        The most frames that such a layer may wait for.
    skew : int
        Frames of the slowest input by which the inputs of one stream may be apart.
    context : Context or dict of str to Context, optional
        By the paths of modules, in which ``*`` stands for any name between dots: what attention inside them sees
        of a stream, from now on, offline too; one alone is for all attention. Paths that are not there keep what
        they have.
    context_limit : int, optional
        The most frames of a stream, at its rate, for attention that keeps all that came before.

    Returns
    -------
    Module
        The module itself; ``.online()`` starts streaming.

    Raises
    ------
    NotStreamableError
        For a layer that can't stream: its path, the reason and what would work.
    ModeError
        Where streams are live and the options differ from those of the earlier patch. For another `train_variant`
        of a module of dreamstream.nn: gradients are torch's.
    """
    front = front_of(module, "patch_module")
    if train_variant not in VARIANTS:
        raise ValueError(f"train_variant is one of {', '.join(VARIANTS)}, got {train_variant!r}")
    if front is _NATIVE and train_variant != VARIANTS[0]:
        raise no_tape(f"train_variant={train_variant!r} of a module of dreamstream.nn")
    bring(module)
    check_policy(unstreamable, buffer_limit, skew, context_limit)
    if unstreamable == "raise":
        refuse_unstreamable(module)
    options = Options(train_variant, unstreamable, buffer_limit, skew, context_limit)
    parts = front.parts(module)
    contexts = contexts_of(context, [path for path, _ in parts])
    for _, part in parts:
        patch = part.__dict__.get("_patch")
        if patch is None:
            continue
        if patch.known_ids() and (contexts or patch.options != options):
            raise ModeError("streams are live; reset() before patching with other options", patch.known_ids())
    before = {path: part.__dict__["_patch"] for path, part in parts if "_patch" in part.__dict__}
    contexts = {path: patch.context for path, patch in before.items() if patch.context is not None} | contexts
    for path, part in parts:
        patch, own = before.get(path), contexts.get(path)
        around = any(not path or f"{inner}.".startswith(f"{path}.") for inner in contexts)
        if patch is None or (patch.options, patch.context, patch.around) != (options, own, around):
            made = front.patch(options, path, own, around)
            made.online_mode = patch is not None and patch.online_mode
            front.attach(part, made)
    return module


@contextmanager
def as_it_was(module: Any) -> Iterator[None]:
    """Undo what is patched meanwhile where something fails."""
    front = front_of(module, "compile")
    before = [(part, part.__dict__.get("_patch")) for _, part in front.parts(module)]
    try:
        yield
    except BaseException:
        for part, patch in before:
            if patch is None:
                front.detach(part)
            else:
                front.attach(part, patch)
        raise


def unpatch_module(module: M) -> M:
    """Undo `patch_module`, here and below.

    Raises
    ------
    ModeError
        While streams are live.
    """
    front = front_of(module, "unpatch_module")
    parts = [m for _, m in front.parts(module)]
    live = [i for m in parts if "_patch" in m.__dict__ for i in m.__dict__["_patch"].known_ids()]
    if live:
        raise ModeError("streams are live; end them or reset() before unpatching", live)
    for part in parts:
        front.detach(part)
    return module


class PatchesItself:
    """What modules have that patch themselves, whichever front end they are of."""

    train_variant = "chunk-wise-aligned"
    unstreamable_policy = "raise"
    buffer_limit: int | None = None
    skew = 0

    def __getattr__(self, name: str) -> Any:
        if name in (*Patch.METHODS, *Patch.PROPERTIES) and "_patch" not in self.__dict__:
            self._patch_itself()
            return getattr(self, name)
        return super().__getattr__(name)  # type: ignore[misc]

    def _patch_itself(self) -> None:
        patch_module(self, self.train_variant, self.unstreamable_policy, self.buffer_limit, self.skew)

    def online(self: M, mode: bool = True) -> M:
        """Patch what is not patched yet, and stream from now on."""
        own: Any = self
        own._patch_itself()
        patched: M = own.__dict__["_patch"].online(self, mode)
        return patched

    def offline(self: M) -> M:
        """Be the untouched model; live streams stay as they are."""
        own: Any = self
        return own.online(False) if "_patch" in own.__dict__ else self


class StreamModule(PatchesItself, Module):
    """A module that patches itself: ``online()`` works right after it is made.

    Options of `patch_module` can be given as class attributes ``train_variant``,
    ``unstreamable_policy`` (there ``unstreamable``), ``buffer_limit`` and ``skew``.
    """
