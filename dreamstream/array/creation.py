"""Functions that make tensors: from data, from nothing, from random numbers, from other tensors."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DreamStreamError, DTypeError, ModeError, ShapeError
from ..stream.rules import BatchSize, Length, Rows
from . import dtypes, elementwise
from .base import is_number
from .batch_constants import is_constant, value_of
from .deferred import Deferred, as_deferred, as_number, has_formula, is_filled, library_of
from .dimension_arguments import axis_of, sizes_of
from .ends import at_least_before, continued, number_beside
from .hook import made
from .lengths_of import lengths_of
from .loop_lists import Gathered
from .positions import positions
from .symbolic import Symbolic
from .tensor import Tensor, each, take

__all__ = [
    "arange", "as_tensor", "baddbmm", "cat", "empty", "empty_like", "eye", "from_numpy", "full", "full_like",
    "lengths_of", "manual_seed", "matmul", "meshgrid", "ones", "ones_like", "outer", "prepend", "rand", "randn",
    "stack", "tensor", "tril", "triu", "where", "zeros", "zeros_like",
]  # fmt: skip

_generator = np.random.default_rng()


# ---------------------------------------------------------------------- from data
def tensor(data: Any, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Return a tensor with a copy of `data`.

    Parameters
    ----------
    data : array, number, or nested list of numbers
        Arrays (and other tensors) keep float32, float64, int64 and bool, other integers become int64.
        Numbers and lists of them become float32; of bools alone, bool.
    dtype : dtype or str, optional
        The element type, converted to if need be.
    requires_grad : bool
        Whether what is computed of it is recorded for gradients.
    device : None or "cpu"
        For torch's sake.

    Returns
    -------
    Tensor
        Of the shape of `data`.

    Raises
    ------
    DTypeError
        Where `data` or `dtype` is of a type that tensors don't hold.
    ShapeError
        For lists of unequal lengths.

    Examples
    --------
    >>> tensor([[1, 2], [3, 4]]).dtype
    dtype('float32')
    >>> tensor(np.arange(3)).dtype
    dtype('int64')

    Notes
    -----
    Source: torch.tensor, except that lists of integers become float32.
    """
    dtypes.check_device(device)
    return Tensor(_array_of(data, dtype, copy=True), requires_grad)


def as_tensor(data: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return `tensor(data)`, sharing memory with an array, or the tensor itself, where that can be."""
    dtypes.check_device(device)
    if isinstance(data, Tensor) and (dtype is None or dtypes.as_dtype(dtype) == data.dtype):
        return data
    return Tensor(_array_of(data, dtype, copy=False))


def from_numpy(array: NDArray[Any]) -> Tensor:
    """Return a tensor that shares the array's memory; integers other than int64 are converted."""
    return Tensor(array)


def _new_tensor(self: Tensor, data: Any, dtype: Any = None, requires_grad: bool = False) -> Any:
    """Return a tensor of `data`, of this one's element type unless `dtype` says otherwise."""
    if isinstance(data, Deferred):
        return data if dtype is None else data.to(dtype)
    return Tensor(_array_of(data, dtype or self.dtype, copy=True), requires_grad)


def _array_of(data: Any, dtype: Any, copy: bool) -> NDArray[Any]:
    """Return data as an array of one of our types."""
    if getattr(data, "is_stream", False):
        raise ModeError("tensor: expected plain data, got a stream; its padded values are x.tensor()")
    is_array = hasattr(data, "__array__") and not isinstance(data, np.generic)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"tensor: the lists don't form an array: {error}") from None
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    if wanted is not None and array.dtype.kind in "fiub":
        return np.array(array, wanted) if copy or array.dtype != wanted else array
    if not is_array and array.dtype.kind in "fiu" and array.dtype != dtypes.float32:
        return array.astype(dtypes.float32)
    out = dtypes.adopt(array)
    return out.copy() if copy and out is array else out


