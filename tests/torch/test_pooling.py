"""Pooling and upsampling against torch: whole sequences, and streams in any chunking, eager and compiled."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError

torch = pytest.importorskip("torch")
TF = torch.nn.functional

SIZES = range(1, 11)
LENGTHS = (0, 1, 2, 3, 5, 8, 9, 14, 23)


def torchs(module, x):
    """What torch gives on one whole sequence, features first; no frames where it only finds it too short."""
    with torch.no_grad():
        if x.shape[-1]:
            try:
                return module(torch.tensor(x)[None])[0].numpy()
            except RuntimeError:
                pass
        many = np.zeros((*x.shape[:-1], 200), x.dtype)
        return module(torch.tensor(many)[None])[0].numpy()[..., :0]


def streamed(model, xs, cut):
    """All of `xs` (features, L), in one batch, in chunks of `cut` frames; frames out per call and stream."""
    online = ds.patch_module(model).online()
    collected, counts = ds.OutputCollector(), []
    longest = max(x.shape[-1] for x in xs.values())
    at = 0
    for n in itertools.chain(itertools.repeat(cut, longest // cut), [longest % cut]):
        chunks = [x[..., at : at + n] for x in xs.values()]
        at += n
        eos = [at >= longest] * len(xs)
        y = online(ds.stream_tensor(chunks, names=names(chunks[0]), ids=list(xs), sos=at == n, eos=eos))
        counts.append(list(y.lengths))
        collected.update(y)
        if at >= longest:
            break
    ds.unpatch_module(model)
    return {i: np.asarray(collected[i]) for i in xs}, counts


def eager(model, xs, cut):
    return streamed(model, xs, cut)[0]


def names(chunk):
    return ("B", *[f"F{i}" for i in range(chunk.ndim - 1)], "L")


def compiled(model, xs, cut):
    """The same by an engine, one stream after the other."""
    spec = ("B", *next(iter(xs.values())).shape[:-1], "L")
    engine = ds.compile(model, spec, verify=False)
    out = {}
    for i, x in xs.items():
        with engine.stream(i) as s:
            parts = [s.step(x[..., a : a + cut]) for a in range(0, x.shape[-1], cut)]
            out[i] = np.concatenate([*parts, s.finish()], -1)
    return out


def check(ours, theirs, rng, features=(2,), lengths=LENGTHS, cuts=(1, 4), engine=True):
    """Streams of all lengths at once, compared with torch; the same bits however they are cut and run."""
    xs = {f"s{n}": rng.standard_normal((*features, n), dtype=np.float32) - 1 for n in lengths}
    wanted = {i: torchs(theirs, x) for i, x in xs.items()}
    before = None
    for cut in cuts:
        for run in (eager, compiled) if engine else (eager,):
            got = run(ours, xs, cut)
            for i, y in wanted.items():
                assert got[i].shape == y.shape, (ours, i, cut)
                np.testing.assert_allclose(got[i], y, rtol=1e-5, atol=1e-5, err_msg=f"{ours} {i} {cut}")
                if before is not None:
                    np.testing.assert_array_equal(got[i], before[i])
            before = got


# ---------------------------------------------------------------------- windows
@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("name", ["MaxPool1d", "AvgPool1d"])
def test_kernels_and_strides(rng, name, k):
    for s in SIZES:
        options = {"kernel_size": k, "stride": s, "padding": int(rng.integers(k // 2 + 1))}
        check(getattr(nn, name)(**options), getattr(torch.nn, name)(**options), rng, cuts=(3,))


@pytest.mark.parametrize("k", range(1, 6))
def test_ceil_mode(rng, k):
    """Every small stride, padding and length, frame by frame."""
    for s, p in itertools.product((1, 2, 3, 5), range(k // 2 + 1)):
        options = {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": True}
        cases = [("AvgPool1d", {"count_include_pad": c}) for c in (True, False)]
        cases += [("MaxPool1d", {"dilation": d}) for d in (1, 2)]
        for name, more in cases:
            ours, theirs = (
                getattr(nn, name)(**options, **more),
                getattr(torch.nn, name)(**options, **more),
            )
            check(ours, theirs, rng, lengths=range(11), cuts=(2,), engine=False)


def test_average_of_five_in_three_calls():
    """Frames leave when their window is there, and not before."""
    model = ds.patch_module(nn.AvgPool1d(3, 1, 1)).online()
    x = np.arange(1, 6, dtype=np.float32)[None]
    got, at = [], 0
    for n, out in ((3, 2), (1, 1), (1, 2)):
        y = model(ds.stream_tensor([x[:, at : at + n]], ids=["a"], sos=at == 0, eos=at + n == 5))
        at += n
        assert y.lengths == (out,)
        got += y["a"].numpy()[0].tolist()
    np.testing.assert_allclose(got, [1, 2, 3, 4, 3], rtol=1e-6)


def test_convolutions_and_pooling(rng):
    """Stride 4, a field of 8: frame m is complete with frame 4 m + 4."""

    def build(n):
        return n.Sequential(
            n.Conv1d(2, 3, 3, padding=1), n.MaxPool1d(2, 2), n.Conv1d(3, 2, 3, stride=2, padding=1)
        )

    theirs, ours = build(torch.nn).eval(), build(nn).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    xs = {"x": rng.standard_normal((2, 32), dtype=np.float32)}
    wanted = torchs(theirs, xs["x"])
    assert wanted.shape == (2, 8)
    for cut in (1, 3, 5, 32):
        for got in (streamed(ours, xs, cut)[0], compiled(ours, xs, cut)):
            np.testing.assert_allclose(got["x"], wanted, rtol=1e-5, atol=1e-5)
    _, counts = streamed(ours, xs, 1)
    assert np.flatnonzero(np.ravel(counts)).tolist() == [*range(4, 32, 4), 31]
    engine = ds.compile(ours, ("B", 2, "L"))
    assert (engine.delay, engine.receptive_field, engine.outputs[0].rate * 4) == (4, 8, 1)


def test_dilated_windows(rng):
    for k, s, d in itertools.product((2, 3, 5), (1, 2, 4), (2, 3)):
        options = {"kernel_size": k, "stride": s, "padding": k // 2, "dilation": d}
        check(nn.MaxPool1d(**options), torch.nn.MaxPool1d(**options), rng)


def test_padding_is_no_maximum():
    x = -1 - np.arange(7, dtype=np.float32)[None]
    got, _ = streamed(nn.MaxPool1d(3, 1, 1), {"a": x}, 2)
    np.testing.assert_array_equal(got["a"], [[-1, -1, -2, -3, -4, -5, -6]])


def test_powers_of_negative_sums(rng):
    x = rng.standard_normal((2, 9)).astype(np.float32)
    got, wanted = F.lp_pool1d(ds.tensor(x), 3, 2).numpy(), TF.lp_pool1d(torch.tensor(x), 3, 2).numpy()
    assert np.isnan(wanted).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_special_values():
    x = np.array([[0, np.nan, 1, 2, -np.inf, -np.inf, np.inf, 3]], np.float32)
    for name in ("max_pool1d", "avg_pool1d"):
        ours, theirs = getattr(F, name), getattr(TF, name)
        np.testing.assert_array_equal(ours(ds.tensor(x), 2).numpy(), theirs(torch.tensor(x), 2).numpy())


@pytest.mark.parametrize("seed", range(16))
def test_planes(seed):
    """Images whose time axis comes last, or before frequency, against torch on whole images."""
    rng = np.random.default_rng(seed)
    kernel = [int(k) for k in rng.integers(1, 5, 2)]
    stride = [int(s) for s in rng.integers(1, 4, 2)]
    padding = [int(rng.integers(k // 2 + 1)) for k in kernel]
    ceil, include = bool(rng.integers(2)), bool(rng.integers(2))
    cases = [
        ("MaxPool2d", {"dilation": [int(d) for d in rng.integers(1, 3, 2)]}),
        ("AvgPool2d", {"count_include_pad": include, "divisor_override": [None, 3][seed % 2]}),
    ]
    for name, more in cases:
        options = {
            "kernel_size": tuple(kernel), "stride": tuple(stride), "padding": tuple(padding), "ceil_mode": ceil
        }  # fmt: skip
        ours, theirs = getattr(nn, name)(**options, **more), getattr(torch.nn, name)(**options, **more)
        check(ours, theirs, rng, (2, 9), LENGTHS[1:], cuts=(2,))
        flipped = {
            **more,
            **{k: v[::-1] for k, v in {**options, **more}.items() if isinstance(v, (tuple, list))},
        }
        turned = Turned(getattr(nn, name)(**{**options, **flipped}))
        check(turned, theirs, rng, (2, 9), LENGTHS[1:], cuts=(2,))


class Turned(nn.Module):
    """Time before frequency: (B, C, F, L) comes in, (B, C, L, F) is pooled."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.transpose(2, 3)).transpose(2, 3)


