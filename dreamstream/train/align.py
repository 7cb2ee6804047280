"""Targets of whole streams, cut to the frames that a call has given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import autograd
from ..array import Tensor, as_tensor, cat
from ..array.stream_tensor import StreamTensor
from ..errors import ShapeError, StreamIdError, StreamMismatchError


def align(y: Any, targets: Mapping[str, Any]) -> Any:
    """Cut each stream's whole target to the frames that `y` holds of it.

    Parameters
    ----------
    y : dreamstream.StreamTensor or dreamstream.torch.StreamTensor
        What an online module returned, of either front end.
    targets : dict of str to array
        By id the target of the whole stream, ``(L, ...)``, with one entry per frame of the model's output: arrays,
        tensors of DreamStream or of torch. Streams that are not in `y` may be among them. Where `y` has no L,
        ``(1, ...)``.

    Returns
    -------
    dreamstream.StreamTensor or dreamstream.torch.StreamTensor
        ``(B, L, ...)`` with the rows, frames and positions of `y`, so that both meet in a loss; ``(B, ...)`` where
        `y` has no L. It is torch's where `y` is, on its device; types of elements are the targets' own.

    Raises
    ------
    TypeError
        For a `y` that is no stream tensor and targets that are no dict.
    StreamIdError
        For streams without a target.
    StreamMismatchError
        For targets that are shorter than the frames given so far, or end later than their stream, and where `y`
        does not know its positions.
    ShapeError
        For targets that differ in more than their length.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = ds.patch_module(ds.nn.Conv1d(1, 1, 3, padding=1)).online()
    >>> targets = {"anna": np.arange(8.0)}
    >>> first = model(ds.stream_tensor(np.zeros((1, 1, 5), np.float32), ids=["anna"], sos=True))
    >>> second = model(ds.stream_tensor(np.zeros((1, 1, 3), np.float32), ids=["anna"], eos=True))
    >>> [ds.train.align(y, targets)["anna"].numpy().tolist() for y in (first, second)]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    """
    if not hasattr(y, "meta"):
        raise TypeError(f"align: y is what an online module returned, got {type(y).__name__}")
    if not isinstance(targets, Mapping):
        raise TypeError(
            f"align: targets are a dict, by id the target of the whole stream, got {type(targets).__name__}"
        )
    meta = y.meta
    missing = [i for i in meta.ids if i not in targets]
    if missing:
        raise StreamIdError("align: these streams have no target", missing)
    starts = y.starts
    if starts is None or any(s is None for s in starts):
        raise StreamMismatchError(
            "align: y does not know which frames of its streams it holds; give what an online module returned",
            meta.ids,
        )
    rows = [targets[i] for i in meta.ids]
    ends = [s + int(n) for s, n in zip(starts, meta.lengths)]
    lengths = [_length(i, row) for i, row in zip(meta.ids, rows)]
    known = list(zip(meta.ids, lengths, ends, meta.eos))
    short = [(i, n, end) for i, n, end, _ in known if n < end]
    late = [(i, n, end) for i, n, end, eos in known if eos and n > end]
    for wrong, has, advice in (
        (short, "has reached", "targets are those of whole streams, at the output's rate"),
        (late, "has ended after", "targets have one entry per frame of the model's output"),
    ):
        for _, n, end in wrong[:1]:
            raise StreamMismatchError(
                f"align: a target has {n} frames, but the output {has} {end}; {advice}", [i for i, *_ in wrong]
            )
    cut = [row[start:end] for row, start, end in zip(rows, starts, ends)]
    if not cut:  # of no rows: as wide as targets are
        cut = [row[:0] for row in targets.values() if getattr(row, "shape", None)][:1]
    shapes = {tuple(c.shape[1:]) for c in cut}
    if len(shapes) > 1:
        raise ShapeError(f"align: the targets differ in more than their length: {sorted(shapes)}")
    streams = ("B", "L") if "L" in y.dims else ("B",)
    dims = (*streams, *range(len(*shapes or [()])))
    if not isinstance(y, StreamTensor):
        from ..torch.tensor.creation import targets_like

        return targets_like(y, cut, dims)
    arrays = [np.asarray(c) for c in cut]
    value = np.concatenate(arrays) if arrays else np.zeros(0, np.float32)
    out = StreamTensor._make(value, dims, None, meta, starts, y.rate, None)
    if autograd.sources([c for c in cut if isinstance(c, Tensor)]):
        autograd.follow(out, autograd.source(cat(list(map(as_tensor, cut)))), "align")
    return out


def _length(stream_id: str, target: Any) -> int:
    shape = getattr(target, "shape", None)
    if not shape:
        raise ShapeError(
            f"align: a target is an array (L, ...), got {type(target).__name__}"
            + ("" if shape is None else " without dimensions"),
            [stream_id],
        )
    return int(shape[0])
