"""Normalisation of channels by running statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import Tensor, dtypes as element_types
from ..errors import ShapeError
from ..operations.refusals import BATCH_STATISTICS
from . import functional as F
from .functional.statistics import CHANNELS
from .functional.texts import described
from .linear import AFFINE, Affine

__all__ = ["BatchNorm1d", "BatchNorm2d"]

STATISTICS = {**CHANNELS, **AFFINE, "num_features": "Channels."}


class ChannelNorm(Affine):
    """What layers with a mean and a variance per channel have: parameters, buffers, text."""

    _shown = (
        "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={bias}, "
        "track_running_stats={track_running_stats}"
    )

    #: Numbers of dimensions that an input may have.
    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        element = element_types.float32 if dtype is None else element_types.as_dtype(dtype)
        for name, value in (
            ("running_mean", np.zeros(num_features, element)),
            ("running_var", np.ones(num_features, element)),
            ("num_batches_tracked", np.array(0)),
        ):
            self.register_buffer(name, Tensor(value) if track_running_stats else None)
        self._make_affine((num_features,), {"weight": affine, "bias": affine and bias}, device, dtype)

    def reset_running_stats(self) -> None:
        """Set the running mean to zeros and the running variance to ones."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set the running statistics to their start, the weight to ones and the bias to zeros."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check(self, input: Tensor, channels: int = 1) -> None:
        """Raise ShapeError unless the input has a possible rank and `num_features` channels."""
        ndim = input.ndim
        if ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(f"{type(self).__name__}: expected {ranks} dimensions, got {input.shape}")
        size = input.shape[channels]
        if isinstance(size, int) and size != self.num_features:
            raise ShapeError.here(
                f"{type(self).__name__}: expected {self.num_features} channels in dimension {channels}, got {size}"
            )


class _BatchNorm(ChannelNorm):
    def unstreamable(self) -> tuple[str, str] | None:
        """Return why statistics of the batch can't stream, and what would work."""
        return None if self.track_running_stats else BATCH_STATISTICS.words

    def _update(self, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        part = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        F.statistics.update_statistics((self.running_mean, self.running_var), part, mean, variance)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, every channel normalised."""
        self._check(input)
        if self.training and self.track_running_stats:
            return F.statistics.by_batch(input, self.weight, self.bias, self.eps, self._update)
        return F.batch_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            not self.track_running_stats,
            self.momentum,
            self.eps,
        )


@described(
    **STATISTICS,
    track_running_stats="Whether there are running statistics; without them they are the batch's, of plain "
    "tensors only.",
)
class BatchNorm1d(_BatchNorm):
    """``(x - running_mean) / sqrt(running_var + eps) * weight + bias`` per channel, in evaluation.

    In training mean and variance are the batch's, which the running ones follow; streams must start and end in it.

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``.
    running_mean, running_var : Tensor or None
        ``(C,)``.
    num_batches_tracked : Tensor or None
        int64, without dimensions.

    Raises
    ------
    ModeError
        In training, of streams that go on: call ``bn.eval()``.
    ShapeError
        For inputs of other shapes.
    NotStreamableError
        For streams without running statistics, and where dimension 1 of a stream is no feature.

    Notes
    -----
    Input ``(B, C)`` or ``(B, C, L)``, output alike. **Streaming.** Delay 0, no state. Source:
    torch.nn.BatchNorm1d.
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """``(x - running_mean) / sqrt(running_var + eps) * weight + bias`` per channel, in evaluation.

    Input ``(B, C, H, W)``, output alike; of a stream any of B, H and W may be its axes. All else as in
    `BatchNorm1d`.

    Notes
    -----
    **Streaming.** Delay 0, no state. Source: torch.nn.BatchNorm2d.
    """

    ranks = (4,)
