"""Fourier transforms of the native front end, and the features that are made of them."""

import numpy as np
import pytest
from nets import net

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn

RNG = np.random.default_rng(3)
SAMPLES = RNG.standard_normal(500).astype(np.float32)
WINDOW = (np.hanning(25)[:-1] + 0.05).astype(np.float32)


def complex_of(parts):
    return parts[0].numpy() + 1j * parts[1].numpy()


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 9, 30])
@pytest.mark.parametrize("dim", [-1, 0])
def test_transforms_are_numpys(norm, n, dim):
    x, y = RNG.standard_normal((2, 14, 14))
    tensors = ds.tensor(x), ds.tensor(y)
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(complex_of(F.rfft(tensors[0], n, dim, norm)), np.fft.rfft(x, n, dim, norm), **close)
    np.testing.assert_allclose(
        F.irfft(*tensors, n, dim, norm).numpy(), np.fft.irfft(x + 1j * y, n, dim, norm), **close
    )
    for name in ("fft", "ifft"):
        got = complex_of(getattr(F, name)(*tensors, n, dim, norm))
        np.testing.assert_allclose(got, getattr(np.fft, name)(x + 1j * y, n, dim, norm), **close)


def test_what_is_wrong_with_a_transform_is_said():
    x = ds.tensor(SAMPLES[:12])
    with pytest.raises(ds.ShapeError, match="norm is backward, ortho or forward, got 'no'"):
        F.rfft(x, norm="no")
    with pytest.raises(ds.ShapeError, match="irfft: n must be at least 1, got 0"):
        F.irfft(x, x, 0)
    with pytest.raises(ds.DTypeError):
        F.rfft(ds.tensor(np.arange(4)))
    with pytest.raises(ds.ShapeError, match=r"input 1 to have shape \(\.\.\., 12\), got \(6,\)"):
        F.fft(x, x[:6])

    with pytest.raises(ds.NotStreamableError, match=r"rfft at .*its dimension is L of a stream"):
        ds.compile(net(nn, lambda self, x: F.rfft(x)[0]), ("B", "L"))


class Again(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.register_buffer("window", ds.tensor(WINDOW))

    def forward(self, x):
        real, imag = F.stft(x, 24, 6, window=self.window, **self.options)
        length = x.shape[-1] if self.options.get("center", True) else None
        return F.istft(real * 2, imag * 2, 24, 6, window=self.window, length=length, **self.options)


def streamed(model, *sizes):
    online, out, at = ds.patch_module(model).online(), [], 0
    for n in sizes:
        chunk = SAMPLES[at : at + n]
        at += n
        out.append(online(ds.stream_tensor([chunk], ids=["a"], sos=at == n, eos=at == sum(sizes)))["a"].numpy())
    return np.concatenate(out, -1)


@pytest.mark.parametrize("options", [{}, {"center": False}, {"normalized": True, "onesided": False}])
def test_samples_come_back_from_their_spectra(options):
    model = Again(**options)
    want = model(ds.tensor(SAMPLES[None, :333])).numpy()[0]
    assert np.abs(want - 2 * SAMPLES[: len(want)]).max() < 1e-5 and len(want) > 320
    np.testing.assert_array_equal(streamed(model, 50, 1, 200, 82), want)
    engine = ds.compile(model, ("B", "L"))
    got = [
        engine.step({"a": SAMPLES[i : i + 111]}, sos=["a"] if i == 0 else [], eos=["a"] if i == 222 else [])["a"]
        for i in (0, 111, 222)
    ]
    np.testing.assert_array_equal(np.concatenate(got, -1), want)


def test_windows_that_leave_samples_uncovered_are_refused():
    window = ds.tensor(np.hanning(25)[:-1].astype(np.float32))
    parts = F.stft(ds.tensor(SAMPLES), 24, 6, window=window, center=False)
    with pytest.raises(ds.ShapeError, match="windows 6 samples apart leave samples uncovered"):
        F.istft(*parts, 24, 6, window=window, center=False)
    with pytest.raises(ds.ShapeError, match=r"expected \(..., 13 bins, frames\)"):
        F.istft(parts[0][:5], parts[1][:5], 24, 6)
    with pytest.raises(ds.ShapeError, match="a window of shape"):
        F.stft(ds.tensor(SAMPLES), 20, window=window)


# ---------------------------------------------------------------- features, by definitions of their own
def power_of(frames):
    return np.abs(np.fft.rfft(frames, axis=-1)) ** 2


def framed(x, size, shift):
    return np.stack([x[i : i + size] for i in range(0, len(x) - size + 1, shift)])


def triangles(bins, edges):
    """One band after the other, bin by bin."""
    out = np.zeros((len(edges) - 2, len(bins)))
    for b, (low, middle, high) in enumerate(zip(edges, edges[1:], edges[2:])):
        for k, f in enumerate(bins):
            if low < f <= middle:
                out[b, k] = (f - low) / (middle - low)
            elif middle < f < high:
                out[b, k] = (high - f) / (high - middle)
    return out


def mel_of(hertz, kind):
    if kind == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)


