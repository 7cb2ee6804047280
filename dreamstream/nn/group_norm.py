"""Normalisation of channels by statistics of the input itself."""

from __future__ import annotations

from typing import Any

from ..array import Tensor
from ..errors import ShapeError
from . import functional as F
from .batch_norm import STATISTICS, ChannelNorm
from .functional.texts import described
from .linear import Affine

__all__ = ["GroupNorm", "InstanceNorm1d", "InstanceNorm2d"]


@described(**STATISTICS, num_channels="Channels.")
class GroupNorm(Affine):
    """``(x - mean) / sqrt(variance + eps) * weight + bias``, by the statistics of groups of channels.

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``.

    Raises
    ------
    ShapeError
        Where the groups don't divide the channels, or an input has others.
    NotStreamableError
        Where the statistics would be over the stream.

    Notes
    -----
    Input ``(B, C, *)``, output alike. **Streaming.** Of independent frames, ``(B_L, C, *)`` or ``(B, C)``:
    delay 0, no state. Over the stream, ``(B, C, L)``, only with ``unstreamable="buffer"``: delay infinite,
    all frames are kept until the end. Source: torch.nn.GroupNorm.
    """

    _shown = "{num_groups}, {num_channels}, eps={eps}, affine={affine}, bias={bias}"

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_groups} groups don't divide {num_channels} channels evenly")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make_affine((num_channels,), {"weight": affine, "bias": affine and bias}, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, every row's groups of channels normalised."""
        size = input.shape[1] if input.ndim > 1 else None
        if size is None or (isinstance(size, int) and size != self.num_channels):
            raise ShapeError(f"GroupNorm: expected (B, {self.num_channels}, *), got shape {input.shape}")
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _InstanceNorm(ChannelNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, every row's channels normalised."""
        alone = input.ndim == self.ranks[0] and not input.is_stream  # torch takes a row without B
        self._check(input, 0 if alone else 1)
        if alone:
            return self._normalised(input.unsqueeze(0)).squeeze(0)
        return self._normalised(input)

    def _normalised(self, x: Tensor) -> Tensor:
        tracked, mean, variance = self.track_running_stats, self.running_mean, self.running_var
        of_input, part = self.training or not tracked, self.momentum or 0.0
        return F.instance_norm(x, mean, variance, self.weight, self.bias, of_input, part, self.eps)


@described(
    **STATISTICS,
    track_running_stats="Whether there are running statistics, which in evaluation take the place of the input's "
    "own.",
)
class InstanceNorm1d(_InstanceNorm):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` per row and channel.

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``.
    running_mean, running_var, num_batches_tracked : Tensor or None
        As in `BatchNorm1d`.

    Raises
    ------
    ModeError
        In training with running statistics, of streams that go on.
    ShapeError
        For inputs of other shapes.
    NotStreamableError
        Where the statistics would be over the stream.

    Notes
    -----
    Input ``(B, C, L)`` or, plain, ``(C, L)``; output alike, without frames where L is 1. **Streaming.** Of
    independent frames, ``(B_L, C, T)``, or with running statistics: delay 0, no state. Over the stream only
    with ``unstreamable="buffer"``: delay infinite, all frames are kept until the end. Source:
    torch.nn.InstanceNorm1d.
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` per row and channel.

    Input ``(B, C, H, W)`` or, plain, ``(C, H, W)``; output alike. All else as in `InstanceNorm1d`.

    Notes
    -----
    **Streaming.** As `InstanceNorm1d`. Source: torch.nn.InstanceNorm2d.
    """

    ranks = (3, 4)
