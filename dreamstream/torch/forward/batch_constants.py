"""torch's functions of constants that all streams of a batch have alike, such as the initial states of layers.

A function is run on as many rows as there might be: where they are alike again, what it gives is such a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...array import BatchTensor
from ...errors import NotStreamableError
from ...stream.rules import BatchSize
from ...stream.tree import leaves, map_leaves
from .constants import Arrays, Constant


def lifts(tree: Any) -> bool:
    """Whether arguments are constants of the batch, and nothing that runs over streams."""
    found = leaves(tree)
    return any(isinstance(x, BatchTensor) for x in found) and all(
        isinstance(x, (BatchTensor, Constant, BatchSize)) or not hasattr(x, "edge") for x in found
    )


def writes_into_all(name: str) -> NotStreamableError:
    """Return why such a constant is not written into."""
    return NotStreamableError.here(
        name,
        " writes into a constant that all streams have alike; compute a new tensor instead (torch.cat, "
        "torch.stack, torch.where), or write into torch.zeros_like of a stream",
    )


def lifted(func: Callable[..., Any], args: Any, kwargs: Any, arrays: Arrays | None) -> Any:
    """Return what a function of torch gives of constants of the batch.

    Raises
    ------
    NotStreamableError
        Where it gives the streams of a batch different values.
    """
    for x in leaves((args, kwargs)):
        if isinstance(x, BatchTensor):
            x.fresh = False  # what is taken of it may be written into
    rows = next(
        (x.rows for x in leaves((args, kwargs)) if isinstance(x, BatchTensor) and x.rows is not None), None
    )

    def of(n: int) -> Any:
        def given(x: Any) -> Any:
            if isinstance(x, BatchTensor):
                return x.value.torch.expand([n if i == x.batch_axis else -1 for i in range(x.ndim)])  # type: ignore[attr-defined]
            if isinstance(x, BatchSize):
                return n * x.times
            return x.torch if isinstance(x, Constant) else x

        own, named = map_leaves((args, kwargs), given)
        return func(*own, **named)

    two, three = of(2), of(3)
    others = iter(leaves(three))
    return map_leaves(two, lambda x: _alike(func, x, next(others), rows, arrays))


def _alike(func: Callable[..., Any], x: Any, other: Any, rows: Any, arrays: Arrays | None) -> Any:
    """Return one value of both that a function gave, of two and three rows."""
    if type(x) is int and x != other and rows is not None and 2 * other == 3 * x:
        return rows * (x // 2)
    if not isinstance(x, torch.Tensor):
        return x
    axes = [i for i, (n, m) in enumerate(zip(x.shape, other.shape)) if n != m]
    if not axes:
        return Constant(x, arrays)
    first = x.narrow(axes[0], 0, 1)
    if len(axes) > 1 or x.shape[axes[0]] != 2 or not torch.equal(x, first.expand_as(x)):
        raise NotStreamableError.here(
            func.__name__, " of a constant that all streams have alike: each would have another"
        )
    return BatchTensor(Constant(first, arrays), axes[0], rows)
