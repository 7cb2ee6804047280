"""Derivatives of what NumPy computes of plain tensors, as rows of `plain` name them.

Each function gives the gradient of an operand from that of the output. Its parameters say by their names what it
reads: `g` the output's gradient, `y` the output, `a`, `b` and `c` the operands, `a_shape` and so on their
shapes; all others are attributes of the operation. `arrays` and `shapes` are those of any number of operands,
`i` which of them is meant. The sum over what operands were repeated along by broadcasting is left to `fitted`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import autograd

Array = NDArray[Any]
Axes = tuple[int, ...]
Rule = Callable[..., Any]

_OPERANDS = "abc"


@cache
def _reads(rule: Rule) -> tuple[str, ...]:
    """Return the names of a rule's parameters but the gradient's."""
    code = rule.__code__
    return tuple(n for n in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if n != "g")


def record(
    name: str, rules: Sequence[Any], out: Any, operands: Sequence[Any], attributes: Mapping[str, Any] = {}
) -> Any:
    """Put an operation on plain tensors on the tape, where one of them wants a gradient, and return its output.

    `rules` are the derivatives of its operands, one each; or a single one that reads `i`, of any number of them.
    """
    places = autograd.sources(operands)
    if places is None or not rules or out.dtype.kind != "f":
        return out
    arrays = [x.numpy() for x in operands]
    many = "i" in _reads(rules[0])
    chosen: list[Any] = [None if p is None else rules[0 if many else i] for i, p in enumerate(places)]
    shapes, types = [a.shape for a in arrays], [a.dtype for a in arrays]
    known = {**attributes, "y": out.numpy(), "arrays": arrays, "shapes": shapes}
    known |= {key: value for n, a in zip(_OPERANDS, arrays) for key, value in ((n, a), (f"{n}_shape", a.shape))}
    kept = {n: known[n] for rule in chosen if rule is not None for n in _reads(rule) if n in known}

    def gradient(i: int, g: Array) -> Array:
        given = {n: i if n == "i" else kept[n] for n in _reads(chosen[i]) if n == "i" or n in kept}
        return fitted(chosen[i](g, **given), shapes[i]).astype(types[i], copy=False)

    def back(g: Array) -> list[Array | None]:
        with np.errstate(all="ignore"):
            return [None if rule is None else gradient(i, g) for i, rule in enumerate(chosen)]

    out.grad_fn = autograd.Record(name, places, back, _arrays_in(kept.values()))
    return out


def derived(*rules: Rule) -> Callable[[Any], Any]:
    """Let a method that is made of others have derivatives of its own, on plain tensors: those of its operands.

    Its parameters behind the operands are attributes, which rules read by their names.
    """

    def decorate(method: Any) -> Any:
        names = tuple(signature(method).parameters)

        @wraps(method)
        def called(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names, args)) | kwargs
            operands = [given.get(n) for n in names[: len(rules)]]
            wanting: list[Any] = [x for x in operands if getattr(x, "requires_grad", False)]
            if (
                not wanting
                or not autograd.is_grad_enabled()
                or any(getattr(x, "is_stream", False) for x in operands)
            ):
                return method(*args, **kwargs)
            with autograd.no_grad():
                out = method(*args, **kwargs)
            like = wanting[0]
            tensors = [x if hasattr(x, "grad_fn") else like._plain(np.asarray(x, like.dtype)) for x in operands]
            attributes = {n: given[n] for n in names[len(rules) :] if n in given}
            return record(method.__name__, rules, out, tensors, attributes)

        return called

    return decorate


def _arrays_in(values: Any) -> list[Array]:
    out: list[Array] = []
    for value in values:
        if isinstance(value, np.ndarray):
            out.append(value)
        elif isinstance(value, (list, tuple)):
            out += _arrays_in(value)
    return out


def fitted(g: Array, shape: Axes) -> Array:
    """Return the sum of a gradient, rounded once, over what an operand of this shape was repeated along."""
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    axes = tuple(i for i, n in enumerate(g.shape) if i < lead or (shape[i - lead] == 1 and n != 1))
    return np.asarray(g.sum(axes, np.float64)).astype(g.dtype).reshape(shape)


def _open(g: Array, axes: Axes | int | None, keepdim: bool, ndim: int) -> Array:
    """Return what a reduction gave with the axes it took as ones of size 1."""
    if keepdim or not ndim:
        return g
    return np.expand_dims(g, tuple(range(ndim)) if axes is None else axes)


def sign(a: Array) -> Any:
    """Return -1, 0 or 1; 0 for NaN."""
    return (a > 0).astype(a.dtype) - (a < 0)


# ------------------------------------------------------------------ elements
def logit(g: Array, a: Array, eps: float | None = None) -> Any:
    low = 0.0 if eps is None else eps
    return np.where((a < low) | (a > 1 - low), np.nan if eps is None else 0, g / (a * (1 - a)))


def sinc(g: Array, a: Array) -> Any:
    x = a * math.pi
    return np.where(a * a * math.pi == 0, 0, g * ((x * np.cos(x) - np.sin(x)) / (a * a * math.pi)))


# ------------------------------------------------------------------ sizes and order
def reshape(g: Array, a_shape: Axes) -> Any:
    return g.reshape(a_shape)


def permute(g: Array, order: Axes) -> Any:
    return g.transpose(np.argsort(order))


def einsum(g: Array, arrays: Sequence[Array], i: int, equation: str) -> Any:
    terms, out = letters_of(equation, [a.ndim for a in arrays])
    own = terms.pop(i)
    others = [a.astype(np.float64) for j, a in enumerate(arrays) if j != i]
    letters = "".join(dict.fromkeys(own))
    kept = "".join(c for c in letters if c in out or any(c in t for t in terms))
    made = np.einsum(f"{','.join([out, *terms])}->{kept}", g.astype(np.float64), *others)
    slope = np.zeros(arrays[i].shape)
    made = made.reshape([made.shape[kept.index(c)] if c in kept else 1 for c in letters])
    np.einsum(f"{own}->{letters}", slope)[...] = made  # a view: the diagonal of letters that stand twice
    return slope


def letters_of(equation: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, those that an ellipsis stands for included."""
    given, arrow, out = equation.replace(" ", "").partition("->")
    free = [c for c in string.ascii_letters if c not in equation]
    terms = given.split(",")
    dots = max((n - len(t) + 3 for t, n in zip(terms, ndims) if "..." in t), default=0)
    shared = "".join(free[:dots])
    if not arrow:
        letters = given.replace("...", "").replace(",", "")
        out = shared + "".join(sorted(c for c in {*letters} if letters.count(c) == 1))
    full = [t.replace("...", shared[dots - (n - len(t) + 3) :]) for t, n in zip(terms, ndims)]
    return full, out.replace("...", shared)


