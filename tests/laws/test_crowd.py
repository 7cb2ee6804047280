"""A crowd: 64 streams that join, end, fork and are restored at random, some of them full of NaN and infinity.

Each must equal itself alone and in one chunk, to the bit: in the engine with one thread and with two, and
in eager mode; the offline output within float32's rounding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn

N_STREAMS, MOST_FRAMES, MOST_CHUNK, N_FORKS = 64, 2000, 300, 8


class Residual(nn.Module):
    """Convolutions that look ahead, a residual over one of them, a stride, an LSTM."""

    spec = ("B", 4, "L")

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(4, 8, 5, padding=2)
        self.wide = nn.Conv1d(8, 8, 9, padding=8, dilation=2)
        self.down = nn.Conv1d(8, 8, 4, stride=2, padding=1, groups=2)
        self.rnn = nn.LSTM(8, 8, 2, batch_first=True)

    def forward(self, x):
        x = F.gelu(self.first(x))
        x = self.down(x + self.wide(x))
        return self.rnn(x.transpose(1, 2))[0]


class FrontEnd(nn.Module):
    """Windows of samples, a strided tail, outputs of three delays."""

    spec = ("B", "L")

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(25, 6)
        self.near = nn.Conv1d(6, 6, 3, padding=1, padding_mode="reflect")
        self.far = nn.Conv1d(6, 4, 7, stride=3, padding=3, padding_mode="replicate")

    def forward(self, x):
        frames = self.mix(x.unfold(1, 25, 10)).transpose(1, 2)
        near = frames + self.near(frames).tanh()
        return frames, near.softmax(1), self.far(near)


class EagerCrowd:
    """A patched module, driven as an engine is."""

    def __init__(self, model, threads):
        self.model = ds.patch_module(model).online()
        self.names = model.spec if len(model.spec) == 2 else None

    def step(self, chunks, sos, eos):
        ids = list(chunks)
        x = ds.stream_tensor(
            list(chunks.values()),
            names=self.names,
            ids=ids,
            sos=[i in sos for i in ids],
            eos=[i in eos for i in ids],
        )
        y = self.model(x)
        outputs = y if isinstance(y, tuple) else (y,)
        return {i: tuple(o[i].numpy() for o in outputs) for i in ids}

    def fork(self, stream, new):
        self.model.set_state({new: self.model.get_state(stream)[stream]})

    def snapshot(self, stream):
        return self.model.get_state(stream)[stream]

    def restore(self, data, stream):
        self.model.set_state({stream: data})

    def drop(self, stream):
        self.model.reset(stream)

    @property
    def ids(self):
        return self.model.live_ids


class EngineCrowd:
    def __init__(self, model, threads):
        self.engine = ds.compile(model, model.spec, threads=threads)
        self.fork, self.snapshot, self.restore = self.engine.fork, self.engine.snapshot, self.engine.restore
        self.drop = self.engine.reset

    def step(self, chunks, sos, eos):
        out = self.engine.step(chunks, sos=sos, eos=eos)
        return {i: y if isinstance(y, tuple) else (y,) for i, y in out.items()}

    @property
    def ids(self):
        return self.engine.ids


def make(kind):
    ds.manual_seed(7)
    return kind().eval()


def axis_of(model):
    """The stream axis of the data, and of the outputs."""
    return (1, [0]) if isinstance(model, Residual) else (0, [1, 1, 1])


def lay_end_to_end(parts, axes):
    return [np.concatenate([p[k] for p in parts], axis) for k, axis in enumerate(axes)]


def samples(rng, model, n, wild=False):
    shape = (4, n) if isinstance(model, Residual) else (n,)
    x = rng.standard_normal(shape, dtype=np.float32)
    if wild and n:
        x[..., rng.random(n) < 0.05] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def cut(model, x, start, stop):
    return np.ascontiguousarray(x[..., start:stop])


def run_crowd(model, crowd, rng):
    """Run all streams to their ends; return their data and outputs."""
    axis, axes = axis_of(model)
    lengths = [0, 1, 2, MOST_FRAMES, *rng.integers(0, MOST_FRAMES + 1, N_STREAMS - 4)]
    data = {f"s{i}": samples(rng, model, int(n), wild=i % 8 == 5) for i, n in enumerate(lengths)}
    at, parts, waiting, n_forks = {}, {i: [] for i in data}, list(data), 0
    rng.shuffle(waiting)
    while waiting or at:
        joining = [waiting.pop() for _ in range(min(len(waiting), int(rng.integers(0, 6))))]
        going = [i for i in at if rng.random() < 0.6] + joining
        chunks, eos = {}, set()
        for i in rng.permutation(going) if going else []:
            start, total = at.get(i, 0), data[i].shape[axis]
            stop = min(total, start + int(rng.choice([0, 1, rng.integers(0, MOST_CHUNK + 1)])))
            chunks[str(i)] = cut(model, data[i], start, stop)
            at[str(i)] = stop
            if stop == total and rng.random() < 0.7:
                eos.add(str(i))
        if not chunks:
            continue
        for i, y in crowd.step(chunks, set(joining), eos).items():
            parts[i].append(y)
        for i in eos:
            del at[i]
        live = list(at)
        if live and n_forks < N_FORKS and rng.random() < 0.2:  # go on from there with other data
            source, new = str(rng.choice(live)), f"fork{n_forks}"
            n_forks += 1
            crowd.fork(source, new)
            rest = samples(rng, model, int(rng.integers(0, 400)))
            data[new] = np.concatenate([cut(model, data[source], 0, at[source]), rest], axis)
            at[new], parts[new] = at[source], list(parts[source])
        if live and rng.random() < 0.2:  # go astray, and back
            i = str(rng.choice(live))
            kept = crowd.snapshot(i)
            crowd.step({i: samples(rng, model, 50, wild=True)}, set(), set())
            crowd.drop(i)
            crowd.restore(kept, i)
    assert crowd.ids == []
    assert n_forks == N_FORKS
    return data, {i: lay_end_to_end(p, axes) for i, p in parts.items()}


def same_bits(a, b):
    if a.shape != b.shape:
        return False
    return bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.parametrize("kind", [Residual, FrontEnd])
@pytest.mark.parametrize("crowd, threads", [(EngineCrowd, 1), (EngineCrowd, 2), (EagerCrowd, 1)])
def test_bits_are_those_of_each_stream_alone(kind, crowd, threads):
    model = make(kind)
    data, got = run_crowd(model, crowd(make(kind), threads), np.random.default_rng(threads))
    single = crowd(make(kind), 1)
    n_wild = 0
    for i, x in data.items():
        alone = single.step({i: x}, {i}, {i})[i]
        assert all(same_bits(y, z) for y, z in zip(got[i], alone)), f"{i}, {x.shape}"
        n_wild += any(np.isnan(y).any() for y in alone)
        if np.isfinite(x).all():
            assert all(np.isfinite(y).all() for y in alone), f"{i} caught another's NaN"
            compare_with_offline(model, x, alone)
    assert n_wild >= 4


def compare_with_offline(model, x, streamed):
    whole = model(ds.tensor(x[None]))
    for y, z in zip(streamed, whole if isinstance(whole, tuple) else (whole,)):
        wanted = z.numpy()[0]
        assert y.shape == wanted.shape
        scale = max(1.0, np.abs(wanted).max(initial=0.0))
        np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5 * scale)


def test_bits_without_openblas():
    environment = {**os.environ, "DREAMSTREAM_BLAS": "none"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "alone"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "6 passed" in done.stdout
