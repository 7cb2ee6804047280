"""State dicts: copying them into a module's tensors, reading them from safetensors files.

Weights that a checkpoint holds in other terms are brought back to what layers multiply by.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import container
from ..array import Tensor
from ..autograd import edited
from ..errors import FormatError
from ..file_kinds import not_weights

__all__ = ["folded", "load", "read_safetensors"]

_MOST_NAMED = 10


def load(
    module: str, own: Mapping[str, Tensor], state: Mapping[str, Any], strict: bool
) -> tuple[list[str], list[str]]:
    """Copy a state into tensors of equal names and shapes, all or nothing; return the missing and the unexpected
    keys.

    `own` are the tensors of the `module`, whose name the message has. Weights under torch's weight_norm are folded
    into one. Keys and shapes that don't fit are a FormatError that names them all; with `strict` so are missing
    and unexpected keys.
    """
    state = folded(own, state, _values)
    missing = [key for key in own if key not in state]
    unexpected = [key for key in state if key not in own]
    faults = []
    if strict and missing:
        faults.append(f"missing: {_named(missing)}")
    if strict and unexpected:
        faults.append(f"unexpected: {_named(unexpected)}")
    values = {key: _values(key, state[key]) for key in own if key in state}
    wrong = [
        f"{key} is {values[key].shape} there and {own[key].shape} here"
        for key in values
        if values[key].shape != own[key].shape
    ]
    if wrong:
        faults.append(f"different shapes: {_named(wrong)}")
    nested = [key for key in unexpected if isinstance(state[key], Mapping)]
    if strict and nested:
        faults.append(f"load_state_dict takes a dict of tensors, which may be what stands under {_named(nested)}")
    if faults:
        raise FormatError(f"the state dict does not fit {module}: {'; '.join(faults)}")
    for key, value in values.items():
        _copy(own[key], value)
    return missing, unexpected


def _copy(tensor: Tensor, value: NDArray[Any]) -> None:
    with np.errstate(over="ignore"):
        if tensor.numpy().flags.writeable:
            tensor.numpy()[...] = value
            edited(tensor.numpy())
        else:
            tensor._array = value.astype(tensor.dtype)


def _values(key: str, value: Any) -> NDArray[Any]:
    """Return a state's entry as an array; torch's tensors are taken by duck typing."""
    if hasattr(value, "detach") and not isinstance(value, Tensor):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise FormatError(f"the state dict's {key} holds {array.dtype}, not numbers")
    return array


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file, or raise FormatError; bfloat16 becomes float32."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        tensors, _ = container.read(data)
    except FormatError as error:
        name = os.fspath(path)
        raise FormatError(not_weights(name, data) or f"{name} is no safetensors file: {error}") from None
    return {t.name: t.values().reshape(t.shape) for t in tensors}


Array = NDArray[Any]

_MIDDLE = "parametrizations."


def folded(own: Collection[str], state: Mapping[str, Any], values: Callable[[str, Any], Array]) -> dict[str, Any]:
    """Return a state with every weight of `own` that it holds by norms and directions as one array.

    ``values(key, entry)`` gives an array. Sizes and directions that don't fit each other, and weights under
    spectral_norm, are a FormatError.
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
