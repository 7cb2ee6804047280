"""Streams against torch: layers and small models in any chunking, eager and compiled.

Each model is written once, for either library's ``nn``; the weights go over by state dict. A stream's
output, laid end to end, is compared with torch's on the whole sequence, its shape included. Where torch
refuses a sequence only because it is too short, offline means no frames.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import CaptureError, NotStreamableError, ShapeError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

KERNELS = STRIDES = (1, 2, 3, 10, 17)
DILATIONS = (1, 2, 3)
CUTS = (7, 4, 12, 1, 17, 9)


# ---------------------------------------------------------------------- running


def twins(build, *args):
    """Return a model of torch's layers and the same one of ours, with the same weights."""
    torch.manual_seed(7)
    theirs = build(torch.nn, *args).eval()
    ours = build(nn, *args).eval()
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    return theirs, ours


def offline(module, x, dtype=torch.float32):
    """Return torch's output ``(C, L)`` on a whole sequence."""
    with torch.no_grad():
        try:
            y = module.to(dtype)(torch.tensor(x if x.shape[1] else np.zeros((len(x), 1)), dtype=dtype)[None])
            return y[0, :, : y.shape[2] if x.shape[1] else 0].numpy()
        except RuntimeError:  # too short
            enough = module(torch.zeros(1, len(x), 400, dtype=dtype))
            return enough[0, :, :0].numpy()
        finally:
            module.to(torch.float32)


def calls(cuts):
    """Yield per call which streams are in it: ``(id, begin, end, sos, eos)``; streams end in turn."""
    ends = {i: np.cumsum([0, *c]).tolist() for i, c in cuts.items()}
    for k in range(max(map(len, cuts.values()))):
        rows = [(i, e[k], e[k + 1], k == 0, k + 2 == len(e)) for i, e in ends.items() if k + 2 <= len(e)]
        if rows:
            yield rows


def eager(ours, xs, cuts):
    """Run streams online in ragged batches; return each one's output laid end to end."""
    model = ds.patch_module(ours).online()
    collected = ds.OutputCollector()
    for rows in calls(cuts):
        chunks = [xs[i][:, a:b] for i, a, b, _, _ in rows]
        ids, sos, eos = [r[0] for r in rows], [r[3] for r in rows], [r[4] for r in rows]
        collected.update(model(ds.stream_tensor(chunks, ids=ids, sos=sos, eos=eos)))
    assert model.live_ids == [] and set(collected.finished) == set(xs)
    ds.unpatch_module(model)
    return {i: np.asarray(collected[i]) for i in xs}


def compiled(ours, xs, cuts):
    """Run streams through an engine, as `eager` does."""
    channels = len(next(iter(xs.values())))
    engine = ds.compile(ours, ("B", channels, "L"), verify=False)
    axis = engine.stream_axis(0)
    out = {i: [] for i in xs}
    for rows in calls(cuts):
        step = engine.step(
            {i: xs[i][:, a:b] for i, a, b, _, _ in rows},
            sos=[r[0] for r in rows if r[3]],
            eos=[r[0] for r in rows if r[4]],
        )
        for i, y in step.items():
            out[i].append(y)
    assert engine.ids == []
    return {i: np.concatenate(ys, axis=axis) for i, ys in out.items()}


def random_cuts(rng, n, most=10):
    """Cut n frames into chunks, empty ones among them."""
    cuts = []
    while sum(cuts) < n:
        cuts.append(min(int(rng.integers(0, most + 1)), n - sum(cuts)))
    return [*cuts, 0] if rng.random() < 0.5 or not cuts else cuts


def check_operator(got, want, what):
    assert got.shape == want.shape, what
    if want.size:
        bound = 1e-5 * max(1.0, float(np.abs(want).max()))
        assert float(np.abs(got - want).max()) <= bound, what


def check_model(got, theirs, x, what):
    """Compare with float64: at most four times the error of torch's own float32."""
    exact, single = offline(theirs, x, torch.float64), offline(theirs, x)
    assert got.shape == exact.shape, what
    if exact.size:
        bound = max(4 * np.abs(single - exact).max(), 1e-6 * np.abs(exact).max())
        assert np.abs(got - exact).max() <= bound, what


