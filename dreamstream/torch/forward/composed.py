"""Functions of torch that are made of others, with torch's values and gradients, in a call and in a capture.

Most are rows of `OWN` under their names there. Parameters are torch's, and tensors are streams and constants of
the native front end; what can't be done with those is refused by what a function is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...array.creation import ones_like
from ...array.dimension_arguments import sizes_of
from ...array.einsum import diagonal, einsum, letters_of, spread
from ...errors import NotStreamableError
from ...nn import functional
from .constants import Constant
from .names import OWN, enter, function
from .own import elementwise
from .running import current


def _constant(x: torch.Tensor) -> Constant:
    forward = current()
    return Constant(x.to(forward.device), forward.arrays)


def _part(x: Any, dim: int, *at: int | None) -> Any:
    """Return a slice along a dimension, of features or of L."""
    return x[(slice(None),) * (dim % x.ndim) + (slice(*at),)]


# ---------------------------------------------------------------------- shapes and differences
@function("broadcast_tensors")
def broadcast_tensors(*tensors: Any) -> tuple[Any, ...]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    n = max(x.ndim for x in given)
    every = [[1] * (n - x.ndim) + list(x.shape) for x in given]
    shape = [next((s for s in sizes if not isinstance(s, int) or s != 1), 1) for sizes in zip(*every)]
    return tuple(x.expand(*shape) for x in given)


@function("tile")
def tile(input: Any, *dims: Any) -> Any:
    times = list(sizes_of(dims))
    return input.repeat([1] * (input.ndim - len(times)) + times)


@function("diff")
def diff(input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    axis = input._axis("diff", dim)
    if prepend is not None or append is not None:
        forward = current()
        parts = [forward._wrapped(x) for x in (prepend, input, append) if x is not None]
        input = forward.unwrap(forward.call(torch.cat, (parts, axis), {}))
    for _ in range(n):
        input = _part(input, axis, 1, None) - _part(input, axis, None, -1)
    return input


# ---------------------------------------------------------------------- vectors and matrices
@function("linalg_cross", OWN)
def _cross(input: Any, other: Any, *, dim: int = -1) -> Any:
    """Return vectors' cross products: a[i + 1] b[i + 2] - a[i + 2] b[i + 1]."""
    a, b = ([x.roll(-n, dim) for n in (1, 2)] for x in (input, other))
    return a[0] * b[1] - a[1] * b[0]


@function("cross", OWN)
def _cross_of_old(input: Any, other: Any, dim: int | None = None) -> Any:
    """Do what torch.cross does: without dim it goes along the first dimension of three."""
    return _cross(input, other, dim=list(input.shape).index(3) if dim is None else dim)


@function("tensordot", OWN)
def _tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Do what torch.tensordot does, as a sum of products by letters."""
    if isinstance(dims, int):
        dims = range(a.ndim - dims, a.ndim), range(dims)
    summed, other = ([d % x.ndim for d in given] for x, given in zip((a, b), dims))
    letters = [chr(ord("a") + i) for i in range(a.ndim + b.ndim)]
    s, t = letters[: a.ndim], letters[a.ndim :]
    for i, j in zip(summed, other):
        t[j] = s[i]
    out = [c for c in (*s, *t) if c not in {s[i] for i in summed}]
    return einsum(f"{''.join(s)},{''.join(t)}->{''.join(out)}", a, b)


@function("diag_embed", OWN)
def _diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Return matrices with vectors as a diagonal of theirs."""
    n = input.shape[-1] + abs(offset)
    cells = _constant(torch.ones(n - abs(offset), dtype=torch.bool).diag(offset))
    padded = functional.pad(input, (max(offset, 0), max(-offset, 0)))  # the element of a column
    rank, out = input.ndim + 1, padded.unsqueeze(-2).where(cells, 0.0)
    first, second = dim1 % rank, dim2 % rank
    order = [i for i in range(rank) if i not in (first, second)]
    places = {axis: k for k, axis in enumerate(order)} | {first: rank - 2, second: rank - 1}
    return out.permute(*[places[i] for i in range(rank)])


@function("matrix_power linalg_matrix_power", OWN)
def _matrix_power(A: Any, n: int) -> Any:
    if n < 1:
        raise NotStreamableError.here(f"a matrix to the power {n}", "; from 1 on it streams, as a product")
    out = A
    for _ in range(n - 1):
        out = out @ A
    return out


enter(
    OWN,
    {
        "inner": lambda input, other: (
            _tensordot(input, other, ([-1], [-1])) if input.ndim and other.ndim else input * other
        ),
        "linalg_vecdot": lambda x, y, *, dim=-1: (x * y).sum(dim),
        "pairwise_distance": lambda x1, x2, p=2.0, eps=1e-6, keepdim=False: (x1 - x2 + eps).norm(p, -1, keepdim),
        # of each vector to each of another list, by their differences, whatever the mode
        "cdist": lambda x1, x2, p=2.0, compute_mode=None: (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1),
        "channel_shuffle native_channel_shuffle": lambda input, groups: (
            input.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
        ),
        "cumulative_trapezoid": lambda y, x=None, *, dx=1, dim=-1: _areas(y, x, dx, dim).cumsum(dim) / 2,
        "diagonal": diagonal,
        "linalg_diagonal": lambda A, *, offset=0, dim1=-2, dim2=-1: diagonal(A, offset, dim1, dim2),
    },
)


