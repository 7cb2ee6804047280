"""Features of speech: logarithms of power in bands of the mel scale, for NumPy's tensors and for torch's.

`Bands` and `KaldiBands` are mixed into modules of both front ends, whose `ops` are the functions of their tensors.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..array.dtypes import as_dtype, float32, require_float
from ..errors import ShapeError
from .functional.arguments import require_positive
from .module import Module
from .native_ops import OPS
from .routing import FrontEndModule

__all__ = ["KaldiFbank", "LogMel"]

Array = npt.NDArray[Any]

EPSILON = 2.0**-23  # Kaldi's, of float32


def triangles(bins: Array, edges: Array) -> Array:
    """Return triangles ``(bands, bins)``: band b rises from edge b to edge b + 1, and falls to edge b + 2."""
    up = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.maximum(0.0, np.minimum(up, down))


def _slaney(hertz: Array) -> Array:
    """Slaney's mel: linear up to 1 kHz, 15, and 27 steps for a factor of 6.4 above."""
    above = 15 + np.log(np.maximum(hertz, 1000) / 1000) * (27 / math.log(6.4))
    return np.where(hertz < 1000, hertz * 0.015, above)


def _of_slaney(mel: Array) -> Array:
    return np.where(mel < 15, mel / 0.015, 1000 * np.exp((np.maximum(mel, 15) - 15) * (math.log(6.4) / 27)))


def htk_of_hertz(hertz: Array) -> Array:
    return np.asarray(1127 * np.log1p(hertz / 700))


def hertz_of_htk(mel: Array) -> Array:
    return np.asarray(700 * np.expm1(mel / 1127))


class Buffers(FrontEndModule):
    """Adds buffers of the layer's dtype, which torch's front end leaves out of state dicts."""

    dtype: str
    register_buffer: Any

    def register(self, name: str, values: Array) -> None:
        self.register_buffer(name, self.ops.tensor(values.astype(self.dtype)), self.ops.keeps_tables)


