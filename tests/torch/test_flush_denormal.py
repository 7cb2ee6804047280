"""torch.set_flush_denormal(True) changes no bit of what the engine says, compiled and eager, with any number of
threads, and is what it was afterwards."""

import contextlib

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn


@contextlib.contextmanager
def flushed():
    """Denormal numbers are zero in this thread, and still are afterwards."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        yield
        least = torch.full((1,), 2.0**-126)
        assert (least / 2).item() == 0
    finally:
        torch.set_flush_denormal(False)


class Small(nn.Module):
    """Products of small numbers; biases that are denormal."""

    def __init__(self):
        super().__init__()
        ds.manual_seed(11)
        self.conv = nn.Conv1d(16, 16, 3, padding=1)
        self.conv.bias.numpy()[...] *= 1e-39
        self.conv.weight.numpy()[::2] *= 1e-20
        self.rnn = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        y = self.conv(x)
        return y * y, y, self.rnn(y.transpose(1, 2))[0]


@pytest.fixture(scope="module")
def model():
    return Small().eval()


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(5)
    return {f"s{i}": (rng.standard_normal((16, 700)) * 1e-19).astype("float32") for i in range(9)}


def compiled(model, frames, threads):
    with ds.compile(model, ("B", 16, "L"), threads=threads) as engine:
        first = engine.step({i: x[:, :301] for i, x in frames.items()}, sos=list(frames))
        last = engine.step({i: x[:, 301:] for i, x in frames.items()}, eos=list(frames))
        return [y.tobytes() for part in (first, last) for i in frames for y in part[i]]


def eager(model, frames):
    """Layers in the C forwards of eager mode."""
    x = ds.tensor(np.stack(list(frames.values())))
    return [np.asarray(y).tobytes() for y in (model.conv(x), model.rnn(x.transpose(1, 2))[0])]


def test_compiled(model, frames):
    want = compiled(model, frames, 1)
    values = np.concatenate([np.frombuffer(y, "<f4") for y in want]).view("u4") & 0x7FFFFFFF
    assert ((values > 0) & (values < 0x800000)).sum() > 10_000
    for threads in 1, 2, 3:
        with flushed():
            got = compiled(model, frames, threads)
        assert got == want


def test_eager(model, frames):
    want = eager(model, frames)
    with flushed():
        got = eager(model, frames)
    assert got == want
