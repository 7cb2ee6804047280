"""Positions, ``arange(x.size(L))``, integers that a forward computes of them, and the frames that these pick."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import operations
from ..errors import NotStreamableError
from ..operations import ARITHMETIC, OPERATIONS
from ..stream.rules import BatchSize, Length, is_full_slice
from .deferred import SERVES_FRAMES, Deferred, are_positions, has_formula, is_computed, is_deferred
from .dimension_arguments import parts_of
from .lengths_as_numbers import count_of
from .lengths_of import SAME_ORDER
from .stream_tensor import StreamTensor
from .symbolic import Symbolic
from .writing import copied

#: Functions of single elements.
ELEMENTWISE = frozenset((
    "where_function", *ARITHMETIC, *(f"r{name}" for name in ARITHMETIC),
    *(name for name, row in OPERATIONS.items() if row.outside == "elementwise"),
))  # fmt: skip
SHAPES = (
    "to", "long", "int", "type", "type_as", "unsqueeze", "squeeze", "view", "reshape", "expand", "expand_as",
    "repeat", "getitem", "contiguous", "clone", "detach",
)  # fmt: skip


def positions(start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Any:
    """Return ``arange(start, end, step)`` where a bound is a length, as positions or as a deferred value."""
    if isinstance(end, BatchSize) and (start, step, end.times) == (0, 1, 1):
        return SAME_ORDER
    fixed = not isinstance(start, Length) and start == math.floor(start)
    if fixed and isinstance(step, int) and step > 1:
        out: Any = Symbolic(0, ("L",), (end - int(start) + (step - 1)) // step, True)
        out = out * step + int(start)
        return out if dtype is None else out.to(dtype)
    if not fixed or step != 1:
        of: Any = end if isinstance(end, Length) else start
        return of.edge.entry.library.defer_method(
            "arange", (start, end, step), {} if dtype is None else {"dtype": dtype}
        )
    out = Symbolic(start, ("L",), end - int(start), True)
    return out if dtype is None else out.to(dtype)


def integers(x: Any) -> bool:
    """Whether a tensor of either library holds integers."""
    return "int" in str(getattr(x, "dtype", ""))


#: Functions that `of_masks` follows, beside those that change types and shapes.
_OF_MASKS = frozenset(("add", "radd", "sub", "rsub", "mul", "rmul", "neg"))


def of_masks(x: Any) -> bool:
    """Whether deferred integers come of a bool mask, as ``mask.long()`` and ``1 - mask.long()`` do."""
    if type(x) is not Deferred:
        return False
    name, given = x.func.__name__.strip("_"), [a for a in x.arguments() if is_deferred(a)]
    if name in ("to", "type", "long", "int"):
        return given[0].dtype in (bool, x.library.types[bool]) or of_masks(given[0])
    return (name in _OF_MASKS or name in SHAPES) and bool(given) and all(map(of_masks, given))


def number_of_all(x: Any) -> Any:
    """Return the number that a tensor made for all streams, as ``full((B, 1), 3)``, holds; else `x`.

    For one with features, as ``full((B, 4), 3)``, it is a tensor of these.
    """
    if not has_formula(x) or "L" in x.roles or x.everywhere() is None:
        return x
    several = any(isinstance(role, int) and role != 1 for role in x.roles)
    return x.library.array(x.beside_frames().numpy()) if several else x.value


def lined_up(func: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return operands of an elementwise function; streams get leading dimensions, as many as constants have."""
    streams = [getattr(x, "is_stream", False) for x in args]
    n = max((x.ndim for x, own in zip(args, streams) if hasattr(x, "ndim") and not own), default=0)
    name = func.__name__.strip("_")
    if name not in ELEMENTWISE and name not in (*operations.ELEMENTWISE, "where"):
        return tuple(args)
    return tuple(x[(None,) * (n - x.ndim)] if own and x.ndim < n else x for x, own in zip(args, streams))


def first_row(at: Any, repeated: bool = False) -> tuple[int, Length, int, int] | None:
    """Return start, length, number of axes and own axis of positions ``start, start + 1, ...``; None for others.

    With `repeated`, the other axes may have any size, else only 1.
    """
    found = _probed(at)
    if found is None or (not repeated and any(isinstance(s, int) and s != 1 for s in at.shape)):
        return None
    place, several = found
    start = int(several[0].flat[0])
    if start < 0 or any((rows != np.arange(start, start + len(rows))[:, None]).any() for rows in several):
        return None
    return start, at.shape[place], len(at.shape), place


