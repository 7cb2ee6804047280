"""A network whose weights and products are asked for in fewer bits, and what its engines say."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from same_bits import content

import dreamstream as ds
from dreamstream import nn

SPEC = ("B", 6, "L")
X = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)


class Net(nn.Module):
    """Every kind of layer with matrices, gated and fused ones, and those of a loop over frames, among them."""

    def __init__(self) -> None:
        super().__init__()
        ds.manual_seed(0)
        self.conv = nn.Conv1d(6, 70, 3, padding=1)
        self.gated = nn.Conv1d(70, 128, 1)
        self.grouped = nn.Conv1d(64, 40, 3, groups=2, padding=1)
        self.depthwise = nn.Conv1d(40, 40, 3, groups=40)
        self.linear = nn.Linear(40, 33)
        self.norm = nn.LayerNorm(33)
        self.lstm = nn.LSTM(33, 20, 2, batch_first=True, proj_size=9)
        self.gru = nn.GRU(9, 20, batch_first=True)
        self.cell, self.out = nn.GRUCell(20, 24), nn.Linear(24, 20)
        self.up = nn.ConvTranspose1d(20, 6, 5, stride=2)
        self.up_in_groups = nn.ConvTranspose1d(6, 4, 3, stride=2, groups=2)

    def forward(self, x: Any) -> Any:
        y = nn.functional.glu(self.gated(self.conv(x).relu()), 1)
        y = self.depthwise(self.grouped(y)).transpose(1, 2)
        y = self.gru(self.lstm(self.norm(self.linear(y).tanh()))[0])[0]
        h, ys = ds.zeros(y.size(0), 24), []
        for t in range(y.size(1)):
            h = self.cell(y[:, t], h)
            ys.append(self.out(h))
        return self.up_in_groups(self.up(ds.stack(ys, 1).transpose(1, 2)))


def compiled(**options: Any) -> ds.Engine:
    return ds.compile(Net(), SPEC, **options)


def answer(engine: ds.Engine, sizes: tuple[int, ...] = (50,)) -> Any:
    outs, at = [], 0
    for size in sizes:
        sos, eos = [] if at else ["a"], ["a"] if at + size == X.shape[1] else []
        outs.append(engine.step({"a": X[:, at : at + size]}, sos=sos, eos=eos)["a"])
        at += size
    return np.concatenate(outs, 1)


def held(engine: ds.Engine, backend: str, wanted: Any, **options: Any) -> None:
    """Hold an engine to these bits: in chunks, and from a file in a batch on two threads."""
    for sizes in ((50,), (1,) * 50, (7, 30, 13)):
        assert answer(engine, sizes).tobytes() == wanted.tobytes()
    rows = {f"s{i}": np.roll(X, i, 1) for i in range(9)}
    batch = ds.load(content(engine), threads=2, backend=backend, **options).step(
        rows, sos=list(rows), eos=list(rows)
    )
    assert batch["s0"].tobytes() == wanted.tobytes()


def exchanged(engines: Sequence[ds.Engine]) -> None:
    """Take snapshots of each to all: what streams have kept is theirs, whatever the format."""
    for engine in engines:
        engine.step({"a": X[:, :20]}, sos=["a"])
    wanted = [e.fork("a", "b") or e.step({"b": X[:, 20:]}, eos=["b"])["b"] for e in engines]
    for i, one in enumerate(engines):
        for other in engines:
            other.restore(one.snapshot("a"), "c")
            y = other.step({"c": X[:, 20:]}, eos=["c"])["c"]
            assert y.shape == wanted[i].shape and (other is not one or y.tobytes() == wanted[i].tobytes())
