"""`dreamstream run`: recordings through a model, from the command line."""

import csv
import io
import json
import os
import resource
import shutil
import sys
import threading
import time
import wave

import numpy as np
import pytest
from wav_files import piped_stdin

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


def test_what_it_says(run, folder):
    status, out, err = run("a.wav", "b.wav", "--compare-offline")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    spans = SileroVAD.spoken(offline(folder, "a.wav"))
    about = f"somebody speaks for {sum(b - a for a, b in spans):.2f} s" if spans else "nobody speaks"
    assert lines[0].endswith(f"a.wav  1.25 s, 39 frames  {about}")
    assert lines[1 : 1 + len(spans)] == [f"  {a:9.2f} to {b:9.2f} s" for a, b in spans]
    after = lines[1 + len(spans)]
    assert "b.wav  0.02 s, 0 frames" in after or "b.wav  0.04 s, 1 frames" in after
    for start in ("frames ", "offline model ", "delay ", "real time ", "step latency ", "state "):
        assert sum(line.startswith(start) for line in lines) == 1, start


@pytest.mark.parametrize("chunk", [1, 37, 5000])
def test_json(run, folder, chunk):
    files = "a.wav", "slow.wav", "none.wav", "short.wav"
    status, out, err = run(*files, "--json", "--compare-offline", "--chunk-ms", chunk)
    assert status == 0
    none = [line.split("/")[-1] for line in err.splitlines()]
    assert none == ["none.wav gave no frames; it lasts 0.000 s", "short.wav gave no frames; it lasts 0.006 s"]
    *lines, summary = map(json.loads, out.splitlines())
    assert summary["compared_with"] == "the offline model"
    assert summary["max_difference"] < 1e-5 and summary["delay"] >= 511 and summary["frames"] == len(lines)
    for name in files:
        said = SileroVAD.spoken(offline(folder, name))
        np.testing.assert_allclose(summary["spoken"][str(folder / name)], said or np.zeros((0,)), atol=1e-5)
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


@pytest.mark.parametrize("form", ["csv", "npz", "jsonl"])
def test_a_file_whose_name_is_no_text(form, louder, folder, tmp_path):
    name, path = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff.wav"), tmp_path / f"out.{form}"
    shutil.copy(folder / "short.wav", name)
    assert cli.main(["run", louder, name, "-o", str(path)]) == 0
    if form == "npz":
        with np.load(path) as arrays:
            assert list(arrays) == [name.replace("\udcff", "\\udcff")]
    else:
        text = path.read_bytes().decode(errors="surrogateescape")
        assert (json.loads(text)["file"] if form == "jsonl" else text.split(",")[0]) == name


def test_frames_are_counted_along_l(stereo, folder, capsys):
    assert cli.main(["run", stereo, str(folder / "a.wav"), "--json"]) == 0
    *lines, summary = map(json.loads, capsys.readouterr().out.splitlines())
    counts = {name: sum(line["output"] == name for line in lines) for name in {line["output"] for line in lines}}
    assert summary["frames"] == 20000 and sorted(counts.values()) == [1, 20000, 20000]
    assert cli.main(["run", stereo, str(folder / "a.wav"), "--compare-offline"]) == 0
    assert "1.25 s, 20000 frames" in capsys.readouterr().out