# ---------------------------------------------------------------------- from nothing
def full(size: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, requires_grad: bool = False) -> Any:
    """Return a tensor with all elements equal.

    Parameters
    ----------
    size : int or sequence of int
        The shape. A stream's ``x.size(B)`` may be one of the sizes.
    fill_value : number
        The elements.
    dtype : dtype or str, optional
        The element type; without it float32, int64 or bool, as `fill_value` is.
    requires_grad : bool
        Whether what is computed of it is recorded for gradients.

    Returns
    -------
    Tensor
        Or a `Deferred` where a size is the number of streams, a `Symbolic` where one is a stream's length.

    Notes
    -----
    Source: torch.full.
    """
    dtypes.check_device(device)
    if isinstance(fill_value, Length):
        return lengths_in(size, fill_value)
    if isinstance(size, (tuple, list)) and any(isinstance(s, Length) for s in size):
        return Symbolic.filled(size, Tensor(_filled(1, fill_value, dtype)[0]))
    array, batch = _filled(size, fill_value, dtype)
    out = Tensor(array, requires_grad)
    return size[batch[0]].edge.entry.library.of_batch(out, batch, size[batch[0]]) if batch else out


def lengths_in(size: Any, length: Length) -> Symbolic:
    """Return the lengths of all streams, in the shape that such a tensor may have."""
    sizes = size if isinstance(size, (tuple, list)) else (size,)
    roles = ["B" if isinstance(n, BatchSize) else n for n in sizes]
    if roles.count("B") > 1 or not all(n == "B" or isinstance(n, int) for n in roles):
        length._misuse("the value of a new tensor of other sizes than the number of streams and integers")
    return Symbolic(length, roles, length)


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return zeros, float32 unless `dtype` says otherwise; see `full`. Source: torch.zeros."""
    return full(sizes_of(size), 0, dtype or dtypes.float32, device=device, requires_grad=requires_grad)


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return ones, float32 unless `dtype` says otherwise; see `full`. Source: torch.ones."""
    return full(sizes_of(size), 1, dtype or dtypes.float32, device=device, requires_grad=requires_grad)


def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return zeros: memory without values is never handed out. Source: torch.empty."""
    return zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)


def _new_full(
    self: Tensor, size: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return `dreamstream.full` of this element type."""
    return full(size, fill_value, dtype or self.dtype, device=device, requires_grad=requires_grad)


@each(
    new_zeros="`dreamstream.zeros` of this element type",
    new_ones="`dreamstream.ones` of this element type",
    new_empty="zeros: memory without values is never handed out",
)
def _new(name: str) -> Any:
    def new(self: Tensor, *size: Any, **options: Any) -> Any:
        """Return {}."""
        return self.new_full(size[0] if len(size) == 1 else size, int(name == "new_ones"), **options)

    return new


def _filled(size: Any, fill_value: Any, dtype: Any = None) -> tuple[NDArray[Any], list[int]]:
    """Return an array of equal elements, and its axes of size 1 that stand for the number of streams."""
    sizes = sizes_of(size if isinstance(size, (tuple, list)) else (size,))
    batch = [i for i, s in enumerate(sizes) if isinstance(s, Rows)]
    value = fill_value.item() if hasattr(fill_value, "item") else fill_value
    if not is_number(value):
        raise DTypeError(f"full: expected a number as fill_value, got {value!r}")
    to = dtypes.common("full", [], [value]) if dtype is None else dtypes.as_dtype(dtype)
    known = [1 if i in batch else s for i, s in enumerate(sizes)]
    return _sized(lambda shape: np.full(shape, value, to), known), batch


def _sized(make: Callable[[tuple[int, ...]], Any], sizes: Sequence[Any]) -> Any:
    """Return an array of these sizes."""
    try:
        shape = tuple(map(operator.index, sizes))
        if min(shape, default=0) >= 0:
            return make(shape)
    except DreamStreamError:  # of what stands for a number of streams or frames
        raise
    except (TypeError, ValueError):  # no integer; more than arrays hold
        pass
    raise ShapeError(f"sizes must be whole numbers from 0 on that an array can have, got {tuple(sizes)}")


