"""`torch.einsum` of streams inside a forward, in terms of permutations, products and sums."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from ...array.scores import Scores, paired
from ...errors import NotStreamableError, ShapeError
from ...stream.where import user_line
from .mode import Forward
from .names import function

__all__ = ["letters_of"]


@function("einsum")
def einsum(forward: Forward, equation: Any, *operands: Any) -> Any:
    """``torch.einsum`` of one or two operands: letters of B and L must be kept."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) not in (1, 2):
        raise NotStreamableError(f"einsum at {user_line()}: one or two operands and an equation stream")
    terms, out = letters_of(equation, operands)
    if len(operands) == 2 and operands[0].is_stream and operands[1].is_stream:
        attended = _attention(operands[0], operands[1], terms[0], terms[1], out)
        if attended is not None:
            return attended
    axes = [pair for t, x in zip(terms, operands) if x.is_stream for pair in zip(t, x.dims)]
    roles = {c: d for c, d in axes if isinstance(d, str)}
    lost = [d for c, d in roles.items() if c not in out and d != "L"]
    if lost:
        raise NotStreamableError(
            f"einsum {equation!r} at {user_line()} sums over {lost[0]} of a stream; keep its letter"
        )
    if len(operands) == 1:
        return _summed(operands[0], terms[0], out)
    (a, b), (s, t) = operands, terms
    shared = [c for c in s if c in t and c in out]
    if a.is_stream != b.is_stream and not shared:
        x, letters, w, others = (a, s, b, t) if a.is_stream else (b, t, a, s)
        return _product(x, letters, w, others, out)
    union = [*s, *(c for c in t if c not in s)]
    return _summed(_spread(a, s, union) * _spread(b, t, union), "".join(union), out)


def _attention(a: Any, b: Any, s: str, t: str, out: str) -> Any:
    """Return the scores of queries and keys, or what scores make of values; None of all else."""
    if isinstance(a, Scores):
        return a.valued(b, t, s, out)
    if isinstance(b, Scores):
        return b.valued(a, s, t, out)
    along = [c for x, letters in ((a, s), (b, t)) for d, c in zip(x.dims, letters) if d == "L"]
    return paired(a, s, b, t, out) if len({*along}) == 2 and {*along} <= {*out} else None


def letters_of(equation: str, operands: Sequence[Any]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, those that an ellipsis stands for included."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [c for c in string.ascii_letters if c not in equation]
    dots = max((x.ndim - len(t) + 3 for t, x in zip(terms, operands) if "..." in t), default=0)
    fill = "".join(free[:dots])
    terms = [t.replace("...", fill[dots - (x.ndim - len(t) + 3) :]) for t, x in zip(terms, operands)]
    if not arrow:
        every = "".join(terms)
        out = fill + "".join(sorted(c for c in set(every) - set(fill) if every.count(c) == 1))
    out = out.replace("...", fill)
    if any(len(t) != x.ndim or len(set(t)) != len(t) for t, x in zip(terms, operands)):
        raise ShapeError(f"einsum {equation!r} at {user_line()}: letters don't fit the operands' dimensions")
    return terms, out


def _summed(x: Any, letters: str, out: str) -> Any:
    """Return x summed over what `out` lacks, its dimensions in the order of `out`."""
    gone = [letters.index(c) for c in letters if c not in out]
    kept = [c for c in letters if c in out]
    y = x.sum(gone) if gone else x
    return y.permute([kept.index(c) for c in out])


def _spread(x: Any, letters: str, union: list[str]) -> Any:
    """Return x with a dimension for every letter of `union`, in that order."""
    y = x.permute([letters.index(c) for c in union if c in letters])
    for axis, c in enumerate(union):
        y = y if c in letters else y.unsqueeze(axis)
    return y


def _product(x: Any, letters: str, w: Any, others: str, out: str) -> Any:
    """Return the product of a stream with constant weights that share only what is summed."""
    summed = [c for c in letters if c in others]
    x = _summed(x, letters, "".join(c for c in letters if c in out or c in others))
    letters = "".join(c for c in letters if c in out or c in others)
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
