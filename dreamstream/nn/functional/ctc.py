"""The loss of connectionist temporal classification (csrc/kernels/ctc.h)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._core import ctc
from ...array import Tensor
from ...autograd import Record, recorded, sources
from ...errors import DTypeError, ShapeError, StreamIndexError, StreamMismatchError
from .arguments import real
from .loss import reduced
from .texts import described

__all__ = ["ctc_loss"]


@described(
    'Without dimensions; with ``reduction="none"`` ``(B,)``.',
    {
        "DTypeError": "For targets that are no integers.",
        "ShapeError": "For shapes and lengths that don't fit, and another `reduction`.",
        "StreamMismatchError": "For lengths beyond a stream's frames; it names the streams.",
        "StreamIndexError": "For a class out of range.",
    },
    log_probs="``(L, B, classes)`` or ``(L, classes)``, logarithms of probabilities, as of log_softmax.",
    targets="``(B, S)``, or of all rows end to end; int64.",
    input_lengths="``(B,)``, int64: frames of each row. None for streams, which know them.",
    target_lengths="``(B,)``, int64.",
    blank="The class that stands for none.",
    reduction='{"mean", "sum", "none"}: The mean is of losses divided by their targets\' lengths.',
    zero_infinity="Whether rows whose target doesn't fit into their frames have a loss of 0, and no gradient.",
)
def ctc_loss(
    log_probs: Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return -log of the probability of all ways to spell the targets, with blanks and repeated classes."""
    x = real("ctc_loss", log_probs)
    frames, lengths, single = _of_files(x, input_lengths)
    n_targets = np.asarray(target_lengths, np.int64).reshape(-1)
    goals = np.asarray(targets)
    if goals.dtype.kind not in "iu" and goals.size:
        raise DTypeError(f"ctc_loss: targets are numbers of classes, int64, got {goals.dtype}; x.to(ds.int64)")
    if goals.ndim == 2 and len(goals) == len(n_targets):
        if n_targets.size and goals.shape[1] < n_targets.max():
            raise ShapeError(f"ctc_loss: targets of shape {goals.shape} for lengths {n_targets.tolist()}")
        goals = goals[np.arange(goals.shape[1]) < n_targets[:, None]]
    if goals.ndim != 1 or len(n_targets) != len(lengths) or n_targets.sum() != len(goals):
        raise ShapeError(
            f"ctc_loss: targets of shape {np.shape(targets)} don't fit the lengths {n_targets.tolist()} of "
            f"{len(lengths)} rows"
        )
    n_classes = frames.shape[1]
    wrong = goals[(goals < 0) | (goals >= n_classes)]
    if wrong.size or not 0 <= blank < n_classes:
        raise StreamIndexError(f"ctc_loss: class {int(wrong[0]) if wrong.size else blank} of {n_classes}")
    given = (
        np.ascontiguousarray(frames.numpy(), np.float64),
        lengths,
        goals.astype(np.int64),
        n_targets,
        int(blank),
    )
    losses, alphas = ctc(*given)
    lost = np.isinf(losses) if zero_infinity else np.zeros(len(losses), bool)
    out: Tensor = Tensor(np.where(lost, 0, losses).astype(x.dtype))

    def back(g: Any) -> list[Any]:
        slopes = ctc(*given, losses, alphas, g.astype(np.float64))
        slopes[np.repeat(lost, lengths)] = 0
        return [slopes.astype(x.dtype)]

    places = sources([frames])
    if places is not None:
        recorded(Record("ctc_loss", places, back), [out])
    if reduction == "mean":
        return (out / np.maximum(n_targets, 1).astype(x.dtype)).mean()
    return reduced("ctc_loss", out[0] if single else out, reduction)


def _of_files(x: Any, input_lengths: Any) -> tuple[Tensor, Any, bool]:
    """Return the frames of all rows end to end, how many each has, and whether there is one without B."""
    given = None if input_lengths is None else np.asarray(input_lengths, np.int64).reshape(-1)
    if x.is_stream:
        if x.dims[0] != "L" or x.dims[1:-1] != ("B",):
            raise ShapeError(f"ctc_loss: log_probs must be (L, B, classes), got {x.names}")
        own = np.asarray(x.lengths, np.int64)
        if given is None or np.array_equal(given, own):
            return x._frames(), own, False
        bad = np.flatnonzero(given > own) if len(given) == len(own) else np.arange(len(own))
        if bad.size:
            raise StreamMismatchError(
                f"ctc_loss: input_lengths {given.tolist()} go beyond the frames that there are",
                [x.ids[r] for r in bad],
            )
        x = x.tensor()
    single = x.ndim == 2
    x = x.unsqueeze(1) if single else x
    if (
        x.ndim != 3
        or given is None
        or len(given) != x.shape[1]
        or (given.size and not 0 <= given.max() <= x.shape[0])
    ):
        raise ShapeError(
            f"ctc_loss: log_probs of shape {tuple(x.shape)} and input_lengths {input_lengths}; expected "
            "(L, B, classes) and B lengths up to L"
        )
    return x.permute(1, 0, 2)[np.arange(x.shape[0]) < given[:, None]], given, single