def full_like(input: Tensor, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return a tensor of the same shape (and streams) with all elements equal. Source: torch.full_like."""
    dtypes.check_device(device)
    to = dtypes.as_dtype(input.dtype if dtype is None else dtype)
    if (library := library_of((input,))) is not None:
        return library.defer(full_like, (input, fill_value, to), {})
    if has_formula(input):
        return input.full_like(fill_value, to)
    first: Any = input
    if hasattr(type(first), "apply_function") and first.keeps:  # a stream's first frame
        return first.apply_function("full_like", full_like, (first, fill_value, dtype), {})
    if not isinstance(input, Tensor):  # scores of attention
        return full(input.shape, fill_value, to)
    if not input.is_stream:
        return Tensor._plain(np.full(input.shape, fill_value, to), input._missing)
    value = Tensor(np.array(fill_value, dtypes.float32 if to == dtypes.bool else to))
    same = input.eq(input)  # whatever it gives, its frames and streams are those of the input
    return elementwise.where(same, value, value).to(to)


def empty_like(input: Tensor, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return zeros: memory without values is never handed out. Source: torch.empty_like."""
    return zeros_like(input, dtype, device=device)


def zeros_like(input: Tensor, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return zeros of the same shape (and streams). Source: torch.zeros_like."""
    return full_like(input, 0, dtype, device=device)


def ones_like(input: Tensor, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Return ones of the same shape (and streams). Source: torch.ones_like."""
    return full_like(input, 1, dtype, device=device)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return numbers from `start` (0 where only one bound is given) up to, not including, `end`.

    Integers give int64, other numbers float32, unless `dtype` says otherwise. Source: torch.arange.
    """
    dtypes.check_device(device)
    bounds = (0, start) if end is None else (start, end)
    first, last = map(as_number, bounds)
    if isinstance(first, Length) or isinstance(last, (Length, BatchSize)):
        return positions(first, last, step, dtype)
    given = [b if is_number(b) or not hasattr(b, "__index__") else operator.index(b) for b in (first, last, step)]
    if not all(map(is_number, given)):
        raise DTypeError(f"arange: expected numbers, got {first!r}, {last!r} and {step!r}")
    if given[2] == 0 or (given[1] - given[0]) * given[2] < 0:
        raise ShapeError(f"arange: no numbers from {first} to {last} in steps of {step}")
    to = dtypes.common("arange", [], given) if dtype is None else dtypes.as_dtype(dtype)
    return Tensor(np.arange(*given).astype(to))


# ---------------------------------------------------------------------- random
def manual_seed(seed: int) -> np.random.Generator:
    """Seed the generator behind `randn`, `rand` and the initial weights of layers, and return it.

    Its numbers are not torch's for the same seed. Source: torch.manual_seed.
    """
    global _generator
    _generator = np.random.default_rng(operator.index(seed))
    return _generator


def generator() -> np.random.Generator:
    """Return the generator that `manual_seed` seeds."""
    return _generator


def randn(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return numbers of the standard normal distribution. Source: torch.randn."""
    return _random(_generator.standard_normal, size, dtype, device, requires_grad)


def rand(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Return numbers distributed evenly over [0, 1). Source: torch.rand."""
    return _random(_generator.random, size, dtype, device, requires_grad)


def _random(draw: Any, size: Sequence[Any], dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    dtypes.check_device(device)
    to = dtypes.float32 if dtype is None else dtypes.as_dtype(dtype)
    dtypes.require_float("random numbers", to)
    return Tensor(np.asarray(_sized(lambda shape: draw(shape, dtype=to), sizes_of(size))), requires_grad)


# ---------------------------------------------------------------------- from tensors
def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Return tensors laid end to end along `dim`.

    Parameters
    ----------
    tensors : sequence of Tensor
        Equal in all other dimensions.
    dim : int
        The dimension.

    Raises
    ------
    DTypeError
        Where float types are mixed.
    ShapeError
        Where other sizes differ.

    Notes
    -----
    Source: torch.cat.
    """
    if isinstance(tensors, Gathered):
        return tensors.joined(dim)
    tensors = [as_deferred(t) for t in tensors]
    if (later := _joined_later(cat, tensors, dim)) is not None:
        return later
    if (scores := next((t for t in tensors if hasattr(type(t), "beside")), None)) is not None:
        return scores.beside(tensors, dim)
    if (last := number_beside(tensors, dim, -1)) is not None:
        return continued(cat(tensors[:-1], dim), last.length, "constant", float(last.value))
    if (first := number_beside(tensors, dim, 0)) is not None:
        longer = at_least_before(cat(tensors[1:], dim), dim, first.length, float(first.value))
        if longer is not None:
            return longer
    given = _tensors("cat", tensors)
    some = [t for t in given if t.is_stream or tuple(value_of(t).shape) != (0,)]  # as torch leaves them out
    given = some or given[:1]
    if len(given) == 1 and given[0].is_stream:
        return given[0].clone()
    return _leader(given)._cat(given, dim)


def prepend(x: Any, tokens: Any, dim: int = 1) -> Any:
    """Return sequences with tokens before the first frame of each.

    Attention sees them as other frames, by its context: all queries do where nothing bounds it on the left.
    ``x[:, tokens:]`` drops them again.

    Parameters
    ----------
    x : Tensor
        Of this package or of torch, ``(B, L, ...)`` or with L elsewhere.
    tokens : Tensor
        Constants or parameters of x's shape, but for L, and with 1 in B's place or without B; or what streams are
        given once, ``(B, tokens, ...)``, up to 16 of them.
    dim : int
        Where L stands.

    Raises
    ------
    ShapeError
        Where sizes differ.

    Notes
    -----
    **Streaming.** No delay; so many frames more. The same as ``torch.cat([tokens.expand(B, -1, -1), x], 1)``.

    Examples
    --------
    >>> prepend(zeros(2, 5, 3), ones(1, 3)).shape
    (2, 6, 3)
    """
    if getattr(tokens, "is_stream", False):
        return _cat_of(x)([tokens, x], dim)
    if tokens.ndim not in (x.ndim, x.ndim - 1):
        raise ShapeError(f"prepend: tokens of {tokens.ndim} dimensions before a sequence of {x.ndim}")
    tokens = tokens if tokens.ndim == x.ndim else tokens[None]
    tokens = tokens.expand(x.shape[0], *(-1,) * (x.ndim - 1))
    return _cat_of(x)([tokens, x], dim)


def _cat_of(x: Any) -> Any:
    """Return cat of the library that a tensor is of."""
    theirs = isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ()))
    return (sys.modules["torch"] if theirs else sys.modules[__name__]).cat


def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """Return ``beta * input + alpha * (batch1 @ batch2)``. Source: torch.baddbmm."""
    product = batch1 @ batch2
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else input * beta)


