"""Front ends other than the native one, whose modules can be patched too: loaded when one is handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ..nn.module import Module
from ..stream.foreign import bridge

#: What patched torch convolutions offer, made of their handles: `dreamstream.compat` fills it.
CONVOLUTIONS: dict[str, Callable[[Any], Any]] = {}

#: By name what evaluates patched modules in the place of their forwards, made of their handles: engine/patched.py.
BACKENDS: dict[str, Callable[[Any], Any]] = {}


class Front(Protocol):
    """What patching and capturing must know of a kind of modules."""

    #: The class of all its modules.
    base: Any
    #: Makes the handle of a module from it, the options of `patch_module` and its path.
    patch: Any

    def parts(self, module: Any) -> list[tuple[str, Any]]:
        """Return a module and those below it that stream, by path."""

    def unstreamable(self, module: Any) -> tuple[str, str] | None:
        """Return why a layer can't stream, and what would work; None if it can."""

    def keeping(self, model: Any) -> AbstractContextManager[Callable[[Sequence[Any]], int]]:
        """Give what says, within it, how many bytes the backward of outputs needs, beside weights and buffers."""

    def zeros(self, model: Any, shape: Sequence[int], dtype: str) -> Any:
        """Return frames of zeros as the model takes them."""


def foreign_front(cls: type) -> Any:
    """Return the front end of a class of modules that is not ours; None where it is of none."""
    if any(c.__name__ == "Module" and c.__module__.startswith("torch.nn.") for c in cls.__mro__):
        return bridge().FRONT
    return None


def is_module_class(cls: Any) -> bool:
    """Whether this is a class of modules, ours or another front end's."""
    return isinstance(cls, type) and (issubclass(cls, Module) or foreign_front(cls) is not None)
