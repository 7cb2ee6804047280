"""Change of the sample rate, against torchaudio's formula written down in float64."""

import copy
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import _core, nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError
from dreamstream.nn.functional.resampling import Resampling

RATES = (8000, 16000, 22050, 44100, 48000)
HANN, KAISER = "sinc_interp_hann", "sinc_interp_kaiser"


# ---------------------------------------------------------------- the formula
def formula_kernel(orig, new, width=6, rolloff=0.99, method=HANN, beta=None):
    """Return torchaudio's kernel for rates without a common divisor, and the taps before its block."""
    base = min(orig, new) * rolloff
    before = math.ceil(width * orig / base)
    seconds = np.arange(-before, before + orig)[None] / orig - np.arange(new)[:, None] / new
    t = np.clip(seconds * base, -width, width)
    if method == HANN:
        window = np.cos(t * np.pi / width / 2) ** 2
    else:
        beta = 14.769656459379492 if beta is None else beta
        window = np.i0(beta * np.sqrt(1 - (t / width) ** 2)) / np.i0(beta)
    t = t * np.pi
    sinc = np.where(t == 0, 1.0, np.sin(t) / np.where(t == 0, 1.0, t))
    return sinc * window * (base / orig), before


def formula(x, orig_freq, new_freq, *arguments):
    """Return what torchaudio makes of a signal (L,): pad, convolve with a stride, join, cut."""
    if orig_freq == new_freq:
        return x
    common = math.gcd(orig_freq, new_freq)
    orig, new = orig_freq // common, new_freq // common
    kernel, before = formula_kernel(orig, new, *arguments)
    padded = np.pad(x, (before, before + orig))
    n = (len(padded) - kernel.shape[1]) // orig + 1
    blocks = [padded[i * orig : i * orig + kernel.shape[1]] @ kernel.T for i in range(n)]
    return np.concatenate(blocks)[: math.ceil(Fraction(new * len(x), orig))]


def check_streams(rng, orig_freq, new_freq, width, rolloff, method, length, block):
    """Offline, patched and compiled in blocks: torchaudio's values; the same bits in any blocks."""
    x = rng.standard_normal(length).astype(np.float32)
    expected = formula(x.astype(np.float64), orig_freq, new_freq, width, rolloff, method)
    layer = nn.Resample(orig_freq, new_freq, width, rolloff, method)
    whole = layer(ds.tensor(x)).numpy()
    assert whole.shape == expected.shape
    bound = 1e-5 * max(1.0, float(np.abs(expected).max()))
    assert np.abs(whole - expected).max() <= bound
    online = ds.patch_module(copy.deepcopy(layer)).online()
    collector = ds.OutputCollector()
    for at in range(0, length, block):
        part = x[at : at + block][None]
        y = online(ds.stream_tensor(part, ids=["a"], sos=at == 0, eos=at + block >= length))
        assert y.rate == Fraction(new_freq, orig_freq)
        collector.update(y)
    streamed = np.asarray(collector["a"])
    assert streamed.shape == whole.shape and np.abs(streamed - expected).max() <= bound
    at_once = online(ds.stream_tensor(x[None], ids=["a"], sos=True, eos=True))
    assert np.asarray(at_once["a"]).tobytes() == streamed.tobytes()


@pytest.mark.parametrize(("orig_freq", "new_freq"), list(product(RATES, RATES)))
def test_all_pairs(rng, orig_freq, new_freq):
    check_streams(rng, orig_freq, new_freq, 6, 0.99, HANN, 100, 7)
    check_streams(rng, orig_freq, new_freq, 5, 0.8, KAISER, 33, 1)


def test_is_the_formula():
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies

    @hypothesis.given(
        st.sampled_from(RATES),
        st.sampled_from(RATES),
        st.integers(1, 20),
        st.floats(0.01, 0.99),
        st.sampled_from([HANN, KAISER]),
        st.integers(1, 100),
        st.integers(1, 10),
        st.integers(0, 1000),
    )
    def holds(orig_freq, new_freq, width, rolloff, method, length, block, seed):
        rng = np.random.default_rng(seed)
        check_streams(rng, orig_freq, new_freq, width, rolloff, method, length, block)

    holds()


