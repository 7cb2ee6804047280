"""Time-depth separable convolutions: the networks of wav2letter@anywhere, and what stands before them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import nn
from ..array import Tensor, ones_like, where
from ..errors import FormatError, ShapeError
from ..nn import functional as F
from ..nn.features import hertz_of_htk, htk_of_hertz, triangles

#: A deviation that is no greater counts as none: nothing is divided by it.
_LEAST_DEVIATION = 1e-5
#: What a line of a text may ask for.
_MOST_WEIGHTS, _MOST_ZEROS = 1 << 28, 4096


class Mfsc(nn.KaldiFbank):
    """Logarithms of magnitudes in bands of the mel scale, as wav2letter computes them.

    Each window of `frame_size` ms is scaled to 16 bits, pre-emphasised by 0.97 within itself and multiplied with a
    Hamming window; bands are triangles of equal height from 0 to half the rate, and magnitudes below 1 count as 1.

    Parameters
    ----------
    n_mels : int
        Bands.
    frame_size, frame_shift : int
        Milliseconds of a window, and from window to window.
    sample_rate : int
        Samples per second.

    Raises
    ------
    ShapeError
        For sizes below 1.

    Notes
    -----
    Input ``(B, L)``, float samples within ±1, output ``(B, frames, n_mels)``. A last window that is not complete
    gives no frame. **Streaming.** A frame leaves with its window's last sample; state a window less a shift, 4
    bytes a sample. Source: wav2letter's LogMelFeature.
    """

    def __init__(
        self, n_mels: int = 80, frame_size: int = 25, frame_shift: int = 10, sample_rate: int = 16000
    ) -> None:
        how: dict[str, Any] = {"window_type": "hamming", "low_freq": 0.0, "use_power": False}
        super().__init__(n_mels, sample_rate, frame_size, frame_shift, 0.97, False, **how)
        self.sample_rate, self.floor = sample_rate, 1.0
        hertz = np.arange(self.padded // 2 + 1) * (sample_rate / self.padded)
        edges = hertz_of_htk(np.linspace(0, htk_of_hertz(hertz[-1]), n_mels + 2))
        self.filters.numpy()[...] = triangles(hertz, edges)  # straight in hertz, Kaldi's are in mel
        self.window.numpy()[...] *= 32768


class LocalNorm(nn.Module):
    """Normalises each frame by mean and deviation of all features of itself and of `left` frames before.

    Parameters
    ----------
    left : int
        Frames before, as far as there are any.

    Notes
    -----
    Input and output ``(B, L, F)``. Squares are of differences from means, so that numbers which are all but equal
    give no negative variance; a deviation of 1e-5 or less counts as 1. **Streaming.** Delay 0; state `left` means
    and variances of frames, and as many ones. Source: wav2letter's LocalNorm.
    """

    def __init__(self, left: int) -> None:
        super().__init__()
        if left < 0:
            raise ShapeError(f"LocalNorm: expected 0 frames or more, got {left}")
        self.left = left

    def _windows(self, x: Tensor) -> Tensor:
        """Return of values ``(B, L)`` those of each frame's window, ``(B, L, left + 1)``."""
        padded: Tensor = F.pad(x, (self.left, 0)).unfold(-1, self.left + 1, 1)
        return padded

    def forward(self, input: Tensor) -> Tensor:
        """Return the frames, normalised."""
        means = input.mean(-1)
        variances = ((input - means.unsqueeze(-1)) ** 2).mean(-1)
        there = self._windows(ones_like(means))
        n, windows = there.sum(-1), self._windows(means)
        mean = windows.sum(-1) / n
        apart = (windows - mean.unsqueeze(-1)) * there
        variance = (self._windows(variances).sum(-1) + (apart * apart).sum(-1)) / n
        return _divided(input - mean.unsqueeze(-1), variance.unsqueeze(-1))