def is_of_each(at: Any) -> bool:
    """Whether integers are of a position each, as ``i // 2``: the same whatever follows, unlike ``i.flip(0)``."""
    found = _probed(at)
    if found is None:
        return False
    few, more = found[1]
    least = min(len(few), len(more))
    return bool((few[:least] == more[:least]).all())


def _probed(at: Any) -> tuple[int, list[Any]] | None:
    """Return where integers of one position have L, and what they are at two lengths; None of all others."""
    places = [i for i, s in enumerate(at.shape) if isinstance(s, Length)]
    if len(places) != 1 or not integers(at):
        return None
    return places[0], [_rows_of(at, places[0], n) for n in (64, 65 if at.is_formula else at.frames + 1)]


def unknown(x: Any) -> NotStreamableError:
    """Return the refusal of integers that are no function of one position."""
    if has_formula(x) and not x.position and isinstance(x.value, Length):
        return NotStreamableError.here(
            f"a mask of {x!r} meets frames,",
            ": the counts don't show that these lengths cover all frames of every stream; derive them as the "
            "layers do, from lengths that the forward is given",
        )
    return NotStreamableError.here(
        f"{x!r} meet a stream,", f": they are no function of one position; {SERVES_FRAMES}"
    )


# ---------------------------------------------------------------------- frames picked by positions
#: Functions that index frames, with a function of their arguments that gives dimension and index.
PICKING: dict[str, Callable[..., tuple[Any, Any]]] = {
    "__getitem__": lambda index: (None, index),
    "index_select": lambda dim, index: (dim, index),
    "gather": lambda dim, index: (dim, index),
    "take_along_dim": lambda indices, dim=None: (dim, indices),
}


