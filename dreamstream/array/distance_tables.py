"""Products of queries with a table by positions, shifted so that each key meets its distance.

Transformer-XL's scores have a second term, ``q @ p.transpose(-2, -1)`` of a table p with a row for each distance.
Its row i is moved by i, by pads and views (``rel_shift``), so that column j is that of the distance i - j. Pads
and views are deferred like all that is done to positions (`deferred`); what stands where is read off an index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import NotStreamableError
from ..stream.context import Context
from ..stream.mask_recognition import Recognised, Unrecognised, expected
from .score_layout import QUERIES, STREAMS, Heads, atoms_of, laid

Array = npt.NDArray[Any]

#: How many distances are computed of a table that has no end, where the context has none either.
FARTHEST = 5000
#: How far a row may differ between two lengths, as a part of the table's greatest element.
_EXACT = 1e-5


class Rows(NamedTuple):
    """The rows of a table by distance that a product of queries reads."""

    factor: float  #: What queries are multiplied by.
    keys: int  #: The number of keys for which the table is computed.
    columns: Array  #: Indices of its rows, one for each distance.
    first: int  #: The distance, query less key, of the first row.
    ends: int | None  #: The most frames that a stream may have; None for any number.


class Stride:
    """A stride of a product of queries and a table, in memory: a sum of multiples of its dimensions' strides.

    `times` says how often the stride of each dimension is taken, as an int or a Length.
    """

    def __init__(self, times: tuple[Any, ...]) -> None:
        self.times = times

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Stride):
            return NotImplemented
        return type(self)(tuple(b + a if isinstance(a, int) else a + b for a, b in zip(self.times, other.times)))

    def __neg__(self) -> Stride:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other if isinstance(other, Stride) else NotImplemented

    def __mul__(self, other: Any) -> Stride:
        return type(self)(tuple(other * t if t else 0 for t in self.times))

    __rmul__ = __mul__


def stride_of(x: Any, dim: int | None = None) -> Any:
    """Return the stride of a deferred value along a dimension, or those of all."""
    n, kind = x.ndim, x.library.stride
    every = tuple(kind(tuple(int(i == d) for i in range(n))) for d in range(n))
    return every if dim is None else every[dim]


def strided(x: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Return ``x.as_strided(size, stride, storage_offset)`` of a deferred product, by its own strides alone."""
    given = (*stride, *([] if storage_offset is None else [storage_offset]))
    if not isinstance(x.func, DistanceProduct) or not all(isinstance(s, Stride) for s in given):
        raise NotStreamableError.here(
            "as_strided",
            ": where elements lie in memory is known of products with a table by distance, by stride()",
        )
    start = (0,) * len(stride) if storage_offset is None else storage_offset.times
    return x.then(_strided, tuple(size), tuple(s.times for s in stride), start)


def _strided(x: Any, size: Any, stride: Any, start: Any) -> Any:
    own = x.contiguous().stride()

    def steps(times: Any) -> int:
        return sum(int(t) * s for t, s in zip(times, own))

    return x.contiguous().as_strided(size, [steps(s) for s in stride], steps(start))


class DistanceProduct:
    """The deferred product of queries and a table; its values are probes, which show where steps move elements.

    Queries are ``(B, heads, L, F)``. One dimension of the table is as long as the product's last; `order` are its
    dimensions of heads, rows and features. `dims` says what each dimension of the product is: "B", "h", "i", "m".
    """

    __name__ = "product"

    def __init__(self, queries: Any, table: Any, order: Sequence[int], dims: tuple[str, ...]) -> None:
        self.queries, self.table, self.order, self.dims = queries, table, tuple(order), dims
        self.shows = ""

    def __call__(self, shape: Any) -> Any:
        """Return the probe that `shows` names: ones, the indices along a dimension, or zeros for ""."""
        sizes = tuple(int(s) for s in shape.shape)
        out = np.full(sizes, np.float32(self.shows == "one"))
        if self.shows in self.dims:
            at = self.dims.index(self.shows)
            out += np.arange(sizes[at], dtype=np.float32).reshape(
                [-1 if i == at else 1 for i in range(len(sizes))]
            )
        return self.table.library.array(out)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DistanceProduct) and (self.dims, self.order) == (other.dims, other.order)

    def __hash__(self) -> int:
        return hash((self.dims, self.order))


