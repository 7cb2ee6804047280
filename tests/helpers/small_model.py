"""A small model, and frames for it, in tests of what happens to streams whatever the model."""

from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream import nn


class Model(nn.Module):
    """Kept frames, branches that progress differently, carried arrays; (B, 3, L) to (B, L, 4)."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        ds.manual_seed(seed)
        self.down = nn.Conv1d(3, 4, 5, stride=2, padding=2)
        self.near = nn.Conv1d(4, 4, 3, padding=1)
        self.rnn = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        x = self.down(x)
        y, _ = self.rnn((x + self.near(x)).transpose(1, 2))
        return y


def frames(n: int, seed: int = 0, channels: int = 3) -> Any:
    """Return random frames, the same for the same numbers."""
    return np.random.default_rng([n, seed]).standard_normal((channels, n), dtype=np.float32)
