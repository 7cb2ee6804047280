"""What operations do to torch stream tensors outside a forward.

Each function of torch is looked up by its name in `dreamstream.operations`, which names its rule, so that
functions, methods and their twins in place are one entry. The metadata of a result are never false: what isn't
known to keep them gives a plain tensor, with a `StreamFallbackWarning` (see `dreamstream.on_fallback`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ...array.frame_numbers import number_in
from ...errors import ShapeError, StreamMismatchError
from ...operations import OPERATIONS, RELATIONS, ours
from ...stream.tree import leaves, map_leaves
from ...stream.where import refuse_offline
from ..forward.sizes import TorchBatch, TorchBatchLength, TorchLength
from ..tensor.padding import PaddedSize, without_padded_sizes
from ..tensor.stream_tensor import TAKERS, StreamTensor, collates
from . import along, parts, products, reductions, shapes  # noqa: F401  (each enters its rules)
from .common import ASSIGNED, RULES, Rule, name_of, plain, run, streams_in, unknown
from .losses import LOSSES
from .pointwise import is_pointwise

__all__ = ["call"]

#: For all others.
_UNKNOWN = Rule(unknown, False, True)

_OPERATORS = frozenset(
    f"__{kind}{name}__"
    for name in (*ASSIGNED, *RELATIONS, "neg", "pos", "abs", "invert")
    for kind in ("", "r", "i")
)


def _rule(name: str) -> Rule:
    """Return the rule for a function; of those in place it may be that of their twin."""
    row = OPERATIONS.get(name) or OPERATIONS.get(ours(name))
    if row is not None and row.outside:
        return RULES.get(row.outside, _UNKNOWN)
    if name in _OPERATORS or is_pointwise(name):
        return RULES["elementwise"]
    return _rule(name[:-1]) if name.endswith("_") and not name.startswith("_") else _UNKNOWN


_RULES: dict[str, Rule] = {}


def call(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Run a torch function on arguments of which some are stream tensors, none of them inside a forward."""
    refuse_offline(StreamTensor)
    name = func.__name__
    if name == "__get__":
        name = func.__self__.__name__
    elif name in ("__set__", "__delete__"):
        return _assign(func, args)
    row = OPERATIONS.get(name)
    outside = "" if row is None else row.outside
    if outside == "as it is" or func in (torch.autograd.grad, torch.autograd.backward):
        return run(func, args, kwargs)
    if outside == "resizing" and isinstance(args[0], StreamTensor):
        raise ShapeError(f"{name} of a stream tensor: its shape is that of its streams; use x.tensor()")
    if "out" in kwargs:
        kwargs = dict(kwargs)
        if kwargs["out"] is None or (name == "stack" and collates()):
            del kwargs["out"]
        else:
            return _into(func, args, kwargs)
    if func in LOSSES:
        return LOSSES[func](func, *args, **kwargs)
    if args and type(args[-1]) is PaddedSize:
        args = without_padded_sizes(func, args)
    rule = _RULES.get(name)
    if rule is None:
        rule = _RULES[name] = _rule(name)
    if kwargs:
        args, kwargs = _usual(args, kwargs)
    fits = rule.anywhere or (args and _is_first(args[0]))
    return (rule.run if fits else unknown)(func, *args, **kwargs)


def _is_first(x: Any) -> bool:
    return isinstance(x, StreamTensor) or (isinstance(x, (list, tuple)) and bool(streams_in(x)))


#: Names that torch takes for an argument besides its own.
_OTHER_NAMES = {"axis": "dim", "keepdims": "keepdim"}
_FIRST_NAMES = ("input", "self", "tensors", "tensor", "x", "a", "x1")


def _usual(args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return arguments under their usual names, the first in its place."""
    rest = {_OTHER_NAMES.get(k, k): v for k, v in kwargs.items()}
    if not args:
        first = next((k for k in _FIRST_NAMES if k in rest), None)
        args = () if first is None else (rest.pop(first),)
    return args, rest


def _assign(func: Any, args: Any) -> Any:
    """Set an attribute of a tensor; its data only if they have its shape."""
    x = args[0]
    if func.__self__.__name__ == "data" and isinstance(x, StreamTensor) and len(args) > 1:
        if plain(args[1]).shape != plain(x).shape:
            raise ShapeError(f"data of shape {tuple(plain(args[1]).shape)} for streams {tuple(plain(x).shape)}")
        if isinstance(args[1], StreamTensor) and args[1].meta != x.meta:
            raise StreamMismatchError("data of other streams")
    return run(func, args, {})


def _into(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a function and write its result to ``out=``."""
    out = kwargs.pop("out")
    result = call(func, (), args, kwargs) if streams_in(args, kwargs) else run(func, args, kwargs)
    for target, value in zip(leaves(out), leaves(result)):
        own, new = plain(target), plain(value)
        if isinstance(target, StreamTensor):
            if not isinstance(value, StreamTensor) or own.shape != new.shape:
                raise StreamMismatchError(
                    f"{name_of(func)}: out= is a stream tensor of shape {tuple(own.shape)}, but the result is "
                    f"{'one' if isinstance(value, StreamTensor) else 'a plain tensor'} of {tuple(new.shape)}"
                )
            target._info = value._info
        elif own.shape != new.shape:
            own.resize_(new.shape)
        own.copy_(new)
    return out


#: Arguments that are no names, and hold none.
_WITHOUT_NAMES = frozenset((int, float, bool, type(None), TorchBatch, TorchBatchLength, TorchLength))


def _by_name(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of tensors that takes dimensions by name, too."""

    @wraps(method)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _WITHOUT_NAMES.issuperset(map(type, leaves((args, kwargs)))):
            if self._inner is not None and any(map(number_in, (*args, *kwargs.values()))):  # no integer of torch's
                return TAKERS.inside(method, (type(self),), (self, *args), kwargs)
            names = self.names

            def number(a: Any) -> Any:
                return names.index(a) if isinstance(a, str) and a in names else a

            args, kwargs = map_leaves(args, number), map_leaves(kwargs, number)
        return method(self, *args, **kwargs)

    return named


#: The methods of tensors that stream, by name, and whether they take dimensions.
METHODS = {
    name: _rule(name).dims
    for name in dir(torch.Tensor)
    if _rule(name) is not _UNKNOWN and not name.startswith(("_", "requires_grad"))
    if callable(getattr(torch.Tensor, name))
}
for _name, _takes_dims in METHODS.items():
    if _takes_dims:
        setattr(StreamTensor, _name, _by_name(getattr(torch.Tensor, _name)))