def hertz_of(mel, kind):
    if kind == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


@pytest.mark.parametrize("mel", ["slaney", "htk"])
@pytest.mark.parametrize(
    "log, function", [("natural", np.log), ("log10", np.log10), ("db", lambda x: 10 * np.log10(x))]
)
@pytest.mark.parametrize("center", [False, True])
def test_log_mel_is_its_definition(mel, log, function, center):
    x = RNG.standard_normal(900)
    layer = nn.LogMel(8000, 200, 80, 20, center, log, mel, 1e-3, dtype="float64")
    edges = [hertz_of(m, mel) for m in np.linspace(0, mel_of(4000.0, mel), 22)]
    bands = triangles(np.arange(101) * 40.0, edges)
    if mel == "slaney":
        bands = np.array([b * 2 / (high - low) for b, low, high in zip(bands, edges, edges[2:])])
    padded = np.pad(x, 100, mode="reflect") if center else x
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(200) / 200)
    want = function(np.maximum(bands @ power_of(framed(padded, 200, 80) * window).T, 1e-3))
    np.testing.assert_allclose(layer(ds.tensor(x[None])).numpy()[0], want, rtol=1e-9, atol=1e-9)


KALDI = [
    {},
    {"snip_edges": False},
    {"window_type": "hamming", "use_power": False, "round_to_power_of_two": False, "num_mel_bins": 23},
    {"window_type": "blackman", "remove_dc_offset": False, "high_freq": -400.0, "preemphasis_coefficient": 0.0},
    {"window_type": "hanning", "use_log_fbank": False, "low_freq": 100.0, "high_freq": 3000.0},
]


