"""bulk, and `dreamstream run` over folders: every recording once, however often a run ends and begins again."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from wav_files import write_wav

import dreamstream as ds
from dreamstream import cli, nn

LENGTHS = (4000, 900, 0, 2500, 8000, 33, 1600, 700)


class Energy(nn.Module):
    """Two outputs, at the samples' rate and below."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 160, stride=80)

    def forward(self, x):
        y = self.conv(x.unsqueeze(1))
        return {"features": y, "mean": y.mean(2)}


class Guarded(nn.Module):
    """Takes no recording of 33 samples."""

    def forward(self, x):
        assert x.size(1) != 33
        return x * 2


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for n, length in enumerate(LENGTHS):
        write_wav(tmp_path / "in" / f"{n}.wav", rng.integers(-9000, 9000, length), 8000)
    return tmp_path / "in"


def engine_of(model, rate=8000):
    return ds.compile(model.eval(), ("B", "L"), rate=rate, verify=False)


@pytest.fixture(scope="module")
def energy():
    return engine_of(Energy())


def whole(engine, path):
    samples = ds.data.AudioReader(path).read()
    return engine.step({"x": samples}, sos="x", eos="x")["x"]


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# ---------------------------------------------------------------------- in Python
@pytest.mark.parametrize("workers", [0, 2])
def test_every_recording_once(folder, energy, workers):
    got = dict(ds.data.bulk(energy, folder, chunk=333, lanes=3, workers=workers))
    assert sorted(got) == sorted(map(str, folder.glob("*.wav")))
    for path, y in got.items():
        for name, values in whole(energy, path).items():
            assert np.array_equal(y[name], values)
    assert energy.ids == []


def test_modules_that_are_online(folder):
    model = ds.patch_module(nn.Resample(8000, 4000).eval()).online()
    got = dict(ds.data.bulk(model, folder, chunk=500))
    for path, y in got.items():
        samples = ds.data.AudioReader(path).read()
        want = model.offline()(ds.tensor(samples[None])).numpy()[0]
        np.testing.assert_allclose(y, want, atol=1e-6)
    model.offline()
    with pytest.raises(ds.ModeError, match="not online"):
        ds.data.bulk(model, folder)


def test_lines_of_an_output(folder, energy, tmp_path):
    out = tmp_path / "out.jsonl"
    assert ds.data.bulk(energy, folder, out, chunk=777) == len(LENGTHS)
    rows = lines_of(out)
    assert {row["file"] for row in rows} == set(map(str, folder.glob("*.wav"))) and len(rows) == len(LENGTHS)
    for row in rows:
        want = whole(energy, row["file"])
        assert row["frames"] == want["features"].shape[1]
        values = np.array(row["values"]["features"], np.float32).reshape(-1, 3)
        assert np.array_equal(values, want["features"].T)
    before = out.read_bytes()
    assert ds.data.bulk(energy, folder, out) == 0 and out.read_bytes() == before


@pytest.mark.parametrize("cut", [1, 40, 300, -1, -9])
def test_goes_on_from_whatever_was_left(folder, energy, tmp_path, cut):
    out = tmp_path / "out.jsonl"
    ds.data.bulk(energy, folder, out, chunk=777, lanes=2)
    complete = out.read_bytes()
    out.write_bytes(complete[:cut])
    n = ds.data.bulk(energy, folder, out, chunk=100, lanes=5)
    assert n == len(LENGTHS) - complete[:cut].count(b"\n")
    assert sorted(out.read_bytes().splitlines()) == sorted(complete.splitlines())


@pytest.mark.parametrize(
    "text, said",
    [
        ("a line\n", "line 1 is no output of bulk"),
        ('{"file": "a", "values": 1}\n', "of another model"),
        ('{"of somebody": "without a line end"}', "line 1 is no output of bulk"),
    ],
)
def test_files_that_are_not_its_own(folder, energy, tmp_path, text, said):
    (tmp_path / "out.jsonl").write_text(text)
    with pytest.raises(ds.FormatError, match=said):
        ds.data.bulk(energy, folder, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == text


def test_an_output_that_is_no_file(energy):
    with pytest.raises(ds.FormatError, match="/dev/full is no file"):
        ds.data.bulk(energy, {"x": np.zeros(9, np.float32)}, "/dev/full")
    with pytest.raises(ds.ModeError, match="for an output"):
        ds.data.bulk(energy, {"x": np.zeros(9, np.float32)}, ray="local")


def test_two_runs_at_once(folder, energy, tmp_path):
    with open(tmp_path / "out.jsonl", "ab") as other:
        fcntl = pytest.importorskip("fcntl")
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ds.FormatError, match="written by another process"):
            ds.data.bulk(energy, folder, tmp_path / "out.jsonl")


