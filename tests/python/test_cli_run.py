"""`dreamstream run`: recordings through a model, from the command line."""

from __future__ import annotations

import csv
import json
import wave

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import cli
from dreamstream.models import SileroVAD

pytest.importorskip("safetensors")


def weights_of(model):
    return {k: np.array(v.numpy()) for k, v in model.state_dict().items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Recordings of several rates, and weights."""
    from safetensors.numpy import save_file

    path = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(4)
    model = SileroVAD()
    for p in model.parameters():
        p.numpy()[...] = rng.standard_normal(p.shape) / np.sqrt(max(1, np.prod(p.shape[1:])))
    save_file(weights_of(model), path / "vad.safetensors")
    for name, rate, n, channels in (
        ("a", 16000, 20000, 1),
        ("b", 16000, 700, 2),
        ("slow", 8000, 9000, 1),
        ("none", 16000, 0, 1),
        ("short", 16000, 100, 1),
    ):
        with wave.open(str(path / f"{name}.wav"), "wb") as file:
            file.setparams((channels, 2, rate, 0, "NONE", ""))
            file.writeframes(rng.integers(-9000, 9000, n * channels).astype("<i2").tobytes())
    return path


@pytest.fixture
def run(folder, capsys):
    def call(*args, weights=True):
        given = [str(folder / a) if str(a).endswith((".wav", ".txt")) else str(a) for a in args]
        more = ["--weights", str(folder / "vad.safetensors")] if weights else []
        try:
            status = cli.main(["run", "SileroVAD", *given, *more])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return call


def offline(folder, name):
    model = SileroVAD().eval()
    model.load_state_dict(folder / "vad.safetensors")
    samples, _ = ds.data.read_audio(folder / name, 16000)
    return np.asarray(model(ds.tensor(samples[None])))[0]


def test_what_it_says(run):
    status, out, err = run("a.wav", "b.wav", "--compare-offline")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(tuple("0123456789")) and "a.wav  1.25 s, 39 frames  values " in lines[0]
    assert "b.wav  0.02 s, 0 frames" in lines[1] or "b.wav  0.04 s, 1 frames" in lines[1]
    for start in ("frames ", "offline model ", "delay ", "real time ", "step latency ", "state "):
        assert sum(line.startswith(start) for line in lines) == 1, start


@pytest.mark.parametrize("chunk", [1, 37, 5000])
def test_json(run, folder, chunk):
    files = "a.wav", "slow.wav", "none.wav", "short.wav"
    status, out, err = run(*files, "--json", "--compare-offline", "--chunk-ms", chunk)
    assert (status, err) == (0, "")
    *lines, summary = map(json.loads, out.splitlines())
    assert summary["max_difference"] < 1e-5 and summary["delay"] >= 511 and summary["frames"] == len(lines)
    for name in files:
        own = [line for line in lines if line["file"].endswith(f"/{name}")]
        values = np.array([line["values"] for line in own]).reshape(-1)
        np.testing.assert_allclose(values, offline(folder, name), atol=1e-5)
        np.testing.assert_allclose([line["start"] for line in own], np.arange(len(own)) * 0.032)


def test_values_that_are_no_numbers(run, folder):
    samples = np.zeros(1024, "<f4")
    samples[600] = np.nan
    header = b"RIFF" + (36 + 4096).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    header += np.array([3, 1], "<u2").tobytes() + np.array([16000, 64000], "<u4").tobytes()
    header += np.array([4, 32], "<u2").tobytes() + b"data" + (4096).to_bytes(4, "little")
    (folder / "nan.wav").write_bytes(header + samples.tobytes())
    status, out, _ = run("nan.wav", "--json", "--compare-offline")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()]
    assert status == 0 and lines[1]["values"] == [None] and lines[0]["values"] != [None]


def test_written_outputs(run, folder, tmp_path):
    for name in ("out.npz", "out.csv"):
        assert run("a.wav", "slow.wav", "-o", tmp_path / name)[0] == 0
    assert run("a.wav", "-o", tmp_path / "out.npy")[0] == 0
    want = {str(folder / n): offline(folder, n) for n in ("a.wav", "slow.wav")}
    with np.load(tmp_path / "out.npz") as arrays:
        assert set(arrays) == set(want)
        for name, values in want.items():
            np.testing.assert_allclose(arrays[name], values, atol=1e-5)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), want[str(folder / "a.wav")], atol=1e-5)
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == sum(map(len, want.values())) and rows[1][:2] == [str(folder / "a.wav"), "0.032000"]
    status, _, err = run("a.wav", "slow.wav", "-o", tmp_path / "out.npy")
    assert status == 1 and "can hold one array, not 2" in err


class Halves(ds.nn.Module):
    """Two channels of samples, channels first; scores; an answer at the end."""

    def forward(self, x):
        both = ds.stack([x, x * -2], 1)
        return both, both.transpose(1, 2), x.sum(1)


@pytest.fixture
def stereo(tmp_path):
    path = tmp_path / "stereo.dsm"
    ds.compile(Halves().eval(), ("B", "L"), rate=16000).save(path)
    return str(path)


def test_frames_are_counted_along_l(stereo, folder, capsys):
    assert cli.main(["run", stereo, str(folder / "a.wav"), "--json"]) == 0
    *lines, summary = map(json.loads, capsys.readouterr().out.splitlines())
    counts = {name: sum(line["output"] == name for line in lines) for name in {line["output"] for line in lines}}
    assert summary["frames"] == 20000 and sorted(counts.values()) == [1, 20000, 20000]
    assert cli.main(["run", stereo, str(folder / "a.wav"), "--compare-offline"]) == 0
    out = capsys.readouterr().out
    assert "1.25 s, 20000 frames" in out
    assert "compared        3 output(s) with the engine in one step (no model in Python) on each whole file" in out


def test_samples_are_written_as_wav(folder, tmp_path, capsys):
    class Louder(ds.nn.Module):
        def forward(self, x):
            return ds.stack([x, x * -40], 1)

    path = tmp_path / "louder.dsm"
    ds.compile(Louder().eval(), ("B", "L"), rate=16000).save(path)
    assert cli.main(["run", str(path), str(folder / "a.wav"), "-o", str(tmp_path / "out.wav")]) == 0
    samples, rate = ds.data.read_audio(folder / "a.wav")
    written, its_rate = ds.data.read_audio(tmp_path / "out.wav", mono=False)
    assert (rate, its_rate) == (16000, 16000)
    np.testing.assert_array_equal(written[:, 0], samples)
    np.testing.assert_allclose(written[:, 1], np.clip(samples * -40, -1, 32767 / 32768), atol=2e-5)


def test_complex_outputs_are_pairs():
    from dreamstream.cli.outputs import in_pairs
    from dreamstream.cli.run import _numbers

    given = np.array([[1 + 2j, np.inf - 1j]], np.complex64)
    assert _numbers(given) == [[[1.0, 2.0], [None, -1.0]]] and in_pairs(given).shape == (1, 2, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-o", "gone/out.npy"), "there is no folder"),
        (("--plot", "gone/plot.png"), "there is no folder"),
        (("--plot", "plot.doc"), "svgz, tif"),
        (
            ("-o", "out.wav"),
            "out.wav takes samples, and the output is ('B', 'L') float32 at 125/4 frames a second",
        ),
        (("b.wav", "-o", "out.wav"), "can hold one output of one file, not 2"),
        (("b.wav", "-o", "out.npy"), "can hold one array, not 2"),
    ],
)
def test_paths_are_checked_before_the_work(run, folder, monkeypatch, options, says):
    from dreamstream.cli import run as command

    pytest.importorskip("matplotlib")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(command, "_steps", lambda *_: pytest.fail("it works already"))
    status, out, err = run(
        "a.wav", *[o if o.startswith("-") or o == "b.wav" else str(folder / o) for o in options]
    )
    assert (status, out) == (1, "") and says in err.replace(str(folder) + "/", "") and err.count("\n") == 1


def test_plot(run, tmp_path):
    pytest.importorskip("matplotlib")
    assert run("a.wav", "none.wav", "short.wav", "--plot", tmp_path / "plot.png")[0] == 0
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_what_a_plot_shows(run, tmp_path, monkeypatch):
    """One time axis, a legend, the delay, and frames when they leave."""
    figure = pytest.importorskip("matplotlib.figure")
    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    assert run("a.wav", "--plot", tmp_path / "plot.png", "--chunk-ms", "100")[0] == 0
    wave_axes, output, latency = drawn[0].axes
    assert wave_axes.get_xlim() == output.get_xlim() == latency.get_xlim() == (0, 1.25)
    assert output.get_title() == "delay 511 samples, 32 ms; chunks of 100 ms"
    assert [text.get_text() for text in output.get_legend().get_texts()] == ["output", "as it leaves"]
    about, leaving = (line.get_xdata() for line in output.lines)
    behind = np.array(leaving) - about
    assert len(about) == 39 and behind.min() >= 0.032 and behind.max() <= 0.032 + 0.1


def test_experts_in_a_plot(folder, capsys, tmp_path, monkeypatch):
    """A panel for each layer: which experts frames were given to and when, their numbers, their load."""
    figure = pytest.importorskip("matplotlib.figure")
    drawn = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, *_, **__: drawn.append(self))
    model = ds.nn.Sequential(
        ds.nn.Unflatten(1, (-1, 1)), *(ds.nn.FMoETransformerMLP(n, 1, 4, top_k=k) for n, k in ((6, 2), (50, 1)))
    )
    ds.compile(model.eval(), ("B", "L"), rate=16000).save(tmp_path / "experts.dsm")
    args = ["run", tmp_path / "experts.dsm", folder / "a.wav", "--plot", tmp_path / "plot.png"]
    assert cli.main(list(map(str, args))) == 0
    panels = [a for a in drawn[0].axes if a.get_ylabel() == "expert"]
    assert [a.get_title().split(":")[0] for a in panels] == ["1", "2"]
    assert [int(t) for t in panels[0].get_yticks()] == list(range(6))
    assert [int(t) for t in panels[1].get_yticks()] == list(range(0, 50, 2))
    for a, k in zip(panels, (2, 1)):
        points = np.concatenate([c.get_offsets() for c in a.collections])
        assert len(points) == 20000 * k and points[:, 0].max() <= 1.25
        loads = [bar.get_width() for bar in a.child_axes[0].patches]
        counts = np.bincount(points[:, 1].astype(int), minlength=len(loads))
        np.testing.assert_allclose(loads, 100 * counts / counts.sum(), atol=1e-6)


def test_plot_without_matplotlib(run, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = run("a.wav", "--plot", tmp_path / "plot.png")
    assert (status, out) == (1, "") and "pip install matplotlib" in err and err.count("\n") == 1


def test_a_mismatch_fails(run, monkeypatch):
    from dreamstream.cli import run as command

    read = command.read_audio
    monkeypatch.setattr(command, "read_audio", lambda path: (read(path)[0] * 0.5, 16000))
    status, _, err = run("a.wav", "--compare-offline")
    assert status == 1 and "MISMATCH" in err and "a.wav" in err and err.count("\n") == 1
    monkeypatch.setattr(command, "read_audio", lambda path: (read(path)[0][:-600], 16000))
    status, out, err = run("a.wav", "--compare-offline", "--json")
    assert status == 1 and "gave (39,), the offline model (37,)" in err
    assert json.loads(out.splitlines()[-1])["max_difference"] is None


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (("gone.wav",), 1, "gone.wav: No such file"),
        (("a.wav", "a.wav"), 1, "given twice"),
        (("a.wav", "--chunk-ms", "0"), 2, "expected 1 or more"),
        (("a.wav", "-o", "out.txt.doc"), 2, "expected a .npy, .npz, .csv or .wav file"),
        ((), 2, "AUDIO"),
    ],
)
def test_refusals(run, args, status, says):
    got, out, err = run(*args)
    assert (got, out) == (status, "") and says in err and err.count("\n") == 1


def test_an_unknown_model_and_weights_that_do_not_fit(folder, capsys, tmp_path):
    from safetensors.numpy import save_file

    assert cli.main(["run", "Whisper", str(folder / "a.wav")]) == 1
    assert (
        "no model 'Whisper', nor a file; give a model file, FILE.py:FUNCTION or one of SileroVAD"
        in capsys.readouterr().err
    )
    save_file({"conv1.weight": np.zeros((2, 2), np.float32)}, tmp_path / "other.safetensors")
    call = ["run", "SileroVAD", str(folder / "a.wav"), "--weights", str(tmp_path / "other.safetensors")]
    assert cli.main(call) == 1
    err = capsys.readouterr().err
    assert "does not fit SileroVAD" in err and "conv1.weight" in err and err.count("\n") == 1
