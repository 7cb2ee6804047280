"""Threads that share the output frames of one node: the same bits as one thread, for rows of any lengths."""

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.nn import functional as F

C, N = 96, 800  # enough for every node to be shared


class Alone(nn.Module):
    """A product, which makes threads worth waking, and then one layer that looks at frames or windows of them."""

    def __init__(self, layer: object) -> None:
        super().__init__()
        self.linear = nn.Linear(C, C)
        self.layer = layer

    def forward(self, x: ds.StreamTensor) -> ds.StreamTensor:
        y = self.linear(x)
        return (
            self.layer(y.transpose(1, 2)).transpose(1, 2) if isinstance(self.layer, nn.Module) else self.layer(y)
        )


class InFrames(nn.Module):
    """A layer of frames (B, L, C), for those of channels; attention to a few frames behind."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: ds.StreamTensor) -> ds.StreamTensor:
        x = x.transpose(1, 2)
        if isinstance(self.layer, nn.LSTM):
            return self.layer(x)[0].transpose(1, 2)
        i = ds.arange(x.shape[1])
        far = (i[None] > i[:, None]) | (i[None] < i[:, None] - 9)
        return self.layer(x, x, x, attn_mask=far, need_weights=False)[0].transpose(1, 2)


class InPlanes(nn.Module):
    """A layer of planes (B, 1, C, L), for channels."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: ds.StreamTensor) -> ds.StreamTensor:
        return self.layer(x.unsqueeze(1)).flatten(1, 2)


LAYERS = {
    "pointwise": lambda: F.silu,
    "rows of their own": lambda: lambda y: F.relu(y[:, 3:] + y[:, :-3]),
    "softmax": lambda: lambda y: F.softmax(y, -1),
    "norm": lambda: lambda y: F.layer_norm(y, (C,)),
    "residual": lambda: lambda y: y + F.gelu(y),
    "largest": lambda: lambda y: y.topk(3, -1).values,
    "depthwise": lambda: nn.Conv1d(C, C, 7, padding=3, groups=C),
    "depthwise, strided": lambda: nn.Conv1d(C, 2 * C, 5, stride=2, groups=C),
    "grouped": lambda: nn.Conv1d(C, C, 3, groups=4),
    "small product": lambda: nn.Conv1d(C, 8, 3),
    "transposed": lambda: nn.ConvTranspose1d(C, C, 4, stride=2, groups=C),
    "pooled": lambda: nn.AvgPool1d(4, 2, padding=1),
    "normalised by channels": lambda: nn.BatchNorm1d(C),
    "in both directions": lambda: InFrames(nn.LSTM(C, 8, bidirectional=True, batch_first=True)),
    "normalised in groups": lambda: nn.GroupNorm(4, C),
    "softmax over frames": lambda: lambda y: F.softmax(y, 1),
    "sorted": lambda: lambda y: y.sort(1).values,
    "planes": lambda: InPlanes(nn.Conv2d(1, 4, 3, padding=1)),
    "attended": lambda: InFrames(nn.MultiheadAttention(C, 4, batch_first=True)),
}


WHOLE = {"in both directions", "normalised in groups", "softmax over frames", "sorted"}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("lengths", [(N,), (N, 3, N // 2), (1, N, 0)], ids=str)
def test_frames_of_one_node_are_shared(name: str, lengths: tuple[int, ...]) -> None:
    ds.manual_seed(0)
    rng = np.random.default_rng(1)
    model = Alone(LAYERS[name]()).eval()
    options = {"verify": False, "unstreamable": "buffer"}
    engines = [ds.compile(model, ("B", "L", C), threads=n, **options) for n in (1, 4)]
    for k, (sos, eos) in enumerate([(True, False), (False, False), (False, True)]):
        ids = [str(i) for i in range(len(lengths))]
        chunks = {i: rng.standard_normal((n + k, C)).astype(np.float32) for i, n in zip(ids, lengths)}
        one, more = (e.step(chunks, sos=ids if sos else (), eos=ids if eos else ()) for e in engines)
        assert [one[i].tobytes() for i in ids] == [more[i].tobytes() for i in ids]
        assert any(one[i].size for i in ids) or (name in WHOLE and not eos)
