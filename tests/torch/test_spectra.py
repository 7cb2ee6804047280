"""Features of speech, complex streams that are refused, and torchaudio's transforms where they are installed."""

import numpy as np
import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream import nn as native
from dreamstream.torch import nn as features

try:
    import torchaudio.transforms as transforms
except (ImportError, OSError):  # none, or one for another build of torch
    transforms = None

WINDOW = torch.hann_window(16)


def written(z):
    """Bins, frames, what bools pick, parts and all of a complex stream are written into."""
    y = z * 1
    y[:, 0] = 0.5j
    y[:, 1:3] *= y[:, 2:4].conj()
    y[..., 1:] = y[..., :-1] * 2
    loud = y.abs() > 1
    y[loud] = y[loud] / 2
    y.imag[:, 4] = 3
    first = y[:, 8]
    first += 1
    u = torch.empty_like(y).fill_(2)
    u[:, :4].copy_(z[:, 4:8])
    return torch.view_as_real(y * u).sum(-1) / 16


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(torch.stft(x, 16, 4, window=WINDOW, return_complex=True))


@pytest.mark.parametrize(
    "function, words",
    [
        (torch.tanh, r"torch\.tanh on a complex stream"),
        (lambda z: z == z, "__eq__ on a complex stream"),
        (lambda z: z.prod(1), "prod on a complex stream"),
        (lambda z: z.float(), "float on a complex stream"),
        (lambda z: z.to(torch.float32), "a complex stream as torch.float32"),
        (lambda z: z ** torch.ones(1), "exponents are Python numbers"),
        (lambda z: nn.functional.conv1d(z, torch.ones(1, 9, 1)), "conv1d on a complex stream"),
    ],
)
def test_what_complex_streams_do_not_do_is_refused_with_the_line(function, words):
    with pytest.raises(ds.NotStreamableError, match=words) as error:
        ds.patch_module(Net(function)).online()(ds.stream_tensor([torch.randn(50)], ids=["a"], sos=True))
    text = str(error.value)
    assert "test_spectra.py" in text
    assert not any(name in text for name in ("_Shell", "Complex ", "TorchLength"))


def test_a_complex_stream_is_shown_as_a_stream():
    seen = []
    model = ds.patch_module(Net(lambda z: seen.append((repr(z), type(z).__name__)) or z.abs())).online()
    model(ds.stream_tensor([torch.randn(50)], ids=["a"], sos=True))
    assert "Complex" not in seen[0][0] and seen[0][1] == "StreamTensor"


@pytest.mark.parametrize(
    "function",
    [
        lambda z: (z.abs() * torch.exp(1j * z.angle())).real,
        lambda z: torch.where(z.abs() > 1, z, torch.zeros_like(z)).abs(),
        lambda z: (z + torch.ones_like(z)).abs(),
        lambda z: (z.real * torch.polar(torch.ones(9), torch.arange(9.0))[:, None]).imag,
        lambda z: (z.real * (2 - 1j)).imag,
        lambda z: torch.angle(z.real - 0.1),
        lambda z: torch.conj(z.real) + torch.real(z) - torch.imag(z),
        lambda z: (z.real + 1j).imag,
        lambda z: (z.real + 1j).abs() + (2j - z.imag).angle(),
        lambda z: (z.real[:, :1] + torch.tensor([1j, 2j])[:, None]).imag,
        lambda z: (z[:, :1] + z.real).imag,
        lambda z: torch.complex(z.real[:, :1], torch.ones(3, 1)).imag,
        lambda z: (z.real - 0j).sqrt().imag,
        written,
    ],
)
def test_complex_numbers_meet_real_streams(function):
    x, model = torch.randn(50), Net(function)
    wanted = model(x[None])[0]
    streamed = ds.patch_module(Net(function)).online()
    parts = [ds.stream_tensor([x[a : a + 10]], ids=["a"], sos=a == 0, eos=a == 40) for a in range(0, 50, 10)]
    torch.testing.assert_close(torch.cat([streamed(p)["a"] for p in parts], -1), wanted, atol=1e-5, rtol=0)
    y = ds.compile(model, ("B", "L")).step({"a": x.numpy()}, sos="a", eos="a")["a"]
    torch.testing.assert_close(torch.from_numpy(y), wanted, atol=1e-5, rtol=0)


def test_a_real_view_that_is_written_into():
    """torch shares its memory; a lost write would be a wrong number."""

    def silenced(z):
        torch.view_as_real(z)[..., 1] = 0
        return z.abs()

    with pytest.raises(
        ds.NotStreamableError, match=r"may share its memory was written into, at .*test_spectra\.py"
    ):
        ds.compile(Net(silenced), ("B", "L"))


