"""Streams of planes, and networks within frames, against torch: every way to cut, eager and compiled."""

from __future__ import annotations

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import NotStreamableError, ShapeError

torch = pytest.importorskip("torch")


def twins(name, *args, **kwargs):
    """A layer of torch's and the same one of ours."""
    torch.manual_seed(5)
    theirs = getattr(torch.nn, name)(*args, **kwargs).eval()
    ours = getattr(nn, name)(*args, **kwargs).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return theirs, ours


def cuts_of(n):
    """Every way to cut n frames, empty chunks only at the end."""
    for mask in range(1 << max(n - 1, 0)):
        cuts, last = [], 0
        for i in range(1, n):
            if mask >> (i - 1) & 1:
                cuts.append(i - last)
                last = i
        yield [*cuts, n - last]
        yield [*cuts, n - last, 0]


def eager(model, x, cuts, axis):
    """What comes out of one stream, laid end to end; L is axis `axis` of (C, ., .)."""
    collected, at = ds.OutputCollector(), 0
    names = ["B", "C", "F", "F"]
    names[axis + 1] = "L"
    for k, n in enumerate(cuts):
        chunk = x.take(range(at, at + n), axis)
        ends = k + 1 == len(cuts)
        collected.update(model(ds.stream_tensor([chunk], names=names, ids=["a"], sos=k == 0, eos=ends)))
        at += n
    return np.asarray(collected["a"])


def compiled(engine, x, cuts, axis):
    out, at = [], 0
    for k, n in enumerate(cuts):
        chunk = x.take(range(at, at + n), axis)
        ended = ["a"] if k + 1 == len(cuts) else []
        out.append(engine.step({"a": chunk}, sos=["a"] if k == 0 else [], eos=ended)["a"])
        at += n
    return np.concatenate(out, engine.stream_axis(0))


def check(theirs, ours, shape, axis, ways=None):
    """One stream, cut in every way (or some): torch's output, and the same bits each time."""
    rng = np.random.default_rng(shape)
    x = rng.standard_normal(shape, dtype=np.float32)
    try:
        want = theirs(torch.tensor(x)[None])[0].detach().numpy()
    except RuntimeError:  # too short
        want = None
    spec = ["B", *shape]
    spec[axis + 1] = "L"
    engine = ds.compile(ours, tuple(spec), verify=False)
    online = ds.patch_module(ours).online()
    for run, model in ((eager, online), (compiled, engine)):
        first = None
        for cuts in ways or cuts_of(shape[axis]):
            got = run(model, x, cuts, axis)
            first = got if first is None else first
            assert got.tobytes() == first.tobytes(), (run.__name__, cuts)
        assert first is not None
        if want is None:
            assert first.size == 0
            continue
        assert first.shape == want.shape
        assert np.abs(first - want).max(initial=0) <= 1e-5 * max(1.0, np.abs(want).max(initial=0))
    ds.unpatch_module(ours)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("stride", [1, 2])
def test_small_planes(stride, axis):
    """Kernel (3, 2) on two channels of 5 by 3."""
    check(*twins("Conv2d", 2, 1, (3, 2), stride=stride), (2, 5, 3), axis)


CASES = [
    ("Conv2d", (5, 5, 3), {"groups": 5, "dilation": (1, 2), "stride": (1, 2), "padding": 1}),
    ("Conv2d", (4, 6, (2, 3)), {"groups": 2, "stride": (3, 1), "padding": (0, 2)}),
    ("Conv2d", (2, 3, 2), {"stride": 5}),
    ("Conv2d", (2, 3, (3, 2)), {"padding": (2, 1), "padding_mode": "replicate"}),
    ("Conv2d", (2, 3, (2, 3)), {"padding": (1, 2), "padding_mode": "reflect", "stride": 2}),
    ("Conv2d", (3, 4, 1), {}),
    ("ConvTranspose2d", (2, 3, (3, 2)), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    ("ConvTranspose2d", (4, 6, 2), {"stride": (3, 2), "groups": 2}),
    ("ConvTranspose2d", (3, 3, 3), {"dilation": (2, 1), "groups": 3, "stride": 2}),
]


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("name", "args", "kwargs"), CASES, ids=str)
def test_layers(name, args, kwargs, axis):
    theirs, ours = twins(name, *args, **kwargs)
    for n in (1, 2, 6):
        shape = [args[0], 8, 8]
        shape[axis] = n
        check(theirs, ours, tuple(shape), axis)
    shape[axis] = 40
    check(theirs, ours, tuple(shape), axis, [[40], [7, 0, 12, 1, 17, 3], [1] * 40])


def test_rows_share_a_batch(rng):
    """Streams of other lengths in the same call change no bit."""
    _, ours = twins("Conv2d", 2, 3, 3, padding=1, stride=(2, 1))
    model = ds.patch_module(ours).online()
    xs = {i: rng.standard_normal((2, n, 4), dtype=np.float32) for i, n in (("a", 9), ("b", 4), ("c", 0))}
    names = ("B", "C", "L", "F")
    whole = model(ds.stream_tensor(list(xs.values()), names=names, ids=list(xs), sos=True, eos=True))
    for i, x in xs.items():
        alone = model(ds.stream_tensor([x], names=names, ids=[i], sos=True, eos=True))
        assert np.asarray(whole[i]).tobytes() == np.asarray(alone[i]).tobytes()