def test_a_model_file_is_compared_with_itself(stereo, folder, capsys):
    """And that is what is said: there is no offline model in it."""
    call = ["run", stereo, str(folder / "a.wav"), "--compare-offline"]
    assert cli.main(call) == 0
    out = capsys.readouterr().out
    own = "the same engine given the whole file at once"
    assert f"compared        3 output(s) with {own}, as a .dsm holds no offline model\n" in out
    assert "whole file      largest difference 0.0e+00" in out and "offline model  " not in out
    call[2] = str(folder / "b.wav")
    assert cli.main([*call, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["compared_with"] == own


class Louder(ds.nn.Module):
    """Two channels of samples, channels first, the second beyond full scale."""

    def forward(self, x):
        return ds.stack([x, x * -40], 1)


@pytest.fixture(scope="module")
def louder(tmp_path_factory):
    path = tmp_path_factory.mktemp("louder") / "louder.dsm"
    ds.compile(Louder().eval(), ("B", "L"), rate=16000).save(path)
    return str(path)


def test_samples_are_written_as_wav(louder, folder, tmp_path, capsys):
    path = str(tmp_path / "out.wav")
    samples, rate = ds.data.read_audio(folder / "a.wav")
    beyond = np.count_nonzero(np.abs(samples * -40) > 1)
    assert beyond
    assert cli.main(["run", louder, str(folder / "a.wav"), "-o", path]) == 0
    reader = ds.data.AudioReader(path, mono=False)
    assert (reader.sample_rate, reader.channels, reader.frames) == (rate, 2, 20000)
    written = reader.read()
    np.testing.assert_array_equal(written, np.stack([samples, samples * np.float32(-40)], 1))
    said = f"dreamstream run: {path}: {beyond} samples in 20000 frames are beyond full scale and "
    assert capsys.readouterr().err == said + "stay as they are, which players may clip\n"

    assert cli.main(["run", louder, str(folder / "a.wav"), "-o", path, "--int16"]) == 0
    assert capsys.readouterr().err == said + "are clipped, as --int16 asks\n"
    with wave.open(path) as file:  # of the standard library, which knows integers only
        assert file.getparams()[:4] == (2, 2, 16000, 20000)
        integers = np.frombuffer(file.readframes(20000), "<i2").reshape(-1, 2)
    np.testing.assert_array_equal(integers[:, 0], np.rint(samples * 32768))
    np.testing.assert_allclose(integers[:, 1], np.clip(samples * -40 * 32768, -32768, 32767), atol=0.5)


@pytest.mark.parametrize("integers", [False, True])
def test_wav_of_many_bytes(tmp_path, integers):
    """From where RIFF's sizes end, a header of the same length is RF64's."""
    from dreamstream.cli.outputs import _Wav

    path, most = tmp_path / "out.wav", (2**32 - 2**17) // (4 if integers else 8)
    with _Wav(str(path), 48000, 2, integers) as output:
        headers = {n: output._header(n) for n in (0, 5, most - 50, most, 2**33)}
    assert len({len(header) for header in headers.values()}) == 1
    assert [header[:4] for header in headers.values()] == [b"RIFF"] * 3 + [b"RF64"] * 2
    for n, header in headers.items():
        reader = ds.data.AudioReader(io.BytesIO(header))
        assert (reader.sample_rate, reader.channels, reader.frames) == (48000, 2, n)


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_wav_that_others_read(n, louder, tmp_path, capsys):
    soundfile = pytest.importorskip("soundfile")
    samples = np.random.default_rng(1).integers(-9000, 9000, n).astype("<i2")
    soundfile.write(tmp_path / "in.wav", samples, 16000)
    for more, subtype in ((), "FLOAT"), (("--int16",), "PCM_16"):
        path = tmp_path / "out.wav"
        assert cli.main(["run", louder, str(tmp_path / "in.wav"), "-o", str(path), *more]) == 0
        info = soundfile.info(path)
        assert (info.frames, info.channels, info.samplerate, info.subtype) == (n, 2, 16000, subtype)
        np.testing.assert_array_equal(soundfile.read(path)[0][:, 0] * 32768, samples)


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_arrays_of_every_axis(form, tmp_path, folder, capsys):
    """Frames along the first, the last or an axis in between: what is written is what the engine gives."""

    class Shaped(ds.nn.Module):
        def __init__(self, axis):
            super().__init__()
            self.axis = axis

        def forward(self, x):
            y = ds.stack([ds.stack([x, x * 2], 1), ds.stack([x * 3, x * 4], 1), ds.stack([x, x], 1)], 1)
            return {0: x, 1: y.permute(0, 3, 1, 2), 2: y.transpose(2, 3), 3: y, 4: x.sum(1), 5: (x > 0)}[self.axis]

    samples, _ = ds.data.read_audio(folder / "a.wav")
    for axis in range(6):
        engine = ds.compile(Shaped(axis).eval(), ("B", "L"), rate=16000)
        engine.save(tmp_path / "m.dsm")
        call = ["run", tmp_path / "m.dsm", folder / "a.wav", "-o", tmp_path / f"out.{form}"]
        assert cli.main(list(map(str, call))) == 0
        written = np.load(tmp_path / f"out.{form}")
        written = written if form == "npy" else written[str(folder / "a.wav")]
        expected = engine.step({"a": samples}, sos="a", eos="a")["a"]
        assert written.dtype == expected.dtype
        np.testing.assert_array_equal(written, expected)


# ---------------------------------------------------------------- as it comes
@pytest.fixture
def stdin(monkeypatch):
    with piped_stdin(monkeypatch) as out:
        yield out


def read_back(path):
    """The first channel of what was written, of two."""
    if path.suffix == ".wav":
        return ds.data.read_audio(path, mono=False)[0][:, 0]
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            return np.array([line[2] for line in csv.reader(file)], np.float32)
    arrays = np.load(path)
    return (arrays["-"] if path.suffix == ".npz" else arrays)[0]


@pytest.mark.parametrize("form", ["wav", "csv", "npy"])
def test_outputs_are_written_as_they_come(form, louder, folder, stdin, tmp_path, capsys):
    """What had come can be read while it is written: whatever ends the process leaves that much."""
    content = (folder / "a.wav").read_bytes()
    samples, path = ds.data.read_audio(content)[0], tmp_path / f"out.{form}"
    status = []
    call = ["run", louder, "-", "-o", str(path), "--compare-offline"]
    thread = threading.Thread(target=lambda: status.append(cli.main(call)))
    thread.start()
    stdin.write(content[: 44 + 2 * 4000])
    give_up, got = time.monotonic() + 60, np.zeros(0)
    while len(got) < 3200 and time.monotonic() < give_up:
        time.sleep(0.01)
        if path.exists() and path.stat().st_size:
            got = read_back(path)
    assert thread.is_alive()
    np.testing.assert_array_equal(got, samples[: len(got)])
    stdin.write(content[44 + 2 * 4000 :])
    stdin.close()
    thread.join()
    assert status == [0]
    np.testing.assert_array_equal(read_back(path), samples)


class Interrupted(io.BytesIO):
    """Ctrl-C comes when all has been read."""

    def read(self, n=-1):
        content = super().read(n)
        if not content:
            raise KeyboardInterrupt
        return content


@pytest.mark.parametrize("form", ["wav", "csv", "npy", "npz"])
def test_interrupted(form, louder, folder, tmp_path, monkeypatch, capsys):
    content, path = (folder / "a.wav").read_bytes(), tmp_path / f"out.{form}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Interrupted(content[: 44 + 2 * 4000])))
    assert cli.main(["run", louder, "-", "-o", str(path)]) == 130
    err = capsys.readouterr().err
    assert err == f"dreamstream run: stopped after 0.20 s of audio; 3200 frames were written to {path}\n"
    np.testing.assert_array_equal(read_back(path), ds.data.read_audio(folder / "a.wav")[0][:3200])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Interrupted(content[:50])))
    assert cli.main(["run", louder, "-", "-o", str(path)]) == 130
    assert "nothing was written to" in capsys.readouterr().err and not path.exists()


