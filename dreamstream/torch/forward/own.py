"""Functions that are torch's own in a call, where the native front end makes them of several operators.

Of streams that it can't take (integers, what a mask picks, a capture's) the native function runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from operator import attrgetter
from typing import Any

import torch

from ...array import hook
from ...array.dimension_arguments import numbered
from ...array.dtypes import is_float
from ...array.reductions import Extreme
from ...array.stream_tensor import StreamTensor as Native
from ...array.tensor import Tensor as NativeTensor
from ...nn import functional as native_functional
from ..run.functions import of_elements, of_frames
from .names import OWN

_NUMBERS = frozenset((bool, int, float, str))


def computed(streams: Iterable[Any]) -> bool:
    """Return whether streams are tensors of floats whose values are at hand."""
    return all(type(x) is Native and is_float(x.dtype) and x.value is not None for x in streams)


def of_operands(
    operator: str, given: Mapping[str, Any], dims: tuple[Any, ...] | None = None
) -> tuple[Any, ...] | None:
    """Run a function that `of_elements`, or with `dims` `of_frames`, has entered; None where it can't take this.

    They stand by their names, the first by an empty one.
    """
    operands = {k: v for k, v in given.items() if isinstance(v, NativeTensor)}
    options = {k: v for k, v in given.items() if k not in operands}
    streams = [x for x in operands.values() if x.is_stream]
    if not streams or not computed(streams) or not _NUMBERS.issuperset(map(type, options.values())):
        return None
    constants = [x for x in operands.values() if not x.is_stream]
    constants = [x if is_float(x.dtype) else x.to(streams[0].dtype) for x in constants]
    if len({x.dtype for x in (*streams, *constants)}) > 1:
        return None
    order = {"order": [int(not x.is_stream) for x in operands.values()]} if constants else {}
    return hook.apply(operator, {**options, **order, "named": tuple(operands)}, streams, constants, dims)


def elementwise(name: str, composed: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs torch's function of single elements, or the native one, `composed`, with its parameters."""
    operator, signature = f"torch.{name}", inspect.signature(composed)
    of_elements(operator, function)
    first = next(iter(signature.parameters))

    def run(*args: Any, **kwargs: Any) -> Any:
        ends = next((x._ends for x in args if isinstance(x, NativeTensor) and x._ends is not None), None)
        if ends is not None:
            return ends.apply_function(partial(run, **kwargs), args)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return composed(*args, **kwargs)
        given = {"" if k == first else k: v for k, v in given.items() if v is not None and k != "inplace"}
        out = of_operands(operator, given)
        return composed(*args, **kwargs) if out is None else out[0]

    return run


def _method(name: str) -> Callable[..., Any]:
    """Return the native method, of whatever is its first argument."""
    return wraps(getattr(NativeTensor, name))(lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs))


def _extreme(name: str) -> Callable[..., Any]:
    """Return what runs torch's extreme along one dimension of features."""
    operator, composed = f"torch.{name}", _method(name)
    signature = inspect.signature(getattr(NativeTensor, name))
    of_frames(operator, getattr(torch, name))

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return composed(*args, **kwargs)
        x, dim = given.pop("self"), given.pop("dim", None)
        if not isinstance(dim, int) or not computed([x]) or given.get("dtype") is not None:
            return composed(x, *args[1:], **{k: v for k, v in kwargs.items() if k not in ("self", "input")})
        axis = x._axis(name, dim)
        if x.lanes or isinstance(x.dims[axis], str):
            return composed(x, dim, **given)
        x = x.in_order()
        at = x.dims[axis] - len(x.features)
        outs = hook.apply(operator, {"dim": at, **given, "named": ("",)}, (x,), (), x.dims)
        if not given.get("keepdim"):
            left = [i for i in range(len(x.dims)) if i != axis]
            dims, names = numbered([x.dims[i] for i in left]), [x.names[i] for i in left]
        else:
            dims, names = x.dims, x.names
        seen = [y.with_dims(dims, names) for y in outs]
        return Extreme(*seen) if len(seen) > 1 else seen[0]

    return run


#: Functions of single elements: of torch.nn.functional, and of tensors.
_FUNCTIONS = (
    "hardtanh relu6 hardsigmoid hardswish hardshrink softshrink threshold mish softsign tanhshrink elu selu celu "
    "leaky_relu"
)
_METHODS = (
    "clamp clamp_min clamp_max clip logit sinc tan deg2rad rad2deg fmax fmin logaddexp xlogy "
    "lerp addcmul addcdiv div"
)


for _name in _FUNCTIONS.split():
    OWN[_name] = elementwise(_name, getattr(native_functional, _name), attrgetter(_name)(torch.nn.functional))
for _name in _METHODS.split():
    OWN[_name] = elementwise(_name, _method(_name), getattr(torch, _name))


def _scaled(name: str) -> Callable[..., Any]:
    """Return what adds or takes off the multiple ``alpha`` of another tensor, which torch rounds once."""
    plain, multiple = _method(name), elementwise(name, _method(name), getattr(torch, name))
    return lambda *args, **kwargs: (multiple if "alpha" in kwargs else plain)(*args, **kwargs)


OWN["add"], OWN["sub"] = _scaled("add"), _scaled("sub")
# Powers of numbers have derivatives of their own.
OWN["pow"] = elementwise("pow", _method("pow"), torch.pow)
OWN["__pow__"] = elementwise("__pow__", _method("__pow__"), lambda x, other: torch.pow(x, other))
for _name in ("max", "min"):
    OWN[_name] = _extreme(_name)
