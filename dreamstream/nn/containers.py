"""Modules that hold modules or parameters. Source: torch.nn, the class of the same name.

None has a delay or state of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import DTypeError, StreamIndexError
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterList", "Sequential"]


class _Indexed(Module):
    """Children, or parameters, under the names "0", "1", …, or names of their own in order."""

    _kind = "modules"

    @property
    def _by_key(self) -> dict[str, Any]:
        return self.__dict__[f"_{self._kind}"]

    def _register(self, name: str, item: Any) -> None:
        self.register_module(name, item)

    def _key(self, index: Any) -> str:
        keys = list(self._by_key)
        i = operator.index(index)
        if not -len(keys) <= i < len(keys):
            raise StreamIndexError(f"index {i} is out of range for {len(keys)} {self._kind}")
        return keys[i]

    def _named_slice(self, index: slice) -> dict[str, Any]:
        return dict(list(self._by_key.items())[index])

    def _renumber(self, items: Iterable[Any]) -> None:
        kept = list(items)
        self._by_key.clear()
        for i, item in enumerate(kept):
            self._register(str(i), item)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(self._named_slice(index).values())  # type: ignore[call-arg]
        return self._by_key[self._key(index)]

    def __setitem__(self, index: int, item: Any) -> None:
        self._register(self._key(index), item)

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._named_slice(index)) if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            del self._by_key[key]
        if all(key.isdigit() for key in self._by_key):
            self._renumber(list(self))

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_key.values())

    def __contains__(self, item: object) -> bool:
        return any(item is each for each in self)

    def append(self, module: Any) -> Any:
        """Add an item at the end and return the container."""
        self._register(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add items at the end and return the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Any) -> Any:
        """Add an item before position `index` and return the container."""
        kept = list(self)
        kept.insert(index, module)
        self._renumber(kept)
        return self

    def pop(self, key: int | slice) -> Any:
        """Remove the item at a position and return it."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Indexed):
    """Modules that are called one after the other.

    Parameters
    ----------
    *args : Module
        In order; or one mapping from names to modules.

    Notes
    -----
    **Streaming.** Delays add up, each in the frames of its own input; state is that of the children.
    Source: torch.nn.Sequential.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], Mapping) else enumerate(args)
        for name, module in named:
            self.register_module(str(name), module)

    def __getitem__(self, index: Any) -> Any:
        return type(self)(self._named_slice(index)) if isinstance(index, slice) else super().__getitem__(index)

    def forward(self, input: Any) -> Any:
        """Return the output of the last module."""
        for module in self:
            input = module(input)
        return input


class ModuleList(_Indexed):
    """A list of modules.

    Parameters
    ----------
    modules : iterable of Module, optional
        The modules.

    Notes
    -----
    Source: torch.nn.ModuleList.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self


class ModuleDict(Module):
    """Modules by name.

    Parameters
    ----------
    modules : mapping or iterable of pairs, optional
        Names and modules.

    Notes
    -----
    Source: torch.nn.ModuleDict.
    """

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Any:
        """Return the names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Return names and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """Return the modules."""
        return self._modules.values()

    def pop(self, key: str) -> Any:
        """Remove a module and return it."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()

    def update(self, modules: Any) -> None:
        """Add modules from a mapping or pairs, in their order."""
        for key, module in modules.items() if hasattr(modules, "items") else modules:
            self.register_module(key, module)


class ParameterList(_Indexed):
    """A list of parameters.

    Parameters
    ----------
    values : iterable of Parameter or Tensor, optional
        Tensors become parameters.

    Notes
    -----
    Source: torch.nn.ParameterList, for parameters only.
    """

    _kind = "parameters"

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())

    def _register(self, name: str, item: Any) -> None:
        self.register_parameter(name, _parameter(item))

    def extra_repr(self) -> str:
        """Return one line per parameter."""
        return "\n".join(
            f"({key}): Parameter containing: [{p.dtype} of size {'x'.join(map(str, p.shape))}]"
            for key, p in self._parameters.items()
            if p is not None
        )


def _parameter(value: Any) -> Parameter:
    if isinstance(value, Parameter):
        return value
    if hasattr(value, "__array__"):
        return Parameter(value)
    raise DTypeError(f"expected a parameter or tensor, got {type(value).__name__}")
