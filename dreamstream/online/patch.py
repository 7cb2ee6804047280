"""Patching: what turns a module into one that streams.

`patch_module` gives every module below its own handle (`Patch`), which stands between the call and the
forward. The outermost online module that is called owns the session.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ..errors import ModeError, NotStreamableError, StreamWarning
from ..file_kinds import instead_of_module
from ..nn.module import Module
from ..operations.refusals import BACKWARDS
from ..stream.context import Context, contexts_of
from .front import Front, foreign_front
from .handle import OFFERED, POLICIES, VARIANTS, Options, Patch, forget_patch, patch_of
from .joining import may_join
from .kept import keeping
from .registered import registered_for

M = TypeVar("M")


class _Native:
    """The native front end."""

    base, patch = Module, Patch

    def parts(self, module: Any) -> list[tuple[str, Any]]:
        return list(module.named_modules())

    def unstreamable(self, module: Any) -> tuple[str, str] | None:
        kind: Any = type(module)
        return module.unstreamable() if registered_for(kind) is None else None

    def keeping(self, model: Any) -> Any:
        return keeping(model)

    def zeros(self, model: Any, shape: Sequence[int], dtype: str) -> Any:
        return np.zeros(shape, dtype)


_NATIVE = _Native()


def front_of(module: Any, what: str) -> Front:
    """Return the front end that a module belongs to, or raise TypeError."""
    front: Front | None = _NATIVE if isinstance(module, Module) else foreign_front(type(module))
    if front is None:
        raise TypeError(f"{what} takes a module of dreamstream.nn or torch.nn, got {instead_of_module(module)}")
    return front


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
        outputs at their end.
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
        Where streams are live and the options differ from those of the earlier patch.
    """
    front = front_of(module, "patch_module")
    if train_variant not in VARIANTS:
        raise ValueError(f"train_variant is one of {', '.join(VARIANTS)}, got {train_variant!r}")
    around = _has_own_call(module, front)
    kind: Any = type(module)
    if around and kind.forward is front.base.forward and "forward" not in module.__dict__:
        raise NotStreamableError(
            f"{kind.__name__} computes in a __call__ of its own and has no forward, in which an online call "
            "begins; patch a module that calls it, as nn.Sequential(model) does"
        )
    check_policy(unstreamable, buffer_limit, skew, context_limit)
    if unstreamable == "raise":
        refuse_unstreamable(module)
    options = Options(train_variant, unstreamable, buffer_limit, skew, context_limit)
    parts = front.parts(module)
    contexts = contexts_of(context, [path for path, _ in parts])
    before = {path: patch for path, part in parts if (patch := patch_of(part)) is not None}
    for patch in before.values():
        if patch.known_ids() and (contexts or patch.options != options):
            raise ModeError("streams are live; reset() before patching with other options", patch.known_ids())
    contexts = {path: patch.context for path, patch in before.items() if patch.context is not None} | contexts
    new: list[Patch] = []
    for path, part in parts:
        own, known = contexts.get(path), before.get(path)
        has_context = any(not path or f"{inner}.".startswith(f"{path}.") for inner in contexts)
        if known is None or (known.options, known.context, known.around) != (options, own, has_context):
            forget_patch(part)
            patch = front.patch(part, options, path, own, has_context)
            if known is not None:
                patch.online_mode, patch.backend = known.online_mode, known.backend
            patch.attach()
            new += [patch] * (known is None)
    _tell_of_names(new)
    if around and new and new[0].module is module:
        message = (
            f"patch_module: {kind.__name__} has a __call__ of its own: online, what that does around the forward "
            "sees the frames of each call by themselves; patched in nn.Sequential(model), it streams"
        )
        warnings.warn(message, StreamWarning, stacklevel=2)
    return module


@contextmanager
def as_it_was(module: Any) -> Iterator[None]:
    """Undo what is patched meanwhile where something fails."""
    front = front_of(module, "compile")
    before = [(part, patch_of(part)) for _, part in front.parts(module)]
    try:
        yield
    except BaseException:
        for part, patch in before:
            if patch_of(part) is not patch:
                forget_patch(part)
                if patch is not None:
                    patch.attach()
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
    patches = [patch for m in parts if (patch := patch_of(m)) is not None]
    live = [i for patch in patches for i in patch.known_ids()]
    if live:
        raise ModeError("streams are live; end them or reset() before unpatching", live)
    for patch in patches:
        patch.online_mode = False  # for somebody who has wrapped it
    for part in parts:
        forget_patch(part)
    return module