@pytest.mark.parametrize("form", ["wav", "csv", "npy"])
def test_a_disk_that_is_full(form, louder, folder, tmp_path, capsys):
    """The path is named, and the file holds what had come; one that would hold nothing is removed."""
    path, before = tmp_path / f"out.{form}", resource.getrlimit(resource.RLIMIT_FSIZE)
    samples = ds.data.read_audio(folder / "a.wav")[0]
    for room in (60_000 if form != "csv" else 900_000, 50):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            assert cli.main(["run", louder, str(folder / "a.wav"), "-o", str(path)]) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        err = capsys.readouterr().err
        assert f"dreamstream: {path}: File too large\n" in err
        if room > 50:
            written = read_back(path)
            assert len(written) and f" {len(written)} frames were written to {path}\n" in err
            np.testing.assert_array_equal(written, samples[: len(written)])
        else:
            assert f"nothing was written to {path}\n" in err and not path.exists()


def test_an_archive_before_the_first_file_has_ended(louder, folder, stdin, tmp_path):
    """It can be read, and has no arrays yet."""
    content, path = (folder / "a.wav").read_bytes(), tmp_path / "out.npz"
    thread = threading.Thread(target=cli.main, args=[["run", louder, "-", "-o", str(path)]])
    thread.start()
    stdin.write(content[: 44 + 2 * 4000])
    give_up = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size) and time.monotonic() < give_up:
        time.sleep(0.01)
    with np.load(path) as arrays:
        assert not list(arrays)
    stdin.write(content[44 + 2 * 4000 :])
    stdin.close()
    thread.join()
    with np.load(path) as arrays:
        assert arrays["-"].shape == (2, 20000)


