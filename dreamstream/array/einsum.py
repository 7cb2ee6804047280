"""Einstein's sums of streams inside a forward, in terms of permutations, products and sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from . import derivatives, pair_terms
from .deferred import Deferred, as_deferred, is_computed, library_of
from .distance_tables import DistanceProduct, product
from .dtypes import is_float
from .hook import made
from .scores import Scores, matrices, paired
from .shape_of import ShapeOf


def einsum(equation: str, *operands: Any) -> Any:
    """Return sums of products of elements, as an equation of letters names their dimensions.

    Of streams the letters of B and L are kept; two of queries and keys are scores of
    attention.

    Parameters
    ----------
    equation : str
        ``"bhid,bhjd->bhij"``; ``...`` stands for dimensions without letters.
    operands : Tensor

    Raises
    ------
    ShapeError
        Where letters don't fit the operands.
    NotStreamableError
        For streams where a sum runs over B.

    Notes
    -----
    Source: torch.einsum.
    """
    given = [as_deferred(x) for x in operands]
    if (library := library_of(given)) is not None:
        return library.defer(einsum, (equation, *given), {})
    if not any(x.is_stream for x in operands):
        return made("einsum", *operands, equation=equation)
    return of_streams(equation, *operands)


def of_streams(equation: Any, *operands: Any) -> Any:
    """Return `einsum` of streams inside a forward, and of constants."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or not operands:
        raise NotStreamableError.here("einsum: an equation and its operands stream")
    terms, out = derivatives.letters_of(equation, [x.ndim for x in operands])
    once = list(map(_with_distinct_letters, operands, terms))
    operands, terms = tuple(x for x, _ in once), [letters for _, letters in once]
    _require_letters(equation, operands, terms)
    if len(operands) > 2:
        return _by_pairs(terms, out, operands)
    if len(operands) == 2 and (Scores in map(type, operands) or all(x.is_stream for x in operands)):
        attended = _attention(operands[0], operands[1], terms[0], terms[1], out)
        if attended is not None:
            return attended
    axes = [pair for t, x in zip(terms, operands) if x.is_stream for pair in zip(t, x.dims)]
    roles = {c: d for c, d in axes if isinstance(d, str)}
    lost = [d for c, d in roles.items() if c not in out and d != "L"]
    if lost:
        raise NotStreamableError.here(f"einsum {equation!r}", f" sums over {lost[0]} of a stream; keep its letter")
    if len(operands) == 1:
        return _summed(operands[0], terms[0], out)
    (a, b), (s, t) = operands, terms
    shared = [c for c in s if c in t and c in out]
    if a.is_stream != b.is_stream and not shared:
        x, letters, w, others = (a, s, b, t) if a.is_stream else (b, t, a, s)
        return _product(x, letters, w, others, out)
    union = [*s, *(c for c in t if c not in s)]
    if (found := _by_matrices(a, s, b, t, out)) is not None:
        return found
    return _summed(spread(a, s, union) * spread(b, t, union), "".join(union), out)


def _by_pairs(terms: Sequence[str], out: str, operands: Sequence[Any]) -> Any:
    """Return einsum of three operands or more: the first stream is multiplied by one other after another."""
    first = next(i for i, x in enumerate(operands) if x.is_stream)
    total, letters = operands[first], terms[first]
    left = [(t, x) for i, (t, x) in enumerate(zip(terms, operands)) if i != first]
    while left:
        (t, x), left = left[0], left[1:]
        later = {*out, *(c for s, _ in left for c in s)}
        kept = "".join(dict.fromkeys(c for c in letters + t if c in later)) if left else out
        total, letters = of_streams(f"{letters},{t}->{kept}", total, x), kept
    return total


def _attention(a: Any, b: Any, s: str, t: str, out: str) -> Any:
    """Return scores if two streams keep an L each, or attended values if one operand is scores; else None."""
    if isinstance(a, Scores):
        return a.valued(b, t, s, out)
    if isinstance(b, Scores):
        return b.valued(a, s, t, out)
    along = [c for x, letters in ((a, s), (b, t)) for d, c in zip(x.dims, letters) if d == "L"]
    return paired(a, s, b, t, out) if len({*along}) == 2 and {*along} <= {*out} else None