def kaldi_of(x, **given):
    a = {"num_mel_bins": 80, "preemphasis_coefficient": 0.97, "remove_dc_offset": True, "window_type": "povey",
         "round_to_power_of_two": True, "snip_edges": True, "low_freq": 20.0, "high_freq": 0.0, "use_power": True,
         "use_log_fbank": True, **given}  # fmt: skip
    size, shift, n = 400, 160, 512 if a["round_to_power_of_two"] else 400
    if not a["snip_edges"]:  # Kaldi's ShiftedSamples, by index
        frames = np.empty(((len(x) + shift // 2) // shift, size))
        for i in range(len(frames)):
            for j in range(size):
                at = shift * i + shift // 2 - size // 2 + j
                while not 0 <= at < len(x):
                    at = -at - 1 if at < 0 else 2 * len(x) - 1 - at
                frames[i, j] = x[at]
    else:
        frames = framed(x, size, shift)
    if a["remove_dc_offset"]:
        frames = frames - frames.mean(1, keepdims=True)
    for j in range(size - 1, -1, -1):
        frames[:, j] = frames[:, j] - a["preemphasis_coefficient"] * frames[:, max(j - 1, 0)]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size - 1))
    blackman = hann - 0.08 + 0.08 * np.cos(4 * np.pi * np.arange(size) / (size - 1))
    window = {"povey": hann**0.85, "hanning": hann, "hamming": np.hamming(size), "blackman": blackman}
    power = power_of(np.pad(frames * window[a["window_type"]], ((0, 0), (0, n - size))))[:, : n // 2]
    top = a["high_freq"] if a["high_freq"] > 0 else 8000 + a["high_freq"]
    mels = [1127 * np.log(1 + f / 700) for f in np.arange(n // 2) * 16000 / n]
    edges = np.linspace(
        1127 * np.log(1 + a["low_freq"] / 700), 1127 * np.log(1 + top / 700), a["num_mel_bins"] + 2
    )
    bands = (power if a["use_power"] else np.sqrt(power)) @ triangles(mels, edges).T
    return np.log(np.maximum(bands, 2.0**-23)) if a["use_log_fbank"] else bands


@pytest.mark.parametrize("options", KALDI)
def test_kaldi_fbank_is_its_definition(options):
    x = RNG.standard_normal(2000) * 3000
    got = nn.KaldiFbank(**options, dtype="float64")(ds.tensor(x[None])).numpy()[0]
    np.testing.assert_allclose(got, kaldi_of(x, **options), rtol=1e-7, atol=1e-7)


LAYERS = {
    "log-mel": lambda: nn.LogMel(8000, 40, 16, 8, center=True),
    "kaldi": lambda: nn.KaldiFbank(5, 2000.0),
    "kaldi-mirrored": lambda: nn.KaldiFbank(5, 2000.0, snip_edges=False),
}


@pytest.mark.parametrize("name", LAYERS)
def test_features_stream_and_compile(name):
    layer, axis = LAYERS[name](), 1 if name == "log-mel" else 0
    offline = layer(ds.tensor(SAMPLES[None])).numpy()[0]
    ds.compile(layer, ("B", "L"))  # verifies it
    online, wholes = ds.patch_module(layer).online(), []
    for sizes in ((500,), (7, 120, 1, 372)):
        out, at = [], 0
        for n in sizes:
            call = {"sos": at == 0, "eos": at + n == 500}
            out.append(online(ds.stream_tensor([SAMPLES[at : at + n]], ids=["a"], **call))["a"].numpy())
            at += n
        wholes.append(np.concatenate(out, axis))
    np.testing.assert_array_equal(*wholes)
    np.testing.assert_allclose(wholes[0], offline, rtol=1e-4, atol=1e-4)


def test_what_is_wrong_with_features_is_said():
    for make, words in (
        (lambda: nn.LogMel(log="ln"), "log is natural, log10 or db, got 'ln'"),
        (lambda: nn.LogMel(mel="bark"), "mel is slaney or htk, got 'bark'"),
        (lambda: nn.LogMel(hop=0), "hop"),
        (lambda: nn.KaldiFbank(window_type="no"), "window_type is one of"),
        (lambda: nn.KaldiFbank(frame_shift=30.0, snip_edges=False), "no more than a window"),
        (lambda: nn.KaldiFbank(high_freq=9000.0), "bands from 20.0 to 9000.0 Hz"),
    ):
        with pytest.raises(ds.ShapeError, match=words):
            make()


def test_the_recipe_of_wav2letter():
    """Magnitudes of 512 points of pre-emphasised Hamming windows, in HTK bands between fractional bins."""
    x = RNG.standard_normal(2000).astype(np.float32) * 0.1
    edges = 512 / 16000 * 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 42) / 2595) - 1)
    bands = triangles(np.arange(257), edges)

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", ds.tensor(np.hamming(400).astype(np.float32)))
            self.register_buffer("bands", ds.tensor(bands.astype(np.float32)))

        def forward(self, x):
            x = (x * 32768.0).unfold(-1, 400, 160)
            x = x - ds.cat([x[..., :1], x[..., :-1]], -1) * 0.97
            real, imag = F.rfft(x * self.window, 512)
            return F.linear(real.hypot(imag), self.bands).clamp(min=1.0).log()

    frames = framed(x.astype(np.float64) * 32768, 400, 160)
    for j in range(399, 0, -1):
        frames[:, j] -= 0.97 * frames[:, j - 1]
    frames[:, 0] *= 0.03
    magnitude = np.abs(np.fft.rfft(frames * np.hamming(400), 512))
    want = np.log(np.maximum(magnitude @ bands.T, 1.0))
    np.testing.assert_allclose(Features()(ds.tensor(x[None])).numpy()[0], want, atol=1e-4)
    ds.compile(Features(), ("B", "L"))
