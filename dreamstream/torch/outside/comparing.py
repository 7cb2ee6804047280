"""Whether tensors are equal as a whole: valid frames, and the same streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...array.chunks import report_fallback
from ...errors import ShapeError
from ...stream.rules import require_same
from ..tensor import StreamTensor
from ..tensor.padding import unpad
from .common import name_of, padded, plain, run

__all__ = ["COMPARING"]


def equal(func: Any, a: Any, b: Any) -> bool:
    """Return whether two tensors hold the same streams with the same frames."""
    if not isinstance(a, StreamTensor) or not isinstance(b, StreamTensor):
        return _with_plain(func, a, b, {})
    if a.meta != b.meta or a.dims != b.dims:
        return False
    return torch.equal(unpad(plain(a), a._info), unpad(plain(b), b._info))


def allclose(func: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
    """Return whether all frames of the same streams are close."""
    if not isinstance(a, StreamTensor) or not isinstance(b, StreamTensor):
        return _with_plain(func, a, b, {**dict(zip(("rtol", "atol", "equal_nan"), args)), **kwargs})
    require_same([a.meta, b.meta], [a.starts, b.starts], "allclose")
    if a.dims != b.dims:
        raise ShapeError(f"allclose: dimensions {a.names} don't line up with {b.names}")
    own = unpad(plain(a), a._info), unpad(plain(b), b._info)
    return bool(run(func, (*own, *args), kwargs))


def _with_plain(func: Any, a: Any, b: Any, kwargs: Any) -> bool:
    report_fallback(f"{name_of(func)} with a plain tensor")
    return bool(run(func, (padded(a), padded(b)), kwargs))


COMPARING: dict[str, Callable[..., Any]] = {"equal": equal, "allclose": allclose}
