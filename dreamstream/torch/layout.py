"""Between frames of ragged rows, as operators hold them, and the padded tensors that callers see."""

from __future__ import annotations

from typing import Any

import torch

from .windows import as_rows, flat

__all__ = ["from_padded", "to_padded"]

Tensor = torch.Tensor
Dims = tuple[Any, ...]


def _order(dims: Dims) -> list[int]:
    """Return the place in ``(B, L, *features)`` of every visible dimension."""
    return [("B", "L").index(d) if isinstance(d, str) else d + 2 for d in dims]


def to_padded(frames: Tensor, dims: Dims, lengths: Any) -> Tensor:
    """Return frames ``[frames of all rows][features]`` as the padded tensor with dimensions `dims`.

    Without ``"L"`` in `dims` rows have one frame or none, which is NaN; ``"B_L"`` stands for both, joined.
    """
    rows = as_rows(frames, lengths)
    if "B_L" in dims:
        joined = rows.flatten(0, 1)
        return joined.permute([0 if isinstance(d, str) else d + 1 for d in dims])
    return rows.permute(_order(dims))


def from_padded(padded: Tensor, dims: Dims, lengths: Any) -> Tensor:
    """Return the valid frames of a padded tensor; the inverse of `to_padded`."""
    if "B_L" in dims:
        order = [0 if isinstance(d, str) else d + 1 for d in dims]
        joined = padded.permute(sorted(range(len(order)), key=order.__getitem__))
        return flat(joined.unflatten(0, (len(lengths), -1)), lengths)
    order = _order(dims)
    return flat(padded.permute(sorted(range(len(order)), key=order.__getitem__)), lengths)
