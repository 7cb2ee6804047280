"""Edges of no frames: within streams that have some, and of streams that have none, as torch defines them.

Where torch raises because a sequence is too short there are no frames; where it defines what comes of none (pads,
slices, sums) a stream gives as many, of these values, however it is cut.
"""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from run_onnx import Runner
from torch import nn
from turns import in_blocks

import dreamstream as ds

LENGTHS = range(7)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.conv, self.lstm = nn.Conv1d(3, 3, 3), nn.LSTM(3, 3, batch_first=True)

    def forward(self, x):
        return self.function(self, x)


def _with_lstm(model, y):
    return torch.lerp(y, model.lstm(y.mT)[0].mT, 0.5)


#: Frames are lost before others come: functions of (B, 3, L).
FRAMES = {
    "a residual of the next frame": lambda m, x: x + F.pad(x[..., 1:], (0, 1)),
    "a residual of the frame before": lambda m, x: x + F.pad(x[..., :-1], (1, 0)),
    "late, by a crop and a pad": lambda m, x: F.pad(x[..., :-3], (3, 0)),
    "both ends": lambda m, x: F.pad(x[..., 3:], (2, 1)),
    "a value": lambda m, x: F.pad(x[..., 2:], (1, 1), value=-1.5),
    "of the stream itself": lambda m, x: F.pad(x, (2, 1)),
    "constant frames before": lambda m, x: torch.cat([torch.ones(x.size(0), 3, 2), x[..., 2:]], -1),
    "a stop below 0": lambda m, x: x[..., : x.size(-1) - 3],
    "half of it": lambda m, x: F.pad(x[..., ::2], (1, 1)),
    "pads of repeated frames": lambda m, x: F.pad(x[..., 1:].repeat_interleave(2, -1), (1, 0)),
    "frames that repeat the edge": lambda m, x: F.pad(x[..., 1:], (1, 1), mode="replicate"),
    "sums so far": lambda m, x: F.pad(x[..., 1:].cumsum(-1), (1, 0)),
    "a convolution that is too long, padded": lambda m, x: F.pad(m.conv(x), (1, 1)),
    "an LSTM of nothing, padded": lambda m, x: F.pad(m.lstm(x[..., 2:].mT)[0].mT, (1, 1)),
    "of two of which one can't be, padded": lambda m, x: F.pad(_with_lstm(m, x[..., 2:]), (1, 0)),
    "windows, padded": lambda m, x: F.pad(x[..., 1:].unfold(-1, 2, 1).mean(-1), (1, 0)),
    "nearest, padded": lambda m, x: F.pad(F.interpolate(x[..., 1:], scale_factor=2), (1, 0)),
    "every third by its middle, padded": lambda m, x: F.pad(
        F.interpolate(x, scale_factor=1 / 3, mode="linear"), (1, 0)
    ),
    "differences, padded": lambda m, x: F.pad(x[..., 1:] - x[..., :-1], (1, 0)),
    "a spectrum padded with zeros": lambda m, x: torch.stft(
        x[:, 0], 4, 2, pad_mode="constant", window=torch.ones(4), return_complex=True
    ).abs(),
}

#: One vector for each stream.
VECTORS = {
    "sum": lambda m, x: x.sum(-1),
    "mean": lambda m, x: x.mean(-1),
    "prod": lambda m, x: x.prod(-1),
    "amax": lambda m, x: x.amax(-1),
    "argmin": lambda m, x: x.argmin(-1),
    "logsumexp": lambda m, x: x.logsumexp(-1),
    "var": lambda m, x: x.var(-1),
    "norm": lambda m, x: x.norm(dim=-1),
    "norm of the greatest": lambda m, x: x.norm(float("inf"), dim=-1),
    "any": lambda m, x: (x > 0).any(-1),
    "all": lambda m, x: (x > 0).all(-1),
    "count_nonzero": lambda m, x: x.count_nonzero(-1),
    "weighted mean": lambda m, x: (x.softmax(-1) * x).sum(-1),
    "pooled": lambda m, x: F.adaptive_avg_pool1d(x, 1)[..., 0],
    "sum of a slice": lambda m, x: x[..., 2:].sum(-1),
    "mean of a slice": lambda m, x: x[..., 2:].mean(-1),
    "what an LSTM remembers": lambda m, x: m.lstm(x[..., 1:].mT)[1][0][0],
    "a product of all frames": lambda m, x: torch.einsum("bcl,bdl->bcd", x, x),
}