def test_an_archive_on_a_disk_that_is_full(louder, folder, tmp_path, capsys):
    """Files that had ended are in it."""
    path, before = tmp_path / "out.npz", resource.getrlimit(resource.RLIMIT_FSIZE)
    names = [str(folder / n) for n in ("short.wav", "b.wav", "a.wav")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        assert cli.main(["run", louder, *names, "-o", str(path)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"800 frames were written to {path}\ndreamstream: {path}: File too large\n" in capsys.readouterr().err
    with np.load(path) as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {names[0]: (2, 100), names[1]: (2, 700)}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_a_device_that_is_full(louder, folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "out.wav").symlink_to("/dev/full")
    assert cli.main(["run", louder, str(folder / "a.wav"), "-o", str(tmp_path / "out.wav")]) == 1
    assert f"dreamstream: {tmp_path / 'out.wav'}: No space left on device\n" in capsys.readouterr().err
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        patch.setattr(os, "dup2", lambda *_: None)
        assert cli.main(["run", louder, str(folder / "a.wav"), "--json"]) == 1
        patch.undo()
        assert capsys.readouterr().err == "dreamstream: standard output: No space left on device\n"
        full.close = lambda: None


# ---------------------------------------------------------------- recordings
@pytest.mark.parametrize("more", [0, 1, 3200, 5000])
def test_a_recording_that_breaks_off(more, louder, folder, tmp_path, capsys):
    """At a chunk's end or within one: it fails with the offset, what came is there, and others are whole."""
    content, cut = (folder / "a.wav").read_bytes(), str(tmp_path / "cut.wav")
    end = 44 + 2 * 1600 + more
    (tmp_path / "cut.wav").write_bytes(content[:end])
    path = tmp_path / "out.npz"
    assert cli.main(["run", louder, cut, str(folder / "a.wav"), "-o", str(path)]) == 1
    out, err = capsys.readouterr()
    n = (end - 44) // 2
    assert f"{cut}: offset {end}: expected {20000 - n} more frames of 20000, but the recording ends\n" in err
    assert err.startswith("dreamstream run: ") and err.count("\n") == 1
    assert f"cut.wav  {n / 16000:.2f} s, {n} frames" in out and "a.wav  1.25 s, 20000 frames" in out
    with np.load(path) as arrays:
        assert {name: array.shape[1] for name, array in arrays.items()} == {cut: n, str(folder / "a.wav"): 20000}


def test_standard_input(run, folder, stdin, tmp_path):
    """It is heard once: what it is compared with, and what is drawn, is what was fed."""
    pytest.importorskip("matplotlib")
    stdin.write((folder / "a.wav").read_bytes()[:40] + b"\xff\xff\xff\xff" + (folder / "a.wav").read_bytes()[44:])
    stdin.close()
    status, out, err = run("-", "b.wav", "--json", "--compare-offline", "--plot", tmp_path / "plot.png")
    assert (status, err) == (0, "")
    *lines, summary = map(json.loads, out.splitlines())
    assert summary["max_difference"] < 1e-5
    values = [line["values"][0] for line in lines if line["file"] == "-"]
    np.testing.assert_allclose(values, offline(folder, "a.wav"), atol=1e-5)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_frames_that_never_came(tmp_path, folder, capsys):
    """Padding that reflects more than there is: torch raises, a stream gives no frames, and that is said."""

    class Spectrum(ds.nn.Module):
        def forward(self, x):
            return ds.nn.functional.pad(x.unsqueeze(1), (200, 200), mode="reflect").squeeze(1).unfold(-1, 400, 160)

    ds.compile(Spectrum().eval(), ("B", "L"), rate=16000).save(tmp_path / "m.dsm")
    names = [str(folder / n) for n in ("short.wav", "a.wav")]
    assert cli.main(["run", str(tmp_path / "m.dsm"), *names]) == 0
    out, err = capsys.readouterr()
    assert (
        err == f"dreamstream run: {names[0]} gave no frames; it lasts 0.006 s\n"
        and "a.wav  1.25 s, 126 frames" in out
    )


def test_complex_outputs_are_pairs():
    from dreamstream.data.values import in_lists, in_pairs

    given = np.array([[1 + 2j, np.inf - 1j]], np.complex64)
    assert in_lists(given) == [[[1.0, 2.0], [None, -1.0]]] and in_pairs(given).shape == (1, 2, 2)


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
        (("-o", "out.npy", "--int16"), "--int16 goes with a .wav file, got out.npy"),
        (("--int16",), "--int16 goes with a .wav file, got no -o"),
        (("-o", "a.wav"), "a.wav is read from; give another file for what is written"),
        (("-o", "link.wav"), "link.wav is read from; give another file"),
        (("-o", "folder.npy"), "folder.npy: Is a directory"),
    ],
)
def test_paths_are_checked_before_the_work(run, folder, monkeypatch, options, says):
    from dreamstream.cli import run as command

    pytest.importorskip("matplotlib")
    monkeypatch.chdir(folder)
    before = (folder / "a.wav").read_bytes()
    if not (folder / "link.wav").exists():
        (folder / "link.wav").symlink_to(folder / "a.wav")
        (folder / "folder.npy").mkdir()
    monkeypatch.setattr(command, "steps", lambda *_: pytest.fail("it works already"))
    status, out, err = run(
        "a.wav", *[o if o.startswith("-") or o == "b.wav" else str(folder / o) for o in options]
    )
    assert (folder / "a.wav").read_bytes() == before and not (folder / "out.wav").exists()
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
    from dreamstream.cli.audio_file import AudioFile

    recording = AudioFile.recording
    monkeypatch.setattr(AudioFile, "recording", lambda self: recording(self) * np.float32(0.5))
    status, _, err = run("a.wav", "--compare-offline")
    assert status == 1 and "MISMATCH" in err and "a.wav" in err and err.count("\n") == 1
    monkeypatch.setattr(AudioFile, "recording", lambda self: recording(self)[:-600])
    status, out, err = run("a.wav", "--compare-offline", "--json")
    assert status == 1 and "gave (39,), the offline model (37,)" in err
    assert json.loads(out.splitlines()[-1])["max_difference"] is None


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (("gone.wav",), 1, "gone.wav: No such file"),
        (("a.wav", "a.wav"), 1, "given twice"),
        (("-", "a.wav", "-"), 1, "- is given twice"),
        (("a.wav", "--chunk-ms", "0"), 2, "expected 1 or more"),
        (("a.wav", "--chunk-ms", "9" * 20), 2, "expected at most 1000000000"),
        (("a.wav", "--threads", "1025"), 2, "expected at most 1024"),
        (("a.wav", "-o", "out.txt.doc"), 2, "expected a .npy, .npz, .csv, .wav or .jsonl file"),
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
