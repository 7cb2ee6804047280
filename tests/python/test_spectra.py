"""Fourier transforms of the native front end, and the features that are made of them."""

from __future__ import annotations

import numpy as np
import pytest

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
    with pytest.raises(ds.ShapeError, match="same shape"):
        F.fft(x, x[:6])

    class Whole(nn.Module):
        def forward(self, x):
            return F.rfft(x)[0]

    with pytest.raises(ds.NotStreamableError, match=r"rfft at .*its dimension is L of a stream"):
        ds.compile(Whole(), ("B", "L"))


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
