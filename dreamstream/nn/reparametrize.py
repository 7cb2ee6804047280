"""Weights that a checkpoint holds in other terms, brought back to what layers multiply by.

torch's weight_norm keeps a weight as sizes g and directions v, under ``weight_g`` and ``weight_v`` or,
as a parametrization, ``parametrizations.weight.original0`` and ``original1``: weight = g v / |v|, the
norm taken over all axes along which g has extent 1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError

__all__ = ["folded"]

Array = NDArray[Any]

_MIDDLE = "parametrizations."


def folded(own: Collection[str], state: Mapping[str, Any], values: Callable[[str, Any], Array]) -> dict[str, Any]:
    """Return a state with every weight of `own` that it holds by norms and directions as one array.

    Parameters
    ----------
    own : collection of str
        The module's keys.
    state : dict of arrays or tensors
    values : function (key, entry) -> array

    Raises
    ------
    FormatError
        Where sizes and directions don't fit each other, and for weights under spectral_norm.
    """
    out = dict(state)
    for key in own:
        if key in state:
            continue
        head, _, name = key.rpartition(".")
        lead = f"{head}." if head else ""
        inner = f"{lead}{_MIDDLE}{name}"
        if f"{key}_orig" in state or f"{inner}.original" in state:
            raise FormatError(
                f"{key} is held under spectral_norm or another parametrization; remove it in torch before "
                f"saving, by torch.nn.utils.parametrize.remove_parametrizations(module, {name!r}) or "
                "torch.nn.utils.remove_spectral_norm(module)"
            )
        for g, v in ((f"{key}_g", f"{key}_v"), (f"{inner}.original0", f"{inner}.original1")):
            if g in state and v in state and g not in own and v not in own:
                out[key] = _product(key, values(g, out.pop(g)), values(v, out.pop(v)))
                break
    return out


def _product(key: str, sizes: Array, directions: Array) -> Array:
    """Return sizes * directions / |directions|, computed in float64."""
    shape = sizes.shape if sizes.ndim else (1,) * directions.ndim
    if len(shape) != directions.ndim or any(n not in (1, m) for n, m in zip(shape, directions.shape)):
        raise FormatError(
            f"{key} is held under weight_norm, but its norms {sizes.shape} do not fit its directions "
            f"{directions.shape}"
        )
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    v = directions.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):  # a direction of zeros has no size, as in torch
        out = sizes.reshape(shape) * (v / np.sqrt(np.square(v).sum(axes, keepdims=True)))
    return out.astype(directions.dtype) if directions.dtype.kind == "f" else out
