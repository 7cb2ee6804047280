"""The voice activity detector: its shapes, its twin in torch, and real speech however it is cut."""

import importlib.util
import sys
import wave

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import cli
from dreamstream.data import read_audio
from dreamstream.models import SileroVAD


def random_model(sample_rate=16000, seed=3):
    model = SileroVAD(sample_rate).eval()
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.numpy()[...] = rng.standard_normal(p.shape) / np.sqrt(max(1, np.prod(p.shape[1:])))
    return model


def noise(n, seed=0):
    return (np.random.default_rng(seed).standard_normal(n) * 0.3).astype(np.float32)


def in_torch(model, samples):
    """The same network in plain torch, float64: windows of one recording as a batch."""
    torch = pytest.importorskip("torch")
    weights = {k: torch.tensor(np.asarray(v.numpy(), np.float64)) for k, v in model.state_dict().items()}
    context, window = model.context, model.window
    x = torch.cat([torch.zeros(context, dtype=torch.float64), torch.tensor(samples, dtype=torch.float64)])
    n = len(samples) // window
    if n == 0:
        return np.zeros(0)
    x = torch.stack([x[i * window : i * window + context + window] for i in range(n)])[:, None]
    F = torch.nn.functional
    x = F.conv1d(F.pad(x, (0, context), mode="reflect"), weights["stft_conv.weight"], stride=window // 4)
    re, im = x.chunk(2, 1)
    x = torch.sqrt(re**2 + im**2)
    for i, stride in enumerate((1, 2, 2, 1), 1):
        x = F.relu(F.conv1d(x, weights[f"conv{i}.weight"], weights[f"conv{i}.bias"], stride, 1))
    lstm = torch.nn.LSTM(128, 128, batch_first=True, dtype=torch.float64)
    lstm.load_state_dict({k.removeprefix("lstm_cell."): v for k, v in weights.items() if "lstm" in k})
    with torch.no_grad():
        x = F.relu(lstm(x.reshape(1, n, 128))[0])
        x = x @ weights["final_conv.weight"][0] + weights["final_conv.bias"]
        return torch.sigmoid(x)[0, :, 0].numpy()


def chunks_of(samples, rng, most):
    at = 0
    while at < len(samples):
        n = int(rng.integers(0, most + 1))
        yield samples[at : at + n]
        at += n


class Engine:
    def __init__(self, model, **options):
        self.engine = ds.compile(model, ("B", "L"), rate=16000, verify=False, **options)

    def feed(self, chunks, sos, eos):
        return self.engine.step(chunks, sos=sos, eos=eos)


class Eager:
    def __init__(self, model):
        self.model = ds.patch_module(model).online()

    def feed(self, chunks, sos, eos):
        x = ds.stream_tensor(
            [np.asarray(c) for c in chunks.values()],
            ids=list(chunks),
            names=("B", "L"),
            sos=[i in sos for i in chunks],
            eos=[i in eos for i in chunks],
        )
        y = self.model(x)
        return {i: np.array(y[i]) for i in chunks}


def stream(runner, streams, most, seed):
    """All streams to their ends, in random batches of random chunks; the outputs by id."""
    rng = np.random.default_rng(seed)
    rest = {i: chunks_of(s, rng, most) for i, s in streams.items()}
    started, out = set(), {i: [] for i in streams}
    while rest:
        batch = [i for i in rest if rng.random() < 0.8] or list(rest)[:1]
        chunks, eos = {}, []
        for i in batch:
            chunk = next(rest[i], None)
            if chunk is None:
                eos.append(i)
                chunk = streams[i][:0]
                del rest[i]
            chunks[i] = chunk
        sos = [i for i in batch if i not in started]
        started.update(batch)
        for i, frames in runner.feed(chunks, sos, eos).items():
            out[i].append(frames)
    return {i: np.concatenate(o) for i, o in out.items()}


@pytest.mark.parametrize("sample_rate", [16000, 8000])
@pytest.mark.parametrize("n", [0, 1, 255, 511, 512, 513, 3000])
def test_offline_as_in_torch(sample_rate, n):
    model, samples = random_model(sample_rate), noise(n)
    got = model(ds.tensor(samples[None])).numpy()[0]
    want = in_torch(model, samples)
    assert got.shape == want.shape == (n // model.window,)
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("kind", [Engine, Eager])
@pytest.mark.parametrize("sample_rate", [16000, 8000])
def test_any_chunks_give_the_same_bits(kind, sample_rate):
    streams = {f"s{i}": noise(n, i) for i, n in enumerate((0, 100, 511, 512, 2500, 5000))}
    batched = stream(kind(random_model(sample_rate)), streams, 900, 1)
    for i, samples in streams.items():
        alone = kind(random_model(sample_rate)).feed({i: samples}, [i], [i])[i]
        assert alone.tobytes() == batched[i].tobytes()
        offline = random_model(sample_rate)(ds.tensor(samples[None])).numpy()[0]
        assert len(offline) == len(alone)
        np.testing.assert_allclose(alone, offline, atol=1e-5)


def test_what_an_engine_says():
    engine = Engine(random_model()).engine
    assert (engine.delay, engine.outputs[0].rate, engine.outputs[0].dimensions) == (511, 31.25, ("B", "L"))


def test_a_sample_rate_that_has_no_network():
    with pytest.raises(ds.ShapeError, match="8000 or 16000, got 44100"):
        SileroVAD(44100)


# ---------------------------------------------------------------------- weights from the package
@pytest.fixture
def package(tmp_path, monkeypatch):
    """The layout of the package that brings the weights, with made ones; importing it fails."""
    folder = tmp_path / "silero_vad" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError('torchaudio')")
    save = pytest.importorskip("safetensors.numpy").save_file
    names = {
        f"lstm_cell.{kind}_{of}_l0": f"lstm_cell.{kind}_{of}" for kind in ("weight", "bias") for of in ("ih", "hh")
    }
    weights = {names.get(k, k): np.array(v.numpy()) for k, v in random_model().state_dict().items()}
    save(weights, folder / "silero_vad_16k.safetensors")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "silero_vad", raising=False)
    importlib.invalidate_caches()
    return folder


def test_pretrained_finds_the_weights_and_imports_nothing(package):
    model = SileroVAD(pretrained=True).eval()
    for name, value in random_model().state_dict().items():
        assert np.array_equal(model.state_dict()[name].numpy(), value.numpy()), name
    assert "silero_vad" not in sys.modules


def test_where_somebody_speaks():
    """In frames above one half, and in short pauses between them."""
    assert SileroVAD.spoken(np.zeros(9)) == [] == SileroVAD.spoken([])
    heard = [0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0.6]
    assert SileroVAD.spoken(np.array(heard), 10) == [(0.1, 0.6), (1.0, 1.1)]
    assert SileroVAD.spoken(heard, 10, pause=0.05) == [(0.1, 0.3), (0.5, 0.6), (1.0, 1.1)]
    assert SileroVAD.spoken([0.5, 0.51]) == [(0.032, 0.064)]


def test_run_takes_the_weights_of_the_package(package, tmp_path, capsys):
    samples = (noise(5000) * 32767).clip(-32768, 32767).astype("<i2")
    with wave.open(str(tmp_path / "call.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    said = []
    for more in ([], ["--weights", str(package / "silero_vad_16k.safetensors")]):
        assert cli.main(["run", "SileroVAD", str(tmp_path / "call.wav"), "--json", *more]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0].count("values") == 9


def test_weights_that_are_not_there(package, tmp_path, monkeypatch, capsys):
    with pytest.raises(ds.ShapeError, match="for 16000 samples per second, got 8000"):
        SileroVAD(8000, pretrained=True)
    (package / "silero_vad_16k.safetensors").unlink()
    with pytest.raises(
        ImportError, match="not in the silero-vad that is installed: pip install --no-deps --upgrade"
    ):
        SileroVAD(pretrained=True)
    for missing in (lambda name: None, lambda name: (_ for _ in ()).throw(ValueError(f"{name}.__spec__ is None"))):
        monkeypatch.setattr(importlib.util, "find_spec", missing)
        with pytest.raises(ImportError, match="come with the package silero-vad: pip install --no-deps"):
            SileroVAD(pretrained=True)
        assert cli.main(["run", "SileroVAD", "call.wav"]) == 1
        assert "pip install --no-deps" in capsys.readouterr().err


def test_the_package_that_is_installed_says_what_the_reference_says(data_folder):
    try:
        model = SileroVAD(pretrained=True).eval()
    except ImportError as error:
        pytest.skip(str(error))
    samples, reference = speech(data_folder)
    engine = ds.compile(model, ("B", "L"), rate=16000)
    np.testing.assert_allclose(engine.step({"a": samples}, sos="a", eos="a")["a"], reference, atol=1e-5)


# ---------------------------------------------------------------------- the trained network
def trained(folder):
    model = SileroVAD().eval()
    model.load_state_dict(folder / "silero_vad_16k.safetensors")
    return model


def speech(folder):
    samples, rate = read_audio(folder / "speech_60s_16k.wav")
    assert rate == 16000
    return samples, np.load(folder / "silero_reference.npy")


def test_real_speech_offline(data_folder):
    samples, reference = speech(data_folder)
    got = trained(data_folder)(ds.tensor(samples[None])).numpy()[0]
    assert got.shape == reference.shape
    np.testing.assert_allclose(got, reference, atol=1e-5)


@pytest.mark.parametrize("kind", [Engine, Eager])
def test_real_speech_however_it_is_cut(kind, data_folder):
    """In one piece, in random samples, and among 50 others: the reference, and the same bits."""
    samples, reference = speech(data_folder)
    alone = kind(trained(data_folder)).feed({"speech": samples}, ["speech"], ["speech"])["speech"]
    assert alone.shape == reference.shape
    np.testing.assert_allclose(alone, reference, atol=1e-4)
    for most, seed in ((2000, 0), (100000, 1)):
        cut = stream(kind(trained(data_folder)), {"speech": samples}, most, seed)["speech"]
        assert cut.tobytes() == alone.tobytes()
    crowd = {f"other {i}": samples[i * 1000 : i * 1000 + 7 * i * i] for i in range(50)}
    among = stream(kind(trained(data_folder)), {"speech": samples, **crowd}, 8000, 2)
    assert among["speech"].tobytes() == alone.tobytes()


@pytest.mark.parametrize("how", ["fp16", "bf16", "int8", "auto"])
def test_weights_in_fewer_bits_decide_alike(data_folder, how):
    model = SileroVAD().eval()
    model.load_state_dict(data_folder / "silero_vad_16k.safetensors")
    wide, narrow = (ds.compile(model, ("B", "L"), rate=16000, verify=False, weights=w) for w in ("fp32", how))
    alike = frames = 0
    for path in sorted(data_folder.glob("*.wav")):
        samples, rate = read_audio(path)
        if rate == 16000:
            p, q = (e.step({"a": samples}, sos="a", eos="a")["a"] for e in (wide, narrow))
            alike, frames = alike + int(((p > 0.5) == (q > 0.5)).sum()), frames + len(p)
    assert frames > 1000 and alike >= 0.995 * frames
