"""Products of matrices: a dimension of features is summed, B and L stay."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

import torch

from ...array.derivatives import letters_of
from ..tensor import StreamTensor
from .common import agree, fall_back, inputs, keep, kept, name_of, plain, rule, run, streams_in, unknown

Roles = list[str | None]


def _roles(terms: Sequence[str], out: str, operands: Sequence[Any]) -> Roles | None:
    """Return what each dimension of a product is for streams, None where it sums, merges or loses B or L.

    Dimensions have letters, as in an equation of einsum; those of one element meet any other.
    """
    letters: dict[str, str] = {}
    for term, x in zip(terms, operands):
        names = x.names if isinstance(x, StreamTensor) else ()
        for i, (letter, name, size) in enumerate(zip(term, names, plain(x).shape)):
            role = name if x._info.is_stream(i) else ""
            if (role or size != 1) and letters.setdefault(letter, role) != role:
                return None
    found = [letters.get(c) or None for c in out]
    wanted = {n for x in streams_in(operands) for i, n in enumerate(x.names) if x._info.is_stream(i)}
    kept = all(c in out for c, role in letters.items() if role)
    return found if kept and sorted(filter(None, found)) == sorted(map(str, wanted)) else None


def _letters(a: int, b: int) -> tuple[list[str], str]:
    """Return the letters of torch's product of tensors of a and b dimensions, and those of its result."""
    lead = ascii_uppercase[: max(a, b, 2) - 2]
    terms = ["k" if n == 1 else lead[len(lead) - n + 2 :] + own for n, own in ((a, "ik"), (b, "kj"))]
    return terms, lead + "i" * (a > 1) + "j" * (b > 1)


@rule("matmul", dims=False, anywhere=True)
def matmul(func: Any, a: Any, b: Any) -> Any:
    """Run a product of two matrices, or of batches of them."""
    name = name_of(func)
    if name == "__rmatmul__":
        return matmul(torch.matmul, b, a)
    info, ranks = agree(streams_in((a, b)), name), (plain(a).dim(), plain(b).dim())
    roles = _roles(*_letters(*ranks), (a, b)) if all(ranks) else None
    if roles is None:
        return fall_back(func, (a, b), {}, f"this {name}")
    own, _ = inputs((a, b), {})
    result = run(func, own, {})
    names: Roles = roles
    if isinstance(a, StreamTensor) and ranks[1] == 2 and not isinstance(b, StreamTensor):
        names = list(a.names)
    info = info.with_names(names)
    if info.fits(result.shape) or result.dim() != len(names):
        return fall_back(func, (a, b), {}, f"this {name}")
    return keep(result, info)


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
    if not isinstance(equation, str):
        return unknown(func, *args)
    info = agree(streams_in(operands), "einsum")
    terms, out = letters_of(equation, [x.dim() for x in operands])
    fits = len(terms) == len(operands) and len(out) == len(set(out))
    found = _roles(terms, out, operands) if fits else None
    if found is None:
        return fall_back(func, (equation, *operands), {}, "this einsum")
    own, _ = inputs((equation, *operands), {})
    result = run(func, own, {})
    info = info.with_names(found)
    return fall_back(func, args, {}, "this einsum") if info.fits(result.shape) else keep(result, info)