def compare(theirs, ours, lengths, seed, what, one_layer=False):
    """Stream sequences of these lengths, both ways, in random chunks, and compare."""
    rng = np.random.default_rng(seed)
    first = next(p for p in theirs.parameters() if p.ndim > 1)
    channels = getattr(theirs, "channels", None) or first.shape[1]
    xs = {f"s{n}": rng.standard_normal((channels, size), dtype=np.float32) for n, size in enumerate(lengths)}
    cuts = {i: list(CUTS) if x.shape[1] == 50 else random_cuts(rng, x.shape[1]) for i, x in xs.items()}
    for run in (eager, compiled):
        got = run(ours, xs, cuts)
        for i, x in xs.items():
            label = (what, run.__name__, x.shape, cuts[i])
            if one_layer:
                check_operator(got[i], offline(theirs, x), label)
            else:
                check_model(got[i], theirs, x, label)


# ---------------------------------------------------------------------- single layers, in grids


def conv(n, k, s, pad, d, groups=1, bias=True, channels=(2, 3)):
    model = n.Sequential(n.ZeroPad1d(pad), n.Conv1d(*channels, k, stride=s, dilation=d, groups=groups, bias=bias))
    model.channels = channels[0]
    return model


def transposed(n, k, s, padding, extra, d, groups=1, bias=True, channels=(2, 3)):
    model = n.Sequential(
        n.ConvTranspose1d(
            *channels, k, stride=s, padding=padding, output_padding=extra, dilation=d, groups=groups, bias=bias
        )
    )
    model.channels = channels[0]
    return model


@pytest.mark.parametrize(("k", "s"), list(itertools.product(KERNELS, STRIDES)))
def test_conv_grid(k, s):
    """Every kernel, stride, padding and dilation, strides beyond the window included."""
    for number, (pad, d) in enumerate(itertools.product([(0, 0), (1, 1), (2, 0), (0, 3), (1, 4)], DILATIONS)):
        theirs, _ = twins(conv, k, s, pad, d)
        layer = nn.Conv1d(2, 3, k, stride=s, padding=pad, dilation=d)
        layer.load_state_dict({n[2:]: v.numpy() for n, v in theirs.state_dict().items()})
        compare(theirs, layer, [50, number % 9, 20], [k, s, number], (k, s, pad, d), one_layer=True)


@pytest.mark.parametrize(("k", "s"), list(itertools.product(KERNELS, STRIDES)))
def test_transposed_grid(k, s):
    """Every kernel, stride, trim and dilation; what torch can't trim by itself is cropped."""
    for number, ((left, right), d) in enumerate(
        itertools.product([(0, 0), (1, 0), (2, 2), (8, 6), (9, 0)], DILATIONS)
    ):
        extra = left - right
        what = (k, s, (left, right), d)
        if extra < max(s, d):
            theirs, ours = twins(transposed, k, s, left, extra, d)
        else:
            with pytest.raises(ShapeError):
                nn.Sequential(nn.ConvTranspose1d(2, 3, k, s, left, extra, dilation=d))(ds.zeros(1, 2, 5))

            def cropped(n, k=k, s=s, left=left, right=right, d=d):
                class Cropped(n.Module):
                    channels = 2

                    def __init__(self):
                        super().__init__()
                        self.up = n.ConvTranspose1d(2, 3, k, stride=s, dilation=d)

                    def forward(self, x):
                        y = self.up(x)[..., left:]
                        return y[..., :-right] if right else y

                return Cropped()

            theirs, ours = twins(cropped)
        compare(theirs, ours, [50, number % 9, 20], [k, s, number, 1], what, one_layer=True)


@settings(max_examples=60)
@given(
    up=st.booleans(),
    k=st.integers(1, 10),
    s=st.integers(1, 10),
    d=st.integers(1, 10),
    bias=st.booleans(),
    length=st.integers(0, 20),
    blocks=st.integers(1, 10),
)
def test_grouped_in_blocks(up, k, s, d, bias, length, blocks):
    """One channel per group, fixed blocks, lengths around the field, strides beyond the kernel."""
    args = (k, s, 0, 0, d, 2, bias, (2, 2)) if up else (k, s, (0, 0), d, 2, bias, (2, 2))
    theirs, ours = twins(transposed if up else conv, *args)
    rng = np.random.default_rng([k, s, d, length])
    field = d * (k - 1) + 1
    xs = {f"s{n}": rng.standard_normal((2, n), dtype=np.float32) for n in {length, field - 1, field + length}}
    cuts = {i: [min(blocks, x.shape[1] - a) for a in range(0, x.shape[1], blocks)] or [0] for i, x in xs.items()}
    for run in (eager, compiled):
        got = run(ours, xs, cuts)
        for i, x in xs.items():
            check_operator(got[i], offline(theirs, x), (run.__name__, x.shape))


# ---------------------------------------------------------------------- small models


