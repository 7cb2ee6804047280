"""Threads that share the output frames of one node: the same bits as one thread, for rows of any lengths."""

from __future__ import annotations

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
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("lengths", [(N,), (N, 3, N // 2), (1, N, 0)], ids=str)
def test_frames_of_one_node_are_shared(name: str, lengths: tuple[int, ...]) -> None:
    ds.manual_seed(0)
    rng = np.random.default_rng(1)
    model = Alone(LAYERS[name]()).eval()
    engines = [ds.compile(model, ("B", "L", C), threads=n, verify=False) for n in (1, 4)]
    for k, (sos, eos) in enumerate([(True, False), (False, False), (False, True)]):
        ids = [str(i) for i in range(len(lengths))]
        chunks = {i: rng.standard_normal((n + k, C)).astype(np.float32) for i, n in zip(ids, lengths)}
        one, more = (e.step(chunks, sos=ids if sos else (), eos=ids if eos else ()) for e in engines)
        assert [one[i].tobytes() for i in ids] == [more[i].tobytes() for i in ids]
        assert any(one[i].size for i in ids)