class Bands(Buffers):
    """Logarithms of the power in bands of the mel scale, of windows of samples.

    Parameters
    ----------
    sample_rate : int
        Samples per second.
    n_fft : int
        Samples of a window, a periodic Hann window.
    hop : int
        Samples from window to window.
    n_mels : int
        Bands, from 0 to half the sample rate.
    center : bool
        Whether windows stand around multiples of `hop`; samples are mirrored at both ends for that.
    log : {"natural", "log10", "db"}
        The logarithm; "db" is 10 times that of base 10.
    mel : {"slaney", "htk"}
        The scale: Slaney's, with bands of equal area (librosa's default, and Whisper's), or HTK's, with bands of
        equal height (torchaudio's default).
    floor : float
        The least power.
    dtype : dtype or str, optional
        float32 or float64.

    Attributes
    ----------
    window : Tensor
        A buffer ``(n_fft,)``.
    filters : Tensor
        A buffer ``(n_mels, n_fft // 2 + 1)``.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input ``(B, L)``, output ``(B, n_mels, frames)``, at 1 / hop of the rate.

    **Streaming.** A frame leaves with its window's last sample; state n_fft - hop samples, 4 bytes each.

    Source: librosa.feature.melspectrogram; torchaudio.transforms.MelSpectrogram.
    """

    _shown = "{sample_rate}, n_fft={n_fft}, hop={hop}, n_mels={n_mels}, center={center}"

    window: Any
    filters: Any

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        hop: int = 160,
        n_mels: int = 80,
        center: bool = False,
        log: str = "natural",
        mel: str = "slaney",
        floor: float = 1e-10,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if log not in ("natural", "log10", "db"):
            raise ShapeError(f"LogMel: log is natural, log10 or db, got {log!r}")
        if mel not in ("slaney", "htk"):
            raise ShapeError(f"LogMel: mel is slaney or htk, got {mel!r}")
        require_positive("LogMel", sample_rate=sample_rate, n_fft=n_fft, hop=hop, n_mels=n_mels)
        self.sample_rate, self.n_fft, self.hop, self.n_mels = sample_rate, n_fft, hop, n_mels
        self.center, self.log, self.mel, self.floor = center, log, mel, float(floor)
        to = float32 if dtype is None else as_dtype(dtype)
        require_float("LogMel", to)
        there, back = (_slaney, _of_slaney) if mel == "slaney" else (htk_of_hertz, hertz_of_htk)
        edges = back(np.linspace(0, there(np.array(sample_rate / 2)), n_mels + 2))
        filters = triangles(np.arange(n_fft // 2 + 1) * (sample_rate / n_fft), edges)
        if mel == "slaney":
            filters *= (2 / (edges[2:] - edges[:-2]))[:, None]
        window = 0.5 - 0.5 * np.cos(2 * np.pi / n_fft * np.arange(n_fft))
        self.dtype = to.name
        self.register("window", window)
        self.register("filters", filters)

    def forward(self, input: Any) -> Any:
        """Return the bands' logarithms ``(B, n_mels, frames)``."""
        x = self.ops.checked("LogMel", input)
        real, imag = self.ops.stft(x, self.n_fft, self.hop, window=self.window, center=self.center)
        power = (self.filters @ (real * real + imag * imag)).clamp(min=self.floor)
        if self.log == "natural":
            return power.log()
        return power.log10() * 10.0 if self.log == "db" else power.log10()


def _window(kind: str, n: int) -> Array:
    """Return one of Kaldi's windows, whose last sample is as its first."""
    turn: Array = 2 * np.pi / max(n - 1, 1) * np.arange(n)
    hann = 0.5 - 0.5 * np.cos(turn)
    windows: dict[str, Array] = {
        "hanning": hann,
        "povey": hann**0.85,
        "hamming": 0.54 - 0.46 * np.cos(turn),
        "blackman": 0.42 - 0.5 * np.cos(turn) + 0.08 * np.cos(2 * turn),
        "rectangular": np.ones(n),
    }
    if kind not in windows:
        raise ShapeError(f"KaldiFbank: window_type is one of {', '.join(windows)}, got {kind!r}")
    return windows[kind]


class KaldiBands(Buffers):
    """Kaldi's logarithms of the power in bands of the mel scale, without dither.

    Parameters
    ----------
    num_mel_bins : int
        Bands.
    sample_frequency : float
        Samples per second.
    frame_length, frame_shift : float
        Milliseconds of a window, and from window to window.
    preemphasis_coefficient : float
        How much of the sample before is taken off each, within a window.
    remove_dc_offset : bool
        Whether each window's mean is taken off first.
    window_type : {"povey", "hanning", "hamming", "blackman", "rectangular"}
        The window.
    round_to_power_of_two : bool
        Whether windows are filled up with zeros to a power of two.
    snip_edges : bool
        True: windows lie within the samples. False: windows stand around the middles of shifts, and samples are
        mirrored at both ends.
    low_freq, high_freq : float
        Where the bands begin and end, in Hz; `high_freq` of 0 or less counts from half the sample frequency.
    use_power, use_log_fbank : bool
        False: magnitudes instead of their squares; no logarithm.
    dtype : dtype or str, optional
        float32 or float64.

    Attributes
    ----------
    window : Tensor
        A buffer ``(samples of a window,)``.
    filters : Tensor
        A buffer ``(num_mel_bins, bins)``.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input ``(B, L)``, output ``(B, frames, num_mel_bins)``. Kaldi's samples are those of 16 bits: multiply those
    from -1 to 1 by 32768.

    **Streaming.** A frame leaves with its window's last sample; state a window less a shift, 4 bytes a sample;
    twice that where samples are mirrored.

    Source: Kaldi's compute-fbank-feats; torchaudio.compliance.kaldi.fbank.
    """

    _shown = "{num_mel_bins}, {size} samples, {shift} apart, snip_edges={snip_edges}"

    window: Any
    filters: Any

    def __init__(
        self,
        num_mel_bins: int = 80,
        sample_frequency: float = 16000.0,
        frame_length: float = 25.0,
        frame_shift: float = 10.0,
        preemphasis_coefficient: float = 0.97,
        remove_dc_offset: bool = True,
        window_type: str = "povey",
        round_to_power_of_two: bool = True,
        snip_edges: bool = True,
        low_freq: float = 20.0,
        high_freq: float = 0.0,
        use_power: bool = True,
        use_log_fbank: bool = True,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.size, self.shift = (int(sample_frequency * t * 0.001) for t in (frame_length, frame_shift))
        if self.shift < 1 or self.size < 2 or (not snip_edges and self.shift > self.size):
            raise ShapeError(
                f"KaldiFbank: windows of {self.size} samples, {self.shift} apart: expected 2 at least, 1 apart at "
                "least, and with snip_edges=False no more than a window"
            )
        self.padded = 1 << (self.size - 1).bit_length() if round_to_power_of_two else self.size
        top = high_freq if high_freq > 0 else high_freq + sample_frequency / 2
        if not 0 <= low_freq < top <= sample_frequency / 2 or operator.index(num_mel_bins) < 1:
            raise ShapeError(f"KaldiFbank: {num_mel_bins} bands from {low_freq} to {top} Hz of {sample_frequency}")
        self.num_mel_bins, self.preemphasis = num_mel_bins, float(preemphasis_coefficient)
        self.remove_dc_offset, self.snip_edges = remove_dc_offset, snip_edges
        self.use_power, self.use_log_fbank, self.floor = use_power, use_log_fbank, EPSILON
        to = float32 if dtype is None else as_dtype(dtype)
        require_float("KaldiFbank", to)
        bins = htk_of_hertz(np.arange(self.padded // 2) * (sample_frequency / self.padded))
        low, high = htk_of_hertz(np.array([low_freq, top]))
        filters = triangles(bins, np.linspace(low, high, num_mel_bins + 2))
        filters = np.pad(filters, ((0, 0), (0, self.padded // 2 + 1 - len(bins))))
        self.dtype = to.name
        self.register("window", _window(window_type, self.size))
        self.register("filters", filters)

    def forward(self, input: Any) -> Any:
        """Return the bands' logarithms ``(B, frames, num_mel_bins)``."""
        return self.bands(self.windows(input))

    def windows(self, input: Any) -> Any:
        """Return windows of samples ``(B, frames, size)``, without their means if these are to go."""
        x = self.ops.checked("KaldiFbank", input)
        x = x if self.snip_edges else self._mirrored(x)
        x = x.unfold(-1, self.size, self.shift)
        return x - x.mean(-1, keepdim=True) if self.remove_dc_offset else x

    def bands(self, x: Any) -> Any:
        """Return the bands of windows."""
        if self.preemphasis:
            x = x - self.ops.cat([x[..., :1], x[..., :-1]], -1) * self.preemphasis
        real, imag = self.ops.rfft(x * self.window, self.padded)
        power = real * real + imag * imag
        bands = self.ops.linear_of(power if self.use_power else power.sqrt(), self.filters)
        return bands.clamp(min=self.floor).log() if self.use_log_fbank else bands

    def _mirrored(self, x: Any) -> Any:
        """Return samples between their mirror images, the outermost twice.

        Of samples that come twice the ends are reflected, and every second one is taken.
        """
        left = self.size // 2 - self.shift // 2
        right = self.size - self.shift + self.shift // 2 - left
        pad = self.ops.pad
        x = pad(x.repeat_interleave(2, -1), (0, 1), "replicate")
        return pad(x, (2 * left, 2 * right), "reflect")[..., 1::2]


class LogMel(Bands, Module, ops=OPS): ...


class KaldiFbank(KaldiBands, Module, ops=OPS): ...