# ---------------------------------------------------------------------- layers as torch's
LAYERS = [
    ("MaxPool1d", (3,), {}),
    ("MaxPool1d", (3, 2, 1), {"dilation": 2, "ceil_mode": True}),
    ("MaxPool2d", ((3, 2),), {"stride": (2, 1), "padding": 1}),
    ("AvgPool1d", (3,), {}),
    ("AvgPool1d", (4, 3, 2), {"ceil_mode": True, "count_include_pad": False}),
    ("AvgPool2d", ((3, 2),), {"divisor_override": 4}),
    ("LPPool1d", (2, 3), {}),
    ("LPPool1d", (1.5, 3, 2), {"ceil_mode": True}),
    ("LPPool1d", (float("inf"), 2), {}),
    ("AdaptiveAvgPool1d", (4,), {}),
    ("AdaptiveMaxPool1d", (5,), {}),
    ("AdaptiveAvgPool2d", ((None, 3),), {}),
    ("AdaptiveMaxPool2d", (3,), {}),
    ("Upsample", (), {"scale_factor": 2}),
    ("Upsample", (), {"scale_factor": (1.7, 0.5)}),
    ("Upsample", (), {"size": (5, 30)}),
    ("Upsample", (7,), {}),
    ("Upsample", (), {"scale_factor": 0.7, "recompute_scale_factor": True}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), LAYERS, ids=lambda v: str(v)[:24])
