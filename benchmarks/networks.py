"""The networks that benchmarks step, all of dreamstream.nn, with random weights: NETWORKS[name]."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn


class Block(nn.Module):
    """(B, L, C) -> (B, L, C): norm, GLU, a causal depthwise convolution, SiLU, residual."""

    def __init__(self, c: int, kernel: int) -> None:
        super().__init__()
        self.past = kernel - 1
        self.norm = nn.LayerNorm(c)
        self.wide = nn.Linear(c, 2 * c)
        self.depthwise = nn.Conv1d(c, c, kernel, groups=c)
        self.narrow = nn.Linear(c, c)

    def forward(self, x: Any) -> Any:
        y = F.pad(F.glu(self.wide(self.norm(x)), -1).transpose(1, 2), (self.past, 0))
        return x + self.narrow(F.silu(self.depthwise(y)).transpose(1, 2))


class Stack(nn.Module):
    """Blocks on features (B, L, C), or on samples (B, 1, L) in windows of 25 ms, 10 ms apart."""

    def __init__(self, layers: int, c: int, kernel: int = 15, raw: bool = False) -> None:
        super().__init__()
        self.raw = raw
        self.front = nn.Conv1d(1, c, 400, stride=160) if raw else nn.Linear(c, c)
        self.blocks = nn.ModuleList([Block(c, kernel) for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        x = F.relu(self.front(x))
        x = x.transpose(1, 2) if self.raw else x
        for block in self.blocks:
            x = block(x)
        return x


class Attending(nn.Module):
    """(B, L, C) -> (B, L, C): layers of causal attention with 4 heads over so many frames, with residuals."""

    def __init__(self, layers: int, c: int, window: int) -> None:
        super().__init__()
        context = ds.Context(chunk=1, left=window - 1)
        self.norms = nn.ModuleList([nn.LayerNorm(c) for _ in range(layers)])
        self.layers = nn.ModuleList(
            [nn.MultiheadAttention(c, 4, batch_first=True, context=context) for _ in range(layers)]
        )

    def forward(self, x: Any) -> Any:
        for norm, attention in zip(self.norms, self.layers):
            y = norm(x)
            x = x + attention(y, y, y)[0]
        return x


class Small(nn.Module):
    """(B, 64, L): four causal convolutions and a GRU."""

    def __init__(self, c: int = 64, kernel: int = 5, layers: int = 4) -> None:
        super().__init__()
        self.past = kernel - 1
        self.convs = nn.ModuleList([nn.Conv1d(c, c, kernel) for _ in range(layers)])
        self.gru = nn.GRU(c, c, batch_first=True)

    def forward(self, x: Any) -> Any:
        for conv in self.convs:
            x = F.relu(conv(F.pad(x, (self.past, 0))))
        return self.gru(x.transpose(1, 2))[0]


class Conv(nn.Module):
    """(B, 80, L) -> (B, 256, L): eight causal convolutions with residuals."""

    def __init__(self, features: int = 80, c: int = 256, kernel: int = 5, layers: int = 8) -> None:
        super().__init__()
        self.past = kernel - 1
        self.convs = nn.ModuleList([nn.Conv1d(c if i else features, c, kernel) for i in range(layers)])

    def forward(self, x: Any) -> Any:
        for i, conv in enumerate(self.convs):
            y = F.relu(conv(F.pad(x, (self.past, 0))))
            x = x + y if i else y
        return x


class LSTM(nn.Module):
    """(B, L, C) -> (B, L, C)."""

    def __init__(self, layers: int = 5, c: int = 640) -> None:
        super().__init__()
        self.lstm = nn.LSTM(c, c, num_layers=layers, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


class TCN(nn.Module):
    """(B, 64, L): pairs of a dilated and a 1x1 convolution, each pair with a residual."""

    def __init__(self, c: int = 64, layers: int = 8) -> None:
        super().__init__()
        self.dilated = nn.ModuleList([nn.Conv1d(c, c, 3, dilation=2**i) for i in range(layers)])
        self.mixing = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        for i, (dilated, mix) in enumerate(zip(self.dilated, self.mixing)):
            x = x + mix(F.relu(dilated(F.pad(x, (2 ** (i + 1), 0)))))
        return x


class Unit(nn.Module):
    """One of TasNet's: (B, b, L) -> (B, b, L)."""

    def __init__(self, n: int, b: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.wide, self.narrow = nn.Conv1d(b, n, 1), nn.Conv1d(n, b, 1)
        self.depthwise = nn.Conv1d(n, n, 3, dilation=dilation, groups=n)
        self.rectifiers = nn.ModuleList([nn.PReLU(), nn.PReLU()])
        self.norms = nn.ModuleList([nn.LayerNorm(n), nn.LayerNorm(n)])

    def forward(self, x: Any) -> Any:
        y = self.norms[0](self.rectifiers[0](self.wide(x)).transpose(1, 2)).transpose(1, 2)
        y = self.depthwise(F.pad(y, (self.past, 0)))
        y = self.norms[1](self.rectifiers[1](y).transpose(1, 2)).transpose(1, 2)
        return x + self.narrow(y)


class TasNet(nn.Module):
    """Samples to samples, (B, 1, L): windows of 16, 8 apart, masked by dilated convolutions of the past."""

    def __init__(self, n: int = 256, b: int = 128, repeats: int = 2, depth: int = 6) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, n, 16, stride=8)
        self.norm, self.inward = nn.LayerNorm(n), nn.Conv1d(n, b, 1)
        self.units = nn.ModuleList([Unit(n, b, 2**i) for _ in range(repeats) for i in range(depth)])
        self.mask = nn.Conv1d(b, n, 1)
        self.decoder = nn.ConvTranspose1d(n, 1, 16, stride=8)

    def forward(self, x: Any) -> Any:
        w = F.relu(self.encoder(x))
        y = self.inward(self.norm(w.transpose(1, 2)).transpose(1, 2))
        for unit in self.units:
            y = unit(y)
        return self.decoder(w * F.sigmoid(self.mask(y)))