def chain(*layers):
    """Return a builder of a Sequential of layers given as (name, arguments...)."""

    def build(n):
        model = n.Sequential(*(getattr(n, name)(*a, **k) for name, a, k in layers))
        model.channels = next(a[0] for name, a, _ in layers if "Conv" in name)
        return model

    return build


def L(name, *args, **kwargs):
    return name, args, kwargs


def C(i, o, k, **kwargs):
    return L("Conv1d", i, o, k, **kwargs)


def T(i, o, k, **kwargs):
    return L("ConvTranspose1d", i, o, k, **kwargs)


def added(*crops):
    """Convolutions k1, k3 d2, k2 and the input, cropped at start and end, added."""

    def build(n):
        class Residual(n.Module):
            channels = 3

            def __init__(self):
                super().__init__()
                self.body = n.Sequential(n.Conv1d(3, 3, 1), n.Conv1d(3, 3, 3, dilation=2), n.Conv1d(3, 3, 2))

            def forward(self, x):
                first, last = crops
                y = x[..., first:]
                return self.body(x) + (y[..., :-last] if last else y)

        return Residual()

    return build


def padded_residual(n):
    class Residual(n.Module):
        channels = 2

        def __init__(self):
            super().__init__()
            self.left = n.Conv1d(2, 4, 7, padding=3)
            self.right = n.Sequential(n.Conv1d(2, 4, 3, padding=1), n.ReLU(), n.Conv1d(4, 4, 5, padding=2))
            self.last = n.Conv1d(4, 2, 1)

        def forward(self, x):
            return x + self.last(self.left(x) * self.right(x))

    return Residual()


def unet(n):
    class UNet(n.Module):
        channels = 2

        def __init__(self):
            super().__init__()
            self.down = n.Conv1d(2, 4, 4, stride=2, padding=1)
            self.middle = n.Sequential(n.Conv1d(4, 4, 3, padding=1), n.GELU())
            self.up = n.ConvTranspose1d(4, 2, 4, stride=2, padding=1)

        def forward(self, x):
            h = self.down(x)
            y = self.up(h + self.middle(h))
            return y + x[..., : y.shape[2]]

    return UNet()


def recurrent(first, hidden, second, **options):
    """A recurrence of four layers, a convolution, another recurrence."""

    def build(n):
        class Recurrent(n.Module):
            channels = 2

            def __init__(self):
                super().__init__()
                self.first = getattr(n, first)(2, hidden, 4, batch_first=True, **options)
                self.conv = n.Conv1d(options.get("proj_size", hidden), 2, 3)
                self.second = getattr(n, second)(2, 1, 4, batch_first=True)

            def forward(self, x):
                y, _ = self.first(x.transpose(1, 2))
                y, _ = self.second(self.conv(y.transpose(1, 2)).transpose(1, 2))
                return y.transpose(1, 2)

        return Recurrent()

    return build