def test_layer(rng, name, args, kwargs):
    ours, theirs = getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == []
    two = "2d" in name or any(isinstance(v, tuple) for v in (kwargs.get("size"), kwargs.get("scale_factor")))
    shapes = [(2, 3, 11, 13), (0, 3, 11, 13)] if two else [(2, 3, 13), (0, 3, 13)]
    shapes += [] if name == "Upsample" else [shapes[0][1:]]
    for shape in shapes:
        for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-12)):
            x = np.abs(rng.standard_normal(shape)).astype(dtype)
            got, wanted = ours(ds.tensor(x)).numpy(), theirs(torch.tensor(x)).numpy()
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_sizes_by_the_nearest_elements(rng):
    for n, size in itertools.product(range(1, 20), range(1, 40, 3)):
        x = rng.standard_normal((2, 1, n)).astype(np.float32)
        got = F.interpolate(ds.tensor(x), size=size).numpy()
        np.testing.assert_array_equal(got, TF.interpolate(torch.tensor(x), size=size).numpy())
    for factor in (0.3, 0.5, 0.75, 1.0, 1.3, 2, 2.5, 3, 8):
        x = rng.standard_normal((2, 1, 40, 9)).astype(np.float32)
        got = F.interpolate(ds.tensor(x), scale_factor=factor).numpy()
        np.testing.assert_array_equal(got, TF.interpolate(torch.tensor(x), scale_factor=factor).numpy())


@pytest.mark.parametrize("factor", [1, 2, 5, 0.5, 1 / 3, 1 / 7])
def test_upsample_streams(rng, factor):
    check(nn.Upsample(scale_factor=factor), torch.nn.Upsample(scale_factor=factor), rng)