class ScalarNorm(nn.Module):
    """Layer norm of the features of a frame, with one weight and one bias for all of them.

    Notes
    -----
    Input and output ``(B, L, F)``; a deviation of 1e-5 or less counts as 1. **Streaming.** Delay 0, no state.
    Source: wav2letter's LayerNorm.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.ones(1, np.float32))
        self.bias = nn.Parameter(np.zeros(1, np.float32))

    def forward(self, input: Tensor) -> Tensor:
        """Return the frames, normalised."""
        x = input - input.mean(-1, keepdim=True)
        return _divided(x, (x * x).mean(-1, keepdim=True)) * self.weight + self.bias


def _divided(x: Tensor, variance: Tensor) -> Tensor:
    deviation = variance.sqrt()
    return x / where(deviation > _LEAST_DEVIATION, deviation, 1.0)


class BandConv1d(nn.Module):
    """A convolution over time with the same weights for each of several bands.

    Parameters
    ----------
    in_channels, out_channels : int
        Of each band.
    kernel_size, stride : int
    padding : (int, int)
        Frames of zeros before the first and behind the last.
    bands : int

    Attributes
    ----------
    conv.weight : Parameter
        ``(out_channels, in_channels, kernel_size, 1)``.
    conv.bias : Parameter
        ``(out_channels,)``.

    Notes
    -----
    Input ``(B, L, bands * in_channels)``, the channels of a band side by side; output likewise. **Streaming.**
    Delay kernel_size - 1 - left frames; state the last kernel_size - 1 frames at most, 4 bytes a number.
    Source: wav2letter's Conv1d, whose groups share their weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
        bands: int = 80,
    ) -> None:
        super().__init__()
        if min(padding) < 0 or bands < 1:
            raise ShapeError(f"BandConv1d: expected padding from 0 and bands from 1 on, got {padding}, {bands}")
        self.bands, self.padding, self.in_channels = bands, padding, in_channels
        self.conv = nn.Conv2d(in_channels, out_channels, (kernel_size, 1), (stride, 1))

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolved bands."""
        x = input.unflatten(-1, (self.bands, self.in_channels)).permute(0, 3, 1, 2)
        y: Tensor = self.conv(F.pad(x, (0, 0, *self.padding))).permute(0, 2, 3, 1).flatten(2)
        return y


class Residual(nn.Module):
    """Adds to its input what modules, one after the other, make of it."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*modules)

    def forward(self, input: Tensor) -> Tensor:
        """Return the sum."""
        out: Tensor = input + self.layers(input)
        return out


def tds_block(channels: int, kernel_size: int, bands: int, right: int, hidden: int | None = None) -> nn.Sequential:
    """Return a block of a convolution and two linear layers, each with what goes by it, and normed.

    See `BandConv1d` for the first three parameters. The block looks `right` frames ahead, and has `hidden`
    features between the linear layers, by default those of the input.
    """
    size = channels * bands
    if not 0 <= right < kernel_size:
        raise ShapeError(f"of a kernel of {kernel_size} frames at most {kernel_size - 1} are ahead, got {right}")
    conv = BandConv1d(channels, channels, kernel_size, 1, (kernel_size - 1 - right, right), bands)
    hidden = hidden or size
    products = Residual(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, size))
    return nn.Sequential(Residual(conv, nn.ReLU()), ScalarNorm(), products, ScalarNorm())


class TDSNet(nn.Sequential):
    """A network of time-depth separable convolutions, from the text that describes it.

    Parameters
    ----------
    arch : str or path
        A line per layer, as wav2letter's ``.arch`` files have it (a text of several lines, or a file): ``PD``,
        ``C2``, ``R``, ``LN``, ``TDS``, ``L``. What is of training or of the layout alone (``V``, ``RO``, ``DO``,
        ``SAUG``) is passed over.
    n_features : int
        Bands of the input.
    n_tokens : int
        In the place of ``NLABEL``.

    Attributes
    ----------
    spec : tuple
        What `dreamstream.compile` wants to know of the input.

    Raises
    ------
    FormatError
        For a line that is none of these; the message says which.

    Notes
    -----
    Input ``(B, L, n_features)``, output scores ``(B, frames, n_tokens)``. Layers are numbered in the order of the
    text: ``"0.conv.weight"`` is the first convolution's. **Streaming.** The delay is that of the paddings behind.
    Source: wav2letter@anywhere (recipes/streaming_convnets); Hannun et al., Sequence-to-Sequence Speech
    Recognition with Time-Depth Separable Convolutions.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> net = TDSNet("PD 0 2 1\\nC2 1 3 4 1 2 1 0 0\\nR\\nLN 1 2\\nTDS 3 3 8 0.1 0 1 0\\nL 24 NLABEL", 8, 5).eval()
    >>> net(ds.tensor(np.zeros((1, 20, 8), np.float32))).shape
    (1, 10, 5)
    """

    def __init__(self, arch: str | os.PathLike[str], n_features: int = 80, n_tokens: int = 1) -> None:
        text = str(arch)
        if isinstance(arch, os.PathLike) or "\n" not in text:
            with open(arch, encoding="utf-8") as file:
                text = file.read()
        super().__init__(*_layers(text, n_features, n_tokens))
        self.spec = ("B", "L", n_features)


