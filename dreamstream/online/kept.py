"""What calls in training keep for their backward: the memory of the arrays that the tape refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from .. import _core, autograd
from ..array.creation import generator
from ..array.stream_tensor import StreamTensor
from ..array.tensor import Tensor
from ..stream.tree import leaves


@contextmanager
def keeping(model: Any) -> Iterator[Callable[[Sequence[Any]], int]]:
    """Give what says how many bytes the backward of outputs needs; weights and buffers are left out."""
    own = {id(_owner(t.numpy())) for t in [*model.parameters(), *model.buffers()]}
    bits = generator().bit_generator
    before = bits.state
    try:
        yield lambda outputs: bytes_of([outputs, _held_back(model)], own)
    finally:
        bits.state = before


def _held_back(model: Any) -> list[Any]:
    """Return the outputs that wait for the end of their streams."""
    groups = model.__dict__["_patch"].session.groups.groups
    return [part.frames for g in groups for held in g.held_back for part in held.parts]


def bytes_of(outputs: Any, own: set[int]) -> int:
    """Return the bytes of the arrays that the tape of tensors refers to, but for those of `own` identities."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    left: list[Any] = [y.grad_fn for y in leaves(outputs) if isinstance(y, Tensor)]
    while left:
        x = left.pop()
        if x is None or id(x) in seen:
            continue
        if isinstance(x, np.ndarray):
            x = _owner(x)
            if not isinstance(x, np.ndarray):  # of bytes
                found[id(x)] = len(x)
            elif id(x) not in own:
                found[id(x)] = x.nbytes
            continue
        if isinstance(x, bytes):
            found[id(x)] = len(x)
            continue
        seen.add(id(x))
        left += _below(x)
    return sum(found.values())


def _below(x: Any) -> Iterator[Any]:
    """Yield what a part of the tape refers to."""
    if isinstance(x, autograd.Record):
        yield from (p[0] for p in x.parents if isinstance(p, tuple))
        yield from (array for array, _ in x.reads)
        yield x.back
    elif isinstance(x, _core.Record):
        yield from x.held
    elif isinstance(x, FunctionType):
        yield from (cell.cell_contents for cell in x.__closure__ or ())
        yield from x.__defaults__ or ()
    elif isinstance(x, (MethodType, BuiltinFunctionType)):
        yield getattr(x, "__self__", None)
    elif isinstance(x, (list, tuple)):
        yield from x
    elif isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, Tensor):
        yield x.value if isinstance(x, StreamTensor) else x.numpy()
        yield x.grad_fn
    elif hasattr(x, "func") and hasattr(x, "keywords"):  # a partial
        yield from (x.func, *x.args, *x.keywords.values())


def _owner(array: Any) -> Any:
    """Return what owns an array's memory: an array, or bytes."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
