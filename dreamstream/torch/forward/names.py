"""What torch's functions are called in the native front end, and what stands in for those that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.tensor import Tensor as NativeTensor
from ...nn import functional as native_functional
from ...operations import OPERATIONS, ours

Handler = Callable[..., Any]

#: What gives a tensor as another one is.
AS_ANOTHER = ("type_as", "expand_as", "view_as", "reshape_as")
#: What masks are made with, of tensors of ones.
OF_MASKS = ("cumsum", "tril", "triu", "masked_fill", "where_function", "__get__")
#: Arguments that change nothing about a stream inside a forward.
IGNORED = ("inplace", "out", "memory_format", "layout", "pin_memory", "sparse_grad")

HANDLERS: dict[str, Handler] = {}
#: What an attribute of a stream is.
ATTRIBUTES: dict[str, Handler] = {}
#: What takes streams and lengths as the forward has them.
OF_LENGTHS: dict[str, Handler] = {}
#: What is torch's own in a call, and made of several operators in a capture.
OWN: dict[str, Handler] = {}
#: What runs where a complex stream is among the arguments.
COMPLEX: dict[str, Handler] = {}


def enter(table: dict[str, Handler], rows: Mapping[str, Handler]) -> None:
    """Enter what runs torch's functions, by their names with spaces in between, in one of the tables."""
    table.update({name: fn for names, fn in rows.items() for name in names.split()})


def function(names: str, of: dict[str, Handler] = HANDLERS) -> Callable[[Handler], Handler]:
    """Enter what runs functions and methods of these names, with their arguments, unwrapped; see `enter`."""

    def keep(fn: Handler) -> Handler:
        enter(of, {names: fn})
        return fn

    return keep


#: torch's other words for arguments.
SPELLINGS = {
    "axis": "dim", "keepdims": "keepdim", "split_size_or_sections": "split_size", "split_sizes": "split_size",
    "axis0": "dim0", "axis1": "dim1", "batch1": "mat1", "batch2": "mat2",
}  # fmt: skip


def spelled(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names that native functions have for them."""
    return {SPELLINGS.get(k, k): v for k, v in kwargs.items()}


#: What a function's sizes are called, which the native one takes one by one.
SIZES = {
    "reshape": "shape", "permute": "dims", "repeat": "repeats", "tile": "dims", "view": "size", "expand": "size",
}  # fmt: skip

#: Functions that are attention themselves.
ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")
#: Handlers that do no more than give something.
QUIET = frozenset((
    "to", "type", "type_as", "float", "double", "arange", "ones", "zeros", "full", "eye", "linspace", "real",
    "conj", "conj_physical", "resolve_conj", "resolve_neg", "view_as_complex", "complex", "is_complex",
    "is_floating_point", "new_zeros", "new_ones", "new_full", "new_empty", "empty",
))  # fmt: skip

#: What writes by itself in the native front end.
WRITERS = ("copy_", "fill_", "zero_", "__setitem__")


class Meaning(NamedTuple):
    """What a function of torch is to streams."""

    name: str  #: That of the native front end's function or method.
    #: What runs on streams; None where arguments other than the first have a say.
    native: Callable[..., Any] | None
    #: Whether it gives what is to be written into its first argument, and whether its result shares that one's
    #: memory, or is it.
    in_place: bool
    shares: bool
    new: bool  #: Whether its result shares no argument's memory.


@lru_cache(maxsize=4096)
def meaning_of(func: Any) -> Meaning:
    """Find a function of torch among the native ones."""
    called = {"__idiv__": "__itruediv__"}.get(func.__name__, func.__name__)
    # bernoulli_ takes another argument than bernoulli
    twin = called.endswith("_") and not called.endswith("__") and called != "bernoulli_"
    name = called[:-1] if twin else called
    if called.startswith("__i") and called.endswith("__") and hasattr(NativeTensor, f"__{called[3:]}"):
        name = f"__{called[3:]}"
    in_place = name != called and writes(called, {})
    name = "where_function" if func is torch.where else ours(name)
    native = None
    if called in WRITERS[:3]:
        return Meaning(called, getattr(NativeStream, called), False, True, False)
    if name not in HANDLERS:
        native = getattr(NativeStream, name, None)
        function = getattr(native_functional, name, None)
        if function is not None and (native is None or getattr(func, "__module__", None) == "torch.nn.functional"):
            native = function
        native = OWN.get(name, native)
    row = OPERATIONS.get(name)
    shares = row is not None and row.shares
    return Meaning(name, native, in_place, shares, not (native is None or shares or writes(called, {})))


def writes(name: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function of torch writes into its arguments."""
    if name.startswith("__"):
        return name in ("__setitem__", "__set__") or (name[:3] == "__i" and name not in _READING)
    return (
        (name.endswith("_") and name != "requires_grad_")
        or name in ("batch_norm", "instance_norm")
        or kwargs.get("out") is not None
    )


#: What asks for the shape of a tensor, the type of its elements, its device, and how many dimensions it has.
_TENSOR = vars(torch.Tensor.__base__)
SHAPE, DTYPE, DEVICE, RANK = (_TENSOR[name].__get__ for name in ("shape", "dtype", "device", "ndim"))

_READING = ("__int__", "__index__", "__invert__", "__iter__")