@pytest.mark.parametrize("method", [HANN, KAISER])
def test_is_exact_in_double(rng, method):
    x = rng.standard_normal(3000)
    for orig_freq, new_freq in ((44100, 16000), (16000, 48000), (3, 2), (1, 7), (1000, 999)):
        expected = formula(x, orig_freq, new_freq, 6, 0.99, method)
        got = F.resample(ds.tensor(x), orig_freq, new_freq, resampling_method=method).numpy()
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
        layer = nn.Resample(orig_freq, new_freq, resampling_method=method, dtype="float64")
        np.testing.assert_array_equal(layer(ds.tensor(x)).numpy(), got)
    expected = formula(x, 3, 2, 6, 0.99, KAISER, 5.0)
    got = F.resample(ds.tensor(x), 3, 2, 6, 0.99, KAISER, 5.0).numpy()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- shapes, keys, text
def test_shapes(rng):
    layer = nn.Resample(3, 2)
    x = rng.standard_normal((2, 4, 50)).astype(np.float32)
    whole = layer(ds.tensor(x)).numpy()
    assert whole.shape == (2, 4, 34)
    for b in range(2):
        np.testing.assert_array_equal(layer(ds.tensor(x[b])).numpy(), whole[b])
        np.testing.assert_array_equal(layer(ds.tensor(x[b, 0])).numpy(), whole[b, 0])
    np.testing.assert_array_equal(F.resample(ds.tensor(x), 6, 4).numpy(), whole)
    assert layer(ds.tensor(x[..., :0])).numpy().shape == (2, 4, 0)


def test_keys_and_kernel():
    layer = nn.Resample(44100, 48000)
    assert list(layer.state_dict()) == ["kernel"] and not list(layer.parameters())
    kernel, before = formula_kernel(147, 160)
    assert layer.kernel.shape == (160, 1, 2 * before + 147)
    np.testing.assert_allclose(layer.kernel.numpy()[:, 0], kernel, rtol=0, atol=1e-7)
    assert layer.kernel.dtype == np.float32
    other = nn.Resample(44100, 48000, rolloff=0.98)
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other.kernel.numpy(), layer.kernel.numpy())
    assert not nn.Resample(16000, 16000).state_dict() and not nn.Resample().state_dict()
    assert repr(layer) == "Resample(orig_freq=44100, new_freq=48000)"


def test_equal_rates_change_nothing(rng):
    x = ds.tensor(rng.standard_normal((2, 9)).astype(np.float32))
    assert nn.Resample(16000, 16000.0)(x) is x
    assert F.resample(x, 5, 5) is x


# ---------------------------------------------------------------- streaming
@pytest.mark.parametrize(
    ("orig_freq", "new_freq", "delay"), [(16000, 48000, 6), (48000, 16000, 18), (44100, 48000, 7)]
)
def test_delay_is_that_of_the_window(orig_freq, new_freq, delay):
    """Not a whole block of `orig` frames."""
    engine = ds.compile(nn.Resample(orig_freq, new_freq), ("B", "L"), rate=orig_freq)
    assert engine.delay == delay
    assert engine.outputs[0].rate == new_freq
    w = 6 / 0.99 * max(1, orig_freq / new_freq)
    assert engine.delay <= math.ceil(w) and engine.receptive_field <= 2 * w + 1