def table_product(name: str, args: Sequence[Any], met: Callable[[], Any]) -> Any:
    """Return the product of queries with a table by positions, as function `name` makes it; None where it is none.

    `met` computes the product if the table has a row for each frame, at its own position; it may refuse.
    """
    if name == "einsum":
        operands = args[1] if isinstance(args[1], (list, tuple)) else args[1:]
        (s, *others), out = letters_of(args[0], operands)
    elif name in ("matmul", "__matmul__", "bmm") and len(args) == 2:
        operands = args
        s, *others, out = matrices(args[0].ndim, args[1].ndim)
    else:
        return None
    if len(others) == 1 and isinstance(operands[0], Scores):
        return operands[0].valued(operands[1], others[0], s, out)
    summed = pair_terms.product(operands, (s, *others), out) if len(others) == 1 else None
    if summed is not None:
        return summed
    if len(others) != 1 or is_computed(operands[0]) or not is_computed(operands[1]):
        return None
    of_pairs = _of_pairs(operands[0], s, operands[1], others[0], out)
    if of_pairs is not None:
        return of_pairs
    found = product(operands[0], s, operands[1], others[0], out)
    if found is None:
        return None
    term, shape = found
    queries, rows = (shape[term.dims.index(c)] for c in "im")
    apart = rows - queries
    if isinstance(apart, int) and apart == 0:  # a row for each frame
        try:
            return met()
        except NotStreamableError:
            pass
    return _deferred(term, shape)


def _deferred(term: DistanceProduct, shape: Sequence[Any]) -> Deferred:
    return Deferred(term.table.library, term, (ShapeOf(shape, None, None),), {})


def _of_pairs(x: Any, s: str, vectors: Any, t: str, out: str) -> Any:
    """Return the product of queries with a vector for each pair of query and key, or None where it is none.

    Each vector is a row of a table (``table[index]``): the product with all rows is deferred, and indexed then.
    """
    while is_computed(vectors) and vectors.func.__name__ in (*_AS_IT_IS, "transpose"):
        if vectors.func.__name__ == "transpose":
            axes = list(range(len(t)))
            a, b = vectors.args[1:]
            axes[a], axes[b] = axes[b], axes[a]
            t = "".join(t[i] for i in axes)
        vectors = vectors.args[0]
    queries = next((c for c, d in zip(s, x.dims) if d == "L"), "")
    keys = [c for c in t if c not in s and c in out]
    if not is_computed(vectors) or len(t) != 3 or t[0] != queries or keys != [t[1]] or t[2] in out:
        return None
    if vectors.func.__name__ == "embedding":
        index, table = vectors.args[:2]
    elif vectors.func is vectors.library.tensor.__getitem__:
        table, index = vectors.args[:2]
    else:
        return None
    if not is_computed(index) or is_computed(table) or len(table.shape) != 2:
        return None
    found = product(x, s, Deferred(vectors.library, _identity, (table,), {}), t[1:], out)
    if found is None:
        return None
    term, shape = found
    whole = _deferred(term, shape)
    return Deferred(vectors.library, _rows_by_key, (whole, index, out.index(t[0]), out.index(t[1])), {})


def _identity(table: Any) -> Any:
    return table


_AS_IT_IS = ("to", "type_as", "float", "contiguous", "clone")


def _rows_by_key(whole: Any, index: Any, queries: int, rows: int) -> Any:
    """Return ``whole[query, index[query, key]]``: each query's product with the row that its key has."""
    order = [d for d in range(len(whole.shape)) if d not in (queries, rows)] + [queries, rows]
    back = [order.index(d) for d in range(len(order))]
    n = index.shape[0]
    at = whole.permute(*order).expand(*(whole.shape[d] for d in order[:-2]), n, -1)
    return at[..., np.arange(n)[:, None], np.asarray(index.numpy())].permute(*back)