def offline(model, x):
    """Return what torch says of a stream; None where it raises."""
    try:
        return model(x[None])[0].detach().numpy()
    except (RuntimeError, IndexError):
        return None


def joined(parts, like):
    """Return a stream's parts as torch would have given them, of which none may be left over."""
    parts = [np.asarray(p) for p in parts]
    if parts[0].ndim == like.ndim + 1:  # one vector, at the end
        (found,) = (p[0] for p in parts if len(p))
        return found
    return np.concatenate(parts, -1)


def chunked(step, x, size):
    n = x.shape[-1]
    cuts = list(range(0, n, size)) or [0]
    return [step(x[:, at : at + size], at == 0, at + size >= n) for at in cuts]


def engine_of(model):
    engine = ds.compile(model, ("B", 3, "L"), unstreamable="buffer")
    return lambda x, sos, eos: engine.step({"a": x}, sos=["a"] * sos, eos=["a"] * eos)["a"]


def patched(model):
    online = ds.patch_module(copy.deepcopy(model), unstreamable="buffer").online()

    def step(x, sos, eos):
        return online(ds.stream_tensor([x], ids=["a"], sos=sos, eos=eos, names=("B", None, "L")))["a"].detach()

    return step


@pytest.mark.parametrize("front", [engine_of, patched])
@in_blocks("name", [*FRAMES, *VECTORS], 10)
def test_streams_have_what_torch_has(name, front):
    torch.manual_seed(0)
    model = Net({**FRAMES, **VECTORS}[name]).eval()
    step = front(model)
    for n in LENGTHS:
        x = torch.randn(3, n)
        wanted = offline(model, x)
        for size in (1, max(n, 1)):
            parts = chunked(step, x, size)
            if wanted is None:
                assert not any(np.asarray(p).size for p in parts), f"{n} frames, which torch refuses"
                continue
            got = joined(parts, wanted)
            assert got.shape == wanted.shape, f"{n} frames in chunks of {size}"
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "a residual of the next frame",
        "both ends",
        "a convolution that is too long, padded",
        "mean",
        "sum",
        "nearest, padded",
        "every third by its middle, padded",
    ],
)
def test_exported_graphs_do_too(name, tmp_path):
    torch.manual_seed(0)
    model = Net({**FRAMES, **VECTORS}[name]).eval()
    ds.export.onnx(model, ("B", 3, "L"), tmp_path / "m.onnx", rows=2, frames=8)
    runner = Runner(tmp_path / "m.onnx")
    for n in LENGTHS:
        x = torch.randn(3, n)
        wanted = offline(model, x)
        cuts = [(0, 0), (0, n // 2), (n // 2, n)]
        steps = [
            runner.step({"a": x[:, a:b].numpy()}, eos=["a"] * (b == n and k == 2)) for k, (a, b) in enumerate(cuts)
        ]
        parts = [next(iter(s["a"].values()))[1] for s in steps]
        if wanted is None:
            assert not any(p.size for p in parts)
        else:
            np.testing.assert_allclose(joined(parts, wanted), wanted, 1e-5, 1e-5)


def test_streams_of_other_lengths_beside():
    """What one stream lacks is no other's loss, in a batch of all lengths."""
    model = Net(lambda m, x: (x + F.pad(x[..., 1:], (0, 1)), x[..., 2:].mean(-1))).eval()
    engine = ds.compile(model, ("B", 3, "L"))
    xs = {f"s{n}": torch.randn(3, n) for n in LENGTHS}
    found = engine.step(xs, sos=list(xs), eos=list(xs))
    for i, x in xs.items():
        y, mean = model(x[None])
        np.testing.assert_allclose(found[i][0], y[0].detach().numpy(), 1e-5, 1e-5)
        np.testing.assert_allclose(found[i][1][0], mean[0].detach().numpy(), 1e-5, 1e-5)


def test_native_modules_do_too():
    """Eagerly, and compiled."""

    class Native(ds.nn.Module):
        def forward(self, x):
            F = ds.nn.functional
            made = (
                F.interpolate(x, scale_factor=2),
                F.instance_norm(x),
                F.rfft(x.transpose(1, 2))[0].transpose(1, 2),
            )
            return [F.pad(y, (1, 1)) for y in made]

    model = ds.patch_module(Native(), unstreamable="buffer").online()
    xs = {f"s{n}": np.ones((3, n), np.float32) for n in LENGTHS}
    engine = ds.compile(Native(), ("B", 3, "L"), unstreamable="buffer")
    found = engine.step(xs, sos=list(xs), eos=list(xs))
    outputs = model(ds.stream_tensor(list(xs.values()), ids=list(xs), sos=True, eos=True, names=("B", None, "L")))
    for n, i in enumerate(xs):
        wanted = [2 * n + 2 if n else 0, n + 2 if n > 1 else 0, n + 2 if n else 0]
        assert [y.shape[-1] for y in found[i]] == [y[i].shape[-1] for y in outputs] == wanted, i


def test_nothing_leaves_before_a_stream_begins():
    """What pads stand before the first frame leaves with it, or with the end of a stream that has none."""
    engine = ds.compile(Net(lambda m, x: F.pad(x, (2, 0))).eval(), ("B", 3, "L"))
    none, one = np.zeros((3, 0), np.float32), np.ones((3, 1), np.float32)
    assert engine.step({"a": none, "b": none}, sos=["a", "b"])["a"].shape == (3, 0)
    assert engine.step({"a": one, "b": none}, eos=["b"])["a"].tolist() == [[0, 0, 1]] * 3
    restored = ds.compile(Net(lambda m, x: F.pad(x, (2, 0))).eval(), ("B", 3, "L"))
    restored.restore(engine.snapshot("a"), "a")
    assert restored.step({"a": one}, eos=["a"])["a"].tolist() == [[1]] * 3


@pytest.mark.parametrize("factor, delays", [(2, 2 * 9 - 1), (3, 3 * 9 - 1), (4, 4 * 9 - 2)])
def test_linear_interpolation_waits_for_what_it_needs(factor, delays):
    """Between two frames those leave with the first that the second has no part in."""
    model = Net(lambda m, x: F.interpolate(x, scale_factor=factor, mode="linear")).eval()
    x = torch.randn(3, 12)
    for step in (engine_of(model), patched(model)):
        first, rest = step(x[:, :9], True, False), step(x[:, 9:], False, True)
        assert first.shape[-1] == delays
        np.testing.assert_allclose(np.concatenate([first, rest], -1), model(x[None])[0], 1e-5, 1e-6)


def test_the_last_frame_as_a_slice_is_saved(tmp_path):
    engine = ds.compile(Net(lambda m, x: x[..., -1:]).eval(), ("B", 3, "L"))
    engine.save(tmp_path / "m.dsm")
    assert [o.rate for o in engine.outputs] == [o.rate for o in ds.load(tmp_path / "m.dsm").outputs] == [0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_to_half_are_refused_by_an_engine(dtype):
    with pytest.raises(ds.DTypeError, match=r"becomes b?float16 at test_no_frames\.py"):
        ds.compile(Net(lambda m, x: x.to(dtype).float()).eval(), ("B", 3, "L"), verify=False)


@pytest.mark.parametrize(
    "layer", [lambda: nn.Conv1d(2, 2, 3, stride=2), lambda: nn.BatchNorm1d(2).eval()], ids=["conv", "norm"]
)
def test_all_weights_have_gradients_where_no_frames_pass(layer):
    """An optimizer with momentum steps whatever has a gradient, of zeros too; what has none stays."""
    model = nn.Sequential(nn.AvgPool1d(2), layer(), nn.Conv1d(2, 1, 3, padding=1))
    online = ds.patch_module(model.train())
    model[1].eval()
    online.online()(ds.stream_tensor([torch.randn(2, 8)], ids=["a"], sos=True))
    y = online(ds.stream_tensor([torch.zeros(2, 0)], ids=["a"], eos=True))
    assert y.lengths.tolist() == [1]
    y.tensor().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not any(p.grad.any() for p in model[1].parameters())
