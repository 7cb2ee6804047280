"""`dreamstream bench`: it measures what it says; figures are not looked at."""

import json
import re

import pytest

import dreamstream as ds
from dreamstream import cli, nn
from dreamstream.cli import bench

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 8, 3, stride=2, padding=1)
        self.rnn = torch.nn.GRU(8, 8, batch_first=True)

    def forward(self, x):
        return self.rnn(self.conv(x).transpose(1, 2))[0]

def net():
    return Net().eval(), ("B", 4, "L"), 100
"""


@pytest.fixture
def measure(capsys):
    def call(*args):
        try:
            status = cli.main(["bench", *map(str, args), "--seconds", "0"])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.dsm"
    ds.compile(nn.Conv1d(4, 4, 3).eval(), ("B", 4, "L")).save(path)
    return path


def test_table(measure):
    status, out, err = measure("SileroVAD", "--streams", 1, 3, "--chunk-ms", "32,100")
    first, units, *lines = out.splitlines()
    assert (status, err) == (0, "") and first.split()[:3] == ["streams", "chunk", "engine"] and "ms" in units
    assert [line.split()[:3] for line in lines] == [[n, ms, "dreamstream"] for n in "13" for ms in ("32", "100")]


def test_json(measure, file):
    status, out, err = measure(file, "--rate", 100, "--streams", 2, "--chunk-ms", 50, "--json", "--threads", 2)
    (row,) = map(json.loads, out.splitlines())
    assert (status, err) == (0, "") and tuple(row) == bench.COLUMNS
    assert (row["streams"], row["chunk_ms"], row["engine"]) == (2, 50, "dreamstream")
    assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]
    assert row["real_time_factor"] == pytest.approx(row["p50_ms"] / 50, rel=1e-3)
    assert row["streams_per_core"] == pytest.approx(2 * 50 / row["p50_ms"] / 2, rel=1e-3)


def test_several_inputs(measure, tmp_path):
    class Sum(nn.Module):
        def forward(self, audio, video):
            return audio[..., ::2] + video

    path = tmp_path / "sum.dsm"
    rates = {"audio": 100, "video": 50}
    ds.compile(Sum().eval(), {"audio": ("B", 3, "L"), "video": ("B", 3, "L")}, rate=rates).save(path)
    assert measure(path, "--chunk-ms", 40, "--streams", 2)[0] == 0
    status, _, err = measure(path, "--chunk-ms", 30)
    assert status == 1 and "30 ms are 3, 3/2 frames of the inputs; give another size" in err


def test_beside(measure, tmp_path):
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    status, out, err = measure(f"{path}:net", "--streams", 2, "--chunk-ms", 160, "--json")
    assert status == 0, err
    assert [json.loads(line)["engine"] for line in out.splitlines()] == ["dreamstream", "torch", "onnxruntime"]
    status, out, _ = measure(f"{path}:net", "--streams", 2, "--chunk-ms", 160)
    assert status == 0 and re.search(
        r"^onnxruntime runs the graph of dreamstream.export.onnx, \d\d+ nodes", out, re.M
    )
    status, out, _ = measure(f"{path}:net", "--streams", 2, "--chunk-ms", 160, "--json", "--beside")
    assert [json.loads(line)["engine"] for line in out.splitlines()] == ["dreamstream"]


def test_what_runs_beside_does_the_same(tmp_path):
    """The states that a peer keeps are those of its stream: as many frames as the engine's, with its values."""
    torch = pytest.importorskip("torch")
    scope = {"__name__": "described"}
    exec(MODEL, scope)
    model, spec, rate = scope["net"]()
    engine = ds.compile(model, spec, rate=rate)
    chunks = bench._chunks(engine, [16], 2)
    step, (ids, seen) = bench._engine(engine, chunks, 2), (engine.ids, [])
    module = ds.torch.functionalize(model, spec, rate)
    run = bench._torch(module, chunks, 2, torch.get_num_threads())
    forward = module.forward
    module.forward = lambda *args: seen.append(forward(*args)) or seen[-1]
    step()  # the chunk with which the peer started
    for _ in range(3):
        run()
        ours = step()
        y, lengths, _ = seen[-1]
        for row, i in enumerate(ids):
            assert lengths[row] == len(ours[i])
            assert abs(y[row].numpy()[: len(ours[i])] - ours[i]).max() < 1e-5


def test_plot(measure, file, tmp_path):
    pytest.importorskip("matplotlib")
    assert measure(file, "--rate", 100, "--plot", tmp_path / "bench.png")[0] == 0
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (("Whisper",), 1, "there is no model 'Whisper', nor a file; give a model file"),
        (("net.py",), 1, "net.py names no function; give net.py:FUNCTION"),
        (("gone.py:net",), 1, "there is no file gone.py"),
        (("FILE",), 1, "the model does not know its rate: give --rate"),
        (("FILE", "--rate", 10, "--chunk-ms", 5), 1, "5 ms are less than a frame; give a larger --chunk-ms"),
        (("FILE", "--rate", 100, "--beside", "torch"), 1, "--beside needs a model in Python"),
        (("FILE", "--streams", 0), 2, "expected 1 or more"),
        (("FILE", "--rate", "inf"), 2, "expected at most 1000000000"),
        (("FILE", "--plot", "x.doc"), 1, "--plot writes"),
    ],
)
def test_refusals(measure, file, args, status, says):
    got, out, err = measure(*(file if a == "FILE" else a for a in args))
    assert (got, out) == (status, "") and says in err and err.count("\n") == 1