def without_sums(func: Callable[..., Any], name: str, args: tuple[Any, ...]) -> tuple[Callable[..., Any], Any]:
    """Return products of matrices that add nothing up as products of elements."""
    if name in ("outer", "ger"):
        return torch.mul, (args[0].unsqueeze(1), args[1].unsqueeze(0))
    if name in ("matmul", "bmm", "mm", "rmatmul"):
        a, b = args[::-1] if name == "rmatmul" else args
        if 1 in [s for s in (a.shape[-1], b.shape[-2]) if isinstance(s, int)]:
            return torch.mul, (a, b)
    if name == "einsum" and len(args) == 3:
        letters, made = letters_of(args[0], args[1:])
        if {*made} == {*letters[0], *letters[1]}:
            return torch.mul, tuple(spread(x, own, made) for x, own in zip(args[1:], letters))
    return func, args


# ---------------------------------------------------------------------- differences and sums along a dimension
def _areas(y: Any, x: Any, dx: float, dim: int) -> Any:
    """Return twice the areas under the lines between neighbours."""
    both = _part(y, dim, 1, None) + _part(y, dim, None, -1)
    if x is None:
        return both * dx
    axis = 0 if x.ndim == 1 else dim
    width = _part(x, axis, 1, None) - _part(x, axis, None, -1)
    return both * (width if x.ndim > 1 else width.reshape(-1, *(1,) * (y.ndim - 1 - dim % y.ndim)))


@function("trapezoid trapz", OWN)
def _trapezoid(y: Any, x: Any = None, *, dx: float = 1, dim: int = -1) -> Any:
    if x is not None:
        return _areas(y, x, dx, dim).sum(dim) / 2
    return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * 0.5) * dx


@function("gradient", OWN)
def _gradient(input: Any, *, spacing: float = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """Return central differences along dimensions, and at either end those of two neighbours."""
    if not isinstance(spacing, (int, float)) or dim is None or edge_order != 1:
        raise NotStreamableError.here(
            "torch.gradient on a stream inside a forward,",
            ": give it dim, one number as spacing, and edge_order=1",
        )
    axes = (dim,) if isinstance(dim, int) else dim
    return tuple([_slopes(input.transpose(axis, -1), spacing).transpose(axis, -1) for axis in axes])


def _slopes(x: Any, spacing: float) -> Any:
    """Return the difference of both neighbours of an element, of itself and the one that it has at either end."""
    after, before = (functional.pad(x, pads, "replicate") for pads in ((0, 1), (1, 0)))
    ones = ones_like(x)
    steps = functional.pad(ones, (0, 1))[..., 1:] + functional.pad(ones, (1, 0))[..., :-1]
    return (after[..., 1:] - before[..., :-1]) / (steps * spacing)


@function("local_response_norm", OWN)
def _local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """Divide by means of squares of neighbouring channels; zeros stand beyond the last ones."""
    pads = (0, 0) * (input.ndim - 2) + (size // 2, (size - 1) // 2)
    means = functional.pad(input * input, pads).unfold(1, size, 1).mean(-1)
    return input / (means * alpha + k) ** beta


# ---------------------------------------------------------------------- elements
@function("isclose", OWN)
def _isclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    apart = (input - other).abs()
    close = (input == other) | (apart.isfinite() & (apart <= abs(other) * rtol + atol))
    return close | (input.isnan() & other.isnan()) if equal_nan else close


@function("isin", OWN)
def _isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    if not getattr(test_elements, "ndim", 0):
        found = elements == test_elements
    else:
        found = (elements.unsqueeze(-1) == test_elements.flatten()).any(-1)
    return ~found if invert else found


OWN["ldexp"] = lambda input, other: input * 2.0**other
OWN["ndtr"] = elementwise("ndtr", lambda x: (x * -math.sqrt(0.5)).erfc() * 0.5, torch.special.ndtr)
OWN["entr"] = elementwise(
    "entr", lambda x: (-x * x.log()).where(x > 0, (x * 0).where(x == 0, -math.inf)), torch.special.entr
)


# ---------------------------------------------------------------------- places of elements
@function("pixel_shuffle", OWN)
def _pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    r, n = upscale_factor, input.ndim - 3
    x = input.unflatten(-3, (-1, r, r)).permute(*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return x.flatten(-2).flatten(-3, -2)


@function("pixel_unshuffle", OWN)
def _pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    r, n = downscale_factor, input.ndim - 3
    x = input.unflatten(-1, (-1, r)).unflatten(-3, (-1, r))
    return x.permute(*range(n + 1), n + 2, n + 4, n + 1, n + 3).flatten(-5, -3)


@function("select_scatter", OWN)
def _select_scatter(input: Any, src: Any, dim: int, index: Any) -> Any:
    out = input.clone()
    out[(slice(None),) * (dim % input.ndim) + (index,)] = src
    return out


@function("slice_scatter", OWN)
def _slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return _select_scatter(input, src, dim, slice(start, end, step))


def _shifted(sign: int) -> Any:
    def shifted(input: Any, dim: Any = None) -> Any:
        dims = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
        for axis in dims:
            input = input.roll(sign * (input.shape[axis] // 2), axis)
        return input

    return shifted


OWN["fft_fftshift"], OWN["fft_ifftshift"] = _shifted(1), _shifted(-1)