def _has_own_call(module: Any, front: Front) -> bool:
    """Whether a class writes its ``__call__`` itself."""
    home = next(cls for cls in type(module).__mro__ if "__call__" in vars(cls))
    return home is not front.base and home.__module__.partition(".")[0] != "torch"


def _tell_of_names(patches: Sequence[Patch]) -> None:
    """Warn of names that modules have themselves."""
    taken = {p: [n for n in OFFERED if n not in p.lent] for p in patches}
    clashes = [
        f"{p.path or 'the model'} ({type(p.module).__name__}): {', '.join(n)}" for p, n in taken.items() if n
    ]
    if clashes:
        more = f" and {len(clashes) - 3} more modules" if len(clashes) > 3 else ""
        message = (
            f"patch_module: attributes of a module's own stay what they are, in {'; '.join(clashes[:3])}{more}; "
            "use the functions of these names: ds.online(model), ds.reset(model, ids), ..."
        )
        warnings.warn(message, StreamWarning, stacklevel=3)


# ---------------------------------------------------------------------- what a patched module offers, as functions
def _handle(model: Any, what: str) -> Patch:
    found = patch_of(model)
    if found is None:
        front_of(model, what)
        raise ModeError(f"{what}: {type(model).__name__} is not patched; call ds.patch_module(model) first")
    return found


def online(model: M, mode: bool = True, backend: str | None = None) -> M:
    """Let a patched module stream from now on, and those below it; with False, let it be the untouched model.

    The same as ``model.online()``, which a model has where it has no such attribute of its own; so are the six
    functions that follow.

    Parameters
    ----------
    model : module
    mode : bool
    backend : {"auto", "engine"}, optional
        What computes calls in evaluation: the module's forward, or an engine that is compiled from the module at
        its first call, many times faster for short chunks. On an engine the forward isn't run, so that neither
        hooks nor what it does besides (prints, counters) happen; its graph is that of the first call, its weights
        are those of the moment at which streams start. By default what it was, at first "auto", the forward.

    Raises
    ------
    ModeError
        For another backend while streams are live. In calls, with "engine": where gradients are wanted, layers are
        in ``train()`` or have hooks, weights have changed while streams are live, or arguments are no streams.
    """
    return _handle(model, "online").online(mode, backend)


def offline(model: M) -> M:
    """Let a patched module be the untouched model; live streams stay as they are."""
    return _handle(model, "offline").offline()


def is_online(model: Any) -> bool:
    """Return whether a patched module streams."""
    return _handle(model, "is_online").online_mode


def live_ids(model: Any) -> list[str]:
    """Return the ids of streams that have started and not ended."""
    return list(_handle(model, "live_ids").live_ids)


def reset(model: Any, ids: Iterable[str] | None = None) -> None:
    """Forget streams of a patched module, or all."""
    _handle(model, "reset").reset(ids)


def get_state(model: Any, ids: Sequence[str] | str | None = None) -> dict[str, bytes]:
    """Return what streams of a patched module remember, as bytes per id."""
    return _handle(model, "get_state").get_state(ids)


def set_state(model: Any, given: Mapping[str, bytes]) -> None:
    """Add streams with the states that `get_state` gave, here or in another process."""
    _handle(model, "set_state").set_state(given)


class PatchesItself:
    """What modules have that patch themselves, whichever front end they are of."""

    train_variant = "chunk-wise-aligned"
    unstreamable_policy = "raise"
    buffer_limit: int | None = None
    skew = 0

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            if name not in OFFERED or "_patch" in self.__dict__:
                raise
        self._patch_itself()
        return getattr(self, name)

    def _patch_itself(self) -> None:
        patch_module(self, self.train_variant, self.unstreamable_policy, self.buffer_limit, self.skew)

    def online(self: M, mode: bool = True, backend: str | None = None) -> M:
        """Patch what is not patched yet, and stream from now on."""
        own: Any = self
        own._patch_itself()
        return online(self, mode, backend)

    def offline(self: M) -> M:
        """Be the untouched model; live streams stay as they are."""
        return self if patch_of(self) is None else offline(self)


class StreamModule(PatchesItself, Module):
    """A module that patches itself: ``online()`` works right after it is made.

    Options of `patch_module` can be given as class attributes ``train_variant``,
    ``unstreamable_policy`` (there ``unstreamable``), ``buffer_limit`` and ``skew``.
    """
