"""What all operations outside a forward share: running torch, what operands have in common, falling back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...operations import ARITHMETIC, BITWISE
from ...stream import tensor_info
from ...stream.fallback import report_fallback
from ...stream.rules import LENGTH, resolve
from ...stream.tensor_info import Info
from ...stream.tree import leaves, map_leaves
from ..private import without_subclass
from ..tensor import StreamTensor
from ..tensor.padding import cleaned, mask_of


@dataclass(frozen=True)
class Rule:
    """What operations do that `dreamstream.operations` names a rule for."""

    run: Callable[..., Any]  #: ``run(func, *args, **kwargs)``, with torch's function.
    dims: bool  #: Whether it looks at dimensions: methods of these operations take them by name, too.
    anywhere: bool  #: Whether a stream may be another argument than the first alone.


RULES: dict[str, Rule] = {}


def rule(*names: str, dims: bool = True, anywhere: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Enter a rule under its names; see `Rule`."""

    def keep(fn: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, Rule(fn, dims, anywhere)))
        return fn

    return keep


def run(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a torch function on tensors as they are."""
    with without_subclass():
        return func(*args, **kwargs)


def plain(x: Any) -> Any:
    """Return a stream tensor as torch's tensor; everything else as it is."""
    return x._plain() if isinstance(x, StreamTensor) else x


def streams_in(*trees: Any) -> list[StreamTensor]:
    """Return the stream tensors among arguments."""
    return [t for t in leaves(trees) if isinstance(t, StreamTensor)]


def in_place(func: Any) -> bool:
    """Return whether a function writes to its first argument."""
    name = func.__name__
    return (name.endswith("_") and not name.startswith("__")) or name in _ASSIGNMENTS


#: Python's operators of two operands, and torch's own.
ASSIGNED = (*ARITHMETIC, *BITWISE, "div")
_ASSIGNMENTS = frozenset(f"__i{name}__" for name in ASSIGNED)


def axis_of(x: StreamTensor, dim: Any) -> int:
    """Return the number of a dimension given by number or name."""
    return resolve(x._info.names, dim)


def agree(tensors: Sequence[StreamTensor], what: str) -> Info:
    """Return what is known of tensors that meet; see `dreamstream.stream.tensor_info.agree`."""
    return tensor_info.agree([t._info for t in tensors], what)


def needs_gradient(*trees: Any) -> bool:
    """Return whether a gradient may be wanted of something that is made of these."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in leaves(trees) if isinstance(t, torch.Tensor))


def inputs(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return arguments as torch sees them.

    Where gradients are wanted, zeros stand for padding, so that no gradient comes out of it.
    """
    if not run(needs_gradient, (args, kwargs), {}):
        return map_leaves(args, plain), map_leaves(kwargs, plain)
    return map_leaves(args, _without_padding), map_leaves(kwargs, _without_padding)


def _without_padding(x: Any) -> Any:
    return cleaned(x._plain(), x._info) if isinstance(x, StreamTensor) else x


def keep(result: Any, info: Info) -> Any:
    """Return results with these streams; what `info` says of them must be true.

    A result that is a stream tensor already (operations in place) takes it over.
    """
    if isinstance(result, StreamTensor):
        result._info = info
        return result
    if not isinstance(result, torch.Tensor):
        if isinstance(result, (list, tuple)):
            return map_leaves(result, lambda t: keep(t, info))
        return result
    if not info.has_frames and not info.is_full(1) and result.is_floating_point() and result.requires_grad:
        mask = mask_of(info, result.shape, result.device)
        result = torch.where(mask, result, torch.full_like(result, torch.nan))
    return StreamTensor.of(result, info)


def kept(info: Info, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a torch function whose result has these streams, on arguments as `inputs` gives them."""
    own, options = inputs(args, kwargs)
    return keep(run(func, own, options), info)


def viewed(func: Callable[..., Any], x: StreamTensor, args: Any, kwargs: Any, names: Any) -> Any:
    """Run a torch function that shows the same elements, in dimensions of these names."""
    result = run(func, (x if in_place(func) else plain(x), *args), kwargs)
    return keep(result, x._info.with_names(names))


def fall_back(func: Callable[..., Any], args: Any, kwargs: Any, what: str) -> Any:
    """Run a function on the plain padded tensors, zeros behind each row's frames, with a warning.

    In place it writes to the tensor, and returns it as a plain one.
    """
    report_fallback(what)
    if in_place(func):
        return plain(run(func, (plain(args[0]), *map_leaves(args[1:], padded)), map_leaves(kwargs, padded)))
    return run(func, map_leaves(args, padded), map_leaves(kwargs, padded))


def padded(x: Any) -> Any:
    """Return a stream tensor as a plain one with zeros for padding; everything else as it is."""
    return x.padded() if isinstance(x, StreamTensor) else x


def unknown(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function of which nothing is known: tensors that it returns are plain."""
    name = name_of(func)
    if in_place(func):
        return fall_back(func, args, kwargs, f"{name} in place")
    result = run(func, map_leaves(args, padded), map_leaves(kwargs, padded))
    if any(isinstance(t, torch.Tensor) for t in leaves(result)):
        report_fallback(name)
    return result


def name_of(func: Any) -> str:
    """Return a torch function's name; an attribute's own name where it is one that is read."""
    name: str = func.__name__
    return func.__self__.__name__ if name == "__get__" else name


def same_sizes(x: StreamTensor, result: torch.Tensor) -> bool:
    """Return whether a result has x's dimensions, B and L among them in their places and sizes."""
    shape = x._plain().shape
    sizes = enumerate(zip(shape, result.shape))
    return result.dim() == len(shape) and all(a == b or not x._info.is_stream(i) for i, (a, b) in sizes)


def cut(tree: Any, target: StreamTensor | None = None) -> Any:
    """Cut padding off tensors whose padded widths differ: all become as wide as the narrowest, or as `target`."""
    widths = [_width(t) for t in streams_in(tree) if LENGTH in t.names]
    if len(set(widths)) < 2:
        return tree
    width = min(widths) if target is None or LENGTH not in target.names else _width(target)

    def narrowed(t: Any) -> Any:
        if not isinstance(t, StreamTensor) or LENGTH not in t.names or _width(t) <= width:
            return t
        return StreamTensor.of(t._plain().narrow(t.names.index(LENGTH), 0, width), t._info)

    return map_leaves(tree, narrowed)


def _width(t: StreamTensor) -> int:
    return t._info.width_of(t._plain().shape)


def along(x: StreamTensor, axes: Sequence[int]) -> str:
    """Return the names of dimensions, for messages."""
    return " and ".join(str(x._info.names[a]) for a in axes if x._info.is_stream(a))


def each(tree: Any) -> Iterator[torch.Tensor]:
    """Return the tensors among results."""
    return (t for t in leaves(tree) if isinstance(t, torch.Tensor))
