"""`dreamstream info`, `convert`, and `run` of a model file."""

import json
import sys
import wave

import numpy as np
import pytest
from processes import printed
from same_bits import answers, content

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.models import SileroVAD

MODEL = '''
"""A user's model."""
import dreamstream as ds
from dreamstream import nn
from helper import CHANNELS  # beside the file


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, CHANNELS, 5, padding=2)
        self.rnn = nn.LSTM(CHANNELS, 2, batch_first=True)

    def forward(self, x):
        return self.rnn(self.conv(x).transpose(1, 2))[0]


def model():
    ds.manual_seed(4)
    return Net(), ("B", 3, "L"), 100


def two_rates():
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + 1, y + 1
    return Sum(), {"x": ("B", "L"), "y": ("B", "L")}, {"x": 100, "y": 50}


def nothing():
    return None


def fails():
    raise KeyError("no weights\\nhere")


def wrong():
    class Wrong(nn.Module):
        def forward(self, x):
            return self.nowhere(x)
    return Wrong(), ("B", "L"), 100


number = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    (path / "net.py").write_text(MODEL)
    (path / "helper.py").write_text("CHANNELS = 4\n")
    return path


@pytest.fixture
def call(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)

    def run(*args):
        try:
            status = cli.main([str(a) for a in args])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return run


# ---------------------------------------------------------------------- convert
def test_convert_there_and_back(call, folder):
    path = list(sys.path)
    assert call("convert", "net.py:model", "a.dsm") == (0, "", "")
    for source, target in ("a.dsm", "a.json"), ("a.json", "a.xml"), ("a.xml", "b.dsm"):
        assert call("convert", source, target) == (0, "", "")
    assert (folder / "a.dsm").read_bytes() == (folder / "b.dsm").read_bytes()
    assert ds.load(folder / "a.dsm").rate == 100 and sys.path == path
    assert call("convert", "net.py:two_rates", "two.dsm") == (0, "", "")
    assert [s.rate for s in ds.load(folder / "two.dsm").inputs] == [100, 50]


def test_convert_with_weights(call, folder):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    rng = np.random.default_rng(0)
    shapes = {name: array.shape for name, array in _parameters(call, folder).items()}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "net.safetensors")
    assert call("convert", "net.py:model", "w.dsm", "--weights", "net.safetensors") == (0, "", "")
    for name, array in _file(folder / "w.dsm").items():
        assert np.array_equal(array, weights[name])


def _file(path):
    from safetensors.numpy import load

    return {k: v for k, v in load(path.read_bytes()).items() if not k.startswith(".pad.")}


def _parameters(call, folder):
    assert call("convert", "net.py:model", "p.dsm")[0] == 0
    return _file(folder / "p.dsm")


def test_a_report_is_against_float32(call, folder):
    assert call("convert", "net.py:model", "a.dsm", "--weights", "int8")[0] == 0
    status, _, err = call("convert", "a.dsm", "x.dsm", "--report")
    assert status == 1 and "a.dsm has fewer bits already" in err and not (folder / "x.dsm").exists()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("net.py:model", "a.onnx"), "ends in .dsm, .json, .xml, got a.onnx"),
        (("net.py:other", "x.dsm"), "net.py has no function other"),
        (("net.py", "x.dsm"), "net.py:FUNCTION, a function without arguments that returns (model, spec, rate)"),
        (("net.py:number", "x.dsm"), "net.py has no function number"),
        (("net.py:nothing", "x.dsm"), "must return (model, spec, rate)"),
        (("net.py:fails", "x.dsm"), "net.py: KeyError: "),
        (("net.py:wrong", "x.dsm"), "net.py:41 in forward"),
        (("none.py:model", "x.dsm"), "there is no file none.py"),
        (("none.dsm", "x.dsm"), "none.dsm"),
        (("net.py", "x.dsm"), "net.py"),
        (("a.dsm", "x.dsm", "--weights", "net.py"), "a.dsm has its weights"),
        (("a.dsm", "x.dsm", "--weights", "fp8"), "fp8 is neither a file nor one of fp32, fp16"),
        (("a.dsm", "x.dsm", "--weights", "nothing=int8"), "weights: 'nothing' fits no layer with matrices"),
        (("a.dsm", "x.dsm", "--weights", "*=auto", "--bound", "-1"), "--bound: expected 0 or more, got -1"),
        (("a.dsm", "x.dsm", "--products", "*=fp16"), "--products *=fp16 is none of fp32, bf16, int8, nor PATTERN"),
        (("net.py:model", "x.dsm", "--weights", "int4"), "int4 is neither a file nor one of fp32, fp16"),
        (("a.dsm", "x.dsm", "--input", "call.wav"), "give --report as well"),
        (("a.dsm", "x.dsm", "--weights", "int8", "--bound", "0.1"), "--bound is of --weights auto"),
        (("a.dsm", "nowhere/x.dsm"), "nowhere/x.dsm"),
    ],
)
def test_convert_refuses(call, folder, args, says):
    call("convert", "net.py:model", "a.dsm")
    status, out, err = call("convert", *args)
    assert (status, out) == (1, "") and says in err and err.count("\n") == 1
    assert not (folder / "x.dsm").exists()


# ---------------------------------------------------------------------- info
def test_info(call, folder):
    call("convert", "net.py:model", "a.dsm")
    status, out, err = call("info", "a.dsm")
    lines = [line.split() for line in out.splitlines()]
    assert (status, err) == (0, "") and lines[0][0] == "Net,"
    assert "input x: (B, 3, L) float32, rate 100, 48 bytes kept" in [" ".join(line) for line in lines]
    assert "delay 2 frames, 20 ms" in [" ".join(line) for line in lines]
    assert "receptive field without bound" in [" ".join(line) for line in lines]
    assert ["conv", "conv1d", "(4,)", "100", "256", "0", "F32"] in lines
    assert any(line[:2] == ["rnn", "lstm"] and int(line[-2]) >= 16 for line in lines)
    call("convert", "a.dsm", "a.xml")
    assert call("info", "a.xml")[1].replace("a.xml", "a.dsm") == out


def test_info_of_layers_that_run_as_one(call, folder):
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU()).eval()
    ds.compile(model, ("B", 2, "L")).save(folder / "relu.dsm")
    (layer,) = json.loads(call("info", "relu.dsm", "--json")[1])["layers"]
    assert (layer["path"], layer["weights"], layer["weight_bytes"]) == ("0", ["0.weight", "0.bias"], 112)


def test_info_as_json(call, folder):
    call("convert", "net.py:model", "a.dsm")
    status, out, err = call("info", "a.dsm", "--json")
    about, engine = json.loads(out), ds.load(folder / "a.dsm")
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert (about["delay"], about["delay_ms"], about["rate"]) == (2, 20.0, 100)
    assert (about["state_bytes"], about["receptive_field"]) == (engine.state_size, None)
    assert about["outputs"] == [
        {"name": "output", "dimensions": ["B", "L", 2], "dtype": "float32", "rate": 100, "delay": 2}
    ]
    assert about["weights"]["bytes"] == sum(layer["weight_bytes"] for layer in about["layers"])
    assert about["weights"]["dtypes"] == ["F32"] and about["weights"]["not_finite"] == []


def test_info_of_weights_that_are_no_numbers(call, folder):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].weight.numpy()[1:, 0] = np.nan
    model[1].bias.numpy()[:] = np.inf, -np.inf
    ds.compile(model, ("B", "L", 3), verify=False).save(folder / "nan.dsm")
    status, out, _ = call("info", "nan.dsm")
    lines = [line.strip() for line in out.splitlines()]
    assert status == 0 and "not finite      0.weight: 3 NaN, 0 infinite" in lines
    assert "not finite      1.bias: 0 NaN, 2 infinite" in lines
    assert "delay           0 frames" in lines  # of no known rate
    about = json.loads(call("info", "nan.dsm", "--json")[1])
    assert about["delay_ms"] is None
    assert about["weights"]["not_finite"][0] == {"name": "0.weight", "nan": 3, "infinite": 0}


def test_info_refuses(call, folder):
    (folder / "none.dsm").write_bytes(b"\0" * 100)
    for name in "missing.dsm", "none.dsm", "net.py", str(folder):
        status, out, err = call("info", name)
        assert (status, out) == (1, "") and name in err and err.count("\n") == 1
    assert call("info")[0] == 2


# ---------------------------------------------------------------------- run
@pytest.fixture(scope="module")
def recordings(folder):
    rng = np.random.default_rng(4)
    for name, rate, n in ("a", 16000, 20000), ("slow", 8000, 9000), ("none", 16000, 0):
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(rng.integers(-9000, 9000, n).astype("<i2").tobytes())
    ds.manual_seed(8)
    model = SileroVAD().eval()
    ds.compile(model, model.spec, rate=16000).save(folder / "vad.dsm")
    return model


def test_run(call, folder, recordings):
    status, out, err = call("run", "vad.dsm", "a.wav", "none.wav", "--compare-offline", "--chunk-ms", 37)
    assert (status, err) == (0, "dreamstream run: none.wav gave no frames; it lasts 0.000 s\n")
    assert "largest difference 0.0e+00" in out and "511 samples, 31.9 ms" in out
    call("run", "vad.dsm", "a.wav", "-o", "a.npy")
    samples, _ = ds.data.read_audio(folder / "a.wav")
    alone = ds.load(folder / "vad.dsm").step({"a": samples}, "a", "a")["a"]
    assert np.array_equal(np.load(folder / "a.npy"), alone)


def test_run_at_another_rate(call, folder, recordings):
    status, out, err = call("run", "vad.dsm", "slow.wav", "a.wav", "--compare-offline", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "") and lines[-1]["max_difference"] < 1e-4
    slow = [line["values"][0] for line in lines[:-1] if line["file"] == "slow.wav"]
    samples, _ = ds.data.read_audio(folder / "slow.wav", 16000)
    whole = np.asarray(recordings(ds.tensor(samples[None])))[0]
    assert len(slow) == len(whole) and np.allclose(slow, whole, atol=1e-4)
    assert lines[-1]["delay"] >= 256


def test_run_feeds_one_channel(call, folder, recordings):
    ds.compile(nn.Conv1d(1, 1, 3, padding=1), ("B", 1, "L"), rate=8000).save(folder / "channel.dsm")
    status, out, _ = call("run", "channel.dsm", "a.wav", "-o", "out.wav", "--compare-offline")
    assert status == 0 and "largest difference 0.0e+00" in out
    assert len(ds.data.read_audio(folder / "out.wav")[0]) > 0


def test_run_refuses(call, folder, recordings):
    call("convert", "net.py:model", "a.dsm")
    ds.compile(nn.Identity(), ("B", "L")).save(folder / "no_rate.dsm")
    for args, says in (
        (("a.dsm", "a.wav"), 'run feeds samples, ("B", "L") or ("B", 1, "L") float32'),
        (("no_rate.dsm", "a.wav"), "the rate 1, which is no sample rate"),
        (("vad.dsm", "a.wav", "--weights", "w.safetensors"), "vad.dsm has its weights"),
        (("missing.dsm", "a.wav"), "missing.dsm"),
        (("net.py:model", "a.wav"), "dreamstream convert FILE.py:FUNCTION OUT.dsm"),
        (("Whisper", "a.wav"), "give a model file, FILE.py:FUNCTION or one of SileroVAD"),
    ):
        status, out, err = call("run", *args)
        assert (status, out) == (1, "") and says in err and err.count("\n") == 1


def test_the_user_s_file_sees_itself(folder):
    """Pickles, dataclasses and the like look their module up by name."""
    (folder / "own.py").write_text(
        "import sys, dataclasses\n"
        "from dreamstream import nn\n"
        "@dataclasses.dataclass\nclass C:\n    x: 'int' = 1\n"
        "def model():\n    assert sys.modules['own'].C is C\n    return nn.Identity(), ('B', 'L'), 10\n"
    )
    printed("-m", "dreamstream", "convert", "own.py:model", "own.dsm", cwd=folder)
    assert content(ds.load(folder / "own.dsm")) == content(ds.compile(nn.Identity(), ("B", "L"), rate=10))
    assert answers(ds.load(folder / "own.dsm"))
