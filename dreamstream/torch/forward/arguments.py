"""What there is among the arguments of a torch function inside a forward, and whose memory its result is."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ...array.batch_constants import is_constant
from ...array.deferred import Deferred, is_filled
from ...array.frame_numbers import LoopNumber
from ...array.pair_terms import Terms
from ...array.score_steps import OverKeys
from ...array.scores import Scores
from ...array.shape_of import Empty
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...array.writing import View, copied
from ...errors import ShapeError
from ...stream.rules import Quotient, Token
from ...stream.tree import leaves
from ..tensor.stream_tensor import SHELL, StreamTensor
from .complex_pair import Complex
from .constants import ComplexConstant, Constant
from .places import repeated
from .recordings import looked_at

#: What has a say in every function that it is given to.
DEFERRED = frozenset((Deferred, Scores, Terms, OverKeys, Empty))
#: Arguments that mean to streams what they mean to torch.
ATOMS = frozenset((int, float, bool, str, type(None)))

#: Complex streams and numbers.
_COMPLEX = frozenset((Complex, ComplexConstant, complex))


def concerned(tree: Any) -> bool:
    """Whether a stream or a size that is a token is among arguments."""
    for x in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(x, torch.Tensor):
            if isinstance(x, StreamTensor):
                return True
        elif type(x) in ATOMS:
            continue
        elif isinstance(x, (list, tuple, dict)):
            if concerned(x):
                return True
        elif isinstance(x, slice):
            if concerned((x.start, x.stop, x.step)):
                return True
        elif isinstance(x, (Token, Deferred)):
            return True
    return False


def bared(x: Any) -> Any:
    if type(x) is SHELL:
        inner = getattr(x, "_inner", None)
        return inner if isinstance(inner, Symbolic) or is_constant(inner) else x
    if type(x) in (list, tuple):
        return type(x)(map(bared, x))
    if type(x) is dict:
        return {k: bared(v) for k, v in x.items()}
    return slice(bared(x.start), bared(x.stop), bared(x.step)) if type(x) is slice else x


def beside(forward: Any, func: Any, meaning: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Ask the native front end, with streams in place of what is computed of positions beside frames."""
    known_as = (func, "in place") if meaning.in_place else func
    entry = forward.entry
    found = entry.library.beside_frames(args)
    if found is args or entry.places is None or entry.recording is not None:
        return forward._anew(func, meaning, found, kwargs)
    return repeated(forward, known_as, found, kwargs, forward._anew, func, meaning, found, kwargs)


def unless_symbolic(forward: Any, x: Any) -> Any:
    """Return an argument unwrapped, unless it stands for lengths."""
    if isinstance(x, Symbolic):
        return x
    return type(x)([unless_symbolic(forward, p) for p in x]) if type(x) in (list, tuple) else forward.unwrap(x)


def with_numbers(forward: Any, index: Any) -> Any:
    """Return an index whose slices have numbers in place of plain tensors: places are known by them."""
    if type(index) is tuple:
        return tuple([with_numbers(forward, part) if type(part) is slice else part for part in index])
    parts = [index.start, index.stop, index.step] if type(index) is slice else []
    if not any(isinstance(p, torch.Tensor) and type(p) is not SHELL for p in parts):
        return index
    looked_at()
    parts = [forward.unwrap(p) if isinstance(p, torch.Tensor) else p for p in parts]
    return slice(*[operator.index(p) if isinstance(p, Constant) else p for p in parts])


def only_symbolic(tree: Any) -> bool:
    """Whether lengths as tensors are among arguments, and no stream is."""
    found = [x for x in leaves(tree) if isinstance(x, (Symbolic, Quotient, StreamTensor))]
    return bool(found) and not any(isinstance(x, StreamTensor) for x in found)


def by_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with the operands that are given by name among those that are given by place."""
    operands = [k for k in ("input", "other", "vec2", "mat2") if k in kwargs]
    args = (*args, *(kwargs[k] for k in operands))
    return args, {k: v for k, v in kwargs.items() if k not in operands}


def is_foreign(x: Any) -> bool:
    """Whether an operand may know by itself what an operator makes of it and a stream."""
    return not isinstance(x, _KNOWN) or isinstance(x, LoopNumber)


_KNOWN: Any = (torch.Tensor, Token, Deferred, np.ndarray, np.generic, complex, list, tuple, *ATOMS)


def is_view(args: tuple[Any, ...]) -> bool:
    """Whether what is written into is no stream, or shares another's memory."""
    inner = getattr(args[0], "_inner", None) if args else None
    return type(inner) is not NativeStream or inner._view is not None


