"""Rows of tables by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...array import Tensor, int64
from ...array.deferred import is_computed, is_deferred
from ...array.dtypes import require_float
from ...array.hook import made
from ...array.positions import first_row
from ...dispatch import apply
from ...errors import DTypeError, ModeError, NotStreamableError, ShapeError, StreamIndexError
from ...operations.refusals import FREQUENCIES
from .arguments import checked
from .texts import described

__all__ = ["bucketize", "embedding", "one_hot", "searchsorted"]


#: What the parameters are, and what is wrong with them, of function and layer.
ROWS = {
    "padding_idx": "A row that is zero at first, and has no gradient.",
    "max_norm": "None: Rows are not renormalised.",
    **dict.fromkeys(("norm_type", "sparse"), "For torch's sake, as it concerns gradients."),
    "scale_grad_by_freq": "Whether a row's gradient is divided by how often the row is asked for in the call.",
}
ERRORS = {
    "StreamIndexError": "For an index out of range; of streams it names those concerned, and nothing has changed.",
    "ModeError": "For `max_norm`, which would write into the weights.",
    "NotStreamableError": "For `scale_grad_by_freq` of streams in training.",
}


@described(
    "``(*, embedding_dim)``.",
    ERRORS,
    **ROWS,
    input="``(*) int64``, from 0 to num_embeddings - 1.",
    weight="``(num_embeddings, embedding_dim)``.",
)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return the rows of `weight` that `input` names."""
    require_as_it_is(max_norm)
    if is_deferred(input) and (found := _of_positions(input, weight)) is not None:
        return found
    x = checked("embedding", input)
    if x.dtype != int64:
        raise DTypeError.here(
            f"embedding: expected an int64 tensor, got {x.dtype}; convert it with .long(); an "
            'input of compile is one by dtype="int64"'
        )
    require_float("embedding", checked("embedding", weight).dtype)
    if weight.ndim != 2:
        raise ShapeError(f"embedding: expected a weight (num_embeddings, embedding_dim), got {weight.shape}")
    row = None if padding_idx is None else row_of("embedding", padding_idx, weight.shape[0])
    if weight.requires_grad and (row is not None or scale_grad_by_freq):
        if x.is_stream and scale_grad_by_freq:
            raise NotStreamableError.here(f"embedding: {FREQUENCIES.text}")
        factors = np.ones((weight.shape[0], 1), weight.dtype)
        if scale_grad_by_freq:
            index = x.numpy()
            known = index[(index >= 0) & (index < len(factors))]
            factors /= np.bincount(known, minlength=len(factors)).clip(1)[:, None]
        if row is not None:
            factors[row] = 0
        weight = made("rows_by_factors", weight, factors=factors)
    return apply("embedding", {}, (x,), (weight,), (...,))[0]


def require_as_it_is(max_norm: float | None) -> None:
    """Raise for a `max_norm`."""
    if max_norm is not None:
        raise ModeError.here("embedding: max_norm would write into the weights; renormalise them beforehand")


def _of_positions(at: Any, weight: Tensor) -> Any:
    """Return the rows for positions in turn, or note what other positions look up; None of all else."""
    found = first_row(at)
    if found is None:
        return at.library.defer(embedding, (at, weight), {}) if is_computed(at) else None
    start, length, n_axes, axis = found
    rows: Any = weight[start : length + start]
    for i in range(n_axes):
        rows = rows if i == axis else rows.unsqueeze(i)
    return rows


def row_of(name: str, padding_idx: int, n: int) -> int:
    """Return the row that an index, counted from the end where negative, stands for."""
    if not -n <= padding_idx < n:
        raise StreamIndexError(f"{name}: padding_idx must be within {n} rows, got {padding_idx}")
    return padding_idx % n


@described(
    "``(*, num_classes) int64``.",
    {
        "StreamIndexError": "For an index out of range; one that a forward has computed gives zeros then.",
        "NotStreamableError": "For a stream without `num_classes`: its largest index is not known.",
    },
    tensor="``(*) int64``, from 0 to num_classes - 1.",
    num_classes="The length of the rows; -1 finds it from a plain tensor's largest index.",
)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Return int64 rows that are 1 at the index and 0 elsewhere."""
    x = checked("one_hot", tensor)
    if num_classes == -1:
        if x.is_stream:
            raise NotStreamableError.here("one_hot: of a stream it needs num_classes")
        if not x.numel():
            raise ShapeError("one_hot: give num_classes, which an empty tensor doesn't tell")
        num_classes = int(x.numpy().max()) + 1
    if num_classes < 1:
        raise ShapeError(f"one_hot: num_classes must be positive, got {num_classes}")
    if x.is_stream and x.edge is not None and x.edge.line.source is not None:  # type: ignore[attr-defined]
        places = Tensor(np.arange(num_classes, dtype=np.float32))
        return (x.to(places.dtype).unsqueeze(-1) == places).to(int64)
    return embedding(x, Tensor(np.eye(num_classes, dtype=np.float32))).to(int64)


@described(
    "``(*) int64``.",
    {"ShapeError": "For boundaries that are no constant of one dimension."},
    input="``(*)``, numbers.",
    boundaries="``(n)``, in ascending order.",
    out_int32="For torch's sake, as what comes is int64.",
    right="Whether a boundary belongs to the part in front of it.",
)
def bucketize(input: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Return between which boundaries elements lie, int64: as many as are below; NaN is above all."""
    x = checked("bucketize", input)
    if boundaries.is_stream or boundaries.ndim != 1:
        raise ShapeError.here("bucketize: boundaries must be a constant (n)")
    x = x.unsqueeze(-1)
    reached = (boundaries > x) if right else (boundaries >= x)
    return reached.logical_not().to(int64).sum(-1)


@described(
    "``(*) int64``.",
    {"ShapeError": "For a sequence that is no constant of one dimension."},
    sorted_sequence="``(n)``, in ascending order.",
    input="``(*)``, numbers.",
    out_int32="For torch's sake, as what comes is int64.",
    right="Whether a number that is there comes in front of it.",
    side='Says the same: ``"left"`` or ``"right"``.',
)
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
) -> Tensor:
    """Return in front of which element of a sequence a number belongs, int64."""
    return bucketize(input, sorted_sequence, right=right or side == "right")