# ---------------------------------------------------------------------- what is refused
class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: F.max_pool1d(x, 2, return_indices=True), NotStreamableError, "return_indices"),
        (lambda x: F.max_pool1d(x.transpose(0, 2), 2), NotStreamableError, "mix B"),
        (
            lambda x: F.adaptive_avg_pool1d(x, 2),
            NotStreamableError,
            "depends on the stream's length.*buffer",
        ),
        (lambda x: F.adaptive_max_pool1d(x, 2), NotStreamableError, "adaptive_max_pool1d"),
        (
            lambda x: F.adaptive_avg_pool2d(x.unsqueeze(1), (None, 2)),
            NotStreamableError,
            "fixed kernel_size",
        ),
        (lambda x: F.interpolate(x, size=8), NotStreamableError, "size=8"),
        (lambda x: F.interpolate(x, scale_factor=1.5), NotStreamableError, "scale_factor=1.5"),
        (lambda x: x.repeat_interleave(0, 2), ShapeError, "at least once"),
        (lambda x: F.overlap_add(x, 2), ShapeError, "windows"),
    ],
)
def test_refused_streams(function, error, says):
    model = ds.patch_module(Function(function)).online()
    with pytest.raises(error, match=f"(?s){says}"):
        model(ds.stream_tensor([np.zeros((3, 5), np.float32)], ids=["a"], sos=True))
    assert model.live_ids == []


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: F.max_pool1d(x, 3, padding=2), ShapeError, "half of kernel_size 3, got 2"),
        (lambda x: F.max_pool1d(x, 0), ShapeError, "at least 1, got 0"),
        (lambda x: F.max_pool1d(x, (2, 2)), ShapeError, "one integer"),
        (lambda x: F.max_pool2d(x, 2, stride=(1, 2, 3)), ShapeError, "1 or 2 integers"),
        (lambda x: F.avg_pool1d(x[0, 0], 2), ShapeError, "got 1 dimensions"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), ShapeError, "divisor_override"),
        (lambda x: F.avg_pool1d(x.long(), 2), DTypeError, "int64"),
        (lambda x: F.max_pool2d(x.unsqueeze(0), 20), ShapeError, "shorter than a window"),
        (lambda x: F.adaptive_avg_pool1d(x, 0), ShapeError, "at least 1"),
        (lambda x: F.adaptive_avg_pool2d(x, (1, 2, 3)), ShapeError, "2 numbers"),
        (lambda x: F.interpolate(x), ShapeError, "either size or scale_factor"),
        (lambda x: F.interpolate(x, scale_factor=-1), ShapeError, "above 0"),
        (lambda x: F.interpolate(x, scale_factor=2, align_corners=True), ShapeError, "align_corners"),
        (lambda x: F.interpolate(x, size=(2, 3)), ShapeError, "1 sizes or factors"),
        (lambda x: nn.Upsample(scale_factor=2, mode="bicubic"), ShapeError, "bicubic"),
        (lambda x: nn.OverlapAdd(0), ShapeError, "at least 1"),
        (lambda x: nn.RunningMean(0), ShapeError, "at least 1"),
    ],
)
def test_bad_arguments(function, error, says):
    with pytest.raises(error, match=says):
        function(ds.zeros(2, 3, 5))


def test_parts_of_a_stream_wait_for_its_end(rng):
    x = rng.standard_normal((3, 11), dtype=np.float32)
    model = ds.patch_module(nn.AdaptiveAvgPool1d(4), unstreamable="buffer").online()
    first = model(ds.stream_tensor([x[:, :6]], ids=["a"], sos=True))
    last = model(ds.stream_tensor([x[:, 6:]], ids=["a"], eos=True))
    assert first.lengths == (0,)
    np.testing.assert_allclose(last["a"].numpy(), torchs(torch.nn.AdaptiveAvgPool1d(4), x), atol=1e-6)
    with pytest.raises(NotStreamableError, match="adaptive_avg_pool1d"):
        ds.compile(nn.AdaptiveAvgPool1d(4), ("B", 3, "L"))


def test_parts_of_features_stream(rng):
    for size in ((3, None), (None, None)):
        ours, theirs = nn.AdaptiveMaxPool2d(size), torch.nn.AdaptiveMaxPool2d(size)
        check(ours, theirs, rng, (2, 7), LENGTHS[1:])
