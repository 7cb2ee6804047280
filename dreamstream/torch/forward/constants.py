"""Plain torch tensors as the native front end sees them inside a forward: constants that keep their gradients."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ...array import METHODS, Tensor
from ...array.deferred import flat
from ...array.dimension_arguments import sizes_of
from ...array.dtypes import name_of, nominal
from ...array.elementwise import rows_at
from ...array.frame_numbers import number_in
from ...array.loop_frames import row_of
from ...operations import ARITHMETIC, RELATIONS
from ...stream.rules import Length, Rows, Token
from ..private import without_functions
from .held import memory_of
from .recordings import looked_at, noted
from .running import current

#: The types of integers and of floats that operators take for wider ones.
NARROW = frozenset((torch.int32, torch.int16, torch.int8, torch.uint8))
HALF = frozenset((torch.float16, torch.bfloat16))
_REAL = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}


def device_of(module: torch.nn.Module) -> torch.device | None:
    """Return where a module's values are; None where it has none."""
    for held in (module.parameters(), module.buffers()):
        for tensor in held:
            return tensor.device
    return None


def dtype_of(name: str) -> torch.dtype:
    """Return the torch type of an operator's element type."""
    return _REAL[name]


def as_array(tensor: torch.Tensor) -> Any:
    """Return a tensor's values on the host, under the element type that operators know."""
    return tensor.detach().to("cpu", dtype_of(nominal(tensor.dtype).name)).numpy()


def _satisfying(x: torch.Tensor, require: Callable[[Any], None]) -> torch.Tensor:
    """Return a vector with the numbers of another, which are looked at in every call."""
    _require(require, as_array(x.double()).tobytes())
    return x.view_as(x)


@lru_cache(maxsize=16)
def _require(require: Callable[[Any], None], numbers: bytes) -> None:
    require(np.frombuffer(numbers))


class Arrays:
    """Weights as arrays, each made once: what shares memory on the device shares it here."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[torch.Tensor, Any]] = {}
        self.written: set[int] = set()  # memory that the forward has written into, and that is put back after it

    def of(self, tensor: torch.Tensor) -> Any:
        """Return a tensor's values in C order."""
        if self.written and memory_of(tensor) in self.written:
            return np.array(as_array(tensor), order="C")
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in self._made or not tensor.numel():
            self._made[key] = (tensor, np.asarray(as_array(tensor), order="C"))
        return self._made[key][1]


class Constant(Tensor):
    """A native tensor whose values are a torch tensor's; its methods are torch's."""

    def __init__(self, tensor: torch.Tensor, arrays: Arrays | None = None) -> None:
        self.torch = tensor
        self._array: Any = tensor  # what the values are known by
        self.arrays = arrays  #: In a capture: what makes the arrays that operators take.
        self.grad = None
        self.grad_fn = None
        self.requires_grad = False

    @property
    def dtype(self) -> np.dtype[Any]:
        return nominal(self.torch.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.torch.shape)

    @property
    def _learned(self) -> bool:
        """Whether a gradient flows to it."""
        return self.torch.requires_grad

    def numpy(self) -> Any:
        """Return the values as an array on the host, for indices and the like: no gradient flows through it."""
        looked_at(self.torch)
        return as_array(self.torch)

    def item(self) -> Any:
        looked_at(self.torch)
        with without_functions():
            return self.torch.item() if self.torch.numel() == 1 else super().item()

    def _satisfying(self, require: Callable[[Any], None]) -> Constant:
        return self._like(noted(_satisfying, self.torch, require))

    def constant(self) -> Any:
        return noted(torch.Tensor.contiguous, self.torch) if self.arrays is None else self.arrays.of(self.torch)

    def _first_weight(self, axis: int) -> tuple[Any, str, tuple[int, ...]]:
        if self.arrays is not None or current().drawn is not None:
            return super()._first_weight(axis)
        with without_functions():
            own = self.torch.select(axis, 0).contiguous()
            return own, name_of(self.dtype), tuple(own.shape)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        dtype, _ = self._to_arguments(args, kwargs)
        return (
            self
            if dtype is None or dtype == self.dtype
            else self._like(noted(torch.Tensor.to, self.torch, dtype_of(dtype.name)))
        )

    def _like(self, tensor: torch.Tensor) -> Constant:
        return Constant(tensor, self.arrays)

    def expand(self, *given: Any, size: Any = ()) -> Any:
        sizes = sizes_of(given, size)
        if any(isinstance(s, (Length, Rows)) for s in sizes):
            return super().expand(*sizes)
        return self._like(noted(torch.Tensor.expand, self.torch, *sizes))

    def repeat(self, *given: Any, repeats: Any = ()) -> Any:
        times = sizes_of(given, repeats)
        if any(isinstance(n, (Length, Rows)) for n in times):
            return super().repeat(*times)
        return self._like(noted(torch.Tensor.repeat, self.torch, *times))

    def detach(self) -> Any:
        return self._like(noted(torch.Tensor.detach, self.torch))

    def _cat(self, tensors: Sequence[Any], dim: int) -> Any:
        return self._like(noted(torch.cat, [t.torch for t in tensors], dim))

    def __getitem__(self, index: Any) -> Any:
        if number_in(index):
            return row_of(self, index)
        parts = index if isinstance(index, tuple) else (index,)
        ends = list(flat(parts))
        for end in ends:
            if isinstance(end, Rows):
                end._misuse("an index of a constant, whose rows would be those of other streams in every call")
        cuts = sum(isinstance(p, slice) and isinstance(p.stop, Length) for p in parts)
        moves = any(isinstance(p, slice) and isinstance(p.start, Length) for p in parts)
        if cuts > 1 or moves or (cuts and self.torch.is_complex()):
            return next(e for e in ends if isinstance(e, Length)).edge.entry.library.cut(self.torch, index)
        if cuts:
            return super().__getitem__(index)  # a table
        rows = rows_at(self, parts)
        return self._like(noted(torch.Tensor.__getitem__, self.torch, index)) if rows is None else rows


