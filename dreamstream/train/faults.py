"""What a trainer says of a loss that is no finite number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import DreamStreamError, LossError, StreamMismatchError
from ..online.handle import patch_of
from ..stream.tree import leaves
from .batches import streams_of
from .front import is_stream


def explained(trainer: Any, number: float, y: Any, target: Any) -> DreamStreamError:
    """Return the error that names the step, and the streams at fault where these can be told."""
    text = f"step {trainer.steps + 1}: the loss is {number}"
    kept = "weights are those of the last step, and a checkpoint is not written"
    patch: Any = patch_of(trainer.model)
    outputs = streams_of(y)
    ids = list(outputs[0].ids)
    for what, streams in (("outputs", outputs), ("targets", [x for x in leaves(target) if is_stream(x)])):
        if wrong := _not_finite(streams, patch):
            return LossError(f"{text}: {what} of these streams are not finite; {kept}", wrong)
    if isinstance(target, list):
        counts = [(i, *_entries(t, patch), int(n)) for i, t, n in zip(ids, target, outputs[0].lengths)]
        longer = [(i, entries, repeats, n) for i, entries, repeats, n in counts if entries + repeats > n]
        if longer:
            _, entries, repeats, n = longer[0]
            more = "" if entries > n else f" and {repeats} repeats, for which CTC needs {entries + repeats} frames"
            return StreamMismatchError(
                f"{text}: a target has {entries} entries{more}, but the whole output {n} frames; {kept}",
                [i for i, *_ in longer],
            )
        unknown = [i for i, t in zip(ids, target) if _has_nan(t, patch)]
        if unknown:
            return LossError(f"{text}: targets of these streams are not finite; {kept}", unknown)
    if any(not int(x.lengths.sum()) for x in outputs):
        text += ", and one of the outputs has no frames in this call, of which there is no mean"
    return LossError(f"{text}; {kept}", ids)


def _entries(target: Any, patch: Any) -> tuple[int, int]:
    """Return how many entries a target has, and how many of its labels are the one before again."""
    if not hasattr(target, "__len__"):
        return 0, 0
    labels = patch.array_of(target) if hasattr(target, "shape") else np.array(target, object)
    are_labels = labels.ndim == 1 and all(isinstance(n, int) for n in labels.tolist())
    return len(target), int((labels[1:] == labels[:-1]).sum()) if are_labels else 0


def _not_finite(streams: list[Any], patch: Any) -> list[str]:
    return list(dict.fromkeys(i for x in streams for i in x.ids if _has_nan(x[i], patch)))


def _has_nan(x: Any, patch: Any) -> bool:
    if isinstance(x, float):
        return not math.isfinite(x)
    if not hasattr(x, "shape"):
        return False
    values = patch.array_of(x)
    return values.dtype.kind in "fc" and not bool(np.isfinite(values).all())