def product(x: Any, s: str, table: Any, t: str, out: str) -> tuple[DistanceProduct, tuple[Any, ...]] | None:
    """Return the product of queries with a table by positions, and its sizes; None where it is none.

    `s`, `t` and `out` have a letter for each dimension of the queries `x`, of the table and of the product.
    """
    own = atoms_of(x, s, QUERIES)
    summed = [c for c in s if c in t and c not in out]
    rows = [c for c in t if c in out and c not in s]
    if own is None or len(summed) != 1 or len(rows) != 1 or any(c not in s + t for c in out):
        return None
    every = [a for c in out for a in own.get(c, ())]
    heads = [a for a in every if isinstance(a, Heads)]
    if every.count(QUERIES) != 1 or every.count(STREAMS) != 1 or len(heads) > 1 or any(own[summed[0]][1:]):
        return None
    sizes = dict(zip(t, table.shape))
    n_heads = heads[0].size if heads else 1
    others = [c for c in t if c not in (summed[0], rows[0])]
    with_heads = [c for c in others if not (isinstance(sizes[c], int) and sizes[c] == 1)]
    if any(not isinstance(sizes[c], int) for c in others) or len(with_heads) > 1:
        return None
    if any(sizes[c] != n_heads or not heads or heads[0] not in own.get(c, ()) for c in with_heads):
        return None
    kinds = {QUERIES: "i", STREAMS: "B"}
    dims = tuple(
        "m" if c == rows[0] else next((kinds.get(a, "h") for a in reversed(own.get(c, ()))), "") for c in out
    )
    queries = laid(x, [(c,) if c in summed else own[c] for c in s], heads, (QUERIES, summed[0]))
    shape = dict(zip(s, x.shape)) | {rows[0]: sizes[rows[0]]}
    order = [t.index(c) for c in (*[c for c in others if c not in with_heads], *with_heads, rows[0], summed[0])]
    return DistanceProduct(queries, table, order, dims), tuple(shape.get(c, 1) for c in out)


def rows_of(
    term: DistanceProduct,
    found: Recognised,
    scale: float,
    at: Callable[[int], Array],
    table: Callable[[int], Any],
    shown: int,
) -> Rows:
    """Return the rows of a table by distance that the product within a term reads.

    Both functions are of a number of keys n: `at` gives what is added to their scores, ``(heads or 1, n, n)``, and
    `table` the table, ``(heads or 1, rows, features)``. `shown` keys suffice to show every number that the term's
    steps hold. The operator scales the term like the scores, by `scale`.
    """
    context = found.context
    if found.hides:
        raise Unrecognised("keys are left out beside scores by position")
    chunk = context.chunk or 1
    n = max(64, 4 * (chunk + (context.right or 0)))
    near, size = table(n), [table(k).shape[1] for k in (n, n + 1)]
    if size[0] == size[1]:
        return _rows_of_few(term, found, scale, at, max(n, shown))
    factor, slope, first = _affine(*_by_distance(term, found, at, n))
    other = _affine(*_by_distance(term, found, at, n + 1))
    if (factor, slope) != other[:2]:
        raise Unrecognised("its scores by position are of other places at other lengths")
    step = other[2] - first

    def has_all(k: int) -> bool:
        return bool(table(k).shape[1] == size[0] + (size[1] - size[0]) * (k - n))

    ends = None  # or the most frames for which the table has all rows
    if not has_all(FARTHEST):
        ends = bisect_left(range(FARTHEST), True, n + 1, key=lambda frames: not has_all(frames)) - 1
    longest = FARTHEST if ends is None else ends
    back, ahead = _reach(context, longest)
    most = min(longest, max(back, ahead) + 1 + n)
    far = table(most)
    distances = np.arange(back, -ahead - 1, -1)
    columns = slope * distances + first + step * (most - n)
    shared = np.arange(min(back, n - 1), -min(ahead, n - 1) - 1, -1)
    if columns.min() < 0 or columns.max() >= far.shape[1]:
        raise Unrecognised("its scores by position look beyond their table")
    read = [t[:, slope * shared + first + step * (k - n)] for t, k in ((near, n), (far, most))]
    same = [np.asarray(x.detach().cpu().numpy(), np.float64) for x in read]
    if np.abs(same[0] - same[1]).max() > _EXACT * max(1.0, np.abs(same[0]).max()):
        raise Unrecognised("its scores by position are no function of the distance")
    return Rows(factor / scale, most, columns, int(back), _last_frame(context) if ends is None else ends)


