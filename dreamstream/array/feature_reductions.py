"""What mixes the features of every frame by itself: reductions, products with constant matrices.

Both work inside a forward and on the frames of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..errors import ShapeError
from . import hook
from .dimension_arguments import numbered
from .stream_tensor import StreamTensor

T = TypeVar("T")


# ---------------------------------------------------------------------- reductions
def over_features(
    x: StreamTensor, name: str, axes: Sequence[int], keepdim: bool, options: dict[str, Any]
) -> StreamTensor:
    """Return a reduction over feature axes: a method of torch's with one output, and its `options`.

    The `axes` are visible dimensions, all of them features; with `keepdim` they stay, with size 1.
    """
    x = x.in_order()
    out = of_axes(x, name, [x.dims[a] for a in axes], keepdim, options, x.dims)
    if keepdim:
        return out.with_dims(x.dims, x.names)
    left = [i for i in range(len(x.dims)) if i not in axes]
    return out.with_dims(numbered([x.dims[i] for i in left]), [x.names[i] for i in left])


def of_axes(
    x: T, name: str, axes: Sequence[int], keepdim: bool, options: Mapping[str, Any], dims: tuple[Any, ...]
) -> T:
    """Return a reduction of torch's over stored axes of features, of a stream or of a plain tensor with `dims`."""
    attributes = {"kind": name, "axes": axes, "keepdim": int(keepdim), **attributes_of(name, options)}
    return hook.one("reduce_features", attributes, (x,), (), dims)


def attributes_of(name: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the operator's attributes beyond the axes, from the arguments of torch's method."""
    if name in ("var", "std"):
        correction = options.get("correction")
        return {"correction": float(options.get("unbiased", True) if correction is None else correction)}
    if name == "norm":
        p = options.get("p", "fro")
        return {"p": 2.0 if p == "fro" else float(p)}
    return {}


# ---------------------------------------------------------------------- matrices
def why_not_matmul(x: StreamTensor, other: Any, reverse: bool) -> str | None:
    """Return why a matrix product does not keep frames apart; None where it does."""
    if getattr(other, "is_stream", False):
        return "of two streams"
    if len(x.dims) < 2 and reverse:
        return f"with a stream {x.roles}"
    role = x.dims[-2 if reverse else -1]
    if isinstance(role, str):
        return f"over {role}"
    outer = [x.dims[-1 if reverse else -2], *reversed(x.dims[:-2])]
    for size, d in zip(reversed(other.shape[:-2]), outer[1:]):
        if isinstance(d, str) and size != 1:
            return f"with {size} matrices along {d}"
    return None


def product(x: StreamTensor, other: Any, reverse: bool) -> StreamTensor:
    """Return x @ other, or other @ x, with a constant; `why_not_matmul` must have been asked."""
    array: Any = x._plain(other) if isinstance(other, np.ndarray) else other
    if array.ndim == 0 or array.ndim > max(len(x.dims), 2):
        raise ShapeError(f"matmul: a constant of shape {array.shape} and a stream {x.roles} don't fit")
    if array.ndim == 1:
        matrices = array.unsqueeze(0)
    else:
        matrices = array if reverse else array.transpose(-1, -2)
    if not reverse:
        out = _products(x, matrices)
        return out.squeeze(-1) if array.ndim == 1 else out
    out = _products(x.transpose(-1, -2), matrices).transpose(-1, -2)
    return out.squeeze(-2) if array.ndim == 1 else out


def _products(x: StreamTensor, matrices: Any) -> StreamTensor:
    """Return the products of the last dimension with matrices ``(..., n, k)``."""
    n, k = matrices.shape[-2:]
    x = x.in_order()
    if x.features[-1] != k:
        raise ShapeError(f"matmul: matrices of depth {k} don't fit a stream {x.roles}")
    along = dict(zip(reversed(x.dims[:-2]), reversed(matrices.shape[:-2])))
    sizes = [along.get(d, 1) for d in x.dims[:-2] if not isinstance(d, str)]
    own = [x.features[d] for d in x.dims[:-2] if not isinstance(d, str)]
    if any(s not in (1, o) and o != 1 for s, o in zip(sizes, own)):
        raise ShapeError(f"matmul: {matrices.shape[:-2]} matrices don't broadcast with a stream {x.roles}")
    if all(s == 1 for s in sizes):
        return hook.one("linear", {}, [x], [matrices.reshape(n, k), None], (..., 0))
    wanted = iter(max(s, o) for s, o in zip(sizes, own))
    last = x.dims[-2:]
    shape = [-1 if isinstance(d, str) else next(wanted) for d in x.dims[:-2]]
    shape += [-1 if isinstance(d, str) else x.features[d] for d in last]
    wide: StreamTensor = x.expand(*shape)
    return hook.one("matmul", {}, [wide], [matrices.reshape(*sizes, n, k)], (..., 0))
