"""Spoken commands: a small network, trained by this package, that hears ten words in running sound."""

from __future__ import annotations

import os
from typing import Any

from .. import nn
from ..array import cat
from ..nn import functional as F
from ..nn.state import read_safetensors

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
FLOOR = 1e-8  # of energies: of what is heard as nothing
WEIGHTS = os.path.join(os.path.dirname(__file__), "commands.safetensors")


class Separable(nn.Module):
    """A convolution of each channel over frames, a norm and two products, added to what came in."""

    def __init__(self, channels: int, hidden: int, kernel: int, ahead: int) -> None:
        super().__init__()
        self.around = kernel - 1 - ahead, ahead
        self.depthwise = nn.Conv1d(channels, channels, kernel, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, hidden), nn.Linear(hidden, channels)

    def forward(self, x: Any) -> Any:
        """Return ``(B, L, channels)``."""
        y = self.depthwise(F.pad(x.transpose(1, 2), self.around)).transpose(1, 2)
        return x + self.down(F.relu(self.up(self.norm(y))))


class Commands(nn.Module):
    """Ten spoken words: yes, no, up, down, left, right, on, off, stop, go; all other sound is none of them.

    Energies in 40 bands of the mel scale, two convolutions over bands and frames, blocks of convolutions over
    frames, and scores for CTC, 25 times a second. `dreamstream.decode.CTCDecoder` makes words of them, as
    ``dreamstream transcribe`` and ``listen`` do.

    Parameters
    ----------
    channels, hidden : int
        Features between blocks, and within.
    blocks : int
        Blocks of convolutions.
    ahead : int
        How many of the blocks see one frame, of 40 ms, ahead.
    pretrained : bool
        Whether to take the weights that come with this package, for the default sizes.

    Attributes
    ----------
    tokens : list of str
        What scores stand for: the blank, and the words.
    spec : tuple
        What `dreamstream.compile` wants to know of the input.
    sample_rate, rate : int
        Samples that come in, and frames of scores that come out, per second: 16,000 and 25.

    Notes
    -----
    Input ``(B, L)``, float samples within ±1, 16,000 per second; output ``(B, L', 11)``, logarithms of
    probabilities, 25 per second. **Streaming.** Delay 2,959 samples, 185 ms; state 36 kB.

    What the weights were trained on and how often they err is on their card, in the how-to of models.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = Commands(pretrained=True).eval()
    >>> model(ds.tensor(np.zeros((1, 16000), np.float32))).shape
    (1, 25, 11)
    """

    spec = ("B", "L")
    sample_rate = 16000
    rate = 25

    def __init__(
        self, channels: int = 96, hidden: int = 256, blocks: int = 7, ahead: int = 3, pretrained: bool = False
    ) -> None:
        super().__init__()
        self.tokens = ["-", *WORDS]
        self.features = nn.LogMel(self.sample_rate, n_fft=400, hop=160, n_mels=40, floor=FLOOR)
        self.conv1 = nn.Conv2d(2, 24, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(24, 32, (5, 3), stride=2, padding=(2, 1))
        self.project = nn.Linear(320, channels)
        self.blocks = nn.ModuleList([Separable(channels, hidden, 9, int(n < ahead)) for n in range(blocks)])
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, len(self.tokens))
        if pretrained:
            made = self.state_dict()  # the features' buffers, which are not in the file
            self.load_state_dict({**made, **read_safetensors(WEIGHTS)})

    def encode(self, x: Any) -> Any:
        """Return ``(B, L', channels)`` of the features ``(B, 40, L)``."""
        x = (x + 8) * 0.25  # about 0, about 1
        x = x.unsqueeze(1)
        x = F.relu(self.conv1(cat([x, x - x.mean(2, keepdim=True)], 1)))
        x = F.relu(self.conv2(x)).flatten(1, 2).transpose(1, 2)
        x = self.project(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, x: Any) -> Any:
        """Return ``(B, L', 11)`` of samples ``(B, L)``."""
        return F.log_softmax(self.head(self.encode(self.features(x))), -1)