def test_rates_meet_exactly(rng):
    """What was resampled meets what came at the new rate."""

    class Meet(nn.Module):
        def __init__(self):
            super().__init__()
            self.resample = nn.Resample(3, 2)

        def forward(self, x, y):
            return self.resample(x) - y[..., 0:]

    engine = ds.compile(Meet(), {"x": ("B", "L"), "y": ("B", "L")}, rate={"x": 48000, "y": 32000})
    x = rng.standard_normal(3000).astype(np.float32)
    y = nn.Resample(48000, 32000)(ds.tensor(x)).numpy()
    out = engine.step({"a": {"x": x, "y": y}}, sos=["a"], eos=["a"])["a"]
    assert len(out) == 2000 and not out.any()


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"orig_freq": 16000.5}, "orig_freq must be a whole number above 0, got 16000.5"),
        ({"new_freq": 0}, "new_freq must be a whole number above 0, got 0"),
        ({"orig_freq": -8000}, "got -8000"),
        ({"new_freq": math.inf}, "got inf"),
        ({"lowpass_filter_width": 0}, "lowpass_filter_width must be above 0, got 0"),
        ({"rolloff": 0.0}, "rolloff must be above 0, got 0.0"),
        ({"rolloff": math.nan}, "rolloff must be above 0, got nan"),
        ({"resampling_method": "sinc"}, "'sinc_interp_hann' or 'sinc_interp_kaiser', got 'sinc'"),
        ({"orig_freq": 44101}, "44101 to 16000 in lowest terms, needs a kernel of 16000 times 44"),
    ],
)
def test_refused_arguments(arguments, says):
    given = {"orig_freq": 8000, "new_freq": 16000, **arguments}
    with pytest.raises(ShapeError) as error:
        nn.Resample(**given)
    assert says in str(error.value)
    with pytest.raises(ShapeError):
        F.resample(ds.zeros(5), **given)


def test_refused_inputs():
    layer = nn.Resample(3, 2)
    with pytest.raises(DTypeError, match="waveform is float64 but kernel is float32"):
        layer(ds.zeros(5, dtype="float64"))
    with pytest.raises(DTypeError, match="float32 or float64 tensor, got int64"):
        F.resample(ds.zeros(5, dtype="int64"), 3, 2)
    with pytest.raises(DTypeError, match="expected a tensor"):
        layer(np.zeros(5, np.float32))
    with pytest.raises(DTypeError):
        nn.Resample(3, 2, dtype="int64")
    online = ds.patch_module(nn.Resample(3, 2)).online()
    x = ds.stream_tensor(np.zeros((1, 5, 2), np.float32), names=("B", "L", None), ids=["a"], sos=True)
    with pytest.raises(NotStreamableError, match="must be the last dimension"):
        online(x)


@pytest.mark.parametrize(
    ("changed", "shape", "says"),
    [
        ({"orig": 0}, (2, 1, 7), "attribute 'orig' must be at least 1"),
        ({"new": 0}, (2, 1, 7), "attribute 'new' must be at least 1"),
        ({"width": -1}, (2, 1, 7), "attribute 'width' must be at least 0"),
        ({"half": 5}, (2, 1, 7), "half must be at most width * new, 4, got 5"),
        ({"orig": 1 << 21}, (2, 1, 7), "attribute 'orig' must be at most 1048576, got 2097152"),
        ({}, (2, 1, 8), "kernel"),
    ],
)
def test_operator_refuses(changed, shape, says):
    attributes = {"orig": 3, "new": 2, "width": 2, "half": 4, **changed}
    with pytest.raises(ds.DreamStreamError) as error:
        _core.Op("resample", attributes, [("float32", (), 1, 1)], [("float32", shape)])
    assert "resample" in str(error.value) and says in str(error.value)


def test_half_is_what_the_kernel_needs():
    """The taps that are left out are zeros, and those kept at the ends are not."""
    for orig_freq, new_freq, width, rolloff in ((44100, 16000, 6, 0.99), (2, 3, 2, 0.5), (7, 1, 1, 0.01)):
        r = Resampling(orig_freq, new_freq, width, rolloff)
        full, before = formula_kernel(r.orig, r.new, width, rolloff)
        assert before == r.width
        steps = np.arange(-before, before + r.orig) * r.new - np.arange(r.new)[:, None] * r.orig
        assert np.abs(full[np.abs(steps) > r.half]).max() < 1e-30
        assert np.abs(full[np.abs(steps) == r.half]).min() > 1e-30