class Framed(nn.Module):
    """A function of each window of samples, (B_L, 1, 8)."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        frames = x.unfold(-1, 8, 5)
        n, length = x.size(0), frames.size(1)
        y = self.function(frames.reshape(n * length, 1, 8))
        return y.reshape(n, length, y.size(1) * y.size(2))


@pytest.mark.parametrize(
    "function",
    [
        lambda f, x, w: f.conv1d(x, w, stride=2, padding=1),
        lambda f, x, w: f.conv1d(x, w, dilation=3),
        lambda f, x, w: f.conv1d(f.conv1d(x, w), w[:, :1].reshape(1, 4, 3), padding=2),
        lambda f, x, w: f.conv_transpose1d(x, w.reshape(1, 4, 3), stride=2, padding=1, output_padding=1),
        lambda f, x, w: f.pad(x, (3, 2), "reflect"),
        lambda f, x, w: f.pad(f.conv1d(x, w), (3, -2, 1, 1), "constant", 0.5),
        lambda f, x, w: f.pad(x, (8, 5), "circular"),
        lambda f, x, w: f.pad(x, (2, 5), "replicate"),
    ],
)
def test_within_frames(rng, function):
    w = rng.standard_normal((4, 1, 3), dtype=np.float32)
    x = rng.standard_normal((1, 41), dtype=np.float32)
    frames = torch.tensor(x).unfold(-1, 8, 5).reshape(-1, 1, 8)
    want = function(torch.nn.functional, frames, torch.tensor(w)).flatten(1).numpy()
    model = Framed(lambda x: function(F, x, ds.tensor(w))).eval()
    np.testing.assert_allclose(model(ds.tensor(x)).numpy()[0], want, atol=1e-5)
    engine = ds.compile(model, ("B", "L"), verify=False)
    online = ds.patch_module(model).online()
    outputs = ds.OutputCollector(), []
    for at, n in ((0, 13), (13, 1), (14, 27)):
        sos, eos = at == 0, at + n == 41
        chunk = ds.stream_tensor([x[0, at : at + n]], names=("B", "L"), ids=["a"], sos=sos, eos=eos)
        outputs[0].update(online(chunk))
        outputs[1].append(engine.step({"a": x[0, at : at + n]}, sos=["a"] * sos, eos=["a"] * eos)["a"])
    np.testing.assert_allclose(np.asarray(outputs[0]["a"]), want, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(outputs[1]), want, atol=1e-5)


def test_what_it_costs():
    """Delay, field and state along the stream are those of the kernel's part along it."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, (3, 5), stride=(2, 3), padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 2, (3, 1), padding=(1, 0)),
    )
    rows = ds.audit(model, ("B", 1, "L", 10))
    assert (rows.delay, rows.receptive_field) == (3, 7)
    columns = ds.audit(model, ("B", 1, 10, "L"))
    assert (columns.delay, columns.receptive_field) == (3, 5)
    causal = nn.Conv2d(2, 3, 3, padding=("causal", "same"))
    assert ds.audit(causal, ("B", 2, "L", 7)).delay == 0
    assert ds.audit(causal, ("B", 2, 7, "L")).delay == 1
    kept = [row.state_bytes for row in ds.audit(causal, ("B", 2, "L", 7)).rows]
    assert sum(kept) == 2 * 2 * 7 * 4  # two frames, of 2 channels at 7 positions


def test_within_a_frame_nothing_is_kept():
    """Within a frame a convolution keeps nothing."""
    model = nn.Sequential(nn.Conv2d(2, 2, (1, 3), padding=(0, 1)))
    assert ds.audit(model, ("B", 2, "L", 7)).state_size == ds.audit(nn.ReLU(), ("B", 2, "L", 7)).state_size


def test_refusals():
    def online(module, names, shape, eos=False):
        model = ds.patch_module(module).online()
        return model(ds.stream_tensor([np.zeros(shape, np.float32)], names=names, ids=["a"], sos=True, eos=eos))

    class Pad(nn.Module):
        def __init__(self, *args):
            super().__init__()
            self.args = args

        def forward(self, x):
            return F.pad(x, *self.args)

    planes, shape = ("B", "C", "L", "F"), (2, 5, 4)
    for wrong, match in (
        (nn.Conv2d(2, 3, (1, 6)), "window of 6 positions doesn't fit the 4 within a frame"),
        (nn.Conv2d(2, 3, 3, padding=(0, 4), padding_mode="reflect"), "padded by 3 at most"),
        (nn.ConvTranspose2d(2, 3, 1, padding=(0, 2)), "padding 2 drops all of the 4 positions"),
        (nn.Conv2d(3, 3, 1), "input of 3 channels"),
        (Pad((4, 0), "reflect"), "size 4 can be padded by 3"),
        (Pad((-3, -1)), "nothing is left of 4 features"),
    ):
        with pytest.raises(ShapeError, match=match):
            online(wrong, planes, shape)
    with pytest.raises(ShapeError, match=r"expected dimensions \(B, C, L, F\)"):
        online(nn.Conv2d(5, 3, 1), ("B", "L", "C", "F"), (5, 2, 4))
    for wrong, match in (
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), "circular"),
        (nn.Conv2d(2, 3, 3, padding=(1, 0), padding_mode="circular"), "whole stream"),
        (nn.CircularPad2d((0, 0, 1, 1)), "its own end"),
        (Pad((0, 0, 0, 0, 0, 0, 1, 0)), "B of a stream"),
    ):
        with pytest.raises(NotStreamableError, match=match):
            online(wrong, planes, shape)


def test_waits_where_it_must(rng):
    """Circular padding along the stream, where waiting is allowed."""
    theirs, ours = twins("Conv2d", 2, 3, 3, padding=1, padding_mode="circular")
    x = rng.standard_normal((2, 6, 4), dtype=np.float32)
    engine = ds.compile(ours, ("B", 2, "L", 4), unstreamable="buffer", verify=False)
    got = compiled(engine, x, [2, 1, 3], 1)
    np.testing.assert_allclose(got, theirs(torch.tensor(x)[None])[0].detach().numpy(), atol=1e-5)