def takes_copy(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a copy of what is written into can be written into instead.

    So it is where frames meet frames, numbers and tensors, where masks or scores meet these, or each other, and
    where a part of a tensor of one number is assigned.
    """
    found: list[Any] = leaves((args, kwargs))
    if not args or type(args[0]) is not SHELL or not all(type(x) in _WRITTEN for x in found):
        return False
    own, *others = [inner_of(x) for x in found if type(x) is SHELL]
    streams = [x for x in others if type(x) not in _DEFERRED and type(x) is not Symbolic]
    if type(own) is NativeStream:
        streams.append(own)
        alone = own._view is None or type(own._view) is View
    else:
        alone = type(own) in _DEFERRED or (name == "__setitem__" and is_filled(own))
        alone = alone and own._source is None and not is_constant(own)
    return alone and all(type(x) is NativeStream and x._ends is None and x._waiting is None for x in streams)


def written_apart(
    forward: Any, func: Any, meaning: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> StreamTensor:
    """Return a copy of a tensor into which is written what is to be written into it."""
    own = args[0]._inner
    out = StreamTensor.shell(copied(own) if type(own) is NativeStream else own.apart())
    forward._anew(func, meaning, (out, *args[1:]), kwargs)
    return out


_DEFERRED = frozenset((Scores, Deferred))
_WRITTEN = frozenset((SHELL, torch.Tensor, torch.nn.Parameter, slice, float, int, bool, type(None), type(...)))


def apart(result: Any, given: Sequence[Any], new: bool) -> Any:
    """Return a copy where torch copies and the native front end returned its argument or a view of it."""
    if isinstance(result, NativeStream):
        viewed = new and result._view and "edge" in vars(result)
        return copied(result) if viewed or any(result is x for x in given) else result
    if isinstance(result, Complex):
        return result.each(lambda part: copied(part) if isinstance(part, NativeStream) else part)
    return result


def inner_of(x: Any) -> Any:
    """Return what a shell stands for; None of all else."""
    return getattr(x, "_inner", None) if type(x) is SHELL else None


def is_stream(x: Any) -> bool:
    """Whether a shell stands for frames, and for nothing that is deferred."""
    inner = getattr(x, "_inner", None)
    return type(x) is SHELL and not isinstance(inner, Symbolic) and type(inner) not in DEFERRED


def extended(forward: Any, tensors: Any, dim: int = 0, **_: Any) -> Any:
    """Return a stream that is joined along L with frames of one number, as many as lengths say; else None."""
    at = [i for i, x in enumerate(tensors) if is_stream(x)]
    inner: list[Any] = [getattr(x, "_inner", None) for x in tensors]
    if len(at) != 1 or not isinstance(dim, int) or inner[at[0]].dims[dim] != "L":
        return None
    stream, others = inner[at[0]], [x for i, x in enumerate(inner) if i != at[0]]
    if not all(map(is_filled, others)):
        return None
    axis, out = dim % stream.ndim, tensors[at[0]]
    for i in (*range(at[0] - 1, -1, -1), *range(at[0] + 1, len(inner))):
        x = inner[i]
        if x.ndim != stream.ndim or any(x.shape[k] != stream.shape[k] for k in range(x.ndim) if k != axis):
            raise ShapeError.here(f"cat: {x.roles} doesn't line up with {stream.roles}")
        pads = [*[0] * 2 * (x.ndim - 1 - axis), *((x.length, 0) if i < at[0] else (0, x.length))]
        out = forward.call(torch.nn.functional.pad, (out, pads), {"value": x.value})
    return out


def as_stream(x: Any) -> Any:
    """Turn a tensor that is one number for all frames into a stream; return any other unchanged."""
    inner = inner_of(x)
    return StreamTensor.shell(inner.as_stream()) if is_filled(inner) else x


def among(arguments: Iterable[Any]) -> bool:
    """Whether a complex stream or number is among a function's arguments."""
    return any(
        type(a) in _COMPLEX or (isinstance(a, (list, tuple)) and not _COMPLEX.isdisjoint(map(type, a)))
        for a in arguments
    )