def _transforms():
    t = transforms
    mel = {"n_fft": 400, "n_mels": 40}
    return {
        "spectrogram": t.Spectrogram(400),
        "magnitudes": t.Spectrogram(400, power=1.0, normalized=True, center=False),
        "mel-spectrogram": t.MelSpectrogram(16000, **mel),
        "mel-scale": nn.Sequential(t.Spectrogram(400), t.MelScale(40, n_stft=201)),
        "mfcc": t.MFCC(16000, 13, log_mels=True, melkwargs=mel),
        "decibels": nn.Sequential(t.Spectrogram(400), t.AmplitudeToDB()),
        "at another rate": t.Resample(16000, 6000),
        "inverse": nn.Sequential(t.Spectrogram(400, power=None), t.InverseSpectrogram(400)),
    }


@pytest.mark.skipif(transforms is None, reason="torchaudio is not installed")
@pytest.mark.filterwarnings("ignore")
def test_transforms_of_torchaudio():
    x = torch.randn(3000)
    for name, module in _transforms().items():
        want = module.eval()(x[None])[0]
        ds.compile(module, ("B", "L"))  # verifies it
        online = ds.patch_module(module).online()
        parts = [
            online(ds.stream_tensor([x[i : i + 700]], ids=["a"], sos=i == 0, eos=i == 2800))["a"]
            for i in range(0, 3000, 700)
        ]
        got = torch.cat(parts, -1)
        assert got.shape == want.shape, name
        assert (got - want).abs().max() <= 1e-5 * want.abs().max(), name
    with pytest.raises(ds.NotStreamableError, match="top_db cuts below the loudest value of the whole stream"):
        ds.compile(nn.Sequential(transforms.Spectrogram(400), transforms.AmplitudeToDB(top_db=80)), ("B", "L"))


# ---------------------------------------------------------------------- features of speech
RNG = np.random.default_rng(0)
FEATURES = [
    ("LogMel", {}),
    ("LogMel", {"center": True, "log": "db", "mel": "htk"}),
    ("MFCC", {"n_mels": 40}),
    ("KaldiFbank", {}),
    ("KaldiFbank", {"snip_edges": False, "use_power": False}),
    ("KaldiMFCC", {"use_energy": True}),
    ("Deltas", {"mode": "reflect"}),
    ("SlidingCMVN", {"cmn_window": 10, "min_cmn_window": 4, "norm_vars": True}),
    ("SpecAugment", {"time_masks": 3.0, "time_mask_param": 8, "freq_mask_param": 3}),
]


@pytest.mark.parametrize("name, options", FEATURES)
def test_features_are_the_native_ones(name, options):
    """As plain modules, patched in random chunks, compiled; SpecAugment in training."""
    sound, kaldi = name[0] in "KLM", name.startswith("Kaldi")
    x = RNG.standard_normal(5000 if sound else (5, 200)).astype(np.float32)
    names, spec = (("B", "L"), ("B", "L")) if sound else (("B", None, "L"), ("B", 5, "L"))
    layer, own = getattr(features, name)(**options), getattr(native, name)(**options)
    if name != "SpecAugment":
        want = own.eval()(ds.tensor(x[None])).numpy()[0]
        near = {"rtol": 1e-5, "atol": 5e-4 if sound else 1e-5}  # sums in another order, then a logarithm
        np.testing.assert_allclose(layer.eval()(torch.from_numpy(x[None]))[0].numpy(), want, **near)
        ds.compile(layer, spec)  # verifies it
    wholes, online = [], ds.patch_module(layer).online()
    for cuts in ([1], sorted(RNG.integers(0, x.shape[-1], 6))):  # what is whole in one call draws as torch does
        parts, out = np.split(x, cuts, axis=-1), []
        torch.manual_seed(5)
        for k, part in enumerate(parts):
            call = {"ids": ["a"], "sos": k == 0, "eos": k == len(parts) - 1}
            out.append(online(ds.stream_tensor([torch.from_numpy(part)], names=names, **call))["a"].numpy())
        wholes.append(np.concatenate(out, 0 if kaldi else 1))
    if name == "SpecAugment":
        np.testing.assert_array_equal(*wholes)
        assert 0.02 < (wholes[0] == 0).mean() < 0.8 and ((wholes[0] == x) | (wholes[0] == 0)).all()
    else:
        for whole in wholes:
            np.testing.assert_allclose(whole, want, **near)
