"""Types of integers: torch keeps int32, int16, int8 and uint8, and wraps around; operators know int64.

In a call values are torch's own, but for sums. In a capture the types of edges are noted, and a value that may lie
beyond its type's range is brought into it where a function would see that: what adds and multiplies doesn't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch

from ...array.deferred import has_formula
from ...array.stream_tensor import StreamTensor as Native
from ...operations import ARITHMETIC, BINARY
from ...stream.tree import map_leaves
from .constants import HALF, NARROW, Constant
from .names import ATTRIBUTES, HANDLERS

#: Functions that give a type which is asked for, or that of their argument; sums of narrow integers are of int64.
_LIKE = frozenset((
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
))  # fmt: skip
_SUMS = frozenset(("sum", "prod", "cumsum", "cumprod"))
_CASTS = frozenset(("to", "type", "type_as", "int", "short", "char", "byte", "long", "float", "double", "bool"))
#: Functions of several tensors whose types meet.
_MEETING = frozenset((
    *(row.name for row in BINARY), *ARITHMETIC, *ARITHMETIC.values(), *(f"r{name}" for name in ARITHMETIC), "and",
    "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor", "clamp", "clip", "clamp_min", "clamp_max", "where",
    "where_function", "cat", "stack", "hstack", "vstack", "dstack",
))  # fmt: skip
#: Functions that give equal rests of integers with equal rests, and those whose results may lie beyond the range.
_OF_RESTS = frozenset((
    "add", "radd", "sub", "rsub", "mul", "rmul", "neg", "pow", "square", "lshift", "invert", "bitwise_not",
    "where", "where_function", "cat", "stack", "hstack", "vstack", "dstack", "pad", "getitem", "select", "narrow",
    "index_select", "gather", "take_along_dim", "reshape", "view", "view_as", "reshape_as", "permute", "transpose",
    "movedim", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "expand_as", "repeat", "tile",
    "repeat_interleave", "flip", "roll", "unfold", "chunk", "split", "unbind", "clone", "contiguous", "detach",
))  # fmt: skip
_BEYOND = frozenset((
    "add", "radd", "sub", "rsub", "mul", "rmul", "neg", "pow", "square", "lshift", "invert", "bitwise_not", "abs",
))  # fmt: skip
_INDICES = frozenset(("argmax", "argmin", "argsort", "count_nonzero", "bucketize", "searchsorted", "one_hot"))


def _type(x: Any) -> Any:
    return ATTRIBUTES["dtype"](x)


def _is_stream(x: Any) -> bool:
    return type(x) is Native and x._by_elements is None and x.edge is not None


def typed(run: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a native function; integers that it is given and what it gives have torch's types."""
    name, first = name.strip("_"), args[0] if args else None
    given = [*(first if isinstance(first, (list, tuple)) else ()), *args, *kwargs.values()]
    narrow = [x for x in given if _is_stream(x) and _type(x) in NARROW]
    if name in _CASTS:
        noted = _is_stream(first) and hasattr(first.edge.entry, "types")  # type: ignore[union-attr]
        return _cast(run, first, args, kwargs) if noted else run(*args, **kwargs)
    if (wanted := _wanted(name, first, given, kwargs)) is not None:
        args, kwargs = _seen((args, kwargs), None)
        if name not in _LIKE and _is_stream(first) and _type(first) in HALF:  # it is computed in this type
            args = (HANDLERS["to"](first, wanted), *args[1:])
        out = run(*args, **kwargs)
        if has_formula(out):
            return out.to(wanted)
        return HANDLERS["to"](out, wanted) if _is_stream(out) else out
    if name in _MEETING and len({_is_wide(x) for x in given} - {None}) > 1:
        wide = _meeting(given[1:] if name == "where_function" else given) == torch.float64
        args, kwargs = map_leaves((args, kwargs), lambda x: _of_width(x, wide))
    if name in _SUMS and narrow:
        return run(typed(HANDLERS["to"], "to", (first, torch.int64), {}), *args[1:], **kwargs)
    if not narrow or not hasattr(narrow[0].edge.entry, "types"):
        return _as_operands(run(*args, **kwargs), given)
    operands = given[1:] if name == "where_function" else given
    kind = _meeting(operands) if name in _MEETING else _type(narrow[0])
    rests = name in _OF_RESTS and kind in NARROW
    goes_on = rests and any(map(_is_beyond, narrow))
    args, kwargs = _seen((args, kwargs), kind if rests else None)
    out = run(*args, **kwargs)
    if name not in _INDICES | _SUMS and kind in NARROW:
        several = isinstance(out, (list, tuple))
        parts = [out[0]] if hasattr(out, "_fields") else out if several else [out]  # values, before their places
        for x in parts:
            if _is_stream(x) and x.dtype.kind == "i":
                _note(x, kind, name in _BEYOND or goes_on)
    return out