def indexed(x: Any, name: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Return the dimension and the index of a call; None as dimension where brackets index more than L."""
    dim, at = PICKING[name](*args, **kwargs)
    if name == "__getitem__":
        parts = parts_of(at, x.ndim)
        dim = next((i for i, p in enumerate(parts) if isinstance(p, Deferred)), None)
        at = None if dim is None else parts.pop(dim)
        dim = dim if all(map(is_full_slice, parts)) else None
    return dim, at


def index_frames(x: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Return the frames that an index computed of positions selects; None for all other indices.

    Such are ``x[:, i]``, ``x.index_select(1, i)``, ``x.gather(1, i)``, with ``i = (arange(T) - 2).clamp(min=0)``;
    ``x[:, (i[:, None] + arange(3)).clamp(0, T - 1)]`` takes three for each frame. A limit pads by the first or the
    last frame. What ``arange(2, T)``, ``arange(0, T, 2)`` and ``arange(2 * T) // 2`` take are slices and repeated
    frames. Positions that are at no fixed distances, and no slice, are refused.
    """
    if type(x) is not StreamTensor or x.edge is None or "L" not in x.dims:
        return None
    (dim, at), axis = indexed(x, name, *args, **kwargs), x.dims.index("L")
    if dim not in (axis, axis - x.ndim):
        return None
    sizes = at.shape if is_computed(at) or are_positions(at) else ()
    places = [i for i, size in enumerate(sizes) if isinstance(size, Length)]
    if len(places) != 1 or not integers(at):
        return None
    whole = name in ("gather", "take_along_dim")
    if whole and not _for_all(x, sizes, name != "gather"):
        return None
    taken = _evenly(x, axis, at, places[0]) if not whole or places[0] == axis else None
    if taken is None or (whole and len(taken) > 1):
        raise NotStreamableError.here(
            f"frames at {at!r},",
            ": they are at no fixed distance, as x[:, (i - 2).clamp(min=0)], and at no even one, as x[:, 2:-1:3], "
            "so that ever more frames would have to be kept; return the stream of which they are taken, and take "
            "them of what the model gave",
        )
    if whole or len(sizes) == 1:
        return copied(taken[0])
    rest = [n for i, n in enumerate(sizes) if i != places[0]]
    columns = [f.unsqueeze(axis + 1) for f in taken] * (math.prod(rest) // len(taken))
    out: Any = columns[0]._cat(columns, axis + 1)
    out = out.reshape(*out.shape[: axis + 1], *rest, *x.shape[axis + 1 :])
    return out.movedim(axis, axis + places[0]) if places[0] else out


def _for_all(x: Any, sizes: Sequence[Any], widened: bool) -> bool:
    """Whether an index has a stream's sizes but along L; 1 fits for B, and for others if it is `widened`."""
    return len(sizes) == x.ndim and all(
        d == "L" or str(n) == str(m) or (isinstance(n, int) and n == 1 and (widened or d == "B"))
        for n, m, d in zip(sizes, x.shape, x.dims)
    )


def _evenly(x: Any, axis: int, at: Any, place: int) -> list[Any] | None:
    """Return the frames of each column of an index, or of one if all are equal; None where a distance varies."""
    length, formulas = at.shape[place], [n.formula() for n in (x.shape[axis], *at.lengths())]
    if any(f is None or f.root != formulas[0].root for f in formulas) and not _same(length, x.shape[axis]):
        return None  # the lengths of unrelated streams
    first = 64 + 4 * (at.frames if is_computed(at) else abs(int(at.value)))
    few, many = (_rows_of(at, place, n) for n in (first, 2 * first + 1))
    if all((own == np.arange(len(own))[::-1, None]).all() for own in (few, many)) and _same(length, x.shape[axis]):
        return [x.flip(axis)]
    ways = [partial(count_of, m) if (f := m.formula()) is None else f.count.at for m in (x.shape[axis], length)]
    counts = [np.array([*map(way, range(first, 2 * first + 2))]) for way in ways]
    same = (few == few[:, :1]).all() and (many == many[:, :1]).all()
    columns = [(few[:, i], many[:, i]) for i in range(1 if same else few.shape[1])]
    taken = [_column(x, axis, column, length, counts) for column in columns]
    return None if any(t is None for t in taken) else taken


def _column(x: Any, axis: int, rows: Any, length: Any, counts: Any) -> Any:
    """Return ``x[start::step]`` with each frame repeated, if a column of positions selects that; else None."""
    few, (frames, taken) = rows[0], counts
    jumps = np.flatnonzero(np.diff(few))
    jumps = jumps[np.searchsorted(jumps, len(few) // 3) :][:2].tolist()  # in the middle, where no clamp acts
    if len(jumps) < 2:
        return None
    times, step = jumps[1] - jumps[0], int(few[jumps[0] + 1] - few[jumps[0]])
    skipped = -(jumps[0] + 1) % times
    start = int(few[jumps[0] + 1]) - step * ((jumps[0] + 1 + skipped) // times)
    for own, n in zip(rows, (frames[0], frames[-1])):
        if (own != np.clip(start + step * ((np.arange(len(own)) + skipped) // times), 0, n - 1)).any():
            return None
    left = frames - start  # frames behind the last that is taken
    left = left - step * taken if times == 1 else times * -(-left // step) - skipped - taken
    least, most = int(left.max()), int(left.min()) + (step - 1 if times == 1 else 0)
    least, cut = max(least, min(most, 0)), partial(_cut, axis)
    if times == step > 1 and (start, skipped) == (0, 0) and _same(length, x.shape[axis]):
        return cut(cut(x, start, None, step).repeat_interleave(times, axis), skipped, length)
    if step < 1 or least > most or (times > 1 and step > 1) or (min(start, least) < 0 and times * step > 1):
        return None
    if min(start, least) < 0:
        padded = x.in_order()._padded(max(-start, 0), max(-least, 0), mode="replicate")
        x, start = padded.with_dims(x.dims), max(start, 0)
    x = cut(x, start, None, step).repeat_interleave(times, axis) if times > 1 else x
    return cut(x, skipped, -least or None) if times > 1 else cut(x, start, -max(least, 0) or None, step)


def _same(length: Any, other: Any) -> bool:
    return isinstance(more := length - other, int) and more == 0


def _cut(axis: int, x: Any, *part: Any) -> Any:
    return x[(slice(None),) * axis + (slice(*part),)]


def _rows_of(at: Any, place: int, n: int) -> Any:
    """Return the index for `n` frames as ``(positions along L, columns)``."""
    rows = np.moveaxis(at.probe(n).numpy(), place, 0)
    return rows.reshape(len(rows), -1)
