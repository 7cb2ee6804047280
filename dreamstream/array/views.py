"""Sizes, orders and selections of plain tensors: torch's methods on NumPy's views.

Everything here works on dimensions, so a class of tensors whose dimensions mean more overrides it.
Results share memory with the tensor wherever NumPy's do (torch's views), else they are copies;
``expand`` gives memory that can't be written. Each public function here is the method of
tensors of its name. Source: the method of `torch.Tensor` of the same name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, NotStreamableError, ShapeError, StreamIndexError
from ..stream.rules import Length, Rows
from . import dtypes
from .deferred import are_positions, is_deferred, library_of
from .dimension_arguments import axes_of, axis_of, sizes_of, solve_sizes
from .elementwise import plain_array, refuse_in_place, refuse_streams, rows_at
from .frame_numbers import number_in
from .hook import made
from .in_place import became, written
from .loop_frames import row_of
from .symbolic import Symbolic
from .tables import table
from .tensor import Tensor, each, take


# ------------------------------------------------------------------ sizes
def reshape(self: Tensor, *given: Any, shape: Any = ()) -> Tensor:
    """Return the elements in another shape; one size may be -1."""
    sizes = solve_sizes("reshape", self.shape, sizes_of(given, shape))
    return made("reshape", self, shape=sizes)


def view(self: Tensor, *given: Any, size: Any = ()) -> Tensor:
    """Return the elements in another shape, sharing memory.

    Raises
    ------
    ShapeError
        Where that needs a copy.
    """
    if len(given) == 1 and isinstance(given[0], (np.dtype, type)):
        raise DTypeError("view: reading memory as another type is not offered; use .to(dtype)")
    out = made("reshape", self, shape=solve_sizes("view", self.shape, sizes_of(given, size)))
    if out.numel() and not np.may_share_memory(out.numpy(), self._array):
        raise ShapeError("view: the elements don't lie in this order in memory; use .reshape(...)")
    return out


def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Return the tensor with dimensions `start_dim` to `end_dim` joined."""
    if self.ndim == 0:
        return self.reshape(1)
    first, last = self._axis("flatten", start_dim), self._axis("flatten", end_dim)
    if first > last:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    joined = math.prod(self.shape[first : last + 1])
    return self.reshape(*self.shape[:first], joined, *self.shape[last + 1 :])


def unflatten(self: Tensor, dim: int, sizes: Sequence[Any]) -> Tensor:
    """Return the tensor with dimension `dim` split into `sizes`; one of them may be -1."""
    axis = self._axis("unflatten", dim)
    parts = solve_sizes("unflatten", (self.shape[axis],), tuple(sizes))
    return self.reshape(*self.shape[:axis], *parts, *self.shape[axis + 1 :])


