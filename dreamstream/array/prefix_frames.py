"""Frames before a stream's first that each stream has for itself: what is given once, as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import NotStreamableError, ShapeError
from .elementwise import where
from .forward import extend

#: Each of them costs a comparison of every frame.
MOST = 16


def joined(tensors: Sequence[Any], axis: int, at: int) -> Any:
    """Return a stream, the tensor `at`, behind what is given once and constants, joined along L.

    Refused are more tokens than `MOST`, and what is given once behind a stream.
    """
    out = tensors[at]
    for t in reversed(tensors[:at]):
        out = _behind(t, out, axis) if t.is_stream else extend([t, out], axis)
    for t in tensors[at + 1 :]:
        if t.is_stream:
            raise NotStreamableError.here(
                "cat: what is given once stands before a stream's frames, not behind them"
            )
        out = extend([out, t], axis)
    return out


def _behind(tokens: Any, x: Any, axis: int) -> Any:
    """Return the stream x behind tokens, whose places are found by their numbers in a stream of marks."""
    x = x.in_order()
    sizes = [x.features[d] if isinstance(d, int) else None for d in x.dims]
    theirs = [n if isinstance(n, int) and i != axis else None for i, n in enumerate(tokens.shape)]
    if sizes != theirs:
        raise ShapeError.here(f"cat: {tokens.roles}, given once, is not as a stream {x.roles} but for L")
    n = tokens.shape[axis]
    if n > MOST:
        raise NotStreamableError.here(f"cat: {n} tokens that are given once; there may be {MOST}")
    mark = x
    for i, d in enumerate(x.dims):
        mark = mark.narrow(i, 0, 1) if isinstance(d, int) else mark
    marks = np.arange(1, n + 1, dtype=x.dtype).reshape(n, *(1,) * (x.ndim - 2))
    nothing: Any = where(mark.eq(mark), 0.0, 0.0).to(x.dtype)
    mark = nothing._operate("pad", {"left": n}, [x._plain(marks)])
    out = x._padded(n, 0)
    for i in range(n):
        out = where(mark.eq(float(i + 1)), tokens.narrow(axis, i, 1).to(x.dtype), out)
    return out