class Tagger(nn.Module):
    """80 features at 100 Hz in, 50 frames of 128 scores per second out; looks ahead; 5.3 M weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(80, 512, 5, stride=2, padding=2)
        self.block = nn.Conv1d(512, 512, 3, padding=1)
        self.rnn = nn.LSTM(512, 512, num_layers=2, batch_first=True)
        self.head = nn.Linear(512, 128)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.conv(x))
        x = x + F.relu(self.block(x))
        x, _ = self.rnn(x.transpose(1, 2))
        return F.log_softmax(self.head(x), dim=-1)


SAMPLE_RATE = 16000
WINDOW, STEP = 400, 160  # samples per analysis window and from one to the next: 25 ms, 10 ms


class Audio(nn.Module):
    """Raw audio in, 50 frames of class scores per second out.

    A filter bank on windows of 25 ms, convolutions that look back *and ahead*, residuals, an LSTM. The
    filters are a filter bank's; all other weights are random, so the classes mean nothing.
    """

    def __init__(self, bands: int = 64, channels: int = 96, hidden: int = 128, classes: int = 16) -> None:
        super().__init__()
        self.bands = bands
        self.filters = nn.Linear(WINDOW, 2 * bands, bias=False)
        self.conv = nn.Conv1d(bands, channels, 5, padding=2)
        self.blocks = nn.ModuleList([nn.Conv1d(channels, channels, 5, padding=2) for _ in range(2)])
        self.down = nn.Conv1d(channels, hidden, 3, stride=2, padding=1)
        self.rnn = nn.LSTM(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)
        self._set_weights(np.random.default_rng(29))

    def _set_weights(self, rng: np.random.Generator) -> None:
        for name, parameter in self.named_parameters():
            shape = parameter.shape
            gain = 5.0 if name == "head.weight" else 1.0 if len(shape) > 1 else 0.1
            parameter.numpy()[...] = gain / math.sqrt(math.prod(shape[1:])) * rng.standard_normal(shape)
        # Cosines and sines under a Hann window, at frequencies that are evenly spaced in mel.
        lowest, highest = (1127 * math.log1p(f / 700) for f in (60, 7600))
        frequencies = 700 * np.expm1(np.linspace(lowest, highest, self.bands) / 1127)
        phases = 2 * np.pi / SAMPLE_RATE * frequencies[:, None] * np.arange(WINDOW)
        window = np.hanning(WINDOW) / np.hanning(WINDOW).sum() * 2
        self.filters.weight.numpy()[...] = np.concatenate([np.cos(phases), np.sin(phases)]) * window

    def forward(self, x: Any) -> Any:
        """Return log-probabilities ``(B, L // 320, classes)``, about, of samples ``(B, L)``."""
        x = self.filters(x.unfold(1, WINDOW, STEP))
        power = x[..., : self.bands].square() + x[..., self.bands :].square()
        x = (power + 1e-6).log() * 0.4 + 5.0
        x = F.relu(self.conv(x.transpose(1, 2)))
        for block in self.blocks:
            x = x + F.relu(block(x))
        x, _ = self.rnn(self.down(x).transpose(1, 2))
        return F.log_softmax(self.head(x), dim=-1)


def silero() -> Any:
    """models.SileroVAD; trained where $DREAMSTREAM_TEST_DATA holds its weights."""
    from dreamstream.models import SileroVAD

    model = SileroVAD()
    weights = Path(os.environ.get("DREAMSTREAM_TEST_DATA", ""), "silero_vad_16k.safetensors")
    if weights.is_file():
        model.load_state_dict(weights)
    return model


def u2() -> Any:
    """models.U2Encoder: 12 causal Conformer layers of 256, chunks of 16 frames of 40 ms, four on the left."""
    from dreamstream.models import U2Encoder

    return U2Encoder(80, 256, 4, 2048, 12, causal=True, decoding_chunk_size=16, num_decoding_left_chunks=4)


class Network(NamedTuple):
    make: Callable[[], Any]
    spec: tuple[Any, ...]
    rate: int
    unit: int = 1  # input frames that count as one frame of the network

    def chunk(self, n_frames: int) -> tuple[int, ...]:
        """Shape of one stream's chunk."""
        return tuple(n_frames * self.unit if d == "L" else d for d in self.spec[1:])

    def model(self) -> Any:
        """The module, the same in every process."""
        ds.manual_seed(0)
        return self.make().eval()


SAMPLES = ("B", 1, "L")
NETWORKS = {
    "audio": Network(Audio, ("B", "L"), 16000, 160),
    "tagger": Network(Tagger, ("B", 80, "L"), 100),
    "silero": Network(silero, ("B", "L"), 16000, 512),
    "u2": Network(u2, ("B", "L", 80), 100, 4),
    "stack-64": Network(lambda: Stack(12, 64), ("B", "L", 64), 100),
    "stack-256": Network(lambda: Stack(12, 256), ("B", "L", 256), 100),
    "attention-64": Network(lambda: Attending(4, 64, 64), ("B", "L", 64), 100),
    "attention-256": Network(lambda: Attending(4, 256, 64), ("B", "L", 256), 100),
    "stack-96-raw": Network(lambda: Stack(96, 16, raw=True), SAMPLES, 16000, 160),
    "small": Network(Small, ("B", 64, "L"), 100),
    "conv": Network(Conv, ("B", 80, "L"), 100),
    "lstm": Network(LSTM, ("B", "L", 640), 25),
    "lstm-3": Network(lambda: LSTM(3), ("B", "L", 640), 25),
    "lstm-2x512": Network(lambda: LSTM(2, 512), ("B", "L", 512), 25),
    "tcn": Network(TCN, ("B", 64, "L"), 100),
    "tasnet-raw": Network(TasNet, SAMPLES, 16000, 160),
    "tasnet-small-raw": Network(lambda: TasNet(64, 32, 1, 4), SAMPLES, 16000, 160),
    "memory-31": Network(lambda: nn.Conv1d(256, 256, 31, groups=256, padding="causal"), ("B", 256, "L"), 100),
    "bare": Network(lambda: nn.Linear(8, 8), ("B", "L", 8), 100),
}  # memory-31: nearly all that moves is what a convolution keeps; bare: nearly all of a step is the call


# How each format of ours is asked for: "bf16", "int8" and, with tile units, "fp32-tiles" are products, the others
# weights alone.
_TILES = [b["name"] for b in ds.config.config()["backends"] if b["usable"] and b["name"] == "x86_amx"]
FORMATS: dict[str, dict[str, Any]] = {
    "fp32": {},
    **{p: {"products": p} for p in ("bf16", "int8", *(_TILES and ["fp32-tiles"]))},
    **{f"{w} weights": {"weights": w} for w in ("fp16", "bf16", "int8")},
}


def chunks(name: str, n_streams: int, n_frames: int) -> dict[str, np.ndarray]:
    """Random ones for every stream, the same in every process."""
    rng = np.random.default_rng(0)
    shape = NETWORKS[name].chunk(n_frames)
    return {
        f"stream-{i}": rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1) for i in range(n_streams)
    }
