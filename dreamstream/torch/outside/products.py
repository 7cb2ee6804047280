"""Products of matrices: a dimension of features is summed, B and L stay."""

from __future__ import annotations

from typing import Any

import torch

from ..tensor import StreamTensor
from .common import agree, fall_back, inputs, keep, kept, name_of, plain, rule, run, streams_in, unknown

__all__: list[str] = []

Roles = list[str | None]


def _roles(x: Any, rank: int) -> Roles:
    """Return what each of `rank` dimensions, counted from the right, is for streams."""
    own: Roles = [None] * plain(x).dim()
    if isinstance(x, StreamTensor):
        own = [n if x._info.is_stream(i) else None for i, n in enumerate(x.names)]
    return [None] * (rank - len(own)) + own


def _product_roles(a: Any, b: Any) -> Roles | None:
    """Return the roles of a matrix product's dimensions, None where it sums or merges B or L."""
    n_a, n_b = plain(a).dim(), plain(b).dim()
    left, right = _roles(a, max(n_a, 2)), _roles(b, max(n_b, 2))
    if n_a == 1:
        left = left[1:] + left[:1]  # (k) is (1, k)
        left = [None, left[0]] if len(left) == 2 else left
    if n_b == 1:
        right = [right[-1], None]
    if left[-1] or right[-2]:
        return None
    rank = max(len(left), len(right)) - 2
    lead: Roles = []
    for x, y in zip(_lead(left, rank), _lead(right, rank)):
        if x and y and x != y:
            return None
        lead.append(x or y)
    ends = ([] if n_a == 1 else [left[-2]]) + ([] if n_b == 1 else [right[-1]])
    return lead + ends


def _lead(roles: Roles, rank: int) -> Roles:
    own = roles[:-2]
    return [None] * (rank - len(own)) + own


@rule("matmul", dims=False, anywhere=True)
def matmul(func: Any, a: Any, b: Any) -> Any:
    """Run a product of two matrices, or of batches of them."""
    name = name_of(func)
    if name == "__rmatmul__":
        return matmul(torch.matmul, b, a)
    streams = streams_in((a, b))
    info = agree(streams, name)
    roles = _product_roles(a, b) if plain(a).dim() and plain(b).dim() else None
    if roles is None or not _once(roles, streams):
        return fall_back(func, (a, b), {}, f"this {name}")
    own, _ = inputs((a, b), {})
    result = run(func, own, {})
    names: Roles = list(roles)
    if isinstance(a, StreamTensor) and plain(b).dim() == 2 and not isinstance(b, StreamTensor):
        names = list(a.names)
    info = info.with_names(names)
    if info.fits(result.shape) or result.dim() != len(names):
        return fall_back(func, (a, b), {}, f"this {name}")
    return keep(result, info)


def _once(roles: Roles, streams: list[StreamTensor]) -> bool:
    """Return whether a result has every dimension of streams that its operands have, once."""
    wanted = {n for t in streams for i, n in enumerate(t.names) if t._info.is_stream(i)}
    found = [r for r in roles if r]
    return sorted(found) == sorted(str(w) for w in wanted)


@rule("linear", dims=False)
def linear(func: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    """Run a linear layer: the last dimension must hold features."""
    if streams_in(weight, bias):
        return unknown(func, x, weight, bias)
    if x._info.is_stream(len(x.names) - 1):
        return fall_back(func, (x, weight, bias), {}, f"linear along {x.names[-1]}")
    names = x.names if weight.dim() == 2 else x.names[:-1]
    return kept(x._info.with_names(names), func, x, weight, bias)


@rule("einsum", dims=False, anywhere=True)
def einsum(func: Any, *args: Any) -> Any:
    """Run einsum: B and L keep their letters, or the result is plain."""
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    streams = streams_in(operands)
    if not isinstance(equation, str) or "..." in equation:
        return unknown(func, *args)
    info = agree(streams, "einsum")
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        out = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    letters: dict[str, str] = {}
    fits = len(terms) == len(operands)
    for term, x in zip(terms, operands):
        for letter, role in zip(term, _roles(x, plain(x).dim())):
            if isinstance(x, StreamTensor) and (role or letter in letters):
                fits = fits and letters.setdefault(letter, role or "") == (role or "")
    found = [letters.get(c) or None for c in out]
    if not fits or not _once(found, streams) or len(out) != len(set(out)):
        return fall_back(func, (equation, *operands), {}, "this einsum")
    own, _ = inputs((equation, *operands), {})
    result = run(func, own, {})
    info = info.with_names(found)
    return fall_back(func, args, {}, "this einsum") if info.fits(result.shape) else keep(result, info)