def _is_wide(x: Any) -> bool | None:
    """Whether a tensor is of float64; None for what is of no real numbers."""
    kind = _type(x) if _is_stream(x) or isinstance(x, Constant) else None
    return None if kind is None or not kind.is_floating_point else kind == torch.float64


def _of_width(x: Any, wide: bool) -> Any:
    """Return a tensor of real numbers as float64 or, where it is of these, as float32; all else as it is."""
    if _is_wide(x) in (None, wide):
        return x
    return HANDLERS["to"](x, torch.float64 if wide else torch.float32)


def _wanted(name: str, first: Any, given: Sequence[Any], kwargs: dict[str, Any]) -> torch.dtype | None:
    """Return the type that is asked for; None where the arguments say it."""
    asked = next((x for x in given if isinstance(x, torch.dtype)), None)
    if asked is None and kwargs.get("out_int32"):
        return torch.int32
    return _type(first) if asked is None and name in _LIKE and _is_stream(first) else asked


def _is_beyond(x: Any) -> bool:
    """Whether a stream's integers may lie beyond the range of their type."""
    return _is_stream(x) and x.edge.handle in getattr(x.edge.entry, "beyond", ())


def _seen(given: Any, kind: torch.dtype | None) -> Any:
    """Return arguments with integers in their ranges, but those whose rests alone matter in the type `kind`."""

    def seen(x: Any) -> Any:
        if not _is_beyond(x):
            return x
        own = _type(x)
        return x if kind is not None and _bits(kind) <= _bits(own) else _within(x, own)

    return map_leaves(given, seen)


def _as_operands(out: Any, given: Sequence[Any]) -> Any:
    """Return a stream in the narrow type of all that it was computed of, also where constants of ours are not."""
    if not _is_stream(out) or out.value is None or _type(out) != torch.float32:
        return out
    kinds = {_type(x) for x in given if _is_stream(x) or (isinstance(x, Constant) and x.ndim)}
    kinds = {kind for kind in kinds if kind.is_floating_point}
    return HANDLERS["to"](out, *kinds) if len(kinds) == 1 and kinds <= HALF else out


def _cast(run: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return a stream of a capture in another type, whose range it may go beyond."""
    own = _type(x)
    out = run(_seen(x, None), *args[1:], **kwargs)
    kind = _type(out) if _is_stream(out) else None
    if kind in NARROW and own != torch.bool and kind != own:
        _note(out, kind, _bits(kind) < (32 if own.is_floating_point else _bits(own)))
    return out


def _bits(kind: torch.dtype) -> int:
    return torch.iinfo(kind).bits


def _note(x: Any, kind: torch.dtype, beyond: bool) -> None:
    """Note a stream's type in its capture, and whether its values may lie beyond that one's range."""
    capture = x.edge.entry
    if kind in NARROW:
        capture.types[x.edge.handle] = str(kind).removeprefix("torch.")
    if beyond:
        capture.beyond.add(x.edge.handle)


def _within(x: Any, kind: torch.dtype) -> Any:
    """Return integers in the range of their type, around which they go."""
    span, below = 2 ** _bits(kind), -torch.iinfo(kind).min
    out = (x + below) % span - below
    _note(out, kind, False)
    return out


def _meeting(given: Sequence[Any]) -> Any:
    """Return the type in which operands meet in torch."""

    def shown(x: Any) -> Any:
        if isinstance(x, Constant):
            return x.torch
        return torch.empty(1, dtype=_type(x)) if _is_stream(x) else x

    operands = [shown(x) for x in given if _is_stream(x) or isinstance(x, (Constant, int, float))]
    return reduce(lambda a, b: torch.empty(1, dtype=torch.result_type(a, b)), operands).dtype
