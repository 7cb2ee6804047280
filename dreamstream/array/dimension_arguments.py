"""Dimensions and sizes as callers write them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from .. import _core
from ..errors import ShapeError, StreamIndexError
from ..stream.rules import Length

if TYPE_CHECKING:
    from typing_extensions import Self

Shape = tuple[int, ...]


def in_c_order(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array itself where its elements lie in the order of their indices, else a copy that does so."""
    return array if array.flags.c_contiguous else _core.joined((array,))


def axis_of(name: str, dim: Any, ndim: int) -> int:
    """Return `dim` counted from the front, or raise StreamIndexError; where there are no dimensions, 0 is one."""
    axis, n = operator.index(dim), max(ndim, 1)
    if not -n <= axis < n:
        raise StreamIndexError(f"{name}: dimension {axis} is out of range for a tensor of {ndim} dimensions")
    return axis % n


class LikeOthers:
    """What may have the sizes or the element type of another."""

    def view_as(self: Any, other: Any) -> Any:
        """Return the elements in the shape of `other`, sharing memory."""
        return self.view(*other.shape)

    def reshape_as(self: Any, other: Any) -> Any:
        """Return the elements in the shape of `other`."""
        return self.reshape(*other.shape)

    def expand_as(self: Any, other: Any) -> Any:
        """Return the tensor expanded to the shape of `other`."""
        return self.expand(*other.shape)

    def type_as(self: Any, other: Any) -> Any:
        """Return the tensor with the element type of `other`."""
        return self.to(other.dtype)


class HasShape(LikeOthers):
    """What has sizes: its looks that follow from `shape`, `permute`, `reshape`, `expand` and `to`."""

    shape: Any
    _axis: Callable[[str, Any], int]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """Return all sizes, or that of dimension `dim`."""
        return self.shape if dim is None else self.shape[self._axis("size", dim)]

    def transpose(self, dim0: int, dim1: int) -> Self:
        """Return it with two dimensions exchanged."""
        order = list(range(self.ndim))
        if order:
            a, b = self._axis("transpose", dim0), self._axis("transpose", dim1)
            order[a], order[b] = order[b], order[a]
        return self.permute(*order)  # type: ignore[attr-defined]

    def swapaxes(self, axis0: int, axis1: int) -> Self:
        """Return it with two dimensions exchanged."""
        return self.transpose(axis0, axis1)

    @property
    def mT(self) -> Self:
        """It with its last two dimensions exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 dimensions, got {self.ndim}")
        return self.transpose(-2, -1)


class Unnamed(HasShape):
    """What has sizes, and dimensions without names."""

    swapdims = HasShape.swapaxes

    @property
    def names(self) -> tuple[str | None, ...]:
        """One name per dimension."""
        return (None,) * self.ndim

    def _axis(self, name: str, dim: Any) -> int:
        return axis_of(name, dim, self.ndim)


class Described(Unnamed):
    """What is known by what each of its dimensions is, `parts`: views that only put these in another order."""

    _one: Any = 1  # what a dimension of size 1 is
    parts: Sequence[Any]
    _seen: Callable[[Sequence[Any]], Any]  # the same, known by others

    def permute(self, *given: Any, dims: Any = ()) -> Any:
        """Return it with its dimensions in an order."""
        return self._seen([self.parts[axis_of("permute", d, self.ndim)] for d in sizes_of(given, dims)])

    def unsqueeze(self, dim: int) -> Any:
        """Return it with a dimension of size 1 at `dim`."""
        at = axis_of("unsqueeze", dim, self.ndim + 1)
        return self._seen([*self.parts[:at], self._one, *self.parts[at:]])

    def squeeze(self, dim: int | None = None) -> Any:
        """Return it without dimensions of size 1, or without this one."""
        at = None if dim is None else axis_of("squeeze", dim, self.ndim)
        return self._seen(
            [
                p
                for i, p in enumerate(self.parts)
                if type(p) is not type(self._one) or p != self._one or at not in (None, i)
            ]
        )


def axes_of(name: str, dim: Any, ndim: int) -> Shape:
    """Return one or several dimensions, or all (None and ()), counted from the front."""
    if dim is None:
        return tuple(range(ndim))
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    axes = tuple(axis_of(name, d, ndim) for d in dims) or tuple(range(ndim))
    if len(set(axes)) != len(axes):
        raise StreamIndexError(f"{name}: a dimension appears twice in {dims}")
    return axes if ndim else ()


def numbered(dims: Sequence[Any]) -> tuple[Any, ...]:
    """Return a stream's dimensions with the features among them stored in their order."""
    features = iter(range(len(dims)))
    return tuple(d if isinstance(d, str) else next(features) for d in dims)


def sizes_of(args: Sequence[Any], named: Any = ()) -> tuple[Any, ...]:
    """Return sizes given one by one or as one sequence, or by their name."""
    args = args or (named,)
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple([n.settled() if isinstance(n, Length) else n for n in args])


def solve_sizes(name: str, shape: Shape, sizes: Sequence[Any]) -> Shape:
    """Return `sizes` with their one -1 replaced, for a tensor of this shape; ShapeError where they don't fit."""
    wanted = [operator.index(s) for s in sizes]
    n_elements, known = math.prod(shape), math.prod(s for s in wanted if s != -1)
    fits = all(s >= -1 for s in wanted)
    if -1 in wanted and wanted.count(-1) == 1 and known > 0:
        wanted[wanted.index(-1)] = n_elements // known
    if not fits or -1 in wanted or math.prod(wanted) != n_elements:
        raise ShapeError(f"{name}: a tensor of shape {shape} can't take the shape {tuple(sizes)}")
    return tuple(wanted)


def parts_of(index: Any, ndim: int) -> list[Any]:
    """Return the parts of an index, one for each dimension and each new one."""
    parts = list(index) if type(index) is tuple else [index]
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
    parts[at : at + 1] = [slice(None)] * (ndim - sum(p is not None and p is not Ellipsis for p in parts))
    return parts