def _layers(text: str, bands: int, n_tokens: int) -> Iterator[nn.Module]:
    padding = None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].replace("NFEAT", str(bands)).replace("NLABEL", str(n_tokens)).split()
        if not words or words[0] in ("V", "RO", "DO", "SAUG"):
            continue
        try:
            if words[0] == "PD" and padding is None:
                padding = _padding(words[1:])
                continue
            layer = _layer(words, bands, padding)
        except (ValueError, IndexError, ShapeError) as error:
            raise FormatError(f"line {number}, {line.strip()!r}: {error}") from error
        padding = None
        yield layer
    if padding is not None:
        raise FormatError("the last line: PD stands before a C2")


def _sizes(words: Sequence[str]) -> list[int]:
    """Return the sizes of a layer's weights."""
    sizes = [int(word) for word in words]
    if min(sizes) < 1 or math.prod(sizes) > _MOST_WEIGHTS:
        raise ValueError(f"sizes of {sizes}: expected numbers from 1 on, and {_MOST_WEIGHTS} weights at most")
    return sizes


def _padding(words: Sequence[str]) -> tuple[int, int]:
    value, left, right, *others = words
    sides = int(left), int(right)
    if float(value) or any(map(int, others)) or not all(0 <= n <= _MOST_ZEROS for n in sides):
        raise ValueError(f"expected zeros, before and behind in time alone, {_MOST_ZEROS} at most")
    return sides


def _layer(words: Sequence[str], bands: int, padding: tuple[int, int] | None) -> nn.Module:
    kind, rest = words[0], words[1:]
    if padding is not None and kind != "C2":  # another PD, too
        raise ValueError("PD stands before a C2")
    if kind == "C2":
        n_in, n_out, kernel = _sizes(rest[:3])
        wide, stride, wide_stride, *others = map(int, rest[3:])
        if (wide, wide_stride) != (1, 1) or (any(others[2:]) and others[2:] != [1, 1]):
            raise ValueError("expected a kernel and a stride of 1 across bands, and no dilation")
        if not set(others[:2]) <= {0, -1}:
            raise ValueError("expected no zeros of its own: a PD says how many stand before and behind")
        own = (max(0, kernel - stride + 1) // 2,) * 2
        return BandConv1d(n_in, n_out, kernel, stride, padding or own, bands)
    if kind == "R" and not rest:
        return nn.ReLU()
    if kind == "LN" and rest == ["1", "2"]:
        return ScalarNorm()
    if kind == "L" and len(rest) == 2:
        n_in, n_out = _sizes(rest)
        return nn.Linear(n_in, n_out)
    if kind == "TDS":
        channels, kernel, n_bands = _sizes(rest[:3])
        hidden, right = (int(word) for word in (*rest[4:6], *("0", "-1")[len(rest[4:6]) :]))
        if len(rest) < 7 or int(rest[6]):
            raise ValueError("norms over time do not stream: the last number of a TDS line must be 0")
        right = (kernel - 1) // 2 if right < 0 else right
        _sizes([rest[0], rest[2], str(hidden or channels * n_bands)])
        return tds_block(channels, kernel, n_bands, right, hidden or None)
    raise ValueError("expected PD, C2, R, LN 1 2, TDS or L, with their numbers")