def test_bad_recordings_are_named_at_the_end(folder, tmp_path):
    engine = engine_of(Guarded())
    (folder / "4.wav").write_bytes((folder / "4.wav").read_bytes()[:9000])
    (folder / "none.wav").write_text("no recording")
    bad = [str(folder / name) for name in ("4.wav", "5.wav", "none.wav")]
    with pytest.raises(ds.SourceError, match="3 streams could not be run") as error:
        ds.data.bulk(engine, folder, tmp_path / "out.jsonl", chunk=600, lanes=4)
    assert sorted(error.value.ids) == bad and engine.ids == []
    for said in ("offset 9000: expected", "no WAV file", "the model refuses a stream"):
        assert said in str(error.value)
    assert sorted(row["file"] for row in lines_of(tmp_path / "out.jsonl")) == sorted(
        {str(p) for p in folder.glob("*.wav")} - set(bad)
    )
    errors = []
    assert len(list(ds.data.bulk(engine, folder, chunk=600, bad=errors.append))) == len(LENGTHS) - 2
    assert sorted(i for e in errors for i in e.ids) == bad


def test_an_array_of_two_channels_is_refused(energy):
    arrays, bad = {i: np.ones((n, 900), np.float32) for i, n in (("stereo", 2), ("mono", 1))}, []
    assert [i for i, _ in ds.data.bulk(energy, arrays, chunk=400, bad=bad.append)] == ["mono"]
    assert "expected samples, (L,) or (1, L), got an array of shape (2, 400)" in str(*bad)


def test_a_recording_that_kills_its_worker(energy):
    def die():
        yield np.zeros(500, np.float32)
        os.kill(os.getpid(), signal.SIGKILL)

    items = {str(n): (lambda: iter([np.ones(3000, np.float32)])) for n in range(6)}
    items["3"] = die
    errors = []
    got = dict(ds.data.bulk(energy, items, chunk=400, lanes=6, workers=2, bad=errors.append))
    assert sorted(got) == list("01245") and [e.ids for e in errors] == [("3",)]
    want = energy.step({"x": np.ones(3000, np.float32)}, sos="x", eos="x")["x"]["features"]
    assert all(np.array_equal(y["features"], want) for y in got.values())


def test_a_loop_that_is_left(folder, energy):
    for _ in ds.data.bulk(energy, folder, chunk=100):
        break
    assert energy.ids == []


def test_engines_that_take_no_samples(folder):
    with pytest.raises(ds.FormatError, match="expected samples"):
        ds.data.bulk(ds.compile(nn.Conv1d(4, 1, 3).eval(), ("B", 4, "L")), folder)


# ---------------------------------------------------------------------- on the command line
@pytest.fixture
def model(energy, tmp_path):
    energy.save(tmp_path / "energy.dsm")
    return str(tmp_path / "energy.dsm")


def test_the_command(folder, energy, model, tmp_path, capsys):
    out = str(tmp_path / "out.jsonl")
    assert cli.main(["run", model, str(folder), "-o", out]) == 0
    assert "8 files were run, 0 had been before" in capsys.readouterr().out
    (folder / "bad.wav").write_text("no recording")
    assert cli.main(["run", model, str(folder), "-o", out, "--workers", "1"]) == 1
    said = capsys.readouterr()
    assert "0 files were run, 8 had been before" in said.out
    assert "bad.wav: no WAV file" in said.err and said.err.endswith("1 of 9 files could not be run\n")
    for row in lines_of(out):
        assert row["values"]["features"] == whole(energy, row["file"])["features"].T.tolist()


@pytest.mark.parametrize(
    "args, said",
    [
        (["in"], "is a folder; its results go to lines of JSON: -o OUT.jsonl"),
        (["in", "-o", "out.csv"], "is a folder"),
        (["in", "-o", "out.jsonl", "--json"], "--json does not go with"),
        (["in/0.wav", "--workers", "2"], "--workers goes with -o OUT.jsonl"),
        (["in", "in", "-o", "out.jsonl"], "occurs twice"),
    ],
)
def test_commands_that_are_refused(folder, model, capsys, monkeypatch, args, said):
    monkeypatch.chdir(folder.parent)
    assert cli.main(["run", model, *args]) == 1
    assert said in capsys.readouterr().err
