"""Rules for the names of dimensions.

``"B"`` names the batch and ``"L"`` the stream axis; every other name is free, and None is no name.
Dimensions that were merged have their names joined with ``_``: ``"B_L"``, ``"F_D"`` (a nameless part
is written ``?``). So a name that has B or L among its ``_``-parts counts as holding that dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import DTypeError, ShapeError
from ._ints import as_int

__all__ = ["BATCH", "LENGTH", "Names", "check_names", "default_names", "holds", "join", "order_of", "resolve"]

BATCH = "B"
LENGTH = "L"

Names = tuple[str | None, ...]

_DEFAULTS: dict[int, Names] = {2: ("B", "L"), 3: ("B", "F", "L")}


def _text(names: Sequence[str | None]) -> str:
    return f"({', '.join(map(str, names))})"


def holds(name: str | None, dim: str) -> bool:
    """Return whether a dimension of that name is, or was merged from, ``"B"`` or ``"L"``."""
    return name is not None and dim in name.split("_")


def default_names(rank: int) -> Names:
    """Return ``("B", "F", "L")`` for three dimensions and ``("B", "L")`` for two; others need names."""
    if rank not in _DEFAULTS:
        raise ShapeError(
            f"{rank} dimensions have no default names; pass names=, one per dimension, "
            'with "B" for the streams and "L" for the stream axis'
        )
    return _DEFAULTS[rank]


def check_names(names: Sequence[str | None], rank: int) -> Names:
    """Return names as a tuple, one per dimension, or raise ShapeError or DTypeError."""
    if isinstance(names, str):
        raise DTypeError(f"names must be a sequence with one name per dimension, got {names!r}")
    names = tuple(names)
    for name in names:
        if not (name is None or isinstance(name, str)):
            raise DTypeError(f"a name must be a string or None, got {name!r}")
        if name == "":
            raise ShapeError("a name must not be empty; None stands for no name")
    if len(names) != rank:
        raise ShapeError(f"{len(names)} names {_text(names)} for {rank} dimensions")
    parts = "_".join([n or "" for n in names]).split("_")
    for dim in (BATCH, LENGTH):
        if parts.count(dim) > 1:
            raise ShapeError(f'names {_text(names)} hold "{dim}" more than once')
    return names


def resolve(names: Sequence[str | None], dim: int | str) -> int:
    """Return the index, 0 or more, of a dimension given by number or by name."""
    rank = len(names)
    if isinstance(dim, str):
        count = list(names).count(dim)
        if count != 1:
            how = "no dimension" if count == 0 else "more than one dimension"
            raise ShapeError(f"{how} is named {dim!r} in {_text(names)}")
        return list(names).index(dim)
    number = as_int(dim, "a dimension")
    if not -rank <= number < rank:
        raise ShapeError(f"dimension {number} of {rank}: must be from {-rank} to {rank - 1}")
    return number % rank


def order_of(names: Sequence[str | None], dims: Sequence[int | str]) -> tuple[int, ...]:
    """Return `dims`, given by number or name, as a permutation of numbers, or raise ShapeError."""
    order = tuple(resolve(names, d) for d in dims)
    if sorted(order) != list(range(len(names))):
        raise ShapeError(f"{tuple(dims)} does not hold each of the {len(names)} dimensions once")
    return order


def join(names: Sequence[str | None], start: int | str, end: int | str) -> Names:
    """Return the names after the dimensions from `start` to `end`, inclusive, became one.

    Raises
    ------
    ShapeError
        `start` lies behind `end`.

    Examples
    --------
    >>> join(("B", "L", "F"), 0, 1)
    ('B_L', 'F')
    """
    a, b = resolve(names, start), resolve(names, end)
    if a > b:
        raise ShapeError(f"can't merge dimensions {a} to {b}: the first lies behind the last")
    parts = names[a : b + 1]
    joined = None if all(n is None for n in parts) else "_".join(n or "?" for n in parts)
    return (*names[:a], joined, *names[b + 1 :])