def squeeze(self: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Return the tensor without dimensions of size 1: all of them, or those of `dim` that are."""
    axes = axes_of("squeeze", dim, self.ndim) if dim != () else ()
    return made("reshape", self, shape=tuple(n for a, n in enumerate(self.shape) if n != 1 or a not in axes))


def unsqueeze(self: Tensor, dim: int) -> Tensor:
    """Return the tensor with a dimension of size 1 at `dim`."""
    axis = axis_of("unsqueeze", dim, self.ndim + 1)
    return made("reshape", self, shape=(*self.shape[:axis], 1, *self.shape[axis:]))


def expand(self: Tensor, *given: Any, size: Any = ()) -> Any:
    """Return the tensor with dimensions of size 1 repeated without a copy; -1 keeps a size.

    With a stream's ``x.size(B)`` as one size it gives a `Deferred`, with ``x.size(L)`` a stream.
    """
    sizes = sizes_of(given, size)
    if any(isinstance(s, Length) for s in sizes):
        new = len(sizes) - self.ndim
        known = [self.shape[i - new] if isinstance(s, int) and s == -1 else s for i, s in enumerate(sizes)]
        zeros = Symbolic.filled(known, Tensor(np.zeros(1, self.dtype))).as_stream()
        out = zeros.logical_or(self) if self.dtype == dtypes.bool else zeros + self
        out.alike = out.edge, self
        return out
    batch = [i for i, s in enumerate(sizes) if isinstance(s, Rows)]
    if batch:
        once = self.expand(*[1 if i in batch else s for i, s in enumerate(sizes)])
        return sizes[batch[0]].edge.entry.library.of_batch(once, batch, sizes[batch[0]])
    new = len(sizes) - self.ndim
    wanted = tuple(
        self.shape[i - new] if s == -1 and i >= new else s for i, s in enumerate(map(operator.index, sizes))
    )
    try:
        return made("expand", self, shape=wanted)
    except ValueError:
        raise ShapeError(f"expand: a tensor of shape {self.shape} can't become {sizes}") from None


def repeat(self: Tensor, *given: Any, repeats: Any = ()) -> Any:
    """Return the tensor laid end to end `repeats` times along each dimension.

    With a stream's ``x.size(B)`` it gives a `Deferred`.
    """
    times = sizes_of(given, repeats)
    if len(times) < self.ndim:
        raise ShapeError(f"repeat: {len(times)} numbers for a tensor of {self.ndim} dimensions")
    lengths = [i for i, n in enumerate(times) if isinstance(n, Length)]
    if lengths:
        if any(self.ndim + i >= len(times) and self.shape[self.ndim + i - len(times)] != 1 for i in lengths):
            times[lengths[0]]._misuse("how often more than one element is repeated")
        once = self.repeat(*[1 if isinstance(n, (Length, Rows)) else n for n in times])
        return once.expand(*[n if isinstance(n, (Length, Rows)) else -1 for n in times])
    batch = [i for i, n in enumerate(times) if isinstance(n, Rows)]
    if batch:
        once = self.repeat(*[1 if i in batch else n for i, n in enumerate(times)])
        rows = times[batch[0]] * once.shape[batch[0]]
        return rows.edge.entry.library.of_batch(once, batch, rows)
    counts = tuple(map(operator.index, times))
    if any(n < 0 for n in counts):
        raise ShapeError(f"repeat: numbers must not be negative, got {times}")
    sizes = (1,) * (len(counts) - self.ndim) + self.shape
    once = self.reshape([n for size in sizes for n in (1, size)])
    wide = once.expand([n for pair in zip(counts, sizes) for n in pair]).clone()
    return wide.reshape([n * size for n, size in zip(counts, sizes)])


# ------------------------------------------------------------------ order
def permute(self: Tensor, *given: Any, dims: Any = ()) -> Tensor:
    """Return the tensor with its dimensions in the order `dims`."""
    order = tuple(axis_of("permute", d, self.ndim) for d in sizes_of(given, dims))
    if sorted(order) != list(range(self.ndim)):
        raise ShapeError(f"permute: {order} is no order of {self.ndim} dimensions")
    return made("permute", self, order=order)


def movedim(self: Tensor, source: int, destination: int) -> Tensor:
    """Return the tensor with dimension `source` moved to `destination`."""
    axes = list(range(self.ndim))
    moved = axes.pop(self._axis("movedim", source))
    axes.insert(self._axis("movedim", destination), moved)
    return self.permute(*axes)


def t(self: Tensor) -> Tensor:
    """Return the transpose of a matrix; a tensor of fewer dimensions as it is."""
    if self.ndim > 2:
        raise ShapeError(f"t: expected at most 2 dimensions, got {self.ndim}; use .transpose or .mT")
    return self.permute(*range(self.ndim - 1, -1, -1))


def _reversed(self: Tensor) -> Tensor:
    """The tensor with its dimensions in reverse order."""
    return self.permute(*range(self.ndim - 1, -1, -1))


def repeat_interleave(
    self: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Return the tensor with each element along `dim` repeated: as often for all, or by a 1-D tensor.

    Without `dim` the tensor is flattened first.
    """
    times = plain_array("repeat_interleave", repeats, dtypes.int64) if isinstance(repeats, Tensor) else repeats
    axis = 0 if dim is None else self._axis("repeat_interleave", dim)
    x = self.reshape(-1) if dim is None else self
    if np.min(times, initial=0) < 0 or np.ndim(times) > 1:
        raise ShapeError(f"repeat_interleave: repeats must be one or more counts, got {repeats}")
    if np.size(times) not in (1, x.shape[axis] if x.ndim else 1):
        raise ShapeError(f"repeat_interleave: {np.size(times)} repeats for {x.shape[axis]} elements")
    x = x if x.ndim else x.reshape(1)
    n = x.shape[axis]
    out = made("index_select", x, index=np.repeat(np.arange(n), np.broadcast_to(times, n)), axis=axis)
    if output_size not in (None, out.shape[axis]):
        raise ShapeError(f"repeat_interleave: {out.shape[axis]} elements, not {output_size}")
    return out


def flip(self: Tensor, *given: Any, dims: Any = ()) -> Tensor:
    """Return the tensor reversed along `dims`."""
    chosen = sizes_of(given, dims)
    axes = axes_of("flip", chosen, self.ndim) if chosen else ()
    out = self if axes else self.clone()
    for axis in axes:
        out = made("index_select", out, index=np.arange(self.shape[axis])[::-1], axis=axis)
    return out


@each(tril="above", triu="below")
def _triangle(name: str) -> Any:
    def triangle(self: Tensor, diagonal: int = 0) -> Tensor:
        """Return matrices ``(*, n, m)`` with zeros {} a diagonal, counted from the main one."""
        if self.ndim < 2:
            raise ShapeError(f"{name}: expected at least 2 dimensions, got {self.ndim}")
        if self.is_stream and any(isinstance(d, str) for d in self.dims[-2:]):  # type: ignore[attr-defined]
            raise NotStreamableError.here(f"{name} of a stream: of matrices within each frame it streams")
        ones = np.ones(self.shape[-2:], np.bool_)
        hidden = np.triu(ones, diagonal + 1) if name == "tril" else np.tril(ones, diagonal - 1)
        return self.masked_fill(self._plain(hidden), self.dtype.type(0).item())

    return triangle


def roll(self: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Return the tensor with elements moved on by `shifts`, those beyond the end to the start."""
    if dims is None:
        return self.reshape(-1).roll(shifts, 0).reshape(self.shape)
    axes, by = sizes_of((dims,)), sizes_of((shifts,))
    if len(by) != len(axes):
        raise ShapeError(f"roll: {len(by)} shifts for {len(axes)} dimensions")
    out = self if axes else self.clone()
    for axis, shift in zip(axes_of("roll", dims, self.ndim), by):
        out = made("index_select", out, index=np.roll(np.arange(self.shape[axis]), shift), axis=axis)
    return out


def contiguous(self: Tensor) -> Tensor:
    """Return the tensor itself where its elements lie in order in memory, else a copy."""
    return self if self._array.flags.c_contiguous else made("contiguous", self)


def clone(self: Tensor) -> Tensor:
    """Return a copy."""
    return made("clone", self)


# ------------------------------------------------------------------ parts
def narrow(self: Tensor, dim: int, start: int, length: Any) -> Any:
    """Return `length` elements from `start` on along `dim`."""
    if isinstance(length, Length):
        part = slice(start, length + start if start else length)
        return table(self, (*(slice(None),) * self._axis("narrow", dim), part))
    axis, size = self._axis("narrow", dim), self.size(dim)
    first, n = operator.index(start), operator.index(length)
    begin = first + size if first < 0 else first
    if begin < 0 or n < 0 or begin + n > size:
        raise StreamIndexError(f"narrow: {n} elements from {first} on don't lie within {size}")
    return made("index", self, index=(slice(None),) * axis + (slice(begin, begin + n),))


def select(self: Tensor, dim: int, index: int) -> Tensor:
    """Return the part at `index` along `dim`, without that dimension."""
    axis, size = self._axis("select", dim), self.size(dim)
    if not -size <= operator.index(index) < size:
        raise StreamIndexError(f"select: index {index} is out of range for size {size}")
    return made("index", self, index=(slice(None),) * axis + (operator.index(index), ...))


def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return all parts along `dim`, without that dimension."""
    axis = self._axis("unbind", dim)
    return tuple(self.select(axis, i) for i in range(self._count("unbind", axis)))


def split(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return parts of `split_size` (the last may be smaller), or of the given sizes, along `dim`."""
    axis = self._axis("split", dim)
    n = self._count("split", axis)
    if isinstance(split_size, (tuple, list)):
        sizes = [operator.index(s) for s in split_size]
        if sum(sizes) != n or min(sizes, default=0) < 0:
            raise ShapeError(f"split: sizes {sizes} don't add up to {n}")
    else:
        size = operator.index(cast(int, split_size))
        if size < 0 or (size == 0 and n > 0):
            raise ShapeError(f"split: the size must be positive, got {size}")
        sizes = [min(size, n - i) for i in range(0, n, size or 1)] or [0]
    return self._parts(axis, sizes)


def _count(self: Tensor, name: str, axis: int) -> int:
    return int(self.shape[axis])


def _parts(self: Tensor, axis: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(self.narrow(axis, start, size) for start, size in zip(starts, sizes))


def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return at most `chunks` parts of equal size (the last may be smaller) along `dim`."""
    if chunks < 1:
        raise ShapeError(f"chunk: the number must be at least 1, got {chunks}")
    axis = self._axis("chunk", dim)
    n = self._count("chunk", axis)
    return self.split(-(-n // chunks), axis) if n else self.split([0] * chunks, axis)


def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return windows of `size` elements, `step` apart, along `dimension`; the window comes last.

    A dimension that is shorter than a window gives none.
    """
    axis = self._axis("unfold", dimension)
    if size < 1 or step < 1:
        raise ShapeError(f"unfold: size and step must be at least 1, got {size} and {step}")
    return made("unfold", self, axis=axis, size=size, step=step)


def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return elements chosen along `dim` by an int64 tensor of as many dimensions."""
    axis = self._axis("gather", dim)
    refuse_streams("gather of a constant", [index])
    where = plain_array("gather", index, dtypes.int64)
    if where.ndim != self.ndim:
        raise ShapeError(f"gather: an index of {where.ndim} dimensions for a tensor of {self.ndim}")
    if any(w > n for i, (w, n) in enumerate(zip(where.shape, self.shape)) if i != axis):
        raise ShapeError(f"gather: an index of shape {where.shape} for a tensor of shape {self.shape}")
    _check_range("gather", where, self.shape[axis])
    part = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(where.shape))
    return made("gather", made("index", self, index=part), index=where, axis=axis)


def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the parts along `dim` that a 1-D int64 tensor names."""
    axis = self._axis("index_select", dim)
    if is_deferred(index):
        return self[index] if axis == 0 else self.movedim(axis, 0)[index].movedim(0, axis)
    if axis == 0 and (rows := rows_at(self, [index])) is not None:
        return rows
    refuse_streams("index_select of a constant", [index])
    where = plain_array("index_select", index, dtypes.int64)
    if where.ndim > 1:
        raise ShapeError(f"index_select: expected a 1-D index, got shape {where.shape}")
    _check_range("index_select", where, self.shape[axis])
    return made("index_select", self, index=where.reshape(-1), axis=axis)


def masked_select(self: Tensor, mask: Tensor) -> Tensor:
    """Return the elements where a bool tensor holds, in order, as one dimension."""
    flags = plain_array("masked_select", mask, dtypes.bool)
    shape = np.broadcast_shapes(self.shape, flags.shape)
    return made("index", self.expand(shape), index=np.broadcast_to(flags, shape))


# ------------------------------------------------------------------ brackets
def __getitem__(self: Tensor, index: Any) -> Any:
    if number_in(index):
        return row_of(self, index)
    parts = index if isinstance(index, tuple) else (index,)
    cuts = [p.stop for p in parts if isinstance(p, slice) and isinstance(p.stop, Length)]
    if len(cuts) > 1:  # what stands at pairs of frames
        return cuts[0].edge.entry.library.defer_method("__getitem__", (self, index), {})
    if (library := library_of(parts)) is not None:
        return library.defer(Tensor.__getitem__, (self, index), {})
    parts = tuple(map(_rows_in_turn, parts))
    if any(_has_length(p) for p in parts):
        return table(self, parts)
    if (rows := rows_at(self, parts)) is not None:
        return rows
    try:
        return made("index", self, index=_numpy_index(parts))
    except (IndexError, ValueError) as error:
        raise StreamIndexError(f"index {index!r} for a tensor of shape {self.shape}: {error}") from None


def __setitem__(self: Tensor, index: Any, value: Any) -> None:
    refuse_in_place(self, "assignment to elements")
    parts = index if isinstance(index, tuple) else (index,)
    if getattr(value, "is_stream", False) or any(getattr(p, "is_stream", False) for p in parts):
        raise NotStreamableError.here(
            "frames are written into a constant,",
            ": streams keep what they need of earlier frames, as attention its keys, and their slices reach back "
            "across calls; leave caches out, and join frames with constants by ds.prepend or cat",
        )
    source, where = plain_array("assignment", value) if isinstance(value, (Tensor, np.ndarray)) else value, None
    try:
        where = _numpy_index(parts)
        self._array[where] = source
    except (IndexError, ValueError) as error:
        raise StreamIndexError(f"index {index!r} for a tensor of shape {self.shape}: {error}") from None
    written(self, "assignment to elements", value, where)


def __len__(self: Tensor) -> int:
    if self.ndim == 0:
        raise TypeError("a tensor without dimensions has no length")
    return int(self.shape[0])


def __iter__(self: Tensor) -> Any:
    if self.ndim == 0:
        raise TypeError("a tensor without dimensions can't be iterated over")
    return iter(self.unbind(0))


def __contains__(self: Tensor, value: Any) -> bool:
    return bool((self == value).any())


# ------------------------------------------------------------------ in place
def _write(self: Tensor, name: str, value: Tensor) -> Tensor:
    """Write a plain tensor, expanded, into this one."""
    refuse_in_place(self, name)
    source = plain_array(name, value)
    if dtypes.common(name, [self.dtype, source.dtype]) != self.dtype:
        raise DTypeError(f"{name}: a result of {source.dtype} doesn't fit into a tensor of {self.dtype}")
    try:
        self._array[...] = source
    except ValueError:
        raise ShapeError(f"{name}: shape {source.shape} doesn't fit into {self.shape}") from None
    became(self, name, value)
    return self


def zero_(self: Tensor) -> Tensor:
    """Set all elements to zero."""
    return self.fill_(0)


def fill_(self: Tensor, value: Any) -> Tensor:
    """Set all elements to a number, or a tensor of one element."""
    refuse_in_place(self, "fill_")
    self._array[...] = value.item() if isinstance(value, Tensor) else value
    written(self, "fill_", value)
    return self


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copy the elements of `src`, expanded and converted, into this tensor."""
    given = src if isinstance(src, Tensor) else self._plain(plain_array("copy_", src))
    refuse_in_place(self, "copy_")
    try:
        self._array[...] = plain_array("copy_", given)
    except ValueError:
        raise ShapeError(f"copy_: shape {given.shape} doesn't fit into {self.shape}") from None
    written(self, "copy_", given)
    return self


def _check_range(name: str, index: NDArray[Any], size: int) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        raise StreamIndexError(f"{name}: an index is out of range for size {size}")


def _rows_in_turn(part: Any) -> Any:
    """Return positions, one for each frame in turn, as the slice of a table that they take."""
    if are_positions(part) and part.roles == ("L",) and type(part.value) is int:
        return slice(part.value, part.length + part.value) if part.value >= 0 else part
    return part


def _has_length(part: Any) -> bool:
    if isinstance(part, slice):
        return any(isinstance(p, Length) for p in (part.start, part.stop, part.step))
    return isinstance(part, Length)


def _numpy_index(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an index with arrays in place of tensors; an Ellipsis at the end makes it give views."""
    out = tuple(_index_part(p) for p in parts)
    return out if any(p is Ellipsis for p in out) else (*out, ...)


def _index_part(part: Any) -> Any:
    if isinstance(part, slice):
        if part.step is not None and operator.index(part.step) < 1:
            raise StreamIndexError("a slice's step must be at least 1; use .flip")
        return slice(*(None if p is None else operator.index(p) for p in (part.start, part.stop, part.step)))
    if part is None or part is Ellipsis or isinstance(part, (bool, np.bool_)):
        return part
    if isinstance(part, (Tensor, np.ndarray, list, tuple)):
        array = plain_array("an index", part)
        if array.size == 0 and not isinstance(part, (Tensor, np.ndarray)):
            array = array.astype(dtypes.int64)
        if dtypes.is_float(array.dtype):
            raise StreamIndexError(f"an index must be int64 or bool, not {array.dtype}")
        return array if array.ndim or array.dtype == dtypes.bool else int(array)
    return operator.index(part)


take(Tensor, globals(), _write=_write, _count=_count, _parts=_parts, **_triangle, T=property(_reversed))