def letters_of(equation: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    """Return the letters of operands and result; ShapeError where they don't fit or an operand has one twice."""
    terms, out = derivatives.letters_of(equation, [x.ndim for x in operands])
    _require_letters(equation, operands, terms)
    return terms, out


def _require_letters(equation: str, operands: Sequence[Any], terms: Sequence[str]) -> None:
    if any(len(t) != x.ndim or len(set(t)) != len(t) for t, x in zip(terms, operands)):
        raise ShapeError.here(f"einsum {equation!r}: letters don't fit the operands' dimensions")


def _with_distinct_letters(x: Any, letters: str) -> tuple[Any, str]:
    """Return the diagonal of dimensions with the same letter, as "ii", until all letters differ; and these."""
    twice = next((c for c in letters if letters.count(c) > 1), None)
    if twice is None or len(letters) != x.ndim:
        return x, letters
    first = letters.index(twice)
    second = letters.index(twice, first + 1)
    rest = "".join(c for i, c in enumerate(letters) if i not in (first, second))
    return _with_distinct_letters(diagonal(x, 0, first, second), rest + twice)


def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return the diagonal of matrices of features, as the last dimension. Source: torch.diagonal."""
    given = dim1 % x.ndim, dim2 % x.ndim
    y = x.permute(*(i for i in range(x.ndim) if i not in given), *given)
    rows, columns = y.shape[-2:]
    if given[0] == given[1] or not all(isinstance(n, int) for n in (rows, columns)):
        raise NotStreamableError.here("diagonal: two different dimensions of features have one")
    first, count = (offset, columns - offset) if offset >= 0 else (-offset * columns, columns)
    count = max(min(count, rows - max(-offset, 0)), 0)
    return y.flatten(-2)[..., first : first + count * (columns + 1) : columns + 1]


def _summed(x: Any, letters: str, out: str) -> Any:
    """Return x summed over what `out` lacks, its dimensions in the order of `out`."""
    gone = [letters.index(c) for c in letters if c not in out]
    kept = [c for c in letters if c in out]
    y = x.sum(gone) if gone else x
    return y.permute([kept.index(c) for c in out])


def spread(x: Any, letters: str, union: Sequence[str]) -> Any:
    """Return x with a dimension for every letter of `union`, in that order."""
    y = x.permute([letters.index(c) for c in union if c in letters])
    for axis, c in enumerate(union):
        y = y if c in letters else y.unsqueeze(axis)
    return y


def _by_matrices(x: Any, s: str, y: Any, t: str, out: str) -> Any:
    """Return a sum of products as one of a frame's matrices with another stream's or a constant's; or None."""
    if not x.is_stream:
        x, s, y, t = y, t, x, s
    if not is_float(x.dtype):
        return None
    frames = [c for c, d in zip(s, x.dims) if isinstance(d, str)]
    there = [c for c in frames if c in t]
    batch, summed = ([c for c in s if c in t and c not in there and (c in out) == kept] for kept in (True, False))
    rows, columns = ([c for c in own if c not in {*frames, *batch, *summed}] for own in (s, t))
    if len(rows) > 1 or len(columns) != 1 or len(summed) != 1 or not {*rows, *columns} <= {*out}:
        return None
    if there != (frames if y.is_stream else []) or (y.is_stream and not rows):
        return None
    a = x.permute([s.index(c) for c in [*frames, *batch, *rows, *summed]])
    b = y.permute([t.index(c) for c in [*there, *batch, *summed, *columns]])
    z = a.matmul(b) if rows else a.unsqueeze(-2).matmul(b).squeeze(-2)
    return z.permute([[*frames, *batch, *rows, *columns].index(c) for c in out])


def _product(x: Any, letters: str, w: Any, others: str, out: str) -> Any:
    """Return the product of a stream and a constant whose common letters are all summed."""
    summed = [c for c in letters if c in others]
    left = "".join(c for c in letters if c in out or c in others)
    x, letters = _summed(x, letters, left), left
    free = [c for c in others if c not in letters and c in out]
    w = _summed(w, others, "".join([*free, *summed]))
    sizes = [w.shape[i] for i in range(len(free))]
    kept = [c for c in letters if c not in summed]
    y = x.permute([letters.index(c) for c in [*kept, *summed]])
    for _ in range(len(summed) - 1):
        y = y.flatten(-2, -1)
    if not summed:
        y = y.unsqueeze(-1)
    y = y.matmul(w.reshape(-1, y.shape[-1]).transpose(0, 1))
    y = y.unflatten(-1, sizes) if len(free) != 1 else y
    y = y if free else y.squeeze(-1)
    return y.permute([[*kept, *free].index(c) for c in out])
