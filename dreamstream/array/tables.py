"""Plain tensors that are indexed with a stream's length: one row for each frame."""

from __future__ import annotations

from typing import Any

from ..errors import NotStreamableError
from ..stream.edge import Edge, Request
from ..stream.rules import Length
from .dimension_arguments import numbered, parts_of
from .ends import in_most_streams
from .operators import run, weight_of
from .stream_tensor import StreamTensor
from .tensor import Tensor
from .writing import of_constant


def table(tensor: Tensor, index: Any) -> Tensor:
    """Index a plain tensor with a Length: ``pe[:, :x.size(1)]`` is the rows at these frames' positions."""
    parts = parts_of(index, tensor.ndim)
    parts = [p.settled() if isinstance(p, Length) else p for p in parts]
    parts = [slice(p.start, in_most_streams(p.stop, p.stop), p.step) if type(p) is slice else p for p in parts]
    axes = [i for i, p in enumerate(parts) if isinstance(p, slice) and isinstance(p.stop, Length)]
    if not axes:  # in all but short streams it is a number of rows
        return tensor[tuple(parts)]
    if len(axes) != 1 or not all(p is None or isinstance(p, (slice, int)) for p in parts):
        raise NotStreamableError.here("a table is indexed as pe[:x.size(L)] on one axis")
    part = parts[axes[0]]
    start = 0 if part.start is None else part.start
    if not isinstance(start, int) or start < 0 or part.step not in (None, 1):
        raise NotStreamableError.here("a table is read row by row, from a number on")
    length: Length = part.stop - start if start else part.stop
    whole = (*parts[: axes[0]], slice(start, None), *parts[axes[0] + 1 :])
    axis = sum(not isinstance(p, int) for p in parts[: axes[0]])
    array = tensor[whole]
    # In a table made for broadcasting, a first axis of extent 1 stands for B; any other does where it meets one.
    batch = 0 if axis and array.ndim > 2 and array.shape[0] == 1 else None
    rows = array.movedim(axis, 0) if batch is None else array.movedim(axis, 0).squeeze(1)
    edge = length.of
    assert isinstance(edge, Edge)
    ((value, out),) = run(Request("table", {"length": length.steps(rises=True)}, [edge], [], [weight_of(rows)]))
    dims = numbered(["L" if i == axis else "B" if i == batch else 0 for i in range(array.ndim)])
    return of_constant(StreamTensor.inside(value, dims, out))