# ------------------------------------------------------------------ parts
def index(g: Array, a_shape: Axes, index: Any) -> Any:
    out = np.zeros(a_shape, g.dtype)
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(p, np.ndarray) and p.dtype != bool for p in parts):
        np.add.at(out, index, g)
    else:
        out[index] = g
    return out


def frames(g: Array, a_shape: Axes, start: int, stop: int, order: Axes) -> Any:
    out = np.zeros(a_shape, g.dtype)
    out[start:stop] = g.transpose(np.argsort(order))
    return out


def padded(g: Array, lengths: Array, width: int, order: Axes) -> Any:
    return g.transpose(np.argsort(order))[np.arange(width) < lengths[:, None]]


def unfold(g: Array, a_shape: Axes, axis: int, size: int, step: int) -> Any:
    out, n = np.zeros(a_shape, g.dtype), g.shape[axis]
    for j in range(size if n else 0):
        out[(slice(None),) * axis + (slice(j, j + (n - 1) * step + 1, step),)] += g[..., j]
    return out


def grid(places: Array, axis: int) -> tuple[Any, ...]:
    parts: list[Any] = list(np.indices(places.shape, sparse=True))
    parts[axis] = places
    return tuple(parts)


def gather(g: Array, a_shape: Axes, index: Array, axis: int) -> Any:
    out = np.zeros(a_shape, g.dtype)
    np.add.at(out, grid(index, axis), g)
    return out


def scatter(g: Array, index: Array, axis: int) -> Any:
    out = g.copy()
    out[grid(index, axis)] = 0
    return out


def scattered(g: Array, index: Array, axis: int) -> Any:
    return np.asarray(g[grid(index, axis)])


def index_select(g: Array, a_shape: Axes, index: Array, axis: int) -> Any:
    out = np.zeros(a_shape or (1,), g.dtype)
    at: Any = (*(slice(None),) * axis, index)
    np.add.at(out, at, g)
    return out.reshape(a_shape)


def cat(g: Array, shapes: Sequence[Axes], i: int, axis: int) -> Any:
    start = sum(s[axis] for s in shapes[:i])
    return g[(slice(None),) * axis + (slice(start, start + shapes[i][axis]),)]


# ------------------------------------------------------------------ reductions
def prod(g: Array, y: Array, a: Array, axes: Axes, keepdim: bool) -> Any:
    g, y = (_open(v, axes, keepdim, a.ndim) for v in (g, y))
    if (a != 0).all():
        return g * (y / a)
    rest = [i for i in range(a.ndim) if i not in axes]
    flat = a.transpose(*rest, *axes).reshape(*(a.shape[i] for i in rest), -1).astype(np.float64)
    ones = np.ones_like(flat[..., :1])
    before = np.cumprod(np.concatenate([ones, flat[..., :-1]], -1), -1)
    behind = np.cumprod(np.concatenate([ones, flat[..., :0:-1]], -1), -1)[..., ::-1]
    others = (before * behind).reshape([a.shape[i] for i in (*rest, *axes)])
    return g * others.transpose(np.argsort((*rest, *axes)))


def median(g: Array, y: Array, a: Array) -> Any:
    chosen = (a == y) | (np.isnan(a) & np.isnan(y))
    return g * chosen / chosen.sum()


# ------------------------------------------------------------------ matrices
def left(g: Array, a_shape: Axes, b: Array) -> Any:
    if b.ndim == 1:
        return g[..., None] * b
    g = g[..., None, :] if len(a_shape) == 1 else g
    made = np.matmul(g, np.swapaxes(b, -1, -2))
    return made[..., 0, :] if len(a_shape) == 1 else made


def right(g: Array, a: Array, b_shape: Axes) -> Any:
    if a.ndim == 1:
        return a[:, None] * g[..., None, :] if len(b_shape) > 1 else a * g
    g = g[..., None] if len(b_shape) == 1 else g
    made = np.matmul(np.swapaxes(a, -1, -2), g)
    return made[..., 0] if len(b_shape) == 1 else made
