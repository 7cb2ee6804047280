"""Silero VAD: a small network that says where somebody speaks."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np

from .. import nn
from ..errors import ShapeError
from ..nn import functional as F


class SileroVAD(nn.Module):
    """The probability of speech in windows of 32 ms.

    Windows of 512 samples, each seen with the 64 samples before it, are reflected by 64 samples at their
    end, turned into four spectra and passed through four convolutions *within the window*; an LSTM runs
    from window to window.

    Parameters
    ----------
    sample_rate : {16000, 8000}
        Samples per second. At 8,000 windows have 256 samples, and all other sizes halve.
    pretrained : bool
        Whether to take the weights that come with the package ``silero-vad``, of 16,000 samples per second:
        ``pip install --no-deps silero-vad``. The package is not imported.

    Attributes
    ----------
    spec : tuple
        What `dreamstream.compile` wants to know of the input.
    window, context : int
        Samples of a window, and those before it.

    Raises
    ------
    ShapeError
        For another sample rate, or one that there are no weights for.
    ImportError
        Where weights are asked for, and the package is not installed.

    Notes
    -----
    Input ``(B, L)``, float samples within ±1; output ``(B, L // 512)``, probabilities. A last window that is
    not complete gives no frame. **Streaming.** Delay 511 samples: a frame leaves with the last sample of its
    window. State 2 × 128 values of the LSTM, and at most 575 samples.

    The weights of the original's ``silero_vad_16k.safetensors`` load as they are, ``lstm_cell.*`` into the
    LSTM. The ``.onnx`` and ``.jit`` files beside it hold the same network from another training: their numbers
    differ, by up to 0.45 for single frames, and decide alike in 99 % of them. Source: Silero VAD v5 and v6
    (snakers4/silero-vad, MIT).

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = SileroVAD().eval()
    >>> model(ds.tensor(np.zeros((1, 1300), np.float32))).shape
    (1, 2)
    """

    spec = ("B", "L")

    def __init__(self, sample_rate: int = 16000, pretrained: bool = False) -> None:
        super().__init__()
        if sample_rate not in (8000, 16000):
            raise ShapeError(f"SileroVAD: sample_rate is 8000 or 16000, got {sample_rate}")
        if pretrained and sample_rate != 16000:
            raise ShapeError(
                f"SileroVAD: the pretrained weights are for 16000 samples per second, got {sample_rate}; "
                f"nn.Resample({sample_rate}, 16000) goes before them"
            )
        self.sample_rate = sample_rate
        self.window = sample_rate * 32 // 1000
        self.context = self.window // 8
        size = self.window // 2  # of a spectrum's window
        bins = size // 2 + 1
        self.stft_conv = nn.Conv1d(1, 2 * bins, size, stride=size // 2, bias=False)
        self.conv1 = nn.Conv1d(bins, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTM(128, 128, batch_first=True)
        self.final_conv = nn.Conv1d(128, 1, 1)
        if pretrained:
            self.load_state_dict(_packaged_weights())

    def forward(self, x: Any) -> Any:
        """Return ``(B, L // window)`` probabilities of samples ``(B, L)``."""
        x = F.pad(x, (self.context, 0)).unfold(1, self.context + self.window, self.window)
        batch, windows, _ = x.shape
        x = x.reshape(batch * windows, 1, self.context + self.window)
        x = self.stft_conv(F.pad(x, (0, self.context), mode="reflect"))
        bins = x.shape[1] // 2
        x = (x[:, :bins].square() + x[:, bins:].square()).sqrt()
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(conv(x))
        x, _ = self.lstm_cell(x.reshape(batch, windows, 128))
        x = self.final_conv(F.relu(x).transpose(1, 2))
        return F.sigmoid(x).squeeze(1)

    @staticmethod
    def spoken(probabilities: Any, rate: float = 31.25, pause: float = 0.4) -> list[tuple[float, float]]:
        """Return where somebody speaks, from and to, in seconds.

        Parameters
        ----------
        probabilities : array
            ``(L,)``, those of one recording.
        rate : float
            Frames of them in a second.
        pause : float
            Seconds; somebody speaks in frames above 0.5, and in pauses between them that are shorter.

        Examples
        --------
        >>> SileroVAD.spoken([0.1, 0.9, 0.2, 0.8, 0.1], rate=10)
        [(0.1, 0.4)]
        """
        spans: list[tuple[float, float]] = []
        for frame in np.flatnonzero(np.asarray(probabilities) > 0.5).tolist():
            begin, end = frame / rate, (frame + 1) / rate
            if spans and begin - spans[-1][1] < pause:
                spans[-1] = spans[-1][0], end
            else:
                spans.append((begin, end))
        return spans


def _packaged_weights() -> str:
    """Return the path of the weights in the package silero-vad, which is found and not imported."""
    try:
        package = importlib.util.find_spec("silero_vad")
    except ValueError:  # somebody's module of that name, without a spec
        package = None
    for folder in (package and package.submodule_search_locations) or ():
        path = os.path.join(folder, "data", "silero_vad_16k.safetensors")
        if os.path.isfile(path):
            return path
    what = "are not in the silero-vad that is installed" if package else "come with the package silero-vad"
    raise ImportError(f"the weights of SileroVAD {what}: pip install --no-deps --upgrade silero-vad")