def eye(n: Any, m: Any = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return ones on the diagonal of a matrix ``(n, m or n)`` of zeros, float32 by default. Source: torch.eye."""
    dtypes.check_device(device)
    sizes = (n, n if m is None else m)
    for size in sizes:
        if isinstance(size, Length):
            return size.edge.entry.library.defer_method("eye", sizes, {} if dtype is None else {"dtype": dtype})
    to = dtypes.as_dtype(dtype or dtypes.float32)
    return Tensor(_sized(lambda shape: np.eye(*shape, dtype=to), sizes), requires_grad)


def meshgrid(*tensors: Any, indexing: str = "ij") -> list[Any]:
    """Return grids of the coordinates in vectors, which run along one dimension each. Source: torch.meshgrid.

    Parameters
    ----------
    tensors : Tensor
        ``(n,)`` each.
    indexing : {"ij", "xy"}
        Whether the first two dimensions change places.
    """
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)
    sizes = [x.shape[0] for x in given]
    grids = [x.reshape(*(-1 if i == k else 1 for i in range(len(given)))) for k, x in enumerate(given)]
    grids = [x.expand(*sizes) for x in grids]
    if indexing not in ("ij", "xy"):
        raise ValueError(f'meshgrid: indexing is "ij" or "xy", not {indexing!r}')
    return [x.transpose(0, 1) for x in grids] if indexing == "xy" and len(given) > 1 else grids


def outer(input: Any, vec2: Any) -> Any:
    """Return the products ``(n, m)`` of elements of two vectors. Source: torch.outer."""
    return input.unsqueeze(-1) * vec2


def matmul(input: Any, other: Any) -> Any:
    """Return the product of matrices ``(*, n, k)`` and ``(*, k, m)``. Source: torch.matmul."""
    return input @ other


def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Return tensors of equal shape along a new dimension `dim`. Source: torch.stack."""
    if isinstance(tensors, Gathered):
        return tensors.stacked(dim)
    tensors = [as_deferred(t) for t in tensors]
    if (later := _joined_later(stack, tensors, dim)) is not None:
        return later
    given = _tensors("stack", tensors)
    if not any(t.is_stream for t in given) and len({t.shape for t in given}) > 1:
        raise ShapeError(f"stack: the shapes differ: {', '.join(str(t.shape) for t in given)}")
    return _leader(given)._cat([t.unsqueeze(dim) for t in given], dim)


def where(condition: Any, input: Any, other: Any) -> Tensor:
    """Return `input` where the condition (bool) holds, `other` elsewhere, elementwise.

    Source: torch.where.
    """
    if hasattr(type(input), "filled_where"):  # scores of attention
        return input.filled_where(condition, other)
    if hasattr(type(other), "filled_where"):
        return other.masked_fill(condition, input)
    return elementwise.where(condition, input, other)


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return matrices ``(*, n, m)`` with zeros above a diagonal, counted from the main one. Source: torch.tril."""
    return input.tril(diagonal)


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Return matrices ``(*, n, m)`` with zeros below a diagonal, counted from the main one. Source: torch.triu."""
    return input.triu(diagonal)


def _tensors(name: str, tensors: Sequence[Any]) -> list[Tensor]:
    given = list(tensors)
    if not given:
        raise ShapeError(f"{name}: expected at least one tensor")
    if any(getattr(t, "is_stream", False) for t in given):
        given = [t.as_stream() if is_filled(t) else t for t in given]
    for t in given:
        if not (isinstance(t, Tensor) or is_constant(t)):
            if hasattr(type(t), "refuse"):
                t.refuse(name)
            raise DTypeError(f"{name}: expected tensors, got {type(t).__name__}")
    return given


def _joined_later(function: Callable[..., Any], tensors: Sequence[Any], dim: int) -> Any:
    """Return what `cat` or `stack` give of first frames, or of what no stream is among; None of all others."""
    if (first := next((t for t in tensors if hasattr(type(t), "apply_function")), None)) is not None:
        return first.apply_function(function.__name__, function, (tensors, dim), {})
    library = library_of(tensors) or elementwise.library_among(tensors)
    return None if library is None else library.defer(function, (tensors, dim), {})


def _leader(tensors: list[Tensor]) -> Tensor:
    """Return the tensor whose class knows how these are joined: the first stream, if there is one."""
    return next((t for t in tensors if t.is_stream), tensors[0])


def _cat(self: Tensor, tensors: list[Tensor], dim: int) -> Tensor:
    """Join plain tensors; a class of streams has its own, and gets lists that hold one of its tensors."""
    dtype = dtypes.common("cat", [t.dtype for t in tensors])
    if len({t.ndim for t in tensors}) > 1 or tensors[0].ndim == 0:
        raise ShapeError(f"cat: expected equal numbers of dimensions, got {[t.ndim for t in tensors]}")
    axis = axis_of("cat", dim, tensors[0].ndim)
    try:
        return made("cat", *[t.to(dtype) for t in tensors], axis=axis)
    except ValueError:
        shapes = ", ".join(str(t.shape) for t in tensors)
        raise ShapeError(f"cat: only sizes of dimension {axis} may differ, got shapes {shapes}") from None


take(Tensor, new_tensor=_new_tensor, new_full=_new_full, **_new, _cat=_cat)