class ComplexConstant(Constant):
    """One of complex numbers, which streams meet by its parts."""


def constant_of(x: torch.Tensor, arrays: Arrays | None = None) -> Constant:
    """Return a plain tensor as the native front end sees it."""
    return (ComplexConstant if x.is_complex() else Constant)(x, arrays)


#: Arithmetic of a number that stands in a tensor with a length.
_ON_SIZES: dict[str, Callable[[Any, Any], Any]] = {
    **{n: getattr(operator, n) for n in ("add", "sub", "mul", *RELATIONS)},
    "rsub": lambda a, b: b - a,
}
_ON_SIZES |= {f"__{name}__": function for name, function in _ON_SIZES.items()}
_ON_SIZES |= {"__radd__": operator.add, "__rmul__": operator.mul}


def _forward(name: str) -> Callable[..., Any]:
    native = getattr(Tensor, name)
    theirs = getattr(torch.Tensor, name, None)

    def method(self: Constant, *args: Any, **kwargs: Any) -> Any:
        if theirs is None or any(getattr(a, "is_stream", False) for a in (*args, *kwargs.values())):
            return native(self, *args, **kwargs)
        sizes = [a for a in args if isinstance(a, Token)]
        if sizes and name == "narrow":
            return native(self, *args, **kwargs)
        if sizes:
            return (
                _ON_SIZES[name](operator.index(self.torch), *args)
                if name in _ON_SIZES
                else sizes[0]._misuse(f"given to {name} of a tensor")
            )
        given = [a.torch if isinstance(a, Constant) else a for a in args]
        out = noted(theirs, self.torch, *given, **kwargs)
        return self._like(out) if isinstance(out, torch.Tensor) else out

    method.__name__ = name
    return method


_OWN = frozenset((
    "to", "numpy", "size", "dim", "detach", "expand", "repeat", "cpu", "T", "mT", "item", "tolist", "bool",
    "float", "double", "long", "requires_grad_",
))  # fmt: skip
_DUNDERS = ("neg", "abs", "matmul", *RELATIONS, *ARITHMETIC, *(f"r{n}" for n in ARITHMETIC))
for _name in (*METHODS, *(f"__{n}__" for n in _DUNDERS)):
    if _name not in _OWN and callable(getattr(Tensor, _name, None)):
        setattr(Constant, _name, _forward(_name))
Constant.__hash__ = Tensor.__hash__  # type: ignore[method-assign]
