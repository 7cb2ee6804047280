"""Cepstra, deltas, norms and masks of features, against their definitions and Kaldi's, in chunks and compiled."""

import numpy as np
import pytest
from kaldi_peer import of_kaldi

import dreamstream as ds
from dreamstream import nn

RNG = np.random.default_rng(3)
SAMPLES = (0.1 * RNG.standard_normal(3000) + 0.2 * np.sin(0.3 * np.arange(3000))).astype(np.float32)
FEATURES = RNG.standard_normal((5, 60)).astype(np.float32)


def dct(n, kept, ortho=True):
    """Rows of the transform of type II, written down one by one."""
    rows = [[2 * np.cos(np.pi * k * (2 * i + 1) / (2 * n)) for i in range(n)] for k in range(kept)]
    scale = [np.sqrt(1 / (4 * n) if k == 0 else 1 / (2 * n)) if ortho else 1 for k in range(kept)]
    return np.array(rows) * np.array(scale)[:, None]


def slopes(x, win, mode):
    n = win // 2
    y = np.pad(x.astype(float), ((0, 0), (n, n)), {"replicate": "edge"}.get(mode, mode))
    weights = [k * (y[:, n + k : n + k + x.shape[1]] - y[:, n - k : n - k + x.shape[1]]) for k in range(1, n + 1)]
    return sum(weights) / (2 * sum(k * k for k in range(1, n + 1)))


def sliding(x, window, wait, norm_vars):
    """Kaldi's apply-cmvn-sliding without ``--center``, frame by frame."""
    out, x = np.empty(x.shape), x.astype(float)
    for t in range(x.shape[1]):
        part = x[:, max(0, t - window) : max(t + 1, wait)]
        out[:, t] = (x[:, t] - part.mean(1)) / (part.std(1) if norm_vars else 1)
    return out


