"""Functions of the position alone: streams where they meet frames, and tables cut to a stream's length.

What is computed of ``arange(x.size(1))`` is noted (`pairs`). Where it meets frames, each meets what is computed of
its own position: torch's functions run once more, now on the stream of the positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...array.attend import of_all
from ...array.counted import SERVES, first_row, noted, streamed, unknown
from ...array.stream_tensor import StreamTensor
from ...array.symbolic import Symbolic
from ...array.whole import require_waiting
from ...array.writing import copied
from ...errors import NotStreamableError
from ...nn.functional.lookup import require_as_it_is
from ...stream.rules import BatchSize, Length
from ...stream.tree import leaves
from ...stream.where import user_line
from . import names
from .complex_pair import Complex
from .constants import Constant
from .mode import current


def plain(x: Any) -> Any:
    """Return arguments with torch's tensors in place of constants."""
    return _each(x, lambda a: a.torch if isinstance(a, Constant) else a)


def _each(x: Any, fn: Callable[[Any], Any]) -> Any:
    """Return a function of every argument, in lists too."""
    if type(x) is dict:
        return {k: _each(v, fn) for k, v in x.items()}
    return type(x)(_each(v, fn) for v in x) if type(x) in (list, tuple) else fn(x)


# ---------------------------------------------------------------------- functions of the position alone
def met(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of positions and a stream: each frame meets what is computed of its position."""
    forward, name = current(), names.meaning_of(func).name
    types = [x.dtype for x in leaves((args, kwargs)) if getattr(x, "is_stream", False) and not noted(x)]
    real = next((_REAL[str(t)] for t in types if str(t) in _REAL), None)

    def own(x: Any) -> Any:
        if not noted(x):
            return x
        alike = None if isinstance(x, Symbolic) else x.everywhere()
        if alike is not None:
            return Constant(torch.tensor(alike, dtype=x.dtype, device=forward.device), forward.arrays)
        return forward.unwrap(streamed_of(x, real))

    return forward._run(func, name, _each(args, own), _each(kwargs, own))


_REAL = {"float32": torch.float32, "float64": torch.float64}
#: Types that integers of positions have.
_INTEGERS = (torch.int64, torch.int32, torch.int16)


def streamed_of(x: Any, wanted: torch.dtype | None = None) -> Any:
    """Return what is computed of positions as the stream that it is: torch's functions of that of the positions.

    Integers become numbers of the type `wanted`, float32 without it; other numbers do if it is wider.
    """
    known, key = x.__dict__.setdefault("_streams", {}), (current(), wanted)
    if key not in known:
        known[key] = _streamed_anew(x, wanted)
    return known[key]


def _streamed_anew(x: Any, wanted: torch.dtype | None) -> Any:
    forward = current()
    if x.dtype in _INTEGERS or isinstance(x, Symbolic):
        return forward._wrapped(streamed(x, str(wanted or torch.float32).rpartition(".")[2]))
    if sum(isinstance(s, Length) for s in x.shape) != 1:
        raise NotStreamableError(f"{x.func.__name__} of positions and a stream, at {user_line()}; {SERVES}")
    func, name = x.func, x.func.__name__.strip("_")
    if name in ("embedding", "index_select", "gather"):
        raise NotStreamableError(f"{name} at {user_line()}: rows of a table are read in turn, one for each frame")
    given = leaves((x.args, x.kwargs))
    if not any(map(noted, given)):
        raise unknown(x)
    types = [a.dtype for a in given if noted(a) or isinstance(a, torch.Tensor)]
    if x.dtype == torch.bool and (
        sum(noted(a) and a.dtype in _INTEGERS for a in given) > 1
        or any(isinstance(a, int) and abs(a) > _EXACT for a in given)
    ):
        raise unknown(x)
    real = x.dtype if x.dtype.is_floating_point else next((t for t in types if t.is_floating_point), torch.float32)

    def own(a: Any) -> Any:
        if noted(a):
            return streamed_of(a, real)
        if isinstance(a, torch.Tensor) and a.dtype in _INTEGERS:
            return a.to(real)
        return a

    args = _each(x.args, own)
    kwargs = {k: _each(v, own) for k, v in x.kwargs.items() if k not in ("device", "dtype")}
    if name in _TYPES:
        out = args[0].to(x.dtype)
    else:
        func, args = _without_sums(func, name, args)
        out = forward.call(func, args, kwargs)
        if out is NotImplemented:
            edge = next(a._inner.edge for a in leaves((args, kwargs)) if hasattr(a, "_inner"))
            require_waiting(f"{name}: positions meet a length,", edge)
            raise unknown(x)
    return out.to(wanted) if (x.dtype, wanted) == (torch.float32, torch.float64) else out


#: Integers up to which float32 has all.
_EXACT = 1 << 24
_TYPES = ("to", "type", "float", "double", "half", "bfloat16", "long", "int", "bool", "type_as")


def _without_sums(func: Callable[..., Any], name: str, args: tuple[Any, ...]) -> tuple[Callable[..., Any], Any]:
    """Return products of matrices that add nothing up as products of elements."""
    if name in ("outer", "ger"):
        return torch.mul, (args[0].unsqueeze(1), args[1].unsqueeze(0))
    if name in ("matmul", "bmm", "mm", "rmatmul"):
        a, b = args[::-1] if name == "rmatmul" else args
        if 1 in [s for s in (a.shape[-1], b.shape[-2]) if isinstance(s, int)]:
            return torch.mul, (a, b)
    if name == "einsum" and len(args) == 3:
        inputs, _, made = args[0].replace(" ", "").partition("->")
        if inputs.count("...") == 1:
            own = next(i for i, part in enumerate(inputs.split(",")) if "..." in part)
            more = "ABCDEFGH"[: args[1 + own].ndim - len(inputs.split(",")[own]) + 3]
            inputs, made = inputs.replace("...", more), made.replace("...", more)
        letters = inputs.split(",")
        if {*made} == {*letters[0], *letters[1]}:
            return torch.mul, tuple(_spread(x, own, made) for x, own in zip(args[1:], letters))
    return func, args


def _spread(x: Any, own: str, made: str) -> Any:
    """Return a tensor with the dimensions `own` so that it broadcasts to `made`."""
    x = x.permute(*(own.index(c) for c in made if c in own))
    for i, c in enumerate(made):
        x = x if c in own else x.unsqueeze(i)
    return x


# ---------------------------------------------------------------------- tables
def looked_up(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the rows of a table for positions in turn, the table cut to the stream's length; None otherwise."""
    dim: Any = 0
    if func is torch.nn.functional.embedding:
        at, weight = args[0], _learned(args[1] if len(args) > 1 else kwargs["weight"], kwargs)
        require_as_it_is(kwargs.get("max_norm"))
    elif func in (torch.index_select, torch.Tensor.index_select) and len(args) > 1:
        weight, dim, at = args[0], args[1], args[2] if len(args) > 2 else kwargs["index"]
    elif func is torch.Tensor.__getitem__:
        weight, index = args
        parts = index if isinstance(index, tuple) else (index,)
        dim = next((i for i, part in enumerate(parts) if noted(part)), None)
        if dim is None or any(part not in (slice(None), ...) for part in (*parts[:dim], *parts[dim + 1 :])):
            return None
        at, dim = parts[dim], dim - len(parts) if ... in parts[:dim] else dim
    elif func in (torch.gather, torch.Tensor.gather):
        return _gathered(*args, **kwargs)
    else:
        return None
    cut = not noted(weight) and dim == 0 and getattr(weight, "dims", ("",))[0] == "L"  # all of its rows, then
    if not noted(at) or not (cut or isinstance(weight, (torch.Tensor, Constant))):
        return None
    found = first_row(at)
    if found is None:
        return None
    start, length, axes, axis = found
    if cut and start == 0:
        weight.require_length(length)
        for i in range(axes):
            weight = weight if i == axis else weight.unsqueeze(i)
        return weight
    table = weight if isinstance(weight, Constant) else Constant(weight, current().arrays)
    dim %= table.ndim
    table = table.narrow(dim, start, table.shape[dim] - start)
    for i in range(axes):
        table = table if i == axis else table.unsqueeze(dim + i)
    return _apart(table[(slice(None),) * (dim + axis) + (slice(None, length),)])


def _learned(weight: Any, options: dict[str, Any]) -> Any:
    """Return a table whose row for padding, if an embedding has one, gets no gradient."""
    row, table = options.get("padding_idx"), getattr(weight, "torch", weight)
    if row is None or not isinstance(table, torch.Tensor) or not table.requires_grad:
        return weight
    row %= len(table)
    return torch.cat([table[:row], table[row : row + 1].detach(), table[row + 1 :]])


def _apart(rows: Any) -> Any:
    """Return rows of a table as what torch gives, which shares nothing with it."""
    return copied(rows) if isinstance(rows, StreamTensor) else rows


def _gathered(input: Any, dim: int, index: Any, **_: Any) -> Any:
    """Return a table cut to the stream's length along an axis, where the index says so; None otherwise."""
    table = of_all(input)
    if not noted(index) or not isinstance(table, Constant) or table.ndim != len(index.shape):
        return None
    axis, length = dim % table.ndim, index.shape[dim]
    sizes = [1 if i == axis or isinstance(n, BatchSize) else n for i, n in enumerate(index.shape)]
    if not isinstance(length, Length) or any(
        n not in (1, m) for i, (n, m) in enumerate(zip(sizes, table.shape)) if i != axis
    ):
        return None
    found = first_row(index, repeated=True)
    if found is None:
        return None
    kept = tuple(slice(None if i == axis else n) for i, n in enumerate(sizes))
    return _apart(table[kept][(slice(None),) * axis + (slice(found[0], length + found[0]),)])


def cut_complex(table: torch.Tensor, index: Any) -> Any:
    """Return a table of complex numbers that is cut to a stream's length along one dimension, else None."""
    parts = index if isinstance(index, tuple) else (index,)
    if sum(isinstance(p, slice) and isinstance(p.stop, Length) for p in parts) > 1:
        return None
    arrays = current().arrays
    return Complex(*(Constant(part.contiguous(), arrays)[index] for part in (table.real, table.imag)))