MODELS = {
    "down and up": chain(C(2, 3, 5, stride=2, padding=1), T(3, 2, 4, stride=3, padding=2)),
    "wide up": chain(C(2, 3, 7, padding=3), T(3, 2, 16, stride=8, padding=4)),
    "k31 s17": chain(C(2, 3, 31, stride=17)),
    "k33 s17 p2": chain(L("ZeroPad1d", (2, 0)), C(2, 3, 33, stride=17)),
    "k19 s10 p1,4": chain(L("ZeroPad1d", (1, 4)), C(2, 3, 19, stride=10)),
    "k5 s4 p1,2, up 7": chain(L("ZeroPad1d", (1, 2)), C(2, 3, 5, stride=4), T(3, 2, 7, stride=7, padding=3)),
    "up k10 s3 t8": chain(T(2, 3, 10, stride=3, padding=8)),
    "k31 s17, up k10 s3 t8": chain(C(2, 3, 31, stride=17), T(3, 2, 10, stride=3, padding=8)),
    "flush through an empty chunk": chain(C(2, 3, 3, stride=2), T(3, 2, 4, stride=2)),
    "zigzag": chain(
        T(2, 3, 3, stride=2), T(3, 3, 1), L("ReLU"), C(3, 3, 1), C(3, 3, 3, dilation=2), C(3, 3, 2),
        C(3, 2, 1, stride=2),
    ),
    "zigzag, pooled": chain(
        T(2, 3, 3, stride=2), T(3, 3, 1), C(3, 3, 1), C(3, 3, 3, dilation=2), C(3, 3, 2), C(3, 2, 1, stride=2),
        L("AvgPool1d", 3, 2), L("MaxPool1d", 3, 2), L("ReLU"),
    ),
    "residual, lagging": added(5, 0),
    "residual, centred": added(2, 3),
    "residual, leading": added(0, 5),
    "residual, padded": padded_residual,
    "u-net": unet,
    "recurrent": recurrent("RNN", 3, "LSTM"),
    "recurrent, relu": recurrent("RNN", 3, "GRU", nonlinearity="relu"),
    "recurrent, gated": recurrent("GRU", 3, "RNN"),
    "recurrent, projected": recurrent("LSTM", 3, "GRU", proj_size=2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # torch's own
@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    theirs, ours = twins(MODELS[name])
    for seed in range(4):
        rng = np.random.default_rng([seed, len(name)])
        compare(theirs, ours, [50, 33, 10, *rng.integers(0, 50, 3)], [seed, len(name)], name)


@pytest.mark.parametrize("n", range(10, 21))
def test_last_chunk_without_output(n):
    """The end goes through a layer that has nothing to add: the transposed one still owes its tail."""
    theirs, ours = twins(MODELS["flush through an empty chunk"])
    x = np.random.default_rng(n).standard_normal((2, n), dtype=np.float32)
    want = offline(theirs, x)
    for cuts in ([n - 1, 1], [n, 0], [n - 1, 0, 0, 1, 0]):
        for run in (eager, compiled):
            check_model(run(ours, {"s": x}, {"s": cuts})["s"], theirs, x, (run.__name__, cuts))
    assert want.shape == (2, 2 * ((n - 3) // 2 + 1) + 2)


# ---------------------------------------------------------------------- numbers known by hand


def of_ones(layer):
    for p in layer.parameters():
        p.numpy()[...] = 1.0
    return layer


def both(model, x, sizes):
    """Return the output of one stream, eager and compiled, after checking that they agree."""
    a = eager(model, {"s": x}, {"s": sizes})["s"]
    b = compiled(model, {"s": x}, {"s": sizes})["s"]
    np.testing.assert_array_equal(a, b)
    return a


def test_step_by_step():
    x = np.arange(20, dtype=np.float32).reshape(2, 10)
    layer = of_ones(nn.Conv1d(2, 1, 5, bias=False))
    want = [x[:, i : i + 5].sum() for i in range(6)]
    np.testing.assert_array_equal(both(layer, x, [1] * 10), [want])
    layer = of_ones(nn.Conv1d(1, 1, 3, stride=2, padding=1, bias=False))
    np.testing.assert_array_equal(both(layer, np.arange(5, dtype=np.float32)[None], [1] * 5), [[1, 6, 7]])


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = of_ones(nn.Conv1d(1, 1, 5, padding=2, bias=False))
        self.b = of_ones(nn.Conv1d(1, 1, 3, padding=1, bias=False))
        self.c = of_ones(nn.Conv1d(1, 1, 1, bias=False))

    def forward(self, x):
        return self.a(x) + self.b(x) + self.c(x)


def test_parallel_branches():
    x = np.arange(7, dtype=np.float32)[None]
    np.testing.assert_array_equal(both(Branches(), x, [1] * 7), [[4, 10, 18, 27, 36, 38, 32]])


class Cropped(nn.Module):
    def __init__(self, padding, first, last):
        super().__init__()
        self.conv = of_ones(nn.Conv1d(1, 1, 3, padding=padding, bias=False))
        self.first, self.last = first, last

    def forward(self, x):
        y = x[..., self.first :]
        return self.conv(x) + (y[..., : -self.last] if self.last else y)


@pytest.mark.parametrize(
    ("args", "want"),
    [
        ((1, 0, 0), [1, 4, 8, 12, 16, 14]),
        ((0, 1, 1), [4, 8, 12, 16]),
        ((0, 0, 2), [3, 7, 11, 15]),
        ((0, 2, 0), [5, 9, 13, 17]),
    ],
)
def test_residuals(args, want):
    x = np.arange(6, dtype=np.float32)[None]
    for sizes in ([6], [1] * 6, [0, 4, 0, 2, 0]):
        np.testing.assert_array_equal(both(Cropped(*args), x, sizes), [want])


def test_receptive_fields():
    engine = ds.compile(nn.Sequential(*(nn.Conv1d(1, 1, 9) for _ in range(10))), ("B", 1, "L"), verify=False)
    assert (engine.receptive_field, engine.delay) == (81, 80)
    model = nn.Sequential(*(nn.Conv1d(1, 1, 3, stride=s, padding=1) for s in (1, 2, 3, 1)))
    engine = ds.compile(model, ("B", 1, "L"), verify=False)
    assert (engine.receptive_field, engine.delay, engine.outputs[0].rate * 6) == (21, 10, 1)
    audit = ds.audit(model, ("B", 1, "L"))
    assert (audit.receptive_field, audit.delay) == (21, 10)
    assert [r.stride for r in audit.rows if r.layer] == [1, 2, 6, 6]


# ---------------------------------------------------------------------- latency


def frames_that_are_final(theirs, x, n, horizon):
    """How many output frames exist, and depend on seen input only, however the stream goes on."""
    least = None
    for total in range(n, horizon):
        unseen = x[:, :total].copy()
        unseen[:, n:] = np.nan
        y = offline(theirs, unseen, torch.float64)
        bad = np.flatnonzero(np.isnan(y).any(axis=0))
        first = bad[0] if bad.size else y.shape[1]
        least = first if least is None else min(least, first)
    return least


FINAL_CONVOLUTIONS = [  # kernel, stride, padding, dilation
    (3, 1, (1, 1), 1),
    (3, 2, (0, 3), 2),
    (10, 3, (1, 4), 1),
    (2, 5, (1, 1), 3),
    (1, 3, (0, 0), 1),
]
FINAL_TRANSPOSED = [  # kernel, stride, padding, output padding, dilation
    (3, 1, 0, 0, 1),
    (3, 2, 2, 1, 2),
    (10, 3, 8, 2, 1),
    (10, 10, 9, 9, 1),
    (3, 3, 1, 0, 3),
]
FINAL_MODELS = [
    "down and up",
    "flush through an empty chunk",
    "residual, centred",
    "residual, padded",
    "u-net",
]
LATE = {
    **{f"conv {args}": (conv, *args) for args in FINAL_CONVOLUTIONS},
    **{f"up {args}": (transposed, *args) for args in FINAL_TRANSPOSED},
    **{name: (MODELS[name],) for name in FINAL_MODELS},
}


@pytest.mark.parametrize("name", LATE)
def test_never_late_never_early(name):
    """With all unseen input NaN, exactly what is no NaN whatever follows has left."""
    build, *args = LATE[name]
    theirs, ours = twins(build, *args)
    x = np.random.default_rng(5).standard_normal((theirs.channels, 64), dtype=np.float32)
    model = ds.patch_module(ours).online()
    engine = ds.compile(ours, ("B", theirs.channels, "L"), verify=False)
    out = out_engine = 0
    for n in range(1, 25):
        chunk = x[:, n - 1 : n]
        out += model(ds.stream_tensor([chunk], ids="s", sos=n == 1))["s"].shape[1]
        out_engine += engine.step({"s": chunk}, sos=["s"] if n == 1 else ())["s"].shape[1]
        assert out == out_engine == frames_that_are_final(theirs, x, n, n + 26), n


# ---------------------------------------------------------------------- refusals


class Forward(nn.Module):
    """A model that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


REFUSED = {
    "global mean": lambda x: x - x.mean(-1, keepdim=True),
    "global mean, unsqueezed": lambda x: x - x.mean(-1).unsqueeze(-1),
    "global maximum": lambda x: x / x.amax(-1, keepdim=True),
    "suffix mean": lambda x: x.flip(-1).cumsum(-1).flip(-1),
    "softmax along the stream": lambda x: x.softmax(-1),
    "constant number of frames": lambda x: x[..., :9],
    "window by position": lambda x: ds.stack([x[..., i - i % 7 : i + 1].sum(-1) for i in range(x.shape[-1])], -1),
    "sorted": lambda x: x[..., [2, 0, 1]],
    "by its length": lambda x: x if x.shape[-1] > 5 else x * 2,
    "last frame": lambda x: x[..., -1],
    "all but the beginning": lambda x: x[..., -5:],
    "backwards": lambda x: x[..., ::-1],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    """What needs the future without bound is refused at the first call, and by compile."""
    model = Forward(REFUSED[name])
    with pytest.raises((NotStreamableError, CaptureError)) as error:
        ds.compile(model, ("B", 2, "L"))
    assert "test_parity.py" in str(error.value)
    ds.patch_module(model).online()
    with pytest.raises(NotStreamableError, match=r"test_parity.py"):
        model(ds.stream_tensor([np.ones((2, 12), np.float32)], ids="s", sos=True, eos=True))
    assert model.live_ids == []


def test_constant_output_is_refused():
    with pytest.raises(CaptureError, match="no stream"):
        ds.compile(Forward(lambda x: ds.ones(1, 2, 9)), ("B", 2, "L"))