CASES = {
    "deltas": (lambda: nn.Deltas(), lambda x: slopes(x, 5, "replicate")),
    "deltas-zeros": (lambda: nn.Deltas(3, "constant"), lambda x: slopes(x, 3, "constant")),
    "deltas-mirrored": (lambda: nn.Deltas(7, "reflect"), lambda x: slopes(x, 7, "reflect")),
    "deltas-twice": (
        lambda: nn.Sequential(nn.Deltas(), nn.Deltas(9)),
        lambda x: slopes(slopes(x, 5, "replicate"), 9, "replicate"),
    ),
    "cmvn": (lambda: nn.SlidingCMVN(10, 4), lambda x: sliding(x, 10, 4, False)),
    "cmvn-from-the-first": (lambda: nn.SlidingCMVN(7, 1), lambda x: sliding(x, 7, 1, False)),
    "cmvn-wide": (lambda: nn.SlidingCMVN(100, 60), lambda x: sliding(x, 100, 60, False)),
    "cmvn-of-a-short-stream": (lambda: nn.SlidingCMVN(100, 80, True), lambda x: sliding(x, 100, 80, True)),
    "cmvn-variances": (lambda: nn.SlidingCMVN(12, 6, True), lambda x: sliding(x, 12, 6, True)),
    "spec-augment": (lambda: nn.SpecAugment(), lambda x: x),
    "mfcc": (
        lambda: nn.MFCC(8000, 7, n_fft=200, hop=80, n_mels=20),
        lambda x: dct(20, 7) @ nn.LogMel(8000, 200, 80, 20, True, "db", "htk")(ds.tensor(x[None])).numpy()[0],
    ),
    "mfcc-natural": (
        lambda: nn.MFCC(8000, 20, None, n_fft=200, hop=80, n_mels=20, center=False, log="natural", mel="slaney"),
        lambda x: dct(20, 20, False) @ nn.LogMel(8000, 200, 80, 20)(ds.tensor(x[None])).numpy()[0],
    ),
    "kaldi": (
        lambda: nn.KaldiMFCC(cepstral_lifter=0.0),
        lambda x: nn.KaldiFbank(23)(ds.tensor(x[None])).numpy()[0] @ dct(23, 13).T,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_definition_chunks_and_engine(name):
    make, want = CASES[name]
    sound = "mfcc" in name or "kaldi" in name
    layer, x = make().eval(), SAMPLES if sound else FEATURES
    offline, axis = layer(ds.tensor(x[None])).numpy()[0], 0 if name == "kaldi" else 1
    np.testing.assert_allclose(offline, want(x), rtol=1e-4, atol=1e-4)
    ds.compile(layer, ("B", "L") if sound else ("B", 5, "L"))  # verifies it
    online, at, out = ds.patch_module(layer).online(), 0, []
    for n in (1, x.shape[-1] // 3, 2, x.shape[-1]):
        end = min(at + n, x.shape[-1])
        call = {"ids": ["a"], "sos": at == 0, "eos": end == x.shape[-1]}
        names = ("B", "L") if sound else ("B", None, "L")
        out.append(online(ds.stream_tensor([x[..., at:end]], names=names, **call))["a"].numpy())
        at = end
    np.testing.assert_allclose(np.concatenate(out, axis), offline, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_differences(name):
    make, sound = CASES[name][0], "mfcc" in name or "kaldi" in name
    layer, x = make().eval(), (SAMPLES[:1000] if sound else FEATURES)[None]
    weights = np.cos(np.arange(layer(ds.tensor(x)).numpy().size)).reshape(layer(ds.tensor(x)).shape)

    def loss(y):
        return (layer(y) * ds.tensor(weights.astype(np.float32))).sum()

    given = ds.tensor(x)
    given.requires_grad_(True)
    loss(given).backward()
    step = RNG.standard_normal(x.shape).astype(np.float32) * 1e-3 * np.abs(x).mean()
    difference = loss(ds.tensor(x + step)).item() - loss(ds.tensor(x - step)).item()
    slope = float((given.grad.numpy().astype(float) * (2 * step)).sum())
    assert difference == pytest.approx(slope, rel=0.03, abs=2e-3 * np.abs(weights).sum() * 1e-3)


KALDI = [
    (nn.KaldiFbank, {}),
    (nn.KaldiFbank, {"snip_edges": False}),
    (nn.KaldiFbank, {"preemphasis_coefficient": 0.0}),
    (nn.KaldiFbank, {"window_type": "hamming", "round_to_power_of_two": False}),
    (nn.KaldiFbank, {"use_power": False, "use_log_fbank": True}),
    (nn.KaldiFbank, {"sample_frequency": 8000.0}),
    (nn.KaldiFbank, {"frame_length": 20.0, "frame_shift": 5.0}),
    (nn.KaldiFbank, {"window_type": "rectangular"}),
    (nn.KaldiMFCC, {}),
    (nn.KaldiMFCC, {"use_energy": True}),
    (nn.KaldiMFCC, {"num_ceps": 20, "cepstral_lifter": 10.0}),
    (nn.KaldiMFCC, {"snip_edges": False, "cepstral_lifter": 0.0}),
]


@pytest.mark.parametrize("options", [{}, {"use_energy": True}, {"num_ceps": 20, "cepstral_lifter": 10.0}])
def test_cepstra_are_those_of_kaldi_native_fbank(options):
    want = of_kaldi("Mfcc", SAMPLES, options)
    got = nn.KaldiMFCC(**options)(ds.tensor(SAMPLES[None])).numpy()[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("layer, options", KALDI)
def test_features_are_those_of_kaldi_native_fbank(layer, options):
    """In float64 within its own rounding, of float32; in float32 as near to the definition as it is; in dB."""
    x = (0.1 * RNG.standard_normal(16000) + 0.2 * np.sin(0.3 * np.arange(16000))).astype(np.float32)
    theirs = of_kaldi("Fbank" if layer is nn.KaldiFbank else "Mfcc", x, options)
    ours, true = (
        layer(**options, dtype=d)(ds.tensor(x[None].astype(d))).numpy()[0] for d in ("float32", "float64")
    )

    def apart(a, b):  # in decibels, on average and at most
        off = 10 / np.log(10) * np.abs(a.astype(float) - b)
        return np.array([np.sqrt((off**2).mean()), off.max()])

    assert theirs.shape == true.shape
    assert (apart(theirs, true) < [1e-4, 4e-3]).all() and (apart(ours, theirs) < [1e-4, 5e-3]).all()
    assert apart(ours, true)[0] < 1.1 * apart(theirs, true)[0]


def hidden(layer, parts):
    """What of ones is hidden of two streams, which are cut in parts."""
    ds.manual_seed(5)
    online, at, out = ds.patch_module(layer).train().online(), 0, {"a": [], "b": []}
    for n in parts:
        x = [np.ones((12, n), np.float32)] * 2
        call = {"names": ("B", None, "L"), "ids": ["a", "b"], "sos": at == 0, "eos": at + n == sum(parts)}
        y = online(ds.stream_tensor(x, **call))
        for i in out:
            out[i].append(y[i].numpy())
        at += n
    return {i: np.concatenate(y, 1) for i, y in out.items()}


def test_masks_are_of_the_stream_and_its_frames():
    layer = nn.SpecAugment(2, 6, 3.0, 8, value=-1.0)
    whole, cut = hidden(layer, [400]), hidden(layer, [1, 37, 200, 162])
    assert set(np.unique(whole["a"])) == {-1.0, 1.0}
    for i in whole:
        np.testing.assert_array_equal(whole[i], cut[i])
    assert not np.array_equal(whole["a"], whole["b"])
    shown = whole["a"] > 0
    bands, frames = shown.any(1), shown.any(0)
    np.testing.assert_array_equal(shown, bands[:, None] & frames)  # whole bands, whole frames
    assert (~bands).sum() <= 10 and 0.03 < (~frames).mean() < 0.4
    only = nn.SpecAugment(0, 0, 3.0, 8)
    gone = hidden(only, [2000])["a"][0] == 0
    assert gone.mean() == pytest.approx(1 - np.prod([1 - 0.03 * (1 - d / 8) for d in range(8)]), abs=0.04)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: nn.MFCC(n_mfcc=129), "129 cepstra of 128 bands"),
        (lambda: nn.MFCC(norm="l2"), "norm='l2'"),
        (lambda: nn.KaldiMFCC(24), "24 cepstra of 23 bands"),
        (lambda: nn.Deltas(4), "an odd number, 3 at least, got 4"),
        (lambda: nn.Deltas(5, "wrap"), "mode is replicate, constant or reflect"),
        (lambda: nn.SlidingCMVN(10, 12), "the first 12 frames wait, in a window of 10"),
        (lambda: nn.SpecAugment(-1), "0 or more"),
        (lambda: nn.SpecAugment(time_masks=100), "less than 100"),
    ],
)
def test_what_does_not_fit_is_said(make, words):
    with pytest.raises(ds.ShapeError, match=words):
        make()
