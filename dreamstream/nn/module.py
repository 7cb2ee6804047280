"""The base of all layers and models: named parameters, buffers and children."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, NamedTuple, TypeVar

from ..array import Tensor, dtypes as element_types
from ..errors import DTypeError, FormatError, ModeError
from ..stream.where import passes_on, runs_forward
from .parameter import Parameter

__all__ = ["Module"]

Self = TypeVar("Self", bound="Module")

#: While a model is captured: what runs modules instead of their calls, and keeps track of their paths.
OBSERVER: ContextVar[Callable[..., Any] | None] = ContextVar("dreamstream_observer", default=None)
Flag = bool


class LoadResult(NamedTuple):
    """What `Module.load_state_dict` could not place; both empty when it is strict."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """Base class of layers and models.

    Assigning a `Parameter` or a `Module` to an attribute registers it under that name. A subclass
    calls ``super().__init__()`` first and defines ``forward``.

    Attributes
    ----------
    training : bool
        Whether the module is in training mode, as new ones are (`train`, `eval`). Layers that drop, or gather
        statistics, raise in it.

    Notes
    -----
    Source: torch.nn.Module, without hooks.

    Examples
    --------
    >>> class Twice(Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Twice()
    Twice()
    """

    #: What stands between the parentheses of the module's own line: attributes in braces, then those of which it
    #: is said what they usually are, and aren't.
    _shown: ClassVar[str] = ""
    _usual: ClassVar[dict[str, Any]] = {}

    training: Flag
    #: Whether `train` was called last; a new module is in training mode without anybody's wish.
    told_to_train: Flag = False
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]

    def __init__(self) -> None:
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _modules={}, _non_persistent_buffers_set=set()
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    @passes_on
    @runs_forward
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        observer = OBSERVER.get()
        if observer is not None:
            return observer(self, args, kwargs)
        patch = self.__dict__.get("_patch")
        if patch is None or not patch.takes_calls:
            return self.forward(*args, **kwargs)
        return patch.call(self, args, kwargs)

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why this layer can't stream and what would work, or None; layers override it."""
        return None

    # ------------------------------------------------------------------ attributes
    def __getattr__(self, name: str) -> Any:
        for kind in ("_parameters", "_buffers", "_modules"):
            held = self.__dict__.get(kind)
            if held is not None and name in held:
                return held[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.register_module(name, value)
        elif name in self.__dict__.get("_parameters", ()):
            if value is not None:
                raise DTypeError(
                    f"cannot assign {type(value).__name__} as the parameter {name!r}; wrap it: nn.Parameter(...)"
                )
            self._parameters[name] = None
        elif name in self.__dict__.get("_modules", ()):
            if value is not None:
                raise DTypeError(f"cannot assign {type(value).__name__} as the child module {name!r}")
            self._modules[name] = None
        elif name in self.__dict__.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise DTypeError(f"cannot assign {type(value).__name__} as the buffer {name!r}")
            self._buffers[name] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        for held in (self._parameters, self._buffers, self._modules):
            if name in held:
                del held[name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]
        return sorted({n for n in names if not n[:1].isdigit()})

    def _claim(self, kind: str, name: str) -> dict[str, Any]:
        """Return the dictionary for a new entry, the name removed from everywhere else."""
        if kind not in self.__dict__:
            raise AttributeError(f"call super().__init__() before assigning {name!r}")
        if not isinstance(name, str) or "." in name or name == "":
            raise KeyError(f"a name must be a non-empty string without dots, got {name!r}")
        for other in ("_parameters", "_buffers", "_modules"):
            if other != kind:
                self.__dict__[other].pop(name, None)
        self.__dict__.pop(name, None)
        return self.__dict__[kind]

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one (None)."""
        if param is not None and not isinstance(param, Parameter):
            raise DTypeError(f"the parameter {name!r} must be an nn.Parameter, not {type(param).__name__}")
        self._claim("_parameters", name)[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: Flag = True) -> None:
        """Add a tensor that is no parameter; it is in the state dict only if it is persistent."""
        if tensor is not None and not isinstance(tensor, Tensor):
            raise DTypeError(f"the buffer {name!r} must be a tensor, not {type(tensor).__name__}")
        self._claim("_buffers", name)[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child module, or a place for one (None)."""
        if module is not None and not isinstance(module, Module):
            raise DTypeError(f"the child {name!r} must be an nn.Module, not {type(module).__name__}")
        self._claim("_modules", name)[name] = module

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module, or a place for one (None)."""
        self.register_module(name, module)

    # ------------------------------------------------------------------ walking
    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield direct children with their names, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yield direct children, each once."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: Flag = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it with their paths, each once unless duplicates are wanted."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, _joined(prefix, name), remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def _named_members(
        self, kind: str, prefix: str, recurse: Flag, remove_duplicate: Flag
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        walk = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in walk:
            for name, member in module.__dict__[kind].items():
                if member is None or (remove_duplicate and id(member) in seen):
                    continue
                seen.add(id(member))
                yield _joined(path, name), member

    def named_parameters(
        self, prefix: str = "", recurse: Flag = True, remove_duplicate: Flag = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters with their paths, shared ones once."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: Flag = True) -> Iterator[Parameter]:
        """Yield parameters, shared ones once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: Flag = True, remove_duplicate: Flag = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield buffers with their paths."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: Flag = True) -> Iterator[Tensor]:
        """Yield buffers."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the module at a path such as ``"encoder.layers.0"``; itself for ``""``."""
        module: Any = self
        for name in target.split(".") if target else ():
            module = getattr(module, name, None)
            if not isinstance(module, Module):
                raise AttributeError(f"{type(self).__name__} has no module {target!r}")
        return module

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter at a path such as ``"encoder.weight"``."""
        return self._member("parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer at a path such as ``"norm.running_mean"``."""
        return self._member("buffer", target)

    def _member(self, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        member = getattr(self.get_submodule(path), f"_{kind}s").get(name)
        if member is None:
            raise AttributeError(f"{type(self).__name__} has no {kind} {target!r}")
        return member

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module, children first, and return the module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # ------------------------------------------------------------------ modes, types, gradients
    def train(self: Self, mode: Flag = True) -> Self:
        """Set training mode here and below, and return the module.

        What a patched module computes online is recorded for gradients then, as its `train_variant` says.
        """
        if not isinstance(mode, bool):
            raise ValueError(f"train: mode must be a bool, got {mode!r}")
        self.training = self.told_to_train = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode here and below, and return the module."""
        return self.train(False)

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Convert parameters and float buffers in place: ``to(dtype)``, ``to("cpu")``, ``to(tensor)``.

        Raises
        ------
        DTypeError
            For an element type other than float32 and float64.
        ModeError
            For a device that is not the CPU.
        """
        dtype, _ = Tensor._plain(0.0)._to_arguments(args, kwargs)
        if dtype is None:
            return self
        if not element_types.is_float(dtype):
            raise DTypeError(f"a module's parameters are float32 or float64, not {dtype}")
        for part in self.modules():
            patch = part.__dict__.get("_patch")
            if patch is not None and patch.live_ids:
                raise ModeError("streams are live; end them or reset() before .to(dtype)", list(patch.live_ids))
        for _, tensor in [*self.named_parameters(), *self.named_buffers()]:
            if element_types.is_float(tensor.dtype) and tensor.dtype != dtype:
                tensor._array = tensor.numpy().astype(dtype)
                tensor.grad = None if tensor.grad is None else tensor.grad.to(dtype)
        return self

    def float(self: Self) -> Self:
        """Convert parameters and float buffers to float32 in place."""
        return self.to(element_types.float32)

    def double(self: Self) -> Self:
        """Convert parameters and float buffers to float64 in place."""
        return self.to(element_types.float64)

    def half(self: Self) -> Self:
        """Raise DTypeError: half precision exists for the weights of a compiled engine only."""
        raise DTypeError('modules are float32 or float64; for smaller weights use ds.compile(..., weights="fp16")')

    def cpu(self: Self) -> Self:
        """Return the module: it is on the CPU."""
        return self

    def requires_grad_(self: Self, requires_grad: Flag = True) -> Self:
        """Mark the parameters that a trainer should change, or should not, and return the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: Flag = True) -> None:
        """Remove the parameters' gradients, or set them to zero."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else parameter.grad.new_zeros(parameter.shape)

    # ------------------------------------------------------------------ state dict
    def state_dict(self, *, prefix: str = "", keep_vars: Flag = False) -> dict[str, Tensor]:
        """Return parameters and persistent buffers by path, sharing memory.

        Parameters
        ----------
        prefix : str
            Put before every key.
        keep_vars : bool
            Whether to return the parameters themselves, not plain tensors.
        """
        return {key: tensor if keep_vars else tensor.detach() for key, tensor in self._state(prefix).items()}

    def _state(self, prefix: str = "") -> dict[str, Tensor]:
        """Return all entries of the state dict, shared ones under each of their names."""
        out: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            if parameter is not None:
                out[prefix + name] = parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                out[prefix + name] = buffer
        for name, module in self._modules.items():
            if module is not None:
                out.update(module._state(f"{prefix}{name}."))
        return out

    def load_state_dict(
        self, state_dict: Mapping[str, Any] | str | os.PathLike[str], strict: Flag = True
    ) -> LoadResult:
        """Copy values into parameters and persistent buffers; shared ones stay shared.

        Parameters
        ----------
        state_dict : dict of arrays or tensors, or path of a ``.safetensors`` file
            By path of parameter, as `state_dict` returns them; of any float type, converted. Weights
            that torch's weight_norm holds as norms and directions are folded. Layers may take other names
            too: an `LSTM` those of an `LSTMCell`.
        strict : bool
            Whether every key must be there, and no other.

        Returns
        -------
        LoadResult
            ``missing_keys`` and ``unexpected_keys``.

        Raises
        ------
        FormatError
            For missing or unexpected keys and shapes that differ, all in one message; nothing is
            changed. For a file that is no safetensors file, and for weights under spectral_norm.
        """
        from .state import load, read_safetensors

        if isinstance(state_dict, (str, os.PathLike)):
            state_dict = read_safetensors(state_dict)
        if not isinstance(state_dict, Mapping):
            found = type(state_dict).__name__
            raise FormatError(f"load_state_dict: expected a dict of tensors or the path of a file, got {found}")
        for path, module in self.named_modules(remove_duplicate=False):
            state_dict = module._by_own_names(state_dict, _joined(path, ""))
        return LoadResult(*load(type(self).__name__, self._state(), state_dict, strict))

    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Return a state dict in which other names that the module takes are its own; layers override it."""
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    # ------------------------------------------------------------------ text
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of the module's own line."""
        own = _Shown(self)
        parts = [f"{name}={own[name]}" for name, usual in self._usual.items() if own[name] != usual]
        return ", ".join(filter(None, (self._shown.format_map(own), *parts)))

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        below = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        if not below and len(own) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(own + below) + "\n)"


class _Shown(dict[str, Any]):
    """A module's attributes as texts show them: of biases, whether there are any."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def __missing__(self, name: str) -> Any:
        value = getattr(self.module, name)
        return value if name != "bias" or isinstance(value, bool) else value is not None


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
