"""What is made of features of speech: cepstra, their changes, norms, and masks in training.

As in `features`, what is computed is mixed into modules of both front ends.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..array import Tensor
from ..errors import ShapeError
from .features import Bands, KaldiBands
from .module import Module
from .native_ops import OPS
from .routing import FrontEndModule

__all__ = ["MFCC", "Deltas", "GlobalCMVN", "KaldiMFCC", "SlidingCMVN", "SpecAugment"]


def _cosines(of: str, kept: int, bands: int, norm: str | None) -> Any:
    """Return the first rows of the cosine transform of type II, ``(kept, bands)``."""
    if not 1 <= operator.index(kept) <= bands or norm not in ("ortho", None):
        raise ShapeError(f'{of}: {kept} cepstra of {bands} bands, norm={norm!r}: at most as many, "ortho" or None')
    rows = 2 * np.cos(np.pi / bands * np.outer(np.arange(kept), np.arange(bands) + 0.5))
    if norm == "ortho":
        rows *= np.sqrt(np.where(np.arange(kept) == 0, 0.25, 0.5) / bands)[:, None]
    return rows


class MelCepstra(Bands):
    """Cepstra of the mel scale: the cosine transform of `LogMel`'s bands, with torchaudio's defaults.

    Parameters
    ----------
    sample_rate : int
        Samples per second.
    n_mfcc : int
        Cepstra that are kept, the first.
    norm : {"ortho", None}
        Whether the transform keeps lengths.
    **options
        Those of `LogMel`, by default 128 bands of HTK's scale in decibels, of centred windows 200 samples apart.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input ``(B, L)``, output ``(B, n_mfcc, frames)``. Torchaudio's ``top_db`` isn't here: it depends on the
    loudest value of the whole recording. **Streaming.** That of `LogMel`.

    Source: torchaudio.transforms.MFCC.
    """

    _shown = "{sample_rate}, n_mfcc={n_mfcc}, n_fft={n_fft}, hop={hop}, n_mels={n_mels}, center={center}"

    cosines: Any

    def __init__(
        self, sample_rate: int = 16000, n_mfcc: int = 40, norm: str | None = "ortho", **options: Any
    ) -> None:
        usual = {"hop": 200, "n_mels": 128, "center": True, "log": "db", "mel": "htk"}
        super().__init__(sample_rate, **{**usual, **options})
        self.n_mfcc, self.norm = n_mfcc, norm
        self.register("cosines", _cosines("MFCC", n_mfcc, self.n_mels, norm))

    def forward(self, input: Any) -> Any:
        """Return cepstra ``(B, n_mfcc, frames)``."""
        return self.cosines @ super().forward(input)


class KaldiCepstra(KaldiBands):
    """Kaldi's cepstra of the mel scale, without dither.

    Parameters
    ----------
    num_ceps : int
        Cepstra that are kept, the first.
    cepstral_lifter : float
        How much later cepstra are raised; 0 for not at all.
    use_energy : bool
        Whether the logarithm of a window's energy, before emphasis and window, stands in place of the first.
    **options
        Those of `KaldiFbank`, with 23 bands by default.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input ``(B, L)``, output ``(B, frames, num_ceps)``. **Streaming.** That of `KaldiFbank`.

    Source: Kaldi's compute-mfcc-feats; torchaudio.compliance.kaldi.mfcc.
    """

    _shown = "{num_ceps} of {num_mel_bins} bands, {size} samples, {shift} apart, snip_edges={snip_edges}"

    cosines: Any

    def __init__(
        self, num_ceps: int = 13, cepstral_lifter: float = 22.0, use_energy: bool = False, **options: Any
    ) -> None:
        super().__init__(**{"num_mel_bins": 23, **options})
        self.num_ceps, self.use_energy = num_ceps, use_energy
        rows = _cosines("KaldiMFCC", num_ceps, self.num_mel_bins, "ortho")
        if cepstral_lifter:
            turns = np.pi / cepstral_lifter * np.arange(num_ceps)
            rows *= (1 + 0.5 * cepstral_lifter * np.sin(turns))[:, None]
        self.register("cosines", rows)

    def forward(self, input: Any) -> Any:
        """Return cepstra ``(B, frames, num_ceps)``."""
        windows = self.windows(input)
        out = self.ops.linear_of(self.bands(windows), self.cosines)
        if not self.use_energy:
            return out
        energy = (windows * windows).sum(-1, keepdim=True).clamp(min=self.floor).log()
        return self.ops.cat([energy, out[..., 1:]], -1)


class Slopes(FrontEndModule):
    """How features change from frame to frame: the slope of a line through the frames around each.

    Parameters
    ----------
    win_length : int
        Frames of a line, an odd number, 3 at least.
    mode : {"replicate", "constant", "reflect"}
        What stands before the first frame and behind the last.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input and output ``(B, F, L)``; two behind one another give the second derivative. **Streaming.** Delay
    ``win_length // 2`` frames, state ``win_length - 1``.

    Source: torchaudio.transforms.ComputeDeltas.
    """

    _shown = "win_length={win_length}, mode={mode}"

    def __init__(self, win_length: int = 5, mode: str = "replicate") -> None:
        super().__init__()
        if operator.index(win_length) < 3 or win_length % 2 == 0:
            raise ShapeError(f"Deltas: win_length is an odd number, 3 at least, got {win_length}")
        if mode not in ("replicate", "constant", "reflect"):
            raise ShapeError(f"Deltas: mode is replicate, constant or reflect, got {mode!r}")
        self.win_length, self.mode = win_length, mode

    def forward(self, input: Any) -> Any:
        """Return slopes ``(B, F, L)``."""
        n = self.win_length // 2
        frames = self.ops.pad(input, (n, n), self.mode).unfold(-1, self.win_length, 1)
        slope = self.ops.constant(np.arange(-n, n + 1) / (n * (n + 1) * (2 * n + 1) / 3), frames)
        return (frames * slope).sum(-1)


class GlobalCMVN(Module):
    """Features less their mean, and divided by their spread, both known beforehand.

    Parameters
    ----------
    mean, istd : array
        ``(features,)``: means, and inverse standard deviations.
    norm_var : bool
        Whether to divide.

    Notes
    -----
    Input and output ``(B, L, features)``. **Streaming.** Delay 0, no state. Source: WeNet.
    """

    mean: Tensor
    istd: Tensor

    def __init__(self, mean: Any, istd: Any, norm_var: bool = True) -> None:
        super().__init__()
        self.register_buffer("mean", Tensor(np.array(mean, np.float32)))
        self.register_buffer("istd", Tensor(np.array(istd, np.float32)))
        self.norm_var = norm_var

    def forward(self, x: Tensor) -> Tensor:
        """Return the normed features."""
        x = x - self.mean
        return x * self.istd if self.norm_var else x


class SlidingNorm(FrontEndModule):
    """Features less their mean over the frames before, and divided by their spread if that is asked for.

    Parameters
    ----------
    cmn_window : int
        How many frames before its own a frame's mean sees.
    min_cmn_window : int
        The first frames wait until so many are there, or the stream ends, and take the mean of those.
    norm_vars : bool
        Whether to divide.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input and output ``(B, F, L)``. **Streaming.** The first frames leave with frame `min_cmn_window`, all others
    with their own; those of a stream that is shorter leave at its end. State `cmn_window` frames.

    Source: Kaldi's apply-cmvn-sliding and torchaudio.transforms.SlidingWindowCmn, with ``center=False``.
    """

    _shown = "{cmn_window}, min_cmn_window={min_cmn_window}, norm_vars={norm_vars}"

    def __init__(self, cmn_window: int = 600, min_cmn_window: int = 100, norm_vars: bool = False) -> None:
        super().__init__()
        if not 1 <= operator.index(min_cmn_window) <= operator.index(cmn_window) + 1:
            raise ShapeError(f"SlidingCMVN: the first {min_cmn_window} frames wait, in a window of {cmn_window}")
        self.cmn_window, self.min_cmn_window, self.norm_vars = cmn_window, min_cmn_window, norm_vars

    def _before(self, x: Any) -> Any:
        """Return means over each frame and a window of those before, with zeros before the first."""
        window, wait = self.cmn_window, self.min_cmn_window - 1
        means = self.ops.avg_pool1d(self.ops.pad(x, (window, 0)), window + 1, 1)
        later = self.ops.pad(means, (0, wait), "replicate")[..., wait:]  # of a short stream the last
        return self.ops.pad(later, (wait, 0), "replicate")[..., : -wait or None]

    def forward(self, input: Any) -> Any:
        """Return the normed features."""
        share = self._before(input[:, :1] * 0 + 1)  # of the window that has frames
        mean = self._before(input) / share
        out = input - mean
        if not self.norm_vars:
            return out
        return out * (self._before(input * input) / share - mean * mean) ** -0.5


class Masks(FrontEndModule):
    """In training, bands and frames of features are hidden; in evaluation nothing is.

    Parameters
    ----------
    n_freq_masks, freq_mask_param : int
        How many runs of bands are hidden in all of a stream, and of how many bands one has less than.
    time_masks : float
        How often a run of frames begins: so many in a hundred frames on average.
    time_mask_param : int
        The most frames of a run.
    value : float
        What stands where features are hidden.

    Raises
    ------
    ShapeError
        For arguments that don't fit.

    Notes
    -----
    Input and output ``(B, F, L)``. **Streaming.** Delay 0. What is hidden of a stream follows from the seed, its
    name and the positions of its frames, as in `Dropout`: however the stream is cut, the same.

    Source: Park et al., "SpecAugment" (2019), whose number of runs of frames is that of a recording; here it grows
    with the stream.
    """

    training: bool
    _shown = "{n_freq_masks} of {freq_mask_param} bands, {time_masks} of {time_mask_param} frames"

    def __init__(
        self,
        n_freq_masks: int = 2,
        freq_mask_param: int = 10,
        time_masks: float = 0.5,
        time_mask_param: int = 50,
        value: float = 0.0,
    ) -> None:
        super().__init__()
        whole = map(operator.index, (n_freq_masks, freq_mask_param, time_mask_param))
        if min(whole) < 0 or not 0 <= time_masks < 100:
            raise ShapeError("SpecAugment: numbers and widths of masks are 0 or more, time_masks less than 100")
        self.n_freq_masks, self.freq_mask_param = n_freq_masks, freq_mask_param
        self.time_masks, self.time_mask_param, self.value = time_masks, time_mask_param, float(value)

    def _uniform(self, one: Any, n: int) -> Any:
        """Return n numbers of [0, 1) for each frame, of 20 bits: dropout's, which are a stream's own."""
        bits = self.ops.dropout(one.unsqueeze(1).expand(-1, 20, n, -1), 0.5, True) * 0.5
        return (bits * self.ops.constant(0.5 ** np.arange(1, 21)[:, None, None], bits)).sum(1)

    def forward(self, input: Any) -> Any:
        """Return the features, in training with what is hidden."""
        if not self.training:
            return input
        one, bands, out = input.detach()[:, :1] * 0 + 1, input.shape[1], input
        if self.n_freq_masks and self.freq_mask_param:
            first = (one.cumsum(-1) == 1).to(one.dtype)
            drawn = (self._uniform(one, 2 * self.n_freq_masks) * first).cumsum(-1)  # the first frame's, for all
            at = self.ops.constant(np.arange(bands)[:, None], one)
            for k in range(self.n_freq_masks):
                width = drawn[:, 2 * k : 2 * k + 1] * min(self.freq_mask_param, bands)
                low = (drawn[:, 2 * k + 1 : 2 * k + 2] * (bands - width)).floor()
                out = out.masked_fill((at >= low) & (at < low + width.floor()), self.value)
        if self.time_masks and self.time_mask_param:
            n, (begins, width) = self.time_mask_param, self._uniform(one, 2).split(1, 1)
            left = (begins < self.time_masks / 100).to(one.dtype) * (1 + (width * n).floor())
            runs = self.ops.pad(left, (n - 1, 0)).unfold(-1, n, 1)  # of those before, the frames that are left
            gone = self.ops.constant(np.arange(n - 1, -1, -1), one)
            out = out.masked_fill((runs - gone).amax(-1) > 0, self.value)
        return out


class MFCC(MelCepstra, Module, ops=OPS): ...


class KaldiMFCC(KaldiCepstra, Module, ops=OPS): ...


class Deltas(Slopes, Module, ops=OPS): ...


class SlidingCMVN(SlidingNorm, Module, ops=OPS): ...


class SpecAugment(Masks, Module, ops=OPS): ...
