"""torch's functions that join tensors, or take them apart, along a dimension of their own: `cat` and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...array.ends import cut_at
from ...stream.rules import Token
from .names import OF_LENGTHS, enter
from .running import current


def _stacked(axis: int, *least: int) -> Callable[..., Any]:
    """Join tensors along a dimension, each of as many dimensions as it needs for that; `least` are torch's."""

    def joined(tensors: Any) -> Any:
        given = [current()._wrapped(t) for t in tensors]
        given = [t if len(t.shape) > 1 or axis != 0 else t.unsqueeze(0) for t in given]
        for need in least:
            given = [t.unsqueeze(-1) if len(t.shape) < need else t for t in given]
        flat = all(len(t.shape) == 1 for t in given)
        return current().call(torch.cat, (given, 0 if flat else axis), {})

    return joined


def _split_at(fixed: int | None) -> Callable[..., Any]:
    """Take a tensor apart at some places along a dimension, or into so many parts."""

    def parts(input: Any, sections: Any = None, dim: int = 0, **named: Any) -> Any:
        at: Any = next(v for v in (sections, *named.values()) if v is not None)
        axis = (dim if fixed is None else fixed) % len(input.shape)
        if isinstance(at, int):
            size = input.shape[axis]
            if isinstance(size, Token):
                size._misuse("split into so many parts")
            at = [size // at * i + min(i, size % at) for i in range(1, at)]
        return cut_at(axis, at, lambda part: current().call(torch.Tensor.__getitem__, (input, part), {}))

    return parts


enter(
    OF_LENGTHS,
    {
        "hstack": _stacked(1),
        "column_stack": _stacked(1, 2),
        "vstack row_stack": _stacked(0),
        "dstack": _stacked(2, 3),
        "tensor_split": _split_at(None),
        "hsplit": _split_at(1),
        "vsplit": _split_at(0),
        "dsplit": _split_at(2),
    },
)