def _rows_of_few(
    term: DistanceProduct, found: Recognised, scale: float, at: Callable[[int], Array], n: int
) -> Rows:
    """Return the rows that are read of a table whose size does not depend on the length.

    Greater distances than `n` keys show have the row of the greatest one shown, as a clamp gives them.
    """
    _by_distance(term, found, at, min(n, 64))  # refuses early what few frames show
    factor, distances, rows = _by_distance(term, found, at, n)
    more = _by_distance(term, found, at, n + 1)
    known = dict(zip(more[1], more[2]))
    if factor != more[0] or any(known.get(d, row) != row for d, row in zip(distances, rows)):
        raise Unrecognised("its scores by position are of other places at other lengths")
    back, ahead = _reach(found.context, FARTHEST)
    wanted = np.arange(back, -ahead - 1, -1)
    shown = np.clip(wanted, distances.min(), distances.max())
    if any(known[d] != known[d - np.sign(d)] for d in {*shown[shown != wanted]}):
        raise Unrecognised("its scores by position go on to change with the distance")
    columns = np.array([known[d] for d in shown])
    return Rows(factor / scale, n, columns, int(back), _last_frame(found.context))


def _reach(context: Context, longest: int) -> tuple[int, int]:
    """Return the greatest distances at which a query sees keys, backward and forward."""
    chunk = context.chunk or 1
    behind = context.behind
    back = longest - 1 if behind is None or context.chunk is None else min(behind + chunk, longest) - 1
    return back, longest - 1 if context.waits else min(chunk + (context.right or 0), longest) - 1


def _last_frame(context: Context) -> int | None:
    """Return the most frames that a stream may have; None for any number, if the context is bounded."""
    return None if None not in (context.behind, context.right, context.chunk) else FARTHEST


def _by_distance(
    term: DistanceProduct, found: Recognised, at: Callable[[int], Array], n: int
) -> tuple[float, Array, Array]:
    """Return a term's factor, the distances that are seen with `n` keys, and the table's row for each."""
    probes: dict[str, Array] = {}
    seen = expected(found.context, n)
    for what in ("", "one", "h", "i", "m"):
        term.shows = what
        try:
            probes[what] = at(n)[:, seen].astype(np.float64)
        finally:
            term.shows = ""
    i, j = (part[seen] for part in np.indices((n, n)))
    factors = probes["one"] - probes[""]
    beside = np.abs(probes[""])
    factor = float(factors.flat[beside.argmin()])
    if not factor or np.abs(factors - factor).max() > 1e-6 * max(abs(factor), beside.max()):
        raise Unrecognised("its scores by position are scaled differently, or lack some that are seen")
    head, query, row = (np.rint((probes[c] - probes[""]) / factor) for c in ("h", "i", "m"))
    if not (query == i).all() or ("h" in term.dims and not (head == np.arange(len(head))[:, None]).all()):
        raise Unrecognised("its scores by position are those of other queries or heads")
    distances, first = np.unique(i - j, return_index=True)
    rows = row[0, first].astype(int)
    if not (row == rows[np.searchsorted(distances, i - j)]).all():
        raise Unrecognised("its scores by position are no function of the distance")
    return factor, distances, rows


def _affine(factor: float, distances: Array, rows: Array) -> tuple[float, int, int]:
    """Return the factor, slope and first, where each row is ``slope * distance + first``; else raise."""
    slope = int(np.rint((rows[-1] - rows[0]) / (distances[-1] - distances[0] or 1)))
    first = int(rows[0] - slope * distances[0])
    if not (rows == slope * distances + first).all():
        raise Unrecognised("its scores by position are no function of the distance")
    return factor, slope, first
